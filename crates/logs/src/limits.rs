//! How much is kept, and what goes where there is more.

use crate::names::FileName;
use oxiray_ids::JobId;
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Ray's variables for the size of a file, and for how many are set aside.
const FILE_VARIABLE: &str = "RAY_ROTATION_MAX_BYTES";
const BACKUPS_VARIABLE: &str = "RAY_ROTATION_BACKUP_COUNT";
/// The most files that are set aside of one.
const BACKUPS_MAX: u32 = 100;

/// How much is kept of what workers print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// Bytes after which a file is set aside, and begun anew.
    pub file_bytes: u64,
    /// How many are set aside of one.
    pub backups: u32,
    /// Bytes of all files of a job.
    pub job_bytes: u64,
    /// Bytes of all files.
    pub node_bytes: u64,
    /// For how long the file of a process is kept that has ended.
    pub age_ms: u64,
    /// How many files there are.
    pub files: usize,
}

impl LogLimits {
    /// As the daemon's environment says, on a file system of that size.
    pub fn of(variable: impl Fn(&str) -> Option<String>, disk_bytes: u64) -> Self {
        let number = |name: &str| variable(name).and_then(|text| text.trim().parse::<u64>().ok());
        Self {
            file_bytes: number(FILE_VARIABLE).filter(|bytes| *bytes > 0).unwrap_or(64 * MIB),
            backups: number(BACKUPS_VARIABLE).map_or(1, |count| count.min(BACKUPS_MAX.into()) as u32),
            job_bytes: 1024 * MIB,
            node_bytes: (10 * 1024 * MIB).min(disk_bytes / 10),
            age_ms: 7 * DAY_MS,
            files: 10_000,
        }
    }
}

/// A file, as far as limits are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) name: FileName,
    /// Bytes of it and of what was set aside.
    pub(crate) bytes: u64,
    /// Bytes of what was set aside.
    pub(crate) aside: u64,
    /// When its process ended.
    pub(crate) ended_ms: Option<u64>,
}

/// What is to be done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// All of it goes.
    Remove(FileName),
    /// What was set aside goes.
    DropAside(FileName),
    /// All of it goes, and as its process lives it is begun anew.
    BeginAnew(FileName),
}

/// FILES-2: what is to be done so that everything is within the limits.
pub(crate) fn cuts(files: &[Held], limits: &LogLimits, now_ms: u64) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let is_old = |held: &Held| held.ended_ms.is_some_and(|at| at.saturating_add(limits.age_ms) < now_ms);
    let (old, mut left): (Vec<Held>, Vec<Held>) = files.iter().partition(|held| is_old(held));
    cuts.extend(old.iter().map(|held| Cut::Remove(held.name)));
    // Those that ended first come first, and those that live last: of these, those with the most.
    left.sort_by_key(|held| (held.ended_ms.unwrap_or(u64::MAX), u64::MAX - held.bytes, held.name));
    let surplus = left.len().saturating_sub(limits.files);
    let ended = left.iter().filter(|held| held.ended_ms.is_some()).count();
    cuts.extend(left.drain(..surplus.min(ended)).map(|held| Cut::Remove(held.name)));
    let mut jobs: BTreeMap<JobId, Vec<Held>> = BTreeMap::new();
    for held in &left {
        jobs.entry(held.name.job).or_default().push(*held);
    }
    left = jobs.into_values().flat_map(|files| within(files, limits.job_bytes, &mut cuts)).collect();
    left.sort_by_key(|held| (held.ended_ms.unwrap_or(u64::MAX), u64::MAX - held.bytes, held.name));
    within(left, limits.node_bytes, &mut cuts);
    cuts
}

