//! The control group of one worker.

use super::{Place, pids_in};
use crate::limits::{Version, entry, read};
use oxiray_machine::{Exceeded, INTERPRETER_BYTES};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What a store's object takes besides its bytes: whole pages, and what the kernel needs to map them.
const ROUNDING: u64 = 64 << 10;
/// How many processes are killed at once: each takes a descriptor meanwhile.
const KILLED_AT_ONCE: usize = 16;
/// A group that still has so much is not used again.
const CLEAN_BYTES: u64 = 4 << 20;

/// Whether the kernel ended a process of a worker's for want of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Killed {
    /// None.
    Nobody,
    /// One, for a limit of a group further up.
    FurtherUp,
    /// One, since the worker's group met its own limit.
    OverItsLimit(Exceeded),
}

/// What was counted before the worker came, or was given its limit.
#[derive(Debug, Default)]
struct Counts {
    /// Kills for want of memory.
    kills: u64,
    /// How often the group's own limit of memory was met.
    met: u64,
    failed_forks: u64,
}

/// Where a worker's group is made, for each controller.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Places<'groups> {
    pub(super) memory: Option<&'groups Place>,
    pub(super) processes: Option<&'groups Place>,
    pub(super) device_memory: Option<&'groups Place>,
}

/// The group of a worker: with version 1 one in each hierarchy, with version 2 the same.
#[derive(Debug)]
pub(crate) struct Cell {
    memory: Option<(Version, PathBuf)>,
    processes: Option<(Version, PathBuf)>,
    device_memory: Option<(Version, PathBuf)>,
    /// The memory of a device that is limited, as the kernel calls it.
    region: Option<String>,
    /// What `memory=` asked for, and what the group may have in all.
    limit: Option<(u64, u64)>,
    before: Counts,
    /// Forks of the worker's have failed.
    is_full: bool,
    /// The watch of its failed forks.
    pub(super) watched: Option<i32>,
}

impl Cell {
    /// Makes the group, with a limit of processes and none of memory.
    pub(super) fn make(places: Places<'_>, name: &str, processes_max: u64) -> io::Result<Self> {
        let within = |place: &Place| (place.version, place.directory.join(name));
        let cell = Self {
            memory: places.memory.map(within),
            processes: places.processes.map(within),
            device_memory: places.device_memory.map(within),
            region: None,
            limit: None,
            before: Counts::default(),
            is_full: false,
            watched: None,
        };
        for directory in cell.directories() {
            match fs::create_dir(directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(()) => {}
            }
        }
        if let Some((_, directory)) = &cell.processes {
            fs::write(directory.join("pids.max"), processes_max.to_string())?;
        }
        if let Some((version, directory)) = &cell.memory {
            // Older kernels lack some of them. What is swapped out is used all the same, and a worker ends as a whole.
            let settings: &[(&str, &str)] = match version {
                Version::One => &[("memory.swappiness", "0")],
                Version::Two => &[("memory.swap.max", "0"), ("memory.oom.group", "1")],
            };
            for (file, value) in settings {
                let _ = fs::write(directory.join(file), value);
            }
        }
        Ok(cell)
    }

    pub(super) fn limit_file(&self, place: &Place) -> PathBuf {
        let name = if place.version == Version::One { "memory.limit_in_bytes" } else { "memory.max" };
        self.memory.as_ref().map_or_else(PathBuf::new, |(_, directory)| directory.join(name))
    }

    pub(super) fn processes_file(&self, _place: &Place) -> PathBuf {
        self.directories().first().map_or_else(PathBuf::new, |directory| directory.join("pids.max"))
    }

    pub(super) fn directories(&self) -> Vec<&Path> {
        self.groups().map(|(_, directory)| directory.as_path()).collect()
    }

    fn groups(&self) -> impl Iterator<Item = &(Version, PathBuf)> {
        let (memory, processes) = (self.memory.as_ref(), self.processes.as_ref());
        let others = processes.filter(|processes| memory != Some(*processes));
        let is_other = |group: &&(Version, PathBuf)| memory != Some(*group) && processes != Some(*group);
        memory.into_iter().chain(others).chain(self.device_memory.as_ref().filter(is_other))
    }

