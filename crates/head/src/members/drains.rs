//! How a member is being emptied: who was told, what is copied from there, and what is left.

use oxiray_ids::ObjectId;
use oxiray_wire::message::Draining;
use oxiray_wire::state::{DrainState, LeftOnNode};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long a copy may take before it is asked for again, elsewhere.
const COPY_LIMIT: Duration = Duration::from_secs(10);
/// How often that is tried; the object is then left where it is, and lost with the node.
const COPIES_MAX: u32 = 3;
/// How many copies are asked for at once.
const COPYING_MAX: usize = 32;

/// A request to have a node emptied, which outlives the head that took it (DRAIN-5).
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DrainRow {
    #[prost(string, tag = "1")]
    pub(crate) reason: String,
    /// By when the node ends at the latest, in milliseconds since 1970.
    #[prost(uint64, optional, tag = "2")]
    pub(crate) until_ms: Option<u64>,
}

/// A node that is being emptied.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    pub(crate) asked: DrainRow,
    pub(crate) until: Option<Instant>,
    /// It was told to end.
    pub(crate) is_dismissed: bool,
    /// The leases there whose owners know.
    retired: BTreeSet<u64>,
    /// Objects that are copied from there: how often that was tried, and since when.
    copies: BTreeMap<ObjectId, (u32, Instant)>,
    /// Objects that this node's own store has too.
    here: BTreeSet<ObjectId>,
}

/// What keeps a node that is being emptied from ending.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) tasks: usize,
    pub(crate) actors: usize,
    pub(crate) programs: usize,
    pub(crate) bundles: usize,
    pub(crate) objects: usize,
    /// Workers that wait for the next task of their job, and hold nothing.
    pub(crate) idle: usize,
}

impl Drain {
    /// Of the leases there, those whose owners are to be told: once each.
    pub(crate) fn retire(&mut self, leases: impl Iterator<Item = u64>) -> Vec<u64> {
        leases.filter(|lease| self.retired.insert(*lease)).collect()
    }

    /// The copies that are to be asked for now, and how often each was before. `only` are the objects that lie nowhere else.
    pub(crate) fn copies_due(&mut self, only: &[ObjectId], now: Instant) -> Vec<(ObjectId, u32)> {
        self.copies.retain(|object, _| only.contains(object));
        let under_way =
            self.copies.values().filter(|(tries, since)| *tries < COPIES_MAX && now < *since + COPY_LIMIT).count();
        let mut due = Vec::new();
        for object in only {
            let (tries, since) = self.copies.get(object).copied().unwrap_or((0, now));
            let is_due = tries == 0 || (tries < COPIES_MAX && now >= since + COPY_LIMIT);
            if is_due && under_way + due.len() < COPYING_MAX {
                self.copies.insert(*object, (tries + 1, now));
                due.push((*object, tries));
            }
        }
        due
    }

    /// Whether copying the object was tried in vain.
    pub(crate) fn is_given_up(&self, object: ObjectId, now: Instant) -> bool {
        let tried = self.copies.get(&object);
        tried.is_some_and(|(tries, since)| *tries >= COPIES_MAX && now >= *since + COPY_LIMIT)
    }

    /// The head's own store has the object.
    pub(crate) fn copied_here(&mut self, object: ObjectId) {
        if self.copies.contains_key(&object) {
            self.here.insert(object);
        }
    }

    /// Whether the head's own store has a copy that was made because of this.
    pub(crate) fn has_copy_here(&self, object: ObjectId) -> bool {
        self.here.contains(&object)
    }

    fn left_of_time(&self, now: Instant) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(now))
    }

    /// What the member and those on it are told.
    pub(crate) fn told(&self, now: Instant) -> Draining {
        let left_ms = self.left_of_time(now).map(|left| left.as_millis() as u64);
        Draining { left_ms, reason: self.asked.reason.clone(), is_over: false }
    }

    /// The same for people and programs.
    pub(crate) fn shown(&self, left: Left, now: Instant) -> DrainState {
        DrainState {
            reason: self.asked.reason.clone(),
            deadline_s: self.left_of_time(now).map(|left| left.as_secs_f64()),
            left: Some(left.shown()),
            words: self.in_words(left, now),
        }
    }

    /// The same in a sentence.
    pub(crate) fn in_words(&self, left: Left, now: Instant) -> String {
        let reason = &self.asked.reason;
        let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        let when = self
            .left_of_time(now)
            .map_or("when nothing is left there".to_owned(), |left| format!("in {:.0} s at most", left.as_secs_f64()));
        format!("it is being drained{reason} and ends {when}; still there: {left}")
    }
}

impl Left {
    /// Whether anything would be missed.
    pub(crate) fn is_in_use(&self) -> bool {
        *self != Self { idle: self.idle, ..Self::default() }
    }

    pub(crate) fn shown(self) -> LeftOnNode {
        LeftOnNode {
            tasks: (self.tasks + self.idle) as u64,
            actors: self.actors as u64,
            programs: self.programs as u64,
            bundles: self.bundles as u64,
            objects: self.objects as u64,
        }
    }
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = [
            (self.tasks + self.idle, "workers on tasks"),
            (self.actors, "actors"),
            (self.programs, "programs"),
            (self.bundles, "bundles"),
            (self.objects, "objects without another copy"),
        ];
        let words: Vec<String> =
            counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        f.write_str(if words.is_empty() { "nothing" } else { "" })?;
        f.write_str(&words.join(", "))
    }
}
