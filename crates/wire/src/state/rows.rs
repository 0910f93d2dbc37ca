//! Rows of the lists. Each kind of list has one type of rows, whoever reads it.

use super::Amounts;
use super::cluster::{DrainState, NodeIsolation};
use super::statistics::MeasuredNode;
use super::words::{ActorPhase, ExitKind, GroupScheduling, GroupState, StateKind, TaskKind, WorkerDuty};
use crate::message::{
    CallOrigin, DeviceUse, ObjectUse, PlacementStrategy, Stack, SubmissionState, TaskStage, Variable,
};
use bytes::Bytes;
use oxiray_fields::Fields;
use oxiray_ids::{ActorId, JobId, NodeId, ObjectId, PlacementGroupId, TaskId, WorkerId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Rows of several kinds.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct Tables {
    /// Actors.
    #[field(1)]
    pub actors: Vec<ActorRow>,
    /// Tasks.
    #[field(2)]
    pub tasks: Vec<TaskRow>,
    /// Nodes.
    #[field(3)]
    pub nodes: Vec<NodeRow>,
    /// Workers and drivers.
    #[field(4)]
    pub workers: Vec<WorkerRow>,
    /// Jobs.
    #[field(5)]
    pub jobs: Vec<JobRow>,
    /// Placement groups.
    #[field(6)]
    pub placement_groups: Vec<GroupRow>,
    /// References to objects.
    #[field(7)]
    pub objects: Vec<ObjectRow>,
    /// Runtime environments in use.
    #[field(8)]
    pub runtime_envs: Vec<EnvironmentRow>,
    /// Processes, and where their threads are.
    #[field(9)]
    pub stacks: Vec<ProcessStacks>,
    /// How the machines of nodes are: beside a list of nodes in detail. Followers are not told.
    #[field(10)]
    pub measured: Vec<MeasuredNode>,
}

/// A worker or a driver, and where its threads are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ProcessStacks {
    /// The process.
    #[field(1)]
    pub worker_id: WorkerId,
    /// The same as a number of its machine.
    #[field(2)]
    pub pid: Option<u32>,
    /// Whether it is a job's own program.
    #[field(3)]
    pub is_driver: bool,
    /// The task, class or actor that it runs.
    #[field(4)]
    pub name: String,
    /// The job that it works for.
    #[field(5)]
    pub job_id: Option<JobId>,
    /// The actor that it is.
    #[field(6)]
    pub actor_id: Option<ActorId>,
    /// Where it runs.
    #[field(7)]
    pub node: Option<NodeId>,
    /// That machine's address.
    #[field(8)]
    pub ip: String,
    /// Each of its threads and asyncio tasks.
    #[field(9)]
    pub stacks: Vec<Stack>,
    /// Why there are none, or what they lack; empty for nothing.
    #[field(10)]
    pub note: String,
}

/// A row that is not there any more.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct GoneRow {
    /// The list that it was in.
    #[field(1)]
    pub kind: StateKind,
    /// What named it there.
    #[field(2)]
    pub key: Bytes,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeRow {
    /// The node.
    #[field(1)]
    pub node_id: NodeId,
    /// Its address.
    #[field(2)]
    pub address: String,
    /// Its host's name.
    #[field(3)]
    pub hostname: String,
    /// Its name in listings.
    #[field(4)]
    pub name: String,
    /// The socket of its daemon, on its machine.
    #[field(5)]
    pub socket: String,
    /// Whether it is there.
    #[field(6)]
    pub alive: bool,
    /// Whether the head runs there.
    #[field(7)]
    pub head: bool,
    /// Its labels.
    #[field(8)]
    pub labels: BTreeMap<String, String>,
    /// What it offers in whole; nothing where it is dead.
    #[field(9)]
    pub resources: BTreeMap<String, f64>,
    /// What of it is free now.
    #[field(10)]
    pub available: BTreeMap<String, f64>,
    /// How it ended; empty where it lives.
    #[field(11)]
    pub death: String,
    /// Bytes of its object store that are in use.
    #[field(12)]
    pub store_used: u64,
    /// How much its devices are used.
    #[field(13)]
    pub devices: Vec<DeviceUse>,
    /// How it is being emptied, where it is.
    #[field(14)]
    pub draining: Option<DrainState>,
    /// Its daemon. Number 15 was the first of its fields.
    #[field(16)]
    #[serde(flatten, serialize_with = "its_or_no_fields")]
    pub daemon: Option<NodeDaemon>,
}

