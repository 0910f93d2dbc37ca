//! Objects that travel: messages in, the directory's decisions out.

use super::{Core, Effect, Key, bytes_of, identifier};
use bytes::Bytes;
use oxiray_head::Outcome;
use oxiray_ids::{ObjectId, WorkerId};
use oxiray_wire::message::{Content, Failure, Publish, Published, Reference, Value};

impl Core {
    pub(crate) fn promise(&mut self, from: Key, objects: &[Bytes]) {
        let Some(owner) = self.clients.get(&from).map(|client| client.id) else { return };
        let mut out = Vec::new();
        self.objects.promise(owner, &ids(objects), &mut out);
        self.carry_out(out);
    }

    pub(crate) fn publish(&mut self, from: Key, said: Publish) {
        let Some(owner) = self.clients.get(&from).map(|client| client.id) else { return };
        let value = said.value.unwrap_or_default();
        let contained = contained_in(&value.contained);
        let mut out = Vec::new();
        self.objects.publish(owner, identifier!(ObjectId, &said.object), value, &contained, &mut out);
        self.carry_out(out);
    }

    pub(crate) fn subscribe(&mut self, from: Key, reference: Option<Reference>) {
        let Some(client) = self.clients.get(&from).map(|client| client.id) else { return };
        let Some(reference) = reference else { return };
        let owner = identifier!(WorkerId, &reference.owner);
        let mut out = Vec::new();
        let owner_lives = self.keys.contains_key(&owner);
        self.objects.subscribe(client, identifier!(ObjectId, &reference.object), owner, owner_lives, &mut out);
        self.carry_out(out);
    }

    /// A hold of the dead would never end, so it does not begin.
    pub(crate) fn hold(&mut self, objects: &[Bytes], holder: &Bytes) {
        let holder = identifier!(WorkerId, holder);
        if self.keys.contains_key(&holder) {
            let mut out = Vec::new();
            self.objects.hold(holder, &ids(objects), &mut out);
            self.carry_out(out);
        }
    }

    pub(crate) fn unhold(&mut self, from: Key, objects: &[Bytes]) {
        let Some(client) = self.clients.get(&from).map(|client| client.id) else { return };
        let mut out = Vec::new();
        self.objects.unhold(client, &ids(objects), &mut out);
        self.carry_out(out);
    }

    /// The store has room for an object, and `client` writes it: it is the first holder. `false` where the client
    /// is gone already.
    pub fn stored(&mut self, client: Key, object: ObjectId) -> bool {
        let Some(id) = self.clients.get(&client).map(|client| client.id) else { return false };
        let mut out = Vec::new();
        self.objects.stored(id, object, &mut out);
        self.carry_out(out);
        true
    }

    /// The object will not be written after all.
    pub fn unstored(&mut self, client: Key, object: ObjectId) {
        let Some(id) = self.clients.get(&client).map(|client| client.id) else { return };
        let mut out = Vec::new();
        self.objects.unstored(id, object, &mut out);
        self.carry_out(out);
    }

    pub(crate) fn carry_out(&mut self, outcomes: Vec<Outcome<Value>>) {
        for outcome in outcomes {
            match outcome {
                Outcome::Answer { client, object, value } => self.tell_value(client, object, value),
                Outcome::OwnerDied { client, object } => {
                    let text = format!(
                        "the process that was to make object {object} died before it was done, and nobody else can make it"
                    );
                    let failure = Failure { code: "owner_died".into(), text, cause: Bytes::new() };
                    let value = Value { content: Some(Content::Failed(failure)), contained: Vec::new() };
                    self.tell_value(client, object, value);
                }
                Outcome::Delete(object) => self.out.push(Effect::Delete { object }),
            }
        }
    }

    fn tell_value(&mut self, client: WorkerId, object: ObjectId, value: Value) {
        if let Some(key) = self.keys.get(&client).copied() {
            self.send(key, Published { object: bytes_of(object.as_bytes()), value: Some(value) });
        }
    }
}

pub(crate) fn contained_in(references: &[Reference]) -> Vec<ObjectId> {
    references.iter().filter_map(|reference| ObjectId::from_slice(&reference.object)).collect()
}

fn ids(objects: &[Bytes]) -> Vec<ObjectId> {
    objects.iter().filter_map(|object| ObjectId::from_slice(object)).collect()
}
