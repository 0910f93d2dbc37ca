//! What must hold between any two events, and what is left of those who are gone: for tests and simulations.

use super::groups::Home;
use super::{Core, Duty, Key, Worker};
use oxiray_head::{Actor, GroupPhase};
use oxiray_ids::Chance;
use oxiray_resources::{Quantity, ResourceName};
use std::collections::{BTreeMap, BTreeSet};

impl Core {
    /// Draws the identifiers of processes from a seed from here on, so that a run can be replayed.
    pub fn seed(&mut self, seed: u64) {
        self.chance = Chance::seeded(seed);
    }

    /// Compares every table with the others; slow.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn audit(&self) {
        self.ledger.audit();
        self.audit_waiting();
        self.audit_workers();
        self.audit_devices();
        self.audit_groups();
        for named in self.actors.named() {
            assert!(
                self.actors.get(named).is_some_and(|actor| !actor.is_dead()),
                "ACTOR-1: a name is a living actor's"
            );
        }
    }

    /// What is left that somebody must still let go of: nothing, once every client is gone and every device is back.
    pub fn leftovers(&self) -> Vec<(&'static str, usize)> {
        let in_use = self.workers.values().filter(|worker| worker.duty != Duty::Spare).count();
        let tables = [
            ("clients", self.clients.len()),
            ("keys", self.keys.len()),
            ("workers in use", in_use),
            ("idle workers", self.idle.len()),
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
            ("bundles to be set aside", self.members.prepares.len()),
            ("bundles set aside", self.head.as_ref().map_or(0, |head| head.bundles.len())),
            ("devices asked about", self.rechecks.len()),
            ("devices out of service", self.out_of_service.len()),
        ];
        tables.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// What is granted of each resource.
    pub fn granted(&self) -> BTreeMap<ResourceName, Quantity> {
        let (totals, free) = (self.ledger.totals(), self.ledger.available());
        let granted = totals.into_iter().map(|(name, total)| {
            let left = total.checked_sub(free.get(&name).copied().unwrap_or_default());
            (name, left.expect("LEDGER-1: no more is free than there is"))
        });
        granted.filter(|(_, amount)| !amount.is_zero()).collect()
    }

    fn audit_waiting(&self) {
        let waiting: usize = self.clients.values().map(|client| client.waiting.len()).sum();
        let actors = self.making.values().filter(|making| making.is_waiting()).count();
        let groups = self.reservations.values().filter(|reservation| reservation.ticket.is_some()).count();
        let known = self.wanted.len() + self.awaited_orders();
        assert_eq!(known, waiting + actors + groups, "nobody is forgotten");
        let unprepared = self.environments.waiting().filter(|ticket| self.wanted.contains_key(ticket)).count();
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
        for idle in &self.idle {
            let worker = &self.workers[idle];
            assert!(!worker.once && worker.grant.is_none() && busy.insert(*idle), "CORE-3");
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

    fn audit_devices(&self) {
        for worker in self.out_of_service.values().flat_map(BTreeMap::keys) {
            let is_undying = self.workers.get(worker).is_some_and(|worker| worker.is_doomed);
            let is_remembered = self.rechecks.iter().any(|recheck| recheck.is_remembered(*worker));
            assert!(is_undying || is_remembered || self.measured.is_driver(*worker), "CORE-4");
        }
        assert_eq!(self.ledger.out_of_service().count(), self.out_of_service.len(), "CORE-4");
    }

    /// CORE-5, and that a group is whole or not at all.
    fn audit_groups(&self) {
        for group in self.groups.iter() {
            let id = &group.description.id;
            let own = (0..group.nodes.len()).filter(|bundle| group.nodes[*bundle] == Some(self.plan.node));
            let own: BTreeSet<usize> = own.collect();
            let reservation = self.reservations.get(id);
            let here: BTreeSet<usize> = reservation.iter().flat_map(|of| of.bundles.keys().copied()).collect();
            match &group.phase {
                GroupPhase::Removed(_) => assert!(reservation.is_none(), "CORE-5"),
                GroupPhase::Pending => assert!(here.is_empty(), "it holds nothing while it waits"),
                _ => assert_eq!(here, own, "what is of this node is set aside here"),
            }
            let is_whole = group.nodes.iter().all(Option::is_some);
            assert!(group.phase != GroupPhase::Created || is_whole, "it is whole");
        }
        if self.head.is_some() {
            return;
        }
        let ends = |(key, worker): &(&Key, &Worker)| worker.is_doomed || self.is_killed_when_it_has_told(**key);
        for (_, worker) in self.workers.iter().filter(|found| !ends(found) && !found.1.once) {
            let is_busy = matches!(worker.duty, Duty::Leased(_) | Duty::Actor(_));
            let is_there = |home: Home| self.reservations.contains_key(&home.group);
            assert!(!is_busy || worker.home.is_none_or(is_there), "nothing runs on within a group that is removed");
        }
    }
}
