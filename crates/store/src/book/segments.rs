//! Which memory files there are, which parts of them are in use or wait in the pool, and who was given descriptors of which.
//!
//! A file is divided into slots of one size. A segment is a slot that has, or may have, pages; a slot without pages costs
//! nothing but addresses. So memory is counted, pooled and given back by the segment, while descriptors and mappings are
//! counted by the file. A file serves objects of one job only: whoever maps it sees nothing of another job's.

use super::Effect;
use crate::terms::{Access, ClientId, Event, FileId, SegmentId};
use oxiray_ids::JobId;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// How many pooled segments of a kind are looked at for one that the asking client has mapped.
const SEARCH_LIMIT: usize = 64;
/// A file has this many slots or more, or a single one.
const SLOTS_MIN: u64 = 4;

/// What makes segments interchangeable: the job, and the bytes.
type Kind = (JobId, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// It has no pages.
    Bare,
    Used,
    /// In the pool, under this age.
    Pooled(u64),
    /// Nothing may use it again.
    Dead,
}

#[derive(Debug)]
struct MemoryFile {
    kind: Kind,
    slots: Vec<Slot>,
    /// The bare slots, the one to be used next last.
    bare: Vec<u32>,
    used: u32,
    pooled: u32,
    given: BTreeMap<ClientId, Given>,
}

impl MemoryFile {
    /// Of `count` slots; one without slots is on disk, and is tracked only for who was given descriptors of it.
    fn new(kind: Kind, count: u32) -> Self {
        let slots = vec![Slot::Bare; count as usize];
        Self { kind, slots, bare: (0..count).rev().collect(), used: 0, pooled: 0, given: BTreeMap::new() }
    }

    fn slot_of(&self, segment: SegmentId) -> u32 {
        u32::try_from(segment.offset / self.kind.1).expect("a segment lies within its file")
    }
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
    /// The part of the capacity that the machine has memory for now.
    bound: u64,
    pool_limit: u64,
    /// About how many bytes a file of several slots has.
    slab: u64,
    used: u64,
    pooled: u64,
    files: HashMap<FileId, MemoryFile>,
    /// Files with bare slots.
    open: BTreeMap<Kind, BTreeSet<FileId>>,
    by_age: BTreeMap<u64, SegmentId>,
    by_kind: HashMap<Kind, BTreeMap<u64, SegmentId>>,
    by_client: HashMap<ClientId, BTreeSet<FileId>>,
    next: u64,
}

impl Segments {
    pub(super) fn new(capacity: u64, pool_limit: u64, slab: u64) -> Self {
        Self {
            capacity,
            bound: capacity,
            pool_limit,
            slab,
            used: 0,
            pooled: 0,
            files: HashMap::new(),
            open: BTreeMap::new(),
            by_age: BTreeMap::new(),
            by_kind: HashMap::new(),
            by_client: HashMap::new(),
            next: 0,
        }
    }

    /// Bytes that objects do not take: free, or pooled and so free at once.
    pub(super) fn room(&self) -> u64 {
        self.bound.saturating_sub(self.used)
    }

    /// Bytes that segments may take now.
    pub(super) fn bound(&self) -> u64 {
        self.bound
    }

    /// Bytes that objects take beyond what there is memory for.
    pub(super) fn excess(&self) -> u64 {
        self.used.saturating_sub(self.bound)
    }

    /// From now on segments may take so much of the capacity. Those of objects stay until they are moved.
    pub(super) fn set_bound(&mut self, bytes: u64, out: &mut VecDeque<Effect>) {
        self.bound = bytes.min(self.capacity);
        self.trim(self.room(), out);
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn pooled(&self) -> u64 {
        self.pooled
    }

    /// How many files there are.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    fn file(&mut self, segment: SegmentId) -> &mut MemoryFile {
        self.files.get_mut(&segment.file).expect("a segment that is used or pooled has its file")
    }

    pub(super) fn capacity_of(&self, segment: SegmentId) -> u64 {
        self.files[&segment.file].kind.1
    }

    /// A segment of `capacity` for an object of this job: a pooled one, best one that `client` may write already, else one
    /// without pages, in a new file where no other has any.
    pub(super) fn take(
        &mut self,
        capacity: u64,
        job: JobId,
        client: Option<ClientId>,
        out: &mut VecDeque<Effect>,
    ) -> SegmentId {
        assert!(capacity <= self.room(), "STORE-1: a segment is taken only where there is room");
        self.used += capacity;
        let kind = (job, capacity);
        let segment = if let Some(age) = self.pooled_for(kind, client) {
            self.leave_pool(age)
        } else {
            self.trim(self.room(), out);
            self.bare_of(kind, out)
        };
        let file = self.file(segment);
        let slot = file.slot_of(segment) as usize;
        file.used += 1;
        assert_eq!(
            std::mem::replace(&mut file.slots[slot], Slot::Used),
            Slot::Bare,
            "STORE-2: a segment is taken once"
        );
        segment
    }

