//! Which devices are taken, by share and by memory: against all ways there are, against the ledger, and against each other.

use proptest::prelude::*;

use super::{demand, quantity};
use crate::packing::FreeOrder;
use crate::{
    Capacity, Demand, DemandError, DeviceShare, FreeDevices, Grant, Inventory, Ledger, Quantity, ResourceName,
    ResourceNeed, Room, memory_of,
};

const GIB: u64 = 1 << 30;

/// What one device has free: wholly free, or a part of it, of a size that is known or is not.
fn room() -> impl Strategy<Value = Room> {
    let share = prop_oneof![2 => Just(10_000), 1 => Just(6_000), 1 => Just(2_500), 1 => 0..=9_999_u64];
    // Sizes that are no multiple of a share, so that rounding has something to do.
    let size = prop_oneof![1 => Just(0), 3 => (1..4_u64).prop_map(|gibs| gibs * 4 * GIB + 12_345)];
    (share, size, prop::bool::weighted(0.2)).prop_map(|(units, size_bytes, is_single)| {
        let share = Quantity::from_units(units);
        Room { free: Capacity { share, memory_bytes: memory_of(share, size_bytes) }, size_bytes, is_single }
    })
}

/// What is asked for: whole devices, a share or memory.
fn asked() -> impl Strategy<Value = ResourceNeed> {
    let share = prop_oneof![Just(2_500), Just(4_000), Just(5_000), Just(6_000), 1..=9_999_u64];
    prop_oneof![
        4 => share.prop_map(|units| ResourceNeed::Amount(Quantity::from_units(units))),
        2 => (1..=2_u32).prop_map(|count| ResourceNeed::Amount(Quantity::whole(count))),
        3 => (1..=17 * GIB).prop_map(ResourceNeed::Memory),
        1 => (1..=8_u64).prop_map(|gibs| ResourceNeed::Memory(gibs * GIB)),
    ]
}

fn devices(rooms: &[Option<Room>]) -> FreeDevices {
    rooms.iter().copied().collect()
}

/// Whether there is a way at all: every device is tried for everything that is asked of one.
fn could(rooms: &mut [Room], asked: &[ResourceNeed]) -> bool {
    // One by one, each with whether it is one of several.
    let each = |asked: &ResourceNeed| match *asked {
        ResourceNeed::Amount(amount) if amount.wholes() > 1 => {
            vec![(ResourceNeed::Amount(Quantity::ONE), true); amount.wholes() as usize]
        }
        one => vec![(one, false)],
    };
    could_each(rooms, &asked.iter().flat_map(each).collect::<Vec<_>>())
}

fn could_each(rooms: &mut [Room], asked: &[(ResourceNeed, bool)]) -> bool {
    let Some(((first, is_one_of_several), others)) = asked.split_first() else { return true };
    (0..rooms.len()).any(|device| {
        let before = rooms[device];
        let part = before.part(*first).filter(|_| !(before.is_single && *is_one_of_several));
        let Some(part) = part else { return false };
        rooms[device] = before.without(part).unwrap();
        let fits = could_each(rooms, others);
        rooms[device] = before;
        fits
    })
}

fn memory(bytes: u64) -> Demand {
    Demand::new([(ResourceName::GPU_MEMORY, quantity(bytes as f64))]).unwrap()
}

fn of_sizes(sizes_bytes: &[u64]) -> Ledger {
    let inventory = Inventory::new([(ResourceName::GPU, sizes_bytes.len() as f64)]).unwrap();
    Ledger::new(inventory.with_device_memory(ResourceName::GPU, sizes_bytes.to_vec()))
}

