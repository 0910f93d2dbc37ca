//! What is in a pod: its command, what it may see, what it puts up with, and what its scheduler reads.

use crate::{FailuresByGroup, ObservedPod, RayCluster, Settings, Situation, plan};
use serde_json::{Value, json};

fn cluster() -> Value {
    json!({
        "metadata": {"name": "demo", "namespace": "lab", "uid": "u1"},
        "spec": {
            "headGroupSpec": {
                "rayStartParams": {"dashboard-host": "0.0.0.0", "num-cpus": "0"},
                "template": {"spec": {"containers": [{"name": "head", "image": "rayproject/ray:2.60.0"}]}},
            },
            "workerGroupSpecs": [{
                "groupName": "gpu", "replicas": 1,
                "template": {"spec": {
                    "initContainers": [{"name": "init", "image": "busybox"}],
                    "containers": [{"name": "ray", "image": "rayproject/ray:2.60.0", "resources": {"limits": {"cpu": 3, "nvidia.com/gpu": 1}}}],
                }},
            }],
        },
    })
}

fn made(object: &Value, settings: &Settings) -> (Vec<Value>, Vec<Value>) {
    let cluster = RayCluster::read(object).expect("a cluster");
    let failures = FailuresByGroup::new();
    let plan = plan(&Situation { cluster: &cluster, pods: &[], settings, failures: &failures, now: 0 });
    (plan.pods.into_iter().map(|pod| pod.object).collect(), plan.objects)
}

fn variable<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    let variables = container["env"].as_array()?;
    variables.iter().find(|variable| variable["name"] == name)?["value"].as_str()
}

fn script(pod: &Value) -> &str {
    pod["spec"]["containers"][0]["command"][2].as_str().expect("a script")
}

#[test]
fn nodes_are_started_with_what_the_capacity_says() {
    let (pods, _) = made(&cluster(), &Settings::default());
    let (head, worker) = (&pods[0], &pods[1]);
    assert!(script(head).contains("exec oxiray start --block"), "{}", script(head));
    for part in ["--head", "--port=6379", "--num-cpus=0", "--num-gpus=0", "--keep-cluster", "--authority-file="] {
        assert!(script(head).contains(part), "{part} in {}", script(head));
    }
    let labels = r#"--labels='{"oxiray.io/instance":"'"$OXIRAY_POD_UID"'","ray.io/node-group":"gpu"}'"#;
    for part in ["--address=\"$FQ_RAY_IP:$RAY_PORT\"", "--num-cpus=3", "--num-gpus=1", "--join-wait=", labels] {
        assert!(script(worker).contains(part), "{part} in {}", script(worker));
    }
    let container = &worker["spec"]["containers"][0];
    assert_eq!(variable(container, "FQ_RAY_IP"), Some("demo-head-svc.lab.svc.cluster.local"));
    assert_eq!(variable(container, "RAY_CLOUD_INSTANCE_ID"), Some("demo-gpu-0-0"));
    assert_eq!(variable(container, "RAY_NODE_TYPE_NAME"), Some("gpu"));
    let drain = container["lifecycle"]["preStop"]["exec"]["command"][2].as_str().expect("a drain");
    assert!(drain.starts_with("oxiray drain \"$RAY_CLOUD_INSTANCE_ID\" --deadline=50"), "{drain}");
    assert_eq!((&worker["spec"]["restartPolicy"], &head["spec"]["restartPolicy"]), (&json!("Never"), &json!("Always")));
    assert_eq!(worker["metadata"]["ownerReferences"][0]["uid"], "u1");
}

#[test]
fn every_node_reads_what_its_machine_is_labelled_with() {
    let (pods, _) = made(&cluster(), &Settings::default());
    for pod in &pods {
        let container = &pod["spec"]["containers"][0];
        assert_eq!(variable(container, "OXIRAY_MACHINE_LABELS_FILE"), Some("/var/run/oxiray/machine/labels"));
        let named = |list: &Value| list.as_array()?.iter().find(|one| one["name"] == "oxiray-machine").cloned();
        let mounted = named(&container["volumeMounts"]).expect("it is mounted");
        assert_eq!(mounted["mountPath"], "/var/run/oxiray/machine");
        let volume = named(&pod["spec"]["volumes"]).expect("there is such a volume");
        let item = &volume["downwardAPI"]["items"][0];
        assert_eq!(item["fieldRef"]["fieldPath"], "metadata.annotations['oxiray.io/machine-labels']");
        assert!(pod["metadata"]["annotations"]["oxiray.io/machine-labels"].is_null(), "it has no machine yet");
    }
}

