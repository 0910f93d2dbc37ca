//! How amounts of resources stand in messages.

use oxiray_accelerators::{DeviceNode, Offer, SlotDevice};
use oxiray_families::families_of;
use oxiray_resources::{Demand, FreeDevices, Inventory, Quantity, ResourceName, Room, Topology, memory_of};
use oxiray_wire::message::{Amount, DeviceNearness, DeviceSizes, DevicesFree};
use oxiray_wire::state::{DeviceFile, DeviceFiles};

/// Amounts of resources as messages have them.
pub fn amounts<'a>(pairs: impl IntoIterator<Item = (&'a ResourceName, Quantity)>) -> Vec<Amount> {
    pairs.into_iter().map(|(name, amount)| Amount { resource: name.to_string(), units: amount.units() }).collect()
}

/// The demand that amounts on the wire are.
pub fn demand(amounts: &[Amount]) -> Option<Demand> {
    let named = amounts
        .iter()
        .map(|amount| Some((ResourceName::new(&amount.resource).ok()?, Quantity::from_units(amount.units))));
    Demand::new(named.collect::<Option<Vec<_>>>()?).ok()
}

/// What devices of a resource have free, as messages have it; `numbers` are theirs on their node, where they are those of a
/// bundle.
pub(crate) fn devices_free(resource: &ResourceName, free: &FreeDevices, numbers: Vec<u32>) -> DevicesFree {
    let is_as_shared = |room: Room| room.free.memory_bytes == memory_of(room.free.share, room.size_bytes);
    let free_bytes = if free.iter().flatten().all(is_as_shared) {
        Vec::new()
    } else {
        free.iter().map(|room| room.map_or(0, |room| room.free.memory_bytes)).collect()
    };
    DevicesFree {
        resource: resource.to_string(),
        free: free.shares().map(|free| free.map_or(0, |free| free.units() + 1)).collect(),
        numbers,
        free_bytes,
        healthy: Vec::new(),
        single: free.in_service().filter(|(_, room)| room.is_single).map(|(place, _)| place).collect(),
    }
}

/// What is known of devices' sizes and names.
pub(crate) fn device_sizes(inventory: &Inventory, offer: &Offer) -> Vec<DeviceSizes> {
    let devices = inventory.totals().map(|(name, _)| name).filter(|name| name.is_device());
    let sizes = devices.map(|name| DeviceSizes {
        resource: name.to_string(),
        bytes: inventory.device_memory(name.as_str()).collect(),
        ids: ids(name.as_str(), offer),
        logical_from: logical_from(name.as_str(), offer),
        family: family(name.as_str(), offer).unwrap_or_default().to_owned(),
        files: files(name.as_str(), offer),
    });
    sizes.collect()
}

/// How near devices are to each other.
pub(crate) fn nearness(inventory: &Inventory) -> Vec<DeviceNearness> {
    let of = |(name, topology): (&ResourceName, &Topology)| {
        let (numa, near) = topology.parts().unwrap_or_default();
        DeviceNearness { resource: name.to_string(), numa: numa.to_vec(), near: near.to_vec() }
    };
    inventory.topologies().map(of).collect()
}

/// The device nodes of each device of a resource; nothing where none are known.
fn files(resource: &str, offer: &Offer) -> Vec<DeviceFiles> {
    let slots = offer.of(resource).map_or(&[][..], |offered| &offered.slots);
    let file = |node: &DeviceNode| DeviceFile {
        path: node.path.clone(),
        major: node.number.map(|number| number.major),
        minor: node.number.map(|number| number.minor),
    };
    let of_slot = |slot: &Option<SlotDevice>| {
        let nodes = slot.as_ref().map_or(&[][..], |device| &device.nodes);
        DeviceFiles { logical: false, nodes: nodes.iter().map(file).collect() }
    };
    let files: Vec<DeviceFiles> = slots.iter().map(of_slot).collect();
    if files.iter().all(|of| of.nodes.is_empty()) { Vec::new() } else { files }
}

/// From which number on the devices of a resource were declared without being there, where some were.
fn logical_from(resource: &str, offer: &Offer) -> Option<u32> {
    match offer.of(resource) {
        Some(offered) => offered.is_logical().then_some(offered.detected as u32),
        None => Some(0),
    }
}

/// The key of the family that a node's devices of a resource are of.
fn family(resource: &str, offer: &Offer) -> Option<&'static str> {
    let offered = offer.of(resource).map(|offered| offered.family);
    offered.or_else(|| families_of(resource).next()).map(|family| family.key)
}

/// The UUID of each device of a resource, or else what its variable calls it; nothing where those are their numbers.
fn ids(resource: &str, offer: &Offer) -> Vec<String> {
    let Some(offered) = offer.of(resource) else { return Vec::new() };
    let ids: Vec<String> = (0..offered.count as u32).map(|slot| offered.name(slot)).collect();
    let are_numbers = ids.iter().enumerate().all(|(slot, id)| *id == slot.to_string());
    if are_numbers { Vec::new() } else { ids }
}
