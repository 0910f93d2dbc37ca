//! The accelerator guide's programs: what a task or an actor is given, and what it is shown of it.
//!
//! ```text
//! cargo run --example accelerators -- nvidia      # also: amd, intel, neuron, tpu, gaudi, ascend
//! cargo run --example accelerators -- restricted  # a machine of which a variable shows two devices
//! cargo run --example accelerators -- sharing     # four tasks on one device at the same time
//! cargo run --example accelerators -- packing     # fractions of devices
//! cargo run --example accelerators -- whole       # devices that cannot be shared
//! cargo run --example accelerators -- fresh       # processes that held a device, and those that follow
//! cargo run --example accelerators -- holding     # an actor keeps its device for life
//! cargo run --example accelerators -- typed       # a type of accelerator
//! cargo run --example accelerators -- infeasible  # more than there is
//! cargo run --example accelerators -- described   # index, UUID and PCI address
//! ```

#![expect(unreachable_pub, reason = "the public methods of an actor are what its handle offers")]
#![expect(clippy::print_stdout, reason = "it shows what it does")]

use oxiray::{ActorOptions, Builder, Error, ObjectRef, Result, TaskOptions, runtime_context};
use std::collections::BTreeSet;
use std::time::Duration;

/// A resource, the variable that shows a process its share, and the vendor's key where `GPU` is more than one's.
struct Family {
    name: &'static str,
    resource: &'static str,
    variable: &'static str,
    vendor: Option<&'static str>,
}

const FAMILIES: [Family; 7] = [
    Family { name: "nvidia", resource: "GPU", variable: "CUDA_VISIBLE_DEVICES", vendor: None },
    Family { name: "amd", resource: "GPU", variable: "ROCR_VISIBLE_DEVICES", vendor: Some("amd") },
    Family { name: "intel", resource: "GPU", variable: "ONEAPI_DEVICE_SELECTOR", vendor: Some("intel") },
    Family { name: "neuron", resource: "neuron_cores", variable: "NEURON_RT_VISIBLE_CORES", vendor: None },
    Family { name: "tpu", resource: "TPU", variable: "TPU_VISIBLE_CHIPS", vendor: None },
    Family { name: "gaudi", resource: "HPU", variable: "HABANA_VISIBLE_MODULES", vendor: None },
    Family { name: "ascend", resource: "NPU", variable: "ASCEND_RT_VISIBLE_DEVICES", vendor: None },
];

fn shown(resource: &str, variable: &str) -> Result<()> {
    println!("{resource} IDs: {:?}", runtime_context()?.accelerator_ids(resource));
    println!("{variable}: {}", std::env::var(variable).unwrap_or_default());
    Ok(())
}

struct DeviceActor;

#[oxiray::remote]
impl DeviceActor {
    pub fn new() -> Self {
        Self
    }

    pub fn ping(&self, resource: String, variable: String) -> Result<()> {
        shown(&resource, &variable)
    }

    pub fn device(&self) -> Result<Vec<String>> {
        Ok(runtime_context()?.accelerator_ids("GPU"))
    }
}

#[oxiray::remote]
fn device_task(resource: String, variable: String) -> Result<()> {
    shown(&resource, &variable)
}

/// The actor uses the first device, so the task uses the second.
fn devices(family: &Family) -> Result<()> {
    let Family { resource, variable, .. } = family;
    let _cluster = Builder::new().address("local").num_cpus(2.0).resource(resource, 2.0).init()?;
    let actor = DeviceActor::remote_with(ActorOptions::new().resource(resource, 1.0))?;
    actor.ping(*resource, *variable)?.get()?;
    device_task::remote_with(TaskOptions::new().resource(resource, 1.0), *resource, *variable)?.get()
}

/// Holds half a device until the other tasks have theirs.
#[oxiray::remote(num_gpus = 0.5)]
fn half(started: GateHandle) -> Result<Vec<String>> {
    started.pass()?.get()?;
    Ok(runtime_context()?.accelerator_ids("GPU"))
}

/// Lets nobody pass until as many have come as are awaited.
struct Gate {
    awaited: u32,
    come: std::sync::Mutex<u32>,
    all: std::sync::Condvar,
}

