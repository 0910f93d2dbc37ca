//! Several nodes: the head and its members, and nodes among each other.
//!
//! A member tells the head what its ledger has, and is given *orders* to place work, which its own ledger grants or
//! refuses. Its workers are clients of the head like all others, whose messages the member passes on.

use super::{
    ActorCreate, Amount, BundleAsked, BundleFree, BundleName, ConnectionTicket, Driver, Environment, Failure,
    OutOfMemory,
};
use crate::state::{
    DaemonStatistics, DeviceCondition, DeviceFiles, DeviceIsolation, DeviceMemory, NodeIsolation, NodeStatistics,
};
use bytes::Bytes;
use oxiray_fields::Fields;
use oxiray_ids::{ActorId, BundleNumber, JobId, NodeId, PlacementGroupId, WorkerId, WorkerNumber};
use serde::{Deserialize, Serialize};

/// What a node says in its [`Hello`](super::Hello).
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Newcomer {
    /// Its process id; checked against the socket's.
    #[field(1)]
    pub pid: u32,
}

/// head → member: let in. It describes itself with [`NodeJoin`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct NodeAdmitted {
    /// An address on this machine that no other node of the cluster has.
    #[field(1)]
    pub ip: String,
    /// The cluster's address.
    #[field(2)]
    pub address: String,
    /// `NodeId` of the head.
    #[field(3)]
    pub head: Option<NodeId>,
    /// After how long without a word the member is given up, in milliseconds; 0 on the head's own machine, where the
    /// member's process is watched instead.
    #[field(4)]
    pub lease_ms: u64,
    /// Counts the heads of this cluster; 0 where the end of this one is final.
    #[field(5)]
    pub epoch: u64,
    /// Whether the head keeps what tasks printed last that failed on the member.
    #[field(6)]
    pub keeps_logs: bool,
}

/// member → head: what it is. From here on it is given orders.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct NodeJoin {
    /// `NodeId`.
    #[field(1)]
    pub node: NodeId,
    /// Its address.
    #[field(2)]
    pub ip: String,
    /// The host's name.
    #[field(3)]
    pub hostname: String,
    /// Its labels.
    #[field(4)]
    pub labels: std::collections::BTreeMap<String, String>,
    /// What it offers when nothing runs on it.
    #[field(5)]
    pub totals: Vec<Amount>,
    /// What it has now.
    #[field(6)]
    pub state: Option<NodeState>,
    /// Its session's directory.
    #[field(7)]
    pub session: String,
    /// Its name in listings.
    #[field(8)]
    pub name: String,
    /// Where other nodes reach it, as `IP:PORT`; empty on the head's own machine.
    #[field(9)]
    pub listens: String,
    /// When its daemon began, in milliseconds since 1970.
    #[field(11)]
    pub started_ms: u64,
    /// How large its devices are and what they are called, where that is known.
    #[field(12)]
    pub device_sizes: Vec<DeviceSizes>,
    /// The version of its daemon.
    #[field(13)]
    pub version: String,
    /// How near its devices are to each other, of resources where that makes a difference for who gets which.
    #[field(14)]
    pub nearness: Vec<DeviceNearness>,
}

/// How near the devices of one resource are to each other.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct DeviceNearness {
    /// The resource.
    #[field(1)]
    pub resource: String,
    /// Of each device, by its number, the number of the first one that is on the same NUMA node; nothing where they are too many to
    /// tell.
    #[field(2)]
    pub numa: Vec<u32>,
    /// How near each two are, row by row: the larger the nearer.
    #[field(3)]
    pub near: Vec<u32>,
}

/// How large the devices of one resource are, and what they are called.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct DeviceSizes {
    /// The resource.
    #[field(1)]
    pub resource: String,
    /// Bytes of each, by its number; 0 where they are not known.
    #[field(2)]
    pub bytes: Vec<u64>,
    /// The UUID of each, or what the variable that shows devices to programs calls it; empty where that is its number.
    #[field(3)]
    pub ids: Vec<String>,
    /// From which number on they were declared without being there; nothing where all are there.
    #[field(4)]
    pub logical_from: Option<u32>,
    /// The key of the family of accelerators that they are of; empty where the node does not say.
    #[field(5)]
    pub family: String,
    /// The files of each, by its number; nothing where none are known.
    #[field(6)]
    pub files: Vec<DeviceFiles>,
}

