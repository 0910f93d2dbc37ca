//! Values as bytes: those that Rust reads in place, and those that every language reads.
//!
//! ```text
//! encode.rs   a value written as a blob, and a blob taken apart
//! blob.rs     Blob: memory that is never copied on the way
//! layout.rs   how a blob with buffers is laid out, Python's too
//! plain.rs    values of Python's built-in types, piece by piece: Python reads and writes them, Rust does not yet
//! array.rs    Array: numbers in such memory, with a shape
//! common.rs   Common: what every language has; writing.rs and reading.rs: Rust's types from and to it
//! ```
//!
//! A blob begins with what it is ([`Encoding`]). Numbers below 3, and 7 and 8, are what Python writes for itself; the
//! rest is this crate's:
//!
//! ```text
//! 3 │ body                                      a Rust value, as postcard writes it
//! 4 │ 7 zeros │ n: u64 │ p: u64 │ n lengths: u64 │ body: p bytes │ buffers, each 64-byte aligned
//! 5, 6                                          a common value, likewise
//! ```
//!
//! - VALUES-1: a [`Blob`] of [`OUTSIDE_BYTES`] or more is a buffer: written once, where the value goes, and read in place.
//! - VALUES-2: reading never trusts a length: what does not fit its blob is [`ValueError::Malformed`].

mod array;
mod blob;
mod common;
mod encode;
pub mod layout;
pub mod plain;
mod reading;
mod writing;

pub use array::{Array, Element, ShapeError};
pub use blob::{Blob, OUTSIDE_BYTES};
pub use common::{Common, RawActor, RawArray, RawReference};
pub use encode::{Decoded, Encoded, Encoding, NONE, NativeWriter};

/// What marks a reference for the common encoding: `(object, owner)`.
pub const REFERENCE: &str = "$oxiray::reference";

/// What marks a handle of an actor for the common encoding: `(actor, handle, keeps)`.
pub const ACTOR: &str = "$oxiray::actor";

/// A value cannot be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
pub enum ValueError {
    /// The bytes are no blob of ours.
    #[error("a serialized value has no shape that this version writes: the writer is of another build")]
    Malformed,
    /// The value is not what its reader expects, or has a type that cannot be written.
    #[error("{0}")]
    Unfit(String),
    /// Python wrote it for itself.
    #[error(
        "the value was written by Python for Python, which Rust cannot read: have the Python side return it to a call that Rust made, \
         or put it with oxiray.rust.put()"
    )]
    OnlyPython,
}

impl serde::ser::Error for ValueError {
    fn custom<T: std::fmt::Display>(text: T) -> Self {
        Self::Unfit(text.to_string())
    }
}

impl serde::de::Error for ValueError {
    fn custom<T: std::fmt::Display>(text: T) -> Self {
        Self::Unfit(text.to_string())
    }
}
