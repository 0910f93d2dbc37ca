//! What each job holds, and which leases are taken back while somebody of another job waits.
//!
//! A lease has a *term*. While its term runs nobody takes it back; once that is over it may be *recalled*: its owner sends
//! nothing more to the worker, and gives it back when what it had sent is done. Nothing is recalled where only one job
//! holds and waits: it would take from itself.
//!
//! What is to be done comes back from [`Fairness::look`]; who calls it tells the owners, and calls again when
//! [`Fairness::next_look`] says so. Where this says "job", what a job has with different priorities counts as several
//! ([`Claimant`]), whose shares are those of the one job.
//!
//! - FAIR-1: what a job holds is counted once for each worker, order and group, whatever becomes of them.
//! - FAIR-2: a lease is recalled once, after its term, and only as `oxiray_scheduler::recalls` allows. Actors and
//!   the bundles of placement groups count as held, and are never recalled; what runs within a group is held by the group.
//! - FAIR-3: who waits counts on a recalled lease for one more term. Where it is not back by then, since what runs there
//!   takes long, another may be recalled in its place.
//! - FAIR-4: leases of which somebody needs several come back one after the other. Meanwhile the jobs that had them are not
//!   given what is back, for [`KEPT_LIMIT`] and then for long not again: a task that holds one of them may wait for another
//!   task of its job.

use crate::preemption::Victim;
use oxiray_ids::{JobId, NodeId, PlacementGroupId};
use oxiray_resources::{Demand, Inventory, Quantity, ResourceName};
use oxiray_scheduler::{
    Asks as _, Claimant, HeldLease, HeldPart, NodeView, Priority, ResourceRequest, Shares, Waiter, recalls,
};
use oxiray_wire::message::DeviceNumbers;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::{Duration, Instant};

/// How long a lease is left alone.
const TERM: Duration = Duration::from_millis(500);
/// How long one with devices is: who has them next needs a fresh process.
const DEVICE_TERM: Duration = Duration::from_secs(5);
/// The shortest time between two looks.
const LOOK_PERIOD: Duration = Duration::from_millis(50);
/// How many leases one look passes, how many of them it considers, and how many it has recalled at the most.
const PASSED_MAX: usize = 4096;
const CONSIDERED_MAX: usize = 256;
const RECALLED_MAX: usize = 64;
/// How long room is kept for who needs several leases back, and after how long it may be kept again.
const KEPT_LIMIT: Duration = Duration::from_millis(500);
const KEPT_AGAIN: Duration = Duration::from_secs(5);

/// What holds a part of the cluster for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    /// A worker that is leased, or an actor.
    Worker(u64),
    /// An order to a member that is not answered.
    Order(u64),
    /// The bundles of a placement group.
    Group(PlacementGroupId),
}

/// How much of a resource somebody holds, and where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HolderOf {
    pub(crate) holder: Holder,
    pub(crate) node: NodeId,
    pub(crate) amount: Quantity,
}

/// What is held for a job.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) claimant: Claimant<JobId>,
    pub(crate) demands: Vec<Demand>,
    /// Whether it may be recalled.
    pub(crate) is_lease: bool,
    /// Whether it may end early for what is more urgent.
    pub(crate) preemptible: bool,
}

/// A holder, and what of it has been counted.
#[derive(Debug)]
struct Counted {
    held: Held,
    /// Its processors are lent to others while it waits for what it called.
    lends_cpu: bool,
    node: NodeId,
    began: Instant,
    /// The numbers of its devices, where it is preemptible and its machine has told.
    devices: BTreeMap<ResourceName, Vec<u32>>,
    term: Term,
}

/// How far a lease is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Term {
    /// It is none.
    Endless,
    /// It is left alone until then.
    Until(Instant),
    /// It was recalled, and is counted on until then (FAIR-3).
    Recalled(Instant),
}

