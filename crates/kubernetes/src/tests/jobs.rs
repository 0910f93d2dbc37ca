//! Every transition of a `RayJob`, each from a status, a cluster and what the head says to what is done and told.
#![expect(clippy::needless_pass_by_value, reason = "objects are written where they are used")]

use crate::{Heard, JobAction, JobCluster, JobSituation, JobStage, JobStep, RayJob, job_step, seconds, timestamp};
use serde_json::{Value, json};

const NOW: u64 = 1_800_000_000;

fn job(spec: Value, status: Value) -> RayJob {
    let mut whole = json!({"entrypoint": "python program.py", "rayClusterSpec": {"headGroupSpec": {}}});
    for (key, value) in spec.as_object().expect("fields") {
        whole[key] = value.clone();
    }
    if whole["rayClusterSpec"].is_null() {
        whole.as_object_mut().expect("fields").remove("rayClusterSpec");
    }
    let labels = json!({"kueue.x-k8s.io/queue-name": "q", "team": "blue"});
    let metadata =
        json!({"name": "demo", "namespace": "lab", "uid": "0a1b-2c3d-4e5f", "generation": 3, "labels": labels});
    RayJob::read(&json!({"metadata": metadata, "spec": whole, "status": status})).expect("a job")
}

fn cluster(is_ready: bool) -> JobCluster {
    JobCluster { name: "demo-1".into(), uid: "c1".into(), is_ready, is_own: true, groups: 1, ..JobCluster::default() }
}

fn told(state: &str) -> Heard {
    Heard::Job { state: state.into(), message: format!("it is {state}") }
}

fn look(job: &RayJob, cluster: Option<JobCluster>, heard: Heard) -> JobStep {
    job_step(&JobSituation { job, cluster: cluster.as_ref(), heard: &heard, now: NOW })
}

/// A status that a job has somewhere on its way.
fn at(stage: &str) -> Value {
    json!({
        "jobDeploymentStatus": stage, "rayClusterName": "demo-1", "jobId": "demo-0a1b2c3d-1", "clusters": 1,
        "startTime": timestamp(NOW - 50),
    })
}

fn ended(stage: &str, job_status: &str, ago: u64) -> Value {
    let mut status = at(stage);
    (status["jobStatus"], status["endTime"]) = (json!(job_status), json!(timestamp(NOW - ago)));
    status
}

fn stage(step: &JobStep) -> JobStage {
    step.status.job_deployment_status
}

fn reason(step: &JobStep) -> &str {
    step.status.reason.as_deref().unwrap_or_default()
}

#[test]
fn names_are_written_down_before_anything_is_made() {
    let step = look(&job(json!({}), json!({})), None, Heard::Nothing);
    assert_eq!((stage(&step), step.actions.len()), (JobStage::Initializing, 0));
    assert_eq!(step.status.ray_cluster_name.as_deref(), Some("demo-1"));
    assert_eq!(step.status.job_id.as_deref(), Some("demo-0a1b2c3d-1"));
    assert_eq!(step.status.start_time, Some(timestamp(NOW)));
    assert_eq!(step.status.observed_generation, Some(3));

    let step = look(&job(json!({}), at("Initializing")), None, Heard::Nothing);
    let [JobAction::MakeCluster(made)] = &step.actions[..] else { panic!("{:?}", step.actions) };
    assert_eq!(made["metadata"]["name"], "demo-1");
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "0a1b-2c3d-4e5f");
    assert_eq!(made["spec"], json!({"headGroupSpec": {}}));
    let labels = &made["metadata"]["labels"];
    assert_eq!((&labels["team"], &labels["kueue.x-k8s.io/queue-name"]), (&json!("blue"), &Value::Null));
}

