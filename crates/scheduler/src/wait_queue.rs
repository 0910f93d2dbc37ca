//! Who waits for resources.
//!
//! # Order
//! Entries of one job that want the same are one class and are served first come, first served. Of the classes of a job
//! the one whose oldest entry came first is tried first, so wherever two entries of a job could both be served, the older
//! one is. A class that cannot be served holds up no other. Among jobs the order is that of [`Rank`]: who holds the
//! smaller share of what it asks for goes first, with what it is served in this round counted.
//!
//! An entry may say from how deep it comes: a task that waits for what it called holds a process and
//! whatever else it was given, so what it called goes first. A tree of tasks is then walked depth
//! first, and has as many processes as it is deep, not as it is wide. "Older" above means deeper, and
//! among the equally deep, older.
//!
//! # What is not promised
//! An entry that asks for much can be overtaken any number of times by younger ones that fit into
//! what it cannot use. Who keeps room for it bounds that, and must not keep it from what comes from
//! deeper: a task that holds half a device and waits for its child would never give it back where
//! the child may not overtake whoever waits for the whole device. [`Waiting::overtaken`] counts.
//!
//! # Cost
//! With `c` classes and `n` entries: push, cancel and each served entry O(log n), and a round that
//! serves nothing `c` attempts.
//!
//! # Priorities
//! Where this says "job" it means a [`Claimant`]: what a job asks for with different priorities stands apart, and the higher
//! one goes first (ORDER-1). One that cannot be served holds up no other, of a lower priority either.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

use thiserror::Error;

use crate::{Asks, Claimant, JobShare, Rank, Shares, Standing};

/// Beyond this, depths count as the same.
const DEPTH_MAX: u32 = (1 << (u64::BITS - NUMBER_BITS)) - 1;
/// The bits of an entry's number that tell when it came; those above tell how deep it comes from.
const NUMBER_BITS: u32 = 44;

/// The most entries of one queue.
pub const WAITING_MAX: usize = 10_000_000;

/// Who waits: for the job `J`, each with a ticket `T`, and for what: `W`.
#[derive(Debug)]
pub struct WaitQueue<J, T, W> {
    classes: Vec<Option<Class<J, T, W>>>,
    /// Places in `classes` that none has.
    free: Vec<u32>,
    numbers: HashMap<(Claimant<J>, W), u32>,
    /// The classes of each by the number of their oldest entry.
    claimants: BTreeMap<Claimant<J>, BTreeMap<u64, u32>>,
    /// Where each ticket stands: its class, and its number there.
    places: HashMap<T, (u32, u64)>,
    last_number: u64,
    limit: usize,
}

#[derive(Debug)]
struct Class<J, T, W> {
    claimant: Claimant<J>,
    resource_request: W,
    /// By number, which is the order of arrival.
    entries: BTreeMap<u64, T>,
    overtaken: u64,
}

/// Entries of a job that wait for the same.
#[derive(Debug, PartialEq, Eq)]
pub struct Waiting<'a, J, T, W> {
    /// In whose name.
    pub claimant: Claimant<J>,
    /// What each of them asks for.
    pub resource_request: &'a W,
    /// From how deep the oldest comes.
    pub depth: u32,
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

impl<J: Copy + Ord + Hash, T: Clone + Eq + Hash, W: Clone + Eq + Hash + Asks> WaitQueue<J, T, W> {
    /// A queue in which nobody waits, for [`WAITING_MAX`] entries.
    pub fn new() -> Self {
        Self::with_limit(WAITING_MAX)
    }

