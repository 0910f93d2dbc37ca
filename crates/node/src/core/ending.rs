//! How workers end, and when what they held is given back.

use super::{Alarm, Core, Duty, Effect, Key, Recheck};
use crate::device_check::Residue;
use bytes::Bytes;
use oxiray_resources::Grant;
use oxiray_wire::message::Failure;
use std::time::Duration;

/// How long the owner of a dead worker waits for the word on how it died. What the worker left behind is
/// killed meanwhile.
const VERDICT_LIMIT: Duration = Duration::from_millis(200);
/// How long a device may take to forget the dead.
const FORGETTING_LIMIT: Duration = Duration::from_secs(10);
/// How often it is asked.
const FORGETTING_PERIOD: Duration = Duration::from_millis(50);

impl Core {
    pub(crate) fn kill_worker(&mut self, key: Key) {
        let Some(worker) = self.workers.get_mut(&key) else { return };
        if matches!(worker.duty, Duty::Idle | Duty::Spare) {
            worker.duty = Duty::Ending;
        }
        self.idle.retain(|idle| *idle != key);
        self.out.push(Effect::Kill { worker: key });
    }

    /// The worker's process is dead; what descends from it may not be.
    pub fn worker_died(&mut self, key: Key) {
        if self.workers.contains_key(&key) {
            self.idle.retain(|idle| *idle != key);
            self.alarm_at(self.now + VERDICT_LIMIT, Alarm::Verdict(key));
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
        self.client_gone(key);
        let Some(mut worker) = self.workers.remove(&key) else { return };
        if worker.pid.is_none() {
            self.starting -= 1;
        }
        if let Some(surplus) = worker.surplus.take() {
            self.ledger.release(surplus);
        }
        if let Some(grant) = worker.grant.take() {
            self.give_back(grant, worker.pid.unwrap_or(0));
        }
        self.wants_pump = true;
        if let Some(job) = worker.job {
            self.close_when_over(job);
            self.forget_job_when_over(job);
        }
    }

    /// Tells who depends on the worker that it is dead, once.
    pub(crate) fn verdict(&mut self, key: Key, text: &str) {
        let Some(worker) = self.workers.get_mut(&key) else { return };
        let pid = worker.pid.unwrap_or(0);
        let last_words = worker.last_words.take();
        match worker.duty {
            Duty::Leased(lease) => self.lease_ended(lease, text),
            Duty::Actor(id) => {
                let text = format!("its process (pid {pid}) died unexpectedly: {text}");
                let failure = Failure { code: "actor_died".into(), text, cause: Bytes::new() };
                self.actor_died(id, &last_words.unwrap_or(failure));
            }
            Duty::Spare | Duty::Idle | Duty::Ending => {}
        }
    }

    /// CORE-1.
    fn give_back(&mut self, grant: Grant, pid: u32) {
        if self.held_by_the_dead(&grant, pid).is_empty() {
            return self.ledger.release(grant);
        }
        self.rechecks.push(Recheck { grant, pid, until: self.now + FORGETTING_LIMIT });
        self.alarm_at(self.now + FORGETTING_PERIOD, Alarm::Recheck);
    }

    fn held_by_the_dead(&mut self, grant: &Grant, pid: u32) -> Vec<(String, u32)> {
        let mut held = Vec::new();
        for of in grant.devices() {
            for share in &of.shares {
                if self.device_check.residue(of.resource.as_str(), share.device, pid) == Residue::Held {
                    held.push((of.resource.to_string(), share.device));
                }
            }
        }
        held
    }

    pub(crate) fn recheck(&mut self) {
        for recheck in std::mem::take(&mut self.rechecks) {
            let held = self.held_by_the_dead(&recheck.grant, recheck.pid);
            if !held.is_empty() && self.now < recheck.until {
                self.rechecks.push(recheck);
                continue;
            }
            for (resource, slot) in held {
                let reason = format!("process {} is dead, and the device still holds memory of it", recheck.pid);
                self.log(format!("{resource} {slot} is taken out of service: {reason}"));
                self.ledger.quarantine(&resource, slot, reason).expect("a grant names devices of its ledger");
            }
            self.ledger.release(recheck.grant);
            self.wants_pump = true;
        }
        if !self.rechecks.is_empty() {
            self.alarm_at(self.now + FORGETTING_PERIOD, Alarm::Recheck);
        }
    }
}
