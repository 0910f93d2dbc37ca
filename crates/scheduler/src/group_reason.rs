//! Why a placement group is not placed, in words for the person who made it.

use oxiray_resources::Demand;

use crate::{Bundle, Group, GroupStrategy, Misfit, Near, NodeView, Place, Placement, Reason, Strategy, Wish, place};

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
        /// How many machines have room for at least one of them.
        with_room: usize,
        /// How many machines there are.
        machines: usize,
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
    /// Each finds room, and no way was found in which all do.
    NoWay,
}

impl GroupReason {
    /// Why there is no room on these machines.
    pub(crate) fn of(nodes: &[NodeView], group: &Group) -> Self {
        let alone = group.kinds().into_iter().find_map(|(index, bundle)| alone(nodes, index, bundle));
        let obstacle = alone.unwrap_or_else(|| together(nodes, group));
        Self { strategy: group.strategy, obstacle }
    }

    /// What stands in the way, and what to do where time will not help: the end of a sentence that says who waits.
    pub fn message(&self, is_never: bool) -> String {
        let advice = if is_never { "; ask for less, or start the cluster with more" } else { "" };
        match &self.obstacle {
            GroupObstacle::Bundle { bundle, reason } => reason.message(&format!("bundle {bundle}")),
            GroupObstacle::Machines { bundles, with_room, machines } => {
                let room = if is_never || with_room == machines {
                    format!("there {}", count(*machines, "is", "are", "machine"))
                } else {
                    format!("of {} {with_room} now {} room for one", plural(*machines, "machine"), have(*with_room))
                };
                let advice = if is_never { "; use SPREAD, or start more machines" } else { "" };
                let strategy = self.strategy.name();
                format!("{strategy} wants a machine of its own for each of the {bundles} bundles, and {room}{advice}")
            }
            GroupObstacle::Together { bundle, demand, misfit } => {
                let Misfit { resource, asked, free, total, .. } = misfit;
                let pieces = if asked <= free { ", though not in one piece for each" } else { "" };
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
            GroupObstacle::NoWay => {
                format!("each bundle finds a machine with room, but no way was found in which all do{advice}")
            }
        }
    }
}

/// What keeps a bundle from being placed even alone.
fn alone(nodes: &[NodeView], index: usize, bundle: &Bundle) -> Option<GroupObstacle> {
    let selectors = if bundle.selector.0.is_empty() { Vec::new() } else { vec![bundle.selector.clone()] };
    let wish = Wish::new(bundle.demand.clone(), Place { strategy: Strategy::Default, selectors });
    match place(nodes, &wish, &Near::default(), 0) {
        Placement::On(_) => None,
        Placement::Wait(reason) | Placement::Never(reason) => Some(GroupObstacle::Bundle { bundle: index, reason }),
    }
}

fn together(nodes: &[NodeView], group: &Group) -> GroupObstacle {
    if group.strategy == GroupStrategy::StrictSpread {
        let kinds = group.kinds();
        let has_room = |view: &&NodeView| kinds.iter().any(|(_, bundle)| view.fits(&bundle.demand).is_ok());
        let with_room = nodes.iter().filter(has_room).count();
        return GroupObstacle::Machines { bundles: group.bundles.len(), with_room, machines: nodes.len() };
    }
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

fn have(count: usize) -> &'static str {
    if count == 1 { "has" } else { "have" }
}
