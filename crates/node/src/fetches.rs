//! Objects on their way here from other nodes' stores: what is asked for, where, and who reads them then. No I/O.
//!
//! - FETCH-1: an object is fetched once at a time, however many wait to read it, and each of them is told once: to read
//!   it in this node's store, or why not.
//! - FETCH-2: of each object at most [`PIECES_AHEAD`] pieces are under way, and at most [`FETCHES_MAX`] objects; so what
//!   a transfer takes of the memory of either node is bounded. Pieces that come beside the messages go from store to
//!   store without a place in between, and may be larger.
//! - FETCH-3: what is said of an attempt counts only while that attempt lasts: each has a number of its own.
//! - FETCH-4: what came is kept when its stream ends. The rest comes from another copy with the same stamp, that is, of
//!   the same writing; from any other, everything comes anew.

use bytes::Bytes;
use oxiray_ids::{NodeId, ObjectId};
use oxiray_machine::Key;
use oxiray_wire::message::{Failure, Stamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes of a piece.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;
/// The same where there is room for the object and pieces come beside the messages.
const PIECE_BESIDE_BYTES: u64 = 4 << 20;
/// The first piece of an object there, which comes in a message: whoever has it can ask for room.
const FIRST_BYTES: u64 = 256 << 10;
/// How many pieces of an object are asked for ahead.
pub(crate) const PIECES_AHEAD: u64 = 4;
/// How many objects are fetched at once; more wait.
pub(crate) const FETCHES_MAX: usize = 8;
/// How many streams may end in a row before a single piece came; the node at their end is then taken to be without the
/// object.
const BREAKS_MAX: u32 = 8;

/// What is to be done, in order.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// Ask where an object is; `without` has it not after all. Answered by [`Fetches::located`].
    Locate { object: ObjectId, without: Option<NodeId> },
    /// Get a stream to a node. Answered by [`Fetches::linked`].
    Connect { node: NodeId },
    /// Ask for the piece that begins at an offset.
    Ask { link: Key, number: u64, object: ObjectId, offset: u64, length: u64 },
    /// Say that an attempt is over.
    Done { link: Key, number: u64 },
    /// Ask this node's store for room. Answered by [`Fetches::room`], [`Fetches::no_room`] or [`Fetches::is_here`].
    Allocate { request: u64, object: ObjectId, size: u64 },
    /// Write into that room; where it fails, [`Fetches::unwritable`] is to be told.
    Write { object: ObjectId, offset: u64, bytes: Bytes },
    /// All is written.
    Seal { object: ObjectId, stamp: Stamp },
    /// Give the room up, or the request for it.
    GiveUp { object: ObjectId },
    /// The object can be read here.
    Read { reader: Key, request: u64, object: ObjectId },
    /// It cannot; without a failure, because no node has it.
    Refuse { reader: Key, request: u64, object: ObjectId, failure: Option<Failure> },
}

/// A piece as it came.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) object: ObjectId,
    pub(crate) number: u64,
    pub(crate) offset: u64,
    /// Bytes of the whole object.
    pub(crate) size: u64,
    /// FETCH-4.
    pub(crate) stamp: Stamp,
    pub(crate) content: Content,
}

/// What a piece holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Content {
    /// Bytes that are to be written.
    Bytes(Bytes),
    /// So many were written already, into the room that was given.
    Written(u64),
}

impl Content {
    fn bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Written(count) => *count,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// FETCH-2: it waits for its turn.
    Queued,
    /// It is being located.
    Sought,
    /// The stream to that node is on its way.
    Awaited(NodeId),
    Link(Key, NodeId),
}

#[derive(Debug)]
enum WriteSpace {
    None,
    Asked { request: u64, first: Bytes },
    Given,
}

#[derive(Debug)]
struct Incoming {
    /// Clients and their questions.
    readers: Vec<(Key, u64)>,
    source: Source,
    /// Of the attempt under way.
    number: u64,
    room: WriteSpace,
    /// Size and stamp, once a piece came.
    known: Option<(u64, Stamp)>,
    /// Pieces come in the order asked for: up to here it was asked for, and up to here it was written.
    asked: u64,
    arrived: u64,
    breaks: u32,
}

