//! Leases: owner and daemon.

use super::{Amount, Environment, Failure, Strategy};
use oxiray_fields::Fields;
use oxiray_ids::{LeaseNumber, LeaseRequestNumber, ObjectId, WorkerId};

/// owner → daemon: a worker is wanted.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct LeaseRequest {
    /// Names the request; counted by the owner.
    #[field(1)]
    pub request: LeaseRequestNumber,
    /// What its tasks need.
    #[field(2)]
    pub demand: Vec<Amount>,
    /// The runtime environment on top of the job's.
    #[field(3)]
    pub environment: Option<Environment>,
    /// Whether the worker must not have run anything before.
    #[field(4)]
    pub fresh: bool,
    /// What waits, in words: a function's name.
    #[field(5)]
    pub label: String,
    /// Where the worker is wanted.
    #[field(16)]
    pub strategy: Option<Strategy>,
    /// The large objects that its tasks read.
    #[field(17)]
    pub arguments: Vec<LargeArgument>,
    /// Whether its tasks may be run again.
    #[field(33)]
    pub may_repeat: bool,
    /// How urgent they are; the higher one goes first.
    #[field(34)]
    pub priority: i32,
    /// Whether they may end early for what is more urgent; they are run again then, which is not counted.
    #[field(35)]
    pub preemptible: bool,
}

/// A large object that a task reads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct LargeArgument {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
    /// How many bytes it has.
    #[field(2)]
    pub bytes: u64,
}

/// owner → daemon: the request is no longer needed. A grant may have crossed it and must be returned.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct LeaseCancel {
    /// The request.
    #[field(1)]
    pub request: LeaseRequestNumber,
}

/// daemon → owner, with the stream to the worker: it is the owner's until returned.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct LeaseGranted {
    /// The request met.
    #[field(1)]
    pub request: LeaseRequestNumber,
    /// Names the lease; counted by the daemon.
    #[field(2)]
    pub lease: LeaseNumber,
    /// `WorkerId` of the worker.
    #[field(3)]
    pub worker: WorkerId,
    /// Whether there is no other node: where arguments lie makes no difference.
    #[field(4)]
    pub is_alone: bool,
    /// Whether both ends of the stream are on one machine, with no gateway between.
    #[field(5)]
    pub is_near: bool,
}

/// daemon → owner: the request can never be met.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct LeaseRefused {
    /// The request.
    #[field(1)]
    pub request: LeaseRequestNumber,
    /// Why: codes `task_unschedulable`, `runtime_env`.
    #[field(2)]
    pub failure: Option<Failure>,
}

/// owner → daemon: the lease is over; nothing of it runs any more.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct LeaseReturn {
    /// The lease.
    #[field(1)]
    pub lease: LeaseNumber,
    /// Whether the worker said that it exits: nobody else is to have it.
    #[field(2)]
    pub retiring: bool,
}

/// daemon → owner: others wait; idle leases are to be returned now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct LeaseReclaim {}

/// daemon → owner: the lease's worker is gone before the lease was returned. The verdict for every
/// call that was under way on it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct LeaseEnded {
    /// The lease.
    #[field(1)]
    pub lease: LeaseNumber,
    /// How the process ended, in words: "killed by signal 9 (SIGKILL)", "exited with status 3".
    #[field(2)]
    pub text: String,
    /// Whether it died with its node.
    #[field(16)]
    pub node_died: bool,
    /// What the call that ran ends with whatever retries it has left, where that is decided: code
    /// `task_placement_group_removed`.
    #[field(10)]
    pub failure: Option<Failure>,
    /// Whether its node was emptied and its time was over: what ran is run again without that being counted.
    #[field(17)]
    pub was_drained: bool,
    /// Whether it ended for want of memory, which `text` tells of then.
    #[field(33)]
    pub out_of_memory: OutOfMemory,
    /// Whether the hardware of a device that it had failed: what ran is run again without that being counted, a few times.
    #[field(34)]
    pub is_device_failure: bool,
    /// Whether it ended early for what is more urgent: what ran is run again without that being counted.
    #[field(35)]
    pub was_preempted: bool,
}

/// Whether a worker ended for want of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum OutOfMemory {
    /// It did not.
    None = 0,
    /// Its node ended it. What it ran is to be run again when others have ended, without that being counted.
    Passing = 1,
    /// Its node ended it. What it ran needs more memory than there is, and is not run again.
    Lasting = 2,
    /// The kernel killed it, which counts as a death like others.
    Kernel = 3,
    /// Its node ended it, since it took more memory of a device than it asked for. What it ran is not run again.
    OfDevice = 4,
}
