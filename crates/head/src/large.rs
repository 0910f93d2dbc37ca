//! Room that is kept for one request at a time: one that is overtaken again and again by smaller ones, or one for which
//! others end.
//!
//! - LARGE-1: room is kept for one request at a time, for [`KEPT_LIMIT`] at most; for one that is overtaken on one node, and
//!   then for nobody for as long. Whatever waits for somebody who waits for that room goes on in between.
//! - LARGE-2: it is kept only where what is free and what leases hold is enough: actors and placement groups may never give
//!   anything back.
//! - LARGE-3: it is kept neither from who is more urgent, nor from what running tasks have called: these hold what the request
//!   waits for until that has run.
//! - LARGE-4: where others end for a request, what they held is kept for it on all of their nodes, from when they are told.
//!   Otherwise whoever ended takes what is free of it before the rest is, and ends for the same request again.

use crate::demands::Need;
use oxiray_ids::NodeId;
use oxiray_resources::{Demand, Quantity, ResourceName};
use oxiray_scheduler::{NodeView, Priority};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A request is large that was overtaken so many times, or once and has waited so long.
const OVERTAKEN_MIN: u64 = 64;
const WAITED_MIN: Duration = Duration::from_secs(60);
/// How long room is kept, and how long then for nobody.
const KEPT_LIMIT: Duration = Duration::from_secs(60);
/// The least time between two looks for a request to keep room for.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// What is kept where: of each node, what there is too little of.
pub(crate) type Places = BTreeMap<NodeId, BTreeSet<ResourceName>>;

/// A request for which room is kept.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) ticket: u64,
    pub(crate) need: Need,
    pub(crate) priority: Priority,
    pub(crate) places: Places,
    /// Others end for it (LARGE-4).
    pub(crate) is_made: bool,
    until: Instant,
}

impl Kept {
    /// Whether a demand would take of what is kept on that node.
    pub(crate) fn is_taken_on(&self, node: NodeId, demand: &Demand) -> bool {
        self.places.get(&node).is_some_and(|kept| demand.iter().any(|(name, _)| kept.contains(name.source())))
    }

    /// Whether a demand would take of what is kept on any node.
    pub(crate) fn is_taken_by(&self, demand: &Demand) -> bool {
        self.places.keys().any(|node| self.is_taken_on(*node, demand))
    }
}

/// For whom room is kept.
#[derive(Debug, Default)]
pub(crate) struct LargeRequests {
    kept: Option<Kept>,
    /// When there is to be a look next.
    next: Option<Instant>,
    /// In the round through the queue that is under way, nobody else is shown what the node has of it.
    pub(crate) is_hidden: bool,
}

impl LargeRequests {
    pub(crate) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    /// Whether it is time to look for a request to keep room for.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.kept.is_none() && self.next.is_none_or(|next| next <= now);
        if is_due {
            self.next = Some(now + LOOK_PERIOD);
        }
        is_due
    }

    /// Whether a request is one that room may be kept for.
    pub(crate) fn is_large(overtaken: u64, waited: Duration) -> bool {
        overtaken >= OVERTAKEN_MIN || (overtaken > 0 && waited >= WAITED_MIN)
    }

    /// From here on room is kept. Returns until when.
    pub(crate) fn keep(
        &mut self,
        (ticket, need): (u64, Need),
        priority: Priority,
        (node, resources): (NodeId, BTreeSet<ResourceName>),
        now: Instant,
    ) -> Instant {
        let until = now + KEPT_LIMIT;
        let places = Places::from([(node, resources)]);
        self.kept = Some(Kept { ticket, need, priority, places, is_made: false, until });
        until
    }

    /// LARGE-4, unless room is kept for somebody else who is as urgent. Returns until when it is kept.
    pub(crate) fn keep_made(
        &mut self,
        (ticket, need): (u64, Need),
        priority: Priority,
        mut places: Places,
        ended_by: Instant,
    ) -> Option<Instant> {
        if self.kept.as_ref().is_some_and(|kept| kept.ticket != ticket && kept.priority >= priority) {
            return None;
        }
        for (node, resources) in
            self.kept.take_if(|kept| kept.ticket == ticket).into_iter().flat_map(|kept| kept.places)
        {
            places.entry(node).or_default().extend(resources);
        }
        let until = ended_by + KEPT_LIMIT;
        self.kept = Some(Kept { ticket, need, priority, places, is_made: true, until });
        Some(until)
    }

    /// A request waits no more: it is served, or taken back.
    pub(crate) fn waits_no_more(&mut self, ticket: u64) {
        self.kept.take_if(|kept| kept.ticket == ticket);
    }

    /// LARGE-1. Returns whether room was kept that is kept no longer.
    pub(crate) fn expires(&mut self, now: Instant) -> bool {
        let is_over = self.kept.take_if(|kept| kept.until <= now).is_some();
        if is_over {
            self.next = Some(now + KEPT_LIMIT);
        }
        is_over
    }
}

