//! What is told of a cluster in its status.

use crate::capacity::PodCapacity;
use crate::cluster::RayCluster;
use crate::failures::FailuresByGroup;
use crate::observed::ObservedPod;
use crate::pods::{head_capacity, worker_capacity};
use crate::settings::Settings;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What the API refused to make, and why, by group.
pub type Refusals = BTreeMap<String, String>;

/// All that a status is made of.
#[derive(Debug, Clone, Copy)]
pub struct StatusInputs<'a> {
    /// The cluster, with what was told last.
    pub cluster: &'a RayCluster,
    /// Its pods.
    pub pods: &'a [ObservedPod],
    /// What holds for all clusters.
    pub settings: &'a Settings,
    /// What failed.
    pub failures: &'a FailuresByGroup,
    /// What could not be made.
    pub refusals: &'a Refusals,
    /// Seconds since 1970.
    pub now: u64,
}

/// Whether a condition of the status holds.
pub(crate) fn is_true(status: &Value, kind: &str) -> bool {
    condition(status, kind).is_some_and(|condition| condition["status"] == "True")
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// What the status of the cluster is to be.
pub fn status(told: &StatusInputs<'_>) -> Value {
    let StatusInputs { cluster, pods, settings, .. } = *told;
    let groups: Vec<Value> = cluster.spec.worker_group_specs.iter().map(|group| group_status(told, group)).collect();
    let workers: Vec<&ObservedPod> = pods.iter().filter(|pod| !pod.is_head() && !pod.is_deleting).collect();
    let head = pods.iter().find(|pod| pod.is_head() && !pod.is_deleting);
    let sum =
        |value: fn(&crate::WorkerGroup) -> u64| -> u64 { cluster.spec.worker_group_specs.iter().map(value).sum() };
    let desired = sum(|group| u64::from(group.wanted()) * u64::from(group.hosts()));
    let ready = workers.iter().filter(|pod| pod.is_ready).count() as u64;
    let is_suspended = cluster.spec.suspend && pods.is_empty();
    let is_suspending = !pods.is_empty() && (cluster.spec.suspend || is_true(&cluster.status, "RayClusterSuspending"));
    let is_complete = head.is_some_and(|head| head.is_ready) && ready >= desired;
    let conditions = conditions(told, head, is_complete, is_suspending, is_suspended);
    let mut status = json!({
        "observedGeneration": cluster.metadata.generation,
        "conditions": conditions,
        "desiredWorkerReplicas": desired,
        "minWorkerReplicas": sum(|group| u64::from(group.min_replicas) * u64::from(group.hosts())),
        "maxWorkerReplicas": sum(|group| u64::from(group.max_replicas) * u64::from(group.hosts())).min(i32::MAX as u64),
        "availableWorkerReplicas": workers.len(),
        "readyWorkerReplicas": ready,
        "groups": groups,
        "endpoints": {"gcs-server": crate::command::Start::port(&cluster.spec.head_group_spec.ray_start_params)},
        "head": {
            "podName": head.map(|head| &head.name),
            "podIP": head.and_then(|head| head.address.as_ref()),
            "serviceName": cluster.head_service(),
            "serviceIP": head.and_then(|head| head.address.as_ref()),
            "resources": head_capacity(&cluster.spec.head_group_spec, settings).per_host,
        },
    });
    for (name, amount) in totals(cluster, settings) {
        status[name] = json!(amount);
    }
    let provisioned = is_true(&status, "RayClusterProvisioned");
    status["state"] = match (is_suspended, provisioned) {
        (true, _) => json!("suspended"),
        (false, true) => json!("ready"),
        (false, false) => Value::Null,
    };
    status["reason"] = json!(problem(told));
    status["notes"] = if cluster.notes.is_empty() { Value::Null } else { json!(cluster.notes) };
    status
}

/// What all pods that are wanted have together, in Kubernetes' form.
fn totals(cluster: &RayCluster, settings: &Settings) -> Vec<(&'static str, String)> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    let mut add = |capacity: &PodCapacity, count: f64| {
        for (name, amount) in &capacity.per_host {
            *sums.entry(name.clone()).or_default() += amount * count;
        }
    };
    add(&head_capacity(&cluster.spec.head_group_spec, settings), 1.0);
    for group in &cluster.spec.worker_group_specs {
        add(&worker_capacity(group, settings), f64::from(group.wanted()) * f64::from(group.hosts()));
    }
    let names = [("desiredCPU", "CPU"), ("desiredMemory", "memory"), ("desiredGPU", "GPU"), ("desiredTPU", "TPU")];
    names.map(|(field, name)| (field, sums.get(name).copied().unwrap_or(0.0).to_string())).into()
}

