//! Nodes that a vendor's library makes at its first use, made before: a fence may keep the library from making them.

use crate::host::Host;
use crate::offer::Offer;
use oxiray_families::{HostFacts as _, LateNode};

/// What became of a node that was missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateNodeMade {
    /// The node.
    pub path: &'static str,
    /// Whether it is there now.
    pub is_there: bool,
    /// What was done for it, for people.
    pub how: String,
}

/// Has the vendors' programs make the nodes that their libraries would make at the first use of devices that are there; of
/// those that are there already nothing is said.
pub fn make_late_nodes(host: &Host, offer: &Offer) -> Vec<LateNodeMade> {
    let found = offer.devices.iter().filter(|offered| offered.detected > 0);
    let mut wanted: Vec<LateNode> = found.filter_map(|offered| offered.family.fencing.late_node).collect();
    wanted.dedup();
    wanted.into_iter().filter(|node| !host.exists(node.path)).map(|node| made(host, node)).collect()
}

fn made(host: &Host, LateNode { path, programs, arguments }: LateNode) -> LateNodeMade {
    let name = programs.first().copied().unwrap_or_default();
    let what = match host.run(programs, arguments) {
        Ok(Some(_)) => format!("`{name} {}` was run", arguments.join(" ")),
        Ok(None) => format!("there is no `{name}`, which makes it"),
        Err(error) => error,
    };
    let is_there = host.exists(path);
    let how = if is_there { format!("{path} was missing: {what}") } else { format!("{path} is missing: {what}") };
    LateNodeMade { path, is_there, how }
}
