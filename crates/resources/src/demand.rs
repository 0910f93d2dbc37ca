//! What a task or actor asks for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::{Capacity, Quantity, ResourceName};

/// The most resources one demand may name.
pub const DEMAND_RESOURCES_MAX: usize = 1024;

/// Amounts of resources that are wanted together, on one machine.
///
/// Resources stand in the order of their names, each once, none at zero; so two demands are equal
/// exactly where they ask for the same. A clone costs no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Demand(Arc<[(ResourceName, Capacity)]>);

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
    /// Memory of devices, and none of the devices.
    #[error("memory of {resource} was asked for, and no {resource}")]
    NoDevice {
        /// The resource.
        resource: ResourceName,
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
        }
        Ok(Self(amounts.into_iter().map(|(name, quantity)| (name, quantity.into())).collect()))
    }

    /// The demand for nothing, which every machine meets.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// This demand with `quantity` of `resource` in place of what it asked of it before.
    pub fn with(&self, resource: ResourceName, quantity: Quantity) -> Result<Self, DemandError> {
        let others = self.0.iter().filter(|(name, _)| *name != resource);
        let others: Vec<(ResourceName, Capacity)> = others.cloned().collect();
        let shares = others.iter().map(|(name, asked)| (name.clone(), asked.share));
        let mut changed = Self::new(shares.chain([(resource, quantity)]).collect::<Vec<_>>())?;
        for (name, asked) in others.iter().filter(|(_, asked)| asked.memory_bytes > 0) {
            changed = changed.with_memory(name, asked.memory_bytes)?;
        }
        Ok(changed)
    }

    /// This demand with so many bytes of memory of each device of `resource` that it asks for.
    pub fn with_memory(&self, resource: &ResourceName, memory_bytes: u64) -> Result<Self, DemandError> {
        if !resource.is_device() || self.get(resource.as_str()).is_zero() {
            return Err(DemandError::NoDevice { resource: resource.clone() });
        }
        let changed = self.0.iter().map(|(name, asked)| {
            let changed = if name == resource { Capacity { memory_bytes, ..*asked } } else { *asked };
            (name.clone(), changed)
        });
        Ok(Self(changed.collect()))
    }

    /// What it asks for beyond `part`. Where that has a share of the same device, it has the memory that is asked for too.
    #[must_use]
    pub fn without(&self, part: &Self) -> Self {
        let beyond = self.0.iter().map(|(name, asked)| {
            let part = part.get(name.as_str());
            let left = asked.share.units().saturating_sub(part.units());
            let is_of_same = asked.share < Quantity::ONE && !part.is_zero();
            let memory_bytes = if is_of_same { 0 } else { asked.memory_bytes };
            (name.clone(), Capacity { share: Quantity::from_units(left), memory_bytes })
        });
        Self(beyond.filter(|(_, asked)| !asked.share.is_zero()).collect())
    }

    /// What `parts` ask for together; of devices with memory the most that one of them asks of each.
    pub fn sum<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sum: BTreeMap<&ResourceName, Capacity> = BTreeMap::new();
        for (name, asked) in parts.into_iter().flat_map(Self::capacities) {
            let of = sum.entry(name).or_default();
            of.share = Quantity::from_units(of.share.units().saturating_add(asked.share.units()));
            of.memory_bytes = of.memory_bytes.max(asked.memory_bytes);
        }
        Self(sum.into_iter().map(|(name, asked)| (name.clone(), asked)).collect())
    }

    /// What both ask for: of each resource the smaller amount.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        let both = self.0.iter().map(|(name, asked)| {
            (name.clone(), Capacity { share: asked.share.min(other.get(name.as_str())), ..*asked })
        });
        Self(both.filter(|(_, asked)| !asked.share.is_zero()).collect())
    }

    /// How much it asks of `resource`; zero where it does not name it.
    pub fn get(&self, resource: &str) -> Quantity {
        self.iter().find(|(name, _)| name.as_str() == resource).map_or(Quantity::ZERO, |(_, quantity)| quantity)
    }

    /// The resources and amounts, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, Quantity)> {
        self.capacities().map(|(name, asked)| (name, asked.share))
    }

    /// The same, in each dimension of devices.
    pub fn capacities(&self) -> impl Iterator<Item = (&ResourceName, Capacity)> {
        self.0.iter().map(|(name, asked)| (name, *asked))
    }

    /// How much it asks of `resource`, in each dimension.
    pub fn capacity(&self, resource: &str) -> Capacity {
        self.capacities().find(|(name, _)| name.as_str() == resource).map_or(Capacity::default(), |(_, asked)| asked)
    }

    /// The part that names devices.
    pub fn devices(&self) -> impl Iterator<Item = (&ResourceName, Capacity)> {
        self.capacities().filter(|(name, _)| name.is_device())
    }

    /// The part that names no devices.
    pub fn scalars(&self) -> impl Iterator<Item = (&ResourceName, Quantity)> {
        self.iter().filter(|(name, _)| !name.is_device())
    }

    /// Whether it asks for nothing.
    pub fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (index, (name, asked)) in self.capacities().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name}: {asked}")?;
        }
        f.write_str("}")
    }
}
