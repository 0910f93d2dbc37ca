//! What bundles give a request that names none, and that their ledger grants just that.

use std::collections::BTreeMap;

use oxiray_ids::BundleNumber;
use oxiray_resources::{BundleId, Demand, Grant, Ledger, Quantity, ResourceName};
use proptest::prelude::*;

use super::{demand, ledger, node};
use crate::{BundlePart, DrawnBundle, NodeView, draw};

/// A group whose bundles lie on machines, as a head sees it.
struct Drawn {
    ledgers: Vec<Ledger>,
    bundles: Vec<(usize, BundleId, Demand)>,
}

impl Drawn {
    /// Machines and the bundles on each.
    fn new(machines: &[(&str, &[&str])]) -> Self {
        let mut drawn = Self { ledgers: Vec::new(), bundles: Vec::new() };
        for (machine, (there, bundles)) in machines.iter().enumerate() {
            let mut ledger = ledger(there);
            let demands: Vec<Demand> = bundles.iter().map(|text| demand(text)).collect();
            let reserved = ledger.reserve(&demands).expect("there is room");
            drawn.bundles.extend(reserved.into_iter().zip(demands).map(|(bundle, demand)| (machine, bundle, demand)));
            drawn.ledgers.push(ledger);
        }
        drawn
    }

    fn view(&self, (machine, bundle, reserved): &(usize, BundleId, Demand)) -> NodeView {
        let ledger = &self.ledgers[*machine];
        let mut view = NodeView::new(node(*machine as u8), ledger, BTreeMap::new());
        view.free = ledger.available_within(*bundle).into_iter().filter(|(name, _)| !name.is_device()).collect();
        let devices = reserved.iter().map(|(name, _)| name).filter(|name| name.is_device());
        view.free_devices =
            devices.map(|name| (name.clone(), ledger.free_per_device_within(*bundle, name.as_str()))).collect();
        view
    }

    /// The machine and the parts, in words; what is drawn is granted.
    fn take(&mut self, asked: &Demand) -> Option<(String, Grant, usize)> {
        let views: Vec<NodeView> = self.bundles.iter().map(|bundle| self.view(bundle)).collect();
        let drawn = self.bundles.iter().zip(&views).enumerate();
        let drawn: Vec<DrawnBundle<'_>> = drawn
            .map(|(index, ((_, _, reserved), view))| DrawnBundle { number: BundleNumber::at(index), reserved, view })
            .collect();
        let (on, parts) = draw(&drawn, asked)?;
        let machine = parts.iter().map(|part| self.bundles[part.bundle.index()].0).next()?;
        assert_eq!(on, node(machine as u8));
        let text: Vec<String> =
            parts.iter().map(|BundlePart { bundle, demand }| format!("{} {demand}", bundle.index())).collect();
        let parts: Vec<(BundleId, Demand)> =
            parts.into_iter().map(|part| (self.bundles[part.bundle.index()].1, part.demand)).collect();
        let granted = self.ledgers[machine].grant_within(&parts).expect("what was drawn is free");
        assert_eq!(granted.demand(), asked, "the parts are all that was asked for");
        self.ledgers[machine].audit();
        Some((text.join(" + "), granted, machine))
    }

    fn takes(&mut self, asked: &str) -> String {
        self.take(&demand(asked)).map_or_else(
            || "nothing".to_owned(),
            |(text, grant, _)| {
                std::mem::forget(grant);
                text
            },
        )
    }
}

#[test]
fn what_needs_no_device_leaves_the_bundles_with_devices_to_others() {
    let mut drawn = Drawn::new(&[("CPU 3, GPU 1", &["CPU 1, GPU 1", "CPU 1", "CPU 1"])]);
    assert_eq!(drawn.takes("CPU 1"), "1 {CPU: 1}");
    assert_eq!(drawn.takes("CPU 1"), "2 {CPU: 1}");
    assert_eq!(drawn.takes("CPU 1, GPU 1"), "0 {CPU: 1, GPU: 1}");
    assert_eq!(drawn.takes("CPU 0.1"), "nothing");
}

#[test]
fn devices_weigh_more_than_how_many_resources_are_not_asked_for() {
    let mut drawn = Drawn::new(&[("CPU 2, GPU 1, a 1, b 1", &["CPU 1, GPU 1", "CPU 1, a 1, b 1"])]);
    assert_eq!(drawn.takes("CPU 1"), "1 {CPU: 1}");
}

#[test]
fn of_bundles_alike_the_tightest_gives() {
    let mut drawn = Drawn::new(&[("CPU 6, GPU 3", &["CPU 4, GPU 2", "CPU 2, GPU 1"])]);
    assert_eq!(drawn.takes("GPU 1"), "1 {GPU: 1}");
    assert_eq!(drawn.takes("CPU 2"), "1 {CPU: 2}");
}

