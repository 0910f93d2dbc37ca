//! What a program asks of its runtime and has at once. The shell hands it on to the language front, with the lock and the
//! waiting around it; the simulator gives it to its programs.

use crate::core::calls::Target;
use crate::core::client::Client;
use crate::core::execute::Duty;
use crate::core::identity::Identity;
use crate::core::io::{DAEMON, Io, Token};
use crate::core::objects::Effects;
use crate::core::questions::DaemonAnswer;
use crate::core::signals::ClientEvent;
use crate::core::work::{Arguments, Class, ClassIndex, Work};
use oxiray_ids::{ActorId, LeaseNumber, ObjectId, TaskId, WorkerId};
use oxiray_wire::Message;
use oxiray_wire::message::{ActorCreate, ActorMaker, Assign, Content, Goodbye, Value};
use std::sync::Arc;
use std::time::Instant;

/// What a process keeps: all of it returns to zero when its program lets go of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retained {
    /// Objects known.
    pub objects: usize,
    /// Tasks that have not ended.
    pub tasks: usize,
    /// Workers leased.
    pub leases: usize,
    /// Tasks that can be run again where their results are lost.
    pub task_specs: usize,
    /// Bytes of the records for that.
    pub task_spec_bytes: usize,
}

impl<I: Io> Client<I> {
    // --- the process ---

    /// The shell.
    pub fn io(&mut self) -> &mut I {
        &mut self.io
    }

    /// What time it is.
    pub fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Who this process is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The head that this process knows.
    pub fn epoch(&self) -> u64 {
        self.peers.epoch()
    }

    /// A worker is told what it was made for.
    pub fn assigned(&mut self, assign: &Assign) {
        self.service.inbox.serve_as(assign.actor.is_some());
        self.log.assigned(assign);
    }

    /// The next thing for this process's user to know.
    pub fn take_news(&mut self) -> Option<ClientEvent> {
        self.signals.news.pop_front()
    }

    /// The job is over: nothing is asked for or tried again. `error` ended its program, empty where none did.
    pub fn leave(&mut self, error: &str) {
        self.calls.leaving = true;
        self.io.send_now(DAEMON, &Goodbye { error: error.to_owned() });
        if self.is_away() {
            // Its job ends for want of it.
            self.daemon_gone();
        }
    }

    /// What this process keeps.
    pub fn kept(&self) -> Retained {
        let (task_specs, task_spec_bytes) = self.lineage.figures();
        Retained {
            objects: self.objects.len(),
            tasks: self.calls.tasks.len(),
            leases: self.leases.granted.len(),
            task_specs,
            task_spec_bytes,
        }
    }

    // --- references and values ---

    /// One more reference to an object known here.
    pub fn retain(&mut self, id: ObjectId) {
        self.objects.retain(id);
    }

    /// One reference less.
    pub fn release(&mut self, id: ObjectId) {
        let mut effects = Effects::default();
        self.objects.release(id, &mut effects);
        self.apply(effects);
    }

    /// A reference that arrived inside a value.
    pub fn borrow(&mut self, id: ObjectId, owner: WorkerId) {
        self.objects.borrow(id, owner);
    }

    /// The process that owns an object.
    pub fn owner(&self, id: ObjectId) -> WorkerId {
        self.objects.owner(id)
    }

    /// A name for an object that this process makes of itself.
    pub fn name_put(&mut self) -> ObjectId {
        self.new_task(ActorId::nil_of(self.identity.job)).object(ObjectId::FIRST_PUT)
    }

    /// Keeps a value under a new name, with one reference.
    pub fn put(&mut self, id: ObjectId, value: Value) {
        let holds = u32::from(matches!(value.content, Some(Content::Stored(_))));
        self.daemon.questions.writing.remove(&id);
        self.objects.put(id, value, holds);
    }

    /// The value, where it is there.
    pub fn value(&self, id: ObjectId) -> Option<&Value> {
        self.objects.value(id)
    }

    /// The value, where it is there; the user looks at it.
    pub fn look_at(&mut self, id: ObjectId) -> Option<&Value> {
        self.objects.look_at(id)
    }

    /// How often the object's value was lost.
    pub fn losses(&self, id: ObjectId) -> u32 {
        self.objects.losses(id)
    }

    // --- questions to the daemon ---

    /// Asks the daemon; the number of the question.
    pub fn ask(&mut self, message: impl FnOnce(u64) -> Message) -> u64 {
        let question = self.daemon.questions.ask();
        let message = message(question);
        self.note_question(question, &message);
        self.io.send_now(DAEMON, &message);
        question
    }

    /// The answer, where it is there.
    pub fn take_answer(&mut self, question: u64) -> Option<DaemonAnswer> {
        self.daemon.questions.take(question)
    }

    // --- tasks ---

    /// The class of tasks with these needs; it has one use, for the caller, until [`Client::release_class`].
    pub fn class(&mut self, class: Class) -> ClassIndex {
        self.leases.class(Arc::new(class))
    }

    /// Gives one use of a class up.
    pub fn release_class(&mut self, class: ClassIndex) {
        self.leases.release_class(class.0);
    }

    /// Runs a task on some worker. Its results, the objects from 1 on, have one reference each.
    pub fn submit_task(&mut self, class: ClassIndex, work: Work) -> TaskId {
        self.submit(Target::Class(class.0), work)
    }

    // --- actors ---

    /// Makes an actor for this task, which is nil for a driver; it has one handle, for the caller. The answer to the question
    /// is awaited where there is one.
    pub fn create_actor(
        &mut self,
        mut create: ActorCreate,
        arguments: Arguments,
        is_asked: bool,
        task: TaskId,
    ) -> (ActorId, u64) {
        let questions = &mut self.daemon.questions;
        let question = if is_asked { questions.ask() } else { questions.forget() };
        create.request = question;
        let actor = self.begin_actor(create, arguments);
        if !task.is_nil() {
            self.io.send_soon(DAEMON, &ActorMaker { actor, task });
        }
        (actor, question)
    }

    /// Calls a method. Its results, the objects from 1 on, have one reference each.
    pub fn submit_call(&mut self, actor: ActorId, work: Work) -> TaskId {
        self.submit(Target::Actor(actor), work)
    }

    // --- calls that run here ---

    /// The next thing to do for a thread of the named concurrency group, or of none.
    pub fn take_duty(&mut self, group: Option<&str>) -> Option<Duty> {
        let now = self.now;
        self.service.inbox.take(group, &mut self.log, || now)
    }

    /// The thread that runs calls can be interrupted.
    pub fn serve_interrupts(&mut self) {
        self.service.inbox.interrupts.serve();
    }

    /// Whether the call that runs is to be interrupted, here and now. Asked once an interrupt.
    pub fn take_interrupt(&mut self) -> bool {
        self.service.inbox.interrupts.take()
    }

    /// The user's part of a call is over: it is not interrupted any more. Whether it was cancelled.
    pub fn end_of_user_code(&mut self, task: TaskId) -> bool {
        self.service.inbox.interrupts.end_of_user_code(task)
    }

    /// Asked-for streams and the workers or actors behind them: for whoever plays the network.
    pub fn stream_of_lease(&self, lease: LeaseNumber) -> Option<Token> {
        self.leases.granted.get(&lease).map(|lease| lease.token)
    }

    /// The stream to an actor's process.
    pub fn stream_of_actor(&self, actor: ActorId) -> Option<Token> {
        self.actors.link_of(actor)
    }
}
