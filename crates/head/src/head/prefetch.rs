//! Who reads large objects that lie elsewhere waits for them before a worker is taken: no worker and no device is idle
//! while bytes travel.
//!
//! - AHEAD-1: whoever waits for objects to travel holds nothing and is not in the queue. They enter the queue again when
//!   all have come, when one cannot be had, when the node chosen is gone, or after [`AHEAD_LIMIT`]; nobody waits so
//!   twice, so that what did not come is read as ever.
//! - AHEAD-2: at most [`AHEAD_MAX`] wait so at once, and only for what the node's store has room for.
//! - AHEAD-3: who is withdrawn is forgotten at once.

use super::groups::Need;
use super::{Alarm, Effect, HeadCore, Key, PendingRequest};
use oxiray_ids::{NodeId, ObjectId};
use oxiray_wire::message::CopyWanted;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How many wait for objects at once.
pub(super) const AHEAD_MAX: usize = 64;
/// How long anybody does.
pub(super) const AHEAD_LIMIT: Duration = Duration::from_secs(60);

/// Who waits for objects to travel, by ticket.
#[derive(Debug, Default)]
pub(super) struct Prefetches {
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
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// AHEAD-3.
    pub(super) fn withdraw(&mut self, ticket: u64) {
        self.waiting.remove(&ticket);
    }

    /// The node to which objects travel for someone.
    pub(super) fn node_of(&self, ticket: u64) -> Option<NodeId> {
        self.waiting.get(&ticket).map(|travelling| travelling.node)
    }

    fn bound_for(&self, node: NodeId, object: Option<ObjectId>) -> Vec<u64> {
        let is_it = |travelling: &Travelling| {
            travelling.node == node && object.is_none_or(|object| travelling.left.contains(&object))
        };
        self.waiting.iter().filter(|(_, travelling)| is_it(travelling)).map(|(ticket, _)| *ticket).collect()
    }
}

impl HeadCore {
    /// What is to travel to the node before someone who waits is served there; nothing where they are served now.
    pub(super) fn to_bring(&self, ticket: u64, node: NodeId) -> BTreeSet<ObjectId> {
        let may_wait = self.pending.wanted.get(&ticket).is_some_and(|wanted| !wanted.is_brought);
        if !may_wait || self.pending.ahead.len() >= AHEAD_MAX {
            return BTreeSet::new();
        }
        let reads = self.reads_of(ticket);
        let elsewhere = |(object, _): &&(ObjectId, u64)| {
            let nodes = self.bytes_by_node(&[(*object, 1)]);
            !nodes.is_empty() && nodes.iter().all(|(has, _)| *has != node)
        };
        let missing: Vec<(ObjectId, u64)> = reads.iter().filter(elsewhere).copied().collect();
        let bytes: u64 = missing.iter().map(|(_, bytes)| bytes).sum();
        if bytes > self.store_left_on(node) {
            return BTreeSet::new();
        }
        missing.into_iter().map(|(object, _)| object).collect()
    }

    /// Has the objects travel, and whoever waits wait for that (AHEAD-1).
    pub(super) fn bring(
        &mut self,
        ticket: u64,
        wanted: PendingRequest,
        need: Need,
        (node, left): (NodeId, BTreeSet<ObjectId>),
    ) {
        for object in &left {
            match self.member_of(node) {
                Some(member) => self.send(member, CopyWanted { object: *object }),
                None => self.out.push(Effect::Copy { object: *object }),
            }
        }
        self.pending.wanted.insert(ticket, PendingRequest { is_brought: true, ..wanted });
        self.pending.ahead.waiting.insert(ticket, Travelling { need, node, left });
        self.alarm_at(self.clock.now + AHEAD_LIMIT, Alarm::Prefetches(ticket));
    }

    /// A node has a copy of an object.
    pub(super) fn has_come(&mut self, node: NodeId, object: ObjectId) {
        for ticket in self.pending.ahead.bound_for(node, Some(object)) {
            let Some(travelling) = self.pending.ahead.waiting.get_mut(&ticket) else { continue };
            travelling.left.remove(&object);
            if travelling.left.is_empty() {
                self.travelled(ticket);
            }
        }
    }

    /// A node, a member or this one, cannot have a copy of an object: whoever reads it there is told why.
    pub(crate) fn cannot_come(&mut self, member: Option<Key>, object: ObjectId) {
        let node = member.map_or(Some(self.own.plan().node), |member| self.node_of_member(member));
        for ticket in
            node.into_iter().flat_map(|node| self.pending.ahead.bound_for(node, Some(object))).collect::<Vec<_>>()
        {
            self.travelled(ticket);
        }
    }

    /// Nothing comes to the node any more.
    pub(super) fn nothing_comes(&mut self, node: NodeId) {
        for ticket in self.pending.ahead.bound_for(node, None) {
            self.travelled(ticket);
        }
    }

    /// Enters the queue again.
    pub(super) fn travelled(&mut self, ticket: u64) {
        let Some(Travelling { need, .. }) = self.pending.ahead.waiting.remove(&ticket) else { return };
        let Some(wanted) = self.pending.wanted.get(&ticket).cloned() else { return };
        if let Err(error) = self.push(ticket, &wanted, need) {
            self.pending.wanted.remove(&ticket);
            return self.turn_away(&wanted, error.to_string());
        }
        self.pending.is_due = true;
        self.pending.fairness.reclaim.someone_came = true;
    }
}

impl HeadCore {
    /// Bytes that a node's store has room for.
    fn store_left_on(&self, node: NodeId) -> u64 {
        let member = self.members.by_node.get(&node).and_then(|member| self.members.by_key.get(member));
        member.map_or(0, super::members::Member::store_left)
    }
}
