//! What a process with a runtime does: asks for workers, gives them work, gives them back.
//!
//! - CLIENT-1: each request is answered once, with a lease or a refusal, unless it was taken back.
//! - CLIENT-2: of each lease that was not returned, its end is told once.

use crate::actors::Known;
use crate::agenda::{Event, MILLISECOND, Micros, SECOND};
use crate::groups::Made;
use crate::objects::Held;
use crate::process::Call;
use crate::stream::{Descriptor, Packet};
use crate::world::{ProcessIndex, World};
use bytes::Bytes;
use oxiray_wire::Message;
use oxiray_wire::message::{
    Amount, Environment, LeaseCancel, LeaseEnded, LeaseGranted, LeaseKill, LeaseRequest, LeaseReturn, Strategy, Welcome,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How often a task is tried again whose worker died.
const RETRIES: u32 = 2;
/// How long a lease is kept without work.
const IDLE_LIMIT: Micros = SECOND;

/// What tasks have in common that may share a worker.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Kind {
    pub(crate) demand: Vec<Amount>,
    pub(crate) strategy: Option<Strategy>,
    pub(crate) fresh: bool,
    /// What must be made first; empty for nothing.
    pub(crate) preparation: String,
}

/// Something that is to be run elsewhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    pub(crate) time: Micros,
    pub(crate) children: u32,
    pub(crate) retries: u32,
    /// The run of this process that waits for it.
    pub(crate) awaited_by: Option<u64>,
}

/// Tasks of one kind.
#[derive(Debug)]
pub(crate) struct Class {
    kind: Kind,
    pub(crate) pending: VecDeque<Task>,
    requests: BTreeSet<u64>,
}

/// A worker of another process, for a while.
#[derive(Debug)]
pub(crate) struct Lease {
    class: usize,
    pub(crate) worker: Bytes,
    pub(crate) link: Descriptor,
    /// With the number of its call.
    pub(crate) under_way: Option<(u64, Task)>,
    /// Its stream is over: the verdict is awaited.
    pub(crate) is_silent: bool,
    /// It is given back as soon as nothing is under way on it.
    retires: bool,
    idle_since: Option<Micros>,
}

/// What was asked and not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    /// What became of an actor that is to be made.
    Actor(Bytes),
    /// Which actor has a name.
    Lookup,
    /// What became of a placement group that is to outlive its maker, or of another one.
    Group(Option<Bytes>),
    /// What is kept under a key.
    Kept(Bytes),
}

/// The runtime of a driver or a worker.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: Bytes,
    pub(crate) job: Bytes,
    /// The last head that it told where it stands.
    pub(crate) epoch: u64,
    /// It has not said that nothing is on its way to it any more which that head has not counted.
    pub(crate) is_unsettled: bool,
    pub(crate) questions: BTreeMap<u64, Question>,
    /// The words of those that are not answered.
    pub(crate) asked: BTreeMap<u64, Message>,
    /// Deeds that nobody answers, and when they were said.
    pub(crate) recent: Vec<(Micros, Message)>,
    pub(crate) actors: BTreeMap<Bytes, Known>,
    pub(crate) groups: BTreeMap<Bytes, Made>,
    pub(crate) objects: Held,
    pub(crate) last_number: u64,
    pub(crate) classes: Vec<Class>,
    requests: BTreeMap<u64, usize>,
    cancelled: BTreeSet<u64>,
    pub(crate) leases: BTreeMap<u64, Lease>,
    /// Leases that were given back, whose end may have crossed that.
    returned: BTreeSet<u64>,
    pub(crate) tasks_made: u64,
    pub(crate) tasks_ended: u64,
}

impl Client {
    pub(crate) fn new(welcome: &Welcome) -> Self {
        Self {
            id: welcome.worker.clone(),
            job: welcome.job.clone(),
            epoch: welcome.epoch,
            is_unsettled: false,
            questions: BTreeMap::new(),
            asked: BTreeMap::new(),
            recent: Vec::new(),
            actors: BTreeMap::new(),
            groups: BTreeMap::new(),
            objects: Held::default(),
            last_number: 0,
            classes: Vec::new(),
            requests: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            leases: BTreeMap::new(),
            returned: BTreeSet::new(),
            tasks_made: 0,
            tasks_ended: 0,
        }
    }

    /// Its ends of streams to workers.
    pub(crate) fn links(&self) -> Vec<Descriptor> {
        let of_leases = self.leases.values().map(|lease| lease.link);
        of_leases.chain(self.actors.values().filter_map(Known::link)).collect()
    }

    /// What it still waits for, in words; empty where everything was answered.
    pub(crate) fn awaits(&self) -> Vec<String> {
        let mut found = self.awaits_of_actors();
        found.extend(self.objects.awaits());
        found.extend(self.questions.iter().map(|(request, question)| format!("question {request}, {question:?}")));
        found.extend((!self.groups.is_empty()).then(|| format!("groups {:?}", self.groups)));
        if self.tasks_made != self.tasks_ended {
            found.push(format!("{} of {} tasks", self.tasks_made - self.tasks_ended, self.tasks_made));
            found.push(format!("requests {:?}", self.requests.keys().collect::<Vec<_>>()));
            found.push(format!("leases {:?}", self.leases.keys().collect::<Vec<_>>()));
        }
        found
    }

