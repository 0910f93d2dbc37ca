//! The core of drivers and workers: pure, so that a simulator may drive it under a seed.
//!
//! ```text
//!  what happens ──▶ Client ──▶ Io: what is to be done
//!                    ├── peers.rs       streams, and the marks of heads on them (resuming.rs)
//!                    ├── objects.rs     values and references
//!                    ├── submit.rs      Calls: tasks; Leases: classes, their queues and workers (leases.rs, classes.rs)
//!                    │                  retrying.rs: tasks that are run again, and when
//!                    ├── lineage.rs     how stored values were made; recover.rs makes lost ones again, regaining.rs
//!                    │                  lost items
//!                    ├── actors.rs      ordered calls to actors, made in creation.rs
//!                    ├── streams.rs     results that come one by one (reading.rs)
//!                    ├── execute.rs     Service: calls to be run here, interrupted in interrupt.rs; yielding.rs: those whose
//!                    │                  results go one by one
//!                    ├── groups.rs      placement groups that are awaited
//!                    └── questions.rs   Daemon: what it was asked; room_ahead.rs; away.rs: where it is gone
//! ```
//!
//! - CORE-1: nothing here reads a clock, or touches a socket, a file or a thread: what is to be done is said to [`Io`], and
//!   what time it is, is told.

pub(crate) mod actors;
pub(crate) mod awaited_groups;
pub(crate) mod away;
pub(crate) mod cancel;
pub(crate) mod classes;
pub(crate) mod client;
pub(crate) mod code;
pub(crate) mod confirming;
pub(crate) mod contained;
pub(crate) mod creation;
pub(crate) mod draining;
pub(crate) mod execute;
pub(crate) mod finish;
pub(crate) mod fresh_groups;
pub(crate) mod groups;
pub(crate) mod interrupt;
pub(crate) mod io;
pub(crate) mod leases;
pub(crate) mod lending;
pub(crate) mod lineage;
pub(crate) mod near;
pub(crate) mod object_log;
pub(crate) mod objects;
pub(crate) mod peers;
pub(crate) mod program;
pub(crate) mod questions;
pub(crate) mod reading;
pub(crate) mod recover;
pub(crate) mod regaining;
pub(crate) mod resuming;
pub(crate) mod retrying;
pub(crate) mod room_ahead;
pub(crate) mod slack;
pub(crate) mod streams;
pub(crate) mod submit;
pub(crate) mod table;
pub(crate) mod task_log;
pub(crate) mod work;
pub(crate) mod yielding;

pub use client::Client;
pub use io::{DAEMON, Io, Role, Token};

/// Values up to this size travel with messages and live with their owner; larger ones lie in the store.
pub const INLINE_BYTES: usize = 100 << 10;
