//! Jobs: a driver's stay, numbered from 1.

use oxiray_ids::{JobId, WorkerId};
use std::collections::BTreeMap;

/// How many ended jobs are remembered for listings.
pub const ENDED_JOBS_KEPT: usize = 1000;

/// One driver's stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its number as an identifier.
    pub id: JobId,
    /// Its driver.
    pub driver: WorkerId,
    /// The driver's process.
    pub pid: u32,
    /// Where the names of its actors live.
    pub namespace: String,
    /// Whether its driver is gone.
    pub ended: bool,
}

/// All jobs of a session.
#[derive(Debug, Default)]
pub struct Jobs {
    last_number: u32,
    by_id: BTreeMap<JobId, Job>,
}

impl Jobs {
    /// A driver has come. Where it names no namespace, `anonymous` becomes its own.
    pub fn start(&mut self, driver: WorkerId, pid: u32, namespace: &str, anonymous: impl FnOnce() -> String) -> &Job {
        self.last_number += 1;
        let id = JobId::from_number(self.last_number);
        let namespace = if namespace.is_empty() { anonymous() } else { namespace.to_owned() };
        self.by_id.entry(id).or_insert(Job { id, driver, pid, namespace, ended: false })
    }

    /// A job of another node's, which numbers it.
    pub fn learn(&mut self, id: JobId, driver: WorkerId, pid: u32, namespace: &str) {
        self.by_id.insert(id, Job { id, driver, pid, namespace: namespace.to_owned(), ended: false });
    }

    /// A job as another head knew it.
    pub fn restore(&mut self, job: Job) {
        self.by_id.insert(job.id, job);
    }

    /// The number of the last job.
    pub fn last_number(&self) -> u32 {
        self.last_number
    }

    /// The number of the last job that another head knew of.
    pub fn set_last_number(&mut self, number: u32) {
        self.last_number = number;
    }

    /// The job's driver is gone. Returns the jobs that are forgotten because of that.
    pub fn end(&mut self, id: JobId) -> Vec<JobId> {
        if let Some(job) = self.by_id.get_mut(&id) {
            job.ended = true;
        }
        let ended: Vec<JobId> = self.iter().filter(|job| job.ended).map(|job| job.id).collect();
        let forgotten: Vec<JobId> = ended.iter().take(ended.len().saturating_sub(ENDED_JOBS_KEPT)).copied().collect();
        for id in &forgotten {
            self.by_id.remove(id);
        }
        forgotten
    }

    /// The job, where it runs or is remembered.
    pub fn get(&self, id: JobId) -> Option<&Job> {
        self.by_id.get(&id)
    }

    /// All jobs that run or are remembered, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Job> {
        self.by_id.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_count_from_one_and_the_ended_are_forgotten_in_time() {
        let mut jobs = Jobs::default();
        let first = jobs.start(WorkerId::NIL, 7, "", || "own".into()).clone();
        assert_eq!((first.id, first.namespace.as_str()), (JobId::from_number(1), "own"));
        for _ in 0..=ENDED_JOBS_KEPT {
            let id = jobs.start(WorkerId::NIL, 7, "given", || unreachable!()).id;
            jobs.end(id);
        }
        assert_eq!(jobs.iter().count(), ENDED_JOBS_KEPT + 1);
        assert!(!jobs.get(first.id).expect("it runs").ended);
        assert_eq!(jobs.get(JobId::from_number(2)), None);
    }
}
