//! The head of a cluster: who gets a worker and where, what becomes of actors, objects, groups and jobs, who is told.
//!
//! Machines are its members. Its own machine is one of them ([`OWN`]): it gets the same orders, in this process.
//!
//! | Module | What it decides |
//! |---|---|
//! | `clients`, `guests`, `door` | who is there, and what none of them may say |
//! | `leases`, `waiting`, `placing`, `strategy`, `shortage`, `ahead` | what is asked for, where it is placed, why it waits |
//! | `fairness` | what each job holds, and which leases are recalled for another |
//! | `members`, `told`, `routes`, `drain`, `growth` | the machines, what they have, and which come and go |
//! | `workers`, `actors`, `restarts` | the processes that serve somebody, and what they are |
//! | `groups`, `rooms`, `group_report` | placement groups and their bundles |
//! | `objects`, `locations`, `holdings` | objects, and where they lie |
//! | `journal`, `records`, `restore`, `resume` | what outlives a head, and how the next one goes on |
//! | `submissions`, `kept`, `metrics`, `ends` | jobs, kept values, figures, and how processes ended |
//! | `report`, `nodes`, `rows`, `census`, `object_rows`, `explain` | what people and programs are told of all that |
//!
//! - CORE-2: a lease that ended before it was returned is reported to its owner once; an actor's death
//!   once to each that was connected or asked.

mod actors;
mod ahead;
mod alarms;
mod audit;
mod census;
mod clients;
mod clock;
mod door;
mod drain;
mod ends;
mod environments;
mod explain;
mod fairness;
mod group_report;
mod groups;
mod growth;
mod guests;
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
mod rooms;
mod routes;
mod rows;
mod shortage;
mod strategy;
mod submissions;
mod told;
mod waiting;
mod workers;

