//! What is kept, by this process and by the daemon; giving it back by hand.

use crate::values::ids_of;
use crate::{process, state};
use oxiray_client::worker;
use oxiray_ids::TaskId;
use oxiray_runtime::MemoryRetries;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::time::{Duration, Instant};

/// The longest wait there is before a task is run again: a day.
const DELAY_MS_MAX: u64 = 86_400_000;

/// How many objects this process knows.
#[pyfunction]
fn objects_known() -> PyResult<usize> {
    Ok(process::required()?.figures().objects)
}

/// What this process keeps, each as a number: `objects`, `tasks`, `leases`, `recipes`, `recipe_bytes`, `segments`.
#[pyfunction]
fn figures(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let figures = process::required()?.figures();
    let told = PyDict::new(py);
    told.set_item("objects", figures.objects)?;
    told.set_item("tasks", figures.tasks)?;
    told.set_item("leases", figures.leases)?;
    told.set_item("task_specs", figures.task_specs)?;
    told.set_item("task_spec_bytes", figures.task_spec_bytes)?;
    told.set_item("segments", figures.segments)?;
    Ok(told)
}

/// Which of these objects the head knows, who holds them and where they lie, and how many more there are; all that it
/// knows where none is named.
#[pyfunction]
#[pyo3(signature = (references = None, timeout_s = None))]
fn holdings<'py>(
    py: Python<'py>,
    references: Option<&Bound<'py, PyList>>,
    timeout_s: Option<f64>,
) -> PyResult<(Bound<'py, PyAny>, u64)> {
    let runtime = process::required()?;
    let length = timeout_s.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let deadline = length.and_then(|length| Instant::now().checked_add(length));
    let objects = references.map_or(Ok(Vec::new()), |references| ids_of(&runtime, references))?;
    let told = py.detach(|| runtime.holdings(&objects, deadline)).map_err(|error| process::error(py, &error))?;
    Ok((state::shown(py, &told.objects)?, told.left_out))
}

/// What runs here runs in this runtime environment, given as JSON.
#[pyfunction]
fn note_environment(described: String) -> PyResult<()> {
    process::required()?.note_environment(described);
    Ok(())
}

/// The bytes of each of these objects; `None` where this process does not know its value.
#[pyfunction]
fn sizes(references: &Bound<'_, PyList>) -> PyResult<Vec<Option<u64>>> {
    let runtime = process::required()?;
    Ok(ids_of(&runtime, references)?.into_iter().map(|id| runtime.size_of(id)).collect())
}

/// Asks for news when nothing in this process refers to the object any more; `False` where this process does not own it.
#[pyfunction]
fn watch(reference: &Bound<'_, PyAny>) -> PyResult<bool> {
    let runtime = process::required()?;
    let ids = ids_of(&runtime, &PyList::new(reference.py(), [reference])?)?;
    Ok(ids.into_iter().all(|id| runtime.watch(id)))
}

/// Asks for news when nobody anywhere refers to a stored object of this process's any more, for which it keeps so many bytes on a
/// device.
#[pyfunction]
fn keep_on_device(reference: &Bound<'_, PyAny>, device: &str, size: u64) -> PyResult<bool> {
    let runtime = process::required()?;
    let ids = ids_of(&runtime, &PyList::new(reference.py(), [reference])?)?;
    Ok(ids.into_iter().all(|id| runtime.keep_on_device(id, device.to_owned(), size)))
}

/// Gives the memory of these objects back, whoever refers to them.
#[pyfunction]
fn free(references: &Bound<'_, PyList>) -> PyResult<()> {
    let runtime = process::required()?;
    runtime.free(&ids_of(&runtime, references)?);
    Ok(())
}

/// Asks every other process of the cluster to collect garbage.
#[pyfunction]
fn collect_garbage() -> PyResult<()> {
    process::required()?.collect_garbage();
    Ok(())
}

/// Tells that code which ran here raised an error of a device.
#[pyfunction]
fn device_error_raised(text: String) -> PyResult<()> {
    process::required()?.device_error_raised(text);
    Ok(())
}

/// What drivers reported of this worker's devices while the task ran here that has raised, in lines for its error.
#[pyfunction]
fn device_errors(py: Python<'_>, task: &str) -> PyResult<Vec<String>> {
    let runtime = process::required()?;
    let task = TaskId::from_hex(task).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(py.detach(|| worker::device_errors(&runtime, task)))
}

/// Whether lost values are made again, and how many bytes the records for that may take.
#[pyfunction]
fn configure_lineage(enabled: bool, bytes_limit: usize) -> PyResult<()> {
    process::required()?.configure_lineage(enabled, bytes_limit);
    Ok(())
}

/// How many milliseconds a task waits at least before it is run again, and how often and after which first pause one is
/// that was ended for want of memory; a negative count is none.
#[pyfunction]
fn configure_retries(delay_ms: u64, memory_retries: i64, memory_delay_ms: u64) -> PyResult<()> {
    let delay = |milliseconds: u64| Duration::from_millis(milliseconds.min(DELAY_MS_MAX));
    let limit = u64::try_from(memory_retries).ok().map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
    let memory = MemoryRetries { limit, pause: delay(memory_delay_ms) };
    process::required()?.configure_retries(delay(delay_ms), memory);
    Ok(())
}

/// Stored objects that are read from now on may be had by `Pin.private`.
#[pyfunction]
fn keep_descriptors() -> PyResult<()> {
    process::required()?.keep_descriptors();
    Ok(())
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(objects_known, module)?)?;
    module.add_function(wrap_pyfunction!(figures, module)?)?;
    module.add_function(wrap_pyfunction!(holdings, module)?)?;
    module.add_function(wrap_pyfunction!(sizes, module)?)?;
    module.add_function(wrap_pyfunction!(watch, module)?)?;
    module.add_function(wrap_pyfunction!(keep_on_device, module)?)?;
    module.add_function(wrap_pyfunction!(note_environment, module)?)?;
    module.add_function(wrap_pyfunction!(keep_descriptors, module)?)?;
    module.add_function(wrap_pyfunction!(free, module)?)?;
    module.add_function(wrap_pyfunction!(collect_garbage, module)?)?;
    module.add_function(wrap_pyfunction!(device_error_raised, module)?)?;
    module.add_function(wrap_pyfunction!(device_errors, module)?)?;
    module.add_function(wrap_pyfunction!(configure_lineage, module)?)?;
    module.add_function(wrap_pyfunction!(configure_retries, module)?)
}
