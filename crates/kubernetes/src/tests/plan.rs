//! What is done for a cluster in every situation, step by step on a small cluster in memory.
#![expect(clippy::needless_pass_by_value, reason = "objects are written where they are used")]

use crate::{
    FailuresByGroup, ObservedPod, Plan, RayCluster, Refusals, Settings, Situation, StatusInputs, plan, status,
};
use serde_json::{Value, json};

/// A cluster whose pods do what they are told.
struct World {
    object: Value,
    pods: Vec<Value>,
    failures: FailuresByGroup,
    settings: Settings,
    now: u64,
}

fn template(image: &str) -> Value {
    json!({"spec": {"containers": [{"name": "ray", "image": image, "resources": {"limits": {"cpu": 1, "nvidia.com/gpu": 1}}}]}})
}

impl World {
    fn new(groups: Value) -> Self {
        let object = json!({
            "metadata": {"name": "demo", "namespace": "lab", "uid": "u1", "generation": 1},
            "spec": {
                "headGroupSpec": {"template": {"spec": {"containers": [{"name": "head", "image": "one"}]}}},
                "workerGroupSpecs": groups,
            },
        });
        Self { object, pods: Vec::new(), failures: FailuresByGroup::new(), settings: Settings::default(), now: 1000 }
    }

    fn cluster(&self) -> RayCluster {
        RayCluster::read(&self.object).expect("a cluster")
    }

    fn seen(&self) -> Vec<ObservedPod> {
        self.pods.iter().map(ObservedPod::of).collect()
    }

    fn plan(&self) -> Plan {
        let (cluster, pods) = (self.cluster(), self.seen());
        plan(&Situation {
            cluster: &cluster,
            pods: &pods,
            settings: &self.settings,
            failures: &self.failures,
            now: self.now,
        })
    }

    /// Carries out the plan and writes the status. Pods that are deleted are gone at once, new ones are pending.
    fn step(&mut self) -> Plan {
        let plan = self.plan();
        self.pods.retain(|pod| plan.deletions.iter().all(|gone| pod["metadata"]["uid"] != gone.uid.as_str()));
        for new in &plan.pods {
            let mut pod = new.object.clone();
            let name = pod["metadata"]["name"].clone();
            assert!(self.pods.iter().all(|other| other["metadata"]["name"] != name), "{name} is there already");
            pod["metadata"]["uid"] = json!(format!("{}-{}", name.as_str().expect("a name"), self.now));
            pod["status"] = json!({"phase": "Pending"});
            self.pods.push(pod);
        }
        self.failures = plan.failures.clone();
        self.object["status"] = self.status();
        self.now += 1;
        plan
    }

    fn status(&self) -> Value {
        let (cluster, pods) = (self.cluster(), self.seen());
        let refusals = Refusals::new();
        status(&StatusInputs {
            cluster: &cluster,
            pods: &pods,
            settings: &self.settings,
            failures: &self.failures,
            refusals: &refusals,
            now: self.now,
        })
    }

