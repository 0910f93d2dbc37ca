//! Bundles: reserved together, granted from, dissolved at any moment.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{demand, ledger, quantity, show};
use crate::{BundleId, Demand, DeviceShare, Grant, Ledger, Quantity, ResourceName};

fn reserve(ledger: &mut Ledger, bundles: &[&str]) -> Vec<BundleId> {
    let demands: Vec<Demand> = bundles.iter().map(|text| demand(text)).collect();
    ledger.reserve(&demands).expect("there is room")
}

fn text(amounts: &BTreeMap<ResourceName, Quantity>) -> String {
    show(amounts.iter().map(|(name, amount)| (name, *amount)))
}

fn devices(grant: &Grant) -> Vec<u32> {
    grant.devices_of("GPU").iter().map(|share| share.device).collect()
}

#[test]
fn a_bundle_grants_exactly_its_own_devices() {
    let mut ledger = ledger("CPU 4, GPU 4");
    let taken = ledger.grant(&demand("GPU 1")).unwrap();
    let bundles = reserve(&mut ledger, &["CPU 1, GPU 2", "GPU 1"]);
    assert_eq!(devices(ledger.reserved(bundles[0])), [1, 2]);
    assert_eq!(devices(ledger.reserved(bundles[1])), [3]);
    assert_eq!(text(&ledger.available()), "CPU 3");
    let half = ledger.grant_within(&[(bundles[0], demand("GPU 0.5"))]).unwrap();
    let other = ledger.grant_within(&[(bundles[0], demand("GPU 0.5"))]).unwrap();
    assert_eq!((devices(&half), devices(&other)), (vec![1], vec![1]), "shares pack within the bundle");
    let whole = ledger.grant_within(&[(bundles[0], demand("CPU 1, GPU 1"))]).unwrap();
    assert_eq!(devices(&whole), [2]);
    assert!(ledger.grant_within(&[(bundles[0], demand("GPU 0.1"))]).is_none());
    assert!(ledger.grant_within(&[(bundles[1], demand("CPU 1"))]).is_none(), "it has none");
    for grant in [half, other, whole, taken] {
        ledger.release(grant);
        ledger.audit();
    }
    for bundle in bundles {
        ledger.dissolve(bundle);
    }
    assert_eq!(ledger.available(), ledger.totals());
}

#[test]
fn a_bundle_with_a_share_is_a_bounded_part_of_one_device() {
    let mut ledger = ledger("GPU 2");
    let bundle = reserve(&mut ledger, &["GPU 0.5"])[0];
    assert!(ledger.grant_within(&[(bundle, demand("GPU 0.6"))]).is_none());
    let held = ledger.grant_within(&[(bundle, demand("GPU 0.3"))]).unwrap();
    assert!(ledger.grant_within(&[(bundle, demand("GPU 0.3"))]).is_none(), "0.2 of it are left");
    let outside = ledger.grant(&demand("GPU 0.5")).unwrap();
    assert_eq!(devices(&outside), [0], "the rest of the device is the machine's");
    let shares: Vec<_> = ledger.holders("GPU", 0).into_iter().map(|(_, share)| share).collect();
    assert_eq!(shares, [quantity(0.3), quantity(0.5), quantity(0.2)], "who holds it, then what the bundle has left");
    ledger.release(outside);
    ledger.release(held);
}

#[test]
fn bundles_are_reserved_together_or_not_at_all() {
    let mut ledger = ledger("CPU 2, GPU 2");
    assert!(ledger.reserve(&[demand("CPU 1, GPU 1"), demand("CPU 2")]).is_none());
    assert!(ledger.reserve(&[demand("GPU 1"), demand("GPU 2")]).is_none());
    assert!(ledger.reserve(&[demand("disk 1")]).is_none());
    assert_eq!(ledger.available(), ledger.totals());
    let packed = reserve(&mut ledger, &["GPU 0.4", "GPU 0.4", "GPU 0.6", "GPU 0.6"]);
    let on: Vec<_> = packed.iter().map(|bundle| devices(ledger.reserved(*bundle))[0]).collect();
    assert_eq!((on[0] == on[1], on[2] == on[3]), (false, false), "one by one, the last would find no room: {on:?}");
}

#[test]
fn a_dissolved_bundle_leaves_each_share_to_who_holds_it() {
    let mut ledger = ledger("CPU 4, GPU 3");
    let bundle = reserve(&mut ledger, &["CPU 2, GPU 3"])[0];
    let mut held = ledger.grant_within(&[(bundle, demand("CPU 1, GPU 1"))]).unwrap();
    ledger.lend_cpu(&mut held);
    ledger.dissolve(bundle);
    ledger.audit();
    assert_eq!(text(&ledger.available()), "CPU 4, GPU 2", "its CPU is lent still");
    ledger.restore_cpu(&mut held);
    assert_eq!(text(&ledger.available()), "CPU 3, GPU 2");
    let others = ledger.grant(&demand("GPU 2")).unwrap();
    assert_eq!(devices(&others), [1, 2]);
    ledger.release(held);
    ledger.release(others);
    assert_eq!(ledger.available(), ledger.totals());
}

