//! The accounts of one resource's devices.

use std::collections::{BTreeMap, BTreeSet};

use crate::{DeviceShare, GrantId, Quantity};

/// One account per device, and an order over them that answers both placement rules.
#[derive(Debug)]
pub(crate) struct Devices {
    accounts: Vec<Account>,
    /// The devices in service, by what is free and then by number: "the fullest with room for x,
    /// lowest number first" is the first one at or after `(x, 0)`, and "wholly free, lowest number
    /// first" is what stands at or after `(one, 0)`.
    by_free: BTreeSet<(Quantity, u32)>,
    out_of_service: BTreeMap<u32, String>,
}

#[derive(Debug)]
struct Account {
    free: Quantity,
    /// In the order of the ids, since later grants have larger ones.
    holders: Vec<(GrantId, Quantity)>,
}

impl Devices {
    pub(crate) fn new(count: u32) -> Self {
        Self {
            accounts: (0..count).map(|_| Account { free: Quantity::ONE, holders: Vec::new() }).collect(),
            by_free: (0..count).map(|device| (Quantity::ONE, device)).collect(),
            out_of_service: BTreeMap::new(),
        }
    }

    /// The devices that meet `asked` now, in ascending order.
    pub(crate) fn choose(&self, asked: Quantity) -> Option<Vec<DeviceShare>> {
        if asked < Quantity::ONE {
            let (_, device) = *self.by_free.range((asked, 0)..).next()?;
            return Some(vec![DeviceShare { device, share: asked }]);
        }
        if asked.wholes() > self.by_free.len() as u64 {
            return None;
        }
        let wanted = asked.wholes() as usize;
        let wholly_free = self.by_free.range((Quantity::ONE, 0)..).take(wanted);
        let chosen: Vec<_> =
            wholly_free.map(|(_, device)| DeviceShare { device: *device, share: Quantity::ONE }).collect();
        (chosen.len() == wanted).then_some(chosen)
    }

    /// The same as [`crate::obtainable`], without a look at each device.
    pub(crate) fn obtainable(&self, asked: Quantity) -> Quantity {
        if asked < Quantity::ONE {
            return self.by_free.last().map(|(free, _)| *free).unwrap_or_default();
        }
        Quantity::whole(self.by_free.range((Quantity::ONE, 0)..).count() as u32)
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

    fn take_one(&mut self, id: GrantId, DeviceShare { device, share }: DeviceShare) {
        let account = &mut self.accounts[device as usize];
        let free = account.free.checked_sub(share).expect("LEDGER-1: no more is granted of a device than is free");
        assert!(account.holders.last().is_none_or(|(last, _)| *last < id), "LEDGER-2: ids of grants only grow");
        account.holders.push((id, share));
        self.set_free(device, free);
    }

    fn give_back_one(&mut self, id: GrantId, DeviceShare { device, share }: DeviceShare) {
        let account = self.accounts.get_mut(device as usize).expect("LEDGER-2: a grant names devices of its ledger");
        let position = account.holders.binary_search_by_key(&id, |(holder, _)| *holder);
        let (_, held) = account.holders.remove(position.expect("LEDGER-2: a share is given back by its holder"));
        assert_eq!(held, share, "LEDGER-2: what is given back is what was granted");
        let free = account.free.checked_add(share).filter(|free| *free <= Quantity::ONE);
        self.set_free(device, free.expect("LEDGER-1: a device is never more than one whole"));
    }

    fn set_free(&mut self, device: u32, free: Quantity) {
        let before = std::mem::replace(&mut self.accounts[device as usize].free, free);
        if self.by_free.remove(&(before, device)) {
            self.by_free.insert((free, device));
        }
    }

    /// Whether there is such a device.
    pub(crate) fn contains(&self, device: u32) -> bool {
        (device as usize) < self.accounts.len()
    }

    pub(crate) fn quarantine(&mut self, device: u32, reason: String) {
        self.by_free.remove(&(self.accounts[device as usize].free, device));
        self.out_of_service.insert(device, reason);
    }

    pub(crate) fn restore(&mut self, device: u32) {
        if self.out_of_service.remove(&device).is_some() {
            self.by_free.insert((self.accounts[device as usize].free, device));
        }
    }

    pub(crate) fn out_of_service(&self) -> &BTreeMap<u32, String> {
        &self.out_of_service
    }

    pub(crate) fn in_service(&self) -> u32 {
        self.by_free.len() as u32
    }

    pub(crate) fn holders(&self, device: u32) -> &[(GrantId, Quantity)] {
        self.accounts.get(device as usize).map_or(&[], |account| &account.holders)
    }

    /// What each device has free, `None` where it is out of service.
    pub(crate) fn free(&self) -> Vec<Option<Quantity>> {
        let in_service = |device: usize| !self.out_of_service.contains_key(&(device as u32));
        self.accounts.iter().enumerate().map(|(device, account)| in_service(device).then_some(account.free)).collect()
    }

    /// What is free on the devices in service, added up.
    pub(crate) fn free_sum(&self) -> Quantity {
        Quantity::from_units(self.by_free.iter().map(|(free, _)| free.units()).sum())
    }

    /// Reads every account.
    pub(crate) fn audit(&self) {
        for (device, account) in self.accounts.iter().enumerate() {
            let held: u64 = account.holders.iter().map(|(_, share)| share.units()).sum();
            let whole = Quantity::ONE.units();
            assert_eq!(held + account.free.units(), whole, "LEDGER-1: free and granted of a device make one whole");
            let device = device as u32;
            let is_grantable = self.by_free.contains(&(account.free, device));
            assert_ne!(is_grantable, self.out_of_service.contains_key(&device), "LEDGER-5: in service or out of it");
        }
        let count = self.by_free.len() + self.out_of_service.len();
        assert_eq!(count, self.accounts.len(), "LEDGER-5: each device stands once in the order");
    }
}