    fn run_all(&mut self) {
        for pod in &mut self.pods {
            pod["status"] =
                json!({"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]});
        }
    }

    fn fail(&mut self, name: &str, machine: &str) {
        let pod = self.pods.iter_mut().find(|pod| pod["metadata"]["name"] == name).expect("there");
        pod["spec"]["nodeName"] = json!(machine);
        pod["status"] = json!({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no device"});
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.seen().into_iter().map(|pod| pod.name).collect();
        names.sort();
        names
    }

    /// A cluster that is settled.
    fn settled(groups: Value) -> Self {
        let mut world = Self::new(groups);
        world.step();
        world.run_all();
        world.object["status"] = world.status();
        let plan = world.plan();
        assert!(plan.pods.is_empty() && plan.deletions.is_empty(), "{plan:?}");
        world
    }
}

fn gpus(replicas: u32) -> Value {
    json!([{"groupName": "gpu", "replicas": replicas, "maxReplicas": 5, "template": template("one")}])
}

fn condition<'a>(status: &'a Value, kind: &str) -> &'a str {
    let all = status["conditions"].as_array().expect("conditions");
    all.iter().find(|one| one["type"] == kind).and_then(|one| one["status"].as_str()).expect("the condition")
}

#[test]
fn a_cluster_is_made_and_then_left_alone() {
    let mut world = World::new(gpus(2));
    let plan = world.step();
    assert_eq!(world.names(), ["demo-gpu-0-0", "demo-gpu-1-0", "demo-head"]);
    assert_eq!(plan.pods[0].group, "headgroup", "the head comes first");
    let kinds: Vec<&str> = plan.objects.iter().filter_map(|object| object["kind"].as_str()).collect();
    assert_eq!(kinds, ["Service", "PodDisruptionBudget"]);
    assert!(plan.objects.iter().all(|object| object["metadata"]["ownerReferences"][0]["uid"] == "u1"));
    assert!(world.plan().pods.is_empty(), "pending pods are waited for");
    assert_eq!(condition(&world.status(), "HeadPodReady"), "False");
    world.run_all();
    let status = world.status();
    assert_eq!((condition(&status, "RayClusterProvisioned"), &status["state"]), ("True", &json!("ready")));
    assert_eq!(status["readyWorkerReplicas"], 2);
}

#[test]
fn capacity_is_told_at_zero_replicas_and_bounds_hold() {
    let world = World::settled(gpus(0));
    assert_eq!(world.names(), ["demo-head"]);
    assert_eq!(world.status()["groups"][0]["resourcesPerHost"], json!({"CPU": 1.0, "GPU": 1.0}));
    let mut world = World::new(gpus(9));
    world.step();
    assert_eq!(world.names().len(), 6);
    world.object["spec"]["workerGroupSpecs"][0]["minReplicas"] = json!(3);
    world.object["spec"]["workerGroupSpecs"][0]["replicas"] = json!(0);
    world.step();
    assert_eq!(world.names().len(), 4);
}

#[test]
fn with_an_autoscaler_only_named_replicas_go() {
    let mut world = World::settled(gpus(3));
    world.object["spec"]["enableInTreeAutoscaling"] = json!(true);
    world.object["spec"]["workerGroupSpecs"][0]["replicas"] = json!(2);
    assert!(world.plan().deletions.is_empty());
    world.object["spec"]["workerGroupSpecs"][0]["scaleStrategy"] = json!({"workersToDelete": ["demo-gpu-1-0"]});
    world.step();
    assert_eq!(world.names(), ["demo-gpu-0-0", "demo-gpu-2-0", "demo-head"]);
    assert!(world.step().pods.is_empty());
    world.object["spec"]["enableInTreeAutoscaling"] = json!(false);
    world.object["spec"]["workerGroupSpecs"][0]["replicas"] = json!(1);
    world.step();
    assert_eq!(world.names(), ["demo-gpu-0-0", "demo-head"], "without one, the latest go");
}

#[test]
fn with_an_autoscaler_what_was_emptied_stays_until_it_is_named_and_its_name_is_free() {
    let mut world = World::settled(gpus(1));
    world.object["spec"]["enableInTreeAutoscaling"] = json!(true);
    let worker = world.pods.iter_mut().find(|pod| pod["metadata"]["name"] == "demo-gpu-0-0").expect("there");
    worker["status"] = json!({"phase": "Succeeded"});
    let plan = world.plan();
    assert!(plan.deletions.is_empty() && plan.pods.is_empty() && plan.failures.is_empty(), "{plan:?}");
    world.object["spec"]["workerGroupSpecs"][0]["scaleStrategy"] = json!({"workersToDelete": ["demo-gpu-0-0"]});
    world.step();
    world.step();
    assert_eq!(world.names(), ["demo-gpu-1-0", "demo-head"], "one that is still named would go at once");
    world.fail("demo-gpu-1-0", "one");
    let plan = world.step();
    assert_eq!(plan.failures["gpu"].count, 1, "one that failed is replaced as ever");
    assert_eq!(world.names(), ["demo-head"]);
}

#[test]
fn a_replica_of_several_hosts_is_one() {
    let mut groups = gpus(2);
    groups[0]["numOfHosts"] = json!(2);
    let mut world = World::settled(groups);
    let all = ["demo-gpu-0-0", "demo-gpu-0-1", "demo-gpu-1-0", "demo-gpu-1-1", "demo-head"];
    assert_eq!(world.names(), all);
    // One host fails: both go, and after a pause both come back.
    world.fail("demo-gpu-0-1", "bad");
    let plan = world.step();
    assert_eq!(plan.deletions.len(), 2);
    assert!(plan.pods.is_empty() && plan.again_s.is_some(), "{plan:?}");
    world.now += 10;
    assert_eq!(world.step().pods.len(), 2);
    world.run_all();
    // One host vanishes while the other runs: the other goes as well.
    world.pods.retain(|pod| pod["metadata"]["name"] != "demo-gpu-1-0");
    // In its place comes one of another number, whose names are not those of pods that may still be ending.
    world.step();
    assert_eq!(world.names(), ["demo-gpu-0-0", "demo-gpu-0-1", "demo-gpu-2-0", "demo-gpu-2-1", "demo-head"]);
    // An operator that was killed after one of two hosts goes on with the second.
    world.pods.retain(|pod| pod["metadata"]["name"] != "demo-gpu-2-0");
    let pending = world.pods.iter_mut().find(|pod| pod["metadata"]["name"] == "demo-gpu-2-1").expect("there");
    pending["status"] = json!({"phase": "Pending"});
    let plan = world.step();
    assert!(plan.deletions.is_empty() && plan.pods.len() == 1, "{plan:?}");
}

#[test]
fn failures_are_paused_after_and_bad_machines_avoided() {
    let mut world = World::settled(gpus(1));
    for round in 0..2 {
        world.run_all();
        world.fail("demo-gpu-0-0", "bad");
        world.step();
        assert_eq!(world.names(), ["demo-head"], "round {round}");
        assert!(world.plan().pods.is_empty(), "there is a pause");
        world.now += 30;
        world.step();
    }
    let pod = world.pods.iter().find(|pod| pod["metadata"]["name"] == "demo-gpu-0-0").expect("there");
    let terms = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let rule = &terms["nodeSelectorTerms"][0]["matchExpressions"][0];
    assert_eq!((&rule["operator"], &rule["values"]), (&json!("NotIn"), &json!(["bad"])));
    assert_eq!(condition(&world.status(), "ReplicaFailure"), "True");
    assert_eq!(crate::failures_of(&world.cluster()), world.failures, "a new operator reads it back");
    world.now += 2000;
    world.step();
    assert_eq!(condition(&world.status(), "ReplicaFailure"), "False");
}

#[test]
fn a_template_is_rolled_replica_by_replica() {
    let mut world = World::settled(gpus(3));
    world.object["spec"]["workerGroupSpecs"][0]["template"] = template("two");
    let mut replaced = Vec::new();
    for _ in 0..10 {
        let plan = world.step();
        assert!(plan.deletions.len() <= 1, "{plan:?}");
        replaced.extend(plan.deletions.into_iter().map(|gone| gone.name));
        world.run_all();
    }
    replaced.sort();
    assert_eq!(replaced, ["demo-gpu-0-0", "demo-gpu-1-0", "demo-gpu-2-0"]);
    let images: Vec<&Value> = world.pods.iter().map(|pod| &pod["spec"]["containers"][0]["image"]).collect();
    assert_eq!(images, ["one", "two", "two", "two"]);
    // What Kueue adds replaces nothing.
    world.object["spec"]["workerGroupSpecs"][0]["template"]["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    assert!(world.plan().deletions.is_empty());
    for (kind, deletions) in [("None", 0), ("Recreate", 3)] {
        world.object["spec"]["workerGroupSpecs"][0]["template"] = template("three");
        world.object["spec"]["upgradeStrategy"] = json!({"type": kind});
        assert_eq!(world.plan().deletions.len(), deletions, "{kind}");
    }
}

#[test]
fn a_changed_head_is_kept_unless_its_journal_stays() {
    let mut world = World::settled(gpus(0));
    world.object["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["image"] = json!("two");
    let plan = world.plan();
    assert!(plan.deletions.is_empty());
    assert_eq!(plan.remarks[0].reason, "HeadTemplateChanged");
    let mut world = World::new(gpus(0));
    world.object["spec"]["gcsFaultToleranceOptions"] = json!({"backend": "rocksdb", "storage": {"size": "2Gi"}});
    let plan = world.step();
    let claim = plan.objects.iter().find(|object| object["kind"] == "PersistentVolumeClaim").expect("a claim");
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "2Gi");
    world.run_all();
    world.object["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["image"] = json!("two");
    assert_eq!(world.plan().deletions[0].name, "demo-head");
}

#[test]
fn a_removed_group_goes() {
    let mut world = World::settled(gpus(2));
    world.object["spec"]["workerGroupSpecs"] = json!([]);
    let plan = world.step();
    assert_eq!(plan.deletions.len(), 2);
    assert!(plan.deletions.iter().all(|gone| gone.reason.contains("not in the cluster any more")));
    assert_eq!(world.names(), ["demo-head"]);
}

#[test]
fn suspending_is_finished_before_anything_comes_back() {
    let mut world = World::settled(gpus(1));
    world.object["spec"]["suspend"] = json!(true);
    world.object["status"] = world.status();
    assert_eq!(condition(&world.object["status"], "RayClusterSuspending"), "True");
    // Half way, it is not to be suspended any more.
    world.object["spec"]["suspend"] = json!(false);
    world.pods.retain(|pod| pod["metadata"]["name"] != "demo-head");
    let plan = world.step();
    assert!(plan.pods.is_empty() && plan.deletions.len() == 1, "{plan:?}");
    world.step();
    assert_eq!(world.names(), ["demo-gpu-0-0", "demo-head"]);

    let mut world = World::settled(gpus(1));
    world.object["spec"]["suspend"] = json!(true);
    world.step();
    let status = world.status();
    assert_eq!((condition(&status, "RayClusterSuspended"), &status["state"]), ("True", &json!("suspended")));
    assert!(world.step().pods.is_empty());
}

#[test]
fn what_no_pods_can_be_made_of_is_said() {
    let cases = [
        (json!([{"groupName": "gpu"}]), "needs a first container"),
        (json!([{"groupName": "Gpu!", "template": template("x")}]), "lower-case letters"),
        (
            json!([{"groupName": "a", "template": template("x")}, {"groupName": "a", "template": template("x")}]),
            "is taken",
        ),
        (
            json!([{"groupName": "a", "minReplicas": 3, "maxReplicas": 1, "template": template("x")}]),
            "above maxReplicas",
        ),
    ];
    for (groups, said) in cases {
        let world = World::new(groups);
        let plan = world.plan();
        assert!(plan.pods.is_empty() && plan.objects.is_empty());
        assert!(plan.remarks[0].message.contains(said), "{:?}", plan.remarks);
        assert_eq!(condition(&world.status(), "ReplicaFailure"), "True");
    }
}

#[test]
fn moments_are_written_as_the_api_does() {
    let cases = [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_399, "2000-02-28T23:59:59Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (1_795_359_845, "2026-11-22T15:04:05Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
    ];
    for (seconds, expected) in cases {
        assert_eq!(crate::timestamp(seconds), expected);
    }
}
