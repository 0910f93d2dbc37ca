//! Submitted jobs: programs that the head starts and looks after.
//!
//! - SUBMIT-1: a name is one job's for good: whoever submits it again is told of the job that there is, or refused.
//! - SUBMIT-2: a job ends once, and what comes later changes nothing.

use oxiray_wire::message::{Submission, SubmissionSpec, SubmissionState};
use std::collections::BTreeMap;

/// How many jobs that have ended are remembered.
pub(crate) const ENDED_SUBMISSIONS_KEPT: usize = 1000;
/// How many jobs there may be that have not ended.
pub(crate) const LIVING_SUBMISSIONS_MAX: usize = 1000;
/// The longest name of a job, in bytes.
pub(crate) const SUBMISSION_NAME_BYTES_MAX: usize = 128;
/// The most that a job's description may hold, in bytes.
pub(crate) const SUBMISSION_BYTES_MAX: usize = 256 << 10;

/// Why a job was not taken on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotSubmitted {
    /// Its name cannot be one.
    #[error(
        "the submission id `{0}` is not 1 to {SUBMISSION_NAME_BYTES_MAX} letters, digits, `-`, `_` and `.` that begin with a letter or digit: give another"
    )]
    Name(String),
    /// There is nothing to run.
    #[error("the entrypoint is empty: name the command that is to run")]
    Empty,
    /// SUBMIT-1.
    #[error(
        "the submission id `{id}` is that of another job, whose entrypoint is `{entrypoint}`: give another id, or none"
    )]
    Taken {
        /// The name.
        id: String,
        /// What runs, or ran, under it.
        entrypoint: String,
    },
    /// Too many have not ended.
    #[error("{LIVING_SUBMISSIONS_MAX} submitted jobs have not ended: wait until some have, or stop some")]
    TooMany,
    /// It is described at too great a length.
    #[error(
        "the job's entrypoint, runtime environment and metadata have {0} bytes, of {SUBMISSION_BYTES_MAX} that are allowed: put the text into a file of its working_dir"
    )]
    TooLarge(usize),
}

/// What was done with a job that was submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Submitted {
    /// It is new, and to be started.
    New,
    /// SUBMIT-1.
    Known,
}

/// What is to be done to stop a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopping {
    /// It has ended already, or is being stopped.
    Nothing,
    /// Its process is to be told.
    Tell,
}

/// What the process that runs a job says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// The entrypoint was started.
    Started,
    /// The entrypoint ended: its status, or minus the signal that killed it.
    Ended(i32),
    /// There will be no entrypoint, or nobody knows how it ended.
    Failed(String),
}

/// One submitted job, and whether it is being stopped.
#[derive(Debug, Clone)]
struct Entry {
    told: Submission,
    number: u64,
    is_stopping: bool,
}

/// All submitted jobs of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Submissions {
    by_id: BTreeMap<String, Entry>,
    last_number: u64,
    /// Those that are started as soon as their rows are safe.
    unstarted: Vec<String>,
}

impl Submissions {
    /// Takes on a job.
    ///
    /// # Errors
    /// Where it cannot be one.
    pub(crate) fn submit(&mut self, id: &str, spec: &SubmissionSpec, now_ms: u64) -> Result<Submitted, NotSubmitted> {
        check_name(id)?;
        if spec.entrypoint.trim().is_empty() {
            return Err(NotSubmitted::Empty);
        }
        let metadata: usize = spec.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
        let bytes = spec.entrypoint.len() + spec.runtime_env.len() + metadata;
        if bytes > SUBMISSION_BYTES_MAX {
            return Err(NotSubmitted::TooLarge(bytes));
        }
        if let Some(known) = self.by_id.get(id) {
            if known.told.spec.as_ref() == Some(spec) {
                return Ok(Submitted::Known);
            }
            let entrypoint = known.told.spec.as_ref().map(|spec| spec.entrypoint.clone()).unwrap_or_default();
            return Err(NotSubmitted::Taken { id: id.to_owned(), entrypoint });
        }
        if self.by_id.values().filter(|entry| !entry.told.state.is_final()).count() >= LIVING_SUBMISSIONS_MAX {
            return Err(NotSubmitted::TooMany);
        }
        let told = Submission {
            id: id.to_owned(),
            spec: Some(spec.clone()),
            state: SubmissionState::Pending,
            message: "its environment is made, or what it asks for is not free yet".to_owned(),
            submitted_ms: now_ms,
            ..Submission::default()
        };
        self.insert(told);
        self.unstarted.push(id.to_owned());
        Ok(Submitted::New)
    }