#[test]
fn a_job_is_submitted_when_its_cluster_is_there_and_followed_to_its_end() {
    let begun = job(json!({}), at("Initializing"));
    let step = look(&begun, Some(cluster(false)), Heard::Nothing);
    assert_eq!((stage(&step), step.actions.len()), (JobStage::Initializing, 0));
    for heard in [Heard::Nothing, Heard::Unknown] {
        let step = look(&begun, Some(cluster(true)), heard);
        assert_eq!((stage(&step), &step.actions[..]), (JobStage::Initializing, &[JobAction::Submit][..]));
    }
    let step = look(&begun, Some(cluster(true)), Heard::Away("no route".into()));
    assert_eq!((stage(&step), reason(&step), step.actions.len()), (JobStage::Initializing, "HeadAway", 0));
    let step = look(&begun, Some(cluster(true)), Heard::Refused("the entrypoint is empty".into()));
    assert_eq!((stage(&step), reason(&step)), (JobStage::Failed, "SubmissionRefused"));
    let other = JobCluster { is_own: false, ..cluster(true) };
    let step = look(&begun, Some(other), Heard::Nothing);
    assert_eq!((stage(&step), reason(&step), step.actions.len()), (JobStage::Initializing, "NameTaken", 0));
    // An operator that was killed after it had submitted finds that out.
    let step = look(&begun, Some(cluster(true)), told("RUNNING"));
    assert_eq!((stage(&step), step.status.job_status.as_deref()), (JobStage::Running, Some("RUNNING")));
    assert!(step.actions.is_empty(), "JOB-2");

    let running = job(json!({}), at("Running"));
    for (heard, expected, why) in [
        (told("PENDING"), JobStage::Running, ""),
        (told("RUNNING"), JobStage::Running, ""),
        (told("SUCCEEDED"), JobStage::Complete, "AppSucceeded"),
        (told("STOPPED"), JobStage::Complete, "AppStopped"),
        (told("FAILED"), JobStage::Failed, "AppFailed"),
        (Heard::Unknown, JobStage::Failed, "JobLost"),
        (Heard::Away("no route".into()), JobStage::Running, ""),
    ] {
        let step = look(&running, Some(cluster(true)), heard.clone());
        assert_eq!((stage(&step), reason(&step)), (expected, why), "{heard:?}");
        assert!(step.actions.is_empty());
        assert_eq!(step.status.end_time.is_some(), expected != JobStage::Running);
        assert_eq!(step.status.succeeded, (heard == told("SUCCEEDED")).then_some(1));
        assert_eq!(step.status.failed, (expected == JobStage::Failed).then_some(1));
    }
    assert_eq!(reason(&look(&running, None, Heard::Nothing)), "ClusterGone");
    // A status that is true already is not written, and nothing is said twice.
    let complete = ended("Complete", "SUCCEEDED", 9);
    let step = look(&job(json!({}), complete.clone()), Some(cluster(true)), Heard::Nothing);
    assert_eq!((step.actions.len(), step.remarks.len(), step.again_s), (0, 0, None));
}

#[test]
fn a_head_out_of_reach_is_waited_for_and_then_given_up() {
    let mut status = at("Running");
    for (ago, expected) in [(299, JobStage::Running), (300, JobStage::Failed)] {
        status["jobStatusCheckFailureStartTime"] = json!(timestamp(NOW - ago));
        let away = job(json!({}), status.clone());
        let step = look(&away, Some(cluster(true)), Heard::Away("no route".into()));
        assert_eq!(stage(&step), expected);
        let step = look(&away, Some(cluster(true)), told("RUNNING"));
        assert_eq!(step.status.job_status_check_failure_start_time, None);
    }
}

#[test]
fn a_failure_is_tried_again_with_another_cluster() {
    let spec = json!({"backoffLimit": 1});
    let step = look(&job(spec.clone(), at("Running")), Some(cluster(true)), told("FAILED"));
    assert_eq!((stage(&step), step.status.failed), (JobStage::Retrying, Some(1)));
    assert_eq!(step.actions, [JobAction::DeleteCluster]);
    let status = serde_json::to_value(&step.status).expect("a status");
    let step = look(&job(spec.clone(), status), Some(JobCluster { is_ending: true, ..cluster(true) }), Heard::Nothing);
    assert_eq!((stage(&step), step.actions.len()), (JobStage::Initializing, 0));
    assert_eq!(step.status.ray_cluster_name.as_deref(), Some("demo-2"));
    assert_eq!(step.status.job_id.as_deref(), Some("demo-0a1b2c3d-2"));
    assert_eq!((step.status.job_status.as_deref(), step.status.failed), (None, Some(1)));
    let mut status = at("Running");
    status["failed"] = json!(1);
    let step = look(&job(spec, status), Some(cluster(true)), told("FAILED"));
    assert_eq!((stage(&step), step.status.failed), (JobStage::Failed, Some(2)));
}

#[test]
fn deadlines_end_a_job_and_have_its_entrypoint_stopped() {
    for (spec, from, heard, expected) in [
        (json!({"activeDeadlineSeconds": 50}), "Running", told("RUNNING"), "DeadlineExceeded"),
        (json!({"activeDeadlineSeconds": 50}), "Initializing", Heard::Nothing, "DeadlineExceeded"),
        (json!({"activeDeadlineSeconds": 50}), "Running", told("SUCCEEDED"), "AppSucceeded"),
        (json!({"activeDeadlineSeconds": 51}), "Running", told("RUNNING"), ""),
        (json!({"preRunningDeadlineSeconds": 50}), "Initializing", Heard::Nothing, "PreRunningDeadlineExceeded"),
        (json!({"preRunningDeadlineSeconds": 50}), "Running", told("RUNNING"), ""),
    ] {
        let step = look(&job(spec.clone(), at(from)), Some(cluster(from == "Running")), heard);
        assert_eq!(reason(&step), expected, "{spec}");
        let stops = expected.ends_with("Exceeded");
        assert_eq!(step.actions, vec![JobAction::Stop; usize::from(stops)]);
        assert_eq!(stage(&step) == JobStage::Failed, stops);
    }
    let step = look(&job(json!({"activeDeadlineSeconds": 51}), at("Running")), Some(cluster(true)), told("RUNNING"));
    assert_eq!(step.again_s, Some(1));
}

