//! Tests of the crate as its users see it.

mod agreement;
mod draw;
mod fleet;
mod group;
mod place;
mod preempt;
mod shares;
mod strategy;
mod verdict;
mod wait_queue;

use oxiray_ids::NodeId;
use oxiray_resources::{Demand, Inventory, Ledger, Quantity, ResourceName};

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
    let amounts = amounts(text).into_iter().map(|(name, number)| (name, Quantity::from_f64(number).unwrap()));
    Demand::new(amounts).unwrap()
}

fn ledger(text: &str) -> Ledger {
    Ledger::new(Inventory::new(amounts(text)).unwrap())
}

fn node(number: u8) -> NodeId {
    NodeId::new([number; 28])
}
