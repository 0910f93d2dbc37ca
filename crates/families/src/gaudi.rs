//! Intel Gaudi, found on the PCI bus and counted by its device nodes.
//!
//! One process at a time can open a device to compute with it, and some generations are reset after each; the driver says so
//! in the device's `status`, as it says whether the device works.

use crate::detected::{Detected, Device, Findings};
use crate::family::{Family, Fencing};
use crate::health::{DriverWord, Health};
use crate::host::HostFacts;
use crate::kubernetes::{KubernetesNames, PodResource};
use crate::monitor::{Holders, Monitor, Usage, Watched};
use crate::nodes::{DeviceNode, existing};
use crate::pci::PciFunction;
use crate::quantity::QuantityRule;
use crate::resource::DeviceResource;
use crate::visibility::{Assignment, Changes, Visibility, listed};

/// The maker's number on the PCI bus.
const VENDOR: u16 = 0x1da3;
const VARIABLE: &str = "HABANA_VISIBLE_MODULES";
const PROGRAMS: &[&str] = &["hl-smi", "/usr/bin/hl-smi"];
const QUERY: &[&str] = &["-Q", "index,name,uuid,bus_id,memory.total", "-f", "csv,noheader,nounits"];

/// What the number of a device follows in the path of the node to compute with.
const NODE: &str = "/dev/accel/accel";
/// What the driver calls a device that is about to work by itself.
const BUSY: &[&str] = &["in reset after device release", "in reset", "in device creation"];

/// The first generation of Habana's chips only infers and is no Gaudi.
const GOYA: u16 = 0x0001;

pub(crate) static FAMILY: Family = Family {
    key: "gaudi",
    name: "Intel Gaudi",
    resource: &DeviceResource { name: "HPU", option: None, quantity: QuantityRule::Whole, torch: Some("hpu") },
    parts: None,
    pci_vendor: VENDOR,
    nodes: &["/dev/accel", "/dev/hl"],
    shared_nodes: &[],
    fencing: Fencing::PLAIN,
    visibility: Visibility {
        variables: &[VARIABLE],
        joined: &[VARIABLE],
        companions: &[],
        opt_outs: &["RAY_EXPERIMENTAL_NOSET_HABANA_VISIBLE_MODULES"],
        lists_uuids: false,
        hidden: Some(""),
        preset: |environment| listed(environment, VARIABLE),
        show,
    },
    constant_type: None,
    type_aliases: &[],
    kubernetes: KubernetesNames {
        resources: &[PodResource::devices("habana.ai/gaudi")],
        classes: &["gaudi.intel.com"],
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
        health: Some("habanalabs: the device's `status`"),
        look_at: "`hl-smi`, `dmesg`",
    }),
};

fn show(assignment: &Assignment<'_>) -> Changes {
    vec![(VARIABLE.to_owned(), Some(assignment.joined()))]
}

fn detect(host: &dyn HostFacts, findings: &mut Findings) -> Option<Detected> {
    let (old, on_bus): (Vec<_>, Vec<_>) = host
        .pci()
        .iter()
        .filter(|function| function.vendor == VENDOR && function.computes())
        .partition(|function| function.device == GOYA);
    for function in old {
        findings.rule_out(format!("Habana device {}", function.address), "a Goya, which is no Gaudi");
    }
    if on_bus.is_empty() {
        return None;
    }
    let nodes = device_nodes(host);
    if nodes < on_bus.len() {
        findings.rule_out(
            format!("{} of {} Gaudi devices", on_bus.len() - nodes, on_bus.len()),
            "no device node: they are not given to this container, or their driver (habanalabs) is not loaded",
        );
    }
    let told = match host.run(PROGRAMS, QUERY) {
        Ok(output) => output.as_deref().map(parse).unwrap_or_default(),
        Err(reason) => {
            findings.warn(format!("{reason}; what is known of the Gaudi devices is from the PCI bus"));
            Vec::new()
        }
    };
    let devices: Vec<Device> = on_bus
        .iter()
        .take(nodes)
        .enumerate()
        .map(|(index, function)| {
            let more = told.iter().find(|device| device.pci_address.as_deref() == Some(&*function.address));
            Device {
                index,
                pci_address: Some(function.address.clone()),
                numa_node: function.numa_node,
                nodes: own_nodes(host, &function.address),
                ..more.cloned().unwrap_or_default()
            }
        })
        .collect();
    let type_name = devices.first().and_then(|device| generation(on_bus[0], device.name.as_deref()));
    let how = if told.is_empty() { "PCI ids and device nodes" } else { "PCI ids, device nodes and `hl-smi`" };
    let type_name = type_name.map(|generation| format!("Intel-{generation}"));
    Some(Detected::of_devices(&FAMILY, devices, how)?.with_type(type_name))
}

