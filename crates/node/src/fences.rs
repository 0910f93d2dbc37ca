//! Fences around device nodes that cgroups hold: a worker is in one from its birth on, and what that refuses is exchanged
//! when the worker is granted devices.
//!
//! On a node that keeps nobody else in one, a worker that a request wants fenced is forked into one for itself.
//!
//! - FENCES-1: a worker enters before it runs anything of the user's, and a fence that cannot be made keeps it from ever
//!   being told what it is to run.
//! - FENCES-2: a process is in one cgroup of a hierarchy: where limits of the worker's are kept in the same hierarchy, its
//!   fence is in that cgroup.

use crate::control_groups::{ControlGroups, end_all};
use oxiray_accelerators::DeviceNode;
use oxiray_fence::{
    CgroupVersion, DaemonCgroup, DenyList, DenyRule, FenceError, Isolation, Mechanism, NodeKind, WorkerCgroup,
};
use oxiray_machine::{DeviceFence, IsolationPlan, Key};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Empty cgroups that are kept for the next workers.
const FREE_MAX: usize = 32;

/// The fences of a daemon's workers.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    /// By which cgroups workers can be kept from devices.
    version: Option<CgroupVersion>,
    /// Where those of workers are; nothing until there is one.
    daemon: Option<DaemonCgroup>,
    /// What a worker is refused that was granted nothing.
    at_birth: DenyList,
    of: BTreeMap<Key, WorkerCgroup>,
    /// Empty ones for the next workers: to make and remove one takes longer than to exchange what it refuses.
    free: Vec<WorkerCgroup>,
    /// Those in cgroups of limits, which are used again, by directory (FENCES-2).
    kept: BTreeMap<PathBuf, WorkerCgroup>,
    /// Those of dead workers in which somebody still is.
    lingering: Vec<(Key, WorkerCgroup)>,
    /// Workers that are not to be told what they are (FENCES-1).
    failed: BTreeSet<Key>,
    /// What became of what dead daemons left.
    swept: Vec<String>,
}

/// The files by which a worker enters its cgroups.
#[derive(Debug, Clone, Default)]
pub(crate) struct Doors {
    /// Those of its limits.
    pub(crate) groups: Vec<String>,
    /// Those without which it is not to begin (FENCES-1).
    pub(crate) fences: Vec<String>,
}

impl Fences {
    /// As the plan says. Lines for the log come along.
    pub(crate) fn begin(plan: &IsolationPlan, devices: &[DeviceNode]) -> (Self, Vec<String>) {
        let version = match plan.mechanisms.first() {
            Some(Mechanism::Cgroup) => Some(CgroupVersion::Two),
            Some(Mechanism::Cgroup1) => Some(CgroupVersion::One),
            Some(Mechanism::Landlock) | None => None,
        };
        if plan.asked < Isolation::Fence {
            return (Self { version, ..Self::default() }, Vec::new());
        }
        let Some(of) = version else {
            let how = match plan.mechanisms.first() {
                Some(_) => "refused by Landlock".to_owned(),
                None => format!("not refused: {}", plan.why),
            };
            return (Self::default(), vec![format!("devices of others: {how}")]);
        };
        let mut fences = Self { version, ..Self::default() };
        let made = refused_at_birth(plan, devices).and_then(|denied| {
            fences.at_birth = denied;
            made(&mut fences.daemon, of, &mut fences.swept)
        });
        let mut lines = match made {
            Ok(daemon) => vec![format!("devices of others: refused by {of}, {}", daemon.path().display())],
            // Workers are ended when they are to be fenced.
            Err(error) => return (Self::default(), vec![format!("devices of others: not refused: {error}")]),
        };
        lines.append(&mut fences.swept);
        (fences, lines)
    }

    /// What was removed of daemons that are dead, for the log.
    pub(crate) fn take_swept(&mut self) -> Vec<String> {
        std::mem::take(&mut self.swept)
    }

