//! What schedulers of whole groups of pods want to read on them.
//!
//! Kueue needs nothing here: it sets `suspend` and changes templates, and both are followed.

use crate::cluster::{RayCluster, WorkerGroup, short};
use crate::settings::Settings;
use serde_json::{Value, json};

/// Which scheduler a cluster asks for, by its labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheduler {
    /// Kubernetes' own.
    Native,
    Volcano,
    YuniKorn,
    Kai,
}

impl Scheduler {
    pub(crate) fn of(cluster: &RayCluster) -> Self {
        let labels = &cluster.metadata.labels;
        match labels.get("ray.io/scheduler-name").map(String::as_str) {
            Some("volcano") => Self::Volcano,
            Some("yunikorn") => Self::YuniKorn,
            Some("kai-scheduler") => Self::Kai,
            _ if labels.contains_key("volcano.sh/queue-name") => Self::Volcano,
            _ if labels.contains_key("yunikorn.apache.org/app-id") => Self::YuniKorn,
            _ if labels.contains_key("kai.scheduler/queue") => Self::Kai,
            _ => Self::Native,
        }
    }
}

/// The pods that are started together or not at all: the head, or the hosts of one replica.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gang<'a> {
    pub(crate) cluster: &'a RayCluster,
    /// The group and the replica's number; nothing for the head.
    pub(crate) replica: Option<(&'a WorkerGroup, u32)>,
}

impl Gang<'_> {
    fn name(&self) -> String {
        match self.replica {
            None => self.cluster.head_pod(),
            Some((group, replica)) => short(&format!("{}-{}-{replica}", self.cluster.metadata.name, group.group_name)),
        }
    }

    fn members(&self) -> u32 {
        self.replica.map_or(1, |(group, _)| group.hosts())
    }

    /// Writes on a pod what its scheduler wants to read there.
    pub(crate) fn mark(&self, pod: &mut Value, settings: &Settings) {
        let labels = &self.cluster.metadata.labels;
        let group = self.replica.map_or(crate::cluster::HEAD_GROUP, |(group, _)| &group.group_name);
        match Scheduler::of(self.cluster) {
            Scheduler::Native if self.members() > 1 && settings.pod_groups.is_some() => {
                pod["spec"]["schedulingGroup"] = json!({"podGroupName": self.name()});
            }
            Scheduler::Native => {}
            Scheduler::Volcano => {
                pod["spec"]["schedulerName"] = json!("volcano");
                pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = json!(self.name());
                pod["metadata"]["annotations"]["volcano.sh/task-spec"] = json!(group);
                if let Some(queue) = labels.get("volcano.sh/queue-name") {
                    pod["metadata"]["labels"]["volcano.sh/queue-name"] = json!(queue);
                }
                if let Some(class) = labels.get("ray.io/priority-class-name") {
                    pod["spec"]["priorityClassName"] = json!(class);
                }
            }
            Scheduler::YuniKorn => {
                pod["spec"]["schedulerName"] = json!("yunikorn");
                let application = labels.get("yunikorn.apache.org/app-id").unwrap_or(&self.cluster.metadata.name);
                pod["metadata"]["labels"]["applicationId"] = json!(application);
                if let Some(queue) = labels.get("yunikorn.apache.org/queue") {
                    pod["metadata"]["labels"]["queue"] = json!(queue);
                }
                if labels.contains_key("ray.io/gang-scheduling-enabled") {
                    let annotations = &mut pod["metadata"]["annotations"];
                    annotations["yunikorn.apache.org/task-group-name"] = json!(group);
                    annotations["yunikorn.apache.org/task-groups"] = json!(self.task_groups().to_string());
                }
            }
            Scheduler::Kai => {
                pod["spec"]["schedulerName"] = json!("kai-scheduler");
                if let Some(queue) = labels.get("kai.scheduler/queue") {
                    pod["metadata"]["labels"]["kai.scheduler/queue"] = json!(queue);
                }
            }
        }
    }

    /// The object that the pods belong to, where their scheduler has one.
    pub(crate) fn object(&self, settings: &Settings) -> Option<Value> {
        let named = json!({"name": self.name()});
        match Scheduler::of(self.cluster) {
            Scheduler::Volcano => Some(json!({
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "PodGroup",
                "metadata": named,
                "spec": {
                    "minMember": self.members(),
                    "queue": self.cluster.metadata.labels.get("volcano.sh/queue-name").map_or("default", String::as_str),
                },
            })),
            Scheduler::Native if self.members() > 1 => settings.pod_groups.as_ref().map(|version| {
                json!({
                    "apiVersion": format!("scheduling.k8s.io/{version}"),
                    "kind": "PodGroup",
                    "metadata": named,
                    "spec": {"schedulingPolicy": {"gang": {"minCount": self.members()}}},
                })
            }),
            _ => None,
        }
    }

    /// What YuniKorn sets aside for the cluster before it starts anything.
    fn task_groups(&self) -> Value {
        let entry = |name: &str, members: u32, template: &Value| {
            let container = &template["spec"]["containers"][0]["resources"];
            let least = if container["requests"].is_object() { &container["requests"] } else { &container["limits"] };
            json!({
                "name": name,
                "minMember": members,
                "minResource": least,
                "nodeSelector": template["spec"]["nodeSelector"],
                "tolerations": template["spec"]["tolerations"],
            })
        };
        let spec = &self.cluster.spec;
        let mut groups = vec![entry(crate::cluster::HEAD_GROUP, 1, &spec.head_group_spec.template)];
        for group in &spec.worker_group_specs {
            groups.push(entry(&group.group_name, group.min_replicas * group.hosts(), &group.template));
        }
        json!(groups)
    }
}
