//! Devices that people take out of service, have checked and put back, and those that nodes found ill by themselves.

use super::HeadCore;
use oxiray_machine::{Effect, Key, check_name};
use oxiray_resources::{Quantity, ResourceName};
use oxiray_wire::message::{DeviceAction, DeviceAsked, DeviceOrder, FailureCode, StateReport};
use oxiray_wire::state::{DeviceTold, STATE_VERSION};

impl HeadCore {
    /// The command line wants something of a device.
    pub(crate) fn device_asked(&mut self, from: Key, asked: &DeviceAsked) {
        let report = match self.order_device(asked) {
            Ok(told) => {
                let device = Some(told);
                StateReport { request: asked.request, device, version: STATE_VERSION, ..StateReport::default() }
            }
            Err(text) => {
                let failure = FailureCode::State.because(text);
                StateReport { request: asked.request, failure: Some(failure), ..StateReport::default() }
            }
        };
        self.send(from, report);
    }

    fn order_device(&mut self, asked: &DeviceAsked) -> Result<DeviceTold, String> {
        for (what, text) in [("a node's name", &asked.node), ("a device", &asked.device), ("a reason", &asked.reason)] {
            check_name(what, text)?;
        }
        let (key, node) = self.members.meant(&asked.node)?;
        let member = &self.members.by_key[&key];
        let (resource, slot) = member.device_meant(&asked.device)?;
        let name = format!("{resource} {slot} of node {node}");
        match asked.action {
            DeviceAction::Keep => return Err("which order? drain, undrain and check can be given".to_owned()),
            DeviceAction::Undrain if !member.is_out_of_service(&resource, slot) => {
                return Err(format!("{name} is in service: there is nothing to undo"));
            }
            DeviceAction::Check if member.is_device_in_use(&resource, slot) => {
                return Err(format!(
                    "{name} is in use, and the check would be in the way: drain it (`oxiray device drain`), and check it when \
                     nobody has it any more"
                ));
            }
            DeviceAction::Drain | DeviceAction::Undrain | DeviceAction::Check => {}
        }
        self.log(format!("{name}: {:?} ordered by hand: {}", asked.action, asked.reason));
        let (action, reason, is_forced) = (asked.action, asked.reason.clone(), asked.is_forced);
        self.order_member(key, DeviceOrder { resource: resource.clone(), slot, action, reason, is_forced });
        Ok(DeviceTold { node_id: node, resource, slot })
    }

    /// A member told of devices that it took out of service: where too many are, it is to keep them (BREAKER-1).
    pub(super) fn see_to_devices(&mut self, member: Key) {
        for (resource, slot) in self.members.kept_in_service(member, self.clock.now) {
            let why = format!("more than half of the cluster's devices of `{resource}` would be out of service");
            self.out.push(Effect::Log(format!("member {member} is to keep {resource} {slot} in service: {why}")));
            let action = DeviceAction::Keep;
            self.order_member(member, DeviceOrder { resource, slot, action, reason: why, is_forced: false });
        }
    }
}

impl crate::members::Member {
    /// The device that is meant.
    fn device_meant(&self, text: &str) -> Result<(String, u32), String> {
        let counts: Vec<(ResourceName, u64)> = self.device_counts().collect();
        let is_there = |resource: &str, slot: u32| {
            counts.iter().any(|(name, count)| name.as_str() == resource && u64::from(slot) < *count)
        };
        let (resource, number) = match text.rsplit_once(':') {
            Some((resource, number)) => (resource.to_owned(), number.parse().ok()),
            None => (counts.first().map_or(String::new(), |(name, _)| name.to_string()), text.parse().ok()),
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

    fn is_out_of_service(&self, resource: &str, slot: u32) -> bool {
        let is_it = |of: &oxiray_wire::state::DeviceCondition| of.resource == resource && of.slot == slot;
        self.state.conditions.iter().any(|of| is_it(of) && of.reason.is_some())
    }

    fn is_device_in_use(&self, resource: &str, slot: u32) -> bool {
        let devices = self.view.free_devices.iter().find(|(name, _)| name.as_str() == resource);
        let free = devices.and_then(|(_, devices)| devices.shares().nth(slot as usize)?);
        free.is_some_and(|free| free < Quantity::ONE)
    }
}
