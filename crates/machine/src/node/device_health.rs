//! Devices that are ill: who is given none of them, who is told, who is ended, and how they come back.

use super::NodeCore;
use crate::Effect;
use crate::device_checks::{DeviceSlot, devices_of};
use crate::device_health::{CheckOutcome, DeviceErrorSeen, HealthRecord, Reported, Verdict};
use crate::device_links::LinksChange;
use crate::devices::Devices;
use crate::names::Key;
use oxiray_accelerators::DeviceUse as Found;
use oxiray_families::XidClass;
use oxiray_ids::JobId;
use oxiray_wire::message::{DeviceAction, DeviceErrors, DeviceErrorsQuery, DeviceOrder};
use oxiray_wire::state::{DeviceCondition, ServiceCause};
use std::collections::BTreeSet;
use std::time::Duration;

impl NodeCore {
    /// Drivers reported errors of devices.
    pub fn devices_failed(&mut self, seen: Vec<DeviceErrorSeen>) {
        for error in seen {
            let (resource, slot) = &error.device;
            if error.class == XidClass::Note {
                self.log(format!("{resource} {slot} reported {}", error.fault));
            }
            let verdicts = self.devices.health.error(error, self.now);
            self.carry_out_health(verdicts);
        }
        // What the driver needs now decides over what the number of an error says.
        self.out.push(Effect::MeasureDevices);
    }

    /// What drivers say of devices' health.
    pub(super) fn judge_health(&mut self, found: &[Found]) {
        for found in found.iter().filter(|found| !found.usage.is_lost) {
            let device = (found.resource.to_owned(), found.slot);
            let is_held = self.is_held(&device);
            let clients = found.usage.processes.iter().filter(|process| process.is_mps_client);
            let clients = clients.map(|client| [&[client.pid], &client.ancestors[..]].concat()).collect();
            self.devices.health.shared_by(&device, clients);
            let verdicts = self.devices.health.seen(&device, &found.usage.health, is_held, self.now);
            self.carry_out_health(verdicts);
        }
    }

    /// What the check of a device came to ([`Effect::CheckDevice`]).
    pub fn device_tested(&mut self, device: &DeviceSlot, outcome: CheckOutcome) {
        let (resource, slot) = device;
        match &outcome {
            CheckOutcome::Passed => self.log(format!("{resource} {slot} has passed the check")),
            CheckOutcome::Failed(how) => self.log(format!("{resource} {slot} has not passed the check: {how}")),
            CheckOutcome::NotMade(why) => self.log(format!("{resource} {slot} cannot be checked: {why}")),
        }
        let verdicts = self.devices.health.checked(device, outcome, self.now);
        self.carry_out_health(verdicts);
    }

    /// The head, or a person by way of it, wants something of a device.
    pub(super) fn device_ordered(&mut self, order: &DeviceOrder) {
        let device = (order.resource.clone(), order.slot);
        let is_offered = self.plan.offer.of(&device.0).is_some_and(|offered| (device.1 as usize) < offered.count);
        if !is_offered {
            return self.log(format!("the head means {} {}, which this node does not have", device.0, device.1));
        }
        let is_held = self.is_held(&device);
        let health = &mut self.devices.health;
        let verdicts = match order.action {
            DeviceAction::Drain => health.drain(&device, &order.reason),
            DeviceAction::Undrain => health.undrain(&device, order.is_forced, is_held, self.now),
            DeviceAction::Check if is_held => Vec::new(),
            DeviceAction::Check => health.check(&device),
            DeviceAction::Suspect => health.suspect(&device, &order.reason),
            DeviceAction::Note => health.remark(&device, &order.reason),
            DeviceAction::Keep => health.keep(&device, &order.reason, self.now),
        };
        self.carry_out_health(verdicts);
    }

    /// It is out of service, and why is over.
    pub(super) fn check_before_return(&mut self, device: &DeviceSlot) {
        let verdicts = self.devices.health.check(device);
        self.carry_out_health(verdicts);
    }

