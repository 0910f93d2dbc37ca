//! Devices that people take out of service, have checked and put back, and those that nodes found ill by themselves.

use super::HeadCore;
use crate::breaker::Kept;
use crate::journal::Row;
use crate::members::OWN;
use crate::suspicion::{MemberDevice, Outcome, Suspected};
use oxiray_ids::{NodeId, WorkerId};
use oxiray_machine::{Effect, Key, check_name};
use oxiray_wire::message::{DeviceAction, DeviceAsked, DeviceHolding, DeviceOrder, HoldingPhase, StateReport};
use oxiray_wire::state::{ChronicleEntry, ChronicleEvent, DeviceCondition, DevicePart, DeviceTold, STATE_VERSION};
use std::collections::BTreeSet;

/// How much of an error that was raised is kept.
const ERROR_CHARACTERS_MAX: usize = 200;

impl HeadCore {
    /// The command line wants something of a device.
    pub(crate) fn device_asked(&mut self, from: Key, asked: &DeviceAsked) {
        let (request, version) = (asked.request, STATE_VERSION);
        let report = StateReport { request, version, ..StateReport::default() };
        let names = [("a node's name", &asked.node), ("a device", &asked.device), ("a reason", &asked.reason)];
        let answer = names.into_iter().try_for_each(|(what, text)| check_name(what, text)).and_then(|()| {
            if asked.is_all {
                return Ok(StateReport { devices: self.order_all_devices(asked)?, ..report });
            }
            Ok(StateReport { device: Some(self.order_device(asked)?), ..report })
        });
        self.answer_state(from, request, answer, String::new());
    }

    /// What is out of service on a node, or anywhere, is put back.
    fn order_all_devices(&mut self, asked: &DeviceAsked) -> Result<Vec<DeviceTold>, String> {
        if asked.action != DeviceAction::Undrain {
            return Err("all devices can be put back into service at once, and nothing else".to_owned());
        }
        let of_node = if asked.node.is_empty() { None } else { Some(self.members.meant(&asked.node)?) };
        let meant: Vec<(Key, NodeId)> = of_node.map_or_else(|| self.members.living_nodes(), |node| vec![node]);
        let mut told = Vec::new();
        for (key, node_id) in meant {
            let out = self.members.by_key[&key].devices_out_of_service();
            told.extend(out.into_iter().map(|(resource, slot)| (key, DeviceTold { node_id, resource, slot })));
        }
        for (key, DeviceTold { node_id, resource, slot }) in &told {
            self.log(format!(
                "{resource} {slot} of node {node_id}: Undrain of all devices ordered by hand: {}",
                asked.reason
            ));
            self.order_member(*key, DeviceOrder { resource: resource.clone(), slot: *slot, ..order_of(asked) });
        }
        Ok(told.into_iter().map(|(_, told)| told).collect())
    }

