//! A library that answers NVML's questions from a text file, so that detection is tested through a real library.
//!
//! `OXIRAY_NVML_FIXTURE` names the file; it is read anew at every `nvmlInit_v2` and whenever processes or use are asked for,
//! for those change while a library is open. One GPU per line, in the order of NVML; compute processes come first, then
//! those that draw, then how busy it is:
//!
//! ```text
//! # name | uuid | pci address | memory bytes | used bytes | pid:bytes,pid:bytes | pid:bytes | percent
//! driver=550.54.15
//! NVIDIA H100 80GB HBM3|GPU-5a1f|00000000:19:00.0|85520809984|1048576|4242:524288
//! ```
//!
//! `init=9` makes `nvmlInit_v2` return 9 (the driver is not loaded), `lost=1` makes the second GPU one that cannot be
//! opened (15), `mig=0` makes the first one partitioned, `mig=0:1:0:MIG-5a:1g.5gb:4294967296`
//! gives it such an instance and `uses=MIG-5a:4242:524288` says which processes have memory of that, `minor=0:2` gives its device node the number 2 (else that of its place),
//! `pair=0:1:NODE,NV4` connects the first two by four NVLinks and host bridges of one NUMA node (`BRD`, `PIX`, `PXB`, `PHB`,
//! `NODE`, `SYS`), `fabric=0:9a5c1f00-2b3d-4e5f-8a9b-0c1d2e3f4a5b:3` has NVLink connect the first one to part 3 of that cluster of machines, `mps=0:4242:524288` lists process 4242 among the first one's clients of an MPS server. `recovery=0:1` says that the first
//! one needs recovery action 1, `warm=0:350000:61` that it draws 350 W and has 61 °C, `sm=0:4242:35` that it computes for process 4242 in 35 % of the time, `remap=0:pending` or `remap=0:failed` what became of rows of its memory, `field=0:31:1` that NVML's field 31 of it is 1,
//! `slowed=0:64` why its clocks are slow, by NVML's bits, `persistence=0:1` that it is kept ready while nobody uses it, and
//! `p2p=0:1:4` that the NVLinks between the first two are of no use, by NVML's number. Each `xid=0:31` that
//! is added while an event set is open is an error 31 of the first one, and `xid=0:31:1:0` one of its instance with these numbers (`xid=0:31:1` where only the part of the GPU is known),
//! and each `event=0:2` an event of that type (a double-bit error here); the first wait for one makes a file beside that with
//! the answers, whose name ends with `.waits`. A field left empty makes its question return 3 (not supported).
//! It is CUDA's driver library, too: see `cuda.rs`.
//!
//! Only what `nvml-wrapper` asks in detection and in looking at a device's use and health is answered.

pub mod cuda;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Names the file with the answers.
pub const FIXTURE_VARIABLE: &str = "OXIRAY_NVML_FIXTURE";

const SUCCESS: c_int = 0;
const UNINITIALIZED: c_int = 1;
const INVALID_ARGUMENT: c_int = 2;
const NOT_SUPPORTED: c_int = 3;
const NOT_FOUND: c_int = 6;
const INSUFFICIENT_SIZE: c_int = 7;
const DRIVER_NOT_LOADED: c_int = 9;
const TIMEOUT: c_int = 10;
const GPU_IS_LOST: c_int = 15;

/// What a process or a GPU outside of any partition has as its instance.
const NO_INSTANCE: c_uint = 0xffff_ffff;

/// `nvmlEventTypeXidCriticalError`.
const CRITICAL_XID: c_ulonglong = 8;
/// The same, errors of one bit and of two, fatal poison, an unavailable GPU, and another recovery action.
const EVENTS: c_ulonglong = CRITICAL_XID | 0x1 | 0x2 | 0x2000 | 0x4000 | 0x8000;

static ANSWERS: Mutex<Opened> = Mutex::new(Opened { times: 0, answers: None });

/// NVML counts how often it was opened, and closes with the last.
struct Opened {
    times: usize,
    answers: Option<Answers>,
}

#[derive(Default)]
struct Answers {
    driver: String,
    init: c_int,
    lost: Vec<usize>,
    partitioned: Vec<usize>,
    minors: Vec<(usize, c_uint)>,
    /// Processes that are computed for, each with the part of the time in percent.
    computing: Vec<(usize, [c_uint; 2])>,
    recoveries: Vec<(usize, c_uint)>,
    remaps: Vec<(usize, String)>,
    numbers: Numbers,
    xids: Vec<Xid>,
    cuda: Option<String>,
    pairs: Vec<Pair>,
    fabrics: Vec<(usize, Fabric)>,
    gpus: Vec<Gpu>,
    instances: Vec<Instance>,
}

/// What is said of GPUs in numbers.
#[derive(Default)]
struct Numbers {
    /// Milliwatts, and degrees Celsius.
    warmth: Vec<(usize, [c_uint; 2])>,
    /// Fields that no other line tells, each with its value.
    fields: Vec<(usize, [c_uint; 2])>,
    /// `nvmlClocksThrottleReasons`.
    slowed: Vec<(usize, c_ulonglong)>,
    persistent: Vec<(usize, c_uint)>,
}

