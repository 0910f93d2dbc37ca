//! The objects of this machine: its store, and what this node and others give each other of theirs.
//!
//! - TRANSFER-1: while an object is read for another node it is pinned by the stream to that node, and goes with it.

mod direct_transfer;
mod store_client;

use crate::fetches::{Content, Fetches, Piece};
use crate::giving::Giving;
use direct_transfer::DirectTransfers;
use oxiray_ids::ObjectId;
use oxiray_machine::Key;
use oxiray_network::DirectTransfer;
use oxiray_store::{FileId, SegmentId, StoreError};
use oxiray_wire::message::{Chunk, Failure, FailureCode, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

pub(crate) use store_client::{Answer, OWN, StoreClient};

/// The store, and the objects that come and go.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) store: StoreClient,
    /// Objects on their way here.
    pub(crate) fetches: Fetches,
    /// Where they are written, and how many bytes it has.
    rooms: BTreeMap<ObjectId, (SegmentId, u64)>,
    /// Objects on their way to other nodes.
    pub(crate) giving: Giving,
    /// Pieces that go beside the messages.
    direct_transfers: DirectTransfers,
}

/// What becomes of an object that is here, or came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sealed {
    /// It is here, and whoever counts the copies is to be told.
    Here,
    /// It was given up meanwhile.
    GivenUp,
}

/// The place of bytes in the store's files.
pub(crate) fn segment_of(file: u64, offset: u64) -> SegmentId {
    SegmentId { file: FileId(file), offset }
}

impl Objects {
    pub(crate) fn new(store: StoreClient) -> Self {
        let (fetches, giving, direct_transfers) = (Fetches::default(), Giving::default(), DirectTransfers::default());
        Self { store, fetches, rooms: BTreeMap::new(), giving, direct_transfers }
    }

    /// Whether this node's store has the object other than as a copy on its way here.
    pub(crate) fn has_of_its_own(&self, object: ObjectId) -> bool {
        self.store.has(object) && !self.fetches.is_coming(object)
    }

    /// Reads an object for a client: from this node's store, or where it is not there and another may have it, from that one
    /// by way of this.
    pub(crate) fn read(&mut self, reader: Key, request: u64, object: ObjectId, is_alone: bool, now: Instant) {
        if !self.fetches.is_coming(object) && (is_alone || self.store.has(object)) {
            return self.store.pin(reader, request, object, now);
        }
        self.fetches.want(object, reader, request);
    }

    /// Has a copy of an object here, for nobody in particular; whether it is here already.
    pub(crate) fn copy_here(&mut self, object: ObjectId) -> bool {
        let is_here = self.has_of_its_own(object);
        if !is_here {
            self.fetches.want(object, OWN, 0);
        }
        is_here
    }

    /// Nobody is to read the object any more.
    pub(crate) fn delete(&mut self, object: ObjectId) {
        self.direct_transfers.close(object);
        self.store.delete(object);
        self.fetches.deleted(object);
    }

    /// A client neither reads nor writes any more.
    pub(crate) fn client_gone(&mut self, client: Key) {
        self.fetches.reader_gone(client);
        self.store.client_gone(client);
    }

    // --- streams to other nodes ---

    /// A stream to another node, on which pieces may go beside the messages where it has a `direct_transfer`.
    pub(crate) fn add_link(&mut self, link: Key, direct_transfer: Option<Arc<DirectTransfer>>) {
        self.store.serve_itself(link);
        if let Some(direct_transfer) = direct_transfer {
            self.direct_transfers.add(link, direct_transfer);
            self.fetches.has_direct_transfer(link);
        }
    }

    /// The stream to another node is over (TRANSFER-1).
    pub(crate) fn link_over(&mut self, link: Key) {
        self.direct_transfers.link_over(link);
        self.giving.link_over(link);
        self.store.client_gone(link);
        self.fetches.link_over(link);
    }

    // --- objects on their way here ---

    /// The store gave room for an object that is fetched.
    pub(crate) fn has_room(&mut self, request: u64, place: (SegmentId, u64)) {
        if let Some(object) = self.fetches.room(request) {
            self.rooms.insert(object, place);
        }
    }

    /// The store has no room for an object that is fetched, or has the object already.
    pub(crate) fn has_no_room(&mut self, request: u64, failure: Option<Failure>) {
        match self.fetches.object_of(request) {
            Some(object) if self.store.has(object) => self.fetches.is_here(request),
            _ => self.fetches.no_room(request, failure),
        }
    }

