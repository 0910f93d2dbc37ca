//! Objects fetched from other nodes' stores, piece by piece, into this one.
//!
//! - TRANSFER-1: an object is fetched once at a time, however many wait to read it.
//! - TRANSFER-2: of each object at most [`PIECES_AHEAD`] pieces are under way, and at most [`FETCHES_MAX`] objects; so
//!   what a transfer takes of the memory of either node is bounded.
//! - TRANSFER-3: while an object is read for another node it is pinned by the stream to that node, and goes with it.

use super::Daemon;
use super::streams::{Role, Stream};
use crate::core::{Key, Whereabouts};
use bytes::Bytes;
use oxiray_ids::{NodeId, ObjectId};
use oxiray_store::{Access, SegmentCache, SegmentId};
use oxiray_wire::connection::socket_pair;
use oxiray_wire::message::{Chunk, Copied, Failure, Fetch, Fetched, Locate, Located, NodePeer, StoreRefused};
use oxiray_wire::{Connection, Message};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;

/// Bytes of a piece.
const PIECE_BYTES: u64 = 1 << 20;
/// How many pieces of an object are asked for ahead.
const PIECES_AHEAD: u64 = 4;
/// How many objects are fetched at once; more wait.
const FETCHES_MAX: usize = 8;

/// An object on its way here.
#[derive(Debug, Default)]
struct Incoming {
    /// Who reads it then: clients and their questions.
    readers: Vec<(Key, u64)>,
    /// The stream that it comes on, and the node at its other end.
    from: Option<(Key, NodeId)>,
    segment: Option<SegmentId>,
    size: u64,
    /// Pieces come in the order asked for: up to here it was asked for, and up to here it came.
    asked: u64,
    arrived: u64,
    /// The first piece, until there is room for it.
    first: Option<Bytes>,
}

/// What this node and others give each other.
#[derive(Debug, Default)]
pub(super) struct Transfer {
    links: BTreeMap<NodeId, Key>,
    incoming: BTreeMap<ObjectId, Incoming>,
    queued: VecDeque<ObjectId>,
    active: BTreeSet<ObjectId>,
    segments: BTreeMap<Key, SegmentCache>,
    /// Objects pinned for another node: where each lies; nothing while the store is asked.
    outgoing: BTreeMap<(Key, ObjectId), Option<(SegmentId, u64)>>,
    /// Pieces asked for before the store had answered.
    owed: BTreeMap<(Key, ObjectId), Vec<u64>>,
    /// What the store was asked for on behalf of a link.
    questions: BTreeMap<u64, ObjectId>,
    last_question: u64,
}

fn id(bytes: &[u8]) -> ObjectId {
    ObjectId::from_slice(bytes).unwrap_or(ObjectId::NIL)
}

fn told(object: ObjectId) -> Bytes {
    Bytes::copy_from_slice(object.as_bytes())
}

impl Daemon {
    /// Reads an object for a client: from this node's store, or from another's by way of it.
    pub(super) fn read(&mut self, from: Key, request: u64, object: ObjectId) {
        let is_elsewhere = self.core.head_key().is_some() || self.core.has_members();
        let is_coming = self.transfer.incoming.contains_key(&object);
        if !is_coming && (!is_elsewhere || self.store.has(object)) {
            return self.store.pin(from, request, object, self.now);
        }
        self.transfer.incoming.entry(object).or_default().readers.push((from, request));
        if !is_coming {
            self.transfer.queued.push_back(object);
            self.fetch_next();
        }
    }

    /// TRANSFER-2.
    fn fetch_next(&mut self) {
        while self.transfer.active.len() < FETCHES_MAX {
            let Some(object) = self.transfer.queued.pop_front() else { return };
            self.transfer.active.insert(object);
            self.locate(object, None);
        }
    }

    fn locate(&mut self, object: ObjectId, without: Option<NodeId>) {
        if let Some(head) = self.core.head_key() {
            let without = without.map(|node| Bytes::copy_from_slice(node.as_bytes())).unwrap_or_default();
            return self.queue(head, &Locate { object: told(object), without }.into(), Vec::new());
        }
        self.core.locate(None, object, without, false);
    }

    /// A member asks where an object is.
    pub(super) fn locate_for(&mut self, member: Key, asked: &Locate) {
        let object = id(&asked.object);
        if let Some(failure) = self.core.freed(object) {
            let located = Located { object: asked.object.clone(), failure: Some(failure), ..Located::default() };
            return self.queue(member, &located.into(), Vec::new());
        }
        let is_here = self.has_of_its_own(object);
        self.core.locate(Some(member), object, NodeId::from_slice(&asked.without), is_here);
    }

