//! Every message there is, grouped by who says it to whom.
//!
//! Bodies are protobuf (field numbers are never reused), so fields may be added without breaking a
//! peer; kinds are numbered here and never renumbered. Identifiers travel as their bytes.
//!
//! Naming: a *client* is a process with a runtime, driver or worker; the *owner* of an object or a
//! lease is the client that asked for it.

use crate::frame::FrameError;
use bytes::{Bytes, BytesMut};
use prost::{Message as _, Oneof};

macro_rules! messages {
    ($($kind:literal => $name:ident,)*) => {
        /// A message of any kind.
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "each variant holds the struct of its name, documented there")]
        #[expect(clippy::large_enum_variant, reason = "messages are decoded and consumed at once, never kept in bulk")]
        pub enum Message { $($name($name),)* }

        impl Message {
            /// The number that stands for this message in a frame's header.
            pub fn kind(&self) -> u16 {
                match self { $(Self::$name(_) => $kind,)* }
            }

            pub(crate) fn body_bytes(&self) -> usize {
                match self { $(Self::$name(body) => body.encoded_len(),)* }
            }

            pub(crate) fn append_body(&self, buffer: &mut BytesMut) {
                match self { $(Self::$name(body) => body.encode_raw(buffer),)* }
            }

            /// Reads the body of a frame; `None` where the kind is unknown here (WIRE-3).
            pub fn decode(kind: u16, body: Bytes) -> Result<Option<Self>, FrameError> {
                let malformed = |_| FrameError::Body { kind };
                Ok(Some(match kind {
                    $($kind => Self::$name($name::decode(body).map_err(malformed)?),)*
                    _ => return Ok(None),
                }))
            }
        }

        $(impl From<$name> for Message {
            fn from(body: $name) -> Self { Self::$name(body) }
        })*
    };
}

messages! {
    1 => Hello,
    2 => Welcome,
    3 => Refused,
    4 => Goodbye,
    5 => Stop,
    10 => LeaseRequest,
    11 => LeaseCancel,
    12 => LeaseGranted,
    13 => LeaseRefused,
    14 => LeaseReturn,
    15 => LeaseReclaim,
    16 => LeaseEnded,
    20 => Assign,
    21 => Peer,
    22 => Blocked,
    23 => Unblocked,
    24 => ActorReady,
    25 => ActorFailed,
    26 => ActorLeaving,
    30 => ActorCreate,
    31 => ActorAnswer,
    32 => ActorConnect,
    33 => ActorPlaced,
    34 => ActorDied,
    35 => ActorKill,
    36 => ActorLookup,
    37 => ActorRelease,
    40 => Promise,
    41 => Publish,
    42 => Subscribe,
    43 => Published,
    44 => Hold,
    45 => Unhold,
    50 => Allocate,
    51 => Allocated,
    52 => StoreRefused,
    53 => Seal,
    54 => Abort,
    55 => Pin,
    56 => Pinned,
    57 => Unpin,
    58 => SegmentRetired,
    60 => ClusterQuery,
    61 => ClusterReport,
    62 => LogLines,
    63 => Notice,
    70 => Function,
    71 => Call,
    72 => Reply,
    73 => Returned,
    80 => TemplateReady,
    81 => Fork,
    82 => Forked,
    83 => Gone,
}

// --- shared pieces ---------------------------------------------------------------------------------

/// How much of a resource.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Amount {
    /// The resource's name.
    #[prost(string, tag = "1")]
    pub resource: String,
    /// In 1/10,000.
    #[prost(uint64, tag = "2")]
    pub units: u64,
}

/// An environment variable; a missing value means that it is removed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Message)]
pub struct Variable {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its value.
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
}

/// A reference to an object as it travels: which object, and who owns it.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Reference {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
    /// `WorkerId` of the owner.
    #[prost(bytes = "bytes", tag = "2")]
    pub owner: Bytes,
}

