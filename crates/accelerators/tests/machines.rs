//! Every recorded machine, with what must be detected on it.

#![expect(clippy::unwrap_used, reason = "a test stops where its preparation fails")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use oxiray_accelerators::{
    Detection, DeviceNode, Host, HostFacts as _, LateNodeMade, NodeNumber, detect, late_nodes, offer, report, to_json,
};

/// A line per fact: `name` of the machine, `=` what is there, `+` what comes with it, `-` what is ruled out, `!` a
/// warning. An expected line may end in `…`.
const EXPECTED: &str = "\
plain
- Intel device 0000:00:02.0: graphics built into the processor

nvidia-h100x8
= GPU 8 H100 (NVML, driver 550.54.15)

nvidia-minor-order
= GPU 4 A100 (NVML, driver 550.54.15)

nvidia-a100-mig
= GPU 3 A100 (NVML, driver 550.54.15)

nvidia-h100-mig
= GPU 2 H100 (NVML, driver 550.54.15)

nvidia-gb200
= GPU 4 GB200 (NVML, driver 580.95.05)
+ ray.io/gpu-domain=9a5c1f00-2b3d-4e5f-8a9b-0c1d2e3f4a5b.32766

nvidia-no-nvml
= GPU 2 H100 (/proc/driver/nvidia/gpus)
! NVML does not answer: its library refuses to work (RM detects a driver/library version mismatch). The 2 NVIDIA GPUs \
offered are those of /proc/driver/nvidia/gpus

nvidia-no-driver
- 2 NVIDIA devices: no `/dev/nvidia0` or the like: …
! NVML does not answer: its library cannot be loaded (the recorded machine has no NVML library). The machine has 2 NVIDIA \
devices that no process can open, so none is offered; …

nvidia-container
= GPU 1 H100 (NVML, driver 550.54.15)
- NVIDIA device 0000:19:00.0: NVML does not list it: …
- NVIDIA device 0000:3b:00.0: NVML does not list it: …
- NVIDIA device 0000:5d:00.0: NVML does not list it: …
- NVIDIA device 0000:9b:00.0: NVML does not list it: …
- NVIDIA device 0000:bb:00.0: NVML does not list it: …
- NVIDIA device 0000:cb:00.0: NVML does not list it: …
- NVIDIA device 0000:db:00.0: NVML does not list it: …

blackwell-with-accel
= GPU 2 RTX-PRO-6000 (NVML, driver 575.57.08)
- accelerator node accel0: no TPU: its PCI vendor is 1022

