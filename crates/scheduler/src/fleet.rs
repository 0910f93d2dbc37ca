//! All machines, and a decision that does not look at each.
//!
//! The answer is that of [`place`](crate::place), which looks at every machine; tests compare the two.
//!
//! - FLEET-1: for each request that was asked for, the fleet knows the machines that have room for it: one bit each. What
//!   changes on a machine is looked at by a request when it is next asked for, and by no other.
//! - FLEET-2: a machine is found by the first bit that is set in all of: has room, is allowed, and is used so much.
//!
//! # Cost
//! With `n` machines and `k` changes since the request was asked for last: `k` looks at one machine each, and a few passes
//! over `n` bits. A request that was never asked for before looks at every machine once.

use std::collections::{BTreeMap, HashMap};

use oxiray_ids::NodeId;
use oxiray_resources::Demand;
use rustc_hash::FxBuildHasher;

use crate::bits::Bits;
use crate::group_search::{Kind, Search, Slots};
use crate::machine::{Machine, Names};
use crate::node_view::{HALF, STEPS};
use crate::shape::{Change, Changes, Shape};
use crate::strategy::{Condition, Otherwise, ResourceRequest, Selector, Strategy};
use crate::{Group, GroupStrategy, Near, NodeView};

/// How many different requests are remembered; beyond that all are forgotten.
const REQUESTS_MAX: usize = 4096;
/// How many different demands with their labels are remembered before a group that may bring others.
const SHAPES_MAX: usize = 2 * REQUESTS_MAX;
/// The fewest changes that are kept, and how many for each machine beyond that.
const CHANGES_MIN: usize = 1024;
const CHANGES_PER_MACHINE: usize = 2;
/// Up to so many machines with room, each is looked at.
const FEW: u32 = 64;

/// What a look for a machine finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// This machine has room now.
    On(NodeId),
    /// None has; some could, once others give back what they hold.
    Busy,
    /// None could with nothing running, or the request says to fail where its machine is busy.
    Never,
}

/// All machines as the scheduler knows them. Their order is that in which they came; who comes after another left takes
/// that one's place.
#[derive(Debug)]
pub struct Fleet {
    machines: Vec<Option<Machine>>,
    slots: HashMap<NodeId, u32, FxBuildHasher>,
    names: Names,
    /// The machines without accelerators.
    plain: Bits,
    /// Those less than half used.
    below_half: Bits,
    /// Those used so much: by step.
    used: Vec<Bits>,
    changes: Changes,
    shapes: Vec<Shape>,
    shape_numbers: HashMap<(Demand, Selector), usize, FxBuildHasher>,
    plans: HashMap<ResourceRequest, Plan, FxBuildHasher>,
    /// Where the next machine of [`Strategy::Spread`] is looked for first.
    next_spread: u32,
}

/// How a request is looked for.
#[derive(Debug)]
struct Plan {
    strategy: Strategy,
    alternatives: Vec<Alternative>,
}

/// Shapes by their number.
#[derive(Clone, Debug)]
struct Alternative {
    selector: Selector,
    preferred: Option<usize>,
    allowed: usize,
}

/// The machines that have a label, by its value: those of which there are fewest first.
fn domains(machines: &[Option<Machine>], label: &str) -> Vec<Vec<u32>> {
    let mut by_value: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (slot, machine) in (0..).zip(machines) {
        if let Some(value) = machine.as_ref().and_then(|machine| machine.labels.get(label)) {
            by_value.entry(value).or_default().push(slot);
        }
    }
    let mut domains: Vec<Vec<u32>> = by_value.into_values().collect();
    domains.sort_by_key(Vec::len);
    domains
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            machines: Vec::new(),
            slots: HashMap::default(),
            names: Names::default(),
            plain: Bits::default(),
            below_half: Bits::default(),
            used: vec![Bits::default(); STEPS],
            changes: Changes::default(),
            shapes: Vec::new(),
            shape_numbers: HashMap::default(),
            plans: HashMap::default(),
            next_spread: 0,
        }
    }
}

