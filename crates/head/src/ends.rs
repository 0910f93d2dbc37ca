//! How processes ended, for those who ask for what only they had.
//!
//! - ENDS-1: of the last [`REMEMBERED_MAX`] processes it is known; of earlier ones only that they are gone.
//! - ENDS-2: the first word on an end counts.
//! - ENDS-3: the last [`LISTED_MAX`] of them are listed among the workers.
//! - ENDS-4: those that nobody wanted are counted by what ran and where, the first [`NAMES_MAX`] names apart.

use oxiray_ids::{ObjectId, WorkerId};
use oxiray_wire::state::{ExitKind, WorkerDuty, WorkerRow};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

/// Processes whose ends are remembered.
const REMEMBERED_MAX: usize = 4096;
/// Those of them that are listed.
const LISTED_MAX: usize = 1000;
/// Names of what ran that are counted apart, and what stands for the others.
const NAMES_MAX: usize = 200;
const OTHER_NAMES: &str = "other";

/// What is counted together: how it ended, what it did, its name, and its node's address.
pub(crate) type EndedAs = (ExitKind, WorkerDuty, String, String);

#[derive(Debug)]
struct End {
    at: Instant,
    text: String,
    row: Option<WorkerRow>,
}

/// The ends that are remembered.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    known: BTreeMap<WorkerId, End>,
    order: VecDeque<WorkerId>,
    unwanted: BTreeMap<EndedAs, u64>,
    names: BTreeSet<String>,
}

impl Ends {
    /// A process ended that nobody wanted to end (ENDS-4).
    pub(crate) fn count_unwanted(&mut self, row: &WorkerRow, kind: ExitKind) {
        let name = if self.names.len() < NAMES_MAX || self.names.contains(&row.name) { &row.name } else { OTHER_NAMES };
        self.names.insert(name.to_owned());
        *self.unwanted.entry((kind, row.duty, name.to_owned(), row.ip.clone())).or_default() += 1;
    }

    /// How many there were.
    pub(crate) fn unwanted(&self) -> impl Iterator<Item = (&EndedAs, u64)> {
        self.unwanted.iter().map(|(ended_as, count)| (ended_as, *count))
    }

    /// A process has ended, in words.
    pub(crate) fn remember(&mut self, who: WorkerId, at: Instant, text: String, row: Option<WorkerRow>) {
        if self.known.contains_key(&who) {
            return;
        }
        if self.order.len() >= REMEMBERED_MAX
            && let Some(first) = self.order.pop_front()
        {
            self.known.remove(&first);
        }
        self.order.push_back(who);
        self.known.insert(who, End { at, text, row });
    }

    /// The processes that ended last, as lists have them (ENDS-3).
    pub(crate) fn rows(&self) -> impl Iterator<Item = &WorkerRow> {
        let latest = self.order.iter().rev().take(LISTED_MAX);
        latest.filter_map(|who| self.known.get(who)?.row.as_ref())
    }

    /// A process that ended, as lists have it.
    pub(crate) fn row_of(&self, who: WorkerId) -> Option<&WorkerRow> {
        self.known.get(&who)?.row.as_ref()
    }

    /// Why nobody can make an object that was this process's.
    pub(crate) fn owner_died(&self, object: ObjectId, owner: WorkerId, now: Instant) -> String {
        let what = match self.known.get(&owner) {
            Some(end) => {
                let ago = now.saturating_duration_since(end.at).as_secs_f64();
                format!("its owner died {ago:.1} s ago, {}", end.text)
            }
            None => "the process that was to make it, or to make it again, is gone".to_owned(),
        };
        format!(
            "object {object} cannot be had: {what}. Nobody else can make it: let a process own it that lives as long as it \
             is needed, such as the driver or an actor"
        )
    }
}
