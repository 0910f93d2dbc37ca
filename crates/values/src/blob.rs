//! Memory that travels without being copied.

use bytes::Bytes;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Deref;

/// From this size on, a [`Blob`] lies beside the value that it is part of.
pub const OUTSIDE_BYTES: usize = 256;

/// What marks a blob for the common encoding.
pub(crate) const BUFFER: &str = "$oxiray::buffer";

/// How a blob is to be written or read in this thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As any bytes: what serializes is none of ours.
    Plain,
    /// Large ones by their number among [`OUTSIDE`].
    Native,
    /// By way of [`HANDED`].
    Common,
}

thread_local! {
    /// How blobs are written or read, and whether there is anything in [`OUTSIDE`]: most values have no buffers.
    static STATE: Cell<(Mode, bool)> = const { Cell::new((Mode::Plain, false)) };
    /// The buffers of the value that is written or read.
    static OUTSIDE: RefCell<Vec<Bytes>> = const { RefCell::new(Vec::new()) };
    /// A blob that is handed over between its own code and that of [`crate::Common`].
    static HANDED: RefCell<Option<Bytes>> = const { RefCell::new(None) };
}

/// Puts a buffer beside the value that is written; its number.
fn place(buffer: &Bytes) -> u32 {
    STATE.set((STATE.get().0, true));
    OUTSIDE.with_borrow_mut(|outside| {
        outside.push(buffer.clone());
        outside.len() as u32 - 1
    })
}

/// While this lives, blobs of this thread are written or read this way.
pub(crate) struct Scope {
    before: (Mode, bool),
    outside: Vec<Bytes>,
}

impl Scope {
    pub(crate) fn enter(mode: Mode, outside: Vec<Bytes>) -> Self {
        let has_outside = !outside.is_empty();
        let before = STATE.replace((mode, has_outside));
        let outside = if before.1 || has_outside { OUTSIDE.replace(outside) } else { outside };
        Self { before, outside }
    }

    /// Leaves, with the buffers.
    pub(crate) fn leave(mut self) -> Vec<Bytes> {
        let mine = self.restore();
        std::mem::forget(self);
        mine
    }

    fn restore(&mut self) -> Vec<Bytes> {
        let theirs = std::mem::take(&mut self.outside);
        let (_, has_outside) = STATE.replace(self.before);
        if has_outside || self.before.1 { OUTSIDE.replace(theirs) } else { Vec::new() }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Bytes that are read where they lie: in the machine's object store, for as long as this or a clone of it lives.
///
/// A `Vec<u8>` in an argument or result is copied like any other list; a `Blob` is written once and never copied again.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blob(Bytes);

impl Blob {
    /// The bytes, shared.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// Puts it into the hands of whoever (de)serializes a [`crate::Common`].
    pub(crate) fn hand(bytes: Bytes) {
        HANDED.set(Some(bytes));
    }

    pub(crate) fn take_handed() -> Option<Bytes> {
        HANDED.take()
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Blob({} bytes)", self.0.len())
    }
}

impl Deref for Blob {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Blob {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Bytes> for Blob {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<&[u8]> for Blob {
    fn from(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}

impl From<Blob> for Bytes {
    fn from(blob: Blob) -> Self {
        blob.0
    }
}

/// Where the bytes of a blob are, in Rust's own encoding.
#[derive(Serialize, Deserialize)]
enum Placed<'blob> {
    Here(#[serde(borrow)] Raw<'blob>),
    Outside(u32),
}

/// Bytes as bytes, which serde takes for a list otherwise.
struct Raw<'blob>(&'blob [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de: 'blob, 'blob> Deserialize<'de> for Raw<'blob> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&[u8]>::deserialize(deserializer).map(Raw)
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match STATE.get().0 {
            Mode::Plain => serializer.serialize_bytes(&self.0),
            Mode::Common => {
                Self::hand(self.0.clone());
                serializer.serialize_newtype_struct(BUFFER, &())
            }
            Mode::Native => {
                let placed = if self.0.len() < OUTSIDE_BYTES {
                    Placed::Here(Raw(&self.0))
                } else {
                    Placed::Outside(place(&self.0))
                };
                placed.serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match STATE.get().0 {
            Mode::Plain => deserializer.deserialize_byte_buf(BytesVisitor),
            Mode::Common => deserializer.deserialize_newtype_struct(BUFFER, BytesVisitor),
            Mode::Native => match Placed::deserialize(deserializer)? {
                Placed::Here(Raw(bytes)) => Ok(bytes.into()),
                Placed::Outside(index) => {
                    let found = OUTSIDE.with_borrow(|outside| outside.get(index as usize).cloned());
                    found.map(Self).ok_or_else(|| D::Error::custom("a blob is missing from its value"))
                }
            },
        }
    }
}

struct BytesVisitor;

impl<'de> Visitor<'de> for BytesVisitor {
    type Value = Blob;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("bytes")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Blob, D::Error> {
        <()>::deserialize(deserializer)?;
        Blob::take_handed().map(Blob).ok_or_else(|| D::Error::custom("bytes are missing"))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Blob, E> {
        Ok(bytes.into())
    }

    fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Blob, E> {
        Ok(bytes.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Blob, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = sequence.next_element()? {
            bytes.push(byte);
        }
        Ok(bytes.into())
    }
}
