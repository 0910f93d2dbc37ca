//! What is done next for a `RayJob`: a function of the object, its cluster, and what the head says of the job.
//!
//! ```text
//! New ─▶ Initializing ─▶ (Waiting) ─▶ Running ─▶ Complete | Failed
//!   ▲         │              │           │
//!   ├─────────┴── Retrying ◀─┴───────────┘        any of them ─▶ Suspending ─▶ Suspended ─▶ New
//! ```
//!
//! - JOB-1: the names of a job and its cluster are in the status before anything is made under them, so that an operator
//!   that comes later makes the same once more, which makes nothing.
//! - JOB-2: a job that was seen by its head is never submitted again; one that a new head does not know has failed.

use crate::cluster::{API_GROUP, API_VERSION};
use crate::job::{JobStatus, RayJob, Stage, problems};
use crate::job_ends::{Deleted, due};
use crate::plan::Remark;
use crate::status::{seconds, timestamp};
use serde_json::{Value, json};

/// For how long the head of a running job may be out of reach.
const AWAY_LIMIT_S: u64 = 300;
/// How often a job that is under way is looked at.
const LOOK_S: u64 = 2;

/// The cluster of a job, as far as is decided by it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobCluster {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// Whether all of it is there.
    pub is_ready: bool,
    /// Whether it is this job's own.
    pub is_own: bool,
    /// Whether it is being deleted.
    pub is_ending: bool,
    /// How many groups of workers it has that are not suspended.
    pub groups: usize,
    /// Why not all of it is there, where that is known.
    pub reason: String,
}

/// What the head says of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// It was not asked.
    Nothing,
    /// It cannot be asked.
    Away(String),
    /// It knows of no such job.
    Unknown,
    /// It refused to take it on.
    Refused(String),
    /// It knows it.
    Job {
        /// Its state, as `RUNNING`.
        state: String,
        /// What there is to say of that.
        message: String,
    },
}

/// What is there.
#[derive(Debug)]
pub struct JobSituation<'seen> {
    /// The object.
    pub job: &'seen RayJob,
    /// Its cluster, where there is one.
    pub cluster: Option<&'seen JobCluster>,
    /// What its head says.
    pub heard: &'seen Heard,
    /// Seconds since 1970.
    pub now: u64,
}

/// What is to be done, in this order; then the status is written.
#[derive(Debug, Clone, PartialEq)]
pub enum JobAction {
    /// Make this cluster, unless it is there.
    MakeCluster(Value),
    /// Have the head run it, unless it does.
    Submit,
    /// Have the head end it, if it can be asked.
    Stop,
    /// Delete its cluster.
    DeleteCluster,
    /// Suspend the groups of workers of its cluster.
    DeleteWorkers,
    /// Delete the object.
    DeleteItself,
}

/// What comes of a look.
#[derive(Debug, Clone, PartialEq)]
pub struct JobStep {
    /// What is to be done.
    pub actions: Vec<JobAction>,
    /// The status that is true then.
    pub status: JobStatus,
    /// What people should read.
    pub remarks: Vec<Remark>,
    /// After how many seconds it is to be looked at again; nothing where a change brings that about.
    pub again_s: Option<u64>,
}

/// Whether the head is to be asked before [`step`], and after it was told to submit.
pub fn asks_head(job: &RayJob) -> bool {
    matches!(job.status.job_deployment_status, Stage::Initializing | Stage::Waiting | Stage::Running)
        && job.status.job_id.is_some()
}

