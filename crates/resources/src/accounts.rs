//! What there is of each resource and how much of it is granted: of a machine, or of one bundle.

use std::collections::BTreeMap;

use crate::devices::Devices;
use crate::{ChoiceRule, Demand, DeviceShares, GrantId, Inventory, Quantity, ResourceName, ResourceNeed};

/// One account for each resource, and one for each device.
#[derive(Debug)]
pub(crate) struct Accounts {
    scalars: BTreeMap<ResourceName, Scalar>,
    devices: BTreeMap<ResourceName, Devices>,
    /// Whether there is one of each implicit resource: an account is kept of those of which something is granted.
    has_implicit: bool,
}

/// The account of a resource that is no device.
#[derive(Debug)]
struct Scalar {
    total: Quantity,
    /// Wider than a quantity because lent CPUs that all come back may add up to any multiple of the total.
    granted_units: u128,
}

impl Scalar {
    fn new(total: Quantity) -> Self {
        Self { total, granted_units: 0 }
    }

    /// What can be granted; an overdrawn account shows zero.
    fn free(&self) -> Quantity {
        let free = u128::from(self.total.units()).saturating_sub(self.granted_units);
        Quantity::from_units(free as u64)
    }

    fn take(&mut self, amount: Quantity) {
        assert!(amount <= self.free(), "LEDGER-3: no more is granted than is free");
        self.overdraw(amount);
    }

    fn overdraw(&mut self, amount: Quantity) {
        self.granted_units += u128::from(amount.units());
    }

    fn give_back(&mut self, amount: Quantity) {
        let granted = self.granted_units.checked_sub(u128::from(amount.units()));
        self.granted_units = granted.expect("LEDGER-3: no more is given back than was granted");
    }
}

impl Accounts {
    /// Those of a machine on which nothing runs.
    pub(crate) fn of_machine(inventory: &Inventory) -> Self {
        let (devices, scalars): (Vec<_>, Vec<_>) = inventory.totals().partition(|(resource, _)| resource.is_device());
        let devices = devices.into_iter().map(|(name, _)| {
            let (sizes, topology) = (inventory.device_memory(name.as_str()), inventory.topology(name.as_str()));
            (name.clone(), Devices::new(sizes, topology))
        });
        let scalars = scalars.into_iter().map(|(name, total)| (name.clone(), Scalar::new(total)));
        Self { scalars: scalars.collect(), devices: devices.collect(), has_implicit: true }
    }

    /// Those of a bundle that was granted this of a machine's.
    pub(crate) fn of_bundle(&self, demand: &Demand, devices: &[DeviceShares]) -> Self {
        let scalars = demand.scalars().map(|(name, total)| (name.clone(), Scalar::new(total)));
        let devices = devices.iter().map(|of| (of.resource.clone(), self.devices[&of.resource].within(&of.shares)));
        Self { scalars: scalars.collect(), devices: devices.collect(), has_implicit: false }
    }

    /// The devices that meet `demand` now, which is all of `whole` or a part of it, and the rule by which those of each resource
    /// are taken; otherwise the first resource of which there is too little, and how much of it was asked for.
    pub(crate) fn choose(
        &self,
        demand: &Demand,
        whole: &Demand,
    ) -> Result<Vec<(DeviceShares, ChoiceRule)>, (ResourceName, Quantity)> {
        let mut chosen = Vec::new();
        for (name, quantity) in demand.iter() {
            let resource = name.source();
            if resource.is_device() {
                let are_several = whole.asked_of(resource).is_of_several();
                let asked = ResourceNeed::of(name, quantity);
                match self.devices.get(resource).and_then(|devices| devices.choose(asked, are_several)) {
                    Some((shares, rule)) => {
                        chosen.push((DeviceShares { resource: resource.clone(), shares }, rule));
                    }
                    None => return Err((name.clone(), quantity)),
                }
            } else if quantity > self.free_scalar(resource) {
                return Err((name.clone(), quantity));
            }
        }
        Ok(chosen)
    }

    pub(crate) fn take(&mut self, id: GrantId, demand: &Demand, devices: &[DeviceShares]) {
        for (resource, amount) in demand.scalars() {
            self.scalar(resource).take(amount);
        }
        self.take_devices(id, devices);
    }

    /// Books what was granted elsewhere, CPUs that were lent and came back included.
    pub(crate) fn adopt(&mut self, id: GrantId, demand: &Demand, devices: &[DeviceShares], cpu_is_lent: bool) {
        for (resource, amount) in demand.scalars() {
            match *resource == ResourceName::CPU {
                true if cpu_is_lent => {}
                true => self.scalar(resource).overdraw(amount),
                false => self.scalar(resource).take(amount),
            }
        }
        self.take_devices(id, devices);
    }

