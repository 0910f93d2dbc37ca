//! Placement groups: clients and daemon.

use super::{Amount, Failure, LabelCondition};
use crate::state::GroupRow;
use crate::words::spelled;
use oxiray_fields::Fields;
use oxiray_ids::{NodeId, PlacementGroupId};

/// client → daemon: reserve these bundles, all or none. Answered by [`GroupAnswer`]: at once, though the group may wait
/// for room, or with `tells_when_created` then, or when it never will be.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct GroupCreate {
    /// Names the question.
    #[field(1)]
    pub request: u64,
    /// `PlacementGroupId`, chosen by the creator.
    #[field(2)]
    pub group: PlacementGroupId,
    /// Its name in the job's namespace; empty for none.
    #[field(3)]
    pub name: String,
    /// How its bundles are spread over machines.
    #[field(4)]
    pub strategy: PlacementStrategy,
    /// What is reserved.
    #[field(5)]
    pub bundles: Vec<GroupBundle>,
    /// Whether it outlives its job.
    #[field(6)]
    pub detached: bool,
    /// `NodeId` of the machine to prefer; empty for none.
    #[field(7)]
    pub preferred: Option<NodeId>,
    /// Whether the answer is that it is created, not that it is taken on.
    #[field(8)]
    pub tells_when_created: bool,
    /// How urgent it is; the higher one goes first.
    #[field(9)]
    pub priority: i32,
    /// Whether all of it may be given back early for what is more urgent; it waits for room again then.
    #[field(10)]
    pub preemptible: bool,
    /// The label of which all its machines are to have the same value; empty for none.
    #[field(11)]
    pub domain: String,
}

spelled! {
    /// How the bundles of a placement group are spread over machines, in Ray's words.
    PlacementStrategy {
        /// On as few machines as possible.
        Pack: "PACK",
        /// On as many as possible.
        Spread: "SPREAD",
        /// On one.
        StrictPack: "STRICT_PACK",
        /// Each on its own.
        StrictSpread: "STRICT_SPREAD",
    }
}

/// What is reserved together on one machine.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct GroupBundle {
    /// The resources.
    #[field(1)]
    pub demand: Vec<Amount>,
    /// What must hold of the machine's labels.
    #[field(2)]
    pub conditions: Vec<LabelCondition>,
}

/// daemon → client: what became of [`GroupCreate`], or the end of [`GroupAwait`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct GroupAnswer {
    /// The question.
    #[field(1)]
    pub request: u64,
    /// Codes `invalid`, `system`, `task_placement_group_removed`; none where all is well.
    #[field(2)]
    pub failure: Option<Failure>,
}

/// client → daemon: tell me when the group is created. Answered by [`GroupAnswer`] then, or when it is removed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct GroupAwait {
    /// Names the question.
    #[field(1)]
    pub request: u64,
    /// `PlacementGroupId`.
    #[field(2)]
    pub group: PlacementGroupId,
}

/// client → daemon: give the group up, and kill what runs within it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct GroupRemove {
    /// `PlacementGroupId`.
    #[field(1)]
    pub group: PlacementGroupId,
}

/// client → daemon: how are placement groups? Answered by [`GroupReport`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct GroupQuery {
    /// Names the question.
    #[field(1)]
    pub request: u64,
    /// `PlacementGroupId` of one; empty for all, or for the one of `name`.
    #[field(2)]
    pub group: Option<PlacementGroupId>,
    /// The name of one in the job's namespace; empty for any.
    #[field(3)]
    pub name: String,
}

/// daemon → client.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct GroupReport {
    /// The question.
    #[field(1)]
    pub request: u64,
    /// The groups that were found.
    #[field(3)]
    pub groups: Vec<GroupRow>,
}
