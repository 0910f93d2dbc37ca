//! The object store: clients and daemon.

use super::Failure;
use bytes::Bytes;

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
    /// The sender has nothing to write yet, and does not wait: it is granted only where that costs nobody anything, and
    /// refused at once otherwise.
    #[prost(bool, tag = "4")]
    pub ahead: bool,
}

/// daemon → client, with a writable descriptor where the client does not have the file mapped yet.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Allocated {
    /// The question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// Names the file.
    #[prost(uint64, tag = "2")]
    pub file: u64,
    /// With a descriptor: how many bytes of it to map.
    #[prost(uint64, tag = "3")]
    pub mapped: u64,
    /// Where the object begins in what is mapped.
    #[prost(uint64, tag = "4")]
    pub offset: u64,
    /// With a descriptor: where the mapping begins in it.
    #[prost(uint64, tag = "5")]
    pub base: u64,
    /// Bytes of the object.
    #[prost(uint64, tag = "6")]
    pub size: u64,
}

/// daemon → client: [`Allocate`] or [`Pin`] failed, or the answer to another question is larger than a message may be.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StoreRefused {
    /// The question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// Codes `store_full`, `out_of_disk`, `object_lost`, `system`.
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

/// daemon → client, with a read-only descriptor where the client does not have the file mapped yet.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Pinned {
    /// The question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// Names the file.
    #[prost(uint64, tag = "2")]
    pub file: u64,
    /// With a descriptor: how many bytes of it to map.
    #[prost(uint64, tag = "3")]
    pub mapped: u64,
    /// Bytes of the object.
    #[prost(uint64, tag = "4")]
    pub size: u64,
    /// Where the object begins in what is mapped.
    #[prost(uint64, tag = "5")]
    pub offset: u64,
    /// With a descriptor: where the mapping begins in it.
    #[prost(uint64, tag = "6")]
    pub base: u64,
}

/// client → daemon: one [`Pin`] of the object is over.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Unpin {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
}

/// daemon → client: the file is gone; drop what is mapped of it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SegmentRetired {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub file: u64,
}