    fn carry_out_health(&mut self, verdicts: Vec<Verdict>) {
        for verdict in verdicts {
            match verdict {
                Verdict::Out(device, reason) => {
                    let doctor = self.doctor();
                    self.take_out_of_service(doctor, &device, &reason);
                }
                Verdict::Back(device) => {
                    let doctor = self.doctor();
                    self.return_to_service(doctor, |other| *other != device);
                }
                Verdict::Check(device) => self.out.push(Effect::CheckDevice { device }),
                Verdict::Tell(device, text) => self.tell_holders(&device, &text),
                Verdict::EndHolders(device, error) => self.end_holders(&device, &error),
                Verdict::Links(device, change) => self.links_changed(&device, change),
            }
        }
        self.remember_health();
    }

    /// LINKS-2.
    fn links_changed(&mut self, device: &DeviceSlot, change: LinksChange) {
        let (resource, slot) = device;
        let is_single = change == LinksChange::Drained;
        self.ledger.set_single(resource, *slot, is_single).expect("what is measured is a device of the ledger");
        match self.devices.health.links.why_drained(device) {
            Some(why) => self.tell_holders(device, &format!("{resource} {slot} is {why}. Who has it keeps it")),
            None => self.log(format!("{resource} {slot} is granted along with others again")),
        }
    }

    /// HEALTH-6: has it written down what is to be remembered, where that has changed.
    fn remember_health(&mut self) {
        let named = |((resource, slot), record): (DeviceSlot, HealthRecord)| {
            let name = self.plan.offer.of(&resource).map(|offered| offered.name(slot))?;
            Some(HealthRecord { name, ..record })
        };
        let records: Vec<HealthRecord> = self.devices.health.records().into_iter().filter_map(named).collect();
        if records != self.devices.remembered {
            self.devices.remembered.clone_from(&records);
            self.out.push(Effect::RememberHealth(records));
        }
    }

    /// What was remembered of the devices of this machine, as far as it is still true.
    pub fn recall_health(&mut self, records: &[HealthRecord]) {
        for record in records {
            let Some(offered) = self.plan.offer.of(&record.resource) else { continue };
            let slot = (0..offered.count as u32).find(|slot| offered.name(*slot) == record.name);
            if let Some(slot) = slot {
                let verdicts = self.devices.health.recall(&(record.resource.clone(), slot), record);
                self.carry_out_health(verdicts);
            }
        }
    }

    /// Stands for a device's health among those who keep it out of service.
    fn doctor(&mut self) -> Key {
        *self.devices.doctor.get_or_insert_with(|| self.names.numbers.next())
    }

    /// The workers that have a device or a part of it, and what is set aside of it.
    pub(super) fn holders(&self, device: &DeviceSlot) -> Vec<Key> {
        let has = |worker: &crate::worker::Worker| devices_of(worker.grants()).contains(device);
        self.workers.iter().filter(|(_, worker)| has(worker)).map(|(key, _)| *key).collect()
    }

    pub(super) fn is_held(&self, device: &DeviceSlot) -> bool {
        !self.holders(device).is_empty()
    }

    fn tell_holders(&mut self, device: &DeviceSlot, text: &str) {
        self.log(text.to_owned());
        let holders = self.holders(device);
        let jobs: BTreeSet<JobId> = holders.iter().filter_map(|holder| self.workers[holder].job).collect();
        for job in jobs {
            self.notify(job, &format!("{text} (node {}, {})", self.plan.node, self.plan.ip));
        }
    }

    fn end_holders(&mut self, device: &DeviceSlot, error: &str) {
        let (resource, slot) = device;
        for holder in self.holders(device) {
            let text = format!("{resource} {slot}, which it had, failed: {error}");
            self.devices.failed.insert(holder, text);
            self.kill_worker(holder);
        }
    }

