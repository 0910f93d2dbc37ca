//! How many attempts of tasks and calls ended, by job and name.
//!
//! - TASKS-1: each attempt of which a process told is counted once, and no count falls while its job is remembered.
//! - TASKS-2: at most [`SERIES_MAX`] counts are kept; what has none of its own is counted with the others, without a job.

use oxiray_ids::JobId;
use std::collections::BTreeMap;

/// How many counts are kept. Jobs that are remembered are a thousand; most have few names.
const SERIES_MAX: usize = 5_000;
/// What stands for names that have no count of their own.
const OTHER_NAMES: &str = "other";

/// What is counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alike {
    /// The job; nothing for the others.
    pub(crate) job: Option<JobId>,
    /// What the calls are called.
    pub(crate) name: String,
    /// Whether an attempt of each was made before.
    pub(crate) is_retry: bool,
    /// Whether they failed.
    pub(crate) has_failed: bool,
}

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct EndedTasks {
    counts: BTreeMap<Alike, u64>,
}

impl EndedTasks {
    /// So many more ended (TASKS-1, TASKS-2).
    pub(crate) fn add(&mut self, mut alike: Alike, count: u64) {
        if alike.name.is_empty() {
            OTHER_NAMES.clone_into(&mut alike.name);
        }
        if self.counts.len() >= SERIES_MAX && !self.counts.contains_key(&alike) {
            (alike.job, alike.name) = (None, OTHER_NAMES.to_owned());
        }
        let known = self.counts.entry(alike).or_default();
        *known = known.saturating_add(count);
    }

    /// Nobody asks for this job any more.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.counts.retain(|alike, _| alike.job != Some(job));
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Alike, u64)> {
        self.counts.iter().map(|(alike, count)| (alike, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alike(job: u32, name: &str) -> Alike {
        Alike { job: Some(JobId::from_number(job)), name: name.to_owned(), is_retry: false, has_failed: false }
    }

    #[test]
    fn counts_are_sums_and_go_with_their_job() {
        let mut ended = EndedTasks::default();
        ended.add(alike(1, "f"), 2);
        ended.add(alike(1, "f"), 3);
        ended.add(alike(2, ""), u64::MAX);
        ended.add(alike(2, ""), 1);
        ended.forget(JobId::from_number(3));
        assert_eq!(
            ended.iter().map(|(alike, count)| (alike.name.as_str(), count)).collect::<Vec<_>>(),
            [("f", 5), ("other", u64::MAX)]
        );
        ended.forget(JobId::from_number(1));
        assert_eq!(ended.iter().count(), 1);
    }

    #[test]
    fn there_is_an_end_to_the_counts_and_nothing_is_lost() {
        let mut ended = EndedTasks::default();
        for number in 0..SERIES_MAX + 10 {
            ended.add(alike(1, &number.to_string()), 1);
        }
        ended.add(alike(1, "0"), 1);
        let others = Alike { job: None, ..alike(1, OTHER_NAMES) };
        assert_eq!(
            (ended.iter().count(), ended.counts[&others], ended.counts[&alike(1, "0")]),
            (SERIES_MAX + 1, 10, 2)
        );
    }
}