#[test]
fn bundles_that_changed_are_told_once() {
    let mut ledger = ledger("CPU 4, GPU 2");
    let told = |bundles: &[BundleId]| bundles.iter().copied().collect::<BTreeSet<_>>();
    let [first, second] = reserve(&mut ledger, &["CPU 1, GPU 1", "CPU 1, GPU 1"])[..] else { panic!("two") };
    assert_eq!(ledger.take_changed_bundles(), told(&[first, second]));
    assert!(ledger.take_changed_bundles().is_empty());

    let of_machine = ledger.grant(&demand("CPU 1")).unwrap();
    assert!(ledger.take_changed_bundles().is_empty(), "the machine's own changes are none of theirs");
    let mut held = ledger.grant_within(&[(second, demand("CPU 1"))]).unwrap();
    assert_eq!(ledger.take_changed_bundles(), told(&[second]));
    ledger.lend_cpu(&mut held);
    assert_eq!(ledger.take_changed_bundles(), told(&[second]));
    ledger.release(held);
    assert_eq!(ledger.take_changed_bundles(), told(&[second]));
    let of_first = devices(ledger.reserved(first))[0];
    ledger.quarantine("GPU", of_first, "it is broken").unwrap();
    assert_eq!(ledger.take_changed_bundles(), told(&[first]));
    ledger.restore_device("GPU", of_first).unwrap();
    ledger.dissolve(first);
    assert!(ledger.take_changed_bundles().is_empty(), "it is no more");
    ledger.release(of_machine);
}

#[test]
fn cpus_are_lent_within_the_bundle() {
    let mut ledger = ledger("CPU 2");
    let bundle = reserve(&mut ledger, &["CPU 1"])[0];
    let mut blocked = ledger.grant_within(&[(bundle, demand("CPU 1"))]).unwrap();
    ledger.lend_cpu(&mut blocked);
    assert_eq!(text(&ledger.available()), "CPU 1", "the machine has nothing of it");
    let child = ledger.grant_within(&[(bundle, demand("CPU 1"))]).unwrap();
    ledger.restore_cpu(&mut blocked);
    assert!(ledger.available_within(bundle).is_empty());
    ledger.dissolve(bundle);
    ledger.audit();
    assert!(ledger.available().is_empty(), "two run on what was reserved for one");
    ledger.release(child);
    ledger.release(blocked);
    assert_eq!(ledger.available(), ledger.totals());
}

#[test]
fn a_device_out_of_service_is_not_granted_within_a_bundle() {
    let mut ledger = ledger("GPU 2");
    let bundle = reserve(&mut ledger, &["GPU 2"])[0];
    ledger.quarantine("GPU", 0, "stuck").unwrap();
    let held = ledger.grant_within(&[(bundle, demand("GPU 1"))]).unwrap();
    assert_eq!(devices(&held), [1]);
    assert!(ledger.grant_within(&[(bundle, demand("GPU 0.5"))]).is_none(), "LEDGER-5");
    ledger.dissolve(bundle);
    assert!(ledger.reserve(&[demand("GPU 1")]).is_none());
    ledger.restore_device("GPU", 0).unwrap();
    let again = reserve(&mut ledger, &["GPU 1"])[0];
    assert_eq!(devices(ledger.reserved(again)), [0]);
    ledger.release(held);
}

#[test]
fn a_grant_is_divided_where_it_is_booked() {
    let mut ledger = ledger("CPU 4, GPU 2");
    let bundle = reserve(&mut ledger, &["CPU 2, GPU 1"])[0];
    let granted = ledger.grant_within(&[(bundle, demand("CPU 2, GPU 1"))]).unwrap();
    let (running, beyond) = ledger.divide(granted, &demand("GPU 1"));
    assert_eq!((show(running.demand().iter()), show(beyond.demand().iter())), ("GPU 1".into(), "CPU 2".into()));
    ledger.release(beyond);
    assert_eq!(text(&ledger.available_within(bundle)), "CPU 2");
    assert_eq!(text(&ledger.available()), "CPU 2, GPU 1");
    ledger.release(running);
}

