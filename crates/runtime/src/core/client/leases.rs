//! Workers that were leased: granted, idle, returned, lost.

use crate::core::calls::{IDLE_LIMIT, Lease, LeasePhase, Task, amounts};
use crate::core::client::Client;
use crate::core::code::Codes;
use crate::core::io::{DAEMON, Io, Role};
use oxiray_ids::{LeaseNumber, LeaseRequestNumber, TaskId};
use oxiray_wire::message::{
    Failure, FailureCode, LeaseEnded, LeaseGranted, LeaseKill, LeaseRefused, LeaseRequest, LeaseReturn, OutOfMemory,
};
use std::collections::VecDeque;
use std::time::Instant;

impl<I: Io> Client<I> {
    /// Asks for a worker for the tasks of a class.
    pub(crate) fn request_lease(&mut self, index: usize) {
        let queue = &mut self.leases.queues[index];
        self.leases.next_request += 1;
        let request = LeaseRequestNumber(self.leases.next_request);
        queue.requests.push(request);
        self.leases.requests.insert(request, index);
        let first = queue.pending.front().and_then(|task| self.calls.tasks.get(task));
        let label = first.map(|task| task.work.title());
        let may_repeat = first.is_some_and(Task::may_repeat);
        let message = LeaseRequest {
            request,
            demand: amounts(&queue.class.demand),
            environment: Some(queue.class.environment.clone()),
            fresh: queue.class.fresh,
            label: label.unwrap_or_default(),
            may_repeat,
            strategy: queue.class.strategy.clone(),
            arguments: queue.class.large_arguments(),
            priority: queue.class.priority,
            preemptible: queue.class.preemptible,
        };
        self.io.send_now(DAEMON, &message);
    }

    pub(crate) fn lease_granted(&mut self, granted: &LeaseGranted, descriptor: Option<I::Descriptor>) {
        self.leases.is_alone = granted.is_alone;
        let queue = self.leases.requests.remove(&granted.request);
        let role = Role::Lease(granted.lease);
        let token = descriptor.and_then(|stream| self.open_stream(stream, role, granted.is_near));
        if let Some(queue) = queue {
            self.leases.queues[queue].requests.retain(|request| *request != granted.request);
        }
        let (Some(queue), Some(token)) = (queue, token) else {
            // The request was cancelled while the grant was on its way, or the stream to the worker did not come.
            if let Some(token) = token {
                self.close_stream(token);
            }
            self.io.send_now(DAEMON, &LeaseReturn { lease: granted.lease, retiring: false });
            if let Some(queue) = queue {
                self.pump(queue);
            }
            return;
        };
        self.leases.queues[queue].leases.push(granted.lease);
        let worker = granted.worker;
        let lease = Lease {
            queue,
            token,
            worker,
            under_way: VecDeque::new(),
            is_for_one: false,
            codes: Codes::default(),
            idle_since: None,
            phase: LeasePhase::Open,
            broken: None,
        };
        self.leases.granted.insert(granted.lease, lease);
        self.leases.set_idle(granted.lease, Some(self.now));
        self.pump(queue);
    }

    pub(crate) fn lease_refused(&mut self, refused: LeaseRefused) {
        let Some(index) = self.leases.requests.remove(&refused.request) else { return };
        let failure = refused.failure.unwrap_or_default();
        if failure.code == FailureCode::DeviceDeadlock {
            self.leases.queues[index].requests.retain(|request| *request != refused.request);
            return self.fail_deadlocked(index, &failure);
        }
        // What is refused once is refused always: the whole class ends, and with it its other requests.
        let queue = &mut self.leases.queues[index];
        for request in std::mem::take(&mut queue.requests) {
            self.leases.requests.remove(&request);
        }
        for task in std::mem::take(&mut queue.pending) {
            self.fail_task(task, &failure);
        }
        self.leases.forget_if_unused(index);
    }

    /// The stream to a worker ended; what became of it the daemon says. A worker that lives although its stream is
    /// broken could not be told anything any more, so that its end is asked for.
    pub(crate) fn lease_silent(&mut self, id: LeaseNumber) {
        self.leases.set_idle(id, None);
        if let Some(lease) = self.leases.granted.get_mut(&id) {
            lease.phase = LeasePhase::Ending;
            self.io.send_now(DAEMON, &LeaseKill { lease: id });
        }
    }

    /// The network made no stream to a worker: it has begun nothing and is given back, and its tasks try another, which
    /// spends no retry.
    pub(crate) fn lease_unreached(&mut self, id: LeaseNumber) {
        let Some(lease) = self.leases.remove_lease(id) else { return };
        self.io.send_now(DAEMON, &LeaseReturn { lease: id, retiring: false });
        for task in lease.under_way.into_iter().rev() {
            if !self.end_if_cancelled(task) {
                self.reach_again(task);
            }
        }
        self.pump(lease.queue);
    }

