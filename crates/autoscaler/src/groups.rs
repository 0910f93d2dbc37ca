//! The file that names the groups of a cluster.
//!
//! ```yaml
//! groups:
//! - name: gpu
//!   max: 5
//!   resources: {CPU: 3, GPU: 1}
//! ```

use oxiray_resources::{Inventory, InventoryError, NameError, ResourceName};
use oxiray_scheduler::NodeGroup;
use oxiray_wire::state::GroupEntry;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// The most groups of one cluster.
pub const GROUPS_MAX: usize = 1000;
/// The most replicas of one group, and the most hosts of one replica.
pub const REPLICAS_MAX: u32 = 100_000;
/// The longest time that a replica may be idle: ten years.
const IDLE_TIMEOUT_S_MAX: f64 = 315_360_000.0;
/// What a machine with this label offers besides: the resource `accelerator_type:VALUE`.
const ACCELERATOR_LABEL: &str = "ray.io/accelerator-type";

/// What the file holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupsFile {
    /// The groups.
    #[serde(default)]
    pub groups: Vec<GroupEntry>,
}

/// Why a file names no groups.
#[derive(Debug, Error)]
pub enum GroupError {
    /// It is not written as it must be.
    #[error("the groups cannot be read: {0}")]
    Syntax(String),
    /// More than [`GROUPS_MAX`].
    #[error("there are {0} groups; the most is {GROUPS_MAX}")]
    TooMany(usize),
    /// Two groups have the same name.
    #[error("group `{0}` is named twice; give each group a name of its own")]
    Duplicate(String),
    /// A group has no name.
    #[error("a group has no name; give it one")]
    Nameless,
    /// A number is outside of what it may be.
    #[error("group `{group}`: {what}")]
    Number {
        /// The group.
        group: String,
        /// Which, and what it may be.
        what: String,
    },
    /// A resource has no proper name.
    #[error("group `{group}`: {source}")]
    Name {
        /// The group.
        group: String,
        /// What is wrong with it.
        source: NameError,
    },
    /// No machine can offer that.
    #[error("group `{group}`: {source}")]
    Inventory {
        /// The group.
        group: String,
        /// What is wrong with it.
        source: InventoryError,
    },
}

/// The groups that a file (YAML, or JSON) names.
pub fn read_groups(text: &str) -> Result<Vec<NodeGroup>, GroupError> {
    let file: GroupsFile = serde_saphyr::from_str(text).map_err(|error| GroupError::Syntax(error.to_string()))?;
    groups_of(&file)
}

