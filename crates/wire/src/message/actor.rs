//! Actors: clients and daemon.

use super::{Amount, ArgumentReference, Environment, Failure, Reference, Strategy};
use bytes::Bytes;
use oxiray_fields::Fields;
use oxiray_ids::{ActorId, TaskId, WorkerId};

/// client → daemon: make an actor. Answered by [`ActorAnswer`]; unless it was refused or existed
/// already, the creator is connected without asking ([`ActorPlaced`]). The creator holds the actor's anchor from
/// then on, whatever the answer.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct ActorCreate {
    /// Names the question.
    #[field(1)]
    pub request: u64,
    /// `ActorId`, chosen by the creator.
    #[field(2)]
    pub actor: ActorId,
    /// Its registered name; empty for none.
    #[field(3)]
    pub name: String,
    /// Where the name lives; empty for the job's namespace.
    #[field(4)]
    pub namespace: String,
    /// Whether it outlives its job.
    #[field(5)]
    pub detached: bool,
    /// Whether an actor of that name is to be returned instead.
    #[field(6)]
    pub get_if_exists: bool,
    /// What is needed to place it.
    #[field(7)]
    pub placement: Vec<Amount>,
    /// What it holds while it lives.
    #[field(8)]
    pub running: Vec<Amount>,
    /// The runtime environment on top of the job's.
    #[field(9)]
    pub environment: Option<Environment>,
    /// The class's name, for logs and listings.
    #[field(10)]
    pub class_name: String,
    /// The serialized class.
    #[field(11)]
    pub class: Bytes,
    /// The constructor's arguments, as in [`Call`].
    #[field(12)]
    pub arguments: Bytes,
    /// References among the arguments.
    #[field(13)]
    pub references: Vec<ArgumentReference>,
    /// What other processes need to make a handle; opaque to the daemon.
    #[field(14)]
    pub handle: Bytes,
    /// How many calls run at once.
    #[field(15)]
    pub max_concurrency: u32,
    /// `WorkerId` of the creator.
    #[field(16)]
    pub owner: WorkerId,
    /// References inside the arguments.
    #[field(17)]
    pub contained: Vec<Reference>,
    /// How often it is made anew after its process died; negative for always.
    #[field(18)]
    pub max_restarts: i32,
    /// How often it was made anew before; the daemon fills it in for the worker.
    #[field(19)]
    pub restarts: u32,
    /// Groups of methods with threads, or places on an event loop, of their own.
    #[field(20)]
    pub groups: Vec<ConcurrencyGroup>,
    /// The constructor's arguments are still awaited: the actor has its id and its name from now on, and the same
    /// message with everything follows.
    #[field(21)]
    pub unfinished: bool,
    /// Whether this is what follows an `unfinished` one. Where that was refused, nothing is made of it, and nothing
    /// answered.
    #[field(22)]
    pub finishes: bool,
    /// Where it is to be placed.
    #[field(29)]
    pub strategy: Option<Strategy>,
    /// Whether this was said to a head that is gone, which may have taken note of it.
    #[field(30)]
    pub is_again: bool,
    /// How urgent it is that it is made, and what it calls; the higher one goes first.
    #[field(31)]
    pub priority: i32,
    /// Whether it may end early for what is more urgent, and is made anew then, which is not counted.
    #[field(32)]
    pub preemptible: bool,
}

/// client → head: the task of the client's that makes an actor. Follows [`ActorCreate`], where it is a task that makes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ActorMaker {
    /// The actor.
    #[field(1)]
    pub actor: ActorId,
    /// The task.
    #[field(2)]
    pub task: TaskId,
}

/// A part of an actor whose calls queue for themselves.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ConcurrencyGroup {
    /// Its name, which calls give.
    #[field(1)]
    pub name: String,
    /// How many of its calls run at once.
    #[field(2)]
    pub limit: u32,
}

/// daemon → client: what became of [`ActorCreate`] or [`ActorLookup`].
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct ActorAnswer {
    /// The question.
    #[field(1)]
    pub request: u64,
    /// `ActorId` of the actor made or found; empty where there is a failure.
    #[field(2)]
    pub actor: Option<ActorId>,
    /// Its handle, see [`ActorCreate::handle`].
    #[field(3)]
    pub handle: Bytes,
    /// Whether it existed already.
    #[field(4)]
    pub existed: bool,
    /// Codes `actor_name_taken`, `actor_not_found`.
    #[field(5)]
    pub failure: Option<Failure>,
}

/// client → daemon: a stream to the actor is wanted. Answered by [`ActorPlaced`] or [`ActorDied`],
/// when the one or the other is known.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ActorConnect {
    /// `ActorId`.
    #[field(1)]
    pub actor: ActorId,
    /// `WorkerId` of the process to which there was a stream that ended; empty for none. Where that process turns
    /// out to live, there is a new stream to it.
    #[field(2)]
    pub lost: Option<WorkerId>,
}

/// daemon → client, with the stream: the actor has its process. Calls may be sent at once; they wait
/// there for the constructor.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ActorPlaced {
    /// `ActorId`.
    #[field(1)]
    pub actor: ActorId,
    /// `WorkerId` of the process it became.
    #[field(2)]
    pub worker: WorkerId,
    /// Whether both ends of the stream are on one machine, with no gateway between.
    #[field(3)]
    pub is_near: bool,
}

/// daemon → every client that was connected or asked: the actor is dead, for good. The verdict for
/// every call that was under way.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct ActorDied {
    /// `ActorId`.
    #[field(1)]
    pub actor: ActorId,
    /// Codes `actor_died`, `actor_unschedulable`, `runtime_env`.
    #[field(2)]
    pub failure: Option<Failure>,
}

/// daemon → every client that was connected or asked: the actor's process died, and the actor is made anew. What was
/// under way there is lost; [`ActorPlaced`] or [`ActorDied`] follows.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct ActorRestarting {
    /// `ActorId`.
    #[field(1)]
    pub actor: ActorId,
    /// Code `actor_unavailable`.
    #[field(2)]
    pub failure: Option<Failure>,
    /// Whether the constructor had not returned: no call was begun there, and all are sent again.
    #[field(3)]
    pub began_nothing: bool,
    /// Whether it ended with its node, which was emptied: calls that may be sent again are, and spend no retry.
    #[field(4)]
    pub was_drained: bool,
}

/// worker → owner: a call raised what its owner asked to retry, and is run again in its place: one of its retries is
/// used up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Retried {
    /// `TaskId`.
    #[field(1)]
    pub task: TaskId,
}

/// client → daemon: end the actor's process now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ActorKill {
    /// `ActorId`.
    #[field(1)]
    pub actor: ActorId,
    /// Whether it is made anew where it has restarts left.
    #[field(2)]
    pub restart: bool,
}

/// client → daemon: which actor has this name? Answered by [`ActorAnswer`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ActorLookup {
    /// Names the question.
    #[field(1)]
    pub request: u64,
    /// The name.
    #[field(2)]
    pub name: String,
    /// Where it lives; empty for the job's namespace.
    #[field(3)]
    pub namespace: String,
}
