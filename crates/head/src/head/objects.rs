//! Objects that travel: what clients say of them. What the directory decides is carried out in `termination`.

use super::HeadCore;
use crate::failures::failed_value;
use crate::objects::contained_in;
use oxiray_ids::{ObjectId, WorkerId};
use oxiray_machine::Key;
use oxiray_wire::message::{CollectGarbage, Confirm, Failure, FailureCode, Hold, Publish, Reference};

/// What readers of a freed object are told.
const FREED: &str = "free() was called on it: free only what is not needed again";

impl HeadCore {
    pub(super) fn promise(&mut self, from: Key, objects: &[ObjectId]) {
        let Some(owner) = self.clients.id_of(from) else { return };
        let mut out = Vec::new();
        self.objects.known.promise(owner, objects, &mut out);
        self.carry_out(out);
    }

    pub(super) fn publish(&mut self, from: Key, said: Publish) {
        let Some(owner) = self.clients.id_of(from) else { return };
        let value = said.value.unwrap_or_default();
        let contained = contained_in(&value.contained);
        let mut out = Vec::new();
        self.objects.known.publish(owner, said.object, value, &contained, &mut out);
        self.carry_out(out);
        self.restart_with_arguments();
    }

    pub(super) fn subscribe(&mut self, from: Key, reference: Option<Reference>) {
        let Some(client) = self.clients.id_of(from) else { return };
        let Some(reference) = reference else { return };
        let owner = reference.owner.unwrap_or_default();
        let mut out = Vec::new();
        let owner_lives = self.may_live(owner);
        self.objects.known.subscribe(client, reference.object, owner, owner_lives, &mut out);
        self.carry_out(out);
    }

    /// A hold of the dead would never end, so it does not begin.
    pub(super) fn hold(&mut self, from: Key, said: &Hold) {
        if !self.may_live(said.holder) {
            return;
        }
        let mut out = Vec::new();
        match self.clients.by_key.get(&from) {
            Some(giver) if said.until_confirmed => {
                self.objects.known.give(giver.id, said.holder, &said.objects, &mut out);
            }
            _ => self.objects.known.hold(said.holder, &said.objects, &mut out),
        }
        self.carry_out(out);
    }

    /// What a reply brought, or did not bring before its sender died (OBJECT-7).
    pub(super) fn confirm(&mut self, from: Key, said: &Confirm) {
        let Some(holder) = self.clients.id_of(from) else { return };
        self.objects.known.confirm(holder, said.giver, &said.objects);
        if said.is_over {
            let mut out = Vec::new();
            self.objects.known.giver_is_over(holder, said.giver, &mut out);
            self.carry_out(out);
        }
    }

    pub(super) fn unhold(&mut self, from: Key, objects: &[ObjectId]) {
        let Some(client) = self.clients.id_of(from) else { return };
        let mut out = Vec::new();
        self.objects.known.unhold(client, objects, &mut out);
        self.carry_out(out);
    }

    /// The stored bytes of an object are lost, says a client.
    pub(super) fn recover(&mut self, from: Key, reference: Option<Reference>) {
        let Some(client) = self.clients.id_of(from) else { return };
        let Some(reference) = reference else { return };
        let owner = reference.owner.unwrap_or_default();
        let owner_lives = self.may_live(owner);
        let mut out = Vec::new();
        self.objects.known.lost(client, reference.object, owner, owner_lives, &mut out);
        self.carry_out(out);
    }

    /// A client gives objects up for everybody.
    pub(super) fn free(&mut self, from: Key, references: &[Reference]) {
        let Some(client) = self.clients.id_of(from) else { return };
        let mut out = Vec::new();
        for reference in references {
            let object = reference.object;
            let value = failed_value(FailureCode::ObjectFreed, FREED);
            self.objects.known.free(client, object, reference.owner.unwrap_or_default(), value, &mut out);
        }
        self.carry_out(out);
        self.restart_with_arguments();
    }

    /// A client wants everybody else to look for references that only garbage holds.
    pub(super) fn collect_garbage(&mut self, from: Key) {
        let others: Vec<Key> = self.clients.by_key.keys().copied().filter(|key| *key != from).collect();
        for key in others {
            self.send(key, CollectGarbage {});
        }
    }

    /// Why an object is not to be read any more, where it is not.
    pub(crate) fn freed(&self, object: ObjectId) -> Option<Failure> {
        self.objects.known.is_freed(object).then(|| FailureCode::ObjectFreed.because(FREED))
    }

    /// Whether a process lives, as far as can be known (RESUME-1).
    fn may_live(&self, client: WorkerId) -> bool {
        self.clients.keys.contains_key(&client) || self.durable.resumption.is_under_way()
    }

    /// The store has room for an object, and `client` writes it: it is the first holder. `false` where the client
    /// is gone already.
    pub(crate) fn stored(&mut self, client: Key, object: ObjectId) -> bool {
        let Some(id) = self.clients.id_of(client) else { return false };
        let mut out = Vec::new();
        self.objects.known.stored(id, object, &mut out);
        self.carry_out(out);
        true
    }

    /// The object will not be written after all.
    pub(crate) fn unstored(&mut self, client: Key, object: ObjectId) {
        let Some(id) = self.clients.id_of(client) else { return };
        let mut out = Vec::new();
        self.objects.known.unstored(id, object, &mut out);
        self.carry_out(out);
    }
}
