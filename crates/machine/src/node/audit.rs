//! What must hold on a machine between any two events, and what is left there: for tests and simulations.

use super::NodeCore;
use crate::device_checks::{DeviceSlot, devices_of};
use crate::worker::Duty;
use oxiray_ids::PlacementGroupId;
use oxiray_resources::{Quantity, ResourceName};
use oxiray_scheduler::NodeView;
use std::collections::{BTreeMap, BTreeSet};

impl NodeCore {
    /// Compares every table with the others; slow.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn audit(&self) {
        self.ledger.audit();
        for idle in &self.idle {
            let worker = &self.workers[idle];
            assert!(!worker.once && worker.grant.is_none() && worker.duty == Duty::Idle, "CORE-3");
        }
        for worker in self.devices.out_of_service.values().flat_map(BTreeMap::keys) {
            let is_undying = self.workers.get(worker).is_some_and(|worker| worker.is_doomed);
            let is_occupied = self.devices.occupied.contains_key(worker);
            let is_remembered = self.devices.checks.is_remembered(*worker);
            let is_ill = self.devices.doctor == Some(*worker);
            let is_left = is_undying || is_occupied || is_remembered;
            assert!(is_left || is_ill || self.devices.measured.is_driver(*worker), "CORE-4");
        }
        assert_eq!(self.ledger.out_of_service().count(), self.devices.out_of_service.len(), "CORE-4");
        let kept_out = self.devices.out_of_service.values();
        let by_health = kept_out.filter(|by| self.devices.doctor.is_some_and(|doctor| by.contains_key(&doctor)));
        assert_eq!(by_health.count(), self.devices.health.len(), "CORE-4: whatever is ill is out of service");
        for (resource, slot) in self.devices() {
            let are_drained = self.devices.health.links.are_drained(&(resource.to_owned(), slot));
            assert_eq!(self.ledger.is_single(resource, slot), are_drained, "LINKS-2");
        }
    }

    /// What is left that somebody must still let go of.
    pub fn leftovers(&self) -> Vec<(&'static str, usize)> {
        let in_use = self.workers.values().filter(|worker| worker.duty != Duty::Spare).count();
        vec![
            ("workers in use", in_use),
            ("idle workers", self.idle.len()),
            ("jobs of the machine", self.jobs.len()),
            ("bundles set aside", self.head.as_ref().map_or(0, |head| head.bundles.len())),
            ("control groups that are not empty", self.devices.occupied.len()),
            ("devices asked about", self.devices.checks.len()),
            ("devices out of service", self.devices.out_of_service.len()),
        ]
    }

    /// The devices that are set aside here for each placement group, of which some may have none.
    pub fn devices_of_groups(&self) -> BTreeMap<PlacementGroupId, BTreeSet<DeviceSlot>> {
        let bundles = self.head.iter().flat_map(|head| head.bundles.iter());
        let groups: BTreeSet<PlacementGroupId> = bundles.map(|((group, _), _)| group).collect();
        groups.into_iter().map(|group| (group, devices_of(self.bundles_in(group)))).collect()
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

    /// The machine as its ledger stands.
    pub fn view(&self) -> NodeView {
        let mut labels = self.plan.labels.clone();
        for withdrawn in self.devices.health.links.withdrawn_labels() {
            labels.remove(&withdrawn);
        }
        NodeView::new(self.plan.node, &self.ledger, labels)
    }
}
