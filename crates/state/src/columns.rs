//! The columns of each list, with Ray's names and in Ray's order. What Oxiray does not record is a column without values.

use crate::cell::Cell;
use bytes::Bytes;
use oxiray_ids::TaskId;
use oxiray_wire::message::{ObjectUse, Stack, TaskStage};
use oxiray_wire::state::{
    ActorPhase, ActorRow, ActorSurroundings, BundleRow, EnvironmentRow, GroupRow, JobRow, NodeRow, ObjectRow,
    ProcessStacks, StateKind, Tables, TaskKind, TaskRow, WorkerDuty, WorkerRow,
};
use std::collections::BTreeMap;

/// How a column may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Shown, and filtered by.
    Main,
    /// Shown; not filtered by.
    Shown,
    /// Shown in detail, and filtered by.
    Detail,
    /// Shown in detail; not filtered by.
    Deep,
}

use Use::{Deep, Detail, Main, Shown};

/// A column of rows `R`.
#[derive(Debug)]
pub struct Column<R> {
    /// Its name.
    pub name: &'static str,
    /// How it may be used.
    pub used: Use,
    /// Its value in a row.
    pub of: fn(&R) -> Cell,
}

/// The rows of a list.
pub trait Row: Clone + PartialEq + 'static {
    /// Their columns in a list of that kind.
    fn columns(kind: StateKind) -> &'static [Column<Self>];

    /// What names the row among those of its kind.
    fn key(&self) -> Bytes;

    /// Where rows of this kind stand among others.
    fn among(tables: &mut Tables) -> &mut Vec<Self>;
}

const fn column<R>(name: &'static str, used: Use, of: fn(&R) -> Cell) -> Column<R> {
    Column { name, used, of }
}

/// A column of Ray's that has no values.
const fn unrecorded<R>(name: &'static str, used: Use) -> Column<R> {
    Column { name, used, of: |_| Cell::Null }
}

const ACTORS: &[Column<ActorRow>] = &[
    column("actor_id", Main, |row| Cell::text(row.actor_id)),
    column("class_name", Main, |row| (&row.class).into()),
    column("state", Main, |row| actor_state(row.state).into()),
    column("job_id", Main, |row| Cell::text(row.job_id)),
    column("name", Main, |row| (&row.name).into()),
    column("node_id", Main, |row| row.node_id.map(Cell::text).into()),
    column("pid", Main, |row| row.pid.unwrap_or(0).into()),
    column("ray_namespace", Main, |row| (&row.namespace).into()),
    column("serialized_runtime_env", Deep, |row| {
        around(row).map(|around| &around.environment).filter(|text| !text.is_empty()).into()
    }),
    column("required_resources", Deep, |row| row.resources.as_ref().into()),
    column("death_cause", Deep, death_cause),
    column("is_detached", Deep, |row| row.detached.into()),
    column("placement_group_id", Detail, |row| around(row).and_then(|around| around.group).map(Cell::text).into()),
    column("repr_name", Detail, |row| around(row).map(|around| &around.repr_name).into()),
    column("num_restarts", Deep, |row| row.restarts.into()),
    unrecorded("num_restarts_due_to_lineage_reconstruction", Deep),
    column("num_restarts_due_to_node_preemption", Deep, |row| around(row).map(|around| around.moves).into()),
    unrecorded("call_site", Deep),
    unrecorded("label_selector", Deep),
    unrecorded("fallback_strategy", Deep),
];

fn around(row: &ActorRow) -> Option<&ActorSurroundings> {
    row.surroundings.as_ref()
}

