//! A runtime environment as the front describes it.

use oxiray_client::isolation;
use oxiray_wire::message::{AskedIsolation, Environment, Variable};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::BTreeMap;

/// The dictionary that `oxiray._environment.described` makes: the fields of [`Environment`] by name.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct AskedEnvironment {
    variables: BTreeMap<String, String>,
    fields: String,
    preparation: String,
    cached: String,
    preload: Vec<String>,
    preload_path: Vec<String>,
    setup_timeout_s: u32,
    eager: bool,
    native: bool,
    isolation: Isolation,
}

/// A mode's word, or an empty text.
struct Isolation(AskedIsolation);

impl<'py> FromPyObject<'_, 'py> for Isolation {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        isolation::asked(&object.extract::<String>()?).map(Self).map_err(PyValueError::new_err)
    }
}

impl From<AskedEnvironment> for Environment {
    fn from(asked: AskedEnvironment) -> Self {
        let variable = |(name, value)| Variable { name, value: Some(value) };
        Self {
            variables: asked.variables.into_iter().map(variable).collect(),
            fields: asked.fields,
            preparation: asked.preparation,
            cached: asked.cached,
            preload: asked.preload,
            preload_path: asked.preload_path,
            setup_timeout_s: asked.setup_timeout_s,
            eager: asked.eager,
            native: asked.native,
            isolation: asked.isolation.0,
        }
    }
}