    /// Whether this node's store has the object other than as a copy on its way here.
    pub(super) fn has_of_its_own(&self, object: ObjectId) -> bool {
        self.store.has(object) && !self.transfer.incoming.contains_key(&object)
    }

    /// The core knows where an object is.
    pub(super) fn tell_whereabouts(&mut self, found: Whereabouts) {
        let Whereabouts { asker, object, node } = found;
        let holder = node.and_then(|node| self.core.member_of(node));
        match (asker, node) {
            (Some(member), _) => {
                if node.is_some() {
                    self.introduce(holder, member);
                }
                let node = node.map(|node| Bytes::copy_from_slice(node.as_bytes())).unwrap_or_default();
                self.queue(member, &Located { object: told(object), node, failure: None }.into(), Vec::new());
            }
            (None, Some(node)) => {
                if let Some(member) = holder {
                    self.introduce(None, member);
                }
                self.begin_fetch(object, node);
            }
            (None, None) => self.refuse_readers(object, None),
        }
    }

    /// Gives two nodes a stream to each other, where they have none; `None` is this node.
    fn introduce(&mut self, one: Option<Key>, other: Key) {
        let own = self.core.own_node();
        let (Some(one_node), Some(other_node)) =
            (one.map_or(Some(own), |one| self.core.node_of_member(one)), self.core.node_of_member(other))
        else {
            return;
        };
        if !self.introduced.insert((one.unwrap_or(0), other))
            || (one.is_some() && self.introduced.contains(&(other, one.unwrap_or(0))))
        {
            return;
        }
        let (near, far) = match socket_pair() {
            Ok(pair) => pair,
            Err(error) => {
                return self.log.line(&format!("nodes {one_node} and {other_node} cannot be connected: {error}"));
            }
        };
        match one {
            None => self.add_link(other_node, near),
            Some(one) => {
                self.queue(one, &NodePeer { node: Bytes::copy_from_slice(other_node.as_bytes()) }.into(), vec![near]);
            }
        }
        self.queue(other, &NodePeer { node: Bytes::copy_from_slice(one_node.as_bytes()) }.into(), vec![far]);
    }

    /// A stream to another node.
    pub(super) fn add_link(&mut self, node: NodeId, stream: OwnedFd) {
        match Connection::new(stream) {
            Ok(connection) => {
                let key = self.core.new_key();
                self.add_stream(key, Stream::new(connection, Role::Node(node), 0));
                self.transfer.links.insert(node, key);
            }
            Err(error) => self.log.line(&format!("the stream to node {node} cannot be used: {error}")),
        }
    }

    /// The head says where an object is.
    pub(super) fn located(&mut self, said: Located) {
        let object = id(&said.object);
        match NodeId::from_slice(&said.node) {
            Some(node) => self.begin_fetch(object, node),
            None => self.refuse_readers(object, said.failure),
        }
    }

    fn begin_fetch(&mut self, object: ObjectId, node: NodeId) {
        let Some(link) = self.transfer.links.get(&node).copied() else { return self.refuse_readers(object, None) };
        let Some(incoming) = self.transfer.incoming.get_mut(&object) else { return };
        incoming.from = Some((link, node));
        incoming.asked = PIECE_BYTES;
        self.queue(link, &Fetch { object: told(object), offset: 0 }.into(), Vec::new());
    }

    /// What another node says on its stream.
    pub(super) fn node_said(&mut self, link: Key, message: Message) {
        match message {
            Message::Fetch(asked) => self.give_piece(link, id(&asked.object), asked.offset),
            Message::Fetched(said) => self.end_giving(link, id(&said.object)),
            Message::Chunk(chunk) => self.piece_came(link, chunk),
            other => self.log.line(&format!("a node sent a message of kind {}, which is not for one", other.kind())),
        }
    }

    // --- giving ---

    fn give_piece(&mut self, link: Key, object: ObjectId, offset: u64) {
        match self.transfer.outgoing.get(&(link, object)) {
            Some(Some((segment, size))) => self.send_piece(link, object, offset, (*segment, *size)),
            Some(None) => self.transfer.owed.entry((link, object)).or_default().push(offset),
            None if !self.store.has(object) => self.say_missing(link, object),
            None => {
                self.transfer.outgoing.insert((link, object), None);
                self.transfer.owed.entry((link, object)).or_default().push(offset);
                let question = self.question(object);
                self.store.pin(link, question, object, self.now);
                self.answer_from_store();
            }
        }
    }

