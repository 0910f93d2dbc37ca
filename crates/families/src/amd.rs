//! AMD GPUs, found through the kernel's compute topology (KFD) and, failing that, on the PCI bus.
//!
//! # Two variables
//!
//! ROCm filters twice: `ROCR_VISIBLE_DEVICES` says which GPUs the runtime sees, and `HIP_VISIBLE_DEVICES` numbers what is
//! left. Programs written for older Ray read the first and those for Ray 2.60 the second, so a process gets both:
//!
//! - Where the GPUs are real, the filter is `ROCR_VISIBLE_DEVICES`, with the devices' ids, and `HIP_VISIBLE_DEVICES` is
//!   `0,1,…`, as many as there are: the second of four GPUs is `ROCR=1, HIP=0`. Writing `1` into both would hide it.
//! - Where they exist in name only no runtime reads the variables, only programs print them: both hold the ids.
//!
//! # What is told while a node runs
//!
//! The compute driver (KFD) lists each process with the bytes that it has of each GPU and the queues that it has on it, and
//! the graphics driver (amdgpu) how busy a GPU is, how much of its memory is taken, and the errors of each part of the
//! hardware since it was loaded (RAS). There is no command and no library in that, only files in `/sys`.

use std::collections::BTreeMap;

use crate::bus::{bus_pairs, way_by_numa};
use crate::detected::{Detected, Device, Findings};
use crate::drm;
use crate::family::{Family, Fencing};
use crate::health::Health;
use crate::host::HostFacts;
use crate::kubernetes::{KubernetesNames, PodResource};
use crate::monitor::{Holders, Monitor, ProcessMemory, Usage, Watched};
use crate::nodes::{existing, of_drm};
use crate::pairs::{LinkKind, Pair};
use crate::pci::PciFunction;
use crate::resource::GPU;
use crate::visibility::{Assignment, Changes, Lookup, Preset, Visibility, listed, nested};

/// The maker's number on the PCI bus.
const VENDOR: u16 = 0x1002;
const OUTER: &str = "ROCR_VISIBLE_DEVICES";
const INNER: &str = "HIP_VISIBLE_DEVICES";
const TOPOLOGY: &str = "/sys/class/kfd/kfd/topology/nodes";
/// Has a folder for each process that computes.
const PROCESSES: &str = "/sys/class/kfd/kfd/proc";
const ON_BUS: &str = "/sys/bus/pci/devices";
/// What an open file says of the GPU's own memory, in the words of newer drivers, else of older ones.
const OWN_MEMORY: &[&str] = &["drm-resident-vram", "drm-memory-vram"];

/// What KFD calls a link of AMD's between two GPUs.
const XGMI: u64 = 11;
/// The most of them that are believed to be between two.
const XGMI_LINKS_MAX: u64 = 64;
/// Less memory of its own has only graphics built into a processor.
const DISCRETE_MEMORY_BYTES_MIN: u64 = 4 << 30;

pub(crate) static FAMILY: Family = Family {
    key: "amd",
    name: "AMD GPU",
    resource: &GPU,
    parts: None,
    pci_vendor: VENDOR,
    nodes: &["/dev/kfd", "/dev/dri/renderD"],
    shared_nodes: &["/dev/kfd"],
    fencing: Fencing::RENUMBERING,
    visibility: Visibility {
        variables: &[INNER, OUTER],
        joined: &[INNER, OUTER],
        companions: &[],
        opt_outs: &["RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES", "RAY_EXPERIMENTAL_NOSET_ROCR_VISIBLE_DEVICES"],
        lists_uuids: false,
        hidden: Some(""),
        preset,
        show,
    },
    constant_type: None,
    type_aliases: TYPE_ALIASES,
    kubernetes: KubernetesNames {
        resources: &[PodResource::devices("amd.com/gpu")],
        classes: &["gpu.amd.com"],
        taint: Some("amd.com/gpu"),
        ..KubernetesNames::NONE
    },
    detect,
    declared: None,
    monitor: Some(Monitor {
        is_available: |host| host.exists(TOPOLOGY),
        holders,
        usage: |host, devices| devices.iter().map(|device| usage(host, device)).collect(),
        unlisted,
        rest: 0,
        hear_errors: |_, _, _| (),
        check: None,
        health: Some("amdgpu: the errors of each part that could not be corrected (`ras/*_err_count`)"),
        look_at: "`amd-smi`, `dmesg`",
    }),
};