impl NodeRow {
    /// From when on it is or was there, and until when.
    pub fn lifetime(&self) -> Option<Lifetime> {
        self.daemon.as_ref()?.lifetime
    }

    /// How it keeps processes from devices; nothing where it has none, and where it is dead.
    pub fn isolation(&self) -> Option<&NodeIsolation> {
        self.daemon.as_ref()?.isolation.as_ref()
    }
}

/// The daemon of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeDaemon {
    /// From when on, and until when.
    #[field(1)]
    #[serde(skip)]
    pub lifetime: Option<Lifetime>,
    /// How it keeps processes from devices; nothing where the node has none, and where it is dead.
    #[field(2)]
    pub isolation: Option<NodeIsolation>,
}

/// From when until when a node is or was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Fields)]
pub struct Lifetime {
    /// When its daemon began, in milliseconds since 1970 by the clock of its machine.
    #[field(1)]
    pub started_ms: u64,
    /// When the head saw that it was gone, likewise by the head's clock; 0 where it is there.
    #[field(2)]
    pub ended_ms: u64,
}

/// An actor.
#[derive(Debug, Clone, PartialEq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct ActorRow {
    /// The actor.
    #[field(1)]
    pub actor_id: ActorId,
    /// Its class's name.
    #[field(2)]
    pub class: String,
    /// Its own name; empty for none.
    #[field(3)]
    pub name: String,
    /// Where its name lives.
    #[field(4)]
    pub namespace: String,
    /// The job that made it.
    #[field(5)]
    pub job_id: JobId,
    /// Whether it outlives its job.
    #[field(6)]
    pub detached: bool,
    /// How far it is.
    #[field(7)]
    pub state: ActorPhase,
    /// Why it is dead.
    #[field(8)]
    pub cause: Option<String>,
    /// Its process, the last one where it is dead.
    #[field(9)]
    pub pid: Option<u32>,
    /// How often it was restarted.
    #[field(10)]
    pub restarts: u64,
    /// Where that process runs or ran.
    #[field(11)]
    pub node_id: Option<NodeId>,
    /// What it holds while it runs; nothing once it is dead.
    #[field(12)]
    pub resources: Option<Amounts>,
    /// Where it died: that machine's address.
    #[field(13)]
    pub ip: Option<String>,
    /// Whether it died before its constructor had returned.
    #[field(14)]
    pub never_ran: bool,
    /// In what it runs, and what its process said of itself. Number 15 was the placement group.
    #[field(16)]
    #[serde(skip)]
    pub surroundings: Option<ActorSurroundings>,
}

/// In what an actor runs, and what its process said of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ActorSurroundings {
    /// The placement group, while it lives.
    #[field(1)]
    pub group: Option<PlacementGroupId>,
    /// How it names itself; empty where it goes by its class, and until its constructor returned.
    #[field(2)]
    pub repr_name: String,
    /// Its runtime environment as JSON; empty for none, and until its constructor returned.
    #[field(3)]
    pub environment: String,
    /// How many of its restarts are not counted, since its node was emptied or it was preempted.
    #[field(4)]
    pub moves: u64,
}

/// One attempt of a task, of an actor's call, or of the making of an actor.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct TaskRow {
    /// The task; its job and its actor follow from it.
    #[field(1)]
    pub task_id: TaskId,
    /// Which attempt, counted from 0.
    #[field(2)]
    pub attempt: u32,
    /// The name that it was called under.
    #[field(3)]
    pub name: String,
    /// The name of the function, or of the class and the method.
    #[field(4)]
    pub function: String,
    /// How far it is.
    #[field(5)]
    pub stage: TaskStage,
    /// Where it runs or ran.
    #[field(6)]
    pub node_id: Option<NodeId>,
    /// The process that runs or ran it.
    #[field(7)]
    pub worker_id: Option<WorkerId>,
    /// The same as a number of its machine.
    #[field(8)]
    pub pid: Option<u32>,
    /// What kind of failure ended it, in Ray's words.
    #[field(9)]
    pub error: Option<String>,
    /// What the failure says.
    #[field(10)]
    pub message: Option<String>,
    /// When it began to run, in microseconds since 1970; 0 where that is not known.
    #[field(11)]
    pub started_us: u64,
    /// When it ended, likewise.
    #[field(12)]
    pub ended_us: u64,
    /// What it needs to run.
    #[field(13)]
    pub resources: Option<Amounts>,
    /// Who called, and when; nothing where that is not known.
    #[field(14)]
    pub origin: Option<CallOrigin>,
    /// In what it ran, or is to run.
    #[field(15)]
    pub surroundings: Option<TaskSurroundings>,
}

