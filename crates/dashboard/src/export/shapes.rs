//! Ray's events as JSON: what its protobufs become by protobuf's own mapping, with every field that has a default.
//!
//! Identifiers and digests are base64, moments RFC 3339, numbers of 64 bits texts.

use super::sensible_environment;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oxiray_ids::{ActorId, NodeId, TaskId};
use oxiray_visitor::json::date;
use oxiray_wire::message::TaskStage;
use oxiray_wire::state::{
    ActorPhase, ActorRow, Amounts, ChronicleEntry, DriverProcess, JobRow, NodeRow, TaskKind, TaskRow,
};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value as Json, json};

/// Bytes of an event's identifier, as Ray has them.
const EVENT_ID_BYTES: usize = 28;
/// Names of failures that Ray's clients know. What has another one is the call's own.
const FAILURES: [&str; 14] = [
    "WORKER_DIED",
    "ACTOR_DIED",
    "TASK_EXECUTION_EXCEPTION",
    "TASK_CANCELLED",
    "ACTOR_CREATION_FAILED",
    "RUNTIME_ENV_SETUP_FAILED",
    "OBJECT_LOST",
    "OWNER_DIED",
    "DEPENDENCY_RESOLUTION_FAILED",
    "TASK_UNSCHEDULABLE_ERROR",
    "ACTOR_UNSCHEDULABLE_ERROR",
    "OUT_OF_MEMORY",
    "NODE_DIED",
    "ACTOR_UNAVAILABLE",
];

/// Who says something of what, when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    /// The session's name.
    pub(super) session: &'a str,
    /// Where it happened.
    pub(super) node: Option<NodeId>,
    /// When, in microseconds since 1970.
    pub(super) at_us: u64,
}

/// An event of a type; `body` is what its own field has.
fn event(source: Source<'_>, (kind, by, field): (&str, &str, &str), body: Json) -> Json {
    let Source { session, node, at_us } = source;
    let mut made = json!({
        "sourceType": by, "eventType": kind, "timestamp": moment(at_us), "severity": "INFO", "message": "",
        "sessionName": session, "nodeId": node.map_or_else(String::new, |node| base64(node.as_bytes())),
    });
    made[field] = body;
    // What is told again, as after a restart, is the same event.
    let identity = digest(&SHA256, made.to_string().as_bytes());
    made["eventId"] = base64(&identity.as_ref()[..EVENT_ID_BYTES]).into();
    made
}

fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// A moment as protobuf writes it: with as many digits, in threes, as it has.
fn moment(us: u64) -> String {
    let second = date(us / 1_000).replace(' ', "T");
    match us % 1_000_000 {
        0 => format!("{second}Z"),
        part if part % 1_000 == 0 => format!("{second}.{:03}Z", part / 1_000),
        part => format!("{second}.{part:06}Z"),
    }
}

fn amounts(amounts: Option<&Amounts>) -> Json {
    amounts.map_or_else(|| json!({}), |amounts| json!(amounts.by_name))
}

/// How a call's function is named.
fn function(row: &TaskRow) -> Json {
    let (class, name) = match (row.kind(), row.function.rsplit_once('.')) {
        (TaskKind::Actor | TaskKind::ActorCreation, Some((class, name))) => (class, name),
        _ => ("", row.function.as_str()),
    };
    json!({"pythonFunctionDescriptor": {
        "moduleName": "", "className": class, "functionName": name, "functionHash": "",
    }})
}

/// What an attempt of a call is.
pub(super) fn task_definition(source: Source<'_>, row: &TaskRow) -> Json {
    // Who calls without being a task is a driver.
    let parent = row.origin.map(|origin| origin.parent.unwrap_or_else(|| TaskId::of_driver(row.task_id.job())));
    let group = row.surroundings.as_ref().and_then(|surroundings| surroundings.group);
    let environment = row.surroundings.as_ref().and_then(|surroundings| surroundings.environment.as_deref());
    let mut body = json!({
        "taskId": base64(row.task_id.as_bytes()),
        "taskAttempt": row.attempt,
        "language": "PYTHON",
        "requiredResources": amounts(row.resources.as_ref()),
        "jobId": base64(row.task_id.job().as_bytes()),
        "parentTaskId": parent.map_or_else(String::new, |parent| base64(parent.as_bytes())),
        "placementGroupId": group.map_or_else(String::new, |group| base64(group.as_bytes())),
        "refIds": {},
        "serializedRuntimeEnv": sensible_environment(environment.unwrap_or_default()),
        "labelSelector": {},
        "isDetachedActor": false,
    });
    let kind = row.kind();
    if kind == TaskKind::Actor {
        body["actorFunc"] = function(row);
        body["actorTaskName"] = row.name.as_str().into();
        body["actorId"] = base64(row.task_id.actor().as_bytes()).into();
        return event(source, ("ACTOR_TASK_DEFINITION_EVENT", "CORE_WORKER", "actorTaskDefinitionEvent"), body);
    }
    body["taskFunc"] = function(row);
    body["taskName"] = row.name.as_str().into();
    body["taskType"] = if kind == TaskKind::ActorCreation { "ACTOR_CREATION_TASK" } else { "NORMAL_TASK" }.into();
    event(source, ("TASK_DEFINITION_EVENT", "CORE_WORKER", "taskDefinitionEvent"), body)
}

