//! A head that came back: nodes and clients tell it what they have.
//!
//! Members first say what runs and lies there ([`NodeResume`]). Then each client begins with [`ClientResume`] and says
//! the rest in the words that it always uses: what it promises, holds, publishes, waits for and asks. References that
//! were on their way between clients meanwhile are told apart by [`Resumed`] (decision 9).

use super::{Amount, DeviceNumbers, NodeJoin};
use oxiray_fields::Fields;
use oxiray_ids::{ActorId, JobId, LeaseNumber, ObjectId, PlacementGroupId, WorkerId, WorkerNumber};

/// member → worker: a head is there again. What the worker said to the last one, and was not answered, is not known to
/// it. Answered by [`ClientResume`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct HeadBack {
    /// Counts the heads of this cluster.
    #[field(1)]
    pub epoch: u64,
}

/// client → head, the first that it says to a head that came back: what it has of others.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct ClientResume {
    /// The head that it is for.
    #[field(1)]
    pub epoch: u64,
    /// The workers that it leases.
    #[field(2)]
    pub leases: Vec<LeaseHeld>,
    /// `ActorId`s of the actors that it has a stream to.
    #[field(3)]
    pub actors: Vec<ActorId>,
}

/// A lease that goes on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct LeaseHeld {
    /// The lease, as the last head named it.
    #[field(1)]
    pub lease: LeaseNumber,
    /// `WorkerId`.
    #[field(2)]
    pub worker: WorkerId,
}

/// client → client, on each stream between them: what the sender handed on before this was counted by a head that is
/// gone, and what comes behind it by the one of that epoch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Resumed {
    /// Counts the heads of this cluster.
    #[field(1)]
    pub epoch: u64,
}

/// client → head: every stream that the client had when it resumed has brought [`Resumed`] or is over, so that nothing
/// is on its way to it that no head has counted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ClientSettled {
    /// The head that it is for.
    #[field(1)]
    pub epoch: u64,
}

/// member → head, in place of [`NodeJoin`]: a node that served the last head, and what it has of it.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct NodeResume {
    /// What it is.
    #[field(1)]
    pub node: Option<NodeJoin>,
    /// Its workers, those that are ending included.
    #[field(2)]
    pub workers: Vec<WorkerHeld>,
    /// `ObjectId`s of what lies in its store.
    #[field(3)]
    pub stored: Vec<ObjectId>,
    /// `JobId`s of the jobs that it was told of.
    #[field(4)]
    pub jobs: Vec<JobId>,
    /// Those of its workers that may end early for what is more urgent.
    #[field(5)]
    pub preemptible: Vec<PreemptibleWorker>,
}

/// A worker of a member.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct WorkerHeld {
    /// As its node counts.
    #[field(1)]
    pub number: WorkerNumber,
    /// `WorkerId`.
    #[field(2)]
    pub id: WorkerId,
    /// Its process id; 0 while it is being forked.
    #[field(3)]
    pub pid: u32,
    /// `JobId`.
    #[field(4)]
    pub job: JobId,
    /// Whether it is on a lease.
    #[field(5)]
    pub is_leased: bool,
    /// `ActorId` of the actor that it is; empty for none.
    #[field(6)]
    pub actor: Option<ActorId>,
    /// Whether that actor's constructor returned.
    #[field(7)]
    pub is_ready: bool,
    /// Whether it serves nobody else afterwards.
    #[field(8)]
    pub once: bool,
    /// Whether it goes on when its job is over.
    #[field(9)]
    pub outlives_job: bool,
    /// Its name in listings.
    #[field(10)]
    pub label: String,
    /// `PlacementGroupId` of the group that it runs in; empty for none.
    #[field(11)]
    pub group: Option<PlacementGroupId>,
    /// Whether what it makes runs in that group too.
    #[field(12)]
    pub captures: bool,
    /// What it was granted.
    #[field(13)]
    pub holds: Vec<Amount>,
    /// Whether it lends its processors while it waits for what it called.
    #[field(14)]
    pub lends_cpu: bool,
    /// How urgent what it runs is.
    #[field(15)]
    pub priority: i32,
}

/// A worker of a member that may end early for what is more urgent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct PreemptibleWorker {
    /// As its node counts.
    #[field(1)]
    pub number: WorkerNumber,
    /// The devices that it was granted.
    #[field(2)]
    pub devices: Vec<DeviceNumbers>,
}

/// What a driver says in its [`Hello`](super::Hello) that was let in before, by a head that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Returning {
    /// `WorkerId`.
    #[field(1)]
    pub worker: WorkerId,
    /// `JobId`.
    #[field(2)]
    pub job: JobId,
    /// The last head that it knew.
    #[field(3)]
    pub epoch: u64,
}