    /// Takes those that are to be started now, with what is to run: those that are written down.
    pub(crate) fn take_startable(&mut self, is_safe: impl Fn(&str) -> bool) -> Vec<(String, SubmissionSpec)> {
        let unstarted = std::mem::take(&mut self.unstarted).into_iter();
        let (safe, later): (Vec<String>, Vec<String>) = unstarted.partition(|id| is_safe(id));
        self.unstarted = later;
        let startable = |id: String| {
            let spec = self.by_id.get(&id)?.told.spec.clone()?;
            Some((id, spec))
        };
        safe.into_iter().filter_map(startable).collect()
    }

    /// A job as another head knew it.
    pub(crate) fn restore(&mut self, told: Submission) {
        self.insert(told);
    }

    /// The head before this one is gone, and with it the jobs that had not ended. Returns their names.
    pub(crate) fn head_ended(&mut self) -> Vec<String> {
        let living = self.by_id.values_mut().filter(|entry| !entry.told.state.is_final());
        let ended = living.map(|entry| {
            entry.told.state = SubmissionState::Failed;
            "the head that ran it ended, and it with the head".clone_into(&mut entry.told.message);
            entry.told.id.clone()
        });
        ended.collect()
    }

    /// The process that runs a job says something of it. Returns whether that changed anything (SUBMIT-2).
    pub(crate) fn heard(&mut self, id: &str, word: Word, now_ms: u64) -> bool {
        let Some(entry) = self.by_id.get_mut(id).filter(|entry| !entry.told.state.is_final()) else { return false };
        let told = &mut entry.told;
        let (state, message) = match word {
            Word::Started if entry.is_stopping || told.state == SubmissionState::Running => return false,
            Word::Started => {
                told.started_ms = now_ms;
                (SubmissionState::Running, "its entrypoint runs".to_owned())
            }
            Word::Ended(code) => {
                told.exit_code = Some(code);
                match code {
                    _ if entry.is_stopping => (SubmissionState::Stopped, "it was stopped on request".to_owned()),
                    0 => (SubmissionState::Succeeded, "its entrypoint ended with status 0".to_owned()),
                    1.. => (SubmissionState::Failed, format!("its entrypoint ended with status {code}")),
                    _ => (SubmissionState::Failed, format!("its entrypoint was killed by signal {}", -code)),
                }
            }
            Word::Failed(_) if entry.is_stopping => (SubmissionState::Stopped, "it was stopped on request".to_owned()),
            Word::Failed(why) => (SubmissionState::Failed, why),
        };
        (told.state, told.message) = (state, message);
        if state.is_final() {
            told.ended_ms = now_ms;
        }
        true
    }

    /// A job is to end.
    pub(crate) fn stop(&mut self, id: &str) -> Option<Stopping> {
        let entry = self.by_id.get_mut(id)?;
        if entry.told.state.is_final() || entry.is_stopping {
            return Some(Stopping::Nothing);
        }
        entry.is_stopping = true;
        "it is being stopped".clone_into(&mut entry.told.message);
        Some(Stopping::Tell)
    }

    /// Forgets a job, as if it had never been submitted.
    pub(crate) fn remove(&mut self, id: &str) {
        self.by_id.remove(id);
        self.unstarted.retain(|waiting| waiting != id);
    }

    /// Forgets the jobs that ended longest ago, where there are too many. Returns their names.
    pub(crate) fn forget_old(&mut self) -> Vec<String> {
        let ended = self.by_id.values().filter(|entry| entry.told.state.is_final());
        let mut ended: Vec<(u64, String)> = ended.map(|entry| (entry.told.ended_ms, entry.told.id.clone())).collect();
        ended.sort();
        let count = ended.len().saturating_sub(ENDED_SUBMISSIONS_KEPT);
        let gone: Vec<String> = ended.into_iter().take(count).map(|(_, id)| id).collect();
        for id in &gone {
            self.by_id.remove(id);
        }
        gone
    }

    /// The job of that name.
    pub(crate) fn get(&self, id: &str) -> Option<&Submission> {
        self.by_id.get(id).map(|entry| &entry.told)
    }

    /// All jobs, those submitted first at first.
    pub(crate) fn all(&self) -> Vec<Submission> {
        let mut all: Vec<&Entry> = self.by_id.values().collect();
        all.sort_by_key(|entry| (entry.told.submitted_ms, entry.number));
        all.into_iter().map(|entry| entry.told.clone()).collect()
    }

    fn insert(&mut self, told: Submission) {
        self.last_number += 1;
        self.by_id.insert(told.id.clone(), Entry { told, number: self.last_number, is_stopping: false });
    }
}

/// Names are parts of files' names.
fn check_name(id: &str) -> Result<(), NotSubmitted> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let begins_well = id.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    let fits = begins_well && id.len() <= SUBMISSION_NAME_BYTES_MAX && id.bytes().all(is_plain);
    if fits { Ok(()) } else { Err(NotSubmitted::Name(id.to_owned())) }
}

#[cfg(test)]
mod tests;
