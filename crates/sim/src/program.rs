//! What programs do of their own: make work while there is trouble, read what comes of it, and leave when everything is
//! answered.
//!
//! - PROGRAM-1: a value is what was asked for, or an error that tells of something that happened.
//! - PROGRAM-2: what is not to be run again is begun at most once.

use crate::actors::Owned;
use crate::agenda::{Event, MILLISECOND, Micros, SECOND};
use crate::chance::Chance;
use crate::groups::Made;
use crate::node::Role;
use crate::process::{Life, Process};
use crate::spec::{Form, Spec};
use crate::stream::End;
use crate::waits::Need;
use crate::world::{ProcessIndex, World};
use bytes::Bytes;
use oxiray_ids::{ActorId, ObjectId, PlacementGroupId};
use oxiray_runtime::{Arguments, Class, Place, Routine, Work};
use oxiray_wire::message::{Amount, Content, Driver, Environment, FailureCode, StrategyKind, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Memory of a GPU, as messages call it.
pub(crate) const GPU_MEMORY: &str = "GPU:memory";

/// What tasks ask for, in 1/10,000.
const DEMANDS: [&[(&str, u64)]; 10] = [
    &[("CPU", 10_000)],
    &[("CPU", 10_000)],
    &[("CPU", 20_000)],
    &[("CPU", 5_000)],
    &[("CPU", 10_000), ("GPU", 10_000)],
    &[("CPU", 10_000), ("GPU", 5_000)],
    &[("GPU", 3_000)],
    &[(GPU_MEMORY, (6 << 30) * 10_000)],
    &[("GPU", 20_000)],
    &[("CPU", 10_000), ("disk", 10_000)],
];

/// What they ask for where GPUs are cut: also what no process can use together.
const OF_INSTANCES: [&[(&str, u64)]; 5] = [
    &[("mig-1g.10gb", 10_000)],
    &[("mig-1g.10gb", 10_000)],
    &[("CPU", 10_000), ("mig-2g.20gb", 10_000)],
    &[("mig-1g.10gb", 20_000)],
    &[("GPU", 10_000), ("mig-1g.10gb", 10_000)],
];
/// What they ask for besides where their children need devices, too, and what those do.
const OF_PARENTS: [&[(&str, u64)]; 3] = [&[("GPU", 10_000)], &[("GPU", 10_000)], &[("GPU", 20_000)]];
const OF_CHILDREN: [Need; 3] = [Need::Units(10_000), Need::Units(5_000), Need::Units(20_000)];
/// How much memory of a GPU at most those need that need some.
const OF_CHILDREN_BYTES_MAX: u64 = 8 << 30;
/// After how many children that need devices others need none.
const NEEDY_MOST: usize = 5;

/// What they ask for within groups: also amounts of which parts are left over, which bundles then give together.
const WITHIN: [&[(&str, u64)]; 2] = [&[("CPU", 5_000)], &[("CPU", 7_500)]];

/// How long after the calm somebody ends what is detached.
pub(crate) const DETACHED_END_AFTER: Micros = 40 * SECOND;
/// How long after it a program ends actors that its calls keep, since these may wait for what such an actor holds.
const LEFT_END_AFTER: Micros = 20 * SECOND;
/// What a task takes at most, so that what comes to rest does so in time.
const TASK_LONGEST: Micros = 10 * SECOND;

/// What was asked and not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    /// What became of an actor that is to be made.
    Actor(ActorId),
    /// Which actor has a name.
    Lookup,
    /// What became of a placement group that is to outlive its maker.
    Group,
    /// What is kept under a key.
    Kept(Bytes),
}

/// How far the reading of a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The value has yet to come.
    Awaited,
    /// It is read from a store; how often it was lost when that began.
    FromStore { losses: u32 },
    /// As an argument of what runs; how often its owner, and this process, had found it lost when that began.
    OfArgument { given: u32, losses: u32 },
}

