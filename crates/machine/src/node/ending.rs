//! How workers end, and when what they held is given back.

use super::NodeCore;
use crate::alarm::Alarm;
use crate::device_checks::{DeviceQuestion, DeviceSlot, Residue, Step, devices_of};
use crate::devices::OutOfService;
use crate::worker::{Duty, Progress};
use crate::{Effect, IsolationPlan, Key};
use oxiray_fence::Isolation;
use oxiray_ids::WorkerNumber;
use oxiray_resources::Grant;
use oxiray_wire::message::{OutOfMemory, Stop, WorkerDied, WorkerGone};
use std::time::Duration;

/// How long the owner of a dead worker waits for the word on how it died. What the worker left behind is killed meanwhile,
/// which takes milliseconds, but on a machine that has much to do.
pub const VERDICT_LIMIT: Duration = Duration::from_secs(2);
/// How long a worker may take to leave by itself.
pub const LEAVING_LIMIT: Duration = Duration::from_secs(10);
/// How long a worker and what it started may take to die.
pub const DYING_LIMIT: Duration = Duration::from_secs(10);

impl NodeCore {
    /// Has a worker end: kills its process, or waits for one that is being forked.
    pub fn kill_worker(&mut self, key: Key) {
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

    /// The worker was to have ended by now.
    pub(super) fn is_overdue(&mut self, key: Key) {
        if self.workers.get(&key).is_some_and(|worker| worker.progress != Progress::Lingering) {
            self.kill_worker(key);
        }
    }

    /// The worker's process is dead; what descends from it may not be.
    pub fn worker_died(&mut self, key: Key) {
        if self.workers.contains_key(&key) {
            self.idle.retain(|idle| *idle != key);
            self.alarm_at(self.now + VERDICT_LIMIT, Alarm::Verdict(key));
            self.expect_the_end(key);
        }
    }

    /// The worker closed its control stream: it is dead or about to be.
    pub fn worker_left(&mut self, key: Key) {
        self.kill_worker(key);
    }

    /// The worker and everything that descends from it are dead and reaped.
    pub fn worker_gone(&mut self, key: Key, text: &str) {
        self.verdict(key, text);
        self.idle.retain(|idle| *idle != key);
        let Some(worker) = self.workers.remove(&key) else { return };
        self.devices.holdings.is_due |= worker.grants().any(|grant| !grant.devices().is_empty());
        self.devices.isolation.remove(&key);
        if worker.job.is_some() {
            self.out.push(Effect::LeaveStore { client: key });
        }
        let is_surplus = worker.duty == Duty::Surplus;
        self.report(WorkerGone { worker: WorkerNumber(key), text: text.to_owned(), is_surplus });
        self.return_to_service(key, |_| false);
        self.closed_with(key);
        self.devices.failed.remove(&key);
        let grants = worker.surplus.into_iter().chain(worker.grant);
        self.hand_back(key, worker.pid.unwrap_or(0), grants.collect());
        if let Some(job) = worker.job {
            self.forget_job_when_over(job);
        }
    }

    /// Nothing of the worker is left: what it held is given back once its devices have forgotten it.
    pub(super) fn await_forgetting(&mut self, key: Key, pid: u32, grants: Vec<Grant>) {
        let step = self.devices.checks.begin(key, pid, grants, self.now);
        self.devices_checked(key, step);
    }

    /// Tells the head that the worker is dead; it counts the first time.
    pub(super) fn verdict(&mut self, key: Key, text: &str) {
        let Some(worker) = self.workers.get(&key).filter(|worker| worker.job.is_some()) else { return };
        if let Some(violation) = self.devices.open.ended.get(&key) {
            let why = match self.plan.isolation {
                IsolationPlan { ends_violators: true, .. } => "--device-violations=end",
                IsolationPlan { asked: Isolation::Require, .. } => "--device-isolation=require",
                IsolationPlan { .. } => "device_isolation=\"require\"",
            };
            let text = format!(
                "{violation} without having been granted it, and node {} ({}) ends what does ({why}). Have it ask for the \
                 device, or leave alone what the variables that show devices do not name",
                self.plan.node, self.plan.ip
            );
            let out_of_memory = OutOfMemory::None;
            let died = WorkerDied { worker: WorkerNumber(key), text, out_of_memory, ..WorkerDied::default() };
            return self.report(WorkerDied { is_violation: true, ..died });
        }
        let cause = worker.memory.cause.as_ref();
        let text = cause.map_or(text, |cause| cause.text.as_str());
        let out_of_memory = cause.map_or(OutOfMemory::None, |cause| cause.kind);
        let blamed = self.device_blame(key).filter(|_| cause.is_none());
        let is_device_failure = blamed.as_ref().is_some_and(|(_, is_hardware)| *is_hardware);
        let is_device_error = blamed.is_some() && !is_device_failure;
        let text = blamed.map_or(text.to_owned(), |(error, _)| format!("{text}; {error}"));
        let (worker, is_violation) = (WorkerNumber(key), false);
        self.report(WorkerDied { worker, text, out_of_memory, is_violation, is_device_failure, is_device_error });
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

    /// What vendors' libraries said at the start ([`Core::doubt_devices`](crate::Core::doubt_devices)).
    pub fn doubt_devices(&mut self, found: Vec<(DeviceSlot, Option<Residue>)>) {
        let before = self.names.numbers.next();
        let step = self.devices.checks.doubt(before, found, self.now);
        self.devices_checked(before, step);
    }

    /// The answer to [`Effect::AskDevice`]; it may come late, or never.
    pub fn device_answered(&mut self, question: &DeviceQuestion, residue: Residue) {
        let step = self.devices.checks.answered(question, residue, self.now);
        self.devices_checked(question.worker, step);
    }

    pub(super) fn device_check_is_due(&mut self, worker: Key) {
        let step = self.devices.checks.due(worker, self.now);
        self.devices_checked(worker, step);
    }

    /// CORE-1.
    fn devices_checked(&mut self, worker: Key, step: Step) {
        let Step { questions, alarms, notes, verdict } = step;
        self.out.extend(notes.into_iter().map(Effect::Log));
        self.out.extend(questions.into_iter().map(Effect::AskDevice));
        for at in alarms {
            self.alarm_at(at, Alarm::DeviceCheck(worker));
        }
        let Some(verdict) = verdict else { return };
        self.return_to_service(worker, |device| verdict.doubtful.contains_key(device));
        for (device, reason) in &verdict.doubtful {
            let known = self.devices.out_of_service.get(device).and_then(|reasons| reasons.get(&worker));
            if known != Some(reason) {
                self.take_out_of_service(worker, device, reason);
            }
        }
        verdict.grants.into_iter().for_each(|grant| self.ledger.release(grant));
    }

    /// CORE-4.
    pub(super) fn take_out_of_service(&mut self, worker: Key, device: &DeviceSlot, reason: &str) {
        let (resource, slot) = device;
        self.log(format!("{resource} {slot} is out of service: {reason}"));
        self.ledger.quarantine(resource, *slot, reason).expect("a grant names devices of its ledger");
        self.devices.out_of_service.entry(device.clone()).or_default().insert(worker, reason.to_owned());
    }

    /// CORE-4: puts the devices back into service that nothing but this one kept out of it. Those that were not out of it for
    /// their health are checked before that, where nobody has them: what was left on them, or lost them, may have
    /// harmed them.
    pub(super) fn return_to_service(&mut self, by: Key, is_excepted: impl Fn(&DeviceSlot) -> bool) {
        let is_well = self.devices.doctor == Some(by);
        let mut kept = OutOfService::new();
        let mut unchecked = Vec::new();
        for (device, mut reasons) in std::mem::take(&mut self.devices.out_of_service) {
            if !is_excepted(&device) && reasons.remove(&by).is_some() {
                let (resource, slot) = &device;
                if let Some(left) = reasons.values().next() {
                    let changed = self.ledger.quarantine(resource, *slot, left.as_str());
                    changed.expect("what is out of service is a device of the ledger");
                } else if is_well || self.is_held(&device) {
                    self.out.push(Effect::Log(format!("{resource} {slot} is back in service")));
                    let restored = self.ledger.restore_device(resource, *slot);
                    restored.expect("what is out of service is a device of the ledger");
                } else {
                    unchecked.push(device.clone());
                }
            }
            if !reasons.is_empty() {
                kept.insert(device, reasons);
            }
        }
        self.devices.out_of_service = kept;
        for device in unchecked {
            self.check_before_return(&device);
        }
    }

    fn expect_the_end(&mut self, key: Key) {
        let Some(worker) = self.workers.get_mut(&key).filter(|worker| !worker.is_doomed) else { return };
        worker.is_doomed = true;
        self.devices.holdings.is_due |= worker.grants().any(|grant| !grant.devices().is_empty());
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
pub fn does_not_die(pid: u32) -> String {
    format!("process {pid} is to be gone, but it, or something that it started, does not die")
}
