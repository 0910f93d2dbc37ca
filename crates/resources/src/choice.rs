//! Which devices a demand takes and by which rule, for people: what the ledger grants, said ahead or afterwards.

use crate::packing::FreeOrder;
use crate::{
    ChoiceRule, Demand, DeviceShare, DeviceShares, FreeDevices, Inventory, ResourceName, ResourceNeed, Topology,
};
use std::sync::Arc;

/// The devices of one resource that a demand takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceChoice {
    /// The resource.
    pub resource: ResourceName,
    /// Their numbers, in ascending order.
    pub devices: Vec<u32>,
    /// By which rule.
    pub rule: ChoiceRule,
}

impl Inventory {
    /// The devices that a demand takes of those that `free` says are free of each resource; `None` where too few are.
    pub fn choices(&self, demand: &Demand, free: impl Fn(&ResourceName) -> FreeDevices) -> Option<Vec<DeviceChoice>> {
        let asked = demand.iter().filter(|(name, amount)| name.source().is_device() && !amount.is_zero());
        let choice = |(name, amount)| {
            let resource: &ResourceName = ResourceName::source(name);
            let are_several = demand.asked_of(resource).is_of_several();
            self.choice(resource, &free(resource), ResourceNeed::of(name, amount), are_several)
        };
        asked.map(choice).collect()
    }

    fn choice(
        &self,
        resource: &ResourceName,
        free: &FreeDevices,
        asked: ResourceNeed,
        are_several: bool,
    ) -> Option<DeviceChoice> {
        let mut order = FreeOrder::default();
        for (device, room) in free.in_service() {
            order.insert(device, room);
        }
        // What is free may be a peer's word, as the topology is.
        let covers = |topology: &Arc<Topology>| free.in_service().all(|(device, _)| topology.has(device));
        let topology = self.topology(resource.as_str()).filter(covers);
        let (shares, rule) = choose(&order, topology.as_deref(), asked, are_several)?;
        Some(DeviceChoice::of(&DeviceShares { resource: resource.clone(), shares }, rule))
    }
}

impl DeviceChoice {
    /// These were taken by that rule.
    pub(crate) fn of(taken: &DeviceShares, rule: ChoiceRule) -> Self {
        let mut devices: Vec<u32> = taken.shares.iter().map(|share| share.device).collect();
        devices.sort_unstable();
        Self { resource: taken.resource.clone(), devices, rule }
    }
}

/// The devices that meet `asked` now, in ascending order, and by which rule they are taken; `are_several` where what is granted
/// has several devices, of which these may be a part.
pub(crate) fn choose(
    order: &FreeOrder,
    topology: Option<&Topology>,
    asked: ResourceNeed,
    are_several: bool,
) -> Option<(Vec<DeviceShare>, ChoiceRule)> {
    let (chosen, has_others) = order.choose(asked, are_several)?;
    let rule = match topology {
        _ if !has_others => ChoiceRule::Only,
        _ if !asked.is_of_wholes() => ChoiceRule::Fullest,
        None => ChoiceRule::Lowest,
        Some(topology) => {
            let free: Vec<u32> = order.wholly_free(are_several).collect();
            let nearest = topology.choose(&free, chosen.len());
            let rule = topology.rule(&nearest, &free);
            let part = |device| order.whole_part(device, asked).expect("it is wholly free");
            return Some((nearest.into_iter().map(part).collect(), rule));
        }
    };
    Some((chosen, rule))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ledger, Quantity, Room};

    /// Four GPUs on two NUMA nodes, of which 0-1 and 2-3 are linked.
    fn linked() -> Inventory {
        let numa = [Some(0), Some(0), Some(1), Some(1)];
        let topology = Topology::new(&numa, [((0, 1), 420), ((2, 3), 420)]).expect("some are nearer than others");
        let inventory = Inventory::new([(ResourceName::CPU, 8.0), (ResourceName::GPU, 4.0)]).expect("an inventory");
        inventory.with_topology(ResourceName::GPU, topology)
    }

    fn of_gpus(units: u64) -> Demand {
        Demand::new([(ResourceName::CPU, Quantity::ONE), (ResourceName::GPU, Quantity::from_units(units))])
            .expect("a demand")
    }

    fn said(ledger: &Ledger, demand: &Demand) -> Option<Vec<DeviceChoice>> {
        ledger.inventory().choices(demand, |resource| ledger.free_per_device(resource.as_str()))
    }

    #[test]
    fn what_is_said_ahead_is_what_the_ledger_grants() {
        let mut ledger = Ledger::new(linked());
        let pair = ChoiceRule::Nearest { numa_nodes: 1, farthest: 420, nearest: 420 };
        let cases = [
            (2_500, ChoiceRule::Fullest, vec![0]),
            (5_000, ChoiceRule::Fullest, vec![0]),
            (20_000, pair, vec![2, 3]),
            (10_000, ChoiceRule::Only, vec![1]),
            (2_500, ChoiceRule::Only, vec![0]),
        ];
        for (units, rule, devices) in cases {
            let demand = of_gpus(units);
            let told = said(&ledger, &demand).expect("there is room");
            let [told] = &told[..] else { panic!("one resource has devices: {told:?}") };
            assert_eq!((told.rule, &told.devices), (rule, &devices), "{units}");
            let (grant, chosen) = ledger.grant_with_choices(&demand).expect("there is room");
            assert_eq!(chosen, std::slice::from_ref(told), "{units}: it is told as it was said");
            let granted: Vec<u32> = grant.devices_of("GPU").iter().map(|share| share.device).collect();
            assert_eq!(granted, devices, "{units}");
        }
        assert_eq!(said(&ledger, &of_gpus(2_500)), None);
        assert_eq!(said(&ledger, &Demand::nothing()), Some(Vec::new()));
    }

    #[test]
    fn devices_of_which_nothing_is_known_are_taken_by_their_numbers() {
        let free: FreeDevices = (0..200).map(|_| Some(Room::whole(0))).collect();
        let told = linked().choices(&of_gpus(20_000), |_| free.clone()).expect("there is room");
        assert_eq!((told[0].rule, &told[0].devices[..]), (ChoiceRule::Lowest, &[0, 1][..]));
    }

    #[test]
    fn a_single_device_is_said_to_be_taken_apart_from_pairs_or_lowest() {
        let mut ledger = Ledger::new(linked());
        let rule = |ledger: &Ledger| said(ledger, &of_gpus(10_000)).expect("there is room")[0].rule;
        assert_eq!(rule(&ledger), ChoiceRule::Apart);
        let first = ledger.grant(&of_gpus(10_000)).expect("there is room");
        let told = said(&ledger, &of_gpus(10_000)).expect("there is room");
        assert_eq!((told[0].rule, &told[0].devices[..]), (ChoiceRule::Apart, &[1][..]), "2 and 3 stay together");
        ledger.release(first);
        let without = Inventory::new([(ResourceName::CPU, 8.0), (ResourceName::GPU, 4.0)]).expect("an inventory");
        assert_eq!(rule(&Ledger::new(without)), ChoiceRule::Lowest);
    }
}
