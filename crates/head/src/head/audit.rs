//! What must hold between any two events, and what is left of those who are gone: for tests and simulations.

use super::HeadCore;
use crate::actors::{Actor, Making};
use crate::fairness::Holder;
use crate::members::bundle_of;
use crate::placement_groups::GroupPhase;
use crate::workers::{Duty, Worker};
use oxiray_ids::{BundleNumber, Chance};
use oxiray_machine::{BundleKey, GroupMembership, Key};
use oxiray_scheduler::NodeView;
use oxiray_wire::message::BundleFree;
use std::collections::{BTreeMap, BTreeSet};

impl HeadCore {
    /// Draws the identifiers of processes from a seed from here on, so that a run can be replayed.
    pub(crate) fn seed(&mut self, seed: u64) {
        self.chance = Chance::seeded(seed);
        self.own.seed(!seed);
    }

    /// Compares every table with the others; slow.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub(crate) fn audit(&self) {
        self.own.audit();
        self.audit_own();
        self.audit_chronicle();
        self.audit_shares();
        self.audit_waiting();
        self.audit_workers();
        self.audit_groups();
        for named in self.actors.known.named() {
            assert!(
                self.actors.known.get(named).is_some_and(|actor| !actor.is_dead()),
                "ACTOR-1: a name is a living actor's"
            );
        }
    }

    /// CHRONICLE-2: what the chronicle says to hold of the head's own devices is what their ledger has granted.
    fn audit_chronicle(&self) {
        let told = self.figures.chronicle.grants_of(self.own.plan().node);
        assert_eq!(told, self.own.device_grants(), "CHRONICLE-2");
    }

    /// What is left that somebody must still let go of: nothing, once every client is gone and every device is back.
    pub(crate) fn leftovers(&self) -> Vec<(&'static str, usize)> {
        let tables = [
            ("clients", self.clients.by_key.len()),
            ("keys", self.clients.keys.len()),
            ("workers of the cluster", self.workers.by_key.len()),
            ("leases", self.workers.leases.len()),
            ("waiting", self.pending.wanted.len()),
            ("queue", self.pending.queue.len()),
            ("jobs", self.jobs.details.len()),
            ("living actors", self.actors.known.iter().filter(|actor| !Actor::is_dead(actor)).count()),
            ("actors being made", self.actors.making.len()),
            ("objects", self.objects.known.len()),
            ("locations", self.objects.locations.len()),
            ("searches", self.objects.locations.searches().len()),
            ("placement groups", self.groups.reservations.len()),
            ("orders", self.members.orders.len()),
            ("held for jobs", self.pending.fairness.holders().len()),
            ("bundles to be set aside", self.members.prepares.len()),
        ];
        tables.into_iter().chain(self.own.leftovers()).filter(|(_, count)| *count > 0).collect()
    }

    /// MEMBER-1: what the head knows of its own machine is how that stands.
    fn audit_own(&self) {
        let own = self.members.own();
        assert!(own.is_settled(), "MEMBER-3: its own machine has answered every order");
        assert_eq!(own.view, self.own.view(), "MEMBER-1");
        let told = self.own.all_bundles_for_head();
        let bundle =
            |told: &BundleFree| ((told.group, told.bundle), bundle_of(own.view.node, told, &own.view.inventory).view);
        let bundles: BTreeMap<BundleKey, NodeView> = told.iter().map(bundle).collect();
        assert_eq!(*own.bundles(), bundles, "MEMBER-1: of the bundles it is told what changes, and knows all");
    }

    /// FAIR-1.
    fn audit_shares(&self) {
        let counted: BTreeSet<Holder> = self.pending.fairness.holders().collect();
        for holder in &counted {
            let is_there = match holder {
                Holder::Worker(key) => self.workers.by_key.contains_key(key),
                Holder::Order(number) => self.members.orders.contains_key(number),
                Holder::Group(id) => self.groups.reservations.contains_key(id),
            };
            assert!(is_there, "FAIR-1: {holder:?} is counted and is no more");
        }
        let leased = self.workers.leases.values().map(|lease| lease.worker);
        for worker in
            leased.filter(|worker| self.workers.by_key.get(worker).is_some_and(|worker| worker.home.is_none()))
        {
            assert!(counted.contains(&Holder::Worker(worker)), "FAIR-1: the lease of worker {worker} is counted");
        }
    }

    fn audit_waiting(&self) {
        let waiting: usize = self.clients.by_key.values().map(|client| client.waiting.len()).sum();
        let actors = self.actors.making.values().filter(|making| making.is_waiting()).count();
        let groups = self.groups.reservations.values().filter(|reservation| reservation.ticket.is_some()).count();
        let known = self.pending.wanted.len() + self.awaited_orders();
        assert_eq!(known, waiting + actors + groups, "nobody is forgotten");
        let unprepared = self
            .pending
            .environments
            .waiting()
            .chain(self.pending.unprepared.iter().map(|(ticket, _)| *ticket))
            .filter(|ticket| self.pending.wanted.contains_key(ticket))
            .count();
        let elsewhere = unprepared + self.pending.ahead.len();
        assert_eq!(
            self.pending.queue.len() + elsewhere,
            self.pending.wanted.len(),
            "whoever waits is in the queue (ENVIRONMENT-2)"
        );
        let starting = self.workers.by_key.values().filter(|worker| worker.pid.is_none()).count();
        assert_eq!(self.workers.starting, starting, "what starts is counted");
    }

    /// No worker serves two, and none serves on after it held a device or was killed.
    fn audit_workers(&self) {
        let mut busy = BTreeSet::new();
        for lease in self.workers.leases.values() {
            assert!(busy.insert(lease.worker), "a worker has one lease");
            assert!(self.clients.by_key.contains_key(&lease.owner), "leases end with their owner");
        }
        for (key, _) in self.workers.by_key.iter().filter(|(_, worker)| worker.duty == Duty::Idle) {
            assert!(busy.insert(*key), "an idle worker serves nobody");
        }
        let mut actors = BTreeSet::new();
        for worker in self.workers.by_key.values() {
            if let Duty::Actor(id) = worker.duty {
                assert!(actors.insert(id), "RESTARTS-1");
                let waits = self.actors.making.get(&id).is_some_and(Making::is_waiting);
                assert!(!waits, "RESTARTS-1: the next process is asked for when the last is gone");
            }
        }
    }

    /// CORE-5, and that a group is whole or not at all.
    fn audit_groups(&self) {
        for group in self.groups.known.iter() {
            let id = &group.description.id;
            let own = (0..group.nodes.len()).filter(|bundle| group.nodes[*bundle] == Some(self.own.plan().node));
            let own: BTreeSet<BundleNumber> = own.map(BundleNumber::at).collect();
            let reservation = self.groups.reservations.get(id);
            let here = self.own.bundles_of(*id);
            match &group.phase {
                GroupPhase::Removed(_) => assert!(reservation.is_none(), "CORE-5"),
                GroupPhase::Pending => assert!(here.is_empty(), "it holds nothing while it waits"),
                _ => assert_eq!(here, own, "what is of this node is set aside here"),
            }
            let is_whole = group.nodes.iter().all(Option::is_some);
            assert!(group.phase != GroupPhase::Created || is_whole, "it is whole");
        }
        let ends = |(key, worker): &(&Key, &Worker)| {
            worker.end.is_doomed || self.durable.resumption.is_killed_when_it_has_told(**key)
        };
        for (_, worker) in self.workers.by_key.iter().filter(|found| !ends(found) && !found.1.once) {
            let is_busy = worker.duty.is_use();
            let is_there = |home: GroupMembership| self.groups.reservations.contains_key(&home.group);
            assert!(!is_busy || worker.home.is_none_or(is_there), "nothing runs on within a group that is removed");
        }
    }
}
