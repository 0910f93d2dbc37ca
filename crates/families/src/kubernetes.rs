//! What Kubernetes calls the devices of a family.

use crate::visibility::Lookup;

/// Names of a family's devices in pods. A `*` at an end of a name stands for anything.
pub struct KubernetesNames {
    /// Resources of containers that are its devices.
    pub resources: &'static [PodResource],
    /// Classes of claimed devices, as the vendor's drivers make them.
    pub classes: &'static [&'static str],
    /// The taint that machines with its devices commonly have.
    pub taint: Option<&'static str>,
    /// What keeps a container without its devices from seeing those of the machine that it is on.
    pub hiding: Option<Hiding>,
    /// The type of the devices of a machine that a pod must come to, from the labels that the machine must have.
    pub type_of: fn(Lookup<'_>) -> Option<String>,
    /// The memory of each of them in bytes, from the same labels.
    pub memory_of: fn(Lookup<'_>) -> Option<u64>,
}

impl KubernetesNames {
    /// A family that Kubernetes has no names for.
    pub const NONE: Self =
        Self { resources: &[], classes: &[], taint: None, hiding: None, type_of: |_| None, memory_of: |_| None };
}

/// A resource of a container that is made of devices.
pub struct PodResource {
    /// Its name.
    pub name: &'static str,
    /// What one of it is.
    pub unit: PodUnit,
}

impl PodResource {
    /// A resource of which one is one device.
    pub const fn devices(name: &'static str) -> Self {
        Self { name, unit: PodUnit::Device }
    }
}

/// What one unit of a container's resource is.
#[derive(Clone, Copy)]
pub enum PodUnit {
    /// One device.
    Device,
    /// A part of a device, whose profile is what stands for the `*` in the name.
    Part,
    /// A chip of several devices, how many by the beginning of the machine's type, and how many of most machines.
    Chip {
        /// By the beginning of the machine's type.
        by_machine: &'static [(&'static str, f64)],
        /// Where the machine is not named.
        common: f64,
    },
}

/// A variable that keeps a container from seeing devices that it was not given.
pub struct Hiding {
    /// The variable.
    pub variable: &'static str,
    /// What hides all devices.
    pub value: &'static str,
    /// Names of resources and classes that are the vendor's: a pod with any of them has devices of its own to see.
    pub unless: &'static [&'static str],
}
