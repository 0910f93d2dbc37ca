//! What some hold on machines, and whether something has room beside it: device by device, as far as machines told who has
//! which.
//!
//! - HELD-1: nothing counts as held that is not known to be. So devices that are out of service count as free, and of devices of
//!   which it is not known who has them only the sum of their shares counts.

use oxiray_ids::NodeId;
use oxiray_resources::{Capacity, Demand, FreeDevices, Quantity, ResourceName, ResourceNeed, Room, memory_of};
use oxiray_scheduler::NodeView;
use std::collections::BTreeMap;

/// A part of a device that somebody has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToldPart {
    pub(crate) resource: ResourceName,
    pub(crate) slot: u32,
    pub(crate) share: Quantity,
    /// The memory of the whole device; zero where nobody knows it.
    pub(crate) size_bytes: u64,
}

/// What is held on each machine.
#[derive(Debug, Default)]
pub(crate) struct HeldThere(BTreeMap<NodeId, Held>);

/// What is held on one.
#[derive(Debug, Default)]
struct Held {
    /// Added up.
    amounts: Demand,
    /// Of each device, by its number.
    devices: BTreeMap<ResourceName, BTreeMap<u32, Capacity>>,
}

impl HeldThere {
    /// Somebody holds all of this on a machine, of which `parts` are the devices.
    pub(crate) fn add(&mut self, node: NodeId, demands: &[Demand], parts: &[ToldPart]) {
        let held = self.0.entry(node).or_default();
        held.amounts = Demand::sum(std::iter::once(&held.amounts).chain(demands));
        let mut needs: BTreeMap<&ResourceName, Vec<ResourceNeed>> = BTreeMap::new();
        for (resource, need) in demands.iter().flat_map(Demand::devices) {
            needs.entry(resource).or_default().push(need);
        }
        for (resource, needs) in needs {
            let of_resource: Vec<&ToldPart> = parts.iter().filter(|part| part.resource == *resource).collect();
            let devices = held.devices.entry(resource.clone()).or_default();
            for (slot, part) in capacities(&needs, &of_resource) {
                let of = devices.entry(slot).or_default();
                let units = of.share.units().saturating_add(part.share.units());
                *of = Capacity {
                    share: Quantity::from_units(units),
                    memory_bytes: of.memory_bytes.saturating_add(part.memory_bytes),
                };
            }
        }
    }

    /// Whether a machine has room for something beside what is held there.
    pub(crate) fn leaves(&self, view: &NodeView, demand: &Demand) -> bool {
        let Some(held) = self.0.get(&view.node) else { return view.inventory.could_ever(demand).is_ok() };
        demand.iter().all(|(resource, asked)| {
            held.left(view, resource) >= asked.units()
                && (!resource.source().is_device()
                    || held.rooms(view, resource.source()).fits(ResourceNeed::of(resource, asked)))
        })
    }

    /// The same for several together, where it may also be unknown how they could share the devices.
    pub(crate) fn may_leave(&self, view: &NodeView, demands: &[&Demand]) -> bool {
        let mut left = view.emptied();
        if let Some(held) = self.0.get(&view.node) {
            for (resource, free) in &mut left.free {
                *free = Quantity::from_units(held.left(view, resource));
            }
            for (resource, free) in &mut left.free_devices {
                *free = held.rooms(view, resource);
            }
        }
        left.fits_together(demands).map_or_else(|misfit| !misfit.is_proven, |()| true)
    }

    /// How much of a resource a machine has beside what is held there, added up.
    pub(crate) fn left(&self, view: &NodeView, resource: &ResourceName) -> u64 {
        self.0.get(&view.node).map_or_else(|| Held::default().left(view, resource), |held| held.left(view, resource))
    }

    /// How many devices of a resource a machine has of which nothing is held.
    pub(crate) fn wholes(&self, view: &NodeView, resource: &ResourceName) -> u64 {
        let devices = self.0.get(&view.node).and_then(|held| held.devices.get(resource));
        let held = devices.map_or(0, |devices| devices.values().filter(|of| !of.share.is_zero()).count() as u64);
        view.inventory.total(resource.as_str()).wholes().saturating_sub(held)
    }
}

impl Held {
    fn left(&self, view: &NodeView, resource: &ResourceName) -> u64 {
        if resource.is_device_memory() {
            return self.rooms(view, resource.source()).memory().units();
        }
        let total = view.inventory.total(resource.as_str()).units();
        let left = total.saturating_sub(self.amounts.get(resource.as_str()).units());
        let of_devices = self.devices.get(resource).map(|_| self.rooms(view, resource).sum().units());
        of_devices.map_or(left, |of_devices| left.min(of_devices))
    }

    /// What each device has beside what is held of it.
    fn rooms(&self, view: &NodeView, resource: &ResourceName) -> FreeDevices {
        let held = self.devices.get(resource);
        let sizes = (0..).zip(view.inventory.device_memory(resource.as_str()));
        let room = |(slot, size_bytes): (u32, u64)| {
            let mut room = Room::whole(size_bytes);
            if let Some(of) = held.and_then(|held| held.get(&slot)) {
                room.free.share = room.free.share.checked_sub(of.share).unwrap_or_default();
                room.free.memory_bytes = size_bytes.saturating_sub(of.memory_bytes);
            }
            Some(room)
        };
        sizes.map(room).collect()
    }
}

