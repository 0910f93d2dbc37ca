//! The runtime of one process, as the language front uses it.

use crate::away::Entry;
use crate::core::DAEMON;
use crate::core::actors::ActorPhase;
use crate::core::contained::ScannedValue;
use crate::core::identity::Identity;
use crate::core::objects::{OnDevice, is_error};
use crate::core::questions::DaemonAnswer;
use crate::core::signals::ClientEvent;
use crate::core::work::{Arguments, Class, ClassIndex, Work};
use crate::lead::protocol::Unmet;
use crate::lead::{Shared, is_main_thread};
use crate::links::Links;
use crate::returning;
use crate::shell::{Shell, State};
use oxiray_ids::{ActorId, ObjectId, TaskId, Unique, WorkerId};
use oxiray_wire::message::{
    ActorAnswer, ActorCreate, ActorLookup, Assign, ClusterQuery, ClusterReport, Failure, FailureCode, Unpin, Value,
    Welcome,
};
use oxiray_wire::{Connection, Received};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

/// Why something could not be had.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RuntimeError {
    /// The wait ended early.
    #[error("the wait ended early")]
    Unmet(Unmet),
    /// The runtime, the daemon or a worker could not do it.
    #[error("{}", .0.text)]
    Failed(Failure),
}

impl From<Unmet> for RuntimeError {
    fn from(unmet: Unmet) -> Self {
        Self::Unmet(unmet)
    }
}

impl Identity {
    /// Who a process is to the daemon that let it in.
    pub fn from_welcome(welcome: &Welcome) -> Self {
        Self {
            node: welcome.node,
            worker: welcome.worker,
            job: welcome.job,
            namespace: welcome.namespace.clone(),
            session: welcome.session.clone(),
            address: welcome.address.clone(),
            epoch: welcome.epoch,
        }
    }
}

/// What a call meets that waits for something after it was cancelled.
fn waits_for_nothing() -> RuntimeError {
    RuntimeError::Failed(FailureCode::Cancelled.because("this call was cancelled, so that it waits for nothing more"))
}

/// An actor to be made.
#[derive(Debug, Clone)]
pub struct ActorWork {
    /// What the daemon is told; ids, owner and request number are filled in here.
    pub create: ActorCreate,
    /// Whether the creator waits to hear that the name is free.
    pub named: bool,
    /// The constructor's arguments.
    pub arguments: Arguments,
    /// The task that makes it; nil for a driver.
    pub parent: TaskId,
}

/// The runtime of this process.
#[derive(Debug, Clone)]
pub struct Runtime {
    pub(crate) shared: Arc<Shared>,
}

impl Runtime {
    /// Takes over a connection on which this process was let in, with what came on it since, and starts
    /// the background thread. `assigned` is what a worker was made for, `entry` how a driver is let in again where its daemon
    /// comes back.
    pub fn start(
        identity: Identity,
        daemon: Connection,
        early: Vec<Received>,
        assigned: Option<&Assign>,
        entry: Option<Entry>,
    ) -> std::io::Result<Self> {
        let links = Links::new(daemon)?;
        let began = (Instant::now(), SystemTime::now());
        let mut state = State::new(identity, Shell::new(links), Unique::new(), began);
        if let Some(assigned) = assigned {
            state.assigned(assigned);
        }
        for received in early {
            state.heard(DAEMON, received);
        }
        let shared = Arc::new(Shared::new(state)?);
        if let Some(entry) = entry {
            let away = returning::away(entry, &shared);
            shared.with(|state| {
                state.io.away = Some(away);
                state.wait_for_daemon();
            });
        }
        let attending = Arc::clone(&shared);
        oxiray_threads::spawn(oxiray_threads::ATTEND, move || attending.attend_or_abort())?;
        Ok(Self { shared })
    }

    /// Whether both are the same connection.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Who this process is.
    pub fn identity(&self) -> &Identity {
        &self.shared.identity
    }

    /// Says that the job is over, and which error ended its program, empty where none did; [`ClientEvent::Over`] follows the
    /// last of its workers' output.
    pub fn say_goodbye(&self, error: &str) {
        self.shared.with(|state| {
            state.tell_of_metrics();
            state.leave(error);
        });
    }

