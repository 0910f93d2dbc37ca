//! The file that names the groups of a cluster, and where their machines come from.
//!
//! ```yaml
//! groups:
//! - name: gpu
//!   max: 5
//!   resources: {CPU: 3, GPU: 1}
//! ```
//!
//! Where `slurm` stands at the top or in a group, machines are jobs of Slurm.

use crate::slurm::{JobError, JobSettings, Jobs, check_name};
use oxiray_resources::{Inventory, InventoryError, NameError, ResourceName};
use oxiray_scheduler::NodeGroup;
use oxiray_wire::state::{GroupEntry, IDLE_TIMEOUT_S};
use serde::Deserialize;
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

/// What a file says.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupsFile {
    /// The groups.
    pub groups: Vec<NodeGroup>,
    /// How machines are asked for as jobs of Slurm; nothing where they are daemons on this one.
    pub jobs: Option<Jobs>,
}

/// How it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFile {
    #[serde(default)]
    groups: Vec<WrittenGroup>,
    slurm: Option<JobSettings>,
}

/// A group as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenGroup {
    name: String,
    #[serde(default)]
    min: u32,
    max: u32,
    #[serde(default = "one")]
    hosts: u32,
    /// A job's follow from what it asks for, and need not be here.
    resources: Option<BTreeMap<String, f64>>,
    #[serde(default)]
    first_host: BTreeMap<String, f64>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    priority: i32,
    #[serde(default = "idle_timeout_s")]
    idle_timeout_s: f64,
    slurm: Option<JobSettings>,
}

fn one() -> u32 {
    1
}

