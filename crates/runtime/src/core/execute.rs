//! Calls that others send to this process, waiting to be run.
//!
//! - EXECUTE-1: calls of one stream are handed out in the order they came; where an actor has concurrency groups,
//!   those of one group and stream.
//! - EXECUTE-2: a task's worker does not sit on tasks it cannot begin soon: behind one that runs long, or
//!   that waits for a value, they are given back to their owner, who finds them another worker.
//! - EXECUTE-3: nor does it sit on what it was granted while an argument that is lost is made again, which may need the
//!   same: the task goes back to its owner, and of an actor's constructor the daemon is told.

use crate::core::client::Client;
use crate::core::interrupt::Interrupts;
use crate::core::io::{DAEMON, Io, Role, Token};
use crate::core::objects::is_error;
use crate::core::task_log::TaskLog;
use bytes::Bytes;
use oxiray_ids::{ObjectId, TaskId, WorkerId};
use oxiray_wire::ReplyFrame;
use oxiray_wire::message::{
    ActorFailed, ActorLeaving, ActorReady, ArgumentLost, Assign, Call, CallerToWorker, Lingers, LostArgument, Reply,
    Retried, Returned, Value,
};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A task that runs this long is in the way of those behind it.
const PATIENCE: Duration = Duration::from_millis(5);

/// For so many results an outcome has memory that is used again.
const RESULTS_KEPT: usize = 16;

/// The next thing for a worker to do.
#[derive(Debug)]
pub enum Duty {
    /// Who it is now, and what it may use.
    Become(Box<Assign>),
    /// Run this and reply with the ticket.
    Run(Ticket, Box<Call>),
    /// Cancel this call, which an event loop was given.
    Cancel(TaskId),
    /// Collect garbage.
    Collect,
    /// Nothing more comes; leave.
    Leave,
}

/// What a reply needs to find its way.
#[derive(Debug)]
pub struct Ticket {
    from: Token,
    task: TaskId,
    code: Option<Arc<Bytes>>,
    /// Where it stands in the task log.
    place: usize,
}

impl Ticket {
    /// The code that the call names by its hash.
    pub fn code(&self) -> Bytes {
        self.code.as_deref().cloned().unwrap_or_default()
    }

    /// The task that it is the ticket of.
    pub fn task(&self) -> TaskId {
        self.task
    }

    pub(crate) fn from(&self) -> Token {
        self.from
    }
}

#[derive(Debug)]
enum Item {
    Assign(Box<Assign>),
    /// The stream it came on, and the code that it names.
    Call(Token, Box<Call>, Option<Arc<Bytes>>),
}

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    items: VecDeque<Item>,
    /// The concurrency groups of an actor, each with threads of its own; all other calls are in `items`.
    groups: Vec<(String, VecDeque<Item>)>,
    /// Whether calls are an actor's, whose order and place are fixed.
    pub(crate) is_actor: bool,
    pub(crate) interrupts: Interrupts,
    running: usize,
    running_since: Option<Instant>,
    /// Garbage is to be collected before the next call.
    collects: bool,
    closed: bool,
    closing: bool,
    /// Nothing more is handed out, though those who wait for it do not leave yet.
    ending: bool,
    /// The daemon was told that the actor ends.
    said_leaving: bool,
    /// What was lost of the arguments of calls that go back to their owner.
    lost_arguments: FxHashMap<TaskId, Vec<LostArgument>>,
}

impl Inbox {
    pub(crate) fn assign(&mut self, assign: Box<Assign>) {
        self.is_actor = assign.actor.is_some();
        self.items.push_back(Item::Assign(assign));
    }

