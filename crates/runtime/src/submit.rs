//! Tasks of this process: waiting for arguments, for a worker, under way.
//!
//! Tasks that need the same (resources, environment, a fresh worker or any) form a *class*. A class asks
//! the daemon for workers while it has more tasks than places, keeps several short tasks under way on
//! each worker, so that a worker never waits for us, and returns workers that stay idle.
//!
//! - SUBMIT-1: a task is in one place: waiting for arguments, pending in its class, or under way on one lease.
//! - SUBMIT-2: every task ends with all its results resolved, once.
//! - SUBMIT-3: a worker that may exit after its task gets no second one before that task's reply.

use crate::links::{DAEMON, Role, Token};
use crate::objects::{copy, failed};
use crate::state::State;
use bytes::Bytes;
use oxiray_ids::{ActorId, ObjectId, TaskId, WorkerId};
use oxiray_wire::Message;
use oxiray_wire::message::{
    Amount, ArgumentReference, Call, Content, Environment, Failure, Function, LeaseCancel, LeaseEnded, LeaseGranted,
    LeaseRefused, LeaseRequest, LeaseReturn, Reference, Reply, Value,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Requests for workers that one class has open at most.
const REQUESTS_LIMIT: usize = 16;
/// Tasks under way on one worker at most.
const DEPTH_LIMIT: usize = 64;
/// About how much work a worker is given ahead.
const AHEAD_US: f32 = 2_000.0;
/// A worker that has nothing to do for this long is returned.
const IDLE_LIMIT: Duration = Duration::from_millis(100);
/// What a task's time is taken for after one had to be given back.
const SLOW_US: f32 = 5_000.0;

/// Where an argument given as a reference stands in the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Among the positional arguments, counted from 0.
    Position(u32),
    /// By keyword.
    Keyword(String),
    /// The object is the serialized arguments themselves, too large to travel with the call.
    Everything,
}

impl Place {
    /// The argument as it travels.
    pub(crate) fn argument(&self, reference: Reference, value: Option<Value>) -> ArgumentReference {
        let (position, keyword) = match self {
            Self::Position(position) => (*position, String::new()),
            Self::Keyword(keyword) => (0, keyword.clone()),
            Self::Everything => (EVERYTHING, String::new()),
        };
        ArgumentReference { position, keyword, reference: Some(reference), value }
    }
}

/// The place that stands for [`Place::Everything`] on the wire.
pub const EVERYTHING: u32 = u32::MAX;

/// Arguments of a call.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    /// Serialized, with holes where references stand; empty for none.
    pub payload: Bytes,
    /// What fills the holes.
    pub references: Vec<(Place, ObjectId)>,
    /// References inside of the payload.
    pub contained: Vec<ObjectId>,
}

/// A call to be made.
#[derive(Debug, Clone)]
pub struct Work {
    /// Hash of the function, exported before; empty for an actor's method.
    pub function: Bytes,
    /// The function's or method's name.
    pub name: String,
    /// Its arguments.
    pub arguments: Arguments,
    /// How many results it has.
    pub results: u32,
    /// After how many calls of it a worker exits; 0 for never.
    pub max_calls: u32,
    /// How often it is run again after its worker died; negative for always.
    pub retries: i32,
    /// Which exceptions are retried, as the worker reads it; empty for none.
    pub retry_exceptions: Bytes,
}

/// What tasks of one class share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Class {
    /// Resource names and 1/10,000s, by name.
    pub demand: Vec<(String, u64)>,
    /// Variables set for the task, by name.
    pub environment: Environment,
    /// Whether each task wants a worker that has run nothing before.
    pub fresh: bool,
}

/// Names a [`Class`] within this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClassIndex(pub(crate) usize);

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
    attempt: u32,
    /// It was under way on a worker that died: until it is known whether it was to blame, it runs alone.
    suspect: bool,
}

#[derive(Debug)]
struct Queue {
    class: Class,
    pending: VecDeque<TaskId>,
    leases: Vec<u64>,
    requests: Vec<u64>,
    average_us: Option<f32>,
}

#[derive(Debug)]
struct Lease {
    queue: usize,
    token: Token,
    worker: WorkerId,
    under_way: VecDeque<TaskId>,
    functions: FxHashSet<Bytes>,
    idle_since: Option<Instant>,
    /// No task is to be added: the worker exits, or its stream is over and the verdict is awaited.
    closing: bool,
}

/// All of this process's tasks.
#[derive(Debug, Default)]
pub(crate) struct Submission {
    pub(crate) tasks: FxHashMap<TaskId, Task>,
    classes: FxHashMap<Class, usize>,
    queues: Vec<Queue>,
    leases: FxHashMap<u64, Lease>,
    requests: FxHashMap<u64, usize>,
    next_request: u64,
    idle: usize,
}

