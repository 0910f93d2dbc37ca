//! Values as bytes.
//!
//! ```text
//! 2                                              None
//! 0 │ pickle                                     a value without buffers of its own
//! 1 │ 7 zeros │ n: u64 │ p: u64 │ n lengths: u64 │ pickle: p bytes │ buffers, each 64-byte aligned
//! ```
//!
//! The numbers from 3 on are Rust's, and the values that both read: see the crate `values`.
//!
//! Numbers are little endian. Buffers are what pickle protocol 5 leaves out of band: readers see them in
//! place, so that an array in the store is never copied.

use crate::buffer::{Lent, Pin};
use crate::reference::Collected;
use crate::{common, python};
use bytes::Bytes;
use oxiray_ids::ObjectId;
use oxiray_runtime::Pinned;
use oxiray_values::{Common, Encoded, layout};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyList, PyString};

const PLAIN: u8 = 0;
const BUFFERED: u8 = 1;
const NONE: u8 = 2;

/// A value ready to be written somewhere.
pub(crate) struct Serialized {
    pickle: Option<Lent>,
    buffers: Vec<Lent>,
    /// In place of all that: a value for every language.
    common: Option<Encoded>,
    /// References inside of it.
    pub(crate) contained: Vec<ObjectId>,
}

impl Serialized {
    /// Serializes any value.
    pub(crate) fn of(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = value.py();
        if value.is_none() {
            return Ok(Self { pickle: None, buffers: Vec::new(), common: None, contained: Vec::new() });
        }
        if is_plain(value) {
            let pickle = Lent::of(&python::pickle_dumps(py)?.call1((value, 5))?)?;
            return Ok(Self { pickle: Some(pickle), buffers: Vec::new(), common: None, contained: Vec::new() });
        }
        let collected = Collected::begin();
        let dumped = python::dumps(py)?.call1((value,));
        let contained = collected.end();
        let (pickle, buffers): (Bound<'_, PyBytes>, Bound<'_, PyList>) = dumped?.extract()?;
        let buffers = buffers.iter().map(|buffer| Lent::of(&buffer)).collect::<PyResult<_>>()?;
        Ok(Self { pickle: Some(Lent::of(&pickle)?), buffers, common: None, contained })
    }

    /// A value for every language, with the references inside of it.
    pub(crate) fn of_common(value: &Common, contained: Vec<ObjectId>) -> PyResult<Self> {
        let common = Some(Encoded::common(value).map_err(|error| common::unfit(&error))?);
        Ok(Self { pickle: None, buffers: Vec::new(), common, contained })
    }

    fn pickle(&self) -> &[u8] {
        self.pickle.as_ref().map_or(&[], Lent::bytes)
    }

    /// How many bytes it takes.
    pub(crate) fn size(&self) -> usize {
        if let Some(common) = &self.common {
            return common.size();
        }
        let pickle = self.pickle().len();
        if self.buffers.is_empty() {
            return 1 + pickle;
        }
        layout::size(pickle, self.buffers.iter().map(|buffer| buffer.bytes().len()))
    }

    /// Writes it; `target` has just its size.
    pub(crate) fn write(&self, target: &mut [u8]) {
        if let Some(common) = &self.common {
            return common.write(target, oxiray_store::copy);
        }
        let Some(pickle) = &self.pickle else {
            target[0] = NONE;
            return;
        };
        let pickle = pickle.bytes();
        if self.buffers.is_empty() {
            target[0] = PLAIN;
            return target[1..=pickle.len()].copy_from_slice(pickle);
        }
        layout::write(target, BUFFERED, pickle, self.buffers.iter().map(Lent::bytes), oxiray_store::copy);
    }

    /// As bytes of its own.
    pub(crate) fn into_bytes(self) -> Bytes {
        if let Some(common) = self.common {
            return common.into_bytes();
        }
        if self.pickle.is_none() {
            return Bytes::from_static(&[NONE]);
        }
        let mut bytes = vec![0; self.size()];
        self.write(&mut bytes);
        bytes.into()
    }
}

/// Whether plain pickle does: exact built-in scalars, whose pickling cannot run anybody's code.
pub(crate) fn is_plain(value: &Bound<'_, PyAny>) -> bool {
    value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyBytes>()
        || value.is_exact_instance_of::<PyBool>()
}

fn malformed() -> PyErr {
    PyRuntimeError::new_err("a serialized value has no shape that this version writes: the writer is of another build")
}

/// Where pickle and buffers lie in a blob.
fn parts(blob: &[u8]) -> Option<(std::ops::Range<usize>, Vec<std::ops::Range<usize>>)> {
    if *blob.first()? == PLAIN {
        return Some((1..blob.len(), Vec::new()));
    }
    layout::parts(blob)
}

/// The value in a blob that travelled with a message.
pub(crate) fn load_inline<'py>(py: Python<'py>, blob: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match blob.first() {
        Some(&NONE) => Ok(py.None().into_bound(py)),
        Some(&PLAIN) => python::pickle_loads(py)?.call1((python::bytes(py, &blob[1..]),)),
        Some(&BUFFERED) => {
            let view = py.import("builtins")?.getattr("memoryview")?.call1((python::bytes(py, blob),))?;
            load_parts(&view, blob)
        }
        Some(3..=6) => {
            let view = py.import("builtins")?.getattr("memoryview")?.call1((python::bytes(py, blob),))?;
            common::load(&view, blob)
        }
        _ => Err(malformed()),
    }
}

/// The value in a stored blob. What of it lies out of band stays there, pinned.
pub(crate) fn load_pinned(py: Python<'_>, pinned: Pinned) -> PyResult<Bound<'_, PyAny>> {
    let pin = Bound::new(py, Pin { pinned })?;
    let blob = pin.get().pinned.bytes();
    if blob.first() == Some(&NONE) {
        return Ok(py.None().into_bound(py));
    }
    let view = python::view(py)?.call1((&pin, blob.as_ptr() as usize, blob.len()))?;
    if matches!(blob.first(), Some(3..=6)) {
        return common::load(&view, blob);
    }
    load_parts(&view, blob)
}

fn load_parts<'py>(view: &Bound<'py, PyAny>, blob: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let py = view.py();
    let (pickle, buffers) = parts(blob).ok_or_else(malformed)?;
    let cut = |range: std::ops::Range<usize>| {
        let slice = pyo3::types::PySlice::new(py, range.start as isize, range.end as isize, 1);
        view.get_item(slice)
    };
    let buffers = buffers.into_iter().map(cut).collect::<PyResult<Vec<_>>>()?;
    let keywords = pyo3::types::PyDict::new(py);
    keywords.set_item("buffers", buffers)?;
    python::pickle_loads(py)?.call((cut(pickle)?,), Some(&keywords))
}
