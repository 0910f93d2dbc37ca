//! Actors: clients and daemon.

use super::{Amount, ArgumentReference, Environment, Failure, Reference, Strategy};
use bytes::Bytes;

/// client → daemon: make an actor. Answered by [`ActorAnswer`]; unless it was refused or existed
/// already, the creator is connected without asking ([`ActorPlaced`]).
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
    /// Where it is to be placed.
    #[prost(message, optional, tag = "29")]
    pub strategy: Option<Strategy>,
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
}

/// daemon → every client that was connected or asked: the actor is dead, for good. The verdict for
/// every call that was under way.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ActorDied {
    /// `ActorId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub actor: Bytes,
    /// Codes `actor_died`, `actor_unschedulable`, `runtime_env`; the constructor's exception as its cause.
    #[prost(message, optional, tag = "2")]
    pub failure: Option<Failure>,
}

/// client → daemon: end the actor's process now.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ActorKill {
    /// `ActorId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub actor: Bytes,
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

/// creator → daemon: no handle is left anywhere and every call is answered; the actor ends. The daemon
/// sends [`Stop`] on the worker's control stream, and the worker leaves when its queue is empty.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ActorRelease {
    /// `ActorId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub actor: Bytes,
}
