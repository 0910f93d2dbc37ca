//! Several nodes: the head and its members, and nodes among each other.
//!
//! A member tells the head what its ledger has, and is given *orders* to place work, which its own ledger grants or
//! refuses. Its workers are clients of the head like all others, whose messages the member passes on.

use super::{ActorCreate, Amount, BundleFree, Draining, Driver, Environment, Failure, OutOfMemory, Splice};
use bytes::Bytes;

/// What a node says in its [`Hello`](super::Hello).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Newcomer {
    /// Its process id; checked against the socket's.
    #[prost(uint32, tag = "1")]
    pub pid: u32,
}

/// head → member: let in. It describes itself with [`NodeJoin`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeAdmitted {
    /// An address on this machine that no other node of the cluster has.
    #[prost(string, tag = "1")]
    pub ip: String,
    /// The cluster's address.
    #[prost(string, tag = "2")]
    pub address: String,
    /// `NodeId` of the head.
    #[prost(bytes = "bytes", tag = "3")]
    pub head: Bytes,
    /// After how long without a word the member is given up, in milliseconds; 0 on the head's own machine, where the
    /// member's process is watched instead.
    #[prost(uint64, tag = "4")]
    pub lease_ms: u64,
    /// Counts the heads of this cluster; 0 where the end of this one is final.
    #[prost(uint64, tag = "5")]
    pub epoch: u64,
}

/// member → head: what it is. From here on it is given orders.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeJoin {
    /// `NodeId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub node: Bytes,
    /// Its address.
    #[prost(string, tag = "2")]
    pub ip: String,
    /// The host's name.
    #[prost(string, tag = "3")]
    pub hostname: String,
    /// Its labels.
    #[prost(btree_map = "string, string", tag = "4")]
    pub labels: std::collections::BTreeMap<String, String>,
    /// What it offers when nothing runs on it.
    #[prost(message, repeated, tag = "5")]
    pub totals: Vec<Amount>,
    /// What it has now.
    #[prost(message, optional, tag = "6")]
    pub state: Option<NodeState>,
    /// Its session's directory.
    #[prost(string, tag = "7")]
    pub session: String,
    /// Its name in listings.
    #[prost(string, tag = "8")]
    pub name: String,
    /// Where other nodes reach it, as `IP:PORT`; empty on the head's own machine.
    #[prost(string, tag = "9")]
    pub listens: String,
    /// How it is being emptied, where another head had begun that.
    #[prost(message, optional, tag = "10")]
    pub draining: Option<Draining>,
}

/// member → head: its ledger changed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeState {
    /// The last order that is part of this.
    #[prost(uint64, tag = "1")]
    pub order: u64,
    /// What is free of resources that are no devices; nothing at zero.
    #[prost(message, repeated, tag = "2")]
    pub free: Vec<Amount>,
    /// What is free of devices.
    #[prost(message, repeated, tag = "3")]
    pub devices: Vec<DevicesFree>,
    /// Bytes of its object store that objects take.
    #[prost(uint64, tag = "4")]
    pub store_used: u64,
    /// What is free within each bundle that is set aside.
    #[prost(message, repeated, tag = "5")]
    pub bundles: Vec<BundleFree>,
    /// How much devices are used; empty while nobody has one, and where nobody can tell.
    #[prost(message, repeated, tag = "6")]
    pub uses: Vec<DeviceUse>,
}

/// How much a device is used at a moment.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeviceUse {
    /// The resource.
    #[prost(string, tag = "1")]
    pub resource: String,
    /// What the variable that shows devices to programs calls it.
    #[prost(string, tag = "2")]
    pub id: String,
    /// The part of the last moments in which it computed, in percent.
    #[prost(uint32, optional, tag = "3")]
    pub busy_percent: Option<u32>,
    /// Bytes of its memory that are taken, by whomever.
    #[prost(uint64, optional, tag = "4")]
    pub used_bytes: Option<u64>,
    /// Bytes of its memory.
    #[prost(uint64, optional, tag = "5")]
    pub total_bytes: Option<u64>,
}

/// The devices of one resource.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DevicesFree {
    /// The resource.
    #[prost(string, tag = "1")]
    pub resource: String,
    /// What each device has free, in 1/10,000, plus one; 0 where it is out of service.
    #[prost(uint64, repeated, tag = "2")]
    pub free: Vec<u64>,
    /// The number of each on its node, where these are the devices of a bundle.
    #[prost(uint32, repeated, tag = "3")]
    pub numbers: Vec<u32>,
}

/// Both ways between head and member: what a worker of the member said, or is told. Its descriptors come along.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Relay {
    /// The worker, as its node counts.
    #[prost(uint64, tag = "1")]
    pub worker: u64,
    /// The message's kind.
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    /// The message's body.
    #[prost(bytes = "bytes", tag = "3")]
    pub body: Bytes,
    /// What stands for the descriptor of a stream where descriptors do not travel.
    #[prost(message, optional, tag = "4")]
    pub splice: Option<Splice>,
}

/// head → member: a job that orders will name.
#[derive(Clone, PartialEq, prost::Message)]
pub struct JobTold {
    /// `JobId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub job: Bytes,
    /// `WorkerId` of its driver.
    #[prost(bytes = "bytes", tag = "2")]
    pub driver_id: Bytes,
    /// What its driver told of itself, the namespace made definite.
    #[prost(message, optional, tag = "3")]
    pub driver: Option<Driver>,
}

