//! Pods as an autoscaler's machines: what is to be is written into the cluster, and the looks make it so.

use super::{Sight, Work};
use crate::api::{code, said};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType};
use oxiray_autoscaler::{Failed, Instance, InstanceState, NodeGroup, Provider, ProviderError, group_of};
use oxiray_kubernetes::{
    API_GROUP, API_VERSION, Look, RayCluster, Refusals, ScaledGroup, ScaledPod, Scaling, Stage, Undelivered,
    scaled_groups,
};
use oxiray_wire::state::GroupEntry;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The pods of one cluster.
pub(super) struct Pods<'work> {
    work: &'work Work,
    begun: Instant,
    scaling: Scaling,
    failed: Vec<Failed>,
    /// Groups that no machines can be described by; each is said once.
    odd: BTreeSet<String>,
}

impl<'work> Pods<'work> {
    pub(super) fn new(work: &'work Work) -> Self {
        let scaling = Scaling::new(millis(work.placing_limit));
        Self { work, begun: Instant::now(), scaling, failed: Vec::new(), odd: BTreeSet::new() }
    }

    /// Works on what the last look found, where that still holds.
    fn with<R>(&mut self, work: impl FnOnce(&mut Self, &Sight) -> R) -> Result<R, ProviderError> {
        let shared = &self.work.shared;
        let view = shared.view();
        if !view.blind.is_empty() {
            return Err(passing(&view.blind));
        }
        match &view.sight {
            Some(sight) => Ok(work(self, sight)),
            None => Err(passing("the cluster was not looked at yet")),
        }
    }

    /// Has the cluster say what is wanted, where it says something else.
    fn write(&mut self) -> Result<(), ProviderError> {
        let changed = self.with(|own, sight| {
            let version = sight.cluster.metadata.resource_version.clone();
            own.scaling.change(&look(sight)).map(|change| (version, change))
        })?;
        let Some((version, (operations, words))) = changed else { return Ok(()) };
        let Work { line, namespace, name, .. } = self.work;
        let answer = match line.wait(line.api.change_cluster(namespace, name, &operations)) {
            Some(Ok(object)) => object,
            Some(Err(error)) if matches!(code(&error), Some(409 | 422)) => {
                return Err(passing("the cluster was changed by another meanwhile; it is looked at again"));
            }
            Some(Err(error)) => return Err(passing(&format!("the cluster cannot be changed: {}", said(&error)))),
            None => return Err(passing("the cluster cannot be changed: the API does not answer")),
        };
        {
            let mut view = self.work.shared.view();
            let current = view.sight.as_mut().filter(|sight| sight.cluster.metadata.resource_version == version);
            if let (Some(sight), Ok(cluster)) = (current, RayCluster::read(&answer)) {
                // What was refused before was not this.
                (sight.cluster, sight.refusals) = (cluster, Refusals::new());
            }
        }
        if !words.is_empty() {
            self.work.say(&words);
            self.tell(&words);
        }
        Ok(())
    }

    /// An event beside the cluster. That it fails is no reason to fail.
    fn tell(&self, words: &str) {
        let Work { line, namespace, name, uid, .. } = self.work;
        let about = ObjectReference {
            api_version: Some(format!("{API_GROUP}/{API_VERSION}")),
            kind: Some("RayCluster".to_owned()),
            name: Some(name.clone()),
            namespace: Some(namespace.clone()),
            uid: Some(uid.clone()),
            ..ObjectReference::default()
        };
        let event = Event {
            type_: EventType::Normal,
            reason: "Scaled".to_owned(),
            note: Some(words.to_owned()),
            action: "Autoscale".to_owned(),
            secondary: None,
        };
        if let Some(Err(error)) = line.wait(line.recorder.publish(&event, &about)) {
            self.work.say(&format!("an event is not published: {}", said(&error)));
        }
    }

    fn describe(&mut self, group: ScaledGroup) -> Option<NodeGroup> {
        let entry = GroupEntry {
            name: group.name.clone(),
            min: group.min,
            max: group.max,
            hosts: group.hosts,
            resources: group.per_host,
            first_host: group.first_host,
            labels: group.labels,
            priority: group.priority,
            idle_timeout_s: f64::from(group.idle_timeout_s),
        };
        match group_of(&entry) {
            Ok(described) => Some(described),
            Err(error) => {
                if self.odd.insert(group.name) {
                    self.work.say(&format!("{error}: it is left as it is"));
                }
                None
            }
        }
    }
}

impl Provider for Pods<'_> {
    fn groups(&mut self) -> Result<Vec<NodeGroup>, ProviderError> {
        let groups = self.with(|_, sight| scaled_groups(&sight.cluster, &sight.pods, &sight.settings))?;
        Ok(groups.into_iter().filter_map(|group| self.describe(group)).collect())
    }

    fn instances(&mut self) -> Result<Vec<Instance>, ProviderError> {
        let now_ms = millis(self.begun.elapsed());
        let (pods, undelivered) = self.with(|own, sight| own.scaling.observe(&look(sight), now_ms))?;
        self.failed.extend(undelivered.into_iter().map(failed));
        self.write()?;
        Ok(pods.into_iter().map(instance).collect())
    }

    fn launch(&mut self, group: &NodeGroup, replicas: u32, request: &str) -> Result<(), ProviderError> {
        self.scaling.launch(&group.name, replicas, request);
        self.write()
    }

    fn terminate(&mut self, replicas: &[String], _: &str) -> Result<(), ProviderError> {
        self.scaling.terminate(replicas);
        self.write()
    }

    fn errors(&mut self) -> Vec<Failed> {
        std::mem::take(&mut self.failed)
    }
}

fn look(sight: &Sight) -> Look<'_> {
    Look { cluster: &sight.cluster, pods: &sight.pods, refusals: &sight.refusals }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn passing(text: &str) -> ProviderError {
    ProviderError { text: text.to_owned(), is_passing: true }
}

fn instance(pod: ScaledPod) -> Instance {
    Instance {
        id: pod.uid,
        group: pod.group,
        replica: pod.replica,
        host: pod.host,
        request: None,
        state: match pod.stage {
            Stage::Coming => InstanceState::Pending,
            Stage::Running => InstanceState::Running,
            Stage::Going => InstanceState::Terminating,
        },
        detail: pod.detail,
    }
}

fn failed(undelivered: Undelivered) -> Failed {
    match undelivered {
        Undelivered::Request { group, request, replicas, text } => Failed::Launch { group, request, replicas, text },
        Undelivered::Replica { group, replica, text } => Failed::Stuck { group, replica, text },
    }
}
