//! The limits that this process runs within: those of the machine, and of every control group around it.
//!
//! Containers (Docker, Kubernetes), batch systems (Slurm) and systemd bound a process by control groups, of version 1, of
//! version 2 or of both at once. A group's limit holds for all groups below it, so that every level counts. What is read
//! lies under a root directory: `/`, or a recorded tree, read by the same code.
//!
//! - LIMITS-1: a group is found by its path in `/proc/self/cgroup`, taken relative to what is mounted
//!   (`/proc/self/mountinfo`), with and without a namespace of control groups; where the path is not visible, what is
//!   mounted stands for it.
//! - LIMITS-2: page cache that the kernel can drop is not use.

use oxiray_machine::Level;
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

/// Version 1 has no word for "no limit": it shows the largest number of whole pages. Nothing has as much memory.
const UNLIMITED_BYTES: u64 = 1 << 60;

/// A bound on anything else.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bound {
    /// How much there may be.
    pub limit: f64,
    /// The file that says so.
    pub source: String,
}

/// Of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

impl Version {
    /// The file of a group by which a process of one thread enters. With version 1 that thread enters: moving a whole
    /// process has the kernel wait for every processor, which takes it some ten milliseconds.
    pub(crate) fn door(self) -> &'static str {
        match self {
            Self::One => "tasks",
            Self::Two => "cgroup.procs",
        }
    }
}

/// A control group as this process sees it: its own directory first, then those above it.
#[derive(Debug, Clone)]
struct Chain {
    version: Version,
    levels: Vec<PathBuf>,
}

/// Where the limits of this process are read.
#[derive(Debug, Clone)]
pub struct Limits {
    root: PathBuf,
    memory: Vec<Chain>,
    cpu: Vec<Chain>,
    pids: Vec<Chain>,
}

impl Limits {
    /// Those under a root directory; `None` where it does not tell how much memory there is.
    pub fn under(root: &Path) -> Option<Self> {
        let groups = read(&root.join("proc/self/cgroup")).unwrap_or_default();
        let mounts = read(&root.join("proc/self/mountinfo")).unwrap_or_default();
        let of = |controller| chains(root, controller, &groups, &mounts);
        let limits = Self { memory: of("memory"), cpu: of("cpu"), pids: of("pids"), root: root.to_owned() };
        limits.machine().map(|_| limits)
    }

    /// Every bound on memory, the machine's first.
    pub fn memory(&self) -> Vec<Level> {
        let groups = self.memory.iter().flat_map(|chain| {
            chain.levels.iter().filter_map(|directory| match chain.version {
                Version::One => self.level_of_one(directory),
                Version::Two => self.level_of_two(directory),
            })
        });
        self.machine().into_iter().chain(groups).collect()
    }

    /// How often the kernel killed a process of this one's own group for want of memory; of the whole machine where no
    /// group tells.
    pub fn kills(&self) -> u64 {
        let own = self.memory.iter().filter_map(|chain| {
            let file = match chain.version {
                Version::One => "memory.oom_control",
                Version::Two => "memory.events",
            };
            entry(&read(&chain.levels.first()?.join(file))?, "oom_kill")
        });
        let machine = || entry(&read(&self.root.join("proc/vmstat"))?, "oom_kill");
        own.max().or_else(machine).unwrap_or(0)
    }

    /// The processors that quotas leave.
    pub fn cpu(&self) -> Option<Bound> {
        least(self.cpu.iter().flat_map(|chain| {
            chain.levels.iter().filter_map(|directory| match chain.version {
                Version::One => {
                    let quota = directory.join("cpu.cfs_quota_us");
                    let share = number(&quota)? / number(&directory.join("cpu.cfs_period_us"))?;
                    (share > 0.0).then(|| self.bound(share, &quota))
                }
                Version::Two => {
                    let file = directory.join("cpu.max");
                    let text = read(&file)?;
                    let (quota, period) = text.split_once(' ')?;
                    let share = quota.parse::<f64>().ok()? / period.trim().parse::<f64>().ok()?;
                    Some(self.bound(share, &file))
                }
            })
        }))
    }

    /// What the groups with the tightest quota took of processors since they were made, in microseconds.
    pub(crate) fn cpu_used_us(&self) -> Option<u64> {
        let source = self.cpu()?.source;
        let levels = self.cpu.iter().flat_map(|chain| chain.levels.iter().map(|level| (chain.version, level)));
        let (version, directory) =
            levels.into_iter().find(|(_, level)| Path::new(&source).parent() == Some(Path::new(&self.name(level))))?;
        match version {
            Version::One => Some(read(&directory.join("cpuacct.usage"))?.trim().parse::<u64>().ok()? / 1_000),
            Version::Two => entry(&read(&directory.join("cpu.stat"))?, "usage_usec"),
        }
    }