const TASKS: &[Column<TaskRow>] = &[
    column("task_id", Main, |row| Cell::text(row.task_id)),
    column("attempt_number", Main, |row| row.attempt.into()),
    column("name", Main, |row| (&row.name).into()),
    column("state", Main, |row| state_name(row.task_id, row.stage).into()),
    column("job_id", Main, |row| Cell::text(row.task_id.job())),
    column("actor_id", Main, |row| row.actor().map(Cell::text).into()),
    column("type", Main, |row| row.kind().name().into()),
    column("func_or_class_name", Main, |row| (&row.function).into()),
    column("parent_task_id", Main, parent),
    column("node_id", Main, |row| row.node_id.map(Cell::text).into()),
    column("worker_id", Main, |row| row.worker_id.map(Cell::text).into()),
    column("worker_pid", Main, |row| row.pid.into()),
    column("error_type", Main, |row| row.error.as_ref().into()),
    column("language", Detail, |_| "PYTHON".into()),
    column("required_resources", Deep, |row| row.resources.as_ref().into()),
    column("runtime_env_info", Deep, environment_info),
    column("placement_group_id", Detail, |row| {
        row.surroundings.as_ref().and_then(|around| around.group).map(Cell::text).into()
    }),
    column("events", Deep, events),
    unrecorded("profiling_data", Deep),
    column("creation_time_ms", Deep, |row| row.origin.and_then(|origin| milliseconds(origin.called_us)).into()),
    column("start_time_ms", Deep, |row| milliseconds(row.started_us).into()),
    column("end_time_ms", Deep, |row| milliseconds(row.ended_us).into()),
    unrecorded("task_log_info", Deep),
    column("error_message", Deep, |row| row.message.as_ref().into()),
    unrecorded("is_debugger_paused", Detail),
    unrecorded("call_site", Deep),
    unrecorded("label_selector", Deep),
    unrecorded("fallback_strategy", Deep),
];

const TIMELINE: &[Column<TaskRow>] = &[
    column("name", Main, |row| (&row.name).into()),
    column("task_id", Main, |row| Cell::text(row.task_id)),
    column("worker_id", Main, |row| row.worker_id.map(Cell::text).into()),
    column("worker_pid", Main, |row| row.pid.into()),
    column("state", Main, |row| state_name(row.task_id, row.stage).into()),
    column("start_us", Shown, |row| (row.started_us > 0).then_some(row.started_us).into()),
    column("end_us", Shown, |row| (row.ended_us > 0).then_some(row.ended_us).into()),
];

const NODES: &[Column<NodeRow>] = &[
    column("node_id", Main, |row| Cell::text(row.node_id)),
    column("node_ip", Main, |row| (&row.address).into()),
    column("is_head_node", Main, |row| row.head.into()),
    column("state", Main, |row| if row.alive { "ALIVE" } else { "DEAD" }.into()),
    column("state_message", Shown, node_message),
    column("node_name", Main, |row| (&row.name).into()),
    column("resources_total", Shown, |row| (&row.resources).into()),
    column("labels", Shown, |row| (&row.labels).into()),
    column("start_time_ms", Deep, |row| row.lifetime().map(|life| life.started_ms).filter(|ms| *ms > 0).into()),
    column("end_time_ms", Deep, |row| row.lifetime().map(|life| life.ended_ms).into()),
];

const WORKERS: &[Column<WorkerRow>] = &[
    column("worker_id", Main, |row| Cell::text(row.worker_id)),
    column("is_alive", Main, |row| row.exit.is_none().into()),
    column("worker_type", Main, |row| if row.duty == WorkerDuty::Driver { "DRIVER" } else { "WORKER" }.into()),
    column("exit_type", Main, |row| row.exit.as_ref().map(|exit| exit.kind.name()).into()),
    column("node_id", Main, |row| row.node.map(Cell::text).into()),
    column("ip", Main, |row| (&row.ip).into()),
    column("pid", Main, |row| row.pid.into()),
    column("exit_detail", Deep, |row| row.exit.as_ref().map(|exit| &exit.detail).into()),
    // A driver was launched by nobody.
    column("worker_launch_time_ms", Deep, |row| (row.launched_ms > 0).then_some(row.started_ms).into()),
    column("worker_launched_time_ms", Deep, |row| (row.launched_ms > 0).then_some(row.launched_ms).into()),
    column("start_time_ms", Deep, |row| (row.started_ms > 0).then_some(row.started_ms).into()),
    column("end_time_ms", Deep, |row| row.exit.as_ref().map_or(0, |exit| exit.ended_ms).into()),
    unrecorded("debugger_port", Detail),
    unrecorded("num_paused_threads", Detail),
];