/// Something went wrong outside of user code.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Failure {
    /// A stable code that the front turns into an exception type, such as `worker_crashed`.
    #[prost(string, tag = "1")]
    pub code: String,
    /// What happened, why, and what to do.
    #[prost(string, tag = "2")]
    pub text: String,
    /// A serialized exception of user code that caused it, where there is one.
    #[prost(bytes = "bytes", tag = "3")]
    pub cause: Bytes,
}

/// A finished value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Value {
    /// The value itself, or where it is.
    #[prost(oneof = "Content", tags = "1, 2, 3, 4")]
    pub content: Option<Content>,
    /// References that stand inside the value. Whoever holds the value holds these.
    #[prost(message, repeated, tag = "5")]
    pub contained: Vec<Reference>,
}

/// What a [`Value`] is.
#[derive(Clone, PartialEq, Oneof)]
pub enum Content {
    /// Serialized, right here.
    #[prost(bytes = "bytes", tag = "1")]
    Inline(Bytes),
    /// In the node's store under the object's own id; the number is its size in bytes.
    #[prost(uint64, tag = "2")]
    Stored(u64),
    /// User code raised: the serialized exception.
    #[prost(bytes = "bytes", tag = "3")]
    Raised(Bytes),
    /// The runtime could not produce it.
    #[prost(message, tag = "4")]
    Failed(Failure),
}

/// Device indices or names that a process may use of one resource.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Devices {
    /// The resource, such as `GPU`.
    #[prost(string, tag = "1")]
    pub resource: String,
    /// Their ids in ascending order, as the visibility variable names them.
    #[prost(string, repeated, tag = "2")]
    pub ids: Vec<String>,
    /// Whether the ids come from a variable that was set on the node beforehand.
    #[prost(bool, tag = "3")]
    pub preset: bool,
}

/// What a process must find around it: part of what makes workers interchangeable.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Message)]
pub struct Environment {
    /// Variables of the runtime environment, by name.
    #[prost(message, repeated, tag = "1")]
    pub variables: Vec<Variable>,
}

// --- coming and going ------------------------------------------------------------------------------

/// client → daemon, the first message on a connection.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Hello {
    /// The session's secret, from its 0600 file or the environment of a child.
    #[prost(string, tag = "1")]
    pub token: String,
    /// What the client is; absent on connections that only query or stop (the command line).
    #[prost(message, optional, tag = "2")]
    pub driver: Option<Driver>,
}

/// What a driver tells of itself.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Driver {
    /// Its process id; checked against the socket's.
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    /// The Python interpreter that runs it: its workers run the same.
    #[prost(string, tag = "2")]
    pub interpreter: String,
    /// `sys.path` and the like, opaque to the daemon, handed to each worker in [`Assign`].
    #[prost(bytes = "bytes", tag = "3")]
    pub setup: Bytes,
    /// Where its actors' names live; empty for one of its own.
    #[prost(string, tag = "4")]
    pub namespace: String,
    /// Whether it wants its workers' output.
    #[prost(bool, tag = "5")]
    pub wants_logs: bool,
    /// The job's runtime environment.
    #[prost(message, optional, tag = "6")]
    pub environment: Option<Environment>,
}

/// daemon → client: let in.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Welcome {
    /// `NodeId` of the daemon.
    #[prost(bytes = "bytes", tag = "1")]
    pub node: Bytes,
    /// `WorkerId` of the client.
    #[prost(bytes = "bytes", tag = "2")]
    pub worker: Bytes,
    /// `JobId` of the driver.
    #[prost(bytes = "bytes", tag = "3")]
    pub job: Bytes,
    /// The job's namespace.
    #[prost(string, tag = "4")]
    pub namespace: String,
    /// The session's directory.
    #[prost(string, tag = "5")]
    pub session: String,
    /// Address that `init(address=…)` takes, such as `127.0.0.1:6379`.
    #[prost(string, tag = "6")]
    pub address: String,
    /// What the machine offers, in whole.
    #[prost(message, repeated, tag = "7")]
    pub totals: Vec<Amount>,
}

/// daemon → client: not let in; the connection ends.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Refused {
    /// Why, and what to do.
    #[prost(string, tag = "1")]
    pub text: String,
}

