//! Several machines: streams that two nodes make for others, and words of life.

use bytes::Bytes;
use oxiray_fields::Fields;
use oxiray_ids::NodeId;

/// In a message from the head to a member, in place of a stream's descriptor: how the member comes by one end of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ConnectionTicket {
    /// Names the stream; whoever shows it is let through, once.
    #[field(1)]
    pub ticket: Bytes,
    /// `NodeId` of the node that has the other end: the member's own where both ends are its processes'.
    #[field(2)]
    pub node: NodeId,
    /// Where that node is to be dialled, as `IP:PORT`; empty where it comes by itself.
    #[field(3)]
    pub address: String,
    /// Whether that node is the head, which is dialled where the member reached it before.
    #[field(4)]
    pub is_head: bool,
}

/// member → head: it lives.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Heartbeat {
    /// Counted by the member.
    #[field(1)]
    pub number: u64,
}

/// head → member: that was heard, and the member's lease runs anew from when it was said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct HeartbeatHeard {
    /// The number of the [`Heartbeat`].
    #[field(1)]
    pub number: u64,
}

/// head → member: another node is gone; nothing more comes from it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct NodeGone {
    /// `NodeId`.
    #[field(1)]
    pub node: NodeId,
}

/// member → head: it ends, and all its processes have ended. head → member: the cluster ends.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct NodeLeaves {}