/// member → head: its ledger changed.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct NodeState {
    /// The last order that is part of this.
    #[field(1)]
    pub order: u64,
    /// What is free of resources that are no devices; nothing at zero.
    #[field(2)]
    pub free: Vec<Amount>,
    /// What is free of devices.
    #[field(3)]
    pub devices: Vec<DevicesFree>,
    /// Bytes of its object store that objects take.
    #[field(4)]
    pub store_used: u64,
    /// What is free within the bundles that are set aside: within all of them where a node describes itself, and otherwise
    /// within those that are new, or of which something was taken or given back, since the last state.
    #[field(5)]
    pub bundles: Vec<BundleFree>,
    /// How much devices are used; empty while nobody has one, and where nobody can tell.
    #[field(6)]
    pub uses: Vec<DeviceUse>,
    /// Bundles that are set aside no longer. One of `bundles` with the same name was set aside after that.
    #[field(7)]
    pub dissolved: Vec<BundleName>,
    /// What is to be known of devices besides: those that are out of service, and those that had errors or are misused.
    #[field(8)]
    pub conditions: Vec<DeviceCondition>,
    /// Who holds which parts of devices: all of that where a node describes itself, and otherwise what is new, changed or over
    /// since the last state.
    #[field(20)]
    pub holdings: Vec<DeviceHolding>,
    /// How the machine is, where it was measured anew.
    #[field(9)]
    pub statistics: Option<NodeStatistics>,
    /// The names of labels that it joined with and that do not hold for now.
    #[field(21)]
    pub withdrawn_labels: Vec<String>,
    /// How it keeps processes from devices; nothing where it has none.
    #[field(22)]
    pub isolation: Option<NodeIsolation>,
    /// How its daemon is, where the machine was measured anew.
    #[field(23)]
    pub daemon: Option<DaemonStatistics>,
}

/// A part of a device that is granted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct DeviceHolding {
    /// The resource.
    #[field(1)]
    pub resource: String,
    /// The device's number among those of its node.
    #[field(2)]
    pub slot: u32,
    /// Names the grant on its node.
    #[field(3)]
    pub grant: u64,
    /// How much of the device, in 1/10,000.
    #[field(4)]
    pub share: u64,
    /// How far it is.
    #[field(5)]
    pub phase: HoldingPhase,
    /// The worker; nothing where a bundle has it and nobody within.
    #[field(6)]
    pub worker: Option<WorkerId>,
    /// Its process; 0 where there is none yet.
    #[field(7)]
    pub pid: u32,
    /// The job that it works for.
    #[field(8)]
    pub job: Option<JobId>,
    /// The actor that it is.
    #[field(9)]
    pub actor: Option<ActorId>,
    /// The placement group whose bundle has it, where no worker has.
    #[field(10)]
    pub group: Option<PlacementGroupId>,
    /// The name of the task or class.
    #[field(11)]
    pub name: String,
    /// What keeps the worker from other devices; nothing where there is none, and where its node does not say.
    #[field(12)]
    pub isolation: Option<DeviceIsolation>,
    /// The memory of the device that it asked for, without what it uses of it; nothing where it asked for a share.
    #[field(13)]
    pub memory: Option<DeviceMemory>,
    /// The number of the bundle that has it, where no worker has.
    #[field(14)]
    pub bundle: Option<BundleNumber>,
    /// Why it is this device and not another one, in words.
    #[field(15)]
    pub choice: String,
}

/// How far a grant of a part of a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
pub enum HoldingPhase {
    /// It is held.
    Held = 0,
    /// Its holder ends or is dead, and the device may not have forgotten it.
    Returning = 1,
    /// It was given back.
    Over = 2,
}