/// driver → daemon: the job is over. The daemon ends the job's work, sends its last [`LogLines`] and closes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Goodbye {}

/// command line → daemon: end the session and everything in it. The daemon closes once all is gone.
/// daemon → worker: leave when what was sent so far is done.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Stop {}

// --- leases: owner and daemon ----------------------------------------------------------------------

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
}

// --- workers and their daemon ----------------------------------------------------------------------

/// daemon → worker, the first message on the control stream that a forked worker inherits, and again
/// when an idle worker is leased anew: who it is and what it may use. It is read and applied before
/// anything of the user's runs.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Assign {
    /// `WorkerId` of the worker; the same for its life.
    #[prost(bytes = "bytes", tag = "1")]
    pub worker: Bytes,
    /// Ids and addresses as the driver sees them, with the worker's own id.
    #[prost(message, optional, tag = "2")]
    pub welcome: Option<Welcome>,
    /// The driver's setup, see [`Driver::setup`].
    #[prost(bytes = "bytes", tag = "3")]
    pub setup: Bytes,
    /// Variables to set and remove: runtime environment first, device visibility after.
    #[prost(message, repeated, tag = "4")]
    pub variables: Vec<Variable>,
    /// Devices granted.
    #[prost(message, repeated, tag = "5")]
    pub devices: Vec<Devices>,
    /// Everything granted.
    #[prost(message, repeated, tag = "6")]
    pub resources: Vec<Amount>,
    /// The actor to become, for a worker that is to be one.
    #[prost(message, optional, tag = "7")]
    pub actor: Option<ActorCreate>,
    /// `WorkerId` of the job's driver.
    #[prost(bytes = "bytes", tag = "8")]
    pub driver: Bytes,
}

/// daemon → worker, with a stream: a client that may call this worker.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Peer {
    /// `WorkerId` of the client.
    #[prost(bytes = "bytes", tag = "1")]
    pub client: Bytes,
}

/// worker → daemon: its task waits for a value; its CPU may be lent meanwhile (its devices not).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Blocked {}

/// worker → daemon: the wait is over.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Unblocked {}

/// worker → daemon: the actor's constructor returned.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ActorReady {}

/// worker → daemon: the actor's constructor failed; the worker exits.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ActorFailed {
    /// `Raised` or `Failed`.
    #[prost(message, optional, tag = "1")]
    pub error: Option<Value>,
}

/// worker → daemon: the actor ends itself; the worker exits.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ActorLeaving {
    /// Why, in words.
    #[prost(string, tag = "1")]
    pub text: String,
}

// --- actors: clients and daemon --------------------------------------------------------------------

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

// --- objects that travel: clients and daemon -------------------------------------------------------
//
// Until a reference leaves the process that made it, the daemon has never heard of the object. Then
// its owner promises it, and publishes the value when there is one; other clients subscribe. A client
// holds an object as long as it has references to it, and whoever hands a reference on registers the
// receiver's hold before it gives up its own, so counts never touch zero in between. Counts are kept
// per client and may arrive out of order, so they are signed.

/// owner → daemon: these will be published. The owner holds them from here on.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Promise {
    /// `ObjectId`s.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub objects: Vec<Bytes>,
}

/// owner → daemon: a promised object's value. Large ones lie in the store already.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Publish {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
    /// The value. The daemon holds what it contains as long as it keeps the value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<Value>,
}

/// client → daemon: tell me the value when it is known. Answered once by [`Published`]; an object
/// whose owner died before it published is answered with failure `owner_died`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Subscribe {
    /// What, and whose. The owner may not have promised it yet.
    #[prost(message, optional, tag = "1")]
    pub reference: Option<Reference>,
}

/// daemon → client: a value subscribed to.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Published {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
    /// The value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<Value>,
}

/// client → daemon: count one more hold of `holder` on each object.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Hold {
    /// `ObjectId`s.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub objects: Vec<Bytes>,
    /// `WorkerId` of the holder: the sender itself, or the process it hands the references to.
    #[prost(bytes = "bytes", tag = "2")]
    pub holder: Bytes,
}

