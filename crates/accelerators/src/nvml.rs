//! NVIDIA's management library: asked once for what detection needs, and later by the family's monitor.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_uint, c_ulonglong, c_void};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, TemperatureSensor, TopologyLevel};
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, EventSet, Nvml};
use oxiray_families::mig::{MigInstance, profile_in};
use oxiray_families::{
    BusWay, DeviceError, DeviceFault, Gpu, Health, Hearing, NvmlAnswers, NvmlFailure, Pair, PeerFault, ProcessMemory,
    RETIRED_PAGES, Recovery, Slowdown, Usage, short_address,
};

/// What the ids of instances begin with.
const INSTANCE_PREFIX: &str = "MIG-";
/// The most devices NVML is believed to have; a machine has 16 at most today.
const DEVICES_LIMIT: u32 = 1024;
/// Of so many GPUs each pair is asked about.
const PAIRED_MAX: u32 = 16;
/// The most NVLinks that a GPU has.
const LINKS_MAX: u32 = 18;
/// The most instances that a GPU is believed to be cut into; today's have seven at most.
const INSTANCES_LIMIT: u32 = 64;
/// What every question answers that was answered.
const NVML_SUCCESS: c_uint = 0;
/// What a wait answers that was in vain.
const NVML_TIMEOUT: c_uint = 10;
/// `nvmlEventTypeXidCriticalError`.
const CRITICAL_XID: c_ulonglong = 8;
/// What NVML calls the other events that are heard of, where a driver tells of them. Errors that were corrected come in storms:
/// they are counted when a GPU is measured.
const EVENTS: &[(c_ulonglong, DeviceFault)] = &[
    (0x2, DeviceFault::DoubleBit),
    (0x2000, DeviceFault::Poison),
    (0x4000, DeviceFault::Unavailable),
    (0x8000, DeviceFault::OtherRecovery),
];
/// What stands for no instance.
const NO_INSTANCE: c_uint = c_uint::MAX;
/// What NVML says of a GPU that takes part in a cluster of NVLink.
const FABRIC_COMPLETED: u8 = 3;
/// What NVML calls the fields of a device's health.
const RECOVERY_ACTION: FieldId = FieldId(230);
const REMAP_PENDING: FieldId = FieldId(144);
const REMAP_FAILED: FieldId = FieldId(145);
const RETIREMENT_PENDING: FieldId = FieldId(31);
/// Since the driver was loaded.
const SINGLE_BIT_ERRORS: FieldId = FieldId(3);
const DOUBLE_BIT_ERRORS: FieldId = FieldId(4);
/// What drivers tell that do not know of recovery actions.
const RESET_NEEDED: FieldId = FieldId(226);
const DRAIN_AND_RESET_NEEDED: FieldId = FieldId(227);
/// How long ago a process computed that computes now.
const COMPUTES: Duration = Duration::from_secs(2);
/// How long one wait for an error takes, in milliseconds.
const ERROR_WAIT_MS: u32 = 1000;

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
            Ok(device) => {
                let partitioned = device.mig_mode().is_ok_and(|mode| mode.current != 0);
                answers.gpus.push(Gpu {
                    name: device.name().ok(),
                    uuid: device.uuid().ok(),
                    pci_address: device.pci_info().ok().map(|pci| short_address(&pci.bus_id)),
                    memory_bytes: memory_of(&device),
                    minor: device.minor_number().ok(),
                    instances: if partitioned { instances(&nvml, &device) } else { Vec::new() },
                    fabric: fabric_of(&nvml, &device),
                    partitioned,
                    needs: health_of(&device).recovery.and_then(Recovery::needed),
                    is_persistent: device.is_in_persistent_mode().ok(),
                    retired_pages: retired_pages(&device),
                });
            }
            Err(error) => answers.lost.push(format!("NVML cannot open GPU {index}: {}", chain(&error))),
        }
    }
    answers.pairs = pairs(&nvml, count, &answers.gpus);
    Ok(answers)
}

