//! The daemon of one machine: ledger owner, worker pool, template processes, objects, logs.
//!
//! ```text
//!  Config ──▶ Plan ──▶ Core (decides; no I/O)  ◀── events ──┐
//!                        └── effects ──▶ Daemon (one thread, one epoll): streams, processes, pipes, store
//! ```

pub mod config;
mod control_groups;
mod core;
mod daemon;
mod device_checks;
pub mod device_desk;
mod fetches;
mod giving;
mod kept_logs;
pub mod lease;
pub mod limits;
mod listing;
mod logs;
mod machine;
mod outbox;
mod session;
mod tokens;

pub use config::{Config, Plan, PlanError, StoreConfig};
pub use core::{
    Confinement, Core, Effect, Key, NotRestored, Origin, StoreFigures, SubmissionOrder, TemplateKey, Whereabouts,
};
pub use daemon::{Mode, MonitorOptions, Ready, StartError, run};
pub use device_checks::{DeviceQuestion, DeviceSlot, Residue};
pub use session::forget_all;
