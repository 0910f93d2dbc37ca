//! Which processes hold memory of the devices that a node offers, and how much those are used.
//!
//! 1. `PROCESSES-1`: a vendor's library is opened at the first question, and only for a node that has such devices.
//! 2. `PROCESSES-2`: what a family's [`Monitor`] does not tell is not guessed.
//! 3. `PROCESSES-3`: a device is named by its resource and its slot: two families' first devices are two devices.

use std::fmt;

use oxiray_families::{Hearing, Holders, Monitor, Usage, Watched};

use crate::host::Host;
use crate::offer::Offer;

/// Asks a family's monitor about the devices of one resource. A question waits for the driver, however long it takes.
#[derive(Clone)]
pub struct DeviceProcesses {
    host: Host,
    resource: &'static str,
    monitor: &'static Monitor,
    /// The device in each slot.
    devices: Vec<Watched>,
}

/// How much a device is used at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceUse {
    /// Its resource.
    pub resource: &'static str,
    /// Its number among those offered of the resource.
    pub slot: u32,
    /// What the variable that shows devices to programs calls it.
    pub id: String,
    /// How much it is used.
    pub usage: Usage,
}

impl DeviceProcesses {
    /// One for each resource of the node whose family has a monitor that can answer on this host.
    pub fn of(host: &Host, offer: &Offer) -> Vec<Self> {
        let offered = offer.devices.iter().filter(|offered| offered.detected > 0);
        let watched = offered.filter_map(|offered| {
            let monitor = offered.family.monitor.as_ref().filter(|monitor| (monitor.is_available)(host))?;
            let devices = (0..offered.count as u32).map(|slot| {
                let found = offered.slots.get(slot as usize).and_then(Option::as_ref);
                Watched {
                    id: offered.id(slot).trim().to_owned(),
                    pci_address: found.and_then(|device| device.pci_address.clone()),
                    nodes: found.map(|device| device.nodes.clone()).unwrap_or_default(),
                }
            });
            let devices = devices.collect();
            Some(Self { host: host.clone(), resource: offered.resource(), monitor, devices })
        });
        watched.collect()
    }

    /// Whose devices it knows.
    pub fn resource(&self) -> &'static str {
        self.resource
    }

    /// Who holds the device in `slot`; `None` where nobody tells, or the device exists in name only.
    pub fn in_slot(&self, slot: u32) -> Option<Holders> {
        (self.monitor.holders)(&self.host, self.devices.get(slot as usize)?)
    }

    /// For how many times as long as [`DeviceProcesses::uses`] took nobody should ask it again.
    pub fn rest(&self) -> u32 {
        self.monitor.rest
    }

    /// Bytes of the device in `slot` that are in use and that no listed process has; `None` where nobody tells.
    pub fn unlisted_bytes(&self, slot: u32) -> Option<u64> {
        let device = self.devices.get(slot as usize)?;
        (self.monitor.unlisted)(&self.host, device)
    }

    /// How much each device is used now, by slot; those are left out of which nobody tells anything.
    pub fn uses(&self) -> Vec<DeviceUse> {
        let told = (self.monitor.usage)(&self.host, &self.devices);
        let told = (0..).zip(self.devices.iter().zip(told)).filter_map(|(slot, (device, usage))| {
            Some(DeviceUse { resource: self.resource, slot, id: device.id.clone(), usage: usage? })
        });
        told.collect()
    }

    /// Hears which errors the driver reports of the devices, each at its slot, until `hearing` answers `false`; returns where
    /// nothing can be heard.
    pub fn hear_errors(&self, hearing: &mut Hearing<'_>) {
        (self.monitor.hear_errors)(&self.host, &self.devices, hearing);
    }
}

impl fmt::Debug for DeviceProcesses {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, devices, .. } = self;
        let mut debug = formatter.debug_struct("DeviceProcesses");
        debug.field("resource", resource).field("devices", devices).finish_non_exhaustive()
    }
}
