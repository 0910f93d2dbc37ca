//! What the daemon decides: who gets a worker, what is killed, who is told. No I/O and no clock.
//!
//! Events go in through methods, one per thing that can happen; what is to be done comes out of
//! [`Core::settle`], in order. The shell carries it out.
//!
//! - CORE-1: a grant goes back to the ledger once its worker holds nothing of it any more: when an idle
//!   worker without devices is returned, or when the worker's whole process tree is gone and its devices
//!   have forgotten it.
//! - CORE-2: a lease that ended before it was returned is reported to its owner once; an actor's death
//!   once to each that was connected or asked.
//! - CORE-3: a worker that held devices, or was leased as fresh, never serves anyone else.
//! - CORE-4: a device is out of service exactly as long as something of a worker that ought to be gone is left on it, or
//!   its driver has lost it.

mod actors;
mod ahead;
mod alarms;
mod assign;
mod audit;
mod census;
mod clients;
mod clock;
mod device_use;
mod door;
mod drain;
pub(crate) mod ending;
mod ends;
mod environments;
mod explain;
mod group_report;
mod groups;
mod growth;
mod guests;
mod held;
mod holdings;
mod journal;
mod kept;
mod leases;
mod locations;
mod members;
mod metrics;
mod nodes;
mod object_rows;
mod objects;
mod placing;
mod records;
mod report;
mod restarts;
mod restore;
mod resume;
mod returning;
mod rooms;
mod routes;
mod rows;
mod serving;
mod shortage;
mod strategy;
mod submissions;
mod templates;
mod told;
mod waiting;

use crate::config::Plan;
use crate::core::groups::{Home, Need};
use crate::device_check::DeviceCheck;
use oxiray_head::{Actors, Jobs, Kept, Metrics, Objects, PlacementGroups};
use oxiray_ids::{ActorId, Chance, JobId, ObjectId, PlacementGroupId, WorkerId};
use oxiray_resources::{Grant, Ledger};
use oxiray_scheduler::WaitQueue;
use oxiray_wire::Message;
use oxiray_wire::message::{Driver, Environment, Failure, Peer, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

pub(crate) use alarms::Alarm;
pub(crate) use door::identifier;
pub use ending::confined::Confinement;
pub(crate) use holdings::LENT;
pub use locations::Whereabouts;
pub(crate) use object_rows::NOT_RECORDED;
pub use report::StoreFigures;
pub use restore::NotRestored;
pub use submissions::SubmissionOrder;
pub use templates::Origin;
pub(crate) use waiting::{Want, Wanted};

/// Names a client's control stream, a worker before and after it has a process, and a store client; never reused.
pub type Key = u64;

/// Names a template process; never reused.
pub type TemplateKey = u32;

/// How many forks may be under way at once.
pub(crate) const STARTING_MAX: usize = 64;

/// What the shell is to do.
#[derive(Debug)]
pub enum Effect {
    /// Queue a message on a control stream.
    Send {
        /// Whose.
        to: Key,
        /// What.
        message: Message,
    },
    /// Make a stream between a client and a worker, and hand each its end with a message.
    Join {
        /// The client.
        client: Key,
        /// Goes to the client with its end.
        placed: Message,
        /// The worker.
        worker: Key,
        /// Goes to the worker with its end.
        peer: Peer,
    },
    /// Start a template process.
    StartTemplate {
        /// Its name from here on.
        template: TemplateKey,
        /// What it is.
        origin: Origin,
    },
    /// Have a template end, and its spare workers with it.
    EndTemplate {
        /// Its name.
        template: TemplateKey,
    },
    /// Start the process that makes what an environment needs.
    Prepare {
        /// Names the preparation.
        number: u64,
        /// The interpreter that it runs on.
        interpreter: String,
        /// What to make, for that process.
        specification: String,
        /// The folder of the cache that it uses; empty for none.
        cached: String,
    },
    /// Nothing uses what was prepared any more, or it took too long: end the process where there still is one.
    EndPreparation {
        /// Its name.
        number: u64,
    },
    /// Have a template fork a worker, with a control stream of that key.
    Fork {
        /// The worker.
        worker: Key,
        /// The template.
        template: TemplateKey,
    },
    /// Kill a worker's process, or a member's.
    Kill {
        /// Which.
        worker: Key,
    },
    /// How much memory a worker may take for itself.
    Confine(Confinement),
    /// What is to become of a submitted job.
    Submission(SubmissionOrder),
    /// End a peer that said what no honest peer says, and tell it why (DOOR-1).
    Expel {
        /// Which: a driver, a visitor, a worker or a member.
        peer: Key,
        /// What it said.
        why: String,
    },
    /// Close a driver's stream when everything queued on it is sent.
    Close {
        /// The driver.
        client: Key,
    },
    /// Where an object lies, for a member that asked or for this node.
    Located(Whereabouts),
    /// Have a copy of an object in this node's store.
    Copy {
        /// The object.
        object: ObjectId,
    },
    /// Delete an object from the store.
    Delete {
        /// The object.
        object: ObjectId,
    },
    /// A client of the store is gone.
    LeaveStore {
        /// The client.
        client: Key,
    },
    /// A line for daemon.log.
    Log(String),
}

/// What a worker is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Forked or being forked, and nobody's.
    Spare,
    /// Done with a lease, and free for another of its job and environment.
    Idle,
    /// On this lease.
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
    /// How many leases lie between it and a driver or an actor.
    depth: u32,
    /// Whether it is a detached actor, or works for one.
    outlives_job: bool,
    /// Killed or dead: its tree is to be gone soon.
    is_doomed: bool,
    /// Why it ends, in its own or its daemon's words; said before it does.
    last_words: Option<String>,
    memory: ending::memory::OfWorker,
    /// The actor ends with it, whatever restarts are left.
    ends_for_good: bool,
    /// It ended with its node, which was emptied: its actor's restart is not counted.
    is_moved: bool,
    /// The actor's constructor returned.
    is_ready: bool,
}