amd-mi300x8
= GPU 8 AMD-Instinct-MI300X-OAM (the kernel's compute topology (KFD))

amd-no-kfd
- 4 AMD devices: no `/dev/kfd`: …
! the machine has 4 AMD GPUs that no process can open, so none is offered: …

nvidia-plus-amd-igpu
= GPU 2 GeForce-RTX-4090 (NVML, driver 560.35.03)
- AMD device 0000:0e:00.0: graphics built into a processor, with little memory of its own

nvidia-plus-amd
= GPU 1 L4 (NVML, driver 550.54.15)
= GPU 2 AMD-Instinct-MI210 (the kernel's compute topology (KFD))
! this machine has GPUs of more than one vendor and `GPU` stands for its NVIDIA GPUs; to offer its 2 AMD GPUs (`amd`) \
instead, set OXIRAY_GPU_FAMILY

intel-max
= GPU 4 Intel-GPU-Max-1550 (PCI ids and the driver bound to them)

neuron-trn1
= neuron_cores 32 aws-neuron-core (`neuron-ls`)

neuron-no-tools
= neuron_cores 2 aws-neuron-core (/sys/devices/virtual/neuron_device)
! `/opt/aws/neuron/bin/neuron-ls --json-output` failed (exit status: 1); the Neuron cores offered are those of …

tpu-v4
= TPU 4 TPU-V4 (`/dev/accel*`, PCI vendor 1ae0)
+ 1 TPU-v4-16-head
+ 1 my-slice
+ ray.io/tpu-pod-type=v4-16
+ ray.io/tpu-slice-name=my-slice
+ ray.io/tpu-topology=2x2x2
+ ray.io/tpu-worker-id=0

tpu-v5e
= TPU 4 TPU-V5LITEPOD (`/dev/vfio`, PCI vendor 1ae0)
+ 1 lite-slice
+ ray.io/tpu-pod-type=v5litepod-16
+ ray.io/tpu-slice-name=lite-slice
+ ray.io/tpu-topology=4x4
+ ray.io/tpu-worker-id=1

gaudi2
= HPU 8 Intel-GAUDI2 (PCI ids, device nodes and `hl-smi`)

ascend-910b
= NPU 8 Ascend910B4 (`/dev/davinci*` and `npu-smi`)

mixed
= GPU 2 H100 (NVML, driver 550.54.15)
= neuron_cores 2 aws-neuron-core (`neuron-ls`)
";

fn detected(name: &str) -> Detection {
    detect(&Host::recorded(common::machine(name)).unwrap())
}

fn summary(detection: &Detection) -> String {
    let mut text = String::new();
    for one in &detection.families {
        let type_name = one.type_name.as_deref().unwrap_or("?");
        writeln!(text, "= {} {} {type_name} ({})", one.family.resource.name, one.count, one.how).unwrap();
        for (name, quantity) in &one.extra_resources {
            writeln!(text, "+ {quantity} {name}").unwrap();
        }
        for (key, value) in &one.labels {
            writeln!(text, "+ {key}={value}").unwrap();
        }
    }
    for one in &detection.ruled_out {
        writeln!(text, "- {}: {}", one.what, one.why).unwrap();
    }
    for warning in &detection.warnings {
        writeln!(text, "! {warning}").unwrap();
    }
    text
}

fn matches(expected: &str, found: &str) -> bool {
    expected.strip_suffix('…').map_or(expected == found, |start| found.starts_with(start) && found.len() > start.len())
}

#[test]
fn every_recorded_machine_is_detected_as_expected() {
    let mut tested = BTreeSet::new();
    for section in EXPECTED.trim().split("\n\n") {
        let mut lines = section.lines();
        let name = lines.next().unwrap();
        tested.insert(name.to_owned());
        let found = summary(&detected(name));
        let expected: Vec<&str> = lines.collect();
        let same = expected.len() == found.lines().count()
            && expected.iter().zip(found.lines()).all(|(expected, found)| matches(expected, found));
        assert!(same, "{name}\nexpected:\n{}\nfound:\n{found}", expected.join("\n"));
    }
    let recorded: BTreeSet<String> = std::fs::read_dir(common::machines())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    assert_eq!(tested, recorded, "every machine has its expectation, and every expectation its machine");
}

#[test]
fn detection_is_the_same_every_time() {
    for name in ["mixed", "nvidia-plus-amd", "intel-max"] {
        assert_eq!(detected(name), detected(name), "{name}");
    }
    assert_eq!(detect(&Host::real()), detect(&Host::real()), "this machine, whatever it has");
}

#[test]
fn facts_of_single_devices() {
    let h100 = &detected("nvidia-h100x8").families[0].devices;
    assert_eq!(h100[5].index, 5);
    assert_eq!(h100[5].pci_address.as_deref(), Some("0000:bb:00.0"));
    assert_eq!(h100[5].memory_bytes, Some(85_520_809_984));
    assert_eq!(h100[5].numa_node, Some(1));
    assert!(h100[5].uuid.as_deref().unwrap().starts_with("GPU-5a1f3c05-"));

    let no_nvml = &detected("nvidia-no-nvml").families[0].devices;
    assert_eq!(no_nvml[1].name.as_deref(), Some("NVIDIA H100 80GB HBM3"));
    assert!(no_nvml[1].uuid.as_deref().unwrap().starts_with("GPU-5a1f3c01-"));

    let mi300x = &detected("amd-mi300x8").families[0].devices;
    assert_eq!(mi300x[0].pci_address.as_deref(), Some("0000:0c:00.0"));
    assert_eq!(mi300x[0].memory_bytes, Some(206_141_652_992));
    assert_eq!(mi300x[0].uuid.as_deref(), Some("GPU-6c9a2f5e1d3b4a00"));
    assert_eq!(mi300x[7].numa_node, Some(1));

    let max = &detected("intel-max").families[0].devices;
    assert_eq!(max[3].name.as_deref(), Some("Intel-GPU-Max-1550 tile 1"));
    assert_eq!(max[3].pci_address.as_deref(), Some("0000:3a:00.0"));

    let trn1 = &detected("neuron-trn1").families[0].devices;
    assert_eq!((trn1.len(), trn1[15].numa_node), (16, Some(1)));
    assert_eq!(trn1[1].pci_address.as_deref(), Some("0000:11:1e.0"));

    let gaudi = &detected("gaudi2").families[0].devices;
    assert_eq!(gaudi[2].memory_bytes, Some(96 << 30));
    assert_eq!(gaudi[2].name.as_deref(), Some("HL-225"));

    let ascend = &detected("ascend-910b").families[0].devices;
    assert_eq!(ascend[1].pci_address.as_deref(), Some("0000:c2:00.0"));
    assert_eq!(ascend[1].memory_bytes, Some(32 << 30));
}

/// The device nodes of each machine: of its devices one after the other, and behind `|` those that all share.
const NODES: &str = "\
nvidia-h100x8: /dev/nvidia0 195:0; /dev/nvidia1 195:1; /dev/nvidia2 195:2; /dev/nvidia3 195:3; /dev/nvidia4 195:4; \
/dev/nvidia5 195:5; /dev/nvidia6 195:6; /dev/nvidia7 195:7 \
| /dev/nvidiactl 195:255, /dev/nvidia-modeset 195:254, /dev/nvidia-uvm 511:0, /dev/nvidia-uvm-tools 511:1
nvidia-minor-order: /dev/nvidia2 195:2, /dev/dri/renderD130 226:130; /dev/nvidia3 195:3, /dev/dri/renderD131 226:131; \
/dev/nvidia0 195:0, /dev/dri/renderD128 226:128; /dev/nvidia1 195:1, /dev/dri/renderD129 226:129 \
| /dev/nvidiactl 195:255, /dev/nvidia-uvm 510:0
nvidia-container: /dev/nvidia2 | /dev/nvidiactl, /dev/nvidia-modeset, /dev/nvidia-uvm, /dev/nvidia-uvm-tools
nvidia-no-nvml: /dev/nvidia0; /dev/nvidia1 | /dev/nvidiactl, /dev/nvidia-modeset, /dev/nvidia-uvm, /dev/nvidia-uvm-tools
intel-max: /dev/dri/renderD128; /dev/dri/renderD128; /dev/dri/renderD129; /dev/dri/renderD129 |
neuron-no-tools: /dev/neuron0 |
tpu-v4: /dev/accel0; /dev/accel1; /dev/accel2; /dev/accel3 |
tpu-v5e: /dev/vfio/0; /dev/vfio/1; /dev/vfio/2; /dev/vfio/3 | /dev/vfio/vfio
";

#[test]
fn each_device_has_the_nodes_that_are_its_own() {
    let nodes = |nodes: &[DeviceNode]| nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    for line in NODES.lines() {
        let (name, expected) = line.split_once(": ").unwrap();
        let family = &detected(name).families[0];
        let own: Vec<String> = family.devices.iter().map(|device| nodes(&device.nodes)).collect();
        let found = format!("{} | {}", own.join("; "), nodes(&family.shared_nodes));
        assert_eq!(found.trim_end(), expected, "{name}");
    }
    let paths = |name: &str, device: usize| -> Vec<String> {
        detected(name).families[0].devices[device].nodes.iter().map(ToString::to_string).collect()
    };
    let instance = |name: &str, gpu: usize, place: usize| {
        let found = detected(name).families[0].devices[gpu].instances.clone().unwrap()[place].clone();
        format!("{} {}: {}", found.uuid.unwrap(), found.profile, nodes(&found.nodes))
    };
    let caps = |one, other| {
        format!("/dev/nvidia-caps/nvidia-cap{one} 511:{one}, /dev/nvidia-caps/nvidia-cap{other} 511:{other}")
    };
    assert_eq!(instance("nvidia-a100-mig", 0, 2), format!("MIG-a0d 1g.5gb: /dev/nvidia0 195:0, {}", caps(16, 17)));
    assert_eq!(instance("nvidia-h100-mig", 1, 1), format!("MIG-b12 3g.40gb: /dev/nvidia1 195:1, {}", caps(18, 19)));
    assert_eq!(paths("amd-mi300x8", 7), ["/dev/dri/renderD184 226:184"]);
    assert_eq!(paths("neuron-trn1", 15), ["/dev/neuron15"]);
    assert_eq!(paths("gaudi2", 3), ["/dev/accel/accel3 261:6", "/dev/accel/accel_controlD3 261:7"]);
    assert_eq!(paths("ascend-910b", 6), ["/dev/davinci6"]);
}

#[test]
fn no_node_is_two_devices_own_but_where_they_are_parts_of_one_board() {
    for entry in
        std::fs::read_dir(common::machines()).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir())
    {
        let name = entry.file_name().into_string().unwrap();
        for family in &detected(&name).families {
            let mut owners: BTreeMap<&str, Option<&str>> = BTreeMap::new();
            for device in &family.devices {
                for node in &device.nodes {
                    assert!(!family.shared_nodes.contains(node), "{name}: {node} is shared and somebody's own");
                    let board = device.pci_address.as_deref();
                    let before = owners.insert(&node.path, board);
                    assert!(before.is_none_or(|before| before.is_some() && before == board), "{name}: {node}");
                }
            }
        }
    }
}

#[test]
fn numbers_of_nodes_are_the_nodes_own() {
    let zero = Host::real().node("/dev/zero").unwrap();
    assert_eq!((zero.to_string().as_str(), zero.number), ("/dev/zero 1:5", Some(NodeNumber { major: 1, minor: 5 })));
    assert_eq!(Host::real().node("/dev/no-such-device"), None);
    assert_eq!(Host::real().node("/proc/self/status"), None, "a file is no device");
}

#[test]
fn the_report_says_what_was_found_and_what_was_not() {
    let host = Host::recorded(common::machine("blackwell-with-accel")).unwrap();
    let detection = detect(&host);
    let text = report(&detection, &host);
    for part in
        ["GPU: 2 x RTX-PRO-6000", "found by NVML", "CUDA_VISIBLE_DEVICES", "96 GiB", "Ruled out", "accel0", "1022"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let json = to_json(&detection, &host);
    assert_eq!(json["accelerators"][0]["family"]["resource"], "GPU");
    assert_eq!(json["accelerators"][0]["count"], 2);
    assert_eq!(json["accelerators"][0]["type_name"], "RTX-PRO-6000");
    assert_eq!(json["accelerators"][0]["devices"][1]["pci_address"], "0000:02:00.0");
    assert_eq!(json["ruled_out"][0]["what"], "accelerator node accel0");

    let host = Host::recorded(common::machine("plain")).unwrap();
    assert!(report(&detect(&host), &host).contains("none found"));
}

#[test]
fn tiles_are_one_device_where_the_environment_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let machine = common::machine("intel-max");
    for name in ["sys", "dev"] {
        std::os::unix::fs::symlink(machine.join(name).canonicalize().unwrap(), folder.path().join(name)).unwrap();
    }
    let json = r#"{"environment": {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}}"#;
    std::fs::write(folder.path().join("host.json"), json).unwrap();
    assert_eq!(detect(&Host::recorded(folder.path()).unwrap()).families[0].count, 2);
}

#[test]
fn a_node_that_is_made_at_the_first_use_is_made_before_and_what_came_of_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let gpu = "driver=550.54.15\nNVIDIA A100|GPU-0|00000000:01:00.0|85899345920|0|\n";
    std::fs::write(folder.path().join("nvml.txt"), gpu).unwrap();
    std::fs::write(folder.path().join("said.txt"), "").unwrap();
    let made = |commands: &str| {
        let json = format!(r#"{{"nvml": {{"answers_file": "nvml.txt"}}, "commands": {{{commands}}}}}"#);
        std::fs::write(folder.path().join("host.json"), json).unwrap();
        let host = Host::recorded(folder.path()).unwrap();
        let offer = offer(&detect(&host), &|_| None, &BTreeMap::new()).unwrap();
        late_nodes(&host, &offer, true)
    };
    let missing = |how: &str| {
        let how = format!("/dev/nvidia-uvm is missing: {how}");
        vec![LateNodeMade { path: "/dev/nvidia-uvm", is_there: false, how }]
    };
    assert_eq!(made(""), missing("there is no `nvidia-modprobe`, which makes it"));
    let run = r#""nvidia-modprobe -u -c 0": {"stdout_file": "said.txt"}"#;
    assert_eq!(made(run), missing("`nvidia-modprobe -u -c 0` was run"));
    let failed = made(r#""nvidia-modprobe -u -c 0": {"status": 3}"#);
    assert!(!failed[0].is_there && failed[0].how.contains("failed"), "{failed:?}");
    std::fs::create_dir(folder.path().join("dev")).unwrap();
    std::fs::write(folder.path().join("dev/nvidia-uvm"), "").unwrap();
    assert_eq!(made(run), [], "it is there");
}

#[test]
fn a_folder_that_is_no_recording_is_refused_with_its_name() {
    let missing = Host::recorded("/no/such/machine").unwrap_err().to_string();
    assert!(missing.contains("/no/such/machine"), "{missing}");

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("host.json"), r#"{"environment": 3}"#).unwrap();
    let malformed = Host::recorded(folder.path()).unwrap_err().to_string();
    assert!(malformed.contains("host.json"), "{malformed}");

    std::fs::write(folder.path().join("host.json"), r#"{"nodes": {"/dev/nvidia0": "195"}}"#).unwrap();
    let error = Host::recorded(folder.path()).unwrap_err();
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert!(why.contains("`195` for `/dev/nvidia0`"), "{why}");

    std::fs::write(folder.path().join("host.json"), r#"{"nvml": {"answers_file": "missing.txt"}}"#).unwrap();
    let unreadable = Host::recorded(folder.path()).unwrap_err().to_string();
    assert!(unreadable.contains("missing.txt"), "{unreadable}");
}

#[test]
fn a_bare_copy_of_a_machines_files_is_detected_too() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["dev/davinci0", "dev/davinci1", "dev/davinci_manager"] {
        let path = folder.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }
    let detection = detect(&Host::recorded(folder.path()).unwrap());
    assert_eq!(summary(&detection), "= NPU 2 ? (`/dev/davinci*`)\n");
}