    pub(super) fn memory_directory(&self) -> Option<&Path> {
        self.memory.as_ref().map(|(_, directory)| directory.as_path())
    }

    pub(super) fn processes_directory(&self) -> Option<&Path> {
        self.processes.as_ref().map(|(_, directory)| directory.as_path())
    }

    pub(super) fn device_memory_directory(&self) -> Option<&Path> {
        self.device_memory.as_ref().map(|(_, directory)| directory.as_path())
    }

    pub(super) fn device_memory_file(&self) -> PathBuf {
        self.device_memory_directory().map_or_else(PathBuf::new, |directory| directory.join("dmem.max"))
    }

    /// GROUPS-6: from here on whoever is in it may have so much of a device's memory.
    pub(super) fn limit_device_memory(&mut self, region: &str, bytes: u64) -> Result<(), String> {
        if self.device_memory.is_none() {
            return Err("its control group has no controller `dmem`".to_owned());
        }
        self.write_device_limit(region, &bytes.to_string()).map_err(|error| error.to_string())?;
        self.region = Some(region.to_owned());
        Ok(())
    }

    fn write_device_limit(&self, region: &str, limit: &str) -> io::Result<()> {
        let file = self.device_memory_file();
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
        fs::write(&file, format!("{region} {limit}")).map_err(named)
    }

    /// The one of them without which it is kept to no device's memory.
    pub(super) fn device_memory_door(&self) -> Option<String> {
        let (version, directory) = self.device_memory.as_ref()?;
        Some(directory.join(version.door()).display().to_string())
    }

    /// The files by which a process of one thread enters.
    pub(super) fn doors(&self) -> Vec<String> {
        self.groups().map(|(version, directory)| directory.join(version.door()).display().to_string()).collect()
    }

    /// The file that changes when forks fail.
    pub(super) fn process_events(&self) -> Option<PathBuf> {
        self.processes_directory().map(|directory| directory.join("pids.events"))
    }

    /// A worker is to come.
    pub(super) fn begin(&mut self) {
        self.before = Counts { kills: self.kills(), met: 0, failed_forks: self.failed_forks() };
        self.is_full = false;
    }

    /// How many of its processes the kernel killed for want of memory, since the group was made.
    fn kills(&self) -> u64 {
        match &self.memory {
            None => 0,
            Some((Version::One, directory)) => counted(directory, "memory.oom_control", "oom_kill"),
            Some((Version::Two, directory)) => counted(directory, "memory.events", "oom_kill"),
        }
    }

    /// How often its own limit of memory was met.
    fn met(&self) -> u64 {
        match &self.memory {
            None => 0,
            Some((Version::One, directory)) => {
                read(&directory.join("memory.failcnt")).and_then(|count| count.trim().parse().ok()).unwrap_or(0)
            }
            Some((Version::Two, directory)) => counted(directory, "memory.events", "oom"),
        }
    }

    fn failed_forks(&self) -> u64 {
        self.processes_directory().map_or(0, |directory| counted(directory, "pids.events", "max"))
    }

    /// From here on a worker in it may take so much memory for itself, besides what it has; nothing for no limit.
    pub(crate) fn limit_memory(&mut self, asked: Option<u64>) -> io::Result<()> {
        let limit =
            asked.map(|asked| (asked, asked.saturating_add(INTERPRETER_BYTES).saturating_add(self.memory_bytes())));
        if limit.is_some() && self.limit.is_none() {
            self.before.met = self.met();
        }
        self.write_limit(limit)
    }

    /// What the worker writes to the object store is not its own, and yet the kernel counts it here.
    pub(crate) fn allow_object(&mut self, bytes: u64) -> io::Result<()> {
        match self.limit {
            None => Ok(()),
            Some((asked, all)) => self.write_limit(Some((asked, all.saturating_add(bytes).saturating_add(ROUNDING)))),
        }
    }

