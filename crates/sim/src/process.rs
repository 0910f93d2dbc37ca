//! Drivers and workers as processes: they live, die at any moment, and leave behind what they started.

use crate::agenda::{Event, MILLISECOND, SECOND};
use crate::client::Client;
use crate::gpus::Unit;
use crate::kernel::Access;
use crate::spec::{Form, Spec};
use crate::stream::Descriptor;
use crate::world::{NodeIndex, ProcessIndex, StreamIndex, World};
use oxiray_ids::{ObjectId, WorkerId};
use oxiray_machine::{Key, TemplateKey};
use oxiray_runtime::{Duty, Outcome, Ticket};
use oxiray_wire::message::{Call, Content, FailureCode, Value};

/// What a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Driver,
    /// A worker, as its node counts.
    Worker {
        key: Key,
        template: TemplateKey,
    },
}

/// Where it is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Life {
    /// To be forked.
    Starting,
    Running,
    /// The process itself is dead; what it started may not be.
    Dead,
    /// Nothing of it is left.
    Gone,
}

/// A share of a device that a process was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) resource: String,
    pub(crate) slot: u32,
    /// Which device of the machine that is.
    pub(crate) unit: Unit,
    pub(crate) units: u64,
    /// How much of its memory.
    pub(crate) bytes: u64,
}

/// What runs.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) number: u64,
    pub(crate) ticket: Ticket,
    pub(crate) call: Box<Call>,
    pub(crate) spec: Spec,
    /// What it was given and reads before it begins, or the results of its own tasks: what it waits for.
    pub(crate) awaited: Vec<ObjectId>,
    /// The results of its own tasks, once it has made them.
    children: Option<Vec<ObjectId>>,
    /// What it was given, once for each reference.
    borrowed: Vec<ObjectId>,
    /// It told its runtime that it waits.
    is_waiting: bool,
}

impl Run {
    /// Whether it has made tasks.
    pub(crate) fn has_children(&self) -> bool {
        self.children.as_ref().is_some_and(|children| !children.is_empty())
    }
}

/// One process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) node: NodeIndex,
    pub(crate) kind: Kind,
    pub(crate) pid: u32,
    pub(crate) life: Life,
    /// To be killed as soon as it is there.
    pub(crate) is_doomed: bool,
    /// Its end of its control stream.
    pub(crate) control: Descriptor,
    pub(crate) devices: Vec<Held>,
    pub(crate) access: Access,
    pub(crate) client: Option<Client>,
    pub(crate) run: Option<Run>,
    /// It has said so.
    pub(crate) is_leaving: bool,
    /// It is to be an actor, and its constructor runs.
    pub(crate) is_constructing: bool,
    last_run: u64,
}

impl Process {
    pub(crate) fn new(node: NodeIndex, kind: Kind, life: Life, control: StreamIndex) -> Self {
        Self {
            node,
            kind,
            pid: 0,
            life,
            is_doomed: false,
            control: Descriptor { stream: control, side: 1 },
            devices: Vec::new(),
            access: Access::default(),
            client: None,
            run: None,
            is_leaving: false,
            is_constructing: false,
            last_run: 0,
        }
    }

    /// Whether it takes what arrives for it, or throws it away.
    pub(crate) fn reads(&self) -> bool {
        self.life > Life::Starting
    }
}

impl World {
    /// A process is killed, now or as soon as it is there.
    pub(crate) fn kill(&mut self, process: ProcessIndex) {
        self.processes[process].is_doomed = true;
        if self.processes[process].life == Life::Running {
            // One that is deep in a driver dies late.
            let late = if self.options.is_stuck && self.chance.odds(15) { 15 * SECOND } else { MILLISECOND };
            let at = self.now + self.chance.between(0, late);
            self.agenda.plan(at, Event::Dies(process));
        }
    }

    /// The process itself dies: its streams end, and its daemon hears of it in its time.
    pub(crate) fn dies(&mut self, process: ProcessIndex) {
        let found = &mut self.processes[process];
        if found.life != Life::Running {
            return;
        }
        found.life = Life::Dead;
        let kind = found.kind;
        self.log.line(self.now, format_args!("process {process} dies"));
        let mut ends = vec![self.processes[process].control];
        if let Some(client) = &mut self.processes[process].client {
            ends.extend(client.core.io().ends());
        }
        for end in ends {
            self.close(end);
        }
        if matches!(kind, Kind::Worker { .. }) {
            let noticed = self.now + self.chance.delay(200);
            self.agenda.plan(noticed, Event::Noticed(process));
            let lingers = if self.options.is_stuck && self.chance.odds(30) { 20 * SECOND } else { 5 * MILLISECOND };
            let gone = noticed + self.chance.between(0, lingers);
            self.agenda.plan(gone, Event::Gone(process));
        } else {
            self.processes[process].life = Life::Gone;
        }
    }