    /// A number that names nothing else of this client.
    pub(crate) fn new_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn class_of(&mut self, kind: Kind) -> usize {
        let known = self.classes.iter().position(|class| class.kind == kind);
        known.unwrap_or_else(|| {
            self.classes.push(Class { kind, pending: VecDeque::new(), requests: BTreeSet::new() });
            self.classes.len() - 1
        })
    }
}

impl World {
    /// The client of a process that has one.
    pub(crate) fn client(&mut self, process: ProcessIndex) -> &mut Client {
        self.processes[process].client.as_mut().expect("the process has a runtime")
    }

    /// A process says something to its daemon.
    pub(crate) fn say(&mut self, process: ProcessIndex, message: impl Into<Message>) {
        let control = self.processes[process].control;
        let message = message.into();
        self.note(process, &message);
        self.send(control, Packet::Said { message: Box::new(message), descriptor: None });
    }

    /// A process makes a task.
    pub(crate) fn submit(&mut self, process: ProcessIndex, kind: Kind, task: Task) {
        let client = self.client(process);
        client.tasks_made += 1;
        let class = client.class_of(kind);
        client.classes[class].pending.push_back(task);
        self.pump(process, class);
    }

    /// A run makes tasks and waits for them.
    pub(crate) fn make_children(&mut self, process: ProcessIndex, run: u64, count: u32) {
        for _ in 0..count {
            let time = self.chance.delay(20 * MILLISECOND);
            let demand = vec![Amount { resource: "CPU".into(), units: 10_000 }];
            let task = Task { time, children: 0, retries: RETRIES, awaited_by: Some(run) };
            let kind = Kind { demand, strategy: None, fresh: false, preparation: String::new() };
            self.submit(process, kind, task);
        }
        self.say(process, oxiray_wire::message::Blocked {});
    }

    /// Gives pending tasks to idle workers, and asks for more workers.
    pub(crate) fn pump(&mut self, process: ProcessIndex, class: usize) {
        let idle =
            |lease: &&Lease| lease.class == class && lease.under_way.is_none() && !lease.is_silent && !lease.retires;
        while let Some(task) = self.client(process).classes[class].pending.front().copied() {
            let client = self.client(process);
            let Some(lease) = client.leases.values_mut().find(|lease| idle(&&**lease)) else { break };
            client.classes[class].pending.pop_front();
            client.last_number += 1;
            let number = client.last_number;
            (lease.under_way, lease.idle_since) = (Some((number, task)), None);
            let link = lease.link;
            let is_deadly = self.options.tasks_crash && self.chance.odds(30);
            let call = Call { number, time: task.time, children: task.children, is_deadly };
            self.send(link, Packet::Call(call));
        }
        loop {
            let client = self.client(process);
            let found = &client.classes[class];
            if found.requests.len() >= found.pending.len() {
                break;
            }
            let Kind { demand, strategy, fresh, preparation } = found.kind.clone();
            let environment = (!preparation.is_empty()).then(|| Environment { preparation, ..Environment::default() });
            let request = client.new_number();
            client.requests.insert(request, class);
            client.classes[class].requests.insert(request);
            let label = "f".to_owned();
            self.say(
                process,
                LeaseRequest { request, demand, environment, fresh, label, strategy, ..LeaseRequest::default() },
            );
        }
        self.cancel_what_is_too_much(process, class);
    }

    pub(crate) fn cancel_what_is_too_much(&mut self, process: ProcessIndex, class: usize) {
        loop {
            let client = self.client(process);
            let found = &mut client.classes[class];
            if found.requests.len() <= found.pending.len() {
                return;
            }
            let Some(request) = found.requests.pop_last() else { return };
            client.requests.remove(&request);
            client.cancelled.insert(request);
            self.say(process, LeaseCancel { request });
        }
    }

    pub(crate) fn lease_granted(&mut self, process: ProcessIndex, said: &LeaseGranted, link: Option<Descriptor>) {
        let link = link.expect("a grant comes with a stream");
        let client = self.client(process);
        let class = client.requests.remove(&said.request);
        let is_known = class.is_some() || client.cancelled.remove(&said.request);
        assert!(is_known, "CLIENT-1: process {process} is granted request {} that it did not make", said.request);
        assert!(!client.leases.contains_key(&said.lease), "CLIENT-2: lease {} is granted twice", said.lease);
        let Some(class) = class else {
            client.returned.insert(said.lease);
            self.close(link);
            return self.say(process, LeaseReturn { lease: said.lease, retiring: false });
        };
        client.classes[class].requests.remove(&said.request);
        let lease = Lease {
            class,
            worker: said.worker.clone(),
            link,
            under_way: None,
            is_silent: false,
            retires: false,
            idle_since: None,
        };
        client.leases.insert(said.lease, lease);
        self.adopt(link, process);
        self.pump(process, class);
        self.rest(process, said.lease);
    }

