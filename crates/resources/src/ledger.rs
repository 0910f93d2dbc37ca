//! Who holds what of one machine.
//!
//! # Placement
//! Which devices a demand takes is decided in `packing.rs`.
//!
//! # Bundles
//! A bundle is a grant with accounts of its own: its devices are fixed when it is reserved, and
//! what is granted within it comes out of exactly them. A grant may have parts in several bundles.
//! When a bundle is dissolved, what nobody within holds is free at once, and what somebody does is
//! theirs until they give it back: those parts of their grants become the machine's.
//!
//! # Invariants
//! Checked where the ledger is written, in release builds too; a violation is a bug and panics with
//! the number.
//!
//! - LEDGER-1: what is granted of a device and what is free of it make what there is of it (one
//!   whole with its memory on a machine, the bundle's part within one), neither below zero.
//! - LEDGER-2: a grant is given back once, by its holder, to the ledger that made it, as granted.
//! - LEDGER-3: what is granted of another resource is at most its total, CPUs that were lent and are
//!   wanted back excepted.
//! - LEDGER-4: a demand is granted whole or not at all, and so are bundles that are reserved together.
//! - LEDGER-5: a device out of service is not granted, nor is a share of it within a bundle.
//! - LEDGER-6: a bundle is dissolved once, and every part of a grant is booked in one place: with the
//!   machine, or within one bundle; no two parts in the same.
//!
//! # Out of service
//! A device that was taken out of service counts neither as total nor as available, but a demand
//! that needs it is [`Busy`], not [`Never`]: the device may return, and an error cannot be taken back.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::accounts::Accounts;
use crate::devices::Devices;
use crate::{
    BundleId, Busy, Demand, DeviceChoice, DeviceShare, DeviceShares, FreeDevices, Grant, GrantId, Inventory, KeptBack,
    Never, Quantity, ResourceName, ResourceNeed, Shortage,
};

/// The accounts of one machine, and of the bundles on it.
#[derive(Debug)]
pub struct Ledger {
    inventory: Inventory,
    machine: Accounts,
    bundles: BTreeMap<BundleId, Bundle>,
    /// Those of which something was booked or became free since [`Ledger::take_changed_bundles`] was last called.
    changed: BTreeSet<BundleId>,
    open: BTreeMap<GrantId, Open>,
    last_id: u64,
    /// How often grants of devices began or ended, or became another's.
    device_changes: u64,
}

/// A grant that was not given back.
#[derive(Debug)]
struct Open {
    demand: Demand,
    /// Where it is booked (LEDGER-6).
    parts: Vec<Part>,
    cpu_is_lent: bool,
}

/// What of a grant is booked in one place.
#[derive(Clone, Debug)]
struct Part {
    /// `None` for the machine.
    bundle: Option<BundleId>,
    demand: Demand,
}

impl Open {
    /// What of it is booked there.
    fn part(&self, bundle: Option<BundleId>) -> Option<&Demand> {
        self.parts.iter().find(|part| part.bundle == bundle).map(|part| &part.demand)
    }
}

#[derive(Debug)]
struct Bundle {
    grant: Grant,
    accounts: Accounts,
    within: BTreeSet<GrantId>,
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

impl Ledger {
    /// The ledger of a machine on which nothing runs.
    pub fn new(inventory: Inventory) -> Self {
        let machine = Accounts::of_machine(&inventory);
        Self {
            inventory,
            machine,
            bundles: BTreeMap::new(),
            changed: BTreeSet::new(),
            open: BTreeMap::new(),
            last_id: 0,
            device_changes: 0,
        }
    }

    /// Grants all of `demand`, or nothing and says why.
    pub fn grant(&mut self, demand: &Demand) -> Result<Grant, Shortage> {
        self.grant_with_choices(demand).map(|(grant, _)| grant)
    }

    /// The same, with the rules by which the devices were taken.
    pub fn grant_with_choices(&mut self, demand: &Demand) -> Result<(Grant, Vec<DeviceChoice>), Shortage> {
        match self.machine.choose(demand, demand) {
            Ok(chosen) => {
                let choices = chosen.iter().map(|(devices, rule)| DeviceChoice::of(devices, *rule)).collect();
                let devices = chosen.into_iter().map(|(devices, _)| devices).collect();
                Ok((self.book_on_machine(demand, devices), choices))
            }
            Err((resource, asked)) => Err(self.shortage(demand, &resource, asked)),
        }
    }

