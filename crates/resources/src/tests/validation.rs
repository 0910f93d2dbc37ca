//! What is no quantity, no name, no demand and no inventory.

use super::{amounts, demand, quantity};
use crate::{
    DEMAND_RESOURCES_MAX, Demand, DemandError, Inventory, InventoryError, NameError, Quantity, QuantityError,
    RESOURCE_NAME_BYTES_MAX, ResourceName,
};

#[test]
fn numbers_become_quantities_and_read_back() {
    let rows = [
        (0.0, 0, "0"),
        (-0.0, 0, "0"),
        (1.0, 10_000, "1"),
        (0.25, 2_500, "0.25"),
        (2.5, 25_000, "2.5"),
        (0.0001, 1, "0.0001"),
        (0.00015, 1, "0.0001"),
        (0.3, 3_000, "0.3"),
        (0.0003, 3, "0.0003"),
        (0.1 + 0.2, 3_000, "0.3"),
        (0.9999, 9_999, "0.9999"),
        (0.999_99, 9_999, "0.9999"),
        (1.0 - 0.9, 1_000, "0.1"),
        (1e9 + 0.3, 10_000_000_003_000, "1000000000.3"),
        (68_719_476_736.0, 687_194_767_360_000, "68719476736"),
        (1e14, 1_000_000_000_000_000_000, "100000000000000"),
    ];
    for (number, units, shown) in rows {
        let read = quantity(number);
        assert_eq!((read.units(), read.to_string().as_str()), (units, shown), "{number}");
    }
    for units in 0..=20_000 {
        let exact = Quantity::from_units(units);
        assert_eq!(Quantity::from_f64(exact.as_f64()), Ok(exact));
    }
}

#[test]
fn what_is_no_quantity_is_named() {
    assert_eq!(Quantity::from_f64(-1.0), Err(QuantityError::Negative(-1.0)));
    assert_eq!(Quantity::from_f64(f64::NEG_INFINITY), Err(QuantityError::Negative(f64::NEG_INFINITY)));
    assert_eq!(Quantity::from_f64(f64::NAN), Err(QuantityError::NotANumber));
    assert_eq!(Quantity::from_f64(f64::INFINITY), Err(QuantityError::Infinite));
    assert_eq!(Quantity::from_f64(1e-5), Err(QuantityError::TooFine(1e-5)));
    assert_eq!(Quantity::from_f64(f64::MIN_POSITIVE), Err(QuantityError::TooFine(f64::MIN_POSITIVE)));
    assert_eq!(Quantity::from_f64(1.1e14), Err(QuantityError::TooLarge(1.1e14)));
    let message = Quantity::from_f64(2e14).unwrap_err().to_string();
    assert_eq!(message, "200000000000000 is too much; the most is 100000000000000");
}

#[test]
fn names_are_bounded_and_sorted_into_devices_and_others() {
    assert_eq!(ResourceName::new(""), Err(NameError::Empty));
    let long = "x".repeat(RESOURCE_NAME_BYTES_MAX + 1);
    assert_eq!(ResourceName::new(&long), Err(NameError::TooLong { bytes: RESOURCE_NAME_BYTES_MAX + 1 }));
    for device in ["GPU", "TPU", "neuron_cores", "HPU", "NPU"] {
        assert!(ResourceName::new(device).unwrap().is_device(), "{device}");
    }
    for (name, is_custom) in [
        ("CPU", false),
        ("memory", false),
        ("object_store_memory", false),
        ("accelerator_type:A100", false),
        ("node:10.0.0.1", false),
        ("gpu", true),
        ("licence", true),
    ] {
        let name = ResourceName::new(name).unwrap();
        assert_eq!((name.is_device(), name.is_custom()), (false, is_custom), "{name}");
    }
    let a100 = ResourceName::accelerator_type("A100").unwrap();
    assert_eq!((a100.as_str(), a100.as_accelerator_type()), ("accelerator_type:A100", Some("A100")));
}

