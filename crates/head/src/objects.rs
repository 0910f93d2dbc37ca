//! Objects that left the process that made them: who holds each, and its value once there is one.
//!
//! A count says how many holds a client has. Messages of different clients overtake each other: the
//! end of a hold may be read before its beginning, so counts are signed. Whoever passes a reference on
//! holds the object itself until the receiver's hold is registered; so an object that nobody holds is
//! one that nobody can still ask for.
//!
//! - OBJECT-1: a value is kept while a client holds the object, or a kept value or waiting actor contains it.
//! - OBJECT-2: when that ends the value is dropped, its bytes in the store are deleted, and what it
//!   contained is let go of.
//! - OBJECT-3: a subscription is answered once, with the value or with the death of its owner. With the value the
//!   subscriber holds once what it contains: it was handed on by the daemon.
//! - OBJECT-4: of a loss the owner is told once, until it publishes again.
//! - OBJECT-5: while somebody waits for a value, its owner has promised to publish it, or was asked to. Values that
//!   travel with calls are known to those who run them without a promise; when one is lost there, it is asked for.
//! - OBJECT-6: while holders come back to a new head, nothing is dropped for want of them.
//! - OBJECT-7: a hold that came with a reply counts from when its giver says so, and stays only if the reply came: the
//!   holder confirms it, or says that the giver is dead and nothing more comes.

use oxiray_ids::{ActorId, ObjectId, WorkerId};
use std::collections::{BTreeMap, BTreeSet};

/// What the daemon is to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome<V> {
    /// Tell a subscriber the value.
    Answer {
        /// The subscriber.
        client: WorkerId,
        /// The object.
        object: ObjectId,
        /// Its value.
        value: V,
    },
    /// Tell a subscriber that there will be no value: the owner died before it published one.
    OwnerDied {
        /// The subscriber.
        client: WorkerId,
        /// The object.
        object: ObjectId,
        /// Who has died.
        owner: WorkerId,
    },
    /// Tell an owner that its object's bytes are lost and wanted.
    Lost {
        /// The owner.
        owner: WorkerId,
        /// The object.
        object: ObjectId,
    },
    /// Tell an owner that somebody waits for an object that it has not promised.
    ValueWanted {
        /// The owner.
        owner: WorkerId,
        /// The object.
        object: ObjectId,
    },
    /// Tell an owner that another client freed its object.
    Freed {
        /// The owner.
        owner: WorkerId,
        /// The object.
        object: ObjectId,
    },
    /// Tell an owner that nobody refers to its stored object any more.
    Forgotten {
        /// The owner.
        owner: WorkerId,
        /// The object.
        object: ObjectId,
    },
    /// Delete the object's bytes from the store.
    Delete(ObjectId),
    /// Nobody holds the anchor of this actor any more.
    Unreachable(ActorId),
}

/// The directory. `V` is a value, opaque and cheap to clone.
#[derive(Debug)]
pub(crate) struct Objects<V> {
    entries: BTreeMap<ObjectId, Entry<V>>,
    /// The entries in which a client occurs, so that its death does not search them all.
    of_client: BTreeMap<WorkerId, BTreeSet<ObjectId>>,
    /// Those whose owner died, or is about to, and leaves a value.
    orphans: BTreeSet<ObjectId>,
    /// Those that became such, or are not any more, since it was asked.
    orphans_changed: Vec<ObjectId>,
    given: giving::Given,
    /// OBJECT-6.
    is_gathering: bool,
    /// Owners keep what they published, and hear when it is not needed any more.
    owners_keep: bool,
}

#[derive(Debug)]
struct Entry<V> {
    /// Never zero.
    holds: BTreeMap<WorkerId, i64>,
    /// How many kept values and waiting actors contain it.
    containers: usize,
    owner: Option<WorkerId>,
    subscribers: BTreeSet<WorkerId>,
    value: Option<V>,
    contained: Vec<ObjectId>,
    /// Whether the store has bytes of it.
    is_stored: bool,
    /// Whether a store has written them to disk.
    was_spilled: bool,
    /// Its owner promised to publish it, or was asked to.
    is_promised: bool,
    /// Its owner was told that its bytes are lost, and has not published since.
    is_lost: bool,
    /// The user gave it up: nothing is read of it any more.
    is_freed: bool,
}