#[test]
fn memory_is_asked_for_in_place_of_devices() {
    let asked = memory(8 * GIB).with(ResourceName::CPU, Quantity::ONE).unwrap();
    assert_eq!(asked.to_string(), "{CPU: 1, gpu_memory: 8.00 GiB}");
    assert_eq!(asked.asked_of(&ResourceName::GPU), ResourceNeed::Memory(8 * GIB));
    assert_eq!(asked.devices().count(), 1);
    assert_eq!(asked.scalars().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["CPU"]);
    let both = asked.with(ResourceName::GPU, quantity(0.5)).unwrap_err();
    assert!(matches!(both, DemandError::DevicesAndMemory { .. }));
    assert!(both.to_string().starts_with("GPU and gpu_memory were asked for together"), "{both}");
    assert!(asked.with(ResourceName::GPU, Quantity::ZERO).is_ok());
    // A program may have a custom resource of that name.
    assert!(ResourceName::new("gpu_memory").unwrap().is_custom());
}

#[test]
fn a_device_is_shared_by_memory_and_by_shares() {
    let mut ledger = of_sizes(&[16 * GIB]);
    let quarter = ledger.grant(&demand("GPU 0.25")).unwrap();
    assert_eq!(quarter.devices_of("GPU")[0].memory_bytes, 4 * GIB, "what the share stands for");
    let half = ledger.grant(&memory(8 * GIB)).unwrap();
    assert_eq!(half.devices_of("GPU")[0].share, quantity(0.5), "what the memory is of the device");
    let busy = ledger.grant(&memory(5 * GIB)).unwrap_err().to_string();
    assert_eq!(busy, "5.00 GiB of the memory of one GPU asked for, the freest has 4.00 GiB left of at most 16.00 GiB");
    assert!(ledger.grant(&demand("GPU 0.3")).is_err() && ledger.grant(&demand("GPU 1")).is_err());
    let rest = ledger.grant(&memory(4 * GIB)).unwrap();
    assert!(ledger.grant(&memory(1)).is_err() && ledger.grant(&demand("GPU 0.0001")).is_err());
    ledger.audit();
    for grant in [quarter, half, rest] {
        ledger.release(grant);
    }
    ledger.audit();
    assert_eq!(ledger.available(), ledger.totals());
}

#[test]
fn what_a_machine_has_not_is_never_granted_and_what_it_lacks_now_is_waited_for() {
    let mut ledger = of_sizes(&[8 * GIB, 16 * GIB, 0]);
    let never = ledger.grant(&memory(17 * GIB)).unwrap_err().to_string();
    assert_eq!(never, "17.00 GiB of the memory of one GPU asked for, the largest has 16.00 GiB");
    let first = ledger.grant(&memory(10 * GIB)).unwrap();
    assert_eq!(first.devices_of("GPU")[0].device, 1, "the lowest with enough memory");
    let wholes = ledger.grant(&demand("GPU 2")).unwrap();
    let numbers: Vec<u32> = wholes.devices_of("GPU").iter().map(|share| share.device).collect();
    assert_eq!(numbers, [0, 2], "also one of which nobody knows the size");
    assert_eq!(wholes.devices_of("GPU")[0].memory_bytes, 8 * GIB);
    ledger.audit();
    let unknown = of_sizes(&[0]).grant(&memory(1)).unwrap_err().to_string();
    assert_eq!(unknown, "0 MiB of the memory of one GPU asked for, and no GPU here of a known size");
    for grant in [first, wholes] {
        ledger.release(grant);
    }
    ledger.audit();
}

#[test]
fn a_bundle_is_used_up_to_its_last_byte() {
    // A part is 500.5 ten-thousandths of the device: rounded up, two of them are one more than both together.
    let size_bytes = 10_000_000;
    let mut ledger = of_sizes(&[size_bytes]);
    let part = memory(500_500);
    let bundles = ledger.reserve(&[memory(1_001_000), demand("GPU 0.5")]).unwrap();
    let within: Vec<Grant> = (0..2).map(|_| ledger.grant_within(&[(bundles[0], part.clone())]).unwrap()).collect();
    assert!(ledger.grant_within(&[(bundles[0], memory(1))]).is_none());
    let of_share = ledger.grant_within(&[(bundles[1], memory(size_bytes / 2))]).unwrap();
    assert!(ledger.grant_within(&[(bundles[1], memory(1))]).is_none());
    ledger.audit();
    for bundle in bundles {
        ledger.dissolve(bundle);
    }
    ledger.audit();
    for grant in within.into_iter().chain([of_share]) {
        ledger.release(grant);
    }
    ledger.audit();
    assert_eq!(ledger.available(), ledger.totals());
}