    /// Grants each of `parts` out of its bundle, as one grant, or nothing. No two parts have shares of one device.
    ///
    /// # Panics
    /// Where a bundle was dissolved, or is named twice (LEDGER-6).
    pub fn grant_within(&mut self, parts: &[(BundleId, Demand)]) -> Option<Grant> {
        let parts = parts.iter().map(|(bundle, demand)| Part { bundle: Some(*bundle), demand: demand.clone() });
        self.grant_parts(parts.collect())
    }

    fn grant_parts(&mut self, parts: Vec<Part>) -> Option<Grant> {
        let whole = Demand::sum(parts.iter().map(|part| &part.demand));
        let chosen = parts.iter().map(|part| {
            let chosen = self.accounts(part.bundle).choose(&part.demand, &whole).ok()?;
            Some(chosen.into_iter().map(|(devices, _)| devices).collect::<Vec<_>>())
        });
        let chosen = chosen.collect::<Option<Vec<_>>>()?;
        let devices = chosen.iter().flatten().flat_map(|of| of.shares.iter().map(|share| (&of.resource, share.device)));
        let mut seen = BTreeSet::new();
        let are_distinct = parts.len() < 2 || devices.into_iter().all(|device| seen.insert(device));
        are_distinct.then(|| self.book(parts, chosen, Accounts::take))
    }

    /// Divides a grant: one for `wanted`, one for what it has beyond that. Both are booked where it was.
    ///
    /// # Panics
    /// Where another ledger made the grant (LEDGER-2), or it does not have all of `wanted`.
    pub fn divide(&mut self, grant: Grant, wanted: &Demand) -> (Grant, Grant) {
        let parts = self.check_open(&grant).parts.clone();
        let held: Vec<_> = parts.iter().map(|part| self.accounts(part.bundle).held_by(grant.id)).collect();
        self.release(grant);
        let (mut first, mut second) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        let mut missing = wanted.clone();
        for (Part { bundle, demand }, held) in parts.into_iter().zip(held) {
            let here = demand.common(&missing);
            missing = missing.without(&here);
            let (devices, others) = held.iter().map(|of| of.divide(&here)).unzip();
            second.0.push(Part { bundle, demand: demand.without(&here) });
            second.1.push(others);
            first.0.push(Part { bundle, demand: here });
            first.1.push(devices);
        }
        assert!(missing.is_nothing(), "LEDGER-4: a grant has the part of it that is asked for");
        // Its CPUs may be overdrawn by what others lent and have back: what was held is held on all the same.
        let mut again = |(parts, chosen)| {
            self.book(parts, chosen, |accounts, id, demand, devices| accounts.adopt(id, demand, devices, false))
        };
        (again(first), again(second))
    }

    fn book_on_machine(&mut self, demand: &Demand, devices: Vec<DeviceShares>) -> Grant {
        self.book(vec![Part { bundle: None, demand: demand.clone() }], vec![devices], Accounts::take)
    }

    /// Books a grant with the devices that were chosen for each part of it.
    fn book(
        &mut self,
        parts: Vec<Part>,
        chosen: Vec<Vec<DeviceShares>>,
        take: impl Fn(&mut Accounts, GrantId, &Demand, &[DeviceShares]),
    ) -> Grant {
        self.last_id += 1;
        self.device_changes += u64::from(chosen.iter().any(|devices| !devices.is_empty()));
        let id = GrantId(self.last_id);
        for (Part { bundle, demand }, devices) in parts.iter().zip(&chosen) {
            take(self.accounts_mut(*bundle), id, demand, devices);
            if let Some(bundle) = bundle.and_then(|bundle| self.bundles.get_mut(&bundle)) {
                assert!(bundle.within.insert(id), "LEDGER-6: no two parts of a grant are of one bundle");
            }
        }
        let demand = match &parts[..] {
            [one] => one.demand.clone(),
            several => Demand::sum(several.iter().map(|part| &part.demand)),
        };
        self.open.insert(id, Open { demand: demand.clone(), parts, cpu_is_lent: false });
        Grant { id, demand, devices: merged(chosen), cpu_is_lent: false }
    }

