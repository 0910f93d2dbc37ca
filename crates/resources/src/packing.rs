//! Which devices a demand takes: the one place where that is decided, for the ledger, the scheduler's views of machines and
//! the autoscaler's plans alike.
//!
//! - PACKING-1: a demand for whole devices takes wholly free ones with all of their memory: those that are near to each
//!   other where that is known ([`Topology`](crate::Topology)), and otherwise the lowest numbers.
//! - PACKING-2: a share below one, and bytes of memory, take the fullest device that has room for them, lowest number first
//!   among equals, and never span two.
//! - PACKING-3: a device's memory is held only along with a share of it, so that a device of which no share is held is
//!   wholly free.
//! - PACKING-4: a device whose links to others are not to be used is granted to demands for one device alone.
//!
//! [`FreeDevices`] answers from a list, [`FreeOrder`] from an order that is kept up to date; they agree (`tests/packing.rs`).

mod together;

use std::collections::BTreeMap;

use crate::{DeviceShare, Quantity, ResourceNeed, Room};

pub use together::NoPacking;

/// What each device of one resource has free, by its number; `None` where it is out of service.
///
/// Not a sum: a share never spans two devices, so 0.2 free on each of two are no room for 0.4.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FreeDevices(Vec<Option<Room>>);

impl FreeDevices {
    /// Each device, by its number.
    pub fn iter(&self) -> impl Iterator<Item = Option<Room>> {
        self.0.iter().copied()
    }

    /// The share that each device has free, by its number.
    pub fn shares(&self) -> impl Iterator<Item = Option<Quantity>> {
        self.iter().map(|room| room.map(|room| room.free.share))
    }

    /// The devices in service and their numbers.
    pub fn in_service(&self) -> impl Iterator<Item = (u32, Room)> {
        (0..).zip(&self.0).filter_map(|(device, room)| room.map(|room| (device, room)))
    }

    /// How many in service are granted only one at a time (PACKING-4).
    pub fn single(&self) -> u32 {
        self.0.iter().flatten().filter(|room| room.is_single).count() as u32
    }

    /// How many are out of service.
    pub fn out_of_service(&self) -> u32 {
        self.0.iter().filter(|room| room.is_none()).count() as u32
    }

    /// The shares that are free, added up.
    pub fn sum(&self) -> Quantity {
        Quantity::from_units(self.0.iter().flatten().map(|room| room.free.share.units()).sum())
    }

    /// The memory that is free, added up.
    pub fn memory(&self) -> Quantity {
        let bytes = self.0.iter().flatten().map(|room| memory_obtainable(room).units());
        Quantity::from_units(bytes.fold(0, u64::saturating_add))
    }

    /// The most that a demand of this kind could get: of devices the wholly free ones where whole ones are asked for, and
    /// otherwise the free part, or memory, of one device.
    pub fn obtainable(&self, asked: ResourceNeed) -> Quantity {
        let rooms = self.0.iter().flatten();
        match asked {
            ResourceNeed::Memory(_) => rooms.map(memory_obtainable).max().unwrap_or_default(),
            ResourceNeed::Amount(amount) if amount < Quantity::ONE => {
                rooms.map(|room| room.free.share).max().unwrap_or_default()
            }
            ResourceNeed::Amount(_) => Quantity::whole(rooms.filter(|room| room.part(asked).is_some()).count() as u32),
        }
    }

    /// Whether one demand of this kind has room.
    pub fn fits(&self, asked: ResourceNeed) -> bool {
        let with_room = self.0.iter().flatten().filter(|room| room.part(asked).is_some());
        with_room.take(asked.devices() as usize).count() as u64 == asked.devices()
    }

    /// Books `asked`, as the machine's ledger would (PACKING-1, PACKING-2); `false`, and nothing changes, where there is no
    /// room.
    pub fn take(&mut self, asked: ResourceNeed) -> bool {
        if !self.fits(asked) {
            return false;
        }
        let book = |room: &mut Room| {
            *room = room.part(asked).and_then(|part| room.without(part)).expect("it was looked at whether it has room");
        };
        let with_room = self.0.iter_mut().flatten().filter(|room| room.part(asked).is_some());
        if asked.is_of_wholes() {
            with_room.take(asked.devices() as usize).for_each(book);
        } else if let Some(fullest) = with_room.min_by_key(|room| room.free.share).filter(|_| asked.devices() > 0) {
            book(fullest);
        }
        true
    }

    /// The reverse of [`take`](Self::take) for what was granted as `asked`, on the devices with these numbers.
    pub fn give_back(&mut self, asked: ResourceNeed, numbers: &[u32]) {
        for number in numbers {
            let Some(room) = self.0.get_mut(*number as usize).and_then(Option::as_mut) else { continue };
            let empty = Room::whole(room.size_bytes);
            let part = empty.part(asked).unwrap_or_default();
            let sum = room.free.checked_add(part).filter(|sum| empty.free.covers(*sum));
            room.free = sum.unwrap_or(empty.free);
        }
    }

