//! Workers and their daemon.

use super::{ActorCreate, Amount, Devices, Environment, Value, Variable, Welcome};
use bytes::Bytes;
use oxiray_fields::Fields;
use oxiray_ids::{ObjectId, PlacementGroupId, WorkerId};

/// daemon → worker, the first message on the control stream that a forked worker inherits, and again
/// when an idle worker is leased anew: who it is and what it may use. It is read and applied before
/// anything of the user's runs.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct Assign {
    /// `WorkerId` of the worker; the same for its life.
    #[field(1)]
    pub worker: WorkerId,
    /// Ids and addresses as the driver sees them, with the worker's own id.
    #[field(2)]
    pub welcome: Option<Welcome>,
    /// The driver's setup, see [`Driver::setup`].
    #[field(3)]
    pub setup: Bytes,
    /// Variables to set and remove: runtime environment first, device visibility after.
    #[field(4)]
    pub variables: Vec<Variable>,
    /// Devices granted.
    #[field(5)]
    pub devices: Vec<Devices>,
    /// Everything granted.
    #[field(6)]
    pub resources: Vec<Amount>,
    /// The actor to become, for a worker that is to be one.
    #[field(7)]
    pub actor: Option<ActorCreate>,
    /// `WorkerId` of the job's driver.
    #[field(8)]
    pub driver: WorkerId,
    /// The runtime environment alone: what tasks made by this one start from.
    #[field(9)]
    pub environment: Option<Environment>,
    /// `PlacementGroupId` of the group that it runs in; empty for none.
    #[field(10)]
    pub group: Option<PlacementGroupId>,
    /// Whether what it makes runs in that group too.
    #[field(11)]
    pub captures: bool,
    /// The device nodes that it is kept from, where the kernel keeps it.
    #[field(12)]
    pub fence: Option<Fence>,
    /// How urgent what it runs is, and so what that calls, unless something else is said of it.
    #[field(13)]
    pub priority: i32,
    /// Whether it may be told to end early for what is more urgent.
    #[field(14)]
    pub preemptible: bool,
    /// The processors that it is to run on, near its devices, as the kernel writes such lists; empty for any.
    #[field(15)]
    pub cpus: String,
}

/// Device nodes that a worker is kept from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Fence {
    /// The devices by number: a descriptor of one that the worker has inherited is closed.
    #[field(1)]
    pub denied: Vec<DeviceNumber>,
    /// The paths of their nodes, where the worker is to hold itself to a ruleset of Landlock that refuses them, whose descriptor
    /// comes with the message; empty where its cgroup refuses them.
    #[field(2)]
    pub paths: Vec<String>,
}

/// A character device as the kernel knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Fields)]
pub struct DeviceNumber {
    /// The driver's number.
    #[field(1)]
    pub major: u32,
    /// The driver's number for the device.
    #[field(2)]
    pub minor: u32,
}

/// daemon → worker, with a stream: a client that may call this worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Peer {
    /// `WorkerId` of the client.
    #[field(1)]
    pub client: WorkerId,
}

/// worker → daemon: its task waits for a value; its CPU may be lent meanwhile (its devices not).
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Blocked {}

/// worker → daemon: the wait is over.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Unblocked {}

/// worker → daemon: its work is done, and it stays until the tasks that it made have ended: its CPUs may be lent, and it is
/// not to be killed for taking long.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Lingers {}

/// worker → daemon: code that it ran raised an error of a device, as CUDA's are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct DeviceErrorRaised {
    /// What the error says.
    #[field(1)]
    pub text: String,
}

/// worker → its machine: what do its devices' drivers say went wrong on them while a call of its ran, which raised?
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct DeviceErrorsQuery {
    /// Names the question in its answer.
    #[field(1)]
    pub request: u64,
    /// For how long the call has run.
    #[field(2)]
    pub lasted_ms: u64,
}

/// machine → worker: the answer to a [`DeviceErrorsQuery`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct DeviceErrors {
    /// Names the question.
    #[field(1)]
    pub request: u64,
    /// Each error that a driver reported of its devices in that time, for people; empty for none.
    #[field(2)]
    pub texts: Vec<String>,
}

/// worker → daemon: the actor's constructor returned.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ActorReady {
    /// How the actor names itself; empty where it goes by its class.
    #[field(1)]
    pub repr_name: String,
    /// Its runtime environment as JSON; empty for none.
    #[field(2)]
    pub environment: String,
}

/// worker → daemon: the actor's constructor failed; the worker exits.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct ActorFailed {
    /// `Raised` or `Failed`.
    #[field(1)]
    pub error: Option<Value>,
}

/// worker → daemon: stored bytes that the actor's constructor was given are lost, and it waits for them. Where they are made
/// again, the process is ended, and the actor waits for them without one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ArgumentLost {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
}

/// worker → daemon: the actor ends itself; the worker exits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ActorLeaving {
    /// Why, in words.
    #[field(1)]
    pub text: String,
    /// Whether nobody meant it to end, so that it is made anew where it has restarts left.
    #[field(2)]
    pub unintended: bool,
}
