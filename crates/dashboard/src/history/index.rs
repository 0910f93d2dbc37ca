//! What a session's history has, in short: written beside the files, after them.

use super::tidying::Removal;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// The name of the file.
pub(crate) const INDEX: &str = "index.json";
/// How many jobs are told of: the newest.
const JOBS_MAX: usize = 10_000;
/// How many removals are told of: the last.
const CUTS_MAX: usize = 1_000;

/// What a session's history has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Index {
    /// The version of the lines.
    pub(crate) schema: u32,
    /// The version of the program.
    pub(crate) version: String,
    /// The session's name.
    pub(crate) session: String,
    /// The cluster's address.
    pub(crate) cluster: String,
    /// When it began, in milliseconds since 1970.
    pub(crate) begun_ms: u64,
    /// Until when all is in the files.
    pub(crate) until_ms: u64,
    /// Which head's chronicle is known, and up to which number.
    pub(crate) origin: String,
    /// See there.
    pub(crate) number: u64,
    /// The jobs, by their identifiers.
    pub(crate) jobs: BTreeMap<String, IndexedJob>,
    /// What was removed.
    pub(crate) cuts: VecDeque<IndexedCut>,
}

/// A job in short.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct IndexedJob {
    /// Its name, where it was submitted.
    pub(crate) submission: String,
    /// Where it stands.
    pub(crate) state: String,
    /// When it began, in milliseconds since 1970.
    pub(crate) started_ms: u64,
    /// When it ended; 0 while it goes on.
    pub(crate) ended_ms: u64,
}

/// What was removed for the bounds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct IndexedCut {
    /// When, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// The session.
    pub(crate) session: String,
    /// The job.
    pub(crate) job: String,
    /// How many bytes.
    pub(crate) bytes: u64,
    /// Why, for people.
    pub(crate) why: String,
}

impl Index {
    /// A job is like that now.
    pub(crate) fn set_job(&mut self, job: String, told: IndexedJob) {
        self.jobs.insert(job, told);
        while self.jobs.len() > JOBS_MAX {
            let oldest = self.jobs.iter().min_by_key(|(_, job)| job.started_ms).map(|(id, _)| id.clone());
            let Some(oldest) = oldest else { return };
            self.jobs.remove(&oldest);
        }
    }

    /// Something was removed.
    pub(crate) fn cut(&mut self, removal: &Removal, at_ms: u64) {
        if removal.session == self.session {
            self.jobs.remove(&removal.job);
        }
        self.cuts.push_back(IndexedCut {
            at_ms,
            session: removal.session.clone(),
            job: removal.job.clone(),
            bytes: removal.bytes,
            why: removal.why.clone(),
        });
        if self.cuts.len() > CUTS_MAX {
            self.cuts.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_jobs_and_cuts_are_told_of() {
        let mut index = Index { session: "now".into(), ..Index::default() };
        for number in 0..JOBS_MAX as u64 + 2 {
            index.set_job(format!("{number:08x}"), IndexedJob { started_ms: number, ..IndexedJob::default() });
        }
        assert_eq!((index.jobs.len(), index.jobs.values().map(|job| job.started_ms).min()), (JOBS_MAX, Some(2)));
        let removal = Removal {
            session: "now".into(),
            job: format!("{:08x}", 5),
            files: vec![],
            bytes: 1,
            changed_ms: 0,
            why: "old".into(),
        };
        for at_ms in 0..CUTS_MAX as u64 + 3 {
            index.cut(&removal, at_ms);
        }
        assert_eq!(
            (index.cuts.len(), index.cuts[0].at_ms, index.jobs.contains_key(&removal.job)),
            (CUTS_MAX, 3, false)
        );
    }
}
