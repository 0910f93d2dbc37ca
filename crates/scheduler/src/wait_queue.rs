//! Who waits for resources.
//!
//! # Order
//! Entries that want the same are one class and are served first come, first served. Classes are
//! tried in the order in which their oldest entries came, so wherever two entries could both be
//! served, the older one is. A class that cannot be served holds up no other.
//!
//! An entry may say from how deep it comes: a task that waits for what it called holds a process and
//! whatever else it was given, so what it called goes first. A tree of tasks is then walked depth
//! first, and has as many processes as it is deep, not as it is wide. "Older" above means deeper, and
//! among the equally deep, older.
//!
//! # What is not promised
//! An entry that asks for much can be overtaken any number of times by younger ones that fit into
//! what it cannot use. Keeping room for it would bound that, but could stop a program for good: a
//! task that holds half a device and waits for its child would never give it back where the child
//! may not overtake whoever waits for the whole device. [`Waiting::overtaken`] counts, so that the
//! person who waits can be told.
//!
//! # Cost
//! With `c` classes and `n` entries: push, cancel and each served entry O(log n), and a round that
//! serves nothing `c` attempts.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use thiserror::Error;

/// Beyond this, depths count as the same.
const DEPTH_MAX: u32 = (1 << (u64::BITS - NUMBER_BITS)) - 1;
/// The bits of an entry's number that tell when it came; those above tell how deep it comes from.
const NUMBER_BITS: u32 = 44;

/// The most entries of one queue.
pub const WAITING_MAX: usize = 10_000_000;

/// Who waits, each with a ticket `T`, and for what: `W`.
#[derive(Debug)]
pub struct WaitQueue<T, W> {
    classes: HashMap<W, Class<T>>,
    /// The classes by the number of their oldest entry.
    heads: BTreeMap<u64, W>,
    /// Where each ticket stands.
    places: HashMap<T, (W, u64)>,
    last_number: u64,
    limit: usize,
}

#[derive(Debug)]
struct Class<T> {
    /// By number, which is the order of arrival.
    entries: BTreeMap<u64, T>,
    overtaken: u64,
}

/// Entries that wait for the same.
#[derive(Debug, PartialEq, Eq)]
pub struct Waiting<'a, T, W> {
    /// What each of them asks for.
    pub wish: &'a W,
    /// How many there are.
    pub count: usize,
    /// The one that came first.
    pub oldest: &'a T,
    /// How many entries that came after the oldest were served before it.
    pub overtaken: u64,
}

/// An entry was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PushError {
    /// As many entries wait as may.
    #[error("{limit} requests wait for resources already, the most there may be; wait for some to end")]
    Full {
        /// How many may.
        limit: usize,
    },
    /// The ticket waits already.
    #[error("this request waits already; cancel it before it asks again")]
    AlreadyWaiting,
}

impl<T: Clone + Eq + Hash, W: Clone + Eq + Hash> WaitQueue<T, W> {
    /// A queue in which nobody waits, for [`WAITING_MAX`] entries.
    pub fn new() -> Self {
        Self::with_limit(WAITING_MAX)
    }

    /// A queue in which nobody waits, for `limit` entries.
    pub fn with_limit(limit: usize) -> Self {
        Self { classes: HashMap::new(), heads: BTreeMap::new(), places: HashMap::new(), last_number: 0, limit }
    }

    /// Queues `ticket` behind all that wait for the same.
    pub fn push(&mut self, ticket: T, wish: W) -> Result<(), PushError> {
        self.push_from(0, ticket, wish)
    }

    /// Queues `ticket` behind all that wait for the same and come from as deep or deeper.
    pub fn push_from(&mut self, depth: u32, ticket: T, wish: W) -> Result<(), PushError> {
        if self.places.contains_key(&ticket) {
            return Err(PushError::AlreadyWaiting);
        }
        if self.places.len() >= self.limit {
            return Err(PushError::Full { limit: self.limit });
        }
        self.last_number += 1;
        let number = u64::from(DEPTH_MAX - depth.min(DEPTH_MAX)) << NUMBER_BITS | self.last_number;
        self.places.insert(ticket.clone(), (wish.clone(), number));
        let class =
            self.classes.entry(wish.clone()).or_insert_with(|| Class { entries: BTreeMap::new(), overtaken: 0 });
        let first = class.entries.first_key_value().map(|(first, _)| *first);
        class.entries.insert(number, ticket);
        if first.is_none_or(|first| number < first) {
            first.map(|first| self.heads.remove(&first));
            class.overtaken = 0;
            self.heads.insert(number, wish);
        }
        Ok(())
    }

    /// Takes `ticket` out of the queue; `false` where it does not wait.
    pub fn cancel(&mut self, ticket: &T) -> bool {
        let Some((wish, number)) = self.places.remove(ticket) else { return false };
        self.remove(&wish, number);
        true
    }

    /// Serves all that can be served: `try_grant` is asked for one entry after the other, and what
    /// it gives is returned with the ticket, in the order served. A class for which it gives
    /// nothing is not tried again in this round, since serving others only takes more away.
    pub fn serve<G>(&mut self, mut try_grant: impl FnMut(&W, &T) -> Option<G>) -> Vec<(T, G)> {
        let mut served = Vec::new();
        let mut passed_over = Vec::new();
        let mut next = 0;
        // A class that was passed over stays behind `next`, and one that was served comes back with
        // its next entry, which is younger and so ahead of it: one pass sees each in its turn.
        while let Some((&number, wish)) = self.heads.range(next..).next() {
            next = number + 1;
            let wish = wish.clone();
            match try_grant(&wish, &self.classes[&wish].entries[&number]) {
                Some(grant) => {
                    let ticket = self.remove(&wish, number);
                    self.places.remove(&ticket);
                    served.push((ticket, grant));
                }
                None => passed_over.push((wish, served.len())),
            }
        }
        for (wish, served_before) in passed_over {
            let class = self.classes.get_mut(&wish).expect("a class that was passed over still waits");
            class.overtaken += (served.len() - served_before) as u64;
        }
        served
    }

    /// What is waited for, in the order in which it is tried.
    pub fn waiting(&self) -> impl Iterator<Item = Waiting<'_, T, W>> {
        self.heads.iter().map(|(number, wish)| {
            let class = &self.classes[wish];
            let oldest = &class.entries[number];
            Waiting { wish, count: class.entries.len(), oldest, overtaken: class.overtaken }
        })
    }

    /// Those that wait for `wish`, oldest first.
    pub fn tickets(&self, wish: &W) -> Vec<T> {
        self.classes.get(wish).map(|class| class.entries.values().cloned().collect()).unwrap_or_default()
    }

    /// What `ticket` waits for; `None` where it does not wait.
    pub fn wish_of(&self, ticket: &T) -> Option<&W> {
        self.places.get(ticket).map(|(wish, _)| wish)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Takes an entry out of its class, and the class out of the order where it was the last.
    fn remove(&mut self, wish: &W, number: u64) -> T {
        let class = self.classes.get_mut(wish).expect("an entry has a class");
        let ticket = class.entries.remove(&number).expect("an entry stands in its class");
        if self.heads.remove(&number).is_some() {
            class.overtaken = 0;
            match class.entries.first_key_value() {
                Some((oldest, _)) => {
                    self.heads.insert(*oldest, wish.clone());
                }
                None => {
                    self.classes.remove(wish);
                }
            }
        }
        ticket
    }
}

impl<T: Clone + Eq + Hash, W: Clone + Eq + Hash> Default for WaitQueue<T, W> {
    fn default() -> Self {
        Self::new()
    }
}
