//! Values that consist of Python's built-in types alone, written and read without pickle.
//!
//! The encoding is `oxiray_values::plain`. A value with any other part in it is for pickle to write as a whole.
//!
//! - What pickle keeps is kept: exact types, the order of dictionaries, which object stands in several places, and lists,
//!   dictionaries and sets that contain themselves. Only objects with several references can stand in several places, so
//!   that no table is kept of the others; numbers, `None` and booleans have no identity, as with pickle.
//! - `bytes` and `bytearray` of [`BESIDE_BYTES`] or more are buffers beside the rest. A `memoryview` becomes `bytes`, as
//!   cloudpickle has it.
//! - No Python code runs while a value is written or read: exact built-in types have none, and the collector is off
//!   ([`Uncollected`]). So nothing changes a container on the way, and borrowed references stay valid.

use crate::blob::malformed;
use crate::buffer::Lent;
use oxiray_values::plain::{self, Piece, Pieces};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustc_hash::FxHashMap;
use std::ffi::{CString, c_char};
use std::ops::Range;

/// From this size on, bytes are copied once, to where the value goes.
const BESIDE_BYTES: usize = 16 << 10;
/// What is nested deeper is for pickle, which has Python's own limit.
const DEPTH_MAX: usize = 200;
/// The number of a tuple that is not whole yet.
const OPEN: usize = usize::MAX;

/// While this lives, Python's collector waits.
pub(crate) struct Uncollected<'py> {
    _py: Python<'py>,
    was_enabled: bool,
}

impl<'py> Uncollected<'py> {
    pub(crate) fn begin(py: Python<'py>) -> Self {
        // SAFETY: the interpreter's lock is held, as `py` proves.
        Self { _py: py, was_enabled: unsafe { ffi::PyGC_Disable() } == 1 }
    }
}

impl Drop for Uncollected<'_> {
    fn drop(&mut self) {
        if self.was_enabled {
            // SAFETY: the interpreter's lock is held, as `_py` proves.
            unsafe { ffi::PyGC_Enable() };
        }
    }
}

/// A value behind its tag, and the buffers beside it; nothing where it is not made of built-in types alone.
pub(crate) fn dump(value: &Bound<'_, PyAny>, tag: u8) -> Option<(Vec<u8>, Vec<Lent>)> {
    let py = value.py();
    let _uncollected = Uncollected::begin(py);
    let mut writer = Writer { py, body: vec![tag], buffers: Vec::new(), seen: FxHashMap::default(), numbers: 0 };
    // SAFETY: `value` is an object that lives through the call.
    unsafe { writer.value(value.as_ptr(), DEPTH_MAX) }?;
    Some((writer.body, writer.buffers))
}

struct Writer<'py> {
    py: Python<'py>,
    body: Vec<u8>,
    buffers: Vec<Lent>,
    /// The numbers of shared objects, by their addresses.
    seen: FxHashMap<usize, usize>,
    numbers: usize,
}

