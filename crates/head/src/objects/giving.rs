//! Holds that were counted for the receiver of a reply, until it confirms that the reply came (OBJECT-7).
//!
//! The giver's word and the holder's come by streams of their own, so either may be read first: counts are signed.

use super::{Objects, Outcome};
use oxiray_ids::{ObjectId, WorkerId};
use std::collections::BTreeMap;

/// Holds that are not confirmed.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// By holder, then by giver. No count is zero, and no map empty.
    of_holder: BTreeMap<WorkerId, BTreeMap<WorkerId, BTreeMap<ObjectId, i64>>>,
}

impl Given {
    fn count(&mut self, holder: WorkerId, giver: WorkerId, objects: &[ObjectId], by: i64) {
        let of_giver = self.of_holder.entry(holder).or_default();
        let counts = of_giver.entry(giver).or_default();
        for object in objects {
            let count = counts.entry(*object).or_insert(0);
            *count += by;
            if *count == 0 {
                counts.remove(object);
            }
        }
        if counts.is_empty() {
            of_giver.remove(&giver);
        }
        if of_giver.is_empty() {
            self.of_holder.remove(&holder);
        }
    }

    /// What the giver counted for the holder and is not confirmed, once for each hold.
    fn take(&mut self, holder: WorkerId, giver: WorkerId) -> Vec<ObjectId> {
        let Some(of_giver) = self.of_holder.get_mut(&holder) else { return Vec::new() };
        let counts = of_giver.remove(&giver).unwrap_or_default();
        if of_giver.is_empty() {
            self.of_holder.remove(&holder);
        }
        counts.into_iter().flat_map(|(object, count)| (0..count).map(move |_| object)).collect()
    }

    /// Whether a hold on the object is not confirmed.
    pub(super) fn has(&self, object: ObjectId) -> bool {
        let counts = self.of_holder.values().flat_map(BTreeMap::values);
        counts.into_iter().any(|counts| counts.contains_key(&object))
    }

    pub(super) fn holder_died(&mut self, holder: WorkerId) {
        self.of_holder.remove(&holder);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.of_holder.is_empty()
    }
}

impl<V: Clone> Objects<V> {
    /// One more hold of `holder` on each object, which `giver` has on their way to it. Not to be called for the dead.
    pub(crate) fn give(&mut self, giver: WorkerId, holder: WorkerId, objects: &[ObjectId], out: &mut Vec<Outcome<V>>) {
        self.given.count(holder, giver, objects, 1);
        self.hold(holder, objects, out);
    }

    /// These came to `holder` from `giver`.
    pub(crate) fn confirm(&mut self, holder: WorkerId, giver: WorkerId, objects: &[ObjectId]) {
        self.given.count(holder, giver, objects, -1);
    }

    /// The giver is dead, and the holder has read all that it said: what did not come is not held.
    pub(crate) fn giver_is_over(&mut self, holder: WorkerId, giver: WorkerId, out: &mut Vec<Outcome<V>>) {
        let lost = self.given.take(holder, giver);
        self.unhold(holder, &lost, out);
    }
}
