//! Who has memory of devices by the lists of vendors' libraries, compared with what was granted: a worker beyond its grant is a
//! violation, as one that has the device's node open is; who is no worker is told of.
//!
//! The lists are whatever the measuring of devices brings, on nodes of every `--device-isolation`; violations are looked for
//! where they were asked for.

use super::NodeCore;
use super::open_nodes::who;
use crate::Effect;
use crate::device_checks::DeviceSlot;
use crate::devices::OpenedBy;
use crate::memory::shown;
use crate::names::Key;
use oxiray_accelerators::DeviceUse;
use oxiray_families::ProcessMemory;
use oxiray_fence::Isolation;
use oxiray_ids::JobId;
use std::collections::{BTreeMap, BTreeSet};

impl NodeCore {
    /// Looks through the processes that libraries list for each device.
    pub(super) fn judge_processes(&mut self, found: &[DeviceUse]) {
        let pids = self.workers.iter().filter_map(|(key, worker)| Some((worker.pid?, *key)));
        let by_pid: BTreeMap<u32, Key> = pids.collect();
        let mut listed = BTreeMap::new();
        for DeviceUse { resource, slot, usage, .. } in found.iter().filter(|found| !found.usage.is_lost) {
            let device = ((*resource).to_owned(), *slot);
            let worker_of = |process: &ProcessMemory| {
                std::iter::once(&process.pid).chain(&process.ancestors).find_map(|pid| Some((*pid, *by_pid.get(pid)?)))
            };
            let (own, others): (Vec<_>, Vec<_>) =
                usage.processes.iter().partition(|process| worker_of(process).is_some());
            let of_workers = own.into_iter().filter_map(|process| Some((process, worker_of(process)?)));
            listed.extend(of_workers.filter_map(|(process, worker)| self.beyond_its_grant(&device, process, worker)));
            self.tell_of_others(&device, &others);
        }
        let is_watched = self.plan.isolation.asked >= Isolation::Watch;
        listed.retain(|by, _| is_watched || self.must_be_fenced(by.worker));
        let seen_again = self.seen_again(&self.devices.open.listed, &listed);
        self.violations_seen(|opened| opened.listed = listed);
        self.end_required(seen_again);
    }

    /// What is said of a process of a worker's that has memory of a device which the worker may not open; nothing where it may.
    fn beyond_its_grant(
        &self,
        device: &DeviceSlot,
        process: &ProcessMemory,
        (pid, worker): (u32, Key),
    ) -> Option<(OpenedBy, String)> {
        let (_, found) = self.serving().find(|(key, _)| *key == worker)?;
        if self.open_to(worker).contains(device) {
            return None;
        }
        let by = OpenedBy { worker, pid: process.pid, device: device.clone() };
        let much = if process.bytes > 0 { format!(" ({})", shown(process.bytes)) } else { String::new() };
        let text = format!("{} has memory of {} {}{much}", who(found, (pid, process.pid)), device.0, device.1);
        Some((by, text))
    }

    fn tell_of_others(&mut self, device: &DeviceSlot, others: &[&ProcessMemory]) {
        let holders = self.holders(device);
        let news = self.devices.foreign.saw(device, others, !holders.is_empty());
        self.out.extend(news.lines.into_iter().map(Effect::Log));
        let jobs: BTreeSet<JobId> = holders.iter().filter_map(|holder| self.workers[holder].job).collect();
        for (job, text) in jobs.iter().flat_map(|job| news.notices.iter().map(move |text| (*job, text))) {
            self.notify(job, &format!("{text} (node {}, {})", self.plan.node, self.plan.ip));
        }
    }
}
