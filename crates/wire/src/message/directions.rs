//! Who says which messages to whom: one enum for each direction, which its receiver matches whole.
//!
//! What is known and does not go in a direction is refused there ([`FrameError::Misdirected`]).

use super::numbered::Numbered;
use super::*;
use crate::frame::FrameError;
use bytes::Bytes;

/// The messages of one direction.
pub trait Direction: Sized + Into<Message> {
    /// Its name.
    const NAME: &str;

    /// The kinds of its messages.
    fn kinds() -> Vec<u16>;

    /// The message as one of this direction, or back where it does not go in it.
    fn sort(message: Message) -> Result<Self, Message>;

    /// The same for what came from a peer.
    ///
    /// # Errors
    /// [`FrameError::Misdirected`] where the message does not go in this direction.
    fn of(message: Message) -> Result<Self, FrameError> {
        Self::sort(message).map_err(|other| FrameError::Misdirected { kind: other.kind(), direction: Self::NAME })
    }

    /// Reads the body of a frame; `None` where the kind is unknown here (WIRE-3).
    ///
    /// # Errors
    /// Where the body is malformed, or the message does not go in this direction.
    fn decode(kind: u16, body: Bytes) -> Result<Option<Self>, FrameError> {
        Message::decode(kind, body)?.map(Self::of).transpose()
    }
}

