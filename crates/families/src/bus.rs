//! How the devices of a family are connected over the bus, as the kernel shows it.

use crate::detected::Device;
use crate::host::HostFacts;
use crate::pairs::{BusWay, Pair};
use crate::pci::PciFunction;

/// How each two of these devices are connected, by their positions. Those whose places the kernel does not show are left out.
pub fn bus_pairs(host: &dyn HostFacts, devices: &[Device]) -> Vec<Pair> {
    let functions: Vec<Option<&PciFunction>> = devices.iter().map(|device| function_of(host, device)).collect();
    let later = |one: usize| (one + 1..devices.len()).map(move |other| (one, other));
    let pair = |(one, other): (usize, usize)| {
        let way = functions[one]?.way_to(functions[other]?)?;
        Some(Pair::on_bus(one, other, way))
    };
    (0..devices.len()).flat_map(later).filter_map(pair).collect()
}

/// What the way over the bus between two devices leads through at most, where their places are not known but their NUMA nodes
/// may be.
pub(crate) fn way_by_numa(one: &Device, other: &Device) -> BusWay {
    if one.numa_node == other.numa_node { BusWay::Numa } else { BusWay::System }
}

fn function_of<'a>(host: &'a dyn HostFacts, device: &Device) -> Option<&'a PciFunction> {
    let address = device.pci_address.as_ref()?;
    host.pci().iter().find(|function| function.address == *address)
}
