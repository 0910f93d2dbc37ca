//! Where references are made, for programs that ask to have that recorded.

use crate::process;
use oxiray_ids::ObjectId;
use oxiray_runtime::Runtime;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

static RECORDS: AtomicBool = AtomicBool::new(false);

/// References to these were made just now, in Python, by what `how` says.
pub(crate) fn note(
    py: Python<'_>,
    runtime: &Runtime,
    ids: impl IntoIterator<Item = ObjectId>,
    how: &str,
) -> PyResult<()> {
    if !RECORDS.load(Ordering::Relaxed) {
        return Ok(());
    }
    let site: String = py.import("oxiray._sites")?.getattr("here")?.call1((how,))?.extract()?;
    runtime.record_site(&ids.into_iter().collect::<Vec<_>>(), &site);
    Ok(())
}

/// Whether this process records where references are made.
#[pyfunction]
fn record_sites(records: bool) -> PyResult<()> {
    RECORDS.store(records, Ordering::Relaxed);
    if records {
        process::required()?.record_site(&[], "");
    }
    Ok(())
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(record_sites, module)?)
}
