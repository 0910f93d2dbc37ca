//! What a task or actor asks for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::shortage::amount_in_words;
use crate::{Quantity, ResourceName, ResourceNeed};

/// The most resources one demand may name.
pub const DEMAND_RESOURCES_MAX: usize = 1024;

/// Amounts of resources that are wanted together, on one machine.
///
/// Resources stand in the order of their names, each once, none at zero; so two demands are equal
/// exactly where they ask for the same. A clone costs no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Demand(Arc<[(ResourceName, Quantity)]>);

/// Amounts that make no demand.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DemandError {
    /// More than one device, and not a whole number of them.
    #[error("{quantity} {resource} was asked for; more than one device must be a whole number of them")]
    NotWhole {
        /// The resource.
        resource: ResourceName,
        /// How much was asked for.
        quantity: Quantity,
    },
    /// More than [`Quantity::MAX`].
    #[error("{quantity} {resource} was asked for; the most is {}", Quantity::MAX)]
    TooLarge {
        /// The resource.
        resource: ResourceName,
        /// How much was asked for.
        quantity: Quantity,
    },
    /// A resource was named twice.
    #[error("{resource} was asked for twice; name each resource once")]
    Duplicate {
        /// The resource.
        resource: ResourceName,
    },
    /// A number of devices or a share of one, and memory of one of them.
    #[error(
        "{devices} and {} were asked for together; ask for a number of devices or a share of one, or for memory of one",
        memory.as_option()
    )]
    DevicesAndMemory {
        /// The devices.
        devices: ResourceName,
        /// Their memory.
        memory: ResourceName,
    },
    /// More resources than [`DEMAND_RESOURCES_MAX`].
    #[error("{count} resources were asked for at once; the most is {DEMAND_RESOURCES_MAX}")]
    TooMany {
        /// How many were named.
        count: usize,
    },
}

impl Demand {
    /// A demand for these amounts; zeros are dropped.
    pub fn new(amounts: impl IntoIterator<Item = (ResourceName, Quantity)>) -> Result<Self, DemandError> {
        let mut amounts: Vec<_> = amounts.into_iter().filter(|(_, quantity)| !quantity.is_zero()).collect();
        if amounts.len() > DEMAND_RESOURCES_MAX {
            return Err(DemandError::TooMany { count: amounts.len() });
        }
        amounts.sort_unstable();
        if let Some(pair) = amounts.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(DemandError::Duplicate { resource: pair[0].0.clone() });
        }
        for (resource, quantity) in &amounts {
            let (resource, quantity) = (resource.clone(), *quantity);
            if quantity > Quantity::MAX {
                return Err(DemandError::TooLarge { resource, quantity });
            }
            if resource.is_device() && quantity > Quantity::ONE && !quantity.is_whole() {
                return Err(DemandError::NotWhole { resource, quantity });
            }
            if resource.is_device_memory() && amounts.iter().any(|(name, _)| name == resource.source()) {
                return Err(DemandError::DevicesAndMemory { devices: resource.source().clone(), memory: resource });
            }
        }
        Ok(Self(amounts.into()))
    }

    /// The demand for nothing, which every machine meets.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// This demand with `quantity` of `resource` in place of what it asked of it before.
    pub fn with(&self, resource: ResourceName, quantity: Quantity) -> Result<Self, DemandError> {
        let mut amounts: Vec<_> = self.0.iter().filter(|(name, _)| *name != resource).cloned().collect();
        amounts.push((resource, quantity));
        Self::new(amounts)
    }

    /// What it asks for beyond `part`.
    #[must_use]
    pub fn without(&self, part: &Self) -> Self {
        let beyond = self.0.iter().map(|(name, quantity)| {
            let left = quantity.units().saturating_sub(part.get(name.as_str()).units());
            (name.clone(), Quantity::from_units(left))
        });
        Self(beyond.filter(|(_, quantity)| !quantity.is_zero()).collect())
    }

    /// What `parts` ask for together.
    pub fn sum<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sum: BTreeMap<&ResourceName, u64> = BTreeMap::new();
        for (name, quantity) in parts.into_iter().flat_map(Self::iter) {
            let units = sum.entry(name).or_default();
            *units = units.saturating_add(quantity.units());
        }
        Self(sum.into_iter().map(|(name, units)| (name.clone(), Quantity::from_units(units))).collect())
    }

    /// What both ask for: of each resource the smaller amount.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        let both = self.0.iter().map(|(name, quantity)| (name.clone(), (*quantity).min(other.get(name.as_str()))));
        Self(both.filter(|(_, quantity)| !quantity.is_zero()).collect())
    }

    /// How much it asks of `resource`; zero where it does not name it.
    pub fn get(&self, resource: &str) -> Quantity {
        self.iter().find(|(name, _)| name.as_str() == resource).map_or(Quantity::ZERO, |(_, quantity)| quantity)
    }

    /// The resources and amounts, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, Quantity)> {
        self.0.iter().map(|(name, quantity)| (name, *quantity))
    }

    /// What it asks of each resource that something is granted out of.
    pub fn asked(&self) -> impl Iterator<Item = (&ResourceName, ResourceNeed)> {
        self.iter().map(|(name, quantity)| (name.source(), ResourceNeed::of(name, quantity)))
    }

    /// What it asks of `source`: of devices a number, a share, or memory.
    pub fn asked_of(&self, source: &ResourceName) -> ResourceNeed {
        let mut asked = self.asked().filter(|(name, _)| *name == source);
        asked.next().map_or(ResourceNeed::Amount(Quantity::ZERO), |(_, asked)| asked)
    }

    /// The part that names devices, or memory of them.
    pub fn devices(&self) -> impl Iterator<Item = (&ResourceName, ResourceNeed)> {
        self.asked().filter(|(name, _)| name.is_device())
    }

    /// The part that names no devices.
    pub fn scalars(&self) -> impl Iterator<Item = (&ResourceName, Quantity)> {
        self.iter().filter(|(name, _)| !name.source().is_device())
    }

    /// Whether it asks for nothing.
    pub fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (index, (name, quantity)) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{}: {}", name.as_option(), amount_in_words(name, quantity))?;
        }
        f.write_str("}")
    }
}