/// The groups that these entries describe.
pub fn groups_of(file: &GroupsFile) -> Result<Vec<NodeGroup>, GroupError> {
    if file.groups.len() > GROUPS_MAX {
        return Err(GroupError::TooMany(file.groups.len()));
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = file.groups.iter().find(|entry| !names.insert(&entry.name)) {
        return Err(GroupError::Duplicate(twice.name.clone()));
    }
    file.groups.iter().map(group_of).collect()
}

/// How a group is written.
pub fn entry_of(group: &NodeGroup) -> GroupEntry {
    let amounts = |inventory: &Inventory| {
        inventory.offers().map(|(name, total)| (name.to_string(), total.as_f64())).collect::<BTreeMap<_, _>>()
    };
    GroupEntry {
        name: group.name.clone(),
        min: group.min,
        max: group.max,
        hosts: group.hosts,
        resources: amounts(&group.resources),
        first_host: amounts(&group.first_host),
        labels: group.labels.clone(),
        priority: group.priority,
        idle_timeout_s: group.idle_timeout_ms as f64 / 1000.0,
    }
}

/// The group that an entry describes.
pub fn group_of(entry: &GroupEntry) -> Result<NodeGroup, GroupError> {
    if entry.name.trim().is_empty() {
        return Err(GroupError::Nameless);
    }
    check(entry)?;
    let mut resources = entry.resources.clone();
    if let Some(accelerator) = entry.labels.get(ACCELERATOR_LABEL) {
        resources.entry(format!("accelerator_type:{accelerator}")).or_insert(1.0);
    }
    Ok(NodeGroup {
        name: entry.name.clone(),
        min: entry.min,
        max: entry.max,
        hosts: entry.hosts,
        resources: inventory(entry, &resources)?,
        first_host: inventory(entry, &entry.first_host)?,
        labels: entry.labels.clone(),
        priority: entry.priority,
        idle_timeout_ms: (entry.idle_timeout_s * 1000.0) as u64,
    })
}

fn check(entry: &GroupEntry) -> Result<(), GroupError> {
    let number = |what: String| Err(GroupError::Number { group: entry.name.clone(), what });
    let GroupEntry { min, max, hosts, idle_timeout_s, .. } = entry;
    if min > max {
        return number(format!("`min` is {min} and `max` {max}: there cannot be fewer at most than at least"));
    }
    if *max > REPLICAS_MAX {
        return number(format!("`max` is {max}; the most is {REPLICAS_MAX}"));
    }
    if !(1..=REPLICAS_MAX).contains(hosts) {
        return number(format!("`hosts` is {hosts}; a replica has 1 to {REPLICAS_MAX} machines"));
    }
    if !(0.0..=IDLE_TIMEOUT_S_MAX).contains(idle_timeout_s) {
        return number(format!("`idle_timeout_s` is {idle_timeout_s}; it is a number of seconds, zero or more"));
    }
    Ok(())
}

fn inventory(entry: &GroupEntry, resources: &BTreeMap<String, f64>) -> Result<Inventory, GroupError> {
    let group = || entry.name.clone();
    let named = resources.iter().map(|(name, amount)| Ok((ResourceName::new(name)?, *amount)));
    let named = named.collect::<Result<Vec<_>, NameError>>();
    let named = named.map_err(|source| GroupError::Name { group: group(), source })?;
    Inventory::new(named).map_err(|source| GroupError::Inventory { group: group(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_has_its_usual_value() {
        assert_eq!((oxiray_wire::state::IDLE_TIMEOUT_S * 1000.0) as u64, oxiray_scheduler::IDLE_TIMEOUT_MS);
        let groups = read_groups("groups:\n- {name: gpu, max: 5, resources: {CPU: 3, GPU: 1}}\n").expect("groups");
        let [group] = &groups[..] else { panic!("one group: {groups:?}") };
        assert_eq!((group.min, group.max, group.hosts, group.priority), (0, 5, 1, 0));
        assert_eq!(group.idle_timeout_ms, 60_000);
        assert_eq!(group.resources.total("GPU").wholes(), 1);
    }

    #[test]
    fn a_type_of_accelerator_is_offered_by_its_label() {
        let text = "groups: [{name: a, max: 1, resources: {GPU: 1}, labels: {ray.io/accelerator-type: A100}}]";
        assert_eq!(read_groups(text).expect("groups")[0].resources.total("accelerator_type:A100").wholes(), 1);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_group_and_the_rule() {
        let told = |text: &str| read_groups(text).expect_err(text).to_string();
        assert!(told("groups: [{name: a, max: 1, resources: {GPU: 0.5}}]").starts_with("group `a`: the machine"));
        assert!(told("groups: [{name: a, min: 2, max: 1, resources: {}}]").contains("`min` is 2 and `max` 1"));
        assert!(told("groups: [{name: a, max: 1, hosts: 0, resources: {}}]").contains("`hosts` is 0"));
        assert!(told("groups: [{name: a, max: 1, idle_timeout_s: -1, resources: {}}]").contains("`idle_timeout_s`"));
        assert!(told("groups: [{name: ' ', max: 1, resources: {}}]").contains("no name"));
        let twice = "groups: [{name: a, max: 1, resources: {}}, {name: a, max: 1, resources: {}}]";
        assert!(told(twice).contains("`a` is named twice"));
        assert!(told("groups: [{name: a, maximum: 1, resources: {}}]").contains("maximum"));
    }
}
