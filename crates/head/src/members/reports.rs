//! What members tell of themselves, as the scheduler sees it.

use oxiray_ids::NodeId;
use oxiray_resources::{Capacity, Inventory, Quantity, ResourceName, Room, Topology, memory_of};
use oxiray_scheduler::NodeView;
use oxiray_wire::message::{Amount, BundleFree, DevicesFree, NodeJoin, NodeState};
use std::collections::BTreeMap;

/// What is free on a node, read from what it told.
pub(crate) fn view_of(told: &NodeJoin) -> Option<NodeView> {
    let node = Some(told.node).filter(|node| !node.is_nil())?;
    let totals = named(&told.totals).map(|(name, amount)| (name, amount.as_f64()));
    let mut inventory = Inventory::new(totals).ok()?;
    for of in &told.device_sizes {
        inventory = inventory.with_device_memory(ResourceName::new(&of.resource).ok()?, of.bytes.clone());
    }
    for of in &told.nearness {
        if let Some(topology) = Topology::of_parts(&of.numa, &of.near) {
            inventory = inventory.with_topology(ResourceName::new(&of.resource).ok()?, topology);
        }
    }
    let mut view =
        NodeView { node, inventory, free: BTreeMap::new(), free_devices: BTreeMap::new(), labels: told.labels.clone() };
    apply(&mut view, told.state.as_ref()?, &told.labels);
    Some(view)
}

/// Its ledger changed; `labels` are those that it joined with.
pub(crate) fn apply(view: &mut NodeView, state: &NodeState, labels: &BTreeMap<String, String>) {
    let holds = |label: &String| !state.withdrawn_labels.contains(label);
    if !view.labels.keys().eq(labels.keys().filter(|label| holds(label))) {
        view.labels = labels.iter().filter(|(label, _)| holds(label)).map(|(l, v)| (l.clone(), v.clone())).collect();
    }
    let sizes = std::mem::take(&mut view.inventory);
    set_free(view, &state.free, &state.devices, &sizes);
    view.inventory = sizes;
}

/// Whether a state tells news by which somebody may be placed, and not only how much devices and the machine are used.
pub(crate) fn is_placed_by(before: &NodeState, state: &NodeState) -> bool {
    let of_ledger = |state: &NodeState| (state.order, state.store_used);
    (before.uses == state.uses && state.statistics.is_none())
        || of_ledger(before) != of_ledger(state)
        || before.free != state.free
        || before.devices != state.devices
        || before.withdrawn_labels != state.withdrawn_labels
        || !state.bundles.is_empty()
        || !state.dissolved.is_empty()
}

/// `sizes` has those of the machine's devices.
fn set_free(view: &mut NodeView, free: &[Amount], devices: &[DevicesFree], sizes: &Inventory) {
    view.free = named(free).collect();
    let devices =
        devices.iter().filter_map(|of| Some((ResourceName::new(&of.resource).ok()?, rooms(of, sizes).collect())));
    view.free_devices = devices.collect();
}

/// What each device has free; nothing where it is out of service.
fn rooms(of: &DevicesFree, sizes: &Inventory) -> impl Iterator<Item = Option<Room>> {
    let sizes: Vec<u64> = sizes.device_memory(&of.resource).collect();
    of.free.iter().enumerate().map(move |(index, free)| {
        let number = of.numbers.get(index).map_or(index, |number| *number as usize);
        let size_bytes = sizes.get(number).copied().unwrap_or(0);
        let share = Quantity::from_units(free.checked_sub(1)?).min(Quantity::ONE);
        let of_share = memory_of(share, size_bytes);
        let memory_bytes = of.free_bytes.get(index).copied().unwrap_or(of_share).min(size_bytes);
        let is_single = of.single.contains(&(index as u32));
        Some(Room { free: Capacity { share, memory_bytes }, size_bytes, is_single })
    })
}

/// A bundle as its machine told of it.
#[derive(Debug)]
pub(crate) struct ReportedBundle {
    pub(crate) view: NodeView,
    /// The devices that it has a part of: their numbers on that node.
    pub(crate) devices: BTreeMap<String, Vec<u32>>,
}

/// What is free within a bundle of a machine with such devices.
pub(crate) fn bundle_of(node: NodeId, told: &BundleFree, sizes: &Inventory) -> ReportedBundle {
    let (inventory, labels) = (Inventory::default(), BTreeMap::new());
    let mut view = NodeView { node, inventory, free: BTreeMap::new(), free_devices: BTreeMap::new(), labels };
    set_free(&mut view, &told.free, &told.devices, sizes);
    let devices = told.devices.iter().map(|of| (of.resource.clone(), of.numbers.clone())).collect();
    ReportedBundle { view, devices }
}

fn named(amounts: &[Amount]) -> impl Iterator<Item = (ResourceName, Quantity)> + '_ {
    let one = |amount: &Amount| Some((ResourceName::new(&amount.resource).ok()?, Quantity::from_units(amount.units)));
    amounts.iter().filter_map(one)
}
