//! Workers that were leased: granted, idle, returned, lost.

use crate::code::Codes;
use crate::links::{DAEMON, Role};
use crate::state::State;
use crate::submit::{IDLE_LIMIT, Lease};
use bytes::Bytes;
use oxiray_ids::WorkerId;
use oxiray_wire::message::{Failure, LeaseEnded, LeaseGranted, LeaseKill, LeaseRefused, LeaseReturn};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Instant;

impl State {
    pub(crate) fn lease_granted(&mut self, granted: &LeaseGranted, descriptor: Option<OwnedFd>) {
        let queue = self.tasks.requests.remove(&granted.request);
        let token = descriptor.and_then(|stream| self.links.adopt(stream, Role::Lease(granted.lease)).ok());
        let (Some(queue), Some(token)) = (queue, token) else {
            // The request was cancelled while the grant was on its way.
            if let Some(token) = token {
                self.links.remove(token);
            }
            self.links.post_now(DAEMON, &LeaseReturn { lease: granted.lease, retiring: false }.into());
            return;
        };
        self.tasks.queues[queue].requests.retain(|request| *request != granted.request);
        self.tasks.queues[queue].leases.push(granted.lease);
        let worker = WorkerId::from_slice(&granted.worker).unwrap_or(WorkerId::NIL);
        let lease = Lease {
            queue,
            token,
            worker,
            under_way: VecDeque::new(),
            codes: Codes::default(),
            idle_since: None,
            closing: false,
        };
        self.tasks.leases.insert(granted.lease, lease);
        self.tasks.set_idle(granted.lease, true);
        self.pump(queue);
    }

    pub(crate) fn lease_refused(&mut self, refused: LeaseRefused) {
        let Some(index) = self.tasks.requests.remove(&refused.request) else { return };
        let failure = refused.failure.unwrap_or_default();
        // What is refused once is refused always: the whole class ends, and with it its other requests.
        let queue = &mut self.tasks.queues[index];
        for request in std::mem::take(&mut queue.requests) {
            self.tasks.requests.remove(&request);
        }
        for task in std::mem::take(&mut queue.pending) {
            self.fail_task(task, &failure);
        }
        self.tasks.forget_if_unused(index);
    }

    /// The stream to a worker ended; what became of it the daemon says. A worker that lives although its stream is
    /// broken could not be told anything any more, so that its end is asked for.
    pub(crate) fn lease_silent(&mut self, id: u64) {
        self.tasks.set_idle(id, false);
        if let Some(lease) = self.tasks.leases.get_mut(&id) {
            lease.closing = true;
            self.links.post_now(DAEMON, &LeaseKill { lease: id }.into());
        }
    }

    pub(crate) fn lease_ended(&mut self, ended: &LeaseEnded) {
        if let Some(lease) = self.tasks.leases.get(&ended.lease) {
            self.hear_last_words(lease.token, Role::Lease(ended.lease));
        }
        let Some(lease) = self.tasks.remove_lease(ended.lease) else { return };
        self.links.remove(lease.token);
        let mut tasks = lease.under_way.into_iter();
        let running = tasks.next();
        for task in tasks.rev() {
            // Those behind the first had not begun; they run one at a time until one is found to blame.
            if let Some(task) = self.tasks.tasks.get_mut(&task) {
                task.suspect = true;
            }
            self.requeue(lease.queue, task);
        }
        if let (Some(task), Some(failure)) = (running, &ended.failure) {
            self.fail_task(task, failure);
        } else if let Some(task) = running
            && !self.end_if_cancelled(task)
            && !self.try_again(task, Some(&ended.text))
        {
            let (name, attempts) = self
                .tasks
                .tasks
                .get(&task)
                .map_or((String::new(), 1), |task| (task.work.name.clone(), task.attempt + 1));
            let text = format!(
                "the worker that ran `{name}` died: {}. This was attempt {attempts}, the last that max_retries allows. \
                 Look at its output above, at memory use, and at native code it calls",
                ended.text
            );
            let code = if ended.node_died { "node_died" } else { "worker_crashed" };
            self.fail_task(task, &Failure { code: code.into(), text, cause: Bytes::new() });
        }
        self.pump(lease.queue);
    }

    pub(crate) fn return_lease(&mut self, id: u64) {
        if let Some(lease) = self.tasks.remove_lease(id) {
            self.links.remove(lease.token);
            self.links.post_now(DAEMON, &LeaseReturn { lease: id, retiring: false }.into());
        }
    }

    /// Others wait for what idle workers hold.
    pub(crate) fn return_idle_leases(&mut self) {
        let idle: Vec<u64> =
            self.tasks.leases.iter().filter(|(_, lease)| lease.idle_since.is_some()).map(|(id, _)| *id).collect();
        for id in idle {
            self.return_lease(id);
        }
    }

    pub(crate) fn end_idle_leases(&mut self, now: Instant) {
        let over = |lease: &Lease| lease.idle_since.is_some_and(|since| since + IDLE_LIMIT <= now);
        let idle: Vec<u64> = self.tasks.leases.iter().filter(|(_, lease)| over(lease)).map(|(id, _)| *id).collect();
        for id in idle {
            self.return_lease(id);
        }
    }
}
