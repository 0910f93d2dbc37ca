//! AWS Neuron: devices of several cores each, of which the cores are what is counted.
//!
//! While a node runs, `neuron-ls` lists the processes of each device, and the driver counts the errors of its memories that
//! could not be corrected: in a file of that name, or in `total` in a folder of that name.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::detected::{Detected, Device, Findings};
use crate::family::{Family, Fencing};
use crate::health::Health;
use crate::host::HostFacts;
use crate::kubernetes::{KubernetesNames, PodResource, PodUnit};
use crate::monitor::{Holders, Monitor, Usage, Watched};
use crate::nodes::existing;
use crate::quantity::QuantityRule;
use crate::resource::DeviceResource;
use crate::visibility::{Assignment, Changes, Lookup, Preset, Visibility, listed};

/// The maker's number on the PCI bus.
const VENDOR: u16 = 0x1d0f;
const VARIABLE: &str = "NEURON_RT_VISIBLE_CORES";
const PROGRAMS: &[&str] = &["/opt/aws/neuron/bin/neuron-ls"];
const KERNEL_FOLDER: &str = "/sys/devices/virtual/neuron_device";
const NODE: &str = "/dev/neuron";
/// The counters of errors that could not be corrected, each with the part whose they are.
const COUNTERS: [(&str, &str); 2] = [("mem_ecc_uncorrected", "memory"), ("sram_ecc_uncorrected", "SRAM")];

/// Cores of one chip, by the family of the machine. Where the machine is not named it has the most common number.
const CHIP: PodUnit = PodUnit::Chip {
    by_machine: &[("inf1.", 4.0), ("inf2.", 2.0), ("trn1.", 2.0), ("trn1n.", 2.0), ("trn2", 8.0)],
    common: 2.0,
};

/// The most cores that one range may name; the largest machine has 128.
const RANGE_CORES_MAX: u32 = 4096;

pub(crate) static FAMILY: Family = Family {
    key: "neuron",
    name: "AWS Neuron core",
    resource: &DeviceResource { name: "neuron_cores", option: None, quantity: QuantityRule::Whole, torch: None },
    parts: None,
    pci_vendor: VENDOR,
    nodes: &["/dev/neuron"],
    shared_nodes: &[],
    fencing: Fencing::PLAIN,
    visibility: Visibility {
        variables: &[VARIABLE],
        joined: &[],
        companions: &[],
        opt_outs: &["RAY_EXPERIMENTAL_NOSET_NEURON_RT_VISIBLE_CORES"],
        lists_uuids: false,
        hidden: Some(""),
        preset,
        show,
    },
    constant_type: Some("aws-neuron-core"),
    type_aliases: &[],
    kubernetes: KubernetesNames {
        resources: &[
            PodResource::devices("aws.amazon.com/neuroncore"),
            PodResource { name: "aws.amazon.com/neurondevice", unit: CHIP },
            PodResource { name: "aws.amazon.com/neuron", unit: CHIP },
        ],
        classes: &["neuron.aws.com"],
        ..KubernetesNames::NONE
    },
    detect,
    declared: None,
    monitor: Some(Monitor {
        is_available: |_| true,
        holders,
        usage: |host, devices| devices.iter().map(|device| usage(host, device)).collect(),
        unlisted: |_, _| None,
        rest: 0,
        hear_errors: |_, _, _| (),
        check: None,
        health: Some("the driver's counts of errors of memory and SRAM that could not be corrected"),
        look_at: "`neuron-top`, `dmesg`",
    }),
};

fn preset(environment: Lookup<'_>) -> Option<Preset> {
    let list = listed(environment, VARIABLE)?;
    Some(Preset { ids: list.ids.iter().flat_map(|entry| cores(entry)).collect(), ..list })
}

// The Neuron runtime takes `0-3` for `0,1,2,3`.
fn cores(entry: &str) -> Vec<String> {
    let range = entry.split_once('-').and_then(|(first, last)| {
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last && last - first < RANGE_CORES_MAX).then_some(first..=last)
    });
    range.map_or_else(|| vec![entry.to_owned()], |range| range.map(|core| core.to_string()).collect())
}

fn show(assignment: &Assignment<'_>) -> Changes {
    vec![(VARIABLE.to_owned(), Some(assignment.joined()))]
}

/// One device as `neuron-ls --json-output` lists it; it says more, and more with every version.
#[derive(Deserialize)]
struct Listed {
    neuron_device: Option<u32>,
    bdf: Option<String>,
    nc_count: usize,
    memory_size: Option<u64>,
    #[serde(default)]
    neuron_processes: Vec<ListedProcess>,
}

