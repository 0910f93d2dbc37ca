//! Values as bytes.
//!
//! ```text
//! 2                                              None
//! 0 │ pickle                                     a value without buffers of its own
//! 7 │ plain                                      a value of built-in types: `plain.rs`
//! 1, 8 │ 7 zeros │ n: u64 │ p: u64 │ n lengths: u64 │ body: p bytes │ buffers, each 64-byte aligned
//! ```
//!
//! The numbers 3 to 6 are Rust's, and the values that both read: see the crate `values`.
//!
//! Numbers are little endian. Buffers are what pickle protocol 5 leaves out of band, which readers see in place, so that
//! an array in the store is never copied; and the large `bytes` of plain values, which are copied once each way.

use crate::buffer::{Lent, Pin};
use crate::reference::Collected;
use crate::{arrays, common, plain, python};
use bytes::Bytes;
use oxiray_ids::ObjectId;
use oxiray_runtime::Pinned;
use oxiray_values::{Common, Encoded, layout};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::ops::Range;

const PICKLED: u8 = 0;
const PICKLED_WITH_BUFFERS: u8 = 1;
const NONE: u8 = 2;
const PLAIN: u8 = 7;
const PLAIN_WITH_BUFFERS: u8 = 8;

/// A value ready to be written somewhere.
pub(crate) struct Serialized {
    body: Body,
    buffers: Vec<Lent>,
    /// References inside of it.
    pub(crate) contained: Vec<ObjectId>,
}

enum Body {
    /// What stands before the buffers, with its tag in front.
    Plain(Vec<u8>),
    /// The parts of a pickle.
    Pickle(Vec<Lent>),
    /// A value for every language, which has its own buffers.
    Common(Encoded),
}

impl Serialized {
    /// Serializes any value.
    pub(crate) fn of(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if value.is_none() {
            return Ok(Self { body: Body::Plain(vec![NONE]), buffers: Vec::new(), contained: Vec::new() });
        }
        if let Some((body, buffers)) = plain::dump(value, PLAIN) {
            return Ok(Self { body: Body::Plain(body), buffers, contained: Vec::new() });
        }
        let collected = Collected::begin();
        let dumped = python::dumps(value.py())?.call1((value,));
        let contained = collected.end();
        let (parts, buffers): (Bound<'_, PyList>, Bound<'_, PyList>) = dumped?.extract()?;
        let lent = |list: Bound<'_, PyList>| list.iter().map(|part| Lent::of(&part)).collect::<PyResult<_>>();
        Ok(Self { body: Body::Pickle(lent(parts)?), buffers: lent(buffers)?, contained })
    }

    /// A value for every language, with the references inside of it.
    pub(crate) fn of_common(value: &Common, contained: Vec<ObjectId>) -> PyResult<Self> {
        let body = Body::Common(Encoded::common(value).map_err(|error| common::unfit(&error))?);
        Ok(Self { body, buffers: Vec::new(), contained })
    }

    /// How many bytes it takes.
    pub(crate) fn size(&self) -> usize {
        let body = match &self.body {
            Body::Common(common) => return common.size(),
            Body::Plain(body) => body.len() - 1,
            Body::Pickle(parts) => parts.iter().map(|part| part.bytes().len()).sum(),
        };
        if self.buffers.is_empty() {
            return 1 + body;
        }
        layout::size(body, self.buffers.iter().map(|buffer| buffer.bytes().len()))
    }

    /// Writes it; `target` has just its size.
    pub(crate) fn write(&self, target: &mut [u8]) {
        match &self.body {
            Body::Common(common) => common.write(target, oxiray_store::copy),
            Body::Plain(body) if self.buffers.is_empty() => oxiray_store::copy(target, body),
            Body::Plain(body) => self.write_parts(target, PLAIN_WITH_BUFFERS, &[&body[1..]]),
            Body::Pickle(parts) => {
                let parts: Vec<&[u8]> = parts.iter().map(Lent::bytes).collect();
                if !self.buffers.is_empty() {
                    return self.write_parts(target, PICKLED_WITH_BUFFERS, &parts);
                }
                target[0] = PICKLED;
                layout::write_body(&mut target[1..], &parts, oxiray_store::copy);
            }
        }
    }

