//! What is to be done for a cluster now: a function of what is wanted and what is there.
//!
//! - PLAN-1: a pod's name follows from its place, so that whoever plans again, after whatever went wrong, names the same.
//! - PLAN-2: a replica is one: it is made, replaced and removed with all its hosts.
//! - PLAN-3: with an autoscaler, no replica goes that it has not named: only it knows what holds a grant.
//! - PLAN-4: of a group no more than one replica is replaced at a time for a change of its template.

use crate::cluster::{HEAD_GROUP, RayCluster, WorkerGroup};
use crate::failures::FailuresByGroup;
use crate::gang::Gang;
use crate::objects::{is_owned, objects};
use crate::observed::{ObservedPod, Phase};
use crate::pods::{Place, head_hash, worker_hash};
use crate::settings::Settings;
use crate::status::is_true;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// All that is decided by.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// What is wanted.
    pub cluster: &'a RayCluster,
    /// The pods that there are.
    pub pods: &'a [ObservedPod],
    /// What holds for all clusters.
    pub settings: &'a Settings,
    /// What failed before.
    pub failures: &'a FailuresByGroup,
    /// Seconds since 1970.
    pub now: u64,
}

/// A pod to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct NewPod {
    /// Its group.
    pub group: String,
    /// All of it.
    pub object: Value,
}

/// A pod to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// Its name.
    pub name: String,
    /// Its identity, so that another of that name is left alone.
    pub uid: String,
    /// Why.
    pub reason: String,
}

/// Something that people should read beside the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Whether something is wrong.
    pub is_warning: bool,
    /// A word for programs.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

/// What is to be done.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// What is to be there beside the pods.
    pub objects: Vec<Value>,
    /// Pods to be made, in this order.
    pub pods: Vec<NewPod>,
    /// Pods to be deleted.
    pub deletions: Vec<Deletion>,
    /// What people should read.
    pub remarks: Vec<Remark>,
    /// What has failed by now.
    pub failures: FailuresByGroup,
    /// In how many seconds there is more to do, though nothing changes.
    pub again_s: Option<u64>,
}

/// What is to be done for a cluster now.
pub fn plan(situation: &Situation<'_>) -> Plan {
    let mut plan = Plan { failures: situation.failures.clone(), ..Plan::default() };
    plan.failures.retain(|_, failures| !failures.is_past(situation.now));
    let Situation { cluster, pods, .. } = *situation;
    let problems = crate::validate::problems(cluster);
    if !problems.is_empty() {
        let message = problems.join("; ");
        plan.remarks.push(Remark { is_warning: true, reason: "InvalidSpec", message });
        return plan;
    }
    if cluster.spec.suspend || is_true(&cluster.status, "RayClusterSuspending") && !pods.is_empty() {
        for pod in pods {
            plan.delete(pod, "the cluster is suspended");
        }
        return plan;
    }
    plan.objects = objects(cluster);
    plan_head(situation, &mut plan);
    for group in &cluster.spec.worker_group_specs {
        plan_group(situation, group, &mut plan);
    }
    for pod in pods.iter().filter(|pod| !pod.is_head() && cluster.group(&pod.group).is_none()) {
        plan.delete(pod, "its group is not in the cluster any more");
    }
    let owner = owner(cluster);
    let pods = plan.pods.iter_mut().map(|pod| &mut pod.object);
    for object in plan.objects.iter_mut().chain(pods) {
        if is_owned(object, cluster) {
            object["metadata"]["ownerReferences"] = json!([owner]);
        }
        object["metadata"]["namespace"] = json!(cluster.metadata.namespace);
    }
    plan
}

