//! Finding objects: where a store is known to have them, and by asking the members where none is.

use super::HeadCore;
use crate::members::Members;
use crate::objects::Locations;
use oxiray_ids::{NodeId, ObjectId};
use oxiray_machine::{Effect, Key, Whereabouts};
use oxiray_wire::message::Sought;
use std::collections::BTreeSet;

impl HeadCore {
    /// Finds an object for a member, or for this node; `without` turned out not to have it, and `is_here` tells whether
    /// this node's store has it. Answered by [`Effect::Located`].
    pub(crate) fn locate(&mut self, asker: Option<Key>, object: ObjectId, without: Option<NodeId>, is_here: bool) {
        // Whoever asks has it not.
        if let Some(member) = asker {
            self.objects.locations.not_on(member, object);
        }
        if let Some(member) = without.and_then(|node| self.members.member_of(node)) {
            self.objects.locations.not_on(member, object);
        }
        let own = (is_here && without != Some(self.own.plan().node)).then_some(self.own.plan().node);
        if let Some(node) = own.or_else(|| Some(self.holder_of(object)?.1)) {
            return self.out.push(Effect::Located(Whereabouts { asker, object, node: Some(node) }));
        }
        let others = self.members.others().filter(|(key, member)| Some(**key) != asker && !member.is_silent);
        let unanswered: BTreeSet<Key> = others.map(|(key, _)| *key).collect();
        let seek = self.objects.locations.begin_search(asker, object, unanswered.clone());
        let number = seek.search;
        for member in unanswered {
            self.send(member, seek.clone());
        }
        self.end_search_when_answered(number);
    }

    /// A member answers whether its store has what was asked for.
    pub(super) fn sought(&mut self, member: Key, said: &Sought) {
        let Some(object) = self.objects.locations.answered(said.search, member) else { return };
        if said.is_here && self.objects.known.has_bytes(object) {
            self.objects.locations.lies_on(member, object);
        }
        self.end_search_when_answered(said.search);
    }

    fn end_search_when_answered(&mut self, number: u64) {
        let all_are_there = self.durable.resumption.nodes_until().is_none();
        let members = &self.members;
        let node_of = |locations: &Locations, object| holder_among(locations, members, object).map(|(_, node)| node);
        if let Some(found) = self.objects.locations.end_search(number, node_of, all_are_there) {
            self.out.push(Effect::Located(found));
        }
    }

    /// The member answers nothing any more.
    pub(super) fn search_without(&mut self, member: Key) {
        self.objects.locations.search_without(member);
        self.end_searches_that_are_answered();
    }

    /// A member that served another head is asked too (LOCATION-3).
    pub(super) fn search_on(&mut self, member: Key) {
        for seek in self.objects.locations.search_on(member) {
            self.send(member, seek);
        }
    }

    /// Who has the object, or who else is awaited, may have changed.
    pub(super) fn end_searches_that_are_answered(&mut self) {
        for number in self.objects.locations.searches() {
            self.end_search_when_answered(number);
        }
    }

    /// A member that has the object and can be asked for it, with its node.
    pub(crate) fn holder_of(&self, object: ObjectId) -> Option<(Key, NodeId)> {
        holder_among(&self.objects.locations, &self.members, object)
    }

    /// Whether objects may lie in other nodes' stores.
    pub(crate) fn has_members(&self) -> bool {
        !self.members.is_alone() || self.durable.resumption.nodes_until().is_some()
    }
}

fn holder_among(locations: &Locations, members: &Members, object: ObjectId) -> Option<(Key, NodeId)> {
    let known = locations.of(object).filter_map(|key| Some((key, members.by_key.get(&key)?)));
    known.filter(|(_, member)| !member.is_silent).map(|(key, member)| (key, member.view.node)).next()
}
