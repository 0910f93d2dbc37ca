//! A driver joins its daemon, and leaves it.

use crate::environment::AskedEnvironment;
use crate::{context, process, stacks};
use bytes::Bytes;
use oxiray_client::demand::Quantities;
use oxiray_client::driver::NotEntered;
use oxiray_client::{assigned, daemon, demand, driver};
use oxiray_runtime::ClientEvent;
use oxiray_visitor::{Description, FoundSession};
use oxiray_wire::message::Driver;
use pyo3::exceptions::{PyConnectionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;

/// Raises where references must not be pickled by others than the runtime.
pub(crate) fn check_out_of_band(py: Python<'_>) -> PyResult<()> {
    py.import("oxiray._serialization")?.getattr("check_out_of_band")?.call0().map(|_| ())
}

/// Raised where a driver is in no cluster: `ValueError` where it is at fault, `ConnectionError` where it is not.
fn not_entered(error: NotEntered) -> PyErr {
    match error {
        NotEntered::Refused(_) | NotEntered::TooLarge(_) => PyValueError::new_err(error.to_string()),
        NotEntered::System(error) => error.into(),
        _ => PyConnectionError::new_err(error.to_string()),
    }
}

/// The running cluster that is meant, as `(directory, address, secret, IP address of the node)`; `None` for a private one.
#[pyfunction]
fn find_session(address: Option<&str>, ip: Option<&str>) -> PyResult<Option<(PathBuf, String, String, String)>> {
    let found = driver::find(address, ip).map_err(not_entered)?;
    Ok(found.map(|FoundSession { directory, description, .. }| {
        let Description { address, token, ip, .. } = description;
        (directory, address, token, ip)
    }))
}

/// A connection to the daemon of the session in a directory, whose address is known.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "what comes from Python is a copy of our own")]
fn connect_session(directory: PathBuf, address: &str) -> PyResult<i32> {
    driver::connect(&directory, address).map(IntoRawFd::into_raw_fd).map_err(not_entered)
}

/// Starts a private daemon with these variables besides this process's: a connection to it, and its process.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "what comes from Python is a copy of our own")]
fn start_daemon(program: PathBuf, config: &str, variables: BTreeMap<OsString, OsString>) -> PyResult<(i32, u32)> {
    let (stream, pid) = daemon::start(&program, config, variables)?;
    Ok((stream.into_raw_fd(), pid))
}

/// Waits for a private daemon to end, as it does with its connection; one that hangs is ended.
#[pyfunction]
fn await_daemon(py: Python<'_>, pid: u32) {
    py.detach(|| daemon::end(pid));
}

/// Greets the daemon at the other end of `descriptor` and starts this process's runtime on it.
/// Raises `ValueError` with the daemon's reason where it refuses.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one call from one place in Python, by keyword")]
#[pyo3(signature = (
    *, descriptor, token, interpreter, setup, namespace, wants_logs, environment, entrypoint, metadata, runtime_env
))]
fn connect<'py>(
    py: Python<'py>,
    descriptor: i32,
    token: String,
    interpreter: String,
    setup: &[u8],
    namespace: String,
    wants_logs: bool,
    environment: AskedEnvironment,
    entrypoint: String,
    metadata: BTreeMap<String, String>,
    runtime_env: String,
) -> PyResult<Bound<'py, PyDict>> {
    // SAFETY: the caller passes a descriptor of its own that nothing else uses.
    let stream = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let setup = Bytes::copy_from_slice(setup);
    let environment = Some(environment.into());
    let driver = Driver {
        interpreter,
        setup,
        namespace,
        wants_logs,
        environment,
        entrypoint,
        metadata,
        runtime_env,
        ..Driver::default()
    };
    py.detach(|| driver::enter(stream, token, driver)).map_err(not_entered)?;
    let runtime = process::required()?;
    stacks::tell(py, &runtime);
    runtime.says_whether_alone();
    context::context(py)
}

/// From here on, what this program makes is so urgent, unless something else is said of it: as given, or as
/// `OXIRAY_JOB_PRIORITY` says. Raises `ValueError` for what is no priority.
#[pyfunction]
#[pyo3(signature = (priority))]
fn set_job_priority(priority: Option<i32>) -> PyResult<()> {
    assigned::set_priority(assigned::job_priority(priority).map_err(PyValueError::new_err)?);
    Ok(())
}

/// Says that the job is over, and which exception ended its program, if one did.
#[pyfunction]
#[pyo3(signature = (error = ""))]
fn say_goodbye(error: &str) {
    if let Some(runtime) = process::current() {
        runtime.say_goodbye(error);
    }
}

/// Ends this process's runtime.
#[pyfunction]
fn disconnect(py: Python<'_>) {
    if let Some(runtime) = process::set(None) {
        runtime.close();
        py.detach(|| drop(runtime));
    }
}

