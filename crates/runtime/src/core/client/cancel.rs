//! Calls that are not wanted any more.
//!
//! A call that nobody has begun ends here, at once, with the failure `cancelled`. One that a worker or an actor has is
//! theirs to judge, since only they know whether it has begun; what they answer is its result.
//!
//! - CANCEL-1: a cancelled call is never run again, whatever became of its worker.
//! - CANCEL-2: cancelling what is over, or was never begun by a call, changes nothing.

use crate::core::calls::Target;
use crate::core::client::Client;
use crate::core::io::{Io, Token};
use crate::core::objects::{copy, failed};
use crate::core::signals::ClientEvent;
use oxiray_ids::{ObjectId, TaskId};
use oxiray_wire::message::{Cancel, CancelObject, Failure, FailureCode, Reply, Value};

/// An actor's call was to be cancelled by force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotForced;

impl<I: Io> Client<I> {
    /// The user wants the call cancelled that makes an object.
    pub fn cancel_object(&mut self, object: ObjectId, force: bool, recursive: bool) -> Result<(), NotForced> {
        let task = object.task();
        let owner = self.objects.reference(object).owner;
        let is_mine = owner == Some(self.identity.worker);
        let is_over = if is_mine { !self.calls.tasks.contains_key(&task) } else { self.objects.is_ready(object) };
        if is_over {
            return Ok(());
        }
        if force && !task.actor().is_nil_of_job() {
            return Err(NotForced);
        }
        if is_mine {
            self.cancel_task(task, force, recursive);
        } else {
            let asked = CancelObject { object, owner, force, recursive };
            self.demand(asked.into());
        }
        Ok(())
    }

    /// A borrower of one of this process's objects wants its task cancelled.
    pub(crate) fn cancel_asked(&mut self, asked: &CancelObject) {
        self.cancel_task(asked.object.task(), asked.force, asked.recursive);
    }

    pub(crate) fn cancel_task(&mut self, id: TaskId, force: bool, recursive: bool) {
        let Some(task) = self.calls.tasks.get(&id) else { return };
        let target = task.target;
        let is_under_way = match target {
            Target::Class(queue) => match self.lease_of(queue, id) {
                Some(token) => {
                    let cancel = Cancel { task: id, force, recursive };
                    self.io.send_now(token, &cancel);
                    true
                }
                None => false,
            },
            Target::Actor(actor) => self.cancel_actor_call(actor, id, recursive),
        };
        if let Some(task) = self.calls.tasks.get_mut(&id) {
            task.cancelled = true;
        }
        if is_under_way {
            return;
        }
        self.finish_with(id, &never_begun(id));
        match target {
            Target::Class(queue) => self.pump(queue),
            Target::Actor(actor) => self.actor_calls_left(actor),
        }
    }

    /// The stream to the worker that has the task.
    pub(crate) fn lease_of(&self, queue: usize, id: TaskId) -> Option<Token> {
        let leases = self.leases.queues[queue].leases.iter().filter_map(|lease| self.leases.granted.get(lease));
        leases.into_iter().find(|lease| lease.under_way.contains(&id)).map(|lease| lease.token)
    }

    /// A task that a worker had and has not run: it waits for another, unless nobody wants it any more.
    pub(crate) fn requeue(&mut self, queue: usize, id: TaskId) {
        if !self.end_if_cancelled(id) {
            self.leases.queues[queue].pending.push_front(id);
        }
    }

    /// CANCEL-1: a cancelled task that no worker has any more is over.
    pub(crate) fn end_if_cancelled(&mut self, id: TaskId) -> bool {
        let is_cancelled = self.calls.tasks.get(&id).is_some_and(|task| task.cancelled);
        if is_cancelled {
            self.finish_with(id, &gone_with_its_worker(id));
        }
        is_cancelled
    }

    /// What the task of this process has called goes with it.
    fn cancel_calls_of(&mut self, parent: TaskId, force: bool) {
        let children = self.calls.tasks.iter().filter(|(_, task)| task.work.parent == parent && !task.cancelled);
        for child in children.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.cancel_task(child, force, true);
        }
    }

    /// The owner does not want a call any more that it sent here.
    pub(crate) fn cancel_call(&mut self, from: Token, cancel: &Cancel) {
        let task = cancel.task;
        if let Some(results) = self.service.inbox.withdraw(from, task) {
            self.service.yieldings.close(task);
            let results = vec![never_begun(task); results as usize];
            let reply = Reply { task, results, ..Reply::default() };
            self.io.send_now(from, &reply);
            return;
        }
        if !self.log.is_running(task) {
            return;
        }
        if cancel.recursive {
            self.cancel_calls_of(task, cancel.force);
        }
        if cancel.force && !self.service.inbox.is_actor {
            self.end_this_process();
        }
        if self.service.inbox.interrupts.cancel(task, self.now) {
            self.io.interrupt();
        }
        if self.service.inbox.interrupts.ends_waits() {
            self.signals.news.push_back(ClientEvent::Ready(task.object(1)));
        }
        self.signals.timer_moved = true;
        self.signals.changed = true;
    }

    /// Nothing that runs here can be trusted to end by itself. Who waits behind it is given back first.
    fn end_this_process(&mut self) {
        self.give_back_queued();
        self.io.flush();
        // The signal ends this process before the call returns; the daemon sees to what it started.
        self.io.end_process();
    }
}

fn cancelled(id: TaskId, text: &str) -> Value {
    failed(Failure { code: FailureCode::Cancelled, text: text.into(), cause: copy(id.as_bytes()) })
}

fn never_begun(id: TaskId) -> Value {
    cancelled(id, "cancel() came before it began, so it never ran")
}

fn gone_with_its_worker(id: TaskId) -> Value {
    cancelled(id, "cancel() came while a worker had it, and it ended with that worker; it is not run again")
}
