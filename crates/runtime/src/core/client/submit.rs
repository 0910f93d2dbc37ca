//! Tasks of this process: waiting for arguments, for a worker, under way.
//!
//! Tasks that need the same (resources, environment, a fresh worker or any) form a *class*. A class asks
//! the daemon for workers while it has more tasks than places, keeps several short tasks under way on
//! each worker, so that a worker never waits for us, and returns workers that stay idle.
//!
//! - SUBMIT-1: a task is in one place: waiting for arguments, pending in its class, or under way on one lease. One whose
//!   argument is lost before it begins waits again, so that it holds nothing which making the argument again may need.
//! - SUBMIT-2: every task ends with all its results resolved, once.
//! - SUBMIT-3: a worker that may exit after its task gets no second one before that task's reply.

use crate::core::calls::{CallTimes, LeasePhase, Target, Task};
use crate::core::client::Client;
use crate::core::io::{DAEMON, Io, Token};
use crate::core::objects::is_error;
use crate::core::slack::shed_queue;
use crate::core::work::{Place, Work};
use bytes::Bytes;
use oxiray_ids::{ActorId, LeaseNumber, ObjectId, TaskId};
use oxiray_wire::CallFrame;
use oxiray_wire::message::{
    ArgumentReference, Content, Failure, Function, LeaseCancel, LeaseReturn, Reply, Returned, Value, WorkerToOwner,
};

/// Requests for workers that one class has open at most.
const REQUESTS_LIMIT: usize = 16;

/// Values that travel with one call, altogether.
pub const INLINE_TOTAL_BYTES: usize = 8 << 20;

/// What a task's time is taken for after one had to be given back.
const SLOW_US: f32 = 5_000.0;

impl<I: Io> Client<I> {
    /// Takes a call on; its results are known from here on, each with one use for the caller.
    pub(crate) fn submit(&mut self, target: Target, work: Work) -> TaskId {
        let actor = match target {
            Target::Class(_) => ActorId::nil_of(self.identity.job),
            Target::Actor(actor) => actor,
        };
        let task = self.new_task(actor);
        for index in 1..=work.results {
            self.objects.expect(task.object(index));
        }
        if let Some(terms) = &work.stream {
            self.streams.open(task, terms.ahead > 0);
            // What it says, the last item says too.
            self.objects.look_at(task.object(1));
        }
        self.begin(task, target, work, 0);
        task
    }

    /// Begins a task whose results are expected.
    pub(crate) fn begin(&mut self, task: TaskId, target: Target, work: Work, attempt: u32) {
        for id in work.arguments.contained.iter().chain(work.arguments.references.iter().map(|(_, id)| id)) {
            self.objects.retain(*id);
        }
        if !work.arguments.contained.is_empty() {
            let contained = work.arguments.contained.clone();
            self.promise(&contained);
        }
        let mut waiting_for = 0;
        for index in 0..work.arguments.references.len() {
            let id = work.arguments.references[index].1;
            if self.objects.depend(id, task) {
                waiting_for += 1;
                self.want(id);
            }
        }
        let ready = waiting_for == 0;
        let is_free = work.arguments.references.is_empty();
        if let Target::Class(queue) = target {
            self.leases.queues[queue].uses += 1;
        }
        let overtakable = work.unordered && !ready;
        let called_us = self.log.microseconds(self.now);
        let entry = Task {
            work,
            target,
            waiting_for,
            attempt,
            times: CallTimes { called_us, ready_us: called_us, sent_us: 0 },
            suspect: false,
            sent: 0,
            cancelled: false,
            yields_again: false,
            crashes: 0,
            unreached: 0,
            shortages: 0,
            device_failures: 0,
            paused_until: None,
        };
        self.calls.tasks.insert(task, entry);
        if let Some(failure) = self.daemon.lost.clone() {
            return self.fail_task(task, &failure);
        }
        match target {
            Target::Class(queue) if is_free => self.line_up(queue, task),
            Target::Class(queue) if ready => self.enter(queue, task),
            Target::Class(_) => {}
            Target::Actor(actor) => self.queue_actor_call(actor, task, overtakable),
        }
    }

    /// One of the task's arguments is there.
    pub(crate) fn dependency_ready(&mut self, id: TaskId) {
        let ready_us = self.log.microseconds(self.now);
        let Some(task) = self.calls.tasks.get_mut(&id) else { return self.constructor_argument_ready(id) };
        task.waiting_for -= 1;
        if task.waiting_for > 0 {
            return;
        }
        task.times.ready_us = ready_us;
        match task.target {
            Target::Class(queue) => self.enter(queue, id),
            Target::Actor(actor) => self.actor_call_ready(actor, id),
        }
    }