/// How many pages of its memory a GPU does not use any more, after whichever errors it tells of.
fn retired_pages(device: &Device<'_>) -> Option<u64> {
    let asked = RETIRED_PAGES.map(|number| FieldId(number as u32));
    let told = fields(device, &asked);
    let counts = asked.into_iter().filter_map(|field| told.get(&field.0));
    counts.fold(None, |sum: Option<u64>, count| Some(sum.unwrap_or(0).saturating_add(*count)))
}

/// The fields that the driver has of those that are asked for, by their numbers.
fn fields(device: &Device<'_>, asked: &[FieldId]) -> BTreeMap<u32, u64> {
    let values = device.field_values_for(asked).unwrap_or_default();
    let told = values.into_iter().flatten().filter_map(|sample| match sample.value {
        Ok(SampleValue::U32(value)) => Some((sample.field.0, u64::from(value))),
        Ok(SampleValue::U64(value)) => Some((sample.field.0, value)),
        _ => None,
    });
    told.collect()
}

fn memory_of(device: &Device<'_>) -> Option<u64> {
    device.memory_info().ok().map(|memory| memory.total.saturating_sub(memory.reserved))
}

/// What a GPU is cut into. The places of instances have gaps.
fn instances(nvml: &Nvml, gpu: &Device<'_>) -> Vec<MigInstance> {
    let places = 0..gpu.mig_device_count().unwrap_or(0).min(INSTANCES_LIMIT);
    let found = places.filter_map(|place| {
        let device = gpu.mig_device_by_index(place).ok()?;
        let numbers = instance_numbers(nvml, &device);
        Some(MigInstance {
            uuid: device.uuid().ok(),
            profile: device.name().ok().as_deref().and_then(profile_in)?,
            memory_bytes: memory_of(&device),
            gpu_instance: numbers.map(|[of_gpu, _]| of_gpu),
            compute_instance: numbers.map(|[_, of_compute]| of_compute),
            nodes: Vec::new(),
        })
    });
    found.collect()
}

/// A number of a device, which the wrapper does not ask for.
///
/// # Safety
/// `handle` must be that of a device of the library that `ask` is of, which must be open.
unsafe fn number<Handle, Number: Default>(
    ask: Option<&unsafe extern "C" fn(Handle, *mut Number) -> c_uint>,
    handle: Handle,
) -> Option<Number> {
    let mut number = Number::default();
    // SAFETY: the caller vouches for the handle; the call writes one number to where it is told.
    let answer = unsafe { ask?(handle, &raw mut number) };
    (answer == NVML_SUCCESS).then_some(number)
}

/// `nvmlGpuFabricInfoV_t` in its second form, which older drivers know too, with room for the third.
#[repr(C)]
#[derive(Default)]
struct FabricInfo {
    version: c_uint,
    cluster: [u8; 16],
    status: c_uint,
    part: c_uint,
    state: u8,
    health: c_uint,
    of_third: c_uint,
}

/// What the second form says of its own length.
const FABRIC_VERSION: c_uint = (size_of::<FabricInfo>() - size_of::<c_uint>()) as c_uint | 2 << 24;

/// What NVLink connects a GPU to beyond its machine, where it is registered there: the cluster's UUID and the number of the part.
fn fabric_of(nvml: &Nvml, device: &Device<'_>) -> Option<String> {
    // SAFETY: the handle is used while the library is open, and as what it is.
    let info = unsafe { ask_fabric(nvml.lib().nvmlDeviceGetGpuFabricInfoV.as_ref().ok()?, device.handle()) }?;
    let is_registered = info.state == FABRIC_COMPLETED && info.status == NVML_SUCCESS;
    let is_named = is_registered && info.cluster.iter().any(|byte| *byte != 0);
    is_named.then(|| format!("{}.{}", uuid_text(&info.cluster), info.part))
}

/// # Safety
/// `handle` must be that of a device of the library that `ask` is of, which must be open.
unsafe fn ask_fabric<Handle, Told>(
    ask: &unsafe extern "C" fn(Handle, *mut Told) -> c_uint,
    handle: Handle,
) -> Option<FabricInfo> {
    const { assert!(size_of::<Told>() <= size_of::<FabricInfo>(), "what the library writes has room") };
    let mut info = FabricInfo { version: FABRIC_VERSION, ..FabricInfo::default() };
    // SAFETY: the caller vouches for the handle; the call writes no more than the form that the version names.
    let answer = unsafe { ask(handle, (&raw mut info).cast()) };
    (answer == NVML_SUCCESS).then_some(info)
}

