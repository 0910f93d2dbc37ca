//! Whom to end where memory is short.
//!
//! The shell measures; what is decided here follows from its numbers alone.
//!
//! - VICTIM-1: a worker whose end would bring little is left alone: one that uses less than a tenth of what the largest
//!   uses.
//! - VICTIM-2: of the others, those go first that cost least: workers without work, tasks that may be run again, other
//!   tasks, actors, and holders of devices last. Among tasks that may be run again it is the newest of the owner with most.
//! - VICTIM-3: a task is run again only where another large one of its owner goes on meanwhile, so that it may find more
//!   memory later. One that ran out of memory alone would do so again.

use crate::Key;
use crate::node::{Duty, NodeCore};
use crate::plan::Level;
use oxiray_ids::WorkerId;
use oxiray_wire::message::OutOfMemory;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A worker that uses less than this part of what the largest uses is left alone (VICTIM-1).
const WORTH_PART: u64 = 10;
/// How many processes an error names.
const NAMED_MAX: usize = 4;

/// What a worker costs when it is ended, the cheapest first (VICTIM-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cost {
    Nothing,
    Repetition,
    Task,
    Actor,
    Devices,
}

/// A worker as the decision sees it.
#[derive(Debug, Clone)]
struct Candidate {
    key: Key,
    cost: Cost,
    owner: WorkerId,
    /// Later ones have larger numbers.
    begun: u64,
    bytes: u64,
}

/// Why a worker was ended, or killed by the kernel.
#[derive(Debug, Clone)]
pub(crate) struct Cause {
    pub(crate) text: String,
    pub(crate) kind: OutOfMemory,
}

/// What the shell measured.
#[derive(Debug)]
pub struct Measured {
    /// The bound that is nearly met.
    pub level: Level,
    /// The part of it that may be used, in thousandths.
    pub threshold: u32,
    /// What each worker uses for itself.
    pub workers: BTreeMap<Key, u64>,
    /// What the object store takes.
    pub store: u64,
}

fn choose(candidates: &[Candidate]) -> Option<(Key, OutOfMemory)> {
    let largest = candidates.iter().map(|candidate| candidate.bytes).max()?;
    let is_worth = |candidate: &&Candidate| candidate.bytes > 0 && candidate.bytes >= largest / WORTH_PART;
    let worth: Vec<&Candidate> = candidates.iter().filter(is_worth).collect();
    let cost = worth.iter().map(|candidate| candidate.cost).min()?;
    let of_owner = |owner: WorkerId| {
        worth.iter().filter(|other| other.owner == owner && matches!(other.cost, Cost::Repetition | Cost::Task)).count()
    };
    let cheapest = worth.iter().filter(|candidate| candidate.cost == cost);
    let chosen = match cost {
        Cost::Repetition => cheapest.max_by_key(|candidate| (of_owner(candidate.owner), candidate.begun)),
        Cost::Nothing => cheapest.max_by_key(|candidate| (candidate.bytes, candidate.begun)),
        Cost::Task | Cost::Actor | Cost::Devices => cheapest.max_by_key(|candidate| candidate.begun),
    }?;
    let is_last = of_owner(chosen.owner) <= 1;
    Some((chosen.key, if is_last { OutOfMemory::Lasting } else { OutOfMemory::Passing }))
}

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
            Duty::Ending | Duty::Spare => return None,
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

/// What is known of a worker for when memory is short.
#[derive(Debug, Default)]
pub(crate) struct OfWorker {
    /// Whom it was leased for.
    pub(crate) caller: Caller,
    /// That it ends for want of memory, where it does.
    pub(crate) cause: Option<Cause>,
    /// What its lease asked for with `memory=`, in bytes.
    pub(crate) asked: Option<u64>,
}

/// Whom a worker was leased for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) owner: WorkerId,
    /// Whether what it runs may be run again.
    pub(crate) may_repeat: bool,
}

impl Default for Caller {
    fn default() -> Self {
        Self { owner: WorkerId::NIL, may_repeat: false }
    }
}

/// A size, for people.
pub(crate) fn shown(bytes: u64) -> String {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    if mebibytes < 1024.0 { format!("{mebibytes:.0} MiB") } else { format!("{:.2} GiB", mebibytes / 1024.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(key: Key, cost: Cost, owner: u8, mebibytes: u64) -> Candidate {
        Candidate { key, cost, owner: WorkerId::new([owner; 28]), begun: key, bytes: mebibytes << 20 }
    }

    #[test]
    fn nobody_is_ended_where_nobody_uses_memory() {
        assert_eq!(choose(&[]), None);
        assert_eq!(choose(&[candidate(1, Cost::Repetition, 1, 0)]), None);
    }

    #[test]
    fn one_large_task_is_ended_for_good_and_the_small_ones_beside_it_are_left_alone() {
        let hog = candidate(3, Cost::Repetition, 1, 1400);
        let honest = [1, 2, 4, 5].map(|key| candidate(key, Cost::Repetition, 1, 35));
        let all: Vec<Candidate> = honest.iter().cloned().chain([hog]).collect();
        assert_eq!(choose(&all), Some((3, OutOfMemory::Lasting)), "VICTIM-1, VICTIM-3");
    }

    #[test]
    fn of_several_large_tasks_the_newest_of_the_owner_with_most_waits() {
        let all = [
            candidate(9, Cost::Repetition, 2, 300),
            candidate(5, Cost::Repetition, 1, 250),
            candidate(6, Cost::Repetition, 1, 310),
            candidate(7, Cost::Repetition, 1, 200),
            candidate(8, Cost::Repetition, 1, 10),
        ];
        assert_eq!(choose(&all), Some((7, OutOfMemory::Passing)), "VICTIM-2");
        assert_eq!(choose(&all[..1]), Some((9, OutOfMemory::Lasting)));
    }

    #[test]
    fn what_costs_more_is_ended_later() {
        let all = [
            candidate(1, Cost::Devices, 1, 500),
            candidate(2, Cost::Actor, 1, 500),
            candidate(3, Cost::Task, 1, 500),
            candidate(4, Cost::Repetition, 2, 500),
            candidate(5, Cost::Nothing, 3, 100),
        ];
        let order = (1..=5).rev().map(|count| choose(&all[..count]).map(|(key, _)| key));
        assert_eq!(order.collect::<Vec<_>>(), [5, 4, 3, 2, 1].map(Some));
        let small_tasks_beside_an_actor = [candidate(1, Cost::Actor, 1, 900), candidate(2, Cost::Repetition, 1, 40)];
        assert_eq!(choose(&small_tasks_beside_an_actor).map(|(key, _)| key), Some(1), "their end would not help");
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!([shown(35 << 20), shown(1536 << 20)], ["35 MiB", "1.50 GiB"]);
    }
}
