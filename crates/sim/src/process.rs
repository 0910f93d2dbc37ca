//! Drivers and workers as processes: they live, die at any moment, and leave behind what they started.

use crate::agenda::{Event, MILLISECOND, Micros, SECOND};
use crate::client::Client;
use crate::stream::{Descriptor, Packet};
use crate::world::{NodeIndex, ProcessIndex, StreamIndex, World};
use oxiray_node::{Key, TemplateKey};
use oxiray_wire::message::Assign;
use std::collections::VecDeque;

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
    pub(crate) units: u64,
}

/// Something to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) number: u64,
    pub(crate) time: Micros,
    /// How many tasks it makes and waits for.
    pub(crate) children: u32,
    /// The process dies of it.
    pub(crate) is_deadly: bool,
}

/// What runs.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) number: u64,
    pub(crate) caller: Descriptor,
    pub(crate) call: Call,
    /// How many of its own tasks it waits for.
    pub(crate) awaited: u32,
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
    pub(crate) client: Option<Client>,
    /// Streams from callers.
    pub(crate) callers: Vec<Descriptor>,
    pub(crate) calls: VecDeque<(Descriptor, Call)>,
    pub(crate) run: Option<Run>,
    pub(crate) is_stopping: bool,
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
            client: None,
            callers: Vec::new(),
            calls: VecDeque::new(),
            run: None,
            is_stopping: false,
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
        ends.append(&mut self.processes[process].callers);
        if let Some(client) = &self.processes[process].client {
            ends.extend(client.links());
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
        self.settle_clients();
    }

    /// Everything that the process started is dead: its devices are left, and forget it in their time.
    pub(crate) fn is_gone(&mut self, process: ProcessIndex) {
        if self.processes[process].life == Life::Gone {
            return;
        }
        self.dies(process);
        self.processes[process].life = Life::Gone;
        let (node, pid) = (self.processes[process].node, self.processes[process].pid);
        for held in std::mem::take(&mut self.processes[process].devices) {
            if self.options.devices_remember && self.chance.odds(400) {
                let most = if self.chance.odds(100) { 25 * SECOND } else { SECOND };
                let until = self.now + self.chance.between(0, most);
                let machine = self.nodes[node].machine;
                self.machines[machine].memory.borrow_mut().remember(held, pid, until);
            }
        }
        self.worker_is_gone(node, process);
    }

    /// The worker is told what it is and what it may use.
    pub(crate) fn assigned(&mut self, process: ProcessIndex, assign: &Assign) {
        if self.processes[process].client.is_none() {
            let welcome = assign.welcome.clone().unwrap_or_default();
            self.processes[process].client = Some(Client::new(&welcome));
        }
        if let Some(actor) = &assign.actor {
            self.construct(process, &actor.actor);
        }
    }

    /// A caller has something to run.
    pub(crate) fn called(&mut self, process: ProcessIndex, caller: Descriptor, call: Call) {
        self.processes[process].calls.push_back((caller, call));
        self.run_next(process);
    }

    pub(crate) fn run_next(&mut self, process: ProcessIndex) {
        let found = &mut self.processes[process];
        if found.run.is_some() || found.is_constructing || found.life != Life::Running {
            return;
        }
        let Some((caller, call)) = found.calls.pop_front() else {
            if found.is_stopping {
                self.leave(process);
            }
            return;
        };
        found.last_run += 1;
        let number = found.last_run;
        found.run = Some(Run { number, caller, call, awaited: call.children });
        if call.is_deadly {
            let at = self.now + self.chance.between(0, call.time);
            self.agenda.plan(at, Event::Dies(process));
        }
        if call.children > 0 {
            self.make_children(process, number, call.children);
        } else {
            self.agenda.plan(self.now + call.time, Event::Finished { process, run: number });
        }
    }

    /// The process is told to end when its work is done; one that will not is killed in time.
    pub(crate) fn stop(&mut self, process: ProcessIndex) {
        if self.chance.odds(50) {
            return;
        }
        self.processes[process].is_stopping = true;
        self.run_next(process);
    }

    fn leave(&mut self, process: ProcessIndex) {
        let at = self.now + self.chance.delay(MILLISECOND);
        self.agenda.plan(at, Event::Dies(process));
    }

    /// One of the tasks that a run waits for has its end.
    pub(crate) fn child_ended(&mut self, process: ProcessIndex, run: u64) {
        let Some(current) = self.processes[process].run.as_mut().filter(|current| current.number == run) else {
            return;
        };
        current.awaited -= 1;
        if current.awaited == 0 {
            let time = current.call.time;
            self.say(process, oxiray_wire::message::Unblocked {});
            self.agenda.plan(self.now + time, Event::Finished { process, run });
        }
    }

    /// A run is over.
    pub(crate) fn finished(&mut self, process: ProcessIndex, run: u64) {
        let found = &mut self.processes[process];
        if found.life != Life::Running || found.run.as_ref().is_none_or(|current| current.number != run) {
            return;
        }
        let Some(ended) = found.run.take() else { return };
        self.send(ended.caller, Packet::Reply(ended.call.number));
        self.run_next(process);
    }

    /// A caller is gone: what it wanted is of no use any more.
    pub(crate) fn caller_left(&mut self, process: ProcessIndex, caller: Descriptor) {
        let found = &mut self.processes[process];
        found.callers.retain(|known| *known != caller);
        found.calls.retain(|(from, _)| *from != caller);
        self.close(caller);
    }
}
