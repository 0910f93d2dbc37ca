//! Which processes hold memory of the devices that a node offers, and how much those are used.
//!
//! 1. `PROCESSES-1`: the library is opened at the first question, and only for a node that has NVIDIA devices. It then
//!    stays open, which keeps the driver ready and later questions quick.
//! 2. `PROCESSES-2`: what NVML does not tell is not guessed.

use std::fmt;
use std::path::PathBuf;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use crate::family::Family;
use crate::host::Host;
use crate::nvidia;
use crate::nvml::{self, DEVICES_LIMIT};
use crate::offer::Offer;

/// Asks NVML who holds memory of a node's NVIDIA devices. A question waits for the driver, however long it takes.
pub struct DeviceProcesses {
    library: PathBuf,
    /// What the vendor's library calls the device in each slot.
    ids: Vec<String>,
    nvml: Library,
}

/// How much a device is used at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceUse {
    /// Its number among those offered.
    pub slot: u32,
    /// What the variable that shows devices to programs calls it.
    pub id: String,
    /// The part of the last moments in which it computed, in percent.
    pub busy_percent: Option<u32>,
    /// Bytes of its memory that are taken, by whomever.
    pub used_bytes: Option<u64>,
    /// Bytes of its memory.
    pub total_bytes: Option<u64>,
    /// Whether its driver has lost it: it fell off the bus, say.
    pub is_lost: bool,
}

enum Library {
    Unopened,
    // Never closed: that would wait for the driver when the process wants to end, which closes everything anyway.
    Open(&'static Nvml),
    Silent,
}

impl DeviceProcesses {
    /// `None` where nobody could tell: there is no NVIDIA device among those offered, or a recording answers for NVML.
    pub fn of(host: &Host, offer: &Offer) -> Option<Self> {
        let offered = offer.of(Self::family().resource)?;
        if offered.family != Self::family() || offered.detected == 0 {
            return None;
        }
        let ids = (0..offered.count as u32).map(|slot| offered.id(slot).trim().to_owned()).collect();
        Some(Self { library: host.nvml_library()?.to_owned(), ids, nvml: Library::Unopened })
    }

    /// Whose devices it knows.
    pub fn family() -> &'static Family {
        &nvidia::FAMILY
    }

    /// The processes that hold memory of the device in `slot`, to compute or to draw; `None` where NVML does not tell, or
    /// the device exists in name only.
    pub fn in_slot(&mut self, slot: u32) -> Option<Vec<u32>> {
        let device = device(self.library()?, self.ids.get(slot as usize)?).ok()?;
        let computing = device.running_compute_processes().ok()?;
        let drawing = device.running_graphics_processes().unwrap_or_default();
        Some(computing.into_iter().chain(drawing).map(|process| process.pid).collect())
    }

    /// How much each device is used now, by slot; those are left out of which NVML tells nothing.
    pub fn uses(&mut self) -> Vec<DeviceUse> {
        let Some(nvml) = self.library() else { return Vec::new() };
        self.ids.iter().enumerate().filter_map(|(slot, id)| use_of(nvml, slot as u32, id)).collect()
    }

    fn library(&mut self) -> Option<&'static Nvml> {
        if matches!(self.nvml, Library::Unopened) {
            let opened = nvml::open(&self.library);
            self.nvml = opened.map_or(Library::Silent, |nvml| Library::Open(Box::leak(Box::new(nvml))));
        }
        match self.nvml {
            Library::Open(nvml) => Some(nvml),
            Library::Unopened | Library::Silent => None,
        }
    }
}

impl fmt::Debug for DeviceProcesses {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { library, ids, .. } = self;
        formatter.debug_struct("DeviceProcesses").field("library", library).field("ids", ids).finish_non_exhaustive()
    }
}

fn use_of(nvml: &Nvml, slot: u32, id: &str) -> Option<DeviceUse> {
    let (rates, memory) = match device(nvml, id) {
        Ok(device) => (device.utilization_rates().ok(), device.memory_info()),
        Err(error) => (None, Err(error)),
    };
    let is_lost = matches!(memory, Err(NvmlError::GpuLost));
    let memory = memory.ok();
    let is_told = is_lost || rates.is_some() || memory.is_some();
    is_told.then(|| DeviceUse {
        slot,
        id: id.to_owned(),
        busy_percent: rates.map(|rates| rates.gpu),
        used_bytes: memory.as_ref().map(|memory| memory.used),
        total_bytes: memory.map(|memory| memory.total),
        is_lost,
    })
}

/// The device that `CUDA_VISIBLE_DEVICES` calls `id`: a number, a UUID, or the unambiguous beginning of one.
fn device<'nvml>(nvml: &'nvml Nvml, id: &str) -> Result<Device<'nvml>, NvmlError> {
    if let Ok(index) = id.parse() {
        return nvml.device_by_index(index);
    }
    let unknown = match nvml.device_by_uuid(id) {
        Err(error) if !matches!(error, NvmlError::GpuLost) => error,
        found => return found,
    };
    let count = nvml.device_count()?.min(DEVICES_LIMIT);
    let mut beginning_so = (0..count)
        .filter_map(|index| nvml.device_by_index(index).ok())
        .filter(|device| device.uuid().is_ok_and(|uuid| uuid.starts_with(id)));
    match (beginning_so.next(), beginning_so.next()) {
        (Some(found), None) => Ok(found),
        _ => Err(unknown),
    }
}