impl Fleet {
    /// Takes a machine in, or says how it is now.
    pub fn put(&mut self, view: &NodeView) {
        if let Some(slot) = self.slots.get(&view.node).copied() {
            let machine = self.machines[slot as usize].as_mut().expect("a slot that is known has its machine");
            if machine.is_same(view) {
                let before = machine.step;
                machine.set_free(view, &mut self.names);
                return self.changed(slot, before);
            }
            self.remove(view.node);
        }
        let machine = Machine::new(view, &mut self.names);
        let is_full = self.slots.len() == self.machines.len();
        let vacant = if is_full { None } else { self.machines.iter().position(Option::is_none) };
        let slot = vacant.unwrap_or(self.machines.len()) as u32;
        if vacant.is_none() {
            self.machines.push(None);
        }
        self.plain.set(slot, !machine.has_devices());
        self.set_step(slot, machine.step);
        self.slots.insert(view.node, slot);
        self.machines[slot as usize] = Some(machine);
        self.note(Change { slot, is_new: true });
    }

    /// The machine is no more.
    pub fn remove(&mut self, node: NodeId) {
        let Some(slot) = self.slots.remove(&node) else { return };
        if let Some(machine) = self.machines[slot as usize].take() {
            self.used[machine.step].set(slot, false);
        }
        self.plain.set(slot, false);
        self.below_half.set(slot, false);
        self.note(Change { slot, is_new: true });
    }

    /// Books `demand` on a machine, as its ledger would. `false`, and nothing changes, where there is no room.
    pub fn take(&mut self, node: NodeId, demand: &Demand) -> bool {
        let Some(slot) = self.slots.get(&node).copied() else { return false };
        let needs = self.names.needs(demand);
        let Some(machine) = &mut self.machines[slot as usize] else { return false };
        let before = machine.step;
        if !machine.take(&needs) {
            return false;
        }
        self.changed(slot, before);
        true
    }

    /// How many machines there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The machines in order.
    pub fn views(&self) -> Vec<NodeView> {
        self.machines.iter().flatten().map(Machine::view).collect()
    }

    /// A machine as it stands.
    pub fn view_of(&self, node: NodeId) -> Option<NodeView> {
        let slot = self.slots.get(&node)?;
        self.machines[*slot as usize].as_ref().map(Machine::view)
    }

    /// Whether there is a machine for `resource_request`; whoever asks for a place next finds the one that it would have found.
    pub fn look(&mut self, resource_request: &ResourceRequest) -> Found {
        let next_spread = self.next_spread;
        let found = self.find(resource_request, &Near::default());
        self.next_spread = next_spread;
        found
    }

    /// The machine for `resource_request`. The next to ask for the same sees it unchanged until [`Fleet::take`].
    pub fn find(&mut self, resource_request: &ResourceRequest, near: &Near<'_>) -> Found {
        if !self.plans.contains_key(resource_request) {
            self.plan(resource_request);
        }
        let Plan { strategy, alternatives } = &self.plans[resource_request];
        let mut is_possible = false;
        let mut looked = None;
        for alternative in alternatives {
            for shape in alternative.preferred.into_iter().chain([alternative.allowed]) {
                self.shapes[shape].catch_up(&self.machines, &self.changes);
            }
            let allowed = &self.shapes[alternative.allowed];
            let found = match strategy {
                Strategy::Default => self.packed(allowed, near),
                Strategy::Spread => self.spread(allowed),
                Strategy::Labels { .. } => {
                    let preferred = alternative.preferred.and_then(|shape| self.packed(&self.shapes[shape], near));
                    preferred.or_else(|| self.packed(allowed, near))
                }
                Strategy::Node { node, otherwise } => {
                    match self.on_node(*node, *otherwise, &alternative.selector, allowed, near) {
                        Ok(found) => found,
                        Err(may_wait) => {
                            is_possible |= may_wait;
                            continue;
                        }
                    }
                }
            };
            if found.is_some() {
                looked = found;
                break;
            }
            is_possible |= allowed.possible.count() > 0;
        }
        match looked {
            Some(slot) => {
                if *strategy == Strategy::Spread {
                    self.next_spread = slot + 1;
                }
                Found::On(self.machines[slot as usize].as_ref().expect("what has room is there").node)
            }
            None if is_possible => Found::Busy,
            None => Found::Never,
        }
    }