#[test]
fn what_a_grant_is_divided_into_has_its_devices_and_memory() {
    let mut ledger = of_sizes(&[16 * GIB]);
    let whole = ledger.grant(&memory(8 * GIB).with(ResourceName::CPU, Quantity::ZERO).unwrap()).unwrap();
    let (first, second) = ledger.divide(whole, &memory(8 * GIB));
    assert_eq!(first.devices_of("GPU"), [DeviceShare { device: 0, share: quantity(0.5), memory_bytes: 8 * GIB }]);
    assert!(second.devices().is_empty() && second.demand().is_nothing());
    let (first, third) = ledger.divide(first, &memory(2 * GIB));
    assert_eq!(first.devices_of("GPU")[0].memory_bytes, 2 * GIB);
    assert_eq!(third.devices_of("GPU")[0].memory_bytes, 6 * GIB);
    for grant in [first, second, third] {
        ledger.release(grant);
    }
    ledger.audit();
    assert_eq!(ledger.available(), ledger.totals());
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Grant(ResourceNeed),
    Within(prop::sample::Index, ResourceNeed),
    Release(prop::sample::Index),
    Reserve(ResourceNeed, ResourceNeed),
    Dissolve(prop::sample::Index),
    Quarantine(u32),
    Restore(u32),
    Single(u32, bool),
}

fn event() -> impl Strategy<Value = Event> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => asked().prop_map(Event::Grant),
        3 => (index(), asked()).prop_map(|(which, asked)| Event::Within(which, asked)),
        4 => index().prop_map(Event::Release),
        2 => (asked(), asked()).prop_map(|(one, two)| Event::Reserve(one, two)),
        2 => index().prop_map(Event::Dissolve),
        1 => (0..3_u32).prop_map(Event::Quarantine),
        1 => (0..3_u32).prop_map(Event::Restore),
        1 => (0..3_u32, any::<bool>()).prop_map(|(device, is_single)| Event::Single(device, is_single)),
    ]
}

fn demand_of(asked: ResourceNeed) -> Demand {
    match asked {
        ResourceNeed::Amount(amount) => Demand::new([(ResourceName::GPU, amount)]).unwrap(),
        ResourceNeed::Memory(bytes) => memory(bytes),
    }
}