    /// A fence for a worker that is about to be forked, and enters the groups of its limits by these files.
    pub(crate) fn take(
        &mut self,
        (worker, is_fenced): (Key, bool),
        groups: Vec<String>,
        limits: &ControlGroups,
    ) -> Result<Doors, FenceError> {
        let Some(version) = self.version else { return Ok(Doors { groups, fences: Vec::new() }) };
        let shared = limits.unified(worker).filter(|_| version == CgroupVersion::Two);
        // One that was somebody's fence before refuses what it refused him.
        let was_fence = shared.as_ref().is_some_and(|directory| self.kept.contains_key(directory));
        if !is_fenced && !was_fence {
            return Ok(Doors { groups, fences: Vec::new() });
        }
        let is_shared = shared.is_some();
        let daemon = made(&mut self.daemon, version, &mut self.swept)?;
        let mut cgroup = match shared {
            Some(directory) => match self.kept.remove(&directory) {
                Some(kept) => kept,
                None => WorkerCgroup::at(version, directory)?,
            },
            None => self.free.pop().map_or_else(|| daemon.make_worker(), Ok)?,
        };
        daemon.refuse(&mut cgroup, &self.at_birth)?;
        let own = cgroup.door().display().to_string();
        self.of.insert(worker, cgroup);
        let (fences, groups) = if is_shared { (groups, Vec::new()) } else { (vec![own], groups) };
        Ok(Doors { groups, fences })
    }

    /// A worker is refused these devices from now on.
    pub(crate) fn refuse(&mut self, told: &DeviceFence) -> Result<(), String> {
        let result = match (&mut self.daemon, self.of.get_mut(&told.worker)) {
            (Some(daemon), Some(cgroup)) => daemon.refuse(cgroup, &told.denied).map_err(|error| error.to_string()),
            _ => Err("it was born in no cgroup that could refuse it devices".to_owned()),
        };
        if result.is_err() {
            self.failed.insert(told.worker);
        }
        result
    }

    /// Whether a worker is to be told nothing, since it could not be fenced.
    pub(crate) fn has_failed(&self, worker: Key) -> bool {
        self.failed.contains(&worker)
    }

    /// The worker is gone.
    pub(crate) fn release(&mut self, worker: Key, limits: &ControlGroups) {
        self.failed.remove(&worker);
        let Some(cgroup) = self.of.remove(&worker) else { return };
        match limits.unified(worker) {
            Some(directory) if directory == cgroup.path() => drop(self.kept.insert(directory, cgroup)),
            _ if self.free.len() < FREE_MAX && !cgroup.is_populated() => self.free.push(cgroup),
            _ if cgroup.remove().is_err() => {
                // Whoever forked the worker buried all that descends from it: this is somebody else's, or hides.
                end_all(cgroup.path());
                self.lingering.push((worker, cgroup));
            }
            _ => {}
        }
    }

    /// The processes that are in a worker's cgroup.
    pub(crate) fn left(&self, worker: Key) -> Vec<u32> {
        let lingering = self.lingering.iter().filter(|(key, _)| *key == worker).map(|(_, cgroup)| cgroup);
        self.of.get(&worker).into_iter().chain(lingering).flat_map(WorkerCgroup::processes).collect()
    }

    /// Tries again to remove what could not be, and forgets those whose cgroup is gone.
    pub(crate) fn look_again(&mut self) {
        self.lingering.retain(|(_, cgroup)| cgroup.remove().is_err());
        self.kept.retain(|directory, _| directory.exists());
    }

    /// Removes everything, after every process is dead.
    pub(crate) fn remove(self) -> Result<(), FenceError> {
        let Self { daemon, of, free, kept, lingering, .. } = self;
        drop((of, free, kept, lingering));
        daemon.map_or(Ok(()), DaemonCgroup::remove)
    }
}

/// The daemon's cgroup, which is made for the first worker that needs it, and what became of what dead daemons left.
fn made<'made>(
    daemon: &'made mut Option<DaemonCgroup>,
    version: CgroupVersion,
    swept: &mut Vec<String>,
) -> Result<&'made mut DaemonCgroup, FenceError> {
    if let Some(made) = daemon {
        return Ok(made);
    }
    let made = DaemonCgroup::make(version, &std::process::id().to_string())?;
    for (path, result) in made.sweep() {
        let how = result.err().map_or_else(|| "is removed".to_owned(), |error| format!("stays: {error}"));
        swept.push(format!("{}, which a dead daemon left, {how}", path.display()));
    }
    Ok(daemon.insert(made))
}

/// Where fences are required, all devices; otherwise none: programs see then what they would see without Oxiray.
fn refused_at_birth(plan: &IsolationPlan, devices: &[DeviceNode]) -> Result<DenyList, FenceError> {
    let numbers = devices.iter().filter(|_| plan.asked == Isolation::Require).filter_map(|node| node.number);
    DenyList::new(numbers.map(|of| DenyRule { kind: NodeKind::Char, major: of.major, minor: Some(of.minor) }))
}
