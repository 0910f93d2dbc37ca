//! Every row of what pods declare, and what each node of the group will offer.
#![expect(clippy::needless_pass_by_value, reason = "rows are written where they are used")]
#![expect(clippy::float_cmp, reason = "these amounts are whole, and counted without rounding")]

use crate::{Catalogue, Claims, Shape, capacity};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A template whose container has these limits, on a machine of these labels.
fn limits(limits: Value, selector: Value) -> Value {
    let mut limits = limits;
    limits["cpu"] = json!(3);
    json!({"spec": {"nodeSelector": selector, "containers": [{"name": "ray", "resources": {"limits": limits}}]}})
}

fn texts(value: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(value.clone()).expect("texts")
}

/// What a group offers, without its processors.
fn offered(group: &Value, catalogue: &Catalogue) -> (BTreeMap<String, f64>, crate::PodCapacity) {
    let (start, labels) = (texts(&or_empty(&group["start"])), texts(&or_empty(&group["labels"])));
    let resources = serde_json::from_value(or_empty(&group["resources"])).expect("a map");
    let shape = Shape {
        template: &group["template"],
        start: &start,
        resources: &resources,
        labels: &labels,
        hosts: group["hosts"].as_u64().unwrap_or(1) as u32,
    };
    let told = capacity(&shape, catalogue);
    let mut counted = told.host(0);
    counted.remove("CPU");
    counted.retain(|_, amount| *amount > 0.0);
    (counted, told)
}

fn or_empty(value: &Value) -> Value {
    if value.is_null() { json!({}) } else { value.clone() }
}

fn check(name: &str, group: &Value, expected: &[(&str, f64)]) {
    let (counted, told) = offered(group, &Catalogue::default());
    let expected: BTreeMap<String, f64> = expected.iter().map(|(key, amount)| ((*key).to_owned(), *amount)).collect();
    assert_eq!(counted, expected, "{name}: {told:?}");
}

#[test]
fn devices_of_every_vendor_are_counted() {
    let rows: &[(Value, &[(&str, f64)])] = &[
        (json!({"nvidia.com/gpu": 4}), &[("GPU", 4.0)]),
        (json!({"amd.com/gpu": 2}), &[("GPU", 2.0)]),
        (json!({"nvidia.com/mig-1g.10gb": 3}), &[("GPU", 3.0)]),
        (json!({"nvidia.com/mig-1g.10gb.me": "1"}), &[("GPU", 1.0)]),
        (json!({"nvidia.com/gpu.shared": 2}), &[("GPU", 2.0)]),
        (json!({"gpu.intel.com/i915": 1}), &[("GPU", 1.0)]),
        (json!({"gpu.intel.com/xe": 2}), &[("GPU", 2.0)]),
        (json!({"aws.amazon.com/neuroncore": 2}), &[("neuron_cores", 2.0), ("accelerator_type:aws-neuron-core", 1.0)]),
        (
            json!({"aws.amazon.com/neurondevice": 1}),
            &[("neuron_cores", 2.0), ("accelerator_type:aws-neuron-core", 1.0)],
        ),
        (json!({"habana.ai/gaudi": 8}), &[("HPU", 8.0)]),
        (json!({"huawei.com/Ascend910": 8}), &[("NPU", 8.0)]),
        (json!({"huawei.com/Ascend310P": 1}), &[("NPU", 1.0)]),
        (json!({"google.com/tpu": 4}), &[("TPU", 4.0)]),
        (json!({"example.com/gpu": 1}), &[("GPU", 1.0)]),
        (json!({"nvidia.com/gpu": 1, "nvidia.com/mig-2g.20gb": 2}), &[("GPU", 3.0)]),
        (json!({"nvidia.com/gpu": 0, "rdma/hca": 1}), &[]),
    ];
    for (declared, expected) in rows {
        check(&declared.to_string(), &json!({"template": limits(declared.clone(), json!({}))}), expected);
    }
}

#[test]
fn parts_of_gpus_that_kai_gives_are_counted_and_seen() {
    let rows =
        [(json!({"gpu-fraction": "0.5"}), 1.0), (json!({"gpu-memory": "2000", "gpu-fraction-num-devices": "2"}), 2.0)];
    for (annotations, count) in rows {
        let mut template = limits(json!({}), json!({}));
        template["metadata"] = json!({"annotations": annotations});
        check(&annotations.to_string(), &json!({"template": template}), &[("GPU", count)]);
        assert!(offered(&json!({"template": template}), &Catalogue::default()).1.shown.contains("nvidia"));
    }
}

