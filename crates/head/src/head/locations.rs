//! Which members have an object in their stores. What the head's own store has, that store knows.
//!
//! - LOCATION-1: a member is named for an object only while the directory knows the object to be stored.
//! - LOCATION-2: an object that is deleted is deleted from every store that has it.
//! - LOCATION-3: an object is called lost only when every member was asked for it, those included that a head which came
//!   back still awaits. A reader's question may overtake the word of who writes the object, since the two come on
//!   different streams; the answer to a search cannot.
//! - LOCATION-4: a search ends when all have answered, are gone, or one has the object; whoever asked is told once.

use super::members::OWN;
use super::{Effect, HeadCore, Key};
use oxiray_ids::{NodeId, ObjectId};
use oxiray_machine::Whereabouts;
use oxiray_wire::message::{ObjectDelete, Seek, Sought};
use std::collections::{BTreeMap, BTreeSet};

/// Where copies are.
#[derive(Debug, Default)]
pub(super) struct Locations {
    by_object: BTreeMap<ObjectId, BTreeSet<Key>>,
    /// What was written into this node's store or copied there: where it is best read, if it is still there.
    here: BTreeSet<ObjectId>,
    searches: BTreeMap<u64, Search>,
    last_search: u64,
}

/// An object that no store is known to have.
#[derive(Debug)]
struct Search {
    object: ObjectId,
    /// The member that asks; nothing for this node.
    asker: Option<Key>,
    unanswered: BTreeSet<Key>,
}

impl Locations {
    /// This node's store has the object.
    pub(super) fn lies_here(&mut self, object: ObjectId) {
        self.here.insert(object);
    }

    /// The objects that lie on a member, and who has them.
    pub(super) fn held_by(&self, member: Key) -> impl Iterator<Item = (ObjectId, &BTreeSet<Key>)> {
        let of_member = self.by_object.iter().filter(move |(_, members)| members.contains(&member));
        of_member.map(|(object, members)| (*object, members))
    }

    /// Whose store, among these, is the only one to have some object.
    pub(super) fn only_holders(&self, among: impl Fn(&Key) -> bool) -> BTreeSet<Key> {
        let elsewhere = self.by_object.iter().filter(|(object, _)| !self.here.contains(object));
        let only = elsewhere.filter_map(|(_, members)| {
            let mut lasting = members.iter().filter(|member| among(member));
            lasting.next().filter(|_| lasting.next().is_none()).copied()
        });
        only.collect()
    }

    /// How many objects lie on members.
    pub(super) fn len(&self) -> usize {
        self.by_object.len()
    }

    /// How many objects are looked for.
    pub(super) fn searches(&self) -> usize {
        self.searches.len()
    }
}

impl HeadCore {
    /// Finds an object for a member, or for this node; `without` turned out not to have it, and `is_here` tells whether
    /// this node's store has it. Answered by [`Effect::Located`].
    pub(crate) fn locate(&mut self, asker: Option<Key>, object: ObjectId, without: Option<NodeId>, is_here: bool) {
        // Whoever asks has it not.
        if let Some(member) = asker {
            self.forget_location(member, object);
        }
        if let Some(node) = without {
            self.missing_on(node, object);
        }
        let own = (is_here && without != Some(self.own.plan().node)).then_some(self.own.plan().node);
        if let Some(node) = own.or_else(|| Some(self.holder_of(object)?.1)) {
            return self.out.push(Effect::Located(Whereabouts { asker, object, node: Some(node) }));
        }
        let others = self.members.others().filter(|(key, member)| Some(**key) != asker && !member.is_silent);
        let unanswered: BTreeSet<Key> = others.map(|(key, _)| *key).collect();
        self.objects.locations.last_search += 1;
        let number = self.objects.locations.last_search;
        for member in &unanswered {
            self.send(*member, Seek { search: number, object });
        }
        self.objects.locations.searches.insert(number, Search { object, asker, unanswered });
        self.end_search_when_answered(number);
    }

    pub(super) fn sought(&mut self, member: Key, said: &Sought) {
        let Some(search) = self.objects.locations.searches.get_mut(&said.search) else { return };
        search.unanswered.remove(&member);
        if said.is_here && self.objects.known.has_bytes(search.object) {
            self.objects.locations.by_object.entry(search.object).or_default().insert(member);
        }
        self.end_search_when_answered(said.search);
    }

    /// LOCATION-4.
    fn end_search_when_answered(&mut self, number: u64) {
        let Some(search) = self.objects.locations.searches.get(&number) else { return };
        let found = self.holder_of(search.object).map(|(_, node)| node);
        if found.is_some() || (search.unanswered.is_empty() && self.nodes_awaited_until().is_none()) {
            let Search { object, asker, .. } =
                self.objects.locations.searches.remove(&number).expect("it was just found");
            self.out.push(Effect::Located(Whereabouts { asker, object, node: found }));
        }
    }

    /// The member answers nothing any more.
    pub(super) fn search_without(&mut self, member: Key) {
        self.objects.locations.searches.retain(|_, search| search.asker != Some(member));
        for search in self.objects.locations.searches.values_mut() {
            search.unanswered.remove(&member);
        }
        self.end_searches_that_are_answered();
    }

