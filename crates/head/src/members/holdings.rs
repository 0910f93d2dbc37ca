//! Who holds which parts of a member's devices, as it tells.

use oxiray_ids::WorkerId;
use oxiray_wire::message::{DeviceHolding, HoldingPhase};
use std::collections::BTreeMap;

/// The most parts of devices of one member of which it is known who holds them.
const HOLDINGS_MAX: usize = 4_096;

/// The parts of a member's devices that are held: by the resource, the device's number, and the grant.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    by_resource: BTreeMap<String, BTreeMap<(u32, u64), DeviceHolding>>,
}

impl Holdings {
    /// All of them.
    pub(super) fn new(told: &[DeviceHolding]) -> Self {
        let mut all = Self::default();
        all.hear(told);
        all
    }

    /// These are new, changed or over.
    pub(crate) fn hear(&mut self, told: &[DeviceHolding]) {
        let mut count: usize = self.by_resource.values().map(BTreeMap::len).sum();
        for of in told {
            let part = (of.slot, of.grant);
            if of.phase == HoldingPhase::Over {
                let parts = self.by_resource.get_mut(&of.resource);
                count -= usize::from(parts.and_then(|parts| parts.remove(&part)).is_some());
                continue;
            }
            let is_known = self.by_resource.get(&of.resource).is_some_and(|parts| parts.contains_key(&part));
            if is_known || count < HOLDINGS_MAX {
                count += usize::from(!is_known);
                self.by_resource.entry(of.resource.clone()).or_default().insert(part, of.clone());
            }
        }
        self.by_resource.retain(|_, parts| !parts.is_empty());
    }

    /// Those of one device.
    pub(crate) fn of_device(&self, resource: &str, slot: u32) -> impl Iterator<Item = &DeviceHolding> {
        let parts = self.by_resource.get(resource).into_iter();
        parts.flat_map(move |parts| parts.range((slot, 0)..=(slot, u64::MAX)).map(|(_, of)| of))
    }

    /// Those of all devices of a resource.
    pub(crate) fn of(&self, resource: &str) -> impl Iterator<Item = &DeviceHolding> {
        self.by_resource.get(resource).into_iter().flat_map(BTreeMap::values)
    }

    /// Those of one worker.
    pub(crate) fn of_worker(&self, worker: WorkerId) -> impl Iterator<Item = &DeviceHolding> {
        let all = self.by_resource.values().flat_map(BTreeMap::values);
        all.filter(move |of| of.worker == Some(worker))
    }

    /// How many they are.
    pub(crate) fn count(&self, resource: &str) -> usize {
        self.by_resource.get(resource).map_or(0, BTreeMap::len)
    }

    /// The devices of which a part is held, by their resources and numbers: some of them several times.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (&str, u32)> {
        let parts = self.by_resource.iter();
        parts.flat_map(|(resource, parts)| parts.keys().map(move |(slot, _)| (resource.as_str(), *slot)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(resource: &str, slot: u32, grant: u64, phase: HoldingPhase) -> DeviceHolding {
        DeviceHolding { resource: resource.to_owned(), slot, grant, phase, ..DeviceHolding::default() }
    }

    #[test]
    fn what_is_told_later_is_added_and_what_is_over_is_forgotten() {
        let (is_held, returns, over) = (HoldingPhase::Held, HoldingPhase::Returning, HoldingPhase::Over);
        let mut all =
            Holdings::new(&[held("GPU", 0, 1, is_held), held("GPU", 1, 2, is_held), held("TPU", 0, 3, is_held)]);
        all.hear(&[
            held("GPU", 0, 1, over),
            held("GPU", 1, 2, returns),
            held("GPU", 1, 4, is_held),
            held("GPU", 7, 9, over),
        ]);
        let of_device: Vec<_> = all.of_device("GPU", 1).map(|of| (of.grant, of.phase)).collect();
        assert_eq!(of_device, [(2, returns), (4, is_held)]);
        assert_eq!((all.of_device("GPU", 0).count(), all.count("GPU"), all.of("TPU").count()), (0, 2, 1));
        assert_eq!(all.devices().collect::<Vec<_>>(), [("GPU", 1), ("GPU", 1), ("TPU", 0)]);
        all.hear(&[held("TPU", 0, 3, over)]);
        assert!(all.count("TPU") == 0 && all.by_resource.len() == 1);
    }

    #[test]
    fn of_a_member_that_tells_of_too_many_some_are_known() {
        let told: Vec<_> =
            (0..HOLDINGS_MAX as u64 + 5).map(|grant| held("GPU", 0, grant, HoldingPhase::Held)).collect();
        let mut all = Holdings::new(&told);
        assert_eq!(all.count("GPU"), HOLDINGS_MAX);
        all.hear(&[held("GPU", 0, 0, HoldingPhase::Over), held("GPU", 1, 0, HoldingPhase::Held)]);
        assert_eq!((all.count("GPU"), all.of_device("GPU", 1).count()), (HOLDINGS_MAX, 1));
    }
}
