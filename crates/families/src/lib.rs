//! The families of accelerators: one file for each, from which everything else that names them is derived.
//!
//! ```text
//! family file ── FAMILIES ──▶ resources     which resources are devices
//!                             accelerators  detection, offers, variables of workers, monitors
//!                             kubernetes    what pods' devices are to programs
//!                             macros        what `#[remote(…)]` may say
//!                             Python        `oxiray/_families.py`, through `oxiray._core`
//! ```
//!
//! Everything here is a function of its arguments. What a host has is asked of it through [`HostFacts`], which
//! `accelerators` answers for this machine and for recorded ones.

mod amd;
mod ascend;
mod bus;
mod detected;
mod drm;
#[cfg(feature = "eighth-family")]
#[path = "../../../tests/fixtures/eighth_family/family.rs"]
mod eighth_family;
mod family;
mod gaudi;
mod health;
mod host;
mod intel;
mod kubernetes;
pub mod mig;
mod monitor;
mod neuron;
mod nodes;
mod nvidia;
mod nvml;
mod pairs;
mod pci;
mod quantity;
mod resource;
mod table;
mod tpu;
mod visibility;
mod xid;

pub use bus::bus_pairs;
pub use detected::{Detected, Device, Findings, RuledOut};
pub use family::{Family, Fencing, LateNode};
pub use health::{DeviceError, DriverWord, Health, Recovery, Slowdown};
pub use host::HostFacts;
pub use kubernetes::{Hiding, KubernetesNames, PodResource, PodUnit};
pub use monitor::{Belongs, DeviceCheck, Hearing, Holders, Monitor, ProcessMemory, Usage, Watched};
pub use nodes::{DeviceNode, NodeNumber, existing as existing_nodes};
pub use nvidia::DOMAIN_LABEL;
pub use nvml::{Gpu, NvmlAnswers, NvmlFailure, RETIRED_PAGES, short_address};
pub use pairs::{BusWay, LinkKind, Pair, PeerFault, nearness_in_words};
pub use pci::{PciFunction, scan as scan_pci};
pub use quantity::{QuantityError, QuantityRule};
pub use resource::{DeviceResource, GPU};
pub use table::{
    FAMILIES, check_bundle, check_quantity, device_resource, device_resources, families_of, families_on_node, table,
};
pub use tpu::TPU;
pub use visibility::{Assignment, Changes, Lookup, Preset, Visibility, is_on};
pub use xid::{DeviceFault, XIDS_FATAL_VARIABLE, XIDS_IGNORE_VARIABLE, XidClass, XidRuleError, XidRules, XidText};