/// In what a task ran, or is to run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct TaskSurroundings {
    /// The placement group.
    #[field(1)]
    pub group: Option<PlacementGroupId>,
    /// The runtime environment as JSON; nothing where that is not known.
    #[field(2)]
    pub environment: Option<String>,
}

impl TaskKind {
    /// What a task is of, by its identifier.
    pub fn of(task: TaskId) -> Self {
        let actor = task.actor();
        if actor.is_nil_of_job() {
            Self::Normal
        } else if actor.creation_task() == task {
            Self::ActorCreation
        } else {
            Self::Actor
        }
    }
}

impl TaskRow {
    /// What it is of.
    pub fn kind(&self) -> TaskKind {
        TaskKind::of(self.task_id)
    }

    /// The actor that it is of.
    pub fn actor(&self) -> Option<ActorId> {
        Some(self.task_id.actor()).filter(|actor| !actor.is_nil_of_job())
    }
}

/// A process that runs tasks or an actor, or a driver.
#[derive(Debug, Clone, PartialEq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerRow {
    /// The process.
    #[field(1)]
    pub worker_id: WorkerId,
    /// The same as a number of its machine.
    #[field(2)]
    pub pid: Option<u32>,
    /// What it does.
    #[field(3)]
    pub duty: WorkerDuty,
    /// The task, class or actor that it runs.
    #[field(4)]
    pub name: String,
    /// The job that it works for.
    #[field(5)]
    pub job_id: Option<JobId>,
    /// What it holds, where it runs on the head's machine.
    #[field(6)]
    pub resources: BTreeMap<String, f64>,
    /// Where it runs.
    #[field(7)]
    #[serde(skip)]
    pub node: Option<NodeId>,
    /// That machine's address.
    #[field(8)]
    #[serde(skip)]
    pub ip: String,
    /// When it began, in milliseconds since 1970; 0 where that is not known.
    #[field(9)]
    #[serde(skip)]
    pub started_ms: u64,
    /// How it ended; nothing while it lives.
    #[field(10)]
    #[serde(skip)]
    pub exit: Option<WorkerExit>,
    /// When the head heard that its process is there, likewise; 0 where that is not known.
    #[field(11)]
    #[serde(skip)]
    pub launched_ms: u64,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct WorkerExit {
    /// The kind of its end.
    #[field(1)]
    pub kind: ExitKind,
    /// How and why, in words.
    #[field(2)]
    pub detail: String,
    /// When, in milliseconds since 1970.
    #[field(3)]
    pub ended_ms: u64,
}

/// The process that a job belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct DriverProcess {
    /// The job.
    #[field(1)]
    pub job: JobId,
    /// Its machine's address.
    #[field(2)]
    pub ip: String,
    /// The process, as its machine counts.
    #[field(3)]
    pub pid: u32,
}

/// A job: a program that is or was connected, or one that was submitted, with the driver that it connected.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct JobRow {
    /// The driver; nothing for a submitted job that has not connected one.
    #[field(1)]
    pub driver: Option<DriverProcess>,
    /// The submitted job's name; empty for a program that nobody submitted.
    #[field(2)]
    pub submission: String,
    /// Where it stands.
    #[field(3)]
    pub state: SubmissionState,
    /// What there is to say of that, for people.
    #[field(4)]
    pub message: Option<String>,
    /// What kind of failure ended it, in Ray's words.
    #[field(5)]
    pub error: Option<String>,
    /// The command that started it.
    #[field(6)]
    pub entrypoint: Option<String>,
    /// The driver's node.
    #[field(7)]
    pub node: Option<NodeId>,
    /// When it was submitted or connected, in milliseconds since 1970; 0 where that is not known.
    #[field(8)]
    pub started_ms: u64,
    /// When it ended, likewise.
    #[field(9)]
    pub ended_ms: u64,
    /// What its user notes of it.
    #[field(10)]
    pub metadata: BTreeMap<String, String>,
    /// The status that its entrypoint ended with; minus the signal's number where one killed it.
    #[field(11)]
    pub exit_code: Option<i32>,
    /// Its runtime environment, as its user wrote it: JSON; empty for none.
    #[field(12)]
    pub runtime_env: String,
}

