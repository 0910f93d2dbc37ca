//! Messages of any kind, with anything in them: written by the shapes of the wire's own table, so that a new message is
//! among them as soon as it is in that.

use bytes::Bytes;
use fastrand::Rng;
use oxiray_ids::WorkerNumber;
use oxiray_wire::Message;
use oxiray_wire::shape::{Field, Shape};

/// How much is remembered of each kind of value.
const REMEMBERED_MAX: usize = 256;
/// What is said that is larger is not learned from.
const LEARNED_BYTES_MAX: usize = 16 << 10;
/// Numbers at which something may turn over.
const EDGES: [u64; 8] = [0, 1, 10_000, u32::MAX as u64, 1 << 40, i64::MAX as u64, u64::MAX - 1, u64::MAX];
const TEXTS: [&str; 14] = [
    "",
    "CPU",
    "GPU",
    "memory",
    "node:127.0.0.1",
    "PACK",
    "SPREAD",
    "STRICT_PACK",
    "actors",
    "tasks",
    "objects",
    "nodes",
    "placement_groups",
    "a",
];
/// How long identifiers are.
const LENGTHS: [usize; 6] = [0, 4, 16, 18, 24, 28];

/// What was heard, to be said again in other places.
#[derive(Debug)]
pub struct Pool {
    numbers: Vec<u64>,
    bytes: Vec<Bytes>,
    texts: Vec<String>,
    next: usize,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            numbers: EDGES.to_vec(),
            bytes: LENGTHS.iter().map(|length| vec![1; *length].into()).collect(),
            texts: TEXTS.iter().map(|text| (*text).to_owned()).collect(),
            next: 0,
        }
    }
}

impl Pool {
    /// Remembers what stands in a message.
    pub fn learn(&mut self, message: &Message) {
        if message.body_bytes() > LEARNED_BYTES_MAX {
            return;
        }
        let relayed = message.relayed(WorkerNumber(0));
        if let Some(shape) = Shape::of(message.kind()) {
            self.learn_body(shape, &relayed.body);
        }
    }

    fn learn_body(&mut self, shape: &Shape, mut body: &[u8]) {
        while let Some(key) = varint(&mut body) {
            match key & 7 {
                0 => match varint(&mut body) {
                    Some(number) => self.number(number),
                    None => return,
                },
                1 => body = body.get(8..).unwrap_or_default(),
                2 => {
                    let Some(length) = varint(&mut body) else { return };
                    let Some((value, rest)) = body.split_at_checked(length as usize) else { return };
                    body = rest;
                    match shape.fields.get(&((key >> 3) as u32)) {
                        Some(Field::Message(inner)) => self.learn_body(inner, value),
                        Some(Field::Bytes | Field::Identifier { .. }) if value.len() <= 64 => {
                            self.bytes(Bytes::copy_from_slice(value));
                        }
                        Some(Field::Text) if value.len() <= 64 => {
                            self.text(String::from_utf8_lossy(value).into_owned());
                        }
                        _ => {}
                    }
                }
                _ => return,
            }
        }
    }

    /// Remembers a number.
    pub fn number(&mut self, number: u64) {
        let place = self.place(self.numbers.len(), EDGES.len());
        put(&mut self.numbers, place, number);
    }

    /// Remembers an identifier.
    pub fn bytes(&mut self, bytes: Bytes) {
        let place = self.place(self.bytes.len(), LENGTHS.len());
        put(&mut self.bytes, place, bytes);
    }

    fn text(&mut self, text: String) {
        let place = self.place(self.texts.len(), TEXTS.len());
        put(&mut self.texts, place, text);
    }

    /// The place of the oldest, but for those that were there from the start.
    fn place(&mut self, length: usize, kept: usize) -> usize {
        self.next += 1;
        if length < REMEMBERED_MAX { length } else { kept + self.next % (REMEMBERED_MAX - kept) }
    }
}

fn put<T>(values: &mut Vec<T>, place: usize, value: T) {
    match values.get_mut(place) {
        Some(old) => *old = value,
        None => values.push(value),
    }
}

