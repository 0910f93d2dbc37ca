//! `RayJob` of `ray.io/v1`, as KubeRay's users write it. What is not named here is kept by the API and left alone.

use crate::cluster::Metadata;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The longest name, so that its clusters' pods have names too.
const NAME_BYTES_MAX: usize = 47;

/// A job.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RayJob {
    /// What it is known by.
    pub metadata: Metadata,
    /// What is wanted.
    pub spec: JobSpec,
    /// What was told last.
    pub status: JobStatus,
}

/// What is wanted of a job.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    /// One line for the shell, which runs with the files of the head's pod.
    pub entrypoint: String,
    /// Its runtime environment, YAML.
    #[serde(rename = "runtimeEnvYAML")]
    pub runtime_env_yaml: String,
    /// The job's name with the head; one is made where it is left out. With `InteractiveMode`, that of the user's job.
    pub job_id: String,
    /// What is noted of it.
    pub metadata: BTreeMap<String, String>,
    /// Processors that the entrypoint itself holds.
    pub entrypoint_num_cpus: f64,
    /// GPUs that the entrypoint itself holds.
    pub entrypoint_num_gpus: f64,
    /// Further resources that it holds: a JSON object of numbers.
    pub entrypoint_resources: String,
    /// Labels of a cluster that is there already, in which it runs.
    pub cluster_selector: BTreeMap<String, String>,
    /// The cluster that is made for it.
    #[schemars(schema_with = "crate::crd::anything")]
    pub ray_cluster_spec: Option<Value>,
    /// After how many seconds it is given up, from its start on.
    pub active_deadline_seconds: Option<u32>,
    /// After how many seconds it is given up where its entrypoint does not run.
    pub pre_running_deadline_seconds: Option<u32>,
    /// How many seconds after its end its cluster is deleted, with `shutdownAfterJobFinishes`.
    pub ttl_seconds_after_finished: u32,
    /// Whether its cluster is deleted when it has ended.
    pub shutdown_after_job_finishes: bool,
    /// Whether nothing of it is to run.
    pub suspend: bool,
    /// How often it is tried again, with a new cluster each time.
    pub backoff_limit: u32,
    /// Who looks after it, where that is somebody else.
    pub managed_by: Option<String>,
    /// `InteractiveMode` waits for the user's job; in all others the operator asks the head itself.
    pub submission_mode: String,
    /// What is deleted when.
    pub deletion_strategy: DeletionStrategy,
}

/// What is deleted when.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeletionStrategy {
    /// Each is looked at by itself.
    pub deletion_rules: Vec<DeletionRule>,
    /// What is deleted at once when it succeeded; an older form of a rule.
    pub on_success: Option<DeletionPolicy>,
    /// The same where it failed.
    pub on_failure: Option<DeletionPolicy>,
}

/// What is deleted, in an older form.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeletionPolicy {
    /// `DeleteCluster`, `DeleteWorkers`, `DeleteSelf` or `DeleteNone`.
    pub policy: String,
}

/// What is deleted under which condition.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeletionRule {
    /// `DeleteCluster`, `DeleteWorkers`, `DeleteSelf` or `DeleteNone`.
    pub policy: String,
    /// When.
    pub condition: DeletionCondition,
}

/// When something is deleted.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeletionCondition {
    /// Where the job's state is this, such as `SUCCEEDED`.
    pub job_status: Option<String>,
    /// Where the object's state is this, such as `Failed`.
    pub job_deployment_status: Option<String>,
    /// So many seconds after its end.
    pub ttl_seconds: u32,
}

/// Where an object stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Nothing was done yet.
    #[default]
    #[serde(rename = "")]
    New,
    /// Its cluster comes up.
    Initializing,
    /// Its cluster is there, and the user's job is not.
    Waiting,
    /// It was submitted.
    Running,
    /// It ended by itself, or was stopped.
    Complete,
    /// It failed for good.
    Failed,
    /// It failed, and is tried again when its cluster is gone.
    Retrying,
    /// Its cluster is being deleted.
    Suspending,
    /// Nothing of it runs.
    Suspended,
    /// It cannot be one.
    ValidationFailed,
}