/// What the program in a process refers to and waits for.
#[derive(Debug, Default)]
pub(crate) struct Program {
    /// It does nothing of its own.
    pub(crate) is_scripted: bool,
    /// Objects that it refers to, once for each time that an object stands here.
    pub(crate) references: Vec<ObjectId>,
    /// What is being read, as often as it was asked for.
    pub(crate) reading: BTreeMap<ObjectId, Reading>,
    /// The numbers of the calls whose results are expected.
    pub(crate) expected: BTreeMap<ObjectId, u64>,
    pub(crate) questions: BTreeMap<u64, Question>,
    pub(crate) actors: BTreeMap<ActorId, Owned>,
    /// Actors that it let go of, and that may have calls which wait for what only their end makes room for.
    pub(crate) left: Vec<ActorId>,
    pub(crate) groups: BTreeMap<PlacementGroupId, Made>,
}

impl Program {
    /// What it still waits for, in words.
    pub(crate) fn awaits(&self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        found.extend((!self.references.is_empty()).then(|| format!("references {:?}", self.references)));
        found.extend((!self.reading.is_empty()).then(|| format!("values {:?}", self.reading)));
        found.extend(self.questions.iter().map(|(request, question)| format!("question {request}, {question:?}")));
        found.extend((!self.groups.is_empty()).then(|| format!("groups {:?}", self.groups)));
        found.extend((!self.actors.is_empty()).then(|| format!("actors {:?}", self.actors)));
        found
    }
}

/// What a call of the program is.
#[derive(Debug)]
pub(crate) struct CallKind {
    pub(crate) spec: Spec,
    pub(crate) retries: i32,
    pub(crate) max_calls: u32,
    pub(crate) retries_exceptions: bool,
    /// Objects that are given as arguments, and those that lie within one.
    pub(crate) given: Vec<ObjectId>,
    pub(crate) contained: Vec<ObjectId>,
}

impl World {
    /// A driver connects to the head.
    pub(crate) fn driver_comes(&mut self) {
        if self.is_without_head() {
            return self.agenda.plan(self.now + SECOND / 2, Event::DriverComes);
        }
        let process = self.processes.len();
        let key = self.nodes[0].core.new_key();
        let stream = self.new_stream([End::Node { node: 0, key }, End::Process(process)], 50);
        let mut driver = Process::new(0, crate::process::Kind::Driver, Life::Running, stream);
        self.last_pid += 1;
        driver.pid = self.last_pid;
        self.processes.push(driver);
        self.drivers.push(process);
        self.nodes[0].streams.insert(key, (stream, Role::Driver));
        self.log.line(self.now, format_args!("driver {process} comes as {key}"));
        let told = Driver {
            pid: self.last_pid,
            interpreter: "python".into(),
            namespace: if self.chance.odds(500) { "shared".into() } else { String::new() },
            ..Driver::default()
        };
        self.wake(0);
        self.nodes[0].core.driver_joined(key, told);
        self.after_event(0);
    }

    /// A driver's program goes on.
    pub(crate) fn step(&mut self, process: ProcessIndex) {
        let is_over = self.processes[process].life != Life::Running || self.processes[process].is_leaving;
        if is_over || self.client(process).program.is_scripted {
            return;
        }
        self.take_answers(process);
        self.tend_actors(process);
        self.tend_groups(process);
        self.tend_references(process);
        self.go_on(process);
        if self.processes[process].life != Life::Running {
            return;
        }
        if self.is_calm {
            if self.now >= self.options.calm_at + LEFT_END_AFTER {
                self.end_the_left(process);
            }
            if self.now >= self.options.calm_at + DETACHED_END_AFTER {
                self.end_the_detached(process);
                self.end_detached_groups(process);
                if !std::mem::replace(&mut self.has_looked, true) {
                    self.look_at_what_is_kept(process);
                }
            }
            if self.client(process).awaits().is_empty() && self.check_nothing_is_kept(process).is_none() {
                return self.leaves(process);
            }
            return self.agenda.plan(self.now + SECOND / 2, Event::Step(process));
        }
        if self.options.drivers_leave && self.chance.odds(15) {
            if self.chance.odds(500) {
                return self.dies(process);
            }
            return self.leaves(process);
        }
        for _ in 0..self.chance.between(1, 4) {
            match self.chance.between(0, 9) {
                0 | 1 if self.options.has_actors => {
                    let strategy = self.strategy(process);
                    self.make_actor(process, strategy);
                }
                2 if self.options.has_actors => self.look_for_actor(process),
                6 if self.options.heads_die => self.keep_value(process),
                3 if self.options.has_groups => self.make_group(process),
                4 | 5 if self.options.has_objects => self.put_something(process),
                7 if self.options.tasks_are_cancelled => self.cancel_something(process),
                _ => self.make_task(process),
            }
        }
        self.go_on(process);
        let at = self.now + self.chance.delay(500 * MILLISECOND);
        self.agenda.plan(at, Event::Step(process));
    }