    fn write_limit(&mut self, limit: Option<(u64, u64)>) -> io::Result<()> {
        let Some((version, directory)) = &self.memory else { return Ok(()) };
        let (file, none) = match version {
            Version::One => ("memory.limit_in_bytes", "-1"),
            Version::Two => ("memory.max", "max"),
        };
        let text = limit.map_or_else(|| none.to_owned(), |(_, all)| all.min(i64::MAX as u64 >> 12 << 12).to_string());
        fs::write(directory.join(file), text)?;
        self.limit = limit;
        Ok(())
    }

    pub(super) fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// What is counted as its memory now.
    fn memory_bytes(&self) -> u64 {
        let Some((version, directory)) = &self.memory else { return 0 };
        let file = if *version == Version::One { "memory.usage_in_bytes" } else { "memory.current" };
        read(&directory.join(file)).and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0)
    }

    /// Whether the kernel killed one of its processes for want of memory, and where it did so since the group's own limit
    /// was met, what there is to tell.
    pub(crate) fn kill(&self) -> Killed {
        let Some((_, directory)) = self.memory.as_ref().filter(|_| self.kills() > self.before.kills) else {
            return Killed::Nobody;
        };
        let Some((asked, limit)) = self.limit.filter(|_| self.met() > self.before.met) else {
            return Killed::FurtherUp;
        };
        let peaks = ["memory.peak", "memory.max_usage_in_bytes"].map(|file| read(&directory.join(file)));
        let peak = peaks.into_iter().flatten().find_map(|bytes| bytes.trim().parse::<u64>().ok());
        Killed::OverItsLimit(Exceeded { asked, limit, used: peak.unwrap_or(limit).min(limit) })
    }

    /// Whether forks have failed, where that is news.
    pub(super) fn meets_process_limit(&mut self) -> bool {
        !self.is_full && {
            self.is_full = self.failed_forks() > self.before.failed_forks;
            self.is_full
        }
    }

    pub(super) fn has_met_process_limit(&self) -> bool {
        self.is_full
    }

    /// Ends everything in it: nothing can be forked any more, and what there is, is killed.
    pub(super) fn end(&self) {
        self.directories().into_iter().for_each(end_all);
    }

    /// GROUPS-4.
    pub(super) fn is_clean(&mut self, is_left_empty: bool) -> bool {
        let is_empty = |cell: &Self| cell.directories().into_iter().all(|directory| pids_in(directory).is_empty());
        if self.is_full || !(is_left_empty || is_empty(self)) {
            return false;
        }
        let is_free = self.limit.is_none() || self.write_limit(None).is_ok();
        is_free && self.forgets_device_limit() && self.memory_bytes() < CLEAN_BYTES
    }

    /// GROUPS-6: takes the limit of a device's memory away, where there is one.
    fn forgets_device_limit(&mut self) -> bool {
        let Some(region) = self.region.take() else { return true };
        self.write_device_limit(&region, "max").is_ok()
    }

    /// Removes it; `false` where something is in it.
    pub(super) fn remove(&self) -> bool {
        let directories = self.directories();
        for directory in &directories {
            let _ = fs::remove_dir(directory);
        }
        !directories.iter().any(|directory| directory.exists())
    }
}

/// A number in a table of the group's.
fn counted(directory: &Path, file: &str, name: &str) -> u64 {
    read(&directory.join(file)).and_then(|table| entry(&table, name)).unwrap_or(0)
}

/// Ends everything in a group.
pub(crate) fn end_all(group: &Path) {
    // Where these files are not there, what is forked meanwhile is ended by whoever looks next.
    let _ = fs::write(group.join("pids.max"), "0");
    if fs::write(group.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    for some in pids_in(group).chunks(KILLED_AT_ONCE) {
        let named: Vec<_> = some.iter().filter_map(|pid| Some((pid, oxiray_processes::pidfd_of(*pid).ok()?))).collect();
        // A number may be another process's by now; where it is still listed, what the descriptor names is in the group, or
        // dead.
        let still = pids_in(group);
        for (_, process) in named.iter().filter(|(pid, _)| still.contains(pid)) {
            let _ = oxiray_processes::kill_by_pidfd(process);
        }
    }
}
