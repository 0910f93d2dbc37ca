//! Objects between nodes: where they lie, and their bytes.

use super::{ConnectionTicket, Failure};
use bytes::Bytes;
use oxiray_fields::Fields;
use oxiray_ids::{NodeId, ObjectId};

/// Of a worker, by its member → head: it has room for the object in its node's store, and is its first holder.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Stored {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
}

/// head → member: nobody refers to the object any more.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ObjectDelete {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
}

/// member → head: where does the object lie? Answered by [`Located`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Locate {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
    /// `NodeId` of a node that turned out not to have it; empty for none.
    #[field(2)]
    pub without: Option<NodeId>,
}

/// head → member: the node to ask.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct Located {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
    /// `NodeId`; empty where no node has it.
    #[field(2)]
    pub node: Option<NodeId>,
    /// Why no node has it, where that is known.
    #[field(3)]
    pub failure: Option<Failure>,
}

/// head → member: somebody wants an object that no store is known to have. What the member said before its answer, of
/// objects being written say, is known by then. Answered by [`Sought`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Seek {
    /// Names the search.
    #[field(1)]
    pub search: u64,
    /// `ObjectId`.
    #[field(2)]
    pub object: ObjectId,
}

/// member → head.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Sought {
    /// The search.
    #[field(1)]
    pub search: u64,
    /// Whether the object lies in the member's store, or is being written there by one of its workers.
    #[field(2)]
    pub is_here: bool,
}

/// member → head: a stream to another node is wanted. Answered by [`NodePeer`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Connect {
    /// `NodeId`.
    #[field(1)]
    pub node: NodeId,
}

/// head → member, with a stream: another node, to exchange objects with. Without one: that node is gone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct NodePeer {
    /// `NodeId`.
    #[field(1)]
    pub node: NodeId,
    /// What stands for the stream where descriptors do not travel.
    #[field(2)]
    pub connection_ticket: Option<ConnectionTicket>,
}

/// node → node: a piece of an object is wanted. It stays in memory there until [`Fetched`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Fetch {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
    /// Where the piece begins, in bytes.
    #[field(2)]
    pub offset: u64,
    /// Names the attempt on this stream: pieces of one are asked for and given in order.
    #[field(3)]
    pub number: u64,
    /// At most so many bytes of it.
    #[field(4)]
    pub length: u64,
    /// Whether they may come beside the stream's messages: a hold is open under the number of the attempt.
    #[field(5)]
    pub beside: bool,
}

/// The same for all copies of one writing of an object, and for no other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub u64);

/// node → node: a piece of an object, or why there is none.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct Chunk {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
    /// Where it begins, in bytes.
    #[field(2)]
    pub offset: u64,
    /// Bytes of the whole object.
    #[field(3)]
    pub size: u64,
    /// The bytes.
    #[field(4)]
    pub bytes: Bytes,
    /// The object is not to be had here.
    #[field(5)]
    pub missing: bool,
    /// The attempt.
    #[field(6)]
    pub number: u64,
    /// The same for all copies of one writing of the object, and for no other.
    #[field(7)]
    pub stamp: Stamp,
    /// Why an object that is there is not to be had.
    #[field(8)]
    pub failure: Option<Failure>,
    /// So many bytes came beside this message, ahead of it.
    #[field(9)]
    pub beside: u64,
}

/// node → node: nothing more is wanted of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Fetched {
    /// The attempt.
    #[field(1)]
    pub number: u64,
}

/// member → head: no copy of an object is to be had for the member's store, though it was wanted there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct CopyRefused {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
}

/// member → head: a copy of the object lies in the member's store now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Copied {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
}

/// member → head: an object in the member's store was written to disk there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Spilled {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
}
