//! Emptying a node ahead of its end.

use oxiray_fields::Fields;
use oxiray_ids::{LeaseNumber, ObjectId};

/// client, command line → head: empty a node, or do not after all. Answered by a [`StateReport`](super::StateReport) with
/// one row.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct DrainAsked {
    /// The question.
    #[field(1)]
    pub request: u64,
    /// Its `NodeId` in hexadecimal digits, or the beginning of that; or its name or address, where one node has it.
    #[field(2)]
    pub node: String,
    /// When it is to end at the latest, from now, in milliseconds; without one it ends when nothing is left there.
    #[field(3)]
    pub deadline_ms: Option<u64>,
    /// Why, for people.
    #[field(4)]
    pub reason: String,
    /// Whether it is to be kept after all.
    #[field(5)]
    pub undo: bool,
    /// Refuses where anything runs or is set aside there.
    #[field(6)]
    pub only_if_idle: bool,
}

/// head → member: it is emptied, or its time is over: it is to end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct NodeDismissed {
    /// Why, for its log.
    #[field(1)]
    pub text: String,
}

/// head → client: its node is being emptied, or is not any more.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Draining {
    /// In how many milliseconds the node ends at the latest; nothing where no time is set.
    #[field(1)]
    pub left_ms: Option<u64>,
    /// Why, for people.
    #[field(2)]
    pub reason: String,
    /// It is kept after all.
    #[field(3)]
    pub is_over: bool,
}

/// head → worker: it is to end early, for what is more urgent, or is not to after all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Preemption {
    /// In how many milliseconds it is killed at the latest.
    #[field(1)]
    pub left_ms: u64,
    /// For what, for people.
    #[field(2)]
    pub reason: String,
    /// It goes on after all.
    #[field(3)]
    pub is_over: bool,
    /// Half of the time is over, and a task is to end by itself.
    #[field(4)]
    pub ends_now: bool,
}

/// head → owner: begin nothing more on the lease, and return it when what runs there is done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct LeaseRetire {
    /// The lease.
    #[field(1)]
    pub lease: LeaseNumber,
}

/// head → member: have a copy of an object in its store.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct CopyWanted {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
}
