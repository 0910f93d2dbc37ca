//! `ObjectRefGenerator`: the results of a call that come one by one, as its caller reads them.

use crate::process;
use crate::reference::ObjectRef;
use oxiray_ids::TaskId;
use oxiray_runtime::{Next, Runtime, RuntimeError, Unmet};
use pyo3::exceptions::{PyNotImplementedError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyType};
use std::time::{Duration, Instant};

/// Yields references to a call's results as they come. The call is stopped when this is dropped half read.
#[pyclass(frozen, weakref, module = "oxiray")]
pub(crate) struct ObjectRefGenerator {
    runtime: Runtime,
    task: TaskId,
    /// How the call ended; dropped after this has said that nobody reads any more.
    completion: ObjectRef,
}

impl ObjectRefGenerator {
    /// Takes over the stream of a call, and one use of its first object.
    pub(crate) fn adopt(runtime: Runtime, task: TaskId) -> Self {
        let completion = ObjectRef::adopt(runtime.clone(), task.object(1));
        Self { runtime, task, completion }
    }

    /// The call, where it belongs to this connection.
    pub(crate) fn task_on(&self, runtime: &Runtime) -> PyResult<TaskId> {
        if self.runtime.is(runtime) {
            return Ok(self.task);
        }
        Err(PyValueError::new_err(
            "this ObjectRefGenerator is of a connection that has ended, and its results with it: call the function anew",
        ))
    }

    fn check(&self) -> PyResult<()> {
        self.task_on(&process::required()?).map(|_| ())
    }

    fn unsupported(&self, what: &str) -> PyErr {
        PyNotImplementedError::new_err(format!(
            "{what}() does not reach the generator of task {}, which runs in another process: its items are only read. \
             Drop the ObjectRefGenerator to stop it, or cancel() it",
            self.task
        ))
    }

    fn reference(&self, next: Next) -> Option<ObjectRef> {
        match next {
            Next::Item(id) => Some(ObjectRef::adopt(self.runtime.clone(), id)),
            Next::End => None,
        }
    }
}

fn at_least_one(num_refs: i64) -> PyResult<u32> {
    let positive = u32::try_from(num_refs).ok().filter(|count| *count > 0);
    positive.ok_or_else(|| PyValueError::new_err(format!("num_refs must be positive: it is {num_refs}")))
}

impl Drop for ObjectRefGenerator {
    fn drop(&mut self) {
        if !self.runtime.is_abandoned() {
            self.runtime.leave_stream(self.task);
        }
    }
}

