//! Which device of a member is meant, and how it stands there.

use super::{KEPT_NAMED_MAX, Member, Members};
use oxiray_machine::Key;
use oxiray_resources::{Quantity, ResourceName};
use oxiray_wire::state::{DeviceCondition, HealthState};
use std::time::Instant;

impl Member {
    /// The device that is meant.
    pub(crate) fn device_meant(&self, text: &str) -> Result<(String, u32), String> {
        let counts: Vec<(ResourceName, u64)> = self.device_counts().collect();
        let is_there = |resource: &str, slot: u32| {
            counts.iter().any(|(name, count)| name.as_str() == resource && u64::from(slot) < *count)
        };
        // A number alone means the GPU, or the device of a node that has only one kind of them.
        let usual = if let [(only, _)] = &counts[..] { only } else { &ResourceName::GPU }.to_string();
        let (resource, number) = match text.rsplit_once(':') {
            Some((resource, number)) => (resource.to_owned(), number.parse().ok()),
            None => (usual, text.parse().ok()),
        };
        if let Some(slot) = number.filter(|slot| is_there(&resource, *slot)) {
            return Ok((resource, slot));
        }
        let named = self.told.device_sizes.iter().flat_map(|of| {
            let ids = of.ids.iter().enumerate().filter(|(_, id)| !text.is_empty() && id.starts_with(text));
            ids.map(|(slot, _)| (of.resource.clone(), slot as u32))
        });
        let mut named = named.filter(|(resource, slot)| is_there(resource, *slot));
        match (named.next(), named.next()) {
            (Some(device), None) => Ok(device),
            (Some(_), Some(_)) => Err(format!("`{text}` may mean several devices: give more of its UUID")),
            (None, _) if counts.is_empty() => Err("that node has no devices".to_owned()),
            (None, _) => {
                let there = counts.iter().map(|(name, count)| format!("{name}:0 to {name}:{}", count - 1));
                Err(format!(
                    "that node has no device `{text}`: it has {}. Give a number, RESOURCE:NUMBER, or a UUID",
                    there.collect::<Vec<_>>().join(", ")
                ))
            }
        }
    }

    /// Whether nobody is given the device, whatever the reason.
    pub(crate) fn is_out_of_service(&self, resource: &str, slot: u32) -> bool {
        let is_it = |of: &DeviceCondition| of.resource == resource && of.slot == slot;
        self.state.conditions.iter().any(|of| is_it(of) && of.reason.is_some())
    }

    /// The devices that are out of service, of those that there are.
    pub(crate) fn devices_out_of_service(&self) -> Vec<(String, u32)> {
        let counts: Vec<(ResourceName, u64)> = self.device_counts().collect();
        let is_there = |of: &&DeviceCondition| {
            counts.iter().any(|(name, count)| name.as_str() == of.resource && u64::from(of.slot) < *count)
        };
        let out = self.state.conditions.iter().filter(|of| of.reason.is_some()).filter(is_there);
        out.map(|of| (of.resource.clone(), of.slot)).collect()
    }

    /// Whether the device was found well, as its member told last.
    pub(crate) fn is_well(&self, resource: &str, slot: u32) -> bool {
        let is_it = |of: &&DeviceCondition| of.resource == resource && of.slot == slot;
        // Of the others there is nothing to be known.
        self.state.conditions.iter().find(is_it).is_none_or(|of| of.health == HealthState::Healthy)
    }

    /// Whether somebody has the device, or a part of it.
    pub(crate) fn is_device_in_use(&self, resource: &str, slot: u32) -> bool {
        let devices = self.view.free_devices.iter().find(|(name, _)| name.as_str() == resource);
        let free = devices.and_then(|(_, devices)| devices.shares().nth(slot as usize)?);
        free.is_some_and(|free| free < Quantity::ONE)
    }
}

impl Members {
    /// Whether a member may be drained since its machine is to be started again for a device of a resource (BREAKER-3).
    pub(crate) fn may_drain_for_restart(&mut self, key: Key, resource: &str, now: Instant) -> bool {
        let count = |member: &Member| {
            let of_resource = member.device_counts().filter(|(name, _)| name.as_str() == resource);
            of_resource.fold(0, |sum: u64, (_, count)| sum.saturating_add(count))
        };
        let Some(devices) = self.by_key.get(&key).map(count) else { return false };
        let living = self.by_key.values().map(count).fold(0, u64::saturating_add);
        self.breaker.may_drain((key, resource, devices), living, |member| self.by_key.contains_key(&member), now)
    }

    /// What people are to know of devices whose drivers need restarts of machines that nobody empties.
    pub(crate) fn restart_alert(&self) -> Option<String> {
        let staying = self.by_key.iter().filter(|(key, _)| !self.drains.contains_key(key));
        let mut devices: Vec<String> = staying
            .flat_map(|(_, member)| {
                let needing = member.state.conditions.iter().filter(|of| of.needs_restart);
                needing.map(|of| format!("{} {} of node {}", of.resource, of.slot, member.view.node))
            })
            .collect();
        let more = devices.len().saturating_sub(KEPT_NAMED_MAX);
        devices.truncate(KEPT_NAMED_MAX);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        (!devices.is_empty()).then(|| {
            format!(
                "the drivers of these devices need a restart of the machine, and their nodes are not being drained: {}{more}. \
                 Drain such a node by hand (`oxiray drain`) before you restart its machine",
                devices.join(", ")
            )
        })
    }
}
