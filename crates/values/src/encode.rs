//! A value written as a blob, and a blob taken apart.

use crate::blob::{Mode, Scope};
use crate::reading::Reader;
use crate::writing::Writer;
use crate::{Common, ValueError, layout};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The whole blob of Python's `None`, which is also how Rust reads nothing.
pub const NONE: u8 = 2;

/// What a blob of ours is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// A Rust value: whoever reads it knows its type.
    Native,
    /// A [`Common`] value, which tells its own type.
    Common,
}

impl Encoding {
    fn tag(self, has_buffers: bool) -> u8 {
        match self {
            Self::Native => 3 + u8::from(has_buffers),
            Self::Common => 5 + u8::from(has_buffers),
        }
    }
}

/// A value ready to be written somewhere.
#[derive(Debug, Clone)]
pub struct Encoded {
    encoding: Encoding,
    /// Begins with room for the tag.
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

fn written(error: &postcard::Error) -> ValueError {
    ValueError::Unfit(format!("the value cannot be written: {error}"))
}

impl NativeWriter {
    /// Adds a value.
    pub fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
        self.begin();
        let scope = Scope::enter(Mode::Native, std::mem::take(&mut self.buffers));
        let result = postcard::to_extend(value, std::mem::take(&mut self.body));
        self.buffers = scope.leave();
        self.body = result.map_err(|error| written(&error))?;
        Ok(())
    }

    /// Calls without arguments write nothing at all.
    fn begin(&mut self) {
        if self.body.is_empty() {
            self.body.push(Encoding::Native.tag(false));
        }
    }

    /// All that was added.
    pub fn finish(mut self) -> Encoded {
        self.begin();
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
        encoded.body[0] = Encoding::Common.tag(false);
        Ok(encoded)
    }

    /// How many bytes it takes.
    pub fn size(&self) -> usize {
        if self.buffers.is_empty() {
            return self.body.len();
        }
        layout::size(self.body.len() - 1, self.buffers.iter().map(Bytes::len))
    }

    /// Writes it; `target` has just its size. `copy` copies large memory.
    pub fn write(&self, target: &mut [u8], copy: impl Fn(&mut [u8], &[u8])) {
        if self.buffers.is_empty() {
            return target.copy_from_slice(&self.body);
        }
        let buffers = self.buffers.iter().map(|buffer| &buffer[..]);
        layout::write(target, self.encoding.tag(true), &self.body[1..], buffers, copy);
    }

    /// As bytes of its own.
    pub fn into_bytes(self) -> Bytes {
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
            0 | 1 => return Err(ValueError::Pickled),
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
        self.body = self.body.slice(used..);
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