/// How far an attempt of a call is, with all that came before.
pub(super) fn task_lifecycle(source: Source<'_>, row: &TaskRow) -> Json {
    let end = if row.stage == TaskStage::Failed { "FAILED" } else { "FINISHED" };
    let transitions: Vec<Json> = steps(row)
        .into_iter()
        .chain((row.ended_us > 0).then_some((end, row.ended_us)))
        .map(|(state, at)| json!({"state": state, "timestamp": moment(at)}))
        .collect();
    let mut body = json!({
        "taskId": base64(row.task_id.as_bytes()),
        "taskAttempt": row.attempt,
        "stateTransitions": transitions,
        "nodeId": row.node_id.map_or_else(String::new, |node| base64(node.as_bytes())),
        "workerId": row.worker_id.map_or_else(String::new, |worker| base64(worker.as_bytes())),
        "workerPid": row.pid.unwrap_or_default(),
        "jobId": base64(row.task_id.job().as_bytes()),
    });
    if row.stage == TaskStage::Failed {
        let kind = row.error.as_deref().filter(|error| FAILURES.contains(error));
        body["rayErrorInfo"] = json!({
            "errorMessage": row.message.as_deref().unwrap_or_default(),
            "errorType": kind.unwrap_or("TASK_EXECUTION_EXCEPTION"),
        });
    }
    event(source, ("TASK_LIFECYCLE_EVENT", "CORE_WORKER", "taskLifecycleEvent"), body)
}

/// What an attempt went through before its end, as far as it is known, with the microseconds of each.
pub(super) fn steps(row: &TaskRow) -> Vec<(&'static str, u64)> {
    let origin = row.origin.filter(|origin| origin.called_us > 0);
    let called = origin.map(|origin| origin.called_us);
    let ready = origin.and_then(|origin| Some(origin.called_us + origin.ready_after_us?));
    let sent = origin.and_then(|origin| Some(ready? + origin.sent_after_us?));
    let started = (row.started_us > 0).then_some(row.started_us);
    let all = [
        ("PENDING_ARGS_AVAIL", called),
        ("PENDING_NODE_ASSIGNMENT", ready),
        ("SUBMITTED_TO_WORKER", sent),
        ("RUNNING", started),
    ];
    all.into_iter().filter_map(|(state, at)| Some((state, at?))).collect()
}

/// What an actor is.
pub(super) fn actor_definition(source: Source<'_>, row: &ActorRow) -> Json {
    let surroundings = row.surroundings.clone().unwrap_or_default();
    let body = json!({
        "actorId": base64(row.actor_id.as_bytes()),
        "jobId": base64(row.job_id.as_bytes()),
        "isDetached": row.detached,
        "name": row.name,
        "rayNamespace": row.namespace,
        "serializedRuntimeEnv": sensible_environment(&surroundings.environment),
        "className": row.class,
        "requiredResources": amounts(row.resources.as_ref()),
        "placementGroupId": surroundings.group.map_or_else(String::new, |group| base64(group.as_bytes())),
        "labelSelector": {},
        "callSite": "",
        "parentId": "",
        "refIds": {},
    });
    event(source, ("ACTOR_DEFINITION_EVENT", "GCS", "actorDefinitionEvent"), body)
}

/// An actor is in another state: the chronicle says which, and its row the rest.
pub(super) fn actor_lifecycle(source: Source<'_>, entry: &ChronicleEntry, phase: ActorPhase, row: &ActorRow) -> Json {
    let state = match phase {
        ActorPhase::Waiting => "DEPENDENCIES_UNREADY",
        ActorPhase::Starting => "PENDING_CREATION",
        ActorPhase::Alive => "ALIVE",
        ActorPhase::Restarting => "RESTARTING",
        ActorPhase::Dead => "DEAD",
    };
    let mut transition = json!({
        "state": state,
        "timestamp": moment(entry.at_ms * 1_000),
        "nodeId": entry.node.map_or_else(String::new, |node| base64(node.as_bytes())),
        "workerId": entry.worker.map_or_else(String::new, |worker| base64(worker.as_bytes())),
        "reprName": row.surroundings.as_ref().map_or("", |surroundings| &surroundings.repr_name),
        "pid": entry.pid,
        "port": 0,
        "restartReason": "ACTOR_FAILURE",
    });
    if phase == ActorPhase::Dead {
        transition["deathCause"] = json!({"actorDiedErrorContext": {
            "errorMessage": entry.text,
            "ownerId": "",
            "ownerIpAddress": "",
            "nodeIpAddress": row.ip.as_deref().unwrap_or_default(),
            "pid": row.pid.unwrap_or(entry.pid),
            "name": row.name,
            "rayNamespace": row.namespace,
            "className": row.class,
            "actorId": base64(row.actor_id.as_bytes()),
            "neverStarted": row.never_ran,
            "reason": "UNSPECIFIED",
        }});
    }
    let body = json!({"actorId": base64(row.actor_id.as_bytes()), "stateTransitions": [transition]});
    event(source, ("ACTOR_LIFECYCLE_EVENT", "GCS", "actorLifecycleEvent"), body)
}