    /// The program is at its end.
    pub(crate) fn leaves(&mut self, process: ProcessIndex) {
        self.processes[process].is_leaving = true;
        self.with_core(process, |core| core.leave(""));
        self.go_on(process);
    }

    /// Answers to questions.
    fn take_answers(&mut self, process: ProcessIndex) {
        let asked: Vec<u64> = self.client(process).program.questions.keys().copied().collect();
        for number in asked {
            let client = self.client(process);
            let Some(answer) = client.core.take_answer(number) else { continue };
            let question = client.program.questions.remove(&number).expect("it was just found");
            self.answered(process, question, answer);
        }
    }

    // --- tasks ---

    fn make_task(&mut self, process: ProcessIndex) {
        let strategy = self.strategy(process);
        let within = strategy.as_ref().is_some_and(|strategy| strategy.kind == StrategyKind::Group);
        let demand = self.chance.one_of(if within { &WITHIN } else { &DEMANDS });
        let demand = self.demand_apart(demand, within);
        let fresh = self.chance.odds(100);
        let preparation = self.some_preparation();
        let isolation = self.options.isolation_asked(self.calls.last);
        let priority = if self.chance.odds(150) { self.chance.one_of(&[-7, 3, 9]) } else { 0 };
        let class = Class {
            demand,
            environment: Environment { preparation, isolation, ..Environment::default() },
            fresh,
            strategy,
            near: Vec::new(),
            priority,
            preemptible: self.options.preempts() && self.chance.odds(400),
        };
        let usual = if self.chance.odds(50) { 3 * SECOND } else { 50 * MILLISECOND };
        let time = self.chance.delay(usual).min(TASK_LONGEST);
        let is_parent = self.options.tasks_nest && self.chance.odds(150) || self.is_parent_apart(&class.demand);
        let children = if is_parent { self.chance.between(1, 3) as u32 } else { 0 };
        let mut kind_of_call = self.some_wish(process, time, children);
        kind_of_call.retries = self.chance.one_of(&[2, 2, 3, 0, -1]);
        kind_of_call.max_calls = u32::from(self.chance.odds(50));
        self.submit(process, class, kind_of_call);
    }

    /// What a task asks for, where it may be something that is drawn apart.
    fn demand_apart(&self, drawn: &[(&str, u64)], within: bool) -> Vec<(String, u64)> {
        let mut chance = Chance::new(self.options.seed ^ self.calls.last.wrapping_mul(0xde_3a9d));
        let named = |demand: &[(&str, u64)]| demand.iter().map(|(name, units)| ((*name).to_owned(), *units)).collect();
        let is_memory = drawn.iter().any(|(name, _)| *name == GPU_MEMORY);
        if !within && self.options.cuts_gpus() && chance.odds(250) {
            return named(chance.one_of(&OF_INSTANCES));
        }
        if self.options.varies_memory() && (is_memory || chance.odds(100)) {
            let most = if chance.odds(100) { 26 << 30 } else { 8 << 30 };
            let bytes = chance.between(1, most);
            return vec![(GPU_MEMORY.to_owned(), bytes * 10_000)];
        }
        if !within && self.options.children_need_devices() && chance.odds(300) {
            return named(chance.one_of(&OF_PARENTS));
        }
        named(drawn)
    }

    /// A call that is given some of what the program refers to.
    pub(crate) fn some_wish(&mut self, process: ProcessIndex, time: Micros, children: u32) -> CallKind {
        let (mut given, mut contained) = (Vec::new(), Vec::new());
        if self.options.has_objects {
            let known = self.client(process).program.references.clone();
            for _ in 0..self.chance.between(0, 2) {
                given.extend(self.chance.pick(&known).filter(|_| self.chance.odds(400)));
                contained.extend(self.chance.pick(&known).filter(|_| self.chance.odds(200)));
            }
        }
        let form = if self.options.has_objects { self.some_form() } else { Form::Small };
        self.calls.last += 1;
        let spec = Spec { number: self.calls.last, time, children, form, contained: Vec::new() };
        let retries_exceptions = self.options.tasks_crash && self.chance.odds(200);
        CallKind { spec, retries: 2, max_calls: 0, retries_exceptions, given, contained }
    }