/// One instance of a partitioned GPU.
struct Instance {
    of_gpu: usize,
    /// The driver's numbers: of the part of the GPU, and of the processors in it.
    numbers: [c_uint; 2],
    /// What it answers as a device.
    device: Gpu,
}

/// The handle of the first instance, from which the others count on.
const FIRST_INSTANCE: usize = 10_000;
/// Where it would be among the GPUs.
const FIRST_INSTANCE_INDEX: usize = FIRST_INSTANCE - 1;

/// An error of a GPU or another event, and in which of its instances it happened.
#[derive(Clone, Copy)]
struct Xid {
    of_gpu: usize,
    kind: c_ulonglong,
    number: c_ulonglong,
    instance: [c_uint; 2],
}

impl Xid {
    /// As in `0:31`, `0:31:1` or `0:31:1:0`.
    fn parse(of: &str) -> Option<Self> {
        let mut parts = of.split(':').map(str::trim);
        let (of_gpu, number) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let mut instance = [NO_INSTANCE; 2];
        for number in &mut instance {
            *number = parts.next().map_or(Some(NO_INSTANCE), |part| part.parse().ok())?;
        }
        Some(Self { of_gpu, kind: CRITICAL_XID, number, instance })
    }

    /// An event of another type.
    fn event((of_gpu, kind): (usize, c_ulonglong)) -> Self {
        Self { of_gpu, kind, number: 0, instance: [NO_INSTANCE; 2] }
    }
}

/// What NVLink connects a GPU to beyond its machine.
struct Fabric {
    cluster: [u8; 16],
    part: c_uint,
}

impl Fabric {
    /// As in `9a5c1f00-2b3d-4e5f-8a9b-0c1d2e3f4a5b:3`.
    fn parse(of: &str) -> Option<Self> {
        let (uuid, part) = of.split_once(':')?;
        let digits: String = uuid.chars().filter(|digit| *digit != '-').collect();
        let mut cluster = [0; 16];
        for (index, byte) in cluster.iter_mut().enumerate() {
            *byte = u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok()?;
        }
        Some(Self { cluster, part: part.trim().parse().ok()? })
    }
}

/// How two GPUs are connected.
struct Pair {
    one: usize,
    other: usize,
    /// `nvmlGpuTopologyLevel_t`.
    level: c_int,
    links: usize,
    /// `nvmlGpuP2PStatus_t`.
    p2p: c_int,
}

#[derive(Default)]
struct Gpu {
    name: String,
    uuid: String,
    pci_address: String,
    memory_bytes: Option<u64>,
    used_bytes: u64,
    computing: Vec<(u32, u64)>,
    clients: Vec<(u32, u64)>,
    drawing: Vec<(u32, u64)>,
    busy_percent: Option<u32>,
}

