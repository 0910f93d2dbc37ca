//! What there is of a placement group besides where its bundles are, until it is removed; and who wants to run within one.

use super::{GroupPhase, PlacementGroups};
use crate::demands::{Need, demand_of, holds};
use crate::failures::for_actor;
use oxiray_ids::{JobId, NodeId, PlacementGroupId};
use oxiray_machine::{GroupMembership, Key};
use oxiray_resources::Demand;
use oxiray_scheduler::Bundle;
use oxiray_wire::message::{ActorCreate, Amount, Failure, FailureCode, GroupCreate, Strategy};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What is kept of a group that is not removed.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) ticket: Option<u64>,
    pub(crate) since: Instant,
    pub(crate) took: Option<Duration>,
    /// Who made it.
    pub(crate) maker: Key,
    /// What it asked for, where that is written down.
    pub(crate) asked: Option<GroupCreate>,
    /// How urgent it is.
    pub(crate) priority: i32,
    /// Whether it may give all of it back early for what is more urgent.
    pub(crate) preemptible: bool,
}

/// All placement groups.
#[derive(Debug, Default)]
pub(crate) struct GroupTable {
    pub(crate) known: PlacementGroups,
    /// What there is besides of those that are not removed.
    pub(crate) reservations: BTreeMap<PlacementGroupId, Reservation>,
    /// Those that came since it was last looked who cannot ever be placed.
    pub(crate) unjudged: Vec<PlacementGroupId>,
}

impl GroupTable {
    /// That a group is no more, and why, for who wants to run within it.
    pub(crate) fn gone(&self, id: PlacementGroupId) -> Failure {
        let group = self.known.get(id);
        let why = match group.map(|group| &group.phase) {
            Some(GroupPhase::Removed(why)) => why.as_str(),
            _ => "it was removed long ago, or another cluster made it",
        };
        let name = group.map(|group| group.description.name.as_str()).filter(|name| !name.is_empty());
        let named = name.map(|name| format!(" `{name}`")).unwrap_or_default();
        let text = format!("placement group{named} {} is no more: {why}. Make a new one to run within", id.hex());
        FailureCode::TaskGroupRemoved.because(text)
    }

    /// That the group in which somebody was to run is no more.
    pub(crate) fn lost(&self, home: GroupMembership) -> Option<Failure> {
        (!self.reservations.contains_key(&home.group)).then(|| self.gone(home.group))
    }

    /// The group's name, or its identifier where it has none, as it stands in a sentence.
    pub(crate) fn name_of(&self, id: PlacementGroupId) -> String {
        let name = self.known.get(id).map(|group| group.description.name.as_str()).filter(|name| !name.is_empty());
        name.map_or_else(|| id.hex(), |name| format!("`{name}`"))
    }

    /// The same, and the job that made it, as long as the group is remembered.
    pub(crate) fn origin_of(&self, id: PlacementGroupId) -> (String, Option<JobId>) {
        (self.name_of(id), self.known.get(id).map(|group| group.description.job))
    }

    /// Whether it may give all of it back early.
    pub(crate) fn is_preemptible(&self, id: PlacementGroupId) -> bool {
        self.reservations.get(&id).is_some_and(|reservation| reservation.preemptible)
    }

    /// The bundles of an attempt that is under way, and the node of each.
    pub(crate) fn offered(&self, id: PlacementGroupId) -> Vec<(usize, NodeId)> {
        let Some(group) = self.known.get(id) else { return Vec::new() };
        let GroupPhase::Prepared { offered, .. } = &group.phase else { return Vec::new() };
        offered.iter().filter_map(|bundle| Some((*bundle, group.nodes[*bundle]?))).collect()
    }

    /// What somebody waits for who wants to run in a group; otherwise why they never can.
    pub(crate) fn need_within(&self, amounts: &[Amount], told: &Strategy, label: &str) -> Result<Need, Failure> {
        let unschedulable = |text: String| FailureCode::TaskUnschedulable.because(text);
        let demand = demand_of(amounts, label).map_err(unschedulable)?;
        let id = told.group.unwrap_or_default();
        let found = self.known.get(id).filter(|group| !matches!(group.phase, GroupPhase::Removed(_)));
        let Some(found) = found else { return Err(self.gone(id)) };
        let bundles = &found.description.group.bundles;
        let asked: Vec<&Bundle> = match told.bundle {
            Some(bundle) => bundles.get(bundle.index()).into_iter().collect(),
            None => bundles.iter().collect(),
        };
        if !asked.iter().any(|bundle| holds(&bundle.demand, &demand)) {
            let there: Vec<String> = asked.iter().map(|bundle| bundle.demand.to_string()).collect();
            let there = if there.is_empty() { "there is no such bundle".to_owned() } else { there.join(", ") };
            let text = format!(
                "{label} asks for {demand} within placement group {}, and no bundle it may use has that: {there}; ask for \
                 less, or make the group with larger bundles",
                id.hex()
            );
            return Err(unschedulable(text));
        }
        Ok(Need::Within { group: id, bundle: told.bundle, demand })
    }

    /// The same for an actor, with what it holds once it runs.
    pub(crate) fn actor_within(
        &self,
        asked: &ActorCreate,
        told: &Strategy,
        label: &str,
    ) -> Result<(Need, Demand), Failure> {
        let need = self.need_within(&asked.placement, told, label).map_err(|failure| for_actor(&failure))?;
        let unschedulable = |text: String| FailureCode::ActorUnschedulable.because(text);
        let running = demand_of(&asked.running, label).map_err(unschedulable)?;
        if !need.demand().is_some_and(|placement| holds(placement, &running)) {
            return Err(unschedulable(format!("{label} holds more than it asks for when it is placed")));
        }
        Ok((need, running))
    }
}
