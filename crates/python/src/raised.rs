//! What a call raised, as the value of its results.

use crate::{process, python};
use bytes::Bytes;
use oxiray_client::worker::device_errors;
use oxiray_ids::TaskId;
use oxiray_runtime::INLINE_TOTAL_BYTES;
use oxiray_values::{Common, Encoded};
use oxiray_wire::message::{Content, FailureCode, Value};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The most characters of a text that travels to another language.
const TEXT_MAX: usize = 64 << 10;

/// Whether an exception is one that the owner asked to retry.
pub(crate) fn asks_retry(py: Python<'_>, wanted: &Bytes, error: &PyErr) -> bool {
    let answer = python::wants_retry(py).and_then(|ask| ask.call1((PyBytes::new(py, wanted), error.value(py))));
    answer.and_then(|answer| answer.is_truthy()).unwrap_or(false)
}

/// The value of a call that raised.
pub(crate) fn raised(py: Python<'_>, name: &str, task: TaskId, error: &PyErr, is_common: bool) -> Value {
    if let Some(traceback) = error.traceback(py) {
        let _ = error.value(py).setattr("__traceback__", traceback);
    }
    if is_common {
        return raised_to_others(py, name, task, error);
    }
    let described = python::describe_error(py)
        .and_then(|describe| describe.call1((name, error.value(py), task.hex())))
        .and_then(|described| described.extract::<Vec<u8>>());
    let content = match described {
        Ok(pickle) if pickle.len() > INLINE_TOTAL_BYTES => Content::Failed(FailureCode::System.because(format!(
            "`{name}` raised {:.1000}, which carries {} MiB and is too large to travel: raise an error without its data",
            error.to_string(),
            pickle.len() >> 20
        ))),
        Ok(pickle) => {
            let mut blob = vec![0];
            blob.extend_from_slice(&pickle);
            Content::Raised(blob.into())
        }
        Err(second) => Content::Failed(
            FailureCode::System.because(format!("`{name}` raised {error}, which could not be described: {second}")),
        ),
    };
    Value { content: Some(content), contained: Vec::new() }
}

/// The same for a caller in another language: message, kind and origin.
fn raised_to_others(py: Python<'_>, name: &str, task: TaskId, error: &PyErr) -> Value {
    let text = |text: String| Common::Text(text.chars().take(TEXT_MAX).collect());
    let trace = py
        .import("oxiray._failures")
        .and_then(|failures| failures.call_method1("traceback_text", (error.value(py),)))
        .and_then(|trace| trace.extract::<String>());
    let told = process::required().map(|runtime| py.detach(|| device_errors(&runtime, task)));
    // What devices reported stands at the end, and is not what is cut off.
    let mut trace: String = trace.unwrap_or_default().chars().take(TEXT_MAX).collect();
    trace += &told.unwrap_or_default().concat();
    let record = Common::record([
        ("error", text(error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default())),
        ("message", text(error.value(py).to_string())),
        ("function", text(name.to_owned())),
        ("language", Common::Text("python".into())),
        ("pid", Common::Int(std::process::id().into())),
        ("trace", Common::Text(trace)),
    ]);
    let blob = Encoded::common(&record).expect("texts and numbers can be written").into_bytes();
    Value { content: Some(Content::Raised(blob)), contained: Vec::new() }
}
