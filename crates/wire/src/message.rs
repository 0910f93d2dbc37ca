//! Every message there is, grouped by who says it to whom.
//!
//! Bodies are protobuf (field numbers are never reused), so fields may be added without breaking a
//! peer; kinds are numbered here and never renumbered. Identifiers travel as their bytes.
//!
//! Naming: a *client* is a process with a runtime, driver or worker; the *owner* of an object or a
//! lease is the client that asked for it.

use crate::field::Nested;
use crate::frame::{CONTROL_BYTES_LIMIT, FRAME_BYTES_LIMIT, FrameError, MESSAGE_BYTES_LIMIT};
use crate::shape::Shape;
use crate::state::{DeviceMemory, DeviceTier};
use bytes::{Bytes, BytesMut};
use oxiray_fields::Fields;
use oxiray_ids::{ObjectId, WorkerId, WorkerNumber};
use prost::{DecodeError, Message as _};

mod actor;
mod answer;
mod call;
mod cancel;
mod chronicle;
mod device;
mod directions;
mod drain;
mod failure;
mod greeting;
mod group;
mod growth;
mod key_value;
mod lease;
mod log;
mod metric;
mod network;
mod node;
mod numbered;
mod object;
mod object_log;
mod package;
mod proxied_client;
mod recovery;
mod report;
mod reserve;
mod resume;
mod stack;
mod state;
mod store;
mod strategy;
mod stream;
mod submission;
mod template;
mod token;
mod transfer;
mod value;
mod work;
mod worker;

pub use actor::*;
pub use cancel::*;
pub use chronicle::*;
pub use device::*;
pub use directions::*;
pub use drain::*;
pub use failure::*;
pub use greeting::*;
pub use group::*;
pub use growth::*;
pub use key_value::*;
pub use lease::*;
pub use log::*;
pub use metric::*;
pub use network::*;
pub use node::*;
pub use object::*;
pub use object_log::*;
pub use package::*;
pub use proxied_client::*;
pub use recovery::*;
pub use report::*;
pub use reserve::*;
pub use resume::*;
pub use stack::*;
pub use state::*;
pub use store::*;
pub use strategy::*;
pub use stream::*;
pub use submission::*;
pub use template::*;
pub use token::*;
pub use transfer::*;
pub use value::*;
pub use work::*;
pub use worker::*;

pub use numbered::Numbered;

macro_rules! held {
    ($name:ident) => { $name };
    ($name:ident boxed) => { Box<$name> };
}

/// How large bodies may be: of messages that carry values, errors, setups, pieces of files, printed lines, or as many of
/// something as there are; of those that another has around it; of all others.
macro_rules! limit {
    (values) => {
        MESSAGE_BYTES_LIMIT
    };
    (relay) => {
        FRAME_BYTES_LIMIT
    };
    () => {
        CONTROL_BYTES_LIMIT
    };
}

/// Reads a body of which all is there that must be.
fn read<M: Nested>(body: Bytes) -> Result<M, DecodeError> {
    let message = M::decode(body)?;
    message.check()?;
    Ok(message)
}

