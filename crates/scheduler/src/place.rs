//! Which machine a request is met on: the rules, plainly, and why there is none.
//!
//! - PLACE-1: a machine is named only where its view has room for the demand, device by device.
//! - PLACE-2: [`Placement::Never`] means that no machine that the request allows could meet it with nothing running.

use oxiray_ids::NodeId;
use oxiray_resources::Demand;

use crate::strategy::{Otherwise, Place, ResourceRequest, Selector, Strategy};
use crate::{HALF, Near, NodeView, Reason};

/// Where a request is met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The machine that has what is asked for.
    On(NodeId),
    /// Some machine could, once others give back what they hold or devices return to service.
    Wait(Reason),
    /// No machine could with nothing running on it, or the request says to fail where its machine is busy.
    Never(Reason),
}

/// Places `resource_request` by a look at every machine. [`Strategy::Spread`] looks from the machine at `turn` on.
///
/// [`Fleet`](crate::Fleet) finds the same machine without a look at each; only this one knows why there is none.
pub fn place(nodes: &[NodeView], resource_request: &ResourceRequest, near: &Near<'_>, turn: usize) -> Placement {
    let demand = &resource_request.demand;
    let Some(place) = &resource_request.place else {
        return packed(&nodes.iter().collect::<Vec<_>>(), demand, near, "");
    };
    let (mut wait, mut never) = (None, None);
    let anywhere = [Selector::default()];
    let selectors = if place.selectors.is_empty() { &anywhere[..] } else { &place.selectors };
    for selector in selectors {
        match place_where(nodes, demand, place, selector, near, turn) {
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

fn place_where(
    nodes: &[NodeView],
    demand: &Demand,
    place: &Place,
    selector: &Selector,
    near: &Near<'_>,
    turn: usize,
) -> Placement {
    let allowed: Vec<&NodeView> = nodes.iter().filter(|view| selector.matches(&view.labels)).collect();
    if allowed.is_empty() && !nodes.is_empty() {
        return Placement::Never(Reason::no_labels(nodes, demand, selector));
    }
    let among = if selector.0.is_empty() { String::new() } else { format!(" where {selector}") };
    match &place.strategy {
        Strategy::Default => packed(&allowed, demand, near, &among),
        Strategy::Spread => spread(nodes, &allowed, demand, &among, turn),
        Strategy::Node { node, otherwise } => on_node(&allowed, demand, (*node, *otherwise), near, &among),
        Strategy::Labels { hard, soft } => labelled(nodes, &allowed, demand, (hard, soft), near),
    }
}

fn labelled(
    all: &[NodeView],
    allowed: &[&NodeView],
    demand: &Demand,
    (hard, soft): (&Selector, &Selector),
    near: &Near<'_>,
) -> Placement {
    let matching: Vec<&NodeView> = allowed.iter().copied().filter(|view| hard.matches(&view.labels)).collect();
    if matching.is_empty() && !allowed.is_empty() {
        return Placement::Never(Reason::no_labels(all, demand, hard));
    }
    let preferred: Vec<&NodeView> = matching.iter().copied().filter(|view| soft.matches(&view.labels)).collect();
    if let on @ Placement::On(_) = packed(&preferred, demand, near, "") {
        return on;
    }
    let among = if hard.0.is_empty() { String::new() } else { format!(" where {hard}") };
    packed(&matching, demand, near, &among)
}

fn on_node(
    nodes: &[&NodeView],
    demand: &Demand,
    (node, otherwise): (NodeId, Otherwise),
    near: &Near<'_>,
    among: &str,
) -> Placement {
    let others = || nodes.iter().copied().filter(|view| view.node != node).collect::<Vec<_>>();
    let is_soft = matches!(otherwise, Otherwise::ElsewhereWhenGone | Otherwise::Elsewhere);
    let Some(wanted) = nodes.iter().find(|view| view.node == node) else {
        if is_soft {
            return packed(nodes, demand, near, among);
        }
        return Placement::Never(Reason::gone(demand, node));
    };
    let Err(busy) = wanted.fits(demand) else { return Placement::On(node) };
    let here = format!(" on machine {}", node.hex());
    if wanted.inventory.could_ever(demand).is_err() {
        let elsewhere = is_soft.then(|| packed(&others(), demand, near, among));
        return elsewhere.unwrap_or_else(|| Placement::Never(Reason::never(&[*wanted], demand, &here)));
    }
    match otherwise {
        Otherwise::Wait | Otherwise::ElsewhereWhenGone => Placement::Wait(Reason::busy(demand, busy, &here)),
        Otherwise::Fail => Placement::Never(Reason::occupied(demand, busy, &here)),
        Otherwise::Elsewhere => match packed(&others(), demand, near, among) {
            on @ Placement::On(_) => on,
            Placement::Wait(_) | Placement::Never(_) => Placement::Wait(Reason::busy(demand, busy, &here)),
        },
    }
}

/// Where large arguments lie; at home, while that is less than half used; machine after machine until each is half used;
/// the least used.
fn packed(nodes: &[&NodeView], demand: &Demand, near: &Near<'_>, among: &str) -> Placement {
    let mut fitting = match fitting(nodes, demand, among) {
        Ok(fitting) => fitting,
        Err(placement) => return placement,
    };
    if demand.devices().next().is_none() && fitting.iter().any(|view| view.free_devices.is_empty()) {
        fitting.retain(|view| view.free_devices.is_empty());
    }
    let of = |node: NodeId| fitting.iter().copied().find(|view| view.node == node);
    if let Some(view) = near.with_arguments().into_iter().find_map(of) {
        return Placement::On(view.node);
    }
    // What stands first wins among equals.
    let home = near.home.and_then(of);
    let in_order = || home.into_iter().chain(fitting.iter().copied());
    let first = in_order().find(|view| view.step() < HALF);
    let chosen = first.or_else(|| in_order().min_by_key(|view| view.step()));
    Placement::On(chosen.expect("what fits is not empty").node)
}

fn spread(all: &[NodeView], nodes: &[&NodeView], demand: &Demand, among: &str, turn: usize) -> Placement {
    let fitting = match fitting(nodes, demand, among) {
        Ok(fitting) => fitting,
        Err(placement) => return placement,
    };
    let position = |view: &NodeView| all.iter().position(|other| other.node == view.node);
    let chosen = fitting.into_iter().min_by_key(|view| {
        let position = position(view);
        (view.step(), position < Some(turn), position)
    });
    Placement::On(chosen.expect("what fits is not empty").node)
}

/// The machines with room (PLACE-1).
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
    match busy {
        _ if !fitting.is_empty() => Ok(fitting),
        Some(shortage) => Err(Placement::Wait(Reason::busy(demand, shortage, among))),
        None => Err(Placement::Never(Reason::never(nodes, demand, among))),
    }
}
