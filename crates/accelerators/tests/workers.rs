//! What a worker is shown of the devices it was granted.

#![expect(clippy::unwrap_used, reason = "a test stops where its preparation fails")]

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use oxiray_accelerators::{Host, Offer, WorkerEnvironment, detect, environment, offer, unusable_together, visible_ids};

type Variables<'a> = &'a [(&'a str, &'a str)];

fn lookup(variables: Variables<'_>) -> impl Fn(&str) -> Option<String> + '_ {
    move |name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
}

fn offered(machine: &str, node: Variables<'_>, requested: &[(&str, f64)]) -> Offer {
    let detection = detect(&Host::recorded(common::machine(machine)).unwrap());
    let requested: BTreeMap<String, f64> = requested.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
    offer(&detection, &lookup(node), &requested).unwrap()
}

/// `NAME=value` per variable that is set and `-NAME` per one that is removed.
fn shown(offer: &Offer, granted: &[(&str, &[u32])], node: Variables<'_>, own: Variables<'_>) -> String {
    let granted: Vec<(&str, Vec<u32>)> = granted.iter().map(|(resource, slots)| (*resource, slots.to_vec())).collect();
    let worker = WorkerEnvironment { node: &lookup(node), own: &lookup(own), realm: &[] };
    let mut text = String::new();
    for (name, value) in environment(offer, &granted, worker) {
        match value {
            Some(value) => write!(text, "{name}={value} ").unwrap(),
            None => write!(text, "-{name} ").unwrap(),
        }
    }
    text.trim_end().to_owned()
}

#[test]
fn the_variables_of_all_seven_families_on_logical_devices() {
    let cases: &[(Variables<'_>, &str, &str)] = &[
        (&[], "GPU", "CUDA_VISIBLE_DEVICES=1"),
        (&[("OXIRAY_GPU_FAMILY", "amd")], "GPU", "HIP_VISIBLE_DEVICES=1 ROCR_VISIBLE_DEVICES=1"),
        (&[("OXIRAY_GPU_FAMILY", "intel")], "GPU", "ZE_AFFINITY_MASK=1 ONEAPI_DEVICE_SELECTOR=1"),
        (&[], "neuron_cores", "NEURON_RT_VISIBLE_CORES=1"),
        (&[], "TPU", "TPU_VISIBLE_CHIPS=1 TPU_CHIPS_PER_HOST_BOUNDS=1,1,1 TPU_HOST_BOUNDS=1,1,1"),
        (&[], "HPU", "HABANA_VISIBLE_MODULES=1"),
        (&[], "NPU", "ASCEND_RT_VISIBLE_DEVICES=1"),
    ];
    for (node, resource, expected) in cases {
        let offer = offered("plain", node, &[(resource, 2.0)]);
        assert_eq!(shown(&offer, &[(resource, &[1])], node, &[]), *expected);
        let worker = WorkerEnvironment { node: &lookup(node), own: &|_| None, realm: &[] };
        assert_eq!(visible_ids(&offer, resource, &[1], worker), (vec!["1".to_owned()], false));
    }
}

#[test]
fn slots_are_shown_in_ascending_order() {
    let offer = offered("plain", &[], &[("GPU", 9.0)]);
    assert_eq!(shown(&offer, &[("GPU", &[8, 1])], &[], &[]), "CUDA_VISIBLE_DEVICES=1,8");
}

#[test]
fn slots_stand_for_the_entries_of_a_list() {
    let node = &[("CUDA_VISIBLE_DEVICES", "q0, w1,MIG-e2")];
    let offer = offered("plain", node, &[("GPU", 3.0)]);
    assert_eq!(shown(&offer, &[("GPU", &[2, 1])], node, &[]), "CUDA_VISIBLE_DEVICES= w1,MIG-e2");
    let worker = WorkerEnvironment { node: &lookup(node), own: &|_| None, realm: &[] };
    let (ids, preset) = visible_ids(&offer, "GPU", &[2, 0], worker);
    assert_eq!((ids, preset), (vec!["q0".to_owned(), "MIG-e2".to_owned()], true));
}

#[test]
fn an_instance_of_a_gpu_is_shown_by_its_id() {
    let mixed = offered("nvidia-a100-mig", &[], &[]);
    assert_eq!(shown(&mixed, &[("mig-1g.5gb", &[1])], &[], &[]), "CUDA_VISIBLE_DEVICES=MIG-a0e");
    assert_eq!(shown(&mixed, &[("GPU", &[0])], &[], &[]), "CUDA_VISIBLE_DEVICES=GPU-a2");
    let around = WorkerEnvironment { node: &|_| None, own: &|_| None, realm: &[("mig-1g.5gb", vec![0, 1])] };
    let granted = [("mig-1g.5gb", vec![0])];
    let within = environment(&mixed, &granted, around);
    assert_eq!(
        within,
        [("CUDA_VISIBLE_DEVICES".to_owned(), Some("MIG-a0d".to_owned()))],
        "a fence renumbers no instance"
    );
    assert_eq!(visible_ids(&mixed, "mig-1g.5gb", &[0], around), (vec!["MIG-a0d".to_owned()], true));
    let hidden = shown(&mixed, &[], &[], &[("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")]);
    assert!(hidden.starts_with("CUDA_VISIBLE_DEVICES= "), "{hidden}");
    let single = offered("nvidia-h100-mig", &[("OXIRAY_MIG_STRATEGY", "single")], &[]);
    assert_eq!(shown(&single, &[("GPU", &[2])], &[], &[]), "CUDA_VISIBLE_DEVICES=MIG-b11");
}

#[test]
fn devices_are_shown_by_uuid_where_the_node_does_and_they_are_known() {
    let uuid = |number: u32| format!("GPU-5a1f3c0{number}-77d2-4c1e-9b60-a1b2c3d4e50{number}");
    let by_uuid = |machine: &str, node: Variables<'_>, requested: &[(&str, f64)]| {
        let offer = offered(machine, node, requested);
        Offer { shows_uuids: true, ..offer }
    };
    let (granted, listed) = ([("GPU", &[2_u32, 0][..])], format!("CUDA_VISIBLE_DEVICES={},{}", uuid(0), uuid(2)));
    let all = by_uuid("nvidia-h100x8", &[], &[]);
    assert_eq!(shown(&all, &granted, &[], &[]), listed);
    let realm = [("GPU", vec![0, 2, 5])];
    let fenced = WorkerEnvironment { node: &|_| None, own: &|_| None, realm: &realm };
    let within = environment(&all, &[("GPU", vec![2, 0])], fenced);
    assert_eq!(within, [("CUDA_VISIBLE_DEVICES".to_owned(), Some(format!("{},{}", uuid(0), uuid(2))))], "WORKER-5");
    assert_eq!(visible_ids(&all, "GPU", &[2, 0], fenced), (vec!["0".to_owned(), "2".to_owned()], false));
    let node = &[("CUDA_VISIBLE_DEVICES", "3,1")];
    let some = by_uuid("nvidia-h100x8", node, &[]);
    assert_eq!(shown(&some, &[("GPU", &[0])], node, &[]), format!("CUDA_VISIBLE_DEVICES={}", uuid(3)));
    assert_eq!(shown(&all, &[("GPU", &[1])], &[], node), "CUDA_VISIBLE_DEVICES=1", "WORKER-2");
    let parts = by_uuid("nvidia-a100-mig", &[], &[]);
    assert_eq!(shown(&parts, &[("mig-1g.5gb", &[1])], &[], &[]), "CUDA_VISIBLE_DEVICES=MIG-a0e");
    let logical = by_uuid("plain", &[], &[("GPU", 2.0)]);
    assert_eq!(shown(&logical, &[("GPU", &[1])], &[], &[]), "CUDA_VISIBLE_DEVICES=1", "nobody knows its UUID");
    let amd = by_uuid("amd-mi300x8", &[], &[]);
    assert_eq!(shown(&amd, &[("GPU", &[3])], &[], &[]), "HIP_VISIBLE_DEVICES=0 ROCR_VISIBLE_DEVICES=3");
}

#[test]
fn a_process_can_use_one_instance() {
    let mixed = offered("nvidia-a100-mig", &[], &[]);
    let single = offered("nvidia-h100-mig", &[("OXIRAY_MIG_STRATEGY", "single")], &[]);
    let why = |offer: &Offer, granted: &[(&str, &[u32])]| {
        let granted: Vec<(&str, Vec<u32>)> = granted.iter().map(|(name, slots)| (*name, slots.to_vec())).collect();
        unusable_together(offer, &granted)
    };
    let no_use = "are no use to one process: it can use one MIG instance, and no whole GPU beside it";
    assert_eq!(why(&single, &[("GPU", &[0, 1])]), Some(format!("2 of `GPU` {no_use}")));
    assert_eq!(
        why(&mixed, &[("mig-1g.5gb", &[0]), ("mig-2g.10gb", &[0])]),
        Some(format!("`mig-1g.5gb` and `mig-2g.10gb` together {no_use}"))
    );
    assert_eq!(
        why(&mixed, &[("GPU", &[0]), ("mig-2g.10gb", &[0])]),
        Some(format!("`mig-2g.10gb` and `GPU` together {no_use}"))
    );
    for granted in [&[("GPU", &[0_u32][..])][..], &[("mig-1g.5gb", &[1])], &[("GPU", &[]), ("mig-1g.5gb", &[1])]] {
        assert_eq!(why(&mixed, granted), None);
    }
    assert_eq!(why(&offered("nvidia-h100x8", &[], &[]), &[("GPU", &[0, 1])]), None);
}

#[test]
fn several_families_are_shown_together() {
    let offer = offered("mixed", &[], &[]);
    let granted: &[(&str, &[u32])] = &[("neuron_cores", &[0]), ("GPU", &[1])];
    assert_eq!(shown(&offer, granted, &[], &[]), "CUDA_VISIBLE_DEVICES=1 NEURON_RT_VISIBLE_CORES=0");
}

#[test]
fn real_devices_behind_two_filters_stay_visible() {
    let amd = offered("amd-mi300x8", &[], &[]);
    assert_eq!(shown(&amd, &[("GPU", &[3])], &[], &[]), "HIP_VISIBLE_DEVICES=0 ROCR_VISIBLE_DEVICES=3");
    assert_eq!(shown(&amd, &[("GPU", &[3, 5])], &[], &[]), "HIP_VISIBLE_DEVICES=0,1 ROCR_VISIBLE_DEVICES=3,5");
    let intel = offered("intel-max", &[], &[]);
    let expected = "ZE_AFFINITY_MASK=1,3 ONEAPI_DEVICE_SELECTOR=level_zero:0,1";
    assert_eq!(shown(&intel, &[("GPU", &[1, 3])], &[], &[]), expected);
}

// A node started in a worker reads back what the worker was given.
#[test]
fn what_is_written_means_the_same_when_read() {
    for (machine, ids) in [("amd-mi300x8", "3,5"), ("intel-max", "1,3")] {
        let outer = offered(machine, &[], &[]);
        let slots: Vec<u32> = ids.split(',').map(|id| id.parse().unwrap()).collect();
        let text = shown(&outer, &[("GPU", &slots)], &[], &[]);
        let node: Vec<(&str, &str)> = text.split(' ').map(|pair| pair.split_once('=').unwrap()).collect();
        let inner = offered(machine, &node, &[]);
        let found: Vec<String> = (0..2).map(|slot| inner.devices[0].id(slot)).collect();
        assert_eq!((inner.devices[0].count, found.join(",")), (2, ids.to_owned()), "{machine}");
    }
}

#[test]
fn chips_of_a_tpu_host_come_with_their_bounds() {
    let real = offered("tpu-v4", &[], &[]);
    let logical = offered("plain", &[], &[("TPU", 8.0)]);
    let all = "-TPU_VISIBLE_CHIPS -TPU_CHIPS_PER_HOST_BOUNDS -TPU_HOST_BOUNDS";
    let cases: &[(&Offer, &[u32], &str)] = &[
        (&real, &[2], "TPU_VISIBLE_CHIPS=2 TPU_CHIPS_PER_HOST_BOUNDS=1,1,1 TPU_HOST_BOUNDS=1,1,1"),
        (&real, &[0, 1], "TPU_VISIBLE_CHIPS=0,1 TPU_CHIPS_PER_HOST_BOUNDS=1,2,1 TPU_HOST_BOUNDS=1,1,1"),
        (&real, &[0, 1, 2, 3], all),
        (&logical, &[0, 1, 2, 3], "TPU_VISIBLE_CHIPS=0,1,2,3"),
        (&logical, &[0, 1, 2, 3, 4, 5, 6, 7], "TPU_VISIBLE_CHIPS=0,1,2,3,4,5,6,7"),
    ];
    for (offer, slots, expected) in cases {
        assert_eq!(shown(offer, &[("TPU", slots)], &[], &[]), *expected, "{slots:?}");
    }
}

#[test]
fn a_worker_without_devices_keeps_its_variables() {
    let node = &[("CUDA_VISIBLE_DEVICES", "1,3")];
    let offer = offered("plain", node, &[("GPU", 2.0)]);
    assert_eq!(shown(&offer, &[], node, &[]), "");
    assert_eq!(shown(&offer, &[("GPU", &[])], node, &[]), "");
    let worker = WorkerEnvironment { node: &lookup(node), own: &|_| None, realm: &[] };
    assert_eq!(visible_ids(&offer, "GPU", &[], worker), (vec![], false));
}

#[test]
fn override_on_zero_hides_every_family_without_devices() {
    let offer = offered("plain", &[], &[("GPU", 2.0)]);
    let rest = "NEURON_RT_VISIBLE_CORES= -TPU_VISIBLE_CHIPS -TPU_CHIPS_PER_HOST_BOUNDS -TPU_HOST_BOUNDS \
                HABANA_VISIBLE_MODULES= ASCEND_RT_VISIBLE_DEVICES=";
    let flag = "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO";
    assert_eq!(shown(&offer, &[], &[(flag, "1")], &[]), format!("CUDA_VISIBLE_DEVICES= {rest}"));
    let with_device = format!("CUDA_VISIBLE_DEVICES=0 {rest}");
    assert_eq!(shown(&offer, &[("GPU", &[0])], &[], &[(flag, "true")]), with_device);
    assert_eq!(shown(&offer, &[], &[(flag, "0")], &[]), "");
    assert_eq!(shown(&offer, &[], &[(flag, "1")], &[(flag, "0")]), "", "the worker's own word counts");
}

#[test]
fn an_opt_out_leaves_the_variables_and_keeps_the_ids() {
    let families: &[(&str, &str, &str)] = &[
        ("nvidia", "GPU", "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"),
        ("amd", "GPU", "RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES"),
        ("amd", "GPU", "RAY_EXPERIMENTAL_NOSET_ROCR_VISIBLE_DEVICES"),
        ("intel", "GPU", "RAY_EXPERIMENTAL_NOSET_ZE_AFFINITY_MASK"),
        ("intel", "GPU", "RAY_EXPERIMENTAL_NOSET_ONEAPI_DEVICE_SELECTOR"),
        ("", "neuron_cores", "RAY_EXPERIMENTAL_NOSET_NEURON_RT_VISIBLE_CORES"),
        ("", "TPU", "RAY_EXPERIMENTAL_NOSET_TPU_VISIBLE_CHIPS"),
        ("", "HPU", "RAY_EXPERIMENTAL_NOSET_HABANA_VISIBLE_MODULES"),
        ("", "NPU", "RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES"),
    ];
    for (vendor, resource, flag) in families {
        let vendor = &[("OXIRAY_GPU_FAMILY", *vendor)];
        let offer = offered("plain", vendor, &[(resource, 2.0)]);
        let granted: &[(&str, &[u32])] = &[(resource, &[1])];
        assert_eq!(shown(&offer, granted, &[(flag, "1")], &[]), "", "{flag}");
        assert_eq!(shown(&offer, granted, &[], &[(flag, "true")]), "", "{flag} for one task");
        assert_ne!(shown(&offer, granted, &[(flag, "0")], &[]), "", "{flag} that is off");
        let on = &[(*flag, "1")];
        let worker = WorkerEnvironment { node: &lookup(on), own: &|_| None, realm: &[] };
        assert_eq!(visible_ids(&offer, resource, &[1], worker).0, ["1"], "{flag}");
    }
}

#[test]
fn a_workers_own_list_replaces_the_nodes() {
    let offer = offered("plain", &[], &[("GPU", 4.0)]);
    let own: Variables<'_> = &[("CUDA_VISIBLE_DEVICES", "7")];
    let told = |slots: &[u32], own: Variables<'_>| {
        let worker = WorkerEnvironment { node: &|_| None, own: &lookup(own), realm: &[] };
        visible_ids(&offer, "GPU", slots, worker)
    };
    assert_eq!(told(&[0], own), (vec!["7".to_owned()], true));
    assert_eq!(told(&[0, 1], own), (vec!["7".to_owned()], true));
    assert_eq!(told(&[3], own), (vec!["7".to_owned()], true), "no slot is a position in it: the whole list");
    assert_eq!(told(&[], own), (vec![], false));
    assert_eq!(shown(&offer, &[("GPU", &[0, 1])], &[], own), "CUDA_VISIBLE_DEVICES=7");
    assert_eq!(shown(&offer, &[], &[], own), "");

    let two: Variables<'_> = &[("CUDA_VISIBLE_DEVICES", "7,9")];
    assert_eq!(told(&[1], two), (vec!["9".to_owned()], true));
    assert_eq!(shown(&offer, &[("GPU", &[1])], &[], two), "CUDA_VISIBLE_DEVICES=9");

    let tpu = offered("plain", &[], &[("TPU", 4.0)]);
    let chips = shown(&tpu, &[("TPU", &[1])], &[], &[("TPU_VISIBLE_CHIPS", "2,3")]);
    assert_eq!(chips, "TPU_VISIBLE_CHIPS=3 TPU_CHIPS_PER_HOST_BOUNDS=1,1,1 TPU_HOST_BOUNDS=1,1,1");
}

#[test]
fn a_workers_own_list_is_not_cut_by_the_vendors_other_variable() {
    let node: Variables<'_> = &[("ROCR_VISIBLE_DEVICES", "4,5,6,7")];
    let offer = offered("amd-mi300x8", node, &[]);
    let granted: &[(&str, &[u32])] = &[("GPU", &[0, 1])];
    assert_eq!(shown(&offer, granted, node, &[("HIP_VISIBLE_DEVICES", "2,3")]), "-ROCR_VISIBLE_DEVICES");
    assert_eq!(
        shown(&offer, &[("GPU", &[1])], node, &[("HIP_VISIBLE_DEVICES", "2,3")]),
        "HIP_VISIBLE_DEVICES=0 ROCR_VISIBLE_DEVICES=3"
    );
    let both: Variables<'_> = &[("HIP_VISIBLE_DEVICES", "0"), ("ROCR_VISIBLE_DEVICES", "2")];
    assert_eq!(shown(&offer, granted, node, both), "", "both are the user's");
}
