//! What this process, and the task it runs, may know of itself.

use crate::python;
use oxiray_client::assigned;
use oxiray_ids::TaskId;
use oxiray_resources::ResourceName;
use oxiray_wire::message::Amount;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The task of a thread.
pub(crate) struct Running {
    pub(crate) task: TaskId,
    pub(crate) name: String,
    /// The name of the function or method.
    pub(crate) function: String,
    /// The function, once it is there; none for a method.
    pub(crate) called: OnceLock<Py<PyAny>>,
}

impl Running {
    pub(crate) fn new(task: TaskId, name: String, function: String) -> Self {
        Self { task, name, function, called: OnceLock::new() }
    }
}

thread_local! {
    static HERE: RefCell<Option<Arc<Running>>> = const { RefCell::new(None) };
}

/// The latest task of any thread: what threads of the user's own are taken to work for.
static LATEST: Mutex<Option<Arc<Running>>> = Mutex::new(None);
static HAS_EVENT_LOOP: AtomicBool = AtomicBool::new(false);

/// From here on, calls run in an event loop, and which one runs is known to it alone.
pub(crate) fn serve_with_event_loop() {
    HAS_EVENT_LOOP.store(true, Ordering::Relaxed);
}

/// The task that this thread works for; nil in a driver.
pub(crate) fn current_task(py: Python<'_>) -> TaskId {
    if let Some(task) = HERE.with_borrow(|here| here.as_ref().map(|running| running.task)) {
        return task;
    }
    if HAS_EVENT_LOOP.load(Ordering::Relaxed) {
        let call = python::current_call(py).and_then(|call| call.call_method0("get"));
        let named = call.and_then(|call| call.get_item(0)).and_then(|name| name.extract::<String>());
        if let Some(task) = named.ok().and_then(|hex| TaskId::from_hex(&hex).ok()) {
            return task;
        }
    }
    let latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
    latest.as_ref().map_or(TaskId::NIL, |running| running.task)
}

pub(crate) fn enter(running: Running) {
    let running = Arc::new(running);
    let earlier = LATEST.lock().unwrap_or_else(PoisonError::into_inner).replace(Arc::clone(&running));
    // Outside of the lock, which every thread of the user's asks for.
    drop(earlier);
    HERE.set(Some(running));
}

/// The task of this thread runs this function.
pub(crate) fn calls(function: &Bound<'_, PyAny>) {
    HERE.with_borrow(|here| {
        if let Some(running) = here {
            running.called.get_or_init(|| function.clone().unbind());
        }
    });
}

pub(crate) fn leave() {
    HERE.set(None);
}

pub(crate) fn running() -> Option<Arc<Running>> {
    HERE.with_borrow(Clone::clone).or_else(|| LATEST.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

/// Everything `RuntimeContext` and `get_gpu_ids` answer from.
#[pyfunction]
pub(crate) fn context(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let runtime = crate::process::required()?;
    let identity = runtime.identity();
    let assigned = assigned::current();
    let running = running();
    let answer = PyDict::new(py);
    answer.set_item("job_id", identity.job.hex())?;
    answer.set_item("node_id", identity.node.hex())?;
    answer.set_item("worker_id", identity.worker.hex())?;
    answer.set_item("namespace", &identity.namespace)?;
    answer.set_item("session", &identity.session)?;
    answer.set_item("address", &identity.address)?;
    answer.set_item("is_worker", assigned.is_worker)?;
    answer.set_item("actor_id", assigned.actor.map(|actor| actor.hex()))?;
    answer.set_item("placement_group", assigned.group.map(|group| group.hex()))?;
    answer.set_item("captures", assigned.captures)?;
    answer.set_item("priority", oxiray_client::assigned::priority())?;
    answer.set_item("actor_name", &assigned.actor_name)?;
    answer.set_item("restarts", assigned.restarts)?;
    answer.set_item("task_id", running.as_ref().map(|running| running.task.hex()))?;
    answer.set_item("task_name", running.as_ref().map(|running| running.name.clone()))?;
    answer.set_item("function_name", running.as_ref().map(|running| running.function.clone()))?;
    let called = running.as_ref().and_then(|running| running.called.get());
    answer.set_item("function", called.map(|called| called.bind(py)))?;
    let devices = PyDict::new(py);
    for granted in &assigned.devices {
        devices.set_item(&granted.resource, (&granted.ids, granted.preset))?;
    }
    answer.set_item("devices", devices)?;
    answer.set_item("resources", amounts(py, &assigned.resources)?)?;
    Ok(answer)
}

/// Each device that was granted, as `RuntimeContext.get_devices` tells of it.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let answer = PyList::empty(py);
    for of in &assigned::current().devices {
        for (ordinal, (facts, id)) in of.facts.iter().zip(&of.ids).enumerate() {
            let row = PyDict::new(py);
            row.set_item("resource", &of.resource)?;
            row.set_item("slot", facts.slot)?;
            row.set_item("ordinal", ordinal)?;
            row.set_item("id", id)?;
            row.set_item("uuid", Some(&facts.uuid).filter(|uuid| !uuid.is_empty()))?;
            row.set_item("pci_address", Some(&facts.pci_address).filter(|address| !address.is_empty()))?;
            row.set_item("share", facts.share as f64 / 10_000.0)?;
            row.set_item("memory_bytes", Some(facts.memory_bytes).filter(|bytes| *bytes > 0))?;
            row.set_item("isolation", facts.isolation.name())?;
            row.set_item("memory_tier", facts.memory.as_ref().map(|kept| kept.tier.name()))?;
            row.set_item("memory_watched", facts.memory.as_ref().is_some_and(|kept| kept.is_watched))?;
            answer.append(row)?;
        }
    }
    Ok(answer)
}

/// Amounts as Python knows them.
pub(crate) fn amounts<'py>(py: Python<'py>, amounts: &[Amount]) -> PyResult<Bound<'py, PyDict>> {
    let answer = PyDict::new(py);
    for amount in amounts {
        let name = ResourceName::new(&amount.resource);
        let name = name.as_ref().map_or(&amount.resource[..], ResourceName::as_option);
        answer.set_item(name, amount.units as f64 / 10_000.0)?;
    }
    Ok(answer)
}