/// As UUIDs are written.
fn uuid_text(uuid: &[u8; 16]) -> String {
    let digits: Vec<String> = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [0..4, 4..6, 6..8, 8..10, 10..16].map(|part| digits[part].concat()).join("-")
}

/// How each two GPUs are connected; nothing of those of which NVML does not tell. The positions are those among the GPUs that
/// can be opened, and where one cannot, nothing is said of any.
fn pairs(nvml: &Nvml, count: u32, gpus: &[Gpu]) -> Vec<Pair> {
    if count as usize != gpus.len() || count > PAIRED_MAX {
        return Vec::new();
    }
    let links: Vec<Links> = (0..count).map(|index| links_of(nvml, index, gpus)).collect();
    let all = (0..count).flat_map(|one| (one + 1..count).map(move |other| (one, other)));
    let pair = |(one, other): (u32, u32)| {
        let (first, second) = (nvml.device_by_index(one).ok()?, nvml.device_by_index(other).ok()?);
        let status = first.p2p_status(&second, P2pCapabilitiesIndex::NvLink);
        let fault = status.ok().and_then(|status| PeerFault::of(status.as_c()));
        let way = match first.topology_common_ancestor(second).ok()? {
            TopologyLevel::Internal => BusWay::Board,
            TopologyLevel::Single => BusWay::Switch,
            TopologyLevel::Multiple => BusWay::Switches,
            TopologyLevel::HostBridge => BusWay::HostBridge,
            TopologyLevel::Node => BusWay::Numa,
            TopologyLevel::System => BusWay::System,
        };
        let (one, other) = (one as usize, other as usize);
        let direct = links[one].to_gpus.get(&other).copied().unwrap_or(0);
        let by_switch = links[one].to_switches.min(links[other].to_switches);
        let links = direct + by_switch;
        // Where there are no links, there is nothing that could be of no use.
        Some(Pair { links, fault: fault.filter(|_| links > 0), ..Pair::on_bus(one, other, way) })
    };
    all.filter_map(pair).collect()
}

/// The active NVLinks of a GPU, by what is at their other ends.
#[derive(Default)]
struct Links {
    to_gpus: BTreeMap<usize, u32>,
    to_switches: u32,
}

fn links_of(nvml: &Nvml, index: u32, gpus: &[Gpu]) -> Links {
    let mut found = Links::default();
    let Ok(device) = nvml.device_by_index(index) else { return found };
    for link in (0..LINKS_MAX).map(|link| device.link_wrapper_for(link)) {
        let Ok(true) = link.is_active() else { continue };
        let Ok(remote) = link.remote_pci_info() else { continue };
        let address = short_address(&remote.bus_id);
        match gpus.iter().position(|gpu| gpu.pci_address.as_ref() == Some(&address)) {
            Some(other) => *found.to_gpus.entry(other).or_default() += 1,
            None => found.to_switches += 1,
        }
    }
    found
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
    let found = device(nvml, id);
    let memory = found.as_ref().map_or_else(|_| Err(NvmlError::Unknown), Device::memory_info);
    // Whoever rearranges a GPU's instances makes new ones, which have other ids.
    let is_gone = id.starts_with(INSTANCE_PREFIX) && matches!(found, Err(NvmlError::NotFound | NvmlError::InvalidArg));
    let is_lost = is_gone || matches!(found, Err(NvmlError::GpuLost)) || matches!(memory, Err(NvmlError::GpuLost));
    let (device, memory) = (found.ok(), memory.ok());
    let rates = device.as_ref().and_then(|device| device.utilization_rates().ok());
    // The whole GPU is well or ill.
    let health = device.as_ref().map(|device| health_of(gpu_of(device).as_ref().unwrap_or(device))).unwrap_or_default();
    let listed = device.as_ref().map(memory_of_processes);
    let all_bytes = listed.as_ref().and_then(|listed| listed.all_bytes);
    let unlisted_bytes = memory.as_ref().zip(all_bytes).map(|(memory, all)| memory.used.saturating_sub(all));
    let processes = listed.map(|listed| listed.processes).unwrap_or_default();
    let is_told = is_lost || rates.is_some() || memory.is_some() || health != Health::default();
    is_told.then(|| Usage {
        busy_percent: rates.map(|rates| rates.gpu),
        used_bytes: memory.as_ref().map(|memory| memory.used),
        total_bytes: memory.map(|memory| memory.total),
        power_mw: device.as_ref().and_then(|device| device.power_usage().ok()),
        temperature_c: device.as_ref().and_then(|device| device.temperature(TemperatureSensor::Gpu).ok()),
        is_lost,
        health,
        unlisted_bytes,
        processes,
    })
}

