//! What bodies of messages consist of, learned by asking the decoder: the schema stands in `message.rs` and nowhere else.
//!
//! By its shape a body is measured before it is decoded: a repeated field of two bytes may become a structure of two
//! hundred, so that what a peer sends would otherwise take a hundred times its size in memory.

use crate::message::Message;
use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{self, WireType};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Bodies up to this size are decoded unmeasured.
const UNMEASURED_BYTES: usize = 64 << 10;
/// How many entries any body may have: texts, byte strings and messages within it, at every depth.
const ENTRIES_FREE: usize = 1 << 16;
/// One more for so many bytes of it.
const BYTES_PER_ENTRY: usize = 12;
/// The largest number of a field that is asked about.
const TAG_MAX: u32 = 31;
/// Kinds are below this.
const KINDS_MAX: usize = 512;
/// How deep messages are nested at most.
const DEPTH_MAX: usize = 8;

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
    /// Another message.
    Message(Shape),
}

/// The fields of a message, by their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    /// What each field is.
    pub fields: BTreeMap<u32, Field>,
}

impl Shape {
    /// The shape of messages of that kind, learned when it is first asked for; nothing for a kind that is not known.
    pub fn of(kind: u16) -> Option<&'static Self> {
        static LEARNED: [OnceLock<Shape>; KINDS_MAX] = [const { OnceLock::new() }; KINDS_MAX];
        let place = LEARNED.get(usize::from(kind)).filter(|_| Message::KINDS.contains(&kind))?;
        Some(place.get_or_init(|| learn(kind, &mut Vec::new())))
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

/// Asks the decoder about every field of the message at that path, from the outermost one on.
fn learn(kind: u16, path: &mut Vec<u32>) -> Shape {
    let empty = written(kind, path, &[]).unwrap_or(0);
    let mut shape = Shape::default();
    for tag in 1..=TAG_MAX {
        if let Some(field) = learn_field(kind, path, tag, empty) {
            shape.fields.insert(tag, field);
        }
    }
    shape
}

fn learn_field(kind: u16, path: &mut Vec<u32>, tag: u32, empty: usize) -> Option<Field> {
    // What is known is written back; what is not is skipped.
    let is_known = |path: &[u32], wire_type, value: &[u8]| {
        let mut field = Vec::new();
        encoding::encode_key(tag, wire_type, &mut field);
        if wire_type == WireType::LengthDelimited {
            encoding::encode_varint(value.len() as u64, &mut field);
        }
        field.extend_from_slice(value);
        written(kind, path, &field).map(|bytes| bytes > empty)
    };
    if is_known(path, WireType::Varint, &[1]) == Some(true) {
        // Packed numbers are read one by one, too.
        let is_packed = is_known(path, WireType::LengthDelimited, &[1, 1]) == Some(true);
        return Some(if is_packed { Field::Numbers } else { Field::Number });
    }
    if is_known(path, WireType::SixtyFourBit, &[1; 8]) == Some(true) {
        let is_packed = is_known(path, WireType::LengthDelimited, &[1; 16]) == Some(true);
        return Some(if is_packed { Field::FixedNumbers } else { Field::Fixed });
    }
    let as_bytes = |path: &[u32], value: &[u8]| is_known(path, WireType::LengthDelimited, value);
    match (as_bytes(path, &[0xff]), as_bytes(path, &[0xc2, 0x80])) {
        (Some(true), _) => Some(Field::Bytes),
        (None, Some(true)) => Some(Field::Text),
        (None, None) if path.len() < DEPTH_MAX && as_bytes(path, &[]) == Some(true) => {
            path.push(tag);
            let inner = learn(kind, path);
            path.pop();
            Some(Field::Message(inner))
        }
        _ => None,
    }
}

/// How many bytes a body has when it is written back that has `value` as the message at that path; nothing where it cannot
/// be read.
fn written(kind: u16, path: &[u32], value: &[u8]) -> Option<usize> {
    let body = path.iter().rev().fold(Bytes::copy_from_slice(value), |value, tag| {
        let mut around = BytesMut::new();
        encoding::encode_key(*tag, WireType::LengthDelimited, &mut around);
        encoding::encode_varint(value.len() as u64, &mut around);
        around.put_slice(&value);
        around.freeze()
    });
    Some(Message::decode(kind, body).ok()??.body_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameError;
    use crate::message::{ActorCreate, ArgumentReference, Promise, Publish, Reference, Value};

    fn body(message: &Message) -> Bytes {
        let mut body = BytesMut::new();
        message.append_body(&mut body);
        body.freeze()
    }

    #[test]
    fn shapes_are_those_of_the_schema() {
        let publish = &Shape::of(Message::from(Publish::default()).kind()).expect("a kind").fields;
        assert_eq!(publish[&1], Field::Bytes);
        let Field::Message(value) = &publish[&2] else { panic!("{publish:?}") };
        assert_eq!(
            (&value.fields[&1], &value.fields[&2], &value.fields[&3]),
            (&Field::Bytes, &Field::Number, &Field::Bytes)
        );
        let (Field::Message(failure), Field::Message(reference)) = (&value.fields[&4], &value.fields[&5]) else {
            panic!("{value:?}")
        };
        assert_eq!((&failure.fields[&1], &failure.fields[&3]), (&Field::Text, &Field::Bytes));
        assert_eq!(reference.fields.values().collect::<Vec<_>>(), [&Field::Bytes, &Field::Bytes]);
        // Maps, packed numbers, and what is read in a way of its own.
        assert!(
            matches!(&Shape::of(132).expect("NodeJoin").fields[&4], Field::Message(entry) if entry.fields.len() == 2)
        );
        let Field::Message(devices) = &Shape::of(133).expect("NodeState").fields[&3] else { panic!("devices") };
        assert_eq!((&devices.fields[&2], &devices.fields[&3]), (&Field::Numbers, &Field::Numbers));
        assert_eq!(Shape::of(71).expect("Call").fields[&3], Field::Text);
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
        let objects = vec![Bytes::from_static(&[7; 28]); 1 << 20];
        let honest = Message::from(Promise { objects });
        assert_eq!(Message::decode(honest.kind(), body(&honest)), Ok(Some(honest)));
    }
}
