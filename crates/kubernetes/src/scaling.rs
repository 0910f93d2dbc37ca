//! An autoscaler's requests as changes of a `RayCluster`, and its pods as what became of them.
//!
//! - SCALING-1: `replicas` is set to what there is and what was asked for and has not come yet, never counted up or down: a
//!   change whose answer was lost is made again and does nothing.
//! - SCALING-2: what ended by itself, or will not come, is not there: it is not replaced unless it is asked for again.
//! - SCALING-3: a pod that was named to go is named until it is being deleted, and no longer, since another may have its
//!   name later.

use crate::cluster::{RayCluster, WorkerGroup};
use crate::observed::{ObservedPod, Phase};
use crate::pods::worker_capacity;
use crate::settings::Settings;
use crate::status::Refusals;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// After how many idle seconds a replica goes where nothing is said.
const IDLE_TIMEOUT_S: u32 = 60;
/// The most replicas of a group: no more of its pods could be made.
const REPLICAS_MAX: u32 = 10_000;
/// How many requests are remembered.
const REQUESTS_MAX: usize = 1000;

/// A group as an autoscaler has to know it.
#[derive(Debug, Clone, PartialEq)]
pub struct ScaledGroup {
    /// Its name.
    pub name: String,
    /// The fewest replicas.
    pub min: u32,
    /// The most, at this moment.
    pub max: u32,
    /// How many pods a replica is.
    pub hosts: u32,
    /// What each pod's node offers.
    pub per_host: BTreeMap<String, f64>,
    /// What the first one's offers besides.
    pub first_host: BTreeMap<String, f64>,
    /// The labels of its nodes.
    pub labels: BTreeMap<String, String>,
    /// Of groups that serve as well, the highest is taken.
    pub priority: i32,
    /// After how many idle seconds a replica goes.
    pub idle_timeout_s: u32,
}

/// How far a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It has no machine, or its container does not run yet.
    Coming,
    /// It runs.
    Running,
    /// It is being deleted, or its node has ended in order.
    Going,
}

/// A pod as an autoscaler has to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScaledPod {
    /// Its identity, which its node has as a label.
    pub uid: String,
    /// Its group.
    pub group: String,
    /// Its replica: no other, earlier or later, has this name.
    pub replica: String,
    /// Which host of the replica it is.
    pub host: u32,
    /// How far it is.
    pub stage: Stage,
    /// Why it has no machine; empty where there is nothing to say.
    pub detail: String,
}

/// What was asked for and does not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undelivered {
    /// Replicas of which there is no pod.
    Request {
        /// Their group.
        group: String,
        /// What they were asked for by.
        request: String,
        /// How many.
        replicas: u32,
        /// Why, as the API says it.
        text: String,
    },
    /// A replica of which there are pods.
    Replica {
        /// Its group.
        group: String,
        /// Its name.
        replica: String,
        /// Why.
        text: String,
    },
}

/// What a look at a cluster found.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// The cluster.
    pub cluster: &'a RayCluster,
    /// Its pods.
    pub pods: &'a [ObservedPod],
    /// What of it the API refused to make.
    pub refusals: &'a Refusals,
}

/// What was asked for and has no pod yet.
#[derive(Debug, Clone)]
struct Awaited {
    request: String,
    group: String,
    left: u32,
}

/// The replica that has a place now, or had it last.
#[derive(Debug, Clone, Default)]
struct Tenant {
    uids: BTreeSet<String>,
    /// How many were there before.
    number: u32,
    was_ready: bool,
    /// What it was asked for by, as long as nobody was told of it.
    request: Option<String>,
    /// Since when it has no machine.
    unplaced_ms: Option<u64>,
    /// It was said that it does not come.
    is_given_up: bool,
    /// It is to go.
    is_leaving: bool,
}

/// A group and the number of a replica.
type At = (String, u32);

/// What an autoscaler has asked of a cluster, and what it has seen of it.
#[derive(Debug, Clone)]
pub struct Scaling {
    /// For how long a pod may have no machine.
    placing_limit_ms: u64,
    awaited: Vec<Awaited>,
    tenants: BTreeMap<At, Tenant>,
}

/// The groups of a cluster, with what its pods say of how fast they may grow.
pub fn scaled_groups(cluster: &RayCluster, pods: &[ObservedPod], settings: &Settings) -> Vec<ScaledGroup> {
    let options = &cluster.spec.autoscaler_options;
    let is_slow = options.upscaling_mode.as_deref() == Some("Conservative");
    let described = cluster.spec.worker_group_specs.iter().map(|group| {
        let capacity = worker_capacity(group, settings);
        let most = if group.suspend { 0 } else { group.max_replicas.min(REPLICAS_MAX / group.hosts()) };
        let ready = pods.iter().filter(|pod| pod.group == group.group_name && pod.is_ready).count() as u32;
        let ready = ready / group.hosts();
        // As many again as there are, and at least one.
        let now = if is_slow { ready + ready.max(1) } else { most };
        let min = group.min_replicas.min(most);
        ScaledGroup {
            name: group.group_name.clone(),
            min,
            max: most.min(now.max(min)),
            hosts: group.hosts(),
            per_host: capacity.per_host,
            first_host: capacity.first_host,
            labels: capacity.labels,
            priority: group.priority.unwrap_or_default(),
            idle_timeout_s: group.idle_timeout_seconds.or(options.idle_timeout_seconds).unwrap_or(IDLE_TIMEOUT_S),
        }
    });
    described.collect()
}