    /// Everything that the process started is dead: its devices are left, and forget it in their time.
    pub(crate) fn is_gone(&mut self, process: ProcessIndex) {
        if self.processes[process].life == Life::Gone {
            return;
        }
        self.dies(process);
        self.processes[process].life = Life::Gone;
        let (node, pid) = (self.processes[process].node, self.processes[process].pid);
        if self.leaves_somebody(process) {
            self.processes[process].devices.clear();
        }
        for held in std::mem::take(&mut self.processes[process].devices) {
            if self.options.devices_remember && self.chance.odds(400) {
                let most = if self.chance.odds(100) { 25 * SECOND } else { SECOND };
                let until = self.now + self.chance.between(0, most);
                let machine = self.nodes[node].machine;
                self.machines[machine].memory.remember(held, pid, until);
            }
        }
        self.worker_is_gone(node, process);
    }

    /// A worker does what is next, where it does nothing.
    pub(crate) fn serve(&mut self, process: ProcessIndex) {
        loop {
            let found = &self.processes[process];
            let is_busy = found.run.is_some() || found.is_constructing || found.is_leaving;
            if is_busy || found.life != Life::Running || found.kind == Kind::Driver {
                return;
            }
            match self.with_core(process, |core| core.take_duty(None)) {
                Some(Duty::Run(ticket, call)) => self.begin_run(process, ticket, call),
                Some(Duty::Become(_) | Duty::Cancel(_) | Duty::Collect) => {}
                Some(Duty::Leave) => {
                    self.processes[process].is_leaving = true;
                    let at = self.now + self.chance.delay(MILLISECOND);
                    self.agenda.plan(at, Event::Dies(process));
                }
                None => return,
            }
        }
    }

    /// A call begins: what it was given is read first.
    fn begin_run(&mut self, process: ProcessIndex, ticket: Ticket, call: Box<Call>) {
        let spec = Spec::decode(call.arguments.clone());
        self.user_code_begins(process);
        self.check_begun(process, &call, &spec);
        let found = &mut self.processes[process];
        found.last_run += 1;
        let number = found.last_run;
        let mut borrowed: Vec<(ObjectId, WorkerId)> = spec.contained.clone();
        let (mut awaited, mut stored) = (Vec::new(), Vec::new());
        for argument in &call.references {
            let given = argument.reference.as_ref().expect("an argument is of some object");
            let id = given.object;
            borrowed.push((id, given.owner.unwrap_or_default()));
            match &argument.value {
                Some(value) if !matches!(value.content, Some(Content::Stored(_))) => {
                    borrowed
                        .extend(value.contained.iter().map(|inner| (inner.object, inner.owner.unwrap_or_default())));
                }
                Some(_) => stored.push((id, argument.losses)),
                None => awaited.push(id),
            }
        }
        let own = stored.iter().map(|(id, _)| *id).chain(awaited.iter().copied()).collect();
        let ids = borrowed.iter().map(|(id, _)| *id).collect();
        let run = Run { number, ticket, call, spec, awaited: own, children: None, borrowed: ids, is_waiting: false };
        found.run = Some(run);
        self.with_core(process, |core| borrowed.iter().for_each(|(id, owner)| core.borrow(*id, *owner)));
        if self.options.tasks_crash && self.chance.odds(30) {
            let time = self.processes[process].run.as_ref().map_or(0, |run| run.spec.time);
            let at = self.now + self.chance.between(0, time);
            self.agenda.plan(at, Event::Dies(process));
        }
        for id in awaited {
            self.begin_reading(process, id);
        }
        for (id, losses) in stored {
            let is_it = |run: &Run| run.number == number;
            if self.processes[process].run.as_ref().is_some_and(is_it) {
                self.begin_reading_argument(process, id, losses);
            }
        }
        self.look_at_values(process);
    }