/// A process that `neuron-ls` lists with a device.
#[derive(Deserialize)]
struct ListedProcess {
    pid: u32,
}

fn detect(host: &dyn HostFacts, findings: &mut Findings) -> Option<Detected> {
    let nodes = host.list_numbered("/dev", "neuron");
    if nodes.is_empty() {
        return None;
    }
    let (counted, how) = match ask(host) {
        Ok(Some(devices)) => (devices, "`neuron-ls`"),
        Ok(None) => (from_kernel(host, &nodes), KERNEL_FOLDER),
        Err(reason) => {
            findings.warn(format!("{reason}; the Neuron cores offered are those of {KERNEL_FOLDER}"));
            (from_kernel(host, &nodes), KERNEL_FOLDER)
        }
    };
    let count = counted.iter().map(|(cores, _)| cores).sum();
    if count == 0 {
        findings.warn(format!(
            "the machine has {} Neuron devices, but neither `neuron-ls` nor {KERNEL_FOLDER} says how many cores they have, \
             so none is offered; install aws-neuronx-tools, or ask for them by number",
            nodes.len()
        ));
        return None;
    }
    let devices = counted.into_iter().enumerate().map(|(index, (_, device))| Device { index, ..device }).collect();
    let detected = Detected::of_devices(&FAMILY, devices, how)?;
    Some(Detected { count, ..detected })
}

fn list(host: &dyn HostFacts) -> Result<Option<Vec<Listed>>, String> {
    let Some(output) = host.run(PROGRAMS, &["--json-output"])? else { return Ok(None) };
    let listed = serde_json::from_str(&output);
    listed.map(Some).map_err(|error| format!("`neuron-ls` prints something unexpected ({error})"))
}

fn ask(host: &dyn HostFacts) -> Result<Option<Vec<(usize, Device)>>, String> {
    let Some(listed) = list(host)? else { return Ok(None) };
    let device = |one: Listed| {
        let pci_address = one.bdf.map(|bdf| if bdf.len() == 7 { format!("0000:{bdf}") } else { bdf });
        let numa_node = pci_address.as_ref().and_then(|address| {
            host.pci().iter().find(|function| function.address == *address).and_then(|function| function.numa_node)
        });
        let nodes = existing(host, one.neuron_device.map(|number| format!("/dev/neuron{number}")));
        (
            one.nc_count,
            Device {
                pci_address,
                numa_node,
                memory_bytes: one.memory_size,
                nodes,
                units: Some(one.nc_count),
                ..Device::default()
            },
        )
    };
    Ok(Some(listed.into_iter().map(device).collect()))
}

fn from_kernel(host: &dyn HostFacts, nodes: &[u32]) -> Vec<(usize, Device)> {
    nodes
        .iter()
        .filter_map(|node| {
            let cores = host.read_number(&format!("{KERNEL_FOLDER}/neuron{node}/core_count"))?;
            let nodes = existing(host, [format!("/dev/neuron{node}")]);
            Some((cores as usize, Device { nodes, units: Some(cores as usize), ..Device::default() }))
        })
        .collect()
}

/// The processes that `neuron-ls` lists with the device of a core, and those that have its node open.
fn holders(host: &dyn HostFacts, core: &Watched) -> Option<Holders> {
    let number = core.number_after(NODE)?;
    let listed =
        list(host).ok().flatten().and_then(|all| all.into_iter().find(|one| one.neuron_device == Some(number)));
    let listed = listed.map(|one| one.neuron_processes.into_iter().map(|process| process.pid).collect::<Vec<_>>());
    let openers = host.openers(&core.nodes);
    if listed.is_none() && openers.is_none() {
        return None;
    }
    Some(Holders::together(listed.into_iter().chain(openers).flatten().collect()))
}

fn usage(host: &dyn HostFacts, core: &Watched) -> Option<Usage> {
    let folder = format!("{KERNEL_FOLDER}/neuron{}/stats/hardware", core.number_after(NODE)?);
    let counted = COUNTERS.iter().filter_map(|(name, part)| {
        let count = host.read_number(&format!("{folder}/{name}"));
        let count = count.or_else(|| host.read_number(&format!("{folder}/{name}/total")))?;
        Some(((*part).to_owned(), count))
    });
    let counted: BTreeMap<String, u64> = counted.collect();
    let is_told = !counted.is_empty();
    is_told.then(|| Usage { health: Health { uncorrected: Some(counted), ..Health::default() }, ..Usage::default() })
}