macro_rules! messages {
    ($($kind:literal => $name:ident $($boxed:ident)? $([$size:ident])?,)*) => {
        /// A message of any kind. Large ones are boxed, so that they are moved around cheaply.
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "each variant holds the struct of its name, documented there")]
        pub enum Message { $($name(held!($name $($boxed)?)),)* }

        $(impl Numbered for $name {
            const KIND: u16 = $kind;
            type Held = held!($name $($boxed)?);
        })*

        impl Message {
            /// The kinds of all messages.
            pub const KINDS: &[u16] = &[$($kind),*];

            /// The most bytes that the body of a message of that kind has.
            pub(crate) fn body_limit(kind: u16) -> usize {
                match kind {
                    $($kind => limit!($($size)?),)*
                    _ => CONTROL_BYTES_LIMIT,
                }
            }

            /// The shape of messages of that kind; empty for a kind that is not known.
            pub(crate) fn shape(kind: u16) -> Shape {
                match kind {
                    $($kind => <$name as Nested>::shape(),)*
                    _ => Shape::default(),
                }
            }

            /// The number that stands for this message in a frame's header.
            pub fn kind(&self) -> u16 {
                match self { $(Self::$name(_) => $kind,)* }
            }

            /// How many bytes its body takes.
            pub fn body_bytes(&self) -> usize {
                match self { $(Self::$name(body) => body.encoded_len(),)* }
            }

            pub(crate) fn append_body(&self, buffer: &mut BytesMut) {
                match self { $(Self::$name(body) => body.encode_raw(buffer),)* }
            }

            /// What a [`Relay`] carries of it.
            pub fn relayed(&self, worker: WorkerNumber) -> Relay {
                let mut body = BytesMut::with_capacity(self.body_bytes());
                self.append_body(&mut body);
                Relay { worker, kind: u32::from(self.kind()), body: body.freeze(), connection_ticket: None }
            }

            /// Reads the body of a frame; `None` where the kind is unknown here (WIRE-3).
            pub fn decode(kind: u16, body: Bytes) -> Result<Option<Self>, FrameError> {
                let malformed = |error| FrameError::Body { kind, error };
                if !Shape::allows(kind, &body) {
                    return Err(FrameError::Crowded { kind });
                }
                if kind == Call::KIND {
                    return Ok(Some(Self::Call(Call::read(&body).map_err(malformed)?)));
                }
                Ok(Some(match kind {
                    $($kind => Self::$name(read::<$name>(body).map_err(malformed)?.into()),)*
                    _ => return Ok(None),
                }))
            }
        }

        $(impl From<$name> for Message {
            fn from(body: $name) -> Self { Self::$name(body.into()) }
        })*
    };
}

