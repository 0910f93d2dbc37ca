//! NVIDIA GPUs, found through NVML and, where NVML does not answer, through the kernel driver's files.

use crate::detected::{Detected, Device, Findings};
use crate::family::{Family, Fencing, LateNode};
use crate::host::HostFacts;
use crate::kubernetes::{Hiding, KubernetesNames, PodResource, PodUnit};
use crate::mig::{self, MigInstance};
use crate::monitor::{DeviceCheck, Holders, Monitor};
use crate::nodes::{DeviceNode, existing, of_drm};
use crate::nvml::{Gpu, NvmlAnswers};
use crate::resource::GPU;
use crate::visibility::{Assignment, Changes, Lookup, Visibility, listed};
use std::collections::BTreeMap;

/// The maker's number on the PCI bus.
const VENDOR: u16 = 0x10de;
const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";
/// Names the machines whose GPUs NVLink connects, as Ray does.
pub const DOMAIN_LABEL: &str = "ray.io/gpu-domain";
const DRIVER_FOLDER: &str = "/proc/driver/nvidia/gpus";
/// Tells which node in [`CAPABILITIES`] gives access to which instance: `gpu0/gi1/access 12`.
const CAPABILITY_MINORS: &str = "/proc/driver/nvidia-caps/mig-minors";
const CAPABILITIES: &str = "/dev/nvidia-caps/nvidia-cap";

pub(crate) static FAMILY: Family = Family {
    key: "nvidia",
    name: "NVIDIA GPU",
    resource: &GPU,
    parts: Some(mig::resource),
    pci_vendor: VENDOR,
    nodes: &["/dev/nvidia"],
    shared_nodes: &["/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"],
    fencing: Fencing {
        bears_landlock: true,
        renumbers: true,
        // Ordinals are by the bus then, as NVML's are.
        settings: &[("CUDA_DEVICE_ORDER", "PCI_BUS_ID")],
        late_node: Some(LateNode {
            path: "/dev/nvidia-uvm",
            programs: &["nvidia-modprobe", "/usr/bin/nvidia-modprobe"],
            arguments: &["-u", "-c", "0"],
        }),
    },
    visibility: Visibility {
        variables: &[VARIABLE],
        joined: &[VARIABLE],
        companions: &[],
        opt_outs: &["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"],
        lists_uuids: true,
        hidden: Some(""),
        preset: |environment| listed(environment, VARIABLE),
        show,
    },
    constant_type: None,
    type_aliases: &[],
    kubernetes: KUBERNETES,
    detect,
    declared: None,
    monitor: Some(MONITOR),
};

const KUBERNETES: KubernetesNames = KubernetesNames {
    resources: &[
        PodResource::devices("nvidia.com/gpu"),
        PodResource::devices("nvidia.com/gpu.shared"),
        PodResource { name: "nvidia.com/mig-*", unit: PodUnit::Part },
    ],
    classes: &["gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com"],
    taint: Some("nvidia.com/gpu"),
    // A container whose image asks for all devices sees every GPU of the machine that it happens to be on.
    hiding: Some(Hiding {
        variable: "NVIDIA_VISIBLE_DEVICES",
        value: "void",
        unless: &["nvidia.com/gpu*", "nvidia.com/mig-*", "*.nvidia.com"],
    }),
    type_of: pod_type,
    memory_of: pod_memory,
};

const MONITOR: Monitor = Monitor {
    is_available: |host| host.has_live_nvml(),
    holders: |host, device| host.nvml_holders(&device.id).map(Holders::together),
    usage: |host, devices| devices.iter().map(|device| host.nvml_usage(&device.id)).collect(),
    unlisted: |host, device| host.nvml_usage(&device.id)?.unlisted_bytes,
    rest: 0,
    hear_errors: |host, devices, hearing| {
        let ids: Vec<String> = devices.iter().map(|device| device.id.clone()).collect();
        host.nvml_errors(&ids, hearing);
    },
    check: Some(DeviceCheck::Cuda { variable: VARIABLE }),
    health: Some(
        "NVML: the recovery action, Xids and other events, rows and pages of memory that were replaced, double-bit errors",
    ),
    look_at: "`nvidia-smi`, `dmesg`",
};

fn show(assignment: &Assignment<'_>) -> Changes {
    vec![(VARIABLE.to_owned(), Some(assignment.joined()))]
}

fn detect(host: &dyn HostFacts, findings: &mut Findings) -> Option<Detected> {
    match host.nvml() {
        Ok(answers) => from_nvml(host, findings, answers),
        Err(failure) => from_driver(host, findings, &format!("NVML does not answer: {failure}")),
    }
}