/// Cuts files, the first ones first, until they take no more than that; returns what is left of them.
fn within(files: Vec<Held>, limit: u64, cuts: &mut Vec<Cut>) -> Vec<Held> {
    let mut bytes: u64 = files.iter().map(|held| held.bytes).sum();
    let mut left = Vec::with_capacity(files.len());
    for mut held in files {
        if bytes > limit && held.ended_ms.is_some() {
            cuts.push(Cut::Remove(held.name));
            bytes -= held.bytes;
            continue;
        }
        if bytes > limit && held.aside > 0 {
            cuts.push(Cut::DropAside(held.name));
            bytes -= held.aside;
            (held.bytes, held.aside) = (held.bytes - held.aside, 0);
        }
        left.push(held);
    }
    for held in &mut left {
        if bytes > limit && held.bytes > 0 {
            cuts.push(Cut::BeginAnew(held.name));
            bytes -= held.bytes;
            held.bytes = 0;
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::WorkerId;

    const LIMITS: LogLimits =
        LogLimits { file_bytes: 100, backups: 1, job_bytes: 500, node_bytes: 900, age_ms: 1000, files: 100 };

    fn name(worker: u8, job: u32) -> FileName {
        FileName { worker: WorkerId::new([worker; 28]), job: JobId::from_number(job), pid: 1, is_error: false }
    }

    fn held(worker: u8, job: u32, bytes: u64, ended_ms: Option<u64>) -> Held {
        Held { name: name(worker, job), bytes, aside: 0, ended_ms }
    }

    #[test]
    fn what_ended_first_goes_first_within_its_job_and_then_within_the_node() {
        let files =
            [held(1, 1, 300, Some(20)), held(2, 1, 300, Some(10)), held(3, 2, 400, Some(30)), held(4, 2, 90, None)];
        assert_eq!(cuts(&files, &LIMITS, 100), [Cut::Remove(name(2, 1))]);
        let files = [held(1, 1, 400, Some(20)), held(2, 2, 400, Some(10)), held(3, 3, 400, None)];
        assert_eq!(cuts(&files, &LIMITS, 100), [Cut::Remove(name(2, 2))]);
        assert_eq!(cuts(&files, &LIMITS, 1015), [Cut::Remove(name(2, 2))], "it is too old as well");
        assert_eq!(cuts(&files[..1], &LIMITS, 1020), []);
        assert_eq!(cuts(&files[..1], &LIMITS, 1021), [Cut::Remove(name(1, 1))]);
    }

    #[test]
    fn of_those_that_live_goes_what_was_set_aside_and_then_all() {
        let aside = |worker: u8, bytes: u64| Held { aside: bytes / 2, ..held(worker, 1, bytes, None) };
        let files = [aside(1, 200), aside(2, 400), held(3, 1, 10, Some(5))];
        assert_eq!(cuts(&files, &LIMITS, 100), [Cut::Remove(name(3, 1)), Cut::DropAside(name(2, 1))]);
        let files = [held(1, 1, 300, None), held(2, 1, 301, None)];
        assert_eq!(cuts(&files, &LIMITS, 100), [Cut::BeginAnew(name(2, 1))]);
    }

    #[test]
    fn there_are_only_so_many_files() {
        let files: Vec<Held> = (0..9).map(|number| held(number, 1, 1, (number < 5).then_some(number.into()))).collect();
        let few = LogLimits { files: 6, ..LIMITS };
        assert_eq!(cuts(&files, &few, 100), [0, 1, 2].map(|number| Cut::Remove(name(number, 1))));
        assert_eq!(cuts(&files, &LogLimits { files: 1, ..LIMITS }, 100).len(), 5, "those of processes that live stay");
    }

    #[test]
    fn limits_come_from_ray_s_variables_and_the_disk() {
        let none = LogLimits::of(|_| None, 1 << 50);
        assert_eq!((none.file_bytes, none.backups, none.node_bytes), (64 * MIB, 1, 10 * 1024 * MIB));
        let said = |name: &str| Some(if name == FILE_VARIABLE { "1000" } else { "5" }.to_owned());
        let said = LogLimits::of(said, 1000 * MIB);
        assert_eq!((said.file_bytes, said.backups, said.node_bytes), (1000, 5, 100 * MIB));
        assert_eq!(LogLimits::of(|_| Some("0".into()), 0).backups, 0);
    }
}
