//! Pieces of objects that go from store to store beside the messages, where another node is reached through the gateway.
//!
//! - TRANSFER-3: the gateway touches no memory of the store that is not, at that moment, pinned for the stream or room
//!   that this node was given: whatever ends either closes the hold or recalls the load first.

use super::Daemon;
use crate::fetches::{Content, Piece};
use bytes::Bytes;
use oxiray_ids::ObjectId;
use oxiray_machine::Key;
use oxiray_network::{Freight, Load, Memory};
use oxiray_store::{SegmentId, WriteMapping};
use oxiray_wire::message::{Chunk, Failure};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A segment, as the gateway uses it.
#[derive(Debug)]
struct Mapped(Arc<WriteMapping>);

impl Memory for Mapped {
    fn edit(&self, range: Range<usize>, with: &mut dyn FnMut(&mut [u8])) {
        self.0.touch(range.clone());
        self.0.edit(|bytes| bytes.get_mut(range).map(with));
    }
}

/// What this node shares with the gateway.
#[derive(Debug, Default)]
pub(super) struct Freights {
    by_link: BTreeMap<Key, Arc<Freight>>,
    /// Of objects on their way here, the stream and the attempt whose loads are written into their room.
    holds: BTreeMap<ObjectId, (Key, u64)>,
}

impl Freights {
    pub(super) fn add(&mut self, link: Key, freight: Arc<Freight>) {
        self.by_link.insert(link, freight);
    }

    /// The stream is over.
    pub(super) fn link_over(&mut self, link: Key) {
        if let Some(freight) = self.by_link.remove(&link) {
            freight.end();
        }
        self.holds.retain(|_, (from, _)| *from != link);
    }

    /// Nothing more is written for the object.
    pub(super) fn close(&mut self, object: ObjectId) {
        if let Some((link, number)) = self.holds.remove(&object)
            && let Some(freight) = self.by_link.get(&link)
        {
            freight.close(number);
        }
    }

    /// Nothing more is written for the attempt.
    pub(super) fn close_attempt(&mut self, link: Key, number: u64) {
        if let Some(freight) = self.by_link.get(&link) {
            freight.close(number);
        }
        self.holds.retain(|_, hold| *hold != (link, number));
    }

    /// Nothing more is read for the attempt.
    pub(super) fn recall(&self, link: Key, number: u64) {
        if let Some(freight) = self.by_link.get(&link) {
            freight.recall(number);
        }
    }

    fn is_open(&self, link: Key, number: u64) -> bool {
        self.by_link.get(&link).is_some_and(|freight| freight.is_open(number))
    }
}

impl Daemon {
    /// Whether pieces of the object may come beside the messages of this attempt: there is a hold for them.
    pub(super) fn has_hold(&mut self, link: Key, number: u64, object: ObjectId) -> bool {
        let freights = &self.transfer.freights;
        if freights.holds.get(&object) == Some(&(link, number)) {
            return true;
        }
        let Some(freight) = freights.by_link.get(&link) else { return false };
        let Some((segment, size)) = self.transfer.rooms.get(&object).copied() else { return false };
        let Some(mapping) = self.store.mapping_of(segment, size) else { return false };
        freight.open(number, Arc::new(Mapped(mapping)), size);
        self.transfer.freights.holds.insert(object, (link, number));
        true
    }

    /// Gives a piece beside the messages; `false` where it must be in one.
    pub(super) fn load_piece(&mut self, link: Key, chunk: &Chunk, segment: SegmentId, bytes: u64) -> bool {
        let Some(freight) = self.transfer.freights.by_link.get(&link) else { return false };
        let (Some(mapping), Some(stream)) = (self.store.mapping_of(segment, chunk.size), self.streams.get(&link))
        else {
            return false;
        };
        let load = Load { tag: chunk.number, memory: Arc::new(Mapped(mapping)), offset: chunk.offset, bytes };
        freight.load(stream.connection.position(), load);
        self.queue(link, &Chunk { beside: bytes, bytes: Bytes::new(), ..chunk.clone() }.into(), Vec::new());
        true
    }

    /// A piece came, in a message or beside it.
    pub(super) fn piece_came(&mut self, link: Key, object: ObjectId, chunk: Chunk) {
        let Chunk { offset, size, bytes, number, stamp, beside, .. } = chunk;
        if beside > 0 && self.transfer.freights.holds.get(&object) == Some(&(link, number)) {
            if !self.transfer.freights.is_open(link, number) {
                let text = format!("object {object} was fetched from another node and cannot be written here");
                self.log.line(&text);
                let failure = Failure { code: "store_full".into(), text, cause: Bytes::new() };
                return self.transfer.fetches.unwritable(object, failure);
            }
        } else if beside > 0 {
            // Of an attempt that is over.
            return;
        }
        let content = if beside > 0 { Content::Written(beside) } else { Content::Bytes(bytes) };
        self.transfer.fetches.piece(link, Piece { object, number, offset, size, stamp, content });
    }
}
