//! Machines: what they have, and devices that remember the dead for a while.

use crate::agenda::Micros;
use crate::gpus::Gpus;
use crate::process::Held;
use oxiray_machine::{DeviceQuestion, Key, Residue};
use std::collections::BTreeMap;

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
    remembered: Vec<Remembered>,
    /// Who is in the control groups of workers that are gone, and until when; by node and worker.
    pub(crate) in_groups: BTreeMap<(usize, Key), (u32, Micros)>,
}

impl Memory {
    pub(crate) fn remember(&mut self, held: Held, pid: u32, until: Micros) {
        self.remembered.push(Remembered { held, pid, until });
    }

    /// What is not forgotten.
    pub(crate) fn of_the_dead(&mut self, now: Micros) -> &[Remembered] {
        self.remembered.retain(|one| one.until > now);
        &self.remembered
    }

    /// What the vendor's library says.
    pub(crate) fn residue(&mut self, question: &DeviceQuestion, now: Micros) -> Residue {
        let (resource, slot) = &question.device;
        let is_held =
            |one: &Remembered| one.pid == question.pid && one.held.resource == *resource && one.held.slot == *slot;
        if self.of_the_dead(now).iter().any(is_held) { Residue::Held } else { Residue::Gone }
    }
}

/// One machine, on which at most one node runs at a time.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) cpus: u32,
    pub(crate) gpus: Gpus,
    /// A resource that only some have.
    pub(crate) disks: u32,
    pub(crate) zone: &'static str,
    pub(crate) memory: Memory,
    /// The node that was fenced here, until the next one has said so.
    pub(crate) predecessor: Option<usize>,
    /// Until when nobody joins from here: the link does not work both ways.
    pub(crate) cut_until: u64,
}
