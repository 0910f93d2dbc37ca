//! The user's cache of packages and environments, for the front, which makes what is kept there.

#![expect(clippy::needless_pass_by_value, reason = "a path from Python is made for the call")]

use oxiray_client::package_cache::{PackageCache, bytes_below, bytes_max, is_whole, mark_whole};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::{Path, PathBuf};

/// This user's cache, or the one in `folder`.
fn cache(folder: Option<PathBuf>) -> PyResult<PackageCache> {
    Ok(folder.map_or_else(PackageCache::of_user, |folder| Ok(PackageCache::at(folder)))?)
}

/// The folder of this user's sessions, in which the cache lies.
#[pyfunction]
fn sessions_root() -> PyResult<PathBuf> {
    Ok(oxiray_wire::session::root(|name| std::env::var(name).ok())?)
}

/// Where a package's file is, or would be.
#[pyfunction]
#[pyo3(signature = (name, folder = None))]
fn package_file(name: &str, folder: Option<PathBuf>) -> PyResult<PathBuf> {
    Ok(cache(folder)?.file_of(name))
}

/// Has `write` make the package at the path it is given, where it is not there yet, and keeps it while this process lives.
#[pyfunction]
fn package_keep(py: Python<'_>, name: &str, mode: u32, write: &Bound<'_, PyAny>) -> PyResult<()> {
    let mut raised = None;
    let kept = cache(None)?.keep(name, mode, |beside| {
        write.call1((beside,)).map(drop).map_err(|error| {
            let text = error.to_string();
            raised = Some(error);
            std::io::Error::other(text)
        })
    });
    py.check_signals()?;
    match (kept, raised) {
        (_, Some(error)) => Err(error),
        (kept, None) => Ok(kept.map(drop)?),
    }
}

/// The folder of environments in a cache, which only this user can write to.
#[pyfunction]
fn environments_folder(folder: PathBuf) -> PyResult<PathBuf> {
    Ok(cache(Some(folder))?.environments()?)
}

/// Whether an environment was finished.
#[pyfunction]
fn environment_is_whole(environment: PathBuf) -> bool {
    is_whole(&environment)
}

/// Says that an environment is finished.
#[pyfunction]
fn environment_is_made(py: Python<'_>, environment: PathBuf) -> PyResult<()> {
    Ok(py.detach(|| mark_whole(&environment))?)
}

/// The most bytes that a cache keeps; raises `ValueError` where the variable is no number.
#[pyfunction]
fn cache_bytes_max() -> PyResult<u64> {
    bytes_max().map_err(PyValueError::new_err)
}

/// Removes from a cache what was used longest ago, until the rest has at most this many bytes; returns the names.
#[pyfunction]
fn cache_evict(py: Python<'_>, folder: PathBuf, bytes_max: u64) -> PyResult<Vec<String>> {
    let cache = cache(Some(folder))?;
    Ok(py.detach(|| cache.evict(bytes_max)))
}

/// The bytes of everything below a folder.
#[pyfunction]
fn tree_bytes(py: Python<'_>, folder: PathBuf) -> u64 {
    py.detach(|| bytes_below(Path::new(&folder)))
}

/// Adds what Python calls to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(sessions_root, module)?)?;
    module.add_function(wrap_pyfunction!(package_file, module)?)?;
    module.add_function(wrap_pyfunction!(package_keep, module)?)?;
    module.add_function(wrap_pyfunction!(environments_folder, module)?)?;
    module.add_function(wrap_pyfunction!(environment_is_whole, module)?)?;
    module.add_function(wrap_pyfunction!(environment_is_made, module)?)?;
    module.add_function(wrap_pyfunction!(cache_bytes_max, module)?)?;
    module.add_function(wrap_pyfunction!(cache_evict, module)?)?;
    module.add_function(wrap_pyfunction!(tree_bytes, module)?)
}