impl Submission {
    pub(crate) fn class(&mut self, class: Class) -> ClassIndex {
        let queues = &mut self.queues;
        ClassIndex(*self.classes.entry(class.clone()).or_insert_with(|| {
            queues.push(Queue {
                class,
                pending: VecDeque::new(),
                leases: Vec::new(),
                requests: Vec::new(),
                average_us: None,
            });
            queues.len() - 1
        }))
    }

    pub(crate) fn forget_all(&mut self) {
        self.tasks.clear();
        self.leases.clear();
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
        self.leases.values().filter_map(|lease| lease.idle_since).min().map(|since| since + IDLE_LIMIT)
    }

    /// The lease that takes the front task of a queue now.
    fn choose(&self, queue: &Queue, task: &Task) -> Option<u64> {
        let alone = queue.class.fresh || task.work.max_calls > 0 || task.work.retries == 0 || task.suspect;
        let depth = match queue.average_us {
            Some(average) if !alone => ((AHEAD_US / average.max(1.0)) as usize).clamp(1, DEPTH_LIMIT),
            _ => 1,
        };
        let candidates = queue.leases.iter().map(|id| (*id, &self.leases[id])).filter(|(_, lease)| !lease.closing);
        let (id, lease) = candidates.min_by_key(|(_, lease)| lease.under_way.len())?;
        (lease.under_way.len() < depth && !lease.under_way.iter().any(|task| self.runs_alone(*task))).then_some(id)
    }

    /// SUBMIT-3.
    fn runs_alone(&self, task: TaskId) -> bool {
        self.tasks.get(&task).is_some_and(|task| task.suspect || task.work.max_calls > 0 || task.work.retries == 0)
    }

    fn set_idle(&mut self, id: u64, idle: bool) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        match (lease.idle_since, idle) {
            (None, true) => {
                lease.idle_since = Some(Instant::now());
                self.idle += 1;
            }
            (Some(_), false) => {
                lease.idle_since = None;
                self.idle -= 1;
            }
            _ => {}
        }
    }

    fn remove_lease(&mut self, id: u64) -> Option<Lease> {
        self.set_idle(id, false);
        let lease = self.leases.remove(&id)?;
        self.queues[lease.queue].leases.retain(|other| *other != id);
        Some(lease)
    }
}

impl State {
    /// Takes a call on; its results are known from here on, each with one use for the caller.
    pub(crate) fn submit(&mut self, target: Target, work: Work) -> (TaskId, Vec<ObjectId>) {
        let actor = match target {
            Target::Class(_) => ActorId::nil_of(self.identity.job),
            Target::Actor(actor) => actor,
        };
        let task = self.new_task(actor);
        let results: Vec<ObjectId> = (1..=work.results).map(|index| task.object(index)).collect();
        for id in &results {
            self.objects.expect(*id);
        }
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
        self.tasks.tasks.insert(task, Task { work, target, waiting_for, attempt: 0, suspect: false });
        if let Some(failure) = self.lost.clone() {
            self.fail_task(task, &failure);
            return (task, results);
        }
        match target {
            Target::Class(queue) if ready => {
                self.tasks.queues[queue].pending.push_back(task);
                self.pump(queue);
            }
            Target::Class(_) => {}
            Target::Actor(actor) => self.queue_actor_call(actor, task),
        }
        (task, results)
    }

    /// One of the task's arguments is there.
    pub(crate) fn dependency_ready(&mut self, id: TaskId) {
        let Some(task) = self.tasks.tasks.get_mut(&id) else { return };
        task.waiting_for -= 1;
        if task.waiting_for > 0 {
            return;
        }
        match task.target {
            Target::Class(queue) => {
                self.tasks.queues[queue].pending.push_back(id);
                self.pump(queue);
            }
            Target::Actor(actor) => self.deliver(actor),
        }
    }

    /// Gives pending tasks to workers and asks for more workers where that falls short.
    fn pump(&mut self, index: usize) {
        while let Some(front) = self.tasks.queues[index].pending.front().copied() {
            let Some(task) = self.tasks.tasks.get(&front) else {
                self.tasks.queues[index].pending.pop_front();
                continue;
            };
            let Some(lease) = self.tasks.choose(&self.tasks.queues[index], task) else { break };
            self.tasks.queues[index].pending.pop_front();
            self.start(lease, front);
        }
        let queue = &mut self.tasks.queues[index];
        if queue.pending.is_empty() {
            for request in std::mem::take(&mut queue.requests) {
                self.tasks.requests.remove(&request);
                self.links.post(DAEMON, &LeaseCancel { request }.into());
            }
            return;
        }
        let wanted = queue.pending.len().min(REQUESTS_LIMIT);
        for _ in queue.requests.len()..wanted {
            self.request_lease(index);
        }
    }

