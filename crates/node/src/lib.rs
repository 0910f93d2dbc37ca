//! The daemon of one machine: ledger owner, worker pool, template processes, objects, logs.
//!
//! ```text
//!  Config ──▶ Plan ──▶ Core (decides; no I/O)  ◀── events ──┐
//!                        └── effects ──▶ Daemon (one thread, one epoll): streams, processes, pipes, store
//! ```
//!
//! What the daemon has open is cut into parts, each a struct with its fields and all that is done with them alone, in a file
//! here. The folder `daemon/` is about what several parts have to do with, and mostly is named after the part that begins:
//! no part names it. To be read in this order:
//!
//! | Of | Parts | Where they meet |
//! |---|---|---|
//! | the loop | `poller` what is ready, `turn` the turn under way, `turns` who is heard next | `daemon` |
//! | what the core decides and hears | | `daemon/effects` |
//! | streams | `listener` the listener, `streams` all that are open | `daemon/admission`, `daemon/streams` |
//! | processes | `children` templates, environments, submitted jobs and what answers over HTTP, `workers` with what they print and may use, `logs` and `log_client` what becomes of their output, `control_groups`, `fences`, `rulesets` | `daemon/processes`, `environments`, `packages`, `submissions`, `output`, `logs`, `memory`, `confining` |
//! | objects | `objects` the store and all below, `fetches` and `giving` (pure) what nodes give each other | `daemon/effects`, `daemon/transfer` |
//! | the cluster | `membership` this daemon's place in it | `daemon/members`, `proxied_clients`, `returning` |
//! | other machines | `network` the gateway's side, `entry` and `tokens` who may join, `head_link` and `lease` who lives | `daemon/network`, `entry`, `heartbeats` |
//! | what outlives a head | `journal`, `standby` where that lies in etcd | `daemon/journal` |
//! | the machine | `config` what is asked for and what there is, `machine`, `limits`, `device_client`, `device_watch`, `statistics` | `daemon` |
//! | beginning and end | `lifetime` whom it ends with, `succession` what it leaves, `join` and `arrival` how it comes to a cluster, `session`, `start_error` | `daemon/start`, `daemon/preparing` |

mod arrival;
mod authority_file;
mod children;
pub mod config;
mod control_groups;
mod daemon;
mod descriptors;
pub mod device_client;
mod device_record;
mod device_test;
mod device_watch;
mod entry;
mod fences;
mod fetches;
mod giving;
mod head_link;
mod interpreters;
mod join;
mod journal;
pub mod lease;
mod lifetime;
pub mod limits;
mod line_log;
mod listener;
mod log_client;
mod logs;
mod machine;
mod machine_labels;
mod membership;
mod memory_tiers;
mod network;
mod objects;
mod poller;
mod rulesets;
mod session;
mod session_logs;
mod site_certificate;
pub mod spill_place;
mod standby;
mod start_error;
mod statistics;
mod streams;
mod succession;
mod token_file;
mod tokens;
mod turn;
mod turns;
mod workers;

pub use config::{
    Config, DashboardConfig, DevicePreferences, HeadConfig, MachineConfig, MemberConfig, MetricsConfig, PlanError,
    RecordingConfig, StoreConfig,
};
pub use daemon::{Mode, Ready, run};
pub use interpreters::python_command;
pub use session::forget_all;
pub use start_error::StartError;
pub use token_file::STANDARD_INPUT;
pub use workers::memory::MonitorOptions;
