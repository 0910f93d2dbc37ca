//! Nodes that are emptied ahead of their end, as an operator asks for it.
//!
//! - DRAIN-1: from when a node is to end, nobody is told to begin anything there.

use crate::agenda::{Event, SECOND};
use crate::world::{NodeIndex, World};
use oxiray_machine::Key;
use oxiray_wire::message::DrainAsked;

/// Who asks, and hears nothing of it: the command line.
const VISITOR: Key = Key::MAX;

impl World {
    /// Somebody has a node emptied, with a deadline or without, or thinks better of it.
    pub(crate) fn drain_some_node(&mut self) {
        if self.is_without_head() || self.nodes[0].frozen_until.is_some() {
            return;
        }
        let members: Vec<NodeIndex> = (1..self.nodes.len()).filter(|node| self.nodes[*node].is_alive).collect();
        let Some(node) = self.chance.pick(&members) else { return };
        let has_deadline = self.chance.odds(700);
        let asked = DrainAsked {
            node: oxiray_ids::NodeId::new([self.mark_of(node); 28]).hex(),
            deadline_ms: has_deadline.then(|| self.chance.delay(2 * SECOND) / 1000),
            undo: self.chance.odds(150),
            only_if_idle: self.chance.odds(100),
            ..DrainAsked::default()
        };
        self.log.line(self.now, format_args!("node {node} is to be emptied: {asked:?}"));
        // It ends the node, and what the network does then is no fault of the node's.
        self.troubles += 1;
        self.standstill.drained.insert(node);
        self.wake(0);
        self.nodes[0].core.drain_asked(VISITOR, &asked);
        self.after_event(0);
    }

    /// A member is told to end, and its machine gets another node after a while.
    pub(crate) fn is_dismissed(&mut self, node: NodeIndex) {
        self.log.line(self.now, format_args!("node {node} is dismissed"));
        self.node_dies(node);
        let machine = self.nodes[node].machine;
        let at = self.now + self.chance.between(SECOND, 5 * SECOND);
        self.agenda.plan(at, Event::NodeComes { machine });
    }
}