messages! {
    1 => Hello boxed [values],
    2 => Welcome boxed [values],
    3 => Refused,
    4 => Goodbye,
    5 => Stop,
    10 => LeaseRequest boxed [values],
    11 => LeaseCancel,
    12 => LeaseGranted,
    13 => LeaseRefused [values],
    14 => LeaseReturn,
    15 => LeaseReclaim,
    16 => LeaseEnded boxed [values],
    17 => CancelObject,
    18 => LeaseKill,
    20 => Assign boxed [values],
    21 => Peer,
    22 => Blocked,
    23 => Unblocked,
    24 => ActorReady,
    25 => ActorFailed boxed [values],
    26 => ActorLeaving,
    27 => ArgumentLost,
    28 => Lingers,
    30 => ActorCreate boxed [values],
    31 => ActorAnswer boxed [values],
    32 => ActorConnect,
    33 => ActorPlaced,
    34 => ActorDied boxed [values],
    35 => ActorKill,
    36 => ActorLookup,
    38 => ActorRestarting boxed [values],
    40 => Promise [values],
    41 => Publish boxed [values],
    42 => Subscribe,
    43 => Published boxed [values],
    44 => Hold [values],
    45 => Unhold [values],
    46 => Recover,
    47 => Lost,
    48 => Free [values],
    49 => Freed,
    50 => Allocate,
    51 => Allocated,
    52 => StoreRefused [values],
    53 => Seal,
    54 => Abort,
    55 => Pin,
    56 => Pinned,
    57 => Unpin,
    58 => SegmentRetired,
    60 => ClusterQuery,
    61 => ClusterReport boxed [values],
    62 => LogLines [values],
    63 => Notice,
    64 => KeyValueRequest boxed [values],
    65 => KeyValueAnswer boxed [values],
    66 => StateQuery boxed [values],
    67 => StateReport boxed [values],
    68 => TaskLogQuery,
    69 => TaskLog [values],
    70 => Function [values],
    71 => Call boxed [values],
    72 => Reply boxed [values],
    73 => Returned [values],
    74 => StreamItem boxed [values],
    75 => StreamRead,
    76 => StreamStop,
    78 => Cancel,
    80 => TemplateReady,
    81 => Fork [values],
    82 => Forked [values],
    83 => Gone,
    84 => TemplateHolds,
    90 => Retried,
    91 => StateFollow,
    92 => StateChanges boxed [values],
    93 => WaitsQuery,
    94 => WaitsReport boxed,
    100 => GroupCreate boxed [values],
    101 => GroupAnswer [values],
    102 => GroupAwait,
    103 => GroupRemove,
    104 => GroupQuery,
    105 => GroupReport [values],
    110 => SegmentsUnmapped [values],
    111 => Forgotten,
    112 => HoldingsQuery,
    113 => Holdings [values],
    114 => CollectGarbage,
    115 => Metrics [values],
    116 => MetricsQuery,
    117 => MetricsReport [values],
    118 => ObjectLogQuery,
    119 => ObjectLog [values],
    120 => Confirm [values],
    130 => Relay boxed [relay],
    131 => NodeAdmitted boxed,
    132 => NodeJoin boxed [values],
    133 => NodeState boxed [values],
    134 => JobAnnounced boxed [values],
    135 => JobOver,
    136 => Place boxed [values],
    137 => Placed,
    138 => PlaceRefused boxed [values],
    139 => WorkerReturn,
    140 => WorkerKill,
    141 => WorkerForked,
    142 => WorkerDied,
    143 => WorkerGone,
    146 => Stored,
    147 => ObjectDelete,
    148 => Locate,
    149 => Located boxed [values],
    150 => NodePeer boxed,
    151 => Fetch,
    152 => Chunk boxed [values],
    153 => Fetched,
    154 => Copied,
    155 => Seek,
    156 => Sought,
    157 => ValueWanted,
    158 => Connect,
    159 => Spilled,
    160 => Heartbeat,
    161 => HeartbeatHeard,
    162 => NodeGone,
    163 => NodeLeaves,
    164 => HeadBack,
    165 => ClientResume [values],
    166 => Resumed,
    167 => ClientSettled,
    168 => NodeResume boxed [values],
    169 => EnvironmentMade boxed [values],
    170 => WorkerSpent,
    190 => GroupPrepare [values],
    191 => GroupPrepared,
    192 => GroupRelease [values],
    200 => DrainAsked,
    201 => NodeDismissed,
    202 => Draining,
    203 => LeaseRetire,
    204 => CopyWanted,
    205 => DeviceAsked,
    206 => DeviceOrder,
    207 => Preemption,
    210 => CopyRefused,
    215 => ProxiedClientJoined boxed [values],
    216 => ProxiedClientLeft,
    217 => ProxiedClientClose,
    218 => PackageWanted,
    219 => PackagePiece [values],
    230 => GrowthState boxed [values],
    231 => GrowthReport boxed [values],
    232 => GrowthQuery,
    233 => SubmissionAsked boxed [values],
    234 => SubmissionAnswer boxed [values],
    236 => ChronicleFollow,
    237 => ChronicleBatch boxed [values],
    238 => LogQuery boxed,
    239 => LogAnswer boxed [values],
    240 => StackQuery,
    241 => StackReport [values],
    242 => ActorMaker,
    243 => EndAsked,
    245 => RingOffered,
    246 => RingTaken,
    250 => DeviceErrorRaised,
    251 => DeviceErrorsQuery,
    252 => DeviceErrors [values],
    260 => LogsUnshown,
    261 => FailedTaskLog boxed [values],
    310 => TokenAsked,
    311 => TokenAnswer boxed,
    312 => CertificateWanted,
    313 => CertificateIssued,
}

/// How much of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Amount {
    /// The resource's name.
    #[field(1)]
    pub resource: String,
    /// In 1/10,000.
    #[field(2)]
    pub units: u64,
}

/// An environment variable; a missing value means that it is removed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Fields)]
pub struct Variable {
    /// Its name.
    #[field(1)]
    pub name: String,
    /// Its value.
    #[field(2)]
    pub value: Option<String>,
}

/// A reference to an object as it travels: which object, and who owns it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Fields)]
pub struct Reference {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
    /// `WorkerId` of the owner.
    #[field(2)]
    pub owner: Option<WorkerId>,
}

/// Something went wrong outside of user code.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Failure {
    /// What kind of failure it is.
    #[field(1)]
    pub code: FailureCode,
    /// What happened, why, and what to do.
    #[field(2)]
    pub text: String,
    /// A serialized exception of user code that caused it, where there is one; for `cancelled` the `TaskId`, for `actor_died`
    /// an [`ActorDeath`], for `argument_failed` an [`ArgumentFailed`].
    #[field(3)]
    pub cause: Bytes,
}

