//! Why something waits.

use oxiray_fields::Fields;
use oxiray_ids::NodeId;
use serde::{Deserialize, Serialize};

/// Why a task, an actor or a placement group waits, or that it does not.
#[derive(Debug, Clone, PartialEq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct Explanation {
    /// `task`, `actor` or `placement group`.
    #[field(1)]
    pub kind: String,
    /// Its identifier, in hexadecimal digits.
    #[field(2)]
    pub id: String,
    /// The name of its function or class, or its own.
    #[field(3)]
    pub name: String,
    /// How far it is, in Ray's words.
    #[field(4)]
    pub state: String,
    /// Whether it waits for a node.
    #[field(5)]
    pub waits: bool,
    /// For how long, in seconds.
    #[field(6)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_s: Option<f64>,
    /// Why, as a sentence.
    #[field(7)]
    pub reason: String,
    /// What each node says to it.
    #[field(8)]
    pub nodes: Vec<NodeVerdict>,
    /// Why no machine that is there or that the autoscaler could bring will ever do; empty where one could.
    #[field(9)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub never: Option<String>,
    /// The deadlock that it is part of, or waits behind, as long as that stands; nothing where none was found.
    #[field(10)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadlock: Option<DeadlockFound>,
    /// The devices that it has, or would get where there is room for it, by machines.
    #[field(11)]
    pub devices: Vec<DevicesChosen>,
}

/// The devices of one resource that something has on one machine, or would get there, and why those.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct DevicesChosen {
    /// The node.
    #[field(1)]
    pub node_id: Option<NodeId>,
    /// Its address.
    #[field(2)]
    pub address: String,
    /// The number of the bundle that has them; nothing where none has.
    #[field(3)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle: Option<u32>,
    /// The resource.
    #[field(4)]
    pub resource: String,
    /// Their numbers on the node, in ascending order.
    #[field(5)]
    pub slots: Vec<u32>,
    /// Whether it has them.
    #[field(6)]
    pub is_held: bool,
    /// Why those, in words; empty where its node does not say.
    #[field(7)]
    pub why: String,
}

/// Processes that wait for what others of them hold.
#[derive(Debug, Clone, PartialEq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct DeadlockFound {
    /// Who holds what, and what each waits for, as a sentence with what to do about it.
    #[field(1)]
    pub reason: String,
    /// How long ago that was found, in seconds.
    #[field(2)]
    pub found_s: f64,
    /// After how many seconds one of them fails; nothing where they wait until one is cancelled.
    #[field(3)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails_in_s: Option<f64>,
}

/// What one node, or one bundle of a placement group, says to a demand.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeVerdict {
    /// The node; nothing for a bundle without one.
    #[field(1)]
    pub node_id: Option<NodeId>,
    /// Its address; nothing for a bundle.
    #[field(2)]
    pub address: Option<String>,
    /// The number of the bundle.
    #[field(3)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle: Option<u32>,
    /// The first rule that fails there; nothing where there is room.
    #[field(4)]
    pub rule: Option<String>,
    /// Why it fails, for people.
    #[field(5)]
    pub why: String,
}
