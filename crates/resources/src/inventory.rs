//! What a machine offers.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::{Capacity, Demand, FreeDevices, Never, Quantity, QuantityError, ResourceName};

/// The most devices of one resource on one machine.
pub const DEVICES_MAX: u32 = 65_536;

/// What a machine offers when nothing runs on it and every device works.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    totals: BTreeMap<ResourceName, Quantity>,
    /// The memory of each device, by resource, where it is known.
    memory: BTreeMap<ResourceName, Vec<u64>>,
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
    /// The inventory with these numbers of each resource; zeros are dropped.
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
        Ok(Self { totals, memory: BTreeMap::new() })
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

    /// The memory of each device of `resource`, by their numbers; zero where it is not known.
    pub fn device_memory(&self, resource: &str) -> impl Iterator<Item = u64> {
        let known = self.memory.get(resource).map_or(&[][..], Vec::as_slice);
        let count = self.total(resource).wholes() as usize;
        known.iter().copied().chain(std::iter::repeat(0)).take(count)
    }

    /// Every device of `resource`, wholly free.
    pub fn devices(&self, resource: &str) -> FreeDevices {
        let whole = |memory_bytes| Some(Capacity { share: Quantity::ONE, memory_bytes });
        self.device_memory(resource).map(whole).collect()
    }

    /// How much of `resource` it has; zero where it does not name it.
    pub fn total(&self, resource: &str) -> Quantity {
        self.totals.get(resource).copied().unwrap_or_default()
    }

    /// The resources and amounts, in the order of the names.
    pub fn totals(&self) -> impl Iterator<Item = (&ResourceName, Quantity)> {
        self.totals.iter().map(|(name, total)| (name, *total))
    }

    /// How much of `resource` it has for such a demand: where memory is asked for, on devices that have so much.
    pub fn most(&self, resource: &str, asked: Capacity) -> Quantity {
        match asked.memory_bytes {
            0 => self.total(resource),
            _ => self.devices(resource).obtainable(asked),
        }
    }

    /// Whether the machine, with nothing running on it, has what `demand` asks for.
    pub fn could_ever(&self, demand: &Demand) -> Result<(), Never> {
        for (resource, asked) in demand.capacities() {
            let total = self.most(resource.as_str(), asked);
            if asked.share > total {
                return Err(Never { resource: resource.clone(), asked: asked.share, total });
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
