//! Calls whose results go one by one, as the worker runs them.
//!
//! - STREAMING-1: what is yielded is serialized and sent before the generator goes on.
//! - STREAMING-2: a generator that was not run to its end is closed before the call is replied to.

use crate::blob::Serialized;
use crate::values::keep;
use crate::worker::{UnderWay, Worker};
use crate::{common, process, python};
use oxiray_runtime::{INLINE_BYTES, Pace, Runtime, Yielded};
use oxiray_wire::message::{Content, StreamTerms};
use pyo3::exceptions::{PyStopIteration, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyTuple};
use std::time::Instant;

impl Worker {
    /// Runs a generator and sends what it yields. Returns `None`, the result that such a call has besides.
    pub(crate) fn drain<'py>(
        &self,
        py: Python<'py>,
        under_way: &mut UnderWay,
        returned: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let generator = python::iterate(py)?.call1((returned,))?;
        let drained = self.send_all(py, under_way, &generator);
        // One that ended by itself does not mind.
        close(&generator);
        drained.map(|()| py.None().into_bound(py))
    }

    fn send_all(&self, py: Python<'_>, under_way: &mut UnderWay, generator: &Bound<'_, PyAny>) -> PyResult<()> {
        let items = generator.try_iter()?;
        // Only a generator takes something: how long it took to make an object of what it yielded.
        let statistics = match generator.getattr_opt("send")? {
            Some(_) => Some(python::generator_statistics(py)?),
            None => None,
        };
        let mut item = advance(&items)?;
        while let Some(yielded) = item {
            let began = Instant::now();
            let mut pace = self.send_items(py, under_way, &yielded)?;
            let creation_s = began.elapsed().as_secs_f64();
            drop(yielded);
            if pace == Pace::Wait {
                let waited = process::patiently(py, || self.runtime.await_reader(under_way.task(), under_way.yielded))?;
                pace = waited.unwrap_or(Pace::Stop);
            }
            if pace == Pace::Stop {
                break;
            }
            item = match statistics {
                Some(statistics) if takes_something(generator)? => {
                    given(generator.call_method1("send", (statistics.call1((creation_s,))?,)), py)?
                }
                _ => advance(&items)?,
            };
        }
        Ok(())
    }

    /// Sends what one yield brought.
    pub(crate) fn send_items(
        &self,
        py: Python<'_>,
        under_way: &mut UnderWay,
        yielded: &Bound<'_, PyAny>,
    ) -> PyResult<Pace> {
        let terms = under_way.call.stream.clone().unwrap_or_default();
        if terms.per_yield <= 1 {
            return self.send_item(py, under_way, &terms, yielded);
        }
        let mut pace = Pace::On;
        for item in several(yielded, terms.per_yield as usize)? {
            pace = self.send_item(py, under_way, &terms, &item)?;
        }
        Ok(pace)
    }

    fn send_item(
        &self,
        py: Python<'_>,
        under_way: &mut UnderWay,
        terms: &StreamTerms,
        item: &Bound<'_, PyAny>,
    ) -> PyResult<Pace> {
        let index = under_way.yielded;
        if index < terms.arrived {
            under_way.yielded += 1;
            return Ok(Pace::On);
        }
        let serialized = if under_way.own.is_common { common::serialized(item)? } else { Serialized::of(item)? };
        let id = Runtime::item_id(under_way.task(), index);
        let handed = serialized.contained.clone();
        self.runtime.retain_all(&handed);
        let value = match keep(py, &self.runtime, id, serialized, INLINE_BYTES) {
            Ok(value) => value,
            Err(error) => {
                self.runtime.discard(&handed, &[]);
                return Err(error);
            }
        };
        under_way.yielded += 1;
        let stored = matches!(value.content, Some(Content::Stored(_))).then_some(id);
        Ok(self.runtime.yield_item(&under_way.ticket, Yielded { index, value, handed, stored }))
    }
}

/// The next item; `None` at the end.
fn advance<'py>(items: &Bound<'py, PyIterator>) -> PyResult<Option<Bound<'py, PyAny>>> {
    items.clone().next().transpose()
}

/// Whether what waits at `yield` is a generator: one that hands over to a list by `yield from` must be sent nothing.
fn takes_something(generator: &Bound<'_, PyAny>) -> PyResult<bool> {
    let mut waiting = generator.clone();
    while let Some(inner) = waiting.getattr_opt("gi_yieldfrom")?.filter(|inner| !inner.is_none()) {
        waiting = inner;
    }
    waiting.hasattr("send")
}

/// What a generator answered; `None` where it has ended.
fn given<'py>(answer: PyResult<Bound<'py, PyAny>>, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
    match answer {
        Err(error) if error.is_instance_of::<PyStopIteration>(py) => Ok(None),
        answer => answer.map(Some),
    }
}

fn several<'py>(yielded: &Bound<'py, PyAny>, count: usize) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if !yielded.is_instance_of::<PyTuple>() && !yielded.is_instance_of::<PyList>() {
        return Err(PyValueError::new_err(format!(
            "_num_objects_per_yield={count} was asked for, so each yield is a tuple or list of that length, and one \
             was a {}",
            yielded.get_type().name()?
        )));
    }
    let items: Vec<Bound<'py, PyAny>> = yielded.try_iter()?.collect::<PyResult<_>>()?;
    if items.len() != count {
        return Err(PyValueError::new_err(format!(
            "_num_objects_per_yield={count} was asked for, and one yield had {} objects",
            items.len()
        )));
    }
    Ok(items)
}

/// STREAMING-2. What a generator raises while it is closed nobody waits for, so it is only shown.
fn close(generator: &Bound<'_, PyAny>) {
    let Ok(close) = generator.getattr("close") else { return };
    if let Err(error) = close.call0() {
        error.write_unraisable(generator.py(), Some(generator));
    }
}
