//! The devices of nodes: vendors' libraries that are slow, drivers that report errors, and checks.

use crate::agenda::{Event, MILLISECOND, Micros, SECOND};
use crate::world::{NodeIndex, World};
use oxiray_accelerators::{DeviceUse, Usage};
use oxiray_families::{Health, Recovery, XidClass};
use oxiray_machine::{CheckOutcome, DeviceErrorSeen, DeviceQuestion, DeviceSlot};

/// When a vendor's library has answered at last.
const ANSWER_LATEST: Micros = 15 * SECOND;
/// An Xid of each class.
const ERRORS: [(u32, XidClass); 5] = [
    (31, XidClass::Application),
    (94, XidClass::Contained),
    (63, XidClass::Note),
    (95, XidClass::Reset),
    (79, XidClass::Gone),
];

/// What a node wants to know of its devices.
#[derive(Debug)]
pub(crate) enum AskedOfDevices {
    /// Whether one still holds memory of a dead process.
    Residue(DeviceQuestion),
    /// What the driver says of all.
    Health,
    /// Whether one passes the check.
    Check(DeviceSlot),
}

impl World {
    /// The library is slow at times.
    pub(crate) fn ask_devices(&mut self, node: NodeIndex, asked: AskedOfDevices) {
        if matches!(asked, AskedOfDevices::Health) && !self.options.devices_fail {
            return;
        }
        let usual = if self.chance.odds(50) { 5 * SECOND } else { 2 * MILLISECOND };
        let at = self.now + self.chance.delay(usual).min(ANSWER_LATEST);
        let number = self.agenda.next_number();
        self.nodes[node].questions.insert(number, asked);
        self.agenda.plan(at, Event::DeviceAnswers { node, number });
    }

    /// The library looks at the device, and says what it sees.
    pub(crate) fn device_answers(&mut self, node: NodeIndex, number: u64) {
        match self.nodes[node].questions.remove(&number) {
            Some(AskedOfDevices::Residue(question)) => {
                let machine = self.nodes[node].machine;
                let residue = self.machines[machine].memory.residue(&question, self.now);
                self.nodes[node].core.device_answered(&question, residue);
            }
            Some(AskedOfDevices::Health) => self.tell_health(node),
            Some(AskedOfDevices::Check(device)) => {
                let outcome = match self.chance.between(0, 9) {
                    _ if self.is_calm => CheckOutcome::Passed,
                    0..=1 => CheckOutcome::Failed("1 words of memory are not what was written to them".to_owned()),
                    2 => CheckOutcome::NotMade("there is no library".to_owned()),
                    _ => CheckOutcome::Passed,
                };
                self.nodes[node].core.device_tested(&device, outcome);
            }
            None => {}
        }
    }

    /// Drivers need nothing most of the time, and nothing any more when all is calm.
    fn tell_health(&mut self, node: NodeIndex) {
        let mut found = Vec::new();
        for (resource, slot) in self.nodes[node].core.devices() {
            let needs = if !self.is_calm && self.chance.odds(30) { Recovery::Reset } else { Recovery::Nothing };
            let is_remap_pending = !self.is_calm && self.chance.odds(50);
            let health = Health { recovery: Some(needs), is_remap_pending, ..Health::default() };
            found.push(DeviceUse { resource, slot, id: slot.to_string(), usage: Usage { health, ..Usage::default() } });
        }
        self.nodes[node].core.devices_measured(found);
    }

    /// A driver reports an error of some device.
    pub(crate) fn fail_some_device(&mut self) {
        let living: Vec<usize> = (0..self.nodes.len())
            .filter(|node| self.nodes[*node].is_alive && self.nodes[*node].frozen_until.is_none())
            .collect();
        let Some(node) = self.chance.pick(&living) else { return };
        let devices = self.nodes[node].core.devices();
        let Some((resource, slot)) = self.chance.pick(&devices) else { return };
        let (xid, class) = self.chance.one_of(&ERRORS);
        self.log.line(self.now, format_args!("node {node}: {resource} {slot} reports Xid {xid}"));
        let device = (resource.to_owned(), slot);
        self.wake(node);
        self.nodes[node].core.devices_failed(vec![DeviceErrorSeen { device, xid, class }]);
        self.after_event(node);
    }
}
