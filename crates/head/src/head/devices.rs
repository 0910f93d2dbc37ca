//! Devices that people take out of service, have checked and put back, and those that nodes found ill by themselves.

use super::HeadCore;
use oxiray_machine::{Effect, Key, check_name};
use oxiray_wire::message::{DeviceAction, DeviceAsked, DeviceOrder, StateReport};
use oxiray_wire::state::{DeviceTold, STATE_VERSION};

impl HeadCore {
    /// The command line wants something of a device.
    pub(crate) fn device_asked(&mut self, from: Key, asked: &DeviceAsked) {
        let (request, version) = (asked.request, STATE_VERSION);
        let report = |told| StateReport { request, device: Some(told), version, ..StateReport::default() };
        let answer = self.order_device(asked).map(report);
        self.answer_state(from, request, answer, String::new());
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
