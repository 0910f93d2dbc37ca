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

use crate::core::client::Client;
use crate::core::code::Codes;
use crate::core::io::{DAEMON, Io, Token};
use crate::core::objects::is_error;
use crate::core::retrying::Retries;
use crate::core::slack::shed_queue;
use crate::core::table::Table;
use crate::core::work::{Class, Place, Work};
use bytes::Bytes;
use oxiray_ids::{ActorId, ObjectId, TaskId, Unique, WorkerId};
use oxiray_wire::CallFrame;
use oxiray_wire::message::{
    Amount, ArgumentReference, Content, Failure, Function, LeaseCancel, LeaseReturn, Reply, Returned, Value,
    WorkerToOwner,
};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Requests for workers that one class has open at most.
const REQUESTS_LIMIT: usize = 16;
/// Tasks under way on one worker at most. With less, one that does nothing but tiny tasks sleeps ever again until more come.
const DEPTH_LIMIT: usize = 2048;
/// About how much work a worker is given ahead.
const AHEAD_US: f32 = 2_000.0;
/// A worker that has nothing to do for this long is returned.
pub(crate) const IDLE_LIMIT: Duration = Duration::from_millis(100);
/// Values that travel with one call, altogether.
pub const INLINE_TOTAL_BYTES: usize = 8 << 20;
/// What a task's time is taken for after one had to be given back.
const SLOW_US: f32 = 5_000.0;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    Class(usize),
    Actor(ActorId),
}

#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) work: Work,
    pub(crate) target: Target,
    pub(crate) waiting_for: usize,
    pub(crate) attempt: u32,
    /// It was under way on a worker that died: until it is known whether it was to blame, it runs alone.
    pub(crate) suspect: bool,
    /// Of an actor's call that is under way: which of those sent it was, counted from 1.
    pub(crate) sent: u64,
    /// Nobody wants it any more, though a worker has it: it is not run again.
    pub(crate) cancelled: bool,
    /// Its attempt was told to stop, since an item was lost: another yields that anew (REGAIN-2).
    pub(crate) yields_again: bool,
    /// How many workers in a row died of it.
    pub(crate) crashes: u32,
    /// How many workers in a row the network could not reach for it.
    pub(crate) unreached: u32,
    /// How often its worker was ended for want of memory.
    pub(crate) shortages: u32,
    /// It waits so long for its next attempt.
    pub(crate) paused_until: Option<Instant>,
}

impl Task {
    /// Whether it may run more than once.
    pub(crate) fn may_repeat(&self) -> bool {
        !self.cancelled && (self.work.retries != 0 || self.attempt > 0)
    }

    fn runs_alone(&self) -> bool {
        self.suspect || self.work.max_calls > 0 || self.work.retries == 0
    }
}

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) class: Arc<Class>,
    /// Callers and tasks that name it (CLASSES-1).
    pub(crate) uses: usize,
    pub(crate) pending: VecDeque<TaskId>,
    pub(crate) leases: Vec<u64>,
    pub(crate) requests: Vec<u64>,
    pub(crate) average_us: Option<f32>,
    /// The user knows that its tasks wait before they are tried again.
    pub(crate) has_told_of_pauses: bool,
    /// Its user was told that workers cannot be reached.
    pub(crate) has_told_of_network: bool,
}

#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) queue: usize,
    pub(crate) token: Token,
    pub(crate) worker: WorkerId,
    pub(crate) under_way: VecDeque<TaskId>,
    /// What was given to it last runs alone.
    pub(crate) is_for_one: bool,
    pub(crate) codes: Codes,
    pub(crate) idle_since: Option<Instant>,
    /// No task is to be added: the worker exits, or its stream is over and the verdict is awaited.
    pub(crate) closing: bool,
    /// To be returned when what runs on it is done.
    pub(crate) retires: bool,
    /// Why its stream was closed here.
    pub(crate) broken: Option<String>,
}

/// The calls of this process that have not ended.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) tasks: Table<TaskId, Task>,
    pub(crate) retries: Retries,
    pub(crate) unique: Unique,
    /// The job is ending: nothing is asked for or tried again.
    pub(crate) leaving: bool,
}

impl Calls {
    pub(crate) fn new(unique: Unique) -> Self {
        Self { tasks: Table::default(), retries: Retries::default(), unique, leaving: false }
    }
}

