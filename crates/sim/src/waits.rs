//! Who can never go on, judged from outside of all cores: of processes that wait, those whose wait only the end of another of
//! them could end.

use oxiray_ids::ObjectId;
use std::collections::{BTreeMap, BTreeSet};

/// A whole device.
const WHOLE: u64 = 10_000;
/// A second, in µs.
const SECOND: u64 = 1_000_000;
/// How often it is looked who cannot go on.
const LOOK_PERIOD: u64 = SECOND;
/// How old what the head goes by is at most where nothing is in the way: a round of questions, and the way to the process.
const WORD_OLDEST: u64 = 5 * SECOND;
/// How long it takes at most until a call fails: the patience and the rounds around it, by the slowest clock, and a look.
const FOUND_LATEST: u64 = 20 * SECOND;

/// GPUs that something needs before it can begin, of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// In ten-thousandths: whole ones, or a share of one.
    Units(u64),
    /// Bytes of the memory of one.
    Memory(u64),
}

/// What a process waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Awaited {
    /// A call that this process runs.
    Run(usize),
    /// A call that nobody runs yet.
    Room(Need),
}

/// What a process holds of one device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) node: usize,
    pub(crate) slot: usize,
    pub(crate) units: u64,
    pub(crate) bytes: u64,
}

/// What is left of a device: in ten-thousandths, and bytes of its memory.
type Left = (u64, u64);

/// A process that goes on when none of what it waits for is missing any more.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) held: Vec<Part>,
    pub(crate) awaited: Vec<Awaited>,
}

/// Those that can never go on, on nodes with GPUs of these sizes and nothing else held there. What no node has room for waits for
/// a node, and not for who holds what.
pub(crate) fn in_vain(waiting: &BTreeMap<usize, Waiting>, nodes: &BTreeMap<usize, Vec<u64>>) -> BTreeSet<usize> {
    let mut stuck: BTreeSet<usize> = waiting.keys().copied().collect();
    let all = left_beside(std::iter::empty(), nodes);
    loop {
        let left = left_beside(stuck.iter().map(|process| &waiting[process]), nodes);
        let is_in_vain = |awaited: &Awaited| match awaited {
            Awaited::Run(by) => stuck.contains(by),
            Awaited::Room(need) => {
                let has_room = |rooms: &BTreeMap<usize, Vec<Left>>| rooms.values().any(|devices| fits(devices, *need));
                has_room(&all) && !has_room(&left)
            }
        };
        let before = stuck.len();
        let still = stuck.iter().copied().filter(|process| waiting[process].awaited.iter().any(is_in_vain));
        stuck = still.collect();
        if stuck.len() == before {
            return stuck;
        }
    }
}

/// What is left of each GPU.
fn left_beside<'a>(
    holders: impl Iterator<Item = &'a Waiting>,
    nodes: &BTreeMap<usize, Vec<u64>>,
) -> BTreeMap<usize, Vec<Left>> {
    let whole = |sizes: &Vec<u64>| sizes.iter().map(|bytes| (WHOLE, *bytes)).collect();
    let mut left: BTreeMap<usize, Vec<Left>> = nodes.iter().map(|(node, sizes)| (*node, whole(sizes))).collect();
    for part in holders.flat_map(|waiting| &waiting.held) {
        if let Some((units, bytes)) = left.get_mut(&part.node).and_then(|devices| devices.get_mut(part.slot)) {
            (*units, *bytes) = (units.saturating_sub(part.units), bytes.saturating_sub(part.bytes));
        }
    }
    left
}

fn fits(devices: &[Left], need: Need) -> bool {
    match need {
        Need::Units(units @ WHOLE..) => devices.iter().filter(|left| left.0 == WHOLE).count() as u64 * WHOLE >= units,
        Need::Units(units) => devices.iter().any(|left| left.0 >= units),
        Need::Memory(bytes) => devices.iter().any(|left| left.0 > 0 && left.1 >= bytes),
    }
}

/// How often something happened that is judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// A process was granted an instance of a GPU.
    pub instances: u64,
    /// One was granted memory of a GPU.
    pub memory: u64,
    /// A call failed since nobody could go on.
    pub deadlocks: u64,
}

impl Seen {
    /// With what another run saw.
    pub fn add(&mut self, other: Self) {
        self.instances += other.instances;
        self.memory += other.memory;
        self.deadlocks += other.deadlocks;
    }
}

/// Who was seen to be in vain, and when calls failed for it; moments are in µs.
#[derive(Debug, Default)]
pub(crate) struct Standstill {
    /// What those children need that need devices, by their results.
    pub(crate) needs: BTreeMap<ObjectId, Need>,
    /// Nodes that somebody asked to drain.
    pub(crate) drained: BTreeSet<usize>,
    looked: u64,
    /// When each process was seen so first, without a break, and last.
    since: BTreeMap<usize, u64>,
    last: BTreeMap<usize, u64>,
    /// When a call failed last, and who has calls that did.
    failed: u64,
    told: BTreeSet<usize>,
    /// How much had gone wrong at the last look, and until when that may be in the way.
    troubles: u64,
    troubled_until: u64,
}

impl Standstill {
    /// Whether it is time to look again.
    pub(crate) fn is_time(&self, now: u64) -> bool {
        now >= self.looked + LOOK_PERIOD
    }

    /// So much has gone wrong until now, and each is in the way for so long at most.
    pub(crate) fn note_troubles(&mut self, now: u64, troubles: u64, longest: u64) {
        if self.troubles != troubles {
            (self.troubles, self.troubled_until) = (troubles, now + longest);
        }
    }

    /// Of these the head may say now that they cannot go on, and it is to find some of them; who is not found in time, and for
    /// how long that is so.
    pub(crate) fn look(
        &mut self,
        now: u64,
        accusable: &BTreeSet<usize>,
        to_be_found: &BTreeSet<usize>,
    ) -> Option<(usize, u64)> {
        self.looked = now;
        self.last.extend(accusable.iter().map(|process| (*process, now)));
        if now < self.troubled_until {
            self.since.clear();
            return None;
        }
        self.since.retain(|process, _| to_be_found.contains(process));
        for process in to_be_found {
            self.since.entry(*process).or_insert(now);
        }
        let for_so_long = |since: u64| now - since.max(self.failed);
        let longest = self.since.iter().map(|(process, since)| (*process, for_so_long(*since)));
        longest.max_by_key(|(_, long)| *long).filter(|(_, long)| *long > FOUND_LATEST)
    }

    /// Whether calls of this process's failed for it.
    pub(crate) fn was_told(&self, process: usize) -> bool {
        self.told.contains(&process)
    }

    /// A call of this process's fails. Whether it could not go on, as far as the head could know.
    pub(crate) fn fails(&mut self, now: u64, process: usize) -> bool {
        self.failed = now;
        self.told.insert(process);
        let in_the_way = self.troubled_until.saturating_sub(now);
        self.last.get(&process).is_some_and(|last| last + WORD_OLDEST + in_the_way >= now)
    }
}
