//! What an autoscaler's requests make of a cluster, step by step.
#![expect(clippy::needless_pass_by_value, reason = "objects are written where they are used")]

use crate::{Look, ObservedPod, RayCluster, Refusals, ScaledPod, Scaling, Settings, Stage, Undelivered, scaled_groups};
use serde_json::{Value, json};

const LIMIT_MS: u64 = 15_000;

/// A cluster with one group, pods as the test has them, and the autoscaler's memory.
struct World {
    cluster: Value,
    pods: Vec<Value>,
    refusals: Refusals,
    scaling: Scaling,
    now_ms: u64,
}

impl World {
    fn new(group: Value) -> Self {
        let mut spec =
            json!({"groupName": "g", "maxReplicas": 5, "template": {"spec": {"containers": [{"name": "ray"}]}}});
        for (key, value) in group.as_object().expect("fields") {
            spec[key] = value.clone();
        }
        let cluster =
            json!({"metadata": {"name": "demo", "resourceVersion": "7"}, "spec": {"workerGroupSpecs": [spec]}});
        let scaling = Scaling::new(LIMIT_MS);
        Self { cluster, pods: Vec::new(), refusals: Refusals::new(), scaling, now_ms: 0 }
    }

    fn pod(&mut self, number: u32, host: u32, uid: &str, phase: &str) {
        self.pods.retain(|pod| pod["metadata"]["name"] != format!("demo-g-{number}-{host}"));
        let labels = json!({
            "ray.io/group": "g", "ray.io/node-type": "worker",
            "ray.io/worker-group-replica-index": number.to_string(), "ray.io/replica-host-index": host.to_string(),
        });
        self.pods.push(json!({
            "metadata": {"name": format!("demo-g-{number}-{host}"), "uid": uid, "labels": labels},
            "spec": {"containers": [{"name": "ray"}]}, "status": {"phase": phase},
        }));
    }

    fn set(&mut self, uid: &str, path: &str, value: Value) {
        let pod = self.pods.iter_mut().find(|pod| pod["metadata"]["uid"] == uid).expect("the pod");
        let (part, field) = path.split_once('/').expect("a part and a field");
        pod[part][field] = value;
    }

    fn look(&mut self) -> (Vec<ScaledPod>, Vec<Undelivered>) {
        let (cluster, pods) = self.read();
        self.scaling.observe(&Look { cluster: &cluster, pods: &pods, refusals: &self.refusals }, self.now_ms)
    }

    fn read(&self) -> (RayCluster, Vec<ObservedPod>) {
        (RayCluster::read(&self.cluster).expect("a cluster"), self.pods.iter().map(ObservedPod::of).collect())
    }

    /// Carries out the change that is wanted; `replicas` and the names in it.
    fn change(&mut self) -> Option<(Option<u64>, Option<Value>)> {
        let (cluster, pods) = self.read();
        let look = Look { cluster: &cluster, pods: &pods, refusals: &self.refusals };
        let (operations, _) = self.scaling.change(&look)?;
        let operations = operations.as_array().expect("a list").clone();
        assert_eq!(operations[0], json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}));
        assert_eq!(operations[1], json!({"op": "test", "path": "/spec/workerGroupSpecs/0/groupName", "value": "g"}));
        let (mut replicas, mut named) = (None, None);
        for operation in &operations[2..] {
            let group = &mut self.cluster["spec"]["workerGroupSpecs"][0];
            let field = operation["path"].as_str().and_then(|path| path.rsplit('/').next()).expect("a path");
            group[field] = operation["value"].clone();
            match field {
                "replicas" => replicas = operation["value"].as_u64(),
                _ => named = Some(operation["value"]["workersToDelete"].clone()),
            }
        }
        Some((replicas, named))
    }

    fn stages(&mut self) -> Vec<(String, Stage)> {
        let mut stages: Vec<_> = self.look().0.into_iter().map(|pod| (pod.replica, pod.stage)).collect();
        stages.dedup();
        stages
    }
}

fn named(stages: &[(&str, Stage)]) -> Vec<(String, Stage)> {
    stages.iter().map(|(name, stage)| ((*name).to_owned(), *stage)).collect()
}