    fn pooled_for(&self, kind: Kind, client: Option<ClientId>) -> Option<u64> {
        let pool = self.by_kind.get(&kind)?;
        let is_mapped = |segment: &SegmentId| {
            client.is_some_and(|client| self.files[&segment.file].given.get(&client).is_some_and(|given| given.write))
        };
        let newest_first = || pool.iter().rev();
        let mapped = newest_first().take(SEARCH_LIMIT).find(|(_, segment)| is_mapped(segment));
        mapped.or_else(|| newest_first().next()).map(|(age, _)| *age)
    }

    /// Takes a slot without pages, of the oldest file that has one: so younger files empty, and go.
    fn bare_of(&mut self, kind: Kind, out: &mut VecDeque<Effect>) -> SegmentId {
        let id = self.open.get(&kind).and_then(|open| open.first().copied());
        let id = id.unwrap_or_else(|| self.make(kind, out));
        let file = self.files.get_mut(&id).expect("an open file is known");
        let slot = file.bare.pop().expect("an open file has a bare slot");
        if file.bare.is_empty() {
            self.close(kind, id);
        }
        SegmentId { file: id, offset: u64::from(slot) * kind.1 }
    }

    fn make(&mut self, kind: Kind, out: &mut VecDeque<Effect>) -> FileId {
        let slots = if kind.1 <= self.slab / SLOTS_MIN { self.slab / kind.1 } else { 1 };
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        let id = self.insert(MemoryFile::new(kind, slots));
        self.open.entry(kind).or_default().insert(id);
        out.push_back(Effect::Make { file: id, bytes: u64::from(slots) * kind.1 });
        id
    }

    fn insert(&mut self, file: MemoryFile) -> FileId {
        let id = FileId(self.next);
        self.next += 1;
        self.files.insert(id, file);
        id
    }

    fn close(&mut self, kind: Kind, id: FileId) {
        if let Some(open) = self.open.get_mut(&kind) {
            open.remove(&id);
            if open.is_empty() {
                self.open.remove(&kind);
            }
        }
    }

    /// Takes a segment out of the pool; nothing has it then.
    fn leave_pool(&mut self, age: u64) -> SegmentId {
        let segment = self.by_age.remove(&age).expect("STORE-2: a segment leaves the pool once");
        let file = self.file(segment);
        let (kind, slot) = (file.kind, file.slot_of(segment) as usize);
        file.slots[slot] = Slot::Bare;
        file.pooled -= 1;
        self.pooled -= kind.1;
        let pool = self.by_kind.get_mut(&kind).expect("a pooled segment is among its kind");
        pool.remove(&age);
        if pool.is_empty() {
            self.by_kind.remove(&kind);
        }
        segment
    }

    /// An object no longer needs `segment`.
    pub(super) fn release(&mut self, segment: SegmentId, out: &mut VecDeque<Effect>) {
        let age = self.next;
        self.next += 1;
        let kind = self.no_longer_used(segment, Slot::Pooled(age));
        self.file(segment).pooled += 1;
        self.pooled += kind.1;
        self.by_age.insert(age, segment);
        self.by_kind.entry(kind).or_default().insert(age, segment);
        self.drop_if_idle(segment.file, out);
        self.trim(self.pool_limit.min(self.room()), out);
    }

    /// An object no longer needs `segment`, and nothing else may ever use it.
    pub(super) fn discard(&mut self, segment: SegmentId, out: &mut VecDeque<Effect>) {
        let kind = self.no_longer_used(segment, Slot::Dead);
        self.give_back(segment, kind.1, out);
        self.drop_if_idle(segment.file, out);
    }

    fn no_longer_used(&mut self, segment: SegmentId, now: Slot) -> Kind {
        let file = self.file(segment);
        let (kind, slot) = (file.kind, file.slot_of(segment) as usize);
        assert_eq!(std::mem::replace(&mut file.slots[slot], now), Slot::Used, "STORE-2: a segment is released once");
        file.used -= 1;
        self.used -= kind.1;
        kind
    }

    /// The pages of a segment that nothing has go: with the whole file where it was the last.
    fn give_back(&mut self, segment: SegmentId, capacity: u64, out: &mut VecDeque<Effect>) {
        let file = self.file(segment);
        if file.used == 0 && file.pooled == 0 {
            return self.remove(segment.file, out);
        }
        out.push_back(Effect::Discard { segment, capacity });
    }

    /// A segment that is a file on disk: it takes no memory, and is tracked for who was given descriptors of it.
    pub(super) fn name(&mut self) -> SegmentId {
        SegmentId { file: self.insert(MemoryFile::new((JobId::NIL, 0), 0)), offset: 0 }
    }

    /// Nobody reads the file on disk any more.
    pub(super) fn unname(&mut self, segment: SegmentId, out: &mut VecDeque<Effect>) {
        self.remove(segment.file, out);
    }

