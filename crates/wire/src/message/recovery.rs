//! Values that were lost, freed, or are no longer wanted: clients and daemon.
//!
//! A reader that cannot have a stored value any more says so ([`Recover`]) and subscribes to the object anew. The
//! daemon takes the value back and asks the owner for another ([`Lost`]); the owner runs the task again and publishes,
//! or publishes why it cannot. What loses a value, a bad disk or a dead machine, makes no difference to this.

use super::Reference;
use crate::state::Holding;
use oxiray_fields::Fields;
use oxiray_ids::ObjectId;

/// client → daemon: the stored bytes of this object are lost, so what was published of it is no longer true. From its
/// owner: another value will be published. From anybody else: the owner is to be told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Recover {
    /// What, and whose.
    #[field(1)]
    pub reference: Option<Reference>,
}

/// daemon → owner: the stored bytes of this object are lost and somebody wants them. Answered by a `Publish`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Lost {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
}

/// daemon → owner: somebody asks for the value of this object, of which the daemon was told nothing yet. Answered by a
/// `Promise`, where that is not under way, and a `Publish`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ValueWanted {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
}

/// client → daemon: give the memory of these objects back, whoever still refers to them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Free {
    /// What, and whose.
    #[field(1)]
    pub references: Vec<Reference>,
}

/// daemon → owner: another client freed this object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Freed {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
}

/// client → daemon: the client has these files mapped no more. The next grant in one brings its descriptor again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct SegmentsUnmapped {
    /// As `Allocated` and `Pinned` name them.
    #[field(1)]
    pub files: Vec<u64>,
}

/// daemon → owner: nobody refers to this stored object any more, so it will never have to be made again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Forgotten {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
}

/// client, command line → daemon: which objects are there, and who holds them? Answered by [`Holdings`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct HoldingsQuery {
    /// Names the question.
    #[field(1)]
    pub request: u64,
    /// Only these objects are asked for; all where there are none.
    #[field(2)]
    pub objects: Vec<ObjectId>,
}

/// daemon → client.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Holdings {
    /// The question.
    #[field(1)]
    pub request: u64,
    /// The objects.
    #[field(3)]
    pub objects: Vec<Holding>,
    /// How many more there are.
    #[field(4)]
    pub left_out: u64,
}

/// client → daemon → every other client: collect garbage, so that references in cycles of objects are given back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct CollectGarbage {}