const TYPES: &[(u16, &str)] = &[
    (0x66a1, "AMD-Instinct-MI50"),
    (0x738c, "AMD-Instinct-MI100"),
    (0x7408, "AMD-Instinct-MI250X"),
    (0x740c, "AMD-Instinct-MI250X-MI250"),
    (0x740f, "AMD-Instinct-MI210"),
    (0x74a0, "AMD-Instinct-MI300A"),
    (0x74a1, "AMD-Instinct-MI300X-OAM"),
    (0x74a2, "AMD-Instinct-MI308X-OAM"),
    (0x74a5, "AMD-Instinct-MI325X-OAM"),
    (0x74a9, "AMD-Instinct-MI300X-HF"),
    (0x75a0, "AMD-Instinct-MI350X-OAM"),
    (0x75a3, "AMD-Instinct-MI355X-OAM"),
    (0x6798, "AMD-Radeon-R9-200-HD-7900"),
    (0x6799, "AMD-Radeon-HD-7900"),
];

/// Type names under which users ask for a card that is detected under another: Ray's constant for the MI308X differs
/// from what Ray detects.
const TYPE_ALIASES: &[(&str, &str)] = &[("AMD-Instinct-MI308X-OAM", "AMD-Instinct-MI308X")];

fn preset(environment: Lookup<'_>) -> Option<Preset> {
    match (listed(environment, OUTER), listed(environment, INNER)) {
        (Some(outer), Some(inner)) => Some(nested(&outer, inner)),
        (outer, inner) => inner.or(outer),
    }
}

fn show(assignment: &Assignment<'_>) -> Changes {
    let ids = assignment.joined();
    let inner = if assignment.detected > 0 { assignment.ordinals() } else { ids.clone() };
    vec![(INNER.to_owned(), Some(inner)), (OUTER.to_owned(), Some(ids))]
}

fn type_name(device: u16) -> Option<String> {
    TYPES.iter().find(|(id, _)| *id == device).map(|(_, name)| (*name).to_owned())
}

fn detect(host: &dyn HostFacts, findings: &mut Findings) -> Option<Detected> {
    let nodes = compute_nodes(host);
    let on_bus: Vec<_> = host
        .pci()
        .iter()
        .filter(|function| function.vendor == VENDOR && matches!(function.class, 0x0302 | 0x0380 | 0x1200))
        .collect();
    if !host.exists("/dev/kfd") {
        let count = on_bus.len().max(nodes.iter().filter(|node| node.is_discrete()).count());
        if count > 0 {
            let why = "no `/dev/kfd`: they are not given to this container, or their driver (amdgpu) is not loaded";
            findings.rule_out(format!("{count} AMD devices"), why);
            findings
                .warn(format!("the machine has {count} AMD GPUs that no process can open, so none is offered: {why}"));
        }
        return None;
    }
    if nodes.is_empty() {
        return from_bus(host, findings, &on_bus);
    }
    let openable = host.list_numbered("/dev/dri", "renderD");
    let (mut devices, mut numbers) = (Vec::new(), Vec::new());
    let mut first = None;
    for node in nodes {
        let what = || format!("AMD device {}", node.address);
        if !node.is_discrete() {
            findings.rule_out(what(), "graphics built into a processor, with little memory of its own");
        } else if node.render_node.is_some_and(|number| !openable.contains(&number)) {
            findings.rule_out(what(), "no device node in `/dev/dri`: it is not given to this container");
        } else {
            let name = type_name(node.device);
            first.get_or_insert_with(|| name.clone());
            numbers.push(node.number);
            devices.push(node.into_device(host, devices.len(), name));
        }
    }
    let pairs = pairs(host, &devices, &numbers);
    let detected = Detected::of_devices(&FAMILY, devices, "the kernel's compute topology (KFD)")?;
    Some(Detected { pairs, ..detected.with_type(first.flatten()) })
}

