//! What a call raised, as the value of its results.

use crate::python;
use bytes::Bytes;
use oxiray_ids::TaskId;
use oxiray_runtime::INLINE_TOTAL_BYTES;
use oxiray_wire::message::{Content, Failure, Value};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Whether an exception is one that the owner asked to retry.
pub(crate) fn asks_retry(py: Python<'_>, wanted: &Bytes, error: &PyErr) -> bool {
    let answer = python::wants_retry(py).and_then(|ask| ask.call1((PyBytes::new(py, wanted), error.value(py))));
    answer.and_then(|answer| answer.is_truthy()).unwrap_or(false)
}

/// The value of a call that raised.
pub(crate) fn raised(py: Python<'_>, name: &str, task: TaskId, error: &PyErr) -> Value {
    if let Some(traceback) = error.traceback(py) {
        let _ = error.value(py).setattr("__traceback__", traceback);
    }
    let described = python::describe_error(py)
        .and_then(|describe| describe.call1((name, error.value(py), task.hex())))
        .and_then(|described| described.extract::<Vec<u8>>());
    let content = match described {
        Ok(pickle) if pickle.len() > INLINE_TOTAL_BYTES => Content::Failed(Failure {
            code: "system".into(),
            text: format!(
                "`{name}` raised {:.1000}, which carries {} MiB and is too large to travel: raise an error without its data",
                error.to_string(),
                pickle.len() >> 20
            ),
            cause: Bytes::new(),
        }),
        Ok(pickle) => {
            let mut blob = vec![0];
            blob.extend_from_slice(&pickle);
            Content::Raised(blob.into())
        }
        Err(second) => Content::Failed(Failure {
            code: "system".into(),
            text: format!("`{name}` raised {error}, which could not be described: {second}"),
            cause: Bytes::new(),
        }),
    };
    Value { content: Some(content), contained: Vec::new() }
}
