//! Device nodes: the files in `/dev` through which a process reaches a device.
//!
//! Which nodes are a device's own is what each family knows (of a node that processes of several devices open, such as
//! `/dev/nvidiactl`, it says that it is shared). The kernel's numbers of a node come from the node itself and never from a
//! table: most drivers are given theirs when they are loaded.

use std::fmt;

use serde::Serialize;

use crate::host::HostFacts;

/// A character device's numbers, by which the kernel knows it whatever its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct NodeNumber {
    /// The driver's.
    pub major: u32,
    /// The driver's number for the device.
    pub minor: u32,
}

/// A device node of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceNode {
    /// Where it is, as `/dev/nvidia0`.
    pub path: String,
    /// Its numbers; `None` where a recorded machine does not tell them.
    #[serde(flatten)]
    pub number: Option<NodeNumber>,
}

impl fmt::Display for NodeNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.major, self.minor)
    }
}

impl fmt::Display for DeviceNode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.path)?;
        self.number.map_or(Ok(()), |number| write!(formatter, " {number}"))
    }
}

/// Those of `paths` that the host has.
pub fn existing<Path: AsRef<str>>(host: &dyn HostFacts, paths: impl IntoIterator<Item = Path>) -> Vec<DeviceNode> {
    paths.into_iter().filter_map(|path| host.node(path.as_ref())).collect()
}

/// The nodes in `/dev/dri` of the function at a place on the PCI bus.
pub(crate) fn of_drm(host: &dyn HostFacts, address: &str) -> Vec<DeviceNode> {
    let is_node = |name: &&String| {
        let number = name.strip_prefix("card").or_else(|| name.strip_prefix("renderD"));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let names = host.list(&format!("/sys/bus/pci/devices/{address}/drm"));
    existing(host, names.iter().filter(is_node).map(|name| format!("/dev/dri/{name}")))
}
