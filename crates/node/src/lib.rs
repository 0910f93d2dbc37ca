//! The daemon of one machine: ledger owner, worker pool, template processes, objects, logs.
//!
//! ```text
//!  Config ──▶ Plan ──▶ Core (decides; no I/O)  ◀── events ──┐
//!                        └── effects ──▶ Daemon (one thread, one epoll): streams, processes, pipes, store
//! ```

pub mod config;
mod control_groups;
mod daemon;
pub mod device_desk;
mod fetches;
mod giving;
mod kept_logs;
pub mod lease;
pub mod limits;
mod logs;
mod machine;
mod session;
mod tokens;

pub use config::{Config, PlanError, StoreConfig};
pub use daemon::{Mode, MonitorOptions, Ready, StartError, run};
pub use session::forget_all;
