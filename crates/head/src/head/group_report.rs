//! How placement groups are: for `placement_group_table()` and for people.

use super::report::by_name;
use super::told::devices_of_bundle;
use super::{HeadCore, Key};
use crate::{GroupOwner, GroupPhase, PlacementGroup};
use oxiray_scheduler::{GroupPlacement, place_group};
use oxiray_wire::message::{GroupQuery, GroupReport};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// The most groups of one answer.
const LISTED_MAX: usize = 10_000;

impl HeadCore {
    pub(super) fn group_query(&mut self, from: Key, asked: &GroupQuery) {
        let found: Vec<&PlacementGroup> = if let Some(group) = asked.group {
            self.groups.known.get(group).into_iter().collect()
        } else if !asked.name.is_empty() {
            let job = self.clients.by_key.get(&from).and_then(|client| self.jobs.known.get(client.job));
            job.and_then(|job| self.groups.known.lookup(&job.namespace, &asked.name)).into_iter().collect()
        } else {
            self.groups.known.iter().take(LISTED_MAX).collect()
        };
        let groups: Vec<Json> = found.into_iter().map(|group| self.group(group)).collect();
        self.send(from, GroupReport { request: asked.request, groups: Json::from(groups).to_string() });
    }

    /// The groups that are not removed first.
    pub(super) fn group_list(&self, limit: usize) -> Vec<Json> {
        let is_removed = |group: &&PlacementGroup| matches!(group.phase, GroupPhase::Removed(_));
        let (removed, there): (Vec<_>, Vec<_>) = self.groups.known.iter().partition(is_removed);
        there.into_iter().chain(removed).take(limit).map(|group| self.group(group)).collect()
    }

    fn group(&self, group: &PlacementGroup) -> Json {
        let description = &group.description;
        let reservation = self.groups.reservations.get(&description.id);
        let (scheduling, reason) = match &group.phase {
            GroupPhase::Pending | GroupPhase::Rescheduling => {
                match place_group(&self.all_views(), &description.group) {
                    GroupPlacement::On(_) => ("QUEUED", None),
                    GroupPlacement::Wait(reason) => ("NO_RESOURCES", Some(reason.message(false))),
                    GroupPlacement::Never(reason) => ("INFEASIBLE", Some(reason.message(true))),
                }
            }
            GroupPhase::Prepared { .. } => ("SCHEDULING_STARTED", None),
            GroupPhase::Created => ("FINISHED", None),
            GroupPhase::Removed(why) => ("REMOVED", Some(why.clone())),
        };
        let milliseconds =
            reservation.and_then(|reservation| reservation.took).map_or(0.0, |took| took.as_secs_f64() * 1e3);
        let bundles = description.group.bundles.iter().enumerate().map(|(index, bundle)| {
            json!({
                "resources": by_name(bundle.demand.iter()),
                "node_id": group.nodes[index].map(|node| node.hex()).unwrap_or_default(),
                "devices": self.devices_of_bundle(group, index),
            })
        });
        json!({
            "placement_group_id": description.id.hex(), "name": description.name, "namespace": description.namespace,
            "strategy": description.group.strategy.name(), "state": phase_name(&group.phase), "job_id": description.job.hex(),
            "detached": description.owner == GroupOwner::Nobody, "bundles": bundles.collect::<Vec<_>>(),
            "reason": reason, "scheduling_state": scheduling, "creation_ms": milliseconds,
        })
    }

    /// The numbers of the devices that a bundle has a part of, on the node where it is.
    pub(super) fn devices_of_bundle(&self, group: &PlacementGroup, index: usize) -> BTreeMap<String, Vec<u32>> {
        let id = group.description.id;
        let member = group.nodes[index].and_then(|node| self.members.by_node.get(&node));
        let member = member.and_then(|key| self.members.by_key.get(key));
        member.map(|member| devices_of_bundle(&member.state, (id, index))).unwrap_or_default()
    }
}

/// Ray's name for a group's phase, and ours where Ray has none.
pub(super) fn phase_name(phase: &GroupPhase) -> &'static str {
    match phase {
        GroupPhase::Pending => "PENDING",
        GroupPhase::Rescheduling => "RESCHEDULING",
        GroupPhase::Prepared { .. } => "PREPARED",
        GroupPhase::Created => "CREATED",
        GroupPhase::Removed(_) => "REMOVED",
    }
}
