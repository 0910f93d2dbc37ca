//! What a vendor's family of accelerators is: data, and a few functions of what a host shows. Each stands in a file of its
//! own.

use std::fmt;

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use crate::detected::{Detected, Findings};
use crate::host::HostFacts;
use crate::kubernetes::KubernetesNames;
use crate::monitor::Monitor;
use crate::resource::DeviceResource;
use crate::visibility::{Lookup, Visibility};

/// What a driver and a library make of device nodes that the kernel refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fencing {
    /// Whether the library goes on where a node is refused with EACCES, as Landlock does; with EPERM, as cgroups refuse,
    /// every library does.
    pub bears_landlock: bool,
    /// Whether the library counts only those devices that the process can open, from 0.
    pub renumbers: bool,
    /// Variables that such a count needs, each set where the process has none of it.
    pub settings: &'static [(&'static str, &'static str)],
    /// A node that its library makes at the first use: within a ruleset of Landlock it could not.
    pub late_node: Option<LateNode>,
}

/// A device node that may be missing until a program of the vendor's makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LateNode {
    /// The node.
    pub path: &'static str,
    /// What makes it, the first of these that there is.
    pub programs: &'static [&'static str],
    /// What it is started with.
    pub arguments: &'static [&'static str],
}

impl Fencing {
    /// A library that numbers devices as it does without a fence, and may fail where a node is refused with EACCES.
    pub const PLAIN: Self = Self { bears_landlock: false, renumbers: false, settings: &[], late_node: None };
    /// The same, but for a count of the devices that can be opened.
    pub const RENUMBERING: Self = Self { renumbers: true, ..Self::PLAIN };
}

/// One vendor's accelerators: how they are found, named, asked for, shown to a process and watched.
pub struct Family {
    /// The word for it in settings, such as `nvidia`.
    pub key: &'static str,
    /// What people call one of its devices, such as `NVIDIA GPU`.
    pub name: &'static str,
    /// The resource that its devices are counted as.
    pub resource: &'static DeviceResource,
    /// What parts of its devices are counted as, by name, where a device may be offered in parts.
    pub parts: Option<fn(&str) -> Option<&'static DeviceResource>>,
    /// The maker's number on the PCI bus.
    pub pci_vendor: u16,
    /// What the paths of its device nodes begin with; other families may have nodes of the same kind.
    pub nodes: &'static [&'static str],
    /// Nodes that a process opens whichever devices of the family are its own.
    pub shared_nodes: &'static [&'static str],
    /// What its driver and library make of a fence around device nodes.
    pub fencing: Fencing,
    /// How a process is shown its devices.
    pub visibility: Visibility,
    /// The type name, where every device of the family has the same.
    pub constant_type: Option<&'static str>,
    /// Further names under which users ask for a type: the detected name, and the other.
    pub type_aliases: &'static [(&'static str, &'static str)],
    /// What Kubernetes calls its devices.
    pub kubernetes: KubernetesNames,
    /// Looks for the family on a host; `None` where there is no device of it.
    pub detect: fn(&dyn HostFacts, &mut Findings) -> Option<Detected>,
    /// What the environment says of so many devices that a machine is asked to offer and where none was found; `None` where
    /// it says nothing.
    pub declared: Option<fn(Lookup<'_>, usize) -> Detected>,
    /// Who holds its devices' memory and how much they are used; `None` where nobody can tell.
    pub monitor: Option<Monitor>,
}

impl Family {
    /// The resource of this name, where the family's devices or parts of them are counted as that.
    pub fn counted_as(&self, name: &str) -> Option<&'static DeviceResource> {
        if self.resource.name == name { Some(self.resource) } else { self.parts.and_then(|of| of(name)) }
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Family {}

impl fmt::Debug for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.key)
    }
}

impl Serialize for Family {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Family", 4)?;
        fields.serialize_field("key", self.key)?;
        fields.serialize_field("name", self.name)?;
        fields.serialize_field("resource", self.resource.name)?;
        fields.serialize_field("variables", self.visibility.variables)?;
        fields.end()
    }
}
