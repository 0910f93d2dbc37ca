//! Intel's discrete GPUs, found on the PCI bus by the driver that runs them (`xe` or `i915`).
//!
//! # Two variables
//!
//! oneAPI filters twice: `ZE_AFFINITY_MASK` says which GPUs the driver shows, and `ONEAPI_DEVICE_SELECTOR` numbers what is
//! left. Programs written for older Ray read the second and those for Ray 2.60 the first, so a process gets both:
//!
//! - Where the GPUs are real, the filter is `ZE_AFFINITY_MASK`, with the devices' ids, and `ONEAPI_DEVICE_SELECTOR` is
//!   `level_zero:0,1,…`, as many as there are. Ids in both would hide the devices, and without a backend's name the
//!   second is an error.
//! - Where they exist in name only no runtime reads the variables, only programs print them: both hold the ids.
//!
//! # What is told while a node runs
//!
//! Who has a device node open, and with each of these open nodes (`/proc/<pid>/fdinfo`) how much of the card's own memory the
//! process has. Whether a card is well, nobody tells.

use crate::detected::{Detected, Device, Findings};
use crate::drm;
use crate::family::{Family, Fencing};
use crate::host::HostFacts;
use crate::kubernetes::{KubernetesNames, PodResource};
use crate::monitor::{Holders, Monitor, ProcessMemory, Usage, Watched};
use crate::nodes::{DeviceNode, of_drm};
use crate::pci::PciFunction;
use crate::resource::GPU;
use crate::visibility::{Assignment, Changes, Lookup, Preset, Visibility, entries, listed, nested};

/// The maker's number on the PCI bus.
const VENDOR: u16 = 0x8086;
const OUTER: &str = "ZE_AFFINITY_MASK";
const INNER: &str = "ONEAPI_DEVICE_SELECTOR";
const BACKEND: &str = "level_zero:";

/// Says whether a card of several tiles is one device (`COMPOSITE`) or, by default, one device per tile.
const HIERARCHY: &str = "ZE_FLAT_DEVICE_HIERARCHY";

/// What an open file says of a card's own memory, in the words of the drivers `xe` and `i915`.
const OWN_MEMORY: &[&str] = &["drm-total-vram", "drm-total-local"];

pub(crate) static FAMILY: Family = Family {
    key: "intel",
    name: "Intel GPU",
    resource: &GPU,
    parts: None,
    pci_vendor: VENDOR,
    nodes: &["/dev/dri/renderD"],
    shared_nodes: &[],
    fencing: Fencing::RENUMBERING,
    visibility: Visibility {
        variables: &[OUTER, INNER],
        joined: &[OUTER],
        companions: &[],
        opt_outs: &["RAY_EXPERIMENTAL_NOSET_ZE_AFFINITY_MASK", "RAY_EXPERIMENTAL_NOSET_ONEAPI_DEVICE_SELECTOR"],
        lists_uuids: false,
        hidden: Some(""),
        preset,
        show,
    },
    constant_type: None,
    type_aliases: &[],
    kubernetes: KubernetesNames {
        resources: &[PodResource::devices("gpu.intel.com/i915"), PodResource::devices("gpu.intel.com/xe")],
        classes: &["gpu.intel.com"],
        ..KubernetesNames::NONE
    },
    detect,
    declared: None,
    monitor: Some(Monitor {
        is_available: |_| true,
        holders: |host, device| host.openers(&device.nodes).filter(|_| !device.nodes.is_empty()).map(Holders::together),
        usage: usages,
        unlisted: |_, _| None,
        // It looks through the open files of all processes: 0.2 % of a processor.
        rest: 500,
        hear_errors: |_, _, _| (),
        check: None,
        health: None,
        look_at: "`xpu-smi`, `dmesg`",
    }),
};

const TYPES: &[(u16, &str)] = &[
    (0x0bd5, "Intel-GPU-Max-1550"),
    (0x0bd6, "Intel-GPU-Max-1550"),
    (0x0bd9, "Intel-GPU-Max-1100"),
    (0x0bda, "Intel-GPU-Max-1100"),
    (0x0bdb, "Intel-GPU-Max-1100"),
    (0x56c0, "Intel-GPU-Flex-170"),
    (0x56c1, "Intel-GPU-Flex-140"),
];

fn preset(environment: Lookup<'_>) -> Option<Preset> {
    match (listed(environment, OUTER), selected(environment)) {
        (Some(outer), Some(inner)) => Some(nested(&outer, inner)),
        (outer, inner) => outer.or(inner),
    }
}

