//! The head of a cluster: who gets a worker and where, what becomes of actors, objects, groups and jobs, who is told.
//!
//! Machines are its members. Its own machine is one of them ([`OWN`]): it gets the same orders, in this process.
//!
//! [`HeadCore`] is put together of state machines, which stand beside this module and know nothing of it. What takes
//! several of them is an operation here. An operation calls those that stand lower in this table, or in its row further right,
//! and never the other way (`tests/repository/test_structure.py`):
//!
//! | Module | What it does |
//! |---|---|
//! | `dispatch` | who may say or report what, and which operation follows; what is due; what is to be done after all that |
//! | `audit` | what must hold between any two events, for tests and simulations |
//! | `restore`, `journal`, `records` | how the next head goes on, what is held back until it is written down, and what rows hold |
//! | `census`, `follow`, `growth`, `metrics`, `report`, `holdings` | what people and programs are told that ask |
//! | `rows`, `object_rows`, `nodes`, `group_report`, `stacks` | the lists in that |
//! | `proxied_clients`, `resume`, `clients`, `members` | who comes, comes back, and is gone: drivers, and machines with all they had |
//! | `waiting`, `placing`, `orders` | whoever waits is served, on some machine, which is ordered to have a worker |
//! | `explain` | why somebody waits |
//! | `preemption` | who ends early for what is more urgent |
//! | `large` | room that is kept for a request which smaller ones overtake, or for which others end |
//! | `deadlocks`, `standstill` | who waits for what others hold that wait |
//! | `exits`, `resumption_end` | workers and drivers that are gone, and who comes back no more |
//! | `devices` | devices that people or nodes take out of service |
//! | `device_rows` | who has which device, for people |
//! | `drain`, `locations`, `prefetch`, `searches` | machines that are emptied, and where objects lie, travel and are looked for |
//! | `objects`, `leases`, `submissions`, `key_value` | what clients ask for |
//! | `restarts`, `actors`, `groups`, `bundle_placement`, `shortage` | actors and placement groups, and what no machine can give |
//! | `termination` | what ends, and what ends with it |
//! | `environments`, `requests` | who asks, until they stand in the queue |
//! | `announcements`, `validation`, `workers` | what machines and workers are told, and what no peer may say |
//! | `entries` | what is written into the chronicle |

mod actors;
mod announcements;
mod audit;
mod bundle_placement;
mod census;
mod clients;
mod deadlocks;
mod device_rows;
mod devices;
mod dispatch;
mod drain;
mod entries;
mod environments;
mod exits;
mod explain;
mod follow;
mod group_report;
mod groups;
mod growth;
mod holdings;
mod journal;
mod key_value;
mod large;
mod leases;
mod locations;
mod members;
mod metrics;
mod nodes;
mod object_rows;
mod objects;
mod orders;
mod placing;
mod preemption;
mod prefetch;
mod proxied_clients;
mod records;
mod report;
mod requests;
mod restarts;
mod restore;
mod resume;
mod resumption_end;
mod rows;
mod searches;
mod shortage;
mod stacks;
mod standstill;
mod submissions;
mod termination;
mod validation;
mod waiting;
mod workers;

use crate::actors::ActorTable;
use crate::clients::Clients;
use crate::clock::Clock;
use crate::figures::Figures;
use crate::growth::Growth;
use crate::jobs::JobTable;
use crate::journal::{Durable, Row, Undo};
use crate::members::{Members, OWN};
use crate::objects::ObjectTable;
use crate::placement_groups::GroupTable;
use crate::queue::Pending;
use crate::resumption::first_number;
use crate::workers::Workers;
pub use holdings::LENT;
use oxiray_ids::{Chance, NodeId, WorkerId};
use oxiray_machine::{Effect, Key, Monitored, NodeCore, Numbers, Plan, Settled};
use oxiray_wire::Message;
use oxiray_wire::message::HeadOrder;
pub use records::table;
pub use report::StoreFigures;
pub use restore::NotRestored;
use std::time::Instant;

