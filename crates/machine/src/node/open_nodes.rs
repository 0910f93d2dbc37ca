//! Which device nodes the processes of workers have open, looked at from time to time, and whether they were granted the
//! devices. Nothing is refused here: what is open without a grant is a violation, which the driver and the log are told
//! once for each process and device. Where the node was started so, or the worker was to be fenced off it by all means, the
//! worker is ended for it, and what it ran fails.

use super::NodeCore;
use crate::Effect;
use crate::alarm::Alarm;
use crate::device_checks::{DeviceSlot, devices_of};
use crate::devices::{Looks, Opened, OpenedBy};
use crate::names::Key;
use crate::worker::Worker;
use oxiray_accelerators::NodeNumber;
use oxiray_fence::Isolation;
use oxiray_wire::state::{DeviceIsolation, DeviceTier};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Between two looks. Whoever looks leaves some out where they take too long.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(1);

/// A device node that a process has open which a worker is or has started.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenNode {
    /// The worker's process.
    pub worker: u32,
    /// The process that has it open.
    pub pid: u32,
    /// The node, by the kernel's numbers.
    pub number: NodeNumber,
    /// The name under which it was opened.
    pub path: String,
}

/// What one look found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenNodes {
    /// All nodes that are some device's own and open in a process of a worker.
    pub open: Vec<OpenNode>,
    /// The workers, by their processes, that could not be looked at whole, and why.
    pub unseen: BTreeMap<u32, String>,
    /// How long no other look is made after this one; nothing where nobody can look.
    pub pause: Option<Duration>,
}

impl NodeCore {
    /// Sees to the next look while a worker serves a job that is to be watched and that nothing refuses other devices, or that
    /// is to be refused them by all means, on a machine whose device nodes are known.
    pub(super) fn watch_open_nodes(&mut self) {
        if self.devices.open.next.is_some() || !self.has_own_nodes() {
            return;
        }
        if self.watched().next().is_some() {
            let due = self.now + LOOKED_AT_EVERY;
            self.devices.open.next = Some(due);
            self.alarm_at(due, Alarm::OpenNodes);
        } else if matches!(self.devices.open.looks, Looks::Every(_)) {
            // How long looks took tells nothing of those that are made when there is somebody again.
            self.looks(Looks::NoneYet);
        }
    }

    fn looks(&mut self, looks: Looks) {
        if std::mem::replace(&mut self.devices.open.looks, looks) != looks {
            self.settle_isolation();
        }
    }

    /// It is time for a look.
    pub(super) fn look_at_open_nodes(&mut self) {
        self.devices.open.next = None;
        let workers: Vec<u32> = self.watched().filter_map(|(_, worker)| worker.pid).collect();
        if !workers.is_empty() {
            self.out.push(Effect::LookAtOpenNodes { workers });
        }
    }

    /// What one look found. Of a worker that could not be looked at it is not said any more that it is watched.
    pub fn nodes_opened(&mut self, found: &OpenNodes) {
        self.looks(found.pause.map_or(Looks::Never, |pause| Looks::Every(self.period_with(pause))));
        let by_pid: BTreeMap<u32, Key> = self.serving().filter_map(|(key, worker)| Some((worker.pid?, key))).collect();
        for (pid, why) in &found.unseen {
            let told = by_pid.get(pid).and_then(|worker| self.devices.isolation.get_mut(worker));
            if let Some(told) = told.filter(|told| told.tier == DeviceTier::Watched) {
                *told = DeviceIsolation { tier: DeviceTier::Variable, reason: why.clone(), ..told.clone() };
                self.devices.holdings.is_due = true;
            }
        }
        let mut violations = BTreeMap::new();
        for open in &found.open {
            let Some(worker) = by_pid.get(&open.worker) else { continue };
            let devices = self.devices_with(open.number);
            let realm = self.open_to(*worker);
            let Some(device) = devices.first().filter(|_| devices.iter().all(|device| !realm.contains(device))) else {
                continue;
            };
            let by = OpenedBy { worker: *worker, pid: open.pid, device: device.clone() };
            violations.entry(by).or_insert_with(|| in_words(&self.workers[worker], open, device));
        }
        let seen_again = self.seen_again(&self.devices.open.violations, &violations);
        self.violations_seen(|opened| opened.violations = violations);
        self.end_required(seen_again);
    }

    /// The workers that are to be fenced by all means, and were found with the same device by the look before, too: what they
    /// inherited is closed when they learn what they are, and what was granted may change between a look and what is made of it.
    pub(super) fn seen_again(
        &self,
        before: &BTreeMap<OpenedBy, String>,
        now: &BTreeMap<OpenedBy, String>,
    ) -> Vec<(Key, String)> {
        let were: BTreeSet<(Key, &DeviceSlot)> = before.keys().map(|by| (by.worker, &by.device)).collect();
        let again =
            now.iter().filter(|(by, _)| were.contains(&(by.worker, &by.device)) && self.must_be_fenced(by.worker));
        again.map(|(by, text)| (by.worker, text.clone())).collect()
    }

    pub(super) fn end_required(&mut self, violators: Vec<(Key, String)>) {
        for (worker, text) in violators {
            self.end_violator(worker, text);
        }
    }

    /// Whether a worker is to be fenced by all means, so that it is not let go on where its fence did not hold.
    pub(super) fn must_be_fenced(&self, worker: Key) -> bool {
        let asked = self.workers.get(&worker).map(|worker| worker.environment.isolation);
        asked.is_some_and(|asked| self.plan.isolation.of(asked) == Isolation::Require)
    }