    /// Searches the machines of a group, with others of its bundles `standing`.
    pub(crate) fn search(&mut self, group: &Group, standing: &[NodeId], is_emptied: bool) -> Slots {
        if self.shapes.len() + group.bundles.len() > SHAPES_MAX {
            self.forget_requests();
        }
        let mut kinds: Vec<Kind> = Vec::new();
        let mut numbers: HashMap<usize, usize, FxBuildHasher> = HashMap::default();
        let slot_of = |fleet: &Self, node: &NodeId| fleet.slots.get(node).copied();
        let mut places = Vec::with_capacity(group.bundles.len());
        for bundle in &group.bundles {
            let number = self.shape(&bundle.demand, &bundle.selector);
            let kind = *numbers.entry(number).or_insert(kinds.len());
            places.push(kind);
            if kind == kinds.len() {
                self.shapes[number].catch_up(&self.machines, &self.changes);
                let shape = &self.shapes[number];
                let fits = if is_emptied { &shape.possible } else { &shape.fits };
                kinds.push(Kind { needs: shape.needs.clone(), fits: fits.clone() });
            }
        }
        let slots: Vec<u32> = standing.iter().filter_map(|node| slot_of(self, node)).collect();
        let stands = Bits::of(slots.iter().copied());
        for kind in &mut kinds {
            match group.strategy {
                GroupStrategy::StrictSpread => kind.fits.remove_all(&slots),
                GroupStrategy::StrictPack if !standing.is_empty() => {
                    kind.fits = std::mem::take(&mut kind.fits).and(&stands);
                }
                GroupStrategy::StrictPack | GroupStrategy::Pack | GroupStrategy::Spread => {}
            }
        }
        let preferred = group.preferred.and_then(|node| slot_of(self, &node));
        let (machines, strategy) = (&self.machines[..], group.strategy);
        let search = Search { machines, is_emptied, strategy, kinds, bundles: places, standing: slots, preferred };
        match &group.domain {
            None => search.run(),
            Some(label) => search.run_in_one_of(&domains(machines, label)),
        }
    }

    /// The machine of a slot.
    pub(crate) fn node_at(&self, slot: u32) -> Option<NodeId> {
        Some(self.machines.get(slot as usize)?.as_ref()?.node)
    }

    /// Where [`Strategy::Spread`] looks first: how many of [`Fleet::views`] come before that.
    pub fn next_spread(&self) -> usize {
        self.machines.iter().take(self.next_spread as usize).flatten().count()
    }

    /// `Err` where only waiting for the machine is left (`true`), or nothing is.
    fn on_node(
        &self,
        node: NodeId,
        otherwise: Otherwise,
        selector: &Selector,
        allowed: &Shape,
        near: &Near<'_>,
    ) -> Result<Option<u32>, bool> {
        let is_soft = matches!(otherwise, Otherwise::ElsewhereWhenGone | Otherwise::Elsewhere);
        let matches = |slot: &u32| {
            self.machines[*slot as usize].as_ref().is_some_and(|machine| selector.matches(&machine.labels))
        };
        let slot = self.slots.get(&node).copied().filter(matches);
        match slot {
            Some(slot) if allowed.fits.contains(slot) => Ok(Some(slot)),
            Some(slot) if allowed.possible.contains(slot) => match otherwise {
                Otherwise::Wait | Otherwise::ElsewhereWhenGone => Err(true),
                Otherwise::Fail => Err(false),
                Otherwise::Elsewhere => Ok(self.packed(allowed, near)),
            },
            _ if is_soft => Ok(self.packed(allowed, near)),
            _ => Err(false),
        }
    }

    /// Machine after machine until each is half used, then the least used; what needs no accelerator keeps off machines
    /// that have some while others have room; where large arguments lie comes before all else among those.
    fn packed(&self, shape: &Shape, near: &Near<'_>) -> Option<u32> {
        if shape.fits.count() == 0 {
            return None;
        }
        let keeps_off = !shape.asks_for_devices && shape.fits.first_in_all(&[&self.plain], 0).is_some();
        let all = &shape.fits;
        let among = if keeps_off { &self.plain } else { all };
        let is_chosen = |slot: &u32| all.contains(*slot) && among.contains(*slot);
        let slot_of = |node: NodeId| self.slots.get(&node).copied().filter(is_chosen);
        if let Some(slot) = near.with_arguments().into_iter().find_map(slot_of) {
            return Some(slot);
        }
        let home = near.home.and_then(slot_of);
        if let Some(slot) = home.filter(|slot| self.below_half.contains(*slot)) {
            return Some(slot);
        }
        if let Some(slot) = all.first_in_all(&[among, &self.below_half], 0) {
            return Some(slot);
        }
        let least = self.least_used(all, among, HALF, 0)?;
        let step_of = |slot: u32| self.machines[slot as usize].as_ref().map(|machine| machine.step);
        Some(home.filter(|home| step_of(*home) == step_of(least)).unwrap_or(least))
    }