/// How each two GPUs are connected, over the bus and by links of AMD's; `numbers` are those of their nodes.
fn pairs(host: &dyn HostFacts, devices: &[Device], numbers: &[u32]) -> Vec<Pair> {
    let mut pairs = bus_pairs(host, devices);
    for (one, from) in numbers.iter().enumerate() {
        for (to, links) in links_of(host, *from) {
            let Some(other) = numbers.iter().position(|number| u64::from(*number) == to).filter(|other| *other > one)
            else {
                continue;
            };
            let is_it = |pair: &&mut Pair| (pair.one, pair.other) == (one, other);
            if let Some(known) = pairs.iter_mut().find(is_it) {
                (known.links, known.kind) = (links, LinkKind::Xgmi);
            } else {
                let on_bus = Pair::on_bus(one, other, way_by_numa(&devices[one], &devices[other]));
                pairs.push(Pair { links, kind: LinkKind::Xgmi, ..on_bus });
            }
        }
    }
    pairs
}

/// The links of AMD's that lead from a node to others, without one between: the number of the other, and how many. The kernel
/// tells how many by what they carry at least, which is one link, and at most, which is nothing where the way is indirect;
/// older ones tell neither.
fn links_of(host: &dyn HostFacts, number: u32) -> Vec<(u64, u32)> {
    let folder = format!("{TOPOLOGY}/{number}/io_links");
    let link = |place: String| {
        let text = host.read(&format!("{folder}/{place}/properties"))?;
        if property(&text, "type") != Some(XGMI) {
            return None;
        }
        let carried = |name: &str| property(&text, name).unwrap_or(0);
        let links = carried("max_bandwidth").checked_div(carried("min_bandwidth")).unwrap_or(1);
        let links = u32::try_from(links.min(XGMI_LINKS_MAX)).ok().filter(|links| *links > 0)?;
        Some((property(&text, "node_to")?, links))
    };
    host.list(&folder).into_iter().filter_map(link).collect()
}

fn from_bus(host: &dyn HostFacts, findings: &mut Findings, on_bus: &[&PciFunction]) -> Option<Detected> {
    let devices: Vec<Device> = on_bus
        .iter()
        .enumerate()
        .map(|(index, function)| Device {
            index,
            name: type_name(function.device),
            pci_address: Some(function.address.clone()),
            numa_node: function.numa_node,
            nodes: of_drm(host, &function.address),
            ..Device::default()
        })
        .collect();
    let first = on_bus.first().and_then(|function| type_name(function.device));
    let detected = Detected::of_devices(&FAMILY, devices, "PCI ids")?.with_type(first);
    findings.warn(format!(
        "the kernel shows no compute topology (KFD); the {} AMD GPUs are those of the PCI bus",
        detected.count
    ));
    Some(detected)
}

/// A node of the compute topology that can compute.
struct ComputeNode {
    number: u32,
    device: u16,
    address: String,
    unique_id: Option<u64>,
    render_node: Option<u32>,
    memory_bytes: u64,
    has_processor: bool,
}

impl ComputeNode {
    // Large accelerators may be built into a processor too (MI300A), and are known by name.
    fn is_discrete(&self) -> bool {
        type_name(self.device).is_some() || (!self.has_processor && self.memory_bytes >= DISCRETE_MEMORY_BYTES_MIN)
    }