#[test]
fn bundles_of_one_machine_give_together_what_none_has_alone() {
    let mut drawn = Drawn::new(&[("CPU 4, GPU 1", &["CPU 2, GPU 1", "CPU 2"])]);
    assert_eq!(drawn.takes("CPU 1.5"), "1 {CPU: 1.5}");
    assert_eq!(drawn.takes("CPU 1.5"), "0 {CPU: 1.5}");
    assert_eq!(drawn.takes("CPU 1"), "1 {CPU: 0.5} + 0 {CPU: 0.5}");
    assert_eq!(drawn.takes("CPU 0.1"), "nothing");
}

#[test]
fn bundles_of_several_machines_give_nothing_together() {
    let mut drawn = Drawn::new(&[("CPU 2", &["CPU 2"]), ("CPU 2", &["CPU 2"])]);
    assert_eq!(drawn.takes("CPU 1.5"), "0 {CPU: 1.5}");
    assert_eq!(drawn.takes("CPU 1.5"), "1 {CPU: 1.5}");
    assert_eq!(drawn.takes("CPU 1"), "nothing");
}

#[test]
fn whole_devices_come_out_of_several_bundles() {
    let mut drawn = Drawn::new(&[("GPU 4", &["GPU 2", "GPU 2"])]);
    for (machine, bundle, _) in drawn.bundles.clone() {
        std::mem::forget(drawn.ledgers[machine].grant_within(&[(bundle, demand("GPU 1"))]));
    }
    assert_eq!(drawn.takes("GPU 2"), "0 {GPU: 1} + 1 {GPU: 1}");
    assert_eq!(drawn.takes("GPU 0.1"), "nothing");
}

#[test]
fn whole_devices_whose_links_are_not_to_be_used_do_not_come_out_of_several_bundles() {
    let mut drawn = Drawn::new(&[("GPU 3", &["GPU 1", "GPU 1", "GPU 1"])]);
    drawn.ledgers[0].set_single("GPU", 0, true).unwrap();
    assert_eq!(drawn.takes("GPU 3"), "nothing");
    assert_eq!(drawn.takes("GPU 2"), "1 {GPU: 1} + 2 {GPU: 1}");
    assert_eq!(drawn.takes("GPU 1"), "0 {GPU: 1}");
}

#[test]
fn a_share_of_a_device_comes_out_of_one_bundle() {
    let mut drawn = Drawn::new(&[("GPU 2", &["GPU 1", "GPU 1"])]);
    assert_eq!(drawn.takes("GPU 0.5"), "0 {GPU: 0.5}");
    assert_eq!(drawn.takes("GPU 0.75"), "1 {GPU: 0.75}");
    assert_eq!(drawn.takes("GPU 0.6"), "nothing", "half of one device and a quarter of another are free");
}

fn asked() -> impl Strategy<Value = Demand> {
    let cpu = prop_oneof![Just(0_u64), Just(5_000), Just(10_000), Just(15_000)];
    let gpu = prop_oneof![Just(0_u64), Just(2_500), Just(5_000), Just(10_000), Just(20_000)];
    (cpu, gpu).prop_map(|(cpu, gpu)| {
        let amounts = [(ResourceName::CPU, cpu), (ResourceName::GPU, gpu)];
        Demand::new(amounts.map(|(name, units)| (name, Quantity::from_units(units)))).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_drawn_is_granted(
        events in prop::collection::vec(prop_oneof![asked().prop_map(Some), Just(None)], 1..40),
        single in prop::option::of(0..4_u32),
    ) {
        let first: &[&str] = &["CPU 1.5, GPU 2", "CPU 1, GPU 0.5", "CPU 1, GPU 0.5", "CPU 1"];
        let mut drawn = Drawn::new(&[("CPU 6, GPU 4", first), ("CPU 2, GPU 2", &["CPU 2, GPU 1", "GPU 1"])]);
        if let Some(device) = single {
            drawn.ledgers[0].set_single("GPU", device, true).unwrap();
        }
        let mut held = Vec::new();
        for event in events {
            match event.filter(|asked| !asked.is_nothing()) {
                Some(asked) => held.extend(drawn.take(&asked).map(|(_, grant, machine)| (grant, machine))),
                None if held.is_empty() => {}
                None => {
                    let (grant, machine) = held.remove(0);
                    drawn.ledgers[machine].release(grant);
                }
            }
        }
        for (grant, machine) in held {
            drawn.ledgers[machine].release(grant);
            drawn.ledgers[machine].audit();
        }
        if let Some(device) = single {
            drawn.ledgers[0].set_single("GPU", device, false).unwrap();
        }
        let free = drawn.bundles.iter().map(|bundle| drawn.view(bundle).fits(&bundle.2).is_ok());
        prop_assert!(free.into_iter().all(|is_free| is_free));
    }
}
