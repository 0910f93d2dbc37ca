//! Python objects that are looked up once.

use oxiray_ids::{ObjectId, TaskId};
use oxiray_wire::message::{ActorDeath, Failure, FailureCode};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict};

macro_rules! looked_up {
    ($(#[$doc:meta])* $name:ident, $module:literal, $attribute:literal) => {
        $(#[$doc])*
        pub(crate) fn $name(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
            static FOUND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            FOUND.import(py, $module, $attribute)
        }
    };
}

looked_up!(
    /// The class of handles of actors.
    actor_handle,
    "oxiray.actor",
    "ActorHandle"
);
looked_up!(
    /// A handle that came from another language.
    actor_from_common,
    "oxiray.actor",
    "from_common"
);
looked_up!(
    /// What a generator is told of the object that was made of what it yielded: `StreamingGeneratorStats(seconds)`.
    generator_statistics,
    "oxiray._generators",
    "StreamingGeneratorStats"
);
looked_up!(
    /// Deserializes.
    pickle_loads,
    "pickle",
    "loads"
);
looked_up!(
    /// The class of NumPy's arrays.
    ndarray,
    "numpy",
    "ndarray"
);
looked_up!(
    /// The class of the types of NumPy's arrays.
    dtype,
    "numpy",
    "dtype"
);
looked_up!(
    /// An array of one dimension over a buffer: `frombuffer(buffer, dtype)`.
    frombuffer,
    "numpy",
    "frombuffer"
);
looked_up!(
    /// The status that a process ends with: `status_of(exit) -> int`.
    exit_status,
    "oxiray._worker_exit",
    "status_of"
);
looked_up!(
    /// Serializes anything: `dumps(value) -> (parts of a pickle, buffers)`.
    dumps,
    "oxiray._serialization",
    "dumps"
);
looked_up!(
    /// A read-only view of memory: `view(owner, address, size) -> memoryview`.
    view,
    "oxiray._serialization",
    "view"
);
looked_up!(
    /// The exception for a failed value: `failure(code, text, cause, object_id, what is known of the actor)`.
    describe_failure,
    "oxiray._serialization",
    "failure"
);
looked_up!(
    /// The exception of tasks that did not run, since an argument failed: `of_argument(names of tasks, error)`.
    of_argument,
    "oxiray._failures",
    "of_argument"
);
looked_up!(
    /// The exception to raise for a stored one: `raised(error)`.
    raised,
    "oxiray._serialization",
    "raised"
);
looked_up!(
    /// The serializable error for one that user code raised: `worker.describe(name, error)`.
    describe_error,
    "oxiray._worker",
    "describe"
);
looked_up!(
    /// Applies what the daemon assigned.
    become_worker,
    "oxiray._worker",
    "become"
);
looked_up!(
    /// Has a worker begin that has its environment and its connection.
    begin_worker,
    "oxiray._worker",
    "begin"
);
looked_up!(
    /// Makes a function from its bytes.
    load_function,
    "oxiray._worker",
    "load_function"
);
looked_up!(
    /// Whether the owner asked to retry this exception.
    wants_retry,
    "oxiray._worker",
    "wants_retry"
);
looked_up!(
    /// Makes the actor.
    construct,
    "oxiray._worker",
    "construct"
);
looked_up!(
    /// Starts what serves an actor beside the main thread: `serve_beside(concurrency)`.
    serve_beside,
    "oxiray._worker",
    "serve_beside"
);
looked_up!(
    /// The method of an actor, and whether it is the same for further calls: `method(actor, name)`.
    method,
    "oxiray._worker",
    "method"
);
looked_up!(
    /// The running call of an async actor: `current_call.get() -> (task, name, function) | None`.
    current_call,
    "oxiray._async_context",
    "current_call"
);
looked_up!(
    /// The error of a call that was cancelled: `cancelled(task, text)`.
    cancelled,
    "oxiray._cancellation",
    "cancelled"
);
looked_up!(
    /// Has a signal ask for interrupts: `listen(number)`.
    listen_for_interrupts,
    "oxiray._cancellation",
    "listen"
);
looked_up!(
    /// What a call whose results go one by one returned, as something to iterate over: `iterate(returned)`.
    iterate,
    "oxiray._generators",
    "iterate"
);
looked_up!(
    /// The type of what a function with `yield` returns.
    generator_type,
    "types",
    "GeneratorType"
);
looked_up!(
    /// Writes out what the standard streams hold back.
    flush,
    "oxiray._worker",
    "flush"
);
looked_up!(
    /// Has the standard streams ask for a label before the program writes to them next.
    tell_of_prints,
    "oxiray._worker",
    "tell_of_prints"
);

looked_up!(
    /// The exception for a value that cannot be deserialized: `unreadable(error)`.
    describe_unreadable,
    "oxiray._serialization",
    "unreadable"
);

looked_up!(
    /// Makes a reference anew that was pickled.
    borrow,
    "oxiray._core",
    "_borrow"
);

/// Looks up, in a template, what each of its workers would have to.
pub(crate) fn look_up_for_workers(py: Python<'_>) -> PyResult<()> {
    let used = [
        become_worker,
        begin_worker,
        listen_for_interrupts,
        load_function,
        construct,
        serve_beside,
        method,
        flush,
        pickle_loads,
        dumps,
        view,
    ];
    used.into_iter().try_for_each(|look_up| look_up(py).map(drop))
}

/// The exception for a failure of the runtime's; `object` is the one that cannot be had for it.
pub(crate) fn failure(py: Python<'_>, failure: &Failure, object: Option<ObjectId>) -> PyErr {
    if let Some(argument) = failure.argument_failed()
        && let Some(error) = argument.value.as_ref().and_then(|value| crate::values::exception(py, value))
    {
        let made = of_argument(py).and_then(|make| make.call1((argument.tasks, error.value(py))));
        return made.map_or_else(|error| error, PyErr::from_value);
    }
    let death = failure.actor_death();
    let cause = death.as_ref().map_or(&failure.cause, |death| &death.raised);
    let cause = if cause.is_empty() {
        Ok(py.None().into_bound(py))
    } else if failure.code == FailureCode::Cancelled {
        Ok(TaskId::from_slice(cause)
            .unwrap_or(TaskId::NIL)
            .hex()
            .into_pyobject(py)
            .unwrap_or_else(|never| match never {})
            .into_any())
    } else {
        crate::blob::load_inline(py, cause)
    };
    let object = object.map(|id| id.hex());
    let made = cause.and_then(|cause| {
        let known = death.as_ref().map(|death| known_of(py, death)).transpose()?;
        describe_failure(py)?.call1((failure.code.name(), &failure.text, cause, object, known))
    });
    made.map_or_else(|error| error, PyErr::from_value)
}

/// The exception for a value that cannot be deserialized, which raised `error`; an interrupt stays what it is.
pub(crate) fn unreadable(py: Python<'_>, error: &PyErr) -> PyErr {
    if !error.is_instance_of::<PyException>(py) {
        return error.clone_ref(py);
    }
    let value = error.value(py);
    if let Some(traceback) = error.traceback(py) {
        let _ = value.setattr("__traceback__", traceback);
    }
    describe_unreadable(py).and_then(|describe| describe.call1((value,))).map_or_else(|error| error, PyErr::from_value)
}

/// What is known of a dead actor, by the names that the front has for it.
fn known_of<'py>(py: Python<'py>, death: &ActorDeath) -> PyResult<Bound<'py, PyDict>> {
    let known = PyDict::new(py);
    known.set_item("class_name", &death.class_name)?;
    known.set_item("name", &death.name)?;
    known.set_item("namespace", &death.namespace)?;
    known.set_item("actor_id", Some(death.actor).filter(|id| !id.is_nil()).map(|id| id.hex()))?;
    known.set_item("node_id", death.node.map(|id| id.hex()))?;
    known.set_item("ip", &death.ip)?;
    known.set_item("pid", death.pid)?;
    known.set_item("never_started", death.never_ran)?;
    Ok(known)
}

/// `GetTimeoutError`.
pub(crate) fn timeout(py: Python<'_>, text: &str) -> PyErr {
    describe_failure(py)
        .and_then(|make| make.call1(("timeout", text, py.None())))
        .map_or_else(|error| error, PyErr::from_value)
}

/// `bytes` that hold a copy.
pub(crate) fn bytes<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, bytes)
}
