//! Clients, workers and members that were let in and say anything: against the core, the connection, and a real daemon.
//!
//! What is said is written by the shapes of the wire's messages ([`oxiray_wire::shape`]), with numbers, identifiers and
//! texts that were heard before. A seed tells everything of what is said to the core ([`cluster`]) and to a connection
//! ([`frames`]), of what is asked at the porch ([`porch`]), and of what is done to a journal between two heads ([`journal`]). [`hostile`] says it to the daemons of a whole cluster, beside honest work.

pub mod cluster;
pub mod daemon;
pub mod frames;
pub mod grammar;
pub mod hostile;
pub mod journal;
pub mod porch;

use cluster::{Cluster, CoreRun, FRAMES_PER_CLUSTER};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One cluster that failed.
#[derive(Debug)]
pub struct Failed {
    /// Its seed.
    pub seed: u64,
    /// After how many frames.
    pub frames: u64,
    /// What was said last.
    pub last: String,
}

/// Runs the cluster of a seed to its end. What it panicked with is on standard error.
pub fn run(seed: u64) -> Result<CoreRun, Failed> {
    let mut cluster = Cluster::new(seed);
    match catch_unwind(AssertUnwindSafe(|| cluster.run(FRAMES_PER_CLUSTER))) {
        Ok(()) => Ok(cluster.told),
        Err(_) => Err(Failed { seed, frames: cluster.told.frames, last: format!("{:?}", cluster.last) }),
    }
}