#[test]
fn memory_of_gpus_is_known_by_hand_or_by_the_machines_labels() {
    const GIB: f64 = 1_073_741_824.0;
    let memory = |devices: Value, start: Value| {
        let group = json!({"template": limits(devices, json!({"nvidia.com/gpu.memory": "65536"})), "start": start});
        let (counted, told) = offered(&group, &Catalogue::default());
        (counted.get("GPU:memory").map(|bytes| bytes / GIB), told.gpu_memory)
    };
    let whole = || json!({"nvidia.com/gpu": 2});
    assert_eq!(memory(whole(), json!({})), (Some(63.0), None), "the driver keeps some of 64 GiB");
    assert_eq!(memory(whole(), json!({"gpu-memory": "80Gi"})), (Some(80.0), Some(80 << 30)));
    assert_eq!(memory(json!({}), json!({"gpu-memory": "80Gi"})).0, None, "no GPU");
    for shared in ["nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared"] {
        assert_eq!(memory(json!({shared: 1}), json!({})).0, None, "{shared}: of the whole GPU the label speaks");
    }
    let wrong = json!({"template": limits(whole(), json!({})), "start": {"gpu-memory": "much"}});
    let (_, told) = offered(&wrong, &Catalogue::default());
    assert!(
        told.notes.iter().any(|note| note.starts_with("`gpu-memory` in rayStartParams is ignored")),
        "{:?}",
        told.notes
    );
}

#[test]
fn chips_are_counted_in_cores_of_their_machine() {
    let on = |machine: &str, name: &str| {
        let selector = json!({"node.kubernetes.io/instance-type": machine});
        let (counted, _) = offered(&json!({"template": limits(json!({name: 2}), selector)}), &Catalogue::default());
        counted["neuron_cores"]
    };
    let neuron = "aws.amazon.com/neuron";
    assert_eq!([on("inf1.6xlarge", neuron), on("inf2.8xlarge", neuron), on("trn2.48xlarge", neuron)], [8.0, 4.0, 16.0]);
}

#[test]
fn a_slice_of_tpus_has_one_first_host() {
    let selector = json!({"cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice", "cloud.google.com/gke-tpu-topology": "2x2x2"});
    let group = json!({"template": limits(json!({"google.com/tpu": 4}), selector.clone()), "hosts": 2});
    check("v4 2x2x2 on two hosts", &group, &[("TPU", 4.0), ("TPU-v4-16-head", 1.0), ("accelerator_type:TPU-V4", 1.0)]);
    let (_, told) = offered(&group, &Catalogue::default());
    assert_eq!(told.host(1).get("TPU-v4-16-head"), None);
    assert_eq!(told.labels["ray.io/tpu-topology"], "2x2x2");
    assert!(told.notes.is_empty(), "{:?}", told.notes);

    let wrong = json!({"template": limits(json!({"google.com/tpu": 4}), selector), "hosts": 3});
    let (_, told) = offered(&wrong, &Catalogue::default());
    assert!(told.notes[0].contains("topology 2x2x2 has 8 chips"), "{:?}", told.notes);

    let single =
        json!({"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice", "cloud.google.com/gke-tpu-topology": "2x4"});
    let group = json!({"template": limits(json!({"google.com/tpu": "8"}), single)});
    check("v6e 2x4", &group, &[("TPU", 8.0), ("TPU-v6e-8-head", 1.0), ("accelerator_type:TPU-V6E", 1.0)]);
}

#[test]
fn what_is_written_by_hand_wins() {
    let gpu = limits(json!({"nvidia.com/gpu": 1, "memory": "10Gi"}), json!({}));
    let memory = (10.0 * 1024f64.powi(3) * 0.6).floor();
    check("limits", &json!({"template": gpu}), &[("GPU", 1.0), ("memory", memory)]);
    check("num-gpus", &json!({"template": gpu, "start": {"num-gpus": "2"}}), &[("GPU", 2.0), ("memory", memory)]);
    check(
        "a group's resources name devices as pods do",
        &json!({"template": limits(json!({}), json!({})), "resources": {"nvidia.com/gpu": 2, "CPU": "4", "ring": "1"}}),
        &[("GPU", 2.0), ("ring", 1.0)],
    );
    for text in [r#"{"half": 0.5}"#, r#"'{"half": 0.5}'"#, r#""{\"half\": 0.5}""#] {
        let group = json!({"template": limits(json!({}), json!({})), "start": {"resources": text}});
        check(text, &group, &[("half", 0.5)]);
    }
    let zero = json!({"template": gpu, "start": {"num-gpus": "0", "memory": "5"}});
    let (_, told) = offered(&zero, &Catalogue::default());
    assert_eq!((told.per_host["GPU"], told.per_host["memory"]), (0.0, 5.0));
}

