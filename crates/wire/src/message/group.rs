//! Placement groups: clients and daemon.

use super::{Amount, Failure, LabelCondition};
use bytes::Bytes;

/// client → daemon: reserve these bundles, all or none. Answered by [`GroupAnswer`]: at once, though the group may wait
/// for room, or with `tells_when_created` then, or when it never will be.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GroupCreate {
    /// Names the question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// `PlacementGroupId`, chosen by the creator.
    #[prost(bytes = "bytes", tag = "2")]
    pub group: Bytes,
    /// Its name in the job's namespace; empty for none.
    #[prost(string, tag = "3")]
    pub name: String,
    /// `PACK`, `SPREAD`, `STRICT_PACK` or `STRICT_SPREAD`.
    #[prost(string, tag = "4")]
    pub strategy: String,
    /// What is reserved.
    #[prost(message, repeated, tag = "5")]
    pub bundles: Vec<GroupBundle>,
    /// Whether it outlives its job.
    #[prost(bool, tag = "6")]
    pub detached: bool,
    /// `NodeId` of the machine to prefer; empty for none.
    #[prost(bytes = "bytes", tag = "7")]
    pub preferred: Bytes,
    /// Whether the answer is that it is created, not that it is taken on.
    #[prost(bool, tag = "8")]
    pub tells_when_created: bool,
}

/// What is reserved together on one machine.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GroupBundle {
    /// The resources.
    #[prost(message, repeated, tag = "1")]
    pub demand: Vec<Amount>,
    /// What must hold of the machine's labels.
    #[prost(message, repeated, tag = "2")]
    pub conditions: Vec<LabelCondition>,
}

/// daemon → client: what became of [`GroupCreate`], or the end of [`GroupAwait`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GroupAnswer {
    /// The question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// Codes `invalid`, `system`, `task_placement_group_removed`; none where all is well.
    #[prost(message, optional, tag = "2")]
    pub failure: Option<Failure>,
}

/// client → daemon: tell me when the group is created. Answered by [`GroupAnswer`] then, or when it is removed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GroupAwait {
    /// Names the question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// `PlacementGroupId`.
    #[prost(bytes = "bytes", tag = "2")]
    pub group: Bytes,
}

/// client → daemon: give the group up, and kill what runs within it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GroupRemove {
    /// `PlacementGroupId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub group: Bytes,
}

/// client → daemon: how are placement groups? Answered by [`GroupReport`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GroupQuery {
    /// Names the question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// `PlacementGroupId` of one; empty for all, or for the one of `name`.
    #[prost(bytes = "bytes", tag = "2")]
    pub group: Bytes,
    /// The name of one in the job's namespace; empty for any.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// daemon → client.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GroupReport {
    /// The question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// A JSON array with an object for each group found.
    #[prost(string, tag = "2")]
    pub groups: String,
}
