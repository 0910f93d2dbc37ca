//! What each job holds of the cluster.
//!
//! - SHARES-1: what counts of a job is its dominant share *of what is asked for*: of the resources that a request names,
//!   the one of which the job holds the largest part of all that the machines have. A job that holds all GPUs is not behind
//!   others for that when it asks for a CPU.
//! - SHARES-2: what was counted is taken back exactly once. Less than nothing is never held.

use std::collections::BTreeMap;

use oxiray_resources::{Demand, Inventory, Quantity, ResourceName};

use crate::{Claimant, Rank, Standing};

/// A part of what the cluster has of a resource: all of it is [`JobShare::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobShare(u64);

impl JobShare {
    /// Nothing.
    pub const NOTHING: Self = Self(0);
    /// All there is.
    pub const ALL: Self = Self(1 << 32);

    fn of(held: u128, total: u128) -> Self {
        let share = (held << 32) / total.max(1);
        Self(u64::try_from(share).unwrap_or(u64::MAX))
    }
}

/// What a request asks for, as far as jobs share it.
pub trait Asks {
    /// The demands; none where it asks for nothing that other jobs could have.
    fn demands(&self) -> impl Iterator<Item = &Demand>;
}

impl Asks for Demand {
    fn demands(&self) -> impl Iterator<Item = &Demand> {
        std::iter::once(self)
    }
}

/// What the machines have, and what each job `J` holds of it.
#[derive(Clone, Debug)]
pub struct Shares<J> {
    totals: BTreeMap<ResourceName, u128>,
    /// Few resources each, so that a list is faster than a map.
    held: BTreeMap<J, Vec<(ResourceName, u128)>>,
    /// When a lease of each job was recalled last, in the order of recalls.
    yielded: BTreeMap<J, u64>,
    last_yielded: u64,
    /// Nobody stands before or behind others for what they hold.
    is_by_arrival: bool,
}

impl<J> Default for Shares<J> {
    fn default() -> Self {
        Self {
            totals: BTreeMap::new(),
            held: BTreeMap::new(),
            yielded: BTreeMap::new(),
            last_yielded: 0,
            is_by_arrival: false,
        }
    }
}

impl<J: Copy + Ord> Shares<J> {
    /// From here on who came first goes first among those of one priority, whatever they hold.
    pub fn go_by_arrival(&mut self) {
        self.is_by_arrival = true;
    }

    /// A machine joined.
    pub fn add_machine(&mut self, inventory: &Inventory) {
        for (name, units) in amounts_of(inventory) {
            *self.totals.entry(name).or_default() += units;
        }
    }

    /// A machine that had joined is gone.
    pub fn remove_machine(&mut self, inventory: &Inventory) {
        for (name, units) in amounts_of(inventory) {
            if let Some(sum) = self.totals.get_mut(&name) {
                *sum = sum.saturating_sub(units);
            }
        }
        self.totals.retain(|_, sum| *sum > 0);
    }

    /// The job holds this from here on.
    pub fn take(&mut self, job: J, demand: &Demand) {
        if demand.is_nothing() {
            return;
        }
        let held = self.held.entry(job).or_default();
        for (name, asked) in demand.iter() {
            match held.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += u128::from(asked.units()),
                None => held.push((name.clone(), u128::from(asked.units()))),
            }
        }
    }

    /// The job holds this no more.
    pub fn give_back(&mut self, job: J, demand: &Demand) {
        if demand.is_nothing() {
            return;
        }
        let held = self.held.get_mut(&job).expect("SHARES-2: a job gives back what it holds");
        for (name, asked) in demand.iter() {
            let found = held.iter().position(|(known, _)| known == name);
            let found = found.expect("SHARES-2: a job gives back what it holds");
            let left = held[found].1.checked_sub(u128::from(asked.units()));
            match left.expect("SHARES-2: a job gives back no more than it holds") {
                0 => drop(held.swap_remove(found)),
                left => held[found].1 = left,
            }
        }
        if held.is_empty() {
            self.held.remove(&job);
        }
    }

    /// SHARES-1.
    pub fn share<'asked>(&self, job: J, asked: impl Iterator<Item = &'asked Demand>) -> JobShare {
        let Some(held) = self.held.get(&job) else { return JobShare::NOTHING };
        let names = asked.flat_map(Demand::iter).map(|(name, _)| name).filter(|name| !name.is_implicit());
        let shares = names.filter_map(|name| {
            let (_, units) = held.iter().find(|(known, _)| known == name)?;
            Some(JobShare::of(*units, self.totals.get(name).copied().unwrap_or(0)))
        });
        shares.max().unwrap_or_default()
    }

    /// Where one stands among those who ask for the same.
    pub fn standing<'asked>(
        &self,
        claimant: impl Into<Claimant<J>>,
        asked: impl Iterator<Item = &'asked Demand>,
    ) -> Standing {
        let Claimant { job, priority } = claimant.into();
        let share = if self.is_by_arrival { JobShare::NOTHING } else { self.share(job, asked) };
        Standing::new(priority, share)
    }

    /// Where an entry of one stands among those of others.
    pub fn rank<'asked>(
        &self,
        claimant: impl Into<Claimant<J>>,
        asked: impl Iterator<Item = &'asked Demand>,
        age: u64,
    ) -> Rank {
        let claimant = claimant.into();
        let yielded = self.yielded.get(&claimant.job).copied().filter(|_| !self.is_by_arrival).unwrap_or(0);
        Rank::new(self.standing(claimant, asked), yielded, age)
    }

    /// A lease of the job is recalled: among equals it goes last.
    pub fn yields(&mut self, job: J) {
        self.last_yielded += 1;
        self.yielded.insert(job, self.last_yielded);
    }

    /// The job is over.
    pub fn forget(&mut self, job: J) {
        self.yielded.remove(&job);
    }

    /// The jobs that hold something.
    pub fn jobs(&self) -> impl ExactSizeIterator<Item = J> {
        self.held.keys().copied()
    }
}

/// What a machine has of each resource, the memory of its devices included.
fn amounts_of(inventory: &Inventory) -> impl Iterator<Item = (ResourceName, u128)> {
    let memory = ResourceName::GPU_MEMORY;
    let bytes: u128 = inventory.device_memory(memory.source().as_str()).map(u128::from).sum();
    let units = bytes * u128::from(Quantity::UNITS_PER_WHOLE);
    let totals = inventory.totals().map(|(name, total)| (name.clone(), u128::from(total.units())));
    totals.chain((units > 0).then_some((memory, units)))
}
