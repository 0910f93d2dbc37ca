//! What a family can tell of its devices while a node runs.

use crate::health::{DeviceError, Health};
use crate::host::HostFacts;

/// How a family's devices are watched. A question may wait for the driver, however long that takes.
pub struct Monitor {
    /// Whether this host can answer at all.
    pub is_available: fn(&dyn HostFacts) -> bool,
    /// The processes that hold memory of the device that the family's libraries call so, to compute or to draw; `None`
    /// where nothing is told, which is not guessed.
    pub holders: fn(&dyn HostFacts, &str) -> Option<Vec<u32>>,
    /// How much the device is used now; `None` where nothing is told.
    pub usage: fn(&dyn HostFacts, &str) -> Option<Usage>,
    /// Hears which errors the driver reports of the devices that its libraries call so, until it answers `false`: with each
    /// error, and at least every other second. Returns earlier where nothing can be heard, or not any more.
    pub hear_errors: fn(&dyn HostFacts, &[String], &mut Hearing<'_>),
    /// How it is found out that a device computes and remembers; `None` where nobody can.
    pub check: Option<DeviceCheck>,
    /// Where people look after a device that the driver has lost.
    pub look_at: &'static str,
}

/// How it is found out that a device computes and remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceCheck {
    /// Through CUDA's driver API, which the variable shows the device.
    Cuda {
        /// The variable.
        variable: &'static str,
    },
}

/// Takes an error, or the word that there was none for a while; answers whether it hears on.
pub type Hearing<'a> = dyn FnMut(Option<DeviceError>) -> bool + 'a;

/// How much a device is used at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// The part of the last moments in which it computed, in percent.
    pub busy_percent: Option<u32>,
    /// Bytes of its memory that are taken, by whomever.
    pub used_bytes: Option<u64>,
    /// Bytes of its memory.
    pub total_bytes: Option<u64>,
    /// Whether its driver has lost it: it fell off the bus, say.
    pub is_lost: bool,
    /// What its driver says of its health.
    pub health: Health,
    /// Bytes of its memory that are taken and that none of the processes has; nothing where that cannot be told.
    pub unlisted_bytes: Option<u64>,
    /// The processes that have some of its memory, as far as anybody tells.
    pub processes: Vec<ProcessMemory>,
}

/// What a process has of a device's memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// The process.
    pub pid: u32,
    /// How much it has; 0 where that is not told.
    pub bytes: u64,
    /// Its parent, the parent of that, and so on, where somebody has looked.
    pub ancestors: Vec<u32>,
    /// What the kernel calls it, where somebody has looked.
    pub name: String,
    /// Which cluster's node it belongs to, where somebody has looked.
    pub belongs: Belongs,
}

/// Whose a process is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Belongs {
    /// No node of Oxiray's has started it.
    #[default]
    Elsewhere,
    /// The node that looks, or what it started.
    ToThisNode,
    /// What another node of this machine has started.
    ToAnotherNode,
}
