//! Which segments there are, which of them wait in the pool, and who was given descriptors of which.

use super::Effect;
use crate::terms::{Access, ClientId, Event, SegmentId};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// How many pooled segments of a class are looked at for one that the asking client has mapped.
const SEARCH_LIMIT: usize = 64;

#[derive(Debug)]
struct Segment {
    capacity: u64,
    /// Its place in the pool's order of age, where it is pooled.
    pooled: Option<u64>,
    given: BTreeMap<ClientId, Given>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Given {
    read: bool,
    write: bool,
}

impl Given {
    fn of(&mut self, access: Access) -> &mut bool {
        match access {
            Access::ReadOnly => &mut self.read,
            Access::ReadWrite => &mut self.write,
        }
    }
}

#[derive(Debug)]
pub(super) struct Segments {
    capacity: u64,
    pool_limit: u64,
    used: u64,
    pooled: u64,
    known: HashMap<SegmentId, Segment>,
    by_age: BTreeMap<u64, SegmentId>,
    by_capacity: HashMap<u64, BTreeMap<u64, SegmentId>>,
    by_client: HashMap<ClientId, BTreeSet<SegmentId>>,
    next: u64,
}

impl Segments {
    pub(super) fn new(capacity: u64, pool_limit: u64) -> Self {
        Self {
            capacity,
            pool_limit,
            used: 0,
            pooled: 0,
            known: HashMap::new(),
            by_age: BTreeMap::new(),
            by_capacity: HashMap::new(),
            by_client: HashMap::new(),
            next: 0,
        }
    }