/// What a driver is.
pub(super) fn job_definition(source: Source<'_>, row: &JobRow, driver: &DriverProcess) -> Json {
    let body = json!({
        "jobId": base64(driver.job.as_bytes()),
        "driverPid": driver.pid.to_string(),
        "driverNodeId": row.node.map_or_else(String::new, |node| base64(node.as_bytes())),
        "entrypoint": row.entrypoint.as_deref().unwrap_or_default(),
        "config": {"serializedRuntimeEnv": sensible_environment(&row.runtime_env), "metadata": row.metadata},
    });
    event(source, ("DRIVER_JOB_DEFINITION_EVENT", "GCS", "driverJobDefinitionEvent"), body)
}

/// A driver is there, or is gone.
pub(super) fn job_lifecycle(source: Source<'_>, row: &JobRow, driver: &DriverProcess) -> Json {
    let moments = [("CREATED", row.started_ms), ("FINISHED", row.ended_ms)];
    let known = moments.into_iter().filter(|(_, ms)| *ms > 0);
    let transitions: Vec<Json> =
        known.map(|(state, ms)| json!({"state": state, "timestamp": moment(ms * 1_000)})).collect();
    let body = json!({"jobId": base64(driver.job.as_bytes()), "stateTransitions": transitions});
    event(source, ("DRIVER_JOB_LIFECYCLE_EVENT", "GCS", "driverJobLifecycleEvent"), body)
}

/// What a node is.
pub(super) fn node_definition(source: Source<'_>, row: &NodeRow) -> Json {
    let body = json!({
        "nodeId": base64(row.node_id.as_bytes()),
        "nodeIpAddress": row.address,
        "labels": row.labels,
        "startTimestamp": moment(row.lifetime().unwrap_or_default().started_ms * 1_000),
        "hostname": row.hostname,
        "nodeName": row.name,
        "instanceId": "",
        "instanceTypeName": "",
    });
    event(source, ("NODE_DEFINITION_EVENT", "GCS", "nodeDefinitionEvent"), body)
}

/// A node is there, is being emptied, or is gone; at `source.at_us`.
pub(super) fn node_lifecycle(source: Source<'_>, row: &NodeRow, was_draining: bool) -> Json {
    let is_draining = row.alive && row.draining.is_some();
    let mut transition = json!({
        "state": if row.alive { "ALIVE" } else { "DEAD" },
        "timestamp": moment(source.at_us),
        "resources": row.resources,
        "aliveSubState": if is_draining { "DRAINING" } else { "UNSPECIFIED" },
    });
    if !row.alive {
        let reason = if was_draining { "EXPECTED_TERMINATION" } else { "UNEXPECTED_TERMINATION" };
        transition["deathInfo"] = json!({"reason": reason, "reasonMessage": row.death});
    }
    let body = json!({"nodeId": base64(row.node_id.as_bytes()), "stateTransitions": [transition]});
    event(source, ("NODE_LIFECYCLE_EVENT", "GCS", "nodeLifecycleEvent"), body)
}

/// The actor that an entry of the chronicle is about, and the state that it is in.
pub(super) fn actor_of(entry: &ChronicleEntry) -> Option<(ActorId, ActorPhase)> {
    use oxiray_wire::state::ChronicleEvent as Event;
    let phase = match entry.event {
        Event::ActorWaiting => ActorPhase::Waiting,
        Event::ActorStarting => ActorPhase::Starting,
        Event::ActorAlive => ActorPhase::Alive,
        Event::ActorRestarting => ActorPhase::Restarting,
        Event::ActorDead => ActorPhase::Dead,
        _ => return None,
    };
    Some((entry.actor?, phase))
}

/// An environment with the values of its variables hidden.
pub(super) fn redacted(environment: &mut Map<String, Json>) {
    if let Some(variables) = environment.get_mut("env_vars").and_then(Json::as_object_mut) {
        for value in variables.values_mut() {
            *value = "<redacted>".into();
        }
    }
}
