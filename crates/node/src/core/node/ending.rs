//! How workers end, and when what they held is given back.

pub(crate) mod confined;
pub(crate) mod memory;

use super::device_use::Measured;
use super::{Alarm, Duty, NodeCore};
use crate::core::{Effect, Key};
use crate::device_check::{ANY_OF_THE_DEAD, DeviceCheck, Residue};
use oxiray_resources::Grant;
use oxiray_wire::message::{Stop, WorkerDied, WorkerGone};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long the owner of a dead worker waits for the word on how it died. What the worker left behind is
/// killed meanwhile.
const VERDICT_LIMIT: Duration = Duration::from_millis(200);
/// How long a worker may take to leave by itself.
pub(in crate::core) const LEAVING_LIMIT: Duration = Duration::from_secs(10);
/// How long a device may take to forget the dead.
const FORGETTING_LIMIT: Duration = Duration::from_secs(10);
/// How often it is asked meanwhile.
const FORGETTING_PERIOD: Duration = Duration::from_millis(50);
/// How often it is asked once it is out of service.
const REMEMBERING_PERIOD: Duration = Duration::from_secs(10);
/// How long a worker and what it started may take to die.
pub(in crate::core) const DYING_LIMIT: Duration = Duration::from_secs(10);

/// A resource and a slot.
pub(super) type Device = (String, u32);

/// The workers that keep a device out of service, each with the reason.
type OutOfService = BTreeMap<Device, BTreeMap<Key, String>>;

/// Devices that still seem to hold memory of a dead process.
#[derive(Debug)]
pub(super) struct Recheck {
    worker: Key,
    pid: u32,
    /// What is given back when the devices have forgotten, or are taken out of service.
    grants: Vec<Grant>,
    doubtful: Vec<(Device, Residue)>,
    at: Instant,
    until: Instant,
}

impl Recheck {
    /// Whether it is why a device is out of service because of that worker.
    pub(super) fn is_remembered(&self, worker: Key) -> bool {
        self.worker == worker && self.grants.is_empty() && !self.doubtful.is_empty()
    }
}

/// What is known of the machine's devices beside the ledger.
#[derive(Debug)]
pub(in crate::core) struct Devices {
    pub(super) check: Box<dyn DeviceCheck>,
    pub(super) rechecks: Vec<Recheck>,
    pub(super) out_of_service: OutOfService,
    pub(in crate::core) measured: Measured,
}

impl Devices {
    pub(super) fn new(check: Box<dyn DeviceCheck>) -> Self {
        Self { check, rechecks: Vec::new(), out_of_service: OutOfService::new(), measured: Measured::default() }
    }
}

impl NodeCore {
    pub(in crate::core) fn kill_worker(&mut self, key: Key) {
        let Some(worker) = self.workers.get_mut(&key) else { return };
        if matches!(worker.duty, Duty::Idle | Duty::Spare) {
            worker.duty = Duty::Ending;
        }
        self.idle.retain(|idle| *idle != key);
        self.expect_the_end(key);
        self.out.push(Effect::Kill { worker: key });
    }

    /// The worker has done its work: it runs what was left to be run at exit, and is killed where it does not end.
    pub(super) fn dismiss_worker(&mut self, key: Key) {
        self.send(key, Stop {});
        self.alarm_at(self.now + LEAVING_LIMIT, Alarm::Overdue(key));
    }

    /// The worker's process is dead; what descends from it may not be.
    pub(in crate::core) fn worker_died(&mut self, key: Key) {
        if self.workers.contains_key(&key) {
            self.idle.retain(|idle| *idle != key);
            self.alarm_at(self.now + VERDICT_LIMIT, Alarm::Verdict(key));
            self.expect_the_end(key);
        }
    }

    /// The worker closed its control stream: it is dead or about to be.
    pub(in crate::core) fn worker_left(&mut self, key: Key) {
        self.kill_worker(key);
    }