/// What was told last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// Where it stands.
    pub job_deployment_status: Stage,
    /// The job's state, in the head's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_status: Option<String>,
    /// The job's name with the head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// The cluster that it runs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_cluster_name: Option<String>,
    /// When it was begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<String>,
    /// A word for why it stands there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How often it succeeded: once at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub succeeded: Option<u32>,
    /// How often it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<u32>,
    /// Since when the head is not reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_status_check_failure_start_time: Option<String>,
    /// How many clusters were begun for it: the next has another name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<u32>,
    /// Of which version of its `spec` this was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl RayJob {
    /// Reads an object of the API.
    ///
    /// # Errors
    /// Where a field that is used has another form.
    pub fn read(object: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(object)
    }

    /// Whether it waits for the user's job.
    pub(crate) fn is_interactive(&self) -> bool {
        self.spec.submission_mode == "InteractiveMode"
    }

    /// Whether it runs in a cluster that is there already.
    pub fn is_proxied(&self) -> bool {
        !self.spec.cluster_selector.is_empty()
    }

    /// What the entrypoint itself holds.
    ///
    /// # Errors
    /// Says what is wrong with `entrypointResources`.
    pub fn resources(&self) -> Result<BTreeMap<String, f64>, String> {
        let text = self.spec.entrypoint_resources.trim();
        let mut resources: BTreeMap<String, f64> = if text.is_empty() {
            BTreeMap::new()
        } else {
            let wrong = |error| format!("entrypointResources is `{text}`: write a JSON object of numbers ({error})");
            serde_json::from_str(text).map_err(wrong)?
        };
        for (name, amount) in [("CPU", self.spec.entrypoint_num_cpus), ("GPU", self.spec.entrypoint_num_gpus)] {
            if amount != 0.0 {
                resources.insert(name.to_owned(), amount);
            }
        }
        Ok(resources)
    }

    /// Its runtime environment as JSON; empty for none.
    ///
    /// # Errors
    /// Says what is wrong with `runtimeEnvYAML`.
    pub fn environment(&self) -> Result<String, String> {
        let text = self.spec.runtime_env_yaml.trim();
        if text.is_empty() {
            return Ok(String::new());
        }
        match serde_saphyr::from_str::<Value>(text) {
            Ok(Value::Null) => Ok(String::new()),
            Ok(value) if value.is_object() => Ok(value.to_string()),
            Ok(_) => Err("runtimeEnvYAML is no mapping: write fields such as `env_vars: {NAME: value}`".to_owned()),
            Err(error) => Err(format!("runtimeEnvYAML is no YAML: {error}")),
        }
    }
}

/// What is wrong with a job, each with the way out.
pub(crate) fn problems(job: &RayJob) -> Vec<String> {
    let (spec, mut found) = (&job.spec, Vec::new());
    let mut unless = |holds: bool, what: &str| {
        if !holds {
            found.push(what.to_owned());
        }
    };
    let name = &job.metadata.name;
    unless(
        name.len() <= NAME_BYTES_MAX,
        &format!(
            "metadata.name `{name}` is longer than {NAME_BYTES_MAX} characters: its clusters' names come of it, so shorten it"
        ),
    );
    let modes = ["", "K8sJobMode", "HTTPMode", "SidecarMode", "InteractiveMode"];
    unless(
        modes.contains(&spec.submission_mode.as_str()),
        &format!(
            "submissionMode `{}` is none of K8sJobMode, HTTPMode, SidecarMode and InteractiveMode",
            spec.submission_mode
        ),
    );
    unless(
        job.is_interactive() || !spec.entrypoint.trim().is_empty(),
        "entrypoint is empty: name the command that is to run, or use submissionMode InteractiveMode",
    );
    unless(
        job.is_proxied() != spec.ray_cluster_spec.is_some(),
        "exactly one of rayClusterSpec and clusterSelector says where it runs: give one of them",
    );
    unless(
        !job.is_proxied() || !spec.shutdown_after_job_finishes,
        "shutdownAfterJobFinishes would delete a cluster that clusterSelector found: leave one of them out",
    );
    unless(
        !job.is_proxied() || !spec.suspend,
        "suspend deletes the job's cluster, and that of clusterSelector is not its own: leave one of them out",
    );
    unless(
        spec.backoff_limit == 0 || !(job.is_interactive() || job.is_proxied()),
        "backoffLimit makes a new cluster for each retry: leave it out with InteractiveMode and clusterSelector",
    );
    unless(
        spec.shutdown_after_job_finishes || spec.ttl_seconds_after_finished == 0,
        "ttlSecondsAfterFinished does nothing without shutdownAfterJobFinishes: set that, or leave it out",
    );
    for (field, value) in [
        ("activeDeadlineSeconds", spec.active_deadline_seconds),
        ("preRunningDeadlineSeconds", spec.pre_running_deadline_seconds),
    ] {
        unless(value != Some(0), &format!("{field} is 0: give a positive number of seconds, or leave it out"));
    }
    let amounts = [spec.entrypoint_num_cpus, spec.entrypoint_num_gpus];
    unless(
        amounts.iter().all(|amount| *amount >= 0.0),
        "entrypointNumCpus and entrypointNumGpus are not to be below zero",
    );
    found.extend(job.resources().err());
    found.extend(job.environment().err());
    found.extend(crate::job_ends::problems(job));
    found
}
