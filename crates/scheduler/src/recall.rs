//! Which leases are recalled so that who waits may start.
//!
//! A recalled lease ends when its owner has what it sent ahead; until then it is *coming*.
//!
//! - RECALL-1: nothing is recalled for somebody for whom what is free and what is coming is enough.
//! - RECALL-2: of what is recalled for somebody, each lease is needed: without any one of them there would be no room.
//! - RECALL-3: a lease is recalled only from a claimant that stands behind the one that waits (ORDER-2), with what was
//!   recalled before it counted, so that nobody falls below the share of whoever gains by it. In one look one gains or loses.
//!
//! What is free on devices is known device by device, what leases hold is not: that a device has room for a share is only
//! seen when a lease is back. Where it has none after all, there is another look.
//!
//! # Cost
//! With `l` leases and `r` recalls: O(l · r). The caller bounds both.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use oxiray_ids::NodeId;
use oxiray_resources::{Demand, Quantity, ResourceName, ResourceNeed, memory_of};

use crate::{Asks, Claimant, NodeView, ResourceRequest, Shares, Standing};

/// A worker that a client of job `J` may run tasks on, until it is asked to give it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLease<L, J> {
    /// Names it.
    pub lease: L,
    /// In whose name.
    pub claimant: Claimant<J>,
    /// Where it is.
    pub node: NodeId,
    /// What is free once it is back.
    pub demand: Demand,
}

/// Those of one job that wait for the same.
#[derive(Clone, Debug)]
pub struct Waiter<J> {
    /// In whose name.
    pub claimant: Claimant<J>,
    /// What each of them waits for.
    pub resource_request: ResourceRequest,
    /// How many they are.
    pub count: usize,
}

/// What is recalled for one who waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recall<L> {
    /// For which of the waiters.
    pub waiter: usize,
    /// The leases, all of which it needs.
    pub leases: Vec<L>,
}

/// A machine on which something is coming or may be recalled.
#[derive(Debug)]
struct MachineResource<'views> {
    view: &'views NodeView,
    /// What comes back, or is to.
    coming: Vec<Demand>,
    /// What those who wait will take of it.
    promised: Vec<Demand>,
}

impl MachineResource<'_> {
    fn units<'demands>(&self, demands: impl Iterator<Item = &'demands Demand>, name: &ResourceName) -> u64 {
        demands.map(|demand| self.units_of(demand, name)).fold(0, u64::saturating_add)
    }

    /// How much of a resource a demand has: of memory of devices what its share stands for, and of a share what its memory
    /// is of the largest device.
    fn units_of(&self, demand: &Demand, name: &ResourceName) -> u64 {
        let (of_name, memory) = (demand.get(name.as_str()).units(), ResourceName::GPU_MEMORY);
        if name != &memory && name != memory.source() {
            return of_name;
        }
        let size_bytes = self.view.inventory.most(&memory).wholes();
        let of_other = match demand.asked_of(memory.source()) {
            ResourceNeed::Amount(share) if *name == memory => {
                memory_of(share.min(Quantity::ONE), size_bytes).saturating_mul(Quantity::UNITS_PER_WHOLE)
            }
            ResourceNeed::Memory(bytes) if *name != memory => {
                (u128::from(bytes) * u128::from(Quantity::UNITS_PER_WHOLE) / u128::from(size_bytes.max(1))) as u64
            }
            _ => 0,
        };
        of_name.saturating_add(of_other)
    }

    /// The resources of which there is too little, with what is coming and with `more`.
    fn lacking<'asked>(
        &'asked self,
        demand: &'asked Demand,
        more: Option<&'asked Demand>,
    ) -> impl Iterator<Item = &'asked ResourceName> {
        let is_short = move |(name, asked): &(&ResourceName, Quantity)| {
            let free = if name.source().is_device() {
                let devices = self.view.free_devices.get(name.source());
                devices.map(|devices| devices.obtainable(ResourceNeed::of(name, *asked)))
            } else {
                Some(self.view.free_of(name))
            };
            let free = free.map_or(0, Quantity::units);
            let there = free.saturating_add(self.units(self.coming.iter().chain(more), name));
            there.saturating_sub(self.units(self.promised.iter(), name)) < asked.units()
        };
        demand.iter().filter(is_short).map(|(name, _)| name)
    }

    fn has_room(&self, demand: &Demand) -> bool {
        self.lacking(demand, None).next().is_none()
    }
}

