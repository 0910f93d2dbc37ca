//! What entries follow from what a machine reports of its devices.

use super::{About, Chronicle};
use oxiray_ids::{JobId, NodeId, PlacementGroupId};
use oxiray_wire::message::{DeviceHolding, DeviceSizes, HoldingPhase};
use oxiray_wire::state::{ChronicleEntry, ChronicleEvent, DemandKind, DeviceCondition, DevicePart, HealthState};
use std::collections::BTreeSet;

/// A machine, and what its devices are called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceHost<'a> {
    pub(crate) node: NodeId,
    pub(crate) sizes: &'a [DeviceSizes],
}

impl DeviceHost<'_> {
    /// A device there.
    fn device(self, resource: &str, slot: u32) -> DevicePart {
        let sizes = self.sizes.iter().find(|sizes| sizes.resource == resource);
        let id = sizes.and_then(|sizes| sizes.ids.get(slot as usize)).cloned().unwrap_or_else(|| slot.to_string());
        DevicePart { resource: resource.to_owned(), slot, id, ..DevicePart::default() }
    }
}

impl Chronicle {
    /// A machine tells of grants that are new, changed or over; `is_all` where it names all that there are. `of_group` names
    /// a placement group and the job that made it.
    pub(crate) fn holdings_told(
        &mut self,
        (at_ms, host): (u64, DeviceHost<'_>),
        told: &[DeviceHolding],
        is_all: bool,
        of_group: impl Fn(PlacementGroupId) -> (String, Option<JobId>),
    ) {
        if is_all {
            let named: BTreeSet<(&str, u32, u64)> =
                told.iter().map(|of| (of.resource.as_str(), of.slot, of.grant)).collect();
            self.end_grants(at_ms, host.node, |part| !named.contains(&(&part.resource, part.slot, part.grant)));
        }
        for of in told {
            let device = host.device(&of.resource, of.slot);
            let before = self.standing_on(host.node, &device, About::Grant(of.grant));
            let event = match of.phase {
                HoldingPhase::Held => ChronicleEvent::DeviceGranted,
                HoldingPhase::Returning => ChronicleEvent::DeviceReturning,
                HoldingPhase::Over => ChronicleEvent::DeviceFree,
            };
            let since = before.as_ref().and_then(|before| before.device.as_ref()).map(|part| part.since_ms);
            let (known, is_over) = (before.clone(), of.phase == HoldingPhase::Over);
            let Some(entry) = (match before {
                Some(before) if is_over => Some(before),
                None if is_over => None,
                _ => Some(described(of, &of_group)),
            }) else {
                continue;
            };
            let holder = entry.device.as_ref().map_or(DemandKind::Task, |part| part.holder);
            let (grant, share, since_ms) = (of.grant, share_of(of, &entry), since.unwrap_or(at_ms));
            let device = Some(DevicePart { grant, share, holder, since_ms, ..device });
            let entry = ChronicleEntry { event, node: Some(host.node), device, ..entry };
            // Of what keeps a holder to its part, which may change as well, nothing is told here.
            let is_told = known.is_some_and(|known| {
                let (number, at_ms) = (known.number, known.at_ms);
                known == ChronicleEntry { number, at_ms, ..entry.clone() }
            });
            if !is_told {
                self.write(at_ms, entry);
            }
        }
    }

    /// Since when a device is out of service for the reason for which it is now.
    pub(crate) fn out_since(&self, node: NodeId, resource: &str, slot: u32) -> Option<u64> {
        let part = DevicePart { resource: resource.to_owned(), slot, ..DevicePart::default() };
        self.standing_on(node, &part, About::Service).map(|entry| entry.at_ms)
    }

    /// Whatever is held of a node's devices is over, where it is meant.
    fn end_grants(&mut self, at_ms: u64, node: NodeId, is_meant: impl Fn(&DevicePart) -> bool) {
        let is_grant =
            |entry: &ChronicleEntry| entry.device.as_ref().is_some_and(|part| part.grant > 0 && is_meant(part));
        let over: Vec<ChronicleEntry> = self.standing_of(node).filter(is_grant).collect();
        for entry in over {
            self.device_time.is_not_returned(at_ms, &entry);
            self.write(at_ms, ChronicleEntry { event: ChronicleEvent::DeviceFree, text: String::new(), ..entry });
        }
    }

    /// A node is gone, and its devices with it: nothing of them holds any more.
    pub(crate) fn node_gone(&mut self, at_ms: u64, node: NodeId) {
        self.end_grants(at_ms, node, |_| true);
        let left: Vec<ChronicleEntry> = self.standing_of(node).collect();
        for entry in left {
            let event = match entry.event {
                ChronicleEvent::DeviceIll => ChronicleEvent::DeviceWell,
                _ => ChronicleEvent::DeviceInService,
            };
            let text = "its node is gone".to_owned();
            self.write(at_ms, ChronicleEntry { event, text, ..entry });
        }
    }

    /// A machine that was told of comes back to a new head, and tells what is to be known of its devices besides. What is out of service
    /// went out of it under the head before this one, which counted it.
    pub(crate) fn conditions_told_again(&mut self, host: (u64, DeviceHost<'_>), now: &[DeviceCondition]) {
        for condition in now {
            self.condition_changed(host, &DeviceCondition::default(), condition);
        }
    }

    /// A machine tells what is to be known of its devices besides, after it had told `before`.
    pub(crate) fn conditions_told(
        &mut self,
        (at_ms, host): (u64, DeviceHost<'_>),
        before: &[DeviceCondition],
        now: &[DeviceCondition],
    ) {
        let nothing = DeviceCondition::default();
        let of = |all: &'_ [DeviceCondition], condition: &DeviceCondition| {
            all.iter().position(|other| other.resource == condition.resource && other.slot == condition.slot)
        };
        for condition in now {
            let device = host.device(&condition.resource, condition.slot);
            if condition.reason.is_some() && self.standing_on(host.node, &device, About::Service).is_none() {
                self.device_time.taken_out_of_service(condition.cause);
            }
            let before = of(before, condition).map_or(&nothing, |at| &before[at]);
            self.condition_changed((at_ms, host), before, condition);
        }
        for gone in before.iter().filter(|condition| of(now, condition).is_none()) {
            let (resource, slot) = (gone.resource.clone(), gone.slot);
            self.condition_changed(
                (at_ms, host),
                gone,
                &DeviceCondition { resource, slot, ..DeviceCondition::default() },
            );
        }
    }

    fn condition_changed(
        &mut self,
        (at_ms, host): (u64, DeviceHost<'_>),
        before: &DeviceCondition,
        now: &DeviceCondition,
    ) {
        let device = host.device(&now.resource, now.slot);
        let mut write = |event, text: &str| {
            let (node, device, text) = (Some(host.node), Some(device.clone()), text.to_owned());
            self.write(at_ms, ChronicleEntry { event, node, device, text, ..ChronicleEntry::default() });
        };
        match (&before.reason, &now.reason) {
            (before, Some(reason)) if before.as_ref() != Some(reason) => {
                write(ChronicleEvent::DeviceOutOfService, reason);
            }
            (Some(_), None) => write(ChronicleEvent::DeviceInService, ""),
            _ => {}
        }
        match (before.health == HealthState::Ill, now.health == HealthState::Ill) {
            (false, true) => {
                let why = now.reason.as_ref().or(now.notes.first());
                write(ChronicleEvent::DeviceIll, why.map(String::as_str).unwrap_or_default());
            }
            (true, false) => write(ChronicleEvent::DeviceWell, ""),
            _ => {}
        }
        for note in now.notes.iter().filter(|note| !before.notes.contains(note)) {
            write(ChronicleEvent::DeviceNoted, note);
        }
    }
}

/// Who holds it.
fn described(of: &DeviceHolding, of_group: &impl Fn(PlacementGroupId) -> (String, Option<JobId>)) -> ChronicleEntry {
    let (holder, (name, job)) = match (of.worker, of.actor, of.group) {
        (None, _, Some(group)) => (DemandKind::Group, of_group(group)),
        (_, Some(_), _) => (DemandKind::Actor, (of.name.clone(), of.job)),
        _ => (DemandKind::Task, (of.name.clone(), of.job)),
    };
    ChronicleEntry {
        device: Some(DevicePart { holder, ..DevicePart::default() }),
        job: of.job.or(job),
        actor: of.actor,
        group: of.group,
        worker: of.worker,
        pid: of.pid,
        name,
        ..ChronicleEntry::default()
    }
}

/// How much of the device it is; of what is over, what it was.
fn share_of(of: &DeviceHolding, entry: &ChronicleEntry) -> u64 {
    let before = entry.device.as_ref().map_or(0, |part| part.share);
    if of.share > 0 { of.share } else { before }
}