const JOBS: &[Column<JobRow>] = &[
    column("job_id", Main, |row| row.driver.as_ref().map(|driver| Cell::text(driver.job)).into()),
    column("type", Main, |row| if row.submission.is_empty() { "DRIVER" } else { "SUBMISSION" }.into()),
    column("submission_id", Main, |row| Some(&row.submission).filter(|id| !id.is_empty()).into()),
    column("driver_info", Shown, driver_info),
    column("status", Main, |row| row.state.name().into()),
    column("entrypoint", Shown, |row| row.entrypoint.as_ref().into()),
    column("message", Shown, |row| row.message.as_ref().into()),
    column("error_type", Shown, |row| row.error.as_ref().into()),
    column("start_time", Deep, |row| (row.started_ms > 0).then_some(row.started_ms).into()),
    column("end_time", Deep, |row| (row.ended_ms > 0).then_some(row.ended_ms).into()),
    column("metadata", Deep, |row| (&row.metadata).into()),
    column("runtime_env", Deep, |row| match row.runtime_env.as_str() {
        "" => Cell::Null,
        json => Cell::Document(json.to_owned()),
    }),
    unrecorded("driver_agent_http_address", Deep),
    column("driver_node_id", Deep, |row| row.node.map(Cell::text).into()),
    column("driver_exit_code", Deep, |row| row.exit_code.into()),
];

const PLACEMENT_GROUPS: &[Column<GroupRow>] = &[
    column("placement_group_id", Main, |row| Cell::text(row.placement_group_id)),
    column("name", Main, |row| (&row.name).into()),
    column("creator_job_id", Main, |row| Cell::text(row.job_id)),
    column("state", Main, |row| row.state.name().into()),
    column("bundles", Deep, |row| row.bundles.iter().map(bundle).collect()),
    column("is_detached", Detail, |row| row.detached.into()),
    column("stats", Deep, group_stats),
    column("topology_strategy", Deep, |row| row.domain.as_deref().map(topology).into()),
    unrecorded("topology_assignments", Deep),
];

/// How the scheduler came to the group's place, in those of Ray's figures that are known.
fn group_stats(row: &GroupRow) -> Cell {
    let took_us = (row.creation_ms > 0.0).then_some((row.creation_ms * 1e3) as i64);
    Cell::map([("end_to_end_creation_latency_us", took_us.into()), ("scheduling_state", row.scheduling.name().into())])
}

/// The one level above machines that a group is packed at.
fn topology(label: &str) -> Cell {
    (&BTreeMap::from([(label.to_owned(), "STRICT_PACK".to_owned())])).into()
}

const OBJECTS: &[Column<ObjectRow>] = &[
    column("object_id", Main, |row| Cell::text(row.object)),
    column("object_size", Main, |row| row.size.map_or(Cell::Whole(-1), Cell::from)),
    column("task_status", Main, |row| state_name(row.object.task(), row.stage).into()),
    column("attempt_number", Main, |row| (u64::from(row.attempt) + 1).into()),
    column("reference_type", Main, |row| use_name(row.used).into()),
    column("call_site", Main, |row| (&row.site).into()),
    column("type", Main, |row| if row.is_worker { "WORKER" } else { "DRIVER" }.into()),
    column("pid", Main, |row| row.pid.into()),
    column("ip", Main, |row| (&row.ip).into()),
];

const RUNTIME_ENVS: &[Column<EnvironmentRow>] = &[
    column("runtime_env", Main, environment),
    column("success", Main, |_| true.into()),
    unrecorded("creation_time_ms", Shown),
    column("node_id", Main, |row| Cell::text(row.node)),
    column("ref_cnt", Deep, |row| row.uses.into()),
    unrecorded("error", Detail),
];

const STACKS: &[Column<ProcessStacks>] = &[
    column("worker_id", Main, |row| Cell::text(row.worker_id)),
    column("pid", Main, |row| row.pid.into()),
    column("worker_type", Main, |row| if row.is_driver { "DRIVER" } else { "WORKER" }.into()),
    column("name", Main, |row| (&row.name).into()),
    column("job_id", Main, |row| row.job_id.map(Cell::text).into()),
    column("actor_id", Main, |row| row.actor_id.map(Cell::text).into()),
    column("node_id", Main, |row| row.node.map(Cell::text).into()),
    column("ip", Main, |row| (&row.ip).into()),
    column("note", Shown, |row| (&row.note).into()),
    column("stacks", Shown, |row| row.stacks.iter().map(stack).collect()),
];

/// Where a thread is, or was over a time, the innermost call first.
fn stack(stack: &Stack) -> Cell {
    let frames = stack.frames.iter().map(|frame| {
        Cell::map([("function", (&frame.function).into()), ("file", (&frame.file).into()), ("line", frame.line.into())])
    });
    let known = [("name", (&stack.name).into()), ("is_task", stack.is_task.into()), ("frames", frames.collect())];
    // Only a profile weighs.
    Cell::map(known.into_iter().chain((stack.weight > 0).then(|| ("weight", stack.weight.into()))))
}

