//! Objects travel to where somebody is to read them, before a worker is taken for that.

use super::HeadCore;
use crate::clock::Alarm;
use crate::demands::Need;
use crate::members::Member;
use crate::queue::{AHEAD_LIMIT, PendingRequest};
use oxiray_ids::{NodeId, ObjectId};
use oxiray_machine::{Effect, Key};
use oxiray_wire::message::CopyWanted;
use std::collections::BTreeSet;

impl HeadCore {
    /// What is to travel to the node before someone who waits is served there; nothing where they are served now.
    pub(super) fn to_bring(&self, ticket: u64, node: NodeId) -> BTreeSet<ObjectId> {
        let may_wait = self.pending.wanted.get(&ticket).is_some_and(|wanted| !wanted.is_brought);
        if !may_wait || self.pending.ahead.is_full() {
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

    /// How many bytes of these objects lie on which node.
    pub(super) fn bytes_by_node(&self, objects: &[(ObjectId, u64)]) -> Vec<(NodeId, u64)> {
        let own = self.own.plan().node;
        self.objects.locations.bytes_by_node(objects, own, |member| self.members.node_of_member(member))
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
            match self.members.member_of(node) {
                Some(member) => self.send(member, CopyWanted { object: *object }),
                None => self.out.push(Effect::Copy { object: *object }),
            }
        }
        self.pending.wanted.insert(ticket, PendingRequest { is_brought: true, ..wanted });
        self.pending.ahead.begin(ticket, need, node, left);
        self.clock.alarm_at(self.clock.now + AHEAD_LIMIT, Alarm::Prefetches(ticket));
    }

    /// A node has a copy of an object.
    pub(super) fn has_come(&mut self, node: NodeId, object: ObjectId) {
        for ticket in self.pending.ahead.came(node, object) {
            self.travelled(ticket);
        }
    }

    /// A node, a member or this one, cannot have a copy of an object: whoever reads it there is told why.
    pub(crate) fn cannot_come(&mut self, member: Option<Key>, object: ObjectId) {
        let node = member.map_or(Some(self.own.plan().node), |member| self.members.node_of_member(member));
        let waiting = node.map(|node| self.pending.ahead.bound_for(node, Some(object)));
        for ticket in waiting.unwrap_or_default() {
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
        let Some(need) = self.pending.ahead.end(ticket) else { return };
        let Some(wanted) = self.pending.wanted.get(&ticket).cloned() else { return };
        if let Err(error) = self.push(ticket, &wanted, need) {
            self.pending.wanted.remove(&ticket);
            return self.turn_away(&wanted, error.to_string());
        }
        self.pending.someone_came();
    }

    /// Bytes that a node's store has room for.
    fn store_left_on(&self, node: NodeId) -> u64 {
        self.members.at(node).map_or(0, Member::store_left)
    }
}
