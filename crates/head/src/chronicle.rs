//! The chronicle: what happened, with a number and a time, for as long as there is room for it, and what of it still holds.
//!
//! ```text
//! number    1 2 3 4 5 6 7 8 9 …                 each entry has the next one
//! old         2     5                           fell out of the ring, and still holds: the last word on who holds a device
//! ring                  7 8 9 10 11             all that happened lately
//! ```
//!
//! - CHRONICLE-1: the ring has at most [`ENTRIES_MAX`] entries and [`BYTES_MAX`] bytes. Of what fell out of it only those stay
//!   that hold, of which there are no more than grants of devices and devices, and [`STANDING_MAX`] for each node.
//! - CHRONICLE-2: who applies the answers to its questions, one after the other, knows what holds once an answer says that
//!   there is no more, whatever it was told before and wherever it began.
//! - CHRONICLE-3: an answer has at most [`BATCH_BYTES_MAX`] bytes of entries, whoever asks and however late.
//! - CHRONICLE-4: entries that a follower missed are told of as a gap, and never passed over in silence.

mod device_time;
mod observed;
mod readers;

pub(crate) use device_time::{DeviceTime, RETURN_STEPS_S, Returns};
pub(crate) use observed::DeviceHost;
use oxiray_ids::NodeId;
use oxiray_wire::message::ChronicleBatch;
use oxiray_wire::state::{
    ChronicleCursor, ChronicleEntry, ChronicleEvent, ChronicleGap, ChronicleKind, DevicePart, STATE_VERSION,
};
use prost::Message as _;
pub(crate) use readers::Readers;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most entries of the ring.
const ENTRIES_MAX: usize = 65_536;
/// The most bytes that it takes.
const BYTES_MAX: usize = 8 << 20;
/// What an entry takes beside its body.
const ENTRY_OVERHEAD: usize = 40;
/// The most bytes of the entries of one answer.
const BATCH_BYTES_MAX: usize = (256 << 10) - 512;
/// What the length and the number of the field take in an answer, for each entry.
const FRAMING: usize = 4;
/// The most bytes of a name or a text.
const TEXT_MAX: usize = 400;
/// Of so many things at one node it is kept that they hold: what else a machine says of its devices is in the ring alone.
const STANDING_MAX: usize = 4_096;

/// What an entry may be the last word on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    node: NodeId,
    resource: String,
    slot: u32,
    about: About,
}

/// What of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum About {
    /// Whether it is in service.
    Service,
    /// Whether it is well.
    Health,
    /// A grant of a part of it.
    Grant(u64),
}

impl Subject {
    /// What an entry is about; nothing where it is not one of those of which the last word counts.
    fn of(entry: &ChronicleEntry) -> Option<Self> {
        let (node, part) = (entry.node?, entry.device.as_ref()?);
        let about = match entry.event {
            ChronicleEvent::DeviceGranted | ChronicleEvent::DeviceReturning | ChronicleEvent::DeviceFree => {
                About::Grant(part.grant)
            }
            ChronicleEvent::DeviceOutOfService | ChronicleEvent::DeviceInService => About::Service,
            ChronicleEvent::DeviceIll | ChronicleEvent::DeviceWell => About::Health,
            _ => return None,
        };
        Some(Self { node, resource: part.resource.clone(), slot: part.slot, about })
    }
}

/// Whether there is something to be known after that event that ends with a later one.
fn holds(event: ChronicleEvent) -> bool {
    matches!(
        event,
        ChronicleEvent::DeviceGranted
            | ChronicleEvent::DeviceReturning
            | ChronicleEvent::DeviceOutOfService
            | ChronicleEvent::DeviceIll
    )
}

/// An entry as it is sent.
#[derive(Debug)]
struct Kept {
    kind: ChronicleKind,
    body: Box<[u8]>,
}

impl Kept {
    fn bytes(&self) -> usize {
        self.body.len() + ENTRY_OVERHEAD
    }
}

/// All that is remembered.
#[derive(Debug, Default)]
pub(crate) struct Chronicle {
    /// Tells these numbers from those of another head; 0 until somebody asks.
    origin: u64,
    last: u64,
    ring: VecDeque<Kept>,
    bytes: usize,
    /// What fell out of the ring and holds.
    old: BTreeMap<u64, Kept>,
    /// The last word on what holds, by its subject and by its number.
    standing: BTreeMap<Subject, u64>,
    numbers: BTreeMap<u64, Subject>,
    /// What is counted of the entries of devices.
    pub(crate) device_time: DeviceTime,
}

/// What a question came to.
#[derive(Debug)]
pub(crate) struct Found {
    /// The answer; nothing where there is nothing to be told.
    pub(crate) batch: Option<ChronicleBatch>,
    /// Up to where was looked.
    pub(crate) cursor: ChronicleCursor,
}

impl Chronicle {
    /// Something happened, at that time.
    pub(crate) fn write(&mut self, at_ms: u64, entry: ChronicleEntry) {
        self.last += 1;
        let mut entry = ChronicleEntry { number: self.last, at_ms, ..entry };
        cut(&mut entry.name);
        cut(&mut entry.text);
        if let Some(part) = &mut entry.device {
            cut(&mut part.resource);
            cut(&mut part.id);
        }
        if let Some(subject) = Subject::of(&entry) {
            if let Some(before) = self.standing.remove(&subject) {
                self.numbers.remove(&before);
                self.old.remove(&before);
            }
            let stands = holds(entry.event) && self.subjects_of(subject.node).count() < STANDING_MAX;
            if stands || !holds(entry.event) {
                self.device_time.hear(at_ms, &entry);
            }
            if stands {
                self.standing.insert(subject.clone(), self.last);
                self.numbers.insert(self.last, subject);
            }
        }
        let kept = Kept { kind: entry.event.kind(), body: entry.encode_to_vec().into_boxed_slice() };
        self.bytes += kept.bytes();
        self.ring.push_back(kept);
        while self.ring.len() > ENTRIES_MAX || self.bytes > BYTES_MAX {
            self.drop_first();
        }
    }