impl Answers {
    fn read() -> Option<Self> {
        let text = std::fs::read_to_string(std::env::var(FIXTURE_VARIABLE).ok()?).ok()?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Option<Self> {
        let (mut answers, mut clients) = (Self::default(), Vec::new());
        let (mut instances, mut uses, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match line.split_once('=') {
                Some(("driver", version)) => version.clone_into(&mut answers.driver),
                Some(("init", code)) => answers.init = code.parse().ok()?,
                Some(("lost", index)) => answers.lost.push(index.parse().ok()?),
                Some(("mig", of)) => match of.split_once(':') {
                    Some((index, of)) => instances.push((index.parse::<usize>().ok()?, of)),
                    None => answers.partitioned.push(of.parse().ok()?),
                },
                Some(("uses", of)) => uses.push(of.split_once(':')?),
                Some(("minor", of)) => answers.minors.push(numbered(of)?),
                Some(("recovery", of)) => answers.recoveries.push(numbered(of)?),
                Some(("warm", of)) => answers.numbers.warmth.push(two_numbers(of)?),
                Some(("sm", of)) => answers.computing.push(two_numbers(of)?),
                Some(("remap", of)) => answers.remaps.push(numbered(of)?),
                Some(("field", of)) => answers.numbers.fields.push(two_numbers(of)?),
                Some(("slowed", of)) => answers.numbers.slowed.push(numbered(of)?),
                Some(("persistence", of)) => answers.numbers.persistent.push(numbered(of)?),
                Some(("p2p", of)) => faults.push(two_numbers(of)?),
                Some(("xid", of)) => answers.xids.push(Xid::parse(of)?),
                Some(("event", of)) => answers.xids.push(Xid::event(numbered(of)?)),
                Some(("pair", of)) => answers.pairs.push(Pair::parse(of)?),
                Some(("cuda", device)) => answers.cuda = Some(device.to_owned()),
                Some(("fabric", of)) => {
                    let (index, of) = of.split_once(':')?;
                    answers.fabrics.push((index.parse().ok()?, Fabric::parse(of)?));
                }
                Some(("mps", of)) => {
                    let (index, listed) = of.split_once(':')?;
                    clients.push((index.parse::<usize>().ok()?, processes(listed)?));
                }
                _ => answers.gpus.push(Gpu::parse(line)?),
            }
        }
        for (index, listed) in clients {
            answers.gpus.get_mut(index)?.clients.extend(listed);
        }
        for (one, [other, status]) in faults {
            answers.pairs.iter_mut().find(|pair| pair.is_of(one, other as usize))?.p2p = status as c_int;
        }
        for (index, of) in instances {
            answers.partitioned.push(index);
            let instance = Instance::parse(index, answers.gpus.get(index)?, of)?;
            answers.instances.push(instance);
        }
        for (uuid, listed) in uses {
            let device = &mut answers.instances.iter_mut().find(|instance| instance.device.uuid == uuid)?.device;
            device.computing = processes(listed)?;
            device.used_bytes = device.computing.iter().map(|(_, bytes)| bytes).sum();
        }
        Some(answers)
    }
}

impl Instance {
    /// As in `1:0:MIG-5a:1g.5gb:4294967296`.
    fn parse(of_gpu: usize, gpu: &Gpu, of: &str) -> Option<Self> {
        let parts: Vec<&str> = of.split(':').map(str::trim).collect();
        let [gpu_part, processors, uuid, profile, bytes] = parts[..] else { return None };
        let device = Gpu {
            name: format!("{} MIG {profile}", gpu.name),
            uuid: uuid.to_owned(),
            memory_bytes: bytes.parse().ok(),
            ..Gpu::default()
        };
        Some(Self { of_gpu, numbers: [gpu_part.parse().ok()?, processors.parse().ok()?], device })
    }
}

impl Pair {
    /// As in `0:1:NODE,NV4`.
    fn parse(of: &str) -> Option<Self> {
        let mut parts = of.split(':');
        let (one, other, how) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?);
        let (way, links) = how.split_once(",NV").unwrap_or((how, "0"));
        let level = match way {
            "BRD" => 0,
            "PIX" => 10,
            "PXB" => 20,
            "PHB" => 30,
            "NODE" => 40,
            "SYS" => 50,
            _ => return None,
        };
        Some(Self { one, other, level, links: links.parse().ok()?, p2p: SUCCESS })
    }

    fn is_of(&self, one: usize, other: usize) -> bool {
        (self.one, self.other) == (one.min(other), one.max(other))
    }
}

impl Answers {
    /// What each NVLink of a GPU leads to: one GPU after the other.
    fn links_of(&self, index: usize) -> impl Iterator<Item = usize> + '_ {
        let of_gpu = self.pairs.iter().filter(move |pair| pair.one == index || pair.other == index);
        of_gpu.flat_map(move |pair| {
            std::iter::repeat_n(if pair.one == index { pair.other } else { pair.one }, pair.links)
        })
    }
}

impl Gpu {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split('|').map(str::trim);
        let mut text = || fields.next().unwrap_or_default().to_owned();
        let (name, uuid, pci_address, memory, used) = (text(), text(), text(), text(), text());
        let (computing, drawing) = (processes(&text())?, processes(&text())?);
        let (memory_bytes, busy_percent) = (memory.parse().ok(), text().parse().ok());
        let used_bytes = used.parse().unwrap_or(0);
        let clients = Vec::new();
        Some(Self { name, uuid, pci_address, memory_bytes, used_bytes, computing, clients, drawing, busy_percent })
    }
}

/// A GPU's index and what is said of it, as in `0:2`.
fn numbered<T: FromStr>(of: &str) -> Option<(usize, T)> {
    let (index, said) = of.split_once(':')?;
    Some((index.parse().ok()?, said.parse().ok()?))
}

/// A GPU's index and two numbers that are said of it, as in `0:350000:61`.
fn two_numbers(of: &str) -> Option<(usize, [c_uint; 2])> {
    let (index, of) = of.split_once(':')?;
    let (first, second) = of.split_once(':')?;
    Some((index.parse().ok()?, [first.parse().ok()?, second.parse().ok()?]))
}

fn processes(text: &str) -> Option<Vec<(u32, u64)>> {
    let listed = text.split(',').filter(|process| !process.is_empty());
    let numbers = listed.map(|process| {
        let (pid, bytes) = process.split_once(':')?;
        Some((pid.parse().ok()?, bytes.parse().ok()?))
    });
    numbers.collect()
}

fn opened() -> std::sync::MutexGuard<'static, Opened> {
    ANSWERS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn read_anew() {
    let mut opened = opened();
    if let (Some(answers), Some(read)) = (&mut opened.answers, Answers::read()) {
        *answers = read;
    }
}

/// NVML's handle of a device: its index and one, for null is no handle.
type Handle = *mut c_void;

