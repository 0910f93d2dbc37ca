//! The accounts of one resource's devices.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::choice::choose;
use crate::packing::FreeOrder;
use crate::{Capacity, ChoiceRule, DeviceShare, FreeDevices, GrantId, Quantity, ResourceNeed, Room, Topology};

/// One account per device, and an order over them that answers both placement rules. A bundle has accounts for
/// its own devices only, each as large as its share.
#[derive(Debug)]
pub(crate) struct Devices {
    accounts: BTreeMap<u32, Account>,
    /// The devices in service.
    by_free: FreeOrder,
    out_of_service: BTreeMap<u32, String>,
    /// How near they are to each other, where that makes a difference.
    topology: Option<Arc<Topology>>,
}

#[derive(Debug)]
struct Account {
    whole: Capacity,
    room: Room,
    /// In the order of the ids.
    holders: Vec<(GrantId, Capacity)>,
}

impl Devices {
    /// Those of a machine, with the size of each.
    pub(crate) fn new(sizes_bytes: impl Iterator<Item = u64>, topology: Option<Arc<Topology>>) -> Self {
        Self { topology, ..Self::of((0..).zip(sizes_bytes.map(Room::whole))) }
    }

    /// The accounts of a bundle that has these.
    pub(crate) fn within(&self, shares: &[DeviceShare]) -> Self {
        let rooms = shares.iter().map(|share| {
            let of_machine = self.accounts.get(&share.device).map_or(Room::whole(0), |account| account.room);
            (share.device, Room { free: share.capacity(), ..of_machine })
        });
        Self { topology: self.topology.clone(), ..Self::of(rooms) }
    }

    fn of(rooms: impl Iterator<Item = (u32, Room)>) -> Self {
        let mut accounts = BTreeMap::new();
        let mut by_free = FreeOrder::default();
        for (device, room) in rooms {
            accounts.insert(device, Account { whole: room.free, room, holders: Vec::new() });
            by_free.insert(device, room);
        }
        Self { accounts, by_free, out_of_service: BTreeMap::new(), topology: None }
    }

    /// The devices that meet `asked` now, in ascending order, and by which rule they are taken; `are_several` where what is
    /// granted has several devices, of which these may be a part.
    pub(crate) fn choose(&self, asked: ResourceNeed, are_several: bool) -> Option<(Vec<DeviceShare>, ChoiceRule)> {
        choose(&self.by_free, self.topology.as_deref(), asked, are_several)
    }

    /// The most that a demand of this kind could get now.
    pub(crate) fn obtainable(&self, asked: ResourceNeed) -> Quantity {
        self.by_free.obtainable(asked)
    }

    pub(crate) fn take(&mut self, id: GrantId, shares: &[DeviceShare]) {
        for share in shares {
            self.take_one(id, *share);
        }
    }

    pub(crate) fn give_back(&mut self, id: GrantId, shares: &[DeviceShare]) {
        for share in shares {
            self.give_back_one(id, *share);
        }
    }

    fn take_one(&mut self, id: GrantId, share: DeviceShare) {
        let account = self.accounts.get_mut(&share.device).expect("LEDGER-2: a grant names devices of its ledger");
        let room = account.room.without(share.capacity());
        let room = room.expect("LEDGER-1: no more is granted of a device than is free");
        let position = account.holders.binary_search_by_key(&id, |(holder, _)| *holder);
        let position = position.expect_err("LEDGER-2: a grant takes a device once");
        account.holders.insert(position, (id, share.capacity()));
        self.set_room(share.device, room);
    }

    fn give_back_one(&mut self, id: GrantId, share: DeviceShare) {
        let account = self.accounts.get_mut(&share.device).expect("LEDGER-2: a grant names devices of its ledger");
        let position = account.holders.binary_search_by_key(&id, |(holder, _)| *holder);
        let (_, held) = account.holders.remove(position.expect("LEDGER-2: a share is given back by its holder"));
        assert_eq!(held, share.capacity(), "LEDGER-2: what is given back is what was granted");
        let free = account.room.free.checked_add(held).filter(|free| account.whole.covers(*free));
        let free = free.expect("LEDGER-1: no more is free of a device than there is");
        let room = Room { free, ..account.room };
        self.set_room(share.device, room);
    }