impl Scaling {
    /// Nothing was asked for. A pod may be without a machine for `placing_limit_ms` milliseconds.
    pub fn new(placing_limit_ms: u64) -> Self {
        Self { placing_limit_ms, awaited: Vec::new(), tenants: BTreeMap::new() }
    }

    /// What there is, and what does not come, each once. `now_ms` are milliseconds since any moment.
    pub fn observe(&mut self, look: &Look<'_>, now_ms: u64) -> (Vec<ScaledPod>, Vec<Undelivered>) {
        let replicas = replicas_of(look.pods);
        let (mut found, mut undelivered) = (Vec::new(), Vec::new());
        for (at, pods) in &replicas {
            self.enter(at, pods);
            let tenant = self.tenants.entry(at.clone()).or_default();
            let name = name_of(at, tenant);
            let is_refused = look.refusals.get(&at.0);
            let hosts = look.cluster.group(&at.0).map_or(1, WorkerGroup::hosts);
            if let Some(text) = tenant.trouble(pods, hosts, is_refused, (self.placing_limit_ms, now_ms)) {
                let group = at.0.clone();
                undelivered.push(match tenant.request.take().filter(|_| has_failed(pods)) {
                    // It failed before it was seen: nobody knows its name.
                    Some(request) => Undelivered::Request { group, request, replicas: 1, text },
                    None => Undelivered::Replica { group, replica: name.clone(), text },
                });
            }
            // One that failed is gone: it is deleted, and its replica with it.
            if has_failed(pods) {
                continue;
            }
            tenant.request = None;
            found.extend(pods.iter().map(|pod| ScaledPod {
                uid: pod.uid.clone(),
                group: pod.group.clone(),
                replica: name.clone(),
                host: pod.host,
                stage: stage_of(pod),
                detail: pod.unplaced.clone().unwrap_or_default(),
            }));
        }
        self.give_up_refused(look, &mut undelivered);
        (found, undelivered)
    }

    /// Notes who is at a place; one that was not there before is what was asked for.
    fn enter(&mut self, at: &At, pods: &[&ObservedPod]) {
        let uids: BTreeSet<String> = pods.iter().map(|pod| pod.uid.clone()).collect();
        let number = match self.tenants.get_mut(at) {
            Some(tenant) if !tenant.uids.is_disjoint(&uids) => return tenant.uids.extend(uids),
            Some(tenant) => tenant.number + 1,
            None => 0,
        };
        let awaited = self.awaited.iter_mut().find(|awaited| awaited.group == at.0 && awaited.left > 0);
        let request = awaited.map(|awaited| {
            awaited.left -= 1;
            awaited.request.clone()
        });
        self.tenants.insert(at.clone(), Tenant { uids, number, request, ..Tenant::default() });
    }

    /// What the API refuses to make does not come, and is not asked for any more.
    fn give_up_refused(&mut self, look: &Look<'_>, undelivered: &mut Vec<Undelivered>) {
        for awaited in &mut self.awaited {
            if let Some(text) = look.refusals.get(&awaited.group).filter(|_| awaited.left > 0) {
                let (group, request) = (awaited.group.clone(), awaited.request.clone());
                undelivered.push(Undelivered::Request { group, request, replicas: awaited.left, text: text.clone() });
                awaited.left = 0;
            }
        }
    }

    /// Replicas are asked for. The same request, made again, asks for nothing more.
    pub fn launch(&mut self, group: &str, replicas: u32, request: &str) {
        if self.awaited.iter().any(|awaited| awaited.request == request && awaited.group == group) {
            return;
        }
        let (request, group) = (request.to_owned(), group.to_owned());
        self.awaited.push(Awaited { request, group, left: replicas });
        // Those that were answered long ago are not made again.
        let answered = self.awaited.iter().position(|awaited| awaited.left == 0);
        if let Some(oldest) = answered.filter(|_| self.awaited.len() > REQUESTS_MAX) {
            self.awaited.remove(oldest);
        }
    }

    /// Replicas are to go.
    pub fn terminate(&mut self, replicas: &[String]) {
        for (at, tenant) in &mut self.tenants {
            if replicas.contains(&name_of(at, tenant)) {
                tenant.is_leaving = true;
            }
        }
    }

