//! Memory of Python objects, and Python views of our memory.
//!
//! The buffer protocol joined the limited API only in Python 3.11, so PyO3 does not offer it to a module
//! for 3.10 and newer. Its layout has been the same since 3.3, and the two functions are in every CPython,
//! so they are declared here.

use oxiray_runtime::{Pinned, PrivateMapping};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// `Py_buffer` as CPython has it.
#[repr(C)]
struct RawBuffer {
    buf: *mut c_void,
    obj: *mut ffi::PyObject,
    len: ffi::Py_ssize_t,
    itemsize: ffi::Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    suboffsets: *mut ffi::Py_ssize_t,
    internal: *mut c_void,
}

unsafe extern "C" {
    fn PyObject_GetBuffer(exporter: *mut ffi::PyObject, view: *mut RawBuffer, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut RawBuffer);
}

/// Contiguous bytes that a Python object lends.
pub(crate) struct Lent {
    raw: Box<RawBuffer>,
}

// SAFETY: while the view is held, CPython keeps the memory in place for any thread to read.
unsafe impl Send for Lent {}
// SAFETY: as above; `bytes` only reads.
unsafe impl Sync for Lent {}

impl Lent {
    /// Borrows the bytes of `exporter`, a flat contiguous buffer.
    pub(crate) fn of(exporter: &Bound<'_, PyAny>) -> PyResult<Self> {
        const SIMPLE: c_int = 0;
        let mut raw = Box::new(RawBuffer {
            buf: std::ptr::null_mut(),
            obj: std::ptr::null_mut(),
            len: 0,
            itemsize: 0,
            readonly: 0,
            ndim: 0,
            format: std::ptr::null_mut(),
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            suboffsets: std::ptr::null_mut(),
            internal: std::ptr::null_mut(),
        });
        // SAFETY: `raw` has CPython's layout and stays in place in its box until it is released.
        let code = unsafe { PyObject_GetBuffer(exporter.as_ptr(), &raw mut *raw, SIMPLE) };
        if code != 0 {
            return Err(PyErr::fetch(exporter.py()));
        }
        Ok(Self { raw })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.raw.len == 0 {
            return &[];
        }
        // SAFETY: CPython guarantees `len` readable bytes at `buf` until the view is released.
        unsafe { std::slice::from_raw_parts(self.raw.buf.cast(), self.raw.len as usize) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        Python::attach(|_| {
            // SAFETY: the view was filled by `PyObject_GetBuffer` and is released once, with the GIL held.
            unsafe { PyBuffer_Release(&raw mut *self.raw) }
        });
    }
}

/// Keeps a stored object in memory as long as a Python view of it lives.
#[pyclass(frozen, module = "oxiray._core")]
pub(crate) struct Pin {
    pub(crate) pinned: Pinned,
}

#[pymethods]
impl Pin {
    /// Where the object's bytes begin.
    #[getter]
    fn address(&self) -> usize {
        self.pinned.bytes().as_ptr() as usize
    }

    fn __len__(&self) -> usize {
        self.pinned.bytes().len()
    }

    /// Memory of this process's own with the `size` bytes at `address`, which are this object's, as long as all such memory
    /// has `limit` bytes at most; nothing where it cannot be had without a copy.
    fn private(slf: &Bound<'_, Self>, address: usize, size: usize, limit: usize) -> PyResult<Option<Private>> {
        let bytes = slf.get().pinned.bytes();
        let begin = address.checked_sub(bytes.as_ptr() as usize);
        let range =
            begin.and_then(|begin| Some(begin..begin.checked_add(size)?)).filter(|range| range.end <= bytes.len());
        let range = range.ok_or_else(|| {
            PyValueError::new_err(format!(
                "{size} bytes at {address:#x} are no part of an object of {} bytes",
                bytes.len()
            ))
        })?;
        let Some(taken) = Taken::of(size, limit) else { return Ok(None) };
        let mapping = slf.get().pinned.private(range);
        Ok(mapping.map(|mapping| Private { mapping, _taken: taken, _pin: slf.clone().unbind() }))
    }
}

/// How many bytes of stored objects stay pinned since their readers write to them.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Some of those bytes.
struct Taken(usize);

impl Taken {
    /// Nothing where there would be more than `limit`.
    fn of(size: usize, limit: usize) -> Option<Self> {
        let more = |taken: usize| taken.checked_add(size).filter(|all| *all <= limit);
        TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self(size))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// A part of a stored object that its reader may write to, which nobody else sees.
#[pyclass(frozen, module = "oxiray._core")]
pub(crate) struct Private {
    // Unmapped before the object is let go.
    mapping: PrivateMapping,
    _taken: Taken,
    _pin: Py<Pin>,
}

#[pymethods]
impl Private {
    /// Where its bytes begin.
    #[getter]
    fn address(&self) -> usize {
        self.mapping.address() as usize
    }

    fn __len__(&self) -> usize {
        self.mapping.length()
    }
}