#[test]
fn the_object_store_has_a_part_of_the_pods_memory_beside_what_is_said_by_hand() {
    let pod = limits(json!({"memory": "1000"}), json!({}));
    let shares = |start: Value, resources: Value| {
        let group = json!({"template": pod, "start": start, "resources": resources});
        let (_, told) = offered(&group, &Catalogue::default());
        assert!(told.notes.is_empty() && !told.per_host.contains_key("object_store_memory"), "{told:?}");
        (told.per_host["memory"], told.store)
    };
    assert_eq!(shares(json!({}), json!({})), (600.0, Some(300)));
    assert_eq!(shares(json!({"memory": "500"}), json!({})), (500.0, Some(300)));
    assert_eq!(shares(json!({}), json!({"memory": 500})), (500.0, Some(300)));
    assert_eq!(shares(json!({"object-store-memory": "100"}), json!({})), (800.0, Some(100)));
    assert_eq!(shares(json!({"object-store-memory": "100", "memory": "5"}), json!({})), (5.0, Some(100)));
    let undeclared = json!({"template": limits(json!({}), json!({}))});
    assert_eq!(offered(&undeclared, &Catalogue::default()).1.store, None, "the node looks for its limit by itself");
    let wrong = json!({"template": pod, "start": {"object-store-memory": "half"}});
    let (_, told) = offered(&wrong, &Catalogue::default());
    assert!(told.store == Some(300) && told.notes[0].contains("object-store-memory"), "{told:?}");
}

#[test]
fn requests_stand_in_for_limits_and_the_pod_for_its_container() {
    let requests = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1500m", "memory": "1000"}}}]}});
    let (counted, told) = offered(&json!({"template": requests}), &Catalogue::default());
    assert_eq!((told.per_host["CPU"], counted["memory"]), (2.0, 600.0));
    let whole = json!({"spec": {"resources": {"limits": {"cpu": 6}}, "containers": [{}]}});
    assert_eq!(offered(&json!({"template": whole}), &Catalogue::default()).1.per_host["CPU"], 6.0);
    let (_, told) = offered(&json!({"template": {"spec": {"containers": [{}]}}}), &Catalogue::default());
    assert_eq!(told.per_host["CPU"], 1.0);
    assert!(told.notes[0].contains("no processors are declared"), "{:?}", told.notes);
}

#[test]
fn types_follow_from_the_machine_that_is_asked_for() {
    let typed = |selector: Value| {
        let (counted, _) =
            offered(&json!({"template": limits(json!({"nvidia.com/gpu": 1}), selector)}), &Catalogue::default());
        counted.keys().find_map(|name| name.strip_prefix("accelerator_type:").map(str::to_owned))
    };
    let gke = |name: &str| typed(json!({"cloud.google.com/gke-accelerator": name}));
    let product = |name: &str| typed(json!({"nvidia.com/gpu.product": name}));
    assert_eq!(gke("nvidia-tesla-a100").as_deref(), Some("A100"));
    assert_eq!(gke("nvidia-h100-80gb").as_deref(), Some("H100"));
    assert_eq!(gke("nvidia-l4").as_deref(), Some("L4"));
    assert_eq!(product("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb").as_deref(), Some("A100"));
    assert_eq!(product("Tesla-V100-SXM2-16GB").as_deref(), Some("V100"));
    assert_eq!(typed(json!({})), None);
    let mig = json!({"template": limits(json!({"nvidia.com/mig-1g.10gb": 3}), json!({})), "labels": {"ray.io/accelerator-type": "A100"}});
    let (counted, told) = offered(&mig, &Catalogue::default());
    assert_eq!((counted["GPU"], counted["accelerator_type:A100"]), (3.0, 1.0));
    assert_eq!(told.labels[crate::PROFILE_LABEL], "1g.10gb");
}