impl Writer<'_> {
    /// Writes one value; nothing where that is for pickle.
    ///
    /// # Safety
    /// `object` points to an object that lives through the call.
    unsafe fn value(&mut self, object: *mut ffi::PyObject, depth: usize) -> Option<()> {
        // SAFETY: `object` is an object.
        let kind = unsafe { ffi::Py_TYPE(object) };
        // SAFETY: as above, and each function below is called for the types that it is for.
        unsafe {
            if kind == &raw mut ffi::PyLong_Type {
                self.int(object)
            } else if kind == &raw mut ffi::PyFloat_Type {
                self.piece(Piece::Float(ffi::PyFloat_AsDouble(object)), false)
            } else if kind == &raw mut ffi::PyBool_Type {
                self.piece(Piece::Bool(object == ffi::Py_True()), false)
            } else if object == ffi::Py_None() {
                self.piece(Piece::Null, false)
            } else {
                self.shareable(object, kind, depth)
            }
        }
    }

    /// An object that pickle would know again.
    ///
    /// # Safety
    /// As for `value`, and `kind` is the object's type.
    unsafe fn shareable(
        &mut self,
        object: *mut ffi::PyObject,
        kind: *mut ffi::PyTypeObject,
        depth: usize,
    ) -> Option<()> {
        // SAFETY: `object` is an object. The upper half of the count is something else from Python 3.14 on.
        let is_shared = unsafe { ffi::Py_REFCNT(object) } as u32 != 1;
        if is_shared && let Some(number) = self.seen.get(&(object as usize)) {
            return if *number == OPEN { None } else { self.piece(Piece::Again(*number), false) };
        }
        // SAFETY: `object` is an object of the type that each function is for.
        unsafe {
            if kind == &raw mut ffi::PyUnicode_Type {
                self.text(object, is_shared)?;
            } else if kind == &raw mut ffi::PyBytes_Type {
                let bytes = (ffi::PyBytes_AsString(object).cast_const(), ffi::PyBytes_Size(object));
                self.memory(object, bytes, is_shared, false)?;
            } else if kind == &raw mut ffi::PyDict_Type {
                return self.dict(object, is_shared, depth.checked_sub(1)?);
            } else if kind == &raw mut ffi::PyList_Type {
                return self.list(object, is_shared, depth.checked_sub(1)?);
            } else if kind == &raw mut ffi::PyTuple_Type {
                self.tuple(object, is_shared, depth.checked_sub(1)?)?;
            } else if kind == &raw mut ffi::PySet_Type {
                return self.set(object, is_shared, depth.checked_sub(1)?);
            } else if kind == &raw mut ffi::PyFrozenSet_Type {
                self.piece(Piece::FrozenSet(ffi::PySet_Size(object) as usize), is_shared)?;
                self.items_of_set(object, depth.checked_sub(1)?)?;
            } else if kind == &raw mut ffi::PyByteArray_Type {
                let bytes = (ffi::PyByteArray_AsString(object).cast_const(), ffi::PyByteArray_Size(object));
                self.memory(object, bytes, is_shared, true)?;
            } else if kind == &raw mut ffi::PyMemoryView_Type {
                self.view(object, is_shared)?;
            } else {
                return None;
            }
        }
        self.number(object, is_shared)
    }

    #[inline]
    #[expect(clippy::unnecessary_wraps, reason = "it is the end of functions that may find something for pickle")]
    fn piece(&mut self, piece: Piece<'_>, is_shared: bool) -> Option<()> {
        plain::write(&mut self.body, piece, is_shared);
        Some(())
    }

    /// Gives a shared object the next number (PLAIN-1).
    #[expect(clippy::unnecessary_wraps, reason = "as above")]
    fn number(&mut self, object: *mut ffi::PyObject, is_shared: bool) -> Option<()> {
        if is_shared {
            self.seen.insert(object as usize, self.numbers);
            self.numbers += 1;
        }
        Some(())
    }

    /// # Safety
    /// `object` is an `int`.
    unsafe fn int(&mut self, object: *mut ffi::PyObject) -> Option<()> {
        let mut overflow = 0;
        // SAFETY: `object` is an `int`, for which there is no error.
        let int = unsafe { ffi::PyLong_AsLongLongAndOverflow(object, &raw mut overflow) };
        if overflow == 0 {
            return self.piece(Piece::Int(int), false);
        }
        // SAFETY: `object` is an `int`; what comes back is a new `str` or null.
        let digits = unsafe { Bound::from_owned_ptr_or_opt(self.py, ffi::PyNumber_ToBase(object, 16)) }?;
        let digits: &str = digits.extract().ok()?;
        self.piece(Piece::LongInt(digits.as_bytes()), false)
    }

    /// # Safety
    /// `object` is a `str` that lives through the call.
    unsafe fn text(&mut self, object: *mut ffi::PyObject, is_shared: bool) -> Option<()> {
        let mut length = 0;
        // SAFETY: `object` is a `str`, and `length` a place to write to.
        let text = unsafe { ffi::PyUnicode_AsUTF8AndSize(object, &raw mut length) };
        if !text.is_null() {
            // SAFETY: Python keeps so many bytes there as long as the `str` lives.
            let text = unsafe { std::slice::from_raw_parts(text.cast(), length as usize) };
            return self.piece(Piece::Text(text), is_shared);
        }
        // SAFETY: the interpreter's lock is held; both names are C strings; what comes back is a new `bytes` or null.
        let encoded = unsafe {
            ffi::PyErr_Clear();
            let encoded = ffi::PyUnicode_AsEncodedString(object, c"utf-8".as_ptr(), c"surrogatepass".as_ptr());
            Bound::from_owned_ptr_or_err(self.py, encoded)
        };
        let encoded = encoded.ok()?;
        self.piece(Piece::Text(encoded.cast::<PyBytes>().ok()?.as_bytes()), is_shared)
    }

    /// Bytes that begin at `start`, within the rest or beside it.
    ///
    /// # Safety
    /// `object` lives through the call and keeps the bytes in place meanwhile.
    unsafe fn memory(
        &mut self,
        object: *mut ffi::PyObject,
        (start, length): (*const c_char, isize),
        is_shared: bool,
        is_array: bool,
    ) -> Option<()> {
        if (length as usize) < BESIDE_BYTES {
            // SAFETY: the object keeps so many bytes there until they are written, which is before this function returns.
            let bytes = unsafe { std::slice::from_raw_parts(start.cast(), length as usize) };
            return self.piece(if is_array { Piece::ByteArray(bytes) } else { Piece::Bytes(bytes) }, is_shared);
        }
        // SAFETY: `object` is an object that lives longer than this borrow of it.
        let exporter = unsafe { Bound::from_borrowed_ptr(self.py, object) };
        let index = self.buffers.len();
        self.buffers.push(Lent::of(&exporter).ok()?);
        self.piece(if is_array { Piece::ByteArrayBeside(index) } else { Piece::BytesBeside(index) }, is_shared)
    }

    /// # Safety
    /// `object` is a `memoryview` that lives through the call.
    unsafe fn view(&mut self, object: *mut ffi::PyObject, is_shared: bool) -> Option<()> {
        // SAFETY: `object` is an object that lives longer than this borrow of it.
        let exporter = unsafe { Bound::from_borrowed_ptr(self.py, object) };
        let lent = Lent::of(&exporter).ok()?;
        let bytes = lent.bytes();
        // SAFETY: `lent` keeps the bytes in place until this function returns.
        unsafe { self.memory(object, (bytes.as_ptr().cast(), bytes.len() as isize), is_shared, false) }
    }

    /// # Safety
    /// `object` is a `dict` that lives through the call.
    unsafe fn dict(&mut self, object: *mut ffi::PyObject, is_shared: bool, depth: usize) -> Option<()> {
        // SAFETY: `object` is a `dict`. Nothing changes it meanwhile, so that it keeps its keys and values alive.
        unsafe {
            self.piece(Piece::Dict(ffi::PyDict_Size(object) as usize), is_shared)?;
            self.number(object, is_shared)?;
            let (mut position, mut key, mut value) = (0, std::ptr::null_mut(), std::ptr::null_mut());
            while ffi::PyDict_Next(object, &raw mut position, &raw mut key, &raw mut value) != 0 {
                self.value(key, depth)?;
                self.value(value, depth)?;
            }
        }
        Some(())
    }

    /// # Safety
    /// `object` is a `list` that lives through the call.
    unsafe fn list(&mut self, object: *mut ffi::PyObject, is_shared: bool, depth: usize) -> Option<()> {
        // SAFETY: `object` is a `list`. Nothing changes it meanwhile, so that it keeps its items alive.
        unsafe {
            let count = ffi::PyList_Size(object);
            self.piece(Piece::List(count as usize), is_shared)?;
            self.number(object, is_shared)?;
            for index in 0..count {
                self.value(ffi::PyList_GetItem(object, index), depth)?;
            }
        }
        Some(())
    }

    /// # Safety
    /// `object` is a `tuple` that lives through the call.
    unsafe fn tuple(&mut self, object: *mut ffi::PyObject, is_shared: bool, depth: usize) -> Option<()> {
        if is_shared {
            self.seen.insert(object as usize, OPEN);
        }
        // SAFETY: `object` is a `tuple`, which keeps its items alive.
        unsafe {
            let count = ffi::PyTuple_Size(object);
            self.piece(Piece::Tuple(count as usize), is_shared)?;
            for index in 0..count {
                self.value(ffi::PyTuple_GetItem(object, index), depth)?;
            }
        }
        Some(())
    }

    /// # Safety
    /// `object` is a `set` that lives through the call.
    unsafe fn set(&mut self, object: *mut ffi::PyObject, is_shared: bool, depth: usize) -> Option<()> {
        // SAFETY: `object` is a `set`.
        let count = unsafe { ffi::PySet_Size(object) };
        self.piece(Piece::Set(count as usize), is_shared)?;
        self.number(object, is_shared)?;
        // SAFETY: as above.
        unsafe { self.items_of_set(object, depth) }
    }

    /// # Safety
    /// `object` is a `set` or a `frozenset` that lives through the call.
    unsafe fn items_of_set(&mut self, object: *mut ffi::PyObject, depth: usize) -> Option<()> {
        // SAFETY: `object` is an object that lives longer than this borrow of it.
        let set = unsafe { Bound::from_borrowed_ptr(self.py, object) };
        for item in set.try_iter().ok()? {
            // The set keeps the item alive; a reference of our own would make it look shared.
            let item = item.ok()?.as_ptr();
            // SAFETY: `item` is an object of the set's, which nothing changes meanwhile.
            unsafe { self.value(item, depth) }?;
        }
        Some(())
    }
}

