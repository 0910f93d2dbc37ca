//! `put`, `get`, `wait`.

use crate::blob::{self, Serialized};
use crate::generator::ObjectRefGenerator;
use crate::reference::{Expecting, ObjectRef};
use crate::{context, process, python};
use bytes::Bytes;
use oxiray_ids::ObjectId;
use oxiray_runtime::{
    AskedPin, Gathered, INLINE_BYTES, Pinned, PinsAhead, ReadyPlaces, Runtime, RuntimeError, ScannedValue, Unmet,
    Waitable,
};
use oxiray_wire::message::{Content, FailureCode, Value};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use rustc_hash::{FxBuildHasher, FxHashSet, FxHasher};
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

/// How long a wait lasts whose answer repeats the one before: enough for another thread to take the interpreter's lock.
const PAUSE: Duration = Duration::from_micros(200);

thread_local! {
    /// What this thread's last wait found without waiting: a hash of what was ready, and how many values had come.
    static LAST_ANSWER: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
}

/// A serialized value, in the store where it is larger than `inline_bytes`.
pub(crate) fn keep(
    py: Python<'_>,
    runtime: &Runtime,
    id: ObjectId,
    serialized: Serialized,
    inline_bytes: usize,
) -> PyResult<Value> {
    let contained = runtime.references(&serialized.contained);
    let size = serialized.size();
    if size <= inline_bytes {
        return Ok(Value { content: Some(Content::Inline(serialized.into_bytes())), contained });
    }
    py.detach(|| runtime.store(id, size, |target| serialized.write(target)))
        .map_err(|error| process::error(py, &error))?;
    Ok(Value { content: Some(Content::Stored(size as u64)), contained })
}

/// The Python object of a value, or the exception that it is. Where its stored bytes are lost, waits until they are made
/// again: the object must be known to this process. `asked` is the pin of stored bytes where it was asked for ahead.
pub(crate) fn load<'py>(
    py: Python<'py>,
    runtime: &Runtime,
    id: ObjectId,
    value: &ScannedValue,
    asked: Option<AskedPin>,
    deadline: Option<Instant>,
) -> PyResult<Bound<'py, PyAny>> {
    match &value.content {
        Some(Content::Inline(blob)) => {
            let _expecting = Expecting::begin(py, runtime, id, value.contained);
            blob::load_inline(py, blob).map_err(|error| python::unreadable(py, &error))
        }
        Some(Content::Stored(_)) => {
            let pinned = py.detach(|| runtime.pin(id, asked, deadline));
            load_stored(py, runtime, (id, value.contained), pinned, deadline)
        }
        Some(Content::Raised(blob)) => Err(exception_in(py, blob)),
        Some(Content::Failed(failure)) => Err(python::failure(py, failure, Some(id))),
        None => Err(PyValueError::new_err(format!("object {id} arrived without a value"))),
    }
}

/// The Python object of stored bytes that were to be pinned, which contain so many references.
pub(crate) fn load_stored<'py>(
    py: Python<'py>,
    runtime: &Runtime,
    (id, contained): (ObjectId, usize),
    pinned: Result<Pinned, RuntimeError>,
    deadline: Option<Instant>,
) -> PyResult<Bound<'py, PyAny>> {
    match pinned {
        Ok(pinned) => {
            let _expecting = Expecting::begin(py, runtime, id, contained);
            blob::load_pinned(py, pinned).map_err(|error| python::unreadable(py, &error))
        }
        Err(RuntimeError::Failed(failure)) if failure.code == FailureCode::ObjectLost => {
            let again = process::patiently(py, || runtime.get_one(id, deadline))?;
            let again = again.map_err(|error| process::error(py, &error))?;
            load(py, runtime, id, &again, None, deadline)
        }
        Err(RuntimeError::Failed(failure)) => Err(python::failure(py, &failure, Some(id))),
        Err(error) => Err(process::error(py, &error)),
    }
}

/// The exception of a value that is an error.
pub(crate) fn exception(py: Python<'_>, value: &Value) -> Option<PyErr> {
    match &value.content {
        Some(Content::Raised(blob)) => Some(exception_in(py, blob)),
        Some(Content::Failed(failure)) => Some(python::failure(py, failure, None)),
        _ => None,
    }
}

fn exception_in(py: Python<'_>, blob: &Bytes) -> PyErr {
    let error = blob::load_inline(py, blob).and_then(|error| python::raised(py)?.call1((error,)));
    error.map_or_else(|error| error, PyErr::from_value)
}

