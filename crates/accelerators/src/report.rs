//! What `oxiray hardware` says of a machine: what was found and how, what was ruled out, and what to look at.

use std::fmt::Write as _;

use oxiray_families::mig::MigInstance;
use oxiray_families::{Detected, Device, DeviceNode, RuledOut};
use serde::Serialize;

use crate::detect::Detection;
use crate::host::Host;

const EXPECT: &str = "writing to a string does not fail";

/// The detection in words.
pub fn report(detection: &Detection, host: &Host) -> String {
    let mut text = format!("Accelerators of {}\n", host.description());
    if detection.families.is_empty() {
        text.push_str("\n  none found\n");
    }
    for detected in &detection.families {
        describe(&mut text, detected);
    }
    if !detection.ruled_out.is_empty() {
        text.push_str("\nRuled out\n");
        for one in &detection.ruled_out {
            writeln!(text, "  {}: {}", one.what, one.why).expect(EXPECT);
        }
    }
    if !detection.warnings.is_empty() {
        text.push_str("\nWarnings\n");
        for warning in &detection.warnings {
            writeln!(text, "  {warning}").expect(EXPECT);
        }
    }
    text
}

fn describe(text: &mut String, detected: &Detected) {
    let Detected { family, count, type_name, how, devices, shared_nodes, extra_resources, labels, pairs: _ } = detected;
    writeln!(text, "\n{}: {count} x {}", family.resource.name, type_name.as_deref().unwrap_or(family.name))
        .expect(EXPECT);
    writeln!(text, "  found by {how}").expect(EXPECT);
    writeln!(text, "  shown to programs by {}", family.visibility.variables.join(", ")).expect(EXPECT);
    let health = family.monitor.as_ref().and_then(|monitor| monitor.health);
    writeln!(text, "  health is told by {}", health.unwrap_or("nobody: it stays unknown")).expect(EXPECT);
    for device in devices {
        if let Some(line) = line(device) {
            writeln!(text, "  {line}").expect(EXPECT);
        }
        for instance in device.instances.iter().flatten() {
            writeln!(text, "      {}", line_of(instance)).expect(EXPECT);
        }
    }
    if !shared_nodes.is_empty() {
        writeln!(text, "  shared by all: {}", listed(shared_nodes)).expect(EXPECT);
    }
    for (name, quantity) in extra_resources {
        writeln!(text, "  also offers {quantity} of `{name}`").expect(EXPECT);
    }
    for (key, value) in labels {
        writeln!(text, "  label {key}={value}").expect(EXPECT);
    }
}

fn line_of(instance: &MigInstance) -> String {
    let memory = instance.memory_bytes.map(gibibytes);
    let nodes = Some(listed(&instance.nodes)).filter(|nodes| !nodes.is_empty());
    let facts = [Some(format!("MIG {}", instance.profile)), memory, instance.uuid.clone(), nodes];
    facts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn gibibytes(bytes: u64) -> String {
    format!("{:.0} GiB", bytes as f64 / f64::from(1 << 30))
}

fn line(device: &Device) -> Option<String> {
    let memory = device.memory_bytes.map(gibibytes);
    let numa_node = device.numa_node.map(|node| format!("NUMA node {node}"));
    let nodes = Some(listed(&device.nodes)).filter(|nodes| !nodes.is_empty());
    let needs = device.needs.map(|needs| format!("its driver needs {needs}"));
    let persistence =
        device.is_persistent.map(|is_on| format!("persistence mode {}", if is_on { "on" } else { "off" }));
    let retired = device.retired_pages.filter(|pages| *pages > 0);
    let retired = retired.map(|pages| format!("{pages} pages of its memory are out of use for their errors"));
    let (name, address, uuid) = (device.name.clone(), device.pci_address.clone(), device.uuid.clone());
    let facts = [name, memory, address, numa_node, uuid, nodes, persistence, retired, needs];
    let known: Vec<String> = facts.into_iter().flatten().collect();
    (!known.is_empty()).then(|| format!("[{}] {}", device.index, known.join(", ")))
}

fn listed(nodes: &[DeviceNode]) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The detection as JSON, for programs.
pub fn to_json(detection: &Detection, host: &Host) -> serde_json::Value {
    #[derive(Serialize)]
    struct Report<'a> {
        host: String,
        #[serde(rename = "accelerators")]
        families: &'a [Detected],
        ruled_out: &'a [RuledOut],
        warnings: &'a [String],
    }
    let Detection { families, warnings, ruled_out } = detection;
    serde_json::to_value(Report { host: host.description(), families, ruled_out, warnings })
        .expect("a report has only text keys and finite numbers")
}