#[test]
fn a_suspended_job_has_no_cluster_and_begins_anew() {
    let spec = json!({"suspend": true});
    assert_eq!(stage(&look(&job(spec.clone(), json!({})), None, Heard::Nothing)), JobStage::Suspended);
    for from in ["Initializing", "Running", "Retrying"] {
        let step = look(&job(spec.clone(), at(from)), Some(cluster(true)), Heard::Nothing);
        assert_eq!(
            (stage(&step), &step.actions[..]),
            (JobStage::Suspending, &[JobAction::DeleteCluster][..]),
            "{from}"
        );
    }
    // Half way there is no way back.
    let half = job(json!({}), at("Suspending"));
    let step = look(&half, Some(JobCluster { is_ending: true, ..cluster(true) }), Heard::Nothing);
    assert_eq!((stage(&step), step.actions.len()), (JobStage::Suspending, 0));
    let step = look(&half, None, Heard::Nothing);
    assert_eq!(
        (stage(&step), step.status.job_id.clone(), step.status.start_time.clone()),
        (JobStage::Suspended, None, None)
    );
    let status = serde_json::to_value(&step.status).expect("a status");
    assert_eq!(stage(&look(&job(spec, status.clone()), None, Heard::Nothing)), JobStage::Suspended);
    let step = look(&job(json!({}), status), None, Heard::Nothing);
    assert_eq!((stage(&step), step.status.ray_cluster_name.as_deref()), (JobStage::Initializing, Some("demo-2")));
}

#[test]
fn an_interactive_job_waits_for_its_user() {
    let mut status = at("Initializing");
    status.as_object_mut().expect("fields").remove("jobId");
    let mut spec = json!({"submissionMode": "InteractiveMode", "entrypoint": ""});
    let step = look(&job(spec.clone(), status), Some(cluster(true)), Heard::Nothing);
    assert_eq!((stage(&step), step.actions.len()), (JobStage::Waiting, 0));
    let status = serde_json::to_value(&step.status).expect("a status");
    spec["jobId"] = json!("mine");
    let step = look(&job(spec.clone(), status.clone()), Some(cluster(true)), Heard::Nothing);
    assert_eq!((stage(&step), step.status.job_id.as_deref()), (JobStage::Waiting, Some("mine")));
    let step = look(&job(spec, status), Some(cluster(true)), told("RUNNING"));
    assert_eq!(stage(&step), JobStage::Running);
}

#[test]
fn a_job_in_a_cluster_that_is_there_leaves_it_there() {
    let spec = json!({"clusterSelector": {"ray.io/cluster": "there"}, "rayClusterSpec": null});
    let step = look(&job(spec.clone(), json!({})), None, Heard::Nothing);
    assert_eq!((stage(&step), step.status.ray_cluster_name.clone()), (JobStage::Initializing, None));
    let status = serde_json::to_value(&step.status).expect("a status");
    let step = look(&job(spec.clone(), status.clone()), None, Heard::Nothing);
    assert_eq!((reason(&step), step.actions.len()), ("NoCluster", 0));
    let there = JobCluster { name: "there".into(), is_own: false, ..cluster(true) };
    let step = look(&job(spec.clone(), status), Some(there.clone()), told("RUNNING"));
    assert_eq!((stage(&step), step.status.ray_cluster_name.as_deref()), (JobStage::Running, Some("there")));
    let status = serde_json::to_value(&step.status).expect("a status");
    let step = look(&job(spec, status), Some(there), told("SUCCEEDED"));
    assert_eq!((stage(&step), step.actions.len()), (JobStage::Complete, 0));
}

