//! Which devices are taken, in both dimensions: against all ways there are, against the ledger, and against each other.

use proptest::prelude::*;

use super::demand;
use crate::packing::FreeOrder;
use crate::{Capacity, Demand, DeviceShare, FreeDevices, Grant, Inventory, Ledger, Quantity, ResourceName};

const GIB: u64 = 1 << 30;

fn capacity(units: u64, gibs: u64) -> Capacity {
    Capacity { share: Quantity::from_units(units), memory_bytes: gibs * GIB }
}

/// What one device has free: wholly free, or a part of it, with memory or without.
fn free() -> impl Strategy<Value = Capacity> {
    let share = prop_oneof![2 => Just(10_000), 1 => Just(6_000), 1 => Just(2_500), 1 => 0..=9_999_u64];
    (share, 0..4_u64).prop_map(|(units, gibs)| capacity(units, gibs * 4))
}

/// What is asked for: whole devices or a share, with memory or without.
fn asked() -> impl Strategy<Value = Capacity> {
    let share = prop_oneof![
        4 => prop_oneof![Just(2_500), Just(4_000), Just(5_000), Just(6_000), 1..=9_999_u64],
        2 => (1..=2_u64).prop_map(|count| count * 10_000),
    ];
    let memory = prop_oneof![2 => Just(0), 1 => 1..=8_u64];
    (share, memory).prop_map(|(units, gibs)| capacity(units, gibs))
}

fn devices(free: &[Option<Capacity>]) -> FreeDevices {
    free.iter().copied().collect()
}

/// Whether there is a way at all: every device is tried for everything that is asked of one.
fn could(free: &mut [Capacity], asked: &[Capacity]) -> bool {
    let Some((first, others)) = asked.split_first() else { return true };
    let one = Capacity { share: first.share.min(Quantity::ONE), ..*first };
    let rest: Vec<Capacity> = match first.share.wholes() {
        0 | 1 => others.to_vec(),
        count => std::iter::once(Capacity { share: Quantity::whole(count as u32 - 1), ..*first })
            .chain(others.to_vec())
            .collect(),
    };
    (0..free.len()).any(|device| {
        let before = free[device];
        if !before.covers(one) {
            return false;
        }
        let is_whole = one.share == Quantity::ONE;
        free[device] = if is_whole { Capacity::default() } else { before.checked_sub(one).unwrap() };
        let fits = could(free, &rest);
        free[device] = before;
        fits
    })
}

fn text(demand: &Demand) -> String {
    demand.to_string()
}

#[test]
fn memory_is_asked_of_devices_that_are_asked_for() {
    let half = demand("CPU 1, GPU 0.5");
    let more = half.with_memory(&ResourceName::GPU, 8).unwrap();
    assert_eq!(text(&more), "{CPU: 1, GPU: 0.5 with 8 bytes each}");
    assert_eq!(
        (more.capacity("GPU"), half.capacity("GPU")),
        (Capacity { memory_bytes: 8, ..half.capacity("GPU") }, Quantity::from_units(5_000).into())
    );
    assert_ne!(more, half);
    assert_eq!(text(&more.with(ResourceName::CPU, Quantity::ZERO).unwrap()), "{GPU: 0.5 with 8 bytes each}");
    assert_eq!(text(&more.without(&demand("CPU 1, GPU 0.2"))), "{GPU: 0.3}", "the other part has the memory");
    assert_eq!(text(&more.without(&demand("CPU 1"))), "{GPU: 0.5 with 8 bytes each}");
    assert!(
        half.with_memory(&ResourceName::CPU, 8).is_err() && demand("CPU 1").with_memory(&ResourceName::GPU, 8).is_err()
    );
}

