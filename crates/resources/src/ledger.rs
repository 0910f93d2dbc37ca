//! Who holds what of one machine.
//!
//! # Placement
//! A demand for whole devices takes wholly free ones, lowest number first. A share below one takes
//! the fullest device that still has room, lowest number first among equals, and never spans two.
//!
//! # Invariants
//! Checked where the ledger is written, in release builds too; a violation is a bug and panics with
//! the number.
//!
//! - LEDGER-1: what is granted of a device and what is free of it make one whole, neither below zero.
//! - LEDGER-2: a grant is given back once, by its holder, to the ledger that made it, as granted.
//! - LEDGER-3: what is granted of another resource is at most its total, CPUs that were lent and are
//!   wanted back excepted.
//! - LEDGER-4: a demand is granted whole or not at all.
//! - LEDGER-5: a device out of service is not granted.
//!
//! # Out of service
//! A device that was taken out of service counts neither as total nor as available, but a demand
//! that needs it is [`Busy`], not [`Never`]: the device may return, and an error cannot be taken back.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::devices::Devices;
use crate::{Busy, Demand, DeviceShares, Grant, GrantId, Inventory, Never, Quantity, ResourceName, Shortage};

/// The accounts of one machine.
#[derive(Debug)]
pub struct Ledger {
    inventory: Inventory,
    scalars: BTreeMap<ResourceName, Scalar>,
    devices: BTreeMap<ResourceName, Devices>,
    open: BTreeMap<GrantId, Demand>,
    last_id: u64,
}

/// The account of a resource that is no device.
#[derive(Debug)]
struct Scalar {
    total: Quantity,
    /// Wider than a quantity because lent CPUs that all come back may add up to any multiple of the total.
    granted_units: u128,
}

/// The ledger has no account for a device.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the machine has no {resource} {device}: its {resource} devices count from 0 to below {count}")]
pub struct NoSuchDevice {
    /// The resource asked for.
    pub resource: String,
    /// The device asked for.
    pub device: u32,
    /// How many devices of the resource there are.
    pub count: u64,
}

/// A device that is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfService<'a> {
    /// Its resource.
    pub resource: &'a ResourceName,
    /// Its number.
    pub device: u32,
    /// Why.
    pub reason: &'a str,
}

impl Scalar {
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

impl Ledger {
    /// The ledger of a machine on which nothing runs.
    pub fn new(inventory: Inventory) -> Self {
        let mut scalars = BTreeMap::new();
        let mut devices = BTreeMap::new();
        for (resource, total) in inventory.totals() {
            if resource.is_device() {
                devices.insert(resource.clone(), Devices::new(total.wholes() as u32));
            } else {
                scalars.insert(resource.clone(), Scalar { total, granted_units: 0 });
            }
        }
        Self { inventory, scalars, devices, open: BTreeMap::new(), last_id: 0 }
    }

    /// Grants all of `demand`, or nothing and says why.
    pub fn grant(&mut self, demand: &Demand) -> Result<Grant, Shortage> {
        let mut chosen = Vec::new();
        for (resource, asked) in demand.iter() {
            if resource.is_device() {
                match self.devices.get(resource).and_then(|devices| devices.choose(asked)) {
                    Some(shares) => chosen.push(DeviceShares { resource: resource.clone(), shares }),
                    None => return Err(self.shortage(demand, resource, asked)),
                }
            } else if asked > self.free_scalar(resource) {
                return Err(self.shortage(demand, resource, asked));
            }
        }
        self.last_id += 1;
        let id = GrantId(self.last_id);
        for (resource, asked) in demand.scalars() {
            self.scalar(resource).take(asked);
        }
        for DeviceShares { resource, shares } in &chosen {
            self.devices_of(resource).take(id, shares);
        }
        self.open.insert(id, demand.clone());
        Ok(Grant { id, demand: demand.clone(), devices: chosen, cpu_is_lent: false })
    }

    /// Takes a grant back, lent CPUs or not.
    ///
    /// # Panics
    /// Where another ledger made it (LEDGER-2).
    pub fn release(&mut self, grant: Grant) {
        self.check_open(&grant);
        let Grant { id, demand, devices, cpu_is_lent } = grant;
        self.open.remove(&id);
        for (resource, amount) in demand.scalars() {
            if !(cpu_is_lent && *resource == ResourceName::CPU) {
                self.scalar(resource).give_back(amount);
            }
        }
        for DeviceShares { resource, shares } in devices {
            self.devices_of(&resource).give_back(id, &shares);
        }
    }

    /// Gives the grant's CPUs to others while its task is blocked; it keeps everything else. Does
    /// nothing where they are lent already.
    ///
    /// # Panics
    /// Where another ledger made the grant (LEDGER-2).
    pub fn lend_cpu(&mut self, grant: &mut Grant) {
        self.check_open(grant);
        let cpus = grant.demand.get(ResourceName::CPU.as_str());
        if !std::mem::replace(&mut grant.cpu_is_lent, true) && !cpus.is_zero() {
            self.scalar(&ResourceName::CPU).give_back(cpus);
        }
    }

    /// Takes lent CPUs back, whether or not others hold them: the account may then be overdrawn,
    /// and nothing of it is free until enough is given back. Does nothing where none are lent.
    ///
    /// # Panics
    /// Where another ledger made the grant (LEDGER-2).
    pub fn restore_cpu(&mut self, grant: &mut Grant) {
        self.check_open(grant);
        let cpus = grant.demand.get(ResourceName::CPU.as_str());
        if std::mem::replace(&mut grant.cpu_is_lent, false) && !cpus.is_zero() {
            self.scalar(&ResourceName::CPU).overdraw(cpus);
        }
    }