impl Incoming {
    fn forget_what_came(&mut self) {
        self.room = WriteSpace::None;
        self.known = None;
        self.arrived = 0;
        self.asked = 0;
    }
}

/// All objects on their way here.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    links: BTreeMap<NodeId, Key>,
    /// Streams on which pieces can come beside the messages.
    with_direct_transfer: BTreeSet<Key>,
    connecting: BTreeSet<NodeId>,
    incoming: BTreeMap<ObjectId, Incoming>,
    queued: VecDeque<ObjectId>,
    active: usize,
    last_number: u64,
    out: Vec<Step>,
}

impl Fetches {
    /// What is to be done since the last call.
    pub(crate) fn steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.out)
    }

    /// Whether the object is on its way.
    pub(crate) fn is_coming(&self, object: ObjectId) -> bool {
        self.incoming.contains_key(&object)
    }

    /// A client wants to read an object that this node's store has not.
    pub(crate) fn want(&mut self, object: ObjectId, reader: Key, request: u64) {
        if let Some(incoming) = self.incoming.get_mut(&object) {
            return incoming.readers.push((reader, request));
        }
        let incoming = Incoming {
            readers: vec![(reader, request)],
            source: Source::Queued,
            number: 0,
            room: WriteSpace::None,
            known: None,
            asked: 0,
            arrived: 0,
            breaks: 0,
        };
        self.incoming.insert(object, incoming);
        self.queued.push_back(object);
        self.begin_next();
    }

    /// FETCH-2.
    fn begin_next(&mut self) {
        while self.active < FETCHES_MAX {
            let Some(object) = self.queued.pop_front() else { return };
            if self.incoming.contains_key(&object) {
                self.active += 1;
                self.seek(object, None);
            }
        }
    }

    fn seek(&mut self, object: ObjectId, without: Option<NodeId>) {
        let Some(incoming) = self.incoming.get_mut(&object) else { return };
        incoming.source = Source::Sought;
        incoming.number = 0;
        self.out.push(Step::Locate { object, without });
    }

    /// The object lies on that node, or on none.
    pub(crate) fn located(&mut self, object: ObjectId, node: Option<NodeId>, failure: Option<Failure>) {
        let Some(incoming) = self.incoming.get_mut(&object).filter(|incoming| incoming.source == Source::Sought) else {
            return;
        };
        let Some(node) = node else { return self.refuse(object, failure) };
        if let Some(link) = self.links.get(&node).copied() {
            return self.begin(object, link, node);
        }
        incoming.source = Source::Awaited(node);
        if self.connecting.insert(node) {
            self.out.push(Step::Connect { node });
        }
    }

    /// On that stream pieces can come beside the messages.
    pub(crate) fn has_direct_transfer(&mut self, link: Key) {
        self.with_direct_transfer.insert(link);
    }

    /// The head that was asked is gone: another is.
    pub(crate) fn ask_again(&mut self) {
        for object in self.objects_from(|source| source == Source::Sought) {
            self.out.push(Step::Locate { object, without: None });
        }
        self.out.extend(self.connecting.iter().map(|node| Step::Connect { node: *node }));
    }

    /// There is a stream to a node; or there will be none.
    pub(crate) fn linked(&mut self, node: NodeId, link: Option<Key>) {
        self.connecting.remove(&node);
        let link = link.map(|link| *self.links.entry(node).or_insert(link));
        for object in self.objects_from(|source| source == Source::Awaited(node)) {
            match link {
                Some(link) => self.begin(object, link, node),
                None => self.seek(object, Some(node)),
            }
        }
    }

    /// A stream is over: what came on it goes on from elsewhere.
    pub(crate) fn link_over(&mut self, link: Key) {
        self.links.retain(|_, known| *known != link);
        self.with_direct_transfer.remove(&link);
        for object in self.objects_from(|source| matches!(source, Source::Link(from, _) if from == link)) {
            let Some(incoming) = self.incoming.get_mut(&object) else { continue };
            incoming.breaks += 1;
            let without = match incoming.source {
                Source::Link(_, node) if incoming.breaks > BREAKS_MAX => Some(node),
                _ => None,
            };
            self.seek(object, without);
        }
    }

    fn objects_from(&self, is_it: impl Fn(Source) -> bool) -> Vec<ObjectId> {
        self.incoming.iter().filter(|(_, incoming)| is_it(incoming.source)).map(|(object, _)| *object).collect()
    }

    fn begin(&mut self, object: ObjectId, link: Key, node: NodeId) {
        self.last_number += 1;
        let number = self.last_number;
        let Some(incoming) = self.incoming.get_mut(&object) else { return };
        incoming.source = Source::Link(link, node);
        incoming.number = number;
        incoming.asked = incoming.arrived;
        self.ask_more(object);
    }

    /// Of an object that there is no room for yet, one piece.
    fn ask_more(&mut self, object: ObjectId) {
        let Some(incoming) = self.incoming.get_mut(&object) else { return };
        let Source::Link(link, _) = incoming.source else { return };
        let has_direct_transfer = self.with_direct_transfer.contains(&link);
        let (piece, size) = match (&incoming.room, incoming.known) {
            (WriteSpace::Given, Some((size, _))) => {
                (if has_direct_transfer { PIECE_BESIDE_BYTES } else { PIECE_BYTES }, size)
            }
            (WriteSpace::None, _) => (if has_direct_transfer { FIRST_BYTES } else { PIECE_BYTES }, 1),
            _ => return,
        };
        let end = size.min(incoming.arrived + PIECES_AHEAD * piece);
        while incoming.asked < end {
            let (number, offset) = (incoming.number, incoming.asked);
            self.out.push(Step::Ask { link, number, object, offset, length: piece });
            incoming.asked += piece;
        }
    }

    /// A piece came.
    pub(crate) fn piece(&mut self, link: Key, piece: Piece) {
        let Piece { object, number, offset, size, stamp, content } = piece;
        let Some(incoming) = self.incoming.get_mut(&object) else { return };
        let Source::Link(from, node) = incoming.source else { return };
        if from != link || incoming.number != number {
            return;
        }
        incoming.breaks = 0;
        if incoming.known.is_some_and(|known| known != (size, stamp)) {
            self.out.push(Step::Done { link, number });
            self.give_up(object);
            return self.begin(object, link, node);
        }
        let is_next = offset == incoming.arrived && (content.bytes() > 0 || size == 0);
        let fits = offset.checked_add(content.bytes()).is_some_and(|end| end <= size);
        match (&incoming.room, content) {
            (WriteSpace::Given, content) if is_next && fits => {
                incoming.known = Some((size, stamp));
                self.write(object, content);
            }
            (WriteSpace::None, Content::Bytes(first)) if is_next && fits => {
                incoming.known = Some((size, stamp));
                self.last_number += 1;
                let request = self.last_number;
                incoming.room = WriteSpace::Asked { request, first };
                self.out.push(Step::Allocate { request, object, size });
            }
            _ => {
                self.out.push(Step::Done { link, number });
                self.seek(object, Some(node));
            }
        }
    }

    /// The node has not got it, or cannot give it for that reason.
    pub(crate) fn missing(&mut self, link: Key, object: ObjectId, number: u64, failure: Option<Failure>) {
        let Some(incoming) = self.incoming.get(&object).filter(|incoming| incoming.number == number) else { return };
        match incoming.source {
            Source::Link(from, _) if from == link && failure.is_some() => self.refuse(object, failure),
            Source::Link(from, node) if from == link => self.seek(object, Some(node)),
            _ => {}
        }
    }

    /// The object that this room is for.
    pub(crate) fn object_of(&self, wanted: u64) -> Option<ObjectId> {
        let is_it =
            |incoming: &Incoming| matches!(incoming.room, WriteSpace::Asked { request, .. } if request == wanted);
        self.incoming.iter().find(|(_, incoming)| is_it(incoming)).map(|(object, _)| *object)
    }

    /// There is room; the object that it is for, where it is still wanted.
    pub(crate) fn room(&mut self, request: u64) -> Option<ObjectId> {
        let object = self.object_of(request)?;
        let incoming = self.incoming.get_mut(&object)?;
        let WriteSpace::Asked { first, .. } = std::mem::replace(&mut incoming.room, WriteSpace::Given) else {
            return None;
        };
        incoming.asked = incoming.asked.max(first.len() as u64);
        self.write(object, Content::Bytes(first));
        Some(object)
    }

    fn write(&mut self, object: ObjectId, content: Content) {
        let Some(incoming) = self.incoming.get_mut(&object) else { return };
        let offset = incoming.arrived;
        incoming.arrived += content.bytes();
        let is_whole = incoming.known.is_some_and(|(size, _)| size == incoming.arrived);
        if let Content::Bytes(bytes) = content {
            self.out.push(Step::Write { object, offset, bytes });
        }
        if is_whole { self.end(object) } else { self.ask_more(object) }
    }

    /// There is no room to be had.
    pub(crate) fn no_room(&mut self, request: u64, failure: Option<Failure>) {
        let Some(object) = self.object_of(request) else { return };
        if let Some(incoming) = self.incoming.get_mut(&object) {
            incoming.room = WriteSpace::None;
        }
        self.refuse(object, failure);
    }

    /// There is no room to be had, since this node's store has the object by now.
    pub(crate) fn is_here(&mut self, request: u64) {
        let Some(object) = self.object_of(request) else { return };
        let Some(incoming) = self.take(object) else { return };
        self.tell_readers(object, incoming);
    }

    /// The room cannot be written.
    pub(crate) fn unwritable(&mut self, object: ObjectId, failure: Failure) {
        self.refuse(object, Some(failure));
    }

    /// Nobody is to read the object any more.
    pub(crate) fn deleted(&mut self, object: ObjectId) {
        self.refuse(object, None);
    }

    /// A client is gone, and reads nothing more.
    pub(crate) fn reader_gone(&mut self, client: Key) {
        for incoming in self.incoming.values_mut() {
            incoming.readers.retain(|(reader, _)| *reader != client);
        }
        self.incoming.retain(|_, incoming| !incoming.readers.is_empty() || incoming.source != Source::Queued);
    }

    fn end(&mut self, object: ObjectId) {
        let Some(incoming) = self.take(object) else { return };
        let stamp = incoming.known.map_or(Stamp::default(), |(_, stamp)| stamp);
        self.out.push(Step::Seal { object, stamp });
        self.tell_readers(object, incoming);
    }

    fn tell_readers(&mut self, object: ObjectId, incoming: Incoming) {
        for (reader, request) in incoming.readers {
            self.out.push(Step::Read { reader, request, object });
        }
        self.begin_next();
    }

    fn refuse(&mut self, object: ObjectId, failure: Option<Failure>) {
        self.give_up(object);
        let Some(incoming) = self.take(object) else { return };
        for ((reader, request), failure) in incoming.readers.into_iter().zip(std::iter::repeat(failure)) {
            self.out.push(Step::Refuse { reader, request, object, failure });
        }
        self.begin_next();
    }

    fn give_up(&mut self, object: ObjectId) {
        let Some(incoming) = self.incoming.get_mut(&object) else { return };
        if !matches!(incoming.room, WriteSpace::None) {
            self.out.push(Step::GiveUp { object });
        }
        incoming.forget_what_came();
    }

    /// The fetch is over.
    fn take(&mut self, object: ObjectId) -> Option<Incoming> {
        let incoming = self.incoming.remove(&object)?;
        if let Source::Link(link, _) = incoming.source {
            self.out.push(Step::Done { link, number: incoming.number });
        }
        self.active -= usize::from(incoming.source != Source::Queued);
        Some(incoming)
    }
}

#[cfg(test)]
mod tests;
