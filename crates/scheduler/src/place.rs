//! Which machine a wish is met on.
//!
//! - PLACE-1: a machine is named only where its view has room for the demand, device by device.
//! - PLACE-2: [`Placement::Never`] means that no machine that the wish allows could meet it with nothing running.

use oxiray_ids::NodeId;
use oxiray_resources::Demand;

use crate::strategy::{Otherwise, Place, Selector, Strategy, Wish};
use crate::{NodeView, Reason};

/// The default strategy takes the preferred machine, and then others in order, until they are this much used.
pub const PACKED_UNTIL: f64 = 0.5;

/// Where a wish is met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The machine that has what is asked for.
    On(NodeId),
    /// Some machine could, once others give back what they hold or devices return to service.
    Wait(Reason),
    /// No machine could with nothing running on it, or the wish says to fail where its machine is busy.
    Never(Reason),
}

/// Places `wish`. The order of `nodes` is the caller's preference: the first is where the wish comes from. `turn` counts
/// the placements of [`Strategy::Spread`], so that equals take turns.
pub fn place(nodes: &[NodeView], wish: &Wish, turn: u64) -> Placement {
    let demand = &wish.demand;
    let Some(place) = &wish.place else { return packed(&nodes.iter().collect::<Vec<_>>(), demand, "") };
    let (mut wait, mut never) = (None, None);
    let anywhere = [Selector::default()];
    let selectors = if place.selectors.is_empty() { &anywhere[..] } else { &place.selectors };
    for selector in selectors {
        match place_where(nodes, demand, place, selector, turn) {
            Placement::Wait(reason) => drop(wait.get_or_insert(reason)),
            Placement::Never(reason) => drop(never.get_or_insert(reason)),
            on @ Placement::On(_) => return on,
        }
    }
    match (wait, never) {
        (Some(reason), _) => Placement::Wait(reason),
        (None, Some(reason)) => Placement::Never(reason),
        (None, None) => Placement::Never(Reason::never(&[], demand, "")),
    }
}

fn place_where(nodes: &[NodeView], demand: &Demand, place: &Place, selector: &Selector, turn: u64) -> Placement {
    let allowed: Vec<&NodeView> = nodes.iter().filter(|view| selector.matches(&view.labels)).collect();
    if allowed.is_empty() && !nodes.is_empty() {
        return Placement::Never(Reason::no_labels(nodes, demand, selector));
    }
    let among = if selector.0.is_empty() { String::new() } else { format!(" where {selector}") };
    match &place.strategy {
        Strategy::Default => packed(&allowed, demand, &among),
        Strategy::Spread => spread(&allowed, demand, &among, turn),
        Strategy::Node { node, otherwise } => on_node(&allowed, demand, *node, *otherwise, &among),
        Strategy::Labels { hard, soft } => labelled(nodes, &allowed, demand, hard, soft),
    }
}

fn labelled(all: &[NodeView], allowed: &[&NodeView], demand: &Demand, hard: &Selector, soft: &Selector) -> Placement {
    let matching: Vec<&NodeView> = allowed.iter().copied().filter(|view| hard.matches(&view.labels)).collect();
    if matching.is_empty() && !allowed.is_empty() {
        return Placement::Never(Reason::no_labels(all, demand, hard));
    }
    let preferred: Vec<&NodeView> = matching.iter().copied().filter(|view| soft.matches(&view.labels)).collect();
    if let on @ Placement::On(_) = packed(&preferred, demand, "") {
        return on;
    }
    let among = if hard.0.is_empty() { String::new() } else { format!(" where {hard}") };
    packed(&matching, demand, &among)
}

fn on_node(nodes: &[&NodeView], demand: &Demand, node: NodeId, otherwise: Otherwise, among: &str) -> Placement {
    let others = || nodes.iter().copied().filter(|view| view.node != node).collect::<Vec<_>>();
    let is_soft = matches!(otherwise, Otherwise::ElsewhereWhenGone | Otherwise::Elsewhere);
    let Some(wanted) = nodes.iter().find(|view| view.node == node) else {
        if is_soft {
            return packed(nodes, demand, among);
        }
        return Placement::Never(Reason::gone(demand, node));
    };
    let Err(busy) = wanted.fits(demand) else { return Placement::On(node) };
    let here = format!(" on machine {}", node.hex());
    if wanted.inventory.could_ever(demand).is_err() {
        let elsewhere = is_soft.then(|| packed(&others(), demand, among));
        return elsewhere.unwrap_or_else(|| Placement::Never(Reason::never(&[*wanted], demand, &here)));
    }
    match otherwise {
        Otherwise::Wait | Otherwise::ElsewhereWhenGone => Placement::Wait(Reason::busy(demand, busy, &here)),
        Otherwise::Fail => Placement::Never(Reason::occupied(demand, busy, &here)),
        Otherwise::Elsewhere => match packed(&others(), demand, among) {
            on @ Placement::On(_) => on,
            Placement::Wait(_) | Placement::Never(_) => Placement::Wait(Reason::busy(demand, busy, &here)),
        },
    }
}

fn packed(nodes: &[&NodeView], demand: &Demand, among: &str) -> Placement {
    let fitting = match fitting(nodes, demand, among) {
        Ok(fitting) => fitting,
        Err(placement) => return placement,
    };
    let used = |view: &NodeView| view.utilization();
    let first = fitting.iter().find(|view| used(view) < PACKED_UNTIL);
    let least = || fitting.iter().min_by(|one, other| used(one).total_cmp(&used(other)));
    let chosen = first.or_else(least).expect("what fits is not empty");
    Placement::On(chosen.node)
}

fn spread(nodes: &[&NodeView], demand: &Demand, among: &str, turn: u64) -> Placement {
    let mut fitting = match fitting(nodes, demand, among) {
        Ok(fitting) => fitting,
        Err(placement) => return placement,
    };
    fitting.sort_by_key(|view| view.node);
    let count = fitting.len();
    fitting.rotate_left((turn % count as u64) as usize);
    let chosen = fitting.iter().min_by(|one, other| one.utilization().total_cmp(&other.utilization()));
    Placement::On(chosen.expect("what fits is not empty").node)
}

/// The machines with room (PLACE-1): without accelerators where the demand asks for none and such machines have room.
fn fitting<'views>(
    nodes: &[&'views NodeView],
    demand: &Demand,
    among: &str,
) -> Result<Vec<&'views NodeView>, Placement> {
    let mut busy = None;
    let mut fitting = Vec::new();
    for view in nodes {
        match view.fits(demand) {
            Ok(()) => fitting.push(*view),
            Err(shortage) if busy.is_none() && view.inventory.could_ever(demand).is_ok() => busy = Some(shortage),
            Err(_) => {}
        }
    }
    if demand.devices().next().is_none() && fitting.iter().any(|view| view.free_devices.is_empty()) {
        fitting.retain(|view| view.free_devices.is_empty());
    }
    match busy {
        _ if !fitting.is_empty() => Ok(fitting),
        Some(shortage) => Err(Placement::Wait(Reason::busy(demand, shortage, among))),
        None => Err(Placement::Never(Reason::never(nodes, demand, among))),
    }
}
