//! Looking for every family on a machine.
//!
//! 1. `DETECT-1`: all families are looked for, always in the order of [`FAMILIES`], and all that are there are reported.
//! 2. `DETECT-2`: a device counts only where a process can open it. One that is on the bus and has no device node (not
//!    given to this container, no driver) is ruled out, with the reason.
//! 3. `DETECT-3`: nothing is left out silently: what looks like an accelerator and is not counted is in
//!    [`Detection::ruled_out`], and what the user should act on is in [`Detection::warnings`].

use oxiray_families::{Detected, FAMILIES, Family, Findings, GPU, RuledOut, existing_nodes};
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
        let detected = (family.detect)(host, &mut findings)?;
        Some(Detected { shared_nodes: existing_nodes(host, family.shared_nodes), ..detected })
    });
    let families = found.collect();
    let mut detection = Detection { families, warnings: findings.warnings, ruled_out: findings.ruled_out };
    note_shared_resource(&mut detection, host);
    detection
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
