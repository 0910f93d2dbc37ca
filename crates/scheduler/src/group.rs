//! Which machines the bundles of a placement group go to, all of them or none.
//!
//! - GROUP-1: every bundle has a machine that its selector matches, and each machine has room for all bundles it is
//!   given, device by device.
//! - GROUP-2: [`GroupStrategy::StrictPack`] uses one machine, [`GroupStrategy::StrictSpread`] one for each bundle;
//!   [`GroupStrategy::Pack`] uses one where one has room, [`GroupStrategy::Spread`] one for each where there are as many.
//! - GROUP-3: a group that could be placed with nothing running is never said to be impossible.
//!
//! Packing is a puzzle that has no fast solution in general. Where the obvious ways fail, others are tried up to a limit;
//! beyond it the group waits, and is tried again when something has become free.

use oxiray_ids::NodeId;
use oxiray_resources::Demand;

use crate::group_reason::GroupReason;
use crate::{NodeView, Selector};

/// The most bundles of one group.
pub const BUNDLES_MAX: usize = 1024;

/// How often a bundle is tried on a machine before the search gives up.
const STEPS_MAX: u32 = 1_000;

/// How the bundles of a group are spread over machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupStrategy {
    /// On as few machines as possible.
    Pack,
    /// On as many as possible.
    Spread,
    /// On one.
    StrictPack,
    /// Each on its own.
    StrictSpread,
}

impl GroupStrategy {
    /// The strategy of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Pack, Self::Spread, Self::StrictPack, Self::StrictSpread].into_iter().find(|one| one.name() == name)
    }

    /// As programs write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pack => "PACK",
            Self::Spread => "SPREAD",
            Self::StrictPack => "STRICT_PACK",
            Self::StrictSpread => "STRICT_SPREAD",
        }
    }
}

/// What is reserved together, on one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bundle {
    /// The resources.
    pub demand: Demand,
    /// The machines allowed.
    pub selector: Selector,
}

/// What a placement group asks for. Two are equal exactly where the same would serve both.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// How its bundles are spread.
    pub strategy: GroupStrategy,
    /// At least one, at most [`BUNDLES_MAX`].
    pub bundles: Vec<Bundle>,
    /// The machine to prefer for a group that packs strictly.
    pub preferred: Option<NodeId>,
}

/// Where a group goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupPlacement {
    /// The machine of each bundle, in the order of the bundles.
    On(Vec<NodeId>),
    /// It could be placed once others give back what they hold, or devices return to service.
    Wait(GroupReason),
    /// It could not with nothing running.
    Never(GroupReason),
}

/// Places `group` on `nodes`, whose order is the caller's preference.
pub fn place_group(nodes: &[NodeView], group: &Group) -> GroupPlacement {
    let views: Vec<&NodeView> = nodes.iter().collect();
    if let Ok(machines) = assign(&views, group) {
        return GroupPlacement::On(machines.into_iter().map(|machine| nodes[machine].node).collect());
    }
    let emptied: Vec<NodeView> = nodes.iter().map(NodeView::emptied).collect();
    let views: Vec<&NodeView> = emptied.iter().collect();
    match assign(&views, group) {
        Err(NoWay { is_proven: true }) => GroupPlacement::Never(GroupReason::of(&emptied, group)),
        _ => GroupPlacement::Wait(GroupReason::of(nodes, group)),
    }
}

/// No way of placing a group was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NoWay {
    /// Whether every way was ruled out.
    is_proven: bool,
}

/// Machines by their position.
type Machines = Result<Vec<usize>, NoWay>;

/// GROUP-2.
fn assign(views: &[&NodeView], group: &Group) -> Machines {
    let candidates: Vec<Vec<usize>> = group.bundles.iter().map(|bundle| candidates(views, bundle)).collect();
    if candidates.iter().any(Vec::is_empty) {
        return Err(NoWay { is_proven: true });
    }
    match group.strategy {
        GroupStrategy::StrictPack => on_one(views, group, &candidates),
        GroupStrategy::StrictSpread => each_on_its_own(views.len(), &candidates),
        GroupStrategy::Pack => on_one(views, group, &candidates).or_else(|_| Search::run(views, group, &candidates)),
        GroupStrategy::Spread => {
            each_on_its_own(views.len(), &candidates).or_else(|_| Search::run(views, group, &candidates))
        }
    }
}

