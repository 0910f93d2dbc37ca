//! What no pods can be made of.

use crate::cluster::RayCluster;
use serde_json::Value;
use std::collections::BTreeSet;

/// The most pods of one group, so that a slip of the pen cannot fill a cluster's store.
const GROUP_PODS_MAX: u64 = 10_000;

/// What is wrong with a cluster, each with the way out.
pub(crate) fn problems(cluster: &RayCluster) -> Vec<String> {
    let mut found = Vec::new();
    let mut template = |name: &str, template: &Value| {
        if template["spec"]["containers"][0]["name"].as_str().is_none_or(str::is_empty) {
            found.push(format!(
                "{name}: template.spec.containers needs a first container with a name, in which the node runs"
            ));
        }
    };
    template("headGroupSpec", &cluster.spec.head_group_spec.template);
    for group in &cluster.spec.worker_group_specs {
        template(&format!("group `{}`", group.group_name), &group.template);
    }
    let mut names = BTreeSet::new();
    for group in &cluster.spec.worker_group_specs {
        let name = &group.group_name;
        let is_label = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        if name.is_empty() || !name.chars().all(is_label) || name.starts_with('-') || name.ends_with('-') {
            found.push(format!("groupName `{name}` is to be made of lower-case letters, digits and `-` within"));
        }
        if name == crate::cluster::HEAD_GROUP || !names.insert(name) {
            found.push(format!("groupName `{name}` is taken: give each group a name of its own"));
        }
        if group.min_replicas > group.max_replicas {
            found.push(format!(
                "group `{name}` has minReplicas {} above maxReplicas {}: lower the one or raise the other",
                group.min_replicas, group.max_replicas
            ));
        }
        let pods = u64::from(group.wanted()) * u64::from(group.hosts());
        if pods > GROUP_PODS_MAX {
            found.push(format!(
                "group `{name}` is to have {pods} pods, and {GROUP_PODS_MAX} are the most: lower replicas"
            ));
        }
    }
    found
}
