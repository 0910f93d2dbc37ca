//! The daemon of one machine: ledger owner, worker pool, template processes, objects, logs.
//!
//! ```text
//!  Config ──▶ Plan ──▶ Core (decides; no I/O)  ◀── events ──┐
//!                        └── effects ──▶ Daemon (one thread, one epoll): streams, processes, pipes, store
//! ```

pub mod config;
mod core;
mod daemon;
pub mod device_check;
mod fetches;
pub mod lease;
mod listing;
mod logs;
mod machine;
pub mod session;

pub use config::{Config, Plan, PlanError};
pub use core::{Core, Effect, Key, NotRestored, Origin, StoreFigures, SubmissionOrder, TemplateKey, Whereabouts};
pub use daemon::{Mode, Ready, StartError, root, run};
