//! Looking for every family on a machine.
//!
//! 1. `DETECT-1`: all families are looked for, always in the order of [`FAMILIES`], and all that are there are reported.
//! 2. `DETECT-2`: a device counts only where a process can open it. One that is on the bus and has no device node (not
//!    given to this container, no driver) is ruled out, with the reason.
//! 3. `DETECT-3`: nothing is left out silently: what looks like an accelerator and is not counted is in
//!    [`Detection::ruled_out`], and what the user should act on is in [`Detection::warnings`].
//! 4. `DETECT-4`: a device that the control group of this process refuses, as that of a Slurm step does for what the step was
//!    not granted, is ruled out where the vendor's library does not count it either: numbers in variables then count from
//!    the first one that is left.

use oxiray_families::{
    Detected, Device, FAMILIES, Family, Findings, GPU, HostFacts as _, Pair, RuledOut, bus_pairs, existing_nodes,
};
use std::collections::BTreeMap;

use serde::Serialize;

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
    let found = FAMILIES.iter().filter_map(|family| {
        let detected = with_pairs(host, (family.detect)(host, &mut findings)?);
        let detected = without_refused(host, detected, &mut findings)?;
        Some(Detected { shared_nodes: existing_nodes(host, family.shared_nodes), ..detected })
    });
    let families = found.collect();
    let mut detection = Detection { families, warnings: findings.warnings, ruled_out: findings.ruled_out };
    note_shared_resource(&mut detection, host);
    detection
}

/// Where the family does not tell how its devices are connected, the bus does.
fn with_pairs(host: &Host, detected: Detected) -> Detected {
    let pairs = if detected.pairs.is_empty() { bus_pairs(host, &detected.devices) } else { detected.pairs };
    Detected { pairs, ..detected }
}

/// DETECT-4.
fn without_refused(host: &Host, detected: Detected, findings: &mut Findings) -> Option<Detected> {
    let family = detected.family;
    let refused = |device: &Device| device.nodes.iter().find(|node| host.is_refused(node)).cloned();
    let is_counted_by_device = detected.count == detected.devices.len();
    if !family.fencing.renumbers || !is_counted_by_device || !detected.devices.iter().any(|one| refused(one).is_some())
    {
        return Some(detected);
    }
    let (mut kept, mut places) = (Vec::new(), BTreeMap::new());
    for device in detected.devices {
        let Some(node) = refused(&device) else {
            places.insert(device.index, kept.len());
            kept.push(Device { index: kept.len(), ..device });
            continue;
        };
        let why = format!("the control group of this process refuses it `{}`", node.path);
        findings.rule_out(format!("{} {}", family.name, device.index), why);
    }
    let moved = |pair: Pair| Some(Pair { one: *places.get(&pair.one)?, other: *places.get(&pair.other)?, ..pair });
    let pairs = detected.pairs.into_iter().filter_map(moved).collect();
    (!kept.is_empty()).then_some(Detected { count: kept.len(), devices: kept, pairs, ..detected })
}

// One resource maps to one vendor's variables, so only one vendor's GPUs can be offered.
fn note_shared_resource(detection: &mut Detection, host: &Host) {
    let found: Vec<&Detected> = detection.families.iter().filter(|one| *one.family.resource == GPU).collect();
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