    pub(crate) fn serve_as(&mut self, is_actor: bool) {
        self.is_actor = is_actor;
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    pub(crate) fn collect(&mut self) {
        self.collects = true;
    }

    pub(crate) fn end(&mut self) {
        self.ending = true;
    }

    pub(crate) fn close_when_empty(&mut self) {
        self.closing = true;
    }

    /// Takes a call out that has not begun; the number of its results.
    pub(crate) fn withdraw(&mut self, from: Token, task: TaskId) -> Option<u32> {
        let is_it = |item: &Item| matches!(item, Item::Call(token, call, _) if *token == from && call.task == task);
        let mut queues = std::iter::once(&mut self.items).chain(self.groups.iter_mut().map(|(_, items)| items));
        let found = queues.find_map(|items| items.iter().position(is_it).and_then(|at| items.remove(at)));
        match found {
            Some(Item::Call(_, call, _)) => Some(call.results),
            _ => None,
        }
    }

    /// Drops what a client asked for that has not begun; the tasks.
    pub(crate) fn client_gone(&mut self, token: Token) -> Vec<TaskId> {
        let mut dropped = Vec::new();
        for items in std::iter::once(&mut self.items).chain(self.groups.iter_mut().map(|(_, items)| items)) {
            items.retain(|item| match item {
                Item::Call(from, call, _) if *from == token => {
                    dropped.push(call.task);
                    false
                }
                _ => true,
            });
        }
        dropped
    }

    /// From here on, calls of these groups queue for themselves.
    pub(crate) fn divide(&mut self, groups: Vec<String>) {
        self.groups = groups.into_iter().map(|name| (name, VecDeque::new())).collect();
        for item in std::mem::take(&mut self.items) {
            self.push(item);
        }
    }

    fn push(&mut self, item: Item) {
        let group = match &item {
            Item::Call(_, call, _) if !call.group.is_empty() => Some(call.group.as_str()),
            _ => None,
        };
        let own = group.and_then(|group| self.groups.iter_mut().find(|(name, _)| name == group));
        own.map_or(&mut self.items, |(_, items)| items).push_back(item);
    }

    /// Whether every call that came was begun.
    fn is_empty(&self) -> bool {
        self.items.is_empty() && self.groups.iter().all(|(_, items)| items.is_empty())
    }

    /// Whether every call that was begun is over.
    pub(crate) fn is_done(&self) -> bool {
        self.running == 0
    }

    /// Whether a task is under way here; an actor's calls lend nothing.
    pub(crate) fn runs_task(&self) -> bool {
        self.running > 0 && !self.is_actor
    }

    /// When calls behind the running one are to be given back.
    pub(crate) fn give_back_at(&self) -> Option<Instant> {
        if self.is_actor || self.items.is_empty() {
            return None;
        }
        self.running_since.map(|since| since + PATIENCE)
    }

    /// The next thing to do for a thread of the named group, or of none; `clock` tells the time where there is something.
    pub(crate) fn take(
        &mut self,
        group: Option<&str>,
        log: &mut TaskLog,
        clock: impl FnOnce() -> Instant,
    ) -> Option<Duty> {
        if self.closed {
            return Some(Duty::Leave);
        }
        if self.ending {
            return None;
        }
        if let Some(task) = self.interrupts.next_for_event_loop() {
            return Some(Duty::Cancel(task));
        }
        if std::mem::take(&mut self.collects) {
            return Some(Duty::Collect);
        }
        let items = match group {
            None => &mut self.items,
            Some(group) => self.groups.iter_mut().find(|(name, _)| name == group).map(|(_, items)| items)?,
        };
        match items.pop_front() {
            Some(Item::Assign(assign)) => {
                log.assigned(&assign);
                Some(Duty::Become(assign))
            }
            Some(Item::Call(from, call, code)) => {
                let started = clock();
                self.running += 1;
                self.running_since = Some(started);
                let task = call.task;
                self.interrupts.begin(task, !self.is_actor);
                let place = log.begin(task, &call, started);
                Some(Duty::Run(Ticket { from, task, code, place }, call))
            }
            None if self.closing && self.running == 0 && self.is_empty() => Some(Duty::Leave),
            None => None,
        }
    }
}

impl<I: Io> Client<I> {
    pub(crate) fn client_said(&mut self, token: Token, message: CallerToWorker) {
        match message {
            CallerToWorker::Function(function) => {
                let codes = self.service.codes.entry(token).or_default();
                codes.note(function.hash, function.body.len(), function.body);
            }
            CallerToWorker::Call(call) => {
                self.service.yieldings.open(token, &call);
                let code = match &call.function {
                    none if none.is_empty() => None,
                    hash => self.service.codes.get_mut(&token).and_then(|codes| codes.get(hash)),
                };
                self.service.inbox.push(Item::Call(token, call, code));
                self.signals.changed = true;
            }
            CallerToWorker::Cancel(cancel) => self.cancel_call(token, &cancel),
            CallerToWorker::StreamRead(read) => self.items_read(&read),
            CallerToWorker::StreamStop(stop) => self.stop_call(token, stop.task),
        }
    }

