//! Values that cross between Python and Rust: what `oxiray_values::Common` is in Python.
//!
//! | Common | Python |
//! |---|---|
//! | null, truth, whole number, number, text | `None`, `bool`, `int` of 64 bits, `float`, `str` |
//! | bytes, list, map | `bytes`, `list` (and `tuple` on the way out), `dict` |
//! | array | `numpy.ndarray` of plain numbers; a stored one is read in place |
//! | reference | `ObjectRef` |
//! | actor | `ActorHandle` |

use crate::blob::Serialized;
use crate::buffer::Lent;
use crate::reference::{self, Collected, ObjectRef};
use crate::values::keep;
use crate::{process, python};
use bytes::Bytes;
use oxiray_runtime::INLINE_BYTES;
use oxiray_values::{Blob, Common, Decoded, Encoded, RawActor, RawArray, RawReference, ValueError};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PySlice, PyString, PyTuple};

/// Lists and dictionaries nested deeper than this are refused: they may contain themselves.
const DEPTH_MAX: usize = 200;

/// Memory that Python lends for as long as this lives.
struct Memory(Lent);

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

pub(crate) fn unfit(error: &ValueError) -> PyErr {
    PyTypeError::new_err(error.to_string())
}

/// Whether a blob was written for every language.
pub(crate) fn is_common(blob: &[u8]) -> bool {
    matches!(blob.first(), Some(5 | 6))
}

/// What a Python value is to every language. References in it are noted as contained.
pub(crate) fn of(value: &Bound<'_, PyAny>) -> PyResult<Common> {
    common(value, DEPTH_MAX)
}