    fn request_lease(&mut self, index: usize) {
        let queue = &mut self.tasks.queues[index];
        self.tasks.next_request += 1;
        let request = self.tasks.next_request;
        queue.requests.push(request);
        self.tasks.requests.insert(request, index);
        let label =
            queue.pending.front().and_then(|task| self.tasks.tasks.get(task)).map(|task| task.work.name.clone());
        let message = LeaseRequest {
            request,
            demand: amounts(&queue.class.demand),
            environment: Some(queue.class.environment.clone()),
            fresh: queue.class.fresh,
            label: label.unwrap_or_default(),
        };
        self.links.post_now(DAEMON, &message.into());
    }

    fn start(&mut self, lease: u64, task: TaskId) {
        let (call, failed_argument) = self.call(task);
        if let Some(value) = failed_argument {
            self.finish_with(task, &value);
            return;
        }
        self.tasks.set_idle(lease, false);
        let held = self.tasks.leases.get_mut(&lease).expect("SUBMIT-1: a chosen lease is known");
        let lone = held.under_way.is_empty();
        held.under_way.push_back(task);
        let token = held.token;
        if held.functions.insert(call.function.clone()) {
            let body = self.functions.get(&call.function).cloned().unwrap_or_default();
            self.links.post(token, &Function { hash: call.function.clone(), body }.into());
        }
        let message = Message::from(call);
        if lone { self.links.post_now(token, &message) } else { self.links.post(token, &message) }
    }

    /// The task as it travels, or the failed argument that keeps it from running.
    pub(crate) fn call(&self, id: TaskId) -> (Call, Option<Value>) {
        let task = &self.tasks.tasks[&id];
        let work = &task.work;
        let mut references = Vec::with_capacity(work.arguments.references.len());
        let mut failed_argument = None;
        for (place, object) in &work.arguments.references {
            let value = self.objects.value(*object).cloned();
            if let Some(Value { content: Some(Content::Raised(_) | Content::Failed(_)), .. }) = &value {
                failed_argument = value.clone();
            }
            references.push(place.argument(self.objects.reference(*object), value));
        }
        let call = Call {
            task: copy(id.as_bytes()),
            function: work.function.clone(),
            name: work.name.clone(),
            arguments: work.arguments.payload.clone(),
            references,
            results: work.results,
            max_calls: work.max_calls,
            retry_exceptions: work.retry_exceptions.clone(),
            attempt: task.attempt,
        };
        (call, failed_argument)
    }

