//! A machine as the fleet keeps it: numbers in place of names, and what is free summed up as far as a decision needs it.

use std::collections::{BTreeMap, HashMap};

use oxiray_ids::NodeId;
use oxiray_resources::{Demand, FreeDevices, Inventory, NoPacking, Quantity, ResourceName, ResourceNeed};
use rustc_hash::FxBuildHasher;

use crate::NodeView;
use crate::node_view::{SHARED, step_of};

/// Beyond how many names those that a machine reports get no number, unless something was asked for by them.
const REPORTED_MAX: usize = 100_000;

/// The numbers that stand for the names of resources.
#[derive(Debug, Default)]
pub(crate) struct Names {
    numbers: HashMap<ResourceName, u32, FxBuildHasher>,
}

impl Names {
    pub(crate) fn number(&mut self, name: &ResourceName) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.numbers.len() as u32;
        self.numbers.insert(name.clone(), number);
        number
    }

    /// The number of a name that a machine reports; nothing for a new one where there are [`REPORTED_MAX`], since whoever reports
    /// could make names without end.
    fn reported(&mut self, name: &ResourceName) -> Option<u32> {
        (self.numbers.len() < REPORTED_MAX || self.numbers.contains_key(name)).then(|| self.number(name))
    }

    /// What a demand asks for, in the order of the numbers.
    pub(crate) fn needs(&mut self, demand: &Demand) -> Vec<ResourceAmount> {
        let mut needs: Vec<ResourceAmount> =
            demand.asked().map(|(name, asked)| ResourceAmount::of(name, self.number(name), asked)).collect();
        needs.sort_unstable_by_key(|need| need.resource);
        needs
    }
}

/// An amount of one resource.
#[derive(Clone, Debug)]
pub(crate) struct ResourceAmount {
    resource: u32,
    /// Its name where it is implicit: a machine has one of it that has no room of that number.
    implicit: Option<ResourceName>,
    pub(crate) asked: ResourceNeed,
}

impl ResourceAmount {
    fn of(name: &ResourceName, resource: u32, asked: ResourceNeed) -> Self {
        Self { resource, implicit: name.is_implicit().then(|| name.clone()), asked }
    }

    /// What a machine has of it that does not name it.
    fn unnamed(&self) -> Quantity {
        self.implicit.as_ref().map_or(Quantity::ZERO, ResourceName::unnamed)
    }

    /// How much it is in sums and comparisons, where memory of a device counts as the least share of one.
    pub(crate) fn units(&self) -> u64 {
        match self.asked {
            ResourceNeed::Amount(amount) => amount.units(),
            ResourceNeed::Memory(_) => 1,
        }
    }

    /// How large a part it is of what is asked for of the same resource in `totals`.
    pub(crate) fn part_of(&self, totals: &[Self]) -> u128 {
        let total = totals.iter().find(|total| total.resource == self.resource);
        let units = total.map_or(1, |total| u128::from(total.units()).max(1));
        (u128::from(self.units()) << u64::BITS) / units
    }
}