/// A direction, and the messages that go in it.
macro_rules! direction {
    ($(#[$doc:meta])* $direction:ident: $($name:ident),* $(,)?) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "each variant holds the struct of its name, documented there")]
        pub enum $direction { $($name(<$name as Numbered>::Held),)* }

        impl Direction for $direction {
            const NAME: &str = stringify!($direction);

            fn kinds() -> Vec<u16> {
                vec![$(<$name as Numbered>::KIND),*]
            }

            fn sort(message: Message) -> Result<Self, Message> {
                match message {
                    $(Message::$name(body) => Ok(Self::$name(body)),)*
                    other => Err(other),
                }
            }
        }

        impl From<$direction> for Message {
            fn from(message: $direction) -> Self {
                match message { $($direction::$name(body) => Self::$name(body),)* }
            }
        }

        $(impl From<$name> for $direction {
            fn from(body: $name) -> Self { Self::$name(body.into()) }
        })*
    };
}

/// A direction of several parts, each handled in a place of its own.
macro_rules! parts {
    ($(#[$doc:meta])* $direction:ident: $($(#[$part_doc:meta])* $part:ident($inner:ident)),* $(,)?) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub enum $direction { $($(#[$part_doc])* $part($inner),)* }

        impl Direction for $direction {
            const NAME: &str = stringify!($direction);

            fn kinds() -> Vec<u16> {
                [$($inner::kinds()),*].concat()
            }

            fn sort(message: Message) -> Result<Self, Message> {
                $(let message = match $inner::sort(message) {
                    Ok(part) => return Ok(Self::$part(part)),
                    Err(other) => other,
                };)*
                Err(message)
            }
        }

        impl From<$direction> for Message {
            fn from(message: $direction) -> Self {
                match message { $($direction::$part(part) => part.into(),)* }
            }
        }

        $(impl From<$inner> for $direction {
            fn from(part: $inner) -> Self { Self::$part(part) }
        })*
    };
}

// --- coming ---

direction! {
    /// What the daemon answers to the greeting of a driver.
    DaemonToNewcomer: Welcome, Refused,
}
direction! {
    /// What the head answers to the greeting of a node.
    HeadToNewcomer: NodeAdmitted, Refused,
}

// --- drivers and workers, and their daemon ---

direction! {
    /// What a client says to the object store of its machine.
    ClientToStore: Allocate, Pin, Seal, Abort, Unpin, SegmentsUnmapped,
}
direction! {
    /// What a worker says of itself to its machine and to the head.
    WorkerToNode: Blocked, Unblocked, ActorReady, Lingers, DeviceErrorRaised,
}
direction! {
    /// What a worker asks of its machine, which knows it alone.
    WorkerToMachine: DeviceErrorsQuery,
}
direction! {
    /// What is asked of the head about objects and machines, which its own store is part of.
    ReportQuery: ClusterQuery, HoldingsQuery,
}
direction! {
    /// What a client says to the head, by way of its machine where that is another.
    ClientToHead:
        LeaseRequest, LeaseCancel, LeaseReturn, LeaseKill, CancelObject, ActorFailed, ArgumentLost, ActorLeaving, ActorCreate,
        ActorMaker, ActorConnect, ActorKill, ActorLookup, Promise, Publish, Subscribe, Hold, Confirm, Unhold, Recover, Free, CollectGarbage,
        GroupCreate, GroupAwait, GroupRemove, GroupQuery, KeyValueRequest, StateQuery, TaskLog, ObjectLog, StackReport,
        WaitsReport, Metrics,
        DrainAsked, Goodbye, ClientResume, ClientSettled,
}
parts! {
    /// What a client says to its daemon.
    ClientToDaemon:
        /// For the store.
        Store(ClientToStore),
        /// Of a worker.
        Worker(WorkerToNode),
        /// A question of a worker's to its machine.
        Machine(WorkerToMachine),
        /// A question about the cluster.
        Report(ReportQuery),
        /// For the head.
        Head(ClientToHead),
}
direction! {
    /// What the object store answers.
    StoreToClient: Allocated, Pinned, StoreRefused, SegmentRetired,
}
direction! {
    /// What a machine answers to a worker of its own.
    MachineToWorker: DeviceErrors,
}
direction! {
    /// What the head answers to a question of a client that waits for it.
    AnswerToClient: ClusterReport, Holdings, ActorAnswer, GroupReport, KeyValueAnswer, StateReport,
}
direction! {
    /// What a client is told by the head or by its machine, unasked or when it comes about.
    EventToClient:
        LeaseGranted, LeaseRefused, LeaseReclaim, LeaseEnded, LeaseRetire, CancelObject, ActorPlaced, ActorDied,
        ActorRestarting, GroupAnswer, Published, Lost, Freed, Forgotten, ValueWanted, CollectGarbage, TaskLogQuery,
        ObjectLogQuery, StackQuery, WaitsQuery, LogLines, Notice, Assign, Peer, Draining, Preemption, HeadBack, Refused, Stop,
}
parts! {
    /// What a client is told by its daemon.
    DaemonToClient:
        /// By the store.
        Store(StoreToClient),
        /// By its machine, in answer to a question.
        Machine(MachineToWorker),
        /// In answer to a question.
        Answer(AnswerToClient),
        /// What comes about.
        Event(EventToClient),
}

// --- visitors: the command line, the autoscaler, the operator ---

direction! {
    /// What a visitor asks of the head, by way of its machine where that is another.
    VisitorToHead:
        StateQuery, StateFollow, ChronicleFollow, MetricsQuery, DrainAsked, DeviceAsked, GrowthState, GrowthQuery,
        SubmissionAsked, TokenAsked, LogQuery, EndAsked,
}
direction! {
    /// What a visitor says about the session of the daemon that it came to.
    VisitorToSession: Stop,
}
parts! {
    /// What a visitor says to the daemon.
    VisitorToDaemon:
        /// About the session.
        Session(VisitorToSession),
        /// A question about the cluster.
        Report(ReportQuery),
        /// For the head.
        Head(VisitorToHead),
}
direction! {
    /// What a visitor is told. One that comes from another machine is let in as a node is.
    DaemonToVisitor:
        ClusterReport, Holdings, LogAnswer, StateReport, StateChanges, ChronicleBatch, MetricsReport, GrowthReport, SubmissionAnswer, TokenAnswer, StoreRefused,
        Refused, NodeAdmitted,
}

// --- callers and workers ---

direction! {
    /// What the owner of a lease, or the caller of an actor, says to the worker.
    CallerToWorker: Function, Call, Cancel, StreamRead, StreamStop,
}
direction! {
    /// What a leased worker says to the lease's owner.
    WorkerToOwner: Reply, Returned, StreamItem,
}
direction! {
    /// What an actor's worker says to a caller.
    ActorToCaller: Reply, Retried, StreamItem,
}
direction! {
    /// What either end of a stream between clients says about the stream.
    ClientToClient: Resumed, RingOffered, RingTaken,
}

// --- templates ---

direction! {
    /// What the daemon says to a template.
    DaemonToTemplate: Fork,
}
direction! {
    /// What a template says to the daemon.
    TemplateToDaemon: TemplateReady, Forked, Gone, TemplateHolds,
}

// --- the head and its nodes ---

direction! {
    /// What a node tells of itself and of the orders that it was given.
    NodeReport:
        NodeJoin, NodeResume, NodeState, Placed, PlaceRefused, WorkerForked, WorkerSpent, WorkerDied, WorkerGone,
        GroupPrepared, ProxiedClientJoined, ProxiedClientLeft, Sought, Notice,
}
direction! {
    /// What the daemon of a node says to that of the head.
    NodeToDaemon:
        Relay, Locate, Connect, Copied, Spilled, CopyRefused, Heartbeat, CertificateWanted, PackageWanted, PackagePiece,
        LogAnswer, LogsUnshown, FailedTaskLog, NodeLeaves, Hello,
}
parts! {
    /// What a node says to the head.
    NodeToHead:
        /// Of itself.
        Report(NodeReport),
        /// To the daemon.
        Daemon(NodeToDaemon),
}
direction! {
    /// What the head has a node do with workers, bundles and jobs.
    HeadOrder:
        JobAnnounced, JobOver, EnvironmentMade, Place, GroupPrepare, GroupRelease, WorkerReturn, WorkerKill,
        DeviceOrder,
}
direction! {
    /// What the daemon of the head says to that of a node.
    DaemonToNode:
        Relay, ObjectDelete, Seek, Located, NodePeer, CopyWanted, HeartbeatHeard, CertificateIssued, PackageWanted,
        PackagePiece, LogQuery, NodeGone, NodeLeaves, NodeDismissed, ProxiedClientClose, Refused,
}
parts! {
    /// What the head says to a node.
    HeadToNode:
        /// An order.
        Order(HeadOrder),
        /// To the daemon.
        Daemon(DaemonToNode),
}
direction! {
    /// What a node says to another.
    NodeToNode: Fetch, Chunk, Fetched, Refused,
}
direction! {
    /// What a node passes on of its workers besides what they say: objects that they write, and what they print.
    NodeOfWorker: Stored, Abort, LogLines,
}
parts! {
    /// What a [`Relay`] to the head carries of a client.
    RelayedToHead:
        /// What its node says of it.
        Node(NodeOfWorker),
        /// Of a worker.
        Worker(WorkerToNode),
        /// A question about the cluster.
        Report(ReportQuery),
        /// For the head.
        Head(ClientToHead),
}
parts! {
    /// What a [`Relay`] to the head carries of a visitor.
    RelayedOfVisitor:
        /// A question about the cluster.
        Report(ReportQuery),
        /// For the head.
        Head(VisitorToHead),
}
parts! {
    /// What a [`Relay`] to a node carries for one of its clients or visitors.
    RelayedToNode:
        /// For a driver that the head lets in.
        Newcomer(DaemonToNewcomer),
        /// For a client.
        Client(DaemonToClient),
        /// For a visitor.
        Visitor(DaemonToVisitor),
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::LeaseRequestNumber;

    #[test]
    fn what_goes_another_way_is_refused() {
        let asked = Message::from(LeaseCancel { request: LeaseRequestNumber(7) });
        assert_eq!(
            ClientToDaemon::of(asked.clone()),
            Ok(ClientToDaemon::Head(ClientToHead::LeaseCancel(LeaseCancel { request: LeaseRequestNumber(7) })))
        );
        let refused = FrameError::Misdirected { kind: 11, direction: "DaemonToClient" };
        assert_eq!(DaemonToClient::of(asked.clone()), Err(refused));
        assert_eq!(NodeToHead::sort(asked.clone()), Err(asked));
    }

    #[test]
    fn a_frame_is_read_in_its_direction() {
        assert_eq!(ClientToStore::decode(110, Bytes::new()), Ok(Some(SegmentsUnmapped::default().into())));
        assert_eq!(ClientToStore::decode(60_000, Bytes::new()), Ok(None));
        let malformed = Bytes::from_static(&[0xff; 9]);
        assert!(matches!(ClientToStore::decode(57, malformed), Err(FrameError::Body { kind: 57, .. })));
        let refused = FrameError::Misdirected { kind: 22, direction: "ClientToStore" };
        assert_eq!(ClientToStore::decode(22, Bytes::new()), Err(refused));
    }
}