/// Who waits, what is coming and what may be recalled: one look at all of it.
#[derive(Debug)]
struct Look<'views, L, J> {
    shares: Shares<J>,
    rooms: BTreeMap<NodeId, MachineResource<'views>>,
    /// Those that may be recalled, in the order in which that is preferred.
    over: Vec<HeldLease<L, J>>,
    gained: BTreeSet<Claimant<J>>,
    lost: BTreeSet<Claimant<J>>,
}

/// Plans recalls, `most` leases at the most.
///
/// `waiters` stand in the order in which they came, `coming` are the leases that were recalled and are not back, and
/// `over` those whose term is over, the oldest first. `views` are the machines of all those leases; a lease on any other is
/// left alone.
pub fn recalls<L: Copy + Eq, J: Copy + Ord>(
    shares: &Shares<J>,
    waiters: &[Waiter<J>],
    views: &BTreeMap<NodeId, NodeView>,
    coming: &[HeldLease<L, J>],
    over: Vec<HeldLease<L, J>>,
    most: usize,
) -> Vec<Recall<L>> {
    let rooms =
        views.iter().map(|(node, view)| (*node, MachineResource { view, coming: Vec::new(), promised: Vec::new() }));
    let (rooms, gained, lost) = (rooms.collect(), BTreeSet::new(), BTreeSet::new());
    let mut look = Look { shares: shares.clone(), rooms, over, gained, lost };
    for lease in coming {
        look.comes(lease);
    }
    let waiting = waiters.iter().enumerate().filter(|(_, waiter)| !waiter.resource_request.demand.is_nothing());
    let mut left: Vec<(usize, usize)> = waiting.map(|(index, waiter)| (index, waiter.count.min(most))).collect();
    let (mut found, mut recalled) = (Vec::new(), 0);
    while let Some(position) = look.first(waiters, &left)
        && recalled < most
    {
        let waiter = left[position].0;
        match look.make_room(&waiters[waiter]) {
            Some(leases) => {
                recalled += leases.len();
                left[position].1 -= 1;
                if !leases.is_empty() {
                    found.push(Recall { waiter, leases });
                }
            }
            None => left[position].1 = 0,
        }
        if left[position].1 == 0 {
            left.remove(position);
        }
    }
    found
}

