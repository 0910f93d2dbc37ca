//! The search for the machines of a placement group.
//!
//! Bundles that ask for the same are one kind, and each kind's machines are one set of bits, so that what a bundle costs
//! does not grow with the machines: who has no room for a kind any more leaves the kind's set.
//!
//! Packing is a puzzle that has no fast solution in general. Where the obvious ways fail, others are tried up to a limit.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::GroupStrategy;
use crate::bits::Bits;
use crate::machine::{Machine, MachineResources, ResourceAmount, sum_of};

/// How often a bundle is tried on a machine before the search for another way gives up.
const STEPS_MAX: u32 = 1_000;

/// Bundles that ask for the same.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) needs: Vec<ResourceAmount>,
    /// The machines that have room for one of them alone, and may be taken.
    pub(crate) fits: Bits,
}

/// No way of placing a group was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoWay {
    /// Whether every way was ruled out.
    pub(crate) is_proven: bool,
}

const IMPOSSIBLE: NoWay = NoWay { is_proven: true };

/// Machines by their slot.
pub(crate) type Slots = Result<Vec<u32>, NoWay>;

/// What is searched for, and among what.
pub(crate) struct Search<'fleet> {
    pub(crate) machines: &'fleet [Option<Machine>],
    /// Whether to take each machine as it is with nothing running.
    pub(crate) is_emptied: bool,
    pub(crate) strategy: GroupStrategy,
    pub(crate) kinds: Vec<Kind>,
    /// The kind of each bundle.
    pub(crate) bundles: Vec<usize>,
    /// Where others of the group's bundles are, each as often as there are.
    pub(crate) standing: Vec<u32>,
    /// The machine to try first.
    pub(crate) preferred: Option<u32>,
}

