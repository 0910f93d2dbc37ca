//! The shared-memory object store: segments, pins, spilling.
//!
//! ```text
//!  client (driver, worker)                      node daemon
//!  SegmentCache: ReadMapping, WriteMapping      Store ── Book (what is where, pure)
//!        │        ▲                               │└──── memory files, shared by objects
//!        │        └── descriptors, once each ─────┘└──── one thread for spilled files
//!        └── create, seal, pin, unpin, delete ──▶ (the daemon's own messages)
//! ```
//!
//! One object lies at the beginning of one segment, whose pages were touched once and that is handed from object to object
//! of its job and size class. Segments of up to 16 MiB are parts of a memory file (`memfd`) of 64 MiB or more, larger ones
//! are files of their own: descriptors and mappings are counted by the file, memory by the segment. On disk, too, objects
//! share files ([decision 23](../../../docs/decisions/0023-objects-share-files.md)); in storage beyond the disk, which [`storage`] is about, too. The [`Store`] lives in the daemon's single thread and answers through
//! [`Store::events`]; the thread that reads and writes spilled files wakes the daemon through [`Store::wake_fd`].
//!
//! # Invariants
//! - STORE-1: the bytes of all segments, in use and pooled, never exceed the capacity; what of a memory file is neither
//!   has no pages.
//! - STORE-2: a segment belongs to at most one object, or to the pool, or to one read from disk, never to two of them.
//! - STORE-3: the bytes of a sealed object do not change while anybody pins it, and nobody reads an unsealed one.
//! - STORE-4: every ticket of a client that lives is answered exactly once.
//! - STORE-5: no name in the file system outlives the process: memory files and spilled files have none.
//! - STORE-6: objects of two jobs never share a file, in memory or on disk, one after the other included; and a client
//!   that is a process of a job is given files of that job only: of another job's objects it reads copies.
//! - STORE-7: where segments take more than [`Store::set_bound`] says, none is pooled, and idle objects go to disk until
//!   they take less, or only pinned and unsealed ones are left.
//!
//! # Trust
//! Clients of one job are processes of one user that cooperate. A reader's descriptor cannot be mapped writable as it is,
//! though nothing keeps a process of the same user from opening the file anew through `/proc`, which is why other jobs are
//! given none ([decision 24](../../../docs/decisions/0024-jobs-read-copies-of-each-others-objects.md)); a writer keeps its
//! writable mapping of the file for the next object of its job, and writes only to its own segment between
//! [`Event::Created`] and the seal. A segment is reused only after its writer said that it finished (seal or abort) and
//! every reader unpinned; one whose writer vanished in between is discarded, since a process forked by the writer may still
//! hold its mapping.

mod book;
mod cache;
mod checksum;
mod class;
mod copy;
mod error;
mod mapping;
mod mapping_cache;
mod memory;
mod spill;
pub mod storage;
mod store;
mod terms;

pub use cache::SegmentCache;
pub use checksum::Checksum;
pub use copy::copy;
pub use error::StoreError;
pub use mapping::{PrivateMapping, ReadMapping, WriteMapping};
pub use store::{Options, Store};
pub use terms::{Access, ClientId, Event, Expired, Extent, FileId, ObjectState, SegmentId, Stats, Ticket};