impl<L: Copy + Eq, J: Copy + Ord> Look<'_, L, J> {
    fn standing(&self, claimant: Claimant<J>, resource_request: &ResourceRequest) -> Standing {
        self.shares.standing(claimant, resource_request.demands())
    }

    /// Which of those that are left is served first.
    fn first(&self, waiters: &[Waiter<J>], left: &[(usize, usize)]) -> Option<usize> {
        let rank = |position: &usize| {
            let index = left[*position].0;
            self.shares.rank(waiters[index].claimant, waiters[index].resource_request.demands(), index as u64)
        };
        (0..left.len()).min_by_key(rank)
    }

    /// The lease is on its way back: its job holds it no more.
    fn comes(&mut self, lease: &HeldLease<L, J>) {
        let Some(room) = self.rooms.get_mut(&lease.node) else { return };
        room.coming.push(lease.demand.clone());
        self.shares.give_back(lease.claimant.job, &lease.demand);
    }

    fn comes_not(&mut self, lease: &HeldLease<L, J>) {
        let Some(room) = self.rooms.get_mut(&lease.node) else { return };
        let position = room.coming.iter().rposition(|demand| *demand == lease.demand);
        room.coming.swap_remove(position.expect("it was coming"));
        self.shares.take(lease.claimant.job, &lease.demand);
    }

    /// The leases by whose recall there is room for one more; none at all where there will be (RECALL-1).
    fn make_room(&mut self, waiter: &Waiter<J>) -> Option<Vec<L>> {
        let demand = &waiter.resource_request.demand;
        let allowed = self.rooms.iter().filter(|(_, room)| waiter.resource_request.may_be_met_on(room.view));
        let allowed: Vec<NodeId> = allowed.map(|(node, _)| *node).collect();
        let ready = allowed.iter().find(|node| self.rooms[*node].has_room(demand)).copied();
        let (node, recalled) = match ready {
            Some(node) => (node, Vec::new()),
            None if self.lost.contains(&waiter.claimant) => return None,
            None => self.fewest(&allowed, waiter)?,
        };
        if !recalled.is_empty() {
            self.gained.insert(waiter.claimant);
        }
        for lease in &recalled {
            self.comes(lease);
            self.lost.insert(lease.claimant);
            self.over.retain(|other| other.lease != lease.lease);
        }
        self.rooms.get_mut(&node).expect("it was just found").promised.push(demand.clone());
        self.shares.take(waiter.claimant.job, demand);
        Some(recalled.into_iter().map(|lease| lease.lease).collect())
    }

    /// The machine where the fewest leases are enough, the one with the oldest lease among equals.
    fn fewest(&mut self, allowed: &[NodeId], waiter: &Waiter<J>) -> Option<(NodeId, Vec<HeldLease<L, J>>)> {
        let mut nodes: Vec<NodeId> = Vec::new();
        for lease in &self.over {
            if allowed.contains(&lease.node) && !nodes.contains(&lease.node) {
                nodes.push(lease.node);
            }
        }
        let mut best: Option<(NodeId, Vec<HeldLease<L, J>>)> = None;
        for node in nodes {
            let Some(needed) = self.needed_on(node, waiter) else { continue };
            let is_better = best.as_ref().is_none_or(|(_, known)| needed.len() < known.len());
            if is_better {
                let is_least = needed.len() == 1;
                best = Some((node, needed));
                if is_least {
                    break;
                }
            }
        }
        best
    }

    /// RECALL-2, RECALL-3.
    fn needed_on(&mut self, node: NodeId, waiter: &Waiter<J>) -> Option<Vec<HeldLease<L, J>>> {
        let demand = &waiter.resource_request.demand;
        let waits = self.standing(waiter.claimant, &waiter.resource_request);
        let mut left: Vec<HeldLease<L, J>> = self.over.iter().filter(|lease| lease.node == node).cloned().collect();
        let mut taken = Vec::new();
        while !self.rooms[&node].has_room(demand) {
            let room = &self.rooms[&node];
            let lacking: Vec<&ResourceName> = room.lacking(demand, None).collect();
            let helps = |lease: &HeldLease<L, J>| {
                let has_some = lacking.iter().any(|name| room.units_of(&lease.demand, name) > 0);
                let holder = self.standing(lease.claimant, &waiter.resource_request);
                let may_be = lease.claimant != waiter.claimant && !self.gained.contains(&lease.claimant);
                let is_enough = || room.lacking(demand, Some(&lease.demand)).next().is_none();
                (has_some && may_be && waits.may_recall_from(holder)).then(|| (is_enough(), holder))
            };
            let candidates = left.iter().enumerate().filter_map(|(index, lease)| Some((helps(lease)?, Reverse(index))));
            // One that is enough where there is any; of the job that stands last; the oldest.
            let Some((_, Reverse(index))) = candidates.max() else { break };
            let lease = left.remove(index);
            self.comes(&lease);
            taken.push(lease);
        }
        let is_enough = self.rooms[&node].has_room(demand);
        if is_enough {
            self.spare_some(node, demand, &mut taken);
        }
        for lease in &taken {
            self.comes_not(lease);
        }
        is_enough.then_some(taken)
    }

    /// RECALL-2: a lease that was taken for one resource may be spared by another that was taken for the next.
    fn spare_some(&mut self, node: NodeId, demand: &Demand, taken: &mut Vec<HeldLease<L, J>>) {
        let mut index = 0;
        while index < taken.len() {
            self.comes_not(&taken[index]);
            if self.rooms[&node].has_room(demand) {
                taken.remove(index);
            } else {
                self.comes(&taken[index]);
                index += 1;
            }
        }
    }
}