#[oxiray::remote(num_cpus = 0, max_concurrency = 8)]
impl Gate {
    pub fn new(awaited: u32) -> Self {
        Self { awaited, come: std::sync::Mutex::new(0), all: std::sync::Condvar::new() }
    }

    pub fn pass(&self) {
        let mut come = self.come.lock().expect("nobody panics in here");
        *come += 1;
        self.all.notify_all();
        while *come < self.awaited {
            come = self.all.wait(come).expect("nobody panics in here");
        }
    }
}

#[oxiray::remote(num_gpus = 0.25)]
fn quarter(all_run: GateHandle) -> Result<Vec<String>> {
    all_run.pass()?.get()?;
    Ok(runtime_context()?.accelerator_ids("GPU"))
}

#[oxiray::remote(resources(NPU = 0.25))]
fn quarter_of_npu(all_run: GateHandle) -> Result<Vec<String>> {
    all_run.pass()?.get()?;
    Ok(runtime_context()?.accelerator_ids("NPU"))
}

/// Each task passes the gate when all four run, on the one device that there is.
fn sharing() -> Result<()> {
    let _cluster = Builder::new().address("local").num_cpus(4.0).num_gpus(1.0).resource("NPU", 1.0).init()?;
    let (gate, other) = (Gate::remote(4_u32)?, Gate::remote(4_u32)?);
    let gpu = (0..4).map(|_| quarter::remote(gate.clone())).collect::<Result<Vec<_>>>()?;
    println!("GPUs of four tasks: {}", oxiray::get(&gpu)?.concat().join(", "));
    let npu = (0..4).map(|_| quarter_of_npu::remote(other.clone())).collect::<Result<Vec<_>>>()?;
    println!("NPUs of four tasks: {}", oxiray::get(&npu)?.concat().join(", "));
    Ok(())
}

struct HalfActor;

#[oxiray::remote(num_gpus = 0.5)]
impl HalfActor {
    pub fn new() -> Self {
        Self
    }

    pub fn ping(&self) -> Result<Vec<String>> {
        Ok(runtime_context()?.accelerator_ids("GPU"))
    }
}

/// Two tasks of half a device share one, and the third has another: 0, 0, 1. So do actors, for life.
fn packing() -> Result<()> {
    let cluster = Builder::new().address("local").num_cpus(4.0).num_gpus(2.0).init()?;
    let gate = Gate::remote(3_u32)?;
    let tasks = (0..3).map(|_| half::remote(gate.clone())).collect::<Result<Vec<_>>>()?;
    let mut devices: Vec<String> = oxiray::get(&tasks)?.concat();
    devices.sort();
    println!("devices of tasks: {}", devices.join(", "));
    cluster.shutdown();
    let _another = Builder::new().address("local").num_cpus(4.0).num_gpus(3.0).init()?;
    let actors = (0..3).map(|_| HalfActor::remote()).collect::<Result<Vec<_>>>()?;
    let mut devices = actors.iter().map(|actor| actor.ping()?.get()).collect::<Result<Vec<_>>>()?.concat();
    devices.sort();
    println!("devices of actors: {}", devices.join(", "));
    Ok(())
}

/// Neuron cores, TPUs and Gaudi cards are granted whole.
fn whole() -> Result<()> {
    let _cluster = Builder::new().address("local").resource("neuron_cores", 2.0).init()?;
    let options = TaskOptions::new().resource("neuron_cores", 0.5);
    match device_task::remote_with(options, "neuron_cores", "NEURON_RT_VISIBLE_CORES").and_then(|task| task.get()) {
        Err(error) => println!("{error}"),
        Ok(()) => println!("unexpected: half a core was granted"),
    }
    Ok(())
}

#[oxiray::remote(num_gpus = 1)]
fn process() -> u32 {
    std::process::id()
}

/// What a task left on its device goes with its process; who knows that it leaves nothing keeps the process.
fn fresh() -> Result<()> {
    let _cluster = Builder::new().address("local").num_gpus(1.0).init()?;
    let processes = |options: TaskOptions| {
        let tasks = (0..3).map(|_| process::remote_with(options.clone())).collect::<Result<Vec<_>>>()?;
        let distinct: BTreeSet<u32> = oxiray::get(&tasks)?.into_iter().collect();
        Ok::<usize, Error>(distinct.len())
    };
    println!("processes of three tasks: {}", processes(TaskOptions::new())?);
    println!("a process is used again with max_calls = 0: {}", processes(TaskOptions::new().max_calls(0))? < 3);
    Ok(())
}

