//! Who holds which parts of the machine's devices, as the head is told of it: what changed, and all of it where the machine
//! describes itself.
//!
//! - HOLDINGS-1: whatever the ledger has granted of a device is told of once, and once more when it changes or is over.
//! - HOLDINGS-2: nothing is looked at before a grant of devices, the process that has one, or what keeps it to its part, has
//!   changed.

use super::NodeCore;
use crate::Key;
use crate::worker::{Duty, Worker};
use oxiray_resources::GrantId;
use oxiray_wire::message::{DeviceHolding, GrantUse, HoldingPhase};
use oxiray_wire::state::DeviceMemory;
use std::collections::{BTreeMap, BTreeSet};

/// A device, and a grant of a part of it.
type Part = (String, u32, GrantId);

/// What the head was told.
#[derive(Debug, Default)]
pub(crate) struct ToldHoldings {
    told: BTreeMap<Part, DeviceHolding>,
    /// How often grants of devices had changed when it was told.
    changes: u64,
    /// A process that has some changed since, or what keeps it to its part.
    pub(crate) is_due: bool,
}

impl NodeCore {
    /// All that is held.
    pub(super) fn all_holdings(&self) -> Vec<DeviceHolding> {
        self.holdings().into_values().collect()
    }

    /// A head that describes itself anew, or is new, was told of these.
    pub(super) fn told_all_holdings(&mut self) {
        self.devices.holdings.told = self.holdings();
        self.devices.holdings.changes = self.ledger.device_changes();
    }

    /// What is new, changed or over since this was last asked.
    pub(super) fn changed_holdings(&mut self) -> Vec<DeviceHolding> {
        let changes = self.ledger.device_changes();
        let was_due = std::mem::take(&mut self.devices.holdings.is_due);
        if self.devices.holdings.changes == changes && !was_due {
            return Vec::new();
        }
        let now = self.holdings();
        let before = std::mem::replace(&mut self.devices.holdings.told, now);
        self.devices.holdings.changes = changes;
        let now = &self.devices.holdings.told;
        let granted: BTreeSet<GrantId> = now.keys().map(|(_, _, grant)| *grant).collect();
        self.devices.choices.retain(|(grant, _), _| granted.contains(grant));
        let over = before.iter().filter(|(part, _)| !now.contains_key(*part)).map(|(_, of)| DeviceHolding {
            resource: of.resource.clone(),
            slot: of.slot,
            grant: of.grant,
            phase: HoldingPhase::Over,
            ..DeviceHolding::default()
        });
        let changed = now.iter().filter(|(part, of)| before.get(*part) != Some(of)).map(|(_, of)| of.clone());
        over.chain(changed).collect()
    }

    /// What the ledger has granted of devices: resource, number and grant.
    pub fn device_grants(&self) -> BTreeSet<(String, u32, u64)> {
        self.holdings().into_keys().map(|(resource, slot, grant)| (resource, slot, grant.number())).collect()
    }

    fn holdings(&self) -> BTreeMap<Part, DeviceHolding> {
        let with_devices = self.workers.iter().flat_map(|(key, worker)| {
            worker.grants().filter(|grant| !grant.devices().is_empty()).map(move |grant| (grant.id(), (*key, worker)))
        });
        let by_grant: BTreeMap<GrantId, (Key, &Worker)> = with_devices.collect();
        let mut all = BTreeMap::new();
        let names = self.ledger.inventory().totals().filter(|(name, _)| name.is_device());
        for (name, total) in names {
            for slot in 0..total.wholes() as u32 {
                for (grant, share) in self.ledger.holders(name.as_str(), slot) {
                    let part = (name.to_string(), slot, grant);
                    let of = DeviceHolding {
                        resource: name.to_string(),
                        slot,
                        grant: grant.number(),
                        share: share.units(),
                        choice: self.devices.choices.get(&(grant, name.to_string())).cloned().unwrap_or_default(),
                        ..self.holder(&part, by_grant.get(&grant).copied())
                    };
                    all.insert(part, of);
                }
            }
        }
        all
    }

    /// Who has it: its worker, a bundle, an order that waits for its environment, or one that is gone.
    fn holder(&self, part: &Part, worker: Option<(Key, &Worker)>) -> DeviceHolding {
        if let Some((key, worker)) = worker {
            let phase = if worker.is_doomed { HoldingPhase::Returning } else { HoldingPhase::Held };
            let actor = match worker.duty {
                Duty::Actor(actor) => Some(actor),
                _ => self.devices.holdings.told.get(part).and_then(|before| before.actor),
            };
            return DeviceHolding {
                phase,
                worker: Some(worker.id),
                pid: worker.pid.unwrap_or(0),
                job: worker.job,
                actor,
                name: worker.label.clone(),
                isolation: self.devices.isolation.get(&key).cloned(),
                memory: self.memory_of(worker, part.2),
                ..DeviceHolding::default()
            };
        }
        if let Some((group, bundle)) = self.bundle_of(part.2) {
            return DeviceHolding { group: Some(group), bundle: Some(bundle), ..DeviceHolding::default() };
        }
        let held = self.head.iter().flat_map(|head| head.held.values()).find(|held| held.grant.id() == part.2);
        if let Some(held) = held {
            let (job, name) = (Some(held.order.job), held.order.label.clone());
            return DeviceHolding { job, name, ..DeviceHolding::default() };
        }
        let before = self.devices.holdings.told.get(part).cloned().unwrap_or_default();
        DeviceHolding { phase: HoldingPhase::Returning, isolation: None, memory: None, ..before }
    }

    /// The memory of a device that a worker asked for with this grant, where it did.
    fn memory_of(&self, worker: &Worker, grant: GrantId) -> Option<DeviceMemory> {
        let asked = worker.grant.as_ref().filter(|asked| asked.id() == grant)?;
        self.memory_kept(asked, &worker.environment)
    }

    /// What those who asked for memory of a device were last seen with, of it and of all that they started.
    pub(super) fn grants_use(&self, resource: &str, slot: u32) -> Vec<GrantUse> {
        let holders = self.workers.iter().filter_map(|(key, worker)| {
            let grant = worker.grant.as_ref().filter(|grant| !grant.devices().is_empty())?.id().number();
            let bytes = self.devices.memory.used(&(*key, (resource.to_owned(), slot)))?;
            Some(GrantUse { grant, bytes })
        });
        holders.collect()
    }
}
