//! Why a demand is not granted.

use thiserror::Error;

use crate::{Quantity, ResourceName};

/// Why a machine does not grant a demand.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Shortage {
    /// It would on another day: others hold what is asked for, or devices are out of service.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// It could not with nothing running on it.
    #[error(transparent)]
    Never(#[from] Never),
}

/// The first resource of a demand of which too little is free.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", self.sentence())]
pub struct Busy {
    /// The resource.
    pub resource: ResourceName,
    /// How much was asked for.
    pub asked: Quantity,
    /// The most that a demand of this kind could get now ([`crate::FreeDevices::obtainable`]): of devices the wholly
    /// free ones where whole ones are asked for, and the free part of one device otherwise.
    pub free: Quantity,
    /// How much the machine has, devices out of service included.
    pub total: Quantity,
    /// How many of its devices are out of service.
    pub out_of_service: u32,
}

/// The first resource of a demand of which a machine has too little, whatever runs on it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{asked} {resource} asked for, the machine has {total}: lower the request or offer more")]
pub struct Never {
    /// The resource.
    pub resource: ResourceName,
    /// How much was asked for.
    pub asked: Quantity,
    /// How much the machine has.
    pub total: Quantity,
}

impl Busy {
    fn sentence(&self) -> String {
        let Self { resource, asked, free, total, out_of_service } = self;
        let fault = match out_of_service {
            0 => String::new(),
            count => format!(", {count} out of service"),
        };
        if !resource.is_device() {
            format!("{asked} {resource} asked for, {free} of {total} free{fault}")
        } else if *asked >= Quantity::ONE {
            format!("{asked} {resource} asked for, {free} of {total} wholly free{fault}")
        } else {
            format!("{asked} of one {resource} asked for, the freest of {total} has {free} left{fault}")
        }
    }
}