impl<V> Default for Entry<V> {
    fn default() -> Self {
        Self {
            holds: BTreeMap::new(),
            containers: 0,
            owner: None,
            subscribers: BTreeSet::new(),
            value: None,
            contained: Vec::new(),
            is_stored: false,
            was_spilled: false,
            is_promised: false,
            is_lost: false,
            is_freed: false,
        }
    }
}

impl<V> Entry<V> {
    fn is_held(&self) -> bool {
        self.containers > 0 || self.holds.values().any(|count| *count > 0)
    }

    fn involves(&self, client: WorkerId) -> bool {
        self.holds.contains_key(&client) || self.owner == Some(client) || self.subscribers.contains(&client)
    }
}

impl<V> Default for Objects<V> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            of_client: BTreeMap::new(),
            orphans: BTreeSet::new(),
            orphans_changed: Vec::new(),
            given: giving::Given::default(),
            is_gathering: false,
            owners_keep: false,
        }
    }
}

impl<V: Clone> Objects<V> {
    /// `owner` will publish these, and holds them from here on.
    pub(crate) fn promise(&mut self, owner: WorkerId, objects: &[ObjectId], out: &mut Vec<Outcome<V>>) {
        for object in objects {
            let entry = self.entry(owner, *object);
            entry.owner = Some(owner);
            entry.is_promised = true;
            self.count(owner, *object, 1, out);
        }
    }

    /// The value of an object is known. Where nobody holds the object any more, it is let go at once.
    pub(crate) fn publish(
        &mut self,
        owner: WorkerId,
        object: ObjectId,
        value: V,
        contained: &[ObjectId],
        out: &mut Vec<Outcome<V>>,
    ) {
        let Some(entry) = self.entries.get_mut(&object) else { return };
        if entry.value.is_some() || entry.owner.is_some_and(|known| known != owner) {
            return;
        }
        let subscribers = std::mem::take(&mut entry.subscribers);
        entry.is_lost = false;
        entry.value = Some(value.clone());
        entry.contained = contained.to_vec();
        for client in subscribers {
            out.push(Outcome::Answer { client, object, value: value.clone() });
            self.hold(client, contained, out);
            self.disentangle(client, object);
        }
        self.contain(contained);
        self.settle(object, out);
    }

    /// `client` wants the value of an object of `owner`.
    pub(crate) fn subscribe(
        &mut self,
        client: WorkerId,
        object: ObjectId,
        owner: WorkerId,
        owner_lives: bool,
        out: &mut Vec<Outcome<V>>,
    ) {
        if let Some((value, contained)) = self.answer(object) {
            out.push(Outcome::Answer { client, object, value });
            return self.hold(client, &contained, out);
        }
        if !owner_lives {
            return out.push(Outcome::OwnerDied { client, object, owner });
        }
        self.entry(client, object).subscribers.insert(client);
        let entry = self.entry(owner, object);
        let owner = *entry.owner.get_or_insert(owner);
        if !std::mem::replace(&mut entry.is_promised, true) {
            out.push(Outcome::ValueWanted { owner, object });
        }
    }

    /// What is known of an object that has its value, and what that contains.
    fn answer(&self, object: ObjectId) -> Option<(V, Vec<ObjectId>)> {
        let entry = self.entries.get(&object)?;
        Some((entry.value.clone()?, entry.contained.clone()))
    }

    /// One more hold of `holder` on each object. Not to be called for the dead.
    pub(crate) fn hold(&mut self, holder: WorkerId, objects: &[ObjectId], out: &mut Vec<Outcome<V>>) {
        for object in objects {
            self.count(holder, *object, 1, out);
        }
    }

