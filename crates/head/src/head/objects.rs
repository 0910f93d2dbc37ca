//! Objects that travel: messages in, the directory's decisions out.

use super::records::Row;
use super::{HeadCore, Key};
use crate::Objects;
use crate::Outcome;
use bytes::Bytes;
use oxiray_ids::{ObjectId, WorkerId};
use oxiray_wire::message::{
    CollectGarbage, Confirm, Content, Failure, Forgotten, Freed, Hold, Lost, Publish, Published, Reference, Value,
    ValueWanted,
};

/// What readers of a freed object are told.
const FREED: &str = "free() was called on it: free only what is not needed again";

/// All objects that somebody refers to, and where they lie.
#[derive(Debug, Default)]
pub(super) struct ObjectTable {
    pub(super) known: Objects<Value>,
    pub(super) locations: super::locations::Locations,
}

impl HeadCore {
    pub(super) fn promise(&mut self, from: Key, objects: &[ObjectId]) {
        let Some(owner) = self.clients.by_key.get(&from).map(|client| client.id) else { return };
        let mut out = Vec::new();
        self.objects.known.promise(owner, objects, &mut out);
        self.carry_out(out);
    }

    pub(super) fn publish(&mut self, from: Key, said: Publish) {
        let Some(owner) = self.clients.by_key.get(&from).map(|client| client.id) else { return };
        let value = said.value.unwrap_or_default();
        let contained = contained_in(&value.contained);
        let mut out = Vec::new();
        self.objects.known.publish(owner, said.object, value, &contained, &mut out);
        self.carry_out(out);
        self.restart_with_arguments();
    }

    pub(super) fn subscribe(&mut self, from: Key, reference: Option<Reference>) {
        let Some(client) = self.clients.by_key.get(&from).map(|client| client.id) else { return };
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
        let Some(holder) = self.clients.by_key.get(&from).map(|client| client.id) else { return };
        self.objects.known.confirm(holder, said.giver, &said.objects);
        if said.is_over {
            let mut out = Vec::new();
            self.objects.known.giver_is_over(holder, said.giver, &mut out);
            self.carry_out(out);
        }
    }

    pub(super) fn unhold(&mut self, from: Key, objects: &[ObjectId]) {
        let Some(client) = self.clients.by_key.get(&from).map(|client| client.id) else { return };
        let mut out = Vec::new();
        self.objects.known.unhold(client, objects, &mut out);
        self.carry_out(out);
    }

    /// The stored bytes of an object are lost, says a client.
    pub(super) fn recover(&mut self, from: Key, reference: Option<Reference>) {
        let Some(client) = self.clients.by_key.get(&from).map(|client| client.id) else { return };
        let Some(reference) = reference else { return };
        let owner = reference.owner.unwrap_or_default();
        let owner_lives = self.may_live(owner);
        let mut out = Vec::new();
        self.objects.known.lost(client, reference.object, owner, owner_lives, &mut out);
        self.carry_out(out);
    }

    /// A client gives objects up for everybody.
    pub(super) fn free(&mut self, from: Key, references: &[Reference]) {
        let Some(client) = self.clients.by_key.get(&from).map(|client| client.id) else { return };
        let mut out = Vec::new();
        for reference in references {
            let object = reference.object;
            let value = failed_value("object_freed", FREED.to_owned());
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
        let failure = || Failure { code: "object_freed".into(), text: FREED.into(), cause: Bytes::new() };
        self.objects.known.is_freed(object).then(failure)
    }

    /// The store has room for an object, and `client` writes it: it is the first holder. `false` where the client
    /// is gone already.
    pub(crate) fn stored(&mut self, client: Key, object: ObjectId) -> bool {
        let Some(id) = self.clients.by_key.get(&client).map(|client| client.id) else { return false };
        let mut out = Vec::new();
        self.objects.known.stored(id, object, &mut out);
        self.carry_out(out);
        true
    }

    /// The object will not be written after all.
    pub(crate) fn unstored(&mut self, client: Key, object: ObjectId) {
        let Some(id) = self.clients.by_key.get(&client).map(|client| client.id) else { return };
        let mut out = Vec::new();
        self.objects.known.unstored(id, object, &mut out);
        self.carry_out(out);
    }

    pub(super) fn carry_out(&mut self, outcomes: Vec<Outcome<Value>>) {
        for object in self.objects.known.orphans_changed() {
            self.touch(Row::Orphan(object));
        }
        for outcome in outcomes {
            match outcome {
                Outcome::Answer { client, object, value } => self.tell_value(client, object, value),
                Outcome::OwnerDied { client, object, owner } => {
                    let text = self.owner_died(object, owner);
                    self.tell_value(client, object, failed_value("owner_died", text));
                }
                Outcome::Lost { owner, object } => {
                    self.tell(owner, Lost { object });
                }
                Outcome::ValueWanted { owner, object } => {
                    self.tell(owner, ValueWanted { object });
                }
                Outcome::Freed { owner, object } => {
                    self.tell(owner, Freed { object });
                }
                Outcome::Forgotten { owner, object } => {
                    self.tell(owner, Forgotten { object });
                }
                Outcome::Unreachable(actor) => self.actor_unreachable(actor),
                Outcome::Delete(object) => self.delete_everywhere(object),
            }
        }
    }

    fn tell(&mut self, client: WorkerId, message: impl Into<oxiray_wire::Message>) {
        if let Some(key) = self.clients.keys.get(&client).copied() {
            self.send(key, message);
        }
    }

    fn tell_value(&mut self, client: WorkerId, object: ObjectId, value: Value) {
        self.tell(client, Published { object, value: Some(value) });
    }
}

fn failed_value(code: &str, text: String) -> Value {
    let failure = Failure { code: code.into(), text, cause: Bytes::new() };
    Value { content: Some(Content::Failed(failure)), contained: Vec::new() }
}

pub(super) fn contained_in(references: &[Reference]) -> Vec<ObjectId> {
    references.iter().map(|reference| reference.object).collect()
}
