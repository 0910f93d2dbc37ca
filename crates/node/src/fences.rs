//! Fences around device nodes that cgroups hold: a worker is in one from its birth on, and what that refuses is exchanged
//! when the worker is granted devices.
//!
//! - FENCES-1: a worker enters before it runs anything of the user's, and a fence that cannot be made keeps it from ever
//!   being told what it is to run.
//! - FENCES-2: a process is in one cgroup of a hierarchy: where limits of the worker's are kept in the same hierarchy, its
//!   fence is in that cgroup.

use crate::control_groups::ControlGroups;
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
    /// Nothing where no cgroup keeps workers from devices.
    daemon: Option<(CgroupVersion, DaemonCgroup)>,
    /// What a worker is refused that was granted nothing.
    at_birth: DenyList,
    of: BTreeMap<Key, WorkerCgroup>,
    /// Empty ones for the next workers: to make and remove one takes longer than to exchange what it refuses.
    free: Vec<WorkerCgroup>,
    /// Those in cgroups of limits, which are used again, by directory (FENCES-2).
    kept: BTreeMap<PathBuf, WorkerCgroup>,
    /// Those of dead workers in which somebody still is.
    lingering: Vec<WorkerCgroup>,
    /// Workers that are not to be told what they are (FENCES-1).
    failed: BTreeSet<Key>,
}

/// The files by which a worker enters its cgroups.
#[derive(Debug, Default)]
pub(crate) struct Doors {
    /// Those of its limits.
    pub(crate) groups: Vec<String>,
    /// Those without which it is not to begin (FENCES-1).
    pub(crate) fences: Vec<String>,
}

impl Fences {
    /// As the plan says. Lines for the log come along.
    pub(crate) fn begin(plan: &IsolationPlan, devices: &[DeviceNode]) -> (Self, Vec<String>) {
        if plan.asked < Isolation::Fence {
            return (Self::default(), Vec::new());
        }
        let version = match plan.mechanisms.first() {
            Some(Mechanism::Cgroup) => CgroupVersion::Two,
            Some(Mechanism::Cgroup1) => CgroupVersion::One,
            Some(Mechanism::Landlock) => {
                return (Self::default(), vec!["devices of others: refused by Landlock".into()]);
            }
            None => return (Self::default(), vec![format!("devices of others: not refused: {}", plan.why)]),
        };
        let made = DaemonCgroup::make(version, &std::process::id().to_string());
        let (daemon, at_birth) = match made.and_then(|daemon| Ok((daemon, refused_at_birth(plan, devices)?))) {
            Ok(made) => made,
            // Workers are ended when they are to be fenced.
            Err(error) => return (Self::default(), vec![format!("devices of others: not refused: {error}")]),
        };
        let mut lines = vec![format!("devices of others: refused by {version}, {}", daemon.path().display())];
        for (path, result) in daemon.sweep() {
            let how = result.err().map_or_else(|| "is removed".to_owned(), |error| format!("stays: {error}"));
            lines.push(format!("{}, which a dead daemon left, {how}", path.display()));
        }
        (Self { daemon: Some((version, daemon)), at_birth, ..Self::default() }, lines)
    }

    /// A fence for a worker that is about to be forked, and enters the groups of its limits by these files.
    pub(crate) fn take(
        &mut self,
        worker: Key,
        groups: Vec<String>,
        limits: &ControlGroups,
    ) -> Result<Doors, FenceError> {
        let Some((version, daemon)) = &mut self.daemon else { return Ok(Doors { groups, fences: Vec::new() }) };
        let shared = limits.unified(worker).filter(|_| *version == CgroupVersion::Two);
        let is_shared = shared.is_some();
        let mut cgroup = match shared {
            Some(directory) => match self.kept.remove(&directory) {
                Some(kept) => kept,
                None => WorkerCgroup::at(*version, directory)?,
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
            (Some((_, daemon)), Some(cgroup)) => daemon.refuse(cgroup, &told.denied).map_err(|error| error.to_string()),
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
            _ if cgroup.remove().is_err() => self.lingering.push(cgroup),
            _ => {}
        }
    }

    /// Tries again to remove what could not be, and forgets those whose cgroup is gone.
    pub(crate) fn look_again(&mut self) {
        self.lingering.retain(|cgroup| cgroup.remove().is_err());
        self.kept.retain(|directory, _| directory.exists());
    }

    /// Removes everything, after every process is dead.
    pub(crate) fn remove(self) -> Result<(), FenceError> {
        let Self { daemon, of, free, kept, lingering, .. } = self;
        drop((of, free, kept, lingering));
        daemon.map_or(Ok(()), |(_, daemon)| daemon.remove())
    }
}

/// Where fences are required, all devices; otherwise none: programs see then what they would see without Oxiray.
fn refused_at_birth(plan: &IsolationPlan, devices: &[DeviceNode]) -> Result<DenyList, FenceError> {
    let numbers = devices.iter().filter(|_| plan.asked == Isolation::Require).filter_map(|node| node.number);
    DenyList::new(numbers.map(|of| DenyRule { kind: NodeKind::Char, major: of.major, minor: Some(of.minor) }))
}
