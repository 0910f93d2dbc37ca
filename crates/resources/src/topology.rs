//! How near the devices of one machine are to each other, and which of them go together.
//!
//! - TOPOLOGY-1: of the sets of free devices that have the size that is asked for, that one is taken which spans the fewest
//!   NUMA nodes; of those, the one whose farthest two devices are the nearest, then the one with the largest sum over its
//!   pairs, then the one that leaves the best set of that size behind, and at last the one with the lowest numbers.
//! - TOPOLOGY-2: a single device is the one whose nearest free neighbour is the farthest, so that no pair is broken up that
//!   somebody could have; the lowest number among equals.
//! - TOPOLOGY-3: where all are equally near, the lowest numbers are taken.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// How near two devices on one NUMA node are of which nothing else is known.
const SAME_NUMA: u32 = 20;
/// The same on two NUMA nodes.
const OTHER_NUMA: u32 = 10;
/// Of so many free devices all sets are compared; of more, those that grow from each device.
const COMPARED_MAX: usize = 16;
/// Of so many sets that are alike it is looked at what they leave behind.
const ALIKE_MAX: usize = 256;

/// How near the devices of one resource are to each other, by their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    numa: Vec<Option<u32>>,
    pairs: BTreeMap<(u32, u32), u32>,
}

/// What is said for a set of devices; the larger the better.
type Rank = (Reverse<usize>, u32, u64);

impl Topology {
    /// Devices with the NUMA node of each, and how near pairs are: the larger the nearer. `None` where nothing is known by
    /// which one set could be better than another.
    pub fn new(numa: Vec<Option<u32>>, pairs: impl IntoIterator<Item = ((u32, u32), u32)>) -> Option<Self> {
        let ordered = |((one, other), near): ((u32, u32), u32)| ((one.min(other), one.max(other)), near);
        let topology = Self { pairs: pairs.into_iter().map(ordered).collect(), numa };
        let all: Vec<u32> = (0..topology.numa.len() as u32).collect();
        (!topology.is_even(&all)).then_some(topology)
    }

    /// How near two devices are.
    pub fn nearness(&self, one: u32, other: u32) -> u32 {
        let known = self.pairs.get(&(one.min(other), one.max(other))).copied();
        known.unwrap_or(if self.numa_of(one) == self.numa_of(other) { SAME_NUMA } else { OTHER_NUMA })
    }

    fn numa_of(&self, device: u32) -> Option<u32> {
        self.numa.get(device as usize).copied().flatten()
    }

    /// Which `count` of the free devices, in ascending order, are taken, in ascending order.
    ///
    /// # Panics
    /// Where fewer are free.
    pub fn choose(&self, free: &[u32], count: usize) -> Vec<u32> {
        assert!(count <= free.len(), "{count} of {} devices are no choice", free.len());
        if count == 0 || count == free.len() || self.is_even(free) {
            return free[..count].to_vec();
        }
        if count == 1 {
            let lonely = free.iter().min_by_key(|device| (self.nearest(**device, free), **device));
            return lonely.copied().into_iter().collect();
        }
        let sets = if free.len() <= COMPARED_MAX { sets(free, count) } else { self.grown(free, count) };
        self.best(sets, free, count)
    }

    /// Whether no set of these is better than another of its size.
    fn is_even(&self, devices: &[u32]) -> bool {
        let mut pairs = pairs(devices).map(|(one, other)| self.nearness(one, other));
        let first = pairs.next();
        let numa: BTreeSet<Option<u32>> = devices.iter().map(|device| self.numa_of(*device)).collect();
        numa.len() <= 1 && pairs.all(|near| Some(near) == first)
    }

    /// How near the nearest other one is.
    fn nearest(&self, device: u32, among: &[u32]) -> u32 {
        let others = among.iter().filter(|other| **other != device);
        others.map(|other| self.nearness(device, *other)).max().unwrap_or(0)
    }

