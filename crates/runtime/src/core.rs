//! The core of drivers and workers: pure, so that a simulator may drive it under a seed.
//!
//! Its parts are files here: each has its state, and what is done with that alone. `Client` has them all; its methods, which
//! are about what several parts have to do with, are in the folder `client/`, in files that mostly are named after the part
//! that begins. No part names the client. To be read in this order:
//!
//! ```text
//!  what happens ──▶ client.rs ──▶ io.rs: what is to be done
//!   part               its methods in client/
//!   identity, signals                                  who this process is, and what its user is to hear
//!   peers              resuming                        streams, and the marks of heads on them
//!   objects, table     finish, confirming, object_log  values and references
//!   calls, work, code  submit, cancel                  calls that have not ended
//!     classes          leases, near                    classes of tasks, their queues and workers
//!     retrying         retrying                        tasks that are run again, and when
//!   lineage            recover, regaining              how stored values were made; what is lost is made again
//!   actors             actors, creation                ordered calls to actors, and actors that are made
//!   streams            reading                         results that come one by one
//!   service: execute, interrupt, lending, yielding
//!                      execute, lending, yielding      calls to be run here
//!   groups: awaited_groups, fresh_groups
//!                      groups                          placement groups
//!   daemon: questions, allocation_credit, resuming, draining
//!                      questions, allocation_credit, away     what the daemon was asked, and where it is gone
//!   task_log           task_log                        what ran here
//!                      program                         what a program asks for beside all that
//! ```
//!
//! - CORE-1: nothing here reads a clock, or touches a socket, a file or a thread: what is to be done is said to [`Io`], and
//!   what time it is, is told.

pub(crate) mod actors;
pub(crate) mod allocation_credit;
pub(crate) mod awaited_groups;
pub(crate) mod calls;
pub(crate) mod classes;
pub(crate) mod client;
pub(crate) mod code;
pub(crate) mod contained;
pub(crate) mod daemon;
pub(crate) mod draining;
pub(crate) mod ended_calls;
pub(crate) mod execute;
pub(crate) mod fresh_groups;
pub(crate) mod groups;
pub(crate) mod identity;
pub(crate) mod interrupt;
pub(crate) mod io;
pub(crate) mod lending;
pub(crate) mod lineage;
pub(crate) mod objects;
pub(crate) mod peers;
pub(crate) mod questions;
pub(crate) mod resuming;
pub(crate) mod retrying;
pub(crate) mod service;
pub(crate) mod signals;
pub(crate) mod slack;
pub(crate) mod standstill;
pub(crate) mod streams;
pub(crate) mod table;
pub(crate) mod task_log;
pub(crate) mod work;
pub(crate) mod yielding;

pub use client::Client;
pub use io::{DAEMON, Io, Role, Token};

/// Values up to this size travel with messages and live with their owner; larger ones lie in the store.
pub const INLINE_BYTES: usize = 100 << 10;
