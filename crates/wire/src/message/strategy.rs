//! Where a task or an actor wants to run: part of what asks for a worker.

use oxiray_fields::Fields;
use oxiray_ids::{NodeId, PlacementGroupId};

/// The machines allowed, and how to choose among them. Missing: any machine, the default way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Fields)]
pub struct Strategy {
    /// 0: the default; 1: spread; 2: one machine; 3: by labels; 4: within a placement group.
    #[field(1)]
    pub kind: u32,
    /// `NodeId` of the one machine.
    #[field(2)]
    pub node: Option<NodeId>,
    /// Whether another machine will do where that one is gone or too small.
    #[field(3)]
    pub soft: bool,
    /// With `soft`: whether another will do where it is busy.
    #[field(4)]
    pub spill: bool,
    /// Without `soft`: whether to fail where it is busy.
    #[field(5)]
    pub fail: bool,
    /// By labels: what must hold.
    #[field(6)]
    pub hard: Vec<LabelCondition>,
    /// By labels: what is preferred.
    #[field(7)]
    pub preferred: Vec<LabelCondition>,
    /// Under any strategy: the machines allowed, tried in order.
    #[field(8)]
    pub selectors: Vec<LabelSelector>,
    /// Within a placement group: its `PlacementGroupId`.
    #[field(9)]
    pub group: Option<PlacementGroupId>,
    /// Which of its bundles, counted from 1; 0 for any.
    #[field(10)]
    pub bundle: u32,
    /// Whether what is made by whoever runs there runs in the group too.
    #[field(11)]
    pub captures: bool,
}

/// Conditions that must hold together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Fields)]
pub struct LabelSelector {
    /// The conditions.
    #[field(1)]
    pub conditions: Vec<LabelCondition>,
}

/// A condition on one label of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Fields)]
pub struct LabelCondition {
    /// The label.
    #[field(1)]
    pub key: String,
    /// 1: has one of the values; 2: is missing or has none of them; 3: exists; 4: is missing.
    #[field(2)]
    pub operator: u32,
    /// The values.
    #[field(3)]
    pub values: Vec<String>,
}
