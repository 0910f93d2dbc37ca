//! Growing and shrinking: what waits and what there is, as the head says it; what may be brought, as the autoscaler says it;
//! and both together, as a plan is made from them.
//!
//! The same types are read from files: groups (`--groups FILE`), and recorded situations (`autoscaler plan --demand FILE`).

use super::Amounts;
use crate::message::{LabelCondition, PlacementStrategy};
use crate::words::spelled;
use oxiray_fields::Fields;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// For how long a replica is idle before it is taken away, in seconds, where its group does not say.
pub const IDLE_TIMEOUT_S: f64 = 60.0;

/// What the head says: all that is to be planned for.
#[derive(Clone, Debug, Default, PartialEq, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct GrowthView {
    /// The machines that are alive.
    #[field(1)]
    pub machines: Vec<MachineRecord>,
    /// What waits.
    #[field(2)]
    pub waiting: Vec<WaitingRecord>,
    /// The standing request.
    #[field(3)]
    pub standing: Vec<StandingRecord>,
}

/// All that a plan is made from.
#[derive(Clone, Debug, Default, PartialEq, Fields, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlanRecord {
    /// The groups.
    #[field(1)]
    pub groups: Vec<GroupEntry>,
    /// Why a group is asked for nothing for a while, by its name.
    #[field(2)]
    pub set_aside: BTreeMap<String, String>,
    /// Their replicas.
    #[field(3)]
    pub replicas: Vec<ReplicaRecord>,
    /// The machines of the cluster.
    #[field(4)]
    pub machines: Vec<MachineRecord>,
    /// What waits.
    #[field(5)]
    pub waiting: Vec<WaitingRecord>,
    /// The standing request.
    #[field(6)]
    pub standing: Vec<StandingRecord>,
    /// In which domains machines of a group have come, while a placement group waits for one domain.
    #[field(7)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<DomainsRecord>,
}

/// In which domains the machines of a group have come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Fields, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainsRecord {
    /// The group.
    #[field(1)]
    pub group: String,
    /// The label whose values are the domains.
    #[field(2)]
    pub label: String,
    /// The values that were seen.
    #[field(3)]
    #[serde(default)]
    pub values: Vec<String>,
    /// Whether machines without that label have come.
    #[field(4)]
    #[serde(default)]
    pub is_unlabelled: bool,
}

/// A group of machines of one kind. Everything but the name, `max` and `resources` may be left out.
#[derive(Clone, Debug, Default, PartialEq, Fields, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupEntry {
    /// Its name.
    #[field(1)]
    pub name: String,
    /// How many replicas there are at least.
    #[field(2)]
    #[serde(default)]
    pub min: u32,
    /// How many at most.
    #[field(3)]
    pub max: u32,
    /// How many machines a replica has.
    #[field(4)]
    #[serde(default = "one")]
    pub hosts: u32,
    /// What each machine offers.
    #[field(5)]
    pub resources: BTreeMap<String, f64>,
    /// What the first machine of each replica offers besides.
    #[field(6)]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub first_host: BTreeMap<String, f64>,
    /// The machines' labels.
    #[field(7)]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Groups with a higher one are tried first.
    #[field(8)]
    #[serde(default)]
    pub priority: i32,
    /// For how long a replica is idle before it is taken away, in seconds.
    #[field(9)]
    #[serde(default = "idle_timeout_s")]
    pub idle_timeout_s: f64,
}

/// A replica: machines of a group that come and go together.
#[derive(Clone, Debug, Default, PartialEq, Fields, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaRecord {
    /// Its name.
    #[field(1)]
    pub name: String,
    /// Its group.
    #[field(2)]
    pub group: String,
    /// How far it is.
    #[field(3)]
    pub state: ReplicaPhase,
    /// For how long it has been idle, in seconds.
    #[field(4)]
    #[serde(default)]
    pub idle_s: f64,
}

spelled! {
    /// How far a replica is.
    ReplicaPhase {
        /// Its machines were asked for.
        Coming: "coming",
        /// Something runs there, or may again soon.
        InUse: "in use",
        /// Nothing runs there.
        Idle: "idle",
        /// Its machines are being taken away.
        Leaving: "leaving",
    }
}

/// A machine that is alive.
#[derive(Clone, Debug, Default, PartialEq, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineRecord {
    /// `NodeId` in hexadecimal digits; anything else counts as none.
    #[field(1)]
    pub node_id: String,
    /// The replica that it is a host of, where the autoscaler says so.
    #[field(2)]
    pub replica: Option<String>,
    /// Its labels.
    #[field(3)]
    pub labels: BTreeMap<String, String>,
    /// What it offers.
    #[field(4)]
    pub resources: BTreeMap<String, f64>,
    /// What is free, where that is less.
    #[field(5)]
    pub free: Option<Amounts>,
    /// What each device has free, by resource, where that is less.
    #[field(6)]
    pub free_devices: BTreeMap<String, FreeShares>,
    /// Whether it is being emptied.
    #[field(7)]
    pub is_leaving: bool,
    /// Whether something is there that must not be lost: work, programs, bundles, objects without another copy.
    #[field(8)]
    pub in_use: bool,
    /// Counts what was placed there.
    #[field(9)]
    pub uses: u64,
    /// The numbers of the devices that are granted only one at a time, by resource.
    #[field(10)]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub single_devices: BTreeMap<String, SingleDevices>,
}

