//! What accelerators a machine has, and how a process is shown its share of them.
//!
//! ```text
//! Host ──detect──▶ Detection ──offer──▶ Offer ──environment──▶ variables of one worker
//! files, NVML,     what is there,       slots that the         CUDA_VISIBLE_DEVICES=1,3
//! commands, env    how, what is not     ledger hands out
//! ```
//!
//! Reading a machine happens in [`detect`] alone, once, in the node daemon; all that follows is arithmetic on what it
//! found. Only [`DeviceProcesses`] is asked again later, after the end of whoever had a device and while devices
//! are in use. A recorded machine ([`Host::recorded`]) is detected by the same code as a real one.

mod amd;
mod ascend;
mod detect;
mod device_processes;
mod family;
mod gaudi;
mod host;
mod intel;
mod neuron;
mod nvidia;
mod nvml;
mod offer;
mod pci;
mod quantity;
mod report;
mod tpu;
mod visibility;
mod worker;

pub use detect::{Detected, Detection, Device, RuledOut, detect};
pub use device_processes::{DeviceProcesses, DeviceUse};
pub use family::{FAMILIES, Family, GPU, families_of};
pub use host::{HOST_ROOT_VARIABLE, Host, HostError, NVML_LIBRARY_VARIABLE};
pub use offer::{DeviceOffer, GPU_FAMILY_VARIABLE, OVERRIDE_VARIABLE, Offer, OfferError, gpu_family, offer};
pub use quantity::{QuantityError, QuantityRule, check_quantity};
pub use report::{report, to_json};
pub use visibility::{Changes, Lookup, Preset, is_on};
pub use worker::{WorkerEnvironment, environment, visible_ids};