    /// Stops a call whose results nobody reads any more; one that has not begun is over with that.
    fn stop_call(&mut self, from: Token, task: TaskId) {
        if self.service.inbox.withdraw(from, task).is_some() {
            self.service.yieldings.close(task);
            self.signals.changed = true;
            let results = vec![Value::default()];
            self.io.send_now(from, &Reply { task, results, ..Reply::default() });
        } else {
            self.stop_yielding(task);
        }
    }

    /// EXECUTE-2.
    pub(crate) fn give_back_queued(&mut self) {
        if self.service.inbox.is_actor {
            return;
        }
        let mut queued: Vec<(Token, Vec<TaskId>)> = Vec::new();
        self.service.inbox.items.retain(|item| {
            let Item::Call(from, call, _) = item else { return true };
            match queued.iter_mut().find(|(token, _)| token == from) {
                Some((_, tasks)) => tasks.push(call.task),
                None => queued.push((*from, vec![call.task])),
            }
            false
        });
        for (token, tasks) in queued {
            for task in &tasks {
                self.service.yieldings.close(*task);
            }
            self.io.send_now(token, &Returned { tasks, lost: Vec::new() });
        }
    }

    /// Whose calls come on a stream. Nobody's where it is over, though its owner may live: where nobody hears of what is
    /// held for it, nobody lets go of it.
    pub(crate) fn owner_on(&self, stream: Token) -> Option<WorkerId> {
        match self.peers.role(stream)? {
            Role::Client(owner) => Some(owner),
            Role::Daemon | Role::Lease(_) | Role::Actor(_) => None,
        }
    }

    /// Sends a call's results to its owner. `borrowed` are the references that came with the arguments.
    ///
    /// Who waits for the reply runs on another core: what only this process is to know of comes after it.
    /// The outcome is empty then, and its memory good for another.
    pub fn reply(&mut self, ticket: Ticket, outcome: &mut Outcome) {
        if let Some(lost) = self.service.inbox.lost_arguments.remove(&ticket.task) {
            return self.give_back(&ticket, lost, outcome);
        }
        let Ticket { from, task, code, place } = ticket;
        let owner = self.owner_on(from);
        let kept = if owner.is_some() { self.objects.keep(&outcome.borrowed) } else { Vec::new() };
        self.promise(&outcome.handed);
        if let Some(owner) = &owner {
            self.give(&outcome.handed, owner);
            self.give(&outcome.stored, owner);
        }
        self.give_up_written(&outcome.stored);
        let ended = self.now;
        let ran = self.log.started(place).map_or(Duration::ZERO, |started| ended.saturating_duration_since(started));
        let shared = shared_error(&outcome.results);
        let reply = ReplyFrame {
            task,
            results: if shared.is_some() { &[] } else { &outcome.results },
            kept: &kept,
            retiring: outcome.retiring,
            run_us: u32::try_from(ran.as_micros()).unwrap_or(u32::MAX),
            retry: outcome.retry,
            items: outcome.items,
            raised: shared.or(outcome.raised.as_ref()),
        };
        // Never gathered: what is done must be known before the next call can take this process down.
        self.io.send_now(from, &reply);
        self.service.inbox.interrupts.end(task);
        self.signals.timer_moved |= self.log.end(place, ended, &outcome.results, &outcome.error_text);
        self.call_is_over(task);
        for id in outcome.handed.drain(..) {
            self.release(id);
        }
        outcome.clear();
        drop(code);
    }

    /// The call was answered, or never will be.
    fn call_is_over(&mut self, task: TaskId) {
        self.service.yieldings.close(task);
        self.service.inbox.running -= 1;
        if self.service.inbox.running == 0 {
            self.service.inbox.running_since = None;
            self.signals.changed |= self.service.inbox.closing || self.service.inbox.closed;
        }
    }

    /// The stored bytes of an argument are lost, which `call` was to be run with: its task or its actor's constructor, and
    /// nothing for a method. The owner of the call had found them lost `losses` times before, and this process `seen` times.
    /// Whether the call goes back to its owner (EXECUTE-3); otherwise it waits.
    pub fn argument_lost(&mut self, call: Option<TaskId>, object: ObjectId, losses: u32, seen: u32) -> bool {
        match call {
            Some(task) if !self.service.inbox.is_actor => {
                let lost = LostArgument { object, losses };
                self.service.inbox.lost_arguments.entry(task).or_default().push(lost);
                return true;
            }
            Some(_) => {
                self.report_lost(object, seen);
                self.io.send_now(DAEMON, &ArgumentLost { object });
            }
            None => self.report_lost(object, seen),
        }
        false
    }