    fn rank(&self, set: &[u32]) -> Rank {
        let numa: BTreeSet<Option<u32>> = set.iter().map(|device| self.numa_of(*device)).collect();
        let near = || pairs(set).map(|(one, other)| self.nearness(one, other));
        (Reverse(numa.len()), near().min().unwrap_or(0), near().map(u64::from).sum())
    }

    /// TOPOLOGY-1.
    fn best(&self, sets: Vec<Vec<u32>>, free: &[u32], count: usize) -> Vec<u32> {
        let ranked: Vec<(Rank, Vec<u32>)> = sets.into_iter().map(|set| (self.rank(&set), set)).collect();
        let best = ranked.iter().map(|(rank, _)| *rank).max();
        let mut alike: Vec<Vec<u32>> =
            ranked.into_iter().filter(|(rank, _)| Some(*rank) == best).map(|(_, set)| set).collect();
        alike.sort_unstable();
        let left = |set: &Vec<u32>| {
            let rest: Vec<u32> = free.iter().copied().filter(|device| !set.contains(device)).collect();
            let rest = if rest.len() <= COMPARED_MAX { self::sets(&rest, count) } else { self.grown(&rest, count) };
            rest.iter().map(|set| self.rank(set)).max()
        };
        if alike.len() > 1 && free.len() >= 2 * count {
            alike.truncate(ALIKE_MAX);
            // The first of equals is the last of them when it is looked at from behind.
            return alike.into_iter().rev().max_by_key(left).expect("there is a set");
        }
        alike.into_iter().next().expect("there is a set")
    }

    /// The sets that begin with one device each and take what is nearest to all that they have.
    fn grown(&self, free: &[u32], count: usize) -> Vec<Vec<u32>> {
        let grow = |first: u32| {
            let mut set = vec![first];
            while set.len() < count {
                let others = free.iter().copied().filter(|device| !set.contains(device));
                let ranked = others.map(|other| (self.rank(&[set.as_slice(), &[other]].concat()), Reverse(other)));
                let Some((_, Reverse(next))) = ranked.max() else { break };
                set.push(next);
            }
            set.sort_unstable();
            set
        };
        let grown = free.iter().map(|first| grow(*first));
        grown.filter(|set| set.len() == count).collect()
    }
}

fn pairs(devices: &[u32]) -> impl Iterator<Item = (u32, u32)> {
    let with_later = |(place, one): (usize, &u32)| {
        let one = *one;
        devices[place + 1..].iter().map(move |other| (one, *other))
    };
    devices.iter().enumerate().flat_map(with_later)
}