#[test]
fn a_pod_is_told_of_its_machine_once_and_while_it_lives() {
    let mut pod = json!({"metadata": {"name": "demo-gpu-0-0"}, "spec": {}, "status": {"phase": "Pending"}});
    let waits = |pod: &Value| ObservedPod::of(pod).waits_for_labels_of().map(str::to_owned);
    assert_eq!(waits(&pod), None, "it has no machine");
    pod["spec"]["nodeName"] = json!("tray-7");
    assert_eq!(waits(&pod).as_deref(), Some("tray-7"));
    for (at, value) in [
        ("/status/phase", json!("Failed")),
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        ("/metadata/annotations", json!({"oxiray.io/machine-labels": "{}"})),
    ] {
        let mut other = pod.clone();
        let (parent, key) = at.rsplit_once('/').expect("a path");
        other.pointer_mut(parent).expect("there")[key] = value;
        assert_eq!(waits(&other), None, "{at}");
    }
}

#[test]
fn a_containers_own_command_comes_first_or_stays() {
    let mut object = cluster();
    let container = "/spec/workerGroupSpecs/0/template/spec/containers/0";
    object.pointer_mut(container).expect("there")["command"] = json!(["echo", "it's on"]);
    let (pods, _) = made(&object, &Settings::default());
    assert!(script(&pods[1]).contains(r"echo 'it'\''s on' && exec oxiray start"), "{}", script(&pods[1]));
    object.pointer_mut(container).expect("there")["command"] = json!(["/bin/bash", "-lc", "--"]);
    let (pods, _) = made(&object, &Settings::default());
    assert!(!script(&pods[1]).contains("bash"), "{}", script(&pods[1]));
    let template = object.pointer_mut("/spec/workerGroupSpecs/0/template").expect("there");
    template["metadata"] = json!({"annotations": {"ray.io/overwrite-container-cmd": "true"}});
    let (pods, _) = made(&object, &Settings::default());
    let container = &pods[1]["spec"]["containers"][0];
    assert_eq!(container["command"], json!(["/bin/bash", "-lc", "--"]));
    assert_eq!(variable(container, "KUBERAY_GEN_RAY_START_CMD"), Some("/bin/sh /var/run/oxiray/start/node"));
    let script = pods[1]["metadata"]["annotations"]["oxiray.io/start"].as_str().expect("a script");
    assert!(script.contains("exec oxiray start --block"), "{script}");
    assert_eq!(variable(&pods[0]["spec"]["containers"][0], "KUBERAY_GEN_RAY_START_CMD"), None);
    // KubeRay's own sample has it on the cluster, for all its pods.
    object.pointer_mut("/metadata").expect("there")["annotations"] = json!({"ray.io/overwrite-container-cmd": "true"});
    let (pods, _) = made(&object, &Settings::default());
    assert!(pods.iter().all(|pod| pod["metadata"]["annotations"]["oxiray.io/start"].is_string()));
}

#[test]
fn fields_that_are_not_followed_are_named() {
    let mut object = cluster();
    object["spec"]["rayVersion"] = json!("2.60.0");
    object["spec"]["idleTerminationOptions"] = json!({"timeoutSeconds": 30});
    object["spec"]["headGroupSpec"]["enableIngress"] = json!(true);
    object["spec"]["headGroupSpec"]["headService"] = json!({});
    object["spec"]["workerGroupSpecs"][0]["minReplica"] = json!(1);
    let names = ["idleTerminationOptions", "headGroupSpec.enableIngress", "workerGroupSpecs[0].minReplica"];
    let notes = RayCluster::read(&object).expect("a cluster").notes;
    assert_eq!(notes, names.map(|name| format!("without effect: {name}")));
    assert_eq!(RayCluster::read(&cluster()).expect("a cluster").notes, Vec::<String>::new());
}

#[test]
fn pods_without_nvidia_devices_see_none() {
    let mut object = cluster();
    let hidden = |object: &Value| {
        let (pods, _) = made(object, &Settings::default());
        let containers = |pod: &Value| {
            let of = |kind: &str| pod["spec"][kind].as_array().cloned().unwrap_or_default();
            [of("initContainers"), of("containers")].concat()
        };
        let told = |pod: &Value| -> Vec<Option<String>> {
            containers(pod).iter().map(|one| variable(one, "NVIDIA_VISIBLE_DEVICES").map(str::to_owned)).collect()
        };
        (told(&pods[0]), told(&pods[1]))
    };
    let void = Some("void".to_owned());
    assert_eq!(hidden(&object), (vec![void.clone()], vec![None, None]));
    let limits = "/spec/workerGroupSpecs/0/template/spec/containers/0/resources/limits";
    for other in [json!({"cpu": 1}), json!({"cpu": 1, "amd.com/gpu": 1})] {
        *object.pointer_mut(limits).expect("there") = other;
        assert_eq!(hidden(&object).1, [void.clone(), void.clone()]);
    }
    // By hand: a variable, or a number of GPUs that no device stands behind.
    let container = object.pointer_mut("/spec/workerGroupSpecs/0/template/spec/containers/0").expect("there");
    container["env"] = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "1"}]);
    assert_eq!(hidden(&object).1, [void, Some("1".to_owned())]);
    let container = object.pointer_mut("/spec/workerGroupSpecs/0/template/spec/containers/0").expect("there");
    *container = json!({"name": "ray", "image": "x", "resources": {"limits": {"cpu": 1}}});
    object["spec"]["workerGroupSpecs"][0]["rayStartParams"] = json!({"num-gpus": "2"});
    assert_eq!(hidden(&object).1, [None, None]);
}