    /// The worker and everything that descends from it are dead and reaped.
    pub(in crate::core) fn worker_gone(&mut self, key: Key, text: &str) {
        self.verdict(key, text);
        self.idle.retain(|idle| *idle != key);
        let Some(worker) = self.workers.remove(&key) else { return };
        if worker.job.is_some() {
            self.out.push(Effect::LeaveStore { client: key });
        }
        self.report(WorkerGone { worker: key, text: text.to_owned() });
        self.return_to_service(key, |_| false);
        let grants = worker.surplus.into_iter().chain(worker.grant);
        self.give_back(key, grants.collect(), worker.pid.unwrap_or(0));
        if let Some(job) = worker.job {
            self.forget_job_when_over(job);
        }
    }

    /// Tells the head that the worker is dead; it counts the first time.
    pub(super) fn verdict(&mut self, key: Key, text: &str) {
        let Some(worker) = self.workers.get(&key).filter(|worker| worker.job.is_some()) else { return };
        let cause = worker.memory.cause.as_ref();
        let text = cause.map_or(text, |cause| cause.text.as_str()).to_owned();
        let out_of_memory = cause.map_or(0, |cause| cause.kind.into());
        self.report(WorkerDied { worker: key, text, out_of_memory });
    }

    /// The worker keeps nothing, and is free for another of its job and environment.
    pub(super) fn idle_worker(&mut self, worker: Key) {
        let Some(found) = self.workers.get_mut(&worker) else { return };
        if found.once {
            // CORE-3: it met its limit of processes while it served.
            return self.dismiss_worker(worker);
        }
        found.duty = Duty::Idle;
        if let Some(grant) = found.grant.take() {
            self.ledger.release(grant);
        }
        self.idle.push(worker);
        self.note_idle();
    }

    /// CORE-1.
    fn give_back(&mut self, worker: Key, grants: Vec<Grant>, pid: u32) {
        let doubtful = self.not_forgotten(devices_of(&grants), pid);
        let recheck = Recheck { worker, pid, grants, doubtful, at: self.now, until: self.now + FORGETTING_LIMIT };
        self.judge(recheck);
    }

    /// At the start: takes devices out of service that still hold memory of processes which are dead, from before this
    /// daemon, until they forget them (CORE-4). Other processes' devices are left alone.
    pub(in crate::core) fn doubt_devices(&mut self) {
        let worker = self.names.numbers.next();
        let devices: Vec<Device> = self.devices().into_iter().map(|(name, slot)| (name.to_owned(), slot)).collect();
        let pid = ANY_OF_THE_DEAD;
        if !devices.is_empty() {
            self.devices.check.open();
        }
        let doubtful = self.not_forgotten(devices, pid);
        if !doubtful.is_empty() {
            let (grants, at, until) = (Vec::new(), self.now, self.now);
            self.judge(Recheck { worker, pid, grants, doubtful, at, until });
        }
    }

    fn not_forgotten(&mut self, devices: impl IntoIterator<Item = Device>, pid: u32) -> Vec<(Device, Residue)> {
        let mut doubtful = Vec::new();
        for (resource, slot) in devices {
            let residue = self.devices.check.residue(&resource, slot, pid);
            if matches!(residue, Residue::Held | Residue::Pending) {
                doubtful.push(((resource, slot), residue));
            }
        }
        doubtful
    }

    pub(super) fn recheck(&mut self) {
        for mut recheck in std::mem::take(&mut self.devices.rechecks) {
            if recheck.at <= self.now {
                let asked = std::mem::take(&mut recheck.doubtful).into_iter().map(|(device, _)| device);
                recheck.doubtful = self.not_forgotten(asked, recheck.pid);
                self.judge(recheck);
            } else {
                self.devices.rechecks.push(recheck);
            }
        }
    }

