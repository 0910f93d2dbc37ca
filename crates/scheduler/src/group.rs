//! Which machines the bundles of a placement group go to, all of them or none.
//!
//! - GROUP-1: every bundle has a machine that its selector matches, and each machine has room for all bundles it is
//!   given, device by device.
//! - GROUP-2: [`GroupStrategy::StrictPack`] uses one machine, [`GroupStrategy::StrictSpread`] one for each bundle;
//!   [`GroupStrategy::Pack`] uses one where one has room, [`GroupStrategy::Spread`] one for each where there are as many.
//! - GROUP-3: a group that could be placed with nothing running is never said to be impossible.
//! - GROUP-4: where a domain is asked for, all machines of the group have that label, with one value. Of the domains with room
//!   the one with the fewest machines is taken, so that the large ones stay for who needs them.
//!
//! The search is bounded ([`crate::group_search`]); a group for which it finds no way waits, and is tried again when
//! something has become free.
//!
//! # Cost
//! With `n` machines, `b` bundles of `k` kinds and `m` machines that get some: what changed, for each kind, as for a
//! [`ResourceRequest`](crate::ResourceRequest); one pass over `n` sums; and `b + k·m` looks at one machine, each after a pass over `n` bits.

use std::collections::HashSet;

use oxiray_ids::NodeId;
use oxiray_resources::Demand;
use rustc_hash::FxBuildHasher;

use crate::group_reason::GroupReason;
use crate::group_search::NoWay;
use crate::{Fleet, NodeView, Selector};

/// The most bundles of one group.
pub const BUNDLES_MAX: usize = 1024;

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
    /// The label of which all its machines have the same value.
    pub domain: Option<String>,
}

impl Group {
    /// The bundles that ask for something else than those before them, each with its number.
    pub(crate) fn kinds(&self) -> Vec<(usize, &Bundle)> {
        let mut seen: HashSet<&Bundle, FxBuildHasher> = HashSet::default();
        self.bundles.iter().enumerate().filter(|(_, bundle)| seen.insert(bundle)).collect()
    }
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
///
/// [`Fleet::find_group`] finds the same for machines that it knows already; only this one knows why there is no room.
pub fn place_group(nodes: &[NodeView], group: &Group) -> GroupPlacement {
    let mut fleet = Fleet::default();
    for view in nodes {
        fleet.put(view);
    }
    if let Some(machines) = fleet.find_group(group, &[]) {
        return GroupPlacement::On(machines);
    }
    if fleet.could_ever_place(group) {
        return GroupPlacement::Wait(GroupReason::of(nodes, group, false));
    }
    let emptied: Vec<NodeView> = nodes.iter().map(NodeView::emptied).collect();
    GroupPlacement::Never(GroupReason::of(&emptied, group, true))
}

impl Fleet {
    /// The machine of each bundle, or none, while others of the group's bundles are where `standing` says, each as often
    /// as there are: those that pack are drawn there, those that spread keep off. Nothing is booked.
    pub fn find_group(&mut self, group: &Group, standing: &[NodeId]) -> Option<Vec<NodeId>> {
        let slots = self.search(group, standing, false).ok()?;
        Some(slots.into_iter().filter_map(|slot| self.node_at(slot)).collect())
    }

    /// Whether the group could perhaps be placed with nothing running (GROUP-3).
    pub fn could_ever_place(&mut self, group: &Group) -> bool {
        self.search(group, &[], true) != Err(NoWay { is_proven: true })
    }
}