#[test]
fn a_node_is_told_the_memory_of_its_gpus_only_where_it_is_said_by_hand() {
    let mut object = cluster();
    let template = "/spec/workerGroupSpecs/0/template/spec";
    object.pointer_mut(template).expect("there")["nodeSelector"] = json!({"nvidia.com/gpu.memory": "65536"});
    let line = |object: &Value| made(object, &Settings::default()).0[1]["spec"]["containers"][0]["command"].to_string();
    let found = line(&object);
    assert!(!found.contains("--gpu-memory") && !found.contains("GPU:memory"), "{found}");
    object["spec"]["workerGroupSpecs"][0]["rayStartParams"] = json!({"gpu-memory": "80Gi"});
    let said = line(&object);
    assert!(said.contains("--gpu-memory=85899345920") && !said.contains("GPU:memory"), "{said}");
}

#[test]
fn taints_of_the_devices_are_tolerated() {
    let mut object = cluster();
    let limits = "/spec/workerGroupSpecs/0/template/spec/containers/0/resources/limits";
    let mut keys = |limit: &str| {
        *object.pointer_mut(limits).expect("there") = json!({"cpu": 1, limit: 1});
        let (pods, _) = made(&object, &Settings::default());
        let all = pods[1]["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        all.iter().map(|one| one["key"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys("nvidia.com/gpu"), ["nvidia.com/gpu"]);
    assert_eq!(keys("nvidia.com/mig-1g.10gb"), ["nvidia.com/mig-1g.10gb", "nvidia.com/gpu"]);
    assert_eq!(keys("habana.ai/gaudi"), ["habana.ai/gaudi"]);
    assert_eq!(keys("memory"), [""; 0]);
}

#[test]
fn the_hosts_of_a_slice_know_each_other() {
    let mut object = cluster();
    object["spec"]["workerGroupSpecs"][0]["numOfHosts"] = json!(2);
    object["spec"]["workerGroupSpecs"][0]["template"]["spec"] = json!({
        "nodeSelector": {"cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice", "cloud.google.com/gke-tpu-topology": "2x2x2"},
        "containers": [{"name": "ray", "image": "x", "resources": {"limits": {"cpu": 1, "google.com/tpu": 4}}}],
    });
    let (pods, objects) = made(&object, &Settings { pod_groups: Some("v1alpha2".into()), ..Settings::default() });
    let last = &pods[2];
    let container = &last["spec"]["containers"][0];
    assert_eq!(variable(container, "TPU_WORKER_ID"), Some("1"));
    assert_eq!(
        variable(container, "TPU_WORKER_HOSTNAMES"),
        Some("demo-gpu-0-0.demo-headless,demo-gpu-0-1.demo-headless")
    );
    assert!(script(&pods[1]).contains("TPU-v4-16-head") && !script(last).contains("TPU-v4-16-head"));
    assert_eq!(
        (&last["spec"]["hostname"], &last["spec"]["subdomain"]),
        (&json!("demo-gpu-0-1"), &json!("demo-headless"))
    );
    let group = objects.iter().find(|object| object["kind"] == "PodGroup").expect("a group of pods");
    assert_eq!(group["spec"]["schedulingPolicy"]["gang"]["minCount"], 2);
    assert_eq!(last["spec"]["schedulingGroup"]["podGroupName"], group["metadata"]["name"]);
}

#[test]
fn schedulers_of_gangs_find_what_they_read() {
    let with = |labels: Value| {
        let mut object = cluster();
        object["metadata"]["labels"] = labels;
        let (pods, objects) = made(&object, &Settings::default());
        (pods[1].clone(), objects.into_iter().filter(|object| object["kind"] == "PodGroup").collect::<Vec<_>>())
    };
    let (pod, groups) = with(json!({"volcano.sh/queue-name": "q"}));
    assert_eq!((groups.len(), &pod["spec"]["schedulerName"]), (2, &json!("volcano")));
    assert_eq!(pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"], groups[1]["metadata"]["name"]);
    let (pod, _) = with(json!({"kai.scheduler/queue": "team"}));
    assert_eq!(pod["metadata"]["labels"]["kai.scheduler/queue"], "team");
    let (pod, _) = with(json!({"yunikorn.apache.org/app-id": "a", "ray.io/gang-scheduling-enabled": "true"}));
    let groups: Value =
        serde_json::from_str(pod["metadata"]["annotations"]["yunikorn.apache.org/task-groups"].as_str().expect("text"))
            .expect("JSON");
    assert_eq!((&groups[0]["name"], &groups[0]["minMember"]), (&json!("headgroup"), &json!(1)));
    let (pod, groups) = with(json!({}));
    assert!(pod["spec"]["schedulerName"].is_null() && groups.is_empty());
}

#[test]
fn images_are_replaced_by_name() {
    let images = [("rayproject/ray".to_owned(), "ours:1".to_owned())].into();
    let (pods, _) = made(&cluster(), &Settings { images, ..Settings::default() });
    assert_eq!(pods[0]["spec"]["containers"][0]["image"], "ours:1");
    assert_eq!(pods[1]["spec"]["initContainers"][0]["image"], "busybox");
}

#[test]
fn long_names_stay_short_enough_and_different() {
    let mut object = cluster();
    object["metadata"]["name"] = json!("c".repeat(50));
    object["spec"]["workerGroupSpecs"][0]["groupName"] = json!("g".repeat(30));
    object["spec"]["workerGroupSpecs"][0]["replicas"] = json!(3);
    let (pods, _) = made(&object, &Settings::default());
    let names: std::collections::BTreeSet<&str> =
        pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
    assert_eq!(names.len(), 4);
    assert!(names.iter().all(|name| name.len() <= 63), "{names:?}");
}

#[test]
fn a_template_that_others_would_make_up_for_can_be_applied() {
    let mut object = cluster();
    let container = &mut object["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0];
    container["ports"] = json!([{"containerPort": 8000}, {"containerPort": 8000, "protocol": "UDP"}]);
    container["env"] = json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "A", "value": "3"}]);
    let volume = json!({"name": "scratch", "emptyDir": {"sizeLimit": 1024}});
    object["spec"]["workerGroupSpecs"][0]["template"]["spec"]["volumes"] = json!([volume]);
    object["spec"]["gcsFaultToleranceOptions"] = json!({"storage": {"size": 1024}});
    let (pods, objects) = made(&object, &Settings::default());
    let container = &pods[1]["spec"]["containers"][0];
    assert_eq!(container["resources"]["limits"], json!({"cpu": "3", "nvidia.com/gpu": "1"}));
    let volumes = pods[1]["spec"]["volumes"].as_array().expect("volumes");
    assert!(volumes.iter().any(|volume| volume["emptyDir"]["sizeLimit"] == "1024"));
    let claim = objects.iter().find(|object| object["kind"] == "PersistentVolumeClaim").expect("a claim");
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "1024");
    assert_eq!(container["ports"][0]["protocol"], "TCP");
    assert_eq!(container["ports"][1]["protocol"], "UDP");
    let named = |name| container["env"].as_array().expect("variables").iter().filter(move |one| one["name"] == name);
    assert_eq!(named("A").map(|one| &one["value"]).collect::<Vec<_>>(), ["3"]);
    assert_eq!(named("B").count(), 1);
    assert_eq!(objects[0]["spec"]["ports"][0]["protocol"], "TCP");
}

#[test]
fn a_head_has_the_dashboard_that_its_parameters_ask_for() {
    let with = |parameters: Value| {
        let mut asked = cluster();
        asked["spec"]["headGroupSpec"]["rayStartParams"] = parameters;
        script(&made(&asked, &Settings::default()).0[0]).to_owned()
    };
    assert!(!with(json!({"dashboard-host": "0.0.0.0"})).contains("dashboard"), "every sample of KubeRay's says this");
    let line =
        with(json!({"include-dashboard": "true", "dashboard-host": "0.0.0.0", "dashboard-agent-listen-port": "52365"}));
    for part in [" --include-dashboard=true", " --dashboard-host=0.0.0.0", " --dashboard-agent-listen-port=52365"] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert!(with(json!({"dashboard-port": "8265"})).contains(" --dashboard-port=8265"));
    assert!(!with(json!({"include-dashboard": "false", "dashboard-port": "8265"})).contains("dashboard"));
}
