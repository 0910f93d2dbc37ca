//! Which bundles of a placement group give a request what it asks for.
//!
//! - DRAW-1: where one bundle has all that is asked for, that one gives it: of several the one with the fewest devices that
//!   are not asked for, then with the fewest other resources, then the one that is left with least.
//! - DRAW-2: where none has, the bundles on one machine give it together, those with the fewest devices that are not asked
//!   for first. A share of a device comes out of one bundle.

use std::collections::BTreeMap;

use oxiray_ids::{BundleNumber, NodeId};
use oxiray_resources::{Demand, Quantity, ResourceName, ResourceNeed};

use crate::NodeView;

/// A bundle that may give something.
#[derive(Clone, Copy, Debug)]
pub struct DrawnBundle<'a> {
    /// Its place in its group.
    pub number: BundleNumber,
    /// What was set aside for it.
    pub reserved: &'a Demand,
    /// What of it is free, and on which machine.
    pub view: &'a NodeView,
}

/// What one bundle gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundlePart {
    /// Its place in its group.
    pub bundle: BundleNumber,
    /// How much of what is asked for it gives.
    pub demand: Demand,
}

/// What each bundle gives so that `demand` is met: all of them on one machine, which is named. `None` where they have too
/// little free.
pub fn draw(bundles: &[DrawnBundle<'_>], demand: &Demand) -> Option<(NodeId, Vec<BundlePart>)> {
    let mut ranked: Vec<&DrawnBundle<'_>> = bundles.iter().collect();
    ranked.sort_by_cached_key(|bundle| (unasked(bundle.reserved, demand), left_over(bundle.view, demand)));
    // DRAW-1
    if let Some(whole) = ranked.iter().find(|bundle| bundle.view.fits(demand).is_ok()) {
        return Some((whole.view.node, vec![BundlePart { bundle: whole.number, demand: demand.clone() }]));
    }
    // DRAW-2
    let mut machines: BTreeMap<NodeId, Vec<&DrawnBundle<'_>>> = BTreeMap::new();
    for bundle in ranked {
        machines.entry(bundle.view.node).or_default().push(bundle);
    }
    machines.into_iter().find_map(|(node, bundles)| Some((node, together(&bundles, demand)?)))
}

/// What bundles of one machine give together.
fn together(bundles: &[&DrawnBundle<'_>], demand: &Demand) -> Option<Vec<BundlePart>> {
    let mut missing = demand.clone();
    let mut parts = Vec::new();
    for bundle in bundles {
        let part = missing.common(&free_for(bundle.view, &missing, demand));
        missing = missing.without(&part);
        if !part.is_nothing() {
            parts.push(BundlePart { bundle: bundle.number, demand: part });
        }
    }
    missing.is_nothing().then_some(parts)
}

/// How much of each resource a bundle can give of what is missing of a demand: of devices whole ones, or the share that is
/// asked for.
fn free_for(view: &NodeView, missing: &Demand, demand: &Demand) -> Demand {
    let free = missing.iter().map(|(resource, asked)| {
        let free = if resource.source().is_device() {
            let devices = view.free_devices.get(resource.source());
            // Who asks for several has several, out of whichever bundles.
            let all_asked = ResourceNeed::of(resource, demand.get(resource.as_str()));
            let free = devices.map(|devices| devices.obtainable(all_asked)).unwrap_or_default();
            let is_of_one = asked < Quantity::ONE || resource.is_device_memory();
            if is_of_one && free < asked { Quantity::ZERO } else { free }
        } else {
            view.free_of(resource)
        };
        (resource.clone(), free.min(asked))
    });
    Demand::new(free.collect::<Vec<_>>()).expect("of more than one device whole ones are free")
}

/// How many devices, and how many other resources, a bundle has that are not asked for.
fn unasked(reserved: &Demand, demand: &Demand) -> (u64, usize) {
    let is_asked = |name: &ResourceName| demand.iter().any(|(asked, _)| asked.source() == name.source());
    let unasked = reserved.iter().filter(|(name, _)| !is_asked(name));
    let (devices, others): (Vec<_>, Vec<_>) = unasked.partition(|(name, _)| name.source().is_device());
    let units = devices.iter().map(|(name, amount)| match ResourceNeed::of(name, *amount) {
        ResourceNeed::Amount(amount) => amount.units(),
        ResourceNeed::Memory(_) => 1,
    });
    (units.fold(0, u64::saturating_add), others.len())
}

/// How much would stay free of what is asked for, devices before everything else.
fn left_over(view: &NodeView, demand: &Demand) -> (u64, u64) {
    let left = |(name, asked): (&ResourceName, Quantity)| {
        let free = match view.free_devices.get(name.source()) {
            Some(devices) if name.is_device_memory() => devices.memory(),
            Some(devices) => devices.sum(),
            None => view.free_of(name),
        };
        (name.source().is_device(), free.units().saturating_sub(asked.units()))
    };
    let left: Vec<(bool, u64)> = demand.iter().map(left).collect();
    let sum = |devices: bool| {
        left.iter()
            .filter(|(is_device, _)| *is_device == devices)
            .fold(0_u64, |sum, (_, left)| sum.saturating_add(*left))
    };
    (sum(true), sum(false))
}