// A selector may also name kinds of devices (`level_zero:gpu`, `opencl:*`): those list none and restrict nothing here.
fn selected(environment: Lookup<'_>) -> Option<Preset> {
    let selector = environment(INNER)?;
    let ids = entries(selector.strip_prefix(BACKEND).unwrap_or(&selector));
    let numbers = |id: &String| id.trim().split('.').all(|part| part.parse::<u32>().is_ok());
    ids.iter().all(numbers).then(|| Preset::new(INNER, ids))
}

fn show(assignment: &Assignment<'_>) -> Changes {
    let ids = assignment.joined();
    let inner = if assignment.detected > 0 { format!("{BACKEND}{}", assignment.ordinals()) } else { ids.clone() };
    vec![(OUTER.to_owned(), Some(ids)), (INNER.to_owned(), Some(inner))]
}

fn type_name(device: u16) -> Option<String> {
    TYPES.iter().find(|(id, _)| *id == device).map(|(_, name)| (*name).to_owned())
}

fn detect(host: &dyn HostFacts, findings: &mut Findings) -> Option<Detected> {
    let one_per_card = host.variable(HIERARCHY).is_some_and(|value| value.eq_ignore_ascii_case("COMPOSITE"));
    let openable = host.list_numbered("/dev/dri", "renderD");
    let mut devices = Vec::new();
    let mut first = None;
    for function in host.pci().iter().filter(|function| function.vendor == VENDOR && function.class >> 8 == 0x03) {
        let what = || format!("Intel device {}", function.address);
        // Graphics built into a processor always sits on bus 0.
        if function.bus() == Some(0) {
            findings.rule_out(what(), "graphics built into the processor");
        } else if !matches!(function.driver.as_deref(), Some("xe" | "i915")) {
            findings.rule_out(what(), "no driver that computes (xe or i915) is bound to it");
        } else if !render_nodes(host, function).iter().any(|number| openable.contains(number)) {
            findings.rule_out(what(), "no device node in `/dev/dri`: it is not given to this container");
        } else {
            let name = type_name(function.device);
            first.get_or_insert_with(|| name.clone());
            let tiles = if one_per_card { 1 } else { tiles(host, function) };
            devices.extend((0..tiles).map(|tile| Device {
                name: name.as_ref().map(|name| if tiles > 1 { format!("{name} tile {tile}") } else { name.clone() }),
                pci_address: Some(function.address.clone()),
                numa_node: function.numa_node,
                // Tiles of one card share its nodes.
                nodes: of_drm(host, &function.address),
                ..Device::default()
            }));
        }
    }
    for (index, device) in devices.iter_mut().enumerate() {
        device.index = index;
    }
    Some(Detected::of_devices(&FAMILY, devices, "PCI ids and the driver bound to them")?.with_type(first.flatten()))
}

fn render_nodes(host: &dyn HostFacts, function: &PciFunction) -> Vec<u32> {
    host.list_numbered(&format!("/sys/bus/pci/devices/{}/drm", function.address), "renderD")
}

// `xe` shows a folder per tile, `i915` one per graphics engine, of which these cards have one per tile.
fn tiles(host: &dyn HostFacts, function: &PciFunction) -> usize {
    let folder = format!("/sys/bus/pci/devices/{}", function.address);
    let by_xe = host.list_numbered(&folder, "tile").len();
    let by_i915 = host
        .list_numbered(&format!("{folder}/drm"), "card")
        .first()
        .map_or(0, |card| host.list_numbered(&format!("{folder}/drm/card{card}/gt"), "gt").len());
    by_xe.max(by_i915).max(1)
}

fn usages(host: &dyn HostFacts, devices: &[Watched]) -> Vec<Option<Usage>> {
    let nodes: Vec<DeviceNode> = devices.iter().flat_map(|device| device.nodes.iter().cloned()).collect();
    let openers = host.openers(&nodes).unwrap_or_default();
    let of = |device: &Watched| {
        let address = device.pci_address.as_deref()?;
        let memory = openers.iter().map(|pid| ProcessMemory {
            pid: *pid,
            bytes: drm::memory_of(host, *pid, address, OWN_MEMORY),
            ..ProcessMemory::default()
        });
        let processes: Vec<ProcessMemory> = memory.filter(|process| process.bytes > 0).collect();
        (!processes.is_empty()).then(|| Usage { processes, ..Usage::default() })
    };
    devices.iter().map(of).collect()
}