fn varint(body: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = body.split_first()?;
        *body = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn append_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn append_field(tag: u32, value: &[u8], out: &mut Vec<u8>) {
    append_varint(u64::from(tag) << 3 | 2, out);
    append_varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// A body of that shape; at times one that breaks the format.
pub fn body(chance: &mut Rng, shape: &Shape, pool: &Pool) -> Vec<u8> {
    let mut out = Vec::new();
    append_body(chance, shape, pool, &mut out);
    if !out.is_empty() && chance.u8(..) < 4 {
        let place = chance.usize(..out.len());
        out[place] ^= 1 << chance.u8(..8);
    }
    out
}

fn append_body(chance: &mut Rng, shape: &Shape, pool: &Pool, out: &mut Vec<u8>) {
    for (tag, field) in &shape.fields {
        // Where an identifier is required nothing else is looked at without it.
        let is_required = matches!(field, Field::Identifier { is_required: true, .. });
        let is_left_out = if is_required { chance.u16(..1024) == 0 } else { chance.u8(..) < 80 };
        if is_left_out {
            continue;
        }
        // Where only one is meant, the last one counts.
        let times = if chance.u8(..) < 24 { chance.usize(2..4) } else { 1 };
        for _ in 0..times {
            append_value(chance, *tag, field, pool, out);
        }
    }
}

fn append_value(chance: &mut Rng, tag: u32, field: &Field, pool: &Pool, out: &mut Vec<u8>) {
    match field {
        Field::Number => {
            append_varint(u64::from(tag) << 3, out);
            append_varint(number(chance, pool), out);
        }
        Field::Alternative(numbers) => {
            append_varint(u64::from(tag) << 3, out);
            append_varint(alternative(chance, numbers).unwrap_or_else(|| number(chance, pool)), out);
        }
        Field::Alternatives(numbers) => {
            let mut said = Vec::new();
            for _ in 0..chance.usize(..4) {
                append_varint(alternative(chance, numbers).unwrap_or_else(|| number(chance, pool)), &mut said);
            }
            append_field(tag, &said, out);
        }
        Field::Word(words) => append_field(tag, alternative(chance, words).unwrap_or("a").as_bytes(), out),
        Field::Fixed => {
            append_varint(u64::from(tag) << 3 | 1, out);
            out.extend_from_slice(&number(chance, pool).to_le_bytes());
        }
        Field::Numbers => {
            let mut numbers = Vec::new();
            (0..chance.usize(..4)).for_each(|_| append_varint(number(chance, pool), &mut numbers));
            append_field(tag, &numbers, out);
        }
        Field::FixedNumbers => {
            let numbers = (0..chance.usize(..4)).flat_map(|_| chance.u64(..).to_le_bytes());
            append_field(tag, &numbers.collect::<Vec<_>>(), out);
        }
        Field::Bytes => match chance.u8(..) {
            0..16 => append_field(tag, &vec![chance.u8(..); LENGTHS[chance.usize(..LENGTHS.len())]], out),
            _ => append_field(tag, &pool.bytes[chance.usize(..pool.bytes.len())], out),
        },
        Field::Identifier { bytes, .. } => {
            let known: Vec<_> = pool.bytes.iter().filter(|known| known.len() == *bytes).collect();
            // One that is malformed ends a stream, so that nothing more would be heard there.
            match chance.u16(..1024) {
                0 => append_field(tag, &vec![chance.u8(..); chance.usize(..32)], out),
                1..64 => append_field(tag, &vec![chance.u8(..0xff); *bytes], out),
                _ => append_field(tag, known[chance.usize(..known.len())], out),
            }
        }
        Field::Text => match chance.u8(..) {
            0..4 => append_field(tag, &vec![b'x'; chance.usize(..3000)], out),
            _ => append_field(tag, pool.texts[chance.usize(..pool.texts.len())].as_bytes(), out),
        },
        Field::Message(inner) => {
            let mut value = Vec::new();
            append_body(chance, inner, pool, &mut value);
            append_field(tag, &value, out);
        }
    }
}

/// One of a closed set of alternatives. Seldom none of them: that ends a stream, so that nothing more would be heard there.
fn alternative<T: Copy>(chance: &mut Rng, known: &[T]) -> Option<T> {
    (chance.u16(..1024) > 0).then(|| known[chance.usize(..known.len())])
}

/// A number as it may stand anywhere.
pub fn number(chance: &mut Rng, pool: &Pool) -> u64 {
    match chance.u8(..) {
        0..110 => pool.numbers[chance.usize(..pool.numbers.len())],
        110..200 => chance.u64(..8),
        200..230 => chance.u64(..200_000),
        230..250 => EDGES[chance.usize(..EDGES.len())],
        _ => chance.u64(..),
    }
}
