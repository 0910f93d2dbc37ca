//! Leases: owner and daemon.

use super::{Amount, Environment, Failure, Strategy};
use bytes::Bytes;

/// owner → daemon: a worker is wanted.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseRequest {
    /// Names the request; counted by the owner.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// What its tasks need.
    #[prost(message, repeated, tag = "2")]
    pub demand: Vec<Amount>,
    /// The runtime environment on top of the job's.
    #[prost(message, optional, tag = "3")]
    pub environment: Option<Environment>,
    /// Whether the worker must not have run anything before.
    #[prost(bool, tag = "4")]
    pub fresh: bool,
    /// What waits, in words: a function's name.
    #[prost(string, tag = "5")]
    pub label: String,
    /// Where the worker is wanted.
    #[prost(message, optional, tag = "16")]
    pub strategy: Option<Strategy>,
    /// The large objects that its tasks read.
    #[prost(message, repeated, tag = "17")]
    pub arguments: Vec<LargeArgument>,
    /// Whether its tasks may be run again.
    #[prost(bool, tag = "33")]
    pub may_repeat: bool,
}

/// A large object that a task reads.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LargeArgument {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
    /// How many bytes it has.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
}

/// owner → daemon: the request is no longer needed. A grant may have crossed it and must be returned.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaseCancel {
    /// The request.
    #[prost(uint64, tag = "1")]
    pub request: u64,
}

/// daemon → owner, with the stream to the worker: it is the owner's until returned.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaseGranted {
    /// The request met.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// Names the lease; counted by the daemon.
    #[prost(uint64, tag = "2")]
    pub lease: u64,
    /// `WorkerId` of the worker.
    #[prost(bytes = "bytes", tag = "3")]
    pub worker: Bytes,
    /// Whether there is no other node: where arguments lie makes no difference.
    #[prost(bool, tag = "4")]
    pub is_alone: bool,
    /// Whether both ends of the stream are on one machine, with no gateway between.
    #[prost(bool, tag = "5")]
    pub is_near: bool,
}

/// daemon → owner: the request can never be met.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaseRefused {
    /// The request.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// Why: codes `task_unschedulable`, `runtime_env`.
    #[prost(message, optional, tag = "2")]
    pub failure: Option<Failure>,
}

/// owner → daemon: the lease is over; nothing of it runs any more.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaseReturn {
    /// The lease.
    #[prost(uint64, tag = "1")]
    pub lease: u64,
    /// Whether the worker said that it exits: nobody else is to have it.
    #[prost(bool, tag = "2")]
    pub retiring: bool,
}

/// daemon → owner: others wait; idle leases are to be returned now.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaseReclaim {}

/// daemon → owner: the lease's worker is gone before the lease was returned. The verdict for every
/// call that was under way on it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaseEnded {
    /// The lease.
    #[prost(uint64, tag = "1")]
    pub lease: u64,
    /// How the process ended, in words: "killed by signal 9 (SIGKILL)", "exited with status 3".
    #[prost(string, tag = "2")]
    pub text: String,
    /// Whether it died with its node.
    #[prost(bool, tag = "16")]
    pub node_died: bool,
    /// What the call that ran ends with whatever retries it has left, where that is decided: code
    /// `task_placement_group_removed`.
    #[prost(message, optional, tag = "10")]
    pub failure: Option<Failure>,
    /// Whether its node was emptied and its time was over: what ran is run again without that being counted.
    #[prost(bool, tag = "17")]
    pub was_drained: bool,
    /// Whether it ended for want of memory, which `text` tells of then.
    #[prost(enumeration = "OutOfMemory", tag = "33")]
    pub out_of_memory: i32,
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
}
