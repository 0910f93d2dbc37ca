//! Who asked for memory of a device, and has more of it.
//!
//! - DEVICE-MEMORY-1: a worker is ended for what it and what it started have of a device, seen three times in a row, where
//!   that is more than it asked for and what every process needs besides; never for what others have.

use super::NodeCore;
use crate::device_checks::DeviceSlot;
use crate::device_memory::{CAP, MemoryGranted, PRELOAD_VARIABLE, SHARE_VARIABLE};
use crate::memory::{Cause, shown};
use crate::memory_tiers::DeviceMemoryLimit;
use crate::{Effect, Key};
use oxiray_accelerators::{DeviceUse, SlotDevice};
use oxiray_resources::{Grant, Quantity, ResourceName, ResourceNeed};
use oxiray_wire::message::{Environment, OutOfMemory, Variable};
use oxiray_wire::state::{DeviceMemory, MemoryTier};
use std::collections::BTreeSet;

/// How much memory of one device a grant was asked for, where it was.
pub(super) fn asked_memory(grant: &Grant) -> Option<u64> {
    match grant.demand().asked_of(&ResourceName::GPU) {
        ResourceNeed::Memory(bytes) => Some(bytes),
        ResourceNeed::Amount(_) => None,
    }
}

impl NodeCore {
    /// How much memory of one device a grant may take, where there is a limit: what was asked for, or what its share stands for
    /// where shares are limits, on this node or for whoever has this environment.
    pub(super) fn memory_limit(&self, grant: &Grant, own: &Environment) -> Option<u64> {
        let says_so = |variable: &Variable| variable.name == SHARE_VARIABLE && variable.value.as_deref() == Some(CAP);
        let of_share = || {
            let is_capped = self.plan.isolation.caps_shares || own.variables.iter().any(says_so);
            let parts = grant.devices_of(ResourceName::GPU.as_str());
            let part = parts.first().filter(|part| is_capped && part.share < Quantity::ONE)?;
            (part.memory_bytes > 0).then_some(part.memory_bytes)
        };
        asked_memory(grant).or_else(of_share)
    }

    /// The memory of a device that a grant may take, where there is a limit, and of which device.
    pub(super) fn memory_granted(&self, grant: &Grant, own: &Environment) -> Option<MemoryGranted> {
        self.memory_limit(grant, own)?;
        let resource = ResourceName::GPU;
        let share = *grant.devices_of(resource.as_str()).first()?;
        let size_bytes = self.ledger.inventory().device_memory(resource.as_str()).nth(share.device as usize)?;
        Some(MemoryGranted { share, size_bytes })
    }

    /// What keeps who has this grant to the memory of the device, where there is a limit (TIERS-1).
    pub(super) fn memory_kept(&self, grant: &Grant, own: &Environment) -> Option<DeviceMemory> {
        let asked_bytes = self.memory_limit(grant, own)?;
        let memory = &self.plan.isolation.memory;
        let device = (ResourceName::GPU.to_string(), grant.devices_of(ResourceName::GPU.as_str()).first()?.device);
        let is_watched = memory.has(MemoryTier::Watched) && self.devices.measured.listing.contains(&device);
        let tier = memory.in_force(|tier| match tier {
            MemoryTier::Mig => self.has_whole_part(grant),
            MemoryTier::Dmem => self.memory_region(grant).is_some(),
            MemoryTier::Framework => !own.native,
            MemoryTier::Watched => is_watched,
            MemoryTier::Mps | MemoryTier::Interposer | MemoryTier::None => true,
        });
        // Who cannot take more is not looked for.
        let is_watched = is_watched && tier < MemoryTier::Dmem;
        Some(DeviceMemory { asked_bytes, used_bytes: None, tier, is_watched })
    }

    /// Whether a grant has all of a part of a GPU, whose memory nobody else has, and which has no other.
    fn has_whole_part(&self, grant: &Grant) -> bool {
        let share = grant.devices_of(ResourceName::GPU.as_str()).first();
        share.is_some_and(|part| part.share == Quantity::ONE && self.gpu(part.device).is_some_and(|gpu| gpu.is_part))
    }

    /// What the kernel calls the memory of a grant's GPU, where it can keep processes to some of it.
    fn memory_region(&self, grant: &Grant) -> Option<&String> {
        let slot = grant.devices_of(ResourceName::GPU.as_str()).first()?.device;
        self.plan.isolation.memory.regions.get(self.gpu(slot)?.pci_address.as_ref()?)
    }

    fn gpu(&self, slot: u32) -> Option<&SlotDevice> {
        self.plan.offer.of(ResourceName::GPU.as_str())?.slots.get(slot as usize)?.as_ref()
    }

