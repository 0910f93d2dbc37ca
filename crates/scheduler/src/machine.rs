//! A machine as the fleet keeps it: numbers in place of names, and what is free summed up as far as a decision needs it.

use std::collections::{BTreeMap, HashMap};

use oxiray_ids::NodeId;
use oxiray_resources::{Demand, Inventory, Quantity, ResourceName};
use rustc_hash::FxBuildHasher;

use crate::NodeView;
use crate::node_view::{SHARED, book, step_of};

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

    /// What a demand asks for, in the order of the numbers.
    pub(crate) fn needs(&mut self, demand: &Demand) -> Vec<Need> {
        let mut needs: Vec<Need> =
            demand.iter().map(|(name, asked)| Need { resource: self.number(name), asked }).collect();
        needs.sort_unstable_by_key(|need| need.resource);
        needs
    }
}

/// An amount of one resource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    resource: u32,
    asked: Quantity,
}

/// One resource of a machine.
#[derive(Clone, Debug)]
struct Room {
    resource: u32,
    name: ResourceName,
    is_device: bool,
    /// Whether it counts for [`NodeView::step`].
    is_shared: bool,
    total: Quantity,
    /// The most that a demand for one or more can get.
    most: Quantity,
    /// The most that a demand for less than one can get.
    most_of_one: Quantity,
    /// What each device has free; empty for a resource that is no device.
    devices: Vec<Option<Quantity>>,
}

impl Room {
    fn sum_up(&mut self) {
        let free = || self.devices.iter().flatten().copied();
        self.most = Quantity::whole(free().filter(|free| *free == Quantity::ONE).count() as u32);
        self.most_of_one = free().max().unwrap_or_default();
    }

    fn has(&self, asked: Quantity) -> bool {
        asked <= if asked < Quantity::ONE { self.most_of_one } else { self.most }
    }
}

/// A machine.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) node: NodeId,
    pub(crate) labels: BTreeMap<String, String>,
    inventory: Inventory,
    rooms: Vec<Room>,
    /// How much of it is used ([`NodeView::step`]).
    pub(crate) step: usize,
}

impl Machine {
    pub(crate) fn new(view: &NodeView, names: &mut Names) -> Self {
        let mut rooms: Vec<Room> = view
            .inventory
            .totals()
            .map(|(name, total)| Room {
                resource: names.number(name),
                name: name.clone(),
                is_device: name.is_device(),
                is_shared: SHARED.contains(name),
                total,
                most: Quantity::ZERO,
                most_of_one: Quantity::ZERO,
                devices: Vec::new(),
            })
            .collect();
        rooms.sort_unstable_by_key(|room| room.resource);
        let mut machine =
            Self { node: view.node, labels: view.labels.clone(), inventory: view.inventory.clone(), rooms, step: 0 };
        machine.set_free(view);
        machine
    }

    /// Whether the view is of the same machine as it was, but for what is free.
    pub(crate) fn is_same(&self, view: &NodeView) -> bool {
        self.inventory == view.inventory && self.labels == view.labels
    }

    pub(crate) fn set_free(&mut self, view: &NodeView) {
        for room in &mut self.rooms {
            if room.is_device {
                room.devices.clear();
                room.devices.extend(view.free_devices.get(&room.name).into_iter().flatten());
                room.sum_up();
            } else {
                room.most = view.free.get(&room.name).copied().unwrap_or_default();
                room.most_of_one = room.most;
            }
        }
        self.count_step();
    }

    fn count_step(&mut self) {
        let rooms = self.rooms.iter().filter(|room| room.is_shared);
        self.step = step_of(rooms.map(|room| (room.most, room.total)));
    }

    /// Whether there are accelerators.
    pub(crate) fn has_devices(&self) -> bool {
        self.rooms.iter().any(|room| room.is_device)
    }

    /// Whether it has room for all needs, device by device.
    pub(crate) fn fits(&self, needs: &[Need]) -> bool {
        self.each(needs, |room, need| room.has(need.asked))
    }

    /// Whether it would have room with nothing running on it.
    pub(crate) fn could_ever(&self, needs: &[Need]) -> bool {
        self.each(needs, |room, need| need.asked <= room.total)
    }

    fn each(&self, needs: &[Need], holds: impl Fn(&Room, &Need) -> bool) -> bool {
        let mut rooms = self.rooms.iter();
        needs.iter().all(|need| {
            rooms
                .find(|room| room.resource >= need.resource)
                .is_some_and(|room| room.resource == need.resource && holds(room, need))
        })
    }

    /// Books the needs, as the machine's ledger would; `false`, and nothing changes, where there is no room.
    pub(crate) fn take(&mut self, needs: &[Need]) -> bool {
        if !self.fits(needs) {
            return false;
        }
        for need in needs {
            let room = self.rooms.iter_mut().find(|room| room.resource == need.resource);
            let room = room.expect("what fits names resources of the machine");
            if room.is_device {
                book(&mut room.devices, need.asked);
                room.sum_up();
            } else {
                room.most = room.most.checked_sub(need.asked).unwrap_or_default();
                room.most_of_one = room.most;
            }
        }
        self.count_step();
        true
    }

    /// The same, as a view.
    pub(crate) fn view(&self) -> NodeView {
        let (devices, scalars): (Vec<&Room>, Vec<&Room>) = self.rooms.iter().partition(|room| room.is_device);
        NodeView {
            node: self.node,
            inventory: self.inventory.clone(),
            free: scalars.into_iter().map(|room| (room.name.clone(), room.most)).collect(),
            free_devices: devices.into_iter().map(|room| (room.name.clone(), room.devices.clone())).collect(),
            labels: self.labels.clone(),
        }
    }
}