/// client → daemon: count one hold of the sender less on each object.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Unhold {
    /// `ObjectId`s.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub objects: Vec<Bytes>,
}

// --- the object store: clients and daemon ----------------------------------------------------------

/// client → daemon: room for an object. Answered by [`Allocated`] or [`StoreRefused`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Allocate {
    /// Names the question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// `ObjectId`. The sender becomes its first holder.
    #[prost(bytes = "bytes", tag = "2")]
    pub object: Bytes,
    /// Bytes wanted.
    #[prost(uint64, tag = "3")]
    pub size: u64,
}

/// daemon → client, with a writable descriptor where the client does not have the segment yet.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Allocated {
    /// The question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// Names the segment; the object starts at its first byte.
    #[prost(uint64, tag = "2")]
    pub segment: u64,
    /// Bytes of the segment, to map.
    #[prost(uint64, tag = "3")]
    pub capacity: u64,
}

/// daemon → client: [`Allocate`] or [`Pin`] failed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StoreRefused {
    /// The question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// Codes `store_full`, `out_of_disk`, `object_lost`.
    #[prost(message, optional, tag = "2")]
    pub failure: Option<Failure>,
}

/// client → daemon: the object is written; it can be read from now on and is never written again.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Seal {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
}

/// client → daemon: the object will not be written after all.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Abort {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
}

/// client → daemon: keep the object in memory while I read it. Answered by [`Pinned`] or [`StoreRefused`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Pin {
    /// Names the question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "2")]
    pub object: Bytes,
}

/// daemon → client, with a read-only descriptor where the client does not have the segment yet.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Pinned {
    /// The question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// Names the segment.
    #[prost(uint64, tag = "2")]
    pub segment: u64,
    /// Bytes of the segment, to map.
    #[prost(uint64, tag = "3")]
    pub capacity: u64,
    /// Bytes of the object, at the segment's start.
    #[prost(uint64, tag = "4")]
    pub size: u64,
}

/// client → daemon: one [`Pin`] of the object is over.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Unpin {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
}

/// daemon → client: the segment is gone; drop what is cached of it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SegmentRetired {
    /// The segment.
    #[prost(uint64, tag = "1")]
    pub segment: u64,
}

// --- looking and telling ---------------------------------------------------------------------------

/// client or command line → daemon: how are things? Answered by [`ClusterReport`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ClusterQuery {
    /// Names the question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
}

/// daemon → asker.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClusterReport {
    /// The question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// What the cluster offers in whole.
    #[prost(message, repeated, tag = "2")]
    pub totals: Vec<Amount>,
    /// What is free now; nothing is listed at zero.
    #[prost(message, repeated, tag = "3")]
    pub available: Vec<Amount>,
    /// Nodes, holders of devices, what waits and why: JSON, for people and for `nodes()`.
    #[prost(string, tag = "4")]
    pub detail: String,
}

/// daemon → driver: what a worker printed, whole lines.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LogLines {
    /// The worker's process id.
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    /// The task, class or actor that printed.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Whether it went to standard error.
    #[prost(bool, tag = "3")]
    pub error: bool,
    /// Lines, each with its newline; bytes as written.
    #[prost(bytes = "bytes", tag = "4")]
    pub lines: Bytes,
}

/// daemon → driver: something its user should know, said once.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Notice {
    /// The text.
    #[prost(string, tag = "1")]
    pub text: String,
}

// --- the work itself: owner and worker, no daemon between ------------------------------------------

/// owner → worker: code that calls on this stream name by its hash. Sent once a stream, before its first use.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Function {
    /// Content hash.
    #[prost(bytes = "bytes", tag = "1")]
    pub hash: Bytes,
    /// The serialized function.
    #[prost(bytes = "bytes", tag = "2")]
    pub body: Bytes,
}