fn with_answers(ask: impl FnOnce(&Answers) -> c_int) -> c_int {
    opened().answers.as_ref().map_or(UNINITIALIZED, ask)
}

fn with_gpu(handle: Handle, ask: impl FnOnce(usize, &Gpu) -> c_int) -> c_int {
    with_answers(|answers| {
        let index = (handle as usize).wrapping_sub(1);
        let gpu = answers.gpus.get(index).or_else(|| Some(&answers.instance(handle)?.device));
        gpu.map_or(INVALID_ARGUMENT, |gpu| ask(index, gpu))
    })
}

impl Answers {
    fn instance(&self, handle: Handle) -> Option<&Instance> {
        self.instances.get((handle as usize).checked_sub(FIRST_INSTANCE)?)
    }
}

fn with_instance(handle: Handle, ask: impl FnOnce(&Instance) -> c_int) -> c_int {
    with_answers(|answers| answers.instance(handle).map_or(INVALID_ARGUMENT, ask))
}

/// # Safety
/// `buffer` must be writable for `length` bytes.
unsafe fn write_text(text: &str, buffer: *mut c_char, length: c_uint) -> c_int {
    if text.is_empty() {
        return NOT_SUPPORTED;
    }
    if buffer.is_null() || text.len() >= length as usize {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: the caller vouches for `length` bytes, and the text and its end fit.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), buffer, text.len());
        *buffer.add(text.len()) = 0;
    }
    SUCCESS
}

/// # Safety
/// `place` must be null or valid for a write.
unsafe fn write<T>(place: *mut T, value: T) -> c_int {
    if place.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller vouches for a place that is not null.
    unsafe { place.write(value) };
    SUCCESS
}

/// Reads the file with the answers.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_int {
    let Some(read) = Answers::read() else { return DRIVER_NOT_LOADED };
    if read.init != SUCCESS {
        return read.init;
    }
    let mut opened = opened();
    opened.times += 1;
    opened.answers = Some(read);
    SUCCESS
}

/// Forgets the answers, once it was called as often as `nvmlInit_v2`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_int {
    let mut opened = opened();
    let Some(times) = opened.times.checked_sub(1) else { return UNINITIALIZED };
    opened.times = times;
    if times == 0 {
        opened.answers = None;
    }
    SUCCESS
}

/// # Safety
/// As in NVML: `version` must be writable for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> c_int {
    // SAFETY: passed on to the caller.
    with_answers(|answers| unsafe { write_text(&answers.driver, version, length) })
}

/// # Safety
/// As in NVML: `count` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> c_int {
    // SAFETY: passed on to the caller.
    with_answers(|answers| unsafe { write(count, answers.gpus.len() as c_uint) })
}

/// # Safety
/// As in NVML: `device` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut Handle) -> c_int {
    read_anew();
    let index = index as usize;
    with_answers(|answers| match index {
        _ if answers.lost.contains(&index) => GPU_IS_LOST,
        // SAFETY: passed on to the caller.
        _ if index < answers.gpus.len() => unsafe { write(device, (index + 1) as Handle) },
        _ => INVALID_ARGUMENT,
    })
}

/// # Safety
/// As in NVML: `uuid` must be a C string, `device` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut Handle) -> c_int {
    if uuid.is_null() {
        return INVALID_ARGUMENT;
    }
    read_anew();
    // SAFETY: not null, and the caller vouches for a C string.
    let uuid = unsafe { CStr::from_ptr(uuid) }.to_bytes();
    with_answers(|answers| match answers.gpus.iter().position(|gpu| gpu.uuid.as_bytes() == uuid) {
        // SAFETY: passed on to the caller.
        Some(index) if !answers.lost.contains(&index) => unsafe { write(device, (index + 1) as Handle) },
        Some(_) => GPU_IS_LOST,
        None => match answers.instances.iter().position(|instance| instance.device.uuid.as_bytes() == uuid) {
            // SAFETY: passed on to the caller.
            Some(place) => unsafe { write(device, (FIRST_INSTANCE + place) as Handle) },
            None => NOT_FOUND,
        },
    })
}

/// # Safety
/// As in NVML: `name` must be writable for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(device: Handle, name: *mut c_char, length: c_uint) -> c_int {
    // SAFETY: passed on to the caller.
    with_gpu(device, |_, gpu| unsafe { write_text(&gpu.name, name, length) })
}

/// # Safety
/// As in NVML: `uuid` must be writable for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(device: Handle, uuid: *mut c_char, length: c_uint) -> c_int {
    // SAFETY: passed on to the caller.
    with_gpu(device, |_, gpu| unsafe { write_text(&gpu.uuid, uuid, length) })
}

/// `nvmlPciInfo_t`.
#[repr(C)]
pub struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

/// # Safety
/// As in NVML: `pci` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: Handle, pci: *mut PciInfo) -> c_int {
    // SAFETY: passed on to the caller.
    with_gpu(device, |_, gpu| unsafe { write_address(gpu, pci) })
}

