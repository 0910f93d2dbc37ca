//! What every language has.

use crate::Blob;
use serde::{Deserialize, Serialize};

/// A value of no language in particular: what crosses between Rust and Python. As bytes it is what postcard makes of
/// this type, with blobs outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Common {
    /// `None`, `()`.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// `str`, `String`.
    Text(String),
    /// `bytes`, [`Blob`].
    Bytes(Blob),
    /// `list` and `tuple`, `Vec` and tuples.
    List(Vec<Common>),
    /// `dict`; maps, and structs by the names of their fields.
    Map(Vec<(Common, Common)>),
    /// `numpy.ndarray`, [`crate::Array`].
    Array(RawArray),
    /// A reference to an object.
    Reference(RawReference),
    /// A handle of an actor.
    Actor(RawActor),
}

/// An array of some kind of number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RawArray {
    /// The kind, as numpy writes it, such as `<f8`.
    pub kind: String,
    /// The length of each axis.
    pub shape: Vec<u64>,
    /// The numbers, last axis fastest.
    pub memory: Blob,
}

/// A reference, as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawReference {
    /// Its `ObjectId`.
    pub object: Blob,
    /// The `WorkerId` of who owns it.
    pub owner: Blob,
}

/// A handle of an actor, as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawActor {
    /// Its `ActorId`.
    pub actor: Blob,
    /// What its creator told of it, see `ActorCreate::handle`.
    pub handle: Blob,
    /// Whether the actor lives as long as the handle.
    pub keeps: bool,
}

impl Common {
    /// What the value is, in words for errors.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a truth value",
            Self::Int(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Text(_) => "a text",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
            Self::Array(_) => "an array",
            Self::Reference(_) => "a reference",
            Self::Actor(_) => "a handle of an actor",
        }
    }

    /// A map from texts, such as errors are.
    pub fn record<const N: usize>(fields: [(&str, Self); N]) -> Self {
        Self::Map(fields.into_iter().map(|(name, value)| (Self::Text(name.to_owned()), value)).collect())
    }

    /// The text of that name in a map.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.field(name)? {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value of that name in a map.
    pub fn field(&self, name: &str) -> Option<&Self> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|(key, _)| matches!(key, Self::Text(text) if text == name)).map(|(_, value)| value)
    }
}