fn common(value: &Bound<'_, PyAny>, depth: usize) -> PyResult<Common> {
    let depth = depth.checked_sub(1).ok_or_else(|| {
        PyValueError::new_err(format!("a value for Rust is nested deeper than {DEPTH_MAX} levels, or contains itself"))
    })?;
    if value.is_none() {
        return Ok(Common::Null);
    }
    if let Ok(truth) = value.cast::<PyBool>() {
        return Ok(Common::Bool(truth.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        return value.extract().map(Common::Int).map_err(|_| {
            PyTypeError::new_err(format!(
                "{value} has more than 64 bits, and Rust has no number for it: pass it as a str"
            ))
        });
    }
    if value.is_instance_of::<PyFloat>() {
        return value.extract().map(Common::Float);
    }
    if value.is_instance_of::<PyString>() {
        return value.extract().map(Common::Text);
    }
    if value.is_instance_of::<PyBytes>() || value.is_instance_of::<PyByteArray>() {
        return Ok(Common::Bytes(memory(value)?));
    }
    if let Ok(reference) = value.cast::<ObjectRef>() {
        return reference::as_common(reference).map(Common::Reference);
    }
    if let Ok(entries) = value.cast::<PyDict>() {
        let entry =
            |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| Ok((common(&key, depth)?, common(&value, depth)?));
        return entries.iter().map(entry).collect::<PyResult<_>>().map(Common::Map);
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let items = value.try_iter()?.map(|item| common(&item?, depth));
        return items.collect::<PyResult<_>>().map(Common::List);
    }
    if value.is_instance(python::actor_handle(value.py())?)? {
        return actor(value);
    }
    numeric(value)
}

fn actor(handle: &Bound<'_, PyAny>) -> PyResult<Common> {
    let told = handle.call_method0("_as_common")?;
    let (actor, handle, keeps): (Vec<u8>, Vec<u8>, bool) = told.extract()?;
    Ok(Common::Actor(RawActor { actor: actor.into(), handle: handle.into(), keeps }))
}

/// numpy's arrays and numbers, without importing it where the program did not.
fn numeric(value: &Bound<'_, PyAny>) -> PyResult<Common> {
    let py = value.py();
    let modules = py.import("sys")?.getattr("modules")?;
    if let Ok(numpy) = modules.get_item("numpy") {
        if value.is_instance(&numpy.getattr("ndarray")?)? {
            let array = numpy.call_method1("ascontiguousarray", (value,))?;
            let kind: String = array.getattr("dtype")?.getattr("str")?.extract()?;
            let shape: Vec<u64> = value.getattr("shape")?.extract()?;
            if !matches!(kind.as_bytes(), [b'<' | b'|', b'i' | b'u' | b'f', b'1' | b'2' | b'4' | b'8']) || kind == "<f2"
            {
                return Err(PyTypeError::new_err(format!(
                    "a numpy array of {kind} has no counterpart in Rust: convert it to integers or floats of 8 to 64 bits"
                )));
            }
            let flat = array.call_method1("reshape", (-1,))?.call_method1("view", ("u1",))?;
            return Ok(Common::Array(RawArray { kind, shape, memory: memory(&flat)? }));
        }
        if value.is_instance(&numpy.getattr("generic")?)? {
            return of(&value.call_method0("item")?);
        }
    }
    Err(PyTypeError::new_err(format!(
        "a value for Rust is made of None, bool, int, float, str, bytes, list, tuple, dict, numpy arrays, ObjectRefs and handles \
         of actors; a {} is none of these: convert it first",
        value.get_type().name()?
    )))
}

fn memory(value: &Bound<'_, PyAny>) -> PyResult<Blob> {
    Ok(Bytes::from_owner(Memory(Lent::of(value)?)).into())
}

/// The Python value of a common blob; `view` is a `memoryview` of the same bytes.
pub(crate) fn load<'py>(view: &Bound<'py, PyAny>, blob: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    /// Bytes that the caller keeps in place while they are read.
    struct Lasting(&'static [u8]);
    impl AsRef<[u8]> for Lasting {
        fn as_ref(&self) -> &[u8] {
            self.0
        }
    }
    // SAFETY: what is made of these bytes is dropped before this function returns, and `blob` lives longer than that.
    let lasting = unsafe { std::slice::from_raw_parts(blob.as_ptr(), blob.len()) };
    let value =
        Decoded::new(&Bytes::from_owner(Lasting(lasting))).and_then(Decoded::common).map_err(|error| unfit(&error))?;
    Reading { view, base: blob }.object(value)
}

struct Reading<'all, 'py> {
    view: &'all Bound<'py, PyAny>,
    base: &'all [u8],
}

impl<'py> Reading<'_, 'py> {
    fn object(&self, value: Common) -> PyResult<Bound<'py, PyAny>> {
        let py = self.view.py();
        Ok(match value {
            Common::Null => py.None().into_bound(py),
            Common::Bool(truth) => PyBool::new(py, truth).to_owned().into_any(),
            Common::Int(number) => number.into_pyobject(py)?.into_any(),
            Common::Float(number) => number.into_pyobject(py)?.into_any(),
            Common::Text(text) => text.into_pyobject(py)?.into_any(),
            Common::Bytes(bytes) => python::bytes(py, &bytes).into_any(),
            Common::List(items) => {
                let list = PyList::empty(py);
                for item in items {
                    list.append(self.object(item)?)?;
                }
                list.into_any()
            }
            Common::Map(entries) => {
                let map = PyDict::new(py);
                for (key, value) in entries {
                    map.set_item(self.object(key)?, self.object(value)?)?;
                }
                map.into_any()
            }
            Common::Array(RawArray { kind, shape, memory }) => {
                let array = py.import("numpy")?.call_method1("frombuffer", (self.bytes(&memory)?, kind))?;
                array.call_method1("reshape", (shape,))?
            }
            Common::Reference(RawReference { object, owner }) => {
                Bound::new(py, reference::borrow(&object, &owner)?)?.into_any()
            }
            Common::Actor(RawActor { actor, handle, keeps }) => {
                let parts = (python::bytes(py, &actor), python::bytes(py, &handle), keeps);
                python::actor_from_common(py)?.call1(parts)?
            }
        })
    }

    /// The bytes in place, where they are part of the blob, and a copy otherwise.
    fn bytes(&self, memory: &Blob) -> PyResult<Bound<'py, PyAny>> {
        let py = self.view.py();
        let range = self.base.as_ptr_range();
        if memory.is_empty() || !range.contains(&memory.as_ptr()) {
            return Ok(python::bytes(py, memory).into_any());
        }
        let start = memory.as_ptr() as usize - range.start as usize;
        self.view.get_item(PySlice::new(py, start as isize, (start + memory.len()) as isize, 1))
    }
}

/// The bytes of a common value, to be kept beside an actor.
#[pyfunction]
fn dump_common<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let encoded = of(value).and_then(|value| Encoded::common(&value).map_err(|error| unfit(&error)))?;
    Ok(python::bytes(value.py(), &encoded.into_bytes()))
}

/// The value of such bytes.
#[pyfunction]
fn load_common<'py>(blob: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyAny>> {
    let view = blob.py().import("builtins")?.getattr("memoryview")?.call1((blob,))?;
    load(&view, blob.as_bytes())
}

/// Keeps a value that Rust programs read; returns a reference to it.
#[pyfunction]
fn put_common(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<ObjectRef> {
    let runtime = process::required()?;
    let serialized = serialized(value)?;
    let (task, index) = runtime.next_put(serialized.size());
    let value = keep(py, &runtime, task.object(index), serialized, INLINE_BYTES)?;
    let id = runtime.put(task, index, value);
    Ok(ObjectRef::adopt(runtime, id))
}

/// A value for every language, ready to be written, with the references inside of it.
pub(crate) fn serialized(value: &Bound<'_, PyAny>) -> PyResult<Serialized> {
    let collected = Collected::begin();
    let common = of(value);
    let contained = collected.end();
    Serialized::of_common(&common?, contained)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(dump_common, module)?)?;
    module.add_function(wrap_pyfunction!(load_common, module)?)?;
    module.add_function(wrap_pyfunction!(put_common, module)?)
}
