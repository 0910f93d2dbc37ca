//! How placement groups are: for `placement_group_table()` and for people.

use super::HeadCore;
use crate::amounts::by_name;
use crate::demands::placement_strategy;
use crate::placement_groups::{GroupOwner, GroupPhase, PlacementGroup};
use oxiray_machine::Key;
use oxiray_scheduler::{GroupPlacement, place_group};
use oxiray_wire::message::{GroupQuery, GroupReport};
use oxiray_wire::state::{BundleRow, GroupRow, GroupScheduling, Slots};
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
        let groups = found.into_iter().map(|group| self.group(group)).collect();
        self.send(from, GroupReport { request: asked.request, groups });
    }

    /// The groups that are not removed first.
    pub(super) fn group_list(&self, limit: usize) -> Vec<GroupRow> {
        let is_removed = |group: &&PlacementGroup| matches!(group.phase, GroupPhase::Removed(_));
        let (removed, there): (Vec<_>, Vec<_>) = self.groups.known.iter().partition(is_removed);
        there.into_iter().chain(removed).take(limit).map(|group| self.group(group)).collect()
    }

    fn group(&self, group: &PlacementGroup) -> GroupRow {
        let description = &group.description;
        let reservation = self.groups.reservations.get(&description.id);
        let (scheduling, reason) = self.scheduling(group);
        let took = reservation.and_then(|reservation| reservation.took);
        let bundles = description.group.bundles.iter().enumerate().map(|(index, bundle)| BundleRow {
            resources: by_name(bundle.demand.iter()),
            node_id: group.nodes[index],
            devices: slots(self.members.devices_of_bundle(group, index)),
        });
        GroupRow {
            placement_group_id: description.id,
            name: description.name.clone(),
            namespace: description.namespace.clone(),
            strategy: placement_strategy(description.group.strategy),
            state: group.phase.state(),
            job_id: description.job,
            detached: description.owner == GroupOwner::Nobody,
            bundles: bundles.collect(),
            reason,
            scheduling,
            creation_ms: took.map_or(0.0, |took| took.as_secs_f64() * 1e3),
            domain: description.group.domain.clone(),
        }
    }

    /// What the scheduler says of a group, and why it waits or was removed.
    fn scheduling(&self, group: &PlacementGroup) -> (GroupScheduling, Option<String>) {
        match &group.phase {
            GroupPhase::Pending | GroupPhase::Rescheduling => {
                let wanted = &group.description.group;
                match place_group(&self.members.all_views(), wanted) {
                    GroupPlacement::On(_) => (GroupScheduling::Queued, None),
                    GroupPlacement::Wait(reason) => {
                        (GroupScheduling::NoResources, Some(self.members.group_reason(wanted, &reason, false)))
                    }
                    GroupPlacement::Never(reason) => {
                        (GroupScheduling::Infeasible, Some(self.members.group_reason(wanted, &reason, true)))
                    }
                }
            }
            GroupPhase::Prepared { .. } => (GroupScheduling::Started, None),
            GroupPhase::Created => (GroupScheduling::Finished, None),
            GroupPhase::Removed(why) => (GroupScheduling::Removed, Some(why.clone())),
        }
    }
}

fn slots(devices: BTreeMap<String, Vec<u32>>) -> BTreeMap<String, Slots> {
    devices.into_iter().map(|(resource, numbers)| (resource, Slots { numbers })).collect()
}