/// Each type of rows with its columns, the list that it stands in, and what names it.
macro_rules! rows {
    ($($row:ty: $columns:ident, $list:ident, |$one:ident| $key:expr;)*) => {$(
        impl Row for $row {
            fn columns(_: StateKind) -> &'static [Column<Self>] {
                $columns
            }

            fn key(&self) -> Bytes {
                let $one = self;
                Bytes::copy_from_slice($key)
            }

            fn among(tables: &mut Tables) -> &mut Vec<Self> {
                &mut tables.$list
            }
        }
    )*};
}

rows! {
    ActorRow: ACTORS, actors, |row| row.actor_id.as_bytes();
    NodeRow: NODES, nodes, |row| row.node_id.as_bytes();
    WorkerRow: WORKERS, workers, |row| row.worker_id.as_bytes();
    GroupRow: PLACEMENT_GROUPS, placement_groups, |row| row.placement_group_id.as_bytes();
    JobRow: JOBS, jobs, |row| match &row.driver {
        Some(driver) if row.submission.is_empty() => driver.job.as_bytes().as_slice(),
        _ => row.submission.as_bytes(),
    };
    // Several processes may refer to one object, and several environments be in use on one node: see `key_of`.
    ObjectRow: OBJECTS, objects, |row| &key_of([row.object.as_bytes().as_slice(), row.ip.as_bytes(), &row.pid.to_le_bytes()]);
    EnvironmentRow: RUNTIME_ENVS, runtime_envs, |row| &environment_key(row);
    ProcessStacks: STACKS, stacks, |row| row.worker_id.as_bytes();
}

impl Row for TaskRow {
    fn columns(kind: StateKind) -> &'static [Column<Self>] {
        if kind == StateKind::Timeline { TIMELINE } else { TASKS }
    }

    fn key(&self) -> Bytes {
        key_of([self.task_id.as_bytes().as_slice(), &self.attempt.to_le_bytes()]).into()
    }

    fn among(tables: &mut Tables) -> &mut Vec<Self> {
        &mut tables.tasks
    }
}

fn environment_key(row: &EnvironmentRow) -> Vec<u8> {
    let variables =
        row.variables.iter().flat_map(|one| [one.name.as_bytes(), one.value.as_deref().unwrap_or_default().as_bytes()]);
    key_of([row.node.as_bytes().as_slice()].into_iter().chain(variables))
}

/// Parts one behind the other, each behind its length, so that no two lists of parts are the same.
fn key_of<'part>(parts: impl IntoIterator<Item = &'part [u8]>) -> Vec<u8> {
    let mut key = Vec::new();
    for part in parts {
        key.extend_from_slice(&(part.len() as u64).to_le_bytes());
        key.extend_from_slice(part);
    }
    key
}

/// The names of a list's columns; nothing for what is no list.
pub fn columns(kind: StateKind, detail: bool) -> Vec<&'static str> {
    match kind {
        StateKind::Actors => names(ACTORS, detail),
        StateKind::Tasks => names(TASKS, detail),
        StateKind::Timeline => names(TIMELINE, detail),
        StateKind::Nodes => names(NODES, detail),
        StateKind::Workers => names(WORKERS, detail),
        StateKind::Jobs => names(JOBS, detail),
        StateKind::PlacementGroups => names(PLACEMENT_GROUPS, detail),
        StateKind::Objects => names(OBJECTS, detail),
        StateKind::RuntimeEnvs => names(RUNTIME_ENVS, detail),
        StateKind::Stacks => names(STACKS, detail),
        StateKind::Explain => Vec::new(),
    }
}

fn names<R>(columns: &[Column<R>], detail: bool) -> Vec<&'static str> {
    columns.iter().filter(|column| column.is_shown(detail)).map(|column| column.name).collect()
}

impl<R> Column<R> {
    /// Whether a list shows it.
    pub(crate) fn is_shown(&self, detail: bool) -> bool {
        detail || matches!(self.used, Main | Shown)
    }

    /// Whether a list may be filtered by it.
    pub(crate) fn is_filter(&self, detail: bool) -> bool {
        matches!(self.used, Main) || (detail && matches!(self.used, Detail))
    }
}

