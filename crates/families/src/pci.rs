//! The PCI bus as the kernel shows it in `/sys`: the word of the hardware itself, without any vendor's software.

use crate::host::HostFacts;
use crate::pairs::BusWay;

const FOLDER: &str = "/sys/bus/pci/devices";

/// One function of one PCI device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciFunction {
    /// `0000:19:00.0`, in lower case.
    pub address: String,
    /// Who made it, by the number that the PCI consortium gave.
    pub vendor: u16,
    /// The vendor's number for it.
    pub device: u16,
    /// Base class and sub-class: `0x0302` is a 3D controller.
    pub class: u16,
    /// The NUMA node it hangs on, where the firmware says.
    pub numa_node: Option<u32>,
    /// The kernel driver bound to it.
    pub driver: Option<String>,
    /// What lies above it: the host bridge (`pci0000:16`), and below that the addresses of ports and switches; empty where the
    /// kernel does not show it.
    pub above: Vec<String>,
}

impl PciFunction {
    /// A display device or a processing accelerator, the two classes under which compute devices appear.
    pub fn computes(&self) -> bool {
        matches!(self.class >> 8, 0x03 | 0x12)
    }

    /// What the way to another one leads through; nothing where the place of one is not known.
    pub fn way_to(&self, other: &Self) -> Option<BusWay> {
        if self.above.is_empty() || other.above.is_empty() {
            return None;
        }
        if self.address.split_once('.').is_some_and(|(board, _)| other.address.starts_with(&format!("{board}."))) {
            return Some(BusWay::Board);
        }
        let shared = self.above.iter().zip(&other.above).take_while(|(one, other)| one == other).count();
        Some(match shared {
            0 if self.numa_node == other.numa_node => BusWay::Numa,
            0 => BusWay::System,
            1 => BusWay::HostBridge,
            // A switch is a port above and ports below, so that each further one is two steps more.
            _ if self.above.len().max(other.above.len()) - shared > 1 => BusWay::Switches,
            _ => BusWay::Switch,
        })
    }

    /// The number of its bus. Integrated devices sit on bus 0.
    pub fn bus(&self) -> Option<u8> {
        u8::from_str_radix(self.address.split(':').nth(1)?, 16).ok()
    }
}

/// Every function on the bus of a host.
pub fn scan(host: &dyn HostFacts) -> Vec<PciFunction> {
    host.list(FOLDER).iter().filter_map(|address| read(host, address)).collect()
}

fn read(host: &dyn HostFacts, address: &str) -> Option<PciFunction> {
    let folder = format!("{FOLDER}/{address}");
    let number = |name: &str| host.read_number(&format!("{folder}/{name}"));
    let driver = host
        .read(&format!("{folder}/uevent"))
        .and_then(|text| text.lines().find_map(|line| line.strip_prefix("DRIVER=").map(str::to_owned)));
    Some(PciFunction {
        vendor: u16::try_from(number("vendor")?).ok()?,
        device: u16::try_from(number("device")?).ok()?,
        class: u16::try_from(number("class")? >> 8).ok()?,
        // The kernel writes -1 where the firmware does not say.
        numa_node: number("numa_node").and_then(|node| u32::try_from(node).ok()),
        driver,
        above: above(host, &folder),
        address: address.to_ascii_lowercase(),
    })
}

/// The steps from the host bridge down to a function, by where the kernel's link to it leads:
/// `../../../devices/pci0000:16/0000:16:01.0/0000:17:00.0`.
fn above(host: &dyn HostFacts, folder: &str) -> Vec<String> {
    let Some(target) = host.link(folder) else { return Vec::new() };
    let steps: Vec<&str> = target.split('/').collect();
    let Some(first) = steps.iter().position(|step| step.starts_with("pci")) else { return Vec::new() };
    // The last one is the function itself.
    steps[first..steps.len() - 1].iter().map(|step| step.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str, numa_node: u32, above: &[&str]) -> PciFunction {
        let above = above.iter().map(|step| (*step).to_owned()).collect();
        let numa_node = Some(numa_node);
        PciFunction {
            address: address.to_owned(),
            vendor: 0x1002,
            device: 1,
            class: 0x1200,
            numa_node,
            driver: None,
            above,
        }
    }

    #[test]
    fn the_way_over_the_bus_is_what_the_two_do_not_share() {
        let root = ["pci0000:00", "0000:00:01.0", "0000:01:00.0"];
        let below = |port: &'static str| [&root[..], &[port]].concat();
        let first = at("0000:03:00.0", 0, &below("0000:02:00.0"));
        let second = at("0000:04:00.0", 0, &below("0000:02:01.0"));
        let farther = at("0000:07:00.0", 0, &[&below("0000:02:02.0")[..], &["0000:05:00.0", "0000:06:00.0"]].concat());
        let other_port = at("0000:08:00.0", 0, &["pci0000:00", "0000:00:02.0"]);
        let other_bridge = at("0000:41:00.0", 0, &["pci0000:40", "0000:40:01.0"]);
        let far = at("0000:81:00.0", 1, &["pci0000:80", "0000:80:01.0"]);
        let ways = [
            (at("0000:03:00.1", 0, &below("0000:02:00.0")), BusWay::Board),
            (second, BusWay::Switch),
            (farther, BusWay::Switches),
            (other_port, BusWay::HostBridge),
            (other_bridge, BusWay::Numa),
            (far, BusWay::System),
        ];
        for (other, way) in ways {
            assert_eq!([first.way_to(&other), other.way_to(&first)], [Some(way); 2], "{}", other.address);
        }
        assert_eq!(first.way_to(&at("0000:09:00.0", 0, &[])), None, "nobody shows where that one is");
    }
}