/// What has everything go with the cluster.
pub fn owner(cluster: &RayCluster) -> Value {
    json!({
        "apiVersion": format!("{}/{}", crate::cluster::API_GROUP, crate::cluster::API_VERSION),
        "kind": "RayCluster",
        "name": cluster.metadata.name,
        "uid": cluster.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

impl Plan {
    fn delete(&mut self, pod: &ObservedPod, reason: &str) {
        if !pod.is_deleting && self.deletions.iter().all(|known| known.uid != pod.uid) {
            self.deletions.push(Deletion { name: pod.name.clone(), uid: pod.uid.clone(), reason: reason.to_owned() });
        }
    }

    /// Counts a pod that has ended.
    fn ended(&mut self, pod: &ObservedPod, now: u64) {
        if pod.is_deleting {
            return;
        }
        let (machine, reason) = match &pod.failure {
            Some(reason) => (pod.machine.as_deref(), reason.clone()),
            None => (None, "it ended by itself".to_owned()),
        };
        self.failures.entry(pod.group.clone()).or_default().add(now, machine, &reason);
        let place = machine.map(|machine| format!(" on {machine}")).unwrap_or_default();
        self.warn("PodFailed", format!("{}{place}: {reason}", pod.name));
    }

    fn warn(&mut self, reason: &'static str, message: String) {
        self.remarks.push(Remark { is_warning: true, reason, message });
    }

    /// Whether pods of the group may be made now; otherwise the plan is made again when they may.
    fn may_try(&mut self, group: &str, now: u64) -> bool {
        let left = self.failures.get(group).map_or(0, |failures| failures.pause_left(now));
        if left > 0 {
            self.again_s = Some(self.again_s.map_or(left, |other| other.min(left)));
        }
        left == 0
    }
}

fn strategy(cluster: &RayCluster) -> &str {
    cluster.spec.upgrade_strategy.kind.as_deref().unwrap_or("RollingReplace")
}

fn plan_head(situation: &Situation<'_>, plan: &mut Plan) {
    let Situation { cluster, pods, settings, now, .. } = *situation;
    let head = &cluster.spec.head_group_spec;
    let mut there = pods.iter().filter(|pod| pod.is_head()).peekable();
    if there.peek().is_none() {
        if plan.may_try(HEAD_GROUP, now) {
            let avoided = plan.failures.get(HEAD_GROUP).map(crate::Failures::avoided).unwrap_or_default();
            let place = Place { cluster, worker: None, settings, avoided: &avoided };
            let gang = Gang { cluster, replica: None };
            plan.objects.extend(gang.object(settings));
            plan.pods.push(NewPod { group: HEAD_GROUP.to_owned(), object: place.pod() });
            let message = format!("the head's pod {} is made", cluster.head_pod());
            plan.remarks.push(Remark { is_warning: false, reason: "CreatedHeadPod", message });
        }
        return;
    }
    for pod in there {
        if pod.phase == Phase::Over {
            plan.ended(pod, now);
            plan.delete(pod, "it has ended");
        } else if pod.hash != head_hash(head) && !pod.is_deleting {
            match strategy(cluster) {
                "None" => {}
                "Recreate" => plan.delete(pod, "the head's template has changed"),
                _ if cluster.keeps_head() => plan.delete(pod, "the head's template has changed"),
                _ => plan.warn(
                    "HeadTemplateChanged",
                    "the head's template has changed, and its pod is kept, since the cluster's state would go with it: set gcsFaultToleranceOptions, or upgradeStrategy.type Recreate".to_owned(),
                ),
            }
        }
    }
}

/// A replica as it is found.
#[derive(Debug, Default)]
struct Replica<'a> {
    pods: Vec<&'a ObservedPod>,
    /// Why it is to go.
    doomed: Option<&'static str>,
}

impl Replica<'_> {
    /// Some of it is being deleted already.
    fn is_ending(&self) -> bool {
        self.pods.iter().any(|pod| pod.is_deleting)
    }

    fn is_ready(&self, hosts: u32) -> bool {
        self.pods.len() == hosts as usize && self.pods.iter().all(|pod| pod.is_ready)
    }

    fn is_stale(&self, hash: &str) -> bool {
        self.pods.iter().any(|pod| pod.hash != hash)
    }
}

/// The replicas of a group, and why which of them go.
fn replicas_of<'a>(situation: &Situation<'a>, group: &WorkerGroup, plan: &mut Plan) -> BTreeMap<u32, Replica<'a>> {
    let mut replicas: BTreeMap<u32, Replica<'a>> = BTreeMap::new();
    for pod in situation.pods.iter().filter(|pod| pod.group == group.group_name) {
        if let Some(number) = pod.replica {
            replicas.entry(number).or_default().pods.push(pod);
        }
    }
    let named: BTreeSet<&str> = group.scale_strategy.workers_to_delete.iter().map(String::as_str).collect();
    for replica in replicas.values_mut() {
        // What was emptied is the autoscaler's, until it says that it may go: PLAN-3.
        let is_emptied = |pod: &&ObservedPod| pod.phase == Phase::Over && pod.failure.is_none();
        let is_kept = situation.cluster.spec.enable_in_tree_autoscaling && replica.pods.iter().any(is_emptied);
        for pod in replica.pods.iter().filter(|pod| pod.phase == Phase::Over && !(is_kept && is_emptied(pod))) {
            plan.ended(pod, situation.now);
        }
        let has_run = replica.pods.iter().any(|pod| pod.phase == Phase::Running);
        let is_whole = replica.pods.len() == group.hosts() as usize;
        replica.doomed = if replica.pods.iter().any(|pod| named.contains(pod.name.as_str())) {
            Some("it is named in workersToDelete")
        } else if replica.pods.iter().any(|pod| pod.phase == Phase::Over && !(is_kept && is_emptied(pod))) {
            Some("a pod of its replica has ended")
        } else if replica.is_ending() {
            Some("its replica is being deleted")
        } else if !is_whole && has_run || replica.pods.len() > group.hosts() as usize {
            Some("a pod of its replica is missing")
        } else if group.suspend {
            Some("its group is suspended")
        } else {
            None
        };
    }
    replicas
}