fn from_nvml(host: &dyn HostFacts, findings: &mut Findings, answers: NvmlAnswers) -> Option<Detected> {
    for lost in &answers.lost {
        findings.warn(format!("{lost}; it is not offered"));
    }
    rule_out_unanswered(host, findings, &answers.gpus);
    let how = format!("NVML, driver {}", answers.driver.as_deref().unwrap_or("unknown"));
    let labels = domain_label(&answers.gpus);
    let pairs = answers.pairs;
    let devices: Vec<Device> = answers
        .gpus
        .into_iter()
        .enumerate()
        .map(|(index, gpu)| {
            let numa_node = gpu.pci_address.as_deref().and_then(|address| numa_node(host, address));
            let minor = gpu.minor.or_else(|| driver_minor(host, gpu.pci_address.as_deref()?));
            let nodes = own_nodes(host, minor, gpu.pci_address.as_deref());
            let instances = gpu.instances.into_iter();
            let instances = instances.map(|instance| with_nodes(host, instance, minor, &nodes)).collect();
            Device {
                index,
                name: gpu.name,
                uuid: gpu.uuid,
                nodes,
                instances: gpu.partitioned.then_some(instances),
                pci_address: gpu.pci_address,
                memory_bytes: gpu.memory_bytes,
                numa_node,
                units: None,
                needs: gpu.needs,
                is_persistent: gpu.is_persistent,
                retired_pages: gpu.retired_pages,
            }
        })
        .collect();
    named(findings, devices, how).map(|detected| Detected { pairs, labels, ..detected })
}

/// The label of the machines whose GPUs NVLink connects with those of this one, where it connects all of these. Its value is that
/// of `nvidia.com/gpu.clique` in Kubernetes.
fn domain_label(gpus: &[Gpu]) -> BTreeMap<String, String> {
    let first = gpus.first().and_then(|gpu| gpu.fabric.clone());
    let is_of_all = gpus.iter().all(|gpu| gpu.fabric == first);
    first.filter(|_| is_of_all).map(|domain| (DOMAIN_LABEL.to_owned(), domain)).into_iter().collect()
}

// A container sees the whole bus and is given some of the devices; a broken device is on the bus and not in NVML.
fn rule_out_unanswered(host: &dyn HostFacts, findings: &mut Findings, gpus: &[Gpu]) {
    for function in host.pci().iter().filter(|function| function.vendor == VENDOR && function.computes()) {
        let answered = |gpu: &Gpu| gpu.pci_address.as_ref().is_none_or(|address| *address == function.address);
        if !gpus.iter().any(answered) {
            findings.rule_out(
                format!("NVIDIA device {}", function.address),
                "NVML does not list it: it is not given to this container, or it has failed",
            );
        }
    }
}

fn from_driver(host: &dyn HostFacts, findings: &mut Findings, failure: &str) -> Option<Detected> {
    let known = driver_devices(host);
    let nodes = host.list_numbered("/dev", "nvidia");
    let on_bus: Vec<_> =
        host.pci().iter().filter(|function| function.vendor == VENDOR && function.computes()).collect();
    if known.is_empty() && on_bus.is_empty() && nodes.is_empty() {
        return None;
    }
    if nodes.is_empty() {
        let count = known.len().max(on_bus.len());
        findings.rule_out(
            format!("{count} NVIDIA devices"),
            "no `/dev/nvidia0` or the like: they are not given to this container, or their driver is not loaded",
        );
        findings.warn(format!(
            "{failure}. The machine has {count} NVIDIA devices that no process can open, so none is offered; load the \
             driver (`nvidia-smi` must work), or ask for them by number"
        ));
        return None;
    }
    let (devices, how): (Vec<Device>, _) = if known.is_empty() {
        let usable = on_bus.iter().take(nodes.len());
        let devices = usable
            .enumerate()
            .map(|(index, function)| Device {
                index,
                pci_address: Some(function.address.clone()),
                numa_node: function.numa_node,
                // Which of `/dev/nvidia0` and so on is which device's, nobody tells here.
                nodes: own_nodes(host, None, Some(&function.address)),
                ..Device::default()
            })
            .collect();
        (devices, "PCI ids")
    } else {
        let (usable, closed): (Vec<_>, Vec<_>) =
            known.into_iter().partition(|(minor, _)| minor.is_none_or(|minor| nodes.contains(&minor)));
        for (_, device) in closed {
            let address = device.pci_address.unwrap_or_default();
            findings.rule_out(format!("NVIDIA device {address}"), "no device node: it is not given to this container");
        }
        let numbered = usable.into_iter().enumerate().map(|(index, (_, device))| Device { index, ..device });
        (numbered.collect(), DRIVER_FOLDER)
    };
    findings.warn(format!("{failure}. The {} NVIDIA GPUs offered are those of {how}", devices.len()));
    named(findings, devices, how.to_owned())
}