#[test]
fn a_grant_may_have_parts_in_several_bundles() {
    let mut ledger = ledger("CPU 4, GPU 2");
    let bundles = reserve(&mut ledger, &["CPU 2, GPU 1", "CPU 2, GPU 1"]);
    let parts = |cpus: [&str; 2]| [(bundles[0], demand(cpus[0])), (bundles[1], demand(cpus[1]))];
    let mut held = ledger.grant_within(&parts(["CPU 1.5, GPU 1", "CPU 0.5, GPU 1"])).unwrap();
    assert_eq!((show(held.demand().iter()), devices(&held)), ("CPU 2, GPU 2".into(), vec![0, 1]));
    assert_eq!(text(&ledger.available_within(bundles[0])), "CPU 0.5");
    assert_eq!(text(&ledger.available_within(bundles[1])), "CPU 1.5");
    assert!(ledger.grant_within(&parts(["CPU 0.5", "CPU 2"])).is_none(), "LEDGER-4");
    assert_eq!(text(&ledger.available_within(bundles[0])), "CPU 0.5");
    ledger.lend_cpu(&mut held);
    assert_eq!(text(&ledger.available_within(bundles[0])), "CPU 2");
    ledger.restore_cpu(&mut held);
    ledger.dissolve(bundles[0]);
    assert_eq!(text(&ledger.available()), "CPU 0.5");
    ledger.dissolve(bundles[1]);
    assert_eq!(text(&ledger.available()), "CPU 2");
    ledger.audit();
    ledger.release(held);
    assert_eq!(ledger.available(), ledger.totals());
}

#[test]
fn no_two_parts_of_a_grant_are_shares_of_one_device() {
    let mut ledger = ledger("GPU 1");
    let bundles = reserve(&mut ledger, &["GPU 0.5", "GPU 0.5"]);
    assert!(ledger.grant_within(&[(bundles[0], demand("GPU 0.5")), (bundles[1], demand("GPU 0.5"))]).is_none());
    ledger.audit();
}

#[test]
fn a_grant_is_divided_although_its_device_went_out_of_service() {
    let mut ledger = ledger("CPU 1, GPU 1");
    let granted = ledger.grant(&demand("CPU 1, GPU 1")).unwrap();
    ledger.quarantine("GPU", 0, "test").unwrap();
    let (running, beyond) = ledger.divide(granted, &demand("GPU 0.5"));
    assert_eq!(
        (show(running.demand().iter()), show(beyond.demand().iter())),
        ("GPU 0.5".into(), "CPU 1, GPU 0.5".into())
    );
    ledger.release(beyond);
    ledger.release(running);
    ledger.audit();
}

#[test]
fn a_grant_is_divided_although_the_processors_are_overdrawn() {
    let mut ledger = ledger("CPU 2");
    let mut blocked = ledger.grant(&demand("CPU 2")).unwrap();
    ledger.lend_cpu(&mut blocked);
    let granted = ledger.grant(&demand("CPU 2")).unwrap();
    ledger.restore_cpu(&mut blocked);
    let (running, beyond) = ledger.divide(granted, &demand("CPU 1"));
    assert_eq!((show(running.demand().iter()), show(beyond.demand().iter())), ("CPU 1".into(), "CPU 1".into()));
    for grant in [running, beyond, blocked] {
        ledger.release(grant);
        ledger.audit();
    }
    assert_eq!(ledger.available(), ledger.totals());
}

#[test]
#[should_panic(expected = "LEDGER-6")]
fn a_bundle_is_dissolved_once() {
    let mut ledger = ledger("CPU 1");
    let bundle = reserve(&mut ledger, &["CPU 1"])[0];
    ledger.dissolve(bundle);
    ledger.dissolve(bundle);
}

fn units() -> impl Strategy<Value = Quantity> {
    prop_oneof![
        4 => prop_oneof![Just(2_500), Just(4_000), Just(5_000), Just(6_000), 0..=9_999_u64],
        1 => (1..=2_u64).prop_map(|count| count * 10_000),
    ]
    .prop_map(Quantity::from_units)
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Reserve(u64, Quantity, Quantity),
    Grant(u64, Quantity),
    Within(prop::sample::Index, u64, Quantity),
    Across([prop::sample::Index; 2], u64, Quantity),
    Divide(prop::sample::Index, u64),
    Release(prop::sample::Index),
    Lend(prop::sample::Index),
    Restore(prop::sample::Index),
    Dissolve(prop::sample::Index),
    Quarantine(u32),
    RestoreDevice(u32),
}