    /// EXECUTE-3: the call was not begun.
    fn give_back(&mut self, ticket: &Ticket, lost: Vec<LostArgument>, outcome: &mut Outcome) {
        // What other arguments brought is held as long as anything here refers to it.
        let kept = self.objects.keep(&outcome.borrowed);
        let me = self.identity.worker;
        self.hold_for(&kept, &me);
        self.io.send_now(ticket.from, &Returned { tasks: vec![ticket.task], lost });
        self.abandon_call(ticket);
        outcome.clear();
    }

    /// The call will not be answered: its process ends.
    pub(crate) fn abandon_call(&mut self, ticket: &Ticket) {
        self.service.inbox.interrupts.end(ticket.task);
        self.log.abandon(ticket.place);
        self.call_is_over(ticket.task);
    }

    /// The call is run again in its place, which its owner is told before it can take this process down.
    pub fn call_is_retried(&mut self, ticket: &Ticket) {
        self.io.send_now(ticket.from, &Retried { task: ticket.task });
    }

    /// Whether tasks or actors that this process made are still under way, which would end with it. Not where a call that
    /// was begun is never answered, or nobody is left to tell of them.
    pub fn has_unfinished(&self) -> bool {
        self.service.inbox.is_done()
            && self.daemon.lost.is_none()
            && (self.calls.tasks.len() > 0 || self.actors.has_made_some())
    }

    /// Says that the process stays for what it made.
    pub fn linger(&mut self) {
        self.io.send_now(DAEMON, &Lingers {});
    }

    /// The actor's constructor returned; `borrowed` are the references that its arguments brought.
    pub fn actor_ready(&mut self, borrowed: &[ObjectId]) {
        // The daemon holds the arguments for the actor until it hears that it is ready.
        let kept = self.objects.keep(borrowed);
        let me = self.identity.worker;
        self.hold_for(&kept, &me);
        self.io.send_now(DAEMON, &ActorReady {});
    }

    /// The actor's constructor failed with this error.
    pub fn actor_failed(&mut self, error: Value) {
        self.io.send_now(DAEMON, &ActorFailed { error: Some(error) });
    }

    /// Tells the daemon once that the actor ends, and whether somebody meant it to.
    pub fn actor_leaving(&mut self, text: String, unintended: bool) {
        if !std::mem::replace(&mut self.service.inbox.said_leaving, true) {
            self.io.send_now(DAEMON, &ActorLeaving { text, unintended });
        }
    }
}

/// What running a call came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// One value a result.
    pub results: Vec<Value>,
    /// References that the arguments brought.
    pub borrowed: Vec<ObjectId>,
    /// References inside of the results, each with one use that the reply gives up.
    pub handed: Vec<ObjectId>,
    /// Ids of the results that lie in the store, held by this process until the owner is.
    pub stored: Vec<ObjectId>,
    /// Whether the owner is to try again, as it asked.
    pub retry: bool,
    /// For a stream: how many items it had.
    pub items: u32,
    /// For a stream: what ended it early.
    pub raised: Option<Value>,
    /// What it raised says, for lists.
    pub error_text: String,
    /// Whether the worker leaves now.
    pub retiring: bool,
}

/// The error that all results are, where there are several: it is sent once.
fn shared_error(results: &[Value]) -> Option<&Value> {
    let (first, others) = results.split_first().filter(|(first, others)| is_error(first) && !others.is_empty())?;
    others.iter().all(|other| other == first).then_some(first)
}

impl Outcome {
    /// Empties it. What is mostly in use keeps its memory.
    fn clear(&mut self) {
        let Self { results, borrowed, handed, stored, retry, items, raised, error_text, retiring } = self;
        results.clear();
        results.shrink_to(RESULTS_KEPT);
        for ids in [borrowed, handed, stored] {
            *ids = Vec::new();
        }
        (*retry, *items, *raised, *retiring) = (false, 0, None, false);
        *error_text = String::new();
    }
}
