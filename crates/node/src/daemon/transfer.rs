//! Objects that go from node to node: carries out what [`Fetches`](crate::fetches::Fetches) and
//! [`Giving`](crate::giving::Giving) decide.
//!
//! - TRANSFER-2: whoever needs a stream to another node asks the head for one. The head remembers none, so a stream that
//!   broke is made again like the first.

use super::Daemon;
use crate::fetches::Step;
use crate::giving::{Next, Place};
use crate::network::End;
use crate::objects::{OWN, Sealed, segment_of};
use crate::streams::{Role, Stream};
use bytes::Bytes;
use oxiray_ids::{NodeId, ObjectId};
use oxiray_machine::{Key, Whereabouts};
use oxiray_network::{Local, Way};
use oxiray_store::SegmentId;
use oxiray_wire::Connection;
use oxiray_wire::message::{
    Chunk, Connect, Copied, CopyRefused, Failure, FailureCode, Fetch, Fetched, Locate, Located, NodeToNode, Stamp,
    StoreRefused, StoreToClient,
};

/// The largest piece that another node is given.
const PIECE_BYTES_MAX: u64 = 16 << 20;

impl Daemon {
    /// Reads an object for a client: from this node's store, or from another's by way of it.
    pub(super) fn read(&mut self, from: Key, request: u64, object: ObjectId) {
        let is_alone = self.core.head_key().is_none() && !self.core.has_members();
        self.objects.read(from, request, object, is_alone, self.turn.now);
    }

    /// Carries out what the fetches want done; whether there was anything.
    pub(super) fn go_on_fetching(&mut self) -> bool {
        let steps = self.objects.fetches.steps();
        let is_any = !steps.is_empty();
        for step in steps {
            self.fetch_on(step);
        }
        is_any
    }

    fn fetch_on(&mut self, step: Step) {
        match step {
            Step::Locate { object, without } => self.locate(object, without),
            Step::Connect { node } => self.connect(node),
            Step::Ask { link, number, object, offset, length } => {
                let beside = self.objects.has_hold(link, number, object);
                let asked = Fetch { object, offset, number, length, beside };
                self.queue(link, &asked.into(), Vec::new());
            }
            Step::Done { link, number } => {
                self.objects.attempt_over(link, number);
                self.queue(link, &Fetched { number }.into(), Vec::new());
            }
            Step::Allocate { request, object, size } => {
                self.objects.store.allocate(OWN, request, object, size, self.turn.now);
            }
            Step::Write { object, offset, bytes } => {
                if let Err(text) = self.objects.write(object, offset, &bytes) {
                    self.log.line(&text);
                }
            }
            Step::Seal { object, stamp } => self.seal_copy(object, stamp),
            Step::GiveUp { object } => self.objects.give_up_fetch(object),
            // It was to be here, and is, or cannot be.
            Step::Read { reader: OWN, object, .. } => self.copy_here(object),
            Step::Refuse { reader: OWN, object, .. } => match self.core.head_key() {
                Some(head) => self.queue(head, &CopyRefused { object }.into(), Vec::new()),
                None => self.core.cannot_come(None, object),
            },
            Step::Read { reader, request, object } => self.objects.store.pin(reader, request, object, self.turn.now),
            Step::Refuse { reader, request, object, failure } => {
                let failure = Some(failure.unwrap_or_else(|| lost(object)));
                self.queue(reader, &StoreRefused { request, failure }.into(), Vec::new());
            }
        }
    }

    /// Has a copy of an object in this node's store, for nobody in particular.
    pub(super) fn copy_here(&mut self, object: ObjectId) {
        if !self.objects.copy_here(object) {
            return;
        }
        match self.core.head_key() {
            Some(head) => self.queue(head, &Copied { object }.into(), Vec::new()),
            None => self.core.copied_here(object),
        }
    }

    // --- where objects are ---

    fn locate(&mut self, object: ObjectId, without: Option<NodeId>) {
        let Some(head) = self.core.head_key() else { return self.core.locate(None, object, without, false) };
        self.queue(head, &Locate { object, without }.into(), Vec::new());
    }

