//! Huawei Ascend, counted by its device nodes and named by `npu-smi`, which also says how they are and how much they are used.

use crate::detected::{Detected, Device, Findings};
use crate::family::{Family, Fencing};
use crate::health::{DriverWord, Health};
use crate::host::HostFacts;
use crate::kubernetes::{KubernetesNames, PodResource};
use crate::monitor::{Holders, Monitor, Usage, Watched};
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
        lists_uuids: false,
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
    monitor: Some(Monitor {
        is_available: |_| true,
        holders: |host, device| host.openers(&device.nodes).filter(|_| !device.nodes.is_empty()).map(Holders::together),
        usage: usages,
        unlisted: |_, _| None,
        // The command takes about a second.
        rest: 60,
        hear_errors: |_, _, _| (),
        check: None,
        health: Some("`npu-smi`"),
        look_at: "`npu-smi`, `dmesg`",
    }),
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
            let device = told.get(index).map(|row| row.device.clone()).unwrap_or_default();
            let numa_node = host
                .pci()
                .iter()
                .find(|function| Some(&function.address) == device.pci_address.as_ref())
                .and_then(|function| function.numa_node);
            let nodes = existing(host, [format!("/dev/davinci{}", nodes[index])]);
            Device { index, numa_node, nodes, ..device }
        })
        .collect();
    let type_name = told.first().and_then(|row| row.device.name.as_deref()).map(chip_name);
    let how = if told.is_empty() { "`/dev/davinci*`" } else { "`/dev/davinci*` and `npu-smi`" };
    Some(Detected::of_devices(&FAMILY, devices, how)?.with_type(type_name))
}

// `npu-smi` says `910B4` for what the runtime library calls `Ascend910B4`.
fn chip_name(name: &str) -> String {
    if name.starts_with("Ascend") { name.to_owned() } else { format!("Ascend{name}") }
}

/// What `npu-smi info` says of a device.
#[derive(Default)]
struct Row {
    device: Device,
    usage: Usage,
}

/// The devices in the table of `npu-smi info`: two rows each, the first with number, name and condition, the second with the
/// PCI address, how busy it is and, last, the memory as `used / total` in MiB.
fn parse(output: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for line in output.lines() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [first, second, last] = cells[..] else { continue };
        let mut words = first.split_whitespace();
        if words.next().is_none_or(|number| number.parse::<u32>().is_err()) {
            continue;
        }
        // The list of processes below the table has rows of other widths; a device's second row has its PCI address.
        match (words.next(), second.matches(':').count()) {
            (Some(name), 0) => rows.push(Row {
                device: Device { name: Some(name.to_owned()), ..Device::default() },
                usage: Usage {
                    health: Health { condition: condition(second), ..Health::default() },
                    ..Usage::default()
                },
            }),
            (_, 2) => {
                let Some(row) = rows.last_mut() else { continue };
                row.device.pci_address = Some(second.to_ascii_lowercase());
                let mut sizes = last.rsplit('/').map(|size| size.split_whitespace().next_back()?.parse::<u64>().ok());
                let (total, used) = (sizes.next().flatten(), sizes.next().flatten());
                row.device.memory_bytes = total.filter(|size| *size > 0).map(|size| size << 20);
                row.usage.total_bytes = row.device.memory_bytes;
                row.usage.used_bytes = used.filter(|_| row.device.memory_bytes.is_some()).map(|size| size << 20);
                row.usage.busy_percent = last.split_whitespace().next().and_then(|percent| percent.parse().ok());
            }
            _ => {}
        }
    }
    rows.retain(|row| row.device.pci_address.is_some());
    rows
}

/// What the command calls a device's condition. With a warning it goes on.
fn condition(word: &str) -> Option<DriverWord> {
    match word {
        "OK" | "Warning" => Some(DriverWord::Works),
        "Alarm" | "Critical" => Some(DriverWord::Fails(format!("`npu-smi` calls its condition `{word}`"))),
        _ => None,
    }
}

fn usages(host: &dyn HostFacts, devices: &[Watched]) -> Vec<Option<Usage>> {
    let told = host.run(PROGRAMS, &["info"]).ok().flatten().map(|output| parse(&output)).unwrap_or_default();
    let of = |device: &Watched| {
        let address = device.pci_address.as_ref()?;
        told.iter().find(|row| row.device.pci_address.as_ref() == Some(address)).map(|row| row.usage.clone())
    };
    devices.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_says_how_a_device_is() {
        let table = "| 0     910B4  | Critical      | 86.6        40                0    / 0     |\n\
                     | 0            | 0000:C1:00.0  | 17          0    / 0          3391 / 32768 |\n\
                     | 1     910B4  | UNKNOWN       | 86.6        40                0    / 0     |\n\
                     | 0            | 0000:C2:00.0  | 0           0    / 0          0    / 0     |\n\
                     | 0       0    | 4242          | python3     | 1024                         |\n";
        let rows = parse(table);
        assert_eq!(rows.len(), 2);
        let Usage { busy_percent, used_bytes, total_bytes, ref health, .. } = rows[0].usage;
        assert_eq!((busy_percent, used_bytes, total_bytes), (Some(17), Some(3391 << 20), Some(32 << 30)));
        let Some(DriverWord::Fails(words)) = &health.condition else { panic!("{health:?}") };
        assert!(words.contains("`Critical`"), "{words}");
        assert!(!rows[1].usage.health.is_told(), "it is not called well");
        assert_eq!([condition("OK"), condition("Warning")], [Some(DriverWord::Works), Some(DriverWord::Works)]);
    }
}
