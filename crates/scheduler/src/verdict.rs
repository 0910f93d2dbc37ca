//! Why a request is not met on each machine: the first rule that fails there.

use std::collections::BTreeMap;

use oxiray_ids::NodeId;
use oxiray_resources::{Demand, Never, Quantity, Room, amount_in_words, size_in_words};

use crate::strategy::{Otherwise, ResourceRequest, Selector, Strategy};
use crate::{Group, GroupStrategy, NodeView};

/// The most devices that one verdict names.
const DEVICES_NAMED_MAX: usize = 16;

/// The rules, in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Another machine is asked for.
    Affinity,
    /// Its labels are not those asked for.
    Labels,
    /// It has none of a resource.
    Missing,
    /// It has too little of a resource, whatever runs.
    TooSmall,
    /// Too little of a resource is free now.
    Busy,
    /// Every bundle finds room on it alone; what keeps the group is not this machine.
    Together,
}

impl Rule {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Affinity => "affinity",
            Self::Labels => "labels",
            Self::Missing => "missing",
            Self::TooSmall => "too_small",
            Self::Busy => "busy",
            Self::Together => "together",
        }
    }
}

/// What keeps something from one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The machine.
    pub node: NodeId,
    /// The first rule that fails; nothing where the machine has room.
    pub failed: Option<(Rule, String)>,
}

/// What keeps `resource_request` from each machine.
pub fn verdicts(nodes: &[NodeView], resource_request: &ResourceRequest) -> Vec<Verdict> {
    nodes.iter().map(|view| Verdict { node: view.node, failed: of_request(view, resource_request) }).collect()
}

/// What keeps a group's bundles from each machine: of those that find no room there, the one that fails the first rule.
pub fn group_verdicts(nodes: &[NodeView], group: &Group) -> Vec<Verdict> {
    let kinds = group.kinds();
    let of = |view: &NodeView| {
        let bundles = kinds.iter().filter_map(|(index, bundle)| {
            let failed = labels(view, std::slice::from_ref(&bundle.selector)).or_else(|| room(view, &bundle.demand));
            failed.map(|(rule, text)| (rule, format!("bundle {index}, {}: {text}", bundle.demand)))
        });
        bundles.min_by_key(|(rule, _)| *rule).or_else(|| {
            let demands: Vec<&Demand> = group.bundles.iter().map(|bundle| &bundle.demand).collect();
            let is_on_one = matches!(group.strategy, GroupStrategy::StrictPack) || nodes.len() == 1;
            let misfit = view.fits_together(&demands).err().filter(|_| is_on_one);
            misfit.map(|misfit| {
                let (asked, resource, free) = (misfit.asked, misfit.resource, misfit.free);
                let [asked, free] = [asked, free].map(|amount| amount_in_words(&resource, amount));
                let resource = resource.as_option();
                (Rule::Together, format!("the bundles together ask for {asked} {resource}, and {free} are free"))
            })
        })
    };
    nodes.iter().map(|view| Verdict { node: view.node, failed: of(view) }).collect()
}

fn of_request(view: &NodeView, resource_request: &ResourceRequest) -> Option<(Rule, String)> {
    if let Some(place) = resource_request.place.as_deref() {
        if let Strategy::Node { node, otherwise: Otherwise::Wait | Otherwise::Fail } = &place.strategy
            && *node != view.node
        {
            return Some((Rule::Affinity, format!("only machine {} is asked for", node.hex())));
        }
        let hard = match &place.strategy {
            Strategy::Labels { hard, .. } => Some(hard.clone()),
            _ => None,
        };
        let failed = labels(view, hard.as_slice()).or_else(|| labels(view, &place.selectors));
        if failed.is_some() {
            return failed;
        }
    }
    room(view, &resource_request.demand)
}

/// The first condition that the labels do not meet, where no selector matches; no selector is any machine.
fn labels(view: &NodeView, selectors: &[Selector]) -> Option<(Rule, String)> {
    if selectors.is_empty() || selectors.iter().any(|selector| selector.matches(&view.labels)) {
        return None;
    }
    let unmet = selectors.iter().flat_map(|selector| &selector.0).find(|condition| !condition.holds(&view.labels))?;
    let has = |labels: &BTreeMap<String, String>| match labels.get(&unmet.key) {
        Some(value) => format!("it is `{value}`"),
        None => "there is no such label".to_owned(),
    };
    Some((Rule::Labels, format!("{unmet} is asked for, and {}", has(&view.labels))))
}

fn room(view: &NodeView, demand: &Demand) -> Option<(Rule, String)> {
    if let Err(Never { resource, asked, total }) = view.inventory.could_ever(demand) {
        let is_zero = total.is_zero();
        let [asked, total] = [asked, total].map(|amount| amount_in_words(&resource, amount));
        let resource = resource.as_option();
        return Some(if is_zero {
            (Rule::Missing, format!("it has no {resource}, and {asked} is asked for"))
        } else {
            (Rule::TooSmall, format!("it has {total} {resource}, and {asked} is asked for"))
        });
    }
    let busy = view.fits(demand).err()?;
    let resource = busy.resource.source();
    let devices = view.free_devices.get(resource).cloned().unwrap_or_default();
    let (is_memory, shown) = (busy.resource.is_device_memory(), |room: Room| room.free.share.to_string());
    let free_of = |room: Room| if is_memory { size_in_words(room.free.memory_bytes) } else { shown(room) };
    let each = devices.iter().enumerate().take(DEVICES_NAMED_MAX).map(|(device, room)| match room {
        Some(room) => format!("{resource} {device}: {} free", free_of(room)),
        None => format!("{resource} {device}: out of service"),
    });
    let each: Vec<String> = each.collect();
    let more = devices.shares().count().saturating_sub(DEVICES_NAMED_MAX);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let each = if each.is_empty() { String::new() } else { format!(" ({}{more})", each.join(", ")) };
    assert!(busy.asked > Quantity::ZERO, "what is not asked for is never short");
    Some((Rule::Busy, format!("{busy}{each}")))
}