fn plan_group(situation: &Situation<'_>, group: &WorkerGroup, plan: &mut Plan) {
    let Situation { cluster, now, .. } = *situation;
    let mut replicas = replicas_of(situation, group, plan);
    let hash = worker_hash(group);
    let wanted = group.wanted() as usize;
    remove_surplus(cluster, wanted, &mut replicas);
    replace_stale(cluster, group, &hash, wanted, &mut replicas);
    for replica in replicas.values() {
        if let Some(reason) = replica.doomed {
            replica.pods.iter().for_each(|pod| plan.delete(pod, reason));
        }
    }
    let live: Vec<u32> = replicas.iter().filter(|(_, it)| it.doomed.is_none()).map(|(number, _)| *number).collect();
    let missing = wanted.saturating_sub(live.len());
    // A pod with a name that is still on the list would be deleted at once.
    let is_named = |number: &u32| {
        let pods = (0..group.hosts()).map(|host| cluster.worker_pod(&group.group_name, *number, host));
        pods.into_iter().any(|name| group.scale_strategy.workers_to_delete.contains(&name))
    };
    let free = (0u32..).filter(|number| !replicas.contains_key(number) && !is_named(number));
    let fresh: Vec<u32> = free.take(missing).collect();
    let incomplete = live.iter().filter(|number| replicas[number].pods.len() < group.hosts() as usize);
    let places: Vec<u32> = incomplete.copied().chain(fresh).collect();
    if places.is_empty() || !plan.may_try(&group.group_name, now) {
        return;
    }
    for number in &places {
        let there = replicas.get(number).map(|replica| replica.pods.as_slice()).unwrap_or_default();
        make_replica(situation, group, *number, there, plan);
    }
    let message = format!(
        "group {}: {} replicas are wanted and {} there, {} are made",
        group.group_name,
        wanted,
        live.len(),
        places.len()
    );
    plan.remarks.push(Remark { is_warning: false, reason: "CreatedWorkerPods", message });
}

/// PLAN-3.
fn remove_surplus(cluster: &RayCluster, wanted: usize, replicas: &mut BTreeMap<u32, Replica<'_>>) {
    let live = replicas.values().filter(|replica| replica.doomed.is_none()).count();
    let surplus = if cluster.spec.enable_in_tree_autoscaling { 0 } else { live.saturating_sub(wanted) };
    // Those that serve nobody yet go first, then the latest.
    let mut candidates: Vec<_> = replicas.iter_mut().filter(|(_, replica)| replica.doomed.is_none()).collect();
    candidates
        .sort_by_key(|(number, replica)| (replica.pods.iter().all(|pod| pod.is_ready), std::cmp::Reverse(**number)));
    for (_, replica) in candidates.into_iter().take(surplus) {
        replica.doomed = Some("fewer replicas are wanted");
    }
}

/// PLAN-4.
fn replace_stale(
    cluster: &RayCluster,
    group: &WorkerGroup,
    hash: &str,
    wanted: usize,
    replicas: &mut BTreeMap<u32, Replica<'_>>,
) {
    let reason = "the group's template has changed";
    let mut stale: Vec<u32> =
        replicas.iter().filter(|(_, it)| it.doomed.is_none() && it.is_stale(hash)).map(|(number, _)| *number).collect();
    match strategy(cluster) {
        "None" => return,
        "Recreate" => {}
        _ => {
            let settled =
                replicas.values().all(|it| it.doomed.is_none() && (it.is_stale(hash) || it.is_ready(group.hosts())));
            if !settled || replicas.len() < wanted {
                return;
            }
            // What does not serve goes first: it costs nobody anything.
            stale.sort_by_key(|number| replicas[number].is_ready(group.hosts()));
            stale.truncate(1);
        }
    }
    for number in stale {
        if let Some(replica) = replicas.get_mut(&number) {
            replica.doomed = Some(reason);
        }
    }
}

/// PLAN-1, PLAN-2.
fn make_replica(situation: &Situation<'_>, group: &WorkerGroup, number: u32, there: &[&ObservedPod], plan: &mut Plan) {
    let Situation { cluster, settings, .. } = *situation;
    let avoided = plan.failures.get(&group.group_name).map(crate::Failures::avoided).unwrap_or_default();
    plan.objects.extend(Gang { cluster, replica: Some((group, number)) }.object(settings));
    for host in (0..group.hosts()).filter(|host| there.iter().all(|pod| pod.host != *host)) {
        let place = Place { cluster, worker: Some((group, number, host)), settings, avoided: &avoided };
        plan.pods.push(NewPod { group: group.group_name.clone(), object: place.pod() });
    }
}
