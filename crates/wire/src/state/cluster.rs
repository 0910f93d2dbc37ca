//! The cluster in whole, as `oxiray status` and `nodes()` read it.

use super::device_memory::DeviceMemory;
use super::rows::{ActorRow, GroupRow, NodeRow, WorkerRow};
use super::words::{DemandKind, DeviceService, DeviceTier, HealthState, IsolationMode, MemoryTier, ServiceCause};
use super::{Amounts, AutoscalerState, StandingRecord};
use crate::message::DeviceUse;
use oxiray_fields::Fields;
use oxiray_ids::{JobId, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How the cluster is at a moment. Lists are cut at a thousand entries.
#[derive(Debug, Clone, PartialEq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterState {
    /// What the living nodes offer in whole; devices out of service excepted.
    #[field(1)]
    pub totals: BTreeMap<String, f64>,
    /// What of it is free now; nothing is listed at zero.
    #[field(2)]
    pub available: BTreeMap<String, f64>,
    /// The nodes, the head's own first, and the dead ones that are remembered.
    #[field(3)]
    pub nodes: Vec<NodeRow>,
    /// The devices, those of the head's machine first. Where there are too many, those are listed of which there is something to be
    /// known, or that somebody has, before those that are free.
    #[field(4)]
    pub devices: Vec<DeviceRow>,
    /// What waits for resources.
    #[field(5)]
    pub waiting: Vec<WaitingRow>,
    /// Actors, the living first.
    #[field(6)]
    pub actors: Vec<ActorRow>,
    /// Placement groups, those that are not removed first.
    #[field(7)]
    pub placement_groups: Vec<GroupRow>,
    /// Processes that run tasks or actors, or wait to do so.
    #[field(8)]
    pub workers: Vec<WorkerRow>,
    /// Jobs whose drivers are or were connected.
    #[field(9)]
    pub jobs: Vec<ConnectedJob>,
    /// What the autoscaler says of itself; nothing where there never was one.
    #[field(10)]
    pub autoscaler: Option<AutoscalerState>,
    /// What is to fit into the cluster for good (`request_resources`).
    #[field(11)]
    pub requested: Vec<StandingRecord>,
    /// The object store of the head's machine.
    #[field(12)]
    pub store: Option<StoreState>,
    /// What bounds the memory of the head's machine.
    #[field(13)]
    pub memory: Option<MemoryLevel>,
    /// What limits the workers of the head's machine.
    #[field(14)]
    pub worker_limits: Option<WorkerLimits>,
    /// The head's daemon.
    #[field(15)]
    pub daemon: Option<DaemonState>,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceRow {
    /// The resource that it counts as, such as `GPU`.
    #[field(1)]
    pub resource: String,
    /// The key of its family of accelerators; nothing where its node does not say.
    #[field(2)]
    pub family: Option<String>,
    /// Its number among those of the resource, from 0.
    #[field(3)]
    pub slot: u32,
    /// What the variable that shows devices to programs calls it.
    #[field(4)]
    pub id: String,
    /// How much it is used; nothing while nobody has it, and where nobody can tell.
    #[field(5)]
    #[serde(rename = "use")]
    pub used: Option<DeviceUse>,
    /// Whether it is given to anybody.
    #[field(7)]
    pub state: DeviceService,
    /// Why not.
    #[field(8)]
    pub reason: Option<String>,
    /// Who has it.
    #[field(9)]
    pub holders: Vec<DeviceHolder>,
    /// Which processes of workers have it open without having been granted it, in words.
    #[field(10)]
    pub violations: Vec<String>,
    /// Its node, where that is not the head's.
    #[field(11)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// What is to be known of its health while it is in service, in words.
    #[field(12)]
    pub notes: Vec<String>,
    /// The processes that have memory of it and that its node did not start.
    #[field(13)]
    pub foreign: Vec<ForeignUse>,
    /// What is known of whether it is well.
    #[field(14)]
    pub health: HealthState,
    /// Since when it is given to nobody for this reason, as far as the head knows, in milliseconds since 1970 by the head's clock;
    /// nothing where it is in service.
    #[field(15)]
    pub since_ms: Option<u64>,
    /// As which files it is there. Number 6 was whether it is there at all.
    #[field(16)]
    #[serde(flatten, serialize_with = "super::rows::its_or_no_fields")]
    pub files: Option<DeviceFiles>,
}

impl DeviceRow {
    /// Whether it was declared without being there.
    pub fn is_logical(&self) -> bool {
        self.files.as_ref().is_some_and(|files| files.logical)
    }
}

/// As which files a device is there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceFiles {
    /// Whether it was declared without being there.
    #[field(1)]
    pub logical: bool,
    /// The device nodes that are its own, where they are known.
    #[field(2)]
    pub nodes: Vec<DeviceFile>,
}

