//! Jobs: a driver's stay, numbered from 1.

mod detail;

pub(crate) use detail::{JobDetail, JobTable};
use oxiray_ids::{JobId, NodeId, WorkerId};
use std::collections::BTreeMap;

/// How many ended jobs are remembered for listings.
pub(crate) const ENDED_JOBS_KEPT: usize = 1000;

/// One driver's stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    /// Its number as an identifier.
    pub id: JobId,
    /// Its driver.
    pub driver: WorkerId,
    /// The driver's process.
    pub pid: u32,
    /// Where the names of its actors live.
    pub namespace: String,
    /// What listings say of it.
    pub facts: JobFacts,
    /// How it ended, where its driver is gone.
    pub end: Option<JobEnd>,
    /// When the head saw that, in milliseconds since 1970 by its clock; 0 where it runs, or that is not known.
    pub ended_ms: u64,
}

/// What listings say of a job, kept as long as the job is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct JobFacts {
    /// The command that started its driver.
    pub entrypoint: String,
    /// What the driver's user notes of the job.
    pub metadata: BTreeMap<String, String>,
    /// When the driver connected, in milliseconds since 1970, by its own clock.
    pub started_ms: u64,
    /// The address of the driver's machine.
    pub ip: String,
    /// The driver's node.
    pub node: NodeId,
    /// Its runtime environment, as its user wrote it: JSON; empty for none, and for one that is too long.
    pub runtime_env: String,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobEnd {
    /// Its driver disconnected in order.
    Succeeded,
    /// Its driver failed, or vanished without a word: the text says how.
    Failed(String),
}

/// All jobs of a session.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    last_number: u32,
    /// Each by its number, and so the oldest first.
    by_number: BTreeMap<u32, Job>,
}

impl Jobs {
    /// A driver has come. Where it names no namespace, `anonymous` becomes its own.
    pub(crate) fn start(
        &mut self,
        driver: WorkerId,
        pid: u32,
        namespace: &str,
        anonymous: impl FnOnce() -> String,
    ) -> &Job {
        self.last_number += 1;
        let id = JobId::from_number(self.last_number);
        let namespace = if namespace.is_empty() { anonymous() } else { namespace.to_owned() };
        self.by_number.entry(id.number()).or_insert(new(id, driver, pid, namespace))
    }

    /// A job of another node's, which numbers it.
    #[cfg(test)]
    pub(crate) fn learn(&mut self, id: JobId, driver: WorkerId, pid: u32, namespace: &str) {
        self.by_number.insert(id.number(), new(id, driver, pid, namespace.to_owned()));
    }

    /// A job as another head knew it.
    pub(crate) fn restore(&mut self, job: Job) {
        self.by_number.insert(job.id.number(), job);
    }

    /// The number of the last job.
    pub(crate) fn last_number(&self) -> u32 {
        self.last_number
    }

    /// The number of the last job that another head knew of.
    pub(crate) fn set_last_number(&mut self, number: u32) {
        self.last_number = number;
    }

    /// What listings say of a job.
    pub(crate) fn set_facts(&mut self, id: JobId, facts: JobFacts) {
        if let Some(job) = self.by_number.get_mut(&id.number()) {
            job.facts = facts;
        }
    }

    /// The job's driver is gone, at this time; the first word on how and when stands. Returns the jobs that are forgotten
    /// because of that: the oldest of those that ended and of which nothing `lives`.
    pub(crate) fn end(&mut self, id: JobId, end: JobEnd, now_ms: u64, lives: impl Fn(JobId) -> bool) -> Vec<JobId> {
        if let Some(job) = self.by_number.get_mut(&id.number()).filter(|job| job.end.is_none()) {
            (job.end, job.ended_ms) = (Some(end), now_ms);
        }
        let ended = self.iter().filter(|job| job.end.is_some()).map(|job| job.id);
        let ended: Vec<JobId> = ended.filter(|job| !lives(*job)).collect();
        let forgotten: Vec<JobId> = ended.iter().take(ended.len().saturating_sub(ENDED_JOBS_KEPT)).copied().collect();
        for id in &forgotten {
            self.by_number.remove(&id.number());
        }
        forgotten
    }

    /// Where the names of the job's actors live.
    pub(crate) fn namespace_of(&self, id: JobId) -> String {
        self.get(id).map(|job| job.namespace.clone()).unwrap_or_default()
    }

    /// The job, where it runs or is remembered.
    pub(crate) fn get(&self, id: JobId) -> Option<&Job> {
        self.by_number.get(&id.number())
    }

    /// All jobs that run or are remembered, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Job> {
        self.by_number.values()
    }
}

fn new(id: JobId, driver: WorkerId, pid: u32, namespace: String) -> Job {
    Job { id, driver, pid, namespace, facts: JobFacts::default(), end: None, ended_ms: 0 }
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
            jobs.end(id, JobEnd::Succeeded, 1, |job| job == JobId::from_number(2));
        }
        let last = jobs.start(WorkerId::NIL, 7, "given", || unreachable!()).id;
        assert_eq!(jobs.end(last, JobEnd::Succeeded, 1, |_| false).len(), 2, "of the second, nothing lives any more");
        assert_eq!(jobs.iter().count(), ENDED_JOBS_KEPT + 1);
        assert_eq!(jobs.get(first.id).expect("it runs").end, None);
        assert_eq!(jobs.get(JobId::from_number(2)), None);
    }

    #[test]
    fn the_first_word_on_how_and_when_a_job_ended_stands() {
        let mut jobs = Jobs::default();
        let id = jobs.start(WorkerId::NIL, 7, "", || "own".into()).id;
        jobs.end(id, JobEnd::Succeeded, 10, |_| false);
        jobs.end(id, JobEnd::Failed("its stream ended".into()), 20, |_| false);
        let job = jobs.get(id).expect("it is remembered");
        assert_eq!((&job.end, job.ended_ms), (&Some(JobEnd::Succeeded), 10));
    }
}
