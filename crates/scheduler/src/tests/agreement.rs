//! A fresh view says what its ledger says, whatever was granted before.

use std::collections::BTreeMap;

use oxiray_resources::{Demand, Grant, Inventory, Ledger, Never, Quantity, ResourceName, Shortage};
use proptest::prelude::*;

use super::node;
use crate::{Fleet, Found, Near, NodeView, Obstacle, Placement, place};

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_fresh_view_agrees_with_its_ledger(
        asked in prop::collection::vec(
            (
                0..=50_000_u64,
                prop_oneof![0..=10_000_u64, (1..=4_u64).prop_map(|n| n * 10_000)],
                prop_oneof![2 => Just(0), 1 => 1..=20_000_u64],
            ),
            1..20,
        ),
        out_of_service in prop::option::of(0..3_u32),
        single in prop::option::of(0..3_u32),
    ) {
        let inventory = Inventory::new([(ResourceName::CPU, 4.0), (ResourceName::GPU, 3.0)]).unwrap();
        let mut ledger = Ledger::new(inventory.with_device_memory(ResourceName::GPU, vec![8_000, 16_000, 16_001]));
        if let Some(device) = out_of_service {
            ledger.quarantine("GPU", device, "test").unwrap();
        }
        if let Some(device) = single {
            ledger.set_single("GPU", device, true).unwrap();
        }
        let mut held: Vec<Grant> = Vec::new();
        for (cpu, gpu, memory) in asked {
            let (gpu, memory) = if memory > 0 { (0, memory * Quantity::UNITS_PER_WHOLE) } else { (gpu, 0) };
            let amounts =
                [(ResourceName::CPU, cpu), (ResourceName::GPU, gpu), (ResourceName::GPU_MEMORY, memory)];
            let demand = Demand::new(amounts.map(|(name, units)| (name, Quantity::from_units(units)))).unwrap();
            let mut view = NodeView::new(node(1), &ledger, BTreeMap::new());
            let placement = place(&[view.clone()], &demand.clone().into(), &Near::default(), 0);
            let mut fleet = Fleet::default();
            fleet.put(&view);
            let found = fleet.find(&demand.clone().into(), &Near::default());
            let granted = ledger.grant(&demand);
            prop_assert_eq!(view.take(&demand), granted.is_ok());
            prop_assert_eq!(fleet.take(node(1), &demand), granted.is_ok());
            let after = NodeView::new(node(1), &ledger, BTreeMap::new());
            prop_assert_eq!(&view.free_devices, &after.free_devices, "a view books as the ledger does");
            prop_assert_eq!(&fleet.views()[0].free_devices, &after.free_devices, "so does the fleet");
            match (granted, placement) {
                (Ok(grant), placement) => {
                    prop_assert_eq!(placement, Placement::On(node(1)));
                    prop_assert_eq!(found, Found::On(node(1)));
                    held.push(grant);
                }
                (Err(Shortage::Busy(busy)), Placement::Wait(reason)) => {
                    prop_assert_eq!(found, Found::Busy);
                    prop_assert_eq!(reason.obstacle, Obstacle::Busy(busy));
                }
                (Err(Shortage::Never(never)), Placement::Never(reason)) => {
                    prop_assert_eq!(found, Found::Never);
                    let Never { resource, asked, total: largest } = never;
                    prop_assert_eq!(reason.obstacle, Obstacle::TooLarge { resource, asked, largest });
                }
                (granted, placement) => prop_assert!(false, "{granted:?} but {placement:?}"),
            }
        }
    }
}
