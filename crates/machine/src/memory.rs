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
use crate::plan::Level;
use oxiray_ids::WorkerId;
use oxiray_wire::message::OutOfMemory;
use std::collections::BTreeMap;

/// A worker that uses less than this part of what the largest uses is left alone (VICTIM-1).
const WORTH_PART: u64 = 10;

/// What a worker costs when it is ended, the cheapest first (VICTIM-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cost {
    Nothing,
    Repetition,
    Task,
    Actor,
    Devices,
}

/// A worker as the decision sees it.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) key: Key,
    pub(crate) cost: Cost,
    pub(crate) owner: WorkerId,
    /// Later ones have larger numbers.
    pub(crate) begun: u64,
    pub(crate) bytes: u64,
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

/// The worker that is to be ended, and what is said of its end.
pub(crate) fn choose(candidates: &[Candidate]) -> Option<(Key, OutOfMemory)> {
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

/// Whom a worker was leased for, or what its actor is to them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) owner: WorkerId,
    /// Whether what it runs may be run again.
    pub(crate) may_repeat: bool,
    /// How urgent what it runs is.
    pub(crate) priority: i32,
    /// Whether it may end early for what is more urgent.
    pub(crate) preemptible: bool,
}

impl Default for Caller {
    fn default() -> Self {
        Self { owner: WorkerId::NIL, may_repeat: false, priority: 0, preemptible: false }
    }
}

pub(crate) use oxiray_resources::size_in_words as shown;

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
