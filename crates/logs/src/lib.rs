//! What workers print, in files: bounded, indexed, found again by task and read in pieces.
//!
//! ```text
//! <the session's logs>/
//!   worker-<worker>-<job>-<pid>.out, .err   what a worker printed; begins with `:job_id:<job>`
//!   worker-….out.1, .2, …                   what was set aside of it when it was full, the latest first
//!   index.jsonl                             a line for each worker's file; of several for one, the last counts
//!   tasks-<job>.jsonl                       which part of which file an attempt of a task printed
//!   failed-<task>-<attempt>-<node>.out      what an attempt printed last that failed on another node, where the head keeps that
//! ```
//!
//! Offsets count from the first byte that was ever written to a file, so that nothing changes them when a file is set aside.
//!
//! - FILES-1: a worker's file and what was set aside of it take no more than [`LogLimits::file_bytes`] each, and a read of a pipe
//!   more; jobs and nodes no more than what [`limits`](LogLimits) say, and what is written between two looks.
//! - FILES-2: what ended first goes first, and what is not kept any more is told of in the file or in the index.
//! - FILES-3: one file is kept open at most, since a machine may have more workers than a process may have files.
//! - FILES-4: what cannot be written is counted, and keeps nobody from anything.
//! - FILES-5: a file is read by a name that this folder is known to have; no part of a question is a path.
//!
//! [`Keeper`] writes, in the daemon of a node. [`Archive`] reads: it is the keeper's own memory, or that of a session that has
//! ended, made from its index.

mod archive;
mod failed;
mod glob;
mod index;
mod keeper;
mod limits;
mod names;
mod parts;

pub use archive::{Archive, PIECE_BYTES_MAX, is_for_others};
pub use failed::{FailedLogs, FailedName, FailedPart, TAIL_BYTES_MAX};
pub use keeper::{Keeper, Printed, Trouble};
pub use limits::LogLimits;
pub use names::FileName;