    fn some_form(&mut self) -> Form {
        match self.chance.between(0, 9) {
            0..=2 if self.options.has_stores => Form::Stored,
            3 => Form::WithPut,
            4 => Form::WithGiven,
            _ => Form::Small,
        }
    }

    /// The call as it is submitted.
    pub(crate) fn work(&mut self, process: ProcessIndex, kind_of_call: CallKind, is_method: bool) -> Work {
        let CallKind { mut spec, retries, max_calls, retries_exceptions, given, contained } = kind_of_call;
        let core = &self.client(process).core;
        spec.contained = contained.iter().map(|id| (*id, core.owner(*id))).collect();
        let name = if is_method { "m" } else { "f" };
        let function = if is_method { Bytes::new() } else { Bytes::from_static(b"hash") };
        let code = if is_method { Bytes::new() } else { Bytes::from_static(b"code") };
        let retry_exceptions = if retries_exceptions { Bytes::from_static(b"all") } else { Bytes::new() };
        let routine = Routine {
            function,
            code,
            name: name.into(),
            results: 1,
            max_calls,
            retry_exceptions,
            ..Routine::default()
        };
        let references = given.into_iter().zip(0..).map(|(id, place)| (Place::Position(place), id)).collect();
        let arguments = Arguments { payload: spec.encode(), references, contained };
        Work { routine: Arc::new(routine), arguments, retries, ..Work::default() }
    }

    fn submit(&mut self, process: ProcessIndex, class: Class, kind_of_call: CallKind) {
        let (number, retries) = (kind_of_call.spec.number, kind_of_call.retries);
        let work = self.work(process, kind_of_call, false);
        let is_once = retries == 0 && !class.preemptible;
        self.calls.most_begun.insert(number, if is_once { 1 } else { u32::MAX });
        let task = self.with_core(process, |core| {
            let class = core.class(class);
            let task = core.submit_task(class, work);
            core.release_class(class);
            task
        });
        self.expect(process, task.object(1), number);
    }

    /// The program refers to the result of a call, and reads it.
    pub(crate) fn expect(&mut self, process: ProcessIndex, result: ObjectId, number: u64) {
        let program = &mut self.client(process).program;
        program.references.push(result);
        program.expected.insert(result, number);
        self.begin_reading(process, result);
    }

    /// Tasks of a task.
    pub(crate) fn make_children(
        &mut self,
        process: ProcessIndex,
        parent: oxiray_ids::TaskId,
        count: u32,
    ) -> Vec<ObjectId> {
        let need = self.need_of_children();
        let demand = match need {
            None => ("CPU", 10_000),
            Some(Need::Units(units)) => ("GPU", units),
            Some(Need::Memory(bytes)) => (GPU_MEMORY, bytes * 10_000),
        };
        let mut results = Vec::new();
        for _ in 0..count {
            let time = self.chance.delay(20 * MILLISECOND);
            let mut kind_of_call = self.some_wish(process, time, 0);
            kind_of_call.retries = 2;
            self.calls.most_begun.insert(kind_of_call.spec.number, u32::MAX);
            let mut work = self.work(process, kind_of_call, false);
            work.parent = parent;
            let class = Class {
                demand: vec![(demand.0.to_owned(), demand.1)],
                environment: Environment::default(),
                fresh: false,
                strategy: None,
                near: Vec::new(),
                priority: 0,
                preemptible: false,
            };
            let task = self.with_core(process, |core| {
                let class = core.class(class);
                let task = core.submit_task(class, work);
                core.release_class(class);
                task
            });
            results.push(task.object(1));
            if let Some(need) = need {
                self.standstill.needs.insert(task.object(1), need);
            }
        }
        results
    }

    /// Whether a task makes others where that is drawn apart: one that holds what these need.
    fn is_parent_apart(&self, demand: &[(String, u64)]) -> bool {
        // Children that need no device need processors, which a machine may lack.
        let is_for_memory = self.standstill.needs.len() < NEEDY_MOST;
        let holds_devices = demand.iter().any(|(name, _)| name == "GPU" || (is_for_memory && name == GPU_MEMORY));
        self.options.children_need_devices() && holds_devices && self.odds_apart(self.calls.last, 700)
    }