/// What is to be done, and told.
pub fn step(seen: &JobSituation<'_>) -> JobStep {
    let job = seen.job;
    let mut next = Next { seen, step: JobStep::of(job) };
    let stage = job.status.job_deployment_status;
    let wrong = problems(job);
    match stage {
        Stage::New | Stage::ValidationFailed if !wrong.is_empty() => {
            next.to(Stage::ValidationFailed, "ValidationFailed", &wrong.join("; "));
            return next.step;
        }
        Stage::New | Stage::ValidationFailed if job.spec.suspend => {
            next.to(Stage::Suspended, "Suspended", "spec.suspend is set");
        }
        Stage::New | Stage::ValidationFailed => next.begin(),
        Stage::Initializing | Stage::Waiting | Stage::Running | Stage::Retrying if job.spec.suspend => {
            next.step.actions.push(JobAction::DeleteCluster);
            next.to(Stage::Suspending, "Suspending", "spec.suspend is set, and its cluster is deleted");
            next.step.again_s = Some(LOOK_S);
        }
        Stage::Initializing => next.come_up(),
        Stage::Waiting => next.await_user(),
        Stage::Running => next.watch(),
        Stage::Retrying => next.retry(),
        Stage::Suspending => next.suspend(),
        Stage::Suspended if !job.spec.suspend => {
            next.step.status = JobStatus { clusters: job.status.clusters, ..JobStatus::default() };
            next.begin();
        }
        Stage::Suspended => {}
        Stage::Complete | Stage::Failed => next.clean_up(),
    }
    next.step
}

impl JobStep {
    fn of(job: &RayJob) -> Self {
        let status = JobStatus { observed_generation: Some(job.metadata.generation), ..job.status.clone() };
        Self { actions: Vec::new(), status, remarks: Vec::new(), again_s: None }
    }
}

struct Next<'seen> {
    seen: &'seen JobSituation<'seen>,
    step: JobStep,
}

