//! What bodies of messages consist of, as the types of their fields say: the schema stands in `message.rs` and nowhere else.
//!
//! By its shape a body is measured before it is decoded: a repeated field of two bytes may become a structure of two
//! hundred, so that what a peer sends would otherwise take a hundred times its size in memory.

use crate::message::Message;

use prost::encoding::{self, WireType};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Bodies up to this size are decoded unmeasured.
const UNMEASURED_BYTES: usize = 64 << 10;
/// How many entries any body may have: texts, byte strings and messages within it, at every depth.
const ENTRIES_FREE: usize = 1 << 16;
/// One more for so many bytes of it.
const BYTES_PER_ENTRY: usize = 12;
/// Kinds are below this.
const KINDS_MAX: usize = 512;

/// How a field is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// A number of variable length, or a truth value.
    Number,
    /// Eight bytes.
    Fixed,
    /// Numbers of variable length, one behind the other.
    Numbers,
    /// Numbers of eight bytes, one behind the other.
    FixedNumbers,
    /// Any bytes.
    Bytes,
    /// UTF-8.
    Text,
    /// A number that stands for one of a closed set of alternatives: one of these.
    Alternative(Vec<u64>),
    /// Such numbers, one behind the other.
    Alternatives(Vec<u64>),
    /// A word that stands for one of a closed set of alternatives: one of these.
    Word(Vec<&'static str>),
    /// An identifier.
    Identifier {
        /// How many bytes each has.
        bytes: usize,
        /// Whether a body without one is refused.
        is_required: bool,
    },
    /// Another message.
    Message(Shape),
}

/// The fields of a message, by their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    /// What each field is.
    pub fields: BTreeMap<u32, Field>,
}

impl FromIterator<(u32, Field)> for Shape {
    fn from_iter<I: IntoIterator<Item = (u32, Field)>>(fields: I) -> Self {
        Self { fields: fields.into_iter().collect() }
    }
}

impl Shape {
    /// The shape of messages of that kind, put together when it is first asked for; nothing for a kind that is not known.
    pub fn of(kind: u16) -> Option<&'static Self> {
        static KNOWN: [OnceLock<Shape>; KINDS_MAX] = [const { OnceLock::new() }; KINDS_MAX];
        let place = KNOWN.get(usize::from(kind)).filter(|_| Message::KINDS.contains(&kind))?;
        Some(place.get_or_init(|| Message::shape(kind)))
    }

    /// Whether a body has no more entries than its size allows.
    pub(crate) fn allows(kind: u16, body: &[u8]) -> bool {
        if body.len() <= UNMEASURED_BYTES {
            return true;
        }
        let mut left = ENTRIES_FREE + body.len() / BYTES_PER_ENTRY;
        Self::of(kind).is_none_or(|shape| shape.count(body, &mut left))
    }

    /// Takes the entries of a body off `left`; whether there were that many. Where the body is malformed, the count ends:
    /// the decoder ends there too.
    fn count(&self, mut body: &[u8], left: &mut usize) -> bool {
        while !body.is_empty() {
            let Ok((tag, wire_type)) = encoding::decode_key(&mut body) else { return true };
            if wire_type != WireType::LengthDelimited {
                let context = encoding::DecodeContext::default();
                if encoding::skip_field(wire_type, tag, &mut body, context).is_err() {
                    return true;
                }
                continue;
            }
            let Ok(length) = encoding::decode_varint(&mut body) else { return true };
            let Some((value, rest)) = usize::try_from(length).ok().and_then(|length| body.split_at_checked(length))
            else {
                return true;
            };
            body = rest;
            let Some(fewer) = left.checked_sub(1) else { return false };
            *left = fewer;
            if let Some(Field::Message(inner)) = self.fields.get(&tag)
                && !inner.count(value, left)
            {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameError;
    use crate::message::{ActorCreate, ArgumentReference, Promise, Publish, Reference, Value};
    use bytes::{Bytes, BytesMut};
    use oxiray_ids::ObjectId;

    fn body(message: &Message) -> Bytes {
        let mut body = BytesMut::new();
        message.append_body(&mut body);
        body.freeze()
    }

    #[test]
    fn shapes_are_those_of_the_schema() {
        let publish = &Shape::of(Message::from(Publish::default()).kind()).expect("a kind").fields;
        assert_eq!(publish[&1], Field::Identifier { bytes: 28, is_required: true });
        let Field::Message(value) = &publish[&2] else { panic!("{publish:?}") };
        assert_eq!(
            (&value.fields[&1], &value.fields[&2], &value.fields[&3]),
            (&Field::Bytes, &Field::Number, &Field::Bytes)
        );
        let (Field::Message(failure), Field::Message(reference)) = (&value.fields[&4], &value.fields[&5]) else {
            panic!("{value:?}")
        };
        assert_eq!((&failure.fields[&2], &failure.fields[&3]), (&Field::Text, &Field::Bytes));
        assert!(matches!(&failure.fields[&1], Field::Word(words) if words.contains(&"worker_crashed")));
        assert_eq!(reference.fields[&2], Field::Identifier { bytes: 28, is_required: false });
        // Maps, packed numbers, and what is read in a way of its own.
        assert!(
            matches!(&Shape::of(132).expect("NodeJoin").fields[&4], Field::Message(entry) if entry.fields.len() == 2)
        );
        let Field::Message(devices) = &Shape::of(133).expect("NodeState").fields[&3] else { panic!("devices") };
        assert_eq!((&devices.fields[&2], &devices.fields[&3]), (&Field::Numbers, &Field::Numbers));
        assert_eq!(Shape::of(71).expect("Call").fields[&3], Field::Text);
        assert_eq!(Shape::of(64).expect("KeyValueRequest").fields[&2], Field::Alternative(vec![1, 2, 3, 4]));
        assert!(Message::KINDS.iter().all(|kind| Shape::of(*kind).is_some()));
        assert!(Shape::of(9).is_none() && Shape::of(u16::MAX).is_none());
    }

    #[test]
    fn a_body_that_would_take_many_times_its_size_is_refused_unread() {
        // Two bytes each, and nearly 200 in memory; within a message, and as its own fields.
        let references = vec![ArgumentReference::default(); 1 << 20];
        let crowded: [Message; 2] = [
            ActorCreate { references, ..ActorCreate::default() }.into(),
            Publish {
                value: Some(Value { contained: vec![Reference::default(); 1 << 20], ..Value::default() }),
                ..Publish::default()
            }
            .into(),
        ];
        for message in crowded {
            let kind = message.kind();
            assert_eq!(Message::decode(kind, body(&message)), Err(FrameError::Crowded { kind }));
        }
        let objects = vec![ObjectId::new([7; 28]); 1 << 20];
        let honest = Message::from(Promise { objects });
        assert_eq!(Message::decode(honest.kind(), body(&honest)), Ok(Some(honest)));
    }
}