/// The shares that several ask for together, in the order of the numbers.
pub(crate) fn sum_of<'needs>(all: impl Iterator<Item = &'needs [ResourceAmount]>) -> Vec<ResourceAmount> {
    let mut sums: BTreeMap<u32, (Quantity, &'needs ResourceAmount)> = BTreeMap::new();
    for need in all.flatten() {
        let (sum, _) = sums.entry(need.resource).or_insert((Quantity::ZERO, need));
        *sum = Quantity::from_units(sum.units().saturating_add(need.units()));
    }
    let of =
        |(sum, need): (Quantity, &ResourceAmount)| ResourceAmount { asked: ResourceNeed::Amount(sum), ..need.clone() };
    sums.into_values().map(of).collect()
}

/// One resource of a machine.
#[derive(Clone, Debug)]
struct MachineResource {
    resource: u32,
    name: ResourceName,
    is_device: bool,
    /// Whether it counts for [`NodeView::step`].
    is_shared: bool,
    total: Quantity,
    /// The most that a demand for one or more can get.
    most: Quantity,
    /// The most devices that one demand for several can get.
    most_of_several: Quantity,
    /// The most that a demand for less than one can get.
    most_of_one: Quantity,
    /// What each device has free; empty for a resource that is no device.
    devices: FreeDevices,
}

impl MachineResource {
    /// One that is wholly free, or, of devices, of which nothing is free.
    fn new(name: &ResourceName, resource: u32, total: Quantity) -> Self {
        let free = if name.is_device() { Quantity::ZERO } else { total };
        Self {
            resource,
            name: name.clone(),
            is_device: name.is_device(),
            is_shared: SHARED.contains(name),
            total,
            most: free,
            most_of_several: Quantity::ZERO,
            most_of_one: free,
            devices: FreeDevices::default(),
        }
    }

    fn sum_up(&mut self) {
        self.most = self.devices.obtainable(ResourceNeed::Amount(Quantity::ONE));
        self.most_of_several = self.devices.obtainable(ResourceNeed::Amount(Quantity::whole(2)));
        self.most_of_one = self.devices.obtainable(ResourceNeed::Amount(Quantity::ZERO));
    }

    fn has(&self, asked: ResourceNeed) -> bool {
        match asked {
            ResourceNeed::Memory(_) => self.devices.fits(asked),
            ResourceNeed::Amount(amount) if amount < Quantity::ONE => amount <= self.most_of_one,
            ResourceNeed::Amount(amount) if self.is_device && amount > Quantity::ONE => amount <= self.most_of_several,
            ResourceNeed::Amount(amount) => amount <= self.most,
        }
    }

    /// What is free, added up over all devices.
    fn sum(&self, is_emptied: bool) -> Quantity {
        if is_emptied {
            return self.total;
        }
        if !self.is_device {
            return self.most;
        }
        self.devices.sum()
    }

    fn take(&mut self, asked: ResourceNeed) {
        if self.is_device {
            self.devices.take(asked);
            self.sum_up();
        } else if let ResourceNeed::Amount(amount) = asked {
            self.most = self.most.checked_sub(amount).unwrap_or_default();
            self.most_of_one = self.most;
        }
    }

    fn empty(&mut self, inventory: &Inventory) {
        if self.is_device {
            self.devices = inventory.devices(self.name.as_str());
            self.sum_up();
        } else {
            self.most = self.total;
            self.most_of_one = self.total;
        }
    }
}

/// What a machine has of each resource, in the order of the numbers.
#[derive(Clone, Debug)]
pub(crate) struct MachineResources(Vec<MachineResource>);

impl MachineResources {
    /// Whether there is room for all needs, device by device.
    pub(crate) fn fit(&self, needs: &[ResourceAmount]) -> bool {
        self.each(needs, |room, need| room.has(need.asked))
    }

    /// What is free of each of the needs' resources, now or with nothing running, added up over all devices; nothing
    /// where one is missing.
    pub(crate) fn sums<'rooms>(
        &'rooms self,
        needs: &'rooms [ResourceAmount],
        is_emptied: bool,
    ) -> impl Iterator<Item = Quantity> + 'rooms {
        let mut rooms = self.0.iter().peekable();
        needs.iter().map(move |need| {
            while rooms.next_if(|room| room.resource < need.resource).is_some() {}
            let room = rooms.next_if(|room| room.resource == need.resource);
            room.map_or_else(|| need.unnamed(), |room| room.sum(is_emptied))
        })
    }

    /// Whether there is room for all of these together, as the ledger would reserve it for them in this order.
    pub(crate) fn fit_together(&self, all: &[&[ResourceAmount]]) -> Result<(), NoPacking> {
        let mut amounts: BTreeMap<u32, (Quantity, u64, Vec<ResourceNeed>)> = BTreeMap::new();
        for need in all.iter().copied().flatten() {
            let (_, units, asked) = amounts.entry(need.resource).or_insert_with(|| (need.unnamed(), 0, Vec::new()));
            *units = units.saturating_add(need.units());
            asked.push(need.asked);
        }
        for (resource, (unnamed, asked, amounts)) in amounts {
            let room = self.0.iter().find(|room| room.resource == resource);
            if asked > room.map_or(unnamed, |room| room.sum(false)).units() {
                return Err(NoPacking { is_proven: true });
            }
            if let Some(room) = room.filter(|room| room.is_device) {
                room.devices.pack(&amounts)?;
            }
        }
        Ok(())
    }

    /// Books the needs, as the machine's ledger would; `false`, and nothing changes, where there is no room.
    pub(crate) fn take(&mut self, needs: &[ResourceAmount]) -> bool {
        if !self.fit(needs) {
            return false;
        }
        for need in needs {
            if let Some(name) = &need.implicit {
                self.name(name, need.resource);
            }
            let room = self.0.iter_mut().find(|room| room.resource == need.resource);
            room.expect("what fits names resources of the machine").take(need.asked);
        }
        true
    }

    /// Keeps an implicit resource from here on, wholly free where it is new.
    fn name(&mut self, name: &ResourceName, number: u32) -> &mut MachineResource {
        let at = self.0.partition_point(|room| room.resource < number);
        if self.0.get(at).is_none_or(|room| room.resource != number) {
            self.0.insert(at, MachineResource::new(name, number, name.unnamed()));
        }
        &mut self.0[at]
    }

    /// With nothing running and every device in service.
    #[must_use]
    fn emptied(mut self, inventory: &Inventory) -> Self {
        self.0.iter_mut().for_each(|room| room.empty(inventory));
        self
    }

    fn each(&self, needs: &[ResourceAmount], holds: impl Fn(&MachineResource, &ResourceAmount) -> bool) -> bool {
        let mut rooms = self.0.iter().peekable();
        needs.iter().all(|need| {
            while rooms.next_if(|room| room.resource < need.resource).is_some() {}
            match (rooms.next_if(|room| room.resource == need.resource), &need.implicit) {
                (Some(room), _) => holds(room, need),
                (None, Some(name)) => holds(&MachineResource::new(name, need.resource, name.unnamed()), need),
                (None, None) => false,
            }
        })
    }
}

