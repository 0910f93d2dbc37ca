//! What the autoscaler says of itself: to the head, to people, and to whoever makes a plan elsewhere.

use crate::INSTANCE_LABEL;
use crate::fleet::{Fleet, Told};
use crate::groups::GroupEntry;
use crate::record::{MachineRecord, Record};
use oxiray_resources::Inventory;
use oxiray_scheduler::NodeGroup;
use oxiray_wire::message::{Amount, GrowthGroup, GrowthState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// How things are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The groups, for people.
    pub groups: Vec<GroupStatus>,
    /// Whom no group serves, and why.
    pub unmet: Vec<String>,
    /// Why the provider cannot be asked; empty where it can.
    pub trouble: String,
    /// What it means that there is no autoscaler any more, as the head says it; empty where there is one.
    pub absence: String,
    /// Groups, replicas, and what is set aside: a record without machines and demands.
    pub record: Record,
    /// The replica of each of the provider's machines.
    pub instances: BTreeMap<String, String>,
}

/// How a group is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// Its minimum and maximum.
    pub limits: (u32, u32),
    /// What each machine offers.
    pub resources: BTreeMap<String, f64>,
    /// How many machines a replica has.
    pub hosts: u32,
    /// How many replicas are in each state.
    pub counts: BTreeMap<String, u32>,
    /// Why it is asked for nothing now.
    pub set_aside: Option<String>,
}

impl Status {
    /// What a plan is made from, with what the head says.
    pub fn record_with(&self, told: &Told) -> Record {
        let machines = told.machines.iter().map(|machine| {
            let replica = machine.labels.get(INSTANCE_LABEL).and_then(|instance| self.instances.get(instance));
            MachineRecord { replica: replica.cloned(), ..machine.clone() }
        });
        Record {
            machines: machines.collect(),
            waiting: told.waiting.clone(),
            standing: told.standing.clone(),
            ..self.record.clone()
        }
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
    let mut record = fleet.record(now, groups, &Told::default());
    // A number that grows by itself would make every state new.
    for replica in &mut record.replicas {
        replica.idle_s = 0.0;
    }
    let unmet = fleet.plan().unmet.iter().map(|unmet| format!("{} x {}: {}", unmet.count, unmet.who, unmet.why));
    let status = Status {
        groups: groups.iter().map(|entry| group_status(fleet, entry, set_aside.get(&entry.name))).collect(),
        unmet: unmet.collect(),
        trouble: trouble.to_owned(),
        absence: String::new(),
        record,
        instances,
    };
    GrowthState {
        groups: groups.iter().filter_map(|entry| Some(growth_group(&entry.group().ok()?))).collect(),
        leaving: fleet.leaving().into_iter().collect(),
        detail: serde_json::to_string(&status).unwrap_or_default(),
    }
}

fn group_status(fleet: &Fleet, entry: &GroupEntry, set_aside: Option<&String>) -> GroupStatus {
    let counts = fleet.counts(&entry.name).into_iter().map(|(state, count)| (state.to_owned(), count));
    GroupStatus {
        name: entry.name.clone(),
        limits: (entry.min, entry.max),
        resources: entry.resources.clone(),
        hosts: entry.hosts,
        counts: counts.collect(),
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
    let amounts = inventory.totals();
    amounts.map(|(name, total)| Amount { resource: name.to_string(), units: total.units() }).collect()
}
