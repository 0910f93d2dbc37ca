//! One machine: its ledger, its workers, their templates and environments, its devices. It carries out what the head of
//! the cluster orders, within its own ledger, and reports what becomes of it.
//!
//! | Module | What it decides |
//! |---|---|
//! | `serving` | what the head is told, and what it orders |
//! | `held` | orders that wait until their environments are made |
//! | `bundles` | what is set aside for placement groups |
//! | `assign` | which process becomes whose worker, and what it is told |
//! | `templates`, `kept_ready` | the processes that workers are forked from, and how many are kept ready |
//! | `ending` | how workers end, and when what they held is given back |
//! | `occupied` | what is kept back since somebody is in a dead worker's control group |
//! | `memory`, `confined` | who is ended where memory is short, and what each may take |
//! | `open_nodes` | which device nodes workers have open, and whether they were granted the devices |
//! | `device_use` | what drivers say of devices as time goes by |
//! | `foreign_use` | who has memory of devices that it was not granted, or that is not the node's |
//! | `device_health` | which devices are ill, who is told and ended, how they come back |
//! | `returning` | what the next head is told after the last one was lost |
//!
//! The parts that it consists of, which have their fields and what is done with them alone, lie beside this folder: `worker`,
//! `templates`, `environments`, `devices`, `served_head`, `memory`.
//!
//! - CORE-1: a grant goes back to the ledger once its worker holds nothing of it any more: when an idle
//!   worker without devices is returned, or when the worker's whole process tree is gone, nobody is in its control
//!   group, and its devices have forgotten it.
//! - CORE-3: a worker that held devices, or was leased as fresh, never serves anyone else.
//! - CORE-4: a device is out of service exactly as long as something of a worker that ought to be gone is left on it or in
//!   the worker's control group, its driver has lost it, or it is ill.

mod assign;
mod audit;
mod bundles;
mod confined;
mod device_health;
mod device_memory;
mod device_use;
pub(crate) mod ending;
mod foreign_use;
mod held;
pub(crate) mod holdings;
mod kept_ready;
mod memory;
pub(crate) mod occupied;
pub(crate) mod open_nodes;
mod returning;
mod serving;
mod templates;

use crate::alarm::Alarm;
use crate::devices::Devices;
use crate::effect::Effect;
use crate::environments::Environments;
use crate::names::{Key, Monitored, Numbers};
use crate::origin::Origin;
use crate::plan::Plan;
use crate::served_head::ServedHead;
use crate::templates::Templates;
use crate::worker::{Job, Worker};
use oxiray_ids::{Chance, JobId};
use oxiray_resources::Ledger;
use oxiray_wire::Message;
use oxiray_wire::message::{WorkerToMachine, WorkerToNode};
use oxiray_wire::state::{DaemonStatistics, NodeStatistics};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// What names things here: numbers that the daemon gives once, and identifiers drawn at random.
#[derive(Debug)]
struct Names {
    numbers: Numbers,
    chance: Chance,
}

/// What a machine's workers are told of it.
#[derive(Debug)]
struct About {
    session: String,
    address: String,
    /// Counts the heads of its cluster; 0 where the end of the head is final.
    epoch: u64,
}

/// How much of the machine is used, as the head is told of it beside the ledger.
#[derive(Debug, Default)]
struct Usage {
    /// Bytes that objects take in this node's store, about.
    store_used: u64,
    /// How the machine is, until the head is told.
    untold: Option<NodeStatistics>,
    /// How its daemon is, likewise.
    untold_of_daemon: Option<DaemonStatistics>,
}

/// The mind of one machine.
#[derive(Debug)]
pub struct NodeCore {
    plan: Plan,
    about: About,
    ledger: Ledger,
    workers: BTreeMap<Key, Worker>,
    /// Idle workers, longest idle first.
    idle: Vec<Key>,
    templates: Templates,
    environments: Environments<()>,
    jobs: BTreeMap<JobId, Job>,
    /// The head that this node serves.
    head: Option<ServedHead>,
    devices: Devices,
    usage: Usage,
    names: Names,
    now: Instant,
    alarms: BTreeSet<(Instant, Alarm)>,
    /// What is to be done, and what a head in this process is to hear.
    out: Vec<Effect>,
}

