//! What failed before: how long the next try of a group waits, and which machines it keeps off.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The pause after the first failure, in seconds; it doubles with each further one.
const PAUSE_S: u64 = 5;
/// The longest pause.
const PAUSE_S_MAX: u64 = 300;
/// After how many seconds without a failure the past is forgotten.
const MEMORY_S: u64 = 900;
/// How many failures on one machine make others go elsewhere.
const MACHINE_FAILURES: u32 = 2;
/// How many machines are remembered.
const MACHINES_MAX: usize = 64;

/// The failures of one group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Failures {
    /// How many there were.
    pub count: u32,
    /// When the last was seen, in seconds since 1970.
    pub last: u64,
    /// How many there were on each machine.
    pub machines: BTreeMap<String, u32>,
    /// Why the last happened.
    pub reason: String,
}

impl Failures {
    /// Counts one more.
    pub(crate) fn add(&mut self, now: u64, machine: Option<&str>, reason: &str) {
        self.count = self.count.saturating_add(1);
        self.last = now;
        reason.clone_into(&mut self.reason);
        if let Some(machine) = machine
            && (self.machines.contains_key(machine) || self.machines.len() < MACHINES_MAX)
        {
            *self.machines.entry(machine.to_owned()).or_default() += 1;
        }
    }

    /// Whether all of it is long past.
    pub(crate) fn is_past(&self, now: u64) -> bool {
        now.saturating_sub(self.last) > MEMORY_S
    }

    /// For how many seconds nothing new is tried.
    pub(crate) fn pause_left(&self, now: u64) -> u64 {
        let pause = PAUSE_S.saturating_mul(1 << self.count.saturating_sub(1).min(16)).min(PAUSE_S_MAX);
        if self.count == 0 { 0 } else { (self.last + pause).saturating_sub(now) }
    }

    /// The machines that the next try keeps off.
    pub(crate) fn avoided(&self) -> Vec<String> {
        let bad = self.machines.iter().filter(|(_, count)| **count >= MACHINE_FAILURES);
        bad.map(|(machine, _)| machine.clone()).collect()
    }
}

/// The failures of every group that had some.
pub type FailuresByGroup = BTreeMap<String, Failures>;