impl Search<'_> {
    /// GROUP-2.
    pub(crate) fn run(&self) -> Slots {
        if self.kinds.iter().any(|kind| kind.fits.count() == 0) || !self.is_enough_in_sum() {
            return Err(IMPOSSIBLE);
        }
        match self.strategy {
            GroupStrategy::StrictPack => self.on_one(),
            GroupStrategy::StrictSpread => self.each_on_its_own(),
            GroupStrategy::Pack => self.on_one().or_else(|_| self.in_any_way()),
            GroupStrategy::Spread => self.each_on_its_own().or_else(|_| self.in_any_way()),
        }
    }

    /// GROUP-4: on the machines of one of the domains.
    pub(crate) fn run_in_one_of(self, domains: &[Vec<u32>]) -> Slots {
        let Self { machines, is_emptied, strategy, kinds, bundles, standing, preferred } = self;
        let mut is_proven = true;
        for domain in domains.iter().filter(|domain| standing.iter().all(|slot| domain.contains(slot))) {
            let among = Bits::of(domain.iter().copied());
            let kind = |kind: &Kind| Kind { needs: kind.needs.clone(), fits: kind.fits.clone().and(&among) };
            let kinds = kinds.iter().map(kind).collect();
            let (bundles, standing) = (bundles.clone(), standing.clone());
            match (Search { machines, is_emptied, strategy, kinds, bundles, standing, preferred }).run() {
                Ok(slots) => return Ok(slots),
                Err(none) => is_proven &= none.is_proven,
            }
        }
        Err(NoWay { is_proven })
    }

    fn in_any_way(&self) -> Slots {
        let scarce_first = self.scarce_first();
        let totals = self.totals();
        let size = |bundle: &usize| self.needs(*bundle).iter().map(|need| need.part_of(&totals)).max();
        let mut large_first = scarce_first.clone();
        large_first.sort_by_key(|bundle| std::cmp::Reverse(size(bundle)));
        let filled = self.fill(&scarce_first).or_else(|| self.fill(&large_first));
        filled.map_or_else(|| Trial::new(self, &scarce_first).run(), Ok)
    }

    fn needs(&self, bundle: usize) -> &[ResourceAmount] {
        &self.kinds[self.bundles[bundle]].needs
    }

    fn machine(&self, slot: u32) -> &Machine {
        self.machines[slot as usize].as_ref().expect("only machines that are there have room")
    }

    fn rooms(&self, slot: u32) -> MachineResources {
        let machine = self.machine(slot);
        if self.is_emptied { machine.emptied_rooms() } else { machine.rooms().clone() }
    }

    /// The machines that have room for any.
    fn machines_of_all(&self) -> Bits {
        Bits::of(self.kinds.iter().flat_map(|kind| kind.fits.iter()))
    }

    /// The bundles, those with the fewest machines first.
    fn scarce_first(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.bundles.len()).collect();
        order.sort_by_key(|bundle| self.kinds[self.bundles[*bundle]].fits.count());
        order
    }

    fn totals(&self) -> Vec<ResourceAmount> {
        sum_of(self.bundles.iter().map(|kind| self.kinds[*kind].needs.as_slice()))
    }

    /// Whether all machines together have as much as all bundles together ask for.
    fn is_enough_in_sum(&self) -> bool {
        let totals = self.totals();
        let mut left: Vec<u64> = totals.iter().map(ResourceAmount::units).collect();
        for machine in self.machines.iter().flatten() {
            let sums = machine.rooms().sums(&totals, self.is_emptied);
            left.iter_mut().zip(sums).for_each(|(left, free)| *left = left.saturating_sub(free.units()));
            if left.iter().all(|left| *left == 0) {
                return true;
            }
        }
        left.iter().all(|left| *left == 0)
    }

    fn on_one(&self) -> Slots {
        let totals = self.totals();
        let all: Vec<&[ResourceAmount]> = (0..self.bundles.len()).map(|bundle| self.needs(bundle)).collect();
        let first = self.kinds[0].fits.clone();
        let among = self.kinds[1..].iter().fold(first, |among, kind| among.and(&kind.fits));
        let before = || self.preferred.iter().chain(&self.standing).copied().filter(|slot| among.contains(*slot));
        let mut is_proven = true;
        for slot in before().chain(among.iter()) {
            let sums = self.machine(slot).rooms().sums(&totals, self.is_emptied);
            if totals.iter().zip(sums).any(|(need, free)| need.units() > free.units()) {
                continue;
            }
            match self.rooms(slot).fit_together(&all) {
                Ok(()) => return Ok(vec![slot; all.len()]),
                Err(none) => is_proven &= none.is_proven,
            }
        }
        Err(NoWay { is_proven })
    }

    /// A machine for each bundle, each used once: a bundle may push another to where it fits too.
    fn each_on_its_own(&self) -> Slots {
        let mut free = self.machines_of_all();
        free.remove_all(&self.standing);
        let mut matching = Matching {
            search: self,
            usable: free.clone(),
            free,
            unvisited: Bits::default(),
            owner: FxHashMap::default(),
        };
        for bundle in self.scarce_first() {
            matching.unvisited = matching.usable.clone();
            if !matching.find_own(bundle) {
                return Err(IMPOSSIBLE);
            }
        }
        let mut chosen = vec![0; self.bundles.len()];
        for (slot, bundle) in matching.owner {
            chosen[bundle] = slot;
        }
        Ok(chosen)
    }

    /// One bundle after the other goes where it fits: none is moved again.
    fn fill(&self, order: &[usize]) -> Option<Vec<u32>> {
        let mut fits: Vec<Bits> = self.kinds.iter().map(|kind| kind.fits.clone()).collect();
        let mut levels = Levels::new(self);
        let mut rooms: FxHashMap<u32, MachineResources> = FxHashMap::default();
        let mut chosen = vec![0; self.bundles.len()];
        for bundle in order {
            let kind = self.bundles[*bundle];
            let slot = loop {
                let slot = levels.next(self.strategy, &fits[kind])?;
                if rooms.entry(slot).or_insert_with(|| self.rooms(slot)).take(&self.kinds[kind].needs) {
                    break slot;
                }
                fits[kind].set(slot, false);
            };
            levels.put(slot);
            chosen[*bundle] = slot;
        }
        let mut given: BTreeMap<u32, Vec<&[ResourceAmount]>> = BTreeMap::new();
        for (bundle, slot) in chosen.iter().enumerate() {
            given.entry(*slot).or_default().push(self.needs(bundle));
        }
        // The ledger takes them in the order of the bundles.
        let is_good = given.iter().all(|(slot, all)| all.len() == 1 || self.rooms(*slot).fit_together(all).is_ok());
        is_good.then_some(chosen)
    }
}

/// How many bundles each machine has.
struct Levels {
    count: FxHashMap<u32, usize>,
    /// The machines that have so many.
    at: Vec<Bits>,
    /// Those that have some.
    used: Bits,
}

impl Levels {
    fn new(search: &Search<'_>) -> Self {
        let unused = search.machines_of_all();
        let mut levels = Self { count: FxHashMap::default(), at: vec![unused], used: Bits::default() };
        for slot in &search.standing {
            levels.put(*slot);
        }
        levels
    }

