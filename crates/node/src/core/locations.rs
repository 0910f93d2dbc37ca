//! Which members have an object in their stores. What the head's own store has, that store knows.
//!
//! - LOCATION-1: a member is named for an object only while the directory knows the object to be stored.
//! - LOCATION-2: an object that is deleted is deleted from every store that has it.

use super::{Core, Effect, Key, bytes_of};
use oxiray_ids::{NodeId, ObjectId};
use oxiray_wire::message::ObjectDelete;
use std::collections::{BTreeMap, BTreeSet};

/// Where copies are.
#[derive(Debug, Default)]
pub(crate) struct Locations {
    by_object: BTreeMap<ObjectId, BTreeSet<Key>>,
}

impl Core {
    /// A worker of a member has room for an object in the store there.
    pub fn stored_elsewhere(&mut self, worker: Key, object: ObjectId) {
        let Some((member, _)) = self.route(worker) else { return };
        if self.stored(worker, object) {
            self.locations.by_object.entry(object).or_default().insert(member);
        } else {
            self.send(member, ObjectDelete { object: bytes_of(object.as_bytes()) });
        }
    }

    /// A member has a copy. One that came too late is deleted at once.
    pub fn copied(&mut self, member: Key, object: ObjectId) {
        if self.objects.has_bytes(object) {
            self.locations.by_object.entry(object).or_default().insert(member);
        } else {
            self.send(member, ObjectDelete { object: bytes_of(object.as_bytes()) });
        }
    }

    /// This node has fetched a copy; `false` where nobody refers to the object any more.
    pub fn is_stored(&self, object: ObjectId) -> bool {
        self.objects.has_bytes(object)
    }

    /// The node turned out not to have the object.
    pub fn missing_on(&mut self, node: NodeId, object: ObjectId) {
        let member = self.members.by_key.iter().find(|(_, member)| member.view.node == node).map(|(key, _)| *key);
        if let Some(member) = member {
            self.forget_location(member, object);
        }
    }

    fn forget_location(&mut self, member: Key, object: ObjectId) {
        if let Some(members) = self.locations.by_object.get_mut(&object) {
            members.remove(&member);
            if members.is_empty() {
                self.locations.by_object.remove(&object);
            }
        }
    }

    /// A worker of a member will not write the object after all.
    pub fn unstored_elsewhere(&mut self, worker: Key, object: ObjectId) {
        if let Some((member, _)) = self.route(worker) {
            self.forget_location(member, object);
            self.unstored(worker, object);
        }
    }

    /// A member that has the object, other than `except`, with its node.
    pub fn holder_of(&self, object: ObjectId, except: Option<Key>) -> Option<(Key, NodeId)> {
        let mut members = self.locations.by_object.get(&object)?.iter().filter(|member| Some(**member) != except);
        members.find_map(|key| Some((*key, self.members.by_key.get(key)?.view.node)))
    }

    /// The node of a member.
    pub fn node_of_member(&self, member: Key) -> Option<NodeId> {
        self.members.by_key.get(&member).map(|member| member.view.node)
    }

    /// This node.
    pub fn own_node(&self) -> NodeId {
        self.plan.node
    }

    /// LOCATION-2.
    pub(crate) fn delete_everywhere(&mut self, object: ObjectId) {
        for member in self.locations.by_object.remove(&object).unwrap_or_default() {
            self.send(member, ObjectDelete { object: bytes_of(object.as_bytes()) });
        }
        self.out.push(Effect::Delete { object });
    }

    /// A member is gone, and its store with it.
    pub(crate) fn forget_locations(&mut self, member: Key) {
        self.locations.by_object.retain(|_, members| {
            members.remove(&member);
            !members.is_empty()
        });
    }
}
