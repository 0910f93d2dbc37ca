//! Looking at the cluster, and at the values that it keeps by name.

use crate::values::deadline;
use crate::{process, state};
use bytes::Bytes;
use oxiray_visitor::json;
use oxiray_wire::message::{DrainAsked, KeyValueAction, KeyValueRequest, StateQuery};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::time::Instant;

/// Puts (1), gets (2), deletes (3) or lists (4) kept values: how many, the value, the keys.
#[pyfunction]
fn kept(
    py: Python<'_>,
    action: i32,
    namespace: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
    widely: bool,
) -> PyResult<(u64, Bound<'_, PyBytes>, Vec<Bound<'_, PyBytes>>)> {
    let runtime = process::required()?;
    let action = KeyValueAction::try_from(action).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let (namespace, key, value) = (Bytes::from(namespace), Bytes::from(key), Bytes::from(value));
    let asked = KeyValueRequest { request: 0, action, namespace, key, value, widely };
    let answer = process::patiently(py, || runtime.kept(&asked))?.map_err(|error| process::error(py, &error))?;
    let keys = answer.keys.iter().map(|key| PyBytes::new(py, key)).collect();
    Ok((answer.count, PyBytes::new(py, &answer.value), keys))
}

/// Lists or counts things of one kind: the rows or counts, how many rows there are before the limit, and what is missing in
/// them.
///
/// A filter is a column, whether the value must differ, and what it is compared with. The question is given up after
/// `timeout` seconds.
#[pyfunction]
#[pyo3(signature = (kind, filters, limit, detail, summary, timeout = None))]
fn look<'py>(
    py: Python<'py>,
    kind: &str,
    filters: Vec<(String, bool, String)>,
    limit: u32,
    detail: bool,
    summary: bool,
    timeout: Option<f64>,
) -> PyResult<(Bound<'py, PyAny>, u64, String)> {
    let runtime = process::required()?;
    let until = deadline(timeout)?;
    let filters = filters.into_iter().map(|(key, differs, value)| json::filter(key, differs, value)).collect();
    let kind = json::kind(kind).map_err(|error| state::unshown(&error))?;
    let asked = StateQuery { kind, filters, limit, detail, summary, ..StateQuery::default() };
    let report = process::patiently(py, || runtime.look(&asked, until))?.map_err(|error| process::error(py, &error))?;
    let rows = json::answer(&asked, &report).map_err(|error| state::unshown(&error))?;
    Ok((state::to_python(py, &rows)?, report.total, report.missing))
}

/// How this process's node is being emptied: the seconds that are left, where there is a deadline, and why.
#[pyfunction]
fn draining() -> PyResult<Option<(Option<f64>, String)>> {
    let left = |until: Instant| until.saturating_duration_since(Instant::now()).as_secs_f64();
    let told = process::required()?.draining();
    Ok(told.map(|draining| (draining.until.map(left), draining.reason)))
}

/// That this process is to end early: the seconds that are left, and for what.
#[pyfunction]
fn preempted() -> PyResult<Option<(f64, String)>> {
    let told = process::required()?.preempted();
    let left = |until: Instant| until.saturating_duration_since(Instant::now()).as_secs_f64();
    Ok(told.map(|preempted| (left(preempted.until), preempted.reason)))
}

/// Has a node emptied within so many seconds, or kept after all; what is left there.
#[pyfunction]
fn drain(
    py: Python<'_>,
    node: String,
    deadline_s: Option<f64>,
    reason: String,
    only_if_idle: bool,
    undo: bool,
) -> PyResult<Bound<'_, PyAny>> {
    let runtime = process::required()?;
    let deadline_ms = deadline_s.map(|seconds| (seconds * 1000.0) as u64);
    let asked = DrainAsked { request: 0, node, deadline_ms, reason, undo, only_if_idle };
    let report = process::patiently(py, || runtime.drain(&asked))?.map_err(|error| process::error(py, &error))?;
    state::to_python(py, &json::drained(&report).map_err(|error| state::unshown(&error))?)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(look, module)?)?;
    module.add_function(wrap_pyfunction!(draining, module)?)?;
    module.add_function(wrap_pyfunction!(preempted, module)?)?;
    module.add_function(wrap_pyfunction!(drain, module)?)?;
    module.add_function(wrap_pyfunction!(kept, module)?)
}