    /// An argument of what runs is in no store. Whether that goes back to its owner for it.
    pub(crate) fn argument_is_lost(&mut self, process: ProcessIndex, id: ObjectId, given: u32, seen: u32) -> bool {
        let Some(run) = &self.processes[process].run else { return false };
        let task = (!run.call.function.is_empty()).then(|| run.ticket.task());
        let goes_back = self.with_core(process, |core| core.argument_lost(task, id, given, seen));
        if goes_back {
            self.give_run_back(process);
        }
        goes_back
    }

    fn give_run_back(&mut self, process: ProcessIndex) {
        let Some(run) = self.processes[process].run.take() else { return };
        self.end_waiting(process, run.is_waiting);
        for id in &run.awaited {
            self.client(process).program.reading.remove(id);
        }
        self.with_core(process, |core| run.borrowed.iter().for_each(|id| core.release(*id)));
        *self.calls.begun.get_mut(&run.spec.number).expect("it was counted when it came") -= 1;
        self.with_core(process, |core| {
            core.end_of_user_code(run.ticket.task());
            core.reply(run.ticket, &mut Outcome::default());
        });
    }

    /// PROGRAM-2, ACTOR-5: what its caller does not have run again is begun once, and in the order of the calls.
    fn check_begun(&mut self, process: ProcessIndex, call: &Call, spec: &Spec) {
        let most = self.calls.most_begun.get(&spec.number).copied().expect("somebody made the call");
        let begun = self.calls.begun.entry(spec.number).or_default();
        *begun += 1;
        self.calls.begun_at = self.now;
        assert!(*begun <= most, "PROGRAM-2: call {} is begun {begun} times of {most}", spec.number);
        if call.function.is_empty() && most == 1 {
            let task = call.task;
            let caller = self.calls.callers.get(&spec.number).copied().expect("somebody made the call");
            let last = self.calls.last_begun.insert((process, caller), spec.number);
            assert!(last.is_none_or(|last| last < spec.number), "ACTOR-5: {task} overtook a call of its caller's");
        }
    }

    /// What runs waits for nothing more.
    fn end_waiting(&mut self, process: ProcessIndex, lends: bool) {
        self.with_core(process, |core| {
            core.forget_awaited();
            if lends {
                core.end_waiting();
            }
        });
    }

    /// What runs goes on where it waits for nothing more.
    pub(crate) fn go_on_with_run(&mut self, process: ProcessIndex) {
        let Some(run) = &mut self.processes[process].run else { return };
        if run.awaited.is_empty() {
            let lends = std::mem::take(&mut run.is_waiting);
            self.end_waiting(process, lends);
        } else {
            if !run.is_waiting {
                let awaited = run.awaited.clone();
                let is_waiting = self.with_core(process, |core| {
                    core.note_awaited(&awaited);
                    core.begin_waiting(&awaited)
                });
                if let Some(run) = &mut self.processes[process].run {
                    run.is_waiting = is_waiting;
                }
            }
            return;
        }
        let Some(run) = &mut self.processes[process].run else { return };
        let (number, time, task, wanted) = (run.number, run.spec.time, run.ticket.task(), run.spec.children);
        if run.children.is_some() {
            return;
        }
        run.children = Some(Vec::new());
        if wanted == 0 {
            return self.agenda.plan(self.now + time, Event::Finished { process, run: number });
        }
        let children = self.make_children(process, task, wanted);
        let Some(run) = &mut self.processes[process].run else { return };
        (run.children, run.awaited) = (Some(children.clone()), children.clone());
        self.agenda.plan(self.now + time, Event::Finished { process, run: number });
        for child in children {
            self.begin_reading(process, child);
        }
        self.look_at_values(process);
    }

    /// A run is over, unless it waits.
    pub(crate) fn finished(&mut self, process: ProcessIndex, run: u64) {
        let found = &self.processes[process];
        let Some(current) = found.run.as_ref().filter(|current| current.number == run) else { return };
        if found.life != Life::Running {
            return;
        }
        if !current.awaited.is_empty() {
            let at = self.now + current.spec.time.max(MILLISECOND);
            return self.agenda.plan(at, Event::Finished { process, run });
        }
        let is_raising = !current.call.retry_exceptions.is_empty() && self.chance.odds(300);
        self.end_run(process, is_raising);
    }

