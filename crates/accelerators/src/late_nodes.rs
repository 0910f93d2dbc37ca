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

/// The nodes that vendors' libraries would make at the first use of devices that are there; where `makes` says so, the vendors'
/// programs make them now. Of those that are there already nothing is said.
pub fn late_nodes(host: &Host, offer: &Offer, makes: bool) -> Vec<LateNodeMade> {
    let found = offer.devices.iter().filter(|offered| offered.detected > 0);
    let mut wanted: Vec<LateNode> = found.filter_map(|offered| offered.family.fencing.late_node).collect();
    wanted.dedup();
    wanted.into_iter().filter(|node| !host.exists(node.path)).map(|node| made(host, node, makes)).collect()
}

fn made(host: &Host, LateNode { path, programs, arguments }: LateNode, makes: bool) -> LateNodeMade {
    let name = programs.first().copied().unwrap_or_default();
    let command = format!("`{name} {}`", arguments.join(" "));
    let what = match makes.then(|| host.run(programs, arguments)) {
        None => format!("{command} makes it, which is run on nodes that are started with a fence"),
        Some(Ok(Some(_))) => format!("{command} was run"),
        Some(Ok(None)) => format!("there is no `{name}`, which makes it"),
        Some(Err(error)) => error,
    };
    let is_there = host.exists(path);
    let how = if is_there { format!("{path} was missing: {what}") } else { format!("{path} is missing: {what}") };
    LateNodeMade { path, is_there, how }
}
