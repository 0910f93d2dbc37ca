//! The PCI bus as the kernel shows it in `/sys`: the word of the hardware itself, without any vendor's software.

use crate::host::HostFacts;

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
}

impl PciFunction {
    /// A display device or a processing accelerator, the two classes under which compute devices appear.
    pub fn computes(&self) -> bool {
        matches!(self.class >> 8, 0x03 | 0x12)
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
        address: address.to_ascii_lowercase(),
    })
}