fn restricted() -> Result<()> {
    // SAFETY: this is the one thread of the process.
    unsafe { std::env::set_var("CUDA_VISIBLE_DEVICES", "1,3") };
    let _cluster = Builder::new().address("local").num_gpus(2.0).init()?;
    let actors = [1.0, 1.0].map(|count| DeviceActor::remote_with(ActorOptions::new().num_gpus(count)));
    let mut devices = actors.into_iter().map(|actor| actor?.device()?.get()).collect::<Result<Vec<_>>>()?.concat();
    devices.sort();
    println!("devices: {}", devices.join(", "));
    Ok(())
}

fn holding() -> Result<()> {
    let _cluster = Builder::new().address("local").num_cpus(4.0).num_gpus(2.0).init()?;
    let first = DeviceActor::remote_with(ActorOptions::new().num_gpus(1.0))?;
    let second = DeviceActor::remote_with(ActorOptions::new().num_gpus(1.0))?;
    println!("actors: {} and {}", first.device()?.get()?.concat(), second.device()?.get()?.concat());
    let third = DeviceActor::remote_with(ActorOptions::new().num_gpus(1.0))?;
    let waits: ObjectRef<Vec<String>> = third.device()?;
    match waits.get_timeout(Duration::from_millis(200)) {
        Err(Error::TimedOut) => println!("a third actor waits"),
        other => println!("unexpected: {other:?}"),
    }
    oxiray::kill(&first, false);
    println!("it has device {} when the first is gone", waits.get()?.concat());
    Ok(())
}

#[oxiray::remote(num_gpus = 1)]
fn train() -> Result<Vec<String>> {
    Ok(runtime_context()?.accelerator_ids("GPU"))
}

fn typed() -> Result<()> {
    let _cluster = Builder::new().address("local").init()?;
    let device = train::remote_with(TaskOptions::new().accelerator_type("H100"))?.get()?;
    println!("ran on an H100, device {}", device.concat());
    match train::remote_with(TaskOptions::new().accelerator_type("V100"))?.get() {
        Err(Error::Unschedulable(reason)) if reason.contains("V100") => println!("no machine here has a V100"),
        other => println!("unexpected: {other:?}"),
    }
    Ok(())
}

fn infeasible() -> Result<()> {
    let _cluster = Builder::new().address("local").num_gpus(2.0).init()?;
    match train::remote_with(TaskOptions::new().num_gpus(3.0))?.get() {
        Err(Error::Unschedulable(reason)) => println!("{reason}"),
        other => println!("unexpected: {other:?}"),
    }
    Ok(())
}

#[oxiray::remote(num_gpus = 2)]
fn describe() -> Result<Vec<String>> {
    let accelerators = runtime_context()?.accelerators()?;
    let text = |one: &Option<String>| one.clone().unwrap_or_else(|| "unknown".into());
    let line = |one: &oxiray::Accelerator| {
        let index = one.index.map_or_else(|| "unknown".into(), |index| index.to_string());
        format!("device {index}: {}, {}", text(&one.uuid), text(&one.pci_address))
    };
    Ok(accelerators.iter().map(line).collect())
}

fn described() -> Result<()> {
    let _cluster = Builder::new().address("local").init()?;
    println!("{}", describe::remote()?.get()?.join("\n"));
    Ok(())
}

#[oxiray::main]
fn main() -> Result<()> {
    let asked = std::env::args().nth(1).unwrap_or_default();
    if let Some(family) = FAMILIES.iter().find(|family| family.name == asked) {
        if let Some(key) = family.vendor {
            // SAFETY: this is the one thread of the process.
            unsafe { std::env::set_var("OXIRAY_GPU_FAMILY", key) };
        }
        return devices(family);
    }
    match asked.as_str() {
        "restricted" => restricted(),
        "sharing" => sharing(),
        "packing" => packing(),
        "whole" => whole(),
        "fresh" => fresh(),
        "holding" => holding(),
        "typed" => typed(),
        "infeasible" => infeasible(),
        "described" => described(),
        _ => Err(Error::Invalid("name a program: nvidia, amd, ..., or another that the top of this file lists".into())),
    }
}
