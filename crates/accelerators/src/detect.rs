//! Looking for every family on a machine.
//!
//! 1. `DETECT-1`: all families are looked for, always in the order of [`FAMILIES`], and all that are there are reported.
//! 2. `DETECT-2`: a device counts only where a process can open it. One that is on the bus and has no device node (not
//!    given to this container, no driver) is ruled out, with the reason.
//! 3. `DETECT-3`: nothing is left out silently: what looks like an accelerator and is not counted is in
//!    [`Detection::ruled_out`], and what the user should act on is in [`Detection::warnings`].

use std::collections::BTreeMap;

use serde::Serialize;

use crate::family::{FAMILIES, Family, GPU};
use crate::host::Host;
use crate::offer::gpu_family;

/// What accelerators a machine has.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Detection {
    /// The families that are there, in the order of [`FAMILIES`].
    pub families: Vec<Detected>,
    /// What the user should know and may want to act on.
    pub warnings: Vec<String>,
    /// What looked like an accelerator and is not counted.
    pub ruled_out: Vec<RuledOut>,
}

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
pub(crate) struct Findings {
    warnings: Vec<String>,
    ruled_out: Vec<RuledOut>,
}

impl Findings {
    pub(crate) fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    pub(crate) fn rule_out(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.ruled_out.push(RuledOut { what: what.into(), why: why.into() });
    }
}

impl Detected {
    /// A family found with one count per device; `None` where there is no device.
    pub(crate) fn of_devices(family: &'static Family, devices: Vec<Device>, how: impl Into<String>) -> Option<Self> {
        (!devices.is_empty()).then(|| Self {
            family,
            count: devices.len(),
            type_name: family.constant_type.map(str::to_owned),
            how: how.into(),
            devices,
            extra_resources: BTreeMap::new(),
            labels: BTreeMap::new(),
        })
    }

    pub(crate) fn with_type(mut self, type_name: Option<String>) -> Self {
        self.type_name = type_name;
        self
    }
}

impl Detection {
    /// What was found of a family.
    pub fn of(&self, family: &Family) -> Option<&Detected> {
        self.families.iter().find(|detected| detected.family == family)
    }

    /// How many devices of a family the machine really has.
    pub fn count(&self, family: &Family) -> usize {
        self.of(family).map_or(0, |detected| detected.count)
    }
}

/// Looks for every family on a machine.
pub fn detect(host: &Host) -> Detection {
    let mut findings = Findings::default();
    let families = FAMILIES.iter().filter_map(|family| (family.detect)(host, &mut findings)).collect();
    let mut detection = Detection { families, warnings: findings.warnings, ruled_out: findings.ruled_out };
    note_shared_resource(&mut detection, host);
    detection
}

// One resource maps to one vendor's variables, so only one vendor's GPUs can be offered.
fn note_shared_resource(detection: &mut Detection, host: &Host) {
    let found: Vec<&Detected> = detection.families.iter().filter(|one| one.family.resource == GPU).collect();
    if found.len() < 2 {
        return;
    }
    let Ok(offered) = gpu_family(detection, &|name| host.variable(name)) else { return };
    let others: Vec<String> = found
        .iter()
        .filter(|one| one.family != offered)
        .map(|one| format!("{} {}s (`{}`)", one.count, one.family.name, one.family.key))
        .collect();
    detection.warnings.push(format!(
        "this machine has GPUs of more than one vendor and `GPU` stands for its {}s; to offer its {} instead, set {}",
        offered.name,
        others.join(" or "),
        crate::offer::GPU_FAMILY_VARIABLE
    ));
}