    /// Reserves a bundle for each of `demands`, or none of them (LEDGER-4).
    pub fn reserve(&mut self, demands: &[Demand]) -> Option<Vec<BundleId>> {
        let mut devices = vec![Vec::new(); demands.len()];
        let named: BTreeSet<&ResourceName> =
            demands.iter().flat_map(|demand| demand.iter().map(|(name, _)| name.source())).collect();
        for resource in named {
            let asked: Vec<ResourceNeed> = demands.iter().map(|demand| demand.asked_of(resource)).collect();
            if resource.is_device() {
                let packed = self.machine.devices().get(resource)?.free().pack(&asked).ok()?;
                for (shares, devices) in packed.into_iter().zip(&mut devices).filter(|(shares, _)| !shares.is_empty()) {
                    devices.push(DeviceShares { resource: resource.clone(), shares });
                }
            } else {
                let amounts = demands.iter().map(|demand| demand.get(resource.as_str()));
                let sum = amounts.into_iter().try_fold(Quantity::ZERO, Quantity::checked_add)?;
                (sum <= self.machine.free_scalar(resource)).then_some(())?;
            }
        }
        let reserved = demands.iter().zip(devices).map(|(demand, mut devices)| {
            for of in &mut devices {
                of.shares.sort_unstable();
            }
            let accounts = self.machine.of_bundle(demand, &devices);
            let grant = self.book_on_machine(demand, devices);
            let id = BundleId(grant.id);
            self.bundles.insert(id, Bundle { grant, accounts, within: BTreeSet::new() });
            self.changed.insert(id);
            id
        });
        Some(reserved.collect())
    }

    /// The bundle is no more. What nobody within it holds is free; the rest is, when they give it back.
    ///
    /// # Panics
    /// Where it was dissolved before (LEDGER-6).
    pub fn dissolve(&mut self, bundle: BundleId) {
        let dissolved = self.bundles.remove(&bundle).expect("LEDGER-6: a bundle is dissolved once");
        self.changed.remove(&bundle);
        self.release(dissolved.grant);
        for id in dissolved.within {
            let open = self.open.get_mut(&id).expect("LEDGER-6: what is granted within a bundle is open");
            let position = open.parts.iter().position(|part| part.bundle == Some(bundle));
            let Part { demand, .. } = open.parts.remove(position.expect("LEDGER-6: a bundle knows its grants"));
            let devices = dissolved.accounts.held_by(id);
            self.machine.adopt(id, &demand, &devices, open.cpu_is_lent);
            match open.parts.iter_mut().find(|part| part.bundle.is_none()) {
                Some(of_machine) => of_machine.demand = Demand::sum([&of_machine.demand, &demand]),
                None => open.parts.push(Part { bundle: None, demand }),
            }
        }
    }

    /// The bundles of which something was booked or became free since this was last called, new ones included and
    /// dissolved ones excepted.
    pub fn take_changed_bundles(&mut self) -> BTreeSet<BundleId> {
        std::mem::take(&mut self.changed)
    }

    /// What the bundle was granted, its devices included.
    ///
    /// # Panics
    /// Where it was dissolved (LEDGER-6).
    pub fn reserved(&self, bundle: BundleId) -> &Grant {
        &self.bundle(bundle).grant
    }

    /// What of the bundle is free; none at zero.
    ///
    /// # Panics
    /// Where it was dissolved (LEDGER-6).
    pub fn available_within(&self, bundle: BundleId) -> BTreeMap<ResourceName, Quantity> {
        self.bundle(bundle).accounts.available()
    }

    /// What each device of `resource` that the bundle has a part of has free within it, `None` where it is out of service.
    ///
    /// # Panics
    /// Where it was dissolved (LEDGER-6).
    pub fn free_per_device_within(&self, bundle: BundleId, resource: &str) -> FreeDevices {
        self.bundle(bundle).accounts.devices().get(resource).map(Devices::free).unwrap_or_default()
    }

    /// Takes a grant back, lent CPUs or not.
    ///
    /// # Panics
    /// Where another ledger made it (LEDGER-2).
    pub fn release(&mut self, grant: Grant) {
        self.check_open(&grant);
        let Grant { id, devices, cpu_is_lent, .. } = grant;
        self.device_changes += u64::from(!devices.is_empty());
        let open = self.open.remove(&id).expect("LEDGER-2: it was just looked at");
        let is_whole = open.parts.len() == 1;
        for Part { bundle, demand } in open.parts {
            let of_part = if is_whole { None } else { Some(self.accounts(bundle).held_by(id)) };
            if let Some(bundle) = bundle.and_then(|bundle| self.bundles.get_mut(&bundle)) {
                bundle.within.remove(&id);
            }
            let devices = of_part.as_ref().unwrap_or(&devices);
            self.accounts_mut(bundle).give_back(id, &demand, devices, cpu_is_lent);
        }
    }

    /// Gives the grant's CPUs to others while its task is blocked, within the bundles where it is booked in some; it keeps
    /// everything else. Does nothing where they are lent already.
    ///
    /// # Panics
    /// Where another ledger made the grant (LEDGER-2).
    pub fn lend_cpu(&mut self, grant: &mut Grant) {
        self.set_lent(grant, true, Accounts::lend_cpu);
    }