/// # Safety
/// `pci` must be null or valid for a write.
unsafe fn write_address(gpu: &Gpu, pci: *mut PciInfo) -> c_int {
    let mut numbers = gpu.pci_address.split([':', '.']).map(|part| c_uint::from_str_radix(part, 16));
    let (Some(Ok(domain)), Some(Ok(bus)), Some(Ok(slot))) = (numbers.next(), numbers.next(), numbers.next()) else {
        return NOT_SUPPORTED;
    };
    let mut info =
        PciInfo { bus_id_legacy: [0; 16], domain, bus, device: slot, device_id: 0, subsystem_id: 0, bus_id: [0; 32] };
    let full = format!("{domain:08X}:{bus:02X}:{slot:02X}.0");
    for (place, byte) in info.bus_id.iter_mut().zip(full.bytes()) {
        *place = c_char::from_ne_bytes([byte]);
    }
    // SAFETY: passed on to the caller.
    unsafe { write(pci, info) }
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
pub struct Memory {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// # Safety
/// As in NVML: `memory` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Handle, memory: *mut Memory) -> c_int {
    read_anew();
    with_gpu(device, |_, gpu| {
        let Some(total) = gpu.memory_bytes else { return NOT_SUPPORTED };
        let version = size_of::<Memory>() as c_uint | 2 << 24;
        let answer =
            Memory { version, total, reserved: 0, free: total.saturating_sub(gpu.used_bytes), used: gpu.used_bytes };
        // SAFETY: passed on to the caller.
        unsafe { write(memory, answer) }
    })
}

/// `nvmlUtilization_t`.
#[repr(C)]
pub struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// # Safety
/// As in NVML: `utilization` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(device: Handle, utilization: *mut Utilization) -> c_int {
    read_anew();
    with_gpu(device, |_, gpu| {
        let Some(busy) = gpu.busy_percent else { return NOT_SUPPORTED };
        // SAFETY: passed on to the caller.
        unsafe { write(utilization, Utilization { gpu: busy, memory: 0 }) }
    })
}

/// # Safety
/// As in NVML: `milliwatts` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPowerUsage(device: Handle, milliwatts: *mut c_uint) -> c_int {
    // SAFETY: passed on to the caller.
    with_warmth(device, |[power, _]| unsafe { write(milliwatts, power) })
}

/// # Safety
/// As in NVML: `degrees` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperature(device: Handle, _sensor: c_uint, degrees: *mut c_uint) -> c_int {
    // SAFETY: passed on to the caller.
    with_warmth(device, |[_, celsius]| unsafe { write(degrees, celsius) })
}

/// `nvmlProcessUtilizationSample_t`.
#[repr(C)]
pub struct ProcessUtilization {
    pid: c_uint,
    timestamp_us: c_ulonglong,
    processors: c_uint,
    memory: c_uint,
    encoder: c_uint,
    decoder: c_uint,
}

/// # Safety
/// As in NVML: `count` must be valid, and `samples` null or writable for `*count` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetProcessUtilization(
    device: Handle,
    samples: *mut ProcessUtilization,
    count: *mut c_uint,
    since_us: c_ulonglong,
) -> c_int {
    read_anew();
    with_answers(|answers| {
        let index = (device as usize).wrapping_sub(1);
        let of_device = answers.computing.iter().filter(|(of, _)| *of == index).map(|(_, found)| *found);
        let found: Vec<[c_uint; 2]> = of_device.collect();
        if found.is_empty() {
            return NOT_SUPPORTED;
        }
        // SAFETY: the caller vouches for it.
        let room = unsafe { count.replace(found.len() as c_uint) } as usize;
        if samples.is_null() || room < found.len() {
            return INSUFFICIENT_SIZE;
        }
        for (place, [pid, processors]) in found.into_iter().enumerate() {
            let sample =
                ProcessUtilization { pid, timestamp_us: since_us + 1, processors, memory: 0, encoder: 0, decoder: 0 };
            // SAFETY: `place` is below the room that the caller vouches for.
            unsafe { samples.add(place).write(sample) };
        }
        SUCCESS
    })
}

/// # Safety
/// As in NVML: `reasons` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(device: Handle, reasons: *mut c_ulonglong) -> c_int {
    read_anew();
    with_answers(|answers| {
        let index = (device as usize).wrapping_sub(1);
        let said = answers.numbers.slowed.iter().find(|(of, _)| *of == index);
        // SAFETY: passed on to the caller.
        said.map_or(NOT_SUPPORTED, |(_, bits)| unsafe { write(reasons, *bits) })
    })
}

/// # Safety
/// As in NVML: `mode` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPersistenceMode(device: Handle, mode: *mut c_uint) -> c_int {
    with_answers(|answers| {
        let index = (device as usize).wrapping_sub(1);
        let said = answers.numbers.persistent.iter().find(|(of, _)| *of == index);
        // SAFETY: passed on to the caller.
        said.map_or(NOT_SUPPORTED, |(_, is_on)| unsafe { write(mode, *is_on) })
    })
}

