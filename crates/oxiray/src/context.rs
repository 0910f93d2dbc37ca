//! What a process, and the task it runs, may know of itself.

use crate::error::{Error, Result};
use crate::process;
use oxiray_accelerators::{Device, Host, detect};
use oxiray_client::assigned::{self, Assigned};
use oxiray_families::families_of;
use oxiray_ids::{PlacementGroupId, TaskId};
use oxiray_resources::ResourceName;
use oxiray_runtime::{Preempted, Runtime};
use oxiray_wire::message::Amount;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

thread_local! {
    /// The task that this thread runs.
    static HERE: Cell<TaskId> = const { Cell::new(TaskId::NIL) };
}

/// The placement group that what is made here runs in.
pub(crate) fn capturing_group() -> Option<PlacementGroupId> {
    let assigned = assigned::current();
    assigned.group.filter(|_| assigned.captures)
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

/// That this task or actor is to end early, since something of a higher priority waits for what it holds; only what was made
/// with [`preemptible`](crate::TaskOptions::preemptible), or runs within such a placement group, ever is. Cheap enough to ask in
/// every step of a loop.
pub fn preempted() -> Result<Option<Preempted>> {
    Ok(process::required()?.preempted())
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
    /// As it is handed out, once it is asked for.
    resources: OnceLock<BTreeMap<String, f64>>,
}

/// What this process may know of itself: its job, its node, its devices.
pub fn runtime_context() -> Result<RuntimeContext> {
    Ok(RuntimeContext { runtime: process::required()?, assigned: assigned::current(), resources: OnceLock::new() })
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
        let name = |resource: &str| {
            ResourceName::new(resource).map_or_else(|_| resource.to_owned(), |name| name.as_option().to_owned())
        };
        let amount = |one: &Amount| (name(&one.resource), one.units as f64 / 10_000.0);
        self.resources.get_or_init(|| self.assigned.resources.iter().map(amount).collect())
    }

    /// The ids of the devices granted of a resource, ascending, as the visibility variable names them.
    pub fn accelerator_ids(&self, resource: &str) -> Vec<String> {
        let granted = self.assigned.devices.iter().find(|granted| granted.resource == resource);
        granted.map(|granted| granted.ids.clone()).unwrap_or_default()
    }

    /// The devices granted to this task or actor, with what the machine tells of them.
    ///
    /// Looking at the machine takes as long as its vendor's library does: tens of milliseconds where that is NVIDIA's.
    pub fn accelerators(&self) -> Result<Vec<Accelerator>> {
        if self.assigned.devices.iter().all(|granted| granted.ids.is_empty()) {
            return Ok(Vec::new());
        }
        let host = Host::from_environment().map_err(|error| Error::Invalid(error.to_string()))?;
        let detection = detect(&host);
        let known = |resource: &str, id: &str| -> Option<Device> {
            let of_family = families_of(resource).filter_map(|family| detection.of(family));
            let mut devices = of_family.flat_map(|detected| detected.devices.iter());
            devices.find(|device| is_called(device, id)).cloned()
        };
        let described = |resource: &str, id: &str| {
            let device = known(resource, id);
            let index = device.as_ref().map(|device| device.index).or_else(|| id.parse().ok());
            let Device { name, uuid, pci_address, memory_bytes, .. } = device.unwrap_or_default();
            Accelerator { resource: resource.into(), id: id.into(), index, uuid, pci_address, name, memory_bytes }
        };
        let mut granted: Vec<_> = self.assigned.devices.iter().collect();
        granted.sort_by(|one, other| one.resource.cmp(&other.resource));
        let mut all = Vec::new();
        for one in granted {
            all.extend(one.ids.iter().map(|id| described(&one.resource, id)));
        }
        Ok(all)
    }
}

fn is_called(device: &Device, id: &str) -> bool {
    let is_uuid = device.uuid.as_deref().is_some_and(|uuid| uuid == id || (id.len() > 4 && uuid.starts_with(id)));
    is_uuid || id.parse() == Ok(device.index)
}