    /// Takes a device out of service until [`Ledger::restore_device`]. Who holds it keeps it, and
    /// what is given back is not granted again. A second reason replaces the first.
    pub fn quarantine(&mut self, resource: &str, device: u32, reason: impl Into<String>) -> Result<(), NoSuchDevice> {
        self.existing(resource, device)?.quarantine(device, reason.into());
        Ok(())
    }

    /// Puts a device back into service. Does nothing where it is not out of it.
    pub fn restore_device(&mut self, resource: &str, device: u32) -> Result<(), NoSuchDevice> {
        self.existing(resource, device)?.restore(device);
        Ok(())
    }

    /// The devices out of service, by resource and number.
    pub fn out_of_service(&self) -> impl Iterator<Item = OutOfService<'_>> {
        self.devices.iter().flat_map(|(resource, devices)| {
            let entries = devices.out_of_service().iter();
            entries.map(move |(device, reason)| OutOfService { resource, device: *device, reason })
        })
    }

    /// What the machine offers when nothing runs on it and every device works.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Whether `demand` would be granted with nothing running and every device in service.
    pub fn could_ever(&self, demand: &Demand) -> Result<(), Never> {
        self.inventory.could_ever(demand)
    }

    /// What the machine has, devices out of service excepted; none at zero.
    pub fn totals(&self) -> BTreeMap<ResourceName, Quantity> {
        let scalars = self.scalars.iter().map(|(name, account)| (name, account.total));
        let devices = self.devices.iter().map(|(name, devices)| (name, Quantity::whole(devices.in_service())));
        non_zero(scalars.chain(devices))
    }

    /// What of [`Ledger::totals`] is free; none at zero.
    pub fn available(&self) -> BTreeMap<ResourceName, Quantity> {
        let scalars = self.scalars.iter().map(|(name, account)| (name, account.free()));
        let devices = self.devices.iter().map(|(name, devices)| (name, devices.free_sum()));
        non_zero(scalars.chain(devices))
    }

    /// What each device of `resource` has free, `None` where it is out of service; empty where the
    /// machine has no such devices.
    pub fn free_per_device(&self, resource: &str) -> Vec<Option<Quantity>> {
        self.devices.get(resource).map(Devices::free).unwrap_or_default()
    }

    /// Who holds how much of a device, earliest grant first.
    pub fn holders(&self, resource: &str, device: u32) -> &[(GrantId, Quantity)] {
        self.devices.get(resource).map_or(&[], |devices| devices.holders(device))
    }

    /// The grants that were not given back, earliest first, lent CPUs included.
    pub fn open(&self) -> impl Iterator<Item = (GrantId, &Demand)> {
        self.open.iter().map(|(id, demand)| (*id, demand))
    }

    /// Reads every account and compares it with the open grants; slow, for tests and soak runs.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn audit(&self) {
        self.devices.values().for_each(Devices::audit);
        for (resource, account) in &self.scalars {
            let open: u128 = self.open.values().map(|demand| u128::from(demand.get(resource.as_str()).units())).sum();
            if *resource == ResourceName::CPU {
                assert!(account.granted_units <= open, "LEDGER-3: CPUs are lent by open grants");
            } else {
                assert_eq!(account.granted_units, open, "LEDGER-3: what is granted is what open grants hold");
                assert!(open <= u128::from(account.total.units()), "LEDGER-3: only CPUs are overdrawn");
            }
        }
    }

    fn shortage(&self, demand: &Demand, resource: &ResourceName, asked: Quantity) -> Shortage {
        if let Err(never) = self.could_ever(demand) {
            return never.into();
        }
        let (free, out_of_service) = match self.devices.get(resource) {
            Some(devices) => (devices.obtainable(asked), devices.out_of_service().len() as u32),
            None => (self.free_scalar(resource), 0),
        };
        let total = self.inventory.total(resource.as_str());
        Busy { resource: resource.clone(), asked, free, total, out_of_service }.into()
    }

    fn free_scalar(&self, resource: &ResourceName) -> Quantity {
        self.scalars.get(resource).map_or(Quantity::ZERO, Scalar::free)
    }

    fn check_open(&self, grant: &Grant) {
        let open = self.open.get(&grant.id).expect("LEDGER-2: a grant is open in the ledger that made it");
        assert_eq!(*open, grant.demand, "LEDGER-2: what is given back is what was granted");
    }

    fn scalar(&mut self, resource: &ResourceName) -> &mut Scalar {
        self.scalars.get_mut(resource).expect("LEDGER-2: a grant names resources of its ledger")
    }

    fn devices_of(&mut self, resource: &ResourceName) -> &mut Devices {
        self.devices.get_mut(resource).expect("LEDGER-2: a grant names devices of its ledger")
    }

    fn existing(&mut self, resource: &str, device: u32) -> Result<&mut Devices, NoSuchDevice> {
        let count = self.inventory.total(resource).wholes();
        let devices = self.devices.get_mut(resource).filter(|devices| devices.contains(device));
        devices.ok_or_else(|| NoSuchDevice { resource: resource.to_owned(), device, count })
    }
}

fn non_zero<'a>(amounts: impl Iterator<Item = (&'a ResourceName, Quantity)>) -> BTreeMap<ResourceName, Quantity> {
    amounts.filter(|(_, amount)| !amount.is_zero()).map(|(name, amount)| (name.clone(), amount)).collect()
}