fn group_status(told: &StatusInputs<'_>, group: &crate::WorkerGroup) -> Value {
    let capacity = worker_capacity(group, told.settings);
    let mut replicas: BTreeMap<u32, Vec<&ObservedPod>> = BTreeMap::new();
    for pod in told.pods.iter().filter(|pod| pod.group == group.group_name && !pod.is_deleting) {
        replicas.entry(pod.replica.unwrap_or_default()).or_default().push(pod);
    }
    let is_ready =
        |pods: &Vec<&ObservedPod>| pods.len() == group.hosts() as usize && pods.iter().all(|pod| pod.is_ready);
    let unplaced = replicas.values().flatten().find_map(|pod| pod.unplaced.clone());
    let mut status = json!({
        "name": group.group_name,
        "desiredReplicas": group.wanted(),
        "replicas": replicas.len(),
        "readyReplicas": replicas.values().filter(|pods| is_ready(pods)).count(),
        "hosts": group.hosts(),
        "resourcesPerHost": capacity.per_host,
    });
    if !capacity.first_host.is_empty() {
        status["resourcesOfFirstHost"] = json!(capacity.first_host);
    }
    if !capacity.labels.is_empty() {
        status["labels"] = json!(capacity.labels);
    }
    if !capacity.notes.is_empty() {
        status["notes"] = json!(capacity.notes);
    }
    if let Some(why) = told.refusals.get(&group.group_name).cloned().or(unplaced) {
        status["shortage"] = json!(why);
    }
    if let Some(failures) = told.failures.get(&group.group_name) {
        status["failures"] = json!(failures);
    }
    status
}

/// What is in the way of a cluster, for its `ReplicaFailure`.
fn problem(told: &StatusInputs<'_>) -> Option<String> {
    let invalid = crate::validate::problems(told.cluster);
    let refused = told.refusals.iter().map(|(group, why)| format!("group {group}: {why}"));
    let failed = told.failures.iter().map(|(group, failures)| format!("group {group}: {}", failures.reason));
    let all: Vec<String> = invalid.into_iter().chain(refused).chain(failed).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn conditions(
    told: &StatusInputs<'_>,
    head: Option<&ObservedPod>,
    is_complete: bool,
    is_suspending: bool,
    is_suspended: bool,
) -> Vec<Value> {
    let before = &told.cluster.status;
    let stop = is_suspending || is_suspended;
    let provisioned = !stop && (is_complete || is_true(before, "RayClusterProvisioned"));
    let problem = problem(told);
    let head_ready = head.is_some_and(|head| head.is_ready);
    let rows = [
        (
            "HeadPodReady",
            head_ready,
            if head_ready { "HeadPodRunningAndReady" } else { "HeadPodNotReady" },
            String::new(),
        ),
        (
            "RayClusterProvisioned",
            provisioned,
            if provisioned { "AllPodRunningAndReadyFirstTime" } else { "RayClusterPodsProvisioning" },
            String::new(),
        ),
        (
            "ReplicaFailure",
            problem.is_some(),
            if problem.is_some() { "PodsNotMade" } else { "NoFailure" },
            problem.unwrap_or_default(),
        ),
        (
            "RayClusterSuspending",
            is_suspending,
            if is_suspending { "UserRequestedSuspend" } else { "NotSuspending" },
            String::new(),
        ),
        (
            "RayClusterSuspended",
            is_suspended,
            if is_suspended { "UserRequestedSuspend" } else { "NotSuspended" },
            String::new(),
        ),
    ];
    let make = |(kind, holds, reason, message): (&str, bool, &str, String)| {
        let status = if holds { "True" } else { "False" };
        let same = condition(before, kind).filter(|known| known["status"] == status);
        let since = same.map_or_else(|| json!(timestamp(told.now)), |known| known["lastTransitionTime"].clone());
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since, "observedGeneration": told.cluster.metadata.generation,
        })
    };
    rows.into_iter().map(make).collect()
}

/// A moment as the API writes it: `2026-11-22T15:04:05Z`.
pub fn timestamp(seconds: u64) -> String {
    let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    // Days since 0000-03-01, in eras of 400 years, so that the leap day is the last of its year.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// The seconds since 1970 of a moment as the API writes it, within years of four digits.
pub fn seconds(moment: &str) -> Option<u64> {
    let (date, time) = moment.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, mark| text.split(mark).map(|part| part.parse().ok()).collect::<Option<Vec<u64>>>();
    let (date, time) = (numbers(date, '-')?, numbers(time.split('.').next()?, ':')?);
    let ([year, month, day], [hour, minute, second]) = (date[..].try_into().ok()?, time[..].try_into().ok()?);
    // Years begin in March, as in `timestamp`.
    let (year, month) = if month > 2 { (year, month - 3) } else { (u64::checked_sub(year, 1)?, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + u64::checked_sub(day, 1)?;
    Some(days.checked_sub(719_468)? * 86_400 + hour * 3600 + minute * 60 + second)
}

/// What the status says has failed, for an operator that begins.
pub fn failures_of(cluster: &RayCluster) -> FailuresByGroup {
    let groups = cluster.status["groups"].as_array().into_iter().flatten();
    let read = |group: &Value| {
        let failures = serde_json::from_value(group["failures"].clone()).ok()?;
        Some((group["name"].as_str()?.to_owned(), failures))
    };
    groups.filter_map(read).collect()
}
