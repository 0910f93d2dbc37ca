//! What machines of one kind a cluster may grow by.

use std::collections::BTreeMap;

use oxiray_resources::Inventory;

/// How long a replica may be idle where nothing is said, in milliseconds.
pub const IDLE_TIMEOUT_MS: u64 = 60_000;

/// Machines of one kind, of which there may be more or fewer.
///
/// They are counted in *replicas*: a replica is one machine, or as many as [`hosts`](Self::hosts) says, which belong
/// together (a slice of TPU hosts) and come and go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeGroup {
    /// Its name, unique in its cluster.
    pub name: String,
    /// The fewest replicas, wanted or not.
    pub min: u32,
    /// The most replicas.
    pub max: u32,
    /// How many machines a replica has; at least one.
    pub hosts: u32,
    /// What each host offers.
    pub resources: Inventory,
    /// What the first host of each replica offers besides.
    pub first_host: Inventory,
    /// The labels of each host.
    pub labels: BTreeMap<String, String>,
    /// Of groups that serve as well, the one with the highest is taken.
    pub priority: i32,
    /// How long a replica may be idle before it goes, in milliseconds.
    pub idle_timeout_ms: u64,
}
