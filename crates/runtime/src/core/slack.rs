//! Tables give back what a burst made them take: a process that once had many tasks under way is about as small as before.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::hash::Hash;

/// Entries that a table has room for at all times: what bursts of everyday size need, so that none makes room anew.
pub(crate) const ROOM_MIN: usize = 16 << 10;
/// A table that is filled to less than one in this many is made smaller.
pub(crate) const SPARSE: usize = 8;

pub(crate) fn shed_map<K: Eq + Hash, V>(map: &mut FxHashMap<K, V>) {
    if map.capacity() > ROOM_MIN && map.len() < map.capacity() / SPARSE {
        map.shrink_to((2 * map.len()).max(ROOM_MIN / 2));
    }
}

pub(crate) fn shed_queue<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > ROOM_MIN && queue.len() < queue.capacity() / SPARSE {
        queue.shrink_to((2 * queue.len()).max(ROOM_MIN / 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_as_small_after_a_burst_as_before_and_stays_when_it_is_full() {
        let mut map = FxHashMap::default();
        let mut queue = VecDeque::new();
        for number in 0..200_000 {
            map.insert(number, number);
            queue.push_back(number);
            shed_map(&mut map);
            shed_queue(&mut queue);
        }
        assert_eq!((map.len(), queue.len()), (200_000, 200_000));
        for number in 0..200_000 {
            map.remove(&number);
            queue.pop_front();
            shed_map(&mut map);
            shed_queue(&mut queue);
        }
        assert!(map.capacity() <= ROOM_MIN && queue.capacity() <= ROOM_MIN);
    }
}