    /// In a process forked from the one that this belongs to: from here on, dropping references does nothing.
    pub fn abandon(&self) {
        self.shared.abandoned.store(true, Ordering::Relaxed);
    }

    /// Whether [`Runtime::abandon`] was called.
    pub fn is_abandoned(&self) -> bool {
        self.shared.abandoned.load(Ordering::Relaxed)
    }

    /// Ends the background thread and closes every stream; whoever waits is told that it is over.
    pub fn close(&self) {
        self.shared.with(State::daemon_gone);
        self.shared.close();
    }

    // --- references and values ---

    /// One more reference to an object known here.
    pub fn retain(&self, id: ObjectId) {
        self.shared.with(|state| state.objects.retain(id));
    }

    /// One reference less.
    pub fn release(&self, id: ObjectId) {
        self.shared.with(|state| state.release(id));
    }

    /// A reference that arrived inside a value.
    pub fn borrow(&self, id: ObjectId, owner: WorkerId) {
        self.shared.with(|state| state.objects.borrow(id, owner));
    }

    /// The owner of an object.
    pub fn owner(&self, id: ObjectId) -> WorkerId {
        self.shared.with(|state| state.objects.owner(id))
    }

    /// References to these leave the process by a way that the runtime does not see: the daemon is told.
    pub fn promise(&self, ids: &[ObjectId]) {
        self.shared.with(|state| state.promise(ids));
    }

    /// How many objects are known here.
    pub fn objects_known(&self) -> usize {
        self.shared.with(|state| state.objects.len())
    }

    /// Keeps a value under a new id, with one reference.
    pub fn put(&self, task: TaskId, index: u32, value: Value) -> ObjectId {
        let id = task.object(index);
        self.shared.with(|state| state.put(id, value));
        id
    }

    /// The value where it is there already, without waiting.
    pub fn peek(&self, id: ObjectId) -> Option<ScannedValue> {
        self.shared.with(|state| state.objects.look_at(id).map(ScannedValue::from))
    }

    /// Waits for the value of one object.
    pub fn get_one(&self, id: ObjectId, deadline: Option<Instant>) -> Result<ScannedValue, RuntimeError> {
        self.waiting((&[id], true), deadline, |state| {
            let value = state.objects.value(id)?;
            let (is_failure, seen) = (is_error(value), ScannedValue::from(value));
            if is_failure {
                state.objects.look_at(id);
            }
            Some(seen)
        })
    }