/// The devices that the kernel driver names, each with the number of its device node.
fn driver_devices(host: &dyn HostFacts) -> Vec<(Option<u32>, Device)> {
    let read = |address: String| {
        let text = host.read(&format!("{DRIVER_FOLDER}/{address}/information"))?;
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let minor = field("Device Minor").and_then(|minor| minor.parse().ok());
        let device = Device {
            name: field("Model"),
            uuid: field("GPU UUID"),
            numa_node: numa_node(host, &address),
            nodes: own_nodes(host, minor, Some(&address)),
            pci_address: Some(address),
            ..Device::default()
        };
        Some((minor, device))
    };
    host.list(DRIVER_FOLDER).into_iter().filter_map(read).collect()
}

/// The number of a device's node as the kernel driver tells it.
fn driver_minor(host: &dyn HostFacts, address: &str) -> Option<u32> {
    let text = host.read(&format!("{DRIVER_FOLDER}/{address}/information"))?;
    text.lines().find_map(|line| line.strip_prefix("Device Minor")?.trim().strip_prefix(':')?.trim().parse().ok())
}

/// An instance of a GPU with the nodes that a process opens to use it, where those that are its own are known.
fn with_nodes(host: &dyn HostFacts, instance: MigInstance, minor: Option<u32>, of_gpu: &[DeviceNode]) -> MigInstance {
    let capabilities = || {
        let (gpu, table) = (minor?, host.read(CAPABILITY_MINORS)?);
        let (of_gpu, of_compute) = (instance.gpu_instance?, instance.compute_instance?);
        let node = |what: String| {
            let number = table.lines().find_map(|line| line.strip_prefix(&what)?.trim().parse::<u32>().ok())?;
            host.node(&format!("{CAPABILITIES}{number}"))
        };
        let [of_gpu, of_compute] =
            [format!("gpu{gpu}/gi{of_gpu}/access "), format!("gpu{gpu}/gi{of_gpu}/ci{of_compute}/access ")];
        Some([node(of_gpu)?, node(of_compute)?])
    };
    let own = capabilities().filter(|_| !of_gpu.is_empty());
    let nodes = own.map_or_else(Vec::new, |own| of_gpu.iter().cloned().chain(own).collect());
    MigInstance { nodes, ..instance }
}

/// The nodes of one GPU: that of the driver, and those by which it draws.
fn own_nodes(host: &dyn HostFacts, minor: Option<u32>, address: Option<&str>) -> Vec<DeviceNode> {
    let of_driver = existing(host, minor.map(|minor| format!("/dev/nvidia{minor}")));
    of_driver.into_iter().chain(address.into_iter().flat_map(|address| of_drm(host, address))).collect()
}

fn numa_node(host: &dyn HostFacts, address: &str) -> Option<u32> {
    host.pci().iter().find(|function| function.address == address)?.numa_node
}

fn named(findings: &mut Findings, devices: Vec<Device>, how: String) -> Option<Detected> {
    let types: Vec<Option<String>> = devices.iter().map(|device| device.name.as_deref().and_then(type_name)).collect();
    if let Some(other) = types.iter().find(|name| **name != types[0]) {
        findings.warn(format!(
            "the NVIDIA GPUs of this machine differ ({} and {}); its type is that of the first",
            types[0].as_deref().unwrap_or("unknown"),
            other.as_deref().unwrap_or("unknown")
        ));
    }
    let first = types.into_iter().next().flatten();
    Some(Detected::of_devices(&FAMILY, devices, how)?.with_type(first))
}

/// The accelerator type of a GPU, from the name that NVML gives it: `NVIDIA A100-SXM4-40GB` is an `A100`.
///
/// It is the first run of capitals and digits with a digit in it, with the all-capital words before it, that directly
/// follows the first word; failing that, the whole name without its `NVIDIA`.
fn type_name(name: &str) -> Option<String> {
    let name = name.trim();
    let chosen = model(name).filter(|model| model.len() > 1).unwrap_or_else(|| {
        let rest = name.strip_prefix("NVIDIA").filter(|rest| rest.starts_with(char::is_whitespace));
        rest.map_or(name, str::trim_start)
    });
    let hyphenated = chosen.split_whitespace().collect::<Vec<_>>().join("-");
    (!hyphenated.is_empty()).then_some(hyphenated)
}