#[test]
fn what_has_ended_is_deleted_by_its_rules() {
    let rules = |rules: Value| json!({"deletionStrategy": {"deletionRules": rules}});
    let rule = |policy: &str, condition: Value| json!({"policy": policy, "condition": condition});
    let shutdown = json!({"shutdownAfterJobFinishes": true, "ttlSecondsAfterFinished": 10});
    let steps = rules(json!([
        rule("DeleteWorkers", json!({"jobStatus": "FAILED", "ttlSeconds": 5})),
        rule("DeleteCluster", json!({"jobDeploymentStatus": "Failed", "ttlSeconds": 10})),
        rule("DeleteSelf", json!({"jobStatus": "SUCCEEDED"})),
    ]));
    let older =
        json!({"deletionStrategy": {"onSuccess": {"policy": "DeleteSelf"}, "onFailure": {"policy": "DeleteNone"}}});
    for (spec, stage, state, ago, expected, again) in [
        (json!({}), "Complete", "SUCCEEDED", 99, None, None),
        (shutdown.clone(), "Complete", "SUCCEEDED", 9, None, Some(1)),
        (shutdown, "Failed", "FAILED", 10, Some(JobAction::DeleteCluster), None),
        (steps.clone(), "Failed", "FAILED", 4, None, Some(1)),
        (steps.clone(), "Failed", "FAILED", 5, Some(JobAction::DeleteWorkers), Some(5)),
        (steps.clone(), "Failed", "FAILED", 10, Some(JobAction::DeleteCluster), None),
        (steps, "Complete", "SUCCEEDED", 0, Some(JobAction::DeleteItself), None),
        (older.clone(), "Complete", "SUCCEEDED", 0, Some(JobAction::DeleteItself), None),
        (older, "Failed", "FAILED", 9, None, None),
    ] {
        let step = look(&job(spec.clone(), ended(stage, state, ago)), Some(cluster(true)), Heard::Nothing);
        assert_eq!((step.actions.first(), step.again_s), (expected.as_ref(), again), "{spec} {ago}");
    }
    let again = job(json!({"shutdownAfterJobFinishes": true}), ended("Complete", "SUCCEEDED", 0));
    for gone in [None, Some(JobCluster { is_ending: true, ..cluster(true) })] {
        assert!(look(&again, gone, Heard::Nothing).actions.is_empty(), "it is deleted once");
    }
}

#[test]
fn what_cannot_be_a_job_says_why_and_the_way_out() {
    for (spec, said) in [
        (json!({"entrypoint": " "}), "entrypoint is empty: name the command"),
        (json!({"rayClusterSpec": null}), "exactly one of rayClusterSpec and clusterSelector"),
        (json!({"clusterSelector": {"a": "b"}}), "exactly one of rayClusterSpec and clusterSelector"),
        (json!({"submissionMode": "Mine"}), "submissionMode `Mine` is none of"),
        (json!({"submissionMode": "InteractiveMode", "backoffLimit": 1}), "backoffLimit makes a new cluster"),
        (json!({"ttlSecondsAfterFinished": 5}), "ttlSecondsAfterFinished does nothing without"),
        (json!({"activeDeadlineSeconds": 0}), "activeDeadlineSeconds is 0"),
        (json!({"runtimeEnvYAML": "- a"}), "runtimeEnvYAML is no mapping"),
        (json!({"entrypointResources": "{x}"}), "entrypointResources is `{x}`"),
        (json!({"entrypointNumGpus": -1}), "not to be below zero"),
        (
            json!({"deletionStrategy": {"deletionRules": [{"policy": "Keep", "condition": {"jobStatus": "FAILED"}}]}}),
            "policy `Keep` is none of",
        ),
    ] {
        let wrong = job(spec.clone(), json!({}));
        let step = look(&wrong, None, Heard::Nothing);
        assert_eq!(stage(&step), JobStage::ValidationFailed, "{spec}");
        let message = step.status.message.clone().unwrap_or_default();
        assert!(message.contains(said), "{spec}: {message}");
        let status = serde_json::to_value(&step.status).expect("a status");
        assert!(look(&job(spec, status.clone()), None, Heard::Nothing).remarks.is_empty(), "it is said once");
        assert_eq!(stage(&look(&job(json!({}), status), None, Heard::Nothing)), JobStage::Initializing);
    }
    let resources =
        job(json!({"entrypointNumGpus": 0.5, "entrypointResources": "{\"TPU\": 4}"}), json!({})).resources();
    assert_eq!(resources.expect("both are right"), [("GPU".into(), 0.5), ("TPU".into(), 4.0)].into());
    let environment = job(json!({"runtimeEnvYAML": "env_vars: {A: b}\npip: [x]"}), json!({})).environment();
    assert_eq!(environment.expect("it is right"), r#"{"env_vars":{"A":"b"},"pip":["x"]}"#);
}

#[test]
fn moments_are_read_as_they_are_written() {
    for moment in [0, 951_782_399, 951_782_400, 951_868_800, NOW, 4_102_444_799] {
        assert_eq!(seconds(&timestamp(moment)), Some(moment));
    }
    assert_eq!(seconds("2026-11-22T15:04:05.123Z"), seconds("2026-11-22T15:04:05Z"));
    for wrong in ["", "2026-11-22", "2026-11-22T15:04Z", "2026-11-22T15:04:05"] {
        assert_eq!(seconds(wrong), None, "{wrong}");
    }
}
