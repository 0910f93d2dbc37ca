//! What the scheduler knows of a machine.

use std::collections::BTreeMap;

use oxiray_ids::NodeId;
use oxiray_resources::{Busy, Demand, Inventory, Ledger, Quantity, ResourceName, obtainable};

/// A machine as its ledger stood at one moment. The machine's own ledger decides in the end: a view
/// may be out of date, and a demand placed by it may still have to wait there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// The machine.
    pub node: NodeId,
    /// What it offers when nothing runs on it and every device works.
    pub inventory: Inventory,
    /// What is free of the resources that are no devices; nothing where a resource is missing.
    pub free: BTreeMap<ResourceName, Quantity>,
    /// What each device has free, `None` where it is out of service. Not a sum: a share never spans
    /// two devices, so 0.2 free on each of two are no room for 0.4.
    pub free_devices: BTreeMap<ResourceName, Vec<Option<Quantity>>>,
    /// The machine's labels.
    pub labels: BTreeMap<String, String>,
}

impl NodeView {
    /// The machine `node` as `ledger` stands now.
    pub fn new(node: NodeId, ledger: &Ledger, labels: BTreeMap<String, String>) -> Self {
        let inventory = ledger.inventory().clone();
        let devices = inventory.totals().map(|(name, _)| name).filter(|name| name.is_device());
        let free_devices = devices.map(|name| (name.clone(), ledger.free_per_device(name.as_str()))).collect();
        let mut free = ledger.available();
        free.retain(|name, _| !name.is_device());
        Self { node, inventory, free, free_devices, labels }
    }

    /// Whether the machine has now what `demand` asks for, device by device; otherwise the first
    /// resource of which it has too little.
    pub fn fits(&self, demand: &Demand) -> Result<(), Busy> {
        for (resource, asked) in demand.iter() {
            let devices = self.free_devices.get(resource).map_or(&[][..], Vec::as_slice);
            let free = if resource.is_device() {
                obtainable(asked, devices)
            } else {
                self.free.get(resource).copied().unwrap_or_default()
            };
            if asked > free {
                let total = self.inventory.total(resource.as_str());
                let out_of_service = devices.iter().filter(|free| free.is_none()).count() as u32;
                return Err(Busy { resource: resource.clone(), asked, free, total, out_of_service });
            }
        }
        Ok(())
    }
}