/// head → member: the job is over; nothing more is placed for it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct JobOver {
    /// `JobId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub job: Bytes,
}

/// head → member: have a worker for this. Answered by [`Placed`] or [`PlaceRefused`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Place {
    /// Names the order; later ones are larger.
    #[prost(uint64, tag = "1")]
    pub order: u64,
    /// `JobId`.
    #[prost(bytes = "bytes", tag = "2")]
    pub job: Bytes,
    /// What is to be granted.
    #[prost(message, repeated, tag = "3")]
    pub demand: Vec<Amount>,
    /// What an actor keeps of it once its constructor returned.
    #[prost(message, repeated, tag = "4")]
    pub running: Vec<Amount>,
    /// The runtime environment on top of the job's.
    #[prost(message, optional, tag = "5")]
    pub environment: Option<Environment>,
    /// The task's or class's name.
    #[prost(string, tag = "6")]
    pub label: String,
    /// Whether the worker must not have run anything before.
    #[prost(bool, tag = "7")]
    pub fresh: bool,
    /// Whether it works for a detached actor.
    #[prost(bool, tag = "8")]
    pub outlives_job: bool,
    /// The actor to become.
    #[prost(message, optional, tag = "9")]
    pub actor: Option<ActorCreate>,
    /// The command that starts interpreters in the environment, where one was made for it.
    #[prost(string, repeated, tag = "10")]
    pub command: Vec<String>,
    /// `PlacementGroupId` where it runs within a group; else empty.
    #[prost(bytes = "bytes", tag = "11")]
    pub group: Bytes,
    /// The bundle's place in its group, from 0.
    #[prost(uint32, tag = "12")]
    pub bundle: u32,
    /// Whether what it makes runs in its group too.
    #[prost(bool, tag = "13")]
    pub captures: bool,
    /// `WorkerId` of who leases it; empty for an actor.
    #[prost(bytes = "bytes", tag = "33")]
    pub owner: Bytes,
    /// Whether what runs on it may be run again.
    #[prost(bool, tag = "34")]
    pub may_repeat: bool,
}

/// head → member on its machine: an environment that tasks of the job will need is made, and their template may start.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EnvironmentMade {
    /// `JobId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub job: Bytes,
    /// The environment.
    #[prost(message, optional, tag = "2")]
    pub environment: Option<Environment>,
    /// The command that starts interpreters in it; empty for the driver's own interpreter.
    #[prost(string, repeated, tag = "3")]
    pub command: Vec<String>,
}

/// member → head: the worker serves nobody after what it is on, since its processes met their limit.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WorkerSpent {
    /// The worker, as its node counts.
    #[prost(uint64, tag = "1")]
    pub worker: u64,
}

/// member → head: the order is granted.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Placed {
    /// The order.
    #[prost(uint64, tag = "1")]
    pub order: u64,
    /// The worker, as its node counts.
    #[prost(uint64, tag = "2")]
    pub worker: u64,
    /// `WorkerId`.
    #[prost(bytes = "bytes", tag = "3")]
    pub id: Bytes,
    /// Its process id; 0 until [`WorkerForked`].
    #[prost(uint32, tag = "4")]
    pub pid: u32,
    /// Whether it must end with what it was placed for.
    #[prost(bool, tag = "5")]
    pub once: bool,
}

/// member → head: there is no room after all, the job is unknown, or its environment cannot be made there.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PlaceRefused {
    /// The order.
    #[prost(uint64, tag = "1")]
    pub order: u64,
    /// What the ledger has instead.
    #[prost(message, optional, tag = "2")]
    pub state: Option<NodeState>,
    /// Why it is not to be tried again, here or elsewhere.
    #[prost(message, optional, tag = "3")]
    pub failure: Option<Failure>,
}

/// head → member: the worker's lease is over; it is idle.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WorkerReturn {
    /// The worker, as its node counts.
    #[prost(uint64, tag = "1")]
    pub worker: u64,
}

/// head → member: end the worker.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WorkerKill {
    /// The worker, as its node counts.
    #[prost(uint64, tag = "1")]
    pub worker: u64,
}

/// member → head: the worker has its process.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WorkerForked {
    /// The worker, as its node counts.
    #[prost(uint64, tag = "1")]
    pub worker: u64,
    /// Its process id.
    #[prost(uint32, tag = "2")]
    pub pid: u32,
}

/// member → head: the worker is dead; what it held is not free yet.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WorkerDied {
    /// The worker, as its node counts.
    #[prost(uint64, tag = "1")]
    pub worker: u64,
    /// How, in words.
    #[prost(string, tag = "2")]
    pub text: String,
    /// Whether it ended for want of memory.
    #[prost(enumeration = "OutOfMemory", tag = "33")]
    pub out_of_memory: i32,
}

/// member → head: the worker and everything that descends from it are dead and reaped.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WorkerGone {
    /// The worker, as its node counts.
    #[prost(uint64, tag = "1")]
    pub worker: u64,
    /// How, in words.
    #[prost(string, tag = "2")]
    pub text: String,
}