#[test]
fn demands_of_whole_devices_are_whole() {
    for device in ["GPU", "TPU", "neuron_cores", "HPU", "NPU"] {
        let name = ResourceName::new(device).unwrap();
        let error = Demand::nothing().with(name.clone(), quantity(1.5)).unwrap_err();
        assert_eq!(error, DemandError::NotWhole { resource: name.clone(), quantity: quantity(1.5) });
        for fine in [0.0, 0.0001, 0.9999, 1.0, 2.0, 1e14] {
            assert!(Demand::nothing().with(name.clone(), quantity(fine)).is_ok(), "{fine} {device}");
        }
    }
    assert_eq!(demand("CPU 1.5, licence 2.5").to_string(), "{CPU: 1.5, licence: 2.5}");
    assert_eq!(demand("GPU 1, neuron_cores 2").devices().count(), 2);
}

#[test]
fn demands_are_equal_where_they_ask_for_the_same() {
    let first = demand("GPU 0.25, CPU 1, disk 0");
    assert_eq!(first, demand("CPU 1, GPU 0.25"));
    assert_eq!(first.to_string(), "{CPU: 1, GPU: 0.25}");
    assert_eq!((first.get("GPU"), first.get("disk")), (quantity(0.25), Quantity::ZERO));
    assert_eq!(first.with(ResourceName::GPU, Quantity::ZERO).unwrap(), demand("CPU 1"));
    assert_eq!((Demand::nothing().to_string().as_str(), demand("CPU 0").is_nothing()), ("{}", true));
}

#[test]
fn demands_are_bounded() {
    let twice = [(ResourceName::CPU, Quantity::ONE), (ResourceName::CPU, Quantity::whole(2))];
    assert_eq!(Demand::new(twice), Err(DemandError::Duplicate { resource: ResourceName::CPU }));
    let too_large = Quantity::from_units(Quantity::MAX.units() + 1);
    assert_eq!(
        Demand::new([(ResourceName::CPU, too_large)]),
        Err(DemandError::TooLarge { resource: ResourceName::CPU, quantity: too_large })
    );
    let count = DEMAND_RESOURCES_MAX + 1;
    let many = (0..count).map(|index| (ResourceName::new(&format!("r{index}")).unwrap(), Quantity::ONE));
    assert_eq!(Demand::new(many), Err(DemandError::TooMany { count }));
}

#[test]
fn inventories_hold_whole_devices() {
    let refused = |text: &str| Inventory::new(amounts(text)).unwrap_err();
    for device in ["GPU", "TPU", "neuron_cores", "HPU", "NPU"] {
        let resource = ResourceName::new(device).unwrap();
        assert_eq!(refused(&format!("{device} 1.5")), InventoryError::NotWhole { resource, given: 1.5 });
    }
    let wrong = |source| InventoryError::Quantity { resource: ResourceName::GPU, source };
    assert_eq!(refused("GPU -1"), wrong(QuantityError::Negative(-1.0)));
    assert_eq!(refused("GPU -0.5"), wrong(QuantityError::Negative(-0.5)));
    assert_eq!(refused("GPU inf"), wrong(QuantityError::Infinite));
    assert_eq!(
        refused("GPU NaN"),
        InventoryError::Quantity { resource: ResourceName::GPU, source: QuantityError::NotANumber }
    );
    assert_eq!(refused("GPU 1e15"), wrong(QuantityError::TooLarge(1e15)));
    assert_eq!(refused("GPU 65537"), InventoryError::TooManyDevices { resource: ResourceName::GPU, given: 65_537.0 });
    assert_eq!(refused("CPU 1, CPU 2"), InventoryError::Duplicate { resource: ResourceName::CPU });
    let inventory = Inventory::new(amounts("GPU 2.0, CPU 1.5, licence 2.5, TPU 0")).unwrap();
    assert_eq!(super::show(inventory.totals()), "CPU 1.5, GPU 2, licence 2.5");
}