/// What is held of which devices where these are the parts of all that was granted; nothing where they are not (HELD-1).
fn capacities(needs: &[ResourceNeed], parts: &[&ToldPart]) -> Vec<(u32, Capacity)> {
    let mut asked = 0_u64;
    let mut bytes = Vec::new();
    for need in needs {
        match need {
            ResourceNeed::Amount(amount) => asked = asked.saturating_add(amount.units()),
            ResourceNeed::Memory(of_one) => bytes.push(*of_one),
        }
    }
    let told = parts.iter().map(|part| part.share.units()).fold(0, u64::saturating_add);
    let memory: &dyn Fn(&ToldPart) -> u64 = match (&bytes[..], parts) {
        ([], _) if told == asked => &|part| memory_of(part.share, part.size_bytes),
        ([bytes], [_]) if asked == 0 => &|part| (*bytes).min(part.size_bytes),
        // The share that goes with bytes is rounded up.
        ([_, ..], _) if told > asked => {
            &|part| memory_of(Quantity::from_units(part.share.units().saturating_sub(1)), part.size_bytes)
        }
        _ => return Vec::new(),
    };
    parts.iter().map(|part| (part.slot, Capacity { share: part.share, memory_bytes: memory(part) })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_resources::Inventory;

    const GIB: u64 = 1 << 30;

    fn node() -> NodeId {
        NodeId::new([7; 28])
    }

    /// A machine with two GPUs of 16 GiB.
    fn view() -> NodeView {
        let offers = [(ResourceName::CPU, 4.0), (ResourceName::GPU, 2.0)];
        let inventory = Inventory::new(offers).expect("an inventory");
        let inventory = inventory.with_device_memory(ResourceName::GPU, vec![16 * GIB; 2]);
        let (free, free_devices, labels) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        NodeView { node: node(), inventory, free, free_devices, labels }
    }

    fn gpus(units: u64) -> Demand {
        Demand::new([(ResourceName::GPU, Quantity::from_units(units))]).expect("a demand")
    }

    fn bytes(bytes: u64) -> Demand {
        Demand::new([(ResourceName::GPU_MEMORY, Quantity::from_units(bytes * 10_000))]).expect("a demand")
    }

    fn part(slot: u32, units: u64) -> ToldPart {
        let share = Quantity::from_units(units);
        ToldPart { resource: ResourceName::GPU, slot, share, size_bytes: 16 * GIB }
    }

    fn held(all: &[(Demand, &[ToldPart])]) -> HeldThere {
        let mut held = HeldThere::default();
        for (demand, parts) in all {
            held.add(node(), std::slice::from_ref(demand), parts);
        }
        held
    }

    #[test]
    fn what_is_left_of_several_devices_is_no_whole_one() {
        let apart = held(&[(gpus(5_000), &[part(0, 5_000)]), (gpus(5_000), &[part(1, 5_000)])]);
        let on_one = held(&[(gpus(5_000), &[part(0, 5_000)]), (gpus(5_000), &[part(0, 5_000)])]);
        let leaves = |held: &HeldThere, demand: Demand| held.leaves(&view(), &demand);
        assert_eq!((leaves(&apart, gpus(10_000)), leaves(&on_one, gpus(10_000))), (false, true));
        assert_eq!((leaves(&apart, gpus(5_000)), leaves(&apart, gpus(6_000))), (true, false));
        assert_eq!((leaves(&apart, bytes(8 * GIB)), leaves(&apart, bytes(9 * GIB))), (true, false));
        assert_eq!((apart.wholes(&view(), &ResourceName::GPU), on_one.wholes(&view(), &ResourceName::GPU)), (0, 1));
        let halves = [gpus(5_000), gpus(5_000), gpus(5_000)];
        let together = |count: usize| apart.may_leave(&view(), &halves.iter().take(count).collect::<Vec<_>>());
        assert_eq!((together(2), together(3)), (true, false));
    }

    #[test]
    fn memory_that_is_held_is_missing_on_its_device() {
        let held = held(&[(bytes(10 * GIB), &[part(0, 6_250)]), (bytes(10 * GIB), &[part(1, 6_250)])]);
        let leaves = |demand: Demand| held.leaves(&view(), &demand);
        assert!(leaves(bytes(6 * GIB)) && !leaves(bytes(6 * GIB + 1)), "12 GiB are left, and 6 of each");
        assert!(leaves(gpus(3_750)) && !leaves(gpus(3_751)));
        assert_eq!(held.left(&view(), &ResourceName::GPU_MEMORY), 12 * GIB * 10_000);
        assert_eq!(HeldThere::default().left(&view(), &ResourceName::GPU_MEMORY), 32 * GIB * 10_000);
        assert!(HeldThere::default().leaves(&view(), &bytes(16 * GIB)));
        assert!(!HeldThere::default().leaves(&view(), &bytes(17 * GIB)));
    }

    #[test]
    fn of_devices_that_are_not_all_told_of_the_sum_counts() {
        let not_told = held(&[(gpus(5_000), &[]), (gpus(5_000), &[part(0, 4_000)]), (bytes(16 * GIB), &[])]);
        assert!(not_told.leaves(&view(), &gpus(10_000)), "both may be on one device, and the memory on that too");
        assert!(!not_told.leaves(&view(), &gpus(20_000)));
        assert!(not_told.leaves(&view(), &bytes(16 * GIB)));
    }

    #[test]
    fn of_bundles_of_both_kinds_no_more_memory_counts_than_they_have() {
        let mut held = HeldThere::default();
        // One unit is 1.6 MiB; 3 GiB and one byte are 1,875 of them and some bytes.
        held.add(node(), &[gpus(5_000), bytes(3 * GIB + 1)], &[part(0, 6_876)]);
        assert!(held.leaves(&view(), &gpus(10_000)) && !held.leaves(&view(), &gpus(20_000)));
        let left_of_first = 16 * GIB - 11 * GIB - 1;
        held.add(node(), &[gpus(10_000)], &[part(1, 10_000)]);
        assert!(held.leaves(&view(), &bytes(left_of_first)) && !held.leaves(&view(), &bytes(6 * GIB)));
    }
}