impl Next<'_> {
    /// Stands somewhere else from here on, and says so once.
    fn to(&mut self, stage: Stage, reason: &'static str, message: &str) {
        let status = &mut self.step.status;
        let is_news = status.job_deployment_status != stage || status.message.as_deref() != Some(message);
        (status.job_deployment_status, status.message) = (stage, Some(message.to_owned()));
        status.reason = Some(reason.to_owned());
        status.observed_generation = Some(self.seen.job.metadata.generation);
        if is_news {
            let is_warning = matches!(stage, Stage::Failed | Stage::Retrying | Stage::ValidationFailed);
            self.step.remarks.push(Remark { is_warning, reason, message: message.to_owned() });
        }
    }

    /// JOB-1.
    fn begin(&mut self) {
        let (job, now) = (self.seen.job, timestamp(self.seen.now));
        let number = job.status.clusters.unwrap_or_default() + 1;
        let status = &mut self.step.status;
        if !job.is_proxied() {
            status.ray_cluster_name = Some(format!("{}-{number}", job.metadata.name));
        }
        status.clusters = Some(number);
        let uid: String = job.metadata.uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
        let made = format!("{}-{uid}-{number}", job.metadata.name);
        status.job_id = match (job.spec.job_id.is_empty(), job.is_interactive()) {
            (false, _) => Some(job.spec.job_id.clone()),
            (true, false) => Some(made),
            (true, true) => None,
        };
        status.job_status = None;
        // Deadlines are those of each try.
        status.start_time = Some(now);
        self.to(Stage::Initializing, "Initializing", "its cluster comes up");
        self.step.again_s = Some(0);
    }

    /// Whether it was given up because of its time.
    fn is_over(&mut self, is_running: bool) -> bool {
        let (spec, now) = (&self.seen.job.spec, self.seen.now);
        let began = self.step.status.start_time.as_deref().and_then(seconds).unwrap_or(now);
        let limits = [
            ("activeDeadlineSeconds", spec.active_deadline_seconds, "DeadlineExceeded"),
            (
                "preRunningDeadlineSeconds",
                spec.pre_running_deadline_seconds.filter(|_| !is_running),
                "PreRunningDeadlineExceeded",
            ),
        ];
        for (field, limit, reason) in limits {
            let Some(limit) = limit.map(u64::from) else { continue };
            if now.saturating_sub(began) >= limit {
                if self.step.status.job_id.is_some() {
                    self.step.actions.push(JobAction::Stop);
                }
                let reached = format!("it was given up {limit} s after its start: {field} is {limit}");
                self.end(Stage::Failed, reason, &reached);
                return true;
            }
            let left = began + limit - now;
            self.step.again_s = Some(self.step.again_s.map_or(left, |known| known.min(left)));
        }
        false
    }

    fn come_up(&mut self) {
        if self.is_over(false) {
            return;
        }
        self.look_again();
        let job = self.seen.job;
        match self.seen.cluster {
            None if job.is_proxied() => {
                self.to(
                    Stage::Initializing,
                    "NoCluster",
                    "no cluster has the labels of clusterSelector: it waits for one",
                );
            }
            None => self.step.actions.push(JobAction::MakeCluster(cluster_for(job, &self.step.status))),
            Some(cluster) if cluster.is_ending => {}
            Some(cluster) if !cluster.is_own && !job.is_proxied() => {
                let text = format!(
                    "cluster {} is another's, and its name is what this job's is to be: it waits until that is gone",
                    cluster.name
                );
                self.to(Stage::Initializing, "NameTaken", &text);
            }
            Some(cluster) if !cluster.is_ready => {
                if !cluster.reason.is_empty() {
                    let text = format!("its cluster comes up: {}", cluster.reason);
                    self.to(Stage::Initializing, "Initializing", &text);
                }
            }
            Some(cluster) => {
                self.step.status.ray_cluster_name = Some(cluster.name.clone());
                if job.is_interactive() && job.spec.job_id.is_empty() {
                    self.to(
                        Stage::Waiting,
                        "Waiting",
                        "its cluster is there: set spec.jobId when your job is submitted",
                    );
                } else {
                    self.submit();
                }
            }
        }
    }

    /// JOB-2.
    fn submit(&mut self) {
        match self.seen.heard {
            Heard::Job { .. } => {
                self.to(Stage::Running, "Submitted", "its cluster is there, and it was submitted");
                self.watch();
            }
            Heard::Refused(why) => self.fail("SubmissionRefused", why),
            Heard::Away(why) => {
                self.to(
                    Stage::Initializing,
                    "HeadAway",
                    &format!("its cluster is there, and its head is not reached: {why}"),
                );
            }
            Heard::Unknown | Heard::Nothing if !self.seen.job.is_interactive() => {
                self.step.actions.push(JobAction::Submit);
                self.step.again_s = Some(0);
            }
            Heard::Unknown | Heard::Nothing => {}
        }
    }

    fn await_user(&mut self) {
        let spec = &self.seen.job.spec;
        if self.is_over(false) {
            return;
        }
        self.look_again();
        if !spec.job_id.is_empty() {
            self.step.status.job_id = Some(spec.job_id.clone());
            if matches!(self.seen.heard, Heard::Job { .. }) {
                self.submit();
            } else {
                self.step.again_s = Some(LOOK_S);
            }
        }
    }

    fn watch(&mut self) {
        let heard = self.seen.heard;
        if !matches!(heard, Heard::Job { state, .. } if is_final(state)) && self.is_over(true) {
            return;
        }
        self.look_again();
        let status = &mut self.step.status;
        let gone = self
            .seen
            .cluster
            .is_none_or(|cluster| cluster.is_ending || !(cluster.is_own || self.seen.job.is_proxied()));
        match heard {
            Heard::Job { state, message } => {
                (status.job_status, status.job_status_check_failure_start_time) = (Some(state.clone()), None);
                match state.as_str() {
                    "SUCCEEDED" => {
                        status.succeeded = Some(1);
                        self.end(Stage::Complete, "AppSucceeded", message);
                    }
                    "STOPPED" => self.end(Stage::Complete, "AppStopped", message),
                    "FAILED" => self.fail("AppFailed", message),
                    _ => status.message = Some(message.clone()),
                }
            }
            _ if gone => self.fail("ClusterGone", "its cluster is gone, and it with the cluster"),
            Heard::Unknown => self.fail("JobLost", "the cluster has another head, which knows nothing of it"),
            Heard::Refused(why) => self.fail("SubmissionRefused", why),
            Heard::Away(why) => {
                let since = status.job_status_check_failure_start_time.get_or_insert(timestamp(self.seen.now));
                let away = self.seen.now.saturating_sub(seconds(since).unwrap_or(self.seen.now));
                if away >= AWAY_LIMIT_S {
                    let text = format!("its head was not reached for {AWAY_LIMIT_S} s: {why}");
                    self.fail("JobStatusCheckTimeoutExceeded", &text);
                }
            }
            Heard::Nothing => {}
        }
    }

    fn look_again(&mut self) {
        self.step.again_s = Some(self.step.again_s.map_or(LOOK_S, |known| known.min(LOOK_S)));
    }

    /// It failed: once more, or for good.
    fn fail(&mut self, reason: &'static str, message: &str) {
        let failed = self.step.status.failed.unwrap_or_default() + 1;
        let limit = self.seen.job.spec.backoff_limit;
        if failed > limit {
            return self.end(Stage::Failed, reason, message);
        }
        self.step.status.failed = Some(failed);
        self.step.actions.push(JobAction::DeleteCluster);
        self.to(Stage::Retrying, "Retrying", &format!("try {failed} of {} failed: {message}", limit + 1));
        self.step.again_s = Some(0);
    }

    fn end(&mut self, stage: Stage, reason: &'static str, message: &str) {
        let status = &mut self.step.status;
        status.end_time = Some(timestamp(self.seen.now));
        if stage == Stage::Failed {
            status.failed = Some(status.failed.unwrap_or_default() + 1);
        }
        self.to(stage, reason, message);
        self.step.again_s = Some(0);
    }

    /// The next cluster has another name, and need not wait for the last one's end.
    fn retry(&mut self) {
        if self.own_cluster().is_some_and(|cluster| !cluster.is_ending) {
            self.step.actions.push(JobAction::DeleteCluster);
        }
        self.begin();
    }

    fn own_cluster(&self) -> Option<&JobCluster> {
        self.seen.cluster.filter(|cluster| cluster.is_own)
    }

    /// Only when its cluster is gone may it begin anew.
    fn suspend(&mut self) {
        let Some(cluster) = self.own_cluster() else {
            self.step.status = JobStatus { clusters: self.step.status.clusters, ..JobStatus::default() };
            self.to(Stage::Suspended, "Suspended", "spec.suspend is set");
            self.step.again_s = Some(0);
            return;
        };
        if !cluster.is_ending {
            self.step.actions.push(JobAction::DeleteCluster);
        }
        self.step.again_s = Some(LOOK_S);
    }

    fn clean_up(&mut self) {
        let ended = self.step.status.end_time.as_deref().and_then(seconds).unwrap_or(self.seen.now);
        let (deleted, again) = due(self.seen.job, ended, self.seen.now);
        self.step.again_s = again;
        let own = self.own_cluster().filter(|cluster| !cluster.is_ending);
        let action = match deleted {
            Deleted::Nothing => None,
            Deleted::Workers => own.filter(|cluster| cluster.groups > 0).map(|_| JobAction::DeleteWorkers),
            Deleted::Cluster => own.map(|_| JobAction::DeleteCluster),
            Deleted::Itself => Some(JobAction::DeleteItself),
        };
        if let Some(action) = action {
            let what = match action {
                JobAction::DeleteItself => "it has ended, and is deleted",
                JobAction::DeleteWorkers => "it has ended, and the workers of its cluster are deleted",
                _ => "it has ended, and its cluster is deleted",
            };
            self.step.remarks.push(Remark { is_warning: false, reason: "Deleted", message: what.to_owned() });
            self.step.actions.push(action);
        }
    }
}

