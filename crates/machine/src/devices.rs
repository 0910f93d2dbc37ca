//! What is known of the machine's devices beside the ledger.

use crate::device_checks::{DeviceChecks, DeviceSlot};
use crate::device_health::{DeviceHealth, HealthRecord};
use crate::device_memory::DeviceMemories;
use crate::foreign_use::ForeignUses;
use crate::names::{Key, Monitored};
use crate::node::holdings::ToldHoldings;
use crate::node::occupied::Occupied;
use oxiray_resources::GrantId;
use oxiray_wire::message::DeviceUse;
use oxiray_wire::state::{DeviceIsolation, NodeIsolation};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// The workers that keep a device out of service, each with the reason.
pub(crate) type OutOfService = BTreeMap<DeviceSlot, BTreeMap<Key, String>>;

/// What is known of the machine's devices beside the ledger.
#[derive(Debug)]
pub(crate) struct Devices {
    pub(crate) checks: DeviceChecks,
    pub(crate) out_of_service: OutOfService,
    pub(crate) measured: Measured,
    /// What keeps each worker that holds some from others.
    pub(crate) isolation: BTreeMap<Key, DeviceIsolation>,
    pub(crate) open: Opened,
    /// What dead workers held in whose control groups somebody is.
    pub(crate) occupied: BTreeMap<Key, Occupied>,
    pub(crate) memory: DeviceMemories,
    pub(crate) foreign: ForeignUses,
    pub(crate) health: DeviceHealth,
    /// What is remembered of it over a restart of the daemon.
    pub(crate) remembered: Vec<HealthRecord>,
    /// Stands for devices' health among those who keep them out of service.
    pub(crate) doctor: Option<Key>,
    /// The workers that are ended since a device of theirs failed, in words.
    pub(crate) failed: BTreeMap<Key, String>,
    /// Who holds which parts, as the head was told of it.
    pub(crate) holdings: ToldHoldings,
    /// Why each grant has its devices of a resource and no others, in words.
    pub(crate) choices: BTreeMap<(GrantId, String), String>,
    /// How they are kept from who was not granted them, as the head is told; nothing where there are none.
    pub(crate) kept: Option<NodeIsolation>,
}

impl Devices {
    pub(crate) fn new(monitored: Monitored) -> Self {
        Self {
            checks: DeviceChecks::new(monitored),
            out_of_service: OutOfService::new(),
            measured: Measured::default(),
            isolation: BTreeMap::new(),
            open: Opened::default(),
            occupied: BTreeMap::new(),
            memory: DeviceMemories::default(),
            foreign: ForeignUses::default(),
            health: DeviceHealth::default(),
            remembered: Vec::new(),
            doctor: None,
            failed: BTreeMap::new(),
            holdings: ToldHoldings::default(),
            choices: BTreeMap::new(),
            kept: None,
        }
    }
}

/// A device that a process has open, or has memory of, without a grant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpenedBy {
    /// The worker that the process is, or that has started it.
    pub(crate) worker: Key,
    pub(crate) pid: u32,
    pub(crate) device: DeviceSlot,
}

/// How often it is looked which device nodes are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Looks {
    /// Nobody has looked yet.
    #[default]
    NoneYet,
    /// There is a look every so many seconds.
    Every(u32),
    /// Nobody can look.
    Never,
}

/// What was seen last of device nodes that are open.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// When the next look is due, where one is.
    pub(crate) next: Option<Instant>,
    /// What is open without a grant, in words.
    pub(crate) violations: BTreeMap<OpenedBy, String>,
    /// What is used without a grant by what the vendor's library lists, in words.
    pub(crate) listed: BTreeMap<OpenedBy, String>,
    /// The workers that the kernel refuses what they were not granted: nobody has to look.
    pub(crate) fenced: BTreeSet<Key>,
    /// The workers that are ended for what they had open, in words.
    pub(crate) ended: BTreeMap<Key, String>,
    pub(crate) looks: Looks,
}

/// What was measured last.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) next: Option<Instant>,
    pub(crate) uses: Vec<DeviceUse>,
    /// Those of which it is told what each process has.
    pub(crate) listing: BTreeSet<DeviceSlot>,
    /// The devices that their drivers have lost, each by resource and slot.
    pub(crate) lost: BTreeSet<(String, u32)>,
    /// Stands for the driver among those who keep devices out of service.
    pub(crate) driver: Option<Key>,
}

impl Opened {
    /// Everything that is open or used without a grant, in words: once for each process and device.
    pub(crate) fn all(&self) -> BTreeMap<OpenedBy, String> {
        let listed = self.listed.iter().chain(&self.violations);
        listed.map(|(by, text)| (by.clone(), text.clone())).collect()
    }
}

impl Measured {
    /// Whether it is why devices are out of service because of that key.
    pub(crate) fn is_driver(&self, key: Key) -> bool {
        self.driver == Some(key) && !self.lost.is_empty()
    }
}
