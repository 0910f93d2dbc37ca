//! Objects between nodes: where they lie, and their bytes.

use super::{Failure, Splice};
use bytes::Bytes;

/// Of a worker, by its member → head: it has room for the object in its node's store, and is its first holder.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Stored {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
}

/// head → member: nobody refers to the object any more.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ObjectDelete {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
}

/// member → head: where does the object lie? Answered by [`Located`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Locate {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
    /// `NodeId` of a node that turned out not to have it; empty for none.
    #[prost(bytes = "bytes", tag = "2")]
    pub without: Bytes,
}

/// head → member: the node to ask.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Located {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
    /// `NodeId`; empty where no node has it.
    #[prost(bytes = "bytes", tag = "2")]
    pub node: Bytes,
    /// Why no node has it, where that is known.
    #[prost(message, optional, tag = "3")]
    pub failure: Option<Failure>,
}

/// head → member: somebody wants an object that no store is known to have. What the member said before its answer, of
/// objects being written say, is known by then. Answered by [`Sought`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Seek {
    /// Names the search.
    #[prost(uint64, tag = "1")]
    pub search: u64,
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "2")]
    pub object: Bytes,
}

/// member → head.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Sought {
    /// The search.
    #[prost(uint64, tag = "1")]
    pub search: u64,
    /// Whether the object lies in the member's store, or is being written there by one of its workers.
    #[prost(bool, tag = "2")]
    pub is_here: bool,
}

/// member → head: a stream to another node is wanted. Answered by [`NodePeer`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Connect {
    /// `NodeId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub node: Bytes,
}

/// head → member, with a stream: another node, to exchange objects with. Without one: that node is gone.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodePeer {
    /// `NodeId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub node: Bytes,
    /// What stands for the stream where descriptors do not travel.
    #[prost(message, optional, tag = "2")]
    pub splice: Option<Splice>,
}

/// node → node: a piece of an object is wanted. It stays in memory there until [`Fetched`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Fetch {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
    /// Where the piece begins, in bytes.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// Names the attempt on this stream: pieces of one are asked for and given in order.
    #[prost(uint64, tag = "3")]
    pub number: u64,
    /// At most so many bytes of it.
    #[prost(uint64, tag = "4")]
    pub length: u64,
    /// Whether they may come beside the stream's messages: a hold is open under the number of the attempt.
    #[prost(bool, tag = "5")]
    pub beside: bool,
}

/// node → node: a piece of an object, or why there is none.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Chunk {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
    /// Where it begins, in bytes.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// Bytes of the whole object.
    #[prost(uint64, tag = "3")]
    pub size: u64,
    /// The bytes.
    #[prost(bytes = "bytes", tag = "4")]
    pub bytes: Bytes,
    /// The object is not to be had here.
    #[prost(bool, tag = "5")]
    pub missing: bool,
    /// The attempt.
    #[prost(uint64, tag = "6")]
    pub number: u64,
    /// The same for all copies of one writing of the object, and for no other.
    #[prost(fixed64, tag = "7")]
    pub stamp: u64,
    /// Why an object that is there is not to be had.
    #[prost(message, optional, tag = "8")]
    pub failure: Option<Failure>,
    /// So many bytes came beside this message, ahead of it.
    #[prost(uint64, tag = "9")]
    pub beside: u64,
}

/// node → node: nothing more is wanted of an attempt.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Fetched {
    /// The attempt.
    #[prost(uint64, tag = "1")]
    pub number: u64,
}

/// member → head: no copy of an object is to be had for the member's store, though it was wanted there.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CopyRefused {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
}

/// member → head: a copy of the object lies in the member's store now.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Copied {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
}