    /// The devices that the tasks of a task need. There are few that need some, so that one after the other may fail for want
    /// of them before a run is to be at its end.
    fn need_of_children(&self) -> Option<Need> {
        let is_apart = self.options.children_need_devices() && self.standstill.needs.len() < NEEDY_MOST;
        let mut chance = Chance::new(self.options.seed ^ self.calls.last.wrapping_mul(0x000c_411d));
        (is_apart && chance.odds(900)).then(|| {
            let of_units = chance.one_of(&OF_CHILDREN);
            let is_memory = self.options.varies_memory() && chance.odds(500);
            if is_memory { Need::Memory(chance.between(1, OF_CHILDREN_BYTES_MAX)) } else { of_units }
        })
    }

    /// A process wants one of its calls no more.
    fn cancel_something(&mut self, process: ProcessIndex) {
        let expected: Vec<ObjectId> = self.client(process).program.expected.keys().copied().collect();
        let Some(result) = self.chance.pick(&expected) else { return };
        let (force, recursive) = (self.chance.odds(300), self.chance.odds(500));
        // That an actor's call is not cancelled by force is told.
        let _ = self.with_core(process, |core| core.cancel_object(result, force, recursive));
    }

    // --- values ---

    fn put_something(&mut self, process: ProcessIndex) {
        let known = self.client(process).program.references.clone();
        let inner = self.chance.pick(&known).filter(|_| self.chance.odds(300));
        let is_there = self.client(process).core.io().has_daemon();
        let is_stored = is_there && self.options.has_stores && self.chance.odds(400);
        self.put(process, inner, is_stored);
    }

    /// A process makes an object, at times one that refers to another.
    pub(crate) fn put(&mut self, process: ProcessIndex, inner: Option<ObjectId>, is_stored: bool) -> ObjectId {
        let core = &mut self.client(process).core;
        let id = core.name_put();
        let contained = inner.map(|inner| crate::spec::reference(inner, core.owner(inner))).into_iter().collect();
        let content = if is_stored {
            self.shelve(process, id);
            Content::Stored(1 << 20)
        } else {
            Content::Inline(Bytes::from_static(b"put"))
        };
        self.with_core(process, |core| core.put(id, Value { content: Some(content), contained }));
        self.client(process).program.references.push(id);
        id
    }

    /// The program reads things again, lets go of some, and frees some.
    fn tend_references(&mut self, process: ProcessIndex) {
        let known: BTreeSet<ObjectId> = self.client(process).program.references.iter().copied().collect();
        for id in known {
            if self.client(process).program.reading.contains_key(&id) {
                continue;
            }
            if self.is_calm || self.chance.odds(150) {
                let program = &mut self.client(process).program;
                let at = program.references.iter().position(|known| *known == id).expect("it was just found");
                program.references.swap_remove(at);
                program.expected.remove(&id);
                self.with_core(process, |core| core.release(id));
            } else if self.chance.odds(100) {
                self.begin_reading(process, id);
            } else if self.chance.odds(10) {
                self.freed.insert(id);
                self.with_core(process, |core| core.free(&[id]));
            }
        }
    }

    /// Reads a value, as soon as it is there.
    pub(crate) fn begin_reading(&mut self, process: ProcessIndex, id: ObjectId) {
        self.client(process).program.reading.entry(id).or_insert(Reading::Awaited);
        self.with_core(process, |core| core.want(id));
    }

    /// Reads an argument that came with its call and lies in a store.
    pub(crate) fn begin_reading_argument(&mut self, process: ProcessIndex, id: ObjectId, given: u32) {
        let core = &self.client(process).core;
        let (losses, owner) = (core.losses(id), core.owner(id));
        self.client(process).program.reading.insert(id, Reading::OfArgument { given, losses });
        self.read(process, crate::spec::reference(id, owner));
    }