/// The machines that have room for the bundle alone.
fn candidates(views: &[&NodeView], bundle: &Bundle) -> Vec<usize> {
    let fits = |view: &NodeView| bundle.selector.matches(&view.labels) && view.fits(&bundle.demand).is_ok();
    (0..views.len()).filter(|position| fits(views[*position])).collect()
}

fn on_one(views: &[&NodeView], group: &Group, candidates: &[Vec<usize>]) -> Machines {
    let demands: Vec<&Demand> = group.bundles.iter().map(|bundle| &bundle.demand).collect();
    let mut order: Vec<usize> = (0..views.len()).collect();
    order.sort_by_key(|position| group.preferred.is_none_or(|preferred| views[*position].node != preferred));
    let mut is_proven = true;
    for machine in order {
        if candidates.iter().any(|of_bundle| !of_bundle.contains(&machine)) {
            continue;
        }
        match views[machine].fits_together(&demands) {
            Ok(()) => return Ok(vec![machine; demands.len()]),
            Err(misfit) => is_proven &= misfit.is_proven,
        }
    }
    Err(NoWay { is_proven })
}

/// A machine for each bundle, each used once: a bundle may push another to where it fits too.
fn each_on_its_own(machines: usize, candidates: &[Vec<usize>]) -> Machines {
    let mut taken_by: Vec<Option<usize>> = vec![None; machines];
    for bundle in 0..candidates.len() {
        let mut visited = vec![false; machines];
        if !find_own(bundle, candidates, &mut taken_by, &mut visited) {
            return Err(NoWay { is_proven: true });
        }
    }
    let mut chosen = vec![0; candidates.len()];
    for (machine, bundle) in taken_by.into_iter().enumerate() {
        if let Some(bundle) = bundle {
            chosen[bundle] = machine;
        }
    }
    Ok(chosen)
}

fn find_own(bundle: usize, candidates: &[Vec<usize>], taken_by: &mut [Option<usize>], visited: &mut [bool]) -> bool {
    if let Some(machine) = candidates[bundle].iter().find(|machine| taken_by[**machine].is_none()) {
        taken_by[*machine] = Some(bundle);
        return true;
    }
    for machine in &candidates[bundle] {
        if std::mem::replace(&mut visited[*machine], true) {
            continue;
        }
        if taken_by[*machine].is_none_or(|other| find_own(other, candidates, taken_by, visited)) {
            taken_by[*machine] = Some(bundle);
            return true;
        }
    }
    false
}

/// Tries bundle after bundle on machine after machine, the likeliest first.
struct Search<'group> {
    views: &'group [&'group NodeView],
    group: &'group Group,
    candidates: &'group [Vec<usize>],
    /// The bundles, those with the fewest machines first.
    order: Vec<usize>,
    given: Vec<Vec<&'group Demand>>,
    chosen: Vec<usize>,
    steps_left: u32,
    is_proven: bool,
}

impl<'group> Search<'group> {
    fn run(views: &'group [&'group NodeView], group: &'group Group, candidates: &'group [Vec<usize>]) -> Machines {
        let mut order: Vec<usize> = (0..group.bundles.len()).collect();
        order.sort_by_key(|bundle| candidates[*bundle].len());
        let given = vec![Vec::new(); views.len()];
        let chosen = vec![0; order.len()];
        let mut search =
            Self { views, group, candidates, order, given, chosen, steps_left: STEPS_MAX, is_proven: true };
        if search.place(0) { Ok(search.chosen) } else { Err(NoWay { is_proven: search.is_proven }) }
    }

    fn place(&mut self, depth: usize) -> bool {
        let Some(&bundle) = self.order.get(depth) else { return true };
        let (group, candidates) = (self.group, self.candidates);
        let demand = &group.bundles[bundle].demand;
        let mut machines = candidates[bundle].clone();
        match group.strategy {
            GroupStrategy::Spread => machines.sort_by_key(|machine| self.given[*machine].len()),
            _ => machines.sort_by_key(|machine| self.given[*machine].is_empty()),
        }
        for machine in machines {
            if self.steps_left == 0 {
                self.is_proven = false;
                return false;
            }
            self.steps_left -= 1;
            self.given[machine].push(demand);
            self.chosen[bundle] = machine;
            match self.views[machine].fits_together(&self.given[machine]) {
                Ok(()) if self.place(depth + 1) => return true,
                Ok(()) => {}
                Err(misfit) => self.is_proven &= misfit.is_proven,
            }
            self.given[machine].pop();
        }
        false
    }
}