    fn write_parts(&self, target: &mut [u8], tag: u8, body: &[&[u8]]) {
        layout::write(target, tag, body, self.buffers.iter().map(Lent::bytes), oxiray_store::copy);
    }

    /// As bytes of its own.
    pub(crate) fn into_bytes(self) -> Bytes {
        match self.body {
            Body::Common(common) => common.into_bytes(),
            Body::Plain(body) if self.buffers.is_empty() => body.into(),
            Body::Plain(_) | Body::Pickle(_) => {
                let mut bytes = vec![0; self.size()];
                self.write(&mut bytes);
                bytes.into()
            }
        }
    }
}

/// What is said of bytes that are no value.
pub(crate) fn malformed() -> PyErr {
    PyRuntimeError::new_err("a serialized value has no shape that this version writes: the writer is of another build")
}

/// Where body and buffers lie in a blob.
fn parts(blob: &[u8]) -> PyResult<(Range<usize>, Vec<Range<usize>>)> {
    match blob.first() {
        Some(&(PICKLED | PLAIN)) => Ok((1..blob.len(), Vec::new())),
        Some(&(PICKLED_WITH_BUFFERS | PLAIN_WITH_BUFFERS)) => layout::parts(blob).ok_or_else(malformed),
        _ => Err(malformed()),
    }
}

/// The value of a blob that needs nothing to stay in place.
fn load_copied<'py>(py: Python<'py>, blob: &[u8]) -> PyResult<Option<Bound<'py, PyAny>>> {
    match blob.first() {
        Some(&NONE) => Ok(Some(py.None().into_bound(py))),
        Some(&(PLAIN | PLAIN_WITH_BUFFERS)) => {
            let (body, buffers) = parts(blob)?;
            plain::load(py, blob, body, &buffers).map(Some)
        }
        _ => Ok(None),
    }
}

/// The value of a blob that `view` shows.
fn load_view<'py>(view: &Bound<'py, PyAny>, blob: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    if matches!(blob.first(), Some(3..=6)) {
        return common::load(view, blob);
    }
    let py = view.py();
    let (pickle, buffers) = parts(blob)?;
    let cut = |range: Range<usize>| {
        let slice = pyo3::types::PySlice::new(py, range.start as isize, range.end as isize, 1);
        view.get_item(slice)
    };
    let may_be_array = buffers.len() == 1 && arrays::may_be(&blob[pickle.clone()]);
    let buffers = buffers.into_iter().map(cut).collect::<PyResult<Vec<_>>>()?;
    if may_be_array && let Some(array) = arrays::known(&blob[pickle.clone()], &buffers[0])? {
        return Ok(array);
    }
    let keywords = pyo3::types::PyDict::new(py);
    keywords.set_item("buffers", &buffers)?;
    let value = python::pickle_loads(py)?.call((cut(pickle.clone())?,), Some(&keywords))?;
    if may_be_array {
        arrays::note(&blob[pickle], &buffers[0], &value);
    }
    Ok(value)
}

/// The value in a blob that travelled with a message.
pub(crate) fn load_inline<'py>(py: Python<'py>, blob: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    if let Some(value) = load_copied(py, blob)? {
        return Ok(value);
    }
    let view = py.import("builtins")?.getattr("memoryview")?.call1((python::bytes(py, blob),))?;
    load_view(&view, blob)
}

/// The value in a stored blob. What of it lies out of band stays there, pinned.
pub(crate) fn load_pinned(py: Python<'_>, pinned: Pinned) -> PyResult<Bound<'_, PyAny>> {
    if let Some(value) = load_copied(py, pinned.bytes())? {
        return Ok(value);
    }
    let pin = Bound::new(py, Pin { pinned })?;
    let blob = pin.get().pinned.bytes();
    let view = python::view(py)?.call1((&pin, blob.as_ptr() as usize, blob.len()))?;
    load_view(&view, blob)
}
