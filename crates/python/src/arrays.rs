//! NumPy arrays that are read without pickle.
//!
//! The pickle of an array says its type and shape and leaves the data out of band, so that arrays of one type and shape
//! have the same pickle. Once one was read, the next are made of their data at once: 0.3 µs in place of pickle's 3.
//!
//! - ARRAYS-1: what is remembered of a pickle was seen in the array that it became: an exact `numpy.ndarray` of
//!   numbers in the machine's byte order, whose elements are the buffer, in C's order, and nothing else.

use crate::python;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use std::sync::{Mutex, PoisonError};

/// The longest pickle that is remembered, in bytes.
const PICKLE_BYTES_MAX: usize = 256;
/// How many pickles are remembered; past it all are forgotten.
const KNOWN_MAX: usize = 256;
/// How every pickle of protocol 5 begins; the length of its frame follows.
const BEGINNING: &[u8] = b"\x80\x05\x95";
/// The names of the module, before and since NumPy 2, of the function that makes an array of a buffer.
const MODULES: [&[u8]; 2] = [b"\x8c\x12numpy.core.numeric\x94", b"\x8c\x13numpy._core.numeric\x94"];
/// The function, and the buffer as its first argument.
const MAKER: &[u8] = b"\x8c\x0b_frombuffer\x94\x93\x94(\x97";

/// How an array is made of its data.
struct Array {
    dtype: Py<PyAny>,
    /// None where it has one dimension.
    shape: Option<Py<PyAny>>,
}

/// By the pickle; None for a value that is made by pickle alone.
type Known = FxHashMap<Box<[u8]>, Option<Array>>;

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// Whether a pickle with one buffer may be an array's: the first thing that it does is to make one of the buffer, so that
/// nothing stands around that.
pub(crate) fn may_be(pickle: &[u8]) -> bool {
    let after_frame = pickle.strip_prefix(BEGINNING).and_then(|rest| rest.get(size_of::<u64>()..));
    let makes = |rest: &[u8]| {
        MODULES.iter().any(|module| rest.strip_prefix(*module).is_some_and(|rest| rest.starts_with(MAKER)))
    };
    pickle.len() <= PICKLE_BYTES_MAX && after_frame.is_some_and(makes)
}

/// The array that this pickle stands for, with these bytes as its data; None where it is not known to be one.
pub(crate) fn known<'py>(pickle: &[u8], data: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = data.py();
    let found = {
        let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let array = known.as_ref().and_then(|known| known.get(pickle)?.as_ref());
        array.map(|array| (array.dtype.clone_ref(py), array.shape.as_ref().map(|shape| shape.clone_ref(py))))
    };
    let Some((dtype, shape)) = found else { return Ok(None) };
    let flat = python::frombuffer(py)?.call1((data, dtype))?;
    match shape {
        Some(shape) => flat.call_method1("reshape", (shape,)).map(Some),
        None => Ok(Some(flat)),
    }
}

fn address(array: &Bound<'_, PyAny>) -> PyResult<usize> {
    let (address, _): (usize, bool) = array.getattr("__array_interface__")?.get_item("data")?.extract()?;
    Ok(address)
}

/// `value` is what this pickle became, with `data` as its one buffer.
pub(crate) fn note(pickle: &[u8], data: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) {
    let is_noted = |known: &Known| known.contains_key(pickle);
    if KNOWN.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(is_noted) {
        return;
    }
    // What an array of another NumPy does not answer makes it a value like any other.
    let array = array_of(data, value).unwrap_or_default();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known.insert(pickle.into(), array);
}

/// ARRAYS-1.
fn array_of(data: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<Option<Array>> {
    let py = value.py();
    if !value.get_type().is(python::ndarray(py)?) || data.len()? == 0 {
        return Ok(None);
    }
    // A type that was unpickled is a copy: what is remembered is NumPy's own.
    let unpickled = value.getattr("dtype")?;
    let dtype = python::dtype(value.py())?.call1((unpickled.getattr("str")?,))?;
    let is_number = "biufc".contains(&*unpickled.getattr("kind")?.extract::<String>()?);
    let is_plain = is_number
        && unpickled.getattr("isnative")?.extract()?
        && unpickled.eq(&dtype)?
        && value.getattr("flags")?.getattr("c_contiguous")?.extract()?
        && value.getattr("nbytes")?.extract::<usize>()? == data.len()?;
    if !is_plain || address(value)? != address(&python::frombuffer(py)?.call1((data, &dtype))?)? {
        return Ok(None);
    }
    let shape = value.getattr("shape")?;
    let is_flat = shape.len()? == 1;
    Ok(Some(Array { dtype: dtype.unbind(), shape: (!is_flat).then(|| shape.unbind()) }))
}
