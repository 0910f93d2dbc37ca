//! How a call of an async actor is answered, and what it yields sent, by the event loop that runs it.

use crate::worker::{SERVING, UnderWay};
use oxiray_client::complete;
use oxiray_ids::{ObjectId, TaskId};
use oxiray_runtime::Pace;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Answers one call of an async actor, whenever its coroutine ends.
#[pyclass(frozen, module = "oxiray._core")]
pub(crate) struct Completion {
    under_way: Mutex<Option<UnderWay>>,
    borrowed: Mutex<Vec<ObjectId>>,
}

impl Completion {
    pub(crate) fn new(under_way: UnderWay, borrowed: Vec<ObjectId>) -> Self {
        Self { under_way: Mutex::new(Some(under_way)), borrowed: Mutex::new(borrowed) }
    }

    fn under_way(&self) -> MutexGuard<'_, Option<UnderWay>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, py: Python<'_>, returned: PyResult<Bound<'_, PyAny>>) {
        let taken = self.under_way().take();
        let (Some(under_way), Some(worker)) = (taken, SERVING.get()) else { return };
        let borrowed = std::mem::take(&mut *self.borrowed.lock().unwrap_or_else(PoisonError::into_inner));
        if complete(&mut worker.thread(py), under_way, returned, borrowed) {
            worker.runtime.stop_serving();
        }
    }
}

#[pymethods]
impl Completion {
    /// The call returned this.
    fn done(&self, value: &Bound<'_, PyAny>) {
        self.answer(value.py(), Ok(value.clone()));
    }

    /// Whether what the call yields goes one by one.
    #[getter]
    fn is_stream(&self) -> bool {
        self.under_way().as_ref().is_some_and(UnderWay::streams)
    }

    /// The call yielded this: whether it goes on (0), waits (1), or ends, since nobody reads any more (2).
    fn send(&self, item: &Bound<'_, PyAny>) -> PyResult<u8> {
        // Serializing runs code of the user's, so nothing is locked meanwhile.
        let (Some(mut under_way), Some(worker)) = (self.under_way().take(), SERVING.get()) else { return Ok(STOP) };
        let sent = worker.send_items(item.py(), &mut under_way, item);
        *self.under_way() = Some(under_way);
        sent.map(pace_number)
    }

    /// As `send` returns, for what was yielded so far.
    fn pace(&self) -> u8 {
        let (Some(under_way), Some(worker)) = (&*self.under_way(), SERVING.get()) else { return STOP };
        pace_number(worker.runtime.pace(under_way.task(), under_way.yielded))
    }

    /// Under which id news comes of a call that waits, once `announce` has asked for it.
    fn id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let task = self.under_way().as_ref().map_or(TaskId::NIL, UnderWay::task);
        PyBytes::new(py, task.object(1).as_bytes())
    }

    /// Asks for news of when the call may go on or has to end; `False` where that is so already.
    fn announce(&self) -> bool {
        let (Some(under_way), Some(worker)) = (&*self.under_way(), SERVING.get()) else { return false };
        worker.runtime.announce_reader(under_way.task(), under_way.yielded)
    }

    /// The call raised this.
    pub(crate) fn failed(&self, error: &Bound<'_, PyAny>) {
        self.answer(error.py(), Err(PyErr::from_value(error.clone())));
    }
}

/// As [`Completion`] tells Python of [`Pace::Stop`].
const STOP: u8 = 2;

fn pace_number(pace: Pace) -> u8 {
    match pace {
        Pace::On => 0,
        Pace::Wait => 1,
        Pace::Stop => STOP,
    }
}
