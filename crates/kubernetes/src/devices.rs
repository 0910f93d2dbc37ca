//! Names of devices: what a resource of a pod, or a class of claimed devices, is to a program.
//!
//! The names are those that the families of accelerators give. A name that no family has counts for nothing but as itself;
//! an operator can be given more.

use oxiray_families::{FAMILIES, Family, GPU, PodResource, PodUnit};
use std::collections::BTreeMap;

/// What one unit of a pod's resource is to a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    /// The resource that programs ask for, such as `GPU`.
    pub resource: String,
    /// How many of it one unit is.
    pub amount: f64,
    /// The profile of a part of a device, such as `1g.10gb`.
    pub profile: Option<String>,
}

/// Which resources are devices, in addition to those of the families: Kubernetes' name to the program's.
pub type MoreDevices = BTreeMap<String, String>;

/// How the API names a class that has no extended resource of its own.
const CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// Whether a name is what a pattern with a `*` at an end stands for.
fn is_like(pattern: &str, name: &str) -> bool {
    match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
        (Some(start), _) => name.starts_with(start),
        (None, Some(end)) => name.ends_with(end),
        (None, None) => name == pattern,
    }
}

/// The family that has a container's resource, and the resource.
fn pod_resource(name: &str) -> Option<(&'static Family, &'static PodResource)> {
    let resources =
        FAMILIES.iter().flat_map(|family| family.kubernetes.resources.iter().map(move |one| (*family, one)));
    resources.into_iter().find(|(_, resource)| is_like(resource.name, name))
}

/// What a unit of a container's resource is, on a machine of this type; `None` where it is no device.
pub(crate) fn unit_of(name: &str, machine: Option<&str>, more: &MoreDevices) -> Option<Unit> {
    let whole = |resource: &str| Unit { resource: resource.to_owned(), amount: 1.0, profile: None };
    if let Some(resource) = more.get(name) {
        return Some(whole(resource));
    }
    if let Some(class) = name.strip_prefix(CLASS_PREFIX) {
        return class_unit(class, more);
    }
    let Some((family, resource)) = pod_resource(name) else {
        // What other vendors call theirs.
        return name.ends_with("/gpu").then(|| whole(GPU.name));
    };
    let unit = whole(family.resource.name);
    Some(match resource.unit {
        PodUnit::Device => unit,
        PodUnit::Part => {
            let profile = name.strip_prefix(resource.name.trim_end_matches('*'));
            Unit { profile: profile.map(str::to_owned), ..unit }
        }
        PodUnit::Chip { by_machine, common } => {
            let known = by_machine.iter().find(|(start, _)| machine.is_some_and(|machine| machine.starts_with(start)));
            Unit { amount: known.map_or(common, |(_, devices)| *devices), ..unit }
        }
    })
}

/// What a device of this class is; `None` where that is not known.
pub(crate) fn class_unit(class: &str, more: &MoreDevices) -> Option<Unit> {
    let of_family = || FAMILIES.iter().find(|family| family.kubernetes.classes.contains(&class));
    let resource = more.get(class).cloned().or_else(|| Some(of_family()?.resource.name.to_owned()))?;
    Some(Unit { resource, amount: 1.0, profile: None })
}

/// The families whose devices a container may see because it has a resource, or a claim of a class, of this name.
pub(crate) fn shown_by(name: &str) -> impl Iterator<Item = &'static str> {
    let name = name.strip_prefix(CLASS_PREFIX).unwrap_or(name).to_owned();
    let unless = |family: &Family| family.kubernetes.hiding.as_ref().map_or(&[][..], |hiding| hiding.unless);
    let families = FAMILIES.iter().filter(move |family| unless(family).iter().any(|pattern| is_like(pattern, &name)));
    families.map(|family| family.key)
}

/// The taints that machines with this device commonly have.
pub(crate) fn taints_of(name: &str) -> Vec<String> {
    let name = name.strip_prefix(CLASS_PREFIX).unwrap_or(name);
    let taints = FAMILIES.iter().filter_map(|family| family.kubernetes.taint);
    // A taint begins with the vendor's domain, as its other names do.
    let mut common = taints.filter(|taint| taint.split('/').next().is_some_and(|vendor| name.contains(vendor)));
    let own = name.contains('/').then(|| name.to_owned());
    let mut taints: Vec<String> = own.into_iter().chain(common.next().map(str::to_owned)).collect();
    taints.dedup();
    taints
}
