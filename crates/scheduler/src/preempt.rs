//! Who is to end early so that what is more urgent has room.
//!
//! - PREEMPT-1: nobody ends for a request for which what is free and what is coming is enough.
//! - PREEMPT-2: only who said so may end early, and only for a request of a higher priority.
//! - PREEMPT-3: of those that end for a request each is needed: without any one of them there would be no room. The least
//!   urgent end first, and among equals those that began last; of several machines the one is taken where that is so, and
//!   then where the fewest devices become free that nobody asked for.
//! - PREEMPT-4: what somebody holds on several machines ends as a whole.
//!
//! # Cost
//! With `v` victims on a machine: O(v²) for each request and machine, and for a group O(log v) searches, each of which
//! tells the [`Fleet`] of the machines that differ from the search before. The caller bounds victims, machines and requests.

use std::collections::{BTreeMap, BTreeSet};

use oxiray_ids::NodeId;
use oxiray_resources::{Demand, ResourceName};

use crate::{Fleet, Group, NodeView, Priority, ResourceRequest};

/// What somebody holds on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldPart {
    /// The machine.
    pub node: NodeId,
    /// How much.
    pub demand: Demand,
    /// The numbers of the devices that this is a share or the whole of.
    pub devices: BTreeMap<ResourceName, Vec<u32>>,
}

/// Somebody who may end early. `V` names them; who began later has the larger name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemptible<V> {
    /// Who.
    pub victim: V,
    /// How urgent that is.
    pub priority: Priority,
    /// What is free once it has ended.
    pub parts: Vec<HeldPart>,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug)]
pub enum SoughtRoom<'a> {
    /// Room on one machine.
    Request(&'a ResourceRequest),
    /// Room for all bundles.
    Group(&'a Group),
}

/// Requests that wait for the same.
#[derive(Clone, Debug)]
pub struct UrgentWaiter<'a, V> {
    /// How urgent they are.
    pub priority: Priority,
    /// What each of them waits for.
    pub sought: SoughtRoom<'a>,
    /// How many they are.
    pub count: usize,
    /// Those that wait for them in turn, and would end with them.
    pub spared: BTreeSet<V>,
}

/// Who ends for one who waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction<V> {
    /// For which of the waiters.
    pub waiter: usize,
    /// Who: all of them are needed.
    pub victims: Vec<V>,
}

/// Plans who ends. `waiters` stand in the order in which they are served, `views` are machines as they are now, `ending`
/// are those that were told to end, and `candidates` those that may be; at the most `most` of them are taken.
pub fn preempt<V: Copy + Ord>(
    waiters: &[UrgentWaiter<'_, V>],
    views: BTreeMap<NodeId, NodeView>,
    ending: &[Preemptible<V>],
    mut candidates: Vec<Preemptible<V>>,
    most: usize,
) -> Vec<Eviction<V>> {
    let mut look = Look { stale: views.keys().copied().collect(), views, fleet: Fleet::default() };
    look.end(ending);
    // PREEMPT-3
    candidates.sort_by(|one, other| (one.priority, other.victim).cmp(&(other.priority, one.victim)));
    let (mut found, mut taken) = (Vec::new(), 0);
    for (waiter, urgent) in waiters.iter().enumerate() {
        for _ in 0..urgent.count {
            if look.take(urgent.sought) {
                continue;
            }
            let allowed = candidates
                .iter()
                .filter(|candidate| candidate.priority < urgent.priority && !urgent.spared.contains(&candidate.victim));
            let allowed: Vec<&Preemptible<V>> = allowed.collect();
            let Some(chosen) = look.choose(urgent.sought, &allowed).filter(|chosen| taken + chosen.len() <= most)
            else {
                break;
            };
            let ends: Vec<Preemptible<V>> = chosen.into_iter().cloned().collect();
            look.end(&ends);
            if !look.take(urgent.sought) {
                break;
            }
            let victims: Vec<V> = ends.iter().map(|one| one.victim).collect();
            candidates.retain(|candidate| !victims.contains(&candidate.victim));
            taken += victims.len();
            found.push(Eviction { waiter, victims });
        }
    }
    found
}

/// Machines as they will be.
#[derive(Debug)]
struct Look {
    views: BTreeMap<NodeId, NodeView>,
    /// Where groups are searched.
    fleet: Fleet,
    /// The machines that are in `views` otherwise than in `fleet`.
    stale: BTreeSet<NodeId>,
}

impl Look {
    /// These hold nothing any more.
    fn end<V>(&mut self, ended: &[Preemptible<V>]) {
        for part in ended.iter().flat_map(|one| &one.parts) {
            if let Some(view) = self.views.get_mut(&part.node) {
                view.give_back(part);
                self.stale.insert(part.node);
            }
        }
    }

    /// Books what is sought, where there is room (PREEMPT-1).
    fn take(&mut self, sought: SoughtRoom<'_>) -> bool {
        match sought {
            SoughtRoom::Request(request) => {
                let mut fitting = self.views.iter_mut().filter(|(_, view)| request.may_be_met_on(view));
                let taken = fitting.find_map(|(node, view)| view.take(&request.demand).then_some(*node));
                self.stale.extend(taken);
                taken.is_some()
            }
            SoughtRoom::Group(group) => {
                let Some(nodes) = self.place(group, &[]) else { return false };
                for (node, bundle) in nodes.iter().zip(&group.bundles) {
                    self.views.get_mut(node).map(|view| view.take(&bundle.demand));
                    self.stale.insert(*node);
                }
                true
            }
        }
    }

    /// The machine of each bundle, when these have ended.
    fn place(&mut self, group: &Group, ended: &[&HeldPart]) -> Option<Vec<NodeId>> {
        for view in std::mem::take(&mut self.stale).iter().filter_map(|node| self.views.get(node)) {
            self.fleet.put(view);
        }
        let mut parts: BTreeMap<NodeId, Vec<&HeldPart>> = BTreeMap::new();
        for part in ended {
            parts.entry(part.node).or_default().push(part);
        }
        for (node, here) in parts {
            if let Some(view) = self.views.get(&node) {
                self.fleet.put(&with_back(view, here));
                self.stale.insert(node);
            }
        }
        self.fleet.find_group(group, &[])
    }

    /// Whose end makes room, among these in the order in which they are to be taken.
    fn choose<'a, V: Copy + Ord>(
        &mut self,
        sought: SoughtRoom<'_>,
        allowed: &[&'a Preemptible<V>],
    ) -> Option<Vec<&'a Preemptible<V>>> {
        match sought {
            SoughtRoom::Request(request) => {
                let views = self.views.values().filter(|view| request.may_be_met_on(view));
                let found = views.filter_map(|view| choose_on(view, &request.demand, allowed));
                found.min_by_key(|chosen| (chosen.last().map(|one| one.priority), unasked(chosen, &request.demand)))
            }
            SoughtRoom::Group(group) => self.choose_for(group, allowed),
        }
    }

    fn choose_for<'a, V: Copy + Ord>(
        &mut self,
        group: &Group,
        allowed: &[&'a Preemptible<V>],
    ) -> Option<Vec<&'a Preemptible<V>>> {
        let parts_of = |chosen: &[&'a Preemptible<V>]| chosen.iter().flat_map(|one| &one.parts).collect::<Vec<_>>();
        let mut place = |count: usize| self.place(group, &parts_of(&allowed[..count]));
        place(allowed.len())?;
        let (mut too_few, mut enough) = (0, allowed.len());
        while too_few + 1 < enough {
            let middle = too_few + (enough - too_few) / 2;
            match place(middle) {
                Some(_) => enough = middle,
                None => too_few = middle,
            }
        }
        let nodes = place(enough)?;
        let mut asked: BTreeMap<NodeId, Vec<&Demand>> = BTreeMap::new();
        for (node, bundle) in nodes.iter().zip(&group.bundles) {
            asked.entry(*node).or_default().push(&bundle.demand);
        }
        let is_enough = |chosen: &[&Preemptible<V>]| {
            asked.iter().all(|(node, demands)| {
                let here = chosen.iter().flat_map(|one| &one.parts).filter(|part| part.node == *node).collect();
                self.views.get(node).is_some_and(|view| with_back(view, here).fits_together(demands).is_ok())
            })
        };
        Some(needed(allowed[..enough].to_vec(), is_enough))
    }
}