impl Worker {
    /// One whose fork is ordered, and that is nobody's.
    pub(crate) fn new(id: WorkerId, template: TemplateKey) -> Self {
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
            depth: 0,
            outlives_job: false,
            is_doomed: false,
            last_words: None,
            memory: ending::memory::OfWorker::default(),
            ends_for_good: false,
            is_moved: false,
            is_ready: false,
        }
    }
}

/// A process with a runtime that is connected: a driver, or a worker that was assigned.
#[derive(Debug)]
pub(crate) struct Client {
    id: WorkerId,
    job: JobId,
    /// The key of each of its leases, by the number that it knows it by.
    leases: BTreeMap<u64, u64>,
    /// Its requests that wait, by their number.
    waiting: BTreeMap<u64, u64>,
}

/// What a job leaves to its workers.
#[derive(Debug)]
pub(crate) struct JobDetail {
    driver: Key,
    driver_id: WorkerId,
    told: Driver,
    said_goodbye: bool,
    is_over: bool,
    /// What its driver was told of that waits.
    noticed: shortage::Noticed,
}

/// The daemon's mind.
#[derive(Debug)]
pub struct Core {
    pub(crate) plan: Plan,
    session: String,
    address: String,
    ledger: Ledger,
    queue: WaitQueue<u64, Need>,
    wanted: BTreeMap<u64, Wanted>,
    clients: BTreeMap<Key, Client>,
    keys: BTreeMap<WorkerId, Key>,
    workers: BTreeMap<Key, Worker>,
    /// Idle workers, longest idle first.
    idle: Vec<Key>,
    leases: BTreeMap<u64, leases::Lease>,
    jobs: Jobs,
    details: BTreeMap<JobId, JobDetail>,
    actors: Actors<Failure>,
    making: BTreeMap<ActorId, actors::Making>,
    /// Who asked for actors that nobody has made yet.
    early: BTreeMap<ActorId, BTreeSet<Key>>,
    objects: Objects<Value>,
    kept: Kept,
    /// What is to be written down, where this daemon keeps a journal.
    journal: Option<journal::Pending>,
    metrics: Metrics,
    ends: ends::Ends,
    templates: templates::Templates,
    environments: environments::Environments,
    ahead: ahead::Ahead,
    groups: PlacementGroups,
    reservations: BTreeMap<PlacementGroupId, groups::Reservation>,
    submitted: submissions::Submitted,
    census: census::Census,
    rechecks: Vec<ending::Recheck>,
    out_of_service: ending::OutOfService,
    device_check: Box<dyn DeviceCheck>,
    measured: device_use::Measured,
    alarms: BTreeSet<(Instant, Alarm)>,
    /// The nodes that joined, where this is the head.
    members: members::Members,
    shortages: shortage::Shortages,
    growth: growth::Growth,
    locations: locations::Locations,
    /// Bytes that objects take in this node's store, about.
    store_used: u64,
    /// The head that this node serves, where it joined one.
    head: Option<serving::Head>,
    /// Counts the heads of this cluster; 0 where the end of this one is final.
    epoch: u64,
    /// Who is to come back to this head.
    resumption: Option<resume::Resumption>,
    reclaim: waiting::Reclaim,
    last_number: u64,
    chance: Chance,
    starting: usize,
    wants_pump: bool,
    now: Instant,
    /// The time in milliseconds since 1970, for listings; 0 until it is told.
    wall_ms: u64,
    out: Vec<Effect>,
}