    /// Tells of the violations that `see` adds to what was seen before, and of those that it takes away.
    pub(super) fn violations_seen(&mut self, see: impl FnOnce(&mut Opened)) {
        let known = self.devices.open.all();
        see(&mut self.devices.open);
        let violations = self.devices.open.all();
        for (_, text) in known.iter().filter(|(by, _)| !violations.contains_key(by)) {
            self.log(format!("no longer: {text}"));
        }
        for (by, text) in violations.into_iter().filter(|(by, _)| !known.contains_key(by)) {
            self.log(text.clone());
            if let Some(job) = self.workers.get(&by.worker).and_then(|worker| worker.job) {
                self.notify(
                    job,
                    &format!(
                        "{text} without having been granted it; what it was granted is in the variables \
                     that show devices to programs"
                    ),
                );
            }
            if self.plan.isolation.ends_violators {
                self.end_violator(by.worker, text);
            }
        }
    }

    /// What the worker runs fails for it, and is not run again: it would do the same.
    pub(super) fn end_violator(&mut self, key: Key, text: String) {
        if self.workers.get(&key).is_some_and(|worker| !worker.is_doomed) {
            self.devices.open.ended.insert(key, text);
            self.kill_worker(key);
        }
    }

    /// What is open or used of a device now without a grant, in words.
    pub(super) fn violations_of(&self, resource: &str, slot: u32) -> Vec<String> {
        let Opened { violations, listed, .. } = &self.devices.open;
        let all = violations.iter().chain(listed);
        all.filter(|(by, _)| by.device.0 == resource && by.device.1 == slot).map(|(_, text)| text.clone()).collect()
    }

    /// Nothing of the worker is left that could have anything open.
    pub(super) fn closed_with(&mut self, worker: Key) {
        self.devices.open.violations.retain(|by, _| by.worker != worker);
        self.devices.open.listed.retain(|by, _| by.worker != worker);
        self.devices.open.ended.remove(&worker);
        self.devices.open.fenced.remove(&worker);
    }

    pub(super) fn serving(&self) -> impl Iterator<Item = (Key, &Worker)> {
        let serving = self.workers.iter().filter(|(_, worker)| worker.job.is_some() && !worker.is_doomed);
        serving.map(|(key, worker)| (*key, worker))
    }

    fn watched(&self) -> impl Iterator<Item = (Key, &Worker)> {
        let is_asked = |worker: &Worker| self.plan.isolation.of(worker.environment.isolation) >= Isolation::Watch;
        // A descriptor that somebody passes to a process is behind its fence.
        let is_due = |key: &Key| !self.devices.open.fenced.contains(key) || self.must_be_fenced(*key);
        self.serving().filter(move |(key, worker)| is_asked(worker) && is_due(key))
    }

    /// Between two looks, in seconds; nothing where nobody looks.
    pub(super) fn watch_period_s(&self) -> Option<u32> {
        let is_asked = self.plan.isolation.asked >= Isolation::Watch && self.has_own_nodes();
        match self.devices.open.looks {
            Looks::NoneYet if is_asked => Some(period_of(Duration::ZERO)),
            Looks::Every(period) => Some(period),
            Looks::NoneYet | Looks::Never => None,
        }
    }

    /// The seconds from look to look where each is followed by none for so long: more than before at once, and fewer only when
    /// the pauses are clearly shorter, since all of the node's state is told again with that.
    fn period_with(&self, pause: Duration) -> u32 {
        let now = period_of(pause);
        match self.devices.open.looks {
            Looks::Every(before) if now < before => period_of(pause.saturating_mul(3) / 2).min(before),
            Looks::Every(_) | Looks::NoneYet | Looks::Never => now,
        }
    }

    fn has_own_nodes(&self) -> bool {
        self.plan.offer.devices.iter().any(|offered| !offered.numbers().is_empty())
    }

    /// The devices that a node is of: several where they are parts of one board.
    pub(super) fn devices_with(&self, number: NodeNumber) -> Vec<DeviceSlot> {
        let offered = self.plan.offer.devices.iter();
        let found = offered.flat_map(|offered| {
            let slots = offered.slots_with(number).into_iter();
            slots.map(|slot| (offered.resource().to_owned(), slot))
        });
        found.collect()
    }

    /// ISOLATION-2: what a worker may open.
    pub(super) fn open_to(&self, worker: Key) -> BTreeSet<DeviceSlot> {
        let worker = &self.workers[&worker];
        let bundles = worker.home.iter().flat_map(|home| self.bundles_in(home.group));
        devices_of(worker.grants().chain(bundles))
    }
}

/// The seconds from look to look where one that comes too early is left out.
fn period_of(pause: Duration) -> u32 {
    let looks = pause.as_millis().div_ceil(LOOKED_AT_EVERY.as_millis()).max(1);
    u32::try_from(looks * u128::from(LOOKED_AT_EVERY.as_secs())).unwrap_or(u32::MAX)
}

/// What a worker's process has open without a grant.
fn in_words(worker: &Worker, open: &OpenNode, (resource, slot): &DeviceSlot) -> String {
    format!("{} has {resource} {slot} open ({})", who(worker, (open.worker, open.pid)), open.path)
}

/// A worker with what it was granted, and which process of it is meant.
pub(super) fn who(worker: &Worker, (own, pid): (u32, u32)) -> String {
    let granted: Vec<String> =
        devices_of(worker.grants()).iter().map(|(resource, slot)| format!("{resource} {slot}")).collect();
    let granted = if granted.is_empty() { "no device".to_owned() } else { granted.join(", ") };
    let label = if worker.label.is_empty() { "a worker" } else { &worker.label };
    let child = if pid == own { String::new() } else { format!(": its process {pid}") };
    format!("{label} (pid {own}, granted {granted}){child}")
}
