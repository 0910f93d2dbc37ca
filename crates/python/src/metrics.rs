//! What Python counts and measures.

use crate::process;
use oxiray_runtime::{MetricIndex, MetricKind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A metric of this process, by its name. Raises `ValueError` where there is no room, or the name is taken.
#[pyclass(frozen, module = "oxiray._core")]
pub(crate) struct Metric {
    index: MetricIndex,
}

#[pymethods]
impl Metric {
    /// `kind` is `counter`, `gauge` or `histogram`.
    #[new]
    fn new(kind: &str, name: &str, description: &str, boundaries: Vec<f64>) -> PyResult<Self> {
        let kind = match kind {
            "counter" => MetricKind::Counter,
            "gauge" => MetricKind::Gauge,
            "histogram" => MetricKind::Histogram,
            other => return Err(PyValueError::new_err(format!("{other} is no kind of metric"))),
        };
        let declared = oxiray_runtime::declare_metric(kind, name, description, boundaries);
        let index = declared.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { index })
    }

    /// Records a value; why it is not kept, where it is not.
    fn record(&self, value: f64, tags: std::collections::BTreeMap<String, String>) -> Option<String> {
        match oxiray_runtime::record_metric(self.index, tags.into_iter().collect(), value) {
            Ok(is_first) => {
                if is_first && let Some(runtime) = process::current() {
                    runtime.tell_metrics_soon();
                }
                None
            }
            Err(error) => Some(error.to_string()),
        }
    }
}