/// All sets of so many of these.
fn sets(of: &[u32], count: usize) -> Vec<Vec<u32>> {
    let masks = (0..1_u32 << of.len()).filter(|mask| mask.count_ones() as usize == count);
    let set = |mask: u32| (0..of.len()).filter(|place| mask >> place & 1 == 1).map(|place| of[place]).collect();
    masks.map(set).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two NUMA nodes of four, in which 0-1, 2-3, 4-5 and 6-7 are linked.
    fn linked_pairs() -> Topology {
        let numa = (0..8).map(|device| Some(device / 4)).collect();
        let linked = [(0, 1), (2, 3), (4, 5), (6, 7)].map(|pair| (pair, 420));
        Topology::new(numa, linked).expect("some are nearer than others")
    }

    #[test]
    fn where_all_are_alike_the_lowest_are_taken() {
        assert_eq!(Topology::new(vec![Some(0); 8], []), None, "TOPOLOGY-3");
        let all = (0..4).flat_map(|one| (0..one).map(move |other| ((one, other), 1_800)));
        assert_eq!(Topology::new(vec![None; 4], all), None, "one switch for all");
        assert_eq!(linked_pairs().choose(&[0, 2, 4], 0), Vec::<u32>::new());
        let topology = Topology::new(vec![Some(0), Some(0), Some(1)], []).expect("two NUMA nodes");
        assert_eq!(topology.choose(&[0, 1], 1), [0], "these two are alike");
    }

    #[test]
    fn linked_devices_on_one_numa_node_go_together() {
        let topology = linked_pairs();
        let all: Vec<u32> = (0..8).collect();
        assert_eq!(topology.choose(&all, 2), [0, 1]);
        assert_eq!(topology.choose(&[1, 2, 4, 5], 2), [4, 5], "the nearest");
        assert_eq!(topology.choose(&[1, 2, 3, 4, 5, 6, 7], 4), [4, 5, 6, 7], "the fewest NUMA nodes");
        assert_eq!(topology.choose(&[1, 3, 4, 6], 2), [1, 3], "no links: one NUMA node, and the lowest");
        assert_eq!(topology.choose(&[0, 2, 3, 4, 5, 6], 3), [0, 2, 3], "alike, so the lowest");
    }

    #[test]
    fn a_single_device_breaks_up_no_pair() {
        let topology = linked_pairs();
        assert_eq!(topology.choose(&[0, 1, 2, 4, 5], 1), [2], "TOPOLOGY-2");
        assert_eq!(topology.choose(&(0..8).collect::<Vec<_>>(), 1), [0]);
    }

    #[test]
    fn what_is_left_counts_between_equals() {
        // 0-1 and 1-2 are as near as 3-4: whoever takes 0 and 1 leaves 3-4, and so does who takes 1 and 2; who takes 3 and 4
        // leaves a pair, too. Between 0-1 and 1-2 the lower one is taken.
        let topology =
            Topology::new(vec![Some(0); 5], [(0, 1), (1, 2), (3, 4)].map(|pair| (pair, 120))).expect("pairs");
        assert_eq!(topology.choose(&[0, 1, 2, 3, 4], 2), [0, 1]);
        // A chain of four: the middle pair would leave its ends apart.
        let chain = Topology::new(vec![Some(0); 4], [(0, 1), (1, 2), (2, 3)].map(|pair| (pair, 120))).expect("pairs");
        let swapped = Topology::new(vec![Some(0); 4], [(0, 1), (0, 2), (1, 3)].map(|pair| (pair, 120))).expect("pairs");
        assert_eq!(chain.choose(&[0, 1, 2, 3], 2), [0, 1]);
        assert_eq!(swapped.choose(&[0, 1, 2, 3], 2), [0, 2], "0-1 would leave 2 and 3, which are not linked");
    }

    #[test]
    fn many_devices_are_chosen_as_few_are() {
        let numa = (0..32).map(|device| Some(device / 16)).collect();
        let linked = (0..32).step_by(2).map(|device| ((device, device + 1), 420));
        let topology = Topology::new(numa, linked).expect("some are nearer than others");
        let free: Vec<u32> = (1..32).collect();
        assert_eq!(topology.choose(&free, 2), [2, 3]);
        assert_eq!(topology.choose(&free, 1), [1]);
        assert_eq!(topology.choose(&free, 16), (16..32).collect::<Vec<_>>());
    }

    #[test]
    fn the_choice_is_the_best_of_all() {
        // Nearness that looks like chance, and no two sets alike.
        let near = |one: u32, other: u32| (one * 7919 + other * 104_729 + one * other * 31) % 997 + 1;
        let all = (0..9).flat_map(|one| (one + 1..9).map(move |other| ((one, other), near(one, other))));
        let topology = Topology::new((0..9).map(|device| Some(device % 2)).collect(), all).expect("pairs");
        for free_mask in 1..1_u32 << 9 {
            let free: Vec<u32> = (0..9).filter(|device| free_mask >> device & 1 == 1).collect();
            for count in 2..free.len() {
                let chosen = topology.choose(&free, count);
                assert_eq!(chosen.len(), count);
                assert!(chosen.is_sorted() && chosen.iter().all(|device| free.contains(device)), "{chosen:?}");
                let best = sets(&free, count).iter().map(|set| topology.rank(set)).max();
                assert_eq!(Some(topology.rank(&chosen)), best, "{count} of {free:?}");
            }
        }
    }
}
