//! The words that the store and its callers share.

use crate::StoreError;
use oxiray_ids::ObjectId;

/// A process that uses the store: a driver or a worker. Chosen by the caller, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// Names one request until it is answered. Chosen by the caller, unique among the unanswered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// One memory file, which the objects of one job share, or one file on disk that clients read or write. Never reused for
/// another file in a store's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// The part of a file that one object has at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId {
    /// The file.
    pub file: FileId,
    /// Where the segment begins in what clients map of the file: a multiple of a page.
    pub offset: u64,
}

/// What a client maps of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Where the mapping begins in the file: a multiple of a page.
    pub base: u64,
    /// How long it is.
    pub bytes: u64,
}

/// What a descriptor lets its holder do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Map readable. The kernel refuses a writable mapping.
    ReadOnly,
    /// Map readable and writable.
    ReadWrite,
}

/// What the store has to say, in the order in which it must be said to each client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A create was granted: the client may write the first `size` bytes of the segment until it seals or aborts.
    Created {
        /// The request.
        ticket: Ticket,
        /// Who asked.
        client: ClientId,
        /// The object to be written.
        object: ObjectId,
        /// Where its bytes go.
        segment: SegmentId,
        /// How many bytes the object has.
        size: u64,
    },
    /// A pin was granted: the object's bytes stay as they are until the client unpins it.
    Pinned {
        /// The request.
        ticket: Ticket,
        /// Who asked.
        client: ClientId,
        /// The object.
        object: ObjectId,
        /// Where its bytes are.
        segment: SegmentId,
        /// How many bytes the object has.
        size: u64,
    },
    /// A create or a pin was refused.
    Refused {
        /// The request.
        ticket: Ticket,
        /// Who asked.
        client: ClientId,
        /// Why.
        error: StoreError,
    },
    /// A file is gone; its pages are given back already. These clients hold mappings of it that they must drop.
    Retired {
        /// The file.
        file: FileId,
        /// Who was given a descriptor of it.
        clients: Vec<ClientId>,
    },
    /// An object lies on disk from here on, until it is read again.
    Spilled {
        /// The object.
        object: ObjectId,
    },
}

/// What became of a request whose time ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expired {
    /// It is refused.
    Refused,
    /// A file on disk is being made for it, or others are on their way to storage: it is answered when that is done.
    Busy,
    /// It does not wait any more.
    Gone,
}

/// Where an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectState {
    /// Its create waits for room, or its writer has not sealed it.
    Unsealed,
    /// Its writer was lent the room ahead, and has sealed nothing.
    Lent,
    /// Sealed, in memory.
    InMemory,
    /// On disk, or on the way back from it.
    Spilled,
    /// Its spilled bytes could not be read back.
    Lost,
}

/// What a store holds, in bytes of whole segments unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// The most that segments may take together.
    pub capacity: u64,
    /// Segments that belong to objects.
    pub used: u64,
    /// Segments that wait for the next object, in the pool or lent ahead to who may write it.
    pub pooled: u64,
    /// Bytes of objects on disk or on the way there.
    pub spilled_bytes: u64,
    /// The most that may lie on disk; 0 where spilling is off.
    pub spill_limit: u64,
    /// Objects known, wherever they are.
    pub objects: usize,
    /// Objects that somebody pins.
    pub pinned: usize,
    /// Objects whose writer has not sealed them.
    pub unsealed: usize,
    /// Objects on disk.
    pub spilled: usize,
    /// How many objects were written to disk.
    pub spills: u64,
    /// How many were read back into memory.
    pub restores: u64,
    /// Requests that wait for room, for a seal or for the disk.
    pub waiting: usize,
    /// Memory files, and files on disk that clients have mapped.
    pub files: usize,
}