/// A device node: a file through which a process reaches a device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceFile {
    /// Where it is, as `/dev/nvidia0`.
    #[field(1)]
    pub path: String,
    /// The driver's number, by which the kernel knows it; nothing where a recorded machine does not tell it.
    #[field(2)]
    pub major: Option<u32>,
    /// The driver's number for the device, likewise.
    #[field(3)]
    pub minor: Option<u32>,
}

/// What a process has of a device that its node did not start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct ForeignUse {
    /// The process.
    #[field(1)]
    pub pid: u32,
    /// What the kernel calls it; empty where that is not shown.
    #[field(2)]
    pub name: String,
    /// How much of the device's memory it has; nothing where nobody tells.
    #[field(3)]
    pub used_bytes: Option<u64>,
    /// Whether another node of this machine started it.
    #[field(4)]
    pub is_of_other_node: bool,
}

/// What is to be known of a device besides what is free of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceCondition {
    /// The resource.
    #[field(1)]
    pub resource: String,
    /// Its number among those of its node.
    #[field(2)]
    pub slot: u32,
    /// Why it is out of service; nothing where it is in service.
    #[field(3)]
    pub reason: Option<String>,
    /// Whether its node took it out of service by itself, which the head may undo.
    #[field(4)]
    pub is_automatic: bool,
    /// What else is to be known, in words.
    #[field(5)]
    pub notes: Vec<String>,
    /// The processes that have memory of it and that the node did not start.
    #[field(6)]
    pub foreign: Vec<ForeignUse>,
    /// What is known of whether it is well.
    #[field(7)]
    pub health: HealthState,
    /// Whether it is out of service until its machine is started again, as its driver says.
    #[field(8)]
    pub needs_restart: bool,
    /// The reason in a word.
    #[field(9)]
    pub cause: ServiceCause,
}

/// What was ordered of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceTold {
    /// Its node.
    #[field(1)]
    pub node_id: NodeId,
    /// The resource.
    #[field(2)]
    pub resource: String,
    /// Its number among those of its node.
    #[field(3)]
    pub slot: u32,
}

/// Who was told of an order to kill an actor or to cancel a task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct EndTold {
    /// How many processes were told. Of those of a job, only the owner of a task cancels it.
    #[field(1)]
    pub processes: u32,
}

/// A process that has a device, or a part of it.
#[derive(Debug, Clone, PartialEq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceHolder {
    /// The process.
    #[field(1)]
    pub pid: u32,
    /// The task, class or actor that it runs.
    #[field(2)]
    pub name: String,
    /// How much of the device it has, from 0 to 1.
    #[field(3)]
    pub share: f64,
    /// What keeps it from other devices; nothing where it is not a process.
    #[field(4)]
    pub isolation: Option<DeviceIsolation>,
    /// The memory of the device that it asked for; nothing where it asked for a share.
    #[field(5)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<DeviceMemory>,
    /// Whether it ends, or is dead and the device may not have forgotten it yet.
    #[field(6)]
    pub is_ending: bool,
    /// Why it has this device and not another one, in words; empty where its node does not say.
    #[field(7)]
    pub choice: String,
}

/// What keeps a process from devices that it was not granted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceIsolation {
    /// What is in force.
    #[field(1)]
    pub tier: DeviceTier,
    /// Why it is less than its node was started with; empty where it is not.
    #[field(2)]
    pub reason: String,
    /// The devices that it may open: what it was granted, and within a placement group what that has on its node.
    #[field(3)]
    pub realm: Vec<RealmDevices>,
}

/// The devices of one resource that a process may open.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct RealmDevices {
    /// The resource.
    #[field(1)]
    pub resource: String,
    /// Their numbers on the node, in ascending order.
    #[field(2)]
    pub slots: Vec<u32>,
}

/// How a node keeps processes from devices, and from memory of devices, that they were not granted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeIsolation {
    /// How far, as the node was started.
    #[field(1)]
    pub asked: IsolationMode,
    /// By what the kernel can refuse processes the devices of this node, strongest first.
    #[field(2)]
    pub means: Vec<DeviceTier>,
    /// What keeps a process from other devices here that asks for no more than the node was started with.
    #[field(3)]
    pub in_force: DeviceTier,
    /// Why that is less than was asked for; empty where it is not.
    #[field(4)]
    pub reason: String,
    /// Between two looks at what processes have open, in seconds, as long as it took last; nothing where nobody looks.
    #[field(5)]
    pub watch_period_s: Option<u32>,
    /// What keeps processes to the memory of a device that they asked for, of which the strongest that holds for one is in force.
    #[field(6)]
    pub memory_tiers: Vec<MemoryTier>,
}