/// # Safety
/// As in NVML: `status` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetP2PStatus(one: Handle, other: Handle, _of: c_int, status: *mut c_int) -> c_int {
    with_answers(|answers| {
        let [one, other] = [one, other].map(|device| (device as usize).wrapping_sub(1));
        let pair = answers.pairs.iter().find(|pair| pair.is_of(one, other));
        // SAFETY: passed on to the caller.
        pair.map_or(NOT_SUPPORTED, |pair| unsafe { write(status, pair.p2p) })
    })
}

/// What power a device draws, and how warm it is.
fn with_warmth(device: Handle, answer: impl FnOnce([c_uint; 2]) -> c_int) -> c_int {
    read_anew();
    with_answers(|answers| {
        let index = (device as usize).wrapping_sub(1);
        answers.numbers.warmth.iter().find(|(of, _)| *of == index).map_or(NOT_SUPPORTED, |(_, warmth)| answer(*warmth))
    })
}

/// # Safety
/// As in NVML: `minor` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMinorNumber(device: Handle, minor: *mut c_uint) -> c_int {
    with_answers(|answers| {
        let index = (device as usize).wrapping_sub(1);
        if index >= answers.gpus.len() {
            return INVALID_ARGUMENT;
        }
        let said = answers.minors.iter().find(|(of, _)| *of == index).map(|(_, minor)| *minor);
        // SAFETY: passed on to the caller.
        unsafe { write(minor, said.unwrap_or(index as c_uint)) }
    })
}

/// # Safety
/// As in NVML: `current` and `pending` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigMode(device: Handle, current: *mut c_uint, pending: *mut c_uint) -> c_int {
    with_answers(|answers| {
        let mode = c_uint::from(answers.partitioned.contains(&(device as usize).wrapping_sub(1)));
        // SAFETY: passed on to the caller.
        match unsafe { write(current, mode) } {
            // SAFETY: passed on to the caller.
            SUCCESS => unsafe { write(pending, mode) },
            failure => failure,
        }
    })
}

/// # Safety
/// As in NVML: `count` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: Handle, count: *mut c_uint) -> c_int {
    with_answers(|answers| {
        let of_gpu = answers.instances.iter().filter(|instance| instance.of_gpu + 1 == device as usize).count();
        // One more, since the first place is a gap.
        // SAFETY: passed on to the caller.
        unsafe { write(count, of_gpu as c_uint + 1) }
    })
}

/// # Safety
/// As in NVML: `instance` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: Handle,
    index: c_uint,
    instance: *mut Handle,
) -> c_int {
    with_answers(|answers| {
        let all = answers.instances.iter().enumerate();
        let mut of_gpu = all.filter(|(_, instance)| instance.of_gpu + 1 == device as usize);
        match (index as usize).checked_sub(1).and_then(|place| of_gpu.nth(place)) {
            // SAFETY: passed on to the caller.
            Some((place, _)) => unsafe { write(instance, (FIRST_INSTANCE + place) as Handle) },
            None => NOT_FOUND,
        }
    })
}

/// # Safety
/// As in NVML: `is_instance` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceIsMigDeviceHandle(device: Handle, is_instance: *mut c_uint) -> c_int {
    // SAFETY: passed on to the caller.
    with_answers(|answers| unsafe { write(is_instance, c_uint::from(answers.instance(device).is_some())) })
}

/// # Safety
/// As in NVML: `device` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance: Handle, device: *mut Handle) -> c_int {
    // SAFETY: passed on to the caller.
    with_instance(instance, |instance| unsafe { write(device, (instance.of_gpu + 1) as Handle) })
}

/// # Safety
/// As in NVML: `id` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGpuInstanceId(device: Handle, id: *mut c_uint) -> c_int {
    // SAFETY: passed on to the caller.
    with_instance(device, |instance| unsafe { write(id, instance.numbers[0]) })
}

/// # Safety
/// As in NVML: `id` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeInstanceId(device: Handle, id: *mut c_uint) -> c_int {
    // SAFETY: passed on to the caller.
    with_instance(device, |instance| unsafe { write(id, instance.numbers[1]) })
}

/// `nvmlGpuFabricInfo_v2_t`.
#[repr(C)]
pub struct FabricInfo {
    version: c_uint,
    cluster: [u8; 16],
    status: c_int,
    part: c_uint,
    state: u8,
    health: c_uint,
}

/// # Safety
/// As in NVML: `info` must be valid, and as large as its version says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGpuFabricInfoV(device: Handle, info: *mut FabricInfo) -> c_int {
    const SECOND: c_uint = size_of::<FabricInfo>() as c_uint | 2 << 24;
    const COMPLETED: u8 = 3;
    // SAFETY: passed on to the caller.
    if unsafe { (*info).version } != SECOND {
        return INVALID_ARGUMENT;
    }
    with_answers(|answers| {
        let index = (device as usize).wrapping_sub(1);
        let Some((_, fabric)) = answers.fabrics.iter().find(|(of, _)| *of == index) else { return NOT_SUPPORTED };
        let (version, cluster, part) = (SECOND, fabric.cluster, fabric.part);
        // SAFETY: passed on to the caller.
        unsafe { write(info, FabricInfo { version, cluster, status: SUCCESS, part, state: COMPLETED, health: 0 }) }
    })
}

