//! Where a task or an actor wants to run: part of what asks for a worker.

use oxiray_fields::Fields;
use oxiray_ids::{BundleNumber, NodeId, PlacementGroupId};
use serde::{Deserialize, Serialize};

/// The machines allowed, and how to choose among them. Missing: any machine, the default way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Fields)]
pub struct Strategy {
    /// How it chooses.
    #[field(1)]
    pub kind: StrategyKind,
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
    /// Which of its bundles; nothing for any.
    #[field(10)]
    pub bundle: Option<BundleNumber>,
    /// Whether what is made by whoever runs there runs in the group too.
    #[field(11)]
    pub captures: bool,
}

/// How a [`Strategy`] chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
pub enum StrategyKind {
    /// The default way.
    Default = 0,
    /// The least used machine; among equals each in turn.
    Spread = 1,
    /// One machine.
    Node = 2,
    /// Machines with certain labels.
    Labels = 3,
    /// A machine on which a placement group has a bundle.
    Group = 4,
}

/// Conditions that must hold together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Fields)]
pub struct LabelSelector {
    /// The conditions.
    #[field(1)]
    pub conditions: Vec<LabelCondition>,
}

/// A condition on one label of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Fields, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelCondition {
    /// The label.
    #[field(1)]
    pub key: String,
    /// What must hold of it.
    #[field(2)]
    pub operator: LabelOperator,
    /// The values.
    #[field(3)]
    #[serde(default)]
    pub values: Vec<String>,
}

/// What must hold of a label; its number in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration, Serialize, Deserialize)]
#[serde(try_from = "i32", into = "i32")]
pub enum LabelOperator {
    /// It has one of the values.
    In = 1,
    /// It is missing or has none of the values.
    NotIn = 2,
    /// It is there.
    Exists = 3,
    /// It is missing.
    Missing = 4,
}
