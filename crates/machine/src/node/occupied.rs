//! Control groups of workers that are gone in which somebody still is.
//!
//! Whoever forked a worker says that all that descends from it is dead. Its control group is a second witness: who is in it has
//! been started by the worker, or was put there beside it, and may use what the worker was granted.
//!
//! - OCCUPIED-1: what a worker with devices held is kept, and its devices are out of service with the reason, as long as somebody
//!   is in its control group.

use super::NodeCore;
use crate::alarm::Alarm;
use crate::device_checks::devices_of;
use crate::{Effect, Key};
use oxiray_resources::Grant;
use std::time::Duration;

/// Between the first two looks; twice as long each time.
const LOOK_PERIOD_MIN: Duration = Duration::from_millis(20);
const LOOK_PERIOD_MAX: Duration = Duration::from_secs(1);
/// How many of the processes are named.
const NAMED_MAX: usize = 4;

/// A control group in which somebody is although its worker is gone.
#[derive(Debug)]
pub(crate) struct Occupied {
    /// Who was in it when it was last looked at.
    pids: Vec<u32>,
    /// The worker's own process.
    pid: u32,
    /// What the worker held.
    grants: Vec<Grant>,
    period: Duration,
}

impl NodeCore {
    /// Whether it matters who is in the worker's group.
    pub fn holds_devices(&self, worker: Key) -> bool {
        let mut grants = self.workers.get(&worker).into_iter().flat_map(crate::worker::Worker::grants);
        grants.any(|grant| !grant.devices().is_empty())
    }

    /// Somebody is in the control group of a worker whose end is about to be told, or nobody is; and the answer to
    /// [`Effect::LookAtGroup`].
    pub fn group_has(&mut self, worker: Key, pids: Vec<u32>) {
        if let Some(occupied) = self.devices.occupied.get_mut(&worker) {
            if pids.is_empty() {
                let Occupied { pid, grants, .. } = self.devices.occupied.remove(&worker).expect("it was just found");
                self.return_to_service(worker, |_| false);
                return self.await_forgetting(worker, pid, grants);
            }
            let is_news = occupied.pids != pids;
            (occupied.pids, occupied.period) = (pids, (occupied.period * 2).min(LOOK_PERIOD_MAX));
            let period = occupied.period;
            if is_news {
                self.keep_back(worker);
            }
            self.alarm_at(self.now + period, Alarm::Group(worker));
        } else if !pids.is_empty() && self.holds_devices(worker) {
            let occupied = Occupied { pids, pid: 0, grants: Vec::new(), period: LOOK_PERIOD_MIN };
            self.devices.occupied.insert(worker, occupied);
        }
    }

    /// OCCUPIED-1: the worker is gone, and its group is or is not.
    pub(super) fn hand_back(&mut self, worker: Key, pid: u32, grants: Vec<Grant>) {
        let Some(occupied) = self.devices.occupied.get_mut(&worker) else {
            return self.await_forgetting(worker, pid, grants);
        };
        (occupied.pid, occupied.grants) = (pid, grants);
        self.keep_back(worker);
        self.alarm_at(self.now + LOOK_PERIOD_MIN, Alarm::Group(worker));
    }

    /// It is time for another look.
    pub(super) fn look_at_group(&mut self, worker: Key) {
        if self.devices.occupied.contains_key(&worker) {
            self.out.push(Effect::LookAtGroup { worker });
        }
    }

    fn keep_back(&mut self, worker: Key) {
        let Some(Occupied { pids, pid, grants, .. }) = self.devices.occupied.get(&worker) else { return };
        let (devices, reason) = (devices_of(grants), in_words(*pid, pids));
        for device in devices {
            self.take_out_of_service(worker, &device, &reason);
        }
    }
}

fn in_words(worker: u32, pids: &[u32]) -> String {
    let named: Vec<String> = pids.iter().take(NAMED_MAX).map(u32::to_string).collect();
    let more = pids.len().saturating_sub(NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let noun = if pids.len() == 1 { "process" } else { "processes" };
    let verb = if pids.len() == 1 { "is" } else { "are" };
    format!(
        "{noun} {}{more} {verb} still in the control group of worker process {worker}, which has ended",
        named.join(", ")
    )
}
