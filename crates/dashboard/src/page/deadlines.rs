//! When nodes that are drained end at the latest (pure).
//!
//! - DEADLINES-1: the head says how long it is until then. The moment that follows is a little different at each look: it stays what it
//!   was first while it is the same to about a second.

use oxiray_ids::NodeId;
use oxiray_wire::state::NodeRow;
use std::collections::BTreeMap;

/// What is less is the same moment (DEADLINES-1).
const SAME_MS: u64 = 1_500;
/// The last moment that a browser knows.
const LAST_MS: u64 = 8_640_000_000_000_000;

/// The moments by node, in milliseconds since 1970.
#[derive(Debug, Default)]
pub(crate) struct Deadlines(BTreeMap<NodeId, u64>);

impl Deadlines {
    /// How the nodes are now.
    pub(crate) fn look(&mut self, nodes: &[NodeRow], now_ms: u64) {
        let moment = |node: &NodeRow| {
            let at = deadline_ms(node, now_ms)?;
            let known = self.of(node.node_id).filter(|known| known.abs_diff(at) < SAME_MS);
            Some((node.node_id, known.unwrap_or(at)))
        };
        self.0 = nodes.iter().filter_map(moment).collect();
    }

    /// When a node ends at the latest; nothing where it may take as long as it takes.
    pub(crate) fn of(&self, node: NodeId) -> Option<u64> {
        self.0.get(&node).copied()
    }
}

/// When a node ends, to the second.
fn deadline_ms(node: &NodeRow, now_ms: u64) -> Option<u64> {
    let left_ms = (node.draining.as_ref()?.deadline_s?.max(0.0) * 1_000.0) as u64;
    let at = now_ms.saturating_add(left_ms).checked_next_multiple_of(1_000)?;
    (at <= LAST_MS).then_some(at)
}