    /// Takes lent CPUs back, whether or not others hold them: the account may then be overdrawn,
    /// and nothing of it is free until enough is given back. Does nothing where none are lent.
    ///
    /// # Panics
    /// Where another ledger made the grant (LEDGER-2).
    pub fn restore_cpu(&mut self, grant: &mut Grant) {
        self.set_lent(grant, false, Accounts::restore_cpu);
    }

    fn set_lent(&mut self, grant: &mut Grant, is_lent: bool, change: fn(&mut Accounts, Quantity)) {
        self.check_open(grant);
        if std::mem::replace(&mut grant.cpu_is_lent, is_lent) == is_lent {
            return;
        }
        let open = self.open.get_mut(&grant.id).expect("LEDGER-2: it was just looked at");
        open.cpu_is_lent = is_lent;
        let cpus = open.parts.iter().map(|part| (part.bundle, part.demand.get(ResourceName::CPU.as_str())));
        let cpus: Vec<_> = cpus.filter(|(_, cpus)| !cpus.is_zero()).collect();
        for (bundle, cpus) in cpus {
            change(self.accounts_mut(bundle), cpus);
        }
    }

    /// Takes a device out of service until [`Ledger::restore_device`], on the machine and within every bundle. Who holds
    /// it keeps it, and what is given back is not granted again. A second reason replaces the first.
    pub fn quarantine(&mut self, resource: &str, device: u32, reason: impl Into<String>) -> Result<(), NoSuchDevice> {
        let reason = reason.into();
        self.each_with(resource, device, |devices| devices.quarantine(device, reason.clone()))
    }

    /// Puts a device back into service. Does nothing where it is not out of it.
    pub fn restore_device(&mut self, resource: &str, device: u32) -> Result<(), NoSuchDevice> {
        self.each_with(resource, device, |devices| devices.restore(device))
    }

    /// Whether a device may be granted along with others of its kind (PACKING-4), on the machine and within every bundle. Who
    /// holds it keeps it.
    pub fn set_single(&mut self, resource: &str, device: u32, is_single: bool) -> Result<(), NoSuchDevice> {
        self.each_with(resource, device, |devices| devices.set_single(device, is_single))
    }

    /// Whether a device is granted only by itself ([`Ledger::set_single`]).
    pub fn is_single(&self, resource: &str, device: u32) -> bool {
        self.machine.devices().get(resource).is_some_and(|devices| devices.is_single(device))
    }

    fn each_with(&mut self, resource: &str, device: u32, act: impl Fn(&mut Devices)) -> Result<(), NoSuchDevice> {
        let count = self.inventory.total(resource).wholes();
        let of_machine = self.machine.devices_mut(resource).filter(|devices| devices.contains(device));
        act(of_machine.ok_or_else(|| NoSuchDevice { resource: resource.to_owned(), device, count })?);
        for (id, bundle) in &mut self.bundles {
            if let Some(devices) = bundle.accounts.devices_mut(resource).filter(|devices| devices.contains(device)) {
                act(devices);
                self.changed.insert(*id);
            }
        }
        Ok(())
    }

