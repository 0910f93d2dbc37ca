//! What a machine offers.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

use crate::name::IMPLICIT_PREFIX;
use crate::{Demand, FreeDevices, Never, Quantity, QuantityError, ResourceName, Room, Topology};

/// The most devices of one resource on one machine.
pub const DEVICES_MAX: u32 = 65_536;

/// What a machine offers when nothing runs on it and every device works.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    totals: BTreeMap<ResourceName, Quantity>,
    /// The memory of each device, by resource, where it is known.
    memory: BTreeMap<ResourceName, Vec<u64>>,
    /// How near the devices of a resource are to each other, where that makes a difference.
    topologies: BTreeMap<ResourceName, Arc<Topology>>,
}

/// Amounts that no machine can offer.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum InventoryError {
    /// The number is no amount.
    #[error("the machine cannot offer that amount of {resource}")]
    Quantity {
        /// The resource.
        resource: ResourceName,
        /// What is wrong with the number.
        source: QuantityError,
    },
    /// A part of a device.
    #[error("the machine cannot offer {given} {resource}; devices come in whole numbers")]
    NotWhole {
        /// The resource.
        resource: ResourceName,
        /// What was given.
        given: f64,
    },
    /// More devices than [`DEVICES_MAX`].
    #[error("the machine cannot offer {given} {resource}; the most devices of a kind is {DEVICES_MAX}")]
    TooManyDevices {
        /// The resource.
        resource: ResourceName,
        /// What was given.
        given: f64,
    },
    /// A resource was named twice.
    #[error("the machine offers {resource} twice; name each resource once")]
    Duplicate {
        /// The resource.
        resource: ResourceName,
    },
}

impl Inventory {
    /// The inventory with these numbers of each resource; zeros are dropped. Of memory of devices it is how much each has.
    pub fn new(offers: impl IntoIterator<Item = (ResourceName, f64)>) -> Result<Self, InventoryError> {
        let mut totals = BTreeMap::new();
        for (resource, given) in offers {
            let total = amount(&resource, given)?;
            if totals.contains_key(&resource) {
                return Err(InventoryError::Duplicate { resource });
            }
            totals.insert(resource, total);
        }
        totals.retain(|_, total| !total.is_zero());
        let (of_each, totals) = totals.into_iter().partition(|(name, _)| name.is_device_memory());
        let (of_each, mut inventory): (BTreeMap<_, _>, _) = (of_each, Self { totals, ..Self::default() });
        for (name, bytes) in of_each {
            let count = inventory.total(name.source().as_str()).wholes() as usize;
            inventory = inventory.with_device_memory(name.source().clone(), vec![bytes.wholes(); count]);
        }
        Ok(inventory)
    }

    /// The same machine, whose devices of `resource` have this much memory each, by their numbers; of those beyond the
    /// list it is not known.
    #[must_use]
    pub fn with_device_memory(mut self, resource: ResourceName, memory_bytes: Vec<u64>) -> Self {
        if resource.is_device() && memory_bytes.iter().any(|bytes| *bytes > 0) {
            self.memory.insert(resource, memory_bytes);
        }
        self
    }

    /// The same machine, whose devices of `resource` are so near to each other.
    #[must_use]
    pub fn with_topology(mut self, resource: ResourceName, topology: Topology) -> Self {
        self.topologies.insert(resource, Arc::new(topology));
        self
    }

    /// How near the devices of `resource` are to each other, where that makes a difference.
    pub(crate) fn topology(&self, resource: &str) -> Option<Arc<Topology>> {
        self.topologies.get(resource).cloned()
    }

    /// How near the devices of each resource are to each other, where that makes a difference.
    pub fn topologies(&self) -> impl Iterator<Item = (&ResourceName, &Topology)> {
        self.topologies.iter().map(|(name, topology)| (name, topology.as_ref()))
    }

    /// The memory of each device of `resource`, by their numbers; zero where it is not known.
    pub fn device_memory(&self, resource: &str) -> impl Iterator<Item = u64> {
        let known = self.memory.get(resource).map_or(&[][..], Vec::as_slice);
        let count = self.total(resource).wholes() as usize;
        known.iter().copied().chain(std::iter::repeat(0)).take(count)
    }

    /// Every device of `resource`, wholly free.
    pub fn devices(&self, resource: &str) -> FreeDevices {
        self.device_memory(resource).map(|size_bytes| Some(Room::whole(size_bytes))).collect()
    }

    /// What [`Inventory::new`] makes such a machine of: what it has, and of devices of a known size how large they are, the
    /// smallest where they differ.
    pub fn offers(&self) -> impl Iterator<Item = (ResourceName, Quantity)> {
        let memory = ResourceName::GPU_MEMORY;
        let size = self.device_memory(memory.source().as_str()).min().filter(|size| *size > 0);
        let sizes = size.map(|size| (memory, Quantity::from_units(size.saturating_mul(Quantity::UNITS_PER_WHOLE))));
        self.totals().map(|(name, total)| (name.clone(), total)).chain(sizes)
    }

    /// How much of `resource` it has; where it does not name it, zero, or one of an implicit resource.
    pub fn total(&self, resource: &str) -> Quantity {
        let named = self.totals.get(resource).copied();
        let unnamed = || if resource.starts_with(IMPLICIT_PREFIX) { Quantity::ONE } else { Quantity::ZERO };
        named.unwrap_or_else(unnamed)
    }

    /// The resources and amounts, in the order of the names.
    pub fn totals(&self) -> impl Iterator<Item = (&ResourceName, Quantity)> {
        self.totals.iter().map(|(name, total)| (name, *total))
    }

    /// The most of `resource` that one demand could get with nothing running: of memory of devices, what the largest has.
    pub fn most(&self, resource: &ResourceName) -> Quantity {
        if !resource.is_device_memory() {
            return self.total(resource.as_str());
        }
        let largest = self.device_memory(resource.source().as_str()).max().unwrap_or_default();
        Quantity::from_units(largest.saturating_mul(Quantity::UNITS_PER_WHOLE))
    }

    /// Whether the machine, with nothing running on it, has what `demand` asks for.
    pub fn could_ever(&self, demand: &Demand) -> Result<(), Never> {
        for (resource, asked) in demand.iter() {
            let total = self.most(resource);
            if asked > total {
                return Err(Never { resource: resource.clone(), asked, total });
            }
        }
        Ok(())
    }
}

fn amount(resource: &ResourceName, given: f64) -> Result<Quantity, InventoryError> {
    let resource = || resource.clone();
    let is_part = resource().is_device() && given > 0.0 && given.is_finite() && given.fract() != 0.0;
    if is_part {
        return Err(InventoryError::NotWhole { resource: resource(), given });
    }
    let total =
        Quantity::from_f64(given).map_err(|source| InventoryError::Quantity { resource: resource(), source })?;
    if resource().is_device() && total > Quantity::whole(DEVICES_MAX) {
        return Err(InventoryError::TooManyDevices { resource: resource(), given });
    }
    Ok(total)
}