    /// How the cluster is to be changed, as a JSON patch, and what that is in words; nothing where it is as it is to be.
    pub fn change(&self, look: &Look<'_>) -> Option<(Value, String)> {
        let replicas = replicas_of(look.pods);
        let (mut operations, mut words) = (Vec::new(), Vec::new());
        for (index, group) in look.cluster.spec.worker_group_specs.iter().enumerate() {
            let named = self.to_go(group, &replicas);
            let path = format!("/spec/workerGroupSpecs/{index}");
            let mut set = Vec::new();
            if named != group.scale_strategy.workers_to_delete.iter().cloned().collect() {
                set.push(
                    json!({"op": "add", "path": format!("{path}/scaleStrategy"), "value": {"workersToDelete": named}}),
                );
            }
            let there = replicas.iter().filter(|(at, pods)| at.0 == group.group_name && self.counts(at, pods, group));
            let coming = self.awaited.iter().filter(|awaited| awaited.group == group.group_name);
            let wanted = there.count() as u32 + coming.map(|awaited| awaited.left).sum::<u32>();
            let wanted = wanted.min(group.max_replicas).max(group.min_replicas);
            if wanted != group.wanted() && !group.suspend {
                words.push(format!("group {}: replicas {} -> {wanted}", group.group_name, group.wanted()));
                set.push(json!({"op": "add", "path": format!("{path}/replicas"), "value": wanted}));
            }
            if !set.is_empty() {
                // The list has no keys: another may have put another group here.
                let name = format!("{path}/groupName");
                operations.push(json!({"op": "test", "path": name, "value": group.group_name}));
                operations.extend(set);
            }
        }
        if operations.is_empty() {
            return None;
        }
        let version = &look.cluster.metadata.resource_version;
        operations.insert(0, json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version}));
        Some((Value::Array(operations), words.join(", ")))
    }

    /// The pods of a group that are named to go: SCALING-3.
    fn to_go(&self, group: &WorkerGroup, replicas: &BTreeMap<At, Vec<&ObservedPod>>) -> BTreeSet<String> {
        let of_group = replicas.iter().filter(|(at, _)| at.0 == group.group_name);
        let named = of_group.flat_map(|(at, pods)| {
            let is_leaving = self.is_leaving(at);
            pods.iter().filter(move |pod| {
                !pod.is_deleting && (is_leaving || group.scale_strategy.workers_to_delete.contains(&pod.name))
            })
        });
        named.map(|pod| pod.name.clone()).collect()
    }

    /// Whether a replica is there and stays: SCALING-2.
    fn counts(&self, at: &At, pods: &[&ObservedPod], group: &WorkerGroup) -> bool {
        let goes = |pod: &&ObservedPod| pod.is_deleting || group.scale_strategy.workers_to_delete.contains(&pod.name);
        !self.is_leaving(at) && !has_failed(pods) && !pods.iter().any(goes)
    }

    fn is_leaving(&self, at: &At) -> bool {
        self.tenants.get(at).is_some_and(|tenant| tenant.is_leaving)
    }
}

impl Tenant {
    /// Why it does not come, where that is so and was not said before.
    fn trouble(
        &mut self,
        pods: &[&ObservedPod],
        hosts: u32,
        refused: Option<&String>,
        (limit_ms, now_ms): (u64, u64),
    ) -> Option<String> {
        self.was_ready |= pods.len() == hosts as usize && pods.iter().all(|pod| pod.is_ready);
        let unplaced = pods.iter().find_map(|pod| pod.unplaced.as_ref().filter(|_| !pod.is_deleting));
        self.unplaced_ms = unplaced.map(|_| self.unplaced_ms.unwrap_or(now_ms));
        if self.was_ready || self.is_given_up || self.is_leaving {
            return None;
        }
        let failed = pods.iter().find_map(|pod| pod.failure.clone());
        let late = unplaced.filter(|_| self.unplaced_ms.is_some_and(|since| now_ms >= since + limit_ms)).cloned();
        let partial = refused.filter(|_| pods.len() < hosts as usize).cloned();
        let text = failed.or(late).or(partial)?;
        self.is_given_up = true;
        Some(text)
    }
}

fn replicas_of(pods: &[ObservedPod]) -> BTreeMap<At, Vec<&ObservedPod>> {
    let mut replicas: BTreeMap<At, Vec<&ObservedPod>> = BTreeMap::new();
    for pod in pods {
        if let Some(number) = pod.replica {
            replicas.entry((pod.group.clone(), number)).or_default().push(pod);
        }
    }
    replicas
}

fn name_of(at: &At, tenant: &Tenant) -> String {
    let (group, number) = at;
    if tenant.number == 0 { format!("{group}-{number}") } else { format!("{group}-{number}.{}", tenant.number) }
}

fn has_failed(pods: &[&ObservedPod]) -> bool {
    pods.iter().any(|pod| pod.failure.is_some())
}

fn stage_of(pod: &ObservedPod) -> Stage {
    match pod.phase {
        _ if pod.is_deleting => Stage::Going,
        Phase::Over => Stage::Going,
        Phase::Running => Stage::Running,
        Phase::Pending => Stage::Coming,
    }
}
