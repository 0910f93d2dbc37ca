//! Machines: what they have, and devices that remember the dead for a while.

use crate::agenda::Micros;
use crate::process::Held;
use oxiray_node::device_check::{DeviceCheck, Residue};
use std::cell::RefCell;
use std::rc::Rc;

/// Shares that nobody lives to use, and that the device has not forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remembered {
    pub(crate) held: Held,
    pid: u32,
    pub(crate) until: Micros,
}

/// What the devices of a machine hold of dead processes.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) now: Micros,
    remembered: Vec<Remembered>,
    asked: u64,
}

impl Memory {
    pub(crate) fn remember(&mut self, held: Held, pid: u32, until: Micros) {
        self.remembered.push(Remembered { held, pid, until });
    }

    /// What is not forgotten.
    pub(crate) fn of_the_dead(&mut self) -> &[Remembered] {
        let now = self.now;
        self.remembered.retain(|one| one.until > now);
        &self.remembered
    }
}

/// What the vendor's library says.
#[derive(Debug)]
pub(crate) struct Library(pub(crate) Rc<RefCell<Memory>>);

impl DeviceCheck for Library {
    fn residue(&mut self, resource: &str, slot: u32, pid: u32) -> Residue {
        let mut memory = self.0.borrow_mut();
        memory.asked += 1;
        // It is slow at times.
        if memory.asked.is_multiple_of(5) {
            return Residue::Pending;
        }
        let is_held = |one: &Remembered| one.pid == pid && one.held.resource == resource && one.held.slot == slot;
        if memory.of_the_dead().iter().any(is_held) { Residue::Held } else { Residue::Gone }
    }
}

/// One machine, on which at most one node runs at a time.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) cpus: u32,
    pub(crate) gpus: u32,
    /// A resource that only some have.
    pub(crate) disks: u32,
    pub(crate) zone: &'static str,
    pub(crate) memory: Rc<RefCell<Memory>>,
    /// The node that was fenced here, until the next one has said so.
    pub(crate) predecessor: Option<usize>,
    /// Until when nobody joins from here: the link does not work both ways.
    pub(crate) cut_until: u64,
}