    fn judge(&mut self, mut recheck: Recheck) {
        let Recheck { worker, pid, .. } = recheck;
        let is_settled = recheck.doubtful.is_empty();
        if is_settled || self.now >= recheck.until {
            let doubtful: BTreeSet<&Device> = recheck.doubtful.iter().map(|(device, _)| device).collect();
            self.return_to_service(worker, |device| doubtful.contains(device));
            for (device, residue) in &recheck.doubtful {
                let doubt = if *residue == Residue::Held { "the device" } else { "its driver does not say whether it" };
                let reason = match pid {
                    ANY_OF_THE_DEAD => {
                        format!("{doubt} still holds memory of a process that died before this node began")
                    }
                    pid => format!("process {pid} is dead, and {doubt} still holds memory of it"),
                };
                let known = self.devices.out_of_service.get(device).and_then(|reasons| reasons.get(&worker));
                if known != Some(&reason) && (pid == ANY_OF_THE_DEAD || !recheck.grants.is_empty()) {
                    self.take_out_of_service(worker, device, &reason);
                }
            }
            recheck.grants.drain(..).for_each(|grant| self.ledger.release(grant));
        }
        if !is_settled {
            // At the start nothing is granted before the driver has answered.
            let is_asked_first =
                pid == ANY_OF_THE_DEAD && recheck.doubtful.iter().any(|(_, residue)| *residue == Residue::Pending);
            let is_patient = recheck.grants.is_empty() && !is_asked_first;
            let period = if is_patient { REMEMBERING_PERIOD } else { FORGETTING_PERIOD };
            recheck.at = self.now + period;
            self.alarm_at(recheck.at, Alarm::Recheck);
            self.devices.rechecks.push(recheck);
        }
    }

    /// CORE-4.
    pub(super) fn take_out_of_service(&mut self, worker: Key, device: &Device, reason: &str) {
        let (resource, slot) = device;
        self.log(format!("{resource} {slot} is out of service: {reason}"));
        self.ledger.quarantine(resource, *slot, reason).expect("a grant names devices of its ledger");
        self.devices.out_of_service.entry(device.clone()).or_default().insert(worker, reason.to_owned());
    }

    /// Puts the devices back into service that nothing but this worker kept out of it.
    pub(super) fn return_to_service(&mut self, worker: Key, is_excepted: impl Fn(&Device) -> bool) {
        let mut kept = OutOfService::new();
        for (device, mut reasons) in std::mem::take(&mut self.devices.out_of_service) {
            if !is_excepted(&device) && reasons.remove(&worker).is_some() {
                let (resource, slot) = &device;
                let changed = if let Some(left) = reasons.values().next() {
                    self.ledger.quarantine(resource, *slot, left.as_str())
                } else {
                    self.out.push(Effect::Log(format!("{resource} {slot} is back in service")));
                    self.ledger.restore_device(resource, *slot)
                };
                changed.expect("what is out of service is a device of the ledger");
            }
            if !reasons.is_empty() {
                kept.insert(device, reasons);
            }
        }
        self.devices.out_of_service = kept;
    }

    fn expect_the_end(&mut self, key: Key) {
        let Some(worker) = self.workers.get_mut(&key).filter(|worker| !worker.is_doomed) else { return };
        worker.is_doomed = true;
        self.alarm_at(self.now + DYING_LIMIT, Alarm::Undying(key));
    }

    /// Whatever keeps it alive, such as a driver that hangs, may keep its devices from working.
    pub(super) fn does_not_die(&mut self, key: Key) {
        let Some(worker) = self.workers.get(&key) else { return };
        let (pid, devices) = (worker.pid.unwrap_or(0), devices_of(worker.grants()));
        let reason = does_not_die(pid);
        for device in devices {
            self.take_out_of_service(key, &device, &reason);
        }
        self.verdict(key, "was killed, and has not ended since");
    }
}

/// What is said of a process that outlives [`DYING_LIMIT`].
pub(in crate::core) fn does_not_die(pid: u32) -> String {
    format!("process {pid} is to be gone, but it, or something that it started, does not die")
}

fn devices_of<'grants>(grants: impl IntoIterator<Item = &'grants Grant>) -> BTreeSet<Device> {
    let of = grants.into_iter().flat_map(Grant::devices);
    of.flat_map(|of| of.shares.iter().map(|share| (of.resource.to_string(), share.device))).collect()
}