fn model(name: &str) -> Option<&str> {
    let (first, rest) = name.split_once(char::is_whitespace)?;
    if first.is_empty() || !first.chars().all(|letter| letter.is_alphanumeric() || letter == '_') {
        return None;
    }
    let start = rest.trim_start();
    let mut end = 0;
    loop {
        let word = start[end..].trim_start();
        let from = start.len() - word.len();
        let run = word.find(|letter: char| !letter.is_ascii_uppercase() && !letter.is_ascii_digit());
        let run = &word[..run.unwrap_or(word.len())];
        if run.contains(|letter: char| letter.is_ascii_digit()) {
            return Some(&start[..from + run.len()]);
        }
        let whole_word = word[run.len()..].starts_with(char::is_whitespace);
        if run.is_empty() || !whole_word {
            return None;
        }
        end = from + run.len();
    }
}

/// The type of the GPUs that a pod's machine must have, as programs name it: `A100`, `H100`, `L4`.
fn pod_type(labels: Lookup<'_>) -> Option<String> {
    let of_gke = |name: String| {
        let name = name.strip_prefix("nvidia-").unwrap_or(&name);
        name.strip_prefix("tesla-").unwrap_or(name).split('-').next().map(str::to_uppercase)
    };
    let of_feature_discovery = |name: String| {
        let words = name.split(['-', '_', ' ']);
        let mut rest = words.filter(|word| !["NVIDIA", "Tesla", "GeForce", "RTX"].contains(word));
        rest.find(|word| word.chars().any(|letter| letter.is_ascii_digit())).map(str::to_owned)
    };
    let told = |key: &str| labels(key).filter(|value| !value.is_empty());
    told("cloud.google.com/gke-accelerator")
        .and_then(of_gke)
        .or_else(|| told("nvidia.com/gpu.product").and_then(of_feature_discovery))
        .or_else(|| told("karpenter.k8s.aws/instance-gpu-name").map(|name| name.to_uppercase()))
}

/// The memory of each GPU of a pod's machine, from the label of NVIDIA's feature discovery, which counts MiB with what the
/// driver keeps for itself. That is a hundredth or less, and taken as a sixty-fourth: a node never offers less than this.
fn pod_memory(labels: Lookup<'_>) -> Option<u64> {
    let bytes = labels("nvidia.com/gpu.memory")?.parse::<u64>().ok()?.checked_mul(1 << 20)?;
    Some(bytes - bytes / 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_pods_gpus_is_what_a_node_offers_at_least() {
        let of = |value: &'static str| pod_memory(&|name| (name == "nvidia.com/gpu.memory").then(|| value.to_owned()));
        assert_eq!(of("81559"), Some(84_184_547_328));
        assert_eq!([of("much"), of("18446744073709551615"), pod_memory(&|_| None)], [None; 3]);
    }

    #[test]
    fn type_names_of_the_specification() {
        let cases = [
            ("Tesla V100-SXM2-16GB", "V100"),
            ("Tesla T4", "T4"),
            ("NVIDIA A100-SXM4-40GB", "A100"),
            ("NVIDIA A100 80GB PCIe", "A100"),
            ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "A100"),
            ("NVIDIA H100 80GB HBM3", "H100"),
            ("NVIDIA H100 NVL", "H100"),
            ("NVIDIA H200", "H200"),
            ("NVIDIA H20", "H20"),
            ("NVIDIA L4", "L4"),
            ("NVIDIA L40S", "L40S"),
            ("NVIDIA A10G", "A10G"),
            ("NVIDIA A30", "A30"),
            ("NVIDIA B200", "B200"),
            ("NVIDIA GB200", "GB200"),
            ("NVIDIA GH200 480GB", "GH200"),
            ("NVIDIA GB10", "GB10"),
            ("NVIDIA RTX A6000", "RTX-A6000"),
            ("NVIDIA RTX 6000 Ada Generation", "RTX-6000"),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000"),
            ("NVIDIA GeForce RTX 5090", "GeForce-RTX-5090"),
            ("GeForce GTX 1080 Ti", "GTX-1080"),
            ("NVIDIA TITAN V", "TITAN-V"),
            ("TITAN V", "TITAN-V"),
            ("Orin (nvgpu)", "Orin-(nvgpu)"),
            ("H100", "H100"),
            ("Quadro RTX 4000", "RTX-4000"),
            ("NVIDIA", "NVIDIA"),
        ];
        for (name, expected) in cases {
            assert_eq!(type_name(name).as_deref(), Some(expected), "{name}");
        }
        assert_eq!(type_name(""), None);
    }
}