impl NodeCore {
    /// A machine with nothing running.
    pub fn new(
        plan: Plan,
        (session, address): (String, String),
        monitored: Monitored,
        numbers: Numbers,
        now: Instant,
    ) -> Self {
        let epoch = plan.epoch;
        let mut node = Self {
            ledger: Ledger::new(plan.inventory.clone()),
            plan,
            about: About { session, address, epoch },
            workers: BTreeMap::new(),
            idle: Vec::new(),
            templates: Templates::default(),
            environments: Environments::default(),
            jobs: BTreeMap::new(),
            head: None,
            devices: Devices::new(monitored),
            usage: Usage::default(),
            names: Names { numbers, chance: Chance::default() },
            now,
            alarms: BTreeSet::new(),
            out: Vec::new(),
        };
        node.settle_isolation();
        node
    }

    /// Does what is due, after a batch of events, and tells the head what changed.
    pub fn settle(&mut self) {
        self.run_alarms();
        self.watch_devices();
        self.watch_open_nodes();
        self.tell_state();
    }

    /// What a worker of this machine says, as far as it is about the ledger. The head hears the same.
    pub fn worker_said(&mut self, worker: Key, message: &WorkerToNode) {
        match message {
            WorkerToNode::Blocked(_) => self.blocked(worker),
            WorkerToNode::Unblocked(_) => self.unblocked(worker),
            WorkerToNode::ActorReady(_) => self.actor_ready(worker),
            // The head knows what became of others like it.
            WorkerToNode::DeviceErrorRaised(_) => {}
            WorkerToNode::Lingers(_) => self.lingers(worker),
        }
    }

    /// What a worker of this machine asks of it.
    pub fn worker_asked(&mut self, worker: Key, asked: &WorkerToMachine) {
        match asked {
            WorkerToMachine::DeviceErrorsQuery(asked) => self.tell_device_errors(worker, asked),
        }
    }

    /// When [`Self::settle`] is to be called next, whatever happens.
    pub fn next_alarm(&self) -> Option<Instant> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// What the machine is and offers.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The name of its session.
    pub fn session(&self) -> &str {
        &self.about.session
    }

    /// The address of its cluster.
    pub fn address(&self) -> &str {
        &self.about.address
    }

    /// A number that names nothing else in this daemon.
    pub fn new_number(&self) -> u64 {
        self.names.numbers.next()
    }

    /// From here on, new numbers are larger than that.
    pub fn number_from(&self, first: u64) {
        self.names.numbers.begin_at(first);
    }

    /// What gives such numbers.
    pub fn numbers(&self) -> &Numbers {
        &self.names.numbers
    }

    /// What is granted of it, and what is free.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What the templates that there are were started as.
    pub fn origins(&self) -> impl Iterator<Item = &Origin> {
        self.templates.origins()
    }

    /// What is to be done, in order; who carries it out takes it.
    pub fn effects(&mut self) -> &mut Vec<Effect> {
        &mut self.out
    }

    /// For tests: the machine is another than it was planned as.
    #[doc(hidden)]
    pub fn plan_mut(&mut self) -> &mut Plan {
        &mut self.plan
    }

    /// For tests: somebody takes something past the head.
    #[doc(hidden)]
    pub fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// Tells what time it is; call it before a batch of events.
    pub fn set_now(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Draws the identifiers of workers from a seed from here on.
    pub fn seed(&mut self, seed: u64) {
        self.names.chance = Chance::seeded(seed);
    }

    fn alarm_at(&mut self, at: Instant, alarm: Alarm) {
        self.alarms.insert((at, alarm));
    }

    fn run_alarms(&mut self) {
        while let Some((at, alarm)) = self.alarms.first().copied()
            && at <= self.now
        {
            self.alarms.pop_first();
            match alarm {
                Alarm::DeviceCheck(worker) => self.device_check_is_due(worker),
                Alarm::Measure => self.measure_devices(),
                Alarm::OpenNodes => self.look_at_open_nodes(),
                Alarm::Overdue(worker) => self.is_overdue(worker),
                Alarm::Undying(worker) => self.does_not_die(worker),
                Alarm::Verdict(worker) => self.verdict(worker, "died, and left processes that have not ended yet"),
                Alarm::Group(worker) => self.look_at_group(worker),
                Alarm::Templates => self.end_idle_templates(),
                Alarm::Adjust => self.adjust(),
                Alarm::Environment(alarm) => self.environment_alarm(alarm),
            }
        }
    }

    fn send(&mut self, to: Key, message: impl Into<Message>) {
        self.out.push(Effect::Send { to, message: message.into() });
    }

    fn log(&mut self, line: String) {
        self.out.push(Effect::Log(line));
    }
}