    fn spread(&self, shape: &Shape) -> Option<u32> {
        self.least_used(&shape.fits, &shape.fits, 0, self.next_spread)
    }

    /// The least used of the machines in both sets that are used as much as `lowest`; among equals the first from `from`
    /// on, in a circle.
    fn least_used(&self, fits: &Bits, among: &Bits, lowest: usize, from: u32) -> Option<u32> {
        if fits.count() <= FEW {
            let slots = fits.iter().filter(|slot| among.contains(*slot));
            let ranked =
                slots.filter_map(|slot| Some((self.machines[slot as usize].as_ref()?.step, slot < from, slot)));
            return ranked.min().map(|(_, _, slot)| slot);
        }
        self.used[lowest..].iter().filter(|used| used.count() > 0).find_map(|used| {
            let of = |from| fits.first_in_all(&[among, used], from);
            of(from).or_else(|| of(0))
        })
    }

    /// Finds out how a request is looked for.
    fn plan(&mut self, resource_request: &ResourceRequest) {
        if self.plans.len() >= REQUESTS_MAX {
            self.forget_requests();
        }
        let place = resource_request.place.as_deref().cloned().unwrap_or_default();
        let anywhere = vec![Selector::default()];
        let selectors = if place.selectors.is_empty() { anywhere } else { place.selectors };
        let mut alternatives = Vec::with_capacity(selectors.len());
        for selector in selectors {
            let all = |more: &[&Selector]| {
                let conditions = std::iter::once(&selector).chain(more.iter().copied());
                Selector(conditions.flat_map(|one| one.0.iter().cloned()).collect::<Vec<Condition>>())
            };
            let (preferred, allowed) = match &place.strategy {
                Strategy::Labels { hard, soft } => (Some(all(&[hard, soft])), all(&[hard])),
                _ => (None, all(&[])),
            };
            let preferred = preferred.map(|selector| self.shape(&resource_request.demand, &selector));
            let allowed = self.shape(&resource_request.demand, &allowed);
            alternatives.push(Alternative { selector, preferred, allowed });
        }
        self.plans.insert(resource_request.clone(), Plan { strategy: place.strategy, alternatives });
    }

    fn shape(&mut self, demand: &Demand, selector: &Selector) -> usize {
        let key = (demand.clone(), selector.clone());
        if let Some(number) = self.shape_numbers.get(&key) {
            return *number;
        }
        let number = self.shapes.len();
        let asks_for_devices = demand.devices().next().is_some();
        self.shapes.push(Shape::new(self.names.needs(demand), key.1.clone(), asks_for_devices));
        self.shape_numbers.insert(key, number);
        number
    }

    /// Begins anew with the machines that there are, so that what is remembered stays bounded.
    fn forget_requests(&mut self) {
        let views = self.views();
        let next_spread = std::mem::take(self).next_spread;
        self.next_spread = next_spread;
        for view in &views {
            self.put(view);
        }
    }

    fn changed(&mut self, slot: u32, step_before: usize) {
        let step = self.machines[slot as usize].as_ref().map_or(step_before, |machine| machine.step);
        if step != step_before {
            self.used[step_before].set(slot, false);
            self.set_step(slot, step);
        }
        self.note(Change { slot, is_new: false });
    }

    fn set_step(&mut self, slot: u32, step: usize) {
        self.used[step].set(slot, true);
        self.below_half.set(slot, step < HALF);
    }

    fn note(&mut self, change: Change) {
        let kept_max = CHANGES_MIN.max(self.machines.len() * CHANGES_PER_MACHINE);
        self.changes.push(change, kept_max);
    }
}
