//! Bounds on what peers may ask of a node before they have proven anything. No I/O and no clock.
//!
//! - CROWD-1: an address that has shown many wrong secrets can show none for a while. Nothing else is refused to it: a
//!   secret of 256 bits is not guessed, and others may have the same address.
//! - CROWD-2: connections that wait have a bounded number of places. When all are taken, the address or node with the
//!   most places loses its oldest, so that nobody can crowd out the others.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How many wrong proofs an address may show within [`WINDOW`].
pub(crate) const WRONG_PROOFS_MAX: u32 = 10;
/// For how long wrong proofs count.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);
/// How many addresses are remembered; the one that erred longest ago is forgotten first.
const ADDRESSES_MAX: usize = 1024;

/// Connections that wait, each by its number and for whom it has a place (CROWD-2). Numbers grow with time.
#[derive(Debug)]
pub(crate) struct Places<K> {
    limit: usize,
    taken: BTreeMap<u64, K>,
    by_owner: BTreeMap<K, BTreeSet<u64>>,
}

impl<K: Ord + Copy> Places<K> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, taken: BTreeMap::new(), by_owner: BTreeMap::new() }
    }

    /// Gives the connection a place; returns the one that has lost its place for it.
    pub(crate) fn enter(&mut self, number: u64, owner: K) -> Option<u64> {
        let loser = (self.taken.len() >= self.limit).then(|| self.oldest_of_the_most()).flatten();
        if let Some(loser) = loser {
            self.leave(loser);
        }
        self.taken.insert(number, owner);
        self.by_owner.entry(owner).or_default().insert(number);
        loser
    }

    /// The connection needs its place no longer, if it has one.
    pub(crate) fn leave(&mut self, number: u64) {
        let Some(owner) = self.taken.remove(&number) else { return };
        if let Some(numbers) = self.by_owner.get_mut(&owner) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_owner.remove(&owner);
            }
        }
    }

    fn oldest_of_the_most(&self) -> Option<u64> {
        self.by_owner.values().max_by_key(|numbers| numbers.len())?.first().copied()
    }
}

/// Addresses with wrong proofs: how many, and since when they are counted.
#[derive(Debug, Default)]
pub(crate) struct FailedProofs {
    wrong: BTreeMap<IpAddr, (u32, Instant)>,
}

impl FailedProofs {
    /// A peer showed a wrong proof.
    pub(crate) fn erred(&mut self, address: IpAddr, now: Instant) {
        self.wrong.retain(|_, (_, since)| now.saturating_duration_since(*since) < WINDOW);
        if self.wrong.len() >= ADDRESSES_MAX && !self.wrong.contains_key(&address) {
            let oldest = self.wrong.iter().min_by_key(|(_, (_, since))| *since).map(|(address, _)| *address);
            oldest.and_then(|oldest| self.wrong.remove(&oldest));
        }
        let (count, _) = self.wrong.entry(address).or_insert((0, now));
        *count = count.saturating_add(1);
    }

    /// Whether the address can show no secret for now (CROWD-1).
    pub(crate) fn is_barred(&self, address: IpAddr, now: Instant) -> bool {
        let found = self.wrong.get(&address);
        found.is_some_and(|(count, since)| *count >= WRONG_PROOFS_MAX && now.saturating_duration_since(*since) < WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(number))
    }

    #[test]
    fn who_errs_often_is_barred_for_a_while_and_nobody_else() {
        let (mut crowd, begin) = (FailedProofs::default(), Instant::now());
        for _ in 0..WRONG_PROOFS_MAX {
            assert!(!crowd.is_barred(address(1), begin));
            crowd.erred(address(1), begin);
        }
        assert!(crowd.is_barred(address(1), begin));
        assert!(!crowd.is_barred(address(2), begin));
        assert!(!crowd.is_barred(address(1), begin + WINDOW));
    }

    #[test]
    fn whoever_has_the_most_places_loses_its_oldest() {
        let mut places = Places::new(4);
        assert_eq!([(1, 7), (2, 8), (3, 8), (4, 8)].map(|(number, owner)| places.enter(number, owner)), [None; 4]);
        assert_eq!(places.enter(5, 8), Some(2));
        assert_eq!(places.enter(6, 9), Some(3), "the only one of 7 keeps its place");
        places.leave(4);
        places.leave(4);
        assert_eq!(places.enter(7, 8), None);
        for number in 8..100 {
            assert!(places.enter(number, 8).is_some_and(|loser| loser != 1 && loser != 6));
        }
        assert_eq!(places.taken.len(), 4);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut crowd, begin) = (FailedProofs::default(), Instant::now());
        for number in 0..3 * ADDRESSES_MAX as u32 {
            crowd.erred(address(number), begin + Duration::from_nanos(u64::from(number)));
        }
        assert_eq!(crowd.wrong.len(), ADDRESSES_MAX);
    }
}