/// How much a device is used at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceUse {
    /// The resource.
    #[field(1)]
    pub resource: String,
    /// What the variable that shows devices to programs calls it.
    #[field(2)]
    pub id: String,
    /// The part of the last moments in which it computed, in percent.
    #[field(3)]
    pub busy_percent: Option<u32>,
    /// Bytes of its memory that are taken, by whomever.
    #[field(4)]
    pub used_bytes: Option<u64>,
    /// Bytes of its memory.
    #[field(5)]
    pub total_bytes: Option<u64>,
    /// Its number on the node.
    #[field(6)]
    pub slot: u32,
    /// The power that it draws, in milliwatts.
    #[field(7)]
    pub power_mw: Option<u32>,
    /// How warm it is, in degrees Celsius.
    #[field(8)]
    pub temperature_c: Option<u32>,
    /// The processes of the node that have some of its memory, where that is told.
    #[field(9)]
    pub processes: Vec<ProcessUse>,
    /// What those have of its memory that asked for some of it, where that is told.
    #[field(10)]
    #[serde(skip)]
    pub grants: Vec<GrantUse>,
}

/// What who has a grant of a device, and all that it started, has of the device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Fields)]
pub struct GrantUse {
    /// Names the grant on its node.
    #[field(1)]
    pub grant: u64,
    /// Bytes.
    #[field(2)]
    pub bytes: u64,
}

/// What a process has of a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessUse {
    /// The process.
    #[field(1)]
    pub pid: u32,
    /// Bytes.
    #[field(2)]
    pub bytes: u64,
    /// The part of the last moments in which the device computed for it, in percent, where that is told.
    #[field(3)]
    pub busy_percent: Option<u32>,
}

/// The devices of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct DevicesFree {
    /// The resource.
    #[field(1)]
    pub resource: String,
    /// What each device has free, in 1/10,000, plus one; 0 where it is out of service.
    #[field(2)]
    pub free: Vec<u64>,
    /// The number of each on its node, where these are the devices of a bundle.
    #[field(3)]
    pub numbers: Vec<u32>,
    /// Bytes of memory that each has free; left out where that is what its free share stands for.
    #[field(4)]
    pub free_bytes: Vec<u64>,
    /// The places in `free` of those that are granted only one at a time, since their links to others are not to be used.
    #[field(5)]
    pub single: Vec<u32>,
    /// The numbers of those in service of whose health the node's driver tells, and which are well; not of a bundle.
    #[field(6)]
    pub healthy: Vec<u32>,
}

/// Both ways between head and member: what a worker of the member said, or is told. Its descriptors come along.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Relay {
    /// The worker, as its node counts.
    #[field(1)]
    pub worker: WorkerNumber,
    /// The message's kind.
    #[field(2)]
    pub kind: u32,
    /// The message's body.
    #[field(3)]
    pub body: Bytes,
    /// What stands for the descriptor of a stream where descriptors do not travel.
    #[field(4)]
    pub connection_ticket: Option<ConnectionTicket>,
}

/// head → member: a job that orders will name.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct JobAnnounced {
    /// `JobId`.
    #[field(1)]
    pub job: JobId,
    /// `WorkerId` of its driver.
    #[field(2)]
    pub driver_id: WorkerId,
    /// What its driver told of itself, the namespace made definite.
    #[field(3)]
    pub driver: Option<Driver>,
}

/// head → member: the job is over; nothing more is placed for it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct JobOver {
    /// `JobId`.
    #[field(1)]
    pub job: JobId,
}

/// head → member: have a worker for this. Answered by [`Placed`] or [`PlaceRefused`].
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct Place {
    /// Names the order; later ones are larger.
    #[field(1)]
    pub order: u64,
    /// `JobId`.
    #[field(2)]
    pub job: JobId,
    /// What is to be granted.
    #[field(3)]
    pub demand: Vec<Amount>,
    /// What an actor keeps of it once its constructor returned.
    #[field(4)]
    pub running: Vec<Amount>,
    /// The runtime environment on top of the job's.
    #[field(5)]
    pub environment: Option<Environment>,
    /// The task's or class's name.
    #[field(6)]
    pub label: String,
    /// Whether the worker must not have run anything before.
    #[field(7)]
    pub fresh: bool,
    /// Whether it works for a detached actor.
    #[field(8)]
    pub outlives_job: bool,
    /// The actor to become.
    #[field(9)]
    pub actor: Option<ActorCreate>,
    /// The command that starts interpreters in the environment, where one was made for it.
    #[field(10)]
    pub command: Vec<String>,
    /// `PlacementGroupId` where it runs within a group; else empty.
    #[field(11)]
    pub group: Option<PlacementGroupId>,
    /// The bundle in its group that gives what is granted, or what others do not.
    #[field(12)]
    pub bundle: BundleNumber,
    /// Whether what it makes runs in its group too.
    #[field(13)]
    pub captures: bool,
    /// `WorkerId` of who leases it; empty for an actor.
    #[field(33)]
    pub owner: Option<WorkerId>,
    /// Whether what runs on it may be run again.
    #[field(34)]
    pub may_repeat: bool,
    /// Other bundles of its group that give a part of it, each once, and how much each.
    #[field(35)]
    pub further: Vec<BundleAsked>,
    /// How urgent what runs on it is, and so what that calls.
    #[field(36)]
    pub priority: i32,
    /// Whether it may end early for what is more urgent.
    #[field(37)]
    pub preemptible: bool,
}

