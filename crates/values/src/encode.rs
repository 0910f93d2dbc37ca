//! A value written as a blob, and a blob taken apart.

use crate::blob::{Mode, Scope};
use crate::reading::Reader;
use crate::writing::Writer;
use crate::{Common, ValueError, layout};
use bytes::{Buf as _, Bytes};
use postcard::ser_flavors::Flavor;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The whole blob of Python's `None`, which is also how Rust reads nothing.
pub const NONE: u8 = 2;

/// The whole blob of a Rust value that takes no bytes.
const NOTHING: [u8; 1] = [Encoding::Native.tag(false)];

/// What a blob of ours is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// A Rust value: whoever reads it knows its type.
    Native,
    /// A [`Common`] value, which tells its own type.
    Common,
}

impl Encoding {
    const fn tag(self, has_buffers: bool) -> u8 {
        match self {
            Self::Native => 3 + has_buffers as u8,
            Self::Common => 5 + has_buffers as u8,
        }
    }
}

/// A value ready to be written somewhere.
#[derive(Debug, Clone)]
pub struct Encoded {
    encoding: Encoding,
    /// Begins with the tag; empty where there is nothing behind it.
    body: Vec<u8>,
    buffers: Vec<Bytes>,
}

/// Writes Rust values one behind the other: the arguments of a call.
#[derive(Debug, Default)]
pub struct NativeWriter {
    /// Empty, or the tag and what was added.
    body: Vec<u8>,
    buffers: Vec<Bytes>,
}

/// What a value is written into: memory is taken with the first byte, so that nothing costs nothing.
struct Body(Vec<u8>);

/// How much memory is taken for a value at first.
const BODY_BYTES: usize = 24;

impl Body {
    #[inline]
    fn begin(&mut self) {
        if self.0.is_empty() {
            self.0.reserve(BODY_BYTES);
            self.0.push(Encoding::Native.tag(false));
        }
    }
}

impl Flavor for Body {
    type Output = Vec<u8>;

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.begin();
        self.0.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.begin();
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.0)
    }
}

fn written(error: &postcard::Error) -> ValueError {
    ValueError::Unfit(format!("the value cannot be written: {error}"))
}

impl NativeWriter {
    /// Adds a value.
    pub fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
        let scope = Scope::enter(Mode::Native, std::mem::take(&mut self.buffers));
        let result = postcard::serialize_with_flavor(value, Body(std::mem::take(&mut self.body)));
        self.buffers = scope.leave();
        self.body = result.map_err(|error| written(&error))?;
        Ok(())
    }

    /// All that was added.
    pub fn finish(self) -> Encoded {
        Encoded { encoding: Encoding::Native, body: self.body, buffers: self.buffers }
    }
}

impl Encoded {
    /// A value for Rust to read.
    pub fn native<T: Serialize + ?Sized>(value: &T) -> Result<Self, ValueError> {
        let mut writer = NativeWriter::default();
        writer.push(value)?;
        Ok(writer.finish())
    }

    /// A value for every language to read.
    pub fn common(value: &Common) -> Result<Self, ValueError> {
        let mut encoded = Self::native(value)?;
        encoded.encoding = Encoding::Common;
        // There is something behind it: what kind of value it is.
        encoded.body[0] = Encoding::Common.tag(false);
        Ok(encoded)
    }

    /// The whole blob, where it has no buffers.
    fn plain(&self) -> &[u8] {
        if self.body.is_empty() { &NOTHING } else { &self.body }
    }

    /// How many bytes it takes.
    pub fn size(&self) -> usize {
        if self.buffers.is_empty() {
            return self.plain().len();
        }
        layout::size(self.body.len() - 1, self.buffers.iter().map(Bytes::len))
    }

    /// Writes it; `target` has just its size. `copy` copies large memory.
    pub fn write(&self, target: &mut [u8], copy: impl Fn(&mut [u8], &[u8])) {
        if self.buffers.is_empty() {
            return target.copy_from_slice(self.plain());
        }
        let buffers = self.buffers.iter().map(|buffer| &buffer[..]);
        layout::write(target, self.encoding.tag(true), &[&self.body[1..]], buffers, copy);
    }

    /// As bytes of its own.
    pub fn into_bytes(self) -> Bytes {
        if self.body.is_empty() {
            return Bytes::from_static(&NOTHING);
        }
        if self.buffers.is_empty() {
            return self.body.into();
        }
        let mut bytes = vec![0; self.size()];
        self.write(&mut bytes, <[u8]>::copy_from_slice);
        bytes.into()
    }
}

/// A blob taken apart, to read values from.
#[derive(Debug)]
pub struct Decoded {
    /// What it is.
    pub encoding: Encoding,
    body: Bytes,
    buffers: Vec<Bytes>,
}

impl Decoded {
    /// Takes a blob apart. Its buffers share its memory.
    pub fn new(blob: &Bytes) -> Result<Self, ValueError> {
        let (encoding, has_buffers) = match *blob.first().ok_or(ValueError::Malformed)? {
            0 | 1 | 7 | 8 => return Err(ValueError::OnlyPython),
            NONE => {
                let null = Encoded::common(&Common::Null)?.into_bytes();
                return Self::new(&null);
            }
            3 => (Encoding::Native, false),
            4 => (Encoding::Native, true),
            5 => (Encoding::Common, false),
            6 => (Encoding::Common, true),
            _ => return Err(ValueError::Malformed),
        };
        if !has_buffers {
            return Ok(Self { encoding, body: blob.slice(1..), buffers: Vec::new() });
        }
        let (body, buffers) = layout::parts(blob).ok_or(ValueError::Malformed)?;
        let buffers = buffers.into_iter().map(|range| blob.slice(range)).collect();
        Ok(Self { encoding, body: blob.slice(body), buffers })
    }

    /// Reads the next value; those of one call stand one behind the other, in Rust's own encoding.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<T, ValueError> {
        let scope = Scope::enter(Mode::Native, std::mem::take(&mut self.buffers));
        let read =
            postcard::take_from_bytes::<T>(&self.body).map(|(value, rest)| (value, self.body.len() - rest.len()));
        self.buffers = scope.leave();
        let (value, used) = read
            .map_err(|error| ValueError::Unfit(format!("the value is no {}: {error}", std::any::type_name::<T>())))?;
        self.body.advance(used);
        Ok(value)
    }

    /// The common value that it is.
    pub fn common(mut self) -> Result<Common, ValueError> {
        match self.encoding {
            Encoding::Common => self.take(),
            Encoding::Native => Err(ValueError::Unfit(
                "the value was written for Rust alone, whose types tell what its bytes mean: have the Rust program put it \
                 with oxiray::put_common()"
                    .into(),
            )),
        }
    }

    /// The one value that it is, whatever its encoding.
    pub fn value<T: DeserializeOwned>(mut self) -> Result<T, ValueError> {
        match self.encoding {
            Encoding::Native => self.take(),
            Encoding::Common => self.take::<Common>()?.read(),
        }
    }
}

impl Common {
    /// What a Rust value is to every language.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, ValueError> {
        let scope = Scope::enter(Mode::Common, Vec::new());
        let written = value.serialize(Writer);
        drop(scope);
        written
    }

    /// The Rust value that this is.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, ValueError> {
        let scope = Scope::enter(Mode::Common, Vec::new());
        let read = T::deserialize(Reader(self));
        drop(scope);
        read.map_err(|error| match error {
            ValueError::Unfit(text) => {
                ValueError::Unfit(format!("the value is no {}: {text}", std::any::type_name::<T>()))
            }
            other => other,
        })
    }
}
