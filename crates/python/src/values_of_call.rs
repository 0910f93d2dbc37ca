//! A call's arguments as Python objects, and what it returned as values.

use crate::blob::{self, Serialized};
use crate::values::{keep, load, load_stored};
use crate::worker::Worker;
use crate::{common, process, python};
use bytes::Bytes;
use oxiray_ids::TaskId;
use oxiray_runtime::{EVERYTHING, INLINE_BYTES, INLINE_TOTAL_BYTES, Outcome, ScannedValue};
use oxiray_wire::message::{ArgumentReference, Content, FailureCode, Value};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

/// What [`Worker::arguments`] returns.
pub(crate) type Arguments<'py> = (Bound<'py, PyTuple>, Option<Bound<'py, PyDict>>, bool);

impl Worker {
    /// The arguments, by their places and names, and whether they came from another language. `call` is whom they are for,
    /// as [`Runtime::pin_argument`](oxiray_runtime::Runtime::pin_argument) takes it.
    pub(crate) fn arguments<'py>(
        &self,
        py: Python<'py>,
        payload: &Bytes,
        references: &[ArgumentReference],
        call: Option<TaskId>,
    ) -> PyResult<Arguments<'py>> {
        let everything = references.iter().find(|reference| reference.position == EVERYTHING);
        let packed = match everything {
            Some(reference) => Some(self.argument(py, reference, call)?),
            None if payload.is_empty() => None,
            None => Some(blob::load_inline(py, payload)?),
        };
        let Some(packed) = packed else { return Ok((PyTuple::empty(py), None, false)) };
        let (args, kwargs, is_common) = if let Ok(list) = packed.cast::<PyList>() {
            (list.to_tuple(), None, true)
        } else {
            let (args, kwargs): (Bound<'py, PyTuple>, Option<Bound<'py, PyDict>>) = packed.extract()?;
            (args, kwargs, false)
        };
        if references.iter().all(|reference| reference.position == EVERYTHING) {
            return Ok((args, kwargs, is_common));
        }
        let mut items: Vec<Bound<'py, PyAny>> = args.iter().collect();
        for reference in references.iter().filter(|reference| reference.position != EVERYTHING) {
            let value = self.argument(py, reference, call)?;
            if let (false, Some(kwargs)) = (reference.keyword.is_empty(), &kwargs) {
                kwargs.set_item(&reference.keyword, value)?;
            } else if let Some(slot) = items.get_mut(reference.position as usize) {
                *slot = value;
            }
        }
        Ok((PyTuple::new(py, items)?, kwargs, is_common))
    }

    fn argument<'py>(
        &self,
        py: Python<'py>,
        argument: &ArgumentReference,
        call: Option<TaskId>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.loaded_argument(py, argument, call).inspect_err(|error| mark_as_of_argument(py, error))
    }

    fn loaded_argument<'py>(
        &self,
        py: Python<'py>,
        argument: &ArgumentReference,
        call: Option<TaskId>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let id = argument.reference.as_ref().map(|reference| reference.object);
        let (Some(reference), Some(id)) = (&argument.reference, id) else {
            return Err(PyValueError::new_err("an argument arrived without saying which it is"));
        };
        if let Some(value) = argument.value.as_ref().filter(|value| !is_stored(value)) {
            return load(py, &self.runtime, id, &ScannedValue::from(value), None, None);
        }
        // The object is to be known here in case that its stored bytes are lost.
        self.runtime.borrow(id, reference.owner.unwrap_or_default());
        if let Some(value) = &argument.value {
            let pinned = py.detach(|| self.runtime.pin_argument(id, argument.losses, call));
            let loaded = load_stored(py, &self.runtime, (id, value.contained.len()), pinned, None);
            self.runtime.release(id);
            return loaded;
        }
        // Too much to travel with the call: the daemon has it.
        let waited = process::patiently(py, || self.runtime.get_one(id, None));
        let value = waited.and_then(|value| value.map_err(|error| process::error(py, &error)));
        let loaded = value.and_then(|value| load(py, &self.runtime, id, &value, None, None));
        self.runtime.release(id);
        loaded
    }

    /// Writes what a call returned as its results. Where that fails, `outcome` has those of what a generator yielded before.
    pub(crate) fn results(
        &self,
        py: Python<'_>,
        task: TaskId,
        (count, is_common): (u32, bool),
        returned: &Bound<'_, PyAny>,
        outcome: &mut Outcome,
    ) -> PyResult<()> {
        let values: Box<dyn Iterator<Item = PyResult<Bound<'_, PyAny>>>> = match count {
            0 => return Ok(()),
            _ if is_generator(returned)? => Box::new(returned.try_iter()?.take(count as usize)),
            1 => Box::new(std::iter::once(Ok(returned.clone()))),
            _ => Box::new(several(returned, count)?.into_iter().map(Ok)),
        };
        let mut room = INLINE_TOTAL_BYTES;
        for value in values {
            let value = value?;
            let id = task.object(outcome.results.len() as u32 + 1);
            let serialized = if is_common { common::serialized(&value)? } else { Serialized::of(&value)? };
            self.runtime.retain_all(&serialized.contained);
            outcome.handed.extend_from_slice(&serialized.contained);
            let size = serialized.size();
            let kept = keep(py, &self.runtime, id, serialized, INLINE_BYTES.min(room))?;
            room = room.saturating_sub(size);
            if matches!(kept.content, Some(Content::Stored(_))) {
                outcome.stored.push(id);
            }
            outcome.results.push(kept);
        }
        check_count(outcome.results.len(), count)
    }
}

/// The error kept a call from running: `oxiray._worker.describe` says so to who reads the call's result.
pub(crate) fn mark_as_of_argument(py: Python<'_>, error: &PyErr) {
    // One that takes no attributes is told of as if the call had raised it.
    let _ = error.value(py).setattr("_is_of_argument", true);
}

fn is_stored(value: &Value) -> bool {
    matches!(value.content, Some(Content::Stored(_)))
}

/// Whether this yields its values, of which a call takes as many as it was asked for.
pub(crate) fn is_generator(returned: &Bound<'_, PyAny>) -> PyResult<bool> {
    returned.is_instance(python::generator_type(returned.py())?)
}

fn several<'py>(returned: &Bound<'py, PyAny>, count: u32) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let values: Vec<Bound<'py, PyAny>> = match returned.try_iter() {
        Ok(values) => values.collect::<PyResult<_>>()?,
        Err(_) => {
            return Err(PyTypeError::new_err(format!(
                "object of type '{}' has no len(): num_returns={count} was asked for, and the function returned one value",
                returned.get_type().name()?
            )));
        }
    };
    check_count(values.len(), count)?;
    Ok(values)
}

fn check_count(values: usize, count: u32) -> PyResult<()> {
    if values == count as usize {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "Task returned {values} objects, but num_returns={count}: return or yield as many, or correct num_returns"
    )))
}

/// What a call has for its result that ended its actor.
pub(crate) fn left() -> Value {
    let text = "The actor is dead because it called exit_actor().".to_owned();
    let failure = FailureCode::ActorLeft.because(text);
    Value { content: Some(Content::Failed(failure)), contained: Vec::new() }
}

/// The value `None`.
pub(crate) fn none() -> Value {
    Value { content: Some(Content::Inline(Bytes::from_static(&[2]))), contained: Vec::new() }
}