    pub(crate) fn lease_ended(&mut self, ended: &LeaseEnded) {
        if let Some(lease) = self.leases.granted.get(&ended.lease) {
            self.hear_last_words(lease.token);
        }
        let Some(lease) = self.leases.remove_lease(ended.lease) else { return };
        self.close_stream(lease.token);
        self.giver_is_over(&lease.worker);
        let ended = &match lease.broken {
            Some(why) => LeaseEnded { text: format!("{why} ({})", ended.text), ..ended.clone() },
            None => ended.clone(),
        };
        let mut tasks = lease.under_way.into_iter();
        let running = tasks.next();
        for task in tasks.rev() {
            // Those behind the first had not begun; they run one at a time until one is found to blame.
            let is_blamed = !ended.was_drained && !ended.was_preempted;
            if let Some(task) = self.calls.tasks.get_mut(&task).filter(|_| is_blamed) {
                task.suspect = true;
            }
            self.requeue(lease.queue, task);
        }
        let worker = Some(lease.worker);
        if let (Some(task), Some(failure)) = (running, &ended.failure) {
            self.fail_task_of(worker, task, failure);
        } else if let Some(task) = running
            && !self.end_if_cancelled(task)
        {
            let (name, attempts) =
                self.calls.tasks.get(&task).map_or((String::new(), 1), |task| (task.work.title(), task.attempt + 1));
            if self.goes_on(task, ended) {
                self.note_lost_attempt(worker, task, &lost_with(ended, &name, attempts, "and another follows"));
            } else {
                let failure = lost_with(ended, &name, attempts, "the last that max_retries allows");
                self.fail_task_of(worker, task, &failure);
            }
        }
        self.pump(lease.queue);
    }

    /// Whether the task whose worker ended is run again.
    fn goes_on(&mut self, task: TaskId, ended: &LeaseEnded) -> bool {
        match ended.out_of_memory {
            OutOfMemory::Passing => self.try_with_more_memory(task, &ended.text),
            OutOfMemory::Lasting | OutOfMemory::OfDevice => false,
            OutOfMemory::None | OutOfMemory::Kernel => {
                (ended.was_drained || ended.was_preempted) && self.try_elsewhere(task)
                    || ended.is_device_failure && self.try_on_another_device(task)
                    || self.try_again(task, Some(&ended.text))
            }
        }
    }

    /// The lease's machine is being emptied: nothing more is begun on it.
    pub(crate) fn retire_lease(&mut self, id: LeaseNumber) {
        let is_open = |lease: &&mut Lease| lease.phase == LeasePhase::Open;
        let Some(lease) = self.leases.granted.get_mut(&id).filter(is_open) else { return };
        lease.phase = LeasePhase::Retiring;
        let queue = lease.queue;
        self.leases.set_idle(id, None);
        self.rest_lease(id);
        self.pump(queue);
    }

    /// Something on the lease is done: where nothing is left, it waits for more, or is returned.
    pub(crate) fn rest_lease(&mut self, id: LeaseNumber) {
        let Some(lease) = self.leases.granted.get(&id).filter(|lease| lease.under_way.is_empty()) else { return };
        match lease.phase {
            LeasePhase::Open => self.leases.set_idle(id, Some(self.now)),
            LeasePhase::Retiring => self.return_lease(id),
            LeasePhase::Ending => {}
        }
    }

    pub(crate) fn return_lease(&mut self, id: LeaseNumber) {
        if let Some(lease) = self.leases.remove_lease(id) {
            self.close_stream(lease.token);
            self.io.send_now(DAEMON, &LeaseReturn { lease: id, retiring: false });
        }
    }

    /// Others wait for what idle workers hold.
    pub(crate) fn return_idle_leases(&mut self) {
        let idle: Vec<LeaseNumber> =
            self.leases.granted.iter().filter(|(_, lease)| lease.idle_since.is_some()).map(|(id, _)| *id).collect();
        for id in idle {
            self.return_lease(id);
        }
    }

    pub(crate) fn end_idle_leases(&mut self, now: Instant) {
        let over = |lease: &Lease| lease.idle_since.is_some_and(|since| since + IDLE_LIMIT <= now);
        let idle: Vec<LeaseNumber> =
            self.leases.granted.iter().filter(|(_, lease)| over(lease)).map(|(id, _)| *id).collect();
        for id in idle {
            self.return_lease(id);
        }
    }
}

/// What an attempt of a task ends with whose worker ended.
fn lost_with(ended: &LeaseEnded, name: &str, attempts: u32, what_follows: &str) -> Failure {
    let LeaseEnded { text, node_died, .. } = ended;
    let which = format!("This was attempt {attempts}, {what_follows}");
    let (code, text) = match ended.out_of_memory {
        OutOfMemory::None if *node_died => (FailureCode::NodeDied, died(name, text, &which)),
        OutOfMemory::None if ended.is_device_failure => (FailureCode::DeviceFailed, died(name, text, &which)),
        OutOfMemory::None => (FailureCode::WorkerCrashed, died(name, text, &which)),
        OutOfMemory::Kernel => {
            (FailureCode::OutOfMemory, format!("the worker that ran `{name}` died: {text}. {which}"))
        }
        OutOfMemory::Passing | OutOfMemory::Lasting => (
            FailureCode::OutOfMemory,
            format!("the worker that ran `{name}` did not finish: {text}. This was attempt {attempts}"),
        ),
        OutOfMemory::OfDevice => (
            FailureCode::DeviceMemory,
            format!("the worker that ran `{name}` was ended: {text}. This was attempt {attempts}"),
        ),
    };
    code.because(text)
}

fn died(name: &str, how: &str, which: &str) -> String {
    format!(
        "the worker that ran `{name}` died: {how}. {which}. Look at its output above, at memory use, and at native code it \
         calls"
    )
}
