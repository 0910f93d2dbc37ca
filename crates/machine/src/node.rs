//! One machine: its ledger, its workers, their templates and environments, its devices. It carries out what the head of
//! the cluster orders, within its own ledger, and reports what becomes of it.
//!
//! | Module | What it decides |
//! |---|---|
//! | `serving` | what the head is told, and what it orders |
//! | `held` | orders that wait until their environments are made |
//! | `bundles` | what is set aside for placement groups |
//! | `assign` | which process becomes whose worker, and what it is told |
//! | `templates` | the processes that workers are forked from, and how many are kept ready |
//! | `ending` | how workers end, and when what they held is given back |
//! | `device_use` | what drivers say of devices as time goes by |
//! | `returning` | what the next head is told after the last one was lost |
//!
//! - CORE-1: a grant goes back to the ledger once its worker holds nothing of it any more: when an idle
//!   worker without devices is returned, or when the worker's whole process tree is gone and its devices
//!   have forgotten it.
//! - CORE-3: a worker that held devices, or was leased as fresh, never serves anyone else.
//! - CORE-4: a device is out of service exactly as long as something of a worker that ought to be gone is left on it, or
//!   its driver has lost it.

mod assign;
mod audit;
mod bundles;
mod device_use;
pub(crate) mod ending;
mod held;
mod returning;
mod serving;
pub(crate) mod templates;

use super::environments::{self, Environments};
use super::{Effect, Home, Key, Monitored, Numbers, TemplateKey};
use crate::plan::Plan;
use oxiray_ids::{ActorId, Chance, JobId, WorkerId};
use oxiray_resources::{Grant, Ledger};
use oxiray_wire::Message;
use oxiray_wire::message::{Driver, Environment, WorkerToNode};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use serving::Link;

/// What a worker is there for, as its machine knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Forked or being forked, and nobody's.
    Spare,
    /// Done with an order, and free for another of its job and environment.
    Idle,
    /// On this order.
    Leased(u64),
    /// The process of this actor.
    Actor(ActorId),
    /// Killed or leaving; it is only waited for.
    Ending,
}

/// A worker from the moment its fork is ordered until its process tree is gone.
#[derive(Debug)]
pub(crate) struct Worker {
    id: WorkerId,
    template: TemplateKey,
    pid: Option<u32>,
    duty: Duty,
    job: Option<JobId>,
    environment: Environment,
    label: String,
    grant: Option<Grant>,
    /// What an actor needs beyond `grant` until its constructor returned.
    surplus: Option<Grant>,
    home: Option<Home>,
    /// CORE-3.
    once: bool,
    /// Whether it is a detached actor, or works for one.
    outlives_job: bool,
    /// Killed or dead: its tree is to be gone soon.
    is_doomed: bool,
    memory: ending::memory::OfWorker,
    progress: Progress,
}

/// How far a worker is with what it is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Begun,
    /// The actor's constructor returned.
    Ready,
    /// Its work is done, and it stays for the tasks that it made.
    Lingering,
}

impl Worker {
    /// One whose fork is ordered, and that is nobody's.
    fn new(id: WorkerId, template: TemplateKey) -> Self {
        Self {
            id,
            template,
            pid: None,
            duty: Duty::Spare,
            job: None,
            environment: Environment::default(),
            label: String::new(),
            grant: None,
            surplus: None,
            home: None,
            once: false,
            outlives_job: false,
            is_doomed: false,
            memory: ending::memory::OfWorker::default(),
            progress: Progress::Begun,
        }
    }

    /// What it was granted, where it is on a lease.
    fn grant_on_lease(&mut self) -> Option<&mut Grant> {
        self.grant.as_mut().filter(|_| matches!(self.duty, Duty::Leased(_)))
    }

    /// All that it holds of the ledger.
    fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.grant.iter().chain(&self.surplus)
    }
}

/// A job that orders may name.
#[derive(Debug)]
struct Job {
    driver: WorkerId,
    told: Driver,
    /// Nothing more is placed for it.
    is_over: bool,
}

/// What is due at a certain time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    DeviceCheck(Key),
    Measure,
    Overdue(Key),
    Verdict(Key),
    Undying(Key),
    Templates,
    Adjust,
    Environment(environments::Alarm),
}

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

/// The mind of one machine.
#[derive(Debug)]
pub struct NodeCore {
    plan: Plan,
    about: About,
    ledger: Ledger,
    workers: BTreeMap<Key, Worker>,
    /// Idle workers, longest idle first.
    idle: Vec<Key>,
    templates: templates::Templates,
    environments: Environments<()>,
    jobs: BTreeMap<JobId, Job>,
    /// The head that this node serves.
    head: Option<serving::Head>,
    devices: ending::Devices,
    /// Bytes that objects take in this node's store, about.
    store_used: u64,
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
        Self {
            ledger: Ledger::new(plan.inventory.clone()),
            plan,
            about: About { session, address, epoch },
            workers: BTreeMap::new(),
            idle: Vec::new(),
            templates: templates::Templates::default(),
            environments: Environments::default(),
            jobs: BTreeMap::new(),
            head: None,
            devices: ending::Devices::new(monitored),
            store_used: 0,
            names: Names { numbers, chance: Chance::default() },
            now,
            alarms: BTreeSet::new(),
            out: Vec::new(),
        }
    }

    /// Does what is due, after a batch of events, and tells the head what changed.
    pub fn settle(&mut self) {
        self.run_alarms();
        self.watch_devices();
        self.tell_state();
    }

    /// What a worker of this machine says, as far as it is about the ledger. The head hears the same.
    pub fn worker_said(&mut self, worker: Key, message: &WorkerToNode) {
        match message {
            WorkerToNode::Blocked(_) => self.blocked(worker),
            WorkerToNode::Unblocked(_) => self.unblocked(worker),
            WorkerToNode::ActorReady(_) => self.actor_ready(worker),
            WorkerToNode::Lingers(_) => self.lingers(worker),
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
    pub fn origins(&self) -> impl Iterator<Item = &templates::Origin> {
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
                Alarm::Overdue(worker) => self.is_overdue(worker),
                Alarm::Undying(worker) => self.does_not_die(worker),
                Alarm::Verdict(worker) => self.verdict(worker, "died, and left processes that have not ended yet"),
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