    /// Whether pieces of the object may come beside the messages of this attempt: there is a hold for them.
    pub(crate) fn has_hold(&mut self, link: Key, number: u64, object: ObjectId) -> bool {
        if self.direct_transfers.holds(object, link, number) {
            return true;
        }
        let Some((segment, size)) = self.rooms.get(&object).copied() else { return false };
        self.direct_transfers.open((link, number), object, size, || self.store.mapping_of(segment, size))
    }

    /// A piece came, in a message or beside it.
    ///
    /// # Errors
    /// Says why the object cannot be written; its fetch ends with that.
    pub(crate) fn piece_came(&mut self, link: Key, chunk: Chunk) -> Result<(), String> {
        let Chunk { object, offset, size, bytes, number, stamp, beside, .. } = chunk;
        if beside > 0 && self.direct_transfers.holds(object, link, number) {
            if !self.direct_transfers.is_open(link, number) {
                let text = format!("object {object} was fetched from another node and cannot be written here");
                return Err(self.is_unwritable(object, text));
            }
        } else if beside > 0 {
            // Of an attempt that is over.
            return Ok(());
        }
        let content = if beside > 0 { Content::Written(beside) } else { Content::Bytes(bytes) };
        self.fetches.piece(link, Piece { object, number, offset, size, stamp, content });
        Ok(())
    }

    /// Writes a piece that came in a message.
    ///
    /// # Errors
    /// As [`Objects::piece_came`].
    pub(crate) fn write(&mut self, object: ObjectId, offset: u64, bytes: &[u8]) -> Result<(), String> {
        let Some((segment, _)) = self.rooms.get(&object).copied() else { return Ok(()) };
        let Err(error) = self.store.write(segment, offset, bytes) else { return Ok(()) };
        self.direct_transfers.close(object);
        // What is not in a room any more is not sealed, wherever its fetch stands.
        self.rooms.remove(&object);
        // It fails only where the object was deleted, which ended its room.
        let _ = self.store.abort(OWN, object);
        let text = format!("object {object} was fetched from another node and cannot be written here: {error}");
        Err(self.is_unwritable(object, text))
    }

    fn is_unwritable(&mut self, object: ObjectId, text: String) -> String {
        let failure = FailureCode::StoreFull.because(text.clone());
        self.fetches.unwritable(object, failure);
        text
    }

    /// All of an object came that is of this writing.
    pub(crate) fn seal_copy(&mut self, object: ObjectId, stamp: Stamp) -> Result<Sealed, StoreError> {
        if self.rooms.remove(&object).is_none() {
            return Ok(Sealed::GivenUp);
        }
        self.store.trim_mappings();
        self.store.seal(OWN, object)?;
        self.store.has_stamp(object, stamp);
        Ok(Sealed::Here)
    }

    /// An attempt of a fetch is over.
    pub(crate) fn attempt_over(&mut self, link: Key, number: u64) {
        self.direct_transfers.close_attempt(link, number);
    }

    /// An object is not fetched any more.
    pub(crate) fn give_up_fetch(&mut self, object: ObjectId) {
        self.direct_transfers.close(object);
        self.rooms.remove(&object);
        // Where there is no room yet, the request for it is struck out.
        if self.store.abort(OWN, object).is_err() {
            self.store.delete(object);
        }
    }

    // --- objects on their way to others ---

    /// Has a piece read beside the messages, behind what is sent on the stream up to `position`; `false` where it must be in
    /// a message.
    pub(crate) fn load(&mut self, link: Key, position: u64, chunk: &Chunk, segment: SegmentId, bytes: u64) -> bool {
        if !self.direct_transfers.has(link) {
            return false;
        }
        let Some(mapping) = self.store.mapping_of(segment, chunk.size) else { return false };
        self.direct_transfers.load(link, position, chunk, mapping, bytes);
        true
    }

    /// Nothing more is given for an attempt.
    pub(crate) fn end_giving(&mut self, link: Key, number: u64) -> Result<(), StoreError> {
        self.direct_transfers.recall(link, number);
        let ended = self.giving.end(link, number).map_or(Ok(()), |object| self.store.unpin(link, object));
        self.store.trim_mappings();
        ended
    }
}