    fn put(&mut self, slot: u32) {
        let count = self.count.entry(slot).or_default();
        self.at[*count].set(slot, false);
        *count += 1;
        if *count == self.at.len() {
            self.at.push(Bits::default());
        }
        self.at[*count].set(slot, true);
        self.used.set(slot, true);
    }

    /// The machine among `fits` to try next: for those that pack one that has some already, for those that spread one of
    /// those that have fewest.
    fn next(&self, strategy: GroupStrategy, fits: &Bits) -> Option<u32> {
        match strategy {
            GroupStrategy::Spread => self.at.iter().find_map(|level| fits.first_in_all(&[level], 0)),
            _ => fits.first_in_all(&[&self.used], 0).or_else(|| fits.first_in_all(&[], 0)),
        }
    }
}

/// Who has which machine.
struct Matching<'search> {
    search: &'search Search<'search>,
    usable: Bits,
    free: Bits,
    /// Those whose owner was not asked yet to go elsewhere.
    unvisited: Bits,
    owner: FxHashMap<u32, usize>,
}

impl Matching<'_> {
    fn find_own(&mut self, bundle: usize) -> bool {
        let fits = &self.search.kinds[self.search.bundles[bundle]].fits;
        let mut next = fits.first_in_all(&[&self.free], 0);
        let mut is_found = next.is_some();
        while !is_found {
            next = fits.first_in_all(&[&self.unvisited], 0);
            let Some(slot) = next else { return false };
            self.unvisited.set(slot, false);
            is_found = self.find_own(self.owner[&slot]);
        }
        let slot = next.expect("it was just found");
        self.free.set(slot, false);
        self.owner.insert(slot, bundle);
        true
    }
}

/// Tries bundle after bundle on machine after machine, the likeliest first.
struct Trial<'search> {
    search: &'search Search<'search>,
    order: &'search [usize],
    given: BTreeMap<u32, Vec<usize>>,
    chosen: Vec<u32>,
    steps_left: u32,
    is_proven: bool,
}

impl<'search> Trial<'search> {
    fn new(search: &'search Search<'search>, order: &'search [usize]) -> Self {
        let chosen = vec![0; order.len()];
        Self { search, order, given: BTreeMap::new(), chosen, steps_left: STEPS_MAX, is_proven: true }
    }

    fn run(mut self) -> Slots {
        if self.place(0) { Ok(self.chosen) } else { Err(NoWay { is_proven: self.is_proven }) }
    }

    fn place(&mut self, depth: usize) -> bool {
        let Some(&bundle) = self.order.get(depth) else { return true };
        let search = self.search;
        let fits = &search.kinds[search.bundles[bundle]].fits;
        let mut used: Vec<(usize, u32)> = self.given.iter().map(|(slot, given)| (given.len(), *slot)).collect();
        used.retain(|(count, slot)| *count > 0 && fits.contains(*slot));
        let is_used = Bits::of(used.iter().map(|(_, slot)| *slot));
        let unused = fits.iter().filter(|slot| !is_used.contains(*slot));
        let (mut before, mut after) = (used, Vec::new());
        if search.strategy == GroupStrategy::Spread {
            before.sort_unstable();
            std::mem::swap(&mut before, &mut after);
        }
        let slot = |(_, slot)| slot;
        for slot in before.into_iter().map(slot).chain(unused).chain(after.into_iter().map(slot)) {
            if self.steps_left == 0 {
                self.is_proven = false;
                return false;
            }
            self.steps_left -= 1;
            if self.try_on(slot, bundle, depth) {
                return true;
            }
        }
        false
    }

    fn try_on(&mut self, slot: u32, bundle: usize, depth: usize) -> bool {
        let given = self.given.entry(slot).or_default();
        given.push(bundle);
        given.sort_unstable();
        let all: Vec<&[ResourceAmount]> = given.iter().map(|bundle| self.search.needs(*bundle)).collect();
        let together = self.search.rooms(slot).fit_together(&all);
        self.chosen[bundle] = slot;
        match together {
            Ok(()) if self.place(depth + 1) => return true,
            Ok(()) => {}
            Err(none) => self.is_proven &= none.is_proven,
        }
        // The next may find room without it.
        if let Some(given) = self.given.get_mut(&slot) {
            given.retain(|other| *other != bundle);
        }
        false
    }
}
