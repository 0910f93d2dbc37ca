//! Identifiers as Python objects.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A hash as Python wants it.
pub(crate) fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

macro_rules! id_class {
    ($name:ident, $inner:ty, $doc:literal $(, $($more:tt)*)?) => {
        #[doc = $doc]
        #[pyclass(frozen, eq, hash, module = "oxiray._core")]
        #[derive(Clone, PartialEq, Eq, Hash)]
        pub(crate) struct $name(pub(crate) $inner);

        #[pymethods]
        impl $name {
            #[new]
            fn new(id: &[u8]) -> PyResult<Self> {
                <$inner>::from_slice(id).map(Self).ok_or_else(|| {
                    PyValueError::new_err(format!(
                        concat!("a ", stringify!($name), " has {} bytes, {} were given"),
                        <$inner>::BYTES,
                        id.len()
                    ))
                })
            }

            #[staticmethod]
            fn from_hex(hex: &str) -> PyResult<Self> {
                <$inner>::from_hex(hex).map(Self).map_err(|error| PyValueError::new_err(error.to_string()))
            }

            #[staticmethod]
            fn nil() -> Self {
                Self(<$inner>::NIL)
            }

            #[staticmethod]
            fn from_random() -> Self {
                Self(<$inner>::new(oxiray_ids::random()))
            }

            #[staticmethod]
            fn size() -> usize {
                <$inner>::BYTES
            }

            fn hex(&self) -> String {
                self.0.hex()
            }

            fn binary<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
                PyBytes::new(py, self.0.as_bytes())
            }

            fn is_nil(&self) -> bool {
                self.0.is_nil()
            }

            fn __repr__(&self) -> String {
                format!(concat!(stringify!($name), "({})"), self.0)
            }

            fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, (Bound<'py, PyBytes>,)) {
                (slf.get_type().into_any(), (PyBytes::new(slf.py(), slf.get().0.as_bytes()),))
            }

            $($($more)*)?
        }
    };
}

id_class!(
    JobID,
    oxiray_ids::JobId,
    "A driver's connection to a cluster.",
    /// The job of this number.
    #[staticmethod]
    fn from_int(value: u32) -> Self {
        Self(oxiray_ids::JobId::from_number(value))
    }
);
id_class!(ActorID, oxiray_ids::ActorId, "An actor.");
id_class!(TaskID, oxiray_ids::TaskId, "One call of a function or method.");
id_class!(PlacementGroupID, oxiray_ids::PlacementGroupId, "Resources that were reserved together.");
id_class!(NodeID, oxiray_ids::NodeId, "A machine.");
id_class!(WorkerID, oxiray_ids::WorkerId, "A driver or worker process.");

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<JobID>()?;
    module.add_class::<ActorID>()?;
    module.add_class::<TaskID>()?;
    module.add_class::<NodeID>()?;
    module.add_class::<PlacementGroupID>()?;
    module.add_class::<WorkerID>()
}