/// What the plain list chooses is what the ledger granted.
fn check_grant(before: &FreeDevices, asked: ResourceNeed, granted: Option<&Grant>, after: &FreeDevices) {
    let mut taken = before.clone();
    assert_eq!(taken.take(asked), granted.is_some(), "{before:?} {asked:?}");
    assert_eq!(&taken, after, "{before:?} {asked:?}");
    let Some(grant) = granted else { return };
    let shares = grant.devices_of("GPU");
    if let ResourceNeed::Memory(bytes) = asked {
        assert!(shares.iter().all(|share| share.memory_bytes == bytes), "{grant:?}");
    }
    let order: Vec<u32> = shares.iter().map(|share| share.device).collect();
    assert!(order.is_sorted(), "{order:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_packing_is_found_where_there_is_one(
        free in prop::collection::vec(room(), 0..4),
        asked in prop::collection::vec(asked(), 0..6),
    ) {
        let mut left = free.clone();
        match devices(&free.iter().copied().map(Some).collect::<Vec<_>>()).pack(&asked) {
            Ok(packed) => {
                for (shares, asked) in packed.iter().zip(&asked) {
                    prop_assert_eq!(shares.len() as u64, asked.devices(), "a part never spans two devices");
                    let sum: u64 = shares.iter().map(|of| of.share.units()).sum();
                    match asked {
                        ResourceNeed::Amount(amount) => prop_assert_eq!(sum, amount.units()),
                        ResourceNeed::Memory(bytes) => prop_assert_eq!(shares[0].memory_bytes, *bytes),
                    }
                    for share in shares {
                        let left = &mut left[share.device as usize];
                        *left = left.without(share.capacity()).expect("no device gives more than it has");
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
        free in prop::collection::vec(prop::option::weighted(0.8, room()), 0..6),
        asked in prop::collection::vec(asked(), 1..8),
    ) {
        let mut list = devices(&free);
        for asked in asked {
            let mut order = FreeOrder::default();
            list.in_service().for_each(|(device, room)| order.insert(device, room));
            prop_assert_eq!(list.obtainable(asked), order.obtainable(asked));
            let before = list.clone();
            match order.choose(asked, asked.devices() > 1) {
                None => prop_assert!(!list.fits(asked) && !list.take(asked)),
                Some((chosen, has_others)) => {
                    prop_assert!(list.fits(asked) && list.take(asked));
                    let with_room = before.in_service().filter(|(_, room)| room.part(asked).is_some()).count();
                    prop_assert_eq!(has_others, with_room > chosen.len());
                    let mut expected: Vec<_> = before.iter().collect();
                    for share in chosen {
                        let room = expected[share.device as usize].as_mut().expect("a device in service");
                        *room = room.without(share.capacity()).expect("no more is taken than is free");
                    }
                    prop_assert_eq!(list.iter().collect::<Vec<_>>(), expected);
                }
            }
        }
    }

    #[test]
    fn a_size_that_nobody_asks_for_changes_nothing(
        free in prop::collection::vec(prop::option::weighted(0.8, room()), 0..6),
        asked in prop::collection::vec(asked(), 0..5),
    ) {
        let unsized_room = |room: Room| {
            Room { free: Capacity { memory_bytes: 0, ..room.free }, size_bytes: 0, ..room }
        };
        let without: FreeDevices = free.iter().map(|room| room.map(unsized_room)).collect();
        let shares: Vec<ResourceNeed> = asked.iter().filter(|asked| matches!(asked, ResourceNeed::Amount(_))).copied().collect();
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
    fn no_more_of_a_device_is_granted_than_there_is(
        events in prop::collection::vec(event(), 1..80),
        sizes in prop::collection::vec((0..4_u64).prop_map(|gibs| gibs * 4 * GIB + gibs * 12_345), 3),
    ) {
        let mut ledger = of_sizes(&sizes);
        let (mut grants, mut bundles) = (Vec::new(), Vec::new());
        for event in events {
            let before = ledger.free_per_device("GPU");
            match event {
                Event::Grant(asked) => {
                    let granted = ledger.grant(&demand_of(asked)).ok();
                    check_grant(&before, asked, granted.as_ref(), &ledger.free_per_device("GPU"));
                    grants.extend(granted);
                }
                Event::Within(which, asked) if !bundles.is_empty() => {
                    let bundle = bundles[which.index(bundles.len())];
                    let fits = ledger.free_per_device_within(bundle, "GPU").fits(asked);
                    let granted = ledger.grant_within(&[(bundle, demand_of(asked))]);
                    prop_assert_eq!(granted.is_some(), fits);
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
                Event::Single(device, is_single) => ledger.set_single("GPU", device, is_single).unwrap(),
                Event::Release(_) | Event::Dissolve(_) | Event::Within(..) => {}
            }
            ledger.audit();
        }
        for device in 0..3 {
            ledger.restore_device("GPU", device).unwrap();
            ledger.set_single("GPU", device, false).unwrap();
        }
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