    pub(crate) fn lease_granted(&mut self, granted: &LeaseGranted, descriptor: Option<OwnedFd>) {
        let queue = self.tasks.requests.remove(&granted.request);
        let token = descriptor.and_then(|stream| self.links.adopt(stream, Role::Lease(granted.lease)).ok());
        let (Some(queue), Some(token)) = (queue, token) else {
            // The request was cancelled while the grant was on its way.
            if let Some(token) = token {
                self.links.remove(token);
            }
            self.links.post_now(DAEMON, &LeaseReturn { lease: granted.lease }.into());
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
            functions: FxHashSet::default(),
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
    }

    pub(crate) fn from_lease(&mut self, lease: u64, message: Message) {
        match message {
            Message::Reply(reply) => self.task_replied(lease, reply),
            Message::Returned(returned) => {
                let Some(held) = self.tasks.leases.get_mut(&lease) else { return };
                let queue = held.queue;
                let tasks: Vec<TaskId> = returned.tasks.iter().filter_map(|task| TaskId::from_slice(task)).collect();
                held.under_way.retain(|task| !tasks.contains(task));
                let queue_state = &mut self.tasks.queues[queue];
                queue_state.average_us = Some(queue_state.average_us.unwrap_or(0.0).max(SLOW_US));
                for task in tasks.into_iter().rev() {
                    queue_state.pending.push_front(task);
                }
                self.pump(queue);
            }
            _ => {}
        }
    }

    fn task_replied(&mut self, id: u64, reply: Reply) {
        let Some(task) = TaskId::from_slice(&reply.task) else { return };
        let Some(lease) = self.tasks.leases.get_mut(&id) else { return };
        if lease.under_way.front() == Some(&task) {
            lease.under_way.pop_front();
        } else {
            lease.under_way.retain(|other| *other != task);
        }
        let (queue, worker, token, empty) = (lease.queue, lease.worker, lease.token, lease.under_way.is_empty());
        let run_us = reply.run_us as f32;
        let average = &mut self.tasks.queues[queue].average_us;
        *average = Some(average.map_or(run_us, |average| average + (run_us - average) * 0.25));
        let retiring = reply.retiring;
        self.finish(task, reply, worker);
        if retiring {
            let lease = self.tasks.remove_lease(id).expect("it was just looked at");
            self.links.remove(token);
            self.links.post(DAEMON, &LeaseReturn { lease: id }.into());
            for task in lease.under_way.into_iter().rev() {
                self.tasks.queues[queue].pending.push_front(task);
            }
        } else if empty {
            self.tasks.set_idle(id, true);
        }
        self.pump(queue);
    }

    /// A call came back: results are there, or it is to be run again.
    pub(crate) fn finish(&mut self, id: TaskId, reply: Reply, worker: WorkerId) {
        let kept: Vec<ObjectId> = reply.kept.iter().filter_map(|kept| ObjectId::from_slice(kept)).collect();
        self.hold_for(&kept, &worker);
        if reply.retry && self.try_again(id, false) {
            return;
        }
        for (index, value) in reply.results.into_iter().enumerate() {
            let holds = u32::from(matches!(value.content, Some(Content::Stored(_))));
            self.resolve(id.object(index as u32 + 1), value, holds, 1);
        }
        self.drop_task(id);
    }

    /// Puts a task back into its queue where it has retries left.
    fn try_again(&mut self, id: TaskId, suspect: bool) -> bool {
        let Some(task) = self.tasks.tasks.get_mut(&id) else { return false };
        if task.work.retries == 0 {
            return false;
        }
        task.work.retries -= i32::from(task.work.retries > 0);
        task.attempt += 1;
        task.suspect = suspect;
        if let Target::Class(queue) = task.target {
            self.tasks.queues[queue].pending.push_front(id);
            return true;
        }
        false
    }

    /// The task ends with this failure as the value of each result.
    pub(crate) fn fail_task(&mut self, id: TaskId, failure: &Failure) {
        self.finish_with(id, &failed(failure.clone()));
    }

    pub(crate) fn finish_with(&mut self, id: TaskId, value: &Value) {
        let results = self.tasks.tasks.get(&id).map_or(0, |task| task.work.results);
        for index in 1..=results {
            self.resolve(id.object(index), value.clone(), 0, 0);
        }
        self.drop_task(id);
    }

    /// SUBMIT-2: the task is over; its arguments are no longer used by it.
    fn drop_task(&mut self, id: TaskId) {
        let Some(task) = self.tasks.tasks.remove(&id) else { return };
        let arguments = task.work.arguments;
        for object in arguments.contained.into_iter().chain(arguments.references.into_iter().map(|(_, id)| id)) {
            self.release(object);
        }
    }

    /// The stream to a worker ended; what became of it the daemon says.
    pub(crate) fn lease_silent(&mut self, id: u64) {
        self.tasks.set_idle(id, false);
        if let Some(lease) = self.tasks.leases.get_mut(&id) {
            lease.closing = true;
        }
    }

    pub(crate) fn lease_ended(&mut self, ended: &LeaseEnded) {
        let Some(lease) = self.tasks.remove_lease(ended.lease) else { return };
        self.links.remove(lease.token);
        let mut tasks = lease.under_way.into_iter();
        let running = tasks.next();
        for task in tasks.rev() {
            // Those behind the first had not begun; they run one at a time until one is found to blame.
            if let Some(task) = self.tasks.tasks.get_mut(&task) {
                task.suspect = true;
            }
            self.tasks.queues[lease.queue].pending.push_front(task);
        }
        if let Some(task) = running
            && !self.try_again(task, true)
        {
            let (name, attempts) =
                self.tasks.tasks.get(&task).map_or((String::new(), 1), |task| (task.work.name.clone(), task.attempt + 1));
            let text = format!(
                "the worker that ran `{name}` died: {}. This was attempt {attempts}, the last that max_retries allows. \
                 Look at its output above, at memory use, and at native code it calls",
                ended.text
            );
            self.fail_task(task, &Failure { code: "worker_crashed".into(), text, cause: Bytes::new() });
        }
        self.pump(lease.queue);
    }

    fn return_lease(&mut self, id: u64) {
        if let Some(lease) = self.tasks.remove_lease(id) {
            self.links.remove(lease.token);
            self.links.post_now(DAEMON, &LeaseReturn { lease: id }.into());
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
        let idle: Vec<u64> =
            self.tasks.leases.iter().filter(|(_, lease)| over(lease)).map(|(id, _)| *id).collect();
        for id in idle {
            self.return_lease(id);
        }
    }
}

pub(crate) fn amounts(demand: &[(String, u64)]) -> Vec<Amount> {
    demand.iter().map(|(resource, units)| Amount { resource: resource.clone(), units: *units }).collect()
}
