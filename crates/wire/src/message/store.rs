//! The object store: clients and daemon.

use super::Failure;
use oxiray_fields::Fields;
use oxiray_ids::ObjectId;

/// client → daemon: room for an object. Answered by [`Allocated`] or [`StoreRefused`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Allocate {
    /// Names the question.
    #[field(1)]
    pub request: u64,
    /// `ObjectId`. The sender becomes its first holder.
    #[field(2)]
    pub object: ObjectId,
    /// Bytes wanted.
    #[field(3)]
    pub size: u64,
    /// The sender has nothing to write yet, and does not wait: it is granted only where that costs nobody anything, and
    /// refused at once otherwise.
    #[field(4)]
    pub ahead: bool,
}

/// daemon → client, with a writable descriptor where the client does not have the file mapped yet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Allocated {
    /// The question.
    #[field(1)]
    pub request: u64,
    /// Names the file.
    #[field(2)]
    pub file: u64,
    /// With a descriptor: how many bytes of it to map.
    #[field(3)]
    pub mapped: u64,
    /// Where the object begins in what is mapped.
    #[field(4)]
    pub offset: u64,
    /// With a descriptor: where the mapping begins in it.
    #[field(5)]
    pub base: u64,
    /// Bytes of the object.
    #[field(6)]
    pub size: u64,
}

/// daemon → client: [`Allocate`] or [`Pin`] failed, or the answer to another question is larger than a message may be.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct StoreRefused {
    /// The question.
    #[field(1)]
    pub request: u64,
    /// Codes `store_full`, `out_of_disk`, `object_lost`, `system`.
    #[field(2)]
    pub failure: Option<Failure>,
}

/// client → daemon: the object is written; it can be read from now on and is never written again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Seal {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
}

/// client → daemon: the object will not be written after all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Abort {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
}

/// client → daemon: keep the object in memory while I read it. Answered by [`Pinned`] or [`StoreRefused`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Pin {
    /// Names the question.
    #[field(1)]
    pub request: u64,
    /// `ObjectId`.
    #[field(2)]
    pub object: ObjectId,
}

/// daemon → client, with a read-only descriptor where the client does not have the file mapped yet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Pinned {
    /// The question.
    #[field(1)]
    pub request: u64,
    /// Names the file.
    #[field(2)]
    pub file: u64,
    /// With a descriptor: how many bytes of it to map.
    #[field(3)]
    pub mapped: u64,
    /// Bytes of the object.
    #[field(4)]
    pub size: u64,
    /// Where the object begins in what is mapped.
    #[field(5)]
    pub offset: u64,
    /// With a descriptor: where the mapping begins in it.
    #[field(6)]
    pub base: u64,
}

/// client → daemon: one [`Pin`] of the object is over.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Unpin {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
}

/// daemon → client: the file is gone; drop what is mapped of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct SegmentRetired {
    /// The file.
    #[field(1)]
    pub file: u64,
}