/// Keeps a value; returns a reference to it.
#[pyfunction]
fn put(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<ObjectRef> {
    put_within(py, value, INLINE_BYTES)
}

/// A new object in the store, however small it is.
#[pyfunction]
fn put_stored(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<ObjectRef> {
    put_within(py, value, 0)
}

fn put_within(py: Python<'_>, value: &Bound<'_, PyAny>, inline_bytes: usize) -> PyResult<ObjectRef> {
    let runtime = process::required()?;
    let serialized = Serialized::of(value)?;
    let (task, index) = runtime.next_put(serialized.size());
    let value = keep(py, &runtime, task.object(index), serialized, inline_bytes)?;
    let id = runtime.put(task, index, value);
    crate::sites::note(py, &runtime, [id], "put object")?;
    Ok(ObjectRef::adopt(runtime, id))
}

/// The moment at which a wait of so many seconds is over; none where there is none that a clock can tell.
pub(crate) fn deadline(timeout: Option<f64>) -> PyResult<Option<Instant>> {
    let Some(seconds) = timeout else { return Ok(None) };
    let length = Duration::try_from_secs_f64(seconds).map_err(|error| {
        PyValueError::new_err(format!("a timeout of {seconds} seconds cannot be waited for: {error}"))
    })?;
    Ok(Instant::now().checked_add(length))
}

/// The values of several references, in order. An error is raised as soon as it is known, though others are still to come.
#[pyfunction]
#[pyo3(signature = (references, timeout = None))]
fn get_all<'py>(
    py: Python<'py>,
    references: &Bound<'py, PyList>,
    timeout: Option<f64>,
) -> PyResult<Bound<'py, PyList>> {
    let runtime = process::required()?;
    let ids = ids_of(&runtime, references).map_err(|error| of_get(py, error))?;
    let until = deadline(timeout)?;
    let values = await_values(py, &runtime, &ids, until, timeout)?;
    let loaded = PyList::empty(py);
    let mut ahead = PinsAhead::new(&runtime, &ids, &values);
    for (id, value) in ids.iter().zip(&values) {
        let asked = ahead.next(*id);
        loaded.append(load(py, &runtime, *id, value, asked, until)?)?;
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
    let id = reference.get().id_on(&runtime).map_err(|error| of_get(py, error))?;
    let until = deadline(timeout)?;
    if let Some(value) = runtime.peek(id) {
        return load(py, &runtime, id, &value, None, until);
    }
    let values = await_values(py, &runtime, &[id], until, timeout)?;
    load(py, &runtime, id, &values[0], None, until)
}

/// `get` says of a reference that is not of this connection what Ray says there.
fn of_get(py: Python<'_>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyValueError>(py) {
        return error;
    }
    PyValueError::new_err(format!("You are trying to access Ray objects whose owner is unknown. {}", error.value(py)))
}

/// Waits for all of them; raises what one of them failed with as soon as that is known.
fn await_values(
    py: Python<'_>,
    runtime: &Runtime,
    ids: &[ObjectId],
    deadline: Option<Instant>,
    timeout: Option<f64>,
) -> PyResult<Vec<ScannedValue>> {
    match process::patiently(py, || runtime.get(ids, deadline))? {
        Ok(Gathered::All(values)) => Ok(values),
        Ok(Gathered::Failed(place, error)) => {
            Err(load(py, runtime, ids[place], &error, None, deadline).expect_err("a failed value is an error"))
        }
        Err(RuntimeError::Unmet(Unmet::TimedOut)) => {
            let missing = ids.iter().filter(|id| runtime.peek(**id).is_none()).count();
            let text = format!(
                "Get timed out: some object(s) not ready. {missing} of {} values were not there within {} s: their tasks wait for resources or still run. \
                 `oxiray status` shows what waits and for what",
                ids.len(),
                timeout.unwrap_or_default()
            );
            Err(python::timeout(py, &text))
        }
        Err(error) => Err(process::error(py, &error)),
    }
}

/// The first `count` references that have their value, once so many have or the time is over, and the others. Where it
/// `fetches`, the stored bytes of all of them come to this machine as soon as they are known.
#[pyfunction]
#[pyo3(signature = (references, count, timeout = None, fetches = false))]
fn wait_some<'py>(
    py: Python<'py>,
    references: &Bound<'py, PyList>,
    count: usize,
    timeout: Option<f64>,
    fetches: bool,
) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
    let runtime = process::required()?;
    let (unknown, waitables) = waitables_of(&runtime, references, count.min(references.len()), timeout.is_none())?;
    let fetch = || {
        if fetches {
            runtime.fetch(waitables.iter().filter_map(Waitable::object));
        }
    };
    let mut seen = FxHashSet::with_capacity_and_hasher(waitables.len(), FxBuildHasher);
    if !waitables.iter().all(|waitable| seen.insert(waitable)) {
        let text = "Wait requires a list of unique ray_waitables: one reference stands in the list twice";
        return Err(PyValueError::new_err(text));
    }
    let deadline = deadline(timeout)?;
    fetch();
    let found = process::patiently(py, || runtime.wait(&waitables, count, deadline))?;
    let found = found.map_err(|error| process::error(py, &error))?;
    fetch();
    let_others_run(py, &runtime, &waitables, &found, deadline);
    let (ready, rest) = (PyList::empty(py), PyList::empty(py));
    let mut from = 0;
    for place in found.places.into_iter().map(|place| place_beside(place, &unknown)) {
        rest.set_slice(rest.len(), rest.len(), &references.get_slice(from, place))?;
        ready.append(references.get_item(place)?)?;
        from = place + 1;
    }
    rest.set_slice(rest.len(), rest.len(), &references.get_slice(from, references.len()))?;
    Ok((ready, rest))
}