/// When owners are asked to return idle leases: at once when someone new waits, then ever more seldom.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    pub(crate) someone_came: bool,
    pub(crate) last: Option<Instant>,
    pub(crate) period: Duration,
    pub(crate) is_armed: bool,
    pub(crate) notice_is_armed: bool,
}

/// Room that is kept for who needs several leases back (FAIR-4).
#[derive(Debug)]
struct ReservedCapacity {
    claimant: Claimant<JobId>,
    resource_request: ResourceRequest,
    /// Those that had those leases.
    from: BTreeSet<Claimant<JobId>>,
    until: Instant,
    /// It was used, or its time is over.
    is_over: bool,
}

/// What jobs hold, and what of it may be taken back.
#[derive(Debug, Default)]
pub(crate) struct Fairness {
    pub(crate) reclaim: Reclaim,
    shares: Shares<JobId>,
    holders: BTreeMap<Holder, Counted>,
    /// How many of them each has.
    claimants: BTreeMap<Claimant<JobId>, usize>,
    /// The workers of leases that were not recalled, by the end of their terms.
    terms: BTreeSet<(Instant, u64)>,
    recalled: BTreeSet<u64>,
    preemptible: BTreeSet<Holder>,
    kept: Option<ReservedCapacity>,
    /// Where a look was over that did not pass all leases.
    passed: Option<(Instant, u64)>,
    looked: Option<Instant>,
    /// When there is a look next, where that was asked for.
    armed: Option<Instant>,
}

impl Fairness {
    /// A machine joined, this one included.
    pub(crate) fn machine_came(&mut self, inventory: &Inventory) {
        self.shares.add_machine(inventory);
    }

    pub(crate) fn machine_left(&mut self, inventory: &Inventory) {
        self.shares.remove_machine(inventory);
    }

    /// What each job holds, for who serves the queue.
    pub(crate) fn shares(&mut self) -> &mut Shares<JobId> {
        &mut self.shares
    }

    /// FAIR-1: from here on this is what the holder has, on that node.
    pub(crate) fn holds(&mut self, holder: Holder, held: Held, node: NodeId, now: Instant) {
        self.lets_go(holder);
        for demand in &held.demands {
            self.shares.take(held.claimant.job, demand);
        }
        *self.claimants.entry(held.claimant).or_default() += 1;
        let term = match holder {
            Holder::Worker(worker) if held.is_lease => {
                let end = now + term_of(&held.demands);
                self.terms.insert((end, worker));
                Term::Until(end)
            }
            Holder::Worker(_) | Holder::Order(_) | Holder::Group(_) => Term::Endless,
        };
        if held.preemptible && !matches!(holder, Holder::Order(_)) {
            self.preemptible.insert(holder);
        }
        let devices = BTreeMap::new();
        self.holders.insert(holder, Counted { held, lends_cpu: false, node, began: now, devices, term });
    }

    /// FAIR-1: it has nothing any more.
    pub(crate) fn lets_go(&mut self, holder: Holder) {
        let Some(counted) = self.holders.remove(&holder) else { return };
        self.preemptible.remove(&holder);
        for demand in &counted.demands() {
            self.shares.give_back(counted.held.claimant.job, demand);
        }
        let left = self.claimants.get_mut(&counted.held.claimant).expect("FAIR-1: who holds something is counted");
        *left -= 1;
        if *left == 0 {
            self.claimants.remove(&counted.held.claimant);
        }
        if let Holder::Worker(worker) = holder {
            self.recalled.remove(&worker);
            if let Term::Until(end) = counted.term {
                self.terms.remove(&(end, worker));
            }
        }
    }

    /// A member has carried out an order: what was held for that is its worker's.
    pub(crate) fn carried_out(&mut self, order: u64, worker: u64, node: NodeId, now: Instant) {
        if let Some(Counted { held, .. }) = self.holders.get(&Holder::Order(order)) {
            let held = held.clone();
            self.lets_go(Holder::Order(order));
            self.holds(Holder::Worker(worker), held, node, now);
        }
    }