    /// One hold of `client` less on each object.
    pub(crate) fn unhold(&mut self, client: WorkerId, objects: &[ObjectId], out: &mut Vec<Outcome<V>>) {
        for object in objects {
            self.count(client, *object, -1, out);
        }
    }

    /// `client` has room in the store for the object, and holds it.
    pub(crate) fn stored(&mut self, client: WorkerId, object: ObjectId, out: &mut Vec<Outcome<V>>) {
        self.entry(client, object).is_stored = true;
        self.count(client, object, 1, out);
    }

    /// The object will have no bytes in the store after all.
    pub(crate) fn unstored(&mut self, client: WorkerId, object: ObjectId, out: &mut Vec<Outcome<V>>) {
        if let Some(entry) = self.entries.get_mut(&object).filter(|entry| entry.is_stored) {
            entry.is_stored = false;
            self.count(client, object, -1, out);
        }
    }

    /// Something that the daemon keeps contains these: a value, or an actor's arguments.
    pub(crate) fn contain(&mut self, objects: &[ObjectId]) {
        for object in objects {
            self.entries.entry(*object).or_default().containers += 1;
        }
    }

    /// What [`Objects::contain`] was called for is over.
    pub(crate) fn let_go(&mut self, objects: &[ObjectId], out: &mut Vec<Outcome<V>>) {
        for object in objects {
            let Some(entry) = self.entries.get_mut(object) else { continue };
            let left = entry.containers.checked_sub(1);
            entry.containers = left.expect("OBJECT-1: a container is let go of once");
            self.settle(*object, out);
        }
    }

    /// A client is gone: so are its holds and subscriptions, and what it owned and did not publish.
    pub(crate) fn client_died(&mut self, client: WorkerId, out: &mut Vec<Outcome<V>>) {
        self.given.holder_died(client);
        for object in self.of_client.remove(&client).unwrap_or_default() {
            let Some(entry) = self.entries.get_mut(&object) else { continue };
            entry.holds.remove(&client);
            entry.subscribers.remove(&client);
            if entry.owner == Some(client) {
                entry.owner = None;
                entry.is_promised = false;
                if entry.value.is_some() && self.orphans.insert(object) {
                    self.orphans_changed.push(object);
                }
                for waiting in std::mem::take(&mut entry.subscribers) {
                    out.push(Outcome::OwnerDied { client: waiting, object, owner: client });
                    self.disentangle(waiting, object);
                }
            }
            self.settle(object, out);
        }
    }

    /// A client is about to die: what it owns and has published counts as left behind from here on.
    pub(crate) fn client_dying(&mut self, client: WorkerId) {
        let owned = self.of_client.get(&client).into_iter().flatten().copied();
        let is_left = |entry: &Entry<V>| entry.owner == Some(client) && entry.value.is_some();
        let left: Vec<ObjectId> = owned.filter(|object| self.entries.get(object).is_some_and(is_left)).collect();
        for object in left {
            if self.orphans.insert(object) {
                self.orphans_changed.push(object);
            }
        }
    }

    /// The value of an object whose owner is dead, or about to die.
    pub(crate) fn orphan(&self, object: ObjectId) -> Option<&V> {
        self.entries.get(&object).filter(|_| self.orphans.contains(&object))?.value.as_ref()
    }

    /// The objects whose owner is dead, or about to die, and leaves a value.
    #[cfg(test)]
    pub(crate) fn orphans(&self) -> impl Iterator<Item = ObjectId> {
        self.orphans.iter().copied()
    }

    /// The objects of which [`Objects::orphan`] has another answer than when this was last asked.
    pub(crate) fn orphans_changed(&mut self) -> Vec<ObjectId> {
        std::mem::take(&mut self.orphans_changed)
    }

    /// An object as another head knew it, whose owner is dead. Nobody holds it.
    pub(crate) fn restore(&mut self, object: ObjectId, value: V, contained: &[ObjectId]) {
        self.contain(contained);
        let entry = self.entries.entry(object).or_default();
        entry.value = Some(value);
        entry.contained = contained.to_vec();
        self.orphans.insert(object);
    }

