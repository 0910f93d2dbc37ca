//! What was found of a family, and what was noted on the way.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Recovery;
use crate::family::Family;
use crate::mig::MigInstance;
use crate::nodes::DeviceNode;
use crate::pairs::Pair;

/// The devices of one family on one machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Detected {
    /// The family.
    pub family: &'static Family,
    /// How many there are of the family's resource.
    pub count: usize,
    /// The type name of the first device, where it is known.
    pub type_name: Option<String>,
    /// How they were found.
    pub how: String,
    /// The devices, by index. A Neuron device has several cores, so it may count more than once.
    pub devices: Vec<Device>,
    /// How each two of them are connected, where that is known beyond their NUMA nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<Pair>,
    /// Device nodes that belong to all of them alike.
    pub shared_nodes: Vec<DeviceNode>,
    /// Resources that the machine offers besides, such as the name of its TPU slice.
    pub extra_resources: BTreeMap<String, f64>,
    /// Labels that the machine carries for them.
    pub labels: BTreeMap<String, String>,
}

/// What is known of one device.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Device {
    /// Its position among the family's devices.
    pub index: usize,
    /// The vendor's name for it.
    pub name: Option<String>,
    /// Its unique id.
    pub uuid: Option<String>,
    /// Its place on the PCI bus, as `0000:19:00.0`.
    pub pci_address: Option<String>,
    /// Its own memory.
    pub memory_bytes: Option<u64>,
    /// The NUMA node it hangs on.
    pub numa_node: Option<u32>,
    /// The device nodes that are its own, or the own ones of the board that it is a part of; empty where they are not known.
    pub nodes: Vec<DeviceNode>,
    /// How many of the family's resource it counts as, where that is not one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub units: Option<usize>,
    /// What it is cut into, where it is: it can be used in these parts only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<Vec<MigInstance>>,
    /// What its driver needs before all of it can be relied on; nothing where that is nothing, or not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<Recovery>,
    /// Whether its driver keeps it ready while nobody uses it (NVIDIA's persistence mode), where it tells that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_persistent: Option<bool>,
    /// How many pages of its memory were taken out of use for their errors, where it does that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retired_pages: Option<u64>,
}

/// Something that looked like an accelerator and is not counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuledOut {
    /// What it is.
    pub what: String,
    /// Why it is not counted.
    pub why: String,
}

/// Notes taken while looking.
#[derive(Debug, Default)]
pub struct Findings {
    /// What the user should know and may want to act on.
    pub warnings: Vec<String>,
    /// What looked like an accelerator and is not counted.
    pub ruled_out: Vec<RuledOut>,
}

impl Findings {
    /// Notes what the user should know.
    pub fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    /// Notes what is not counted, and why.
    pub fn rule_out(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.ruled_out.push(RuledOut { what: what.into(), why: why.into() });
    }
}

impl Detected {
    /// A family found with one count per device; `None` where there is no device.
    pub fn of_devices(family: &'static Family, devices: Vec<Device>, how: impl Into<String>) -> Option<Self> {
        (!devices.is_empty()).then(|| Self {
            family,
            count: devices.len(),
            type_name: family.constant_type.map(str::to_owned),
            how: how.into(),
            devices,
            pairs: Vec::new(),
            shared_nodes: Vec::new(),
            extra_resources: BTreeMap::new(),
            labels: BTreeMap::new(),
        })
    }

    /// So many devices that a machine is asked to offer, of which none was found.
    pub fn declared(family: &'static Family, count: usize) -> Self {
        Self {
            family,
            count,
            type_name: family.constant_type.map(str::to_owned),
            how: "declared".to_owned(),
            devices: Vec::new(),
            pairs: Vec::new(),
            shared_nodes: Vec::new(),
            extra_resources: BTreeMap::new(),
            labels: BTreeMap::new(),
        }
    }

    /// The same with this type name.
    #[must_use]
    pub fn with_type(mut self, type_name: Option<String>) -> Self {
        self.type_name = type_name;
        self
    }
}