    /// How many processes and threads there may be.
    pub fn pids(&self) -> Option<Bound> {
        let directories = self.pids.iter().flat_map(|chain| &chain.levels);
        least(directories.filter_map(|directory| {
            let file = directory.join("pids.max");
            Some(self.bound(number(&file)?, &file))
        }))
    }

    /// This process's own group in the hierarchy that has a controller: of version 1 where that one has it.
    pub(crate) fn own_group(&self, controller: &str) -> Option<(Version, PathBuf)> {
        let chains = match controller {
            "memory" => &self.memory,
            "dmem" => return self.unified_group().map(|group| (Version::Two, group)),
            _ => &self.pids,
        };
        let chain = chains.iter().min_by_key(|chain| chain.version == Version::Two)?;
        Some((chain.version, chain.levels.first()?.clone()))
    }

    /// This process's own group of version 2.
    pub(crate) fn unified_group(&self) -> Option<PathBuf> {
        self.unified_levels()?.first().cloned()
    }

    /// The root of all groups of version 2, as far as it is mounted here.
    pub(crate) fn unified_root(&self) -> Option<PathBuf> {
        self.unified_levels()?.last().cloned()
    }

    fn unified_levels(&self) -> Option<&Vec<PathBuf>> {
        let chains = [&self.pids, &self.memory, &self.cpu].into_iter().flatten();
        chains.filter(|chain| chain.version == Version::Two).map(|chain| &chain.levels).next()
    }

    /// Whether these are the limits of the machine itself, and not of one that was recorded.
    pub(crate) fn are_real(&self) -> bool {
        self.root == Path::new("/")
    }

    /// How many files one process may have open.
    pub fn open_files(&self) -> Option<Bound> {
        let file = self.root.join("proc/self/limits");
        let text = read(&file)?;
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        let hard = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(self.bound(hard, &file))
    }

    fn bound(&self, limit: f64, file: &Path) -> Bound {
        Bound { limit, source: self.name(file) }
    }

    /// A file as it is called on the machine.
    fn name(&self, file: &Path) -> String {
        Path::new("/").join(file.strip_prefix(&self.root).unwrap_or(file)).display().to_string()
    }

    fn machine(&self) -> Option<Level> {
        let file = self.root.join("proc/meminfo");
        let text = read(&file)?;
        let bytes = |field: &str| Some(kibibytes(&text, field)? << 10);
        let limit = bytes("MemTotal:")?;
        let available = bytes("MemAvailable:").unwrap_or(limit);
        Some(Level {
            source: self.name(&file),
            limit,
            used: limit.saturating_sub(available),
            shared: bytes("Shmem:").unwrap_or(0),
            stalled: stalled(&self.root.join("proc/pressure/memory")),
        })
    }

    fn level_of_one(&self, directory: &Path) -> Option<Level> {
        let file = directory.join("memory.limit_in_bytes");
        let stat = read(&directory.join("memory.stat")).unwrap_or_default();
        let of = |name: &str| entry(&stat, name).unwrap_or(0);
        // Levels that are not mounted here bound it as well.
        let above = entry(&stat, "hierarchical_memory_limit").unwrap_or(u64::MAX);
        let limit = read(&file)?.trim().parse::<u64>().ok()?.min(above);
        let used = read(&directory.join("memory.usage_in_bytes"))?.trim().parse::<u64>().ok()?;
        let cache = of("total_inactive_file") + of("total_active_file");
        let busy = of("total_dirty") + of("total_writeback");
        (limit < UNLIMITED_BYTES).then(|| Level {
            source: self.name(&file),
            limit,
            used: used.saturating_sub(cache.saturating_sub(busy)),
            shared: of("total_shmem"),
            stalled: None,
        })
    }

    fn level_of_two(&self, directory: &Path) -> Option<Level> {
        let max = ["memory.max", "memory.high"].map(|name| directory.join(name)).into_iter();
        let limits = max.filter_map(|file| Some((read(&file)?.trim().parse::<u64>().ok()?, file)));
        let (limit, file) = limits.min_by_key(|(limit, _)| *limit)?;
        let used = read(&directory.join("memory.current"))?.trim().parse::<u64>().ok()?;
        let stat = read(&directory.join("memory.stat")).unwrap_or_default();
        let of = |name: &str| entry(&stat, name).unwrap_or(0);
        let cache = of("inactive_file") + of("active_file") + of("slab_reclaimable");
        let busy = of("file_dirty") + of("file_writeback");
        Some(Level {
            source: self.name(&file),
            limit,
            used: used.saturating_sub(cache.saturating_sub(busy)),
            shared: of("shmem"),
            stalled: stalled(&directory.join("memory.pressure")),
        })
    }