/// head → member on its machine: an environment that tasks of the job will need is made, and their template may start.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct EnvironmentMade {
    /// `JobId`.
    #[field(1)]
    pub job: JobId,
    /// The environment.
    #[field(2)]
    pub environment: Option<Environment>,
    /// The command that starts interpreters in it; empty for the driver's own interpreter.
    #[field(3)]
    pub command: Vec<String>,
}

/// member → head: the worker serves nobody after what it is on, since its processes met their limit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct WorkerSpent {
    /// The worker, as its node counts.
    #[field(1)]
    pub worker: WorkerNumber,
}

/// member → head: the order is granted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Placed {
    /// The order.
    #[field(1)]
    pub order: u64,
    /// The worker, as its node counts.
    #[field(2)]
    pub worker: WorkerNumber,
    /// `WorkerId`.
    #[field(3)]
    pub id: WorkerId,
    /// Its process id; 0 until [`WorkerForked`].
    #[field(4)]
    pub pid: u32,
    /// Whether it must end with what it was placed for.
    #[field(5)]
    pub once: bool,
    /// The devices that it was granted, where it may end early: what would be free then.
    #[field(6)]
    pub devices: Vec<DeviceNumbers>,
}

/// Which devices of a resource are granted to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct DeviceNumbers {
    /// The resource.
    #[field(1)]
    pub resource: String,
    /// Their numbers on their node.
    #[field(2)]
    pub numbers: Vec<u32>,
}

/// member → head: there is no room after all, the job is unknown, or its environment cannot be made there.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct PlaceRefused {
    /// The order.
    #[field(1)]
    pub order: u64,
    /// What the ledger has instead.
    #[field(2)]
    pub state: Option<NodeState>,
    /// Why it is not to be tried again, here or elsewhere.
    #[field(3)]
    pub failure: Option<Failure>,
}

/// head → member: the worker's lease is over; it is idle.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct WorkerReturn {
    /// The worker, as its node counts.
    #[field(1)]
    pub worker: WorkerNumber,
}

/// head → member: end the worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct WorkerKill {
    /// The worker, as its node counts.
    #[field(1)]
    pub worker: WorkerNumber,
}

/// member → head: the worker has its process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct WorkerForked {
    /// The worker, as its node counts.
    #[field(1)]
    pub worker: WorkerNumber,
    /// Its process id.
    #[field(2)]
    pub pid: u32,
}

/// member → head: the worker is dead; what it held is not free yet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct WorkerDied {
    /// The worker, as its node counts.
    #[field(1)]
    pub worker: WorkerNumber,
    /// How, in words.
    #[field(2)]
    pub text: String,
    /// Whether it ended for want of memory.
    #[field(33)]
    pub out_of_memory: OutOfMemory,
    /// Whether its node ended it for a device that it had open and was not granted, which `text` tells of then.
    #[field(34)]
    pub is_violation: bool,
    /// Whether the hardware of a device that it had failed just before, which `text` tells of then.
    #[field(35)]
    pub is_device_failure: bool,
    /// Whether a device that it had reported just before an error that applications cause, which `text` tells of then.
    #[field(36)]
    pub is_device_error: bool,
}

/// member → head: the worker and everything that descends from it are dead and reaped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct WorkerGone {
    /// The worker, as its node counts.
    #[field(1)]
    pub worker: WorkerNumber,
    /// How, in words.
    #[field(2)]
    pub text: String,
    /// Whether its node ended it because more workers were idle than are kept.
    #[field(3)]
    pub is_surplus: bool,
}