    fn into_device(self, host: &dyn HostFacts, index: usize, name: Option<String>) -> Device {
        let numa_node = host.pci().iter().find(|function| function.address == self.address);
        let mut nodes = of_drm(host, &self.address);
        if nodes.is_empty() {
            nodes = existing(host, self.render_node.map(|number| format!("/dev/dri/renderD{number}")));
        }
        Device {
            index,
            name,
            uuid: self.unique_id.filter(|id| *id != 0).map(|id| format!("GPU-{id:016x}")),
            numa_node: numa_node.and_then(|function| function.numa_node),
            pci_address: Some(self.address),
            memory_bytes: Some(self.memory_bytes).filter(|bytes| *bytes > 0),
            nodes,
            ..Device::default()
        }
    }
}

fn compute_nodes(host: &dyn HostFacts) -> Vec<ComputeNode> {
    host.list_numbered(TOPOLOGY, "").into_iter().filter_map(|number| compute_node(host, number)).collect()
}

fn compute_node(host: &dyn HostFacts, number: u32) -> Option<ComputeNode> {
    let folder = format!("{TOPOLOGY}/{number}");
    let text = host.read(&format!("{folder}/properties"))?;
    let simd_count = property(&text, "simd_count")?;
    if simd_count == 0 || property(&text, "vendor_id") != Some(u64::from(VENDOR)) {
        return None;
    }
    let location = property(&text, "location_id").unwrap_or(0);
    let domain = property(&text, "domain").unwrap_or(0);
    Some(ComputeNode {
        number,
        device: u16::try_from(property(&text, "device_id")?).ok()?,
        address: format!("{domain:04x}:{:02x}:{:02x}.{}", location >> 8 & 0xff, location >> 3 & 0x1f, location & 7),
        unique_id: property(&text, "unique_id"),
        render_node: property(&text, "drm_render_minor").and_then(|minor| u32::try_from(minor).ok()),
        memory_bytes: memory_bytes(host, &folder),
        has_processor: property(&text, "cpu_cores_count").unwrap_or(0) > 0,
    })
}

// Heap types 1 and 2 are the device's own memory, open and closed to the processor.
fn memory_bytes(host: &dyn HostFacts, folder: &str) -> u64 {
    host.list(&format!("{folder}/mem_banks"))
        .iter()
        .filter_map(|bank| host.read(&format!("{folder}/mem_banks/{bank}/properties")))
        .filter(|text| matches!(property(text, "heap_type"), Some(1 | 2)))
        .filter_map(|text| property(&text, "size_in_bytes"))
        .fold(0, u64::saturating_add)
}