/// A template with claims of devices, and the objects that they refer to.
fn claiming(requests: Value) -> (Value, Catalogue) {
    let template = json!({"spec": {
        "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "some"}],
        "containers": [{"resources": {"limits": {"cpu": 2}, "claims": [{"name": "gpus"}]}}],
    }});
    let some = json!({"spec": {"spec": {"devices": {"requests": requests}}}});
    let special = json!({"spec": {"extendedResourceName": "nvidia.com/gpu"}});
    let claims = Claims {
        templates: [("some".to_owned(), some)].into(),
        classes: [("special".to_owned(), special)].into(),
        ..Claims::default()
    };
    (json!({"template": template}), Catalogue { claims, ..Catalogue::default() })
}

#[test]
fn claimed_devices_are_counted() {
    let rows: &[(Value, f64)] = &[
        (json!([{"name": "a", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}]), 2.0),
        (json!([{"name": "a", "exactly": {"deviceClassName": "mig.nvidia.com"}}]), 1.0),
        (json!([{"name": "a", "exactly": {"deviceClassName": "special", "count": 3}}]), 3.0),
        (
            json!([{"name": "a", "firstAvailable": [
                {"name": "x", "deviceClassName": "gpu.nvidia.com", "count": 4},
                {"name": "y", "deviceClassName": "gpu.nvidia.com", "count": 2},
            ]}]),
            2.0,
        ),
        (
            json!([
                {"name": "a", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
                {"name": "watch", "exactly": {"deviceClassName": "gpu.nvidia.com", "adminAccess": true}},
            ]),
            1.0,
        ),
    ];
    for (requests, expected) in rows {
        let (group, catalogue) = claiming(requests.clone());
        let (counted, told) = offered(&group, &catalogue);
        assert_eq!(counted.get("GPU"), Some(expected), "{requests}: {told:?}");
        assert!(told.shown.contains("nvidia") || requests[0]["exactly"]["deviceClassName"] == "special", "{requests}");
    }
    let extended = json!({"template": limits(json!({"example.com/card": 2}), json!({}))});
    let (_, mut catalogue) = claiming(json!([]));
    let card = json!({"spec": {"extendedResourceName": "example.com/card"}});
    catalogue.claims.classes.insert("gpu.nvidia.com".to_owned(), card);
    assert_eq!(offered(&extended, &catalogue).0["GPU"], 2.0);
    let implicit =
        json!({"template": limits(json!({"deviceclass.resource.kubernetes.io/gpu.nvidia.com": 1}), json!({}))});
    assert_eq!(offered(&implicit, &Catalogue::default()).0["GPU"], 1.0);
}

#[test]
fn claims_that_cannot_be_counted_say_so() {
    let rows = [
        (
            json!([{"name": "a", "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "All"}}]),
            "takes all devices",
        ),
        (json!([{"name": "a", "exactly": {"deviceClassName": "strange"}}]), "of class `strange`"),
        (
            json!([{"name": "a", "firstAvailable": [{"deviceClassName": "gpu.nvidia.com"}, {"deviceClassName": "tpu.google.com"}]}]),
            "devices of different kinds",
        ),
    ];
    for (requests, said) in rows {
        let (mut group, catalogue) = claiming(requests);
        let (counted, told) = offered(&group, &catalogue);
        assert!(counted.is_empty() && told.notes[0].contains(said), "{told:?}");
        group["resources"] = json!({"GPU": 8});
        assert_eq!(offered(&group, &catalogue).0["GPU"], 8.0);
    }
    let (group, _) = claiming(json!([]));
    let (_, told) = offered(&group, &Catalogue::default());
    assert!(told.notes[0].contains("refers to `some`, which is not there"), "{:?}", told.notes);
}

#[test]
fn nodes_have_the_zone_and_the_domain_that_their_machines_are_chosen_by() {
    let selector = json!({"topology.kubernetes.io/zone": "a", "nvidia.com/gpu.clique": "9f1f.3", "disk": "fast"});
    let mut group = json!({"template": limits(json!({"nvidia.com/gpu": 4}), selector)});
    let labels = |group: &Value| offered(group, &Catalogue::default()).1.labels;
    let expected = json!({"topology.kubernetes.io/zone": "a", "ray.io/gpu-domain": "9f1f.3"});
    assert_eq!(labels(&group), texts(&expected));
    group["labels"] = json!({"ray.io/gpu-domain": "mine"});
    assert_eq!(labels(&group)["ray.io/gpu-domain"], "mine", "what is written by hand wins");
}
