//! What accelerators a machine has, and how a process is shown its share of them.
//!
//! ```text
//! Host ──detect──▶ Detection ──offer──▶ Offer ──environment──▶ variables of one worker
//! files, NVML,     what is there,       slots that the         CUDA_VISIBLE_DEVICES=1,3
//! commands, env    how, what is not     ledger hands out
//! ```
//!
//! Reading a machine happens in [`detect`] alone, once, in the node daemon; all that follows is arithmetic on what it
//! found, by the families of `oxiray_families`. Only [`DeviceProcesses`] is asked again later, after the end of whoever
//! had a device and while devices are in use. A recorded machine ([`Host::recorded`]) is detected by the same code as a real one.

mod detect;
mod device_processes;
mod host;
mod late_nodes;
mod nvml;
mod offer;
mod report;
mod worker;

pub use detect::{Detection, detect};
pub use device_processes::{DeviceProcesses, DeviceUse};
pub use host::{HOST_ROOT_VARIABLE, Host, HostError, NVML_LIBRARY_VARIABLE, take_left_running};
pub use late_nodes::{LateNodeMade, late_nodes};
pub use offer::{
    DeviceOffer, GPU_FAMILY_VARIABLE, OVERRIDE_VARIABLE, Offer, OfferError, STRATEGY_VARIABLE, SlotDevice, gpu_family,
    offer,
};
pub use oxiray_families::{
    BusWay, Changes, Detected, Device, DeviceNode, Family, HostFacts, LinkKind, Lookup, NodeNumber, Pair, Preset, Usage,
};
pub use report::{report, to_json};
pub use worker::{WorkerEnvironment, chooses_devices, environment, hides_devices, unusable_together, visible_ids};