#[pymethods]
impl ObjectRefGenerator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<ObjectRef>> {
        if let Some(next) = self.runtime.try_next(self.task) {
            return Ok(self.reference(next));
        }
        self.check()?;
        let next = process::patiently(py, || self.runtime.next_item(self.task, None))?;
        next.map(|next| self.reference(next)).map_err(|error| process::error(py, &error))
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("oxiray._generators")?.getattr("next_item")?.call1((slf,))
    }

    /// As `next()`, for at most so many seconds: a nil reference past them.
    #[pyo3(signature = (timeout_s = None))]
    fn _next_sync(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<ObjectRef> {
        self.check()?;
        let length = timeout_s.filter(|seconds| *seconds >= 0.0).map(Duration::try_from_secs_f64).transpose();
        let length =
            length.map_err(|error| PyValueError::new_err(format!("a timeout cannot be waited for: {error}")))?;
        let deadline = length.and_then(|length| Instant::now().checked_add(length));
        match process::patiently(py, || self.runtime.next_item(self.task, deadline))? {
            Ok(next) => self.reference(next).ok_or_else(|| pyo3::exceptions::PyStopIteration::new_err(())),
            Err(RuntimeError::Unmet(Unmet::TimedOut)) => Ok(ObjectRef::nil()),
            Err(error) => Err(process::error(py, &error)),
        }
    }

    #[pyo3(signature = (timeout_s = None))]
    fn _next_async<'py>(slf: &Bound<'py, Self>, timeout_s: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("oxiray._generators")?.getattr("next_item_within")?.call1((slf, timeout_s))
    }

    /// The next reference; `None` at the end, `False` where neither is there yet.
    fn _take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.runtime.try_next(self.task).map(|next| self.reference(next)) {
            Some(Some(reference)) => Ok(Bound::new(py, reference)?.into_any()),
            Some(None) => Ok(py.None().into_bound(py)),
            None => {
                self.check()?;
                Ok(PyBool::new(py, false).to_owned().into_any())
            }
        }
    }

    /// Under which id news of the next item comes, once `_announce` has asked for it.
    fn _next_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.runtime.next_item_id(self.task).as_bytes())
    }

    /// Asks for news of the next item or the end; `False` where there is something already.
    fn _announce(&self) -> bool {
        self.runtime.announce_item(self.task)
    }

    /// A reference that is ready when the call has ended: `None`, or the failure that ended it.
    fn completed(&self) -> PyResult<ObjectRef> {
        self.check()?;
        self.runtime.retain(self.completion.id);
        Ok(ObjectRef::adopt(self.runtime.clone(), self.completion.id))
    }

    #[getter]
    fn _generator_ref(&self) -> PyResult<ObjectRef> {
        self.completed()
    }

    /// Whether `next()` returns a reference at once.
    fn next_ready(&self) -> PyResult<bool> {
        self.check()?;
        Ok(self.runtime.is_next_ready(self.task) && !self.runtime.is_stream_over(self.task))
    }

    /// Whether everything was read, and nothing more comes.
    fn is_finished(&self) -> PyResult<bool> {
        self.check()?;
        Ok(self.runtime.is_stream_over(self.task))
    }

    /// As [`Self::is_finished`], by the name that Ray Data asks by.
    fn _stream_exhausted(&self) -> PyResult<bool> {
        self.is_finished()
    }

    /// References to the next `num_refs` items, whether they are there or not, for Ray's libraries: each is ready when its
    /// item is there, or fails with `ObjectRefStreamEndOfStreamError` where the generator ends before. They stay the next
    /// ones until [`Self::_consume_next_ref_n`] reads them.
    fn _get_next_ref_n(&self, num_refs: i64) -> PyResult<Vec<ObjectRef>> {
        self.check()?;
        let ids = self.runtime.look_ahead(self.task, at_least_one(num_refs)?);
        Ok(ids.into_iter().map(|id| ObjectRef::adopt(self.runtime.clone(), id)).collect())
    }

    /// Reads the next `num_refs` items, which are to be ready.
    fn _consume_next_ref_n(&self, num_refs: i64) -> PyResult<()> {
        self.check()?;
        if self.runtime.pass_over(self.task, at_least_one(num_refs)?) {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "the next {num_refs} items of the generator of task {} are not all there: wait for the last of the references that \
             _get_next_ref_n({num_refs}) gives first",
            self.task
        )))
    }

    fn send(&self, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.unsupported("send"))
    }

    fn throw(&self, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.unsupported("throw"))
    }

    fn close(&self) -> PyResult<()> {
        Err(self.unsupported("close"))
    }

    fn asend(&self, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.unsupported("asend"))
    }

    fn athrow(&self, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.unsupported("athrow"))
    }

    fn aclose(&self) -> PyResult<()> {
        Err(self.unsupported("aclose"))
    }

    fn __repr__(&self) -> String {
        format!("ObjectRefGenerator({})", self.task)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(format!(
            "ObjectRefGenerator({}) is read by the process that made the call and cannot be passed on or returned: pass \
             the references that it yields, or a list of them",
            self.task
        )))
    }

    #[classmethod]
    fn __class_getitem__(class: &Bound<'_, PyType>, _item: &Bound<'_, PyAny>) -> Py<PyType> {
        class.clone().unbind()
    }
}
