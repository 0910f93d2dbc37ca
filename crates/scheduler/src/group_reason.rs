//! Why a placement group is not placed, in words for the person who made it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use oxiray_resources::{Demand, amount_in_words};

use crate::{
    Bundle, Group, GroupPlacement, GroupStrategy, Misfit, Near, NodeView, Place, Placement, Reason, ResourceRequest,
    Strategy, place, place_group,
};

/// How many domains are named.
const DOMAINS_NAMED_MAX: usize = 8;

/// Why a placement group is not placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupReason {
    /// Its strategy.
    pub strategy: GroupStrategy,
    /// What stands in the way.
    pub obstacle: GroupObstacle,
}

/// What stands in a group's way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupObstacle {
    /// No machine has room for a bundle, even alone.
    Bundle {
        /// The bundle.
        bundle: usize,
        /// Why.
        reason: Reason,
    },
    /// There are fewer machines with room than bundles that want one each.
    Machines {
        /// How many bundles there are.
        bundles: usize,
        /// What those of them ask for that want more machines than have room for it; `None` where all kinds of bundles
        /// together do.
        demand: Option<Demand>,
        /// How many bundles ask for that.
        wanted: usize,
        /// How many machines have room for one of these.
        with_room: usize,
        /// How many machines there are.
        machines: usize,
        /// Whether the group could be placed if bundles were allowed to share machines.
        could_spread: bool,
    },
    /// The first bundles together have no room.
    Together {
        /// The first bundle that finds none beside those before it.
        bundle: usize,
        /// What it asks for.
        demand: Demand,
        /// What is missing on the machine where the most bundles fit.
        misfit: Misfit,
    },
    /// No domain has room for all of them.
    Domains {
        /// The label that names them.
        label: String,
        /// Their values, and how many machines each has: the largest first.
        sizes: Vec<(String, usize)>,
        /// How many machines have no such label.
        unlabelled: usize,
    },
    /// Each finds room, and no way was found in which all do.
    NoWay,
}

impl GroupReason {
    /// Why there is no room on these machines; `is_never` where they are the machines with nothing running.
    pub(crate) fn of(nodes: &[NodeView], group: &Group, is_never: bool) -> Self {
        let alone = group.kinds().into_iter().find_map(|(index, bundle)| alone(nodes, index, bundle));
        let obstacle = alone.unwrap_or_else(|| match (&group.domain, group.strategy) {
            (Some(label), _) => apart_in_domains(nodes, label),
            (None, GroupStrategy::StrictSpread) => apart(nodes, group, is_never),
            (None, _) => together(nodes, group),
        });
        Self { strategy: group.strategy, obstacle }
    }

    /// What stands in the way, and what to do where time will not help: the end of a sentence that says who waits.
    pub fn message(&self, is_never: bool) -> String {
        let advice = if is_never { "; ask for less, or start the cluster with more" } else { "" };
        match &self.obstacle {
            GroupObstacle::Bundle { bundle, reason } => reason.message(&format!("bundle {bundle}")),
            GroupObstacle::Machines { bundles, demand, wanted, with_room, machines, could_spread } => {
                let of_them = match demand {
                    Some(demand) if wanted == bundles => format!(", {demand}"),
                    Some(demand) => format!(": {} {} for {demand}", plural(*wanted, "bundle"), asks(*wanted)),
                    None => String::new(),
                };
                let now = if is_never { "" } else { "now " };
                let room = if is_never && with_room == machines {
                    format!("there {}", count(*machines, "is", "are", "machine"))
                } else {
                    let one = if demand.is_some() { "room for it" } else { "room for any of them" };
                    format!("{with_room} of {} {now}{} {one}", plural(*machines, "machine"), have(*with_room))
                };
                let advice = match (is_never, could_spread) {
                    (true, true) => "; use SPREAD, or start more such machines",
                    (true, false) => "; start more such machines",
                    (false, _) => "",
                };
                format!(
                    "{} wants a machine of its own for each of the {bundles} bundles{of_them}, and {room}{advice}",
                    self.strategy.name()
                )
            }
            GroupObstacle::Together { bundle, demand, misfit } => {
                let Misfit { resource, asked, free, total, .. } = misfit;
                let pieces = if asked <= free { ", though not in one piece for each" } else { "" };
                let [asked, free, total] = [asked, free, total].map(|amount| amount_in_words(resource, *amount));
                let resource = resource.as_option();
                let has = if is_never {
                    format!("the machine has {total}{pieces}")
                } else {
                    format!("{free} of {total} are free{pieces}")
                };
                format!(
                    "bundle {bundle}, {demand}, finds no room beside the bundles before it: together they ask for {asked} \
                     {resource} of one machine, and {has}{advice}"
                )
            }
            GroupObstacle::Domains { label, sizes, unlabelled } => {
                let named = sizes.iter().take(DOMAINS_NAMED_MAX);
                let named: Vec<String> =
                    named.map(|(value, count)| format!("`{value}` has {}", plural(*count, "machine"))).collect();
                let others = sizes.len().saturating_sub(DOMAINS_NAMED_MAX);
                let more = if others > 0 { format!(", and {others} more have no more each") } else { String::new() };
                let there = if named.is_empty() {
                    format!("no machine has the label `{label}`")
                } else {
                    format!("of label `{label}` {}{more}", named.join(", "))
                };
                let now = if is_never { "" } else { " now" };
                format!(
                    "all bundles are to be on machines with one value of `{label}`, and no value has room for all of them\
                     {now}: {there}; {unlabelled} without that label do not count{advice}"
                )
            }
            GroupObstacle::NoWay => {
                format!("each bundle finds a machine with room, but no way was found in which all do{advice}")
            }
        }
    }
}