/// `nvmlProcessInfo_t`.
#[repr(C)]
pub struct ProcessInfo {
    pid: c_uint,
    used_bytes: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// # Safety
/// As in NVML: `count` must be valid, and `processes` null or writable for `*count` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: Handle,
    count: *mut c_uint,
    processes: *mut ProcessInfo,
) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { list(device, |gpu| &gpu.computing, count, processes) }
}

/// # Safety
/// As in NVML: `count` must be valid, and `processes` null or writable for `*count` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: Handle,
    count: *mut c_uint,
    processes: *mut ProcessInfo,
) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { list(device, |gpu| &gpu.drawing, count, processes) }
}

/// # Safety
/// As in NVML: `count` must be valid, and `processes` null or writable for `*count` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
    device: Handle,
    count: *mut c_uint,
    processes: *mut ProcessInfo,
) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { list(device, |gpu| &gpu.clients, count, processes) }
}

/// # Safety
/// `count` must be null or valid, and `processes` null or writable for `*count` entries.
unsafe fn list(
    device: Handle,
    of: impl Fn(&Gpu) -> &[(u32, u64)],
    count: *mut c_uint,
    processes: *mut ProcessInfo,
) -> c_int {
    read_anew();
    with_gpu(device, |_, gpu| {
        let listed = of(gpu);
        if count.is_null() {
            return INVALID_ARGUMENT;
        }
        // SAFETY: not null, and the caller vouches for it.
        let room = unsafe { count.replace(listed.len() as c_uint) } as usize;
        if listed.is_empty() {
            return SUCCESS;
        }
        if processes.is_null() || room < listed.len() {
            return INSUFFICIENT_SIZE;
        }
        for (index, (pid, used_bytes)) in listed.iter().enumerate() {
            let entry = ProcessInfo {
                pid: *pid,
                used_bytes: *used_bytes,
                gpu_instance: NO_INSTANCE,
                compute_instance: NO_INSTANCE,
            };
            // SAFETY: `index` is below the room that the caller vouches for.
            unsafe { processes.add(index).write(entry) };
        }
        SUCCESS
    })
}

/// `nvmlFieldValue_t`, of which `value` is a union of eight bytes.
#[repr(C)]
pub struct FieldValue {
    field: c_uint,
    scope: c_uint,
    timestamp: i64,
    latency_us: i64,
    value_type: c_uint,
    result: c_int,
    value: u64,
}

/// # Safety
/// As in NVML: `values` must be writable for `count` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetFieldValues(device: Handle, count: c_int, values: *mut FieldValue) -> c_int {
    read_anew();
    with_answers(|answers| {
        let index = (device as usize).wrapping_sub(1);
        if index >= answers.gpus.len() || values.is_null() {
            return INVALID_ARGUMENT;
        }
        let is_remapped = |how: &str| {
            let of_gpu = answers.remaps.iter().filter(|(of, _)| *of == index);
            Some(u64::from(of_gpu.clone().any(|(_, said)| said == how))).filter(|_| of_gpu.count() > 0)
        };
        for place in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the caller vouches for `count` entries.
            let asked = unsafe { &mut *values.add(place) };
            let known = match asked.field {
                230 => answers.recoveries.iter().find(|(of, _)| *of == index).map(|(_, action)| u64::from(*action)),
                144 => is_remapped("pending"),
                145 => is_remapped("failed"),
                other => {
                    let is_it = |(of, [field, _]): &&(usize, [c_uint; 2])| *of == index && *field == other;
                    answers.numbers.fields.iter().find(is_it).map(|(_, [_, value])| u64::from(*value))
                }
            };
            (asked.timestamp, asked.latency_us) = (0, 0);
            // An unsigned number of 32 bits, which stands in the union's first half.
            (asked.value_type, asked.value) = (1, known.unwrap_or(0));
            asked.result = if known.is_some() { SUCCESS } else { NOT_SUPPORTED };
        }
        SUCCESS
    })
}

/// The devices of an event set, and how many of the file's errors it has passed on.
struct EventSet {
    devices: Vec<usize>,
    told: usize,
    /// Of the folder with the answers, whose file is written or replaced.
    changes: OwnedFd,
    has_waited: bool,
}

impl EventSet {
    fn new(told: usize) -> rustix::io::Result<Self> {
        let file = PathBuf::from(std::env::var_os(FIXTURE_VARIABLE).unwrap_or_default());
        let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let folder = file.parent().unwrap_or_else(|| Path::new("."));
        inotify::add_watch(&changes, folder, WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE)?;
        Ok(Self { devices: Vec::new(), told, changes, has_waited: false })
    }