#[test]
fn what_is_asked_for_comes_and_what_is_to_go_goes() {
    let mut world = World::new(json!({}));
    assert_eq!(world.change(), None);
    world.scaling.launch("g", 2, "a");
    assert_eq!(world.change(), Some((Some(2), None)));
    // The same again, since the answer was lost.
    world.scaling.launch("g", 2, "a");
    assert_eq!(world.change(), None);
    world.pod(0, 0, "u0", "Pending");
    assert_eq!(world.stages(), named(&[("g-0", Stage::Coming)]));
    assert_eq!(world.change(), None, "the other one is still to come");
    world.pod(0, 0, "u0", "Running");
    world.pod(1, 0, "u1", "Running");
    assert_eq!(world.stages(), named(&[("g-0", Stage::Running), ("g-1", Stage::Running)]));
    world.scaling.launch("g", 2, "a");
    assert_eq!(world.change(), None, "an answered request asks for nothing more");

    world.scaling.terminate(&["g-0".to_owned()]);
    assert_eq!(world.change(), Some((Some(1), Some(json!(["demo-g-0-0"])))));
    world.set("u0", "metadata/deletionTimestamp", json!("now"));
    assert_eq!(world.stages(), named(&[("g-0", Stage::Going), ("g-1", Stage::Running)]));
    assert_eq!(world.change(), Some((None, Some(json!([])))), "one that is being deleted is named no longer");
}

#[test]
fn another_pod_in_the_same_place_is_another_replica() {
    let mut world = World::new(json!({"replicas": 1}));
    world.pod(0, 0, "u0", "Running");
    assert_eq!(world.stages(), named(&[("g-0", Stage::Running)]));
    world.scaling.terminate(&["g-0".to_owned()]);
    world.pod(0, 0, "u1", "Running");
    assert_eq!(world.stages(), named(&[("g-0.1", Stage::Running)]));
    assert_eq!(world.change(), None, "the one that was to go is gone, and this one is not named");
    world.scaling.terminate(&["g-0".to_owned()]);
    assert_eq!(world.change(), None);
}

#[test]
fn what_ends_by_itself_is_not_replaced_unless_it_is_asked_for() {
    let mut world = World::new(json!({"replicas": 2}));
    world.pod(0, 0, "u0", "Running");
    world.pod(1, 0, "u1", "Failed");
    let (pods, undelivered) = world.look();
    assert_eq!(pods.len(), 1, "what failed is gone");
    let [Undelivered::Replica { replica, .. }] = &undelivered[..] else { panic!("one: {undelivered:?}") };
    assert_eq!(replica, "g-1");
    assert_eq!(world.look().1, [], "it is told once");
    assert_eq!(world.change(), Some((Some(1), None)));
    // One whose node has ended in order stays until it is named.
    world.pod(0, 0, "u0", "Succeeded");
    assert_eq!(world.stages(), named(&[("g-0", Stage::Going)]));
    assert_eq!(world.change(), None);
    world.scaling.terminate(&["g-0".to_owned()]);
    assert_eq!(world.change(), Some((Some(0), Some(json!(["demo-g-0-0"])))));
}

#[test]
fn what_fails_before_it_is_seen_is_told_by_its_request() {
    let mut world = World::new(json!({}));
    world.scaling.launch("g", 1, "a");
    world.change();
    world.pod(0, 0, "u0", "Failed");
    let (pods, undelivered) = world.look();
    assert_eq!(pods, []);
    let [Undelivered::Request { request, replicas: 1, .. }] = &undelivered[..] else { panic!("one: {undelivered:?}") };
    assert_eq!(request, "a");
    assert_eq!(world.change(), Some((Some(0), None)));
    // And one that was seen, by its name.
    world.scaling.launch("g", 1, "b");
    world.change();
    world.pod(1, 0, "u1", "Pending");
    assert_eq!(world.look().1, []);
    world.pod(1, 0, "u1", "Failed");
    assert!(matches!(&world.look().1[..], [Undelivered::Replica { replica, .. }] if replica == "g-1"));
}

