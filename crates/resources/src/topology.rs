//! How near the devices of one machine are to each other, and which of them go together.
//!
//! - TOPOLOGY-1: of the sets of free devices that have the size that is asked for, that one is taken which spans the fewest
//!   NUMA nodes; of those, the one whose farthest two devices are the nearest, then the one with the largest sum over its
//!   pairs, then the one that leaves the best set of that size behind, and at last the one with the lowest numbers.
//! - TOPOLOGY-2: a single device is the one whose nearest free neighbour is the farthest, so that no pair is broken up that
//!   somebody could have; the lowest number among equals.
//! - TOPOLOGY-3: where all are equally near, and of more than 128, the lowest numbers are taken.

use std::cmp::Reverse;

/// How near two devices on one NUMA node are of which nothing else is known.
const SAME_NUMA: u32 = 20;
/// The same on two NUMA nodes.
const OTHER_NUMA: u32 = 10;
/// Of so many free devices all sets are compared; of more, those that grow from each device, whatever they leave behind.
const COMPARED_MAX: u32 = 16;
/// Of so many sets that are alike it is looked at what they leave behind.
const ALIKE_MAX: usize = 256;
/// Of more devices the lowest numbers are taken.
const DEVICES_MAX: usize = 128;

/// How near the devices of one resource are to each other, by their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Of each device, its NUMA node: a number below that of the devices.
    numa: Vec<u32>,
    /// How near each two are, row by row.
    near: Vec<u32>,
}

/// Devices as the bits of their numbers.
type Set = u128;

/// By which rule devices are taken of those that are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceRule {
    /// No others have room.
    Only,
    /// The fullest that has room (PACKING-2).
    Fullest,
    /// The lowest numbers, since all are equally near to each other, or nothing is known of that (TOPOLOGY-3).
    Lowest,
    /// The one whose nearest free neighbour is the farthest (TOPOLOGY-2).
    Apart,
    /// Several that are the nearest to each other (TOPOLOGY-1).
    Nearest {
        /// On how many NUMA nodes they are.
        numa_nodes: u32,
        /// How near the two are that are the farthest from each other.
        farthest: u32,
        /// How near the two are that are the nearest.
        nearest: u32,
    },
}

/// What is said for a set of devices; the larger the better.
type Rank = (Reverse<u32>, u32, u64);

impl Topology {
    /// Devices with the NUMA node of each, and how near pairs are: the larger the nearer. `None` where nothing is known by
    /// which one set could be better than another.
    pub fn new(numa: &[Option<u32>], pairs: impl IntoIterator<Item = ((u32, u32), u32)>) -> Option<Self> {
        let count = numa.len();
        if count > DEVICES_MAX {
            return None;
        }
        let is_same = |one: usize, other: usize| numa[one] == numa[other];
        let of_numa = |place: usize| if is_same(place / count, place % count) { SAME_NUMA } else { OTHER_NUMA };
        let mut near: Vec<u32> = (0..count * count).map(of_numa).collect();
        for ((one, other), nearness) in pairs {
            let (one, other) = (one as usize, other as usize);
            if one < count && other < count {
                (near[one * count + other], near[other * count + one]) = (nearness, nearness);
            }
        }
        let first_on = |node: &Option<u32>| numa.iter().position(|other| other == node).unwrap_or(0) as u32;
        let topology = Self { numa: numa.iter().map(first_on).collect(), near };
        (!topology.is_even(lowest(count))).then_some(topology)
    }

    /// Which `count` of the free devices, in ascending order, are taken, in ascending order.
    ///
    /// # Panics
    /// Where fewer are free.
    pub fn choose(&self, free: &[u32], count: usize) -> Vec<u32> {
        assert!(count <= free.len(), "{count} of {} devices are no choice", free.len());
        let all = free.iter().fold(0, |set, device| set | 1 << device);
        if count == 0 || count == free.len() || self.is_even(all) {
            return free[..count].to_vec();
        }
        let chosen = match count as u32 {
            1 => bits(all)
                .max_by_key(|device| (Reverse(self.nearest(*device, all)), Reverse(*device)))
                .map(|one| 1 << one),
            count if all.count_ones() <= COMPARED_MAX => self.best(all, count),
            count => bits(all).map(|first| self.grown(first, all, count)).max_by_key(|set| self.order(*set)),
        };
        bits(chosen.expect("there is a set of that size")).collect()
    }

