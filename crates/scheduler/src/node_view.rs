//! What the scheduler knows of a machine.

use std::collections::{BTreeMap, BTreeSet};

use oxiray_ids::NodeId;
use oxiray_resources::{
    Busy, Demand, FreeDevices, Inventory, KeptBack, Ledger, NoPacking, Quantity, ResourceName, ResourceNeed,
};

/// Machines are as much used as each other where these many steps tell no difference.
pub const STEPS: usize = 64;
/// The step at which a machine is half used.
pub const HALF: usize = STEPS / 2;
/// What everybody uses, with or without accelerators.
pub(crate) const SHARED: [ResourceName; 3] =
    [ResourceName::CPU, ResourceName::MEMORY, ResourceName::OBJECT_STORE_MEMORY];

/// A machine as its ledger stood at one moment. The machine's own ledger decides in the end: a view
/// may be out of date, and a demand placed by it may still have to wait there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// The machine.
    pub node: NodeId,
    /// What it offers when nothing runs on it and every device works.
    pub inventory: Inventory,
    /// What is free of the resources that are no devices; nothing where a resource is missing, and one of an implicit one.
    pub free: BTreeMap<ResourceName, Quantity>,
    /// What each device has free.
    pub free_devices: BTreeMap<ResourceName, FreeDevices>,
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
            let devices = self.free_devices.get(resource.source());
            let free = if resource.source().is_device() {
                devices.map(|devices| devices.obtainable(ResourceNeed::of(resource, asked))).unwrap_or_default()
            } else {
                self.free_of(resource)
            };
            if asked > free {
                let total = self.inventory.most(resource);
                let kept = devices.map(KeptBack::of).unwrap_or_default();
                return Err(Busy { resource: resource.clone(), asked, free, total, kept });
            }
        }
        Ok(())
    }

    /// What is free of a resource that is no device.
    pub(crate) fn free_of(&self, resource: &ResourceName) -> Quantity {
        self.free.get(resource).copied().unwrap_or_else(|| resource.unnamed())
    }

    /// How much of the scarcest of its processors and its memory is in use, in steps: from 0 to below [`STEPS`].
    pub fn step(&self) -> usize {
        let free = |name: &ResourceName| self.free.get(name).copied().unwrap_or_default();
        step_of(SHARED.iter().map(|name| (free(name), self.inventory.total(name.as_str()))))
    }

    /// Books `demand` on this view, as the machine's ledger would. `false`, and nothing changes, where there is no room.
    pub fn take(&mut self, demand: &Demand) -> bool {
        if self.fits(demand).is_err() {
            return false;
        }
        for (resource, asked) in demand.iter() {
            if let Some(devices) = self.free_devices.get_mut(resource.source()) {
                devices.take(ResourceNeed::of(resource, asked));
            } else {
                let left = self.free_of(resource).checked_sub(asked).unwrap_or_default();
                self.free.insert(resource.clone(), left);
            }
        }
        true
    }

    /// The machine with nothing running on it and every device in service.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self::new(self.node, &Ledger::new(self.inventory.clone()), self.labels.clone())
    }

    /// Whether the machine has now what all of `demands` ask for together, device by device; otherwise the first
    /// resource of which it has too little for them.
    pub fn fits_together(&self, demands: &[&Demand]) -> Result<(), Misfit> {
        let named: BTreeSet<&ResourceName> =
            demands.iter().flat_map(|demand| demand.iter().map(|(name, _)| name)).collect();
        for resource in named {
            let units = demands.iter().map(|demand| demand.get(resource.as_str()).units());
            let asked = Quantity::from_units(units.fold(0, u64::saturating_add));
            let none = FreeDevices::default();
            let (free, packed) = if resource.source().is_device() {
                let devices = self.free_devices.get(resource.source()).unwrap_or(&none);
                let amounts: Vec<ResourceNeed> =
                    demands.iter().map(|demand| demand.asked_of(resource.source())).collect();
                let free = if resource.is_device_memory() { devices.memory() } else { devices.sum() };
                (free, devices.pack(&amounts).map(drop))
            } else {
                let free = self.free_of(resource);
                (free, if asked <= free { Ok(()) } else { Err(NoPacking { is_proven: true }) })
            };
            if let Err(NoPacking { is_proven }) = packed {
                let total = self.inventory.total(resource.as_str());
                return Err(Misfit { resource: resource.clone(), asked, free, total, is_proven });
            }
        }
        Ok(())
    }
}

/// The step for what is free of each resource, and what there is of it.
pub(crate) fn step_of(amounts: impl Iterator<Item = (Quantity, Quantity)>) -> usize {
    let used = amounts.map(|(free, total)| {
        let used = total.units().saturating_sub(free.units());
        (u128::from(used) * STEPS as u128).checked_div(u128::from(total.units())).unwrap_or(0)
    });
    used.max().map_or(0, |step| (step as usize).min(STEPS - 1))
}

/// What a machine has too little of for several demands together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The resource.
    pub resource: ResourceName,
    /// How much they ask of it together.
    pub asked: Quantity,
    /// How much is free, added up: enough, perhaps, but not in one piece for each.
    pub free: Quantity,
    /// How much the machine has.
    pub total: Quantity,
    /// Whether every way of dividing the devices was ruled out.
    pub is_proven: bool,
}