/// A placement group.
#[derive(Debug, Clone, PartialEq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupRow {
    /// The group.
    #[field(1)]
    pub placement_group_id: PlacementGroupId,
    /// Its name; empty for none.
    #[field(2)]
    pub name: String,
    /// Where its name lives.
    #[field(3)]
    pub namespace: String,
    /// How its bundles are spread over machines.
    #[field(4)]
    pub strategy: PlacementStrategy,
    /// How far it is.
    #[field(5)]
    pub state: GroupState,
    /// The job that made it.
    #[field(6)]
    pub job_id: JobId,
    /// Whether it outlives its maker.
    #[field(7)]
    pub detached: bool,
    /// Its bundles, by their numbers.
    #[field(8)]
    pub bundles: Vec<BundleRow>,
    /// Why it waits or was removed, for people.
    #[field(9)]
    pub reason: Option<String>,
    /// What the scheduler says of it.
    #[field(10)]
    #[serde(rename = "scheduling_state")]
    pub scheduling: GroupScheduling,
    /// How long setting it aside took, in milliseconds; 0 where that is not done.
    #[field(11)]
    pub creation_ms: f64,
    /// The label of which all its machines have the same value.
    #[field(12)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}

/// A bundle of a placement group.
#[derive(Debug, Clone, PartialEq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct BundleRow {
    /// What it sets aside.
    #[field(1)]
    pub resources: BTreeMap<String, f64>,
    /// Where; nothing where it has no node.
    #[field(2)]
    #[serde(serialize_with = "digits_or_empty", deserialize_with = "node_or_empty")]
    pub node_id: Option<NodeId>,
    /// The numbers of the devices that it has a part of, by resource.
    #[field(3)]
    pub devices: BTreeMap<String, Slots>,
}

/// Numbers of devices.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slots {
    /// In ascending order.
    #[field(1)]
    pub numbers: Vec<u32>,
}

/// The fields of what a row has in a message of its own; where an older head did not tell it, the same fields with nothing.
#[expect(clippy::ref_option, reason = "serde hands over the field as it is")]
pub(super) fn its_or_no_fields<T, S>(told: &Option<T>, serializer: S) -> Result<S::Ok, S::Error>
where
    T: Serialize + Default,
    S: serde::Serializer,
{
    match told {
        Some(told) => told.serialize(serializer),
        None => T::default().serialize(serializer),
    }
}

#[expect(clippy::ref_option, reason = "serde hands over the field as it is")]
fn digits_or_empty<S: serde::Serializer>(node: &Option<NodeId>, serializer: S) -> Result<S::Ok, S::Error> {
    match node {
        Some(node) => serializer.collect_str(node),
        None => serializer.serialize_str(""),
    }
}

fn node_or_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<NodeId>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() {
        return Ok(None);
    }
    NodeId::from_hex(&text).map(Some).map_err(serde::de::Error::custom)
}

/// A reference to an object: one for each object and process that refers to it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ObjectRow {
    /// The object.
    #[field(1)]
    pub object: ObjectId,
    /// Its bytes; nothing where that is not known.
    #[field(2)]
    pub size: Option<u64>,
    /// How far the task is that makes it.
    #[field(3)]
    pub stage: TaskStage,
    /// Which attempt of that, counted from 0.
    #[field(4)]
    pub attempt: u32,
    /// What the process refers to it for.
    #[field(5)]
    pub used: ObjectUse,
    /// The line of the program that made it; a word where that is not recorded.
    #[field(6)]
    pub site: String,
    /// Whether the process is a worker, and not a driver.
    #[field(7)]
    pub is_worker: bool,
    /// The process.
    #[field(8)]
    pub pid: u32,
    /// Its machine's address.
    #[field(9)]
    pub ip: String,
    /// The device that the process keeps tensors on for it; empty where it keeps none.
    #[field(10)]
    pub device: String,
}

/// A runtime environment that workers of a node have.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct EnvironmentRow {
    /// Its variables.
    #[field(1)]
    pub variables: Vec<Variable>,
    /// The node.
    #[field(2)]
    pub node: NodeId,
    /// How many workers have it.
    #[field(3)]
    pub uses: u64,
}