    /// By which rule these were taken of those that are free.
    pub(crate) fn rule(&self, chosen: &[u32], free: &[u32]) -> ChoiceRule {
        let set = |devices: &[u32]| devices.iter().fold(0, |set: Set, device| set | 1 << device);
        if self.is_even(set(free)) {
            return ChoiceRule::Lowest;
        }
        if chosen.len() == 1 {
            return ChoiceRule::Apart;
        }
        let chosen = set(chosen);
        let (Reverse(numa_nodes), farthest, _) = self.rank(chosen);
        let nearest = pairs(chosen).map(|(one, other)| self.nearness(one, other)).max().unwrap_or(farthest);
        ChoiceRule::Nearest { numa_nodes, farthest, nearest }
    }

    /// What it is made of, to be told elsewhere: of each device, by its number, the number of the first one that is on the same NUMA
    /// node; and how near each two are, row by row. `None` of so many devices that a choice takes long.
    pub fn parts(&self) -> Option<(&[u32], &[u32])> {
        (self.numa.len() <= COMPARED_MAX as usize).then_some((&self.numa, &self.near))
    }

    /// What [`parts`](Self::parts) said of a machine; `None` where nothing follows from that.
    pub fn of_parts(numa: &[u32], near: &[u32]) -> Option<Self> {
        let count = numa.len();
        if count > COMPARED_MAX as usize || near.len() != count * count {
            return None;
        }
        let later = |one: usize| (one + 1..count).map(move |other| (one, other));
        let each = (0..count).flat_map(later).map(|(one, other)| {
            let nearness = near[one * count + other];
            ((one as u32, other as u32), nearness)
        });
        Self::new(&numa.iter().copied().map(Some).collect::<Vec<_>>(), each)
    }

    /// Whether it says something of a device.
    pub(crate) fn has(&self, device: u32) -> bool {
        (device as usize) < self.numa.len()
    }

    /// How near two devices are.
    fn nearness(&self, one: u32, other: u32) -> u32 {
        self.near[one as usize * self.numa.len() + other as usize]
    }

    /// Whether no set of these is better than another of its size.
    fn is_even(&self, devices: Set) -> bool {
        let first = bits(devices).next().unwrap_or(0);
        let mut nearness = pairs(devices).map(|(one, other)| self.nearness(one, other));
        let of_first = nearness.next();
        nearness.all(|near| Some(near) == of_first)
            && bits(devices).all(|device| self.numa[device as usize] == self.numa[first as usize])
    }

    /// How near the nearest other one is.
    fn nearest(&self, device: u32, among: Set) -> u32 {
        bits(among & !(1 << device)).map(|other| self.nearness(device, other)).max().unwrap_or(0)
    }

    fn rank(&self, set: Set) -> Rank {
        let numa = bits(set).fold(0, |nodes: Set, device| nodes | 1 << self.numa[device as usize]);
        let (mut farthest, mut sum) = (u32::MAX, 0);
        for (one, other) in pairs(set) {
            let near = self.nearness(one, other);
            farthest = farthest.min(near);
            sum += u64::from(near);
        }
        (Reverse(numa.count_ones()), farthest, sum)
    }

    /// The rank, and between equals the lowest numbers: those of a set stand highest when its bits are read backwards.
    fn order(&self, set: Set) -> (Rank, Set) {
        (self.rank(set), set.reverse_bits())
    }

    /// TOPOLOGY-1.
    fn best(&self, free: Set, count: u32) -> Option<Set> {
        let best = sets(free, count).map(|set| self.rank(set)).max()?;
        let mut alike: Vec<Set> = sets(free, count).filter(|set| self.rank(*set) == best).collect();
        alike.sort_unstable_by_key(|set| Reverse(set.reverse_bits()));
        alike.truncate(ALIKE_MAX);
        let left = |set: Set| sets(free & !set, count).map(|set| self.rank(set)).max();
        alike.into_iter().max_by_key(|set| (left(*set), set.reverse_bits()))
    }

    /// The set that begins with one device and takes what is nearest to all that it has.
    fn grown(&self, first: u32, free: Set, count: u32) -> Set {
        (1..count).fold(1 << first, |set, _| {
            let grown = bits(free & !set).map(|other| set | 1 << other);
            grown.max_by_key(|set| self.order(*set)).unwrap_or(set)
        })
    }
}

/// The set of so many devices with the lowest numbers.
fn lowest(count: usize) -> Set {
    (0..count).fold(0, |set, device| set | 1 << device)
}

/// The devices of a set, in ascending order.
fn bits(set: Set) -> impl Iterator<Item = u32> + Clone {
    let mut left = set;
    std::iter::from_fn(move || {
        let next = (left != 0).then(|| left.trailing_zeros())?;
        left &= left - 1;
        Some(next)
    })
}

