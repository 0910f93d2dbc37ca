//! Calls that others send to this process, waiting to be run.
//!
//! - EXECUTE-1: calls of one stream are handed out in the order they came; where an actor has concurrency groups,
//!   those of one group and stream.
//! - EXECUTE-2: a task's worker does not sit on tasks it cannot begin soon: behind one that runs long, or
//!   that waits for a value, they are given back to their owner, who finds them another worker.
//! - EXECUTE-3: nor does it sit on what it was granted while an argument that is lost is made again, which may need the
//!   same: the task goes back to its owner, and of an actor's constructor the daemon is told.

use crate::core::client::Client;
use crate::core::execute::{Outcome, Ticket};
use crate::core::io::{DAEMON, Io, Role, Token};
use crate::core::objects::is_error;
use oxiray_ids::{ObjectId, TaskId, WorkerId};
use oxiray_wire::ReplyFrame;
use oxiray_wire::message::{
    ActorCreate, ActorFailed, ActorLeaving, ActorReady, ArgumentLost, CallerToWorker, Lingers, LostArgument, Reply,
    Retried, Returned, Value,
};
use std::time::Duration;

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
                self.service.inbox.came(token, call, code);
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
        for (token, tasks) in self.service.inbox.take_queued() {
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
        if let Some(lost) = self.service.inbox.take_lost(ticket.task) {
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
        self.signals.changed |= self.service.inbox.is_over();
    }

    /// The stored bytes of an argument are lost, which `call` was to be run with: its task or its actor's constructor, and
    /// nothing for a method. The owner of the call had found them lost `losses` times before, and this process `seen` times.
    /// Whether the call goes back to its owner (EXECUTE-3); otherwise it waits.
    pub fn argument_lost(&mut self, call: Option<TaskId>, object: ObjectId, losses: u32, seen: u32) -> bool {
        match call {
            Some(task) if !self.service.inbox.is_actor => {
                self.service.inbox.lacks(task, LostArgument { object, losses });
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

    /// The constructor of the actor that this process is begins.
    pub fn constructor_begins(&mut self, create: &ActorCreate) {
        self.log.constructor_begins(create, self.now);
    }

    /// The actor's constructor returned; `borrowed` are the references that its arguments brought, and `repr_name` is how the
    /// actor names itself, empty where it goes by its class.
    pub fn actor_ready(&mut self, borrowed: &[ObjectId], repr_name: String) {
        // The daemon holds the arguments for the actor until it hears that it is ready.
        let kept = self.objects.keep(borrowed);
        let me = self.identity.worker;
        self.hold_for(&kept, &me);
        self.signals.timer_moved |= self.log.constructor_ends(self.now, None);
        let environment = self.log.environment.clone();
        self.io.send_now(DAEMON, &ActorReady { repr_name, environment });
    }

    /// The actor's constructor failed with this error.
    pub fn actor_failed(&mut self, error: Value) {
        self.signals.timer_moved |= self.log.constructor_ends(self.now, Some(&error));
        self.io.send_now(DAEMON, &ActorFailed { error: Some(error) });
    }

    /// Tells the daemon once that the actor ends, and whether somebody meant it to.
    pub fn actor_leaving(&mut self, text: String, unintended: bool) {
        if self.service.inbox.says_leaving() {
            self.io.send_now(DAEMON, &ActorLeaving { text, unintended });
        }
    }
}

/// The error that all results are, where there are several: it is sent once.
fn shared_error(results: &[Value]) -> Option<&Value> {
    let (first, others) = results.split_first().filter(|(first, others)| is_error(first) && !others.is_empty())?;
    others.iter().all(|other| other == first).then_some(first)
}