    /// TIERS-2: the worker has a grant.
    pub(super) fn limit_device_memory(&mut self, key: Key) {
        let Some(worker) = self.workers.get(&key) else { return };
        let Some(grant) = &worker.grant else { return };
        let Some(kept) = self.memory_kept(grant, &worker.environment) else { return };
        let region = self.memory_region(grant).filter(|_| kept.tier == MemoryTier::Dmem).cloned();
        if let Some(region) = region {
            let limit = DeviceMemoryLimit { worker: key, region, bytes: kept.asked_bytes };
            self.out.push(Effect::LimitDeviceMemory(limit));
        }
    }

    /// TIERS-2: the kernel does not keep a worker to its memory.
    pub fn device_memory_unlimited(&mut self, key: Key, why: &str) {
        let tier = MemoryTier::Dmem;
        self.log(format!(
            "worker {key} cannot be kept to the memory of its GPU by `{tier}` and is ended: {why}. `{tier}` is not used from here on"
        ));
        self.plan.isolation.memory.breaks(tier);
        self.settle_isolation();
        self.devices.holdings.is_due = true;
        self.kill_worker(key);
    }

    /// What `LD_PRELOAD` is to say in a worker with this grant, where a library keeps it to its memory.
    pub(super) fn preload_of(&self, grant: &Grant, own: &Environment) -> Option<String> {
        self.memory_kept(grant, own).filter(|kept| kept.tier == MemoryTier::Interposer)?;
        let said = own.variables.iter().find(|variable| variable.name == PRELOAD_VARIABLE);
        let said = said.map_or_else(|| self.plan.variables.get(PRELOAD_VARIABLE), |variable| variable.value.as_ref());
        Some(self.plan.isolation.memory.preload(said.map(String::as_str)))
    }

    /// DEVICE-MEMORY-1.
    pub(super) fn judge_device_memory(&mut self, found: &[DeviceUse]) {
        let held: Vec<(Key, u32, DeviceSlot, u64)> = self.memory_holders().collect();
        let holders: BTreeSet<(Key, DeviceSlot)> = held.iter().map(|(key, _, slot, _)| (*key, slot.clone())).collect();
        self.devices.memory.keep(&holders);
        for (key, pid, slot, asked) in held {
            let of_device = found.iter().find(|of| of.resource == slot.0 && of.slot == slot.1);
            let Some(processes) = of_device.map(|of| &of.usage.processes) else { continue };
            if processes.is_empty() && self.devices.memory.used(&(key, slot.clone())).is_none() {
                // Nobody has any of its memory, or nobody tells.
                continue;
            }
            let own = processes.iter().filter(|one| one.pid == pid || one.ancestors.contains(&pid));
            let used: u64 = own.map(|one| one.bytes).fold(0, u64::saturating_add);
            let is_too_much = self.devices.memory.saw((key, slot.clone()), used, asked);
            if is_too_much && self.plan.isolation.memory.has(MemoryTier::Watched) && !self.is_kept_by_kernel(key) {
                self.end_for_device_memory(key, &slot, (used, asked));
            }
        }
    }

    /// Whether a worker cannot have more memory of its device than it asked for.
    fn is_kept_by_kernel(&self, key: Key) -> bool {
        let worker = self.workers.get(&key);
        let kept = worker.and_then(|worker| self.memory_kept(worker.grant.as_ref()?, &worker.environment));
        kept.is_some_and(|kept| kept.tier >= MemoryTier::Dmem)
    }

    /// The living workers that asked for memory of a device: their processes, which device, and how much.
    fn memory_holders(&self) -> impl Iterator<Item = (Key, u32, DeviceSlot, u64)> {
        self.workers.iter().filter(|(_, worker)| !worker.is_doomed).filter_map(|(key, worker)| {
            let (pid, grant) = (worker.pid?, worker.grant.as_ref()?);
            let bytes = self.memory_limit(grant, &worker.environment)?;
            let resource = ResourceName::GPU.to_string();
            let device = grant.devices_of(&resource).first()?.device;
            Some((*key, pid, (resource, device), bytes))
        })
    }

    fn end_for_device_memory(&mut self, key: Key, slot: &DeviceSlot, (used, asked): (u64, u64)) {
        let Some(worker) = self.workers.get(&key) else { return };
        let is_asked = worker.grant.as_ref().is_some_and(|grant| asked_memory(grant).is_some());
        let how = if is_asked { format!("gpu_memory={asked}") } else { "a share that is a limit on memory".to_owned() };
        let text = format!(
            "it (pid {}) used {} of the memory of {} {} and had asked for {} ({how}, watched), on node {} ({}), which ended it. Ask for \
             more, or have it use less: frameworks are told how much they may take, and what a process needs besides is not \
             counted up to {}",
            worker.pid.unwrap_or(0),
            shown(used),
            slot.0,
            slot.1,
            shown(asked),
            self.plan.node,
            self.plan.ip,
            shown(crate::device_memory::bound_of(0)),
        );
        let line = format!("worker {key} (`{}`): {text}", worker.label);
        self.log(line);
        self.short_of_memory(key, Cause { text, kind: OutOfMemory::OfDevice });
        self.kill_worker(key);
    }
}