    fn send_piece(&mut self, link: Key, object: ObjectId, offset: u64, (segment, size): (SegmentId, u64)) {
        let Some(mapping) = self.transfer.segments.entry(link).or_default().reader(segment) else {
            return self.say_missing(link, object);
        };
        let end = (offset + PIECE_BYTES).min(size);
        let bytes = mapping.as_slice().get(offset as usize..end as usize).unwrap_or_default();
        let bytes = Bytes::copy_from_slice(bytes);
        let chunk = Chunk { object: told(object), offset, size, bytes, missing: false };
        self.queue(link, &chunk.into(), Vec::new());
    }

    fn say_missing(&mut self, link: Key, object: ObjectId) {
        let chunk = Chunk { object: told(object), missing: true, ..Chunk::default() };
        self.queue(link, &chunk.into(), Vec::new());
    }

    fn end_giving(&mut self, link: Key, object: ObjectId) {
        self.transfer.owed.remove(&(link, object));
        if let Some(Some(_)) = self.transfer.outgoing.remove(&(link, object))
            && let Err(error) = self.store.unpin(link, object)
        {
            self.log.line(&format!("node stream {link}: {error}"));
        }
    }

    // --- receiving ---

    fn piece_came(&mut self, link: Key, chunk: Chunk) {
        let object = id(&chunk.object);
        let Some(incoming) = self.transfer.incoming.get_mut(&object) else { return };
        let Some((from, node)) = incoming.from.filter(|(from, _)| *from == link) else { return };
        if chunk.missing || chunk.offset != incoming.arrived {
            return self.fetch_elsewhere(object, from, node);
        }
        incoming.size = chunk.size;
        match incoming.segment {
            None if incoming.first.is_none() => {
                incoming.first = Some(chunk.bytes);
                let size = incoming.size;
                let question = self.question(object);
                self.store.allocate(from, question, object, size, self.now);
                self.answer_from_store();
            }
            None => self.fetch_elsewhere(object, from, node),
            Some(segment) => self.write_piece(object, from, segment, &chunk.bytes),
        }
    }

    fn write_piece(&mut self, object: ObjectId, link: Key, segment: SegmentId, bytes: &[u8]) {
        let writer = self.transfer.segments.entry(link).or_default().writer(segment);
        let Some(incoming) = self.transfer.incoming.get_mut(&object) else { return };
        let (begin, end) = (incoming.arrived as usize, incoming.arrived as usize + bytes.len());
        let is_written = writer.is_some_and(|writer| {
            writer.edit(|room| room.get_mut(begin..end).map(|room| room.copy_from_slice(bytes))).is_some()
        });
        let is_too_short = bytes.is_empty() && incoming.size > incoming.arrived;
        if !is_written || is_too_short || end as u64 > incoming.size {
            return self.refuse_readers(object, None);
        }
        incoming.arrived = end as u64;
        let mut wanted = Vec::new();
        while incoming.asked < incoming.size && incoming.asked < incoming.arrived + PIECES_AHEAD * PIECE_BYTES {
            wanted.push(incoming.asked);
            incoming.asked += PIECE_BYTES;
        }
        let is_whole = incoming.arrived == incoming.size;
        for offset in wanted {
            self.queue(link, &Fetch { object: told(object), offset }.into(), Vec::new());
        }
        if is_whole {
            self.all_came(object, link);
        }
    }

    fn all_came(&mut self, object: ObjectId, link: Key) {
        let Some(incoming) = self.transfer.incoming.remove(&object) else { return };
        self.transfer.active.remove(&object);
        self.queue(link, &Fetched { object: told(object) }.into(), Vec::new());
        if let Err(error) = self.store.seal(link, object) {
            self.log.line(&format!("object {object} from another node: {error}"));
        }
        for (reader, request) in incoming.readers {
            self.store.pin(reader, request, object, self.now);
        }
        match self.core.head_key() {
            Some(head) => self.queue(head, &Copied { object: told(object) }.into(), Vec::new()),
            None if !self.core.is_stored(object) => self.store.delete(object),
            None => {}
        }
        self.answer_from_store();
        self.fetch_next();
    }

    /// What came so far is given up; another node may have the object.
    fn fetch_elsewhere(&mut self, object: ObjectId, link: Key, node: NodeId) {
        self.abandon_copy(object, link);
        if let Some(incoming) = self.transfer.incoming.get_mut(&object) {
            *incoming = Incoming { readers: std::mem::take(&mut incoming.readers), ..Incoming::default() };
            self.locate(object, Some(node));
        }
    }

    fn abandon_copy(&mut self, object: ObjectId, link: Key) {
        self.queue(link, &Fetched { object: told(object) }.into(), Vec::new());
        let has_room = self.transfer.incoming.get(&object).is_some_and(|incoming| incoming.segment.is_some());
        if has_room {
            // It fails only where the stream's end gave it up already.
            let _ = self.store.abort(link, object);
        }
    }