    /// Why a worker died that had a device which failed just before, and whether something else than its own code is to blame.
    pub(super) fn device_blame(&self, key: Key) -> Option<(String, bool)> {
        if let Some(text) = self.devices.failed.get(&key) {
            return Some((text.clone(), true));
        }
        let worker = self.workers.get(&key)?;
        self.devices.health.blame(&devices_of(worker.grants()), worker.pid.unwrap_or(0), self.now)
    }

    /// What drivers reported of a worker's devices while a call ran there, which raised.
    pub(super) fn tell_device_errors(&mut self, from: Key, asked: &DeviceErrorsQuery) {
        let worker = self.workers.get(&from);
        let devices = worker.map(|worker| devices_of(worker.grants())).unwrap_or_default();
        let pid = worker.and_then(|worker| worker.pid).unwrap_or(0);
        let lasted = Duration::from_millis(asked.lasted_ms);
        let reported = self.devices.health.reported(&devices, pid, lasted, self.now);
        let texts = reported.iter().map(|reported| self.error_in_words(reported)).collect();
        self.send(from, DeviceErrors { request: asked.request, texts });
    }

    fn error_in_words(&self, Reported { seen, before, times, others }: &Reported) -> String {
        let (resource, slot) = &seen.device;
        let name = self.plan.offer.of(resource).map(|offered| format!(" ({})", offered.name(*slot)));
        let why = match seen.class {
            XidClass::Application | XidClass::Note if *others > 0 => format!(
                "a fault of one client of an MPS server hurts all of them on a GPU, and another one ({others} there) may have \
                 caused that"
            ),
            XidClass::Application | XidClass::Note => "what ran on it caused that".to_owned(),
            XidClass::Link => "its links to other devices failed".to_owned(),
            XidClass::Contained | XidClass::Reset | XidClass::Gone => "its hardware failed".to_owned(),
        };
        let often = if *times > 1 { format!(", the last of {times}") } else { String::new() };
        let (name, error, seconds) = (name.unwrap_or_default(), seen.fault, before.as_secs_f64());
        format!("{resource} {slot}{name} reported {error} {seconds:.1} s before this error{often}: {why}")
    }

    /// What is to be known of devices besides what is free of them: why they are out of service, which errors they had, who
    /// has them open without a grant.
    pub(super) fn device_conditions(&self) -> Vec<DeviceCondition> {
        let Devices { out_of_service, health, open, foreign, .. } = &self.devices;
        let opened = open.violations.keys().chain(open.listed.keys()).map(|by| &by.device);
        let known = out_of_service.keys().chain(health.noted()).chain(opened).chain(foreign.devices());
        let known: BTreeSet<&DeviceSlot> = known.collect();
        let condition = |device: &DeviceSlot| {
            let violations = self.violations_of(&device.0, device.1);
            let violations = violations.into_iter().map(|text| format!("violation: {text}"));
            DeviceCondition {
                resource: device.0.clone(),
                slot: device.1,
                reason: out_of_service.get(device).and_then(|reasons| reasons.values().next().cloned()),
                is_automatic: health.is_automatic(device),
                health: health.state(device),
                notes: health.notes(device).into_iter().chain(violations).collect(),
                foreign: foreign.of(device),
                needs_restart: health.needs_restart(device),
                cause: self.service_cause(device),
            }
        };
        known.into_iter().map(condition).collect()
    }

    /// Why a device is out of service: the kind of the reason that is told.
    fn service_cause(&self, device: &DeviceSlot) -> ServiceCause {
        let Devices { out_of_service, health, doctor, measured, occupied, .. } = &self.devices;
        match out_of_service.get(device).and_then(|reasons| reasons.keys().next()) {
            None => ServiceCause::Unknown,
            by if by == doctor.as_ref() => health.service_cause(device),
            by if by == measured.driver.as_ref() => ServiceCause::Lost,
            Some(by) if occupied.contains_key(by) || self.workers.contains_key(by) => ServiceCause::ProcessLeft,
            Some(_) => ServiceCause::MemoryLeft,
        }
    }
}