#[test]
fn what_a_machine_has_not_is_never_granted_and_what_it_lacks_now_is_waited_for() {
    let inventory = Inventory::new([(ResourceName::GPU, 3.0)]).unwrap();
    let inventory = inventory.with_device_memory(ResourceName::GPU, vec![8 * GIB, 16 * GIB]);
    let mut ledger = Ledger::new(inventory);
    let asked =
        |shares: &str, gibs: u64| demand(&format!("GPU {shares}")).with_memory(&ResourceName::GPU, gibs * GIB).unwrap();
    assert!(ledger.could_ever(&asked("0.5", 17)).is_err(), "no device has so much");
    assert!(ledger.could_ever(&asked("2", 8)).is_ok() && ledger.could_ever(&asked("2", 9)).is_err());
    let first = ledger.grant(&asked("0.25", 10)).unwrap();
    assert_eq!(first.devices_of("GPU")[0].device, 1, "the lowest with enough memory");
    let busy = ledger.grant(&asked("0.25", 10)).unwrap_err();
    assert_eq!(busy.to_string(), "0.25 of one GPU asked for, the freest of 3 has 0 left");
    let whole = ledger.grant(&asked("1", 1)).unwrap();
    assert_eq!(whole.devices_of("GPU"), [DeviceShare { device: 0, share: Quantity::ONE, memory_bytes: 8 * GIB }]);
    let unasked = ledger.grant(&demand("GPU 1")).unwrap();
    assert_eq!(unasked.devices_of("GPU")[0].device, 2, "of which nobody knows the memory");
    ledger.audit();
    for grant in [first, whole, unasked] {
        ledger.release(grant);
    }
    ledger.audit();
}

#[test]
fn a_bundle_has_the_memory_that_it_was_given() {
    let inventory = Inventory::new([(ResourceName::GPU, 2.0)]).unwrap();
    let mut ledger = Ledger::new(inventory.with_device_memory(ResourceName::GPU, vec![8 * GIB, 8 * GIB]));
    let asked =
        |shares: &str, gibs: u64| demand(&format!("GPU {shares}")).with_memory(&ResourceName::GPU, gibs * GIB).unwrap();
    let bundles = ledger.reserve(&[asked("0.5", 6), demand("GPU 1")]).unwrap();
    assert_eq!(ledger.reserve(&[asked("0.5", 4)]), None, "2 GiB are left of the first device");
    assert!(ledger.grant_within(&[(bundles[0], asked("0.25", 7))]).is_none());
    let within = ledger.grant_within(&[(bundles[0], asked("0.25", 4))]).unwrap();
    assert!(ledger.grant_within(&[(bundles[0], asked("0.25", 4))]).is_none());
    let of_whole = ledger.grant_within(&[(bundles[1], asked("0.25", 8))]).unwrap();
    for bundle in bundles {
        ledger.dissolve(bundle);
    }
    ledger.audit();
    assert!(ledger.grant(&asked("0.5", 5)).is_err(), "4 GiB of each device at most are free");
    for grant in [within, of_whole] {
        ledger.release(grant);
    }
    ledger.audit();
    assert_eq!(ledger.available(), ledger.totals());
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Grant(Capacity),
    Release(prop::sample::Index),
    Reserve(Capacity, Capacity),
    Dissolve(prop::sample::Index),
    Quarantine(u32),
    Restore(u32),
}

fn event() -> impl Strategy<Value = Event> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => asked().prop_map(Event::Grant),
        4 => index().prop_map(Event::Release),
        2 => (asked(), asked()).prop_map(|(one, two)| Event::Reserve(one, two)),
        2 => index().prop_map(Event::Dissolve),
        1 => (0..3_u32).prop_map(Event::Quarantine),
        1 => (0..3_u32).prop_map(Event::Restore),
    ]
}

fn demand_of(asked: Capacity) -> Demand {
    let shares = Demand::new([(ResourceName::GPU, asked.share)]).unwrap();
    shares.with_memory(&ResourceName::GPU, asked.memory_bytes).unwrap()
}