/// LARGE-2: of the nodes, each with what leases hold there, the one where room for the demand is nearest, and the resources
/// of which there is too little now.
pub(crate) fn nearest<'a>(
    nodes: impl Iterator<Item = (&'a NodeView, Demand)>,
    demand: &Demand,
) -> Option<(NodeId, BTreeSet<ResourceName>)> {
    let judged = nodes.filter_map(|(view, leased)| {
        let (mut missing, mut resources) = (0, BTreeSet::new());
        for (name, asked) in demand.iter() {
            let (free, comes) = (free_of(view, name), leased.get(name.as_str()).units());
            if free.saturating_add(comes) < asked.units() {
                return None;
            }
            if free < asked.units() {
                let parts = u128::from(asked.units() - free) * u128::from(Quantity::UNITS_PER_WHOLE);
                missing = missing.max(parts / u128::from(asked.units()));
                resources.insert(name.source().clone());
            }
        }
        (!resources.is_empty()).then_some((missing, view.node, resources))
    });
    let (_, node, resources) = judged.min_by_key(|(missing, node, _)| (*missing, *node))?;
    Some((node, resources))
}

fn free_of(view: &NodeView, name: &ResourceName) -> u64 {
    match view.free_devices.get(name) {
        // Whole devices are what is scarce: a part that is free of one counts when the rest is.
        Some(devices) => devices.shares().flatten().filter(|share| *share == Quantity::ONE).map(Quantity::units).sum(),
        None => view.free.get(name).copied().unwrap_or_else(|| name.unnamed()).units(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_resources::{Inventory, Ledger};
    use std::collections::BTreeMap;

    fn demand(cpus: u32, gpus: u32) -> Demand {
        Demand::new([(ResourceName::CPU, Quantity::whole(cpus)), (ResourceName::GPU, Quantity::whole(gpus))])
            .expect("whole numbers")
    }

    fn view(number: u8, gpus: f64, held: &[Demand]) -> NodeView {
        let inventory = Inventory::new([(ResourceName::CPU, 8.0), (ResourceName::GPU, gpus)]).expect("whole numbers");
        let mut ledger = Ledger::new(inventory);
        for demand in held {
            let _held = ledger.grant(demand).expect("there is room");
        }
        NodeView::new(NodeId::new([number; 28]), &ledger, BTreeMap::new())
    }

    #[test]
    fn the_nearest_node_is_one_where_leases_hold_what_is_missing() {
        let one = demand(1, 1);
        let views = [view(1, 4.0, &[demand(1, 3)]), view(2, 4.0, &[demand(1, 1), demand(1, 1)]), view(3, 2.0, &[])];
        let of = |leased: [u32; 3], asked: &Demand| {
            let leased = leased.map(|gpus| demand(gpus, gpus));
            nearest(views.iter().zip(leased), asked).map(|(node, resources)| (node.as_bytes()[0], resources))
        };
        let gpu = BTreeSet::from([ResourceName::GPU]);
        assert_eq!(of([3, 2, 0], &demand(1, 4)), Some((2, gpu.clone())), "two are missing there, and three elsewhere");
        assert_eq!(of([3, 1, 0], &demand(1, 4)), Some((1, gpu)), "an actor has one of the second's");
        assert_eq!(of([2, 1, 0], &demand(1, 4)), None);
        assert_eq!(of([3, 2, 0], &one), None, "it is not short of anything");
    }

    #[test]
    fn room_is_kept_for_one_and_then_for_nobody_for_as_long() {
        let (mut large, now) = (LargeRequests::default(), Instant::now());
        assert!(large.is_due(now) && !large.is_due(now), "one look a second");
        assert!(large.is_due(now + LOOK_PERIOD));
        let place = (NodeId::NIL, BTreeSet::from([ResourceName::GPU]));
        let need = || Need::ResourceRequest(demand(1, 4).into());
        let until = large.keep((7, need()), Priority(0), place.clone(), now);
        assert!(!large.is_due(now + LOOK_PERIOD) && !large.expires(now + LOOK_PERIOD));
        let kept = large.kept().expect("it was just kept");
        assert!(kept.is_taken_by(&demand(1, 1)) && !kept.is_taken_by(&demand(1, 0)));
        assert!(large.expires(until) && !large.is_due(until) && large.is_due(until + KEPT_LIMIT));
        large.keep((8, need()), Priority(0), place, until);
        large.waits_no_more(7);
        assert!(large.kept().is_some());
        large.waits_no_more(8);
        assert!(large.kept().is_none());
    }

    #[test]
    fn room_that_others_make_is_kept_on_all_of_their_nodes_for_the_most_urgent() {
        let (mut large, now) = (LargeRequests::default(), Instant::now());
        let need = || Need::ResourceRequest(demand(0, 2).into());
        let on = |number| Places::from([(NodeId::new([number; 28]), BTreeSet::from([ResourceName::GPU]))]);
        let keep = |large: &mut LargeRequests, ticket, priority, number| {
            large.keep_made((ticket, need()), Priority(priority), on(number), now).is_some()
        };
        assert!(keep(&mut large, 1, 5, 1) && keep(&mut large, 1, 5, 2) && !keep(&mut large, 2, 5, 3));
        let is_kept_on = |large: &LargeRequests, number| {
            large.kept().is_some_and(|kept| kept.is_taken_on(NodeId::new([number; 28]), &demand(0, 1)))
        };
        assert_eq!([1, 2, 3].map(|number| is_kept_on(&large, number)), [true, true, false]);
        assert!(keep(&mut large, 3, 6, 3));
        assert_eq!([1, 2, 3].map(|number| is_kept_on(&large, number)), [false, false, true]);
    }

    #[test]
    fn large_is_what_is_overtaken_often_or_long() {
        let of = |overtaken, seconds| LargeRequests::is_large(overtaken, Duration::from_secs(seconds));
        assert_eq!([of(64, 0), of(63, 59), of(1, 60), of(0, 3600)], [true, false, true, false]);
    }
}