fn property(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The processes that have memory of a GPU or a queue on it. KFD names every GPU with each process, used or not.
fn holders(host: &dyn HostFacts, device: &Watched) -> Option<Holders> {
    let gpus = kfd_ids(host, device.pci_address.as_deref()?);
    if gpus.is_empty() || !host.exists(PROCESSES) {
        return None;
    }
    let holds = |pid: &u32| memory_of(host, *pid, &gpus) > 0 || has_queue(host, *pid, &gpus);
    Some(Holders::together(host.list_numbered(PROCESSES, "").into_iter().filter(holds).collect()))
}

/// The numbers under which KFD knows what is at a place on the bus: one, or one for each part of a GPU that is partitioned.
fn kfd_ids(host: &dyn HostFacts, address: &str) -> Vec<u64> {
    let nodes = host.list_numbered(TOPOLOGY, "").into_iter();
    let here = nodes.filter(|number| compute_node(host, *number).is_some_and(|node| node.address == address));
    here.filter_map(|number| host.read_number(&format!("{TOPOLOGY}/{number}/gpu_id"))).collect()
}

fn memory_of(host: &dyn HostFacts, pid: u32, gpus: &[u64]) -> u64 {
    let of_gpu = gpus.iter().filter_map(|gpu| host.read_number(&format!("{PROCESSES}/{pid}/vram_{gpu}")));
    of_gpu.fold(0, u64::saturating_add)
}

fn has_queue(host: &dyn HostFacts, pid: u32, gpus: &[u64]) -> bool {
    let queues = format!("{PROCESSES}/{pid}/queues");
    let mut on =
        host.list(&queues).into_iter().filter_map(|queue| host.read_number(&format!("{queues}/{queue}/gpuid")));
    on.any(|gpu| gpus.contains(&gpu))
}

fn usage(host: &dyn HostFacts, device: &Watched) -> Option<Usage> {
    let address = device.pci_address.as_deref()?;
    let folder = format!("{ON_BUS}/{address}");
    let number = |name: &str| host.read_number(&format!("{folder}/{name}"));
    let gpus = kfd_ids(host, address);
    let processes = host.list_numbered(PROCESSES, "").into_iter().filter_map(|pid| {
        let bytes = memory_of(host, pid, &gpus);
        (bytes > 0).then(|| ProcessMemory { pid, bytes, ..ProcessMemory::default() })
    });
    let processes: Vec<ProcessMemory> = processes.collect();
    let computing = processes.iter().map(|process| process.bytes).fold(0, u64::saturating_add);
    let used_bytes = number("mem_info_vram_used");
    let tells = !gpus.is_empty() && host.exists(PROCESSES) && drm::sees_everybody(host);
    let usage = Usage {
        busy_percent: number("gpu_busy_percent").and_then(|percent| u32::try_from(percent).ok()),
        used_bytes,
        total_bytes: number("mem_info_vram_total"),
        // It was on the bus when it was found.
        is_lost: !host.exists(&folder) && host.pci().iter().any(|function| function.address == address),
        health: Health { uncorrected: uncorrected(host, &folder), ..Health::default() },
        // Who draws is in no list of those who compute, and seems to be nobody: while nobody has the GPU that is as much as may be
        // in use then. `unlisted` looks closer.
        unlisted_bytes: used_bytes.filter(|_| tells).map(|used| used.saturating_sub(computing)),
        processes,
        ..Usage::default()
    };
    (usage != Usage::default()).then_some(usage)
}

/// What is in use of a GPU but for what those who compute on it have, and what others have who have it open, which their open
/// files tell. Nothing where not everybody's can be looked at.
fn unlisted(host: &dyn HostFacts, device: &Watched) -> Option<u64> {
    let address = device.pci_address.as_deref()?;
    let used = host.read_number(&format!("{ON_BUS}/{address}/mem_info_vram_used"))?;
    let gpus = kfd_ids(host, address);
    if gpus.is_empty() || device.nodes.is_empty() || !host.exists(PROCESSES) || !drm::sees_everybody(host) {
        return None;
    }
    let computing = host.list_numbered(PROCESSES, "");
    let others = host.openers(&device.nodes)?.into_iter().filter(|pid| !computing.contains(pid));
    let of_others = others.map(|pid| drm::memory_of(host, pid, address, OWN_MEMORY));
    let listed = computing.iter().map(|pid| memory_of(host, *pid, &gpus)).chain(of_others);
    Some(used.saturating_sub(listed.fold(0, u64::saturating_add)))
}

/// Of each part of the hardware that counts its errors, those that could not be corrected.
fn uncorrected(host: &dyn HostFacts, folder: &str) -> Option<BTreeMap<String, u64>> {
    let folder = format!("{folder}/ras");
    let counted = host.list(&folder).into_iter().filter_map(|name| {
        let part = name.strip_suffix("_err_count")?;
        let text = host.read(&format!("{folder}/{name}"))?;
        let count = text.lines().find_map(|line| line.trim().strip_prefix("ue:")?.trim().parse().ok())?;
        Some((part.to_owned(), count))
    });
    let counted: BTreeMap<String, u64> = counted.collect();
    (!counted.is_empty()).then_some(counted)
}