/// An argument that was given as a reference: the value takes its place.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ArgumentReference {
    /// Its place among the positional arguments, where `keyword` is empty.
    #[prost(uint32, tag = "1")]
    pub position: u32,
    /// Its keyword.
    #[prost(string, tag = "2")]
    pub keyword: String,
    /// Which object.
    #[prost(message, optional, tag = "3")]
    pub reference: Option<Reference>,
    /// Its value, where the owner has it.
    #[prost(message, optional, tag = "4")]
    pub value: Option<Value>,
}

/// owner → worker: run this. Calls of one stream start in the order sent.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Call {
    /// `TaskId`; results are its objects 1, 2, ….
    #[prost(bytes = "bytes", tag = "1")]
    pub task: Bytes,
    /// Hash of the function; empty for an actor's method.
    #[prost(bytes = "bytes", tag = "2")]
    pub function: Bytes,
    /// The function's name in logs and errors, or the method to call.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Serialized positional and keyword arguments; empty for none.
    #[prost(bytes = "bytes", tag = "4")]
    pub arguments: Bytes,
    /// Arguments given as references.
    #[prost(message, repeated, tag = "5")]
    pub references: Vec<ArgumentReference>,
    /// How many results.
    #[prost(uint32, tag = "6")]
    pub results: u32,
    /// After how many calls of this function the worker exits; 0 for never.
    #[prost(uint32, tag = "7")]
    pub max_calls: u32,
    /// Which exceptions are to be retried by the owner: serialized, opaque; empty for none.
    #[prost(bytes = "bytes", tag = "8")]
    pub retry_exceptions: Bytes,
    /// Which attempt this is, counted from 0.
    #[prost(uint32, tag = "9")]
    pub attempt: u32,
}

/// worker → owner: a call is done.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Reply {
    /// `TaskId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub task: Bytes,
    /// Its results, in order.
    #[prost(message, repeated, tag = "2")]
    pub results: Vec<Value>,
    /// References from the arguments that the worker still has; the owner registers its hold.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub kept: Vec<Bytes>,
    /// Whether the worker exits now.
    #[prost(bool, tag = "4")]
    pub retiring: bool,
    /// How long the call ran.
    #[prost(uint32, tag = "5")]
    pub run_us: u32,
    /// Whether the call raised something that the owner asked to retry.
    #[prost(bool, tag = "6")]
    pub retry: bool,
}

/// worker → owner: these were not started and will not be; another worker may take them.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Returned {
    /// `TaskId`s.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub tasks: Vec<Bytes>,
}

// --- template and daemon ---------------------------------------------------------------------------

/// template → daemon: imports are done, forks are served.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TemplateReady {
    /// Seconds since the template started, in microseconds.
    #[prost(uint64, tag = "1")]
    pub started_us: u64,
}

/// daemon → template, with three descriptors: the worker's control stream, its standard output, its standard error.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Fork {
    /// Names the worker to be.
    #[prost(uint64, tag = "1")]
    pub request: u64,
}

/// template → daemon: the worker runs.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Forked {
    /// The request.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// Its process id; 0 where the fork failed.
    #[prost(uint32, tag = "2")]
    pub pid: u32,
    /// Why it failed.
    #[prost(string, tag = "3")]
    pub text: String,
}

/// template → daemon: a worker and every process that descends from it are dead and reaped.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Gone {
    /// The worker's process id.
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    /// The worker's wait status, as the kernel gave it.
    #[prost(int32, tag = "2")]
    pub status: i32,
    /// How many of its descendants had to be killed after it.
    #[prost(uint32, tag = "3")]
    pub stragglers: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_the_wire() {
        let call = Call { task: Bytes::from_static(b"t"), name: "f".into(), results: 1, ..Call::default() };
        let message = Message::from(call);
        let mut body = BytesMut::new();
        message.append_body(&mut body);
        assert_eq!(Message::decode(message.kind(), body.freeze()), Ok(Some(message)));
    }

    #[test]
    fn unknown_kinds_are_skipped_and_bad_bodies_refused() {
        assert_eq!(Message::decode(60_000, Bytes::new()), Ok(None));
        assert_eq!(Message::decode(71, Bytes::from_static(&[0xff; 9])), Err(FrameError::Body { kind: 71 }));
    }
}