/// Those that wait for the same resources.
#[derive(Debug, Clone, PartialEq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitingRow {
    /// The function, class or group of the one that waits longest.
    #[field(1)]
    pub name: String,
    /// What it is.
    #[field(2)]
    pub kind: DemandKind,
    /// What it asks of one node; nothing for a placement group.
    #[field(3)]
    pub demand: Option<Amounts>,
    /// How many wait.
    #[field(4)]
    pub count: u64,
    /// How often others that asked later were served before them.
    #[field(5)]
    pub overtaken: u64,
    /// How long the first has waited, in seconds.
    #[field(6)]
    pub seconds: f64,
    /// Why, for people.
    #[field(7)]
    pub why: String,
}

/// A job whose driver is or was connected.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectedJob {
    /// The job.
    #[field(1)]
    pub job_id: JobId,
    /// Its driver's process.
    #[field(2)]
    pub pid: u32,
    /// Where the names of its actors live.
    #[field(3)]
    pub namespace: String,
    /// Whether its driver is gone.
    #[field(4)]
    pub ended: bool,
}

/// How a node is being emptied.
#[derive(Debug, Clone, PartialEq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainState {
    /// Why, in the words of who asked for it.
    #[field(1)]
    pub reason: String,
    /// The seconds until the node ends whatever is left there; nothing without a deadline.
    #[field(2)]
    pub deadline_s: Option<f64>,
    /// What is left there.
    #[field(3)]
    pub left: Option<LeftOnNode>,
    /// All of that as a sentence.
    #[field(4)]
    pub words: String,
}

/// How much keeps a node that is being emptied from ending.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftOnNode {
    /// Workers on tasks, or between two of them.
    #[field(1)]
    pub tasks: u64,
    /// Actors.
    #[field(2)]
    pub actors: u64,
    /// Drivers that joined there.
    #[field(3)]
    pub programs: u64,
    /// Bundles of placement groups.
    #[field(4)]
    pub bundles: u64,
    /// Objects of which there is no other copy.
    #[field(5)]
    pub objects: u64,
}

/// What came of an order to empty a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainTold {
    /// The node that was meant.
    #[field(1)]
    pub node_id: NodeId,
    /// Whether it is being emptied now.
    #[field(2)]
    pub draining: bool,
    /// What is left there; nothing where it is kept.
    #[field(3)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<LeftOnNode>,
}

/// The object store of the head's machine; sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct StoreState {
    /// What it may hold.
    #[field(1)]
    pub capacity: u64,
    /// What objects take.
    #[field(2)]
    pub used: u64,
    /// What is kept for the next object.
    #[field(3)]
    pub pooled: u64,
    /// What was written to disk.
    #[field(4)]
    pub spilled: u64,
    /// How many objects there are.
    #[field(5)]
    pub objects: u64,
    /// How many memory files and files on disk clients have mapped.
    #[field(6)]
    pub files: u64,
    /// How many objects the head knows, wherever they lie.
    #[field(7)]
    pub published: u64,
}

/// One bound on memory: the machine's size, or a control group's limit; sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryLevel {
    /// The file that says so.
    #[field(1)]
    pub source: String,
    /// What may be used.
    #[field(2)]
    pub limit: u64,
    /// What is in use and cannot be dropped by the kernel (LIMITS-2 in `node`).
    #[field(3)]
    pub used: u64,
    /// What is in use by memory files, such as those of object stores.
    #[field(4)]
    pub shared: u64,
    /// The share of the last ten seconds in which all work waited for memory, in thousandths, where the kernel tells.
    #[field(5)]
    pub stalled: Option<u32>,
}

impl MemoryLevel {
    /// Bytes that are left.
    pub fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

/// What limits workers, or why nothing does, for people.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerLimits {
    /// Their memory.
    #[field(1)]
    pub memory: String,
    /// How many processes each may have.
    #[field(2)]
    pub processes: String,
}

/// The head's daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct DaemonState {
    /// Its process.
    #[field(1)]
    pub pid: u32,
    /// The memory that it takes, in bytes.
    #[field(2)]
    pub resident_bytes: u64,
    /// Its session's directory.
    #[field(3)]
    pub session: String,
    /// The address that `init(address=…)` takes.
    #[field(4)]
    pub address: String,
    /// What its user should know.
    #[field(5)]
    pub warnings: Vec<String>,
    /// How long the turns of its loop took.
    #[field(6)]
    pub turns: Option<TurnFigures>,
    /// What its user should know now, and what ends by itself.
    #[field(7)]
    pub alerts: Vec<String>,
}

/// How long the turns of the daemon's loop took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnFigures {
    /// How many turns there were.
    #[field(1)]
    pub count: u64,
    /// 999 of 1,000 took no longer than this many microseconds.
    #[field(2)]
    pub p999_us: u64,
    /// The longest, in microseconds.
    #[field(3)]
    pub longest_us: u64,
}
