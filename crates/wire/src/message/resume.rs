//! A head that came back: nodes and clients tell it what they have.
//!
//! Members first say what runs and lies there ([`NodeResume`]). Then each client begins with [`ClientResume`] and says
//! the rest in the words that it always uses: what it promises, holds, publishes, waits for and asks. References that
//! were on their way between clients meanwhile are told apart by [`Resumed`] (decision 9).

use super::{Amount, NodeJoin};
use bytes::Bytes;

/// member → worker: a head is there again. What the worker said to the last one, and was not answered, is not known to
/// it. Answered by [`ClientResume`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HeadBack {
    /// Counts the heads of this cluster.
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
}

/// client → head, the first that it says to a head that came back: what it has of others.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClientResume {
    /// The head that it is for.
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
    /// The workers that it leases.
    #[prost(message, repeated, tag = "2")]
    pub leases: Vec<LeaseHeld>,
    /// `ActorId`s of the actors that it has a stream to.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub actors: Vec<Bytes>,
}

/// A lease that goes on.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaseHeld {
    /// The lease, as the last head named it.
    #[prost(uint64, tag = "1")]
    pub lease: u64,
    /// `WorkerId`.
    #[prost(bytes = "bytes", tag = "2")]
    pub worker: Bytes,
}

/// client → client, on each stream between them: what the sender handed on before this was counted by a head that is
/// gone, and what comes behind it by the one of that epoch.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Resumed {
    /// Counts the heads of this cluster.
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
}

/// client → head: every stream that the client had when it resumed has brought [`Resumed`] or is over, so that nothing
/// is on its way to it that no head has counted.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ClientSettled {
    /// The head that it is for.
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
}

/// member → head, in place of [`NodeJoin`]: a node that served the last head, and what it has of it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeResume {
    /// What it is.
    #[prost(message, optional, tag = "1")]
    pub node: Option<NodeJoin>,
    /// Its workers, those that are ending included.
    #[prost(message, repeated, tag = "2")]
    pub workers: Vec<WorkerHeld>,
    /// `ObjectId`s of what lies in its store.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub stored: Vec<Bytes>,
    /// `JobId`s of the jobs that it was told of.
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub jobs: Vec<Bytes>,
}

/// A worker of a member.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WorkerHeld {
    /// As its node counts.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// `WorkerId`.
    #[prost(bytes = "bytes", tag = "2")]
    pub id: Bytes,
    /// Its process id; 0 while it is being forked.
    #[prost(uint32, tag = "3")]
    pub pid: u32,
    /// `JobId`.
    #[prost(bytes = "bytes", tag = "4")]
    pub job: Bytes,
    /// Whether it is on a lease.
    #[prost(bool, tag = "5")]
    pub is_leased: bool,
    /// `ActorId` of the actor that it is; empty for none.
    #[prost(bytes = "bytes", tag = "6")]
    pub actor: Bytes,
    /// Whether that actor's constructor returned.
    #[prost(bool, tag = "7")]
    pub is_ready: bool,
    /// Whether it serves nobody else afterwards.
    #[prost(bool, tag = "8")]
    pub once: bool,
    /// Whether it goes on when its job is over.
    #[prost(bool, tag = "9")]
    pub outlives_job: bool,
    /// Its name in listings.
    #[prost(string, tag = "10")]
    pub label: String,
    /// `PlacementGroupId` of the group that it runs in; empty for none.
    #[prost(bytes = "bytes", tag = "11")]
    pub group: Bytes,
    /// Whether what it makes runs in that group too.
    #[prost(bool, tag = "12")]
    pub captures: bool,
    /// What it was granted.
    #[prost(message, repeated, tag = "13")]
    pub holds: Vec<Amount>,
    /// Whether it lends its processors while it waits for what it called.
    #[prost(bool, tag = "14")]
    pub lends_cpu: bool,
}

/// What a driver says in its [`Hello`](super::Hello) that was let in before, by a head that is gone.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Returning {
    /// `WorkerId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub worker: Bytes,
    /// `JobId`.
    #[prost(bytes = "bytes", tag = "2")]
    pub job: Bytes,
    /// The last head that it knew.
    #[prost(uint64, tag = "3")]
    pub epoch: u64,
}
