//! What nodes say of the objects in their stores.

use super::HeadCore;
use oxiray_ids::ObjectId;
use oxiray_machine::Key;
use oxiray_wire::message::ObjectDelete;

impl HeadCore {
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
        self.objects.locations.not_here(object);
        self.unstored(client, object);
    }

    /// A worker of a member has room for an object in the store there.
    pub(crate) fn stored_elsewhere(&mut self, worker: Key, object: ObjectId) {
        let Some((member, _)) = self.members.route(worker) else { return };
        if self.stored(worker, object) {
            self.objects.locations.lies_on(member, object);
        } else {
            self.send(member, ObjectDelete { object });
        }
    }

    /// A worker of a member will not write the object after all.
    pub(crate) fn unstored_elsewhere(&mut self, worker: Key, object: ObjectId) {
        if let Some((member, _)) = self.members.route(worker) {
            self.objects.locations.not_on(member, object);
            self.unstored(worker, object);
        }
    }

    /// A member that served another head has the object.
    pub(super) fn found_on(&mut self, member: Key, object: ObjectId) {
        self.objects.known.found(object);
        self.objects.locations.lies_on(member, object);
    }

    /// A member has a copy. One that came too late is deleted at once.
    pub(crate) fn copied(&mut self, member: Key, object: ObjectId) {
        if let Some(node) = self.members.node_of_member(member) {
            self.has_come(node, object);
        }
        if self.objects.known.has_bytes(object) {
            self.objects.locations.lies_on(member, object);
        } else {
            self.send(member, ObjectDelete { object });
        }
    }

    /// This node's own store has the object.
    pub(crate) fn copied_here(&mut self, object: ObjectId) {
        self.objects.locations.lies_here(object);
        self.has_come(self.own.plan().node, object);
        for drain in self.members.drains.values_mut() {
            drain.copied_here(object);
        }
    }

    /// A store has written an object to disk.
    pub(crate) fn spilled(&mut self, object: ObjectId) {
        self.objects.known.spilled(object);
    }

    /// Whether anybody refers to an object that this node has fetched a copy of.
    pub(crate) fn is_stored(&self, object: ObjectId) -> bool {
        self.objects.known.has_bytes(object)
    }
}