/// What the plain list chooses is what the ledger granted.
fn check_grant(before: &FreeDevices, asked: Capacity, granted: Option<&Grant>, after: &FreeDevices) {
    let mut taken = before.clone();
    assert_eq!(taken.take(asked), granted.is_some(), "{before:?} {asked:?}");
    assert_eq!(&taken, after, "{before:?} {asked:?}");
    let Some(grant) = granted else { return };
    let shares = grant.devices_of("GPU");
    assert!(shares.iter().all(|share| share.memory_bytes >= asked.memory_bytes), "{grant:?}");
    let order: Vec<u32> = shares.iter().map(|share| share.device).collect();
    assert!(order.is_sorted(), "{order:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_packing_is_found_where_there_is_one(
        free in prop::collection::vec(free(), 0..4),
        asked in prop::collection::vec(asked(), 0..6),
    ) {
        let mut left = free.clone();
        match devices(&free.iter().copied().map(Some).collect::<Vec<_>>()).pack(&asked) {
            Ok(packed) => {
                for (shares, amount) in packed.iter().zip(&asked) {
                    let sum: u64 = shares.iter().map(|of| of.share.units()).sum();
                    prop_assert_eq!(sum, amount.share.units());
                    prop_assert!(amount.share.is_whole() || shares.len() == 1, "a share never spans two devices");
                    for share in shares {
                        prop_assert!(share.memory_bytes >= amount.memory_bytes);
                        let left = &mut left[share.device as usize];
                        *left = left.checked_sub(share.capacity()).expect("no device gives more than it has");
                    }
                }
            }
            Err(none) => {
                prop_assert!(none.is_proven);
                prop_assert!(!could(&mut left, &asked), "there is a way");
            }
        }
    }

    #[test]
    fn the_list_and_the_order_agree(
        free in prop::collection::vec(prop::option::weighted(0.8, free()), 0..6),
        asked in prop::collection::vec(asked(), 1..8),
    ) {
        let mut list = devices(&free);
        for asked in asked {
            let mut order = FreeOrder::default();
            list.in_service().for_each(|(device, free)| order.insert(device, free));
            prop_assert_eq!(list.obtainable(asked), order.obtainable(asked));
            let before = list.clone();
            match order.choose(asked) {
                None => prop_assert!(!list.take(asked)),
                Some(chosen) => {
                    prop_assert!(list.take(asked));
                    let mut expected: Vec<_> = before.iter().collect();
                    for share in chosen {
                        let free = expected[share.device as usize].as_mut().expect("a device in service");
                        *free = free.checked_sub(share.capacity()).expect("no more is taken than is free");
                    }
                    prop_assert_eq!(list.iter().collect::<Vec<_>>(), expected);
                }
            }
        }
    }

    #[test]
    fn memory_that_nobody_asks_for_changes_nothing(
        free in prop::collection::vec(prop::option::weighted(0.8, free()), 0..6),
        asked in prop::collection::vec(asked(), 0..5),
    ) {
        let without: FreeDevices = free.iter().map(|free| free.map(|free| free.share)).collect();
        let shares: Vec<Capacity> = asked.iter().map(|asked| asked.share.into()).collect();
        let numbers = |packed: Vec<Vec<DeviceShare>>| -> Vec<Vec<(u32, Quantity)>> {
            packed.iter().map(|shares| shares.iter().map(|of| (of.device, of.share)).collect()).collect()
        };
        prop_assert_eq!(devices(&free).pack(&shares).map(numbers), without.pack(&shares).map(numbers));
        for asked in shares {
            let (mut counted, mut uncounted) = (devices(&free), without.clone());
            prop_assert_eq!(counted.obtainable(asked), uncounted.obtainable(asked));
            prop_assert_eq!(counted.take(asked), uncounted.take(asked));
            prop_assert_eq!(counted.shares().collect::<Vec<_>>(), uncounted.shares().collect::<Vec<_>>());
        }
    }

    #[test]
    fn no_more_of_a_device_is_granted_than_there_is_in_any_dimension(
        events in prop::collection::vec(event(), 1..80),
        memory in prop::collection::vec((0..4_u64).prop_map(|gibs| gibs * 4 * GIB), 3),
    ) {
        let inventory = Inventory::new([(ResourceName::GPU, 3.0)]).unwrap();
        let mut ledger = Ledger::new(inventory.with_device_memory(ResourceName::GPU, memory));
        let (mut grants, mut bundles) = (Vec::new(), Vec::new());
        for event in events {
            let before = ledger.free_per_device("GPU");
            match event {
                Event::Grant(asked) => {
                    let granted = ledger.grant(&demand_of(asked)).ok();
                    check_grant(&before, asked, granted.as_ref(), &ledger.free_per_device("GPU"));
                    grants.extend(granted);
                }
                Event::Reserve(one, two) => {
                    if let Some(reserved) = ledger.reserve(&[demand_of(one), demand_of(two)]) {
                        bundles.extend(reserved);
                    } else {
                        prop_assert_eq!(ledger.free_per_device("GPU"), before, "LEDGER-4");
                    }
                }
                Event::Release(which) if !grants.is_empty() => ledger.release(grants.swap_remove(which.index(grants.len()))),
                Event::Dissolve(which) if !bundles.is_empty() => ledger.dissolve(bundles.swap_remove(which.index(bundles.len()))),
                Event::Quarantine(device) => ledger.quarantine("GPU", device, "test").unwrap(),
                Event::Restore(device) => ledger.restore_device("GPU", device).unwrap(),
                Event::Release(_) | Event::Dissolve(_) => {}
            }
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
        prop_assert_eq!(ledger.free_per_device("GPU"), ledger.inventory().devices("GPU"));
    }
}