/// How large the domains are.
fn apart_in_domains(nodes: &[NodeView], label: &str) -> GroupObstacle {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for value in nodes.iter().filter_map(|view| view.labels.get(label)) {
        *counts.entry(value).or_default() += 1;
    }
    let unlabelled = nodes.len() - counts.values().sum::<usize>();
    let mut sizes: Vec<(String, usize)> = counts.into_iter().map(|(value, count)| (value.to_owned(), count)).collect();
    sizes.sort_by_key(|(_, count)| Reverse(*count));
    GroupObstacle::Domains { label: label.to_owned(), sizes, unlabelled }
}

/// What keeps a bundle from being placed even alone.
fn alone(nodes: &[NodeView], index: usize, bundle: &Bundle) -> Option<GroupObstacle> {
    let selectors = if bundle.selector.0.is_empty() { Vec::new() } else { vec![bundle.selector.clone()] };
    let resource_request =
        ResourceRequest::new(bundle.demand.clone(), Place { strategy: Strategy::Default, selectors });
    match place(nodes, &resource_request, &Near::default(), 0) {
        Placement::On(_) => None,
        Placement::Wait(reason) | Placement::Never(reason) => Some(GroupObstacle::Bundle { bundle: index, reason }),
    }
}

/// Why there is no machine for each bundle: too few for those of one kind, too few for all, or a mixture of both.
fn apart(nodes: &[NodeView], group: &Group, is_never: bool) -> GroupObstacle {
    let kinds = group.kinds();
    let has_room =
        |view: &NodeView, bundle: &Bundle| bundle.selector.matches(&view.labels) && view.fits(&bundle.demand).is_ok();
    let of_kind = kinds.iter().map(|(_, kind)| {
        let wanted = group.bundles.iter().filter(|bundle| bundle == kind).count();
        (Some(kind.demand.clone()), wanted, nodes.iter().filter(|view| has_room(view, kind)).count())
    });
    let any = nodes.iter().filter(|view| kinds.iter().any(|(_, kind)| has_room(view, kind))).count();
    let scarce = of_kind.chain([(None, group.bundles.len(), any)]).find(|(_, wanted, with_room)| wanted > with_room);
    let Some((demand, wanted, with_room)) = scarce else { return GroupObstacle::NoWay };
    let spread = Group { strategy: GroupStrategy::Spread, ..group.clone() };
    let could_spread = is_never && matches!(place_group(nodes, &spread), GroupPlacement::On(_));
    GroupObstacle::Machines {
        bundles: group.bundles.len(),
        demand,
        wanted,
        with_room,
        machines: nodes.len(),
        could_spread,
    }
}

fn together(nodes: &[NodeView], group: &Group) -> GroupObstacle {
    if nodes.len() > 1 && group.strategy != GroupStrategy::StrictPack {
        return GroupObstacle::NoWay;
    }
    let demands: Vec<&Demand> = group.bundles.iter().map(|bundle| &bundle.demand).collect();
    // How many of the first have room together is looked for in ever larger steps, and then between the last two.
    let first_misfit = |view: &NodeView| {
        let misfit = |count: usize| view.fits_together(&demands[..count]).err();
        let steps = std::iter::successors(Some(1), |step| Some((step * 2).min(demands.len())));
        let mut above = steps.take(demands.len()).find(|count| misfit(*count).is_some())?;
        let mut below = above / 2;
        while above - below > 1 {
            let middle = usize::midpoint(below, above);
            *(if misfit(middle).is_some() { &mut above } else { &mut below }) = middle;
        }
        misfit(above).map(|misfit| (above, misfit))
    };
    let furthest = nodes.iter().filter_map(first_misfit).max_by_key(|(count, _)| *count);
    furthest.map_or(GroupObstacle::NoWay, |(count, misfit)| GroupObstacle::Together {
        bundle: count - 1,
        demand: demands[count - 1].clone(),
        misfit,
    })
}

fn plural(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

fn count(count: usize, one: &str, many: &str, word: &str) -> String {
    format!("{} {}", if count == 1 { one } else { many }, plural(count, word))
}

fn asks(count: usize) -> &'static str {
    if count == 1 { "asks" } else { "ask" }
}

fn have(count: usize) -> &'static str {
    if count == 1 { "has" } else { "have" }
}
