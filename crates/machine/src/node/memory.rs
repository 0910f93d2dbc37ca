//! Workers that are ended where memory is short: who is chosen says [`crate::memory`].

use super::NodeCore;
use crate::Key;
use crate::memory::{Candidate, Cause, Cost, Measured, choose, shown};
use crate::plan::Level;
use crate::worker::Duty;
use oxiray_wire::message::OutOfMemory;
use std::cmp::Reverse;
use std::fmt::Write as _;

/// How many processes an error names.
const NAMED_MAX: usize = 4;

impl NodeCore {
    /// Ends a worker, since memory is short; `None` where there is none whose end would help.
    pub fn end_for_memory(&mut self, measured: &Measured) -> Option<Key> {
        let candidates: Vec<Candidate> =
            measured.workers.iter().filter_map(|(key, bytes)| self.candidate(*key, *bytes)).collect();
        let (key, kind) = choose(&candidates)?;
        let bytes = measured.workers[&key];
        let worker = self.workers.get(&key)?;
        let text = format!(
            "it was ended because memory is short: it used {} for itself, and {}. Have it use less, run fewer at once (ask for \
             more num_cpus or memory), or give the node more memory. RAY_memory_usage_threshold sets the share that may be \
             used, and RAY_memory_monitor_refresh_ms=0 leaves it to the kernel to end processes",
            shown(bytes),
            self.use_in_words(measured)
        );
        let line = format!("worker {key} (`{}`, pid {}): {text}", worker.label, worker.pid.unwrap_or(0));
        self.log(line);
        self.short_of_memory(key, Cause { text, kind });
        self.kill_worker(key);
        Some(key)
    }

    /// The kernel killed the worker for want of memory.
    pub fn killed_for_memory(&mut self, key: Key, level: Option<&Level>) {
        let bound = level.map_or(String::new(), |level| {
            let (used, limit) = (shown(level.used), shown(level.limit));
            format!(" After it {used} of {limit} are in use (the limit is that of {}).", level.source)
        });
        let text = format!(
            "the kernel killed it (SIGKILL) for want of memory on node {} ({}), before Oxiray's memory monitor did.{bound} Have \
             it use less, run fewer at once (ask for more num_cpus or memory), or give the node more memory",
            self.plan.node, self.plan.ip
        );
        self.short_of_memory(key, Cause { text, kind: OutOfMemory::Kernel });
    }

    /// From here on, that is why the worker ends.
    pub(super) fn short_of_memory(&mut self, key: Key, cause: Cause) {
        if let Some(worker) = self.workers.get_mut(&key) {
            worker.memory.cause.get_or_insert(cause);
        }
    }

    fn candidate(&self, key: Key, bytes: u64) -> Option<Candidate> {
        let worker = self.workers.get(&key).filter(|worker| !worker.is_doomed)?;
        let (cost, begun) = match worker.duty {
            // Another would be forked in the place of a spare one.
            Duty::Ending | Duty::Surplus | Duty::Spare => return None,
            Duty::Idle => (Cost::Nothing, key),
            Duty::Leased(lease) if worker.memory.caller.may_repeat => (Cost::Repetition, lease),
            Duty::Leased(lease) => (Cost::Task, lease),
            Duty::Actor(_) => (Cost::Actor, key),
        };
        let has_devices = worker.grants().any(|grant| !grant.devices().is_empty());
        let cost = if has_devices { Cost::Devices } else { cost };
        Some(Candidate { key, cost, owner: worker.memory.caller.owner, begun, bytes })
    }

    /// How much of what is in use, and by whom.
    fn use_in_words(&self, measured: &Measured) -> String {
        let Measured { level, threshold, workers, store } = measured;
        let mut text = format!(
            "{} of {} on node {} ({}) are in use, above {:.0} % (the limit is that of {}): ",
            shown(level.used),
            shown(level.limit),
            self.plan.node,
            self.plan.ip,
            f64::from(*threshold) / 10.0,
            level.source
        );
        let mut largest: Vec<(&Key, &u64)> = workers.iter().collect();
        largest.sort_unstable_by_key(|(key, bytes)| (Reverse(**bytes), **key));
        for (key, bytes) in largest.iter().take(NAMED_MAX) {
            let Some(worker) = self.workers.get(key) else { continue };
            let label = if worker.label.is_empty() { "an idle worker" } else { &worker.label };
            let _ = write!(text, "{label} (pid {}) {}, ", worker.pid.unwrap_or(0), shown(**bytes));
        }
        let named: u64 = workers.values().sum::<u64>() + store;
        let _ = write!(text, "the object store {}, others {}", shown(*store), shown(level.used.saturating_sub(named)));
        text
    }
}