/// Whose end makes room on one machine.
fn choose_on<'a, V: Copy + Ord>(
    view: &NodeView,
    demand: &Demand,
    allowed: &[&'a Preemptible<V>],
) -> Option<Vec<&'a Preemptible<V>>> {
    let on_node = |one: &&&Preemptible<V>| one.parts.iter().any(|part| part.node == view.node);
    let is_enough = |chosen: &[&Preemptible<V>]| {
        let here = chosen.iter().flat_map(|one| &one.parts).filter(|part| part.node == view.node).collect();
        with_back(view, here).fits(demand).is_ok()
    };
    let mut chosen = Vec::new();
    for one in allowed.iter().filter(on_node) {
        chosen.push(*one);
        if is_enough(&chosen) {
            return Some(needed(chosen, is_enough));
        }
    }
    None
}

/// PREEMPT-3: those without whom there would be no room. Who is to be taken last is spared first.
fn needed<V>(mut chosen: Vec<&Preemptible<V>>, is_enough: impl Fn(&[&Preemptible<V>]) -> bool) -> Vec<&Preemptible<V>> {
    for index in (0..chosen.len()).rev() {
        let one = chosen.remove(index);
        if !is_enough(&chosen) {
            chosen.insert(index, one);
        }
    }
    chosen
}

fn with_back(view: &NodeView, parts: Vec<&HeldPart>) -> NodeView {
    let mut view = view.clone();
    for part in parts {
        view.give_back(part);
    }
    view
}

/// How much of devices becomes free that nobody asked for.
fn unasked<V>(chosen: &[&Preemptible<V>], demand: &Demand) -> u64 {
    let of = |demand: &Demand| {
        let devices = demand.iter().filter(|(name, _)| name.is_device());
        devices.map(|(_, quantity)| quantity.units()).fold(0, u64::saturating_add)
    };
    let held = chosen.iter().flat_map(|one| &one.parts).map(|part| of(&part.demand)).fold(0, u64::saturating_add);
    held.saturating_sub(of(demand))
}

impl NodeView {
    /// Somebody has ended who held this.
    fn give_back(&mut self, part: &HeldPart) {
        for (resource, asked) in part.demand.asked() {
            if let Some(devices) = self.free_devices.get_mut(resource) {
                let numbers = part.devices.get(resource).map_or(&[][..], Vec::as_slice);
                devices.give_back(asked, numbers);
            } else {
                let total = self.inventory.total(resource.as_str());
                let free = self.free.entry(resource.clone()).or_insert_with(|| resource.unnamed());
                let back = part.demand.get(resource.as_str());
                *free = free.checked_add(back).unwrap_or(total).min(total.max(*free));
            }
        }
    }
}
