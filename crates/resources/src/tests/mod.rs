//! Tests of the crate as its users see it.

mod bundles;
mod ledger;
mod model;
mod packing;
mod placement;
mod validation;

use crate::{Demand, DeviceShare, Inventory, Ledger, Quantity, ResourceName};

/// Reads `CPU 1, GPU 0.25`.
fn amounts(text: &str) -> Vec<(ResourceName, f64)> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            let (name, number) = entry.split_once(' ').unwrap_or_else(|| panic!("`{entry}` is no `name number`"));
            (ResourceName::new(name).unwrap(), number.parse().unwrap())
        })
        .collect()
}

fn demand(text: &str) -> Demand {
    Demand::new(amounts(text).into_iter().map(|(name, number)| (name, quantity(number)))).unwrap()
}

fn ledger(text: &str) -> Ledger {
    Ledger::new(Inventory::new(amounts(text)).unwrap())
}

fn quantity(number: f64) -> Quantity {
    Quantity::from_f64(number).unwrap()
}

/// Shows amounts by name as `CPU 1, GPU 0.25`.
fn show<'a>(amounts: impl IntoIterator<Item = (&'a ResourceName, Quantity)>) -> String {
    let entries: Vec<_> = amounts.into_iter().map(|(name, quantity)| format!("{name} {quantity}")).collect();
    entries.join(", ")
}

/// A share of a device of which the memory is not counted.
fn share_of(device: u32, share: Quantity) -> DeviceShare {
    DeviceShare { device, share, memory_bytes: 0 }
}

/// The share that each GPU has free.
fn shares(ledger: &Ledger) -> Vec<Option<Quantity>> {
    ledger.free_per_device("GPU").shares().collect()
}