    /// The devices out of service, by resource and number.
    pub fn out_of_service(&self) -> impl Iterator<Item = OutOfService<'_>> {
        self.machine.devices().iter().flat_map(|(resource, devices)| {
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
        self.machine.totals()
    }

    /// What of [`Ledger::totals`] is free, and reserved by no bundle; none at zero.
    pub fn available(&self) -> BTreeMap<ResourceName, Quantity> {
        self.machine.available()
    }

    /// What each device of `resource` has free; empty where the machine has no such devices.
    pub fn free_per_device(&self, resource: &str) -> FreeDevices {
        self.machine.devices().get(resource).map(Devices::free).unwrap_or_default()
    }

    /// Who holds how much of a device, earliest grant first: of one that bundles reserved, whoever holds shares within
    /// them and then the bundles for what is left of theirs.
    pub fn holders(&self, resource: &str, device: u32) -> Vec<(GrantId, Quantity)> {
        let of = |accounts: &Accounts| -> Vec<(GrantId, Quantity)> {
            let holders = accounts.devices().get(resource).map_or(&[][..], |of| of.holders(device));
            holders.iter().map(|(id, held)| (*id, held.share)).collect()
        };
        let (bundles, mut holders): (Vec<_>, Vec<_>) =
            of(&self.machine).into_iter().partition(|(id, _)| self.bundles.contains_key(&BundleId(*id)));
        let mut unused = Vec::new();
        for (id, reserved) in bundles {
            let within = of(&self.bundles[&BundleId(id)].accounts);
            let used = within.iter().map(|(_, share)| share.units()).sum();
            let left = reserved.checked_sub(Quantity::from_units(used)).expect("LEDGER-1: a bundle has what it grants");
            unused.extend((!left.is_zero()).then_some((id, left)));
            holders.extend(within);
        }
        holders.sort_unstable();
        holders.into_iter().chain(unused).collect()
    }

    /// How often grants of devices, bundles among them, began or ended: who holds devices has not changed where this has not.
    pub fn device_changes(&self) -> u64 {
        self.device_changes
    }

    /// The grants that were not given back, earliest first, lent CPUs and bundles included.
    pub fn open(&self) -> impl Iterator<Item = (GrantId, &Demand)> {
        self.open.iter().map(|(id, open)| (*id, &open.demand))
    }

    /// Reads every account and compares it with the open grants; slow, for tests and soak runs.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn audit(&self) {
        let booked = |bundle: Option<BundleId>| -> Vec<&Demand> {
            self.open.values().filter_map(|open| open.part(bundle)).collect()
        };
        self.machine.audit(&booked(None));
        for (id, bundle) in &self.bundles {
            bundle.accounts.audit(&booked(Some(*id)));
            assert_eq!(bundle.within.len(), booked(Some(*id)).len(), "LEDGER-6: a bundle knows its grants");
            let of_machine = self.machine.held_by(id.0);
            assert_eq!(of_machine, bundle.grant.devices, "LEDGER-6: a bundle has the devices that were reserved");
        }
        let is_known = |part: &Part| part.bundle.is_none_or(|bundle| self.bundles.contains_key(&bundle));
        for open in self.open.values() {
            assert!(open.parts.iter().all(is_known), "LEDGER-6: no grant is booked within a bundle that is no more");
            let sum = Demand::sum(open.parts.iter().map(|part| &part.demand));
            assert_eq!(sum, open.demand, "LEDGER-6: the parts of a grant are all of it");
        }
    }

    fn shortage(&self, demand: &Demand, resource: &ResourceName, asked: Quantity) -> Shortage {
        if let Err(never) = self.could_ever(demand) {
            return never.into();
        }
        let (free, kept) = match self.machine.devices().get(resource.source()) {
            Some(devices) => (devices.obtainable(ResourceNeed::of(resource, asked)), KeptBack::of(&devices.free())),
            None => (self.machine.free_scalar(resource), KeptBack::default()),
        };
        let total = self.inventory.most(resource);
        Busy { resource: resource.clone(), asked, free, total, kept }.into()
    }

    fn bundle(&self, bundle: BundleId) -> &Bundle {
        self.bundles.get(&bundle).expect("LEDGER-6: nothing is asked of a bundle that was dissolved")
    }

    fn accounts(&self, bundle: Option<BundleId>) -> &Accounts {
        bundle.map_or(&self.machine, |bundle| &self.bundle(bundle).accounts)
    }

    fn accounts_mut(&mut self, bundle: Option<BundleId>) -> &mut Accounts {
        let Some(bundle) = bundle else { return &mut self.machine };
        self.changed.insert(bundle);
        &mut self.bundles.get_mut(&bundle).expect("LEDGER-6: nothing is asked of a bundle that was dissolved").accounts
    }

    /// What is booked for the grant.
    fn check_open(&self, grant: &Grant) -> &Open {
        let open = self.open.get(&grant.id).expect("LEDGER-2: a grant is open in the ledger that made it");
        assert_eq!(open.demand, grant.demand, "LEDGER-2: what is given back is what was granted");
        open
    }
}

/// The devices of all parts of a grant.
fn merged(mut chosen: Vec<Vec<DeviceShares>>) -> Vec<DeviceShares> {
    if chosen.len() == 1 {
        let mut only = chosen.remove(0);
        only.retain(|of| !of.shares.is_empty());
        return only;
    }
    let mut of: BTreeMap<ResourceName, Vec<DeviceShare>> = BTreeMap::new();
    for DeviceShares { resource, shares } in chosen.into_iter().flatten() {
        of.entry(resource).or_default().extend(shares);
    }
    let of = of.into_iter().map(|(resource, mut shares)| {
        shares.sort_unstable();
        DeviceShares { resource, shares }
    });
    of.filter(|of| !of.shares.is_empty()).collect()
}
