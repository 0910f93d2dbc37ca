//! Who reads large objects that lie elsewhere waits for them before a worker is taken: no worker and no device is idle
//! while bytes travel.
//!
//! - AHEAD-1: whoever waits for objects to travel holds nothing and is not in the queue. They enter the queue again when
//!   all have come, when one cannot be had, when the node chosen is gone, or after [`AHEAD_LIMIT`]; nobody waits so
//!   twice, so that what did not come is read as ever.
//! - AHEAD-2: at most [`AHEAD_MAX`] wait so at once, and only for what the node's store has room for.
//! - AHEAD-3: who is withdrawn is forgotten at once.

use crate::demands::Need;
use oxiray_ids::{NodeId, ObjectId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How many wait for objects at once.
const AHEAD_MAX: usize = 64;
/// How long anybody does.
pub(crate) const AHEAD_LIMIT: Duration = Duration::from_secs(60);

/// Who waits for objects to travel, by ticket.
#[derive(Debug, Default)]
pub(crate) struct Prefetches {
    waiting: BTreeMap<u64, Travelling>,
}

#[derive(Debug)]
struct Travelling {
    need: Need,
    node: NodeId,
    left: BTreeSet<ObjectId>,
}

impl Prefetches {
    /// How many wait so.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// AHEAD-2.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= AHEAD_MAX
    }

    /// Somebody waits until these objects have come to the node that was chosen.
    pub(crate) fn begin(&mut self, ticket: u64, need: Need, node: NodeId, left: BTreeSet<ObjectId>) {
        self.waiting.insert(ticket, Travelling { need, node, left });
    }

    /// AHEAD-3.
    pub(crate) fn withdraw(&mut self, ticket: u64) {
        self.waiting.remove(&ticket);
    }

    /// The wait is over (AHEAD-1): returns what they wait for in the queue.
    pub(crate) fn end(&mut self, ticket: u64) -> Option<Need> {
        self.waiting.remove(&ticket).map(|travelling| travelling.need)
    }

    /// The node to which objects travel for someone.
    pub(crate) fn node_of(&self, ticket: u64) -> Option<NodeId> {
        self.waiting.get(&ticket).map(|travelling| travelling.node)
    }

    /// Who waits for an object to come to the node, or for any.
    pub(crate) fn bound_for(&self, node: NodeId, object: Option<ObjectId>) -> Vec<u64> {
        let is_it = |travelling: &Travelling| {
            travelling.node == node && object.is_none_or(|object| travelling.left.contains(&object))
        };
        self.waiting.iter().filter(|(_, travelling)| is_it(travelling)).map(|(ticket, _)| *ticket).collect()
    }

    /// The node has a copy of the object. Returns those for whom it was the last.
    pub(crate) fn came(&mut self, node: NodeId, object: ObjectId) -> Vec<u64> {
        let mut done = self.bound_for(node, Some(object));
        done.retain(|ticket| {
            self.waiting.get_mut(ticket).is_some_and(|travelling| {
                travelling.left.remove(&object);
                travelling.left.is_empty()
            })
        });
        done
    }
}
