//! Several machines: streams that two nodes make for others, and words of life.

use bytes::Bytes;

/// In a message from the head to a member, in place of a stream's descriptor: how the member comes by one end of it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Splice {
    /// Names the stream; whoever shows it is let through, once.
    #[prost(bytes = "bytes", tag = "1")]
    pub ticket: Bytes,
    /// `NodeId` of the node that has the other end: the member's own where both ends are its processes'.
    #[prost(bytes = "bytes", tag = "2")]
    pub node: Bytes,
    /// Where that node is to be dialled, as `IP:PORT`; empty where it comes by itself.
    #[prost(string, tag = "3")]
    pub address: String,
    /// Whether that node is the head, which is dialled where the member reached it before.
    #[prost(bool, tag = "4")]
    pub is_head: bool,
}

/// member → head: it lives.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Heartbeat {
    /// Counted by the member.
    #[prost(uint64, tag = "1")]
    pub number: u64,
}

/// head → member: that was heard, and the member's lease runs anew from when it was said.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HeartbeatHeard {
    /// The number of the [`Heartbeat`].
    #[prost(uint64, tag = "1")]
    pub number: u64,
}

/// head → member: another node is gone; nothing more comes from it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeGone {
    /// `NodeId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub node: Bytes,
}

/// member → head: it ends, and all its processes have ended. head → member: the cluster ends.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeLeaves {}