    /// Which devices meet all of `asked` at once, each entry in the place of its demand; zeros get none.
    pub fn pack(&self, asked: &[ResourceNeed]) -> Result<Vec<Vec<DeviceShare>>, NoPacking> {
        together::pack(&self.in_service().collect::<Vec<_>>(), asked)
    }
}

/// The memory that one demand can get of a device.
fn memory_obtainable(room: &Room) -> Quantity {
    let bytes = if room.free.share.is_zero() { 0 } else { room.free.memory_bytes };
    Quantity::from_units(bytes.saturating_mul(Quantity::UNITS_PER_WHOLE))
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

impl FromIterator<Option<Room>> for FreeDevices {
    fn from_iter<I: IntoIterator<Item = Option<Room>>>(devices: I) -> Self {
        Self(devices.into_iter().collect())
    }
}

/// The same of devices whose size nobody knows.
impl FromIterator<Option<Quantity>> for FreeDevices {
    fn from_iter<I: IntoIterator<Item = Option<Quantity>>>(devices: I) -> Self {
        let room = |share| Room { free: crate::Capacity { share, memory_bytes: 0 }, ..Room::whole(0) };
        devices.into_iter().map(|share| share.map(room)).collect()
    }
}

/// The devices in service by the share that is free and then by number: "the fullest with room for x, lowest number first" is
/// the first one at or after `(x, 0)`, and "wholly free, lowest number first" is what stands at or after `(one, 0)`.
#[derive(Debug, Default)]
pub(crate) struct FreeOrder(BTreeMap<(Quantity, u32), Room>);

impl FreeOrder {
    pub(crate) fn insert(&mut self, device: u32, room: Room) {
        self.0.insert((room.free.share, device), room);
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, device: u32, room: Room) -> bool {
        self.0.remove(&(room.free.share, device)).is_some()
    }

    pub(crate) fn contains(&self, device: u32, room: Room) -> bool {
        self.0.get(&(room.free.share, device)) == Some(&room)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// In the order of the shares.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Room)> {
        self.0.iter().map(|((_, device), room)| (*device, *room))
    }

    /// The wholly free ones, in ascending order; `are_several` where what is granted has several devices.
    pub(crate) fn wholly_free(&self, are_several: bool) -> impl Iterator<Item = u32> {
        let whole = self.0.range((Quantity::ONE, 0)..).filter(move |(_, room)| !(are_several && room.is_single));
        whole.map(|((_, device), _)| *device)
    }

    /// What devices with room for `asked` give, the fullest first.
    fn parts(&self, asked: ResourceNeed, are_several: bool) -> impl Iterator<Item = DeviceShare> {
        let least = match asked {
            ResourceNeed::Memory(_) => Quantity::from_units(1),
            ResourceNeed::Amount(amount) => amount.min(Quantity::ONE),
        };
        let may_be = move |room: &Room| !(are_several && room.is_single);
        let with_room = self.0.range((least, 0)..).filter(move |(_, room)| may_be(room));
        with_room.filter_map(move |((_, device), room)| Some(room.part(asked)?.of(*device)))
    }

    /// What a device with this number gives that is wholly free.
    pub(crate) fn whole_part(&self, device: u32, asked: ResourceNeed) -> Option<DeviceShare> {
        Some(self.0.get(&(Quantity::ONE, device))?.part(asked)?.of(device))
    }

    /// The devices that meet `asked` now, in ascending order (PACKING-1, PACKING-2, PACKING-4), and whether others have room,
    /// too; `are_several` where what is granted has several devices, of which these may be a part.
    pub(crate) fn choose(&self, asked: ResourceNeed, are_several: bool) -> Option<(Vec<DeviceShare>, bool)> {
        if asked.devices() > self.0.len() as u64 {
            return None;
        }
        let wanted = asked.devices() as usize;
        let mut chosen: Vec<_> = self.parts(asked, are_several).take(wanted + 1).collect();
        let has_others = chosen.len() > wanted;
        chosen.truncate(wanted);
        (chosen.len() == wanted).then_some((chosen, has_others))
    }

    /// The same as [`FreeDevices::obtainable`], without a look at each device where a share is asked for.
    pub(crate) fn obtainable(&self, asked: ResourceNeed) -> Quantity {
        match asked {
            ResourceNeed::Memory(_) => self.0.values().map(memory_obtainable).max().unwrap_or_default(),
            ResourceNeed::Amount(amount) if amount < Quantity::ONE => {
                self.0.last_key_value().map(|((share, _), _)| *share).unwrap_or_default()
            }
            ResourceNeed::Amount(_) => Quantity::whole(self.wholly_free(asked.is_of_several()).count() as u32),
        }
    }
}
