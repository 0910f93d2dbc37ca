//! What the driver says of devices as time goes by: how much they are used while somebody has one, told to the head with
//! what is free, and whether one is lost, which is out of service then.

use super::NodeCore;
use crate::Effect;
use crate::alarm::Alarm;
use crate::device_checks::DeviceSlot;
use oxiray_accelerators::DeviceUse as Found;
use oxiray_families::ProcessMemory;
use oxiray_wire::message::{DeviceUse, ProcessUse};
use std::collections::BTreeSet;
use std::time::Duration;

/// Between two measurings while a device is in use.
const MEASURED_EVERY: Duration = Duration::from_secs(1);
/// Between two looks at devices that nobody uses.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(10);
/// The most processes of a device that the head is told of.
const PROCESSES_MAX: usize = 64;

impl NodeCore {
    /// Sees to the next look at the devices, where somebody can tell: soon where one is in use.
    pub(super) fn watch_devices(&mut self) {
        if !self.devices.checks.is_anything_monitored() {
            return;
        }
        let period = if self.has_devices_in_use() { MEASURED_EVERY } else { LOOKED_AT_EVERY };
        let due = if self.devices.measured.next.is_none() { self.now } else { self.now + period };
        if self.devices.measured.next.is_none_or(|next| due < next) {
            self.devices.measured.next = Some(due);
            self.alarm_at(due, Alarm::Measure);
        }
    }

    /// One look at the devices, and the next in a while.
    pub(super) fn measure_devices(&mut self) {
        if self.devices.measured.next.is_none_or(|next| next > self.now) {
            // Devices came into use after this look was set.
            return;
        }
        let next = self.now + if self.has_devices_in_use() { MEASURED_EVERY } else { LOOKED_AT_EVERY };
        self.devices.measured.next = Some(next);
        self.alarm_at(next, Alarm::Measure);
        let idle = self.devices().into_iter().map(|(resource, slot)| (resource.to_owned(), slot));
        let idle = idle.filter(|device| !self.is_taken(device)).collect();
        self.devices.checks.baselines.measuring(idle);
        self.out.push(Effect::MeasureDevices);
    }

    /// How much all devices are used of which anybody says something.
    pub fn devices_measured(&mut self, found: Vec<Found>) {
        let is_used = self.has_devices_in_use();
        self.judge_processes(&found);
        let listed = std::mem::take(&mut self.devices.measured.listing);
        for found in &found {
            let device = (found.resource.to_owned(), found.slot);
            if let Some(bytes) = found.usage.unlisted_bytes {
                let is_taken = self.is_taken(&device);
                self.devices.checks.baselines.measured(&device, bytes, is_taken);
                self.devices.measured.listing.insert(device);
            }
        }
        self.devices.holdings.is_due |= listed != self.devices.measured.listing;
        self.judge_device_memory(&found);
        self.judge_health(&found);
        let (lost, working): (Vec<_>, Vec<_>) = found.into_iter().partition(|found| found.usage.is_lost);
        let lost = lost.into_iter().map(|lost| (lost.resource.to_owned(), lost.slot)).collect();
        let told = working.into_iter().filter(|_| is_used).map(|found| DeviceUse {
            grants: self.grants_use(found.resource, found.slot),
            resource: found.resource.to_owned(),
            slot: found.slot,
            id: found.id,
            busy_percent: found.usage.busy_percent,
            used_bytes: found.usage.used_bytes,
            total_bytes: found.usage.total_bytes,
            power_mw: found.usage.power_mw,
            temperature_c: found.usage.temperature_c,
            processes: shown(&found.usage.processes),
        });
        let told = told.collect();
        self.devices.measured.uses = told;
        self.judge_lost(lost);
    }

    /// CORE-4: what the driver has lost is granted to nobody until the driver has it again.
    fn judge_lost(&mut self, lost: BTreeSet<(String, u32)>) {
        if lost == self.devices.measured.lost {
            return;
        }
        let driver = self.devices.measured.driver.unwrap_or_else(|| self.names.numbers.next());
        self.devices.measured.driver = Some(driver);
        self.return_to_service(driver, |device| lost.contains(device));
        for device in lost.difference(&std::mem::take(&mut self.devices.measured.lost)) {
            let monitor = self.plan.offer.of(&device.0).and_then(|offered| offered.family.monitor.as_ref());
            let look_at = monitor.map_or("`dmesg`", |monitor| monitor.look_at);
            let reason = format!("its driver has lost it: it fell off the bus, or failed ({look_at})");
            self.take_out_of_service(driver, device, &reason);
        }
        self.devices.measured.lost = lost;
    }

    /// Whether somebody has a device, or it is out of service, since something of somebody's may be left on it.
    fn is_taken(&self, device: &DeviceSlot) -> bool {
        let is_held = !self.ledger.holders(&device.0, device.1).is_empty();
        is_held || self.devices.out_of_service.contains_key(device)
    }

    fn has_devices_in_use(&self) -> bool {
        self.ledger.open().any(|(_, demand)| demand.devices().next().is_some())
    }
}

/// Those of which it is told how much they have, the largest first.
fn shown(processes: &[ProcessMemory]) -> Vec<ProcessUse> {
    let told = processes.iter().filter(|process| process.bytes > 0);
    let use_of = |process: &ProcessMemory| ProcessUse {
        pid: process.pid,
        bytes: process.bytes,
        busy_percent: process.busy_percent,
    };
    let mut told: Vec<ProcessUse> = told.map(use_of).collect();
    told.sort_unstable_by_key(|process| (std::cmp::Reverse(process.bytes), process.pid));
    told.truncate(PROCESSES_MAX);
    told
}
