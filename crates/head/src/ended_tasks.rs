//! How many attempts of tasks and calls ended, by job and name.
//!
//! - TASKS-1: each attempt of which a process told is counted once, and no count falls while its job is remembered.
//! - TASKS-2: at most [`SERIES_MAX`] counts are kept; what has none of its own is counted with the others, without a job and a name.
//! - TASKS-3: where attempts are counted by job for people, those that run or wait have as many counts at most, and the others of them
//!   are counted together in the same way.

use oxiray_ids::JobId;
use oxiray_state::state_name;
use oxiray_wire::message::TaskStage;
use oxiray_wire::state::{AttemptCount, TaskRow};
use std::collections::BTreeMap;

/// How many counts are kept. Jobs that are remembered are a thousand; most have few names.
const SERIES_MAX: usize = 5_000;

/// What is counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alike {
    /// The job; nothing for the others.
    pub(crate) job: Option<JobId>,
    /// What the calls are called; empty for names that have no count of their own.
    pub(crate) name: String,
    /// Whether an attempt of each was made before.
    pub(crate) is_retry: bool,
    /// Whether they failed.
    pub(crate) has_failed: bool,
}

impl Alike {
    /// How they ended, by Ray's word for it.
    pub(crate) fn state(&self) -> &'static str {
        if self.has_failed { "FAILED" } else { "FINISHED" }
    }
}

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct EndedTasks {
    counts: BTreeMap<Alike, u64>,
}

impl EndedTasks {
    /// So many more ended (TASKS-1, TASKS-2).
    pub(crate) fn add(&mut self, mut alike: Alike, count: u64) {
        if self.counts.len() >= SERIES_MAX && !self.counts.contains_key(&alike) {
            (alike.job, alike.name) = (None, String::new());
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

    /// By job, name and state: what ended by these counts, and what runs or waits by rows (TASKS-3).
    pub(crate) fn with_under_way(&self, rows: &[TaskRow]) -> Vec<AttemptCount> {
        let mut counts: BTreeMap<(Option<JobId>, &str, &str), u64> = BTreeMap::new();
        let goes_on = |row: &&TaskRow| !matches!(row.stage, TaskStage::Finished | TaskStage::Failed);
        for row in rows.iter().filter(goes_on) {
            let state = state_name(row.task_id, row.stage);
            let own = (Some(row.task_id.job()), row.name.as_str(), state);
            let is_counted_apart = counts.len() < SERIES_MAX || counts.contains_key(&own);
            *counts.entry(if is_counted_apart { own } else { (None, "", state) }).or_default() += 1;
        }
        for (alike, count) in self.iter() {
            let known = counts.entry((alike.job, &alike.name, alike.state())).or_default();
            *known = known.saturating_add(count);
        }
        let told = |((job_id, name, state), count): ((Option<JobId>, &str, &str), u64)| AttemptCount {
            job_id,
            name: name.to_owned(),
            state: state.to_owned(),
            count,
        };
        counts.into_iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::TaskId;

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
            [("f", 5), ("", u64::MAX)]
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
        let others = Alike { job: None, ..alike(1, "") };
        assert_eq!(
            (ended.iter().count(), ended.counts[&others], ended.counts[&alike(1, "0")]),
            (SERIES_MAX + 1, 10, 2)
        );
    }

    #[test]
    fn what_runs_or_waits_is_counted_from_rows_within_bounds_and_what_ended_is_not() {
        let row = |job: u32, name: &str, stage| {
            let task_id = TaskId::of_driver(JobId::from_number(job));
            TaskRow { task_id, name: name.into(), stage, ..TaskRow::default() }
        };
        let mut ended = EndedTasks::default();
        ended.add(alike(1, "f"), 6_000);
        ended.add(Alike { has_failed: true, is_retry: true, ..alike(1, "f") }, 2);
        ended.add(Alike { has_failed: true, ..alike(1, "f") }, 1);
        let rows = [TaskStage::Runs, TaskStage::Runs, TaskStage::Finished, TaskStage::Failed];
        let told = |counts: Vec<AttemptCount>| -> Vec<(Option<JobId>, String, String, u64)> {
            let told = |one: AttemptCount| (one.job_id, one.name, one.state, one.count);
            counts.into_iter().map(told).collect()
        };
        let counts = told(ended.with_under_way(&rows.map(|stage| row(1, "f", stage))));
        let expected = [("FAILED", 3), ("FINISHED", 6_000), ("RUNNING", 2)];
        assert_eq!(
            counts,
            expected.map(|(state, count)| (Some(JobId::from_number(1)), "f".to_owned(), state.to_owned(), count))
        );
        let many: Vec<TaskRow> =
            (0..SERIES_MAX + 7).map(|number| row(2, &number.to_string(), TaskStage::Runs)).collect();
        let counts = told(EndedTasks::default().with_under_way(&many));
        assert_eq!((counts.len(), &counts[0]), (SERIES_MAX + 1, &(None, String::new(), "RUNNING".to_owned(), 7)));
    }
}
