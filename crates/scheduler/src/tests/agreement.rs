//! A fresh view says what its ledger says, whatever was granted before.

use std::collections::BTreeMap;

use oxiray_resources::{Demand, Grant, Never, Quantity, ResourceName, Shortage};
use proptest::prelude::*;

use super::{ledger, node};
use crate::{Near, NodeView, Obstacle, Placement, place};

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_fresh_view_agrees_with_its_ledger(
        asked in prop::collection::vec((0..=50_000_u64, prop_oneof![0..=10_000_u64, (1..=4_u64).prop_map(|n| n * 10_000)]), 1..20),
        out_of_service in prop::option::of(0..3_u32),
    ) {
        let mut ledger = ledger("CPU 4, GPU 3");
        if let Some(device) = out_of_service {
            ledger.quarantine("GPU", device, "test").unwrap();
        }
        let mut held: Vec<Grant> = Vec::new();
        for (cpu, gpu) in asked {
            let amounts = [(ResourceName::CPU, cpu), (ResourceName::GPU, gpu)];
            let demand = Demand::new(amounts.map(|(name, units)| (name, Quantity::from_units(units)))).unwrap();
            let placement = place(&[NodeView::new(node(1), &ledger, BTreeMap::new())], &demand.clone().into(), &Near::default(), 0);
            match (ledger.grant(&demand), placement) {
                (Ok(grant), placement) => {
                    prop_assert_eq!(placement, Placement::On(node(1)));
                    held.push(grant);
                }
                (Err(Shortage::Busy(busy)), Placement::Wait(reason)) => {
                    prop_assert_eq!(reason.obstacle, Obstacle::Busy(busy));
                }
                (Err(Shortage::Never(never)), Placement::Never(reason)) => {
                    let Never { resource, asked, total: largest } = never;
                    prop_assert_eq!(reason.obstacle, Obstacle::TooLarge { resource, asked, largest });
                }
                (granted, placement) => prop_assert!(false, "{granted:?} but {placement:?}"),
            }
        }
    }
}