/// The value of a body, with its buffers in `blob`.
pub(crate) fn load<'py>(
    py: Python<'py>,
    blob: &[u8],
    body: Range<usize>,
    buffers: &[Range<usize>],
) -> PyResult<Bound<'py, PyAny>> {
    let body = blob.get(body).ok_or_else(malformed)?;
    let _uncollected = Uncollected::begin(py);
    let mut reader = Reader { py, pieces: Pieces::new(body), blob, buffers, shared: Vec::new() };
    let value = reader.value(DEPTH_MAX)?;
    if reader.pieces.is_empty() { Ok(value) } else { Err(malformed()) }
}

struct Reader<'all, 'py> {
    py: Python<'py>,
    pieces: Pieces<'all>,
    blob: &'all [u8],
    buffers: &'all [Range<usize>],
    /// Shared objects by their numbers.
    shared: Vec<Bound<'py, PyAny>>,
}

impl<'py> Reader<'_, 'py> {
    fn value(&mut self, depth: usize) -> PyResult<Bound<'py, PyAny>> {
        let (piece, is_shared) = self.pieces.take().map_err(|_| malformed())?;
        let inner = || depth.checked_sub(1).ok_or_else(malformed);
        // SAFETY: the interpreter's lock is held, and each function gets pointers and lengths of living memory.
        let value = unsafe {
            match piece {
                Piece::Null => ffi::Py_NewRef(ffi::Py_None()),
                Piece::Bool(truth) => ffi::PyBool_FromLong(truth.into()),
                Piece::Int(int) => ffi::PyLong_FromLongLong(int),
                Piece::Float(float) => ffi::PyFloat_FromDouble(float),
                Piece::Text(text) => {
                    ffi::PyUnicode_DecodeUTF8(text.as_ptr().cast(), text.len() as isize, c"surrogatepass".as_ptr())
                }
                Piece::Bytes(bytes) => ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), bytes.len() as isize),
                Piece::ByteArray(bytes) => {
                    ffi::PyByteArray_FromStringAndSize(bytes.as_ptr().cast(), bytes.len() as isize)
                }
                Piece::LongInt(digits) => {
                    let digits = CString::new(digits).map_err(|_| malformed())?;
                    ffi::PyLong_FromString(digits.as_ptr(), std::ptr::null_mut(), 16)
                }
                Piece::BytesBeside(index) => {
                    let made = |size| ffi::PyBytes_FromStringAndSize(std::ptr::null(), size);
                    self.copied(index, made, |object| ffi::PyBytes_AsString(object))?
                }
                Piece::ByteArrayBeside(index) => {
                    let made = |size| ffi::PyByteArray_FromStringAndSize(std::ptr::null(), size);
                    self.copied(index, made, |object| ffi::PyByteArray_AsString(object))?
                }
                Piece::Again(number) => return self.shared.get(number).cloned().ok_or_else(malformed),
                Piece::Tuple(count) => self.tuple(count, inner()?)?,
                Piece::FrozenSet(count) => {
                    let set = Bound::from_owned_ptr_or_err(self.py, ffi::PyFrozenSet_New(std::ptr::null_mut()))?;
                    self.fill_set(&set, count, inner()?)?;
                    set.into_ptr()
                }
                Piece::Set(count) => {
                    let set = Bound::from_owned_ptr_or_err(self.py, ffi::PySet_New(std::ptr::null_mut()))?;
                    self.number(&set, is_shared);
                    return self.fill_set(&set, count, inner()?).map(|()| set);
                }
                Piece::List(count) => return self.list(count, is_shared, inner()?),
                Piece::Dict(count) => return self.dict(count, is_shared, inner()?),
            }
        };
        // SAFETY: `value` is a new reference, or null where an exception is set.
        let value = unsafe { Bound::from_owned_ptr_or_err(self.py, value) }?;
        self.number(&value, is_shared);
        Ok(value)
    }

    fn number(&mut self, value: &Bound<'py, PyAny>, is_shared: bool) {
        if is_shared {
            self.shared.push(value.clone());
        }
    }

    /// A buffer's bytes in an object that `made` makes of their number, and whose memory begins where `place` says.
    fn copied(
        &self,
        index: usize,
        made: impl FnOnce(isize) -> *mut ffi::PyObject,
        place: impl FnOnce(*mut ffi::PyObject) -> *mut c_char,
    ) -> PyResult<*mut ffi::PyObject> {
        let range = self.buffers.get(index).ok_or_else(malformed)?;
        let source = self.blob.get(range.clone()).ok_or_else(malformed)?;
        // SAFETY: what is made is a new object of this many bytes that nobody else has yet, or null with an exception.
        unsafe {
            let object = Bound::from_owned_ptr_or_err(self.py, made(source.len() as isize))?;
            let target = std::slice::from_raw_parts_mut(place(object.as_ptr()).cast(), source.len());
            oxiray_store::copy(target, source);
            Ok(object.into_ptr())
        }
    }

    fn tuple(&mut self, count: usize, depth: usize) -> PyResult<*mut ffi::PyObject> {
        // SAFETY: the tuple is new and nobody else's; each place is filled once, and a reference given away with it.
        unsafe {
            let tuple = Bound::from_owned_ptr_or_err(self.py, ffi::PyTuple_New(count as isize))?;
            for index in 0..count {
                let item = self.value(depth)?;
                ffi::PyTuple_SetItem(tuple.as_ptr(), index as isize, item.into_ptr());
            }
            Ok(tuple.into_ptr())
        }
    }

    fn list(&mut self, count: usize, is_shared: bool, depth: usize) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the list is new; each of its places is filled once, and a reference given away with it.
        unsafe {
            let list = Bound::from_owned_ptr_or_err(self.py, ffi::PyList_New(count as isize))?;
            self.number(&list, is_shared);
            for index in 0..count {
                let item = self.value(depth)?;
                ffi::PyList_SetItem(list.as_ptr(), index as isize, item.into_ptr());
            }
            Ok(list)
        }
    }

    fn dict(&mut self, count: usize, is_shared: bool, depth: usize) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the interpreter's lock is held; what comes back is a new `dict` or null.
        let dict = unsafe { Bound::from_owned_ptr_or_err(self.py, ffi::PyDict_New()) }?;
        self.number(&dict, is_shared);
        for _ in 0..count {
            let (key, value) = (self.value(depth)?, self.value(depth)?);
            // SAFETY: all three are living objects, the first of them a `dict`.
            if unsafe { ffi::PyDict_SetItem(dict.as_ptr(), key.as_ptr(), value.as_ptr()) } != 0 {
                return Err(PyErr::fetch(self.py));
            }
        }
        Ok(dict)
    }

    fn fill_set(&mut self, set: &Bound<'py, PyAny>, count: usize, depth: usize) -> PyResult<()> {
        for _ in 0..count {
            let item = self.value(depth)?;
            // SAFETY: both are living objects, the first of them a `set`, or a `frozenset` that nobody else has yet.
            if unsafe { ffi::PySet_Add(set.as_ptr(), item.as_ptr()) } != 0 {
                return Err(PyErr::fetch(self.py));
            }
        }
        Ok(())
    }
}
