//! Pieces of objects that go from store to store beside the messages, where another node is reached through the gateway.
//!
//! - TRANSFER-3: the gateway touches no memory of the store that is not, at that moment, pinned for the stream or room
//!   that this node was given: whatever ends either closes the hold or recalls the load first.

use oxiray_ids::ObjectId;
use oxiray_machine::Key;
use oxiray_network::{DirectTransfer, Load, Memory};
use oxiray_store::WriteMapping;
use oxiray_wire::message::Chunk;
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
pub(crate) struct DirectTransfers {
    by_link: BTreeMap<Key, Arc<DirectTransfer>>,
    /// Of objects on their way here, the stream and the attempt whose loads are written into their room.
    holds: BTreeMap<ObjectId, (Key, u64)>,
}

impl DirectTransfers {
    pub(crate) fn add(&mut self, link: Key, direct_transfer: Arc<DirectTransfer>) {
        self.by_link.insert(link, direct_transfer);
    }

    /// The stream is over.
    pub(crate) fn link_over(&mut self, link: Key) {
        if let Some(direct_transfer) = self.by_link.remove(&link) {
            direct_transfer.end();
        }
        self.holds.retain(|_, (from, _)| *from != link);
    }

    /// Nothing more is written for the object.
    pub(crate) fn close(&mut self, object: ObjectId) {
        if let Some((link, number)) = self.holds.remove(&object)
            && let Some(direct_transfer) = self.by_link.get(&link)
        {
            direct_transfer.close(number);
        }
    }

    /// Nothing more is written for the attempt.
    pub(crate) fn close_attempt(&mut self, link: Key, number: u64) {
        if let Some(direct_transfer) = self.by_link.get(&link) {
            direct_transfer.close(number);
        }
        self.holds.retain(|_, hold| *hold != (link, number));
    }

    /// Nothing more is read for the attempt.
    pub(crate) fn recall(&self, link: Key, number: u64) {
        if let Some(direct_transfer) = self.by_link.get(&link) {
            direct_transfer.recall(number);
        }
    }

    /// Whether pieces of the object may come beside the messages of this attempt.
    pub(crate) fn holds(&self, object: ObjectId, link: Key, number: u64) -> bool {
        self.holds.get(&object) == Some(&(link, number))
    }

    /// Has the gateway write the pieces of an attempt into room of `size` bytes; `false` where they cannot come beside the
    /// messages.
    pub(crate) fn open(
        &mut self,
        (link, number): (Key, u64),
        object: ObjectId,
        size: u64,
        room: impl FnOnce() -> Option<Arc<WriteMapping>>,
    ) -> bool {
        let Some(direct_transfer) = self.by_link.get(&link) else { return false };
        let Some(mapping) = room() else { return false };
        direct_transfer.open(number, Arc::new(Mapped(mapping)), size);
        self.holds.insert(object, (link, number));
        true
    }

    /// The stream on which pieces may go beside the messages.
    pub(crate) fn has(&self, link: Key) -> bool {
        self.by_link.contains_key(&link)
    }

    /// Has the gateway read a piece of an object behind what is sent on the stream up to `position`.
    pub(crate) fn load(&self, link: Key, position: u64, chunk: &Chunk, object: Arc<WriteMapping>, bytes: u64) {
        if let Some(direct_transfer) = self.by_link.get(&link) {
            let load = Load { tag: chunk.number, memory: Arc::new(Mapped(object)), offset: chunk.offset, bytes };
            direct_transfer.load(position, load);
        }
    }

    /// Whether what comes beside the messages of an attempt can be written.
    pub(crate) fn is_open(&self, link: Key, number: u64) -> bool {
        self.by_link.get(&link).is_some_and(|direct_transfer| direct_transfer.is_open(number))
    }
}