impl Core {
    /// A daemon with nothing running.
    pub fn new(plan: Plan, session: String, address: String, device_check: Box<dyn DeviceCheck>, now: Instant) -> Self {
        let epoch = plan.epoch;
        let mut core = Self {
            ledger: Ledger::new(plan.inventory.clone()),
            plan,
            session,
            address,
            queue: WaitQueue::new(),
            wanted: BTreeMap::new(),
            clients: BTreeMap::new(),
            keys: BTreeMap::new(),
            workers: BTreeMap::new(),
            idle: Vec::new(),
            leases: BTreeMap::new(),
            jobs: Jobs::default(),
            details: BTreeMap::new(),
            actors: Actors::default(),
            making: BTreeMap::new(),
            early: BTreeMap::new(),
            objects: Objects::default(),
            kept: Kept::default(),
            journal: None,
            metrics: Metrics::default(),
            ends: ends::Ends::default(),
            templates: templates::Templates::default(),
            environments: environments::Environments::default(),
            ahead: ahead::Ahead::default(),
            groups: PlacementGroups::default(),
            reservations: BTreeMap::new(),
            submitted: submissions::Submitted::default(),
            census: census::Census::default(),
            rechecks: Vec::new(),
            out_of_service: BTreeMap::new(),
            device_check,
            measured: device_use::Measured::default(),
            alarms: BTreeSet::new(),
            members: members::Members::default(),
            shortages: shortage::Shortages::default(),
            growth: growth::Growth::default(),
            locations: locations::Locations::default(),
            store_used: 0,
            head: None,
            epoch: 0,
            resumption: None,
            reclaim: waiting::Reclaim::default(),
            last_number: 0,
            chance: Chance::default(),
            starting: 0,
            wants_pump: false,
            now,
            wall_ms: 0,
            out: Vec::new(),
        };
        core.begin_epoch(epoch);
        core
    }

    /// A number that names nothing else.
    pub fn new_key(&mut self) -> Key {
        self.last_number += 1;
        self.last_number
    }

    /// Serves whoever waits, after a batch of events, and returns what is to be done.
    pub fn settle(&mut self) -> Vec<Effect> {
        self.run_alarms();
        self.refuse_unprepared();
        self.pump();
        self.start_submissions();
        self.watch_devices();
        self.tell_state();
        self.tell_growth();
        std::mem::take(&mut self.out)
    }

    /// When [`Core::settle`] is to be called next, whatever happens.
    pub fn next_alarm(&self) -> Option<Instant> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// A message from a client that was let in, or from a worker.
    pub fn message(&mut self, from: Key, message: Message) {
        match message {
            Message::LeaseRequest(asked) => self.lease_request(from, *asked),
            Message::LeaseCancel(asked) => self.lease_cancel(from, asked.request),
            Message::LeaseReturn(asked) => self.lease_return(from, asked.lease, asked.retiring),
            Message::LeaseKill(asked) => self.lease_kill(from, asked.lease),
            Message::CancelObject(asked) => self.pass_to_owner(asked),
            Message::Blocked(_) => self.blocked(from),
            Message::Unblocked(_) => self.unblocked(from),
            Message::ActorReady(_) => self.actor_ready(from),
            Message::ActorFailed(said) => self.actor_failed(from, said.error),
            Message::ActorLeaving(said) => self.actor_leaving(from, &said),
            Message::ActorCreate(asked) => self.actor_create(from, *asked),
            Message::ActorConnect(asked) => self.actor_connect(from, &asked),
            Message::ActorKill(asked) => self.actor_kill(&asked),
            Message::ActorLookup(asked) => self.actor_lookup(from, &asked),
            Message::Promise(said) => self.promise(from, &said.objects),
            Message::Publish(said) => self.publish(from, *said),
            Message::Subscribe(asked) => self.subscribe(from, asked.reference),
            Message::Hold(said) => self.hold(&said.objects, &said.holder),
            Message::Unhold(said) => self.unhold(from, &said.objects),
            Message::StateQuery(asked) => self.state_query(from, asked),
            Message::TaskLog(told) => self.task_log(from, told),
            Message::ObjectLog(told) => self.object_log(from, told),
            Message::Metrics(told) => self.metrics_told(from, told),
            Message::KeptRequest(asked) => self.keep(from, *asked),
            Message::Recover(said) => self.recover(from, said.reference),
            Message::Free(said) => self.free(from, &said.references),
            Message::GroupCreate(asked) => self.group_create(from, &asked),
            Message::GroupAwait(asked) => self.group_await(from, &asked),
            Message::GroupRemove(asked) => {
                self.group_remove(identifier!(PlacementGroupId, &asked.group), "remove_placement_group() was called");
            }
            Message::GroupQuery(asked) => self.group_query(from, &asked),
            Message::DrainAsked(asked) => self.drain_asked(from, &asked),
            Message::CollectGarbage(_) => self.collect_garbage(from),
            Message::Goodbye(said) => self.goodbye(from, said),
            Message::ClientResume(told) => self.resume_client(from, &told),
            Message::ClientSettled(said) => self.client_settled(from, &said),
            other => {
                self.log(format!("client {from} sent a message of kind {} that is not for a daemon", other.kind()));
            }
        }
    }

    pub(crate) fn send(&mut self, to: Key, message: impl Into<Message>) {
        self.out.push(Effect::Send { to, message: message.into() });
    }

    pub(crate) fn log(&mut self, line: String) {
        self.out.push(Effect::Log(line));
    }
}

pub(crate) fn bytes_of(id: &[u8]) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(id)
}

#[cfg(test)]
mod tests;
