//! Huawei Ascend, counted by its device nodes and named by `npu-smi`.

use crate::detected::{Detected, Device, Findings};
use crate::family::{Family, Fencing};
use crate::host::HostFacts;
use crate::kubernetes::{KubernetesNames, PodResource};
use crate::nodes::existing;
use crate::quantity::QuantityRule;
use crate::resource::DeviceResource;
use crate::visibility::{Assignment, Changes, Visibility, listed};

/// The maker's number on the PCI bus.
const VENDOR: u16 = 0x19e5;
const VARIABLE: &str = "ASCEND_RT_VISIBLE_DEVICES";
const PROGRAMS: &[&str] = &["npu-smi", "/usr/local/sbin/npu-smi", "/usr/local/bin/npu-smi"];

pub(crate) static FAMILY: Family = Family {
    key: "ascend",
    name: "Huawei Ascend",
    resource: &DeviceResource { name: "NPU", option: None, quantity: QuantityRule::Shares, torch: Some("npu") },
    parts: None,
    pci_vendor: VENDOR,
    nodes: &["/dev/davinci"],
    shared_nodes: &["/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"],
    fencing: Fencing::PLAIN,
    visibility: Visibility {
        variables: &[VARIABLE],
        joined: &[VARIABLE],
        companions: &[],
        opt_outs: &["RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES"],
        hidden: Some(""),
        preset: |environment| listed(environment, VARIABLE),
        show,
    },
    constant_type: None,
    type_aliases: &[],
    kubernetes: KubernetesNames {
        resources: &[PodResource::devices("huawei.com/Ascend*")],
        classes: &["npu.huawei.com"],
        ..KubernetesNames::NONE
    },
    detect,
    declared: None,
    monitor: None,
};

fn show(assignment: &Assignment<'_>) -> Changes {
    vec![(VARIABLE.to_owned(), Some(assignment.joined()))]
}

fn detect(host: &dyn HostFacts, findings: &mut Findings) -> Option<Detected> {
    // The numbered nodes are devices; `davinci_manager` is none.
    let nodes = host.list_numbered("/dev", "davinci");
    let on_bus = host.pci().iter().filter(|function| function.vendor == VENDOR && function.computes()).count();
    if nodes.is_empty() {
        if on_bus > 0 {
            let why =
                "no `/dev/davinci0` or the like: they are not given to this container, or their driver is not loaded";
            findings.rule_out(format!("{on_bus} Huawei devices"), why);
        }
        return None;
    }
    let told = match host.run(PROGRAMS, &["info"]) {
        Ok(Some(output)) => parse(&output),
        Ok(None) => Vec::new(),
        Err(reason) => {
            findings.warn(format!("{reason}; the type of the Ascend devices is not known"));
            Vec::new()
        }
    };
    let devices: Vec<Device> = (0..nodes.len())
        .map(|index| {
            let device = told.get(index).cloned().unwrap_or_default();
            let numa_node = host
                .pci()
                .iter()
                .find(|function| Some(&function.address) == device.pci_address.as_ref())
                .and_then(|function| function.numa_node);
            let nodes = existing(host, [format!("/dev/davinci{}", nodes[index])]);
            Device { index, numa_node, nodes, ..device }
        })
        .collect();
    let type_name = told.first().and_then(|device| device.name.as_deref()).map(chip_name);
    let how = if told.is_empty() { "`/dev/davinci*`" } else { "`/dev/davinci*` and `npu-smi`" };
    Some(Detected::of_devices(&FAMILY, devices, how)?.with_type(type_name))
}

// `npu-smi` says `910B4` for what the runtime library calls `Ascend910B4`.
fn chip_name(name: &str) -> String {
    if name.starts_with("Ascend") { name.to_owned() } else { format!("Ascend{name}") }
}

/// The devices in the table of `npu-smi info`: two rows each, the first with number and name, the second with the PCI
/// address and, last, the memory as `used / total` in MiB.
fn parse(output: &str) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    for line in output.lines() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [first, second, last] = cells[..] else { continue };
        let mut words = first.split_whitespace();
        if words.next().is_none_or(|number| number.parse::<u32>().is_err()) {
            continue;
        }
        // The list of processes below the table has rows of other widths; a device's second row has its PCI address.
        match (words.next(), second.matches(':').count()) {
            (Some(name), 0) => devices.push(Device { name: Some(name.to_owned()), ..Device::default() }),
            (_, 2) => {
                let Some(device) = devices.last_mut() else { continue };
                device.pci_address = Some(second.to_ascii_lowercase());
                let total = last.rsplit('/').next().and_then(|size| size.trim().parse::<u64>().ok());
                device.memory_bytes = total.filter(|size| *size > 0).map(|size| size << 20);
            }
            _ => {}
        }
    }
    devices.retain(|device| device.pci_address.is_some());
    devices
}