    fn order_device(&mut self, asked: &DeviceAsked) -> Result<DeviceTold, String> {
        let (key, node) = self.members.meant(&asked.node)?;
        let member = &self.members.by_key[&key];
        let (resource, slot) = member.device_meant(&asked.device)?;
        let name = format!("{resource} {slot} of node {node}");
        match asked.action {
            DeviceAction::Keep | DeviceAction::Suspect | DeviceAction::Note => {
                return Err("which order? drain, undrain and check can be given".to_owned());
            }
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
        self.order_member(key, DeviceOrder { resource: resource.clone(), slot, ..order_of(asked) });
        Ok(DeviceTold { node_id: node, resource, slot })
    }

    /// A member told who has which of its devices.
    pub(super) fn note_holders(&mut self, member: Key, holdings: &[DeviceHolding]) {
        for told in holdings.iter().filter(|told| told.phase == HoldingPhase::Held) {
            if let Some(worker) = told.worker {
                let device = MemberDevice { member, resource: told.resource.clone(), slot: told.slot };
                self.workers.suspicion.holds(worker, &told.name, device);
            }
        }
    }

    /// The same of a member that describes all of itself.
    pub(super) fn note_all_holders(&mut self, member: Key) {
        let holdings = self.members.by_key.get(&member).map(|found| found.state.holdings.clone());
        self.note_holders(member, &holdings.unwrap_or_default());
    }

    /// Code that a worker ran raised an error of a device.
    pub(super) fn device_error_raised(&mut self, from: Key, text: &str) {
        let text: String = text.chars().take(ERROR_CHARACTERS_MAX).collect();
        if let Some(worker) = self.workers.by_key.get(&from) {
            self.workers.suspicion.raised(worker.id, &text);
        }
    }

    /// A worker ended: its devices may be suspected by that (SUSPICION-1).
    pub(super) fn suspect_devices(&mut self, worker: WorkerId, outcome: Outcome) {
        for suspected in self.workers.suspicion.ended(worker, outcome, self.clock.now) {
            let (device, reason, action) = match suspected {
                Suspected::Check(device, reason) => (device, reason, DeviceAction::Suspect),
                Suspected::Note(device, reason) => (device, reason, DeviceAction::Note),
            };
            let MemberDevice { member, resource, slot } = device;
            self.log(format!("{resource} {slot} of member {member}: {reason}"));
            self.order_member(member, DeviceOrder { resource, slot, action, reason, is_forced: false });
        }
    }

    /// A member told of devices that it took out of service: where too many are, it is to keep them (BREAKER-1), and where it is to
    /// be started again for one, nothing new comes to it.
    pub(super) fn see_to_devices(&mut self, member: Key) {
        let kept = self.members.kept_in_service(member, self.clock.now);
        for (Kept { resource, slot, reason, .. }, is_news) in &kept {
            let (resource, slot) = (resource.clone(), *slot);
            let why = format!("more than half of the cluster's devices of `{resource}` would be out of service");
            let text = format!("{resource} {slot} is kept in service although {reason}: {why}");
            if *is_news {
                self.note_kept(member, &resource, slot, &text);
            }
            self.out.push(Effect::Log(format!("member {member}: {text}")));
            let action = DeviceAction::Keep;
            self.order_member(member, DeviceOrder { resource, slot, action, reason: why, is_forced: false });
        }
        self.drain_for_restart(member, &kept);
    }

    fn note_kept(&mut self, member: Key, resource: &str, slot: u32, text: &str) {
        let Some(found) = self.members.by_key.get(&member) else { return };
        let sizes = found.told.device_sizes.iter().find(|sizes| sizes.resource == resource);
        let id = sizes.and_then(|sizes| sizes.ids.get(slot as usize)).cloned().unwrap_or_else(|| slot.to_string());
        let device = Some(DevicePart { resource: resource.to_owned(), slot, id, ..DevicePart::default() });
        let (event, node, text) = (ChronicleEvent::DeviceKept, Some(found.view.node), text.to_owned());
        self.note(ChronicleEntry { event, node, device, text, ..ChronicleEntry::default() });
    }

    /// Drains a member whose driver needs a restart of the machine for one of its devices; once for each, so that who keeps the
    /// node after all has it kept, and where it does not take too many (BREAKER-3). The head's own cannot be drained.
    fn drain_for_restart(&mut self, member: Key, kept: &[(Kept, bool)]) {
        let Some(found) = self.members.by_key.get_mut(&member) else { return };
        let is_kept =
            |of: &DeviceCondition| kept.iter().any(|(kept, _)| kept.resource == of.resource && kept.slot == of.slot);
        let needing = found.state.conditions.iter().filter(|of| of.needs_restart && !is_kept(of));
        let needing: BTreeSet<(String, u32)> = needing.map(|of| (of.resource.clone(), of.slot)).collect();
        let news = needing.difference(&found.restarts_for).next().cloned();
        let known = found.restarts_for.iter().filter(|(resource, slot)| !found.is_well(resource, *slot)).cloned();
        let restarts_for: BTreeSet<(String, u32)> = known.chain(needing).collect();
        if restarts_for != found.restarts_for {
            found.restarts_for = restarts_for;
            self.durable.touch(Row::Member(found.view.node));
        }
        let Some((resource, slot)) = news.filter(|_| member != OWN) else { return };
        let why = format!("the driver of its {resource} {slot} needs a restart of the machine");
        if self.members.drains.contains_key(&member) {
            return;
        }
        if self.members.may_drain_for_restart(member, &resource, self.clock.now) {
            self.drain_for(member, &why);
        } else {
            let too_many =
                format!("nodes with more than half of the cluster's devices of `{resource}` would be drained");
            self.log(format!("member {member} is not drained although {why}: {too_many}"));
        }
    }
}

/// What a member is to do with a device that is yet to be named.
fn order_of(asked: &DeviceAsked) -> DeviceOrder {
    let (action, reason, is_forced) = (asked.action, asked.reason.clone(), asked.is_forced);
    DeviceOrder { action, reason, is_forced, ..DeviceOrder::default() }
}