    /// What bounds this process, for programs.
    pub fn to_json(&self) -> Json {
        json!({"memory": self.memory(), "cpu": self.cpu(), "pids": self.pids(), "open_files": self.open_files()})
    }

    /// What bounds this process, for people: one line for each kind.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        let levels = self.memory();
        if let Some(level) = levels.iter().min_by_key(|level| level.limit) {
            let mebibytes = |bytes: u64| bytes >> 20;
            let (limit, used) = (mebibytes(level.limit), mebibytes(level.used));
            let _ = writeln!(text, "  memory      {limit} MiB, {used} MiB of it in use ({})", level.source);
        }
        for (name, bound) in [("processors", self.cpu()), ("processes", self.pids()), ("open files", self.open_files())]
        {
            match bound {
                Some(bound) => drop(writeln!(text, "  {name:<11} {} ({})", bound.limit, bound.source)),
                None => drop(writeln!(text, "  {name:<11} no limit by control groups")),
            }
        }
        text
    }
}

/// The groups of a controller that this process is in, one for each version in which it is.
fn chains(root: &Path, controller: &str, groups: &str, mounts: &str) -> Vec<Chain> {
    let own = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let version = match controllers {
            "" => Version::Two,
            names if names.split(',').any(|name| name == controller) => Version::One,
            _ => return None,
        };
        let (shown, point) = mount_of(mounts, version, controller)?;
        Some(Chain { version, levels: levels(&root.join(point.trim_start_matches('/')), &shown, path) })
    });
    own.collect()
}

/// Which part of a hierarchy is mounted, and where.
fn mount_of(mounts: &str, version: Version, controller: &str) -> Option<(String, String)> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (shown, point) = (fields.next()?, fields.next()?);
        let mut kind = after.split(' ');
        let is_it = match version {
            Version::Two => kind.next() == Some("cgroup2"),
            Version::One => kind.next() == Some("cgroup") && kind.nth(1)?.split(',').any(|option| option == controller),
        };
        is_it.then(|| (unescaped(shown), unescaped(point)))
    })
}

/// The directories of a group and of those above it that are mounted (LIMITS-1).
fn levels(point: &Path, shown: &str, path: &str) -> Vec<PathBuf> {
    let is_plain = |path: &Path| path.components().all(|part| matches!(part, Component::Normal(_)));
    let within = Path::new(path).strip_prefix(shown).ok().filter(|within| is_plain(within));
    // In a namespace of control groups the path is relative to it, whatever the mount says of its root.
    let within = within.or_else(|| Path::new(path).strip_prefix("/").ok().filter(|within| is_plain(within)));
    let directory = within.map(|within| point.join(within)).filter(|directory| directory.is_dir());
    let directory = directory.unwrap_or_else(|| point.to_owned());
    directory.ancestors().take_while(|level| level.starts_with(point)).map(Path::to_owned).collect()
}

/// A path of `/proc/self/mountinfo`, in which blanks are octal numbers.
fn unescaped(path: &str) -> String {
    path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

fn least(bounds: impl Iterator<Item = Bound>) -> Option<Bound> {
    bounds.min_by(|one, other| one.limit.total_cmp(&other.limit))
}

pub(crate) fn read(file: &Path) -> Option<String> {
    // The kernel makes such a file when it is read, and knows no size to ask for first.
    let (mut file, mut text, mut part) = (fs::File::open(file).ok()?, Vec::new(), [0; 1024]);
    loop {
        match file.read(&mut part) {
            Ok(0) => return String::from_utf8(text).ok(),
            Ok(count) => {
                text.extend_from_slice(&part[..count]);
                if count < part.len() {
                    // The kernel gives as much as there is room for.
                    return String::from_utf8(text).ok();
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// A number alone in its file; `max` is none.
fn number(file: &Path) -> Option<f64> {
    read(file)?.trim().parse().ok()
}

/// A number in a table of names and numbers.
pub(crate) fn entry(table: &str, name: &str) -> Option<u64> {
    table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// A size in a table of the kernel's, in kibibytes.
pub(crate) fn kibibytes(table: &str, field: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The share of ten seconds in which all work waited, in thousandths.
fn stalled(file: &Path) -> Option<u32> {
    let text = read(file)?;
    let full = text.lines().find_map(|line| line.strip_prefix("full avg10="))?;
    let percent: f64 = full.split(' ').next()?.parse().ok()?;
    Some((percent * 10.0) as u32)
}

#[cfg(test)]
mod tests;
