//! `put`, `get`, `wait`.

use crate::blob::{self, Serialized};
use crate::reference::ObjectRef;
use crate::{context, process, python};
use bytes::Bytes;
use oxiray_ids::{ActorId, ObjectId, TaskId, Unique};
use oxiray_runtime::{INLINE_BYTES, Runtime, RuntimeError, Unmet};
use oxiray_wire::message::{Content, Value};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The task that puts are counted under where no task runs.
pub(crate) fn own_task(runtime: &Runtime) -> TaskId {
    static OWN: OnceLock<TaskId> = OnceLock::new();
    let fresh = || TaskId::generate(ActorId::nil_of(runtime.identity().job), &mut Unique::new());
    context::running().map_or_else(|| *OWN.get_or_init(fresh), |running| running.task)
}

/// A number for the next object that this process puts.
pub(crate) fn next_put() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    ObjectId::FIRST_PUT | NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A serialized value, in the store where it is large.
pub(crate) fn keep(py: Python<'_>, runtime: &Runtime, id: ObjectId, serialized: Serialized) -> PyResult<Value> {
    let contained = serialized.contained.iter().map(|inner| runtime.reference(*inner)).collect();
    let size = serialized.size();
    if size <= INLINE_BYTES {
        return Ok(Value { content: Some(Content::Inline(serialized.into_bytes())), contained });
    }
    py.detach(|| runtime.store(id, size, |target| serialized.write(target)))
        .map_err(|error| process::error(py, &error))?;
    Ok(Value { content: Some(Content::Stored(size as u64)), contained })
}

/// The Python object of a value, or the exception that it is.
pub(crate) fn load<'py>(
    py: Python<'py>,
    runtime: &Runtime,
    id: ObjectId,
    value: &Value,
) -> PyResult<Bound<'py, PyAny>> {
    match &value.content {
        Some(Content::Inline(blob)) => blob::load_inline(py, blob),
        Some(Content::Stored(_)) => {
            let pinned = py.detach(|| runtime.pin(id)).map_err(|error| process::error(py, &error))?;
            blob::load_pinned(py, pinned)
        }
        Some(Content::Raised(blob)) => Err(raised(py, blob)),
        Some(Content::Failed(failure)) => Err(python::failure(py, failure)),
        None => Err(PyValueError::new_err(format!("object {id} arrived without a value"))),
    }
}

fn raised(py: Python<'_>, blob: &Bytes) -> PyErr {
    let error = blob::load_inline(py, blob).and_then(|error| python::raised(py)?.call1((error,)));
    error.map_or_else(|error| error, PyErr::from_value)
}

/// Keeps a value; returns a reference to it.
#[pyfunction]
fn put(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<ObjectRef> {
    let runtime = process::required()?;
    let serialized = Serialized::of(value)?;
    let (task, index) = (own_task(&runtime), next_put());
    let value = keep(py, &runtime, task.object(index), serialized)?;
    let id = runtime.put(task, index, value);
    Ok(ObjectRef::adopt(runtime, id))
}

fn deadline(timeout: Option<f64>) -> PyResult<Option<Instant>> {
    let Some(seconds) = timeout else { return Ok(None) };
    let length = Duration::try_from_secs_f64(seconds).map_err(|error| {
        PyValueError::new_err(format!("a timeout of {seconds} seconds cannot be waited for: {error}"))
    })?;
    Ok(Instant::now().checked_add(length))
}

/// The values of several references, in order; the first error among them is raised.
#[pyfunction]
#[pyo3(signature = (references, timeout = None))]
fn get_all<'py>(
    py: Python<'py>,
    references: &Bound<'py, PyList>,
    timeout: Option<f64>,
) -> PyResult<Bound<'py, PyList>> {
    let runtime = process::required()?;
    let ids = references.iter().map(|reference| id_of(&reference)).collect::<PyResult<Vec<ObjectId>>>()?;
    let values = await_values(py, &runtime, &ids, deadline(timeout)?, timeout)?;
    let loaded = PyList::empty(py);
    for (id, value) in ids.iter().zip(&values) {
        loaded.append(load(py, &runtime, *id, value)?)?;
    }
    Ok(loaded)
}

/// The value of one reference.
#[pyfunction]
#[pyo3(signature = (reference, timeout = None))]
fn get_one<'py>(
    py: Python<'py>,
    reference: &Bound<'py, ObjectRef>,
    timeout: Option<f64>,
) -> PyResult<Bound<'py, PyAny>> {
    let runtime = process::required()?;
    let id = reference.get().id;
    if let Some(value) = runtime.peek(id) {
        return load(py, &runtime, id, &value);
    }
    let values = await_values(py, &runtime, &[id], deadline(timeout)?, timeout)?;
    load(py, &runtime, id, &values[0])
}

fn await_values(
    py: Python<'_>,
    runtime: &Runtime,
    ids: &[ObjectId],
    deadline: Option<Instant>,
    timeout: Option<f64>,
) -> PyResult<Vec<Value>> {
    match process::patiently(py, || runtime.get(ids, deadline))? {
        Ok(values) => Ok(values),
        Err(RuntimeError::Unmet(Unmet::TimedOut)) => {
            let missing = ids.iter().filter(|id| runtime.peek(**id).is_none()).count();
            let text = format!(
                "{missing} of {} values were not there within {} s: their tasks wait for resources or still run. \
                 `oxiray status` tells what waits and for what",
                ids.len(),
                timeout.unwrap_or_default()
            );
            Err(python::timeout(py, &text))
        }
        Err(error) => Err(process::error(py, &error)),
    }
}

/// Which of the references have their value, once `count` have or the time is over.
#[pyfunction]
#[pyo3(signature = (references, count, timeout = None))]
fn wait_some(
    py: Python<'_>,
    references: &Bound<'_, PyList>,
    count: usize,
    timeout: Option<f64>,
) -> PyResult<Vec<bool>> {
    let runtime = process::required()?;
    let ids = references.iter().map(|reference| id_of(&reference)).collect::<PyResult<Vec<ObjectId>>>()?;
    let deadline = deadline(timeout)?;
    process::patiently(py, || runtime.wait(&ids, count, deadline))?.map_err(|error| process::error(py, &error))
}

/// Asks for news of the reference's value; `False` where it is there already.
#[pyfunction]
fn announce(reference: &Bound<'_, ObjectRef>) -> PyResult<bool> {
    Ok(process::required()?.announce(reference.get().id))
}

/// How many objects this process knows.
#[pyfunction]
fn objects_known() -> PyResult<usize> {
    Ok(process::required()?.objects_known())
}

fn id_of(reference: &Bound<'_, PyAny>) -> PyResult<ObjectId> {
    match reference.cast::<ObjectRef>() {
        Ok(reference) => Ok(reference.get().id),
        Err(_) => Err(PyTypeError::new_err(format!(
            "an ObjectRef is wanted, {} was given: pass what .remote() or put() returned",
            reference.get_type().name()?
        ))),
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(put, module)?)?;
    module.add_function(wrap_pyfunction!(get_all, module)?)?;
    module.add_function(wrap_pyfunction!(get_one, module)?)?;
    module.add_function(wrap_pyfunction!(wait_some, module)?)?;
    module.add_function(wrap_pyfunction!(announce, module)?)?;
    module.add_function(wrap_pyfunction!(objects_known, module)?)?;
    module.add_function(wrap_pyfunction!(context::context, module)?)
}