    /// A member asks where an object is.
    pub(super) fn locate_for(&mut self, member: Key, asked: &Locate) {
        let object = asked.object;
        if let Some(failure) = self.core.freed(object) {
            let located = Located { object, failure: Some(failure), ..Located::default() };
            return self.queue(member, &located.into(), Vec::new());
        }
        let is_here = self.objects.has_of_its_own(object);
        self.core.locate(Some(member), object, asked.without, is_here);
    }

    /// The core knows where an object is.
    pub(super) fn tell_whereabouts(&mut self, found: Whereabouts) {
        let Whereabouts { asker, object, node } = found;
        let Some(member) = asker else { return self.objects.fetches.located(object, node, None) };
        self.queue(member, &Located { object, node, failure: None }.into(), Vec::new());
    }

    /// The head says where an object is.
    pub(super) fn located(&mut self, said: Located) {
        self.objects.fetches.located(said.object, said.node, said.failure);
    }

    // --- streams ---

    fn connect(&mut self, node: NodeId) {
        if let Some(head) = self.core.head_key() {
            return self.queue(head, &Connect { node }.into(), Vec::new());
        }
        let own = self.core.own_node();
        let end = self.core.member_of(node).and_then(|member| self.stream_to(member, None, own));
        self.add_link(node, end.and_then(End::here));
    }

    /// A member wants a stream to another node.
    pub(super) fn connect_for(&mut self, member: Key, asked: &Connect) {
        let (Some(node), Some(asker)) = (Some(asked.node), self.core.node_of_member(member)) else {
            return;
        };
        if node != self.core.own_node() {
            let end = self.core.member_of(node).and_then(|other| self.stream_to(other, Some(member), asker));
            return self.send_peer(member, node, end);
        }
        let end = self.stream_to(member, None, node);
        self.add_link(asker, end.and_then(End::here));
    }

    /// Gives a member a stream to `node`, which is this one or that of a member `asker`, whose end is returned.
    fn stream_to(&mut self, member: Key, asker: Option<Key>, node: NodeId) -> Option<End> {
        match self.stream_between_nodes(asker, member) {
            Ok((near, far)) => {
                self.send_peer(member, node, Some(far));
                Some(near)
            }
            Err(error) => {
                self.log.line(&format!("node {node} and another cannot be connected: {error}"));
                None
            }
        }
    }

    /// A stream to another node; or there is none to be had.
    pub(super) fn add_link(&mut self, node: NodeId, stream: Option<Local>) {
        let link = stream.and_then(|Local { socket, way }| {
            let connection = match Connection::new(socket) {
                Ok(connection) => connection,
                Err(error) => {
                    self.log.line(&format!("the stream to node {node} cannot be used: {error}"));
                    return None;
                }
            };
            let key = self.core.new_key();
            self.add_stream(key, Stream::new(connection, Role::Node, 0));
            let direct_transfer =
                if let Way::DirectTransfer(direct_transfer) = way { Some(direct_transfer) } else { None };
            self.objects.add_link(key, direct_transfer);
            self.streams.get(key).map(|_| key)
        });
        self.objects.fetches.linked(node, link);
    }

    /// What another node says on its stream.
    pub(super) fn node_said(&mut self, link: Key, message: NodeToNode) {
        match message {
            NodeToNode::Fetch(asked) => self.give_piece(link, &asked),
            NodeToNode::Fetched(said) => self.end_giving(link, said.number),
            NodeToNode::Chunk(chunk) if chunk.missing => {
                self.objects.fetches.missing(link, chunk.object, chunk.number, chunk.failure);
            }
            NodeToNode::Chunk(chunk) => {
                if let Err(text) = self.objects.piece_came(link, *chunk) {
                    self.log.line(&text);
                }
            }
            NodeToNode::Refused(said) => self.log.line(&format!("another node ends its stream: {}", said.text)),
        }
    }

    // --- giving ---

    fn give_piece(&mut self, link: Key, asked: &Fetch) {
        let object = asked.object;
        let is_here = self.objects.has_of_its_own(object);
        match self.objects.giving.asked(link, object, asked.clone(), is_here) {
            Ok(Next::Send(place)) => self.send_piece(link, object, asked, place),
            Ok(Next::Pin(question)) => self.objects.store.pin(link, question, object, self.turn.now),
            Ok(Next::Owed) => {}
            Ok(Next::Missing) => self.say_missing(link, asked.number, object, None),
            Err(error) => self.expel(link, &format!("it broke the protocol: {error}")),
        }
    }