// The driver's nodes are `/dev/accel/accel0` today and were `/dev/hl0` before.
fn device_nodes(host: &dyn HostFacts) -> usize {
    let is_gaudi = |number: &u32| {
        let vendor = host.read_number(&format!("/sys/class/accel/accel{number}/device/vendor"));
        vendor == Some(u64::from(VENDOR))
    };
    let new = host.list_numbered("/dev/accel", "accel").iter().filter(|number| is_gaudi(number)).count();
    new.max(host.list_numbered("/dev", "hl").len())
}

/// Whoever has the node open to compute with. Those that only ask the device something have the other one open.
fn holders(host: &dyn HostFacts, device: &Watched) -> Option<Holders> {
    let number = device.number_after(NODE)?;
    let computing: Vec<DeviceNode> =
        device.nodes.iter().filter(|node| node.path == format!("{NODE}{number}")).cloned().collect();
    let (status, openers) = (status(host, device), host.openers(&computing));
    if status.is_none() && openers.is_none() {
        return None;
    }
    let is_busy = status.is_some_and(|status| BUSY.contains(&&*status));
    Some(Holders { processes: openers.unwrap_or_default(), is_exclusive: true, is_busy })
}

fn status(host: &dyn HostFacts, device: &Watched) -> Option<String> {
    let number = device.number_after(NODE)?;
    host.read(&format!("/sys/class/accel/accel{number}/device/status")).filter(|status| !status.is_empty())
}

fn usage(host: &dyn HostFacts, device: &Watched) -> Option<Usage> {
    let status = status(host, device)?;
    let works = status == "operational" || BUSY.contains(&&*status);
    let condition =
        if works { DriverWord::Works } else { DriverWord::Fails(format!("its driver calls it `{status}`")) };
    Some(Usage { health: Health { condition: Some(condition), ..Health::default() }, ..Usage::default() })
}

/// The nodes of the device at a place on the bus: the one to compute with, and the one to ask it.
fn own_nodes(host: &dyn HostFacts, address: &str) -> Vec<DeviceNode> {
    let numbers = host.list_numbered(&format!("/sys/bus/pci/devices/{address}/accel"), "accel");
    let paths = numbers
        .iter()
        .flat_map(|number| [format!("/dev/accel/accel{number}"), format!("/dev/accel/accel_controlD{number}")]);
    existing(host, paths)
}

/// The name that Habana's library gives the generation, known by the chip's PCI id or the board's name (`HL-225`).
fn generation(function: &PciFunction, board: Option<&str>) -> Option<&'static str> {
    match function.device {
        0x1000 | 0x1010 => return Some("GAUDI"),
        0x1020 => return Some("GAUDI2"),
        0x1060 => return Some("GAUDI3"),
        _ => {}
    }
    match board?.strip_prefix("HL-")?.chars().next()? {
        '2' if board?.starts_with("HL-20") => Some("GAUDI"),
        '2' => Some("GAUDI2"),
        '3' => Some("GAUDI3"),
        _ => None,
    }
}

/// Lines of `index, name, uuid, bus_id, memory in MiB`.
fn parse(output: &str) -> Vec<Device> {
    output
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(',').map(str::trim);
            let _index: u32 = fields.next()?.parse().ok()?;
            let mut text = || fields.next().filter(|field| !field.is_empty()).map(str::to_owned);
            Some(Device {
                name: text(),
                uuid: text(),
                pci_address: text().map(|address| address.to_ascii_lowercase()),
                memory_bytes: text()
                    .and_then(|size| size.split(' ').next()?.parse::<u64>().ok())
                    .map(|size| size << 20),
                ..Device::default()
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_command() {
        let devices =
            parse("0, HL-225, 01P4-HL2080A0, 0000:19:00.0, 98304\nnonsense\n1, HL-225, , 0000:B3:00.0, 98304 MiB\n");
        assert_eq!(devices.len(), 2);
        assert_eq!(devices[0].memory_bytes, Some(96 << 30));
        assert_eq!(devices[1].uuid, None);
        assert_eq!(devices[1].pci_address.as_deref(), Some("0000:b3:00.0"));
        assert_eq!(devices[1].memory_bytes, Some(96 << 30));
    }

    #[test]
    fn generations() {
        let function = |device| PciFunction {
            address: "0000:19:00.0".to_owned(),
            vendor: VENDOR,
            device,
            class: 0x1200,
            numa_node: None,
            driver: None,
            above: Vec::new(),
        };
        let cases = [
            (0x1000, None, Some("GAUDI")),
            (0x1020, Some("HL-225"), Some("GAUDI2")),
            (0x1060, None, Some("GAUDI3")),
            (0x9999, Some("HL-205"), Some("GAUDI")),
            (0x9999, Some("HL-225H"), Some("GAUDI2")),
            (0x9999, Some("HL-338"), Some("GAUDI3")),
            (0x9999, Some("HL-100"), None),
            (0x9999, None, None),
        ];
        for (device, board, expected) in cases {
            assert_eq!(generation(&function(device), board), expected, "{device:x} {board:?}");
        }
    }
}
