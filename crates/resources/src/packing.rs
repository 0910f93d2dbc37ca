//! Which devices a demand takes: the one place where that is decided, for the ledger, the scheduler's views of machines and
//! the autoscaler's plans alike.
//!
//! - PACKING-1: a demand for whole devices takes wholly free ones with enough memory, lowest number first, with all of
//!   their memory.
//! - PACKING-2: a share below one takes the fullest device that has room for its share and its memory, lowest number first
//!   among equals, and never spans two.
//! - PACKING-3: a device's memory is held only along with a share of it, so that a device of which no share is held is
//!   wholly free.
//!
//! [`FreeDevices`] answers from a list, [`FreeOrder`] from an order that is kept up to date; they agree (`tests/packing.rs`).

mod together;

use std::collections::BTreeMap;

use crate::{Capacity, DeviceShare, Quantity};

pub use together::NoPacking;

/// What each device of one resource has free, by its number; `None` where it is out of service.
///
/// Not a sum: a share never spans two devices, so 0.2 free on each of two are no room for 0.4.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FreeDevices(Vec<Option<Capacity>>);

impl FreeDevices {
    /// Each device, by its number.
    pub fn iter(&self) -> impl Iterator<Item = Option<Capacity>> {
        self.0.iter().copied()
    }

    /// The share that each device has free, by its number.
    pub fn shares(&self) -> impl Iterator<Item = Option<Quantity>> {
        self.iter().map(|free| free.map(|free| free.share))
    }

    /// The devices in service and their numbers.
    pub fn in_service(&self) -> impl Iterator<Item = (u32, Capacity)> {
        (0..).zip(&self.0).filter_map(|(device, free)| free.map(|free| (device, free)))
    }

    /// How many are out of service.
    pub fn out_of_service(&self) -> u32 {
        self.0.iter().filter(|free| free.is_none()).count() as u32
    }

    /// The shares that are free, added up.
    pub fn sum(&self) -> Quantity {
        Quantity::from_units(self.0.iter().flatten().map(|free| free.share.units()).sum())
    }

    /// The most that a demand of this kind could get: of devices the wholly free ones where whole ones are asked for, and
    /// the free part of one device otherwise.
    pub fn obtainable(&self, asked: Capacity) -> Quantity {
        let enough = self.0.iter().flatten().filter(|free| free.memory_bytes >= asked.memory_bytes);
        let shares = enough.map(|free| free.share);
        if asked.share < Quantity::ONE {
            return shares.max().unwrap_or_default();
        }
        Quantity::whole(shares.filter(|share| *share == Quantity::ONE).count() as u32)
    }

    /// Books `asked`, as the machine's ledger would (PACKING-1, PACKING-2); `false`, and nothing changes, where there is no
    /// room.
    pub fn take(&mut self, asked: Capacity) -> bool {
        if self.obtainable(asked) < asked.share {
            return false;
        }
        let with_room = |free: &Capacity| free.covers(one_of(asked));
        let mut free = self.0.iter_mut().flatten().filter(|free| with_room(free));
        if asked.share >= Quantity::ONE {
            free.take(asked.share.wholes() as usize).for_each(|free| *free = Capacity::default());
        } else if let Some(fullest) = free.by_ref().min_by_key(|free| free.share) {
            *fullest = fullest.checked_sub(asked).unwrap_or_default();
        }
        true
    }

    /// Which devices meet all of `asked` at once, each entry in the place of its demand; zeros get none.
    pub fn pack(&self, asked: &[Capacity]) -> Result<Vec<Vec<DeviceShare>>, NoPacking> {
        together::pack(&self.in_service().collect::<Vec<_>>(), asked)
    }
}

impl Clone for FreeDevices {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }

    // Views of machines are brought up to date again and again, in the memory that they have.
    fn clone_from(&mut self, source: &Self) {
        self.0.clone_from(&source.0);
    }
}

impl FromIterator<Option<Capacity>> for FreeDevices {
    fn from_iter<I: IntoIterator<Item = Option<Capacity>>>(devices: I) -> Self {
        Self(devices.into_iter().collect())
    }
}

/// The same with memory that is not counted.
impl FromIterator<Option<Quantity>> for FreeDevices {
    fn from_iter<I: IntoIterator<Item = Option<Quantity>>>(devices: I) -> Self {
        devices.into_iter().map(|share| share.map(Capacity::from)).collect()
    }
}

/// The devices in service by the share that is free and then by number, each with its free memory: "the fullest with room
/// for x, lowest number first" is the first one at or after `(x, 0)`, and "wholly free, lowest number first" is what stands
/// at or after `(one, 0)`.
#[derive(Debug, Default)]
pub(crate) struct FreeOrder(BTreeMap<(Quantity, u32), u64>);

impl FreeOrder {
    pub(crate) fn insert(&mut self, device: u32, free: Capacity) {
        self.0.insert((free.share, device), free.memory_bytes);
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, device: u32, free: Capacity) -> bool {
        self.0.remove(&(free.share, device)).is_some()
    }

    pub(crate) fn contains(&self, device: u32, free: Capacity) -> bool {
        self.0.get(&(free.share, device)) == Some(&free.memory_bytes)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// In the order of the shares.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Capacity)> {
        self.0.iter().map(|((share, device), bytes)| (*device, Capacity { share: *share, memory_bytes: *bytes }))
    }

    /// Those with at least this share and this memory free, the fullest first.
    fn with_room(&self, asked: Capacity) -> impl Iterator<Item = DeviceShare> {
        let enough = self.0.range((asked.share, 0)..).filter(move |(_, bytes)| **bytes >= asked.memory_bytes);
        enough.map(|((share, device), bytes)| DeviceShare { device: *device, share: *share, memory_bytes: *bytes })
    }

    /// The devices that meet `asked` now, in ascending order (PACKING-1, PACKING-2).
    pub(crate) fn choose(&self, asked: Capacity) -> Option<Vec<DeviceShare>> {
        let mut with_room = self.with_room(one_of(asked));
        if asked.share < Quantity::ONE {
            let Capacity { share, memory_bytes } = asked;
            return Some(vec![DeviceShare { share, memory_bytes, ..with_room.next()? }]);
        }
        if asked.share.wholes() > self.0.len() as u64 {
            return None;
        }
        let wanted = asked.share.wholes() as usize;
        let chosen: Vec<_> = with_room.take(wanted).collect();
        (chosen.len() == wanted).then_some(chosen)
    }

    /// The same as [`FreeDevices::obtainable`], without a look at each device where no memory is asked for.
    pub(crate) fn obtainable(&self, asked: Capacity) -> Quantity {
        if asked.share >= Quantity::ONE {
            return Quantity::whole(self.with_room(one_of(asked)).count() as u32);
        }
        let enough = self.0.iter().rev().find(|(_, bytes)| **bytes >= asked.memory_bytes);
        enough.map(|((share, _), _)| *share).unwrap_or_default()
    }
}

/// What is asked of one device.
fn one_of(asked: Capacity) -> Capacity {
    Capacity { share: asked.share.min(Quantity::ONE), ..asked }
}