/// Whether this process has a runtime.
#[pyfunction]
fn is_connected() -> bool {
    process::current().is_some()
}

/// After a fork of the user's own: the child has no runtime, and leaves the parent's alone.
#[pyfunction]
#[pyo3(name = "_after_fork")]
fn after_fork() {
    if let Some(runtime) = process::set(None) {
        runtime.abandon();
        std::mem::forget(runtime);
    }
}

/// The next thing to know: `("lines", pid, name, is_error, bytes)`, `("notice", text)`, `("ready", id)`,
/// `("ended", id)`, `("preempted", is_preempted, ends_now)`, `("unseen", exception)`, `("over",)`.
#[pyfunction]
fn next_news(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let runtime = process::required()?;
    Ok(match py.detach(|| runtime.next_news()) {
        ClientEvent::Lines(said) => ("lines", said.pid, said.name, said.error, PyBytes::new(py, &said.lines), said.ip)
            .into_pyobject(py)?
            .into_any(),
        ClientEvent::Notice(text) => ("notice", text).into_pyobject(py)?.into_any(),
        ClientEvent::Preempted { told, ends_now } => {
            ("preempted", told.is_some(), ends_now).into_pyobject(py)?.into_any()
        }
        ClientEvent::Ended(id) => ("ended", PyBytes::new(py, id.as_bytes())).into_pyobject(py)?.into_any(),
        ClientEvent::Ready(id) => ("ready", PyBytes::new(py, id.as_bytes())).into_pyobject(py)?.into_any(),
        ClientEvent::Unseen(value) => match crate::values::exception(py, &value) {
            Some(error) => ("unseen", error.into_value(py)).into_pyobject(py)?.into_any(),
            None => ("unseen", py.None()).into_pyobject(py)?.into_any(),
        },
        ClientEvent::Over => ("over",).into_pyobject(py)?.into_any(),
    })
}

/// Raises `ValueError` where a task or actor, or a bundle of a placement group, may not ask for this much of a resource.
#[pyfunction]
#[pyo3(signature = (resource, quantity, in_bundle = false))]
fn check_quantity(resource: &str, quantity: f64, in_bundle: bool) -> PyResult<()> {
    let check = if in_bundle { oxiray_families::check_bundle } else { oxiray_families::check_quantity };
    check(resource, quantity).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The resource that asks for a type of accelerator, and how much of it.
#[pyfunction]
fn accelerator_type(name: &str) -> (String, f64) {
    demand::accelerator_type(name)
}

/// What a task takes, after how many calls its process ends, and whether it has a process of its own.
#[pyfunction]
fn task_demand(asked: Quantities, cpus: f64, max_calls: Option<u32>) -> (Quantities, u32, bool) {
    let demand = demand::of_task(asked, Some(cpus), max_calls);
    (demand.resources, demand.max_calls, demand.fresh)
}

/// What a machine must have free to take an actor, and what the actor then holds.
#[pyfunction]
fn actor_demand(asked: Quantities, cpus: Option<f64>) -> (Quantities, Quantities) {
    let demand = demand::of_actor(asked, cpus);
    (demand.placement, demand.running)
}

/// The table of the families of accelerators, as JSON: `python/oxiray/_families.py` reads it.
#[pyfunction]
fn families() -> String {
    oxiray_families::table().to_string()
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(find_session, module)?)?;
    module.add_function(wrap_pyfunction!(connect_session, module)?)?;
    module.add_function(wrap_pyfunction!(start_daemon, module)?)?;
    module.add_function(wrap_pyfunction!(await_daemon, module)?)?;
    module.add_function(wrap_pyfunction!(connect, module)?)?;
    module.add_function(wrap_pyfunction!(set_job_priority, module)?)?;
    module.add_function(wrap_pyfunction!(say_goodbye, module)?)?;
    module.add_function(wrap_pyfunction!(disconnect, module)?)?;
    module.add_function(wrap_pyfunction!(is_connected, module)?)?;
    module.add_function(wrap_pyfunction!(after_fork, module)?)?;
    module.add_function(wrap_pyfunction!(next_news, module)?)?;
    module.add("DEFAULT_MAX_RETRIES", demand::DEFAULT_MAX_RETRIES)?;
    module.add("PRIORITIES", (assigned::PRIORITIES.start(), assigned::PRIORITIES.end()))?;
    module.add_function(wrap_pyfunction!(accelerator_type, module)?)?;
    module.add_function(wrap_pyfunction!(task_demand, module)?)?;
    module.add_function(wrap_pyfunction!(actor_demand, module)?)?;
    module.add_function(wrap_pyfunction!(check_quantity, module)?)?;
    module.add_function(wrap_pyfunction!(families, module)?)
}
