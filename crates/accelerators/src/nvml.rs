//! NVIDIA's management library: asked once for what detection needs, and later by the family's monitor.

use std::collections::BTreeMap;
use std::path::Path;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use oxiray_families::{Gpu, NvmlAnswers, NvmlFailure, ProcessMemory, Usage, short_address};

/// The most devices NVML is believed to have; a machine has 16 at most today.
const DEVICES_LIMIT: u32 = 1024;

/// Loads the library.
pub(crate) fn open(library: &Path) -> Result<Nvml, NvmlFailure> {
    Nvml::builder().lib_path(library.as_os_str()).init().map_err(|error| match error {
        NvmlError::LibloadingError(source) => NvmlFailure::NoLibrary(chain(&source)),
        other => NvmlFailure::Refused(chain(&other)),
    })
}

/// Loads the library and asks it.
pub(crate) fn load(library: &Path) -> Result<NvmlAnswers, NvmlFailure> {
    let nvml = open(library)?;
    let count = nvml.device_count().map_err(|error| NvmlFailure::Refused(chain(&error)))?;
    let mut answers = NvmlAnswers { driver: nvml.sys_driver_version().ok(), ..NvmlAnswers::default() };
    for index in 0..count.min(DEVICES_LIMIT) {
        match nvml.device_by_index(index) {
            Ok(device) => answers.gpus.push(Gpu {
                name: device.name().ok(),
                uuid: device.uuid().ok(),
                pci_address: device.pci_info().ok().map(|pci| short_address(&pci.bus_id)),
                memory_bytes: device.memory_info().ok().map(|memory| memory.total.saturating_sub(memory.reserved)),
                minor: device.minor_number().ok(),
                partitioned: device.mig_mode().is_ok_and(|mode| mode.current != 0),
            }),
            Err(error) => answers.lost.push(format!("NVML cannot open GPU {index}: {}", chain(&error))),
        }
    }
    Ok(answers)
}

/// The processes that hold memory of a device, to compute, as clients of an MPS server, or to draw.
pub(crate) fn holders(nvml: &Nvml, id: &str) -> Option<Vec<u32>> {
    let device = device(nvml, id).ok()?;
    let computing = device.running_compute_processes().ok()?;
    let clients = device.mps_running_compute_processes().unwrap_or_default();
    let drawing = device.running_graphics_processes().unwrap_or_default();
    Some(computing.into_iter().chain(clients).chain(drawing).map(|process| process.pid).collect())
}

/// How much a device is used now; nothing where NVML tells nothing of it.
pub(crate) fn usage(nvml: &Nvml, id: &str) -> Option<Usage> {
    let (rates, memory, processes) = match device(nvml, id) {
        Ok(device) => (device.utilization_rates().ok(), device.memory_info(), memory_of_processes(&device)),
        Err(error) => (None, Err(error), Vec::new()),
    };
    let is_lost = matches!(memory, Err(NvmlError::GpuLost));
    let memory = memory.ok();
    let is_told = is_lost || rates.is_some() || memory.is_some();
    is_told.then(|| Usage {
        busy_percent: rates.map(|rates| rates.gpu),
        used_bytes: memory.as_ref().map(|memory| memory.used),
        total_bytes: memory.map(|memory| memory.total),
        is_lost,
        processes,
    })
}

/// What each process has of a device's memory, where the driver tells.
fn memory_of_processes(device: &Device<'_>) -> Vec<ProcessMemory> {
    let computing = device.running_compute_processes().unwrap_or_default();
    let drawing = device.running_graphics_processes().unwrap_or_default();
    let mut of: BTreeMap<u32, u64> = BTreeMap::new();
    for process in computing.into_iter().chain(drawing) {
        if let UsedGpuMemory::Used(bytes) = process.used_gpu_memory {
            // One that computes and draws is listed twice, with all that it has.
            let known = of.entry(process.pid).or_default();
            *known = bytes.max(*known);
        }
    }
    of.into_iter().map(|(pid, bytes)| ProcessMemory { pid, bytes, ancestors: Vec::new() }).collect()
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

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_told_from_a_broken_one() {
        assert!(matches!(load(Path::new("/no/such/library.so")), Err(NvmlFailure::NoLibrary(_))));
    }
}
