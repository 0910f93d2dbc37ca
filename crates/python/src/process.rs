//! The one runtime of this process.

use crate::python;
pub(crate) use oxiray_client::process::{current, set};
use oxiray_runtime::Runtime;
use pyo3::prelude::*;

/// The runtime, or the error that Ray programs expect where there is none.
pub(crate) fn required() -> PyResult<Runtime> {
    current().ok_or_else(|| {
        pyo3::exceptions::PyRuntimeError::new_err(
            "this process is not connected to a cluster: call init() first (a shutdown() ended the connection, or there was none)",
        )
    })
}

/// Calls `wait` without the GIL until it is done, letting signal handlers run in between.
pub(crate) fn patiently<R: Send>(
    py: Python<'_>,
    wait: impl FnMut() -> Result<R, oxiray_runtime::RuntimeError> + Send,
) -> PyResult<Result<R, oxiray_runtime::RuntimeError>> {
    patiently_for(py, false, wait)
}

/// The same, where the thread may wait for calls to run.
pub(crate) fn patiently_for<R: Send>(
    py: Python<'_>,
    waits_for_calls: bool,
    mut wait: impl FnMut() -> Result<R, oxiray_runtime::RuntimeError> + Send,
) -> PyResult<Result<R, oxiray_runtime::RuntimeError>> {
    loop {
        match py.detach(&mut wait) {
            Err(oxiray_runtime::RuntimeError::Unmet(oxiray_runtime::Unmet::Interrupted)) => {
                py.check_signals()?;
                say_whether_alone(py, waits_for_calls)?;
            }
            result => return Ok(result),
        }
    }
}

/// Where the head asks, says whether the main thread, which this is, is the only one that goes on.
fn say_whether_alone(py: Python<'_>, waits_for_calls: bool) -> PyResult<()> {
    let Some(runtime) = current() else { return Ok(()) };
    if let Some(number) = runtime.asked_whether_alone() {
        let is_alone = py.import("oxiray._alone")?.call_method0("is_main_thread_alone")?.extract()?;
        runtime.answer_whether_alone(number, is_alone, waits_for_calls);
    }
    Ok(())
}

/// The Python exception for what the runtime could not do.
pub(crate) fn error(py: Python<'_>, error: &oxiray_runtime::RuntimeError) -> PyErr {
    match error {
        oxiray_runtime::RuntimeError::Failed(failure) => python::failure(py, failure, None),
        oxiray_runtime::RuntimeError::Unmet(_) => python::timeout(py, "the wait ended before there was an answer"),
    }
}
