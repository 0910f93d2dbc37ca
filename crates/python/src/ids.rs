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

/// What is said of bytes that are no identifier of this kind.
pub(crate) fn wrong_length(kind: &str, wanted: usize, given: usize) -> String {
    format!("ID string needs to have length {wanted}, got {given}: {kind} takes the bytes that binary() of one returns")
}

macro_rules! id_class {
    ($name:ident, $inner:ty, $doc:literal $(, { $($more:tt)* })?) => {
        #[doc = $doc]
        #[pyclass(frozen, eq, hash, module = "oxiray._core")]
        #[derive(Clone, PartialEq, Eq, Hash)]
        pub(crate) struct $name(pub(crate) $inner);

        #[pymethods]
        impl $name {
            #[new]
            fn new(id: &[u8]) -> PyResult<Self> {
                <$inner>::from_slice(id).map(Self).ok_or_else(|| {
                    let text = wrong_length(stringify!($name), <$inner>::BYTES, id.len());
                    PyValueError::new_err(text)
                })
            }

            #[staticmethod]
            fn from_binary(id: &[u8]) -> PyResult<Self> {
                Self::new(id)
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

id_class!(JobID, oxiray_ids::JobId, "A driver's connection to a cluster.", {
    /// The job of this number.
    #[staticmethod]
    fn from_int(value: u32) -> Self {
        Self(oxiray_ids::JobId::from_number(value))
    }

    /// The job's number.
    fn int(&self) -> u32 {
        self.0.number()
    }
});
id_class!(ActorID, oxiray_ids::ActorId, "An actor.", {
    /// The job that the actor belongs to.
    #[getter]
    fn job_id(&self) -> JobID {
        JobID(self.0.job())
    }
});
id_class!(TaskID, oxiray_ids::TaskId, "One call of a function or method.", {
    /// The actor that the call runs in; outside of actors one that is nil but for its job.
    fn actor_id(&self) -> ActorID {
        ActorID(self.0.actor())
    }

    /// The job that the call belongs to.
    fn job_id(&self) -> JobID {
        JobID(self.0.job())
    }

    /// What stands for the driver of a job where a task is named.
    #[staticmethod]
    fn for_driver_task(job_id: &JobID) -> Self {
        Self(oxiray_ids::ActorId::nil_of(job_id.0).creation_task())
    }
});
id_class!(PlacementGroupID, oxiray_ids::PlacementGroupId, "Resources that were reserved together.");
id_class!(NodeID, oxiray_ids::NodeId, "A machine.");
id_class!(WorkerID, oxiray_ids::WorkerId, "A driver or worker process.");
// Programs make identifiers of these kinds as names of their own: nothing here has one.
id_class!(UniqueID, oxiray_ids::WorkerId, "Anything at all.");
id_class!(FunctionID, oxiray_ids::WorkerId, "A function.");
id_class!(ActorClassID, oxiray_ids::WorkerId, "A class of actors.");
id_class!(ClusterID, oxiray_ids::WorkerId, "A cluster.");

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<JobID>()?;
    module.add_class::<ActorID>()?;
    module.add_class::<TaskID>()?;
    module.add_class::<NodeID>()?;
    module.add_class::<PlacementGroupID>()?;
    module.add_class::<WorkerID>()?;
    module.add_class::<UniqueID>()?;
    module.add_class::<FunctionID>()?;
    module.add_class::<ActorClassID>()?;
    module.add_class::<ClusterID>()
}