    /// CHRONICLE-1.
    fn drop_first(&mut self) {
        let number = self.first();
        let Some(kept) = self.ring.pop_front() else { return };
        self.bytes -= kept.bytes();
        if self.numbers.contains_key(&number) {
            self.old.insert(number, kept);
        }
    }

    /// The number of the first entry of the ring.
    fn first(&self) -> u64 {
        self.last + 1 - self.ring.len() as u64
    }

    /// The number of the last entry.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// What holds of a node's devices: each the last entry of its subject.
    fn standing_of(&self, node: NodeId) -> impl Iterator<Item = ChronicleEntry> + '_ {
        self.subjects_of(node).filter_map(|number| Some(decoded(self.kept(number)?)))
    }

    /// The numbers of the entries that hold of a node's devices.
    fn subjects_of(&self, node: NodeId) -> impl Iterator<Item = u64> + '_ {
        let from = Subject { node, resource: String::new(), slot: 0, about: About::Service };
        let of_node = self.standing.range(from..).take_while(move |(subject, _)| subject.node == node);
        of_node.map(|(_, number)| *number)
    }

    /// The grants that hold of a node's devices: resource, number and grant.
    pub(crate) fn grants_of(&self, node: NodeId) -> BTreeSet<(String, u32, u64)> {
        let parts = self.standing_of(node).filter_map(|entry| entry.device).filter(|part| part.grant > 0);
        parts.map(|part| (part.resource, part.slot, part.grant)).collect()
    }

    /// The last word on that, where it holds.
    fn standing_on(&self, node: NodeId, part: &DevicePart, about: About) -> Option<ChronicleEntry> {
        let subject = Subject { node, resource: part.resource.clone(), slot: part.slot, about };
        Some(decoded(self.kept(*self.standing.get(&subject)?)?))
    }

    fn kept(&self, number: u64) -> Option<&Kept> {
        match number.checked_sub(self.first()) {
            Some(index) => self.ring.get(usize::try_from(index).ok()?),
            None => self.old.get(&number),
        }
    }

    /// These numbers are told from those of other heads by that one, where nobody has asked before.
    pub(crate) fn name_origin(&mut self, origin: u64) {
        if self.origin == 0 {
            self.origin = origin.max(1);
        }
    }

    /// Entries of these kinds since the cursor; of all kinds where none is named. `latest` is of [`ChronicleFollow`].
    ///
    /// [`ChronicleFollow`]: oxiray_wire::message::ChronicleFollow
    pub(crate) fn since(&self, cursor: ChronicleCursor, kinds: &[ChronicleKind], latest: Option<u64>) -> Found {
        let Beginning { mut cursor, gap, is_fresh } = self.begin(cursor, latest);
        let mut batch = ChronicleBatch { version: STATE_VERSION, is_fresh, gap, ..ChronicleBatch::default() };
        let mut room = BATCH_BYTES_MAX;
        let next = cursor.number + 1;
        let begun = cursor.begun.max(next);
        let holding = self.numbers.range(next..begun).map(|(number, _)| *number);
        for number in holding.chain(begun..=self.last) {
            let Some(kept) = self.kept(number) else { continue };
            if kinds.is_empty() || kinds.contains(&kept.kind) {
                let Some(left) = room.checked_sub(kept.body.len() + FRAMING) else {
                    batch.has_more = true;
                    break;
                };
                room = left;
                batch.entries.push(decoded(kept));
            }
            cursor.number = number;
        }
        if !batch.has_more {
            cursor.number = self.last;
        }
        batch.cursor = Some(cursor);
        let is_news = is_fresh || gap.is_some() || !batch.entries.is_empty();
        Found { batch: is_news.then_some(batch), cursor }
    }

    /// Whether the head gave out that cursor.
    fn is_ours(&self, cursor: ChronicleCursor) -> bool {
        cursor.origin == self.origin && cursor.number <= self.last && cursor.begun <= self.last + 1
    }

    /// Where a follower goes on that says so, or begins.
    fn begin(&self, cursor: ChronicleCursor, latest: Option<u64>) -> Beginning {
        let first = self.first();
        if !self.is_ours(cursor) {
            let begun = latest.map_or(first, |most| first.max((self.last + 1).saturating_sub(most)));
            return self.anew(begun, None);
        }
        let is_told_what_holds = cursor.number < cursor.begun && first <= cursor.begun;
        if is_told_what_holds || cursor.number + 1 >= first {
            return Beginning { cursor, gap: None, is_fresh: false };
        }
        let missed = (cursor.number + 1).max(cursor.begun);
        self.anew(first, Some(ChronicleGap { from: missed, to: first - 1 }))
    }

    fn anew(&self, begun: u64, gap: Option<ChronicleGap>) -> Beginning {
        Beginning { cursor: ChronicleCursor { origin: self.origin, number: 0, begun }, gap, is_fresh: true }
    }
}

/// Where an answer begins.
struct Beginning {
    cursor: ChronicleCursor,
    gap: Option<ChronicleGap>,
    is_fresh: bool,
}

fn decoded(kept: &Kept) -> ChronicleEntry {
    ChronicleEntry::decode(&kept.body[..]).expect("it was encoded here")
}

/// Cuts a text at a character's boundary.
fn cut(text: &mut String) {
    if text.len() > TEXT_MAX {
        let end = (0..=TEXT_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}

#[cfg(test)]
mod tests;
