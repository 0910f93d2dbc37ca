//! What must hold between any two events, and what is left of those who are gone: for tests and simulations.

use super::fairness::Holder;
use super::workers::{Duty, Worker};
use super::{HeadCore, Home, Key};
use oxiray_head::{Actor, GroupPhase};
use oxiray_ids::Chance;
use std::collections::BTreeSet;

impl HeadCore {
    /// Draws the identifiers of processes from a seed from here on, so that a run can be replayed.
    pub(in crate::core) fn seed(&mut self, seed: u64) {
        self.chance = Chance::seeded(seed);
        self.own.seed(!seed);
    }

    /// Compares every table with the others; slow.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub(in crate::core) fn audit(&self) {
        self.own.audit();
        self.audit_own();
        self.audit_shares();
        self.audit_waiting();
        self.audit_workers();
        self.audit_groups();
        for named in self.actors.named() {
            assert!(
                self.actors.get(named).is_some_and(|actor| !actor.is_dead()),
                "ACTOR-1: a name is a living actor's"
            );
        }
    }

    /// What is left that somebody must still let go of: nothing, once every client is gone and every device is back.
    pub(in crate::core) fn leftovers(&self) -> Vec<(&'static str, usize)> {
        let tables = [
            ("clients", self.clients.len()),
            ("keys", self.keys.len()),
            ("workers of the cluster", self.workers.len()),
            ("leases", self.leases.len()),
            ("waiting", self.wanted.len()),
            ("queue", self.queue.len()),
            ("jobs", self.details.len()),
            ("living actors", self.actors.iter().filter(|actor| !Actor::is_dead(actor)).count()),
            ("actors being made", self.making.len()),
            ("objects", self.objects.len()),
            ("locations", self.locations.len()),
            ("searches", self.locations.searches()),
            ("placement groups", self.reservations.len()),
            ("orders", self.members.orders.len()),
            ("held for jobs", self.fairness.holders().len()),
            ("bundles to be set aside", self.members.prepares.len()),
        ];
        tables.into_iter().chain(self.own.leftovers()).filter(|(_, count)| *count > 0).collect()
    }

    /// MEMBER-1: what the head knows of its own machine is how that stands.
    fn audit_own(&self) {
        let own = self.members.own();
        assert!(own.is_settled(), "MEMBER-3: its own machine has answered every order");
        assert_eq!(own.view, self.own.view(), "MEMBER-1");
    }

    /// FAIR-1.
    fn audit_shares(&self) {
        let counted: BTreeSet<Holder> = self.fairness.holders().collect();
        for holder in &counted {
            let is_there = match holder {
                Holder::Worker(key) => self.workers.contains_key(key),
                Holder::Order(number) => self.members.orders.contains_key(number),
                Holder::Group(id) => self.reservations.contains_key(id),
            };
            assert!(is_there, "FAIR-1: {holder:?} is counted and is no more");
        }
        let leased = self.leases.values().map(|lease| lease.worker);
        for worker in leased.filter(|worker| self.workers.get(worker).is_some_and(|worker| worker.home.is_none())) {
            assert!(counted.contains(&Holder::Worker(worker)), "FAIR-1: the lease of worker {worker} is counted");
        }
    }

    fn audit_waiting(&self) {
        let waiting: usize = self.clients.values().map(|client| client.waiting.len()).sum();
        let actors = self.making.values().filter(|making| making.is_waiting()).count();
        let groups = self.reservations.values().filter(|reservation| reservation.ticket.is_some()).count();
        let known = self.wanted.len() + self.awaited_orders();
        assert_eq!(known, waiting + actors + groups, "nobody is forgotten");
        let unprepared = self
            .environments
            .waiting()
            .chain(self.unprepared.iter().map(|(ticket, _)| *ticket))
            .filter(|ticket| self.wanted.contains_key(ticket))
            .count();
        let elsewhere = unprepared + self.ahead.len();
        assert_eq!(self.queue.len() + elsewhere, self.wanted.len(), "whoever waits is in the queue (ENVIRONMENT-2)");
        let starting = self.workers.values().filter(|worker| worker.pid.is_none()).count();
        assert_eq!(self.starting, starting, "what starts is counted");
    }

    /// No worker serves two, and none serves on after it held a device or was killed.
    fn audit_workers(&self) {
        let mut busy = BTreeSet::new();
        for lease in self.leases.values() {
            assert!(busy.insert(lease.worker), "a worker has one lease");
            assert!(self.clients.contains_key(&lease.owner), "leases end with their owner");
        }
        for (key, _) in self.workers.iter().filter(|(_, worker)| worker.duty == Duty::Idle) {
            assert!(busy.insert(*key), "an idle worker serves nobody");
        }
        let mut actors = BTreeSet::new();
        for worker in self.workers.values() {
            if let Duty::Actor(id) = worker.duty {
                assert!(actors.insert(id), "RESTARTS-1");
                let waits = self.making.get(&id).is_some_and(super::actors::Making::is_waiting);
                assert!(!waits, "RESTARTS-1: the next process is asked for when the last is gone");
            }
        }
    }

    /// CORE-5, and that a group is whole or not at all.
    fn audit_groups(&self) {
        for group in self.groups.iter() {
            let id = &group.description.id;
            let own = (0..group.nodes.len()).filter(|bundle| group.nodes[*bundle] == Some(self.plan.node));
            let own: BTreeSet<usize> = own.collect();
            let reservation = self.reservations.get(id);
            let here = self.own.bundles_of(*id);
            match &group.phase {
                GroupPhase::Removed(_) => assert!(reservation.is_none(), "CORE-5"),
                GroupPhase::Pending => assert!(here.is_empty(), "it holds nothing while it waits"),
                _ => assert_eq!(here, own, "what is of this node is set aside here"),
            }
            let is_whole = group.nodes.iter().all(Option::is_some);
            assert!(group.phase != GroupPhase::Created || is_whole, "it is whole");
        }
        let ends = |(key, worker): &(&Key, &Worker)| worker.end.is_doomed || self.is_killed_when_it_has_told(**key);
        for (_, worker) in self.workers.iter().filter(|found| !ends(found) && !found.1.once) {
            let is_busy = worker.duty.is_use();
            let is_there = |home: Home| self.reservations.contains_key(&home.group);
            assert!(!is_busy || worker.home.is_none_or(is_there), "nothing runs on within a group that is removed");
        }
    }
}
