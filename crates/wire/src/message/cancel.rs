//! Calls that are not wanted any more.

use oxiray_fields::Fields;
use oxiray_ids::{ActorId, LeaseNumber, ObjectId, TaskId, WorkerId};

/// client → daemon → owner: whoever has a reference asks the owner to cancel the call that makes the object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct CancelObject {
    /// `ObjectId`; what makes it is the task that its id names.
    #[field(1)]
    pub object: ObjectId,
    /// `WorkerId` of the owner.
    #[field(2)]
    pub owner: Option<WorkerId>,
    /// Whether a worker that runs the task is killed.
    #[field(3)]
    pub force: bool,
    /// Whether what the task has called is cancelled too.
    #[field(4)]
    pub recursive: bool,
}

/// owner → daemon: the lease's worker is to be killed. Its end is answered as any worker's is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct LeaseKill {
    /// The lease.
    #[field(1)]
    pub lease: LeaseNumber,
}

/// owner → worker: a call sent on this stream is not wanted any more. One that has not begun is answered with the
/// failure `cancelled`; one that runs is interrupted; one that is over is no matter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Cancel {
    /// `TaskId`.
    #[field(1)]
    pub task: TaskId,
    /// Whether a worker that runs it kills itself; never asked of actors.
    #[field(2)]
    pub force: bool,
    /// Whether what it has called is cancelled too.
    #[field(3)]
    pub recursive: bool,
}

/// command line → head: kill an actor or cancel a task, by hand. Answered by a [`StateReport`](super::StateReport).
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct EndAsked {
    /// Names the question.
    #[field(1)]
    pub request: u64,
    /// `ActorId` of the actor that is killed, and is not made anew.
    #[field(2)]
    pub actor: Option<ActorId>,
    /// `TaskId` of the task whose owner is to cancel it; where no actor is named.
    #[field(3)]
    pub task: Option<TaskId>,
    /// Why, for people.
    #[field(4)]
    pub reason: String,
}