    /// Waits for what `check` finds; `needs_all` where that takes all of `ids` and nothing else.
    pub(crate) fn waiting<R>(
        &self,
        (ids, needs_all): (&[ObjectId], bool),
        deadline: Option<Instant>,
        mut check: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, RuntimeError> {
        let (mut is_asked_for, mut begun, mut noted) = (false, false, false);
        // Calls that are alone run in the main thread; what other threads wait for holds nobody up.
        let is_stuck_without = needs_all && deadline.is_none() && is_main_thread();
        let result = self.shared.wait(deadline, |state| {
            if let Some(found) = check(state) {
                return Some(Ok(found));
            }
            if state.ends_waits_here() {
                return Some(Err(waits_for_nothing()));
            }
            if !std::mem::replace(&mut is_asked_for, true) {
                for id in ids {
                    state.want(*id);
                }
                if let Some(failure) = &state.daemon.lost {
                    return Some(Err(RuntimeError::Failed(failure.clone())));
                }
                state.now = Instant::now();
                begun = state.begin_waiting(ids);
                noted = is_stuck_without && state.note_awaited(ids);
            }
            None
        });
        if begun || noted {
            self.shared.with(|state| {
                if noted {
                    state.forget_awaited();
                }
                if begun {
                    state.end_waiting();
                }
            });
        }
        result?
    }

    /// From here on, waits of the main thread end early where [`Runtime::asked_whether_alone`] has a question.
    pub fn says_whether_alone(&self) {
        self.shared.with(|state| state.service.standstill.has_language = true);
    }

    /// The question whether the main thread, which asks this after its wait ended early, is alone: whether no other thread runs the
    /// user's code, and nothing else begins any by itself. It is answered before that wait is begun anew.
    pub fn asked_whether_alone(&self) -> Option<u64> {
        if !is_main_thread() {
            return None;
        }
        self.shared.with(|state| state.service.standstill.take_asked())
    }

    /// The answer of the main thread, which waits for calls, or for what it waited for.
    pub fn answer_whether_alone(&self, number: u64, is_alone: bool, waits_for_calls: bool) {
        self.shared.with(|state| state.waits_answered(number, is_alone, waits_for_calls));
    }

    /// Asks for [`ClientEvent::Ready`] when the value is there; `false` where it is already.
    pub fn announce(&self, id: ObjectId) -> bool {
        self.shared.with(|state| {
            state.want(id);
            state.objects.announce(id)
        })
    }

    /// Asks for [`ClientEvent::Ended`] when nothing in this process refers to the object any more; `false` where this process
    /// does not own it.
    pub fn watch(&self, id: ObjectId) -> bool {
        self.shared.with(|state| state.objects.watch(id))
    }

    /// Keeps `size` bytes on a device for a stored object, until [`ClientEvent::Ended`] tells that nobody anywhere refers to that any
    /// more; `false` where this process does not own it.
    pub fn keep_on_device(&self, id: ObjectId, device: String, size: u64) -> bool {
        self.shared.with(|state| state.objects.keep_on_device(id, OnDevice { device, size }))
    }

    /// The next thing for this process's user to know; waits for it.
    pub fn next_news(&self) -> ClientEvent {
        self.shared.next_headline()
    }

    // --- questions to the daemon ---

    pub(crate) fn ask(&self, message: impl FnOnce(u64) -> oxiray_wire::Message) -> Result<DaemonAnswer, RuntimeError> {
        self.ask_until(None, None, message)
    }

    /// `pins` is the object that an answer would pin: when the deadline passes first, that pin is given back.
    pub(crate) fn ask_until(
        &self,
        deadline: Option<Instant>,
        pins: Option<ObjectId>,
        message: impl FnOnce(u64) -> oxiray_wire::Message,
    ) -> Result<DaemonAnswer, RuntimeError> {
        let question = self.shared.with(|state| {
            let question = state.daemon.questions.ask();
            let message = message(question);
            if let Err(error) = message.check_size() {
                state.daemon.questions.withdraw(question);
                let failure = FailureCode::Invalid.because(error.to_string());
                return Err(RuntimeError::Failed(failure));
            }
            state.note_question(question, &message);
            state.io.links.post_now(DAEMON, &message);
            Ok(question)
        })?;
        self.answer_to(question, deadline, pins)
    }

    pub(crate) fn answer_to(
        &self,
        question: u64,
        deadline: Option<Instant>,
        pins: Option<ObjectId>,
    ) -> Result<DaemonAnswer, RuntimeError> {
        loop {
            match self.shared.wait(deadline, |state| state.daemon.questions.take(question)) {
                Ok(DaemonAnswer::Refused(failure)) => return Err(RuntimeError::Failed(failure)),
                Ok(answer) => return Ok(answer),
                // The daemon answers at once or when room is made; a signal is looked at after that.
                Err(Unmet::Interrupted) => {}
                Err(Unmet::TimedOut) => {
                    self.shared.with(|state| {
                        if let Some(object) = state.daemon.questions.abandon(question, pins) {
                            state.io.links.post(DAEMON, &Unpin { object });
                        }
                    });
                    return Err(Unmet::TimedOut.into());
                }
            }
        }
    }

    // --- tasks ---

    /// The class of tasks with these needs; it has one use, for the caller, until [`Runtime::release_class`].
    pub fn class(&self, class: Class) -> ClassIndex {
        self.shared.with(|state| state.class(class))
    }

    /// Gives one use of a class up.
    pub fn release_class(&self, class: ClassIndex) {
        self.shared.with(|state| state.release_class(class));
    }

    /// Runs a task on some worker. Its results, the objects from 1 on, have one reference each.
    pub fn submit(&self, class: ClassIndex, work: Work) -> TaskId {
        self.shared.with_time(|state| state.submit_task(class, work))
    }

    // --- actors ---

    /// Makes an actor; it has one handle, for the caller. With a name, waits to hear whether it was free.
    pub fn create_actor(&self, work: ActorWork) -> Result<(ActorId, Option<ActorAnswer>), RuntimeError> {
        let ActorWork { create, named, arguments, parent } = work;
        let (id, question) = self.shared.with(|state| state.create_actor(create, arguments, named, parent));
        if !named {
            return Ok((id, None));
        }
        let answer = self.answer_to(question, None, None);
        match answer {
            Ok(DaemonAnswer::Actor(answer)) if answer.failure.is_none() => {
                let found = answer.actor.unwrap_or(id);
                if found != id {
                    // As with any actor found by its name, the handle does not keep it.
                    self.shared.with(|state| {
                        state.add_handle(found, false);
                        state.unmake_actor(id);
                    });
                }
                Ok((found, Some(*answer)))
            }
            refused => {
                self.shared.with(|state| state.unmake_actor(id));
                match refused {
                    Ok(DaemonAnswer::Actor(answer)) => Err(RuntimeError::Failed(answer.failure.unwrap_or_default())),
                    Ok(_) => Err(unexpected()),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Calls a method. Its results, the objects from 1 on, have one reference each. Fails with code `pending_calls` where
    /// too many calls of this process to the actor are not answered.
    pub fn call_actor(&self, actor: ActorId, work: Work) -> Result<TaskId, RuntimeError> {
        self.shared.with_time(|state| {
            if work.pending_limit > 0 && state.actors.pending(actor) >= work.pending_limit {
                let text = format!(
                    "`{}` was not called: {} calls to its actor are not answered yet, and its max_pending_calls allows \
                     no more. Wait for some of them first, or make the actor with a higher limit",
                    work.name, work.pending_limit
                );
                return Err(RuntimeError::Failed(FailureCode::PendingCalls.because(text)));
            }
            Ok(state.submit_call(actor, work))
        })
    }

    /// One more handle of an actor here; `keeps` is whether the actor lives as long as the handle does.
    pub fn retain_actor(&self, actor: ActorId, keeps: bool) {
        self.shared.with(|state| state.add_handle(actor, keeps));
    }

    /// One handle less.
    pub fn release_actor(&self, actor: ActorId, keeps: bool) {
        self.shared.with(|state| state.drop_handle(actor, keeps));
    }

    /// A handle leaves this process by a way that the runtime does not see: the actor is kept until the job of
    /// `driver` ends.
    pub fn keep_for_job(&self, actor: ActorId, driver: WorkerId) {
        self.shared.with(|state| {
            state.objects.retain(actor.anchor());
            state.hold_for(&[actor.anchor()], &driver);
        });
    }

    /// Ends an actor's process; `restart` is whether there may be another.
    pub fn kill_actor(&self, actor: ActorId, restart: bool) {
        self.shared.with(|state| state.kill_actor(actor, restart));
    }

    /// What this process knows of an actor, without asking anybody; `None` where it has made no call of it yet.
    pub fn actor_phase(&self, actor: ActorId) -> Option<ActorPhase> {
        self.shared.with(|state| state.actors.phase(actor))
    }

    /// Finds an actor by its name.
    pub fn find_actor(&self, name: &str, namespace: &str) -> Result<ActorAnswer, RuntimeError> {
        let (name, namespace) = (name.to_owned(), namespace.to_owned());
        match self.ask(|request| ActorLookup { request, name, namespace }.into())? {
            DaemonAnswer::Actor(mut answer) => match answer.failure.take() {
                Some(failure) => Err(RuntimeError::Failed(failure)),
                None => Ok(*answer),
            },
            _ => Err(unexpected()),
        }
    }

    /// What the cluster has, and how it is used.
    pub fn cluster(&self) -> Result<ClusterReport, RuntimeError> {
        match self.ask(|request| ClusterQuery { request }.into())? {
            DaemonAnswer::Cluster(report) => Ok(*report),
            _ => Err(unexpected()),
        }
    }
}

pub(crate) fn unexpected() -> RuntimeError {
    RuntimeError::Failed(
        FailureCode::System
            .because("the daemon gave an answer that does not fit the question: the two are of different builds"),
    )
}
