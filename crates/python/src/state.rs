//! The state of the cluster as Python values, from the JSON that it is for everybody.

use crate::process;
use oxiray_visitor::json::StateError;
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::Value as Json;

/// What an answer cannot be shown for: `ValueError` where the question was wrong, `RuntimeError` where the head is another.
pub(crate) fn unshown(error: &StateError) -> PyErr {
    match error {
        StateError::Kind { .. } => PyValueError::new_err(error.to_string()),
        StateError::Version { .. } | StateError::Missing(_) | StateError::Unwritable(_) => {
            PyRuntimeError::new_err(error.to_string())
        }
    }
}

/// Dicts, lists, texts and numbers.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &Json) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Json::Null => Ok(py.None().into_bound(py)),
        Json::Bool(flag) => flag.into_bound_py_any(py),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.into_bound_py_any(py),
            (None, Some(number)) => number.into_bound_py_any(py),
            (None, None) => number.as_f64().into_bound_py_any(py),
        },
        Json::String(text) => text.into_bound_py_any(py),
        Json::Array(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(to_python(py, value)?)?;
            }
            Ok(list.into_any())
        }
        Json::Object(entries) => {
            let dict = PyDict::new(py);
            for (name, value) in entries {
                dict.set_item(name, to_python(py, value)?)?;
            }
            Ok(dict.into_any())
        }
    }
}

/// The cluster in whole: what it offers and what of that is free, its nodes, actors, groups, and who waits for what.
#[pyfunction]
fn cluster(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let runtime = process::required()?;
    let report = py.detach(|| runtime.cluster()).map_err(|error| process::error(py, &error))?;
    let state = oxiray_visitor::json::cluster(report).map_err(|error| unshown(&error))?;
    shown(py, &state)
}

/// One of the types of the state.
pub(crate) fn shown<'py, T: serde::Serialize>(py: Python<'py>, state: &T) -> PyResult<Bound<'py, PyAny>> {
    to_python(py, &oxiray_visitor::json::value(state).map_err(|error| unshown(&error))?)
}

/// What is asked of the autoscaler, as the head keeps it: `standing` are bundles that are to fit into the cluster for good,
/// `waiting` demands that nobody waits for. Both are JSON, as in a record of `oxiray autoscaler plan`.
#[pyfunction]
fn encode_demands(standing: &str, waiting: &str) -> PyResult<Vec<u8>> {
    oxiray_visitor::json::demands(standing, waiting).map_err(|error| PyValueError::new_err(error.to_string()))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(cluster, module)?)?;
    module.add_function(wrap_pyfunction!(encode_demands, module)?)
}
