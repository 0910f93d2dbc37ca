//! How much of a device there is, is free, is asked for or is held: a share of it, and bytes of its memory.
//!
//! Both are counted, whichever of them was asked for: a share stands for so much of the memory, and bytes for the share that
//! they are of it. So requests of both kinds live on one device, and neither is given twice (LEDGER-1). Bytes are exact; the
//! share that goes with them is rounded, and of a bundle that bytes were asked for the last part has the share that is left.

use crate::{DeviceShare, Quantity, ResourceName};

/// What is asked of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceNeed {
    /// Bytes of the memory of one device.
    Memory(u64),
    /// So much; of devices a number of whole ones, or a share of one.
    Amount(Quantity),
}

impl ResourceNeed {
    /// What this much of a resource asks of [its source](ResourceName::source).
    pub fn of(resource: &ResourceName, quantity: Quantity) -> Self {
        if resource.is_device_memory() { Self::Memory(quantity.wholes()) } else { Self::Amount(quantity) }
    }

    /// How many devices it takes.
    pub(crate) fn devices(self) -> u64 {
        match self {
            Self::Memory(bytes) => u64::from(bytes > 0),
            Self::Amount(amount) => amount.wholes().max(u64::from(!amount.is_zero())),
        }
    }

    /// Whether it takes several devices, which may use the links between them.
    pub(crate) fn is_of_several(self) -> bool {
        self.devices() > 1
    }

    /// Whether it takes whole devices.
    pub(crate) fn is_of_wholes(self) -> bool {
        matches!(self, Self::Amount(amount) if amount >= Quantity::ONE)
    }
}

/// An amount of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capacity {
    /// The share, at most [`Quantity::ONE`].
    pub share: Quantity,
    /// Bytes of its memory; zero where nobody knows its size.
    pub memory_bytes: u64,
}

impl Capacity {
    /// A whole device of this size; zero where nobody knows it.
    pub const fn whole(size_bytes: u64) -> Self {
        Self { share: Quantity::ONE, memory_bytes: size_bytes }
    }

    /// That much of the device with this number.
    pub(crate) const fn of(self, device: u32) -> DeviceShare {
        DeviceShare { device, share: self.share, memory_bytes: self.memory_bytes }
    }

    /// Whether `other` is no more of either.
    pub(crate) fn covers(self, other: Self) -> bool {
        self.share >= other.share && self.memory_bytes >= other.memory_bytes
    }

    /// The sum; `None` where it cannot be represented.
    pub(crate) const fn checked_add(self, other: Self) -> Option<Self> {
        match (self.share.checked_add(other.share), self.memory_bytes.checked_add(other.memory_bytes)) {
            (Some(share), Some(memory_bytes)) => Some(Self { share, memory_bytes }),
            _ => None,
        }
    }

    /// The difference; `None` where `other` is larger in either.
    pub(crate) const fn checked_sub(self, other: Self) -> Option<Self> {
        match (self.share.checked_sub(other.share), self.memory_bytes.checked_sub(other.memory_bytes)) {
            (Some(share), Some(memory_bytes)) => Some(Self { share, memory_bytes }),
            _ => None,
        }
    }
}

/// A device, or the part of it that a bundle has, and what of that is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// What is free.
    pub free: Capacity,
    /// The memory of the whole device, in bytes; zero where nobody knows it.
    pub size_bytes: u64,
    /// Whether nobody is granted it along with others of its kind, since its links to those are not to be used (PACKING-4).
    pub is_single: bool,
}

impl Room {
    /// A device of that size with nothing on it.
    pub const fn whole(size_bytes: u64) -> Self {
        Self { free: Capacity::whole(size_bytes), size_bytes, is_single: false }
    }

    /// What `asked` takes of it; `None` where there is too little. Of whole devices that are asked for, this is one.
    pub(crate) fn part(self, asked: ResourceNeed) -> Option<Capacity> {
        let Self { free, size_bytes, is_single } = self;
        match asked {
            _ if is_single && asked.is_of_several() => None,
            ResourceNeed::Amount(amount) if amount >= Quantity::ONE => (free.share == Quantity::ONE).then_some(free),
            ResourceNeed::Amount(share) => {
                let memory_bytes = memory_of(share, size_bytes).min(free.memory_bytes);
                (share <= free.share).then_some(Capacity { share, memory_bytes })
            }
            ResourceNeed::Memory(memory_bytes) => {
                let share = share_of(memory_bytes, size_bytes).min(free.share);
                let fits = memory_bytes <= free.memory_bytes && !free.share.is_zero();
                fits.then_some(Capacity { share, memory_bytes })
            }
        }
    }

    /// The same device with that taken; `None` where there is too little.
    pub(crate) fn without(self, part: Capacity) -> Option<Self> {
        Some(Self { free: self.free.checked_sub(part)?, ..self })
    }
}

/// The memory that a share of a device of this size stands for, rounded down: all shares together have no more than it.
pub fn memory_of(share: Quantity, size_bytes: u64) -> u64 {
    (u128::from(share.units()) * u128::from(size_bytes) / u128::from(Quantity::ONE.units())) as u64
}

/// The share of a device of this size that its memory is, rounded up: all parts together have no more than it.
pub(crate) fn share_of(memory_bytes: u64, size_bytes: u64) -> Quantity {
    let units = u128::from(memory_bytes) * u128::from(Quantity::ONE.units());
    let units = units.div_ceil(u128::from(size_bytes.max(1))).clamp(1, u128::from(Quantity::ONE.units()));
    Quantity::from_units(units as u64)
}
