//! The rows of lists that need nobody else's word: workers, jobs and environments.

use super::HeadCore;
use crate::jobs::{Job, JobEnd};
use oxiray_ids::NodeId;
use oxiray_wire::message::{Environment, Submission, SubmissionState};
use oxiray_wire::state::{DriverProcess, EnvironmentRow, JobRow, WorkerRow};
use std::collections::BTreeMap;

/// The most rows of one kind that are looked at.
pub(super) const ROWS_MAX: usize = 10_000;
/// What a driver notes of its job where that was submitted.
const SUBMISSION: &str = "job_submission_id";
/// How the namespaces of drivers begin that stand for no program of a user's, as in Ray: they are not listed.
const INTERNAL_NAMESPACE: &str = "_ray_internal_";

impl HeadCore {
    pub(super) fn worker_rows(&self) -> Vec<WorkerRow> {
        let drivers = self.jobs.details.iter().filter(|(_, detail)| !detail.is_over);
        let drivers = drivers.map(|(job, detail)| self.row_of_driver(*job, detail));
        let workers = self.workers.by_key.iter().map(|(key, worker)| self.worker_row(*key, worker));
        drivers.chain(workers).chain(self.figures.ends.rows().cloned()).take(ROWS_MAX).collect()
    }

    /// Submitted jobs, each with the driver that its entrypoint connected, and the drivers that nobody submitted.
    pub(super) fn job_rows(&self) -> Vec<JobRow> {
        let submissions = self.jobs.submitted.all();
        let mut driver_of: BTreeMap<&str, JobRow> = BTreeMap::new();
        let mut rows = Vec::new();
        for job in self.jobs.known.iter().filter(|job| !job.namespace.starts_with(INTERNAL_NAMESPACE)) {
            match job.facts.metadata.get(SUBMISSION) {
                Some(id) if submissions.iter().any(|submission| submission.id == *id) => {
                    // Of several drivers that one entrypoint connects, the last one stands for the job, as in Ray.
                    driver_of.insert(id, driver_row(job));
                }
                _ => rows.push(driver_row(job)),
            }
        }
        let submitted = submissions.iter().map(|one| submission_row(one, driver_of.remove(one.id.as_str())));
        rows.extend(submitted);
        rows.truncate(ROWS_MAX);
        rows
    }

    pub(super) fn environment_rows(&self) -> Vec<EnvironmentRow> {
        let mut uses: BTreeMap<_, u64> = BTreeMap::new();
        for (key, worker) in self.workers.by_key.iter().filter(|(_, worker)| !worker.environment.variables.is_empty()) {
            *uses.entry((self.members.node_of(*key), &worker.environment)).or_default() += 1;
        }
        let row = |((node, environment), uses): ((NodeId, &Environment), u64)| EnvironmentRow {
            variables: environment.variables.clone(),
            node,
            uses,
        };
        uses.into_iter().take(ROWS_MAX).map(row).collect()
    }
}

fn driver_row(job: &Job) -> JobRow {
    let (state, message) = match &job.end {
        None => (SubmissionState::Running, None),
        Some(JobEnd::Succeeded) => (SubmissionState::Succeeded, None),
        Some(JobEnd::Failed(text)) => (SubmissionState::Failed, Some(text.clone())),
    };
    let facts = &job.facts;
    JobRow {
        driver: Some(DriverProcess { job: job.id, ip: facts.ip.clone(), pid: job.pid }),
        state,
        message,
        entrypoint: Some(facts.entrypoint.clone()),
        node: Some(facts.node),
        started_ms: facts.started_ms,
        ended_ms: job.ended_ms,
        metadata: facts.metadata.clone(),
        runtime_env: facts.runtime_env.clone(),
        ..JobRow::default()
    }
}

fn submission_row(submission: &Submission, driver: Option<JobRow>) -> JobRow {
    let spec = submission.spec.clone();
    let has_failed = submission.state == SubmissionState::Failed;
    let (driver, node) = driver.map_or((None, None), |row| (row.driver, row.node));
    JobRow {
        driver,
        submission: submission.id.clone(),
        state: submission.state,
        message: Some(submission.message.clone()),
        error: has_failed.then(|| submission_error(submission).to_owned()),
        entrypoint: spec.as_ref().map(|spec| spec.entrypoint.clone()),
        node,
        started_ms: submission.submitted_ms,
        ended_ms: submission.ended_ms,
        metadata: spec.as_ref().map(|spec| spec.metadata.clone()).unwrap_or_default(),
        exit_code: submission.exit_code,
        runtime_env: spec.map(|spec| spec.runtime_env).unwrap_or_default(),
    }
}

/// Ray's name for why a submitted job failed. Where its entrypoint did not, the message begins with the name of the error that
/// its process met, or says that nothing of it is left.
fn submission_error(submission: &Submission) -> &'static str {
    const ERRORS: [(&str, &str); 4] = [
        ("the head that ran it ended", "JOB_SUPERVISOR_ACTOR_DIED"),
        ("RuntimeEnvSetupError", "RUNTIME_ENV_SETUP_FAILURE"),
        ("ActorUnschedulableError", "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE"),
        ("ActorDiedError", "JOB_SUPERVISOR_ACTOR_DIED"),
    ];
    if submission.exit_code.is_some() {
        return "JOB_ENTRYPOINT_COMMAND_ERROR";
    }
    let known = ERRORS.iter().find(|(error, _)| submission.message.starts_with(error));
    known.map_or("JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE", |(_, name)| name)
}
