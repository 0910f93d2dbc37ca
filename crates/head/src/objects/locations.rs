//! Which members have an object in their stores, and which of them are asked for one that no store is known to have. What
//! the head's own store has, that store knows.
//!
//! - LOCATION-1: a member is named for an object only while the directory knows the object to be stored.
//! - LOCATION-2: an object that is deleted is deleted from every store that has it.
//! - LOCATION-3: an object is called lost only when every member was asked for it, those included that a head which came
//!   back still awaits. A reader's question may overtake the word of who writes the object, since the two come on
//!   different streams; the answer to a search cannot.
//! - LOCATION-4: a search ends when all have answered, are gone, or one has the object; whoever asked is told once.

use super::Objects;
use oxiray_ids::{NodeId, ObjectId};
use oxiray_machine::{Key, Whereabouts};
use oxiray_wire::message::{Reference, Seek, Value};
use std::collections::{BTreeMap, BTreeSet};

/// All objects that somebody refers to, and where they lie.
#[derive(Debug, Default)]
pub(crate) struct ObjectTable {
    pub(crate) known: Objects<Value>,
    pub(crate) locations: Locations,
}

/// The objects that references name.
pub(crate) fn contained_in(references: &[Reference]) -> Vec<ObjectId> {
    references.iter().map(|reference| reference.object).collect()
}

/// Where copies are.
#[derive(Debug, Default)]
pub(crate) struct Locations {
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
    pub(crate) fn lies_here(&mut self, object: ObjectId) {
        self.here.insert(object);
    }

    /// This node's store has it not.
    pub(crate) fn not_here(&mut self, object: ObjectId) {
        self.here.remove(&object);
    }

    /// A member's store has the object.
    pub(crate) fn lies_on(&mut self, member: Key, object: ObjectId) {
        self.by_object.entry(object).or_default().insert(member);
    }

    /// A member's store has it not.
    pub(crate) fn not_on(&mut self, member: Key, object: ObjectId) {
        if let Some(members) = self.by_object.get_mut(&object) {
            members.remove(&member);
            if members.is_empty() {
                self.by_object.remove(&object);
            }
        }
    }

    /// The object is no more. Returns the members that have it (LOCATION-2).
    pub(crate) fn deleted(&mut self, object: ObjectId) -> BTreeSet<Key> {
        self.here.remove(&object);
        self.by_object.remove(&object).unwrap_or_default()
    }

    /// A member is gone, and its store with it.
    pub(crate) fn member_gone(&mut self, member: Key) {
        self.by_object.retain(|_, members| {
            members.remove(&member);
            !members.is_empty()
        });
    }

    /// The members that have the object.
    pub(crate) fn of(&self, object: ObjectId) -> impl Iterator<Item = Key> {
        self.by_object.get(&object).into_iter().flatten().copied()
    }

    /// The objects that lie on a member, and who has them.
    pub(crate) fn held_by(&self, member: Key) -> impl Iterator<Item = (ObjectId, &BTreeSet<Key>)> {
        let of_member = self.by_object.iter().filter(move |(_, members)| members.contains(&member));
        of_member.map(|(object, members)| (*object, members))
    }

    /// Whose store, among these, is the only one to have some object.
    pub(crate) fn only_holders(&self, among: impl Fn(&Key) -> bool) -> BTreeSet<Key> {
        let elsewhere = self.by_object.iter().filter(|(object, _)| !self.here.contains(object));
        let only = elsewhere.filter_map(|(_, members)| {
            let mut lasting = members.iter().filter(|member| among(member));
            lasting.next().filter(|_| lasting.next().is_none()).copied()
        });
        only.collect()
    }

    /// How many bytes of these objects lie on which node. `own` is the head's.
    pub(crate) fn bytes_by_node(
        &self,
        objects: &[(ObjectId, u64)],
        own: NodeId,
        node_of: impl Fn(Key) -> Option<NodeId>,
    ) -> Vec<(NodeId, u64)> {
        let mut by_node = BTreeMap::new();
        for (object, bytes) in objects {
            let here = self.here.contains(object).then_some(own);
            for node in self.of(*object).filter_map(&node_of).chain(here) {
                *by_node.entry(node).or_insert(0) += bytes;
            }
        }
        by_node.into_iter().collect()
    }

    /// How many objects lie on members.
    pub(crate) fn len(&self) -> usize {
        self.by_object.len()
    }

    /// Somebody asks for an object that no store is known to have: these members are asked (LOCATION-3). Returns what to
    /// ask them.
    pub(crate) fn begin_search(&mut self, asker: Option<Key>, object: ObjectId, unanswered: BTreeSet<Key>) -> Seek {
        self.last_search += 1;
        self.searches.insert(self.last_search, Search { object, asker, unanswered });
        Seek { search: self.last_search, object }
    }

    /// A member has answered. Returns what was asked for.
    pub(crate) fn answered(&mut self, search: u64, member: Key) -> Option<ObjectId> {
        let search = self.searches.get_mut(&search)?;
        search.unanswered.remove(&member);
        Some(search.object)
    }

    /// A member answers nothing any more, nor is it to be told anything.
    pub(crate) fn search_without(&mut self, member: Key) {
        self.searches.retain(|_, search| search.asker != Some(member));
        for search in self.searches.values_mut() {
            search.unanswered.remove(&member);
        }
    }

    /// One more member is asked: what it is asked for.
    pub(crate) fn search_on(&mut self, member: Key) -> Vec<Seek> {
        let seek = |(number, search): (&u64, &mut Search)| {
            search.unanswered.insert(member);
            Seek { search: *number, object: search.object }
        };
        self.searches.iter_mut().map(seek).collect()
    }

    /// Ends a search where it is over (LOCATION-4): `node_of` tells a node that has the object, and `all_are_there` whether
    /// no member is awaited any more.
    pub(crate) fn end_search(
        &mut self,
        number: u64,
        node_of: impl Fn(&Self, ObjectId) -> Option<NodeId>,
        all_are_there: bool,
    ) -> Option<Whereabouts> {
        let search = self.searches.get(&number)?;
        let node = node_of(self, search.object);
        if node.is_none() && !(search.unanswered.is_empty() && all_are_there) {
            return None;
        }
        let Search { object, asker, .. } = self.searches.remove(&number)?;
        Some(Whereabouts { asker, object, node })
    }

    /// The searches that are not over.
    pub(crate) fn searches(&self) -> Vec<u64> {
        self.searches.keys().copied().collect()
    }
}
