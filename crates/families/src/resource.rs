//! What devices are counted as.

use crate::quantity::QuantityRule;

/// A resource whose units are devices: each has an account and a number of its own on its machine.
#[derive(Debug, PartialEq, Eq)]
pub struct DeviceResource {
    /// What programs ask for.
    pub name: &'static str,
    /// The option of tasks and actors that asks for it, where it has one: `num_gpus`.
    pub option: Option<&'static str>,
    /// Which quantities one task or actor may ask for.
    pub quantity: QuantityRule,
    /// What PyTorch calls such a device, where it knows them.
    pub torch: Option<&'static str>,
}

/// The resource that the three GPU vendors share.
pub static GPU: DeviceResource =
    DeviceResource { name: "GPU", option: Some("num_gpus"), quantity: QuantityRule::Shares, torch: Some("cuda") };