    /// The thread that runs calls is to look whether its call was cancelled.
    pub(crate) fn is_interrupted(&mut self, process: ProcessIndex) {
        if self.processes[process].life != Life::Running || !self.client(process).core.take_interrupt() {
            return;
        }
        if self.processes[process].run.is_some() {
            self.end_run(process, false);
        }
    }

    /// What runs is answered.
    fn end_run(&mut self, process: ProcessIndex, is_raising: bool) {
        let Some(mut run) = self.processes[process].run.take() else { return };
        let task = run.ticket.task();
        self.end_waiting(process, run.is_waiting);
        for child in run.children.take().unwrap_or_default() {
            self.client(process).program.reading.remove(&child);
            self.with_core(process, |core| core.release(child));
        }
        for id in &run.awaited {
            self.client(process).program.reading.remove(id);
        }
        let is_cancelled = self.with_core(process, |core| core.end_of_user_code(task));
        let is_method = run.call.function.is_empty();
        if is_raising && !is_cancelled && is_method && run.call.retries != 0 {
            // It is run again in its place.
            run.call.retries -= i32::from(run.call.retries > 0);
            self.with_core(process, |core| core.call_is_retried(&run.ticket));
            let (number, time) = (run.number, run.spec.time);
            (run.children, run.is_waiting) = (Some(Vec::new()), false);
            run.awaited.clear();
            self.processes[process].run = Some(run);
            return self.agenda.plan(self.now + time, Event::Finished { process, run: number });
        }
        let mut outcome = Outcome { retiring: run.call.max_calls > 0, ..Outcome::default() };
        let value = if is_cancelled {
            failed(FailureCode::Cancelled)
        } else if is_raising {
            outcome.retry = !is_method;
            Value { content: Some(Content::Raised(bytes::Bytes::from_static(b"raised"))), contained: Vec::new() }
        } else {
            self.made_by(process, &run, &mut outcome)
        };
        outcome.results.push(value);
        // An actor may keep what it was given.
        let keeps = is_method && self.chance.odds(200);
        for id in &run.borrowed {
            if keeps {
                self.client(process).program.references.push(*id);
            } else {
                self.with_core(process, |core| core.release(*id));
            }
        }
        outcome.borrowed.clone_from(&run.borrowed);
        outcome.borrowed.sort_unstable();
        outcome.borrowed.dedup();
        let is_retiring = outcome.retiring;
        self.with_core(process, |core| core.reply(run.ticket, &mut outcome));
        if is_retiring {
            self.processes[process].is_leaving = true;
            let at = self.now + self.chance.delay(MILLISECOND);
            return self.agenda.plan(at, Event::Dies(process));
        }
        self.let_go_of_some(process);
        self.go_on(process);
    }

    /// The result of a call.
    fn made_by(&mut self, process: ProcessIndex, run: &Run, outcome: &mut Outcome) -> Value {
        let small = Content::Inline(bytes::Bytes::copy_from_slice(&run.spec.number.to_le_bytes()));
        let id = run.ticket.task().object(1);
        let inner = match run.spec.form {
            Form::Small => None,
            Form::Stored => {
                self.shelve(process, id);
                outcome.stored.push(id);
                return Value { content: Some(Content::Stored(1 << 20)), contained: Vec::new() };
            }
            Form::WithPut => {
                let is_stored = self.options.has_stores && self.chance.odds(400);
                let made = self.put(process, None, is_stored);
                let references = &mut self.client(process).program.references;
                references.retain(|known| *known != made);
                Some(made)
            }
            Form::WithGiven => {
                let given = run.borrowed.first().copied();
                if let Some(given) = given {
                    self.with_core(process, |core| core.retain(given));
                }
                given
            }
        };
        outcome.handed.extend(inner);
        let core = &self.client(process).core;
        let contained = inner.map(|inner| crate::spec::reference(inner, core.owner(inner))).into_iter().collect();
        Value { content: Some(small), contained }
    }

    /// An actor lets go of some of what it kept.
    fn let_go_of_some(&mut self, process: ProcessIndex) {
        while self.processes[process].life == Life::Running && self.chance.odds(500) {
            let Some(id) = self.client(process).program.references.pop() else { return };
            self.with_core(process, |core| core.release(id));
        }
    }
}

fn failed(code: FailureCode) -> Value {
    let failure = code.because(code.name());
    Value { content: Some(Content::Failed(failure)), contained: Vec::new() }
}