/// The devices of one resource that are granted only one at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Fields, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SingleDevices {
    /// Their numbers.
    #[field(1)]
    pub numbers: Vec<u32>,
}

/// The devices of one resource, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Fields, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FreeShares {
    /// Each of them.
    #[field(1)]
    pub devices: Vec<FreeShare>,
}

/// How much of a device is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Fields, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FreeShare {
    /// From 0 to 1; nothing where it is out of service.
    #[field(1)]
    pub free: Option<f64>,
}

/// Those that wait for the same.
#[derive(Clone, Debug, Default, PartialEq, Fields, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitingRecord {
    /// One of them, in words.
    #[field(1)]
    pub who: String,
    /// How many there are.
    #[field(2)]
    #[serde(default = "one")]
    pub count: u32,
    /// What a task or actor asks for.
    #[field(3)]
    #[serde(default)]
    pub resources: BTreeMap<String, f64>,
    /// On machines with these labels: the first under which there is room counts; any where it is left out.
    #[field(4)]
    #[serde(default)]
    pub labels: Vec<SelectorRecord>,
    /// Whether it waits for one machine in particular.
    #[field(5)]
    #[serde(default)]
    pub is_bound: bool,
    /// Of a placement group: how its bundles are spread over machines.
    #[field(6)]
    #[serde(default)]
    pub strategy: Option<PlacementStrategy>,
    /// Of a placement group.
    #[field(7)]
    #[serde(default)]
    pub bundles: Vec<BundleRecord>,
    /// Of a placement group: the label of which all its machines are to have one value.
    #[field(8)]
    #[serde(default)]
    pub domain: Option<String>,
}

/// What is to fit on one machine.
#[derive(Clone, Debug, Default, PartialEq, Fields, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleRecord {
    /// The amounts.
    #[field(1)]
    pub resources: BTreeMap<String, f64>,
    /// All of these hold of its machine.
    #[field(2)]
    #[serde(default)]
    pub labels: Vec<LabelCondition>,
}

/// A bundle of the standing request.
#[derive(Clone, Debug, Default, PartialEq, Fields, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandingRecord {
    /// The amounts.
    #[field(1)]
    pub resources: BTreeMap<String, f64>,
    /// How many of them.
    #[field(2)]
    #[serde(default = "one")]
    pub count: u32,
    /// All of these hold of its machine.
    #[field(3)]
    #[serde(default)]
    pub labels: Vec<LabelCondition>,
}

/// Conditions that all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Fields, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SelectorRecord {
    /// Each of them.
    #[field(1)]
    pub conditions: Vec<LabelCondition>,
}

/// What the autoscaler says of itself.
#[derive(Clone, Debug, Default, PartialEq, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct AutoscalerState {
    /// The groups, for people.
    #[field(1)]
    pub groups: Vec<GroupStatus>,
    /// Whom no group serves, and why.
    #[field(2)]
    pub unmet: Vec<String>,
    /// Why the provider cannot be asked; empty where it can.
    #[field(3)]
    pub trouble: String,
    /// What it means that there is no autoscaler any more, as the head says it; empty where there is one.
    #[field(4)]
    pub absence: String,
    /// Groups, replicas, and what is set aside: a record without machines and demands.
    #[field(5)]
    #[serde(with = "or_default")]
    pub record: Option<PlanRecord>,
    /// The replica of each of the provider's machines.
    #[field(6)]
    pub instances: BTreeMap<String, String>,
}

/// How a group is.
#[derive(Clone, Debug, Default, PartialEq, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupStatus {
    /// Its name.
    #[field(1)]
    pub name: String,
    /// How many replicas there may be.
    #[field(2)]
    #[serde(with = "or_default")]
    pub limits: Option<ReplicaLimits>,
    /// What each machine offers.
    #[field(3)]
    pub resources: BTreeMap<String, f64>,
    /// How many machines a replica has.
    #[field(4)]
    pub hosts: u32,
    /// How many replicas are in each state.
    #[field(5)]
    pub counts: BTreeMap<String, u32>,
    /// Why it is asked for nothing now.
    #[field(6)]
    pub set_aside: Option<String>,
}

/// How many replicas a group may have; a pair in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Fields, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub struct ReplicaLimits {
    /// At least.
    #[field(1)]
    pub min: u32,
    /// At most.
    #[field(2)]
    pub max: u32,
}

impl From<(u32, u32)> for ReplicaLimits {
    fn from((min, max): (u32, u32)) -> Self {
        Self { min, max }
    }
}

impl From<ReplicaLimits> for (u32, u32) {
    fn from(limits: ReplicaLimits) -> Self {
        (limits.min, limits.max)
    }
}

fn one() -> u32 {
    1
}

fn idle_timeout_s() -> f64 {
    IDLE_TIMEOUT_S
}

/// A message within another one, which is as if it were there with nothing in it where it is left out.
mod or_default {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "serde hands over the field as it is")]
    pub(super) fn serialize<T: Serialize + Default, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => value.serialize(serializer),
            None => T::default().serialize(serializer),
        }
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        T::deserialize(deserializer).map(Some)
    }
}