/// Device indices or names that a process may use of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Devices {
    /// The resource, such as `GPU`.
    #[field(1)]
    pub resource: String,
    /// Their ids in ascending order, as the visibility variable names them.
    #[field(2)]
    pub ids: Vec<String>,
    /// Whether the ids come from a variable that was set on the node beforehand.
    #[field(3)]
    pub preset: bool,
    /// What is known of each, in the order of the ids.
    #[field(4)]
    pub facts: Vec<DeviceFacts>,
}

/// What a process may know of a device that it was granted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct DeviceFacts {
    /// Its number among those of its resource on the node.
    #[field(1)]
    pub slot: u32,
    /// Its vendor's unique id; empty where it is not known.
    #[field(2)]
    pub uuid: String,
    /// Its place on the PCI bus; empty where it is not known.
    #[field(3)]
    pub pci_address: String,
    /// How much of it is granted, in 1/10,000.
    #[field(4)]
    pub share: u64,
    /// Bytes of its memory that are granted; 0 where nobody knows its size.
    #[field(5)]
    pub memory_bytes: u64,
    /// What keeps the process from other devices.
    #[field(6)]
    pub isolation: DeviceTier,
    /// What of its memory the process may take, and what keeps it to that; nothing where there is no limit.
    #[field(7)]
    pub memory: Option<DeviceMemory>,
}

/// What a process must find around it: part of what makes workers interchangeable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Fields)]
pub struct Environment {
    /// Variables of the runtime environment, by name.
    #[field(1)]
    pub variables: Vec<Variable>,
    /// The other fields as JSON, which the worker applies; opaque to the daemon.
    #[field(2)]
    pub fields: String,
    /// What must be made before a worker can start, as JSON for the process that makes it; empty for nothing.
    #[field(3)]
    pub preparation: String,
    /// The folder of the cache that the preparation fills and that is not to be evicted meanwhile; empty for none.
    #[field(4)]
    pub cached: String,
    /// Modules that the template imports before it forks.
    #[field(5)]
    pub preload: Vec<String>,
    /// Where it finds them: folders, and packages as `package://NAME`.
    #[field(6)]
    pub preload_path: Vec<String>,
    /// How long the preparation may take, in seconds; 0 for no limit.
    #[field(7)]
    pub setup_timeout_s: u32,
    /// Whether a job's environment is prepared when the job begins rather than with its first task.
    #[field(8)]
    pub eager: bool,
    /// Whether workers are a program of the user's own, which the preparation names and which forks them itself, in place
    /// of an interpreter.
    #[field(9)]
    pub native: bool,
    /// How far its workers are to be kept from devices that they were not granted, at least.
    #[field(10)]
    pub isolation: AskedIsolation,
}

/// How far a request has its workers kept from devices that they were not granted, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
pub enum AskedIsolation {
    /// As their node was started.
    Unsaid = 0,
    /// By variables.
    Variable = 1,
    /// By variables, and by a look at what they have open.
    Watch = 2,
    /// By the kernel where it can.
    Fence = 3,
    /// By the kernel, or the request is refused.
    Require = 4,
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::TaskId;

    #[test]
    fn a_message_survives_the_wire() {
        let call = Call { task: TaskId::new([1; 24]), name: "f".into(), results: 1, ..Call::default() };
        let message = Message::from(call);
        let mut body = BytesMut::new();
        message.append_body(&mut body);
        assert_eq!(Message::decode(message.kind(), body.freeze()), Ok(Some(message)));
    }

    #[test]
    fn unknown_kinds_are_skipped_and_bad_bodies_refused() {
        assert_eq!(Message::decode(60_000, Bytes::new()), Ok(None));
        let malformed = Message::decode(71, Bytes::from_static(&[0xff; 9]));
        assert!(matches!(malformed, Err(FrameError::Body { kind: 71, .. })), "{malformed:?}");
    }

    #[test]
    fn no_message_is_large() {
        let bytes = std::mem::size_of::<Message>();
        assert!(bytes <= 96, "{bytes} bytes, and each is moved some times: box the largest");
    }
}