/// A machine.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) node: NodeId,
    pub(crate) labels: BTreeMap<String, String>,
    inventory: Inventory,
    rooms: MachineResources,
    /// How much of it is used ([`NodeView::step`]).
    pub(crate) step: usize,
}

impl Machine {
    pub(crate) fn new(view: &NodeView, names: &mut Names) -> Self {
        let mut rooms: Vec<MachineResource> = view
            .inventory
            .totals()
            .map(|(name, total)| MachineResource::new(name, names.number(name), total))
            .collect();
        rooms.sort_unstable_by_key(|room| room.resource);
        let mut machine = Self {
            node: view.node,
            labels: view.labels.clone(),
            inventory: view.inventory.clone(),
            rooms: MachineResources(rooms),
            step: 0,
        };
        machine.set_free(view, names);
        machine
    }

    /// Whether the view is of the same machine as it was, but for what is free.
    pub(crate) fn is_same(&self, view: &NodeView) -> bool {
        self.inventory == view.inventory && self.labels == view.labels
    }

    pub(crate) fn set_free(&mut self, view: &NodeView, names: &mut Names) {
        self.rooms.0.retain(|room| !room.name.is_implicit() || view.free.contains_key(&room.name));
        for name in view.free.keys().filter(|name| name.is_implicit()) {
            if let Some(number) = names.reported(name) {
                self.rooms.name(name, number);
            }
        }
        for room in &mut self.rooms.0 {
            if room.is_device {
                match view.free_devices.get(&room.name) {
                    Some(devices) => room.devices.clone_from(devices),
                    None => room.devices = FreeDevices::default(),
                }
                room.sum_up();
            } else {
                room.most = view.free.get(&room.name).copied().unwrap_or_default();
                room.most_of_one = room.most;
            }
        }
        self.count_step();
    }

    fn count_step(&mut self) {
        let rooms = self.rooms.0.iter().filter(|room| room.is_shared);
        self.step = step_of(rooms.map(|room| (room.most, room.total)));
    }

