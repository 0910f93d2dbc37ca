//! The PCI bus as the kernel shows it in `/sys`: the word of the hardware itself, without any vendor's software.

use crate::host::Host;

const FOLDER: &str = "/sys/bus/pci/devices";

pub(crate) const NVIDIA: u16 = 0x10de;
pub(crate) const AMD: u16 = 0x1002;
pub(crate) const INTEL: u16 = 0x8086;
pub(crate) const GOOGLE: u16 = 0x1ae0;
pub(crate) const HABANA: u16 = 0x1da3;
pub(crate) const HUAWEI: u16 = 0x19e5;

/// One function of one PCI device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PciFunction {
    /// `0000:19:00.0`, in lower case.
    pub(crate) address: String,
    pub(crate) vendor: u16,
    pub(crate) device: u16,
    /// Base class and sub-class: `0x0302` is a 3D controller.
    pub(crate) class: u16,
    /// The NUMA node it hangs on, where the firmware says.
    pub(crate) numa_node: Option<u32>,
    /// The kernel driver bound to it.
    pub(crate) driver: Option<String>,
}

impl PciFunction {
    /// A display device or a processing accelerator, the two classes under which compute devices appear.
    pub(crate) fn computes(&self) -> bool {
        matches!(self.class >> 8, 0x03 | 0x12)
    }

    /// The number of its bus. Integrated devices sit on bus 0.
    pub(crate) fn bus(&self) -> Option<u8> {
        u8::from_str_radix(self.address.split(':').nth(1)?, 16).ok()
    }
}

pub(crate) fn scan(host: &Host) -> Vec<PciFunction> {
    host.list(FOLDER).iter().filter_map(|address| read(host, address)).collect()
}

fn read(host: &Host, address: &str) -> Option<PciFunction> {
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
