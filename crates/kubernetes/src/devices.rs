//! The table of device names: what a resource of a pod, or a class of claimed devices, is to a program.
//!
//! A row is data. A name that is in no row counts for nothing but as itself; an operator can be given more rows.

use std::collections::BTreeMap;

/// What one unit of a pod's resource is to a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    /// The resource that programs ask for: `GPU`, `TPU`, `neuron_cores`, `HPU` or `NPU`.
    pub resource: String,
    /// How many of it one unit is.
    pub amount: f64,
    /// The profile of a part of a device, such as `1g.10gb`.
    pub profile: Option<String>,
}

/// Which resources are devices, in addition to those of the table: Kubernetes' name to the program's.
pub type MoreDevices = BTreeMap<String, String>;

/// Kubernetes' name, and what programs call it. A `*` at the end stands for anything.
const RESOURCES: &[(&str, &str)] = &[
    ("nvidia.com/gpu", "GPU"),
    ("nvidia.com/gpu.shared", "GPU"),
    ("nvidia.com/mig-*", "GPU"),
    ("amd.com/gpu", "GPU"),
    ("gpu.intel.com/i915", "GPU"),
    ("gpu.intel.com/xe", "GPU"),
    ("google.com/tpu", "TPU"),
    ("aws.amazon.com/neuroncore", "neuron_cores"),
    ("aws.amazon.com/neurondevice", "neuron_cores"),
    ("aws.amazon.com/neuron", "neuron_cores"),
    ("habana.ai/gaudi", "HPU"),
    ("huawei.com/Ascend*", "NPU"),
];

/// The names of device classes, as the vendors' drivers make them.
const CLASSES: &[(&str, &str)] = &[
    ("gpu.nvidia.com", "GPU"),
    ("mig.nvidia.com", "GPU"),
    ("vfio.gpu.nvidia.com", "GPU"),
    ("gpu.amd.com", "GPU"),
    ("gpu.intel.com", "GPU"),
    ("tpu.google.com", "TPU"),
    ("neuron.aws.com", "neuron_cores"),
    ("gaudi.intel.com", "HPU"),
    ("npu.huawei.com", "NPU"),
];

/// How the API names a class that has no extended resource of its own.
const CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// NeuronCores of one chip, by the family of the machine. Where the machine is not named it has the most common number.
const CORES_PER_CHIP: &[(&str, f64)] =
    &[("inf1.", 4.0), ("inf2.", 2.0), ("trn1.", 2.0), ("trn1n.", 2.0), ("trn2", 8.0)];
const CORES_PER_CHIP_COMMON: f64 = 2.0;

fn row(table: &[(&str, &str)], name: &str) -> Option<String> {
    let is_it = |known: &str| known.strip_suffix('*').map_or(known == name, |start| name.starts_with(start));
    table.iter().find(|(known, _)| is_it(known)).map(|(_, resource)| (*resource).to_owned())
}

/// What a unit of a container's resource is, on a machine of this type; `None` where it is no device.
pub(crate) fn unit_of(name: &str, machine: Option<&str>, more: &MoreDevices) -> Option<Unit> {
    let whole = |resource: String| Unit { resource, amount: 1.0, profile: None };
    if let Some(resource) = more.get(name) {
        return Some(whole(resource.clone()));
    }
    if let Some(class) = name.strip_prefix(CLASS_PREFIX) {
        return class_unit(class, more);
    }
    if let Some(profile) = name.strip_prefix("nvidia.com/mig-") {
        return Some(Unit { profile: Some(profile.to_owned()), ..whole("GPU".to_owned()) });
    }
    let resource = row(RESOURCES, name).or_else(|| name.ends_with("/gpu").then(|| "GPU".to_owned()))?;
    let is_chip = matches!(name, "aws.amazon.com/neurondevice" | "aws.amazon.com/neuron");
    Some(Unit { amount: if is_chip { cores_per_chip(machine) } else { 1.0 }, ..whole(resource) })
}

/// What a device of this class is; `None` where that is not known.
pub(crate) fn class_unit(class: &str, more: &MoreDevices) -> Option<Unit> {
    let resource = more.get(class).cloned().or_else(|| row(CLASSES, class))?;
    Some(Unit { resource, amount: 1.0, profile: None })
}

/// Whether the name is of a device of NVIDIA's.
pub(crate) fn is_nvidia(name: &str) -> bool {
    let name = name.strip_prefix(CLASS_PREFIX).unwrap_or(name);
    name.starts_with("nvidia.com/gpu") || name.starts_with("nvidia.com/mig-") || name.ends_with(".nvidia.com")
}

/// The taints that machines with this device commonly have.
pub(crate) fn taints_of(name: &str) -> Vec<String> {
    let name = name.strip_prefix(CLASS_PREFIX).unwrap_or(name);
    let vendors = [("nvidia.com", "nvidia.com/gpu"), ("amd.com", "amd.com/gpu"), ("google.com", "google.com/tpu")];
    let common = vendors.iter().find(|(vendor, _)| name.contains(vendor)).map(|(_, taint)| (*taint).to_owned());
    let own = name.contains('/').then(|| name.to_owned());
    let mut taints: Vec<String> = own.into_iter().chain(common).collect();
    taints.dedup();
    taints
}

fn cores_per_chip(machine: Option<&str>) -> f64 {
    let known = CORES_PER_CHIP.iter().find(|(family, _)| machine.is_some_and(|machine| machine.starts_with(family)));
    known.map_or(CORES_PER_CHIP_COMMON, |(_, cores)| *cores)
}