    /// Whether a store has bytes of it.
    pub(crate) fn has_bytes(&self, object: ObjectId) -> bool {
        self.entries.get(&object).is_some_and(|entry| entry.is_stored)
    }

    /// A store has written its bytes to disk.
    pub(crate) fn spilled(&mut self, object: ObjectId) {
        if let Some(entry) = self.entries.get_mut(&object) {
            entry.was_spilled = true;
        }
    }

    /// Whether a store has written its bytes to disk.
    pub(crate) fn was_spilled(&self, object: ObjectId) -> bool {
        self.entries.get(&object).is_some_and(|entry| entry.was_spilled)
    }

    /// Who holds the object, where that is known of all: nothing that is kept contains it, no hold is on its way, and nobody has
    /// yet to tell a new head.
    pub(crate) fn holders(&self, object: ObjectId) -> Option<impl Iterator<Item = WorkerId>> {
        let entry = self.entries.get(&object)?;
        let is_settled = entry.containers == 0 && entry.subscribers.is_empty() && !self.given.has(object);
        let is_known = is_settled && !self.is_gathering && entry.holds.values().all(|count| *count > 0);
        is_known.then(|| entry.holds.keys().copied())
    }

    /// How many objects are known.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is known.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn entry(&mut self, client: WorkerId, object: ObjectId) -> &mut Entry<V> {
        self.of_client.entry(client).or_default().insert(object);
        self.entries.entry(object).or_default()
    }

    fn count(&mut self, client: WorkerId, object: ObjectId, by: i64, out: &mut Vec<Outcome<V>>) {
        let holds = &mut self.entry(client, object).holds;
        let count = holds.entry(client).or_insert(0);
        *count += by;
        if *count == 0 {
            holds.remove(&client);
        }
        self.settle(object, out);
        self.disentangle(client, object);
    }

    /// Forgets that `client` occurs in the entry, where it does not any more.
    fn disentangle(&mut self, client: WorkerId, object: ObjectId) {
        if self.entries.get(&object).is_some_and(|entry| entry.involves(client)) {
            return;
        }
        if let Some(objects) = self.of_client.get_mut(&client) {
            objects.remove(&object);
            if objects.is_empty() {
                self.of_client.remove(&client);
            }
        }
    }

    /// Drops what nobody holds, and then what only that contained (OBJECT-2).
    fn settle(&mut self, object: ObjectId, out: &mut Vec<Outcome<V>>) {
        if self.is_gathering {
            return;
        }
        let mut unsettled = vec![object];
        while let Some(object) = unsettled.pop() {
            let Some(entry) = self.entries.get_mut(&object) else { continue };
            if entry.is_held() {
                continue;
            }
            let had_value = entry.value.take().is_some();
            if self.orphans.remove(&object) {
                self.orphans_changed.push(object);
            }
            out.extend(object.anchored_actor().map(Outcome::Unreachable));
            let was_stored = std::mem::replace(&mut entry.is_stored, false);
            if was_stored {
                out.push(Outcome::Delete(object));
            }
            if let Some(owner) = entry.owner.filter(|_| was_stored || (had_value && self.owners_keep)) {
                out.push(Outcome::Forgotten { owner, object });
            }
            let contained = std::mem::take(&mut entry.contained);
            if entry.holds.is_empty()
                && entry.subscribers.is_empty()
                && let Some(owner) = self.entries.remove(&object).and_then(|entry| entry.owner)
            {
                self.disentangle(owner, object);
            }
            for inner in contained {
                if let Some(entry) = self.entries.get_mut(&inner) {
                    entry.containers -= 1;
                }
                unsettled.push(inner);
            }
        }
    }
}

mod gathering;
mod giving;
mod locations;
mod loss;

pub(crate) use locations::{Locations, ObjectTable, contained_in};

#[cfg(test)]
mod tests;