    /// A queue in which nobody waits, for `limit` entries.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            classes: Vec::new(),
            free: Vec::new(),
            numbers: HashMap::new(),
            claimants: BTreeMap::new(),
            places: HashMap::new(),
            last_number: 0,
            limit,
        }
    }

    /// Queues `ticket` behind all of the job that wait for the same.
    pub fn push(&mut self, claimant: impl Into<Claimant<J>>, ticket: T, resource_request: W) -> Result<(), PushError> {
        self.push_from(0, claimant, ticket, resource_request)
    }

    /// Queues `ticket` behind all of the job that wait for the same and come from as deep or deeper.
    pub fn push_from(
        &mut self,
        depth: u32,
        claimant: impl Into<Claimant<J>>,
        ticket: T,
        resource_request: W,
    ) -> Result<(), PushError> {
        let claimant = claimant.into();
        if self.places.contains_key(&ticket) {
            return Err(PushError::AlreadyWaiting);
        }
        if self.places.len() >= self.limit {
            return Err(PushError::Full { limit: self.limit });
        }
        self.last_number += 1;
        let number = u64::from(DEPTH_MAX - depth.min(DEPTH_MAX)) << NUMBER_BITS | self.last_number;
        let index = self.class_of(claimant, resource_request);
        self.places.insert(ticket.clone(), (index, number));
        let class = self.classes[index as usize].as_mut().expect("it was just made");
        let first = class.entries.first_key_value().map(|(first, _)| *first);
        class.entries.insert(number, ticket);
        if first.is_none_or(|first| number < first) {
            class.overtaken = 0;
            let heads = self.claimants.entry(claimant).or_default();
            first.map(|first| heads.remove(&first));
            heads.insert(number, index);
        }
        Ok(())
    }

    /// The class of those that want this, a new one where there is none.
    fn class_of(&mut self, claimant: Claimant<J>, resource_request: W) -> u32 {
        *self.numbers.entry((claimant, resource_request)).or_insert_with_key(|(claimant, resource_request)| {
            let class = Some(Class {
                claimant: *claimant,
                resource_request: resource_request.clone(),
                entries: BTreeMap::new(),
                overtaken: 0,
            });
            let index = self.free.pop().unwrap_or(self.classes.len() as u32);
            if index as usize == self.classes.len() {
                self.classes.push(class);
            } else {
                self.classes[index as usize] = class;
            }
            index
        })
    }

    /// Takes `ticket` out of the queue; `false` where it does not wait.
    pub fn cancel(&mut self, ticket: &T) -> bool {
        let Some((index, number)) = self.places.remove(ticket) else { return false };
        self.remove(index, number);
        true
    }

    /// Serves all that can be served: `try_grant` is asked for one entry after the other, and what
    /// it gives is returned with the ticket, in the order served. A class for which it gives
    /// nothing is not tried again in this round, since serving others only takes more away.
    ///
    /// What is served counts as held by its job until the round is over; `shares` are then as they were.
    pub fn serve<G>(
        &mut self,
        shares: &mut Shares<J>,
        mut try_grant: impl FnMut(Claimant<J>, &W, &T) -> Option<G>,
    ) -> Vec<(T, G)> {
        let mut served = Vec::new();
        let mut counted: Vec<(J, W)> = Vec::new();
        let mut passed_over = Vec::new();
        let has_several = self.claimants.len() > 1;
        let turns = self.claimants.keys().filter_map(|one| self.turn(*one, 0, has_several.then_some(&*shares)));
        let mut turns: BTreeSet<(Rank, Claimant<J>, u32)> = turns.collect();
        // Of each job, a class that was passed over stays behind, and one that was served comes back with
        // its next entry, which is younger and so ahead: one pass sees each in its turn.
        while let Some((rank, claimant, index)) = turns.pop_first() {
            let (class, job) = (self.class(index), claimant.job);
            match try_grant(claimant, &class.resource_request, &class.entries[&rank.age()]) {
                Some(grant) => {
                    if has_several {
                        class.resource_request.demands().for_each(|demand| shares.take(job, demand));
                        counted.push((job, class.resource_request.clone()));
                    }
                    let ticket = self.remove(index, rank.age());
                    self.places.remove(&ticket);
                    served.push((ticket, grant));
                }
                None => passed_over.push((index, served.len())),
            }
            turns.extend(self.turn(claimant, rank.age() + 1, has_several.then_some(&*shares)));
        }
        for (index, served_before) in passed_over {
            let class = self.classes[index as usize].as_mut().expect("a class that was passed over still waits");
            class.overtaken += (served.len() - served_before) as u64;
        }
        for (job, resource_request) in counted {
            resource_request.demands().for_each(|demand| shares.give_back(job, demand));
        }
        served
    }

    /// The next class of a job whose oldest entry has this number or a later one, and where that entry stands among those
    /// of other jobs, if there are any.
    fn turn(&self, claimant: Claimant<J>, number: u64, shares: Option<&Shares<J>>) -> Option<(Rank, Claimant<J>, u32)> {
        let (number, index) = self.claimants.get(&claimant)?.range(number..).next()?;
        let alone = || Rank::new(Standing::new(claimant.priority, JobShare::NOTHING), 0, *number);
        let rank = shares
            .map_or_else(alone, |shares| shares.rank(claimant, self.class(*index).resource_request.demands(), *number));
        Some((rank, claimant, *index))
    }

    fn class(&self, index: u32) -> &Class<J, T, W> {
        self.classes[index as usize].as_ref().expect("a class in use is kept")
    }

    /// What is waited for, in the order in which the oldest of each class came.
    pub fn waiting(&self) -> impl Iterator<Item = Waiting<'_, J, T, W>> {
        self.waiting_of_each(usize::MAX)
    }

    /// The same with the first `most` classes of each job alone.
    pub fn waiting_of_each(&self, most: usize) -> impl Iterator<Item = Waiting<'_, J, T, W>> {
        let heads = self.claimants.values().flat_map(|heads| heads.iter().take(most));
        let mut heads: Vec<(u64, u32)> = heads.map(|(number, index)| (*number, *index)).collect();
        heads.sort_unstable();
        heads.into_iter().map(|(number, index)| {
            let class = self.class(index);
            let Class { claimant, resource_request, overtaken, .. } = class;
            let oldest = &class.entries[&number];
            let depth = DEPTH_MAX - (number >> NUMBER_BITS) as u32;
            Waiting {
                claimant: *claimant,
                resource_request,
                depth,
                count: class.entries.len(),
                oldest,
                overtaken: *overtaken,
            }
        })
    }

    /// In whose names somebody waits.
    pub fn claimants(&self) -> impl ExactSizeIterator<Item = Claimant<J>> {
        self.claimants.keys().copied()
    }

    /// Those that wait for `resource_request`, of whatever job, oldest first.
    pub fn tickets(&self, resource_request: &W) -> Vec<T> {
        let alike = self.classes.iter().flatten().filter(|class| class.resource_request == *resource_request);
        let mut entries: Vec<(&u64, &T)> = alike.flat_map(|class| &class.entries).collect();
        entries.sort_unstable_by_key(|(number, _)| **number);
        entries.into_iter().map(|(_, ticket)| ticket.clone()).collect()
    }

    /// What `ticket` waits for; `None` where it does not wait.
    pub fn resource_request_of(&self, ticket: &T) -> Option<&W> {
        self.places.get(ticket).map(|(index, _)| &self.class(*index).resource_request)
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
    fn remove(&mut self, index: u32, number: u64) -> T {
        let class = self.classes[index as usize].as_mut().expect("an entry has a class");
        let ticket = class.entries.remove(&number).expect("an entry stands in its class");
        let heads = self.claimants.get_mut(&class.claimant).expect("the claimant of an entry waits");
        if heads.remove(&number).is_none() {
            return ticket;
        }
        class.overtaken = 0;
        if let Some((oldest, _)) = class.entries.first_key_value() {
            heads.insert(*oldest, index);
            return ticket;
        }
        if heads.is_empty() {
            self.claimants.remove(&class.claimant);
        }
        let class = self.classes[index as usize].take().expect("it was just looked at");
        self.numbers.remove(&(class.claimant, class.resource_request));
        self.free.push(index);
        ticket
    }
}

impl<J: Copy + Ord + Hash, T: Clone + Eq + Hash, W: Clone + Eq + Hash + Asks> Default for WaitQueue<J, T, W> {
    fn default() -> Self {
        Self::new()
    }
}