use super::door::identifier;
use super::environments::Environments;
use super::node::NodeCore;
use super::{BundleKey, Effect, Home, Key, Monitored, Numbers, amounts, bytes_of};
use crate::config::Plan;
use alarms::Alarm;
use groups::Need;
use oxiray_head::{Actors, Jobs, Kept, Metrics, Objects, PlacementGroups};
use oxiray_ids::{ActorId, Chance, JobId, PlacementGroupId, WorkerId};
use oxiray_scheduler::WaitQueue;
use oxiray_wire::Message;
use oxiray_wire::message::{Driver, Failure, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

pub(crate) use holdings::LENT;
pub use locations::Whereabouts;
pub(super) use members::OWN;
pub(crate) use object_rows::NOT_RECORDED;
pub use report::StoreFigures;
pub use restore::NotRestored;
pub use submissions::SubmissionOrder;
use waiting::{Want, Wanted};
use workers::{Duty, Worker};

/// How many workers may be starting at once.
const STARTING_MAX: usize = 64;

/// A process with a runtime that is connected: a driver, or a worker that was assigned.
#[derive(Debug)]
struct Client {
    id: WorkerId,
    job: JobId,
    /// The key of each of its leases, by the number that it knows it by.
    leases: BTreeMap<u64, u64>,
    /// Its requests that wait, by their number.
    waiting: BTreeMap<u64, u64>,
}

/// What a job leaves to its workers.
#[derive(Debug)]
struct JobDetail {
    driver: Key,
    driver_id: WorkerId,
    told: Driver,
    said_goodbye: bool,
    is_over: bool,
    /// What its driver was told of that waits.
    noticed: shortage::Noticed,
}

/// The mind of a cluster.
#[derive(Debug)]
pub(super) struct HeadCore {
    plan: Plan,
    session: String,
    address: String,
    /// The head's own machine.
    own: NodeCore,
    queue: WaitQueue<JobId, u64, Need>,
    wanted: BTreeMap<u64, Wanted>,
    clients: BTreeMap<Key, Client>,
    keys: BTreeMap<WorkerId, Key>,
    workers: BTreeMap<Key, Worker>,
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
    journal: Option<journal::Journal>,
    metrics: Metrics,
    ends: ends::Ends,
    environments: Environments<Need>,
    /// Who is to be told that there is no environment for them, and why.
    unprepared: Vec<(u64, String)>,
    ahead: ahead::Ahead,
    groups: PlacementGroups,
    reservations: BTreeMap<PlacementGroupId, groups::Reservation>,
    submitted: submissions::Submitted,
    census: census::Census,
    alarms: BTreeSet<(Instant, Alarm)>,
    members: members::Members,
    shortages: shortage::Shortages,
    growth: growth::Growth,
    locations: locations::Locations,
    /// Counts the heads of this cluster; 0 where the end of this one is final.
    epoch: u64,
    /// Who is to come back to this head.
    resumption: Option<resume::Resumption>,
    fairness: fairness::Fairness,
    numbers: Numbers,
    chance: Chance,
    /// How many workers have no process yet.
    starting: usize,
    wants_pump: bool,
    now: Instant,
    /// The time in milliseconds since 1970, for listings; 0 until it is told.
    wall_ms: u64,
    out: Vec<Effect>,
}

impl HeadCore {
    /// A head of one machine with nothing running.
    pub(super) fn new(
        plan: Plan,
        (session, address): (String, String),
        monitored: Monitored,
        numbers: Numbers,
        now: Instant,
    ) -> Self {
        let epoch = plan.epoch;
        let mut own = NodeCore::new(plan.clone(), (session.clone(), address.clone()), monitored, numbers.clone(), now);
        let joined = own.serve(None, String::new());
        let mut core = Self {
            plan,
            session,
            address,
            own,
            queue: WaitQueue::new(),
            wanted: BTreeMap::new(),
            clients: BTreeMap::new(),
            keys: BTreeMap::new(),
            workers: BTreeMap::new(),
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
            environments: Environments::default(),
            unprepared: Vec::new(),
            ahead: ahead::Ahead::default(),
            groups: PlacementGroups::default(),
            reservations: BTreeMap::new(),
            submitted: submissions::Submitted::default(),
            census: census::Census::default(),
            alarms: BTreeSet::new(),
            members: members::Members::of(joined),
            shortages: shortage::Shortages::default(),
            growth: growth::Growth::default(),
            locations: locations::Locations::default(),
            epoch: 0,
            resumption: None,
            fairness: fairness::Fairness::default(),
            numbers,
            chance: Chance::default(),
            starting: 0,
            wants_pump: false,
            now,
            wall_ms: 0,
            out: Vec::new(),
        };
        core.fairness.machine_came(&core.plan.inventory);
        core.begin_epoch(epoch);
        core
    }

    /// This is the head of that number. What a head names is never named again by the next.
    pub(super) fn begin_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.own.begin_epoch(epoch);
        if epoch > 0 {
            let first = resume::first_number(epoch);
            self.numbers.begin_at(first);
            self.members.last_order = self.members.last_order.max(first);
            self.objects.have_owners_keep();
        }
    }

    /// Its machine.
    pub(super) fn own(&self) -> &NodeCore {
        &self.own
    }

    #[cfg(test)]
    pub(super) fn own_mut(&mut self) -> &mut NodeCore {
        &mut self.own
    }

    /// Tells its machine something, and hears what comes of it.
    pub(super) fn with_own<T>(&mut self, tell: impl FnOnce(&mut NodeCore) -> T) -> T {
        let told = self.lend_out(tell);
        self.exchange();
        told
    }

    /// What is to be done stands in one list, in order, whoever of the two adds to it.
    fn lend_out<T>(&mut self, tell: impl FnOnce(&mut NodeCore) -> T) -> T {
        std::mem::swap(&mut self.out, &mut self.own.out);
        let told = tell(&mut self.own);
        std::mem::swap(&mut self.out, &mut self.own.out);
        told
    }

    /// Passes on what its machine reports and is ordered to do, until neither has anything to say.
    fn exchange(&mut self) {
        loop {
            for report in self.own.reports() {
                self.own_said(report);
            }
            let orders = self.members.orders_of_own();
            if orders.is_empty() {
                return;
            }
            self.lend_out(|own| {
                for order in orders {
                    own.head_said(order);
                }
                own.tell_state();
            });
        }
    }

    /// Bytes that objects take in this machine's store; told of when this settles.
    pub(super) fn store_holds(&mut self, bytes: u64) {
        self.own.store_holds(bytes);
    }

    fn new_key(&mut self) -> Key {
        self.numbers.next()
    }

    /// Serves whoever waits, after a batch of events, and returns what is to be done.
    pub(super) fn settle(&mut self) -> Vec<Effect> {
        self.with_own(NodeCore::settle);
        self.run_alarms();
        self.refuse_unprepared();
        self.pump();
        self.start_submissions();
        self.exchange();
        self.tell_growth();
        let made = std::mem::take(&mut self.out);
        self.hold_back(made)
    }

    /// When [`Self::settle`] is to be called next, whatever happens.
    pub(super) fn next_alarm(&self) -> Option<Instant> {
        let own = self.own.next_alarm();
        self.alarms.first().map(|(at, _)| *at).into_iter().chain(own).min()
    }

    /// A message from a client that was let in, or from a worker.
    pub(super) fn message(&mut self, from: Key, message: Message) {
        if matches!(message, Message::Blocked(_) | Message::Unblocked(_) | Message::ActorReady(_)) {
            self.with_own(|own| own.worker_said(from, &message));
        }
        match message {
            Message::LeaseRequest(asked) => self.lease_request(from, *asked),
            Message::LeaseCancel(asked) => self.lease_cancel(from, asked.request),
            Message::LeaseReturn(asked) => self.lease_return(from, asked.lease, asked.retiring),
            Message::LeaseKill(asked) => self.lease_kill(from, asked.lease),
            Message::CancelObject(asked) => self.pass_to_owner(asked),
            // What its machine lends is in its state besides.
            Message::Blocked(_) => self.fairness.lends_cpu(from, true),
            Message::Unblocked(_) => self.fairness.lends_cpu(from, false),
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

    /// Says something to a client, a worker or a member, wherever it is.
    fn send(&mut self, to: Key, message: impl Into<Message>) {
        if to == OWN {
            self.members.order_own(message.into());
        } else {
            self.out.push(Effect::Send { to, message: message.into() });
        }
    }

    fn log(&mut self, line: String) {
        self.out.push(Effect::Log(line));
    }
}

#[cfg(test)]
mod tests;
