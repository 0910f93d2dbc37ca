//! Amounts of resources, summed up for people and programs.

use oxiray_resources::{Quantity, ResourceName};
use oxiray_scheduler::NodeView;
use std::collections::BTreeMap;

pub(crate) type Amounts = BTreeMap<ResourceName, Quantity>;

/// Amounts by the resource's name, for programs of ours that read it again.
pub(crate) fn by_resource<'a>(amounts: impl Iterator<Item = (&'a ResourceName, Quantity)>) -> BTreeMap<String, f64> {
    amounts.map(|(name, amount)| (name.to_string(), amount.as_f64())).collect()
}

/// Amounts by what requests call the resource.
pub(crate) fn by_name<'a>(amounts: impl Iterator<Item = (&'a ResourceName, Quantity)>) -> BTreeMap<String, f64> {
    amounts.map(|(name, amount)| (name.as_option().to_owned(), amount.as_f64())).collect()
}

/// What a machine has: devices out of service excepted, none at zero.
pub(crate) fn total_of(view: &NodeView) -> Amounts {
    let in_service = |name: &ResourceName, total| match view.free_devices.get(name) {
        Some(devices) => Quantity::whole(devices.in_service().count() as u32),
        None => total,
    };
    let totals = view.inventory.totals().map(|(name, total)| (name.clone(), in_service(name, total)));
    totals.filter(|(_, amount)| !amount.is_zero()).collect()
}

/// What of it is free.
pub(crate) fn available_of(view: &NodeView) -> Amounts {
    let devices = view.free_devices.iter().map(|(name, free)| (name.clone(), free.sum()));
    let scalars = view.free.iter().map(|(name, amount)| (name.clone(), *amount));
    scalars.chain(devices).filter(|(_, amount)| !amount.is_zero()).collect()
}

/// Adds amounts up.
pub(crate) fn add(sums: &mut Amounts, amounts: Amounts) {
    for (name, amount) in amounts {
        let sum = sums.entry(name).or_default();
        *sum = sum.checked_add(amount).unwrap_or(Quantity::MAX);
    }
}