/// Waits for a value, at most [`PAUSE`], where this thread was given the same answer before and nothing has come since.
///
/// A program that asks again and again for what it has no use for yet is never made to wait, and hardly ever lets go of the
/// interpreter's lock: threads that it waits for would starve. Whoever acts on what is ready gets another answer next time.
fn let_others_run(
    py: Python<'_>,
    runtime: &Runtime,
    waitables: &[Waitable],
    found: &ReadyPlaces,
    deadline: Option<Instant>,
) {
    let Some(values) = found.at_once else {
        LAST_ANSWER.set(None);
        return;
    };
    let mut ready = FxHasher::default();
    waitables.len().hash(&mut ready);
    found.places.iter().map(|place| &waitables[*place]).collect::<Vec<_>>().hash(&mut ready);
    let answer = Some((ready.finish(), values));
    if LAST_ANSWER.replace(answer) != answer {
        return;
    }
    let end = Instant::now() + PAUSE;
    let end = deadline.map_or(end, |deadline| end.min(deadline));
    py.detach(|| runtime.wait_for_value(values, end));
}

/// Asks for news of the reference's value; `False` where it is there already.
#[pyfunction]
fn announce(reference: &Bound<'_, ObjectRef>) -> PyResult<bool> {
    let runtime = process::required()?;
    Ok(runtime.announce(reference.get().id_on(&runtime)?))
}

/// Where what stands at a place among the known references stands in the whole list.
fn place_beside(place: usize, unknown: &[usize]) -> usize {
    unknown.iter().fold(place, |place, left_out| place + usize::from(*left_out <= place))
}

/// What is to be waited for, and the places in the list that are left out: of references of connections that have ended,
/// which never become ready. They are an error where so many that `count` are not left, and the wait has no end.
fn waitables_of(
    runtime: &Runtime,
    list: &Bound<'_, PyList>,
    count: usize,
    is_endless: bool,
) -> PyResult<(Vec<usize>, Vec<Waitable>)> {
    let waitable_of = |one: &Bound<'_, PyAny>| {
        if let Ok(generator) = one.cast::<ObjectRefGenerator>() {
            return generator.get().task_on(runtime).map(Waitable::Item);
        }
        let Ok(reference) = one.cast::<ObjectRef>() else {
            return Err(PyTypeError::new_err(format!(
                "wait() expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got list containing {}: pass what \
                 .remote() or put() returned",
                one.get_type()
            )));
        };
        reference.get().id_on(runtime).map(Waitable::Object)
    };
    let (mut waitables, mut unknown, mut first_error) = (Vec::with_capacity(list.len()), Vec::new(), None);
    for (place, one) in list.iter().enumerate() {
        match waitable_of(&one) {
            Ok(waitable) => waitables.push(waitable),
            Err(error) if error.is_instance_of::<PyTypeError>(list.py()) => return Err(error),
            Err(error) => {
                unknown.push(place);
                first_error = first_error.or(Some(error));
            }
        }
    }
    let needed = if is_endless { count } else { 1 };
    match first_error {
        Some(error) if waitables.len() < needed => Err(error),
        _ => Ok((unknown, waitables)),
    }
}

pub(crate) fn ids_of(runtime: &Runtime, references: &Bound<'_, PyList>) -> PyResult<Vec<ObjectId>> {
    references.iter().map(|reference| id_of(runtime, &reference)).collect()
}

fn id_of(runtime: &Runtime, reference: &Bound<'_, PyAny>) -> PyResult<ObjectId> {
    match reference.cast::<ObjectRef>() {
        Ok(reference) => reference.get().id_on(runtime),
        Err(_) => Err(PyTypeError::new_err(format!(
            "Attempting to call `get` on the value {:.200}, which is not an ray.ObjectRef. Pass what .remote() or \
             put() returned",
            reference.repr()?.to_string()
        ))),
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(put, module)?)?;
    module.add_function(wrap_pyfunction!(put_stored, module)?)?;
    module.add_function(wrap_pyfunction!(get_all, module)?)?;
    module.add_function(wrap_pyfunction!(get_one, module)?)?;
    module.add_function(wrap_pyfunction!(wait_some, module)?)?;
    module.add_function(wrap_pyfunction!(announce, module)?)?;
    module.add_function(wrap_pyfunction!(context::devices, module)?)?;
    module.add_function(wrap_pyfunction!(context::context, module)?)
}
