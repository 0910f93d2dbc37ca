//! Looking at the cluster, and at the values that it keeps by name.

use crate::process;
use bytes::Bytes;
use oxiray_wire::message::KeptRequest;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Puts (1), gets (2), deletes (3) or lists (4) kept values: how many, the value, the keys.
#[pyfunction]
fn kept<'py>(
    py: Python<'py>,
    action: i32,
    namespace: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
    widely: bool,
) -> PyResult<(u64, Bound<'py, PyBytes>, Vec<Bound<'py, PyBytes>>)> {
    let runtime = process::required()?;
    let (namespace, key, value) = (Bytes::from(namespace), Bytes::from(key), Bytes::from(value));
    let asked = KeptRequest { request: 0, action, namespace, key, value, widely };
    let answer = process::patiently(py, || runtime.kept(&asked))?.map_err(|error| process::error(py, &error))?;
    let keys = answer.keys.iter().map(|key| PyBytes::new(py, key)).collect();
    Ok((answer.count, PyBytes::new(py, &answer.value), keys))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(kept, module)?)
}