/// The mind of a cluster.
#[derive(Debug)]
pub(crate) struct HeadCore {
    /// The head's own machine.
    own: Settled<NodeCore>,
    members: Members,
    clients: Clients,
    workers: Workers,
    jobs: JobTable,
    actors: ActorTable,
    objects: ObjectTable,
    groups: GroupTable,
    pending: Pending,
    growth: Growth,
    durable: Durable,
    figures: Figures,
    clock: Clock,
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
            own: Settled::new(own),
            members: Members::of(joined),
            clients: Clients::default(),
            workers: Workers::default(),
            jobs: JobTable::default(),
            actors: ActorTable::default(),
            objects: ObjectTable::default(),
            groups: GroupTable::default(),
            pending: Pending::default(),
            growth: Growth::default(),
            durable: Durable::default(),
            figures: Figures::default(),
            clock: Clock::new(now),
            chance: Chance::default(),
            out: Vec::new(),
        };
        core.pending.fairness.machine_came(&core.own.plan().inventory);
        if core.own.plan().rules.jobs_by_arrival {
            core.pending.fairness.shares().go_by_arrival();
        }
        core.begin_epoch(epoch);
        core
    }

    /// This is the head of that number. What a head names is never named again by the next.
    pub(crate) fn begin_epoch(&mut self, epoch: u64) {
        self.own.begin_epoch(epoch);
        if epoch > 0 {
            let first = first_number(epoch);
            self.own.number_from(first);
            self.members.number_orders_from(first);
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

    /// The machines of the cluster.
    pub(crate) fn members(&self) -> &Members {
        &self.members
    }

    /// Tells what time it is; call it before a batch of events.
    pub(crate) fn set_now(&mut self, now: Instant) {
        self.clock.set_now(now);
        self.own.quietly().set_now(now);
    }

    /// Tells what the wall clock shows, in milliseconds since 1970; from it follow what listings say,
    /// and by when a node is emptied that the last head had begun to empty (DRAIN-5).
    pub(crate) fn set_wall_clock(&mut self, now_ms: u64) {
        self.clock.wall_ms = now_ms;
    }

    /// When [`Self::settle`] is to be called next, whatever happens.
    pub(crate) fn next_alarm(&self) -> Option<Instant> {
        self.clock.next_alarm().into_iter().chain(self.own.next_alarm()).min()
    }

    /// Bytes that objects take in this machine's store; told of when this settles. Returns whether that is news.
    pub(crate) fn store_holds(&mut self, bytes: u64) -> bool {
        self.own.tell(|own| own.store_holds(bytes))
    }

    fn new_key(&mut self) -> Key {
        self.own.new_number()
    }

    /// The node that a worker runs on; this one where the worker is not known any more.
    fn node_of_worker(&self, worker: WorkerId) -> NodeId {
        self.clients.key_of(worker).map_or(self.own.plan().node, |key| self.members.node_of(key))
    }

    /// Says something to a client, a worker or a visitor, wherever it is, or to the daemon of a member.
    fn send(&mut self, to: Key, message: impl Into<Message>) {
        self.out.push(Effect::Send { to, message: message.into() });
    }

    /// Says something to a process, where it is there.
    fn tell(&mut self, process: WorkerId, message: impl Into<Message>) {
        if let Some(key) = self.clients.key_of(process) {
            self.send(key, message);
        }
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

    /// The next effect tells `from` that it was done what it asked for, and is carried out only when this is safe.
    fn answered_by_next(&mut self, from: Key, undo: Undo) {
        self.durable.asked(from, undo, Some(self.out.len()));
    }

    /// Has the values written down whose owners died, or are about to, and those forgotten that are no such any more.
    fn touch_orphans(&mut self) {
        for object in self.objects.known.orphans_changed() {
            self.durable.touch(Row::Orphan(object));
        }
    }
}

#[cfg(test)]
mod tests;