    /// A member that served another head is asked too (LOCATION-3).
    pub(super) fn search_on(&mut self, member: Key) {
        let mut seeks = Vec::new();
        for (number, search) in &mut self.objects.locations.searches {
            search.unanswered.insert(member);
            seeks.push(Seek { search: *number, object: search.object });
        }
        for seek in seeks {
            self.send(member, seek);
        }
    }

    /// Who has the object, or who else is awaited, may have changed.
    pub(super) fn end_searches_that_are_answered(&mut self) {
        for number in self.objects.locations.searches.keys().copied().collect::<Vec<_>>() {
            self.end_search_when_answered(number);
        }
    }

    /// A client of this node has room for an object in the store here; `false` where the client is gone.
    pub(crate) fn stored_here(&mut self, client: Key, object: ObjectId) -> bool {
        let is_known = self.stored(client, object);
        if is_known {
            self.objects.locations.lies_here(object);
        }
        is_known
    }

    /// A client of this node will not write the object after all.
    pub(crate) fn unstored_here(&mut self, client: Key, object: ObjectId) {
        self.objects.locations.here.remove(&object);
        self.unstored(client, object);
    }

    /// How many bytes of these objects lie on which node.
    pub(super) fn bytes_by_node(&self, objects: &[(ObjectId, u64)]) -> Vec<(NodeId, u64)> {
        let mut by_node = BTreeMap::new();
        for (object, bytes) in objects {
            let members = self.objects.locations.by_object.get(object).into_iter().flatten();
            let there = members.filter_map(|member| self.node_of_member(*member));
            let here = self.objects.locations.here.contains(object).then_some(self.own.plan().node);
            for node in there.chain(here) {
                *by_node.entry(node).or_insert(0) += bytes;
            }
        }
        by_node.into_iter().collect()
    }

    /// A worker of a member has room for an object in the store there.
    pub(crate) fn stored_elsewhere(&mut self, worker: Key, object: ObjectId) {
        let Some((member, _)) = self.route(worker) else { return };
        if self.stored(worker, object) {
            self.objects.locations.by_object.entry(object).or_default().insert(member);
        } else {
            self.send(member, ObjectDelete { object });
        }
    }

    /// A member that served another head has the object.
    pub(super) fn found_on(&mut self, member: Key, object: ObjectId) {
        self.objects.known.found(object);
        self.objects.locations.by_object.entry(object).or_default().insert(member);
    }

    /// A member has a copy. One that came too late is deleted at once.
    pub(crate) fn copied(&mut self, member: Key, object: ObjectId) {
        if let Some(node) = self.node_of_member(member) {
            self.has_come(node, object);
        }
        if self.objects.known.has_bytes(object) {
            self.objects.locations.by_object.entry(object).or_default().insert(member);
        } else {
            self.send(member, ObjectDelete { object });
        }
    }

    /// Whether anybody refers to an object that this node has fetched a copy of.
    pub(crate) fn is_stored(&self, object: ObjectId) -> bool {
        self.objects.known.has_bytes(object)
    }

    /// The node turned out not to have the object.
    fn missing_on(&mut self, node: NodeId, object: ObjectId) {
        if let Some(member) = self.member_of(node) {
            self.forget_location(member, object);
        }
    }

    fn forget_location(&mut self, member: Key, object: ObjectId) {
        if let Some(members) = self.objects.locations.by_object.get_mut(&object) {
            members.remove(&member);
            if members.is_empty() {
                self.objects.locations.by_object.remove(&object);
            }
        }
    }

    /// A worker of a member will not write the object after all.
    pub(crate) fn unstored_elsewhere(&mut self, worker: Key, object: ObjectId) {
        if let Some((member, _)) = self.route(worker) {
            self.forget_location(member, object);
            self.unstored(worker, object);
        }
    }

    /// A member that has the object and can be asked for it, with its node.
    pub(crate) fn holder_of(&self, object: ObjectId) -> Option<(Key, NodeId)> {
        let members = self.objects.locations.by_object.get(&object)?.iter();
        let known = members.filter_map(|key| Some((*key, self.members.by_key.get(key)?)));
        known.filter(|(_, member)| !member.is_silent).map(|(key, member)| (key, member.view.node)).next()
    }

    /// Whether objects may lie in other nodes' stores.
    pub(crate) fn has_members(&self) -> bool {
        !self.members.is_alone() || self.nodes_awaited_until().is_some()
    }

    /// The member of a node, but for the head's own, whose store this process has.
    pub(crate) fn member_of(&self, node: NodeId) -> Option<Key> {
        self.members.by_node.get(&node).copied().filter(|member| *member != OWN)
    }

    /// The node of a member.
    pub(crate) fn node_of_member(&self, member: Key) -> Option<NodeId> {
        self.members.by_key.get(&member).map(|member| member.view.node)
    }

    /// LOCATION-2.
    pub(super) fn delete_everywhere(&mut self, object: ObjectId) {
        self.objects.locations.here.remove(&object);
        for member in self.objects.locations.by_object.remove(&object).unwrap_or_default() {
            self.send(member, ObjectDelete { object });
        }
        self.out.push(Effect::Delete { object });
    }

    /// A member is gone, and its store with it.
    pub(super) fn forget_locations(&mut self, member: Key, node: NodeId) {
        self.objects.locations.by_object.retain(|_, members| {
            members.remove(&member);
            !members.is_empty()
        });
        self.nothing_comes(node);
    }
}
