//! What was granted: exact devices and shares.

use std::fmt;

use crate::{Capacity, Demand, Quantity, ResourceName};

/// Which grant of a ledger; later ones are larger, and none is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantId(pub(crate) u64);

impl GrantId {
    /// The number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A reservation with accounts of its own ([`Ledger::reserve`](crate::Ledger::reserve)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleId(pub(crate) GrantId);

impl BundleId {
    /// The grant that the machine made for it.
    pub const fn grant(self) -> GrantId {
        self.0
    }
}

/// A part of one device, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceShare {
    /// The device's number on its machine, among those of its resource.
    pub device: u32,
    /// How much of it: at most [`Quantity::ONE`].
    pub share: Quantity,
    /// Bytes of its memory; zero where nobody knows its size.
    pub memory_bytes: u64,
}

impl DeviceShare {
    /// How much of the device it is.
    pub const fn capacity(self) -> Capacity {
        Capacity { share: self.share, memory_bytes: self.memory_bytes }
    }
}

/// The devices of one resource in a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceShares {
    /// The resource.
    pub resource: ResourceName,
    /// Its devices, in ascending order.
    pub shares: Vec<DeviceShare>,
}

impl DeviceShares {
    /// Divides them: what of the resource `wanted` names, and what is left. Each part has the memory that its share stands
    /// for, or the share that its memory does.
    pub(crate) fn divide(&self, wanted: &Demand) -> (Self, Self) {
        let mut missing = wanted.get(self.resource.as_str()).units();
        let bytes = wanted.iter().filter(|(name, _)| name.is_device_memory() && *name.source() == self.resource);
        let mut missing_bytes: u64 = bytes.map(|(_, quantity)| quantity.wholes()).sum();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for DeviceShare { device, share, memory_bytes } in &self.shares {
            let whole = Capacity { share: *share, memory_bytes: *memory_bytes };
            let here = if missing_bytes > 0 {
                let memory_bytes = whole.memory_bytes.min(missing_bytes);
                missing_bytes -= memory_bytes;
                Capacity { share: part(whole.share.units(), memory_bytes, whole.memory_bytes), memory_bytes }
            } else {
                let units = share.units().min(missing);
                missing -= units;
                let bytes = u128::from(*memory_bytes) * u128::from(units) / u128::from(share.units().max(1));
                Capacity { share: Quantity::from_units(units), memory_bytes: bytes as u64 }
            };
            let left = whole.checked_sub(here).unwrap_or_default();
            first.extend((!here.share.is_zero()).then(|| here.of(*device)));
            second.extend((!left.share.is_zero()).then(|| left.of(*device)));
        }
        let of = |shares| Self { resource: self.resource.clone(), shares };
        (of(first), of(second))
    }
}

/// So many of `units` as `bytes` are of `all`, rounded up.
fn part(units: u64, bytes: u64, all: u64) -> Quantity {
    Quantity::from_units((u128::from(units) * u128::from(bytes)).div_ceil(u128::from(all.max(1))) as u64)
}

/// A demand that was met, with the devices that meet it.
///
/// It can be neither copied nor made outside of a [`Ledger`](crate::Ledger), and
/// [`Ledger::release`](crate::Ledger::release) consumes it: so it is given back once at most. One
/// that is dropped instead is never given back.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a grant that is dropped is never given back"]
pub struct Grant {
    pub(crate) id: GrantId,
    pub(crate) demand: Demand,
    pub(crate) devices: Vec<DeviceShares>,
    pub(crate) cpu_is_lent: bool,
}

impl Grant {
    /// Which grant it is.
    pub fn id(&self) -> GrantId {
        self.id
    }

    /// What was asked for and granted, lent CPUs included.
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// All its devices, in the order of the resources' names.
    pub fn devices(&self) -> &[DeviceShares] {
        &self.devices
    }

    /// Its devices of `resource`, in ascending order; none where it has none.
    pub fn devices_of(&self, resource: &str) -> &[DeviceShare] {
        self.devices.iter().find(|devices| devices.resource.as_str() == resource).map_or(&[], |devices| &devices.shares)
    }

    /// Its amounts of resources that are no devices, lent CPUs included.
    pub fn scalars(&self) -> impl Iterator<Item = (&ResourceName, Quantity)> {
        self.demand.scalars()
    }

    /// Whether its CPUs are lent to others ([`Ledger::lend_cpu`](crate::Ledger::lend_cpu)).
    pub fn cpu_is_lent(&self) -> bool {
        self.cpu_is_lent
    }
}