fn pairs(set: Set) -> impl Iterator<Item = (u32, u32)> {
    let later = move |one: u32| bits(set & (Set::MAX << one) & !(1 << one)).map(move |other| (one, other));
    bits(set).flat_map(later)
}

/// All sets of so many of these, of which there are [`COMPARED_MAX`] at most.
fn sets(of: Set, count: u32) -> impl Iterator<Item = Set> {
    let devices: Vec<u32> = bits(of).collect();
    let masks = (0..1_u32 << devices.len()).filter(move |mask| mask.count_ones() == count);
    masks.map(move |mask| bits(mask.into()).fold(0, |set, place| set | 1 << devices[place as usize]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two NUMA nodes of four, in which 0-1, 2-3, 4-5 and 6-7 are linked.
    fn linked_pairs() -> Topology {
        let numa: Vec<_> = (0..8).map(|device| Some(device / 4)).collect();
        let linked = [(0, 1), (2, 3), (4, 5), (6, 7)].map(|pair| (pair, 420));
        Topology::new(&numa, linked).expect("some are nearer than others")
    }

    #[test]
    fn where_all_are_alike_the_lowest_are_taken() {
        assert_eq!(Topology::new(&[Some(0); 8], []), None, "TOPOLOGY-3");
        assert_eq!(Topology::new(&(0..200).map(Some).collect::<Vec<_>>(), []), None, "too many to compare");
        let all = (0..4).flat_map(|one| (0..one).map(move |other| ((one, other), 1_800)));
        assert_eq!(Topology::new(&[None; 4], all), None, "one switch for all");
        assert_eq!(linked_pairs().choose(&[0, 2, 4], 0), Vec::<u32>::new());
        let topology = Topology::new(&[Some(0), Some(0), Some(1)], []).expect("two NUMA nodes");
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
    fn a_topology_is_made_again_of_its_parts() {
        let topology = linked_pairs();
        let (numa, near) = topology.parts().expect("they are few");
        assert_eq!(Topology::of_parts(numa, near), Some(topology.clone()));
        assert_eq!(Topology::of_parts(numa, &near[1..]), None, "a peer may say anything");
        assert_eq!(Topology::of_parts(&[7; 17], &[1; 17 * 17]), None);
        assert_eq!(Topology::of_parts(&[], &[]), None);
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
        let topology = Topology::new(&[Some(0); 5], [(0, 1), (1, 2), (3, 4)].map(|pair| (pair, 120))).expect("pairs");
        assert_eq!(topology.choose(&[0, 1, 2, 3, 4], 2), [0, 1]);
        // A chain of four: the middle pair would leave its ends apart.
        let chain = Topology::new(&[Some(0); 4], [(0, 1), (1, 2), (2, 3)].map(|pair| (pair, 120))).expect("pairs");
        let swapped = Topology::new(&[Some(0); 4], [(0, 1), (0, 2), (1, 3)].map(|pair| (pair, 120))).expect("pairs");
        assert_eq!(chain.choose(&[0, 1, 2, 3], 2), [0, 1]);
        assert_eq!(swapped.choose(&[0, 1, 2, 3], 2), [0, 2], "0-1 would leave 2 and 3, which are not linked");
    }

    #[test]
    fn many_devices_are_chosen_as_few_are() {
        let numa: Vec<_> = (0..32).map(|device| Some(device / 16)).collect();
        let linked = (0..32).step_by(2).map(|device| ((device, device + 1), 420));
        let topology = Topology::new(&numa, linked).expect("some are nearer than others");
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
        let topology = Topology::new(&(0..9).map(|device| Some(device % 2)).collect::<Vec<_>>(), all).expect("pairs");
        for free_mask in 1..1_u32 << 9 {
            let free: Vec<u32> = (0..9).filter(|device| free_mask >> device & 1 == 1).collect();
            for count in 2..free.len() {
                let chosen = topology.choose(&free, count);
                assert_eq!(chosen.len(), count);
                assert!(chosen.is_sorted() && chosen.iter().all(|device| free.contains(device)), "{chosen:?}");
                let set = |devices: &[u32]| devices.iter().fold(0, |set, device| set | 1 << device);
                let best = sets(set(&free), count as u32).map(|set| topology.rank(set)).max();
                assert_eq!(Some(topology.rank(set(&chosen))), best, "{count} of {free:?}");
            }
        }
    }
}