/// Ray's name for an actor's state.
pub fn actor_state(phase: ActorPhase) -> &'static str {
    match phase {
        ActorPhase::Alive => "ALIVE",
        ActorPhase::Dead => "DEAD",
        ActorPhase::Restarting => "RESTARTING",
        ActorPhase::Waiting | ActorPhase::Starting => "PENDING_CREATION",
    }
}

/// Ray's name for a call that its actor has, and that others go before.
const WAITS_IN_ACTOR: &str = "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY";

/// The columns of events of the cluster, in Ray's words and order.
pub const EVENT_COLUMNS: [&str; 6] = ["severity", "time", "source_type", "message", "event_id", "custom_fields"];

/// Whether replicas in this state, as the autoscaler names it, are still to come: those that are queued have the reason in it.
pub fn is_pending(replica_state: &str) -> bool {
    !["joined", "draining", "terminating", "terminated", "failed"].contains(&replica_state)
}

/// Ray's name for how far a call is: an actor's, once it is sent, waits for its turn in the actor.
pub fn state_name(task: TaskId, stage: TaskStage) -> &'static str {
    if stage == TaskStage::Sent && TaskKind::of(task) == TaskKind::Actor { WAITS_IN_ACTOR } else { stage_name(stage) }
}

/// Ray's name for a stage.
fn stage_name(stage: TaskStage) -> &'static str {
    match stage {
        TaskStage::Unknown => "NIL",
        TaskStage::WaitsForArguments => "PENDING_ARGS_AVAIL",
        TaskStage::WaitsForWorker => "PENDING_NODE_ASSIGNMENT",
        TaskStage::Sent => "SUBMITTED_TO_WORKER",
        TaskStage::Runs => "RUNNING",
        TaskStage::Finished => "FINISHED",
        TaskStage::Failed => "FAILED",
    }
}

/// Ray's name for what an object is referred to for.
pub(crate) fn use_name(used: ObjectUse) -> &'static str {
    match used {
        ObjectUse::Unknown => "UNKNOWN_STATUS",
        ObjectUse::Actor => "ACTOR_HANDLE",
        ObjectUse::Mapped => "PINNED_IN_MEMORY",
        ObjectUse::Argument => "USED_BY_PENDING_TASK",
        ObjectUse::Referred => "LOCAL_REFERENCE",
        ObjectUse::Contained => "CAPTURED_IN_OBJECT",
        ObjectUse::Device => "HELD_ON_DEVICE",
    }
}

/// Why an actor is dead, in Ray's fields.
fn death_cause(row: &ActorRow) -> Cell {
    let Some(text) = &row.cause else { return Cell::Null };
    // The words are those that the head itself gives as the cause.
    let reasons = [
        ("killed by `ray.kill`", "RAY_KILL"),
        ("references to the actor were removed", "OUT_OF_SCOPE"),
        ("its process", "WORKER_DIED"),
        ("node", "NODE_DIED"),
    ];
    let reason = reasons.iter().find(|(words, _)| text.contains(words)).map_or("UNSPECIFIED", |(_, reason)| reason);
    let context = Cell::map([
        ("error_message", text.into()),
        ("reason", reason.into()),
        ("pid", row.pid.unwrap_or(0).into()),
        ("node_ip_address", row.ip.as_ref().into()),
        ("never_started", row.never_ran.into()),
        ("name", (&row.name).into()),
        ("ray_namespace", (&row.namespace).into()),
        ("class_name", (&row.class).into()),
        ("actor_id", Cell::text(row.actor_id)),
    ]);
    Cell::map([("actor_died_error_context", context)])
}

fn milliseconds(us: u64) -> Option<u64> {
    (us > 0).then_some(us / 1000)
}

/// The task that called, or what stands for the driver.
fn parent(row: &TaskRow) -> Cell {
    row.origin.map(|origin| Cell::text(origin.parent.unwrap_or_else(|| TaskId::of_driver(row.task_id.job())))).into()
}

/// The environment that it ran in, as Ray has it: as JSON within the row.
fn environment_info(row: &TaskRow) -> Cell {
    let described = row
        .surroundings
        .as_ref()
        .and_then(|around| around.environment.as_ref())
        .map(|text| Cell::map([("serialized_runtime_env", text.into())]));
    described.into()
}