/// The GPU that an instance is one of.
fn gpu_of<'nvml>(device: &Device<'nvml>) -> Option<Device<'nvml>> {
    device.mig_is_mig_device_handle().is_ok_and(|is_one| is_one).then(|| device.mig_parent_device().ok()).flatten()
}

/// What the driver says of a device's health. A field that it does not have is not told.
fn health_of(device: &Device<'_>) -> Health {
    let told = fields(
        device,
        &[
            RECOVERY_ACTION,
            REMAP_PENDING,
            REMAP_FAILED,
            RETIREMENT_PENDING,
            SINGLE_BIT_ERRORS,
            DOUBLE_BIT_ERRORS,
            RESET_NEEDED,
            DRAIN_AND_RESET_NEEDED,
        ],
    );
    let number = |field: FieldId| told.get(&field.0).copied();
    let is_so = |field: FieldId| number(field).is_some_and(|value| value != 0);
    // That no reset is needed does not say that nothing is.
    let needed = || match (is_so(DRAIN_AND_RESET_NEEDED), is_so(RESET_NEEDED)) {
        (true, _) => Some(Recovery::DrainAndReset),
        (false, true) => Some(Recovery::Reset),
        (false, false) => None,
    };
    let action = number(RECOVERY_ACTION).and_then(|action| u32::try_from(action).ok());
    Health {
        recovery: action.map(Recovery::of).or_else(needed),
        is_remap_pending: is_so(REMAP_PENDING),
        has_remap_failed: is_so(REMAP_FAILED),
        is_retirement_pending: is_so(RETIREMENT_PENDING),
        double_bit_errors: number(DOUBLE_BIT_ERRORS),
        single_bit_errors: number(SINGLE_BIT_ERRORS),
        slowed: slowdown(device),
        ..Health::default()
    }
}

fn slowdown(device: &Device<'_>) -> Option<Slowdown> {
    let reasons = device.current_throttle_reasons().ok()?;
    let known = [
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, Slowdown::Heat),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, Slowdown::PowerBrake),
        (ThrottleReasons::HW_SLOWDOWN, Slowdown::Hardware),
    ];
    known.into_iter().find(|(reason, _)| reasons.contains(*reason)).map(|(_, slowdown)| slowdown)
}

/// Hears of critical errors (Xids) of devices, and of what else their drivers tell as it happens, until `hearing` answers `false`, or the library reports no more.
pub(crate) fn hear_errors(nvml: &Nvml, ids: &[String], hearing: &mut Hearing<'_>) {
    let Some((events, places)) = registered(nvml, ids) else { return };
    let Ok(wait) = nvml.lib().nvmlEventSetWait_v2.as_ref() else { return };
    loop {
        // SAFETY: the set is one of this library, which is open, and no other thread uses it.
        let errors = match unsafe { next_event(wait, events.handle()) } {
            (NVML_SUCCESS, event) => errors_of(nvml, &event, &places),
            (NVML_TIMEOUT, _) => Vec::new(),
            _ => return,
        };
        if errors.is_empty() && !hearing(None) || errors.into_iter().any(|error| !hearing(Some(error))) {
            return;
        }
    }
}

