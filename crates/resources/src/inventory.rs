//! What a machine offers.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::{Demand, Never, Quantity, QuantityError, ResourceName};

/// The most devices of one resource on one machine.
pub const DEVICES_MAX: u32 = 65_536;

/// What a machine offers when nothing runs on it and every device works.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    totals: BTreeMap<ResourceName, Quantity>,
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
        Ok(Self { totals })
    }

    /// How much of `resource` it has; zero where it does not name it.
    pub fn total(&self, resource: &str) -> Quantity {
        self.totals.get(resource).copied().unwrap_or_default()
    }

    /// The resources and amounts, in the order of the names.
    pub fn totals(&self) -> impl Iterator<Item = (&ResourceName, Quantity)> {
        self.totals.iter().map(|(name, total)| (name, *total))
    }

    /// Whether the machine, with nothing running on it, has what `demand` asks for.
    pub fn could_ever(&self, demand: &Demand) -> Result<(), Never> {
        for (resource, asked) in demand.iter() {
            let total = self.total(resource.as_str());
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
