//! The accounts of one resource's devices.

use std::collections::{BTreeMap, BTreeSet};

use crate::{DeviceShare, GrantId, Quantity};

/// One account per device, and an order over them that answers both placement rules. A bundle has accounts for
/// its own devices only, each as large as its share.
#[derive(Debug)]
pub(crate) struct Devices {
    accounts: BTreeMap<u32, Account>,
    /// The devices in service, by what is free and then by number: "the fullest with room for x,
    /// lowest number first" is the first one at or after `(x, 0)`, and "wholly free, lowest number
    /// first" is what stands at or after `(one, 0)`.
    by_free: BTreeSet<(Quantity, u32)>,
    out_of_service: BTreeMap<u32, String>,
}

#[derive(Debug)]
struct Account {
    whole: Quantity,
    free: Quantity,
    /// In the order of the ids.
    holders: Vec<(GrantId, Quantity)>,
}

impl Devices {
    pub(crate) fn new(count: u32) -> Self {
        Self::of((0..count).map(|device| DeviceShare { device, share: Quantity::ONE }))
    }

    /// The accounts of a bundle that has these.
    pub(crate) fn within(shares: &[DeviceShare]) -> Self {
        Self::of(shares.iter().copied())
    }

    fn of(shares: impl Iterator<Item = DeviceShare> + Clone) -> Self {
        let account = |share| Account { whole: share, free: share, holders: Vec::new() };
        Self {
            accounts: shares.clone().map(|DeviceShare { device, share }| (device, account(share))).collect(),
            by_free: shares.map(|DeviceShare { device, share }| (share, device)).collect(),
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
        let account = self.accounts.get_mut(&device).expect("LEDGER-2: a grant names devices of its ledger");
        let free = account.free.checked_sub(share).expect("LEDGER-1: no more is granted of a device than is free");
        let position = account.holders.binary_search_by_key(&id, |(holder, _)| *holder);
        account.holders.insert(position.expect_err("LEDGER-2: a grant takes a device once"), (id, share));
        self.set_free(device, free);
    }

    fn give_back_one(&mut self, id: GrantId, DeviceShare { device, share }: DeviceShare) {
        let account = self.accounts.get_mut(&device).expect("LEDGER-2: a grant names devices of its ledger");
        let position = account.holders.binary_search_by_key(&id, |(holder, _)| *holder);
        let (_, held) = account.holders.remove(position.expect("LEDGER-2: a share is given back by its holder"));
        assert_eq!(held, share, "LEDGER-2: what is given back is what was granted");
        let free = account.free.checked_add(share).filter(|free| *free <= account.whole);
        self.set_free(device, free.expect("LEDGER-1: no more is free of a device than there is"));
    }

    fn set_free(&mut self, device: u32, free: Quantity) {
        let account = self.accounts.get_mut(&device).expect("LEDGER-2: a grant names devices of its ledger");
        let before = std::mem::replace(&mut account.free, free);
        if self.by_free.remove(&(before, device)) {
            self.by_free.insert((free, device));
        }
    }

    /// Whether there is such a device.
    pub(crate) fn contains(&self, device: u32) -> bool {
        self.accounts.contains_key(&device)
    }

    pub(crate) fn quarantine(&mut self, device: u32, reason: String) {
        self.by_free.remove(&(self.accounts[&device].free, device));
        self.out_of_service.insert(device, reason);
    }

    pub(crate) fn restore(&mut self, device: u32) {
        if self.out_of_service.remove(&device).is_some() {
            self.by_free.insert((self.accounts[&device].free, device));
        }
    }

    pub(crate) fn out_of_service(&self) -> &BTreeMap<u32, String> {
        &self.out_of_service
    }

    /// What there is of the devices in service, added up.
    pub(crate) fn in_service(&self) -> Quantity {
        let wholes = self.by_free.iter().map(|(_, device)| self.accounts[device].whole.units());
        Quantity::from_units(wholes.sum())
    }

    pub(crate) fn held_by(&self, id: GrantId) -> Vec<DeviceShare> {
        let held = self.accounts.iter().filter_map(|(device, account)| {
            let position = account.holders.binary_search_by_key(&id, |(holder, _)| *holder).ok()?;
            Some(DeviceShare { device: *device, share: account.holders[position].1 })
        });
        held.collect()
    }

    pub(crate) fn holders(&self, device: u32) -> &[(GrantId, Quantity)] {
        self.accounts.get(&device).map_or(&[], |account| &account.holders)
    }

    /// What each device has free, in the order of the numbers, `None` where it is out of service.
    pub(crate) fn free(&self) -> Vec<Option<Quantity>> {
        let in_service = |device| !self.out_of_service.contains_key(device);
        self.accounts.iter().map(|(device, account)| in_service(device).then_some(account.free)).collect()
    }

    /// What each device in service has free, in the order of the numbers.
    pub(crate) fn free_in_service(&self) -> Vec<(u32, Quantity)> {
        let mut free: Vec<_> = self.by_free.iter().map(|(free, device)| (*device, *free)).collect();
        free.sort_unstable();
        free
    }

    /// What is free on the devices in service, added up.
    pub(crate) fn free_sum(&self) -> Quantity {
        Quantity::from_units(self.by_free.iter().map(|(free, _)| free.units()).sum())
    }

    /// Reads every account.
    pub(crate) fn audit(&self) {
        for (&device, account) in &self.accounts {
            let held: u64 = account.holders.iter().map(|(_, share)| share.units()).sum();
            let (free, whole) = (account.free.units(), account.whole.units());
            assert_eq!(held + free, whole, "LEDGER-1: free and granted of a device make what there is of it");
            let is_grantable = self.by_free.contains(&(account.free, device));
            assert_ne!(is_grantable, self.out_of_service.contains_key(&device), "LEDGER-5: in service or out of it");
        }
        let count = self.by_free.len() + self.out_of_service.len();
        assert_eq!(count, self.accounts.len(), "LEDGER-5: each device stands once in the order");
    }
}
