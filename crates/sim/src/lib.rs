//! A whole cluster in one thread under a seed: nodes, processes, streams and devices that fail as the seed says.
//!
//! ```text
//!  Options (a seed) ──▶ World: agenda ──▶ event ──▶ nodes and processes (the real cores) ──▶ streams ──▶ agenda
//!                                            └── after each: what must hold
//! ```
//!
//! The cores are those of the daemon and of the runtime in drivers and workers; what surrounds them (processes, streams,
//! stores, devices, clocks, and what programs do) is made up here, and nothing of it comes from the system. So a seed tells everything, and a run that fails can be had again.
//!
//! - SIM-1: the same seed gives the same run, event by event.
//! - SIM-2: after each event the tables of the node that it was for agree ([`Core::audit`](oxiray_head::Core::audit)),
//!   no device is used for more than one, and the kernel refuses devices as processes are told (`kernel`).
//! - SIM-3: a run ends with faults over and everything healed. Then everybody has an answer, every driver is gone, every
//!   ledger is full, and no table knows anybody who is gone.

mod actors;
mod agenda;
mod backlog;
mod chance;
mod checks;
mod client;
mod clock;
mod cloud;
mod deadlocks;
mod drains;
mod environments;
mod faults;
mod gpus;
mod groups;
mod heads;
mod hearing;
mod kernel;
mod leases;
mod log;
mod machine;
mod node;
mod options;
mod ports;
mod process;
mod program;
mod returns;
mod spec;
mod stores;
mod stream;
mod waits;
mod world;

pub use backlog::{Turns, run_backlog};
pub use cloud::run_cloud;
pub use options::Options;
pub use waits::Seen;

use crate::log::Log;
use crate::world::World;
use std::cell::RefCell;
use std::fs::File;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

thread_local! {
    /// What the run of this thread failed with, and where; nothing outside of a run.
    static FAILURE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What it was a run of.
    pub seed: u64,
    /// Two runs with the same hash were the same.
    pub hash: u64,
    /// How many lines its log has.
    pub events: u64,
    /// What of it was judged that is rare.
    pub seen: Seen,
    /// What did not hold, where something did not.
    pub failure: Option<String>,
    /// The last lines of its log, oldest first.
    pub last_lines: Vec<String>,
}

/// Runs a seed to its end; its log goes to a file as well, where one is given.
pub fn run(options: Options, file: Option<File>) -> Outcome {
    let seed = options.seed;
    let mut world = World::new(options, Log::new(file));
    keep_failures();
    FAILURE.with_borrow_mut(|failure| *failure = Some(String::new()));
    let result = catch_unwind(AssertUnwindSafe(|| world.run()));
    let told = FAILURE.take().unwrap_or_default();
    let failure = result.err().map(|_| told);
    let last_lines = if failure.is_some() { world.log.last_lines() } else { Vec::new() };
    Outcome { seed, hash: world.log.hash(), events: world.log.events(), seen: world.seen, failure, last_lines }
}

/// A run that fails is told of with its log, by whoever ran it: the bare message would only stand in the way.
fn keep_failures() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            let is_kept = FAILURE.with_borrow_mut(|failure| {
                let is_run = failure.is_some();
                if is_run {
                    let place = info.location().map(ToString::to_string).unwrap_or_default();
                    let payload = info.payload();
                    let text = payload.downcast_ref::<String>().map(String::as_str);
                    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
                    *failure = Some(format!("{text} ({place})"));
                }
                is_run
            });
            if !is_kept {
                usual(info);
            }
        }));
    });
}