/// When an attempt came to which stage, as far as the process knows that tells of it.
fn events(row: &TaskRow) -> Cell {
    let called_us = row.origin.map(|origin| origin.called_us);
    let later = |from: Option<u64>, after: Option<u64>| Some(from?.saturating_add(after?));
    let ready_us = later(called_us, row.origin.and_then(|origin| origin.ready_after_us));
    let sent_us = later(ready_us, row.origin.and_then(|origin| origin.sent_after_us));
    let times = [
        (stage_name(TaskStage::WaitsForArguments), called_us.unwrap_or(0)),
        (stage_name(TaskStage::WaitsForWorker), ready_us.unwrap_or(0)),
        (stage_name(TaskStage::Sent), sent_us.unwrap_or(0)),
        // The actor has it from then on: within a machine that takes microseconds.
        (WAITS_IN_ACTOR, sent_us.filter(|_| row.kind() == TaskKind::Actor).unwrap_or(0)),
        (stage_name(TaskStage::Runs), row.started_us),
        (state_name(row.task_id, row.stage), row.ended_us),
    ];
    let known = times.into_iter().filter_map(|(state, us)| Some((state, milliseconds(us)?)));
    known.map(|(state, ms)| Cell::map([("state", state.into()), ("created_ms", ms.into())])).collect()
}

/// Why it ended, or how it is being emptied.
fn node_message(row: &NodeRow) -> Cell {
    let told = [Some(&row.death), row.draining.as_ref().map(|draining| &draining.words)];
    told.into_iter().flatten().find(|text| !text.is_empty()).into()
}

fn driver_info(row: &JobRow) -> Cell {
    let described = row.driver.as_ref().map(|driver| {
        Cell::map([
            ("id", Cell::text(driver.job)),
            ("node_ip_address", (&driver.ip).into()),
            ("pid", Cell::text(driver.pid)),
        ])
    });
    described.into()
}

fn bundle(row: &BundleRow) -> Cell {
    let devices = row
        .devices
        .iter()
        .map(|(resource, slots)| (resource.clone(), slots.numbers.iter().map(|number| Cell::from(*number)).collect()));
    Cell::map([
        ("resources", (&row.resources).into()),
        ("node_id", Cell::Text(row.node_id.map(|node| node.hex()).unwrap_or_default())),
        ("devices", devices.collect()),
    ])
}

fn environment(row: &EnvironmentRow) -> Cell {
    let variables = row.variables.iter().map(|one| (one.name.clone(), one.value.as_ref().into()));
    Cell::map([("env_vars", variables.collect())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::{ActorId, JobId, TaskId};

    #[test]
    fn what_a_task_is_of_follows_from_its_identifier() {
        let job = JobId::from_number(7);
        let mut unique = oxiray_ids::Unique::default();
        let actor = ActorId::generate(job, &mut unique);
        let kinds = [
            (TaskId::generate(ActorId::nil_of(job), &mut unique), "NORMAL_TASK", Cell::Null),
            (TaskId::generate(actor, &mut unique), "ACTOR_TASK", Cell::text(actor)),
            (actor.creation_task(), "ACTOR_CREATION_TASK", Cell::text(actor)),
        ];
        for (task_id, kind, of) in kinds {
            let row = TaskRow { task_id, started_us: 2_000, ended_us: 3_000, ..TaskRow::default() };
            let value = |name: &str| {
                let column = TASKS.iter().find(|column| column.name == name).expect("a column");
                (column.of)(&row)
            };
            assert_eq!((value("type"), value("actor_id"), value("job_id")), (kind.into(), of, Cell::text(job)));
            let Cell::List(events) = value("events") else { panic!("events are a list") };
            assert_eq!(events.len(), 2, "it began and ended");
            let waits = if kind == "ACTOR_TASK" { WAITS_IN_ACTOR } else { "SUBMITTED_TO_WORKER" };
            assert_eq!(state_name(task_id, TaskStage::Sent), waits);
            assert_eq!(state_name(task_id, TaskStage::Runs), "RUNNING");
        }
    }

    #[test]
    fn keys_tell_rows_of_a_kind_apart() {
        let variable =
            |name: &str, value: &str| oxiray_wire::message::Variable { name: name.into(), value: Some(value.into()) };
        let row = |name: &str, value: &str| EnvironmentRow {
            variables: vec![variable(name, value)],
            ..EnvironmentRow::default()
        };
        assert_ne!(row("ab", "c").key(), row("a", "bc").key());
        assert_eq!(row("a", "b").key(), EnvironmentRow { uses: 3, ..row("a", "b") }.key());
    }
}