    /// Bytes that objects do not take: free, or pooled and so free at once.
    pub(super) fn room(&self) -> u64 {
        self.capacity - self.used
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn pooled(&self) -> u64 {
        self.pooled
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn capacity_of(&self, segment: SegmentId) -> u64 {
        self.known[&segment].capacity
    }

    /// A segment of `capacity` for an object: a pooled one, best one that `client` may write already, else a new one.
    pub(super) fn take(&mut self, capacity: u64, client: Option<ClientId>, out: &mut VecDeque<Effect>) -> SegmentId {
        assert!(capacity <= self.room(), "STORE-1: a segment is taken only where there is room");
        self.used += capacity;
        if let Some(segment) = self.pooled_for(capacity, client) {
            self.leave_pool(segment);
            return segment;
        }
        self.trim(self.capacity - self.used, out);
        let segment = SegmentId(self.next);
        self.next += 1;
        self.known.insert(segment, Segment { capacity, pooled: None, given: BTreeMap::new() });
        out.push_back(Effect::Make { segment, capacity });
        segment
    }

    fn pooled_for(&self, capacity: u64, client: Option<ClientId>) -> Option<SegmentId> {
        let newest_first = || self.by_capacity.get(&capacity).into_iter().flat_map(|class| class.values().rev());
        let mapped = |segment: &&SegmentId| {
            client.is_some_and(|client| self.known[*segment].given.get(&client).is_some_and(|given| given.write))
        };
        newest_first().take(SEARCH_LIMIT).find(mapped).or_else(|| newest_first().next()).copied()
    }

    fn leave_pool(&mut self, segment: SegmentId) {
        let entry = self.known.get_mut(&segment).expect("the pool holds known segments");
        let age = entry.pooled.take().expect("STORE-2: a segment leaves the pool once");
        self.pooled -= entry.capacity;
        self.by_age.remove(&age);
        let class = self.by_capacity.get_mut(&entry.capacity).expect("a pooled segment is in its class");
        class.remove(&age);
        if class.is_empty() {
            self.by_capacity.remove(&entry.capacity);
        }
    }

    /// An object no longer needs `segment`.
    pub(super) fn release(&mut self, segment: SegmentId, out: &mut VecDeque<Effect>) {
        let age = self.next;
        self.next += 1;
        let entry = self.known.get_mut(&segment).expect("objects hold known segments");
        assert!(entry.pooled.replace(age).is_none(), "STORE-2: a segment is released once");
        self.used -= entry.capacity;
        self.pooled += entry.capacity;
        self.by_age.insert(age, segment);
        self.by_capacity.entry(entry.capacity).or_default().insert(age, segment);
        self.trim(self.pool_limit, out);
    }

    /// An object no longer needs `segment`, and nothing else may ever use it.
    pub(super) fn discard(&mut self, segment: SegmentId, out: &mut VecDeque<Effect>) {
        self.used -= self.capacity_of(segment);
        self.remove(segment, out);
    }

    /// A segment that is a file on disk: it takes no memory, and is tracked for who was given descriptors of it.
    pub(super) fn name(&mut self) -> SegmentId {
        let segment = SegmentId(self.next);
        self.next += 1;
        self.known.insert(segment, Segment { capacity: 0, pooled: None, given: BTreeMap::new() });
        segment
    }

    /// Nobody reads the file on disk any more.
    pub(super) fn unname(&mut self, segment: SegmentId, out: &mut VecDeque<Effect>) {
        self.remove(segment, out);
    }

    /// Drops the longest pooled segments until the pool holds at most `keep` bytes.
    pub(super) fn trim(&mut self, keep: u64, out: &mut VecDeque<Effect>) {
        while self.pooled > keep {
            let oldest = *self.by_age.values().next().expect("a pool with bytes has segments");
            self.leave_pool(oldest);
            self.remove(oldest, out);
        }
    }

    fn remove(&mut self, segment: SegmentId, out: &mut VecDeque<Effect>) {
        let entry = self.known.remove(&segment).expect("segments are removed once");
        let clients: Vec<ClientId> = entry.given.into_keys().collect();
        for client in &clients {
            if let Some(segments) = self.by_client.get_mut(client) {
                segments.remove(&segment);
            }
        }
        out.push_back(Effect::Discard { segment });
        if !clients.is_empty() {
            out.push_back(Effect::Tell(Event::Retired { segment, clients }));
        }
    }

    /// Notes that `client` gets a descriptor; `None` for an unknown segment, `Some(false)` where it had one.
    pub(super) fn give(&mut self, segment: SegmentId, client: ClientId, access: Access) -> Option<bool> {
        let given = self.known.get_mut(&segment)?.given.entry(client).or_default();
        self.by_client.entry(client).or_default().insert(segment);
        Some(!std::mem::replace(given.of(access), true))
    }

    /// `client` dropped its mappings of `segment`.
    pub(super) fn take_back(&mut self, segment: SegmentId, client: ClientId) {
        if let Some(entry) = self.known.get_mut(&segment) {
            entry.given.remove(&client);
        }
        if let Some(segments) = self.by_client.get_mut(&client) {
            segments.remove(&segment);
        }
    }

    pub(super) fn client_gone(&mut self, client: ClientId) {
        for segment in self.by_client.remove(&client).unwrap_or_default() {
            if let Some(entry) = self.known.get_mut(&segment) {
                entry.given.remove(&client);
            }
        }
    }

    /// STORE-1 and STORE-2, as far as they are told here: `held` are the segments of objects and of reads from disk.
    #[cfg(test)]
    pub(super) fn check(&self, held: &[SegmentId]) {
        assert!(self.used + self.pooled <= self.capacity, "STORE-1");
        assert!(self.pooled <= self.pool_limit);
        let distinct: BTreeSet<_> = held.iter().collect();
        assert_eq!(distinct.len(), held.len(), "STORE-2: {held:?}");
        assert!(held.iter().all(|segment| self.known[segment].pooled.is_none()), "STORE-2");
        assert_eq!(held.iter().map(|&segment| self.capacity_of(segment)).sum::<u64>(), self.used);
        assert_eq!(self.known.len(), held.len() + self.by_age.len(), "no segment is forgotten");
        assert_eq!(self.by_age.len(), self.by_capacity.values().map(BTreeMap::len).sum::<usize>());
        for (client, segments) in &self.by_client {
            assert!(segments.iter().all(|segment| self.known[segment].given.contains_key(client)));
        }
    }
}