    /// Whether a task that waits for a worker has an argument that was lost meanwhile: it waits for that from here on
    /// (SUBMIT-1).
    fn waits_again(&mut self, id: TaskId) -> bool {
        let Some(task) = self.calls.tasks.get(&id) else { return false };
        let given = task.work.arguments.references.iter().map(|(_, object)| *object);
        let lost: Vec<ObjectId> = given.filter(|object| !self.objects.is_ready(*object)).collect();
        for object in &lost {
            self.objects.depend(*object, id);
            self.want(*object);
        }
        if let Some(task) = self.calls.tasks.get_mut(&id) {
            task.waiting_for = lost.len();
        }
        !lost.is_empty()
    }

    /// A task whose arguments are all there waits for a worker, unless one of them is a failure.
    fn enter(&mut self, queue: usize, id: TaskId) {
        if let Some(value) = self.failed_argument(id) {
            self.finish_with(id, &value);
            return;
        }
        let queue = self.near(queue, id);
        self.line_up(queue, id);
    }

    /// A task waits behind the others of its class. Where there are some that could not be begun, it cannot be.
    fn line_up(&mut self, index: usize, id: TaskId) {
        let queue = &mut self.leases.queues[index];
        queue.pending.push_back(id);
        if queue.pending.len() == 1 || queue.requests.len() < REQUESTS_LIMIT {
            self.pump(index);
        }
    }

    /// What a task fails with that cannot run, since one of its arguments is an error.
    pub(crate) fn failed_argument(&mut self, id: TaskId) -> Option<Value> {
        let objects = &mut self.objects;
        let work = &self.calls.tasks.get(&id)?.work;
        let mut objects_given = work.arguments.references.iter().map(|(_, object)| *object);
        let error =
            objects_given.find_map(|object| objects.look_at(object).filter(|value| is_error(value)).cloned())?;
        Some(Failure::of_argument(&work.title(), error))
    }

    /// Gives pending tasks to workers and asks for more workers where that falls short.
    pub(crate) fn pump(&mut self, index: usize) {
        while let Some(front) = self.leases.queues[index].pending.front().copied() {
            if self.waits_again(front) {
                self.leases.queues[index].pending.pop_front();
                continue;
            }
            let Some(task) = self.calls.tasks.get(&front) else {
                self.leases.queues[index].pending.pop_front();
                continue;
            };
            let Some(lease) = self.leases.choose(&self.leases.queues[index], task) else { break };
            self.leases.queues[index].pending.pop_front();
            self.start(lease, front);
        }
        let leaving = self.calls.leaving;
        let queue = &mut self.leases.queues[index];
        shed_queue(&mut queue.pending);
        if queue.pending.is_empty() || leaving {
            for request in std::mem::take(&mut queue.requests) {
                self.leases.requests.remove(&request);
                self.io.send(DAEMON, &LeaseCancel { request });
            }
            self.leases.forget_if_unused(index);
            return;
        }
        let wanted = queue.pending.len().min(REQUESTS_LIMIT);
        for _ in queue.requests.len()..wanted {
            self.request_lease(index);
        }
    }

    fn start(&mut self, lease: LeaseNumber, task: TaskId) {
        self.leases.set_idle(lease, None);
        let held = self.leases.granted.get_mut(&lease).expect("SUBMIT-1: a chosen lease is known");
        let lone = held.under_way.is_empty();
        held.under_way.push_back(task);
        let token = held.token;
        let known = self.calls.tasks.get(&task).expect("SUBMIT-1");
        held.is_for_one = known.runs_alone();
        let routine = &known.work.routine;
        if !held.codes.knows(&routine.function) {
            let (hash, body) = (routine.function.clone(), routine.code.clone());
            held.codes.note(hash.clone(), body.len(), Bytes::new());
            self.io.send(token, &Function { hash, body });
        }
        self.send_call(token, task, lone);
    }

