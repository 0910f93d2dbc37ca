//! What a node offers, by machine, environment and numbers asked for.

#![expect(clippy::unwrap_used, reason = "a test stops where its preparation fails")]

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use oxiray_accelerators::{Host, Offer, OfferError, detect, offer};

type Variables<'a> = &'a [(&'a str, &'a str)];
type Requested<'a> = &'a [(&'a str, f64)];

fn offered(machine: &str, variables: Variables<'_>, requested: Requested<'_>) -> Result<Offer, OfferError> {
    let detection = detect(&Host::recorded(common::machine(machine)).unwrap());
    let variable = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    let requested: BTreeMap<String, f64> = requested.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
    offer(&detection, &variable, &requested)
}

/// `GPU nvidia 1,3 preset` per resource made of devices, then `name=quantity` per other resource.
fn summary(offer: &Offer) -> String {
    let mut text = String::new();
    for one in &offer.devices {
        let ids: Vec<String> = (0..one.count as u32).map(|slot| one.id(slot)).collect();
        let preset = if one.preset.is_some() { " preset" } else { "" };
        let logical = if one.is_logical() { " logical" } else { "" };
        write!(text, "{} {} {}{preset}{logical}; ", one.resource(), one.family.key, ids.join("|")).unwrap();
    }
    for (name, quantity) in &offer.scalars {
        write!(text, "{name}={quantity}; ").unwrap();
    }
    text.trim_end_matches("; ").to_owned()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn offers() {
    let cases: &[(&str, Variables<'_>, Requested<'_>, &str)] = &[
        ("plain", &[], &[], ""),
        ("plain", &[], &[("GPU", 2.0)], "GPU nvidia 0|1 logical"),
        ("plain", &[], &[("GPU", 2.0), ("CPU", 4.0), ("mine", 1.5)], "GPU nvidia 0|1 logical; CPU=4; mine=1.5"),
        ("plain", &[], &[("NPU", 2.0)], "NPU ascend 0|1 logical"),
        ("plain", &[], &[("TPU", 4.0)], "TPU tpu 0|1|2|3 logical"),
        (
            "plain",
            &[("TPU_ACCELERATOR_TYPE", "v4-16"), ("TPU_NAME", "mine"), ("TPU_WORKER_ID", "0")],
            &[("TPU", 4.0)],
            "TPU tpu 0|1|2|3 logical; TPU-v4-16-head=1; accelerator_type:TPU-V4=1; mine=1",
        ),
        ("plain", &[("TPU_ACCELERATOR_TYPE", "v4-16")], &[], ""),
        ("plain", &[], &[("HPU", 1.0)], "HPU gaudi 0 logical"),
        (
            "plain",
            &[],
            &[("neuron_cores", 2.0), ("GPU", 1.0)],
            "GPU nvidia 0 logical; neuron_cores neuron 0|1 logical; accelerator_type:aws-neuron-core=1",
        ),
        // A list in the environment caps, maps, and offers nothing by itself.
        ("plain", &[("CUDA_VISIBLE_DEVICES", "1,3")], &[], ""),
        ("plain", &[("CUDA_VISIBLE_DEVICES", "1,3")], &[("GPU", 2.0)], "GPU nvidia 1|3 preset logical"),
        ("plain", &[("CUDA_VISIBLE_DEVICES", "1, 3")], &[("GPU", 2.0)], "GPU nvidia 1| 3 preset logical"),
        ("plain", &[("CUDA_VISIBLE_DEVICES", "1,3,5")], &[("GPU", 2.0)], "GPU nvidia 1|3 preset logical"),
        ("plain", &[("CUDA_VISIBLE_DEVICES", "uuid1,uuid2")], &[("GPU", 1.0)], "GPU nvidia uuid1 preset logical"),
        ("plain", &[("CUDA_VISIBLE_DEVICES", "")], &[("GPU", 0.0)], ""),
        ("nvidia-h100x8", &[], &[], "GPU nvidia 0|1|2|3|4|5|6|7; accelerator_type:H100=1"),
        ("nvidia-h100x8", &[("CUDA_VISIBLE_DEVICES", "1,3")], &[], "GPU nvidia 1|3 preset; accelerator_type:H100=1"),
        ("nvidia-h100x8", &[("CUDA_VISIBLE_DEVICES", "")], &[], ""),
        ("nvidia-h100x8", &[("CUDA_VISIBLE_DEVICES", "NoDevFiles")], &[], ""),
        ("nvidia-h100x8", &[("CUDA_VISIBLE_DEVICES", "-1")], &[], ""),
        ("nvidia-h100x8", &[], &[("GPU", 0.0)], ""),
        ("nvidia-h100x8", &[], &[("GPU", 2.0)], "GPU nvidia 0|1; accelerator_type:H100=1"),
        (
            "nvidia-container",
            &[("CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b,MIG-c")],
            &[],
            "GPU nvidia MIG-a|MIG-b|MIG-c preset logical; accelerator_type:H100=1",
        ),
        // Instances of partitioned GPUs: each one of its profile's resource, and whole GPUs beside them by their ids.
        (
            "nvidia-a100-mig",
            &[],
            &[],
            "GPU nvidia GPU-a2 preset; mig-1g.5gb nvidia MIG-a0d|MIG-a0e preset; mig-2g.10gb nvidia MIG-a05 preset; \
             mig-3g.20gb nvidia MIG-a01 preset; accelerator_type:A100=1",
        ),
        (
            "nvidia-a100-mig",
            &[("OXIRAY_MIG_STRATEGY", "none")],
            &[],
            "GPU nvidia GPU-a2 preset; accelerator_type:A100=1",
        ),
        ("nvidia-a100-mig", &[], &[("GPU", 0.0)], "accelerator_type:A100=1"),
        (
            "nvidia-a100-mig",
            &[],
            &[("mig-1g.5gb", 1.0), ("mig-2g.10gb", 0.0)],
            "GPU nvidia GPU-a2 preset; mig-1g.5gb nvidia MIG-a0d preset; mig-3g.20gb nvidia MIG-a01 preset; \
             accelerator_type:A100=1",
        ),
        (
            "nvidia-a100-mig",
            &[("CUDA_VISIBLE_DEVICES", "MIG-a05,MIG-a01")],
            &[],
            "GPU nvidia MIG-a05|MIG-a01 preset; accelerator_type:A100=1",
        ),
        // In a pod whose slices differ they are resources of their own, too.
        (
            "nvidia-a100-mig",
            &[("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("OXIRAY_MIG_STRATEGY", " ")],
            &[("GPU", 1.0)],
            "GPU nvidia GPU-a2 preset; mig-1g.5gb nvidia MIG-a0d|MIG-a0e preset; mig-2g.10gb nvidia MIG-a05 preset; \
             mig-3g.20gb nvidia MIG-a01 preset; accelerator_type:A100=1",
        ),
        (
            "nvidia-h100-mig",
            &[],
            &[],
            "mig-3g.40gb nvidia MIG-b01|MIG-b02|MIG-b11|MIG-b12 preset; accelerator_type:H100=1",
        ),
        (
            "nvidia-h100-mig",
            &[("OXIRAY_MIG_STRATEGY", "single")],
            &[],
            "GPU nvidia MIG-b01|MIG-b02|MIG-b11|MIG-b12 preset; accelerator_type:H100-MIG-3g.40gb=1",
        ),
        (
            "nvidia-h100-mig",
            &[("KUBERNETES_SERVICE_HOST", "10.0.0.1")],
            &[("GPU", 3.0)],
            "GPU nvidia MIG-b01|MIG-b02|MIG-b11 preset; accelerator_type:H100-MIG-3g.40gb=1",
        ),
        ("nvidia-container", &[], &[("GPU", 3.0)], "GPU nvidia 0|1|2 logical; accelerator_type:H100=1"),
        // Either variable of a vendor with two is read; on a machine without GPUs it chooses the vendor.
        ("plain", &[("ROCR_VISIBLE_DEVICES", "1,3")], &[("GPU", 2.0)], "GPU amd 1|3 preset logical"),
        ("plain", &[("HIP_VISIBLE_DEVICES", "1,3")], &[("GPU", 2.0)], "GPU amd 1|3 preset logical"),
        ("plain", &[("ONEAPI_DEVICE_SELECTOR", "1,3")], &[("GPU", 2.0)], "GPU intel 1|3 preset logical"),
        ("plain", &[("ONEAPI_DEVICE_SELECTOR", "level_zero:1,3")], &[("GPU", 1.0)], "GPU intel 1 preset logical"),
        ("plain", &[("ONEAPI_DEVICE_SELECTOR", "level_zero:gpu")], &[("GPU", 1.0)], "GPU nvidia 0 logical"),
        ("plain", &[("ZE_AFFINITY_MASK", "0.1,1.0")], &[("GPU", 2.0)], "GPU intel 0.1|1.0 preset logical"),
        ("plain", &[("OXIRAY_GPU_FAMILY", "amd")], &[("GPU", 2.0)], "GPU amd 0|1 logical"),
        ("plain", &[("OXIRAY_GPU_FAMILY", "Intel")], &[("GPU", 1.0)], "GPU intel 0 logical"),
        (
            "plain",
            &[("NEURON_RT_VISIBLE_CORES", "4-7")],
            &[("neuron_cores", 3.0)],
            "neuron_cores neuron 4|5|6 preset logical; accelerator_type:aws-neuron-core=1",
        ),
        ("plain", &[("TPU_VISIBLE_CHIPS", "1,3")], &[("TPU", 2.0)], "TPU tpu 1|3 preset logical"),
        ("plain", &[("HABANA_VISIBLE_MODULES", "1,3")], &[("HPU", 2.0)], "HPU gaudi 1|3 preset logical"),
        ("plain", &[("ASCEND_RT_VISIBLE_DEVICES", "1,3")], &[("NPU", 2.0)], "NPU ascend 1|3 preset logical"),
        (
            "amd-mi300x8",
            &[("HIP_VISIBLE_DEVICES", "2,3")],
            &[],
            "GPU amd 2|3 preset; accelerator_type:AMD-Instinct-MI300X-OAM=1",
        ),
        // The machine decides over a variable of a vendor it does not have.
        (
            "amd-mi300x8",
            &[("CUDA_VISIBLE_DEVICES", "0")],
            &[("GPU", 2.0)],
            "GPU amd 0|1; accelerator_type:AMD-Instinct-MI300X-OAM=1",
        ),
        // Several families, one resource for all GPUs.
        (
            "mixed",
            &[],
            &[],
            "GPU nvidia 0|1; neuron_cores neuron 0|1; accelerator_type:H100=1; accelerator_type:aws-neuron-core=1",
        ),
        ("mixed", &[], &[("neuron_cores", 0.0)], "GPU nvidia 0|1; accelerator_type:H100=1"),
        (
            "mixed",
            &[],
            &[("neuron_cores", 4.0), ("TPU", 4.0)],
            "GPU nvidia 0|1; neuron_cores neuron 0|1|2|3 logical; TPU tpu 0|1|2|3 logical; accelerator_type:H100=1; accelerator_type:aws-neuron-core=1",
        ),
        ("nvidia-plus-amd", &[], &[], "GPU nvidia 0; accelerator_type:L4=1"),
        ("nvidia-plus-amd", &[("OXIRAY_GPU_FAMILY", "amd")], &[], "GPU amd 0|1; accelerator_type:AMD-Instinct-MI210=1"),
        ("nvidia-plus-amd-igpu", &[], &[], "GPU nvidia 0|1; accelerator_type:GeForce-RTX-4090=1"),
        ("tpu-v4", &[], &[], "TPU tpu 0|1|2|3; TPU-v4-16-head=1; accelerator_type:TPU-V4=1; my-slice=1"),
        // The override has the last word, over detection and over the numbers asked for.
        (
            "nvidia-h100x8",
            &[("RAY_OVERRIDE_RESOURCES", r#"{"GPU": 1, "CPU": 3}"#)],
            &[("GPU", 4.0), ("CPU", 8.0)],
            "GPU nvidia 0; CPU=3; accelerator_type:H100=1",
        ),
        ("plain", &[("RAY_OVERRIDE_RESOURCES", "{}")], &[("GPU", 1.0)], "GPU nvidia 0 logical"),
    ];
    for (machine, variables, requested, expected) in cases {
        let found = offered(machine, variables, requested).unwrap();
        assert_eq!(summary(&found), *expected, "{machine} {variables:?} {requested:?}");
    }
}

#[test]
fn refusals() {
    let cases: &[(Variables<'_>, Requested<'_>, &str)] = &[
        (
            &[("CUDA_VISIBLE_DEVICES", "1,3")],
            &[("GPU", 3.0)],
            "CUDA_VISIBLE_DEVICES lists 2 devices (1, 3), but 3 were asked for as `GPU`: ask for 2 at most, or list more in \
             CUDA_VISIBLE_DEVICES, or unset it",
        ),
        (
            &[("CUDA_VISIBLE_DEVICES", "")],
            &[("GPU", 1.0)],
            "CUDA_VISIBLE_DEVICES lists no device (the list is empty), but 1 was asked for as `GPU`: ask for 0 at most, or \
             list more in CUDA_VISIBLE_DEVICES, or unset it",
        ),
        (
            &[("CUDA_VISIBLE_DEVICES", "NoDevFiles")],
            &[("GPU", 1.0)],
            "CUDA_VISIBLE_DEVICES lists no device (the list is empty), but 1 was asked for as `GPU`: ask for 0 at most, or \
             list more in CUDA_VISIBLE_DEVICES, or unset it",
        ),
        (
            &[("ASCEND_RT_VISIBLE_DEVICES", "4")],
            &[("NPU", 2.0)],
            "ASCEND_RT_VISIBLE_DEVICES lists 1 device (4), but 2 were asked for as `NPU`: ask for 1 at most, or list more in \
             ASCEND_RT_VISIBLE_DEVICES, or unset it",
        ),
        (
            &[("CUDA_VISIBLE_DEVICES", "1"), ("RAY_OVERRIDE_RESOURCES", r#"{"GPU": 2}"#)],
            &[],
            "CUDA_VISIBLE_DEVICES lists 1 device (1), but 2 were asked for as `GPU`: ask for 1 at most, or list more in \
             CUDA_VISIBLE_DEVICES, or unset it",
        ),
        (&[], &[("GPU", 1.5)], "a node cannot have 1.5 of `GPU`, for devices are whole: give 1 or 2"),
        (&[], &[("GPU", -1.0)], "a node cannot have -1 of `GPU`: give zero or more"),
        (&[], &[("mine", f64::NAN)], "a node cannot have NaN of `mine`: give zero or more"),
        (&[], &[("mine", 1e15)], "a node cannot have 1000000000000000 of `mine`: give 100000000000000 at most"),
        (&[], &[("TPU", 1e9)], "a node cannot have 1000000000 of `TPU`: give 65536 at most"),
        (
            &[("OXIRAY_GPU_FAMILY", "apple")],
            &[],
            "OXIRAY_GPU_FAMILY is `apple`, but it must be one of nvidia, amd, and intel",
        ),
    ];
    for (variables, requested, expected) in cases {
        let error = offered("plain", variables, requested).unwrap_err();
        assert_eq!(error.to_string(), *expected, "{variables:?} {requested:?}");
    }
    let strategy = |machine, value| offered(machine, &[("OXIRAY_MIG_STRATEGY", value)], &[]).unwrap_err().to_string();
    assert_eq!(
        strategy("plain", "both"),
        "OXIRAY_MIG_STRATEGY (or --mig) is `both`, but it must be `none`, `single` or `mixed`: partitioned GPUs are not \
         offered, each of their instances is one GPU, or each is one of its profile's resource"
    );
    assert_eq!(
        strategy("nvidia-a100-mig", "single"),
        "--mig=single needs GPUs that are all partitioned in one way, but GPU 2 of this machine is whole: use --mig=mixed"
    );
    for text in ["nonsense", "[1]", r#"{"GPU": "two"}"#] {
        let error = offered("plain", &[("RAY_OVERRIDE_RESOURCES", text)], &[]).unwrap_err().to_string();
        assert!(error.starts_with("RAY_OVERRIDE_RESOURCES must be a JSON object of numbers"), "{error}");
    }
}

#[test]
fn labels() {
    let label = |machine| offered(machine, &[], &[]).unwrap().labels.get("ray.io/accelerator-type").cloned();
    assert_eq!(label("plain"), None);
    assert_eq!(label("nvidia-h100x8").as_deref(), Some("H100"));
    assert_eq!(label("mixed").as_deref(), Some("H100"), "the first family's");
    assert_eq!(offered("tpu-v5e", &[], &[]).unwrap().labels["ray.io/tpu-worker-id"], "1");
    let of_instances = |machine, strategy| {
        let labels = offered(machine, &[("OXIRAY_MIG_STRATEGY", strategy)], &[]).unwrap().labels;
        ["ray.io/accelerator-type", "oxiray.io/mig-profile"].map(|key| labels.get(key).cloned().unwrap_or_default())
    };
    assert_eq!(of_instances("nvidia-a100-mig", "mixed"), ["A100", "1g.5gb_2g.10gb_3g.20gb"]);
    assert_eq!(of_instances("nvidia-a100-mig", "none"), ["A100", ""]);
    assert_eq!(of_instances("nvidia-h100-mig", "single"), ["H100-MIG-3g.40gb", "3g.40gb"]);
    let declared = offered("plain", &[("TPU_ACCELERATOR_TYPE", "v4-16")], &[("TPU", 4.0)]).unwrap().labels;
    assert_eq!((&*declared["ray.io/accelerator-type"], &*declared["ray.io/tpu-pod-type"]), ("TPU-V4", "v4-16"));
}

#[test]
fn totals_hold_devices_and_all_else() {
    let totals = offered("mixed", &[], &[("CPU", 4.0)]).unwrap().totals();
    let expected = [
        ("CPU", 4.0),
        ("GPU", 2.0),
        ("accelerator_type:H100", 1.0),
        ("accelerator_type:aws-neuron-core", 1.0),
        ("neuron_cores", 2.0),
    ];
    assert_eq!(totals, expected.map(|(name, quantity)| (name.to_owned(), quantity)).into());
}

#[test]
fn a_list_that_cannot_be_meant_is_warned_of() {
    let warnings = |machine, variables| offered(machine, variables, &[]).unwrap().warnings;
    let beyond = warnings("nvidia-container", &[("CUDA_VISIBLE_DEVICES", "0,7")]);
    assert_eq!(beyond, ["CUDA_VISIBLE_DEVICES lists device 7, but this machine has 1 of GPU, numbered from 0"]);

    let twice = warnings("amd-mi300x8", &[("ROCR_VISIBLE_DEVICES", "4,5"), ("HIP_VISIBLE_DEVICES", "1")]);
    assert_eq!(twice.len(), 1);
    assert!(twice[0].contains("positions in ROCR_VISIBLE_DEVICES") && twice[0].contains("gives (5)"), "{twice:?}");

    let cut = |strategy| offered("nvidia-a100-mig", &[("OXIRAY_MIG_STRATEGY", strategy)], &[]).unwrap().warnings;
    assert!(cut("")[0].starts_with("GPUs 0, 1 partitioned (MIG): each instance is offered as one of"), "{:?}", cut(""));
    assert!(cut("none")[0].starts_with("GPUs 0, 1 partitioned (MIG): not offered"), "{:?}", cut("none"));
    assert!(cut("mixed")[0].starts_with("GPU 1 is partitioned and has no instance"), "{:?}", cut("mixed"));

    let same = warnings("amd-mi300x8", &[("ROCR_VISIBLE_DEVICES", "4,5"), ("HIP_VISIBLE_DEVICES", "4,5")]);
    assert_eq!(same, Vec::<String>::new());
}

#[test]
fn a_mi308x_is_found_under_both_of_its_names() {
    let folder = tempfile::tempdir().unwrap();
    let node = folder.path().join("sys/class/kfd/kfd/topology/nodes/1");
    std::fs::create_dir_all(&node).unwrap();
    std::fs::create_dir_all(folder.path().join("dev/kfd")).unwrap();
    let properties = format!("simd_count 320\nvendor_id 4098\ndevice_id {}\nlocation_id 3072\n", 0x74a2);
    std::fs::write(node.join("properties"), properties).unwrap();
    let detection = detect(&Host::recorded(folder.path()).unwrap());
    let found = offer(&detection, &|_| None, &BTreeMap::new()).unwrap();
    assert_eq!(
        summary(&found),
        "GPU amd 0; accelerator_type:AMD-Instinct-MI308X=1; accelerator_type:AMD-Instinct-MI308X-OAM=1"
    );
}