    fn take_devices(&mut self, id: GrantId, devices: &[DeviceShares]) {
        for DeviceShares { resource, shares } in devices {
            self.devices_of(resource).take(id, shares);
        }
    }

    pub(crate) fn give_back(&mut self, id: GrantId, demand: &Demand, devices: &[DeviceShares], cpu_is_lent: bool) {
        for (resource, amount) in demand.scalars() {
            if !(cpu_is_lent && *resource == ResourceName::CPU) {
                self.scalar(resource).give_back(amount);
            }
        }
        if self.has_implicit {
            self.scalars.retain(|name, account| !name.is_implicit() || account.granted_units > 0);
        }
        for DeviceShares { resource, shares } in devices {
            self.devices_of(resource).give_back(id, shares);
        }
    }

    pub(crate) fn lend_cpu(&mut self, cpus: Quantity) {
        self.scalar(&ResourceName::CPU).give_back(cpus);
    }

    pub(crate) fn restore_cpu(&mut self, cpus: Quantity) {
        self.scalar(&ResourceName::CPU).overdraw(cpus);
    }

    /// The devices that a grant has here.
    pub(crate) fn held_by(&self, id: GrantId) -> Vec<DeviceShares> {
        let held = self.devices.iter().map(|(resource, devices)| {
            let shares = devices.held_by(id);
            DeviceShares { resource: resource.clone(), shares }
        });
        held.filter(|of| !of.shares.is_empty()).collect()
    }

    pub(crate) fn free_scalar(&self, resource: &ResourceName) -> Quantity {
        let unnamed = if self.has_implicit { resource.unnamed() } else { Quantity::ZERO };
        self.scalars.get(resource).map_or(unnamed, Scalar::free)
    }

    pub(crate) fn devices(&self) -> &BTreeMap<ResourceName, Devices> {
        &self.devices
    }

    pub(crate) fn devices_mut(&mut self, resource: &str) -> Option<&mut Devices> {
        self.devices.get_mut(resource)
    }

    /// What there is, devices out of service excepted; none at zero.
    pub(crate) fn totals(&self) -> BTreeMap<ResourceName, Quantity> {
        let scalars = self.scalars.iter().map(|(name, account)| (name, account.total));
        non_zero(scalars.chain(self.devices.iter().map(|(name, devices)| (name, devices.in_service()))))
    }

    /// What of [`Accounts::totals`] is free; none at zero but implicit resources, of which there is one where none is named.
    pub(crate) fn available(&self) -> BTreeMap<ResourceName, Quantity> {
        let scalars = self.scalars.iter().map(|(name, account)| (name, account.free()));
        non_zero(scalars.chain(self.devices.iter().map(|(name, devices)| (name, devices.free_sum()))))
    }

    /// Compares every account with the open grants; slow.
    pub(crate) fn audit(&self, open: &[&Demand]) {
        self.devices.values().for_each(Devices::audit);
        for (resource, account) in &self.scalars {
            let open: u128 = open.iter().map(|demand| u128::from(demand.get(resource.as_str()).units())).sum();
            if *resource == ResourceName::CPU {
                assert!(account.granted_units <= open, "LEDGER-3: CPUs are lent by open grants");
            } else {
                assert_eq!(account.granted_units, open, "LEDGER-3: what is granted is what open grants hold");
                assert!(open <= u128::from(account.total.units()), "LEDGER-3: only CPUs are overdrawn");
            }
        }
    }

    fn scalar(&mut self, resource: &ResourceName) -> &mut Scalar {
        if self.has_implicit && resource.is_implicit() {
            return self.scalars.entry(resource.clone()).or_insert_with(|| Scalar::new(Quantity::ONE));
        }
        self.scalars.get_mut(resource).expect("LEDGER-2: a grant names resources of its ledger")
    }

    fn devices_of(&mut self, resource: &ResourceName) -> &mut Devices {
        self.devices.get_mut(resource).expect("LEDGER-2: a grant names devices of its ledger")
    }
}

fn non_zero<'a>(amounts: impl Iterator<Item = (&'a ResourceName, Quantity)>) -> BTreeMap<ResourceName, Quantity> {
    let is_kept = |name: &ResourceName, amount: Quantity| !amount.is_zero() || name.is_implicit();
    amounts.filter(|(name, amount)| is_kept(name, *amount)).map(|(name, amount)| (name.clone(), amount)).collect()
}
