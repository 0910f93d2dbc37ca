//! The control groups of workers: made, given limits, asked why a worker died.

use super::Daemon;
use crate::control_groups::Killed;
use crate::fences::Doors;
use oxiray_machine::{Confinement, DeviceFence, DeviceMemoryLimit, Key};
use oxiray_wire::Message;
use oxiray_wire::message::Fence;

impl Daemon {
    /// The files by which a worker that is to be forked enters its groups.
    pub(super) fn doors_of_new(&mut self, key: Key, is_fenced: bool) -> Doors {
        let groups = self.workers.control_groups.take(key).unwrap_or_else(|error| {
            self.log.line(&format!("worker {key} has no limits: its control group cannot be made: {error}"));
            Vec::new()
        });
        let taken = self.workers.fences.take((key, is_fenced), groups, &self.workers.control_groups);
        for line in self.workers.fences.take_swept() {
            self.log.line(&line);
        }
        let mut doors = taken.unwrap_or_else(|error| {
            self.log.line(&format!("worker {key} cannot be kept from devices: {error}"));
            Doors::default()
        });
        if let Some(door) = self.workers.control_groups.device_memory_door(key) {
            // GROUPS-6: it does not begin outside.
            doors.groups.retain(|other| *other != door);
            if !doors.fences.contains(&door) {
                doors.fences.push(door);
            }
        }
        doors
    }

    /// Tells a worker what it is, with the ruleset that it is to hold itself to where its devices are fenced by one. FENCES-1,
    /// GROUPS-6: nothing where its fence could not be made, or its memory of a device not be limited.
    pub(super) fn assign(&mut self, worker: Key, assign: &Message, fence: Option<&Fence>) {
        if self.workers.fences.has_failed(worker) || self.workers.control_groups.has_failed(worker) {
            return;
        }
        let paths = fence.map(|fence| fence.paths.as_slice()).filter(|paths| !paths.is_empty());
        match paths.map(|paths| self.workers.rulesets.of(paths)).transpose() {
            Ok(ruleset) => self.queue(worker, assign, ruleset.into_iter().collect()),
            Err(error) => {
                self.log.line(&format!("worker {worker} cannot be kept from devices, and is ended: {error}"));
                self.core.kill_worker(worker);
            }
        }
    }

    /// FENCES-1.
    pub(super) fn fence(&mut self, told: &DeviceFence) {
        if let Err(why) = self.workers.fences.refuse(told) {
            self.core.fence_failed(told.worker, &why);
        }
    }

    pub(super) fn confine(&mut self, told: Confinement) {
        let Some(cell) = self.workers.control_groups.of(told.worker) else { return };
        if let Err(error) = cell.limit_memory(told.memory) {
            self.log.line(&format!("the memory of worker {} cannot be limited: {error}", told.worker));
        }
    }

    /// GROUPS-6.
    pub(super) fn limit_device_memory(&mut self, told: &DeviceMemoryLimit) {
        if let Err(why) = self.workers.control_groups.limit_device_memory(told) {
            self.core.device_memory_unlimited(told.worker, &why);
        }
    }

    /// A client is about to write an object to the store.
    pub(super) fn allow_object(&mut self, client: Key, bytes: u64) {
        let allowed = self.workers.control_groups.of(client).map_or(Ok(()), |cell| cell.allow_object(bytes));
        if let Err(error) = allowed {
            self.log.line(&format!("the memory limit of worker {client} does not follow what it stores: {error}"));
        }
    }

    /// Tells the core where the kernel killed a process of the worker's because its group met its own limit. Returns
    /// whether the kernel killed one, for that or for a limit further up.
    pub(super) fn look_for_kills(&mut self, key: Key) -> bool {
        let found = self.workers.control_groups.of(key).map_or(Killed::Nobody, |cell| cell.kill());
        if let Killed::OverItsLimit(exceeded) = found {
            self.core.exceeded_memory(key, exceeded);
        }
        found != Killed::Nobody
    }

    /// Workers of which a part was killed end as a whole; groups that could not be removed are tried again.
    pub(super) fn look_at_groups(&mut self) {
        for key in self.workers.control_groups.limited() {
            self.look_for_kills(key);
        }
        self.workers.control_groups.look_again();
        self.workers.fences.look_again();
        self.processes_met_limits(true);
    }

    /// Tells the core who is in the group of a worker that is gone. Returns whether nobody is.
    pub(super) fn look_at_group(&mut self, worker: Key) -> bool {
        let left = self.workers.left_in_groups(worker);
        let is_empty = left.is_empty();
        self.core.group_has(worker, left);
        is_empty
    }

    /// Tells the core of workers whose forks fail: of those that the kernel told of, or of all.
    pub(super) fn processes_met_limits(&mut self, of_all: bool) {
        let limit = self.workers.control_groups.processes_max();
        for key in self.workers.control_groups.met_limits(of_all) {
            self.core.met_process_limit(key, limit);
        }
    }
}