    /// Reads what has come.
    pub(crate) fn look_at_values(&mut self, process: ProcessIndex) {
        if self.processes[process].life != Life::Running {
            return;
        }
        let reading = self.client(process).program.reading.iter();
        let awaited = reading.filter(|(_, reading)| **reading == Reading::Awaited).map(|(id, _)| *id);
        let awaited: Vec<ObjectId> = awaited.collect();
        for id in awaited {
            let Some(value) = self.client(process).core.look_at(id).cloned() else { continue };
            if let Some(Content::Stored(_)) = value.content {
                let core = &self.client(process).core;
                let (losses, owner) = (core.losses(id), core.owner(id));
                self.client(process).program.reading.insert(id, Reading::FromStore { losses });
                self.read(process, crate::spec::reference(id, owner));
            } else {
                self.check_value(process, id, &value);
                self.has_read(process, id);
            }
        }
        self.go_on_with_run(process);
    }

    /// PROGRAM-1.
    fn check_value(&mut self, process: ProcessIndex, id: ObjectId, value: &Value) {
        match &value.content {
            Some(Content::Inline(bytes)) => {
                let Some(number) = self.client(process).program.expected.get(&id) else { return };
                assert_eq!(bytes[..], number.to_le_bytes(), "PROGRAM-1: {id} is the value of another call");
            }
            Some(Content::Failed(failure)) => {
                let is_disk = failure.text.contains("the disk is full");
                let has_reason = failure.code != FailureCode::System || is_disk && self.options.heads_die;
                assert!(has_reason, "PROGRAM-1: {id} failed for no reason: {}", failure.text);
                let was_stuck = failure.code != FailureCode::DeviceDeadlock || self.standstill.was_told(process);
                assert!(was_stuck, "PROGRAM-1: {id} could have been made: {}", failure.text);
                let was_freed = failure.code != FailureCode::ObjectFreed || self.freed.contains(&id);
                assert!(was_freed, "PROGRAM-1: {id} was freed by nobody");
                let was_cancelled = failure.code != FailureCode::Cancelled || self.options.tasks_are_cancelled;
                assert!(was_cancelled, "PROGRAM-1: {id} was cancelled by nobody");
            }
            Some(Content::Raised(_)) => assert!(self.options.tasks_crash, "PROGRAM-1: {id} raised nothing"),
            Some(Content::Stored(_)) | None => panic!("PROGRAM-1: {id} has a strange value"),
        }
    }

    /// A value was read.
    pub(crate) fn has_read(&mut self, process: ProcessIndex, id: ObjectId) {
        self.client(process).program.reading.remove(&id);
        if let Some(run) = &mut self.processes[process].run {
            run.awaited.retain(|awaited| *awaited != id);
        }
    }

    /// The bytes were in a store, and were read.
    pub(crate) fn has_read_from_store(&mut self, process: ProcessIndex, id: ObjectId) {
        let reading = self.client(process).program.reading.get(&id);
        if reading.is_some_and(|reading| *reading != Reading::Awaited) {
            self.has_read(process, id);
            self.go_on(process);
        }
    }

    /// What was to be read is in no store: its owner is told, and whoever wants it waits for it anew.
    pub(crate) fn is_lost(&mut self, process: ProcessIndex, id: ObjectId) {
        if self.processes[process].life != Life::Running {
            return;
        }
        let goes_back = match self.client(process).program.reading.get(&id).copied() {
            Some(Reading::FromStore { losses }) => {
                self.with_core(process, |core| core.report_lost(id, losses));
                false
            }
            Some(Reading::OfArgument { given, losses }) => self.argument_is_lost(process, id, given, losses),
            Some(Reading::Awaited) | None => return,
        };
        if !goes_back {
            self.client(process).program.reading.insert(id, Reading::Awaited);
            self.with_core(process, |core| core.want(id));
        }
        self.go_on(process);
    }

    /// What a driver reads it asks the next daemon for.
    pub(crate) fn read_again(&mut self, process: ProcessIndex) {
        let reading = self.client(process).program.reading.clone();
        for (id, reading) in reading {
            if reading != Reading::Awaited {
                let owner = self.client(process).core.owner(id);
                self.read(process, crate::spec::reference(id, owner));
            }
        }
    }
}

/// Amounts as they travel.
pub(crate) fn amounts(named: &[(&str, u64)]) -> Vec<Amount> {
    named.iter().map(|(resource, units)| Amount { resource: (*resource).to_owned(), units: *units }).collect()
}