    /// Sends a task to who runs it.
    pub(crate) fn send_call(&mut self, token: Token, id: TaskId, is_lone: bool) {
        let task = self.calls.tasks.get_mut(&id).expect("SUBMIT-1");
        let (given, is_stream) = (std::mem::take(&mut task.work.arguments.references), task.work.stream.is_some());
        let mut references = Vec::new();
        if !given.is_empty() {
            let (travelling, to_promise) = self.travelling(&given);
            self.promise(&to_promise);
            references = travelling;
        }
        let stream = if is_stream { self.stream_terms(id) } else { None };
        if is_stream {
            self.streams.sent(id, token);
        }
        let sent_us = self.log.microseconds(self.now);
        let task = self.calls.tasks.get_mut(&id).expect("SUBMIT-1");
        task.yields_again = false;
        task.times.sent_us = sent_us;
        task.work.arguments.references = given;
        let work = &task.work;
        let call = CallFrame {
            common: work.routine.written(),
            task: id,
            arguments: &work.arguments.payload,
            references: &references,
            attempt: task.attempt,
            retries: if work.function.is_empty() { work.retries } else { 0 },
            stream,
            origin: task.origin(Some(sent_us)),
        };
        if is_lone {
            self.io.send_now(token, &call);
        } else {
            self.io.send(token, &call);
        }
    }

    /// Arguments given as references, as they travel, and what the daemon is to be told of for that.
    ///
    /// Values up to [`INLINE_TOTAL_BYTES`] travel along. The rest, and whatever values contain, the receiver asks the
    /// daemon for.
    pub(crate) fn travelling(&self, references: &[(Place, ObjectId)]) -> (Vec<ArgumentReference>, Vec<ObjectId>) {
        let mut travelling = Vec::with_capacity(references.len());
        let mut to_promise = Vec::new();
        let mut room = INLINE_TOTAL_BYTES;
        for (place, object) in references {
            let mut value = self.objects.value(*object).cloned();
            to_promise.extend(value.iter().flat_map(crate::core::objects::inner_ids));
            if let Some(Value { content: Some(Content::Inline(bytes)), .. }) = &value {
                if bytes.len() <= room {
                    room -= bytes.len();
                } else {
                    to_promise.push(*object);
                    value = None;
                }
            }
            let losses = self.objects.losses(*object);
            travelling.push(place.argument(self.objects.reference(*object), value, losses));
        }
        (travelling, to_promise)
    }

    pub(crate) fn lease_said(&mut self, token: Token, lease: LeaseNumber, message: WorkerToOwner) {
        match message {
            WorkerToOwner::Reply(reply) => self.task_replied(lease, reply),
            WorkerToOwner::StreamItem(item) => self.item_arrived(token, *item),
            WorkerToOwner::Returned(returned) => self.tasks_returned(lease, returned),
        }
    }

    /// A worker has not begun these and will not.
    fn tasks_returned(&mut self, lease: LeaseNumber, returned: Returned) {
        let Some(held) = self.leases.granted.get_mut(&lease) else { return };
        let queue = held.queue;
        let tasks = returned.tasks;
        held.under_way.retain(|task| !tasks.contains(task));
        if returned.lost.is_empty() {
            let queue_state = &mut self.leases.queues[queue];
            queue_state.average_us = Some(queue_state.average_us.unwrap_or(0.0).max(SLOW_US));
        }
        for argument in &returned.lost {
            self.report_lost(argument.object, argument.losses);
        }
        for task in tasks.into_iter().rev() {
            self.requeue(queue, task);
        }
        self.pump(queue);
        self.rest_lease(lease);
    }

    fn task_replied(&mut self, id: LeaseNumber, reply: Box<Reply>) {
        let task = reply.task;
        let Some(lease) = self.leases.granted.get_mut(&id) else { return };
        if lease.under_way.front() == Some(&task) {
            lease.under_way.pop_front();
        } else {
            lease.under_way.retain(|other| *other != task);
        }
        let (queue, worker, token) = (lease.queue, lease.worker, lease.token);
        // A task that spreads is the last on its machine: the next one gets a machine of its own choice. What comes back
        // may set tasks free, which must not join here.
        let (retiring, is_last) = (reply.retiring, self.leases.is_last(queue, id));
        if (retiring || is_last)
            && let Some(lease) = self.leases.granted.get_mut(&id)
        {
            lease.phase = LeasePhase::Ending;
        }
        if self.calls.tasks.get(&task).is_some_and(|task| !task.cancelled) {
            let run_us = reply.run_us as f32;
            let average = &mut self.leases.queues[queue].average_us;
            *average = Some(average.map_or(run_us, |average| average + (run_us - average) * 0.25));
        }
        self.finish(task, reply, worker);
        if retiring {
            let lease = self.leases.remove_lease(id).expect("it was just looked at");
            self.close_stream(token);
            self.io.send(DAEMON, &LeaseReturn { lease: id, retiring: true });
            for task in lease.under_way.into_iter().rev() {
                self.requeue(queue, task);
            }
        } else if is_last {
            self.return_lease(id);
        }
        self.pump(queue);
        // Only now: what just came back may have set tasks free that run on this very lease.
        self.rest_lease(id);
    }
}