    /// Gives back the longest pooled segments until the pool holds at most `keep` bytes.
    pub(super) fn trim(&mut self, keep: u64, out: &mut VecDeque<Effect>) {
        while self.pooled > keep {
            let oldest = *self.by_age.keys().next().expect("a pool with bytes has segments");
            let segment = self.leave_pool(oldest);
            let file = self.file(segment);
            let (kind, slot) = (file.kind, file.slot_of(segment));
            file.bare.push(slot);
            self.open.entry(kind).or_default().insert(segment.file);
            self.give_back(segment, kind.1, out);
        }
    }

    /// Drops a file of which nothing is used and that no client has mapped. What it has pooled would be for the next
    /// clients of its job, of which there may be none.
    fn drop_if_idle(&mut self, id: FileId, out: &mut VecDeque<Effect>) {
        let Some(file) = self.files.get(&id) else { return };
        if file.used > 0 || !file.given.is_empty() || file.slots.is_empty() {
            return;
        }
        let ages = file.slots.iter().filter_map(|slot| if let Slot::Pooled(age) = slot { Some(*age) } else { None });
        for age in ages.collect::<Vec<_>>() {
            self.leave_pool(age);
        }
        self.remove(id, out);
    }

    fn remove(&mut self, id: FileId, out: &mut VecDeque<Effect>) {
        let file = self.files.remove(&id).expect("files are removed once");
        self.close(file.kind, id);
        let clients: Vec<ClientId> = file.given.into_keys().collect();
        for client in &clients {
            if let Some(files) = self.by_client.get_mut(client) {
                files.remove(&id);
            }
        }
        out.push_back(Effect::Drop { file: id });
        if !clients.is_empty() {
            out.push_back(Effect::Tell(Event::Retired { file: id, clients }));
        }
    }

    /// Notes that `client` gets a descriptor; `None` for an unknown file, `Some(false)` where it had one.
    pub(super) fn give(&mut self, file: FileId, client: ClientId, access: Access) -> Option<bool> {
        let given = self.files.get_mut(&file)?.given.entry(client).or_default();
        self.by_client.entry(client).or_default().insert(file);
        Some(!std::mem::replace(given.of(access), true))
    }

    /// `client` dropped its mappings of the file.
    pub(super) fn take_back(&mut self, file: FileId, client: ClientId, out: &mut VecDeque<Effect>) {
        if let Some(files) = self.by_client.get_mut(&client) {
            files.remove(&file);
        }
        if let Some(entry) = self.files.get_mut(&file) {
            entry.given.remove(&client);
            self.drop_if_idle(file, out);
        }
    }

    pub(super) fn client_gone(&mut self, client: ClientId, out: &mut VecDeque<Effect>) {
        for file in self.by_client.remove(&client).unwrap_or_default() {
            self.take_back(file, client, out);
        }
    }

    #[cfg(test)]
    pub(super) fn job_of(&self, segment: SegmentId) -> JobId {
        self.files[&segment.file].kind.0
    }

    /// STORE-1 and STORE-2, as far as they are told here: `held` are the segments of objects and of reads from disk, with
    /// the job of each.
    #[cfg(test)]
    pub(super) fn check(&self, held: &[(SegmentId, JobId)]) {
        assert!(self.used + self.pooled <= self.capacity, "STORE-1");
        assert!(self.pooled <= self.pool_limit.min(self.room()), "STORE-7");
        let distinct: BTreeSet<_> = held.iter().map(|(segment, _)| segment).collect();
        assert_eq!(distinct.len(), held.len(), "STORE-2: {held:?}");
        for (segment, job) in held {
            let file = &self.files[&segment.file];
            if !file.slots.is_empty() {
                assert_eq!(file.slots[file.slot_of(*segment) as usize], Slot::Used, "STORE-2");
                assert_eq!(file.kind.0, *job, "STORE-6");
            }
        }
        assert_eq!(held.iter().map(|(segment, _)| self.capacity_of(*segment)).sum::<u64>(), self.used);
        assert_eq!(self.by_age.len(), self.by_kind.values().map(BTreeMap::len).sum::<usize>());
        for (id, file) in &self.files {
            let count = |wanted: fn(&Slot) -> bool| file.slots.iter().filter(|slot| wanted(slot)).count();
            assert_eq!(count(|slot| *slot == Slot::Used), file.used as usize);
            assert_eq!(count(|slot| matches!(slot, Slot::Pooled(_))), file.pooled as usize);
            assert_eq!(count(|slot| *slot == Slot::Bare), file.bare.len());
            assert!(file.slots.is_empty() || file.used + file.pooled > 0, "a file without pages goes");
            let is_open = self.open.get(&file.kind).is_some_and(|open| open.contains(id));
            assert_eq!(is_open, !file.bare.is_empty());
        }
        for (age, segment) in &self.by_age {
            let file = &self.files[&segment.file];
            assert_eq!(file.slots[file.slot_of(*segment) as usize], Slot::Pooled(*age));
        }
        for (client, files) in &self.by_client {
            assert!(files.iter().all(|file| self.files[file].given.contains_key(client)));
        }
    }
}