/// A device that was asked about, among those of its GPU.
struct Place {
    place: usize,
    /// The driver's numbers of the instance that it is: of the part of the GPU, and of the processors in it.
    instance: Option<[u32; 2]>,
}

/// Those of each GPU, by its UUID.
type Places = BTreeMap<String, Vec<Place>>;

/// The driver's numbers of an instance.
fn instance_numbers(nvml: &Nvml, instance: &Device<'_>) -> Option<[u32; 2]> {
    // SAFETY: the handle is used while the library is open, and as what it is.
    let of_gpu = unsafe { number(nvml.lib().nvmlDeviceGetGpuInstanceId.as_ref().ok(), instance.handle()) }?;
    // SAFETY: as above.
    let of_compute = unsafe { number(nvml.lib().nvmlDeviceGetComputeInstanceId.as_ref().ok(), instance.handle()) }?;
    Some([of_gpu, of_compute])
}

/// A set of what all GPUs report as it happens, and what was asked about of each.
fn registered<'nvml>(nvml: &'nvml Nvml, ids: &[String]) -> Option<(EventSet<'nvml>, Places)> {
    let (events, mut places) = (nvml.create_event_set().ok()?, Places::new());
    for (place, id) in ids.iter().enumerate() {
        let Ok(device) = device(nvml, id) else { continue };
        let gpu = gpu_of(&device);
        let place = Place { place, instance: gpu.as_ref().and_then(|_| instance_numbers(nvml, &device)) };
        let device = gpu.unwrap_or(device);
        let Ok(uuid) = device.uuid() else { continue };
        if let Some(of_gpu) = places.get_mut(&uuid) {
            of_gpu.push(place);
        } else if is_registered(nvml, &device, &events) {
            places.insert(uuid, vec![place]);
        }
    }
    (!places.is_empty()).then_some((events, places))
}

/// Whether a GPU's events come to a set from now on: all that are of use, or else Xids alone.
fn is_registered(nvml: &Nvml, device: &Device<'_>, events: &EventSet<'_>) -> bool {
    // SAFETY: the handle is used while the library is open, and as what it is.
    let told = unsafe { number(nvml.lib().nvmlDeviceGetSupportedEventTypes.as_ref().ok(), device.handle()) };
    let told: c_ulonglong = told.unwrap_or(0);
    let heard = EVENTS.iter().fold(CRITICAL_XID, |kinds, (kind, _)| kinds | kind) & told;
    let ask = nvml.lib().nvmlDeviceRegisterEvents.as_ref().ok();
    let mut kinds = [heard, heard & CRITICAL_XID].into_iter().filter(|kinds| *kinds != 0);
    // SAFETY: as above, and no other thread uses the set yet.
    kinds.any(|kinds| unsafe { takes(ask, device.handle(), kinds, events.handle()) })
}

/// # Safety
/// `handle` and `set` must be those of a device and of a set of events of the library that `ask` is of, which must be open, and
/// no other thread may use the set.
unsafe fn takes<Handle, Set>(
    ask: Option<&unsafe extern "C" fn(Handle, c_ulonglong, Set) -> c_uint>,
    handle: Handle,
    kinds: c_ulonglong,
    set: Set,
) -> bool {
    // SAFETY: the caller vouches for both.
    ask.is_some_and(|ask| unsafe { ask(handle, kinds, set) } == NVML_SUCCESS)
}