    fn set_room(&mut self, device: u32, room: Room) {
        let account = self.accounts.get_mut(&device).expect("LEDGER-2: a grant names devices of its ledger");
        let before = std::mem::replace(&mut account.room, room);
        if self.by_free.remove(device, before) {
            self.by_free.insert(device, room);
        }
    }

    /// Whether there is such a device.
    pub(crate) fn contains(&self, device: u32) -> bool {
        self.accounts.contains_key(&device)
    }

    pub(crate) fn quarantine(&mut self, device: u32, reason: String) {
        self.by_free.remove(device, self.accounts[&device].room);
        self.out_of_service.insert(device, reason);
    }

    /// Whether it may be granted along with others of its kind (PACKING-4).
    pub(crate) fn set_single(&mut self, device: u32, is_single: bool) {
        let room = Room { is_single, ..self.accounts[&device].room };
        self.set_room(device, room);
    }

    pub(crate) fn is_single(&self, device: u32) -> bool {
        self.accounts.get(&device).is_some_and(|account| account.room.is_single)
    }

    pub(crate) fn restore(&mut self, device: u32) {
        if self.out_of_service.remove(&device).is_some() {
            self.by_free.insert(device, self.accounts[&device].room);
        }
    }

    pub(crate) fn out_of_service(&self) -> &BTreeMap<u32, String> {
        &self.out_of_service
    }

    /// What there is of the devices in service, added up.
    pub(crate) fn in_service(&self) -> Quantity {
        let wholes = self.by_free.iter().map(|(device, _)| self.accounts[&device].whole.share.units());
        Quantity::from_units(wholes.sum())
    }

    pub(crate) fn held_by(&self, id: GrantId) -> Vec<DeviceShare> {
        let held = self.accounts.iter().filter_map(|(device, account)| {
            let position = account.holders.binary_search_by_key(&id, |(holder, _)| *holder).ok()?;
            let (_, Capacity { share, memory_bytes }) = account.holders[position];
            Some(DeviceShare { device: *device, share, memory_bytes })
        });
        held.collect()
    }

    pub(crate) fn holders(&self, device: u32) -> &[(GrantId, Capacity)] {
        self.accounts.get(&device).map_or(&[], |account| &account.holders)
    }

    /// What each device has free.
    pub(crate) fn free(&self) -> FreeDevices {
        let in_service = |device| !self.out_of_service.contains_key(device);
        self.accounts.iter().map(|(device, account)| in_service(device).then_some(account.room)).collect()
    }

    /// The shares that are free on the devices in service, added up.
    pub(crate) fn free_sum(&self) -> Quantity {
        Quantity::from_units(self.by_free.iter().map(|(_, room)| room.free.share.units()).sum())
    }

    /// Reads every account.
    pub(crate) fn audit(&self) {
        for (&device, account) in &self.accounts {
            let held = account.holders.iter().try_fold(account.room.free, |sum, (_, held)| sum.checked_add(*held));
            assert_eq!(held, Some(account.whole), "LEDGER-1: free and granted of a device make what there is of it");
            let is_alone = account.holders.iter().all(|(_, held)| !held.share.is_zero());
            assert!(is_alone, "PACKING-3: memory is held along with a share");
            let is_grantable = self.by_free.contains(device, account.room);
            assert_ne!(is_grantable, self.out_of_service.contains_key(&device), "LEDGER-5: in service or out of it");
        }
        let count = self.by_free.len() + self.out_of_service.len();
        assert_eq!(count, self.accounts.len(), "LEDGER-5: each device stands once in the order");
    }
}
