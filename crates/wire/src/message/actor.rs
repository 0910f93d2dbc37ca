//! Actors: clients and daemon.

use super::{Amount, ArgumentReference, Environment, Failure, Reference, Strategy};
use bytes::Bytes;

/// client → daemon: make an actor. Answered by [`ActorAnswer`]; unless it was refused or existed
/// already, the creator is connected without asking ([`ActorPlaced`]). The creator holds the actor's anchor from
/// then on, whatever the answer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ActorCreate {
    /// Names the question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// `ActorId`, chosen by the creator.
    #[prost(bytes = "bytes", tag = "2")]
    pub actor: Bytes,
    /// Its registered name; empty for none.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Where the name lives; empty for the job's namespace.
    #[prost(string, tag = "4")]
    pub namespace: String,
    /// Whether it outlives its job.
    #[prost(bool, tag = "5")]
    pub detached: bool,
    /// Whether an actor of that name is to be returned instead.
    #[prost(bool, tag = "6")]
    pub get_if_exists: bool,
    /// What is needed to place it.
    #[prost(message, repeated, tag = "7")]
    pub placement: Vec<Amount>,
    /// What it holds while it lives.
    #[prost(message, repeated, tag = "8")]
    pub running: Vec<Amount>,
    /// The runtime environment on top of the job's.
    #[prost(message, optional, tag = "9")]
    pub environment: Option<Environment>,
    /// The class's name, for logs and listings.
    #[prost(string, tag = "10")]
    pub class_name: String,
    /// The serialized class.
    #[prost(bytes = "bytes", tag = "11")]
    pub class: Bytes,
    /// The constructor's arguments, as in [`Call`].
    #[prost(bytes = "bytes", tag = "12")]
    pub arguments: Bytes,
    /// References among the arguments.
    #[prost(message, repeated, tag = "13")]
    pub references: Vec<ArgumentReference>,
    /// What other processes need to make a handle; opaque to the daemon.
    #[prost(bytes = "bytes", tag = "14")]
    pub handle: Bytes,
    /// How many calls run at once.
    #[prost(uint32, tag = "15")]
    pub max_concurrency: u32,
    /// `WorkerId` of the creator.
    #[prost(bytes = "bytes", tag = "16")]
    pub owner: Bytes,
    /// References inside the arguments.
    #[prost(message, repeated, tag = "17")]
    pub contained: Vec<Reference>,
    /// How often it is made anew after its process died; negative for always.
    #[prost(int32, tag = "18")]
    pub max_restarts: i32,
    /// How often it was made anew before; the daemon fills it in for the worker.
    #[prost(uint32, tag = "19")]
    pub restarts: u32,
    /// Groups of methods with threads, or places on an event loop, of their own.
    #[prost(message, repeated, tag = "20")]
    pub groups: Vec<ConcurrencyGroup>,
    /// The constructor's arguments are still awaited: the actor has its id and its name from now on, and the same
    /// message with everything follows.
    #[prost(bool, tag = "21")]
    pub unfinished: bool,
    /// Whether this is what follows an `unfinished` one. Where that was refused, nothing is made of it, and nothing
    /// answered.
    #[prost(bool, tag = "22")]
    pub finishes: bool,
    /// Where it is to be placed.
    #[prost(message, optional, tag = "29")]
    pub strategy: Option<Strategy>,
    /// Whether this was said to a head that is gone, which may have taken note of it.
    #[prost(bool, tag = "30")]
    pub is_again: bool,
}

/// A part of an actor whose calls queue for themselves.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConcurrencyGroup {
    /// Its name, which calls give.
    #[prost(string, tag = "1")]
    pub name: String,
    /// How many of its calls run at once.
    #[prost(uint32, tag = "2")]
    pub limit: u32,
}

/// daemon → client: what became of [`ActorCreate`] or [`ActorLookup`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ActorAnswer {
    /// The question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// `ActorId` of the actor made or found; empty where there is a failure.
    #[prost(bytes = "bytes", tag = "2")]
    pub actor: Bytes,
    /// Its handle, see [`ActorCreate::handle`].
    #[prost(bytes = "bytes", tag = "3")]
    pub handle: Bytes,
    /// Whether it existed already.
    #[prost(bool, tag = "4")]
    pub existed: bool,
    /// Codes `actor_name_taken`, `actor_not_found`.
    #[prost(message, optional, tag = "5")]
    pub failure: Option<Failure>,
}

/// client → daemon: a stream to the actor is wanted. Answered by [`ActorPlaced`] or [`ActorDied`],
/// when the one or the other is known.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ActorConnect {
    /// `ActorId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub actor: Bytes,
    /// `WorkerId` of the process to which there was a stream that ended; empty for none. Where that process turns
    /// out to live, there is a new stream to it.
    #[prost(bytes = "bytes", tag = "2")]
    pub lost: Bytes,
}

/// daemon → client, with the stream: the actor has its process. Calls may be sent at once; they wait
/// there for the constructor.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ActorPlaced {
    /// `ActorId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub actor: Bytes,
    /// `WorkerId` of the process it became.
    #[prost(bytes = "bytes", tag = "2")]
    pub worker: Bytes,
    /// Whether both ends of the stream are on one machine, with no gateway between.
    #[prost(bool, tag = "3")]
    pub is_near: bool,
}

/// daemon → every client that was connected or asked: the actor is dead, for good. The verdict for
/// every call that was under way.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ActorDied {
    /// `ActorId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub actor: Bytes,
    /// Codes `actor_died`, `actor_unschedulable`, `runtime_env`.
    #[prost(message, optional, tag = "2")]
    pub failure: Option<Failure>,
}

/// daemon → every client that was connected or asked: the actor's process died, and the actor is made anew. What was
/// under way there is lost; [`ActorPlaced`] or [`ActorDied`] follows.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ActorRestarting {
    /// `ActorId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub actor: Bytes,
    /// Code `actor_unavailable`.
    #[prost(message, optional, tag = "2")]
    pub failure: Option<Failure>,
    /// Whether the constructor had not returned: no call was begun there, and all are sent again.
    #[prost(bool, tag = "3")]
    pub began_nothing: bool,
    /// Whether it ended with its node, which was emptied: calls that may be sent again are, and spend no retry.
    #[prost(bool, tag = "4")]
    pub was_drained: bool,
}

/// worker → owner: a call raised what its owner asked to retry, and is run again in its place: one of its retries is
/// used up.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Retried {
    /// `TaskId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub task: Bytes,
}

/// client → daemon: end the actor's process now.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ActorKill {
    /// `ActorId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub actor: Bytes,
    /// Whether it is made anew where it has restarts left.
    #[prost(bool, tag = "2")]
    pub restart: bool,
}

/// client → daemon: which actor has this name? Answered by [`ActorAnswer`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ActorLookup {
    /// Names the question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// The name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Where it lives; empty for the job's namespace.
    #[prost(string, tag = "3")]
    pub namespace: String,
}
