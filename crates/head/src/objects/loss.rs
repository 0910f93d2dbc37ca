//! Objects whose stored bytes are lost, or that the user freed.

use super::{Objects, Outcome};
use oxiray_ids::{ObjectId, WorkerId};

impl<V: Clone> Objects<V> {
    /// The stored bytes of an object are lost, says `client`: its value is no longer one. An owner that did not say so
    /// itself is told, where it lives (OBJECT-4).
    pub(crate) fn lost(
        &mut self,
        client: WorkerId,
        object: ObjectId,
        owner: WorkerId,
        owner_lives: bool,
        out: &mut Vec<Outcome<V>>,
    ) {
        if self.is_freed(object) {
            return;
        }
        self.withdraw(object, out);
        if client == owner || !owner_lives {
            return;
        }
        let entry = self.entry(owner, object);
        entry.owner.get_or_insert(owner);
        entry.is_promised = true;
        if !std::mem::replace(&mut entry.is_lost, true) {
            out.push(Outcome::Lost { owner, object });
        }
    }

    /// Whether the object has no value, and an owner that is to publish one.
    pub(crate) fn is_awaited(&self, object: ObjectId) -> bool {
        self.entries.get(&object).is_some_and(|entry| entry.value.is_none() && entry.owner.is_some())
    }

    fn withdraw(&mut self, object: ObjectId, out: &mut Vec<Outcome<V>>) {
        let Some(entry) = self.entries.get_mut(&object) else { return };
        entry.value = None;
        if self.orphans.remove(&object) {
            self.orphans_changed.push(object);
        }
        let contained = std::mem::take(&mut entry.contained);
        self.let_go(&contained, out);
    }

    /// The user gives an object up, through `client`: `value` says so to whoever asks. Its bytes are deleted; who holds
    /// it goes on holding it. Nothing happens to an object that was never heard of, or has no
    /// value yet.
    pub(crate) fn free(
        &mut self,
        client: WorkerId,
        object: ObjectId,
        owner: WorkerId,
        value: V,
        out: &mut Vec<Outcome<V>>,
    ) {
        let Some(entry) = self.entries.get_mut(&object) else { return };
        let is_pending = entry.value.is_none() && !entry.is_stored;
        if is_pending || std::mem::replace(&mut entry.is_freed, true) {
            return;
        }
        if entry.is_stored {
            out.push(Outcome::Delete(object));
        }
        if client != owner {
            out.push(Outcome::Freed { owner, object });
        }
        self.withdraw(object, out);
        let Some(entry) = self.entries.get_mut(&object) else { return };
        entry.value = Some(value.clone());
        for waiting in std::mem::take(&mut entry.subscribers) {
            out.push(Outcome::Answer { client: waiting, object, value: value.clone() });
            self.disentangle(waiting, object);
        }
    }

    /// Whether the user gave the object up.
    pub(crate) fn is_freed(&self, object: ObjectId) -> bool {
        self.entries.get(&object).is_some_and(|entry| entry.is_freed)
    }

    /// Each object with its owner and its holders and how often each holds it.
    pub(crate) fn holdings(
        &self,
        wanted: &[ObjectId],
    ) -> impl Iterator<Item = (ObjectId, Option<WorkerId>, Vec<(WorkerId, i64)>, usize)> {
        let all = wanted.is_empty().then(|| self.entries.iter());
        let named = wanted.iter().filter_map(|object| self.entries.get_key_value(object));
        all.into_iter().flatten().chain(named).map(|(object, entry)| {
            let holders = entry.holds.iter().map(|(holder, count)| (*holder, *count)).collect();
            (*object, entry.owner, holders, entry.containers)
        })
    }
}