    /// A lease without work is kept for a while.
    fn rest(&mut self, process: ProcessIndex, number: u64) {
        let now = self.now;
        let Some(lease) = self.client(process).leases.get_mut(&number) else { return };
        if lease.under_way.is_none() && lease.idle_since.is_none() && !lease.is_silent {
            lease.idle_since = Some(now);
            self.agenda.plan(now + IDLE_LIMIT, Event::Idle { process, lease: number });
        }
    }

    /// A lease may have rested for long enough.
    pub(crate) fn idle(&mut self, process: ProcessIndex, number: u64) {
        let now = self.now;
        let Some(client) = self.processes[process].client.as_ref() else { return };
        let is_over = |lease: &Lease| lease.idle_since.is_some_and(|since| since + IDLE_LIMIT <= now);
        if client.leases.get(&number).is_some_and(is_over) {
            self.return_lease(process, number, false);
        }
    }

    /// The node of a lease is being emptied: nothing more begins there.
    pub(crate) fn retire_lease(&mut self, process: ProcessIndex, number: u64) {
        let Some(lease) = self.client(process).leases.get_mut(&number) else { return };
        lease.retires = true;
        let class = lease.class;
        if lease.under_way.is_none() && !lease.is_silent {
            self.return_lease(process, number, true);
        }
        self.pump(process, class);
    }

    fn return_lease(&mut self, process: ProcessIndex, lease: u64, retiring: bool) {
        let client = self.client(process);
        let Some(found) = client.leases.remove(&lease) else { return };
        client.returned.insert(lease);
        self.close(found.link);
        self.say(process, LeaseReturn { lease, retiring });
    }

    /// Others wait for what this process does not use.
    pub(crate) fn return_idle(&mut self, process: ProcessIndex) {
        let Some(client) = self.processes[process].client.as_ref() else { return };
        let idle = client.leases.iter().filter(|(_, lease)| lease.idle_since.is_some()).map(|(number, _)| *number);
        for lease in idle.collect::<Vec<_>>() {
            self.return_lease(process, lease, false);
        }
    }

    pub(crate) fn lease_refused(&mut self, process: ProcessIndex, request: u64) {
        let client = self.client(process);
        let Some(class) = client.requests.remove(&request) else {
            assert!(client.cancelled.contains(&request), "CLIENT-1: request {request} is refused, and was not made");
            return;
        };
        // What is refused once is refused always.
        for other in std::mem::take(&mut client.classes[class].requests) {
            if client.requests.remove(&other).is_some() {
                client.cancelled.insert(other);
            }
        }
        for task in std::mem::take(&mut self.client(process).classes[class].pending) {
            self.task_ended(process, task);
        }
    }

    pub(crate) fn lease_ended(&mut self, process: ProcessIndex, said: &LeaseEnded) {
        let client = self.client(process);
        let Some(lease) = client.leases.remove(&said.lease) else {
            let crossed = client.returned.remove(&said.lease);
            assert!(crossed, "CLIENT-2: the end of lease {} is told twice, or it was never granted", said.lease);
            return;
        };
        self.close(lease.link);
        if let Some((_, task)) = lease.under_way {
            if task.retries > 0 && said.failure.is_none() {
                let again = Task { retries: task.retries - u32::from(!said.was_drained), ..task };
                self.client(process).classes[lease.class].pending.push_front(again);
            } else {
                self.task_ended(process, task);
            }
        }
        self.pump(process, lease.class);
    }

    /// A worker answered, or its stream is over.
    pub(crate) fn worker_said(&mut self, process: ProcessIndex, number: u64, packet: &Packet) {
        let Some(lease) = self.client(process).leases.get_mut(&number) else { return };
        let class = lease.class;
        let Packet::Reply(answered) = packet else {
            (lease.is_silent, lease.idle_since) = (true, None);
            return self.say(process, LeaseKill { lease: number });
        };
        let (asked, task) = lease.under_way.take().expect("a worker answers what it was asked");
        assert_eq!(asked, *answered, "a worker answers its caller");
        let retires = lease.retires;
        self.task_ended(process, task);
        if retires || self.chance.odds(50) {
            self.return_lease(process, number, true);
        }
        self.pump(process, class);
        self.rest(process, number);
    }

    pub(crate) fn task_ended(&mut self, process: ProcessIndex, task: Task) {
        self.client(process).tasks_ended += 1;
        if let Some(run) = task.awaited_by {
            self.child_ended(process, run);
        }
    }

    /// The next head is asked for workers anew.
    pub(crate) fn ask_for_leases_again(&mut self, process: ProcessIndex) {
        let client = self.client(process);
        client.cancelled.extend(std::mem::take(&mut client.requests).into_keys());
        for class in &mut client.classes {
            class.requests.clear();
        }
        for class in 0..self.client(process).classes.len() {
            self.pump(process, class);
        }
    }

    /// Which lease a stream is to.
    pub(crate) fn lease_of(&self, process: ProcessIndex, link: Descriptor) -> Option<u64> {
        let client = self.processes[process].client.as_ref()?;
        client.leases.iter().find(|(_, lease)| lease.link == link).map(|(number, _)| *number)
    }
}