    fn refuse_readers(&mut self, object: ObjectId, failure: Option<Failure>) {
        if let Some((link, _)) = self.transfer.incoming.get(&object).and_then(|incoming| incoming.from) {
            self.abandon_copy(object, link);
        }
        self.transfer.active.remove(&object);
        let Some(incoming) = self.transfer.incoming.remove(&object) else { return };
        let failure = failure.unwrap_or_else(|| {
            let text =
                format!("object {object} is in no node's store any more: the node that had it died, or deleted it");
            Failure { code: "object_lost".into(), text, cause: Bytes::new() }
        });
        for (reader, request) in incoming.readers {
            let refused = StoreRefused { request, failure: Some(failure.clone()) };
            self.queue(reader, &refused.into(), Vec::new());
        }
        self.fetch_next();
    }

    // --- the store's answers ---

    fn question(&mut self, object: ObjectId) -> u64 {
        self.transfer.last_question += 1;
        self.transfer.questions.insert(self.transfer.last_question, object);
        self.transfer.last_question
    }

    /// Whether a client of the store is the stream to another node.
    pub(super) fn is_link(&self, key: Key) -> bool {
        self.streams.get(&key).is_some_and(|stream| matches!(stream.role, Role::Node(_)))
    }

    /// What the store says to the stream to another node is for this node.
    pub(super) fn store_said(&mut self, link: Key, message: Message, descriptor: Option<&OwnedFd>) {
        let mut map = |segment, access, capacity| {
            let cache = self.transfer.segments.entry(link).or_default();
            descriptor.is_none_or(|descriptor| cache.insert(segment, access, descriptor, capacity).is_ok())
        };
        match message {
            Message::Allocated(said) => {
                let segment = SegmentId(said.segment);
                let is_mapped = map(segment, Access::ReadWrite, said.capacity);
                let Some(object) = self.transfer.questions.remove(&said.request) else { return };
                let Some(incoming) = self.transfer.incoming.get_mut(&object) else {
                    let _ = self.store.abort(link, object);
                    return;
                };
                incoming.segment = Some(segment);
                match incoming.first.take().filter(|_| is_mapped) {
                    Some(first) => self.write_piece(object, link, segment, &first),
                    None => self.refuse_readers(object, None),
                }
            }
            Message::Pinned(said) => {
                let segment = SegmentId(said.segment);
                let is_mapped = map(segment, Access::ReadOnly, said.capacity);
                let Some(object) = self.transfer.questions.remove(&said.request) else { return };
                let owed = self.transfer.owed.remove(&(link, object)).unwrap_or_default();
                let Some(given) = self.transfer.outgoing.get_mut(&(link, object)).filter(|_| is_mapped) else {
                    let _ = self.store.unpin(link, object);
                    return self.say_missing(link, object);
                };
                *given = Some((segment, said.size));
                for offset in owed {
                    self.send_piece(link, object, offset, (segment, said.size));
                }
            }
            Message::StoreRefused(said) => {
                let Some(object) = self.transfer.questions.remove(&said.request) else { return };
                if self.transfer.outgoing.remove(&(link, object)).is_some() {
                    self.transfer.owed.remove(&(link, object));
                    self.say_missing(link, object);
                } else {
                    self.refuse_readers(object, said.failure);
                }
            }
            Message::SegmentRetired(said) => {
                self.transfer.segments.entry(link).or_default().retire(SegmentId(said.segment));
            }
            _ => {}
        }
    }

    // --- ends ---

    /// A client is gone, and reads nothing more.
    pub(super) fn reader_gone(&mut self, client: Key) {
        for incoming in self.transfer.incoming.values_mut() {
            incoming.readers.retain(|(reader, _)| *reader != client);
        }
    }

    /// The stream to another node is over: what came on it comes from elsewhere, or not at all (TRANSFER-3).
    pub(super) fn link_over(&mut self, link: Key, node: NodeId) {
        self.transfer.links.remove(&node);
        self.transfer.segments.remove(&link);
        self.transfer.outgoing.retain(|(key, _), _| *key != link);
        self.transfer.owed.retain(|(key, _), _| *key != link);
        self.store.client_gone(link);
        let lost = self.transfer.incoming.iter().filter(|(_, incoming)| incoming.from == Some((link, node)));
        for object in lost.map(|(object, _)| *object).collect::<Vec<_>>() {
            self.fetch_elsewhere(object, link, node);
        }
    }

    /// A member is gone: it is introduced anew where one comes under the same key, which is never.
    pub(super) fn forget_introductions(&mut self, member: Key) {
        self.introduced.retain(|(one, other)| *one != member && *other != member);
    }
}
