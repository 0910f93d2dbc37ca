//! Which device of a member is meant, and how it stands there.

use super::Member;
use oxiray_resources::{Quantity, ResourceName};
use oxiray_wire::state::DeviceCondition;

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

    /// Whether somebody has the device, or a part of it.
    pub(crate) fn is_device_in_use(&self, resource: &str, slot: u32) -> bool {
        let devices = self.view.free_devices.iter().find(|(name, _)| name.as_str() == resource);
        let free = devices.and_then(|(_, devices)| devices.shares().nth(slot as usize)?);
        free.is_some_and(|free| free < Quantity::ONE)
    }
}
