//! Values, as they travel.

use super::{Failure, Reference};
use crate::field::{Field, Nested, at};
use crate::shape::{self, Shape};
use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{DecodeContext, WireType, skip_field};
use prost::{DecodeError, Message, Oneof};

/// A finished value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Value {
    /// The value itself, or where it is.
    pub content: Option<Content>,
    /// References that stand inside the value. Whoever holds the value holds these.
    pub contained: Vec<Reference>,
}

/// What a [`Value`] is.
#[derive(Clone, PartialEq, Oneof)]
pub enum Content {
    /// Serialized, right here.
    #[prost(bytes = "bytes", tag = "1")]
    Inline(Bytes),
    /// In the node's store under the object's own id; the number is its size in bytes.
    #[prost(uint64, tag = "2")]
    Stored(u64),
    /// User code raised: the serialized exception.
    #[prost(bytes = "bytes", tag = "3")]
    Raised(Bytes),
    /// The runtime could not produce it.
    #[prost(message, tag = "4")]
    Failed(Failure),
}

/// The numbers of [`Content`] are below it.
const CONTAINED: u32 = 5;

impl Message for Value {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        if let Some(content) = &self.content {
            content.encode(buffer);
        }
        self.contained.encode(CONTAINED, buffer);
    }

    fn encoded_len(&self) -> usize {
        self.content.as_ref().map_or(0, Content::encoded_len) + self.contained.length(CONTAINED)
    }

    fn merge_field(
        &mut self,
        number: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match number {
            1..CONTAINED => Content::merge(&mut self.content, number, wire_type, buffer, context)
                .map_err(|error| at(error, "Value", "content")),
            CONTAINED => {
                self.contained.merge(wire_type, buffer, context).map_err(|error| at(error, "Value", "contained"))
            }
            _ => skip_field(wire_type, number, buffer, context),
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Nested for Value {
    fn shape() -> Shape {
        let failed = <Option<Failure> as Field>::shape();
        let content = [(1, shape::Field::Bytes), (2, shape::Field::Number), (3, shape::Field::Bytes), (4, failed)];
        content.into_iter().chain([(CONTAINED, <Vec<Reference> as Field>::shape())]).collect()
    }

    fn check(&self) -> Result<(), DecodeError> {
        Ok(())
    }
}