    /// Makes a file beside that with the answers the first time.
    fn tell_that_it_waits(&mut self) {
        if !std::mem::replace(&mut self.has_waited, true) {
            let mut sign = std::env::var_os(FIXTURE_VARIABLE).unwrap_or_default();
            sign.push(".waits");
            let _ = std::fs::write(sign, "");
        }
    }
}

/// # Safety
/// As in NVML: `set` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetCreate(set: *mut *mut c_void) -> c_int {
    read_anew();
    with_answers(|answers| {
        let Ok(made) = EventSet::new(answers.xids.len()) else { return NOT_SUPPORTED };
        // SAFETY: passed on to the caller.
        unsafe { write(set, Box::into_raw(Box::new(made)).cast()) }
    })
}

/// # Safety
/// As in NVML: `set` must be one of `nvmlEventSetCreate`, and is gone afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetFree(set: *mut c_void) -> c_int {
    if set.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller vouches for a set that was made above and is used no more.
    drop(unsafe { Box::from_raw(set.cast::<EventSet>()) });
    SUCCESS
}

/// # Safety
/// As in NVML: `events` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetSupportedEventTypes(device: Handle, events: *mut c_ulonglong) -> c_int {
    with_gpu(device, |index, _| match index {
        // SAFETY: passed on to the caller.
        0..FIRST_INSTANCE_INDEX => unsafe { write(events, EVENTS) },
        _ => NOT_SUPPORTED,
    })
}

/// # Safety
/// As in NVML: `set` must be one of `nvmlEventSetCreate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceRegisterEvents(device: Handle, events: c_ulonglong, set: *mut c_void) -> c_int {
    with_gpu(device, |index, _| {
        if set.is_null() || events & !EVENTS != 0 || index >= FIRST_INSTANCE_INDEX {
            return NOT_SUPPORTED;
        }
        // SAFETY: the caller vouches for a set that was made above and is used by no other thread.
        unsafe { &mut *set.cast::<EventSet>() }.devices.push(index);
        SUCCESS
    })
}

/// `nvmlEventData_t`.
#[repr(C)]
pub struct EventData {
    device: Handle,
    kind: c_ulonglong,
    data: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// # Safety
/// As in NVML: `set` must be one of `nvmlEventSetCreate`, `data` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetWait_v2(set: *mut c_void, data: *mut EventData, timeout_ms: c_uint) -> c_int {
    if set.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller vouches for a set that was made above and is used by no other thread.
    let set = unsafe { &mut *set.cast::<EventSet>() };
    let until = Instant::now() + Duration::from_millis(timeout_ms.into());
    set.tell_that_it_waits();
    loop {
        let xids = Answers::read().map(|answers| answers.xids).unwrap_or_default();
        while let Some(Xid { of_gpu, kind, number, instance }) = xids.get(set.told).copied() {
            set.told += 1;
            if set.devices.contains(&of_gpu) {
                let event = EventData {
                    device: (of_gpu + 1) as Handle,
                    kind,
                    data: number,
                    gpu_instance: instance[0],
                    compute_instance: instance[1],
                };
                // SAFETY: passed on to the caller.
                return unsafe { write(data, event) };
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&set.changes, PollFlags::IN)], Some(&limit)) {
            Ok(0) => return TIMEOUT,
            // What was in the way of a wait is no change, and is looked at once more.
            Ok(_) | Err(_) => drop(rustix::io::read(&set.changes, &mut [0_u8; 4096])),
        }
    }
}

/// # Safety
/// As in NVML: `level` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTopologyCommonAncestor(one: Handle, other: Handle, level: *mut c_int) -> c_int {
    with_answers(|answers| {
        let [one, other] = [one, other].map(|device| (device as usize).wrapping_sub(1));
        // SAFETY: passed on to the caller.
        answers
            .pairs
            .iter()
            .find(|pair| pair.is_of(one, other))
            .map_or(NOT_SUPPORTED, |pair| unsafe { write(level, pair.level) })
    })
}

/// # Safety
/// As in NVML: `state` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetNvLinkState(device: Handle, link: c_uint, state: *mut c_int) -> c_int {
    with_answers(|answers| match answers.links_of((device as usize).wrapping_sub(1)).nth(link as usize) {
        // SAFETY: passed on to the caller.
        Some(_) => unsafe { write(state, 1) },
        None => NOT_SUPPORTED,
    })
}

/// # Safety
/// As in NVML: `pci` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2(device: Handle, link: c_uint, pci: *mut PciInfo) -> c_int {
    with_answers(|answers| {
        let remote = answers.links_of((device as usize).wrapping_sub(1)).nth(link as usize);
        match remote.and_then(|remote| answers.gpus.get(remote)) {
            // SAFETY: passed on to the caller.
            Some(gpu) => unsafe { write_address(gpu, pci) },
            None => NOT_SUPPORTED,
        }
    })
}