    /// A leased worker waits for what it called, or has done so.
    pub(crate) fn lends_cpu(&mut self, worker: u64, lends_cpu: bool) {
        let Some(counted) = self.holders.get_mut(&Holder::Worker(worker)).filter(|counted| counted.held.is_lease)
        else {
            return;
        };
        let (job, before) = (counted.held.claimant.job, counted.demands());
        counted.lends_cpu = lends_cpu;
        let after = counted.demands();
        for demand in &before {
            self.shares.give_back(job, demand);
        }
        for demand in &after {
            self.shares.take(job, demand);
        }
    }

    /// The job is over.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.shares.forget(job);
    }

    /// What a worker holds, and where: processors aside, which those who wait lend.
    pub(crate) fn held_by(&self, worker: u64) -> Option<(NodeId, Demand)> {
        let counted = self.holders.get(&Holder::Worker(worker))?;
        let held = Demand::sum(&counted.held.demands);
        let cpus = Demand::new([(ResourceName::CPU, held.get(ResourceName::CPU.as_str()))]).ok()?;
        Some((counted.node, held.without(&cpus)))
    }

    /// Who holds some of each resource, where, and how much: processors that are lent excepted, and of a group all that it has.
    pub(crate) fn holders_by_resource(&self) -> BTreeMap<ResourceName, Vec<HolderOf>> {
        let mut found: BTreeMap<ResourceName, Vec<HolderOf>> = BTreeMap::new();
        for (&holder, counted) in &self.holders {
            for (resource, amount) in Demand::sum(&counted.demands()).iter() {
                found.entry(resource.clone()).or_default().push(HolderOf { holder, node: counted.node, amount });
            }
        }
        found
    }

    /// What each lease on a node holds, processors that are lent excepted.
    pub(crate) fn leased_on(&self, node: NodeId) -> Vec<Demand> {
        let leases = self.holders.values().filter(|counted| counted.node == node && counted.held.is_lease);
        leases.flat_map(Counted::demands).collect()
    }

    /// Those who may end early, and how urgent they are.
    pub(crate) fn preemptible(&self) -> impl Iterator<Item = (Priority, Victim)> {
        self.preemptible.iter().filter_map(|holder| {
            let counted = self.holders.get(holder)?;
            Some((counted.held.claimant.priority, Victim { began: counted.began, holder: *holder }))
        })
    }

    /// Who holds something, as somebody who may end early or not.
    pub(crate) fn victim(&self, holder: Holder) -> Option<Victim> {
        self.holders.get(&holder).map(|counted| Victim { began: counted.began, holder })
    }

    /// Which devices a worker has.
    pub(crate) fn has_devices(&mut self, worker: u64, devices: &[DeviceNumbers]) {
        let Some(counted) = self.holders.get_mut(&Holder::Worker(worker)) else { return };
        let named = devices.iter().filter_map(|of| Some((ResourceName::new(&of.resource).ok()?, of.numbers.clone())));
        counted.devices = named.collect();
    }

    /// What is free once a worker has ended.
    pub(crate) fn part_of(&self, worker: u64) -> Option<HeldPart> {
        let counted = self.holders.get(&Holder::Worker(worker))?;
        let (node, demand) = (counted.node, Demand::sum(&counted.demands()));
        Some(HeldPart { node, demand, devices: counted.devices.clone() })
    }

    /// Who holds something.
    pub(crate) fn holders(&self) -> impl ExactSizeIterator<Item = Holder> {
        self.holders.keys().copied()
    }

    /// When there is to be a look, where one is to be arranged for: some job waits for what another holds, and there are
    /// leases that were not recalled.
    pub(crate) fn next_look(
        &mut self,
        waiting: impl ExactSizeIterator<Item = Claimant<JobId>>,
        now: Instant,
    ) -> Option<Instant> {
        let (end, _) = self.terms.first()?;
        let at = self.looked.map_or(now, |looked| (looked + LOOK_PERIOD).max(now)).max(*end);
        if self.armed.is_some_and(|armed| armed <= at) || !self.is_contended(waiting) {
            return None;
        }
        self.armed = Some(at);
        Some(at)
    }

    /// Whether one waits while another holds something.
    fn is_contended(&self, mut waiting: impl ExactSizeIterator<Item = Claimant<JobId>>) -> bool {
        let mut holding = self.claimants.keys().copied();
        match (waiting.len(), holding.len()) {
            (0, _) | (_, 0) => false,
            (1, 1) => waiting.next() != holding.next(),
            _ => true,
        }
    }

    /// The workers whose leases are to be recalled now, and when to look again if nothing else happens. Those who wait
    /// stand in the order in which they came.
    pub(crate) fn look(
        &mut self,
        waiters: &[Waiter<JobId>],
        view: impl Fn(NodeId) -> Option<NodeView>,
        now: Instant,
    ) -> (Vec<u64>, Option<Instant>) {
        (self.armed, self.looked) = (None, Some(now));
        if let Some(kept) = self.kept.as_mut().filter(|kept| kept.until <= now) {
            kept.is_over = true;
        }
        let over = self.over(waiters, now);
        let is_counted_on = |worker: &u64| {
            let term = self.holders.get(&Holder::Worker(*worker)).map(|counted| counted.term);
            matches!(term, Some(Term::Recalled(until)) if until > now)
        };
        let coming = self.recalled.iter().copied().filter(is_counted_on);
        let coming: Vec<_> = coming.filter_map(|worker| self.lease(worker)).collect();
        let nodes: BTreeSet<NodeId> = over.iter().chain(&coming).map(|lease| lease.node).collect();
        let views = nodes.into_iter().filter_map(|node| Some((node, view(node)?))).collect();
        let mut found = recalls(&self.shares, waiters, &views, &coming, over, RECALLED_MAX);
        found
            .retain(|recall| recall.leases.len() == 1 || self.keeps_room(&waiters[recall.waiter], &recall.leases, now));
        let found: Vec<u64> = found.into_iter().flat_map(|recall| recall.leases).collect();
        for worker in &found {
            self.recall(*worker, now);
        }
        let waiting: BTreeSet<Claimant<JobId>> = waiters.iter().map(|waiter| waiter.claimant).collect();
        let keeps_room = self.kept.as_ref().is_some_and(|kept| !kept.is_over);
        self.armed = self.next_change(now).filter(|_| keeps_room || self.is_contended(waiting.into_iter()));
        (found, self.armed)
    }

    /// The leases whose terms are over, the oldest first, of those from whom something may be recalled. Where there are very
    /// many, one look passes some of them, and the next goes on from there.
    fn over(&mut self, waiters: &[Waiter<JobId>], now: Instant) -> Vec<HeldLease<u64, JobId>> {
        let stands_behind = |holder: &Claimant<JobId>| {
            waiters.iter().filter(|waiter| waiter.claimant != *holder).any(|waiter| {
                let standing = |one: Claimant<JobId>| self.shares.standing(one, waiter.resource_request.demands());
                standing(waiter.claimant).may_recall_from(standing(*holder))
            })
        };
        let may_lose: BTreeSet<Claimant<JobId>> = self.claimants.keys().copied().filter(stands_behind).collect();
        let last = (now, u64::MAX);
        let begin = self.passed.map_or(Bound::Unbounded, Bound::Excluded);
        let before = self.passed.map(|passed| self.terms.range(..=passed));
        let in_turn = self.terms.range((begin, Bound::Included(last))).chain(before.into_iter().flatten());
        let (mut found, mut passed) = (Vec::new(), None);
        for (count, entry) in in_turn.enumerate() {
            if count == PASSED_MAX || found.len() == CONSIDERED_MAX {
                break;
            }
            passed = Some(*entry);
            let lease = self.lease(entry.1).filter(|lease| may_lose.contains(&lease.claimant));
            found.extend(lease.map(|lease| (*entry, lease)));
        }
        self.passed = passed.filter(|_| self.terms.len() > CONSIDERED_MAX);
        found.sort_unstable_by_key(|(entry, _)| *entry);
        found.into_iter().map(|(_, lease)| lease).collect()
    }

    /// FAIR-4: whether room is kept for who needs these leases back.
    fn keeps_room(&mut self, waiter: &Waiter<JobId>, leases: &[u64], now: Instant) -> bool {
        let may_keep = self.kept.as_ref().is_none_or(|kept| kept.is_over && kept.until + KEPT_AGAIN <= now);
        if may_keep {
            let from = leases.iter().filter_map(|lease| Some(self.holders.get(&Holder::Worker(*lease))?.held.claimant));
            let (from, until) = (from.collect(), now + KEPT_LIMIT);
            self.kept = Some(ReservedCapacity {
                claimant: waiter.claimant,
                resource_request: waiter.resource_request.clone(),
                from,
                until,
                is_over: false,
            });
        }
        may_keep
    }

    /// Whether one has to wait for somebody for whom room is kept (FAIR-4).
    pub(crate) fn stands_back(&self, claimant: Claimant<JobId>, now: Instant) -> bool {
        self.kept.as_ref().is_some_and(|kept| !kept.is_over && now < kept.until && kept.from.contains(&claimant))
    }

    /// Somebody who waited is given what they asked for: where room was kept for them, it is used.
    pub(crate) fn is_served(&mut self, claimant: Claimant<JobId>, resource_request: &ResourceRequest) {
        if self
            .kept
            .as_ref()
            .is_some_and(|kept| kept.claimant == claimant && kept.resource_request == *resource_request)
        {
            self.kept = None;
        }
    }

    /// What can be had of a lease.
    fn lease(&self, worker: u64) -> Option<HeldLease<u64, JobId>> {
        let counted = self.holders.get(&Holder::Worker(worker)).filter(|counted| !counted.lends_cpu)?;
        let demand = counted.held.demands.first()?.clone();
        Some(HeldLease { lease: worker, claimant: counted.held.claimant, node: counted.node, demand })
    }

    /// FAIR-2, FAIR-3.
    fn recall(&mut self, worker: u64, now: Instant) {
        let Some(counted) = self.holders.get_mut(&Holder::Worker(worker)) else { return };
        if let Term::Until(end) = counted.term {
            self.terms.remove(&(end, worker));
            counted.term = Term::Recalled(now + term_of(&counted.held.demands));
            self.shares.yields(counted.held.claimant.job);
            self.recalled.insert(worker);
        }
    }

    /// When more may be recalled than now, though nothing happens until then.
    fn next_change(&self, now: Instant) -> Option<Instant> {
        let given_up =
            self.recalled.iter().filter_map(|worker| match self.holders.get(&Holder::Worker(*worker))?.term {
                Term::Recalled(until) => Some(until),
                Term::Until(_) | Term::Endless => None,
            });
        let kept = self.kept.iter().map(|kept| if kept.is_over { kept.until + KEPT_AGAIN } else { kept.until });
        let next_end = self.terms.range((Bound::Excluded((now, u64::MAX)), Bound::Unbounded)).next();
        given_up.chain(kept).filter(|at| *at > now).chain(next_end.map(|(end, _)| *end)).min()
    }
}

/// How long a lease is left alone that holds this, and how long it is counted on once it is recalled.
fn term_of(demands: &[Demand]) -> Duration {
    let has_devices = demands.iter().any(|demand| demand.devices().next().is_some());
    if has_devices { DEVICE_TERM } else { TERM }
}

impl Counted {
    /// What counts as held.
    fn demands(&self) -> Vec<Demand> {
        if !self.lends_cpu {
            return self.held.demands.clone();
        }
        let without = |demand: &Demand| {
            demand.with(ResourceName::CPU, Quantity::ZERO).expect("a demand that asks for less is a demand")
        };
        self.held.demands.iter().map(without).collect()
    }
}