fn idle_timeout_s() -> f64 {
    IDLE_TIMEOUT_S
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
    /// A group does not say what its machines offer.
    #[error("group `{0}`: `resources` is missing; say what each machine offers")]
    NoResources(String),
    /// No job of Slurm can be asked for.
    #[error("group `{group}`: {source}")]
    Job {
        /// The group.
        group: String,
        /// What is wrong with it.
        source: JobError,
    },
    /// What holds for all jobs of Slurm.
    #[error("`slurm`: {0}")]
    Jobs(JobError),
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

/// What a file (YAML, or JSON) says.
pub fn read_file(text: &str) -> Result<GroupsFile, GroupError> {
    let written: WrittenFile = serde_saphyr::from_str(text).map_err(|error| GroupError::Syntax(error.to_string()))?;
    if written.groups.len() > GROUPS_MAX {
        return Err(GroupError::TooMany(written.groups.len()));
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = written.groups.iter().find(|group| !names.insert(&group.name)) {
        return Err(GroupError::Duplicate(twice.name.clone()));
    }
    if written.slurm.is_none() && written.groups.iter().all(|group| group.slurm.is_none()) {
        let groups = written.groups.into_iter().map(|group| group_of(&entry(group, None)?));
        return Ok(GroupsFile { groups: groups.collect::<Result<_, _>>()?, jobs: None });
    }
    let all = written.slurm.unwrap_or_default();
    let mut jobs = Jobs { interval: all.interval().map_err(GroupError::Jobs)?, templates: BTreeMap::new() };
    let mut groups = Vec::new();
    for group in written.groups {
        let settings = group.slurm.as_ref().map_or_else(|| all.clone(), |own| own.over(&all));
        let template = checked_job(&group, &settings).and_then(|()| settings.template());
        let wrong = |source| GroupError::Job { group: group.name.clone(), source };
        let (template, offers) = (template.map_err(wrong)?, settings.offers().map_err(wrong)?);
        jobs.templates.insert(group.name.clone(), template);
        groups.push(group_of(&entry(group, Some(offers))?)?);
    }
    Ok(GroupsFile { groups, jobs: Some(jobs) })
}

/// Looks whether the machines of a group can be jobs of Slurm.
fn checked_job(group: &WrittenGroup, settings: &JobSettings) -> Result<(), JobError> {
    check_name(&group.name)?;
    if group.hosts != 1 {
        return Err(JobError::Hosts(group.hosts));
    }
    if group.slurm.as_ref().is_some_and(|own| own.interval_s.is_some()) {
        return Err(JobError::Interval);
    }
    settings.interval().map(drop)
}

/// A group as it is planned with; `offers` is what its machines offer besides what the group says.
fn entry(group: WrittenGroup, offers: Option<BTreeMap<String, f64>>) -> Result<GroupEntry, GroupError> {
    let resources = match (group.resources, offers) {
        (None, None) => return Err(GroupError::NoResources(group.name)),
        (own, offers) => offers.into_iter().flatten().chain(own.into_iter().flatten()).collect(),
    };
    Ok(GroupEntry {
        name: group.name,
        min: group.min,
        max: group.max,
        hosts: group.hosts,
        resources,
        first_host: group.first_host,
        labels: group.labels,
        priority: group.priority,
        idle_timeout_s: group.idle_timeout_s,
    })
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
        let file = read_file("groups:\n- {name: gpu, max: 5, resources: {CPU: 3, GPU: 1}}\n").expect("groups");
        assert_eq!(file.jobs, None);
        let groups = file.groups;
        let [group] = &groups[..] else { panic!("one group: {groups:?}") };
        assert_eq!((group.min, group.max, group.hosts, group.priority), (0, 5, 1, 0));
        assert_eq!(group.idle_timeout_ms, 60_000);
        assert_eq!(group.resources.total("GPU").wholes(), 1);
    }

    #[test]
    fn a_type_of_accelerator_is_offered_by_its_label() {
        let text = "groups: [{name: a, max: 1, resources: {GPU: 1}, labels: {ray.io/accelerator-type: A100}}]";
        assert_eq!(read_file(text).expect("groups").groups[0].resources.total("accelerator_type:A100").wholes(), 1);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_group_and_the_rule() {
        let told = |text: &str| read_file(text).expect_err(text).to_string();
        assert!(told("groups: [{name: a, max: 1, resources: {GPU: 0.5}}]").starts_with("group `a`: the machine"));
        assert!(told("groups: [{name: a, min: 2, max: 1, resources: {}}]").contains("`min` is 2 and `max` 1"));
        assert!(told("groups: [{name: a, max: 1, hosts: 0, resources: {}}]").contains("`hosts` is 0"));
        assert!(told("groups: [{name: a, max: 1, idle_timeout_s: -1, resources: {}}]").contains("`idle_timeout_s`"));
        assert!(told("groups: [{name: ' ', max: 1, resources: {}}]").contains("no name"));
        let twice = "groups: [{name: a, max: 1, resources: {}}, {name: a, max: 1, resources: {}}]";
        assert!(told(twice).contains("`a` is named twice"));
        assert!(told("groups: [{name: a, max: 1}]").contains("`resources` is missing"));
        assert!(told("groups: [{name: a, maximum: 1, resources: {}}]").contains("maximum"));
    }

    #[test]
    fn groups_of_slurm_offer_what_their_jobs_ask_for_and_what_they_say() {
        let text = "
slurm: {partition: gpu, cpus: 8, interval_s: 2}
groups:
- {name: plain, max: 1}
- name: a100
  max: 4
  resources: {widgets: 3, CPU: 6}
  labels: {ray.io/accelerator-type: A100}
  slurm: {gres: gpu:a100:2, memory: 1G, time: 4:00:00, queue_limit_s: 60}
";
        let GroupsFile { groups, jobs: Some(jobs) } = read_file(text).expect("groups") else { panic!("no jobs") };
        let offered = |group: &NodeGroup| {
            group.resources.offers().map(|(name, total)| format!("{name} {}", total.as_f64())).collect::<Vec<_>>()
        };
        assert_eq!(offered(&groups[0]), ["CPU 8"]);
        let expected = ["CPU 6", "GPU 2", "accelerator_type:A100 1", "memory 1073741824", "widgets 3"];
        assert_eq!(offered(&groups[1]), expected);
        assert_eq!(jobs.interval.as_secs(), 2);
        assert!(jobs.templates["a100"].options.contains(&"--time=4:00:00".to_owned()), "{jobs:?}");
        assert!(jobs.templates["a100"].options.contains(&"--partition=gpu".to_owned()), "{jobs:?}");
    }

    #[test]
    fn what_no_job_of_slurm_can_be_is_refused_with_the_group() {
        let told = |text: &str| read_file(text).expect_err(text).to_string();
        for (text, expected) in [
            ("groups: [{name: a, max: 1, hosts: 2, slurm: {}}]", "group `a`: `hosts` is 2"),
            ("groups: [{name: a.b, max: 1, slurm: {}}]", "group `a.b`: its name is in the names of its jobs"),
            ("groups: [{name: a, max: 1, slurm: {gres: 'gpu:'}}]", "group `a`: `gres` is `gpu:`"),
            ("groups: [{name: a, max: 1, slurm: {interval_s: 1}}]", "`interval_s` holds for all groups"),
            ("{slurm: {interval_s: 0}, groups: []}", "`slurm`: `interval_s` is 0"),
            ("groups: [{name: a, max: 1, slurm: {partitions: x}}]", "partitions"),
        ] {
            assert!(told(text).contains(expected), "{text}: {}", told(text));
        }
    }
}
