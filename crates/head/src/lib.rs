//! What the head of a cluster decides: who gets a worker and where, and what becomes of jobs, actors, placement groups,
//! objects and kept values.
//!
//! ```text
//!  Core ── what a daemon is told ──▶ HeadCore ── orders ──▶ members
//!    │                                  │                     ▲
//!    └── what happens on its machine ──▶ NodeCore (crate machine), the member in the same process
//! ```
//!
//! Each module beside [`head`] and [`core`] is a state machine, or what such machines have in common. It owns its fields,
//! takes what else it needs by reference, returns what follows, and names neither [`head`] nor what is made of it. [`head`]
//! puts them together: it places, grants and tells.
//!
//! | Module | What it knows |
//! |---|---|
//! | `members`, `clients`, `workers` | who is there: machines, processes that are connected, processes that serve somebody |
//! | `jobs`, `actors`, `placement_groups`, `objects`, `submissions`, `key_value` | what there is in the cluster |
//! | `queue`, `queue_scan`, `fairness`, `large` | who waits, which of them a round tries, what each job holds, and for whom room is kept |
//! | `held_there` | what is left of machines beside what some hold, device by device |
//! | `breaker` | how many devices nodes may take out of service by themselves |
//! | `growth` | which machines the autoscaler may bring and takes away |
//! | `journal`, `outbox`, `resumption` | what outlives a head, and who is to come back to it |
//! | `census`, `following`, `changes`, `metrics`, `machine_gauges`, `training`, `ends`, `figures` | what people and programs ask, and what is remembered for them |
//! | `clock` | what time it is, and what is due |
//! | `demands`, `amounts`, `failures` | words that all of them have in common |
//!
//! Nothing here does I/O or reads a clock; every map is ordered. The daemon feeds in what happened and carries out what
//! comes back.

mod actors;
mod amounts;
mod breaker;
mod census;
mod changes;
mod chronicle;
mod clients;
mod clock;
mod core;
mod deadlocks;
mod demands;
mod ended_tasks;
mod ends;
mod failures;
mod fairness;
mod figures;
mod following;
mod growth;
mod head;
mod held_there;
mod jobs;
mod journal;
mod key_value;
mod large;
mod machine_gauges;
mod members;
mod metrics;
mod metrics_text;
mod objects;
mod outbox;
mod placement_groups;
mod preemption;
mod queue;
mod queue_scan;
mod resumption;
mod submissions;
mod suspicion;
mod training;
mod workers;

pub use core::Core;
pub use head::{LENT, NotRestored, StoreFigures, table};
pub use submissions::Word;