/// `nvmlEventData_t`, whose instances the wrapper leaves out.
#[repr(C)]
struct Event {
    device: *mut c_void,
    kind: c_ulonglong,
    xid: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// Waits for an error for a while. What the library answered, and what it told where that was [`NVML_SUCCESS`].
///
/// # Safety
/// `set` must be an event set of the library that `wait` is of, which must be open, and no other thread may use it.
unsafe fn next_event<Set, Told>(
    wait: &unsafe extern "C" fn(Set, *mut Told, c_uint) -> c_uint,
    set: Set,
) -> (c_uint, Event) {
    const { assert!(size_of::<Told>() == size_of::<Event>(), "what the library writes is what is read") };
    let (kind, xid) = (0, 0);
    let (gpu_instance, compute_instance) = (NO_INSTANCE, NO_INSTANCE);
    let mut event = Event { device: std::ptr::null_mut(), kind, xid, gpu_instance, compute_instance };
    // SAFETY: the caller vouches for the set; the call writes one event, which has the same form.
    let answer = unsafe { wait(set, (&raw mut event).cast(), ERROR_WAIT_MS) };
    (answer, event)
}

/// An error of a GPU is one of each instance of it; where the driver tells in which it happened, it was elsewhere for the
/// others.
fn errors_of(nvml: &Nvml, event: &Event, places: &Places) -> Vec<DeviceError> {
    let fault = match event.kind {
        CRITICAL_XID => u32::try_from(event.xid).ok().map(DeviceFault::Xid),
        other => EVENTS.iter().find(|(kind, _)| *kind == other).map(|(_, fault)| *fault),
    };
    let Some(fault) = fault.filter(|_| !event.device.is_null()) else { return Vec::new() };
    // SAFETY: the library named this device just now, and it is open.
    let gpu = unsafe { Device::new(event.device.cast(), nvml) };
    let gpu = gpu_of(&gpu).unwrap_or(gpu);
    let of_gpu = gpu.uuid().ok().and_then(|uuid| places.get(&uuid));
    let happened = [event.gpu_instance, event.compute_instance];
    let differ = |(own, where_it_was): (u32, c_uint)| where_it_was != NO_INSTANCE && where_it_was != own;
    let error = |of: &Place| {
        let is_elsewhere = of.instance.is_some_and(|own| own.into_iter().zip(happened).any(differ));
        DeviceError { place: of.place, fault, is_elsewhere }
    };
    of_gpu.into_iter().flatten().map(error).collect()
}

/// The processes that have some of a device's memory.
struct Listed {
    processes: Vec<ProcessMemory>,
    /// What all of them have; nothing where the driver lists none, or does not tell that of each.
    all_bytes: Option<u64>,
}

/// Who has memory of a device, to compute, as a client of an MPS server, or to draw.
fn memory_of_processes(device: &Device<'_>) -> Listed {
    let computing = device.running_compute_processes();
    let is_listed = computing.is_ok();
    let clients = device.mps_running_compute_processes().unwrap_or_default();
    let sharing: BTreeSet<u32> = clients.iter().map(|client| client.pid).collect();
    let drawing = device.running_graphics_processes().unwrap_or_default();
    let mut of: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    for process in computing.unwrap_or_default().into_iter().chain(clients).chain(drawing) {
        let bytes = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        // One that computes and draws is listed twice, with all that it has.
        let known = of.entry(process.pid).or_default();
        *known = bytes.max(*known);
    }
    let add = |all: u64, bytes: &Option<u64>| Some(all.saturating_add((*bytes)?));
    let all_bytes = if is_listed { of.values().try_fold(0, add) } else { None };
    let busy = busy_of_processes(device);
    let process = |(pid, bytes): (u32, Option<u64>)| {
        let busy_percent = busy.as_ref().map(|busy| busy.get(&pid).copied().unwrap_or(0));
        let is_mps_client = sharing.contains(&pid);
        ProcessMemory { pid, bytes: bytes.unwrap_or(0), busy_percent, is_mps_client, ..ProcessMemory::default() }
    };
    Listed { processes: of.into_iter().map(process).collect(), all_bytes }
}

/// The part of the last moments in which a device computed for each process that it computed for, in percent; nothing
/// where its driver does not tell that.
fn busy_of_processes(device: &Device<'_>) -> Option<BTreeMap<u32, u32>> {
    let since = SystemTime::now().checked_sub(COMPUTES)?.duration_since(UNIX_EPOCH).ok()?;
    let mut samples = match device.process_utilization_stats(u64::try_from(since.as_micros()).ok()?) {
        Ok(samples) => samples,
        Err(NvmlError::NotFound) => Vec::new(),
        Err(_) => return None,
    };
    // The last word on each stands.
    samples.sort_unstable_by_key(|sample| sample.timestamp);
    Some(samples.into_iter().map(|sample| (sample.pid, sample.sm_util.min(100))).collect())
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