    /// Whether there are accelerators.
    pub(crate) fn has_devices(&self) -> bool {
        self.rooms.0.iter().any(|room| room.is_device)
    }

    /// What there is room for.
    pub(crate) fn rooms(&self) -> &MachineResources {
        &self.rooms
    }

    /// What there is room for with nothing running and every device in service.
    pub(crate) fn emptied_rooms(&self) -> MachineResources {
        self.rooms.clone().emptied(&self.inventory)
    }

    /// Whether it has room for all needs, device by device.
    pub(crate) fn fits(&self, needs: &[ResourceAmount]) -> bool {
        self.rooms.fit(needs)
    }

    /// Whether it would have room with nothing running on it.
    pub(crate) fn could_ever(&self, needs: &[ResourceAmount]) -> bool {
        self.rooms.each(needs, |room, need| {
            match need.asked {
                // No look at the names.
                ResourceNeed::Amount(amount) => amount <= room.total,
                ResourceNeed::Memory(bytes) => {
                    self.inventory.device_memory(room.name.as_str()).any(|size| bytes <= size)
                }
            }
        })
    }

    /// How often it has room for all needs with nothing running on it.
    pub(crate) fn times(&self, needs: &[ResourceAmount]) -> u32 {
        let times = needs.iter().map(|need| {
            let total = self.total_of(need);
            match need.asked {
                ResourceNeed::Memory(bytes) => {
                    self.sizes_of(need).map(|size| size / bytes.max(1)).fold(0, u64::saturating_add)
                }
                ResourceNeed::Amount(amount) if amount < Quantity::ONE && self.is_device(need) => {
                    (Quantity::ONE.units() / amount.units().max(1)).saturating_mul(total.wholes())
                }
                ResourceNeed::Amount(amount) => total.units() / amount.units().max(1),
            }
        });
        times.min().map_or(u32::MAX, |times| u32::try_from(times).unwrap_or(u32::MAX))
    }

    /// How much of its scarcest resource that many needs take, in thousandths.
    pub(crate) fn share_of(&self, needs: &[ResourceAmount], times: u64) -> u64 {
        let shares = needs.iter().map(|need| {
            let (one, all) = match need.asked {
                ResourceNeed::Amount(amount) => (amount.units(), self.total_of(need).units()),
                ResourceNeed::Memory(bytes) => (bytes, self.sizes_of(need).fold(0, u64::saturating_add)),
            };
            (u128::from(one) * u128::from(times) * 1000 / u128::from(all.max(1))).min(999) as u64
        });
        shares.max().unwrap_or_default()
    }

    fn total_of(&self, need: &ResourceAmount) -> Quantity {
        self.rooms
            .0
            .iter()
            .find(|room| room.resource == need.resource)
            .map_or_else(|| need.unnamed(), |room| room.total)
    }

    /// The memory of each device of a resource.
    fn sizes_of(&self, need: &ResourceAmount) -> impl Iterator<Item = u64> {
        let room = self.rooms.0.iter().find(|room| room.resource == need.resource);
        room.into_iter().flat_map(|room| self.inventory.device_memory(room.name.as_str()))
    }

    fn is_device(&self, need: &ResourceAmount) -> bool {
        self.rooms.0.iter().any(|room| room.resource == need.resource && room.is_device)
    }

    /// Books the needs, as the machine's ledger would; `false`, and nothing changes, where there is no room.
    pub(crate) fn take(&mut self, needs: &[ResourceAmount]) -> bool {
        let is_taken = self.rooms.take(needs);
        if is_taken {
            self.count_step();
        }
        is_taken
    }

    /// The same, as a view.
    pub(crate) fn view(&self) -> NodeView {
        let (devices, scalars): (Vec<&MachineResource>, Vec<&MachineResource>) =
            self.rooms.0.iter().partition(|room| room.is_device);
        NodeView {
            node: self.node,
            inventory: self.inventory.clone(),
            free: scalars.into_iter().map(|room| (room.name.clone(), room.most)).collect(),
            free_devices: devices.into_iter().map(|room| (room.name.clone(), room.devices.clone())).collect(),
            labels: self.labels.clone(),
        }
    }
}