fn event() -> impl Strategy<Value = Event> {
    let index = any::<prop::sample::Index>;
    let cpu = || prop_oneof![Just(0), Just(5_000), Just(10_000)];
    prop_oneof![
        3 => (cpu(), units(), units()).prop_map(|(cpu, one, two)| Event::Reserve(cpu, one, two)),
        2 => (cpu(), units()).prop_map(|(cpu, gpu)| Event::Grant(cpu, gpu)),
        6 => (index(), cpu(), units()).prop_map(|(which, cpu, gpu)| Event::Within(which, cpu, gpu)),
        6 => ([index(), index()], cpu(), units()).prop_map(|(which, cpu, gpu)| Event::Across(which, cpu, gpu)),
        2 => (index(), cpu()).prop_map(|(which, cpu)| Event::Divide(which, cpu)),
        4 => index().prop_map(Event::Release),
        2 => index().prop_map(Event::Lend),
        2 => index().prop_map(Event::Restore),
        2 => index().prop_map(Event::Dissolve),
        1 => (0..3_u32).prop_map(Event::Quarantine),
        1 => (0..3_u32).prop_map(Event::RestoreDevice),
    ]
}

fn asked(cpu: u64, gpu: Quantity) -> Demand {
    demand("").with(ResourceName::CPU, Quantity::from_units(cpu)).unwrap().with(ResourceName::GPU, gpu).unwrap()
}

/// The devices granted within the bundle are the bundle's.
fn check_within(ledger: &Ledger, bundle: BundleId, grant: &Grant) {
    let own = ledger.reserved(bundle).devices_of("GPU");
    for DeviceShare { device, share, .. } in grant.devices_of("GPU") {
        assert!(own.iter().any(|of| of.device == *device && of.share >= *share), "a device of the bundle");
    }
}

fn tell(ledger: &mut Ledger, grants: &mut Vec<Grant>, bundles: &mut Vec<BundleId>, event: Event) {
    match event {
        Event::Reserve(cpu, one, two) => {
            let before = ledger.available();
            match ledger.reserve(&[asked(cpu, one), asked(0, two)]) {
                Some(reserved) => bundles.extend(reserved),
                None => assert_eq!(ledger.available(), before, "LEDGER-4"),
            }
        }
        Event::Grant(cpu, gpu) => grants.extend(ledger.grant(&asked(cpu, gpu))),
        Event::Within(which, cpu, gpu) if !bundles.is_empty() => {
            let bundle = *which.get(bundles);
            if let Some(grant) = ledger.grant_within(&[(bundle, asked(cpu, gpu))]) {
                check_within(ledger, bundle, &grant);
                grants.push(grant);
            }
        }
        Event::Across(which, cpu, gpu) => {
            let which = which.map(|which| (!bundles.is_empty()).then(|| *which.get(bundles)));
            let [Some(one), Some(two)] = which else { return };
            if one != two {
                let (here, there) = (asked(cpu, gpu), asked(5_000, Quantity::ONE.min(gpu)));
                grants.extend(ledger.grant_within(&[(one, here), (two, there)]));
            }
        }
        Event::Divide(which, cpu) if !grants.is_empty() => {
            let grant = grants.swap_remove(which.index(grants.len()));
            if grant.cpu_is_lent() {
                return grants.push(grant);
            }
            let wanted = grant.demand().common(&asked(cpu, Quantity::ONE));
            let devices: BTreeSet<u32> = devices(&grant).into_iter().collect();
            let (first, second) = ledger.divide(grant, &wanted);
            let divided = [&first, &second].into_iter().flat_map(self::devices).collect::<BTreeSet<u32>>();
            assert_eq!(divided, devices, "nothing else is held by the two");
            grants.extend([first, second]);
        }
        Event::Release(which) if !grants.is_empty() => {
            ledger.release(grants.swap_remove(which.index(grants.len())));
        }
        Event::Lend(which) if !grants.is_empty() => ledger.lend_cpu(which.get_mut(grants)),
        Event::Restore(which) if !grants.is_empty() => ledger.restore_cpu(which.get_mut(grants)),
        Event::Dissolve(which) if !bundles.is_empty() => {
            ledger.dissolve(bundles.swap_remove(which.index(bundles.len())));
        }
        Event::Quarantine(device) => ledger.quarantine("GPU", device, "test").unwrap(),
        Event::RestoreDevice(device) => ledger.restore_device("GPU", device).unwrap(),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_comes_back_whatever_is_dissolved_when(events in prop::collection::vec(event(), 1..100)) {
        let mut ledger = ledger("CPU 3, GPU 3");
        let (mut grants, mut bundles) = (Vec::new(), Vec::new());
        for event in events {
            tell(&mut ledger, &mut grants, &mut bundles, event);
            ledger.audit();
        }
        (0..3).for_each(|device| ledger.restore_device("GPU", device).unwrap());
        for bundle in bundles {
            ledger.dissolve(bundle);
        }
        for grant in grants {
            ledger.release(grant);
        }
        ledger.audit();
        prop_assert_eq!(ledger.available(), ledger.totals());
        prop_assert_eq!(ledger.open().count(), 0);
        prop_assert_eq!(text(&ledger.totals()), "CPU 3, GPU 3");
    }
}
