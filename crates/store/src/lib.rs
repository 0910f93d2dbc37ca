//! The shared-memory object store: segments, pins, spilling.
//!
//! ```text
//!  client (driver, worker)                      node daemon
//!  SegmentCache: ReadMapping, WriteMapping      Store ── Book (what is where, pure)
//!        │        ▲                               │└──── memory files, by segment
//!        │        └── descriptors, once each ─────┘└──── one thread for spilled files
//!        └── create, seal, pin, unpin, delete ──▶ (the daemon's own messages)
//! ```
//!
//! One object lies at offset 0 of one segment, a memory file (`memfd`) whose pages were touched once and that is handed
//! from object to object of its size class. The [`Store`] lives in the daemon's single thread and answers through
//! [`Store::events`]; the thread that reads and writes spilled files wakes the daemon through [`Store::wake_fd`].
//!
//! # Invariants
//! - STORE-1: the bytes of all segments, in use and pooled, never exceed the capacity.
//! - STORE-2: a segment belongs to at most one object, or to the pool, or to one read from disk, never to two of them.
//! - STORE-3: the bytes of a sealed object do not change while anybody pins it, and nobody reads an unsealed one.
//! - STORE-4: every ticket of a client that lives is answered exactly once.
//! - STORE-5: no name in the file system outlives the process: memory files and spilled files have none.
//!
//! # Trust
//! Clients are processes of one user that cooperate. A reader's descriptor cannot be mapped writable; a writer keeps
//! its writable mapping for the next object, and writes through it only between [`Event::Created`] and the seal. A
//! segment is reused only after its writer said that it finished (seal or abort) and every reader unpinned; one whose
//! writer vanished in between is discarded, since a process forked by the writer may still hold its mapping.

mod book;
mod cache;
mod checksum;
mod class;
mod copy;
mod error;
mod kept;
mod mapping;
mod memory;
mod spill;
mod store;
mod terms;

pub use cache::SegmentCache;
pub use copy::copy;
pub use error::StoreError;
pub use mapping::{ReadMapping, WriteMapping};
pub use store::{Options, Store};
pub use terms::{Access, ClientId, Event, Expired, ObjectState, SegmentId, Stats, Ticket};
