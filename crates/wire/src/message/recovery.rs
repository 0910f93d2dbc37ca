//! Values that were lost, freed, or are no longer wanted: clients and daemon.
//!
//! A reader that cannot have a stored value any more says so ([`Recover`]) and subscribes to the object anew. The
//! daemon takes the value back and asks the owner for another ([`Lost`]); the owner runs the task again and publishes,
//! or publishes why it cannot. What loses a value, a bad disk or a dead machine, makes no difference to this.

use super::Reference;
use bytes::Bytes;

/// client → daemon: the stored bytes of this object are lost, so what was published of it is no longer true. From its
/// owner: another value will be published. From anybody else: the owner is to be told.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Recover {
    /// What, and whose.
    #[prost(message, optional, tag = "1")]
    pub reference: Option<Reference>,
}

/// daemon → owner: the stored bytes of this object are lost and somebody wants them. Answered by a `Publish`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Lost {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
}

/// daemon → owner: somebody asks for the value of this object, of which the daemon was told nothing yet. Answered by a
/// `Promise`, where that is not under way, and a `Publish`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Wanted {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
}

/// client → daemon: give the memory of these objects back, whoever still refers to them.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Free {
    /// What, and whose.
    #[prost(message, repeated, tag = "1")]
    pub references: Vec<Reference>,
}

/// daemon → owner: another client freed this object.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Freed {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
}

/// client → daemon: the client has these files mapped no more. The next grant in one brings its descriptor again.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SegmentsUnmapped {
    /// As `Allocated` and `Pinned` name them.
    #[prost(uint64, repeated, tag = "1")]
    pub files: Vec<u64>,
}

/// daemon → owner: nobody refers to this stored object any more, so it will never have to be made again.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Forgotten {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
}

/// client, command line → daemon: which objects are there, and who holds them? Answered by [`Holdings`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HoldingsQuery {
    /// Names the question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
}

/// daemon → client.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Holdings {
    /// The question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// JSON: one entry an object.
    #[prost(string, tag = "2")]
    pub detail: String,
}

/// client → daemon → every other client: collect garbage, so that references in cycles of objects are given back.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CollectGarbage {}
