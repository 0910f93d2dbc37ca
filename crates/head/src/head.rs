//! The head of a cluster: who gets a worker and where, what becomes of actors, objects, groups and jobs, who is told.
//!
//! Machines are its members. Its own machine is one of them ([`OWN`]): it gets the same orders, in this process.
//!
//! | Module | What it decides |
//! |---|---|
//! | `clients`, `proxied_clients`, `door` | who is there, and what none of them may say |
//! | `leases`, `waiting`, `placing`, `strategy`, `shortage`, `ahead` | what is asked for, where it is placed, why it waits |
//! | `fairness` | what each job holds, and which leases are recalled for another |
//! | `members`, `told`, `routes`, `drain`, `growth` | the machines, what they have, and which come and go |
//! | `workers`, `actors`, `restarts` | the processes that serve somebody, and what they are |
//! | `groups`, `rooms`, `group_report` | placement groups and their bundles |
//! | `objects`, `locations`, `holdings` | objects, and where they lie |
//! | `journal`, `records`, `restore`, `resume` | what outlives a head, and how the next one goes on |
//! | `submissions`, `kept`, `metrics`, `ends` | jobs, kept values, figures, and how processes ended |
//! | `report`, `nodes`, `rows`, `census`, `object_rows`, `explain`, `follow` | what people and programs are told of all that |
//!
//! - CORE-2: a lease that ended before it was returned is reported to its owner once; an actor's death
//!   once to each that was connected or asked.

mod actors;
mod alarms;
mod audit;
mod bundle_placement;
mod census;
mod clients;
mod clock;
mod drain;
mod ends;
mod environments;
mod explain;
mod fairness;
mod follow;
mod group_report;
mod groups;
mod growth;
mod holdings;
mod journal;
mod key_value;
mod leases;
mod locations;
mod members;
mod metrics;
mod node_report;
mod nodes;
mod object_rows;
mod objects;
mod placing;
mod prefetch;
mod proxied_clients;
mod records;
mod report;
mod restarts;
mod restore;
mod resume;
mod routes;
mod rows;
mod shortage;
mod strategy;
mod submissions;
mod validation;
mod waiting;
mod workers;

use alarms::Alarm;
use clients::{Client, JobDetail};
use groups::Need;
pub use holdings::LENT;
use members::OWN;
use oxiray_ids::Chance;
use oxiray_machine::{BundleKey, Effect, GroupMembership, Key, Monitored, NodeCore, Numbers, Plan, amounts};
use oxiray_wire::Message;
use oxiray_wire::message::{ClientToHead, HeadOrder, WorkerToNode};
pub use records::table;
pub use report::StoreFigures;
pub use restore::NotRestored;
use std::time::Instant;
use waiting::{PendingKind, PendingRequest};
use workers::{Duty, Worker};

/// How many workers may be starting at once.
const STARTING_MAX: usize = 64;

/// The mind of a cluster.
#[derive(Debug)]
pub(crate) struct HeadCore {
    /// The head's own machine.
    own: NodeCore,
    members: members::Members,
    clients: clients::Clients,
    workers: workers::Workers,
    jobs: clients::JobTable,
    actors: actors::ActorTable,
    objects: objects::ObjectTable,
    groups: groups::GroupTable,
    pending: waiting::Pending,
    growth: growth::Growth,
    durable: journal::Durable,
    figures: ends::Figures,
    clock: clock::Clock,
    chance: Chance,
    /// What is to be done, in order.
    out: Vec<Effect>,
}

impl HeadCore {
    /// A head of one machine with nothing running.
    pub(crate) fn new(
        plan: Plan,
        (session, address): (String, String),
        monitored: Monitored,
        numbers: Numbers,
        now: Instant,
    ) -> Self {
        let epoch = plan.epoch;
        let mut own = NodeCore::new(plan, (session, address), monitored, numbers, now);
        let joined = own.serve(None, String::new());
        let mut core = Self {
            own,
            members: members::Members::of(joined),
            clients: clients::Clients::default(),
            workers: workers::Workers::default(),
            jobs: clients::JobTable::default(),
            actors: actors::ActorTable::default(),
            objects: objects::ObjectTable::default(),
            groups: groups::GroupTable::default(),
            pending: waiting::Pending::default(),
            growth: growth::Growth::default(),
            durable: journal::Durable::default(),
            figures: ends::Figures::default(),
            clock: clock::Clock::new(now),
            chance: Chance::default(),
            out: Vec::new(),
        };
        core.pending.fairness.machine_came(&core.own.plan().inventory);
        core.begin_epoch(epoch);
        core
    }

    /// This is the head of that number. What a head names is never named again by the next.
    pub(crate) fn begin_epoch(&mut self, epoch: u64) {
        self.own.begin_epoch(epoch);
        if epoch > 0 {
            let first = resume::first_number(epoch);
            self.own.number_from(first);
            self.members.last_order = self.members.last_order.max(first);
            self.objects.known.have_owners_keep();
        }
    }

    /// Its machine.
    pub(crate) fn own(&self) -> &NodeCore {
        &self.own
    }

    #[cfg(test)]
    pub(crate) fn own_mut(&mut self) -> &mut NodeCore {
        &mut self.own
    }

    /// Tells its machine something, and hears what comes of it.
    pub(crate) fn with_own<T>(&mut self, tell: impl FnOnce(&mut NodeCore) -> T) -> T {
        let told = self.lend_out(tell);
        self.exchange();
        told
    }