    fn send_piece(&mut self, link: Key, object: ObjectId, asked: &Fetch, (segment, size): Place) {
        let Fetch { offset, number, length, beside, .. } = *asked;
        let count = size.saturating_sub(offset).min(length).min(PIECE_BYTES_MAX);
        let stamp = self.objects.store.stamp_of(object);
        let chunk = Chunk { object, offset, size, number, stamp, ..Chunk::default() };
        if beside && count > 0 && self.load_piece(link, &chunk, segment, count) {
            return;
        }
        match self.objects.store.bytes_of(segment, offset, count) {
            Ok(bytes) => self.queue(link, &Chunk { bytes, ..chunk }.into(), Vec::new()),
            Err(error) => {
                self.log.line(&format!("object {object} cannot be read for another node: {error}"));
                self.end_giving(link, number);
                self.say_missing(link, number, object, None);
            }
        }
    }

    fn say_missing(&mut self, link: Key, number: u64, object: ObjectId, failure: Option<Failure>) {
        let chunk = Chunk { object, missing: true, number, failure, ..Chunk::default() };
        self.queue(link, &chunk.into(), Vec::new());
    }

    fn end_giving(&mut self, link: Key, number: u64) {
        if let Err(error) = self.objects.end_giving(link, number) {
            self.log.line(&format!("node stream {link}: {error}"));
        }
    }

    /// Gives a piece beside the messages; `false` where it must be in one.
    fn load_piece(&mut self, link: Key, chunk: &Chunk, segment: SegmentId, bytes: u64) -> bool {
        let Some(position) = self.streams.get(link).map(|stream| stream.connection.position()) else { return false };
        if !self.objects.load(link, position, chunk, segment, bytes) {
            return false;
        }
        self.queue(link, &Chunk { beside: bytes, bytes: Bytes::new(), ..chunk.clone() }.into(), Vec::new());
        true
    }

    // --- the store's answers ---

    /// What the store says to the stream to another node, or to this node itself.
    pub(super) fn store_said(&mut self, to: Key, message: StoreToClient) {
        match message {
            StoreToClient::Allocated(said) => {
                self.objects.has_room(said.request, (segment_of(said.file, said.offset), said.size));
            }
            StoreToClient::Pinned(said) => {
                let place = (segment_of(said.file, said.offset), said.size);
                let Some((object, owed)) = self.objects.giving.pinned(to, said.request, place) else { return };
                match owed {
                    Some(owed) => owed.iter().for_each(|asked| self.send_piece(to, object, asked, place)),
                    // It was given up meanwhile.
                    None => drop(self.objects.store.unpin(to, object)),
                }
            }
            StoreToClient::StoreRefused(said) if to == OWN => self.objects.has_no_room(said.request, said.failure),
            StoreToClient::StoreRefused(said) => {
                let Some((number, object)) = self.objects.giving.not_pinned(to, said.request) else { return };
                let failure = said.failure.filter(|failure| failure.code != FailureCode::ObjectLost);
                self.say_missing(to, number, object, failure);
            }
            // This process maps nothing.
            StoreToClient::SegmentRetired(_) => {}
        }
    }

    fn seal_copy(&mut self, object: ObjectId, stamp: Stamp) {
        match self.objects.seal_copy(object, stamp) {
            Ok(Sealed::Here) => {}
            Ok(Sealed::GivenUp) => return,
            Err(error) => return self.log.line(&format!("object {object} from another node: {error}")),
        }
        match self.core.head_key() {
            Some(head) => self.queue(head, &Copied { object }.into(), Vec::new()),
            None if !self.core.is_stored(object) => self.objects.store.delete(object),
            None => self.core.copied_here(object),
        }
    }
}

fn lost(object: ObjectId) -> Failure {
    let text = format!("object {object} is in no node's store any more: the node that had it died, or deleted it");
    FailureCode::ObjectLost.because(text)
}