#[test]
fn wishes_of_an_autoscaler_that_is_gone_are_dropped_but_the_minimum() {
    let mut world = World::new(json!({"replicas": 4, "minReplicas": 1}));
    world.look();
    assert_eq!(world.change(), Some((Some(1), None)));
    world.scaling.launch("g", 1, "a");
    assert_eq!(world.change(), None, "the minimum is what was asked for");
    world.pod(0, 0, "u0", "Running");
    world.pod(1, 0, "u1", "Running");
    world.look();
    assert_eq!(world.change(), Some((Some(2), None)), "what there is counts, whoever made it");
}

#[test]
fn a_replica_is_one_whatever_of_it_is_there() {
    let mut world = World::new(json!({"numOfHosts": 2}));
    world.scaling.launch("g", 1, "a");
    assert_eq!(world.change(), Some((Some(1), None)));
    world.pod(0, 1, "u1", "Pending");
    assert_eq!(world.stages(), named(&[("g-0", Stage::Coming)]));
    assert_eq!(world.change(), None);
    world.pod(0, 0, "u0", "Pending");
    assert_eq!(world.look().0.iter().map(|pod| &*pod.replica).collect::<Vec<_>>(), ["g-0", "g-0"]);
    world.scaling.terminate(&["g-0".to_owned()]);
    assert_eq!(world.change(), Some((Some(0), Some(json!(["demo-g-0-0", "demo-g-0-1"])))));
}

#[test]
fn a_pod_without_a_machine_is_given_up_after_a_while() {
    let mut world = World::new(json!({"replicas": 1}));
    world.pod(0, 0, "u0", "Pending");
    let message = "0/3 nodes are available";
    world.set("u0", "status/conditions", json!([{"type": "PodScheduled", "status": "False", "message": message}]));
    assert_eq!(world.look().1, []);
    world.now_ms = LIMIT_MS;
    let replica = "g-0".to_owned();
    assert_eq!(world.look().1, [Undelivered::Replica { group: "g".to_owned(), replica, text: message.to_owned() }]);
    assert_eq!(world.look().1, []);
}

#[test]
fn what_the_api_refuses_is_said_and_not_waited_for() {
    let mut world = World::new(json!({"numOfHosts": 2}));
    world.scaling.launch("g", 3, "a");
    world.change();
    world.pod(0, 0, "u0", "Pending");
    world.pod(0, 1, "u1", "Pending");
    world.pod(1, 0, "u2", "Pending");
    world.refusals.insert("g".to_owned(), "exceeded quota".to_owned());
    let (pods, undelivered) = world.look();
    assert_eq!(pods.len(), 3);
    let (group, text) = ("g".to_owned(), "exceeded quota".to_owned());
    let partial = Undelivered::Replica { group: group.clone(), replica: "g-1".to_owned(), text: text.clone() };
    assert_eq!(undelivered, [partial, Undelivered::Request { group, request: "a".to_owned(), replicas: 1, text }]);
    assert_eq!(world.change(), Some((Some(2), None)));
}

#[test]
fn a_conservative_cluster_doubles() {
    let mut world = World::new(json!({"maxReplicas": 7, "idleTimeoutSeconds": 5}));
    let maxima = |world: &World| {
        let (cluster, pods) = world.read();
        let groups = scaled_groups(&cluster, &pods, &Settings::default());
        (groups[0].max, groups[0].idle_timeout_s)
    };
    assert_eq!(maxima(&world), (7, 5));
    world.cluster["spec"]["autoscalerOptions"] = json!({"upscalingMode": "Conservative", "idleTimeoutSeconds": 9});
    assert_eq!(maxima(&world), (1, 5));
    for number in 0..2 {
        let uid = format!("u{number}");
        world.pod(number, 0, &uid, "Running");
        world.set(&uid, "status/conditions", json!([{"type": "Ready", "status": "True"}]));
    }
    assert_eq!(maxima(&world), (4, 5));
    world.cluster["spec"]["workerGroupSpecs"][0]["idleTimeoutSeconds"] = Value::Null;
    assert_eq!(maxima(&world), (4, 9));
}
