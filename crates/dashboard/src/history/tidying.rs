//! Which files go for the bounds (pure): what is older than the days, and then the oldest of what is over.
//!
//! Files of the cluster itself and of jobs that go on stay. Of other sessions those count as over that nobody has written
//! to for an hour: another cluster may have its history in the same place.

use super::index::INDEX;
use super::line::CLUSTER;
use super::shelf::{FileName, FoundFile};
use std::collections::{BTreeMap, BTreeSet};

/// The file of a session's folder that its recorder has locked.
pub(crate) const LOCK: &str = "lock";
/// After how long without a word a file of another session counts as over, in milliseconds.
const SILENCE_MS: u64 = 60 * 60 * 1_000;
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Of a job, in bytes.
    pub(crate) job_bytes: u64,
    /// Of all, in bytes.
    pub(crate) all_bytes: u64,
    /// For how many days after the last word.
    pub(crate) days: u64,
}

/// What is removed, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Removal {
    /// The session.
    pub(crate) session: String,
    /// The job.
    pub(crate) job: String,
    /// Its files.
    pub(crate) files: Vec<String>,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// When the last of them was written.
    pub(crate) changed_ms: u64,
    /// Why, for people.
    pub(crate) why: String,
}

/// What goes. `active` are the jobs of this session that go on.
pub(crate) fn removals(
    found: &[FoundFile],
    (session, active): (&str, &BTreeSet<String>),
    bounds: Bounds,
    now_ms: u64,
) -> Vec<Removal> {
    let mut by_job: BTreeMap<(String, String), Removal> = BTreeMap::new();
    let mut total = 0;
    for file in found {
        total += file.bytes;
        let Some(name) = FileName::read(&file.name) else { continue };
        let key = (name.session.clone(), name.job.clone());
        let of_job = by_job.entry(key).or_insert_with(|| Removal {
            session: name.session,
            job: name.job,
            files: Vec::new(),
            bytes: 0,
            changed_ms: 0,
            why: String::new(),
        });
        of_job.files.push(file.name.clone());
        of_job.bytes += file.bytes;
        of_job.changed_ms = of_job.changed_ms.max(file.changed_ms);
    }
    let is_over = |one: &Removal| {
        if one.session == session {
            one.job != CLUSTER && !active.contains(&one.job)
        } else {
            one.changed_ms.saturating_add(SILENCE_MS) < now_ms
        }
    };
    let mut over: Vec<Removal> = by_job.into_values().filter(is_over).collect();
    over.sort_by_key(|one| one.changed_ms);
    let mut gone = Vec::new();
    for one in over {
        let is_old = one.changed_ms.saturating_add(bounds.days.saturating_mul(DAY_MS)) < now_ms;
        let why = if is_old {
            format!("older than {} days", bounds.days)
        } else if total > bounds.all_bytes {
            format!("the oldest of more than {} bytes", bounds.all_bytes)
        } else {
            continue;
        };
        total -= one.bytes;
        gone.push(Removal { why, ..one });
    }
    gone
}

/// What lies beside the files of sessions that have none left.
pub(crate) fn lonely(found: &[FoundFile], removed: &[Removal], session: &str) -> Vec<String> {
    let gone: BTreeSet<&str> = removed.iter().flat_map(|one| &one.files).map(String::as_str).collect();
    let sessions: BTreeSet<String> = found
        .iter()
        .filter(|file| !gone.contains(file.name.as_str()))
        .filter_map(|file| FileName::read(&file.name))
        .map(|name| name.session)
        .collect();
    let emptied: BTreeSet<&str> = removed.iter().map(|one| one.session.as_str()).collect();
    let left = emptied.into_iter().filter(|one| *one != session && !sessions.contains(*one));
    left.flat_map(|one| [INDEX, LOCK].map(|name| format!("{one}/{name}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, bytes: u64, days_ago: u64) -> FoundFile {
        FoundFile { name: name.to_owned(), bytes, changed_ms: NOW - days_ago * DAY_MS }
    }

    const NOW: u64 = 100 * DAY_MS;
    const BOUNDS: Bounds = Bounds { job_bytes: 100, all_bytes: 1_000, days: 30 };

    fn gone(found: &[FoundFile]) -> Vec<(String, String)> {
        let active = BTreeSet::from(["02".to_owned()]);
        let removed = removals(found, ("now", &active), BOUNDS, NOW);
        removed.into_iter().map(|one| (format!("{}/{}", one.session, one.job), one.why)).collect()
    }

    #[test]
    fn what_is_old_goes_and_what_goes_on_stays() {
        let found = [
            file("now/cluster.jsonl.gz", 10, 40),
            file("now/01.jsonl.gz", 10, 31),
            file("now/02.jsonl.gz", 10, 31),
            file("then/cluster.jsonl.gz", 10, 31),
            file("then/index.json", 10, 31),
            file("others/cluster.jsonl.gz", 10, 29),
        ];
        let old = "older than 30 days".to_owned();
        assert_eq!(gone(&found), [("now/01".to_owned(), old.clone()), ("then/cluster".to_owned(), old)]);
    }

    #[test]
    fn the_oldest_goes_until_the_rest_has_room() {
        let found = [
            file("now/cluster.jsonl.gz", 300, 0),
            file("now/01.jsonl.gz", 300, 3),
            file("now/01.1.jsonl.gz", 100, 4),
            file("now/02.jsonl.gz", 300, 9),
            file("then/01.jsonl.gz", 200, 5),
            file("others/01.jsonl.gz", 200, 0),
        ];
        let names: Vec<String> = gone(&found).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["then/01", "now/01"], "1400 bytes are too many, 1200 as well, and 800 are not");
    }

    #[test]
    fn an_index_goes_with_the_last_file_of_its_session() {
        let found =
            [file("then/01.jsonl.gz", 1, 40), file("then/index.json", 1, 40), file("now/cluster.jsonl.gz", 1, 0)];
        let removed = removals(&found, ("now", &BTreeSet::new()), BOUNDS, NOW);
        assert_eq!(lonely(&found, &removed, "now"), ["then/index.json", "then/lock"]);
    }
}