/// The classes of this process's tasks, the workers that were leased for them, and those that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    pub(crate) classes: FxHashMap<Arc<Class>, usize>,
    pub(crate) queues: Vec<Queue>,
    /// Places in `queues` that no class has.
    pub(crate) free_queues: Vec<usize>,
    pub(crate) granted: FxHashMap<u64, Lease>,
    pub(crate) requests: FxHashMap<u64, usize>,
    pub(crate) next_request: u64,
    pub(crate) idle: usize,
    /// There was no other node when a worker was granted last.
    pub(crate) is_alone: bool,
}

impl Leases {
    pub(crate) fn forget_all(&mut self) {
        self.granted.clear();
        self.requests.clear();
        self.idle = 0;
        for queue in &mut self.queues {
            queue.pending.clear();
            queue.leases.clear();
            queue.requests.clear();
        }
    }

    pub(crate) fn next_idle_end(&self) -> Option<Instant> {
        if self.idle == 0 {
            return None;
        }
        self.granted.values().filter_map(|lease| lease.idle_since).min().map(|since| since + IDLE_LIMIT)
    }

    /// The lease that takes the front task of a queue now.
    fn choose(&self, queue: &Queue, task: &Task) -> Option<u64> {
        let alone = queue.class.fresh || queue.class.is_spread() || task.runs_alone();
        let depth = match queue.average_us {
            Some(average) if !alone => ((AHEAD_US / average.max(1.0)) as usize).clamp(1, DEPTH_LIMIT),
            _ => 1,
        };
        let candidates = queue.leases.iter().map(|id| (*id, &self.granted[id])).filter(|(_, lease)| !lease.closing);
        let (id, lease) = candidates.min_by_key(|(_, lease)| lease.under_way.len())?;
        // SUBMIT-3: nothing joins what runs alone.
        let is_taken = lease.is_for_one && !lease.under_way.is_empty();
        (lease.under_way.len() < depth && !is_taken).then_some(id)
    }

    /// Whether a lease has had nothing to do, and since when.
    pub(crate) fn set_idle(&mut self, id: u64, since: Option<Instant>) {
        let Some(lease) = self.granted.get_mut(&id) else { return };
        match (lease.idle_since, since) {
            (None, Some(_)) => {
                lease.idle_since = since;
                self.idle += 1;
            }
            (Some(_), None) => {
                lease.idle_since = None;
                self.idle -= 1;
            }
            _ => {}
        }
    }

    pub(crate) fn remove_lease(&mut self, id: u64) -> Option<Lease> {
        self.set_idle(id, None);
        let lease = self.granted.remove(&id)?;
        self.queues[lease.queue].leases.retain(|other| *other != id);
        self.forget_if_unused(lease.queue);
        Some(lease)
    }
}

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
        let entry = Task {
            work,
            target,
            waiting_for,
            attempt,
            suspect: false,
            sent: 0,
            cancelled: false,
            yields_again: false,
            crashes: 0,
            unreached: 0,
            shortages: 0,
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
        let Some(task) = self.calls.tasks.get_mut(&id) else { return self.constructor_argument_ready(id) };
        task.waiting_for -= 1;
        if task.waiting_for > 0 {
            return;
        }
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

    fn start(&mut self, lease: u64, task: TaskId) {
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
        let task = self.calls.tasks.get_mut(&id).expect("SUBMIT-1");
        task.yields_again = false;
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

    pub(crate) fn lease_said(&mut self, token: Token, lease: u64, message: WorkerToOwner) {
        match message {
            WorkerToOwner::Reply(reply) => self.task_replied(lease, reply),
            WorkerToOwner::StreamItem(item) => self.item_arrived(token, *item),
            WorkerToOwner::Returned(returned) => self.tasks_returned(lease, returned),
        }
    }

    /// A worker has not begun these and will not.
    fn tasks_returned(&mut self, lease: u64, returned: Returned) {
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

    fn task_replied(&mut self, id: u64, reply: Box<Reply>) {
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
            lease.closing = true;
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

/// Resource amounts as messages carry them.
pub fn amounts(demand: &[(String, u64)]) -> Vec<Amount> {
    demand.iter().map(|(resource, units)| Amount { resource: resource.clone(), units: *units }).collect()
}
