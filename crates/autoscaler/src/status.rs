//! What the autoscaler says of itself: to the head, to people, and to whoever makes a plan elsewhere.

use crate::INSTANCE_LABEL;
use crate::fleet::Fleet;
use crate::groups::group_of;
use oxiray_resources::Inventory;
use oxiray_scheduler::NodeGroup;
use oxiray_wire::message::{Amount, GrowthGroup, GrowthState};
use oxiray_wire::state::{AutoscalerState, GroupEntry, GroupStatus, GrowthView, MachineRecord, PlanRecord};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a plan is made from: what the autoscaler says of itself, and what the head says.
pub fn record_of(state: &AutoscalerState, told: &GrowthView) -> PlanRecord {
    let machines = told.machines.iter().map(|machine| {
        let replica = machine.labels.get(INSTANCE_LABEL).and_then(|instance| state.instances.get(instance));
        MachineRecord { replica: replica.cloned(), ..machine.clone() }
    });
    PlanRecord {
        machines: machines.collect(),
        waiting: told.waiting.clone(),
        standing: told.standing.clone(),
        ..state.record.clone().unwrap_or_default()
    }
}

pub(crate) fn instances_by_replica(fleet: &Fleet) -> BTreeMap<String, String> {
    fleet.instances().collect()
}

/// What the head is told.
pub(crate) fn state(
    fleet: &Fleet,
    now: Duration,
    groups: &[GroupEntry],
    instances: BTreeMap<String, String>,
    trouble: &str,
) -> GrowthState {
    let set_aside = fleet.set_aside_now(now);
    let mut record = fleet.record(now, groups, &GrowthView::default());
    // A number that grows by itself would make every state new.
    for replica in &mut record.replicas {
        replica.idle_s = 0.0;
    }
    let unmet = fleet.plan().unmet.iter().map(|unmet| format!("{} x {}: {}", unmet.count, unmet.who, unmet.why));
    let status = AutoscalerState {
        groups: groups.iter().map(|entry| group_status(fleet, entry, set_aside.get(&entry.name))).collect(),
        unmet: unmet.collect(),
        trouble: trouble.to_owned(),
        absence: String::new(),
        record: Some(record),
        instances,
    };
    GrowthState {
        groups: groups.iter().filter_map(|entry| Some(growth_group(&group_of(entry).ok()?))).collect(),
        leaving: fleet.leaving().into_iter().collect(),
        state: Some(status),
    }
}

fn group_status(fleet: &Fleet, entry: &GroupEntry, set_aside: Option<&String>) -> GroupStatus {
    GroupStatus {
        name: entry.name.clone(),
        limits: Some((entry.min, entry.max).into()),
        resources: entry.resources.clone(),
        hosts: entry.hosts,
        counts: fleet.counts(&entry.name),
        set_aside: set_aside.cloned(),
    }
}

fn growth_group(group: &NodeGroup) -> GrowthGroup {
    GrowthGroup {
        name: group.name.clone(),
        max: group.max,
        totals: amounts(&group.resources),
        first_host: amounts(&group.first_host),
        labels: group.labels.clone(),
    }
}

fn amounts(inventory: &Inventory) -> Vec<Amount> {
    let amounts = inventory.offers();
    amounts.map(|(name, total)| Amount { resource: name.to_string(), units: total.units() }).collect()
}
