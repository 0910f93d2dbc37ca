//! Objects whose holders tell of them again, to a head that came back.

use super::{Objects, Outcome};
use oxiray_ids::{ObjectId, WorkerId};

impl<V: Clone> Objects<V> {
    /// From here on, owners hear of each object that they published when it is not needed any more: they keep its value
    /// until then, for a head that comes after this one.
    pub(crate) fn have_owners_keep(&mut self) {
        self.owners_keep = true;
    }

    /// Holders come back from here on (OBJECT-6).
    pub(crate) fn begin_gathering(&mut self) {
        self.is_gathering = true;
    }

    /// All holders that there are have come back. Those that `lives` denies are gone.
    pub(crate) fn end_gathering(&mut self, lives: impl Fn(WorkerId) -> bool, out: &mut Vec<Outcome<V>>) {
        if !std::mem::take(&mut self.is_gathering) {
            return;
        }
        let gone: Vec<WorkerId> = self.of_client.keys().copied().filter(|client| !lives(*client)).collect();
        for client in gone {
            self.client_died(client, out);
        }
        for object in self.entries.keys().copied().collect::<Vec<_>>() {
            self.settle(object, out);
        }
    }

    /// Whether holders are still coming back.
    #[cfg(test)]
    pub(crate) fn is_gathering(&self) -> bool {
        self.is_gathering
    }

    /// A store has bytes of the object, and whoever wrote it says by itself that it holds it.
    pub(crate) fn found(&mut self, object: ObjectId) {
        self.entries.entry(object).or_default().is_stored = true;
    }

    /// The objects of `owner` that somebody waits for.
    pub(crate) fn awaited_of(&self, owner: WorkerId) -> Vec<ObjectId> {
        let own = self.of_client.get(&owner).into_iter().flatten();
        let is_awaited = |object: &&ObjectId| {
            let entry = self.entries.get(*object);
            entry.is_some_and(|entry| {
                entry.owner == Some(owner) && entry.value.is_none() && !entry.subscribers.is_empty()
            })
        };
        own.filter(is_awaited).copied().collect()
    }

    /// Whether anything but time keeps the object.
    pub(crate) fn is_kept(&self, object: ObjectId) -> bool {
        self.entries.get(&object).is_some_and(super::Entry::is_held)
    }
}
