//! What a machine is and offers.

use crate::isolation::IsolationPlan;
use oxiray_accelerators::Offer;
use oxiray_ids::NodeId;
use oxiray_resources::Inventory;
pub use oxiray_wire::state::MemoryLevel as Level;
use std::collections::BTreeMap;
use std::time::Duration;

/// What one daemon works with, decided once at its start.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The node.
    pub node: NodeId,
    /// What it offers, for the ledger.
    pub inventory: Inventory,
    /// Its accelerators.
    pub offer: Offer,
    /// How they are kept from those that they were not granted to.
    pub isolation: IsolationPlan,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Bytes of the object store.
    pub store_bytes: u64,
    /// The host's name.
    pub hostname: String,
    /// When its daemon began, in milliseconds since 1970.
    pub started_ms: u64,
    /// Its name in listings.
    pub name: String,
    /// Its address.
    pub ip: String,
    /// The variables that the daemon was started with, which every worker inherits.
    pub variables: BTreeMap<String, String>,
    /// How many forked workers wait unassigned.
    pub spare_workers: usize,
    /// What its head goes by, where it has one.
    pub rules: Rules,
    /// What its user should know.
    pub warnings: Vec<String>,
    /// Which head of its cluster this is, counted from 1; 0 where it keeps no journal, so that its end is final.
    pub epoch: u64,
}

/// What the head of a cluster goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// How long a demand that no node can meet waits for one that can; zero where no node can join.
    pub node: Duration,
    /// How long processes wait for each other until a call of theirs fails; nothing where their drivers are only told.
    pub deadlock: Option<Duration>,
    /// How long what may end early has from the word to its end; nothing where nothing ends early.
    pub preemption_grace: Option<Duration>,
    /// Whether jobs of equal priority are served in the order in which they asked, whatever each of them holds.
    pub jobs_by_arrival: bool,
}

impl Default for Rules {
    fn default() -> Self {
        let deadlock = Some(Duration::from_secs(10));
        Self { node: Duration::ZERO, deadlock, preemption_grace: None, jobs_by_arrival: false }
    }
}

impl Plan {
    /// Gives the node another name than the one that it was made with.
    pub fn rename(&mut self, node: NodeId) {
        let label = self.labels.get_mut("ray.io/node-id").filter(|label| **label == self.node.hex());
        if let Some(label) = label {
            *label = node.hex();
        }
        self.node = node;
    }

    /// How many idle workers are kept, however long nobody wanted more.
    pub fn idle_workers_kept(&self) -> usize {
        (self.inventory.total("CPU").wholes() as usize).clamp(1, 1024)
    }
}
