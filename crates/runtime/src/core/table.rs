//! What a process has many of, by identifier.
//!
//! Entries lie in one piece of memory, in about the order in which they came, and keep their places while others come and
//! go, until a burst is over and the table is made small again: thousands of tasks cost no allocation each, and are looked
//! through in the order in which the processor reads ahead.
//!
//! - TABLE-1: the place that `places` says for an identifier holds its entry, and every entry has such a place.

use crate::core::slack::{ROOM_MIN, SPARSE};
use hashbrown::HashTable;
use oxiray_ids::Identifier;
use slab::Slab;

/// Entries by their identifiers.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    places: HashTable<u32>,
    entries: Slab<(K, V)>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { places: HashTable::new(), entries: Slab::new() }
    }
}

impl<K: Identifier, V> Table<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn place(&self, id: K) -> Option<usize> {
        let is_it = |place: &u32| self.entries.get(*place as usize).is_some_and(|(other, _)| *other == id);
        self.places.find(id.row_hash(), is_it).map(|place| *place as usize)
    }

    pub(crate) fn contains_key(&self, id: &K) -> bool {
        self.place(*id).is_some()
    }

    pub(crate) fn get(&self, id: &K) -> Option<&V> {
        self.entries.get(self.place(*id)?).map(|(_, entry)| entry)
    }

    pub(crate) fn get_mut(&mut self, id: &K) -> Option<&mut V> {
        let place = self.place(*id)?;
        self.entries.get_mut(place).map(|(_, entry)| entry)
    }

    /// The entry, made now where there is none.
    pub(crate) fn get_or_insert_with(&mut self, id: K, make: impl FnOnce() -> V) -> &mut V {
        let place = self.place(id).unwrap_or_else(|| self.add(id, make()));
        &mut self.entries[place].1
    }

    /// Puts an entry in the place of another, or of none.
    pub(crate) fn insert(&mut self, id: K, entry: V) {
        if let Some(place) = self.place(id) {
            self.entries[place].1 = entry;
        } else {
            self.add(id, entry);
        }
    }

    fn add(&mut self, id: K, entry: V) -> usize {
        let place = self.entries.insert((id, entry));
        let number = u32::try_from(place).expect("memory ends before 2^32 entries do");
        let entries = &self.entries;
        self.places.insert_unique(id.row_hash(), number, |place| entries[*place as usize].0.row_hash());
        place
    }

    pub(crate) fn remove(&mut self, id: &K) -> Option<V> {
        self.remove_if(*id, |_| true)
    }

    /// Takes the entry out where `is_over` says so of it.
    pub(crate) fn remove_if(&mut self, id: K, is_over: impl FnOnce(&mut V) -> bool) -> Option<V> {
        let entries = &mut self.entries;
        let is_it = |place: &u32| entries.get(*place as usize).is_some_and(|(other, _)| *other == id);
        let found = self.places.find_entry(id.row_hash(), is_it).ok()?;
        let place = *found.get() as usize;
        if !is_over(&mut entries[place].1) {
            return None;
        }
        found.remove();
        let (_, entry) = self.entries.remove(place);
        self.shed();
        Some(entry)
    }

    /// A process that once had many entries is as small as before.
    fn shed(&mut self) {
        if self.entries.capacity() <= ROOM_MIN || self.entries.len() >= self.entries.capacity() / SPARSE {
            return;
        }
        let Self { places, entries } = self;
        entries.compact(|(id, _), from, to| {
            // TABLE-1.
            if let Some(place) = places.find_mut(id.row_hash(), |place| *place as usize == from) {
                *place = to as u32;
            }
            true
        });
        places.shrink_to(2 * entries.len(), |place| entries[*place as usize].0.row_hash());
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(_, (id, entry))| (id, entry))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.entries.iter_mut().map(|(_, (id, entry))| (&*id, entry))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::{ActorId, JobId, TaskId, Unique};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn ids(count: usize) -> Vec<TaskId> {
        let mut unique = Unique::new();
        (0..count).map(|_| TaskId::generate(ActorId::nil_of(JobId::from_number(1)), &mut unique)).collect()
    }

    proptest! {
        #[test]
        fn it_has_what_a_map_has(steps in proptest::collection::vec((0_usize..40, 0_u8..4, any::<u32>()), 0..400)) {
            let ids = ids(40);
            let (mut table, mut map) = (Table::default(), BTreeMap::new());
            for (which, deed, value) in steps {
                let id = ids[which];
                match deed {
                    0 => {
                        table.insert(id, value);
                        map.insert(id, value);
                    }
                    1 => prop_assert_eq!(table.remove(&id), map.remove(&id)),
                    2 => {
                        let kept = map.get(&id).is_some_and(|value| value % 2 == 0);
                        let gone = if kept { None } else { map.remove(&id) };
                        prop_assert_eq!(table.remove_if(id, |value| *value % 2 == 1), gone);
                    }
                    _ => prop_assert_eq!(*table.get_or_insert_with(id, || value), *map.entry(id).or_insert(value)),
                }
                prop_assert_eq!(table.len(), map.len());
                prop_assert!(ids.iter().all(|id| table.get(id) == map.get(id)));
            }
        }
    }

    #[test]
    fn it_is_as_small_after_a_burst_as_before_and_keeps_what_is_left() {
        let ids = ids(200_000);
        let mut table = Table::default();
        for (number, id) in ids.iter().enumerate() {
            table.insert(*id, number);
        }
        for (number, id) in ids.iter().enumerate().filter(|(number, _)| number % 1000 != 999) {
            assert_eq!(table.remove(id), Some(number));
        }
        assert!(table.entries.capacity() <= ROOM_MIN && table.places.capacity() <= 2 * ROOM_MIN);
        assert_eq!(
            table
                .iter()
                .map(|(id, number)| (ids[*number] == *id, 1))
                .fold((true, 0), |sum, one| (sum.0 & one.0, sum.1 + one.1)),
            (true, 200)
        );
        assert!((999..200_000).step_by(1000).all(|number| table.get(&ids[number]) == Some(&number)));
    }
}