fn is_final(state: &str) -> bool {
    matches!(state, "SUCCEEDED" | "FAILED" | "STOPPED")
}

/// The cluster that is made for a job. Kueue admits the job, and so its cluster is none of Kueue's.
fn cluster_for(job: &RayJob, status: &JobStatus) -> Value {
    let of_kueue = |key: &String| key.starts_with("kueue.x-k8s.io/");
    let mut labels: Vec<(String, Value)> = job
        .metadata
        .labels
        .iter()
        .filter(|(key, _)| !of_kueue(key))
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    labels.push(("ray.io/originated-from-cr-name".to_owned(), json!(job.metadata.name)));
    labels.push(("ray.io/originated-from-crd".to_owned(), json!("RayJob")));
    json!({
        "apiVersion": format!("{API_GROUP}/{API_VERSION}"),
        "kind": "RayCluster",
        "metadata": {
            "name": status.ray_cluster_name,
            "namespace": job.metadata.namespace,
            "labels": labels.into_iter().collect::<serde_json::Map<_, _>>(),
            "ownerReferences": [{
                "apiVersion": format!("{API_GROUP}/{API_VERSION}"),
                "kind": "RayJob",
                "name": job.metadata.name,
                "uid": job.metadata.uid,
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": job.spec.ray_cluster_spec,
    })
}
