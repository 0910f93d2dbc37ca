//! What a process, and the task it runs, may know of itself.

use crate::error::{Error, Result};
use crate::process;
use oxiray_accelerators::{Device, Host, detect};
use oxiray_families::families_of;
use oxiray_ids::{ActorId, PlacementGroupId, TaskId};
use oxiray_runtime::Runtime;
use oxiray_wire::message::Assign;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the daemon assigned to this worker.
#[derive(Debug, Default)]
struct Assigned {
    devices: BTreeMap<String, Vec<String>>,
    resources: BTreeMap<String, f64>,
    actor: Option<ActorId>,
    restarts: u32,
    is_worker: bool,
    group: Option<PlacementGroupId>,
    captures: bool,
}

static ASSIGNED: Mutex<Option<Arc<Assigned>>> = Mutex::new(None);

/// Whether what is made here runs in this worker's placement group: asked with each call.
static CAPTURES: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The task that this thread runs.
    static HERE: Cell<TaskId> = const { Cell::new(TaskId::NIL) };
}

pub(crate) fn assign(assign: &Assign) {
    let actor = assign.actor.as_ref();
    CAPTURES.store(assign.captures && PlacementGroupId::from_slice(&assign.group).is_some(), Ordering::Relaxed);
    *ASSIGNED.lock() = Some(Arc::new(Assigned {
        devices: assign.devices.iter().map(|one| (one.resource.clone(), one.ids.clone())).collect(),
        resources: assign.resources.iter().map(|one| (one.resource.clone(), one.units as f64 / 10_000.0)).collect(),
        actor: actor.and_then(|actor| ActorId::from_slice(&actor.actor)),
        restarts: actor.map_or(0, |actor| actor.restarts),
        is_worker: true,
        group: PlacementGroupId::from_slice(&assign.group),
        captures: assign.captures,
    }));
}

fn assigned() -> Arc<Assigned> {
    ASSIGNED.lock().clone().unwrap_or_default()
}

/// Whether this process is a worker.
pub(crate) fn is_worker() -> bool {
    assigned().is_worker
}

/// The placement group that what is made here runs in.
pub(crate) fn capturing_group() -> Option<PlacementGroupId> {
    let assigned = assigned();
    assigned.group.filter(|_| assigned.captures)
}

pub(crate) fn captures() -> bool {
    CAPTURES.load(Ordering::Relaxed)
}

/// The task that this thread works for; nil in a driver.
pub(crate) fn current_task() -> TaskId {
    HERE.get()
}

/// While `run` runs, this thread works for the task.
pub(crate) fn within<R>(task: TaskId, run: impl FnOnce() -> R) -> R {
    let before = HERE.replace(task);
    let result = run();
    HERE.set(before);
    result
}

/// A device that this task or actor was granted.
#[derive(Debug, Clone, PartialEq)]
pub struct Accelerator {
    /// The resource that it is one of, such as `GPU`.
    pub resource: String,
    /// What the visibility variable calls it: an index, or a name that was set on the machine.
    pub id: String,
    /// Its position among the machine's devices of its kind, where that is known.
    pub index: Option<usize>,
    /// Its unique id.
    pub uuid: Option<String>,
    /// Its place on the PCI bus, as `0000:19:00.0`.
    pub pci_address: Option<String>,
    /// The vendor's name for it.
    pub name: Option<String>,
    /// Its own memory.
    pub memory_bytes: Option<u64>,
}

/// What this process may know of itself; see [`runtime_context`].
#[derive(Debug)]
pub struct RuntimeContext {
    runtime: Runtime,
    assigned: Arc<Assigned>,
}

/// What this process may know of itself: its job, its node, its devices.
pub fn runtime_context() -> Result<RuntimeContext> {
    Ok(RuntimeContext { runtime: process::required()?, assigned: assigned() })
}

impl RuntimeContext {
    /// The job: 8 hexadecimal digits.
    pub fn job_id(&self) -> String {
        self.runtime.identity().job.hex()
    }

    /// The node that this process runs on: 56 hexadecimal digits.
    pub fn node_id(&self) -> String {
        self.runtime.identity().node.hex()
    }

    /// The task that this thread runs: 48 hexadecimal digits; nothing in a driver.
    pub fn task_id(&self) -> Option<String> {
        let task = current_task();
        (!task.is_nil()).then(|| task.hex())
    }

    /// The actor that this process is: 32 hexadecimal digits.
    pub fn actor_id(&self) -> Option<String> {
        self.assigned.actor.map(|actor| actor.hex())
    }

    /// How often this actor was made anew.
    pub fn restarts(&self) -> u32 {
        self.assigned.restarts
    }

    /// Where this job's actors have their names.
    pub fn namespace(&self) -> &str {
        &self.runtime.identity().namespace
    }

    /// What `Builder::address` takes to come here.
    pub fn address(&self) -> &str {
        &self.runtime.identity().address
    }

    /// Whether the call that this thread runs was cancelled: what a long one asks now and then.
    pub fn is_cancelled(&self) -> bool {
        self.runtime.is_cancelled(current_task())
    }

    /// Everything granted to this task or actor.
    pub fn resources(&self) -> &BTreeMap<String, f64> {
        &self.assigned.resources
    }

    /// The ids of the devices granted of a resource, ascending, as the visibility variable names them.
    pub fn accelerator_ids(&self, resource: &str) -> Vec<String> {
        self.assigned.devices.get(resource).cloned().unwrap_or_default()
    }

    /// The devices granted to this task or actor, with what the machine tells of them.
    ///
    /// Looking at the machine takes as long as its vendor's library does: tens of milliseconds where that is NVIDIA's.
    pub fn accelerators(&self) -> Result<Vec<Accelerator>> {
        if self.assigned.devices.values().all(Vec::is_empty) {
            return Ok(Vec::new());
        }
        let host = Host::from_environment().map_err(|error| Error::Invalid(error.to_string()))?;
        let detection = detect(&host);
        let known = |resource: &str, id: &str| -> Option<Device> {
            let of_family = families_of(resource).filter_map(|family| detection.of(family));
            let mut devices = of_family.flat_map(|detected| detected.devices.iter());
            devices.find(|device| is_called(device, id)).cloned()
        };
        let described = |resource: &String, id: &String| {
            let device = known(resource, id);
            let index = device.as_ref().map(|device| device.index).or_else(|| id.parse().ok());
            let Device { name, uuid, pci_address, memory_bytes, .. } = device.unwrap_or_default();
            Accelerator { resource: resource.clone(), id: id.clone(), index, uuid, pci_address, name, memory_bytes }
        };
        let all = self.assigned.devices.iter().flat_map(|(resource, ids)| ids.iter().map(move |id| (resource, id)));
        Ok(all.map(|(resource, id)| described(resource, id)).collect())
    }
}

fn is_called(device: &Device, id: &str) -> bool {
    let is_uuid = device.uuid.as_deref().is_some_and(|uuid| uuid == id || (id.len() > 4 && uuid.starts_with(id)));
    is_uuid || id.parse() == Ok(device.index)
}
