//! What a family can tell of its devices while a node runs.

use crate::health::{DeviceError, Health};
use crate::host::HostFacts;
use crate::nodes::DeviceNode;

/// How a family's devices are watched. A question may wait for the driver, however long that takes.
pub struct Monitor {
    /// Whether this host can answer at all.
    pub is_available: fn(&dyn HostFacts) -> bool,
    /// Who holds a device; `None` where nothing is told, which is not guessed.
    pub holders: fn(&dyn HostFacts, &Watched) -> Option<Holders>,
    /// How much each of these devices is used now, in their order; `None` for those of which nothing is told.
    pub usage: fn(&dyn HostFacts, &[Watched]) -> Vec<Option<Usage>>,
    /// How many bytes of a device are in use that no process has which is listed or has it open; `None` where that cannot be
    /// told. It is asked when nobody is to have anything of it, and may take longer than [`Monitor::usage`].
    pub unlisted: fn(&dyn HostFacts, &Watched) -> Option<u64>,
    /// For how many times as long as a measuring took nobody measures again, where it costs more than a few reads.
    pub rest: u32,
    /// Hears which errors the driver reports of these devices, until it answers `false`: with each error, and at least every
    /// other second. Returns earlier where nothing can be heard, or not any more.
    pub hear_errors: fn(&dyn HostFacts, &[Watched], &mut Hearing<'_>),
    /// How it is found out that a device computes and remembers; `None` where nobody can.
    pub check: Option<DeviceCheck>,
    /// Who tells whether a device is well; `None` where nobody does, so that it is never known.
    pub health: Option<&'static str>,
    /// Where people look after a device that the driver has lost.
    pub look_at: &'static str,
}

/// A device as a monitor is asked about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watched {
    /// What the family's libraries call it.
    pub id: String,
    /// Its place on the PCI bus, where it is known.
    pub pci_address: Option<String>,
    /// The device nodes that are its own, where they are known.
    pub nodes: Vec<DeviceNode>,
}

impl Watched {
    /// The number in the first of its nodes that is named `<prefix><number>`.
    pub(crate) fn number_after(&self, prefix: &str) -> Option<u32> {
        self.nodes.iter().find_map(|node| node.path.strip_prefix(prefix)?.parse().ok())
    }
}

/// Who holds a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holders {
    /// The processes that have memory of it, or have it open. One that is dead keeps the device from others.
    pub processes: Vec<u32>,
    /// Whether one process at a time can use it, so that one that lives keeps it from others as well.
    pub is_exclusive: bool,
    /// Whether its driver is still making it ready for the next process.
    pub is_busy: bool,
}

impl Holders {
    /// Processes that may use a device together.
    pub fn together(processes: Vec<u32>) -> Self {
        Self { processes, ..Self::default() }
    }
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
    /// The power that it draws, in milliwatts.
    pub power_mw: Option<u32>,
    /// How warm it is, in degrees Celsius.
    pub temperature_c: Option<u32>,
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
    /// The part of the last moments in which the device computed for it, in percent, where that is told.
    pub busy_percent: Option<u32>,
    /// Whether it uses the device through a server that it shares with others (MPS), whose faults may end it.
    pub is_mps_client: bool,
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