    /// What is to be done stands in one list, in order, whoever of the two adds to it.
    fn lend_out<T>(&mut self, tell: impl FnOnce(&mut NodeCore) -> T) -> T {
        std::mem::swap(&mut self.out, self.own.effects());
        let told = tell(&mut self.own);
        std::mem::swap(&mut self.out, self.own.effects());
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
    pub(crate) fn store_holds(&mut self, bytes: u64) {
        self.own.store_holds(bytes);
    }

    fn new_key(&mut self) -> Key {
        self.own.new_number()
    }

    /// Serves whoever waits, after a batch of events, and returns what is to be done.
    pub(crate) fn settle(&mut self) -> Vec<Effect> {
        self.with_own(NodeCore::settle);
        self.run_alarms();
        self.refuse_unprepared();
        self.pump();
        self.start_submissions();
        self.exchange();
        self.tell_growth();
        self.tell_changes();
        let made = std::mem::take(&mut self.out);
        self.hold_back(made)
    }

    /// When [`Self::settle`] is to be called next, whatever happens.
    pub(crate) fn next_alarm(&self) -> Option<Instant> {
        let own = self.own.next_alarm();
        self.clock.alarms.first().map(|(at, _)| *at).into_iter().chain(own).min()
    }

    /// What a worker says of itself.
    pub(crate) fn worker_said(&mut self, from: Key, message: &WorkerToNode) {
        self.with_own(|own| own.worker_said(from, message));
        match message {
            // What its machine lends is in its state besides.
            WorkerToNode::Blocked(_) => self.pending.fairness.lends_cpu(from, true),
            WorkerToNode::Unblocked(_) => self.pending.fairness.lends_cpu(from, false),
            WorkerToNode::Lingers(_) => self.lingers(from),
            WorkerToNode::ActorReady(_) => self.actor_ready(from),
        }
    }

    /// What a client says that was let in, or a worker.
    pub(crate) fn client_said(&mut self, from: Key, message: ClientToHead) {
        match message {
            ClientToHead::LeaseRequest(asked) => self.lease_request(from, *asked),
            ClientToHead::LeaseCancel(asked) => self.lease_cancel(from, asked.request),
            ClientToHead::LeaseReturn(asked) => self.lease_return(from, asked.lease, asked.retiring),
            ClientToHead::LeaseKill(asked) => self.lease_kill(from, asked.lease),
            ClientToHead::CancelObject(asked) => self.pass_to_owner(asked),
            ClientToHead::ActorFailed(said) => self.actor_failed(from, said.error),
            ClientToHead::ArgumentLost(said) => self.argument_lost(from, &said),
            ClientToHead::ActorLeaving(said) => self.actor_leaving(from, &said),
            ClientToHead::ActorCreate(asked) => self.actor_create(from, *asked),
            ClientToHead::ActorConnect(asked) => self.actor_connect(from, &asked),
            ClientToHead::ActorKill(asked) => self.actor_kill(&asked),
            ClientToHead::ActorLookup(asked) => self.actor_lookup(from, &asked),
            ClientToHead::Promise(said) => self.promise(from, &said.objects),
            ClientToHead::Publish(said) => self.publish(from, *said),
            ClientToHead::Subscribe(asked) => self.subscribe(from, asked.reference),
            ClientToHead::Hold(said) => self.hold(from, &said),
            ClientToHead::Confirm(said) => self.confirm(from, &said),
            ClientToHead::Unhold(said) => self.unhold(from, &said.objects),
            ClientToHead::StateQuery(asked) => self.state_query(from, asked),
            ClientToHead::TaskLog(told) => self.task_log(from, told),
            ClientToHead::ObjectLog(told) => self.object_log(from, told),
            ClientToHead::Metrics(told) => self.metrics_told(from, told),
            ClientToHead::KeyValueRequest(asked) => self.keep(from, *asked),
            ClientToHead::Recover(said) => self.recover(from, said.reference),
            ClientToHead::Free(said) => self.free(from, &said.references),
            ClientToHead::GroupCreate(asked) => self.group_create(from, &asked),
            ClientToHead::GroupAwait(asked) => self.group_await(from, &asked),
            ClientToHead::GroupRemove(asked) => {
                self.group_remove(asked.group, "remove_placement_group() was called");
            }
            ClientToHead::GroupQuery(asked) => self.group_query(from, &asked),
            ClientToHead::DrainAsked(asked) => self.drain_asked(from, &asked),
            ClientToHead::CollectGarbage(_) => self.collect_garbage(from),
            ClientToHead::Goodbye(said) => self.goodbye(from, said),
            ClientToHead::ClientResume(told) => self.resume_client(from, &told),
            ClientToHead::ClientSettled(said) => self.client_settled(from, &said),
        }
    }

    /// Says something to a client, a worker or a visitor, wherever it is, or to the daemon of a member.
    fn send(&mut self, to: Key, message: impl Into<Message>) {
        self.out.push(Effect::Send { to, message: message.into() });
    }

    /// Has a member do something, which may be the head's own machine.
    fn order_member(&mut self, member: Key, order: impl Into<HeadOrder>) {
        if member == OWN {
            self.members.order_own(order.into());
        } else {
            self.send(member, order.into());
        }
    }

    fn log(&mut self, line: String) {
        self.out.push(Effect::Log(line));
    }
}

#[cfg(test)]
mod tests;
