//! The bytes of a journal's file: a header, and one record for each batch.
//!
//! Each record's seal covers its payload and the seal of the record before it, so that none can be changed, left out or
//! moved unnoticed. The format is in `docs/formats/journal.md`.

use crate::Change;
use bytes::Bytes;
use prost::Message as _;
use ring::digest::{Context, SHA256};

/// What every journal's file begins with.
pub(crate) const MAGIC: [u8; 4] = *b"oxjr";
/// The version of the format.
pub(crate) const VERSION: u32 = 1;
/// Bytes of magic and version.
pub(crate) const HEADER_BYTES: usize = 8;
/// Bytes of a seal.
const SEAL_BYTES: usize = 16;
/// Bytes of a payload's length and the check of that.
const LENGTH_BYTES: usize = 8;
/// The last byte of each record: what was cut off, or never reached the disk, has none.
const END: u8 = 0xED;

pub(crate) type Seal = [u8; SEAL_BYTES];

/// What stands for the record before the first.
pub(crate) const FIRST: Seal = [0; SEAL_BYTES];

#[derive(Clone, PartialEq, prost::Message)]
struct Batch {
    #[prost(message, repeated, tag = "1")]
    changes: Vec<Row>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Row {
    #[prost(uint32, tag = "1")]
    table: u32,
    #[prost(bytes = "bytes", tag = "2")]
    key: Bytes,
    #[prost(bytes = "bytes", optional, tag = "3")]
    value: Option<Bytes>,
}

/// What stands at the front of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// A record of so many bytes.
    Whole { changes: Vec<Change>, bytes: usize, seal: Seal },
    /// The beginning of one that was never finished, and nothing after it.
    Torn,
    /// No record: what a power cut left of one, if none follows ([`follows`]), and damage otherwise.
    Strange(&'static str),
    /// A record that was finished, and is not what was written any more.
    Wrong(&'static str),
}

pub(crate) fn header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC);
    header[4..].copy_from_slice(&VERSION.to_le_bytes());
    header
}

/// The record of a batch, and its seal.
pub(crate) fn write(before: Seal, changes: &[Change]) -> (Vec<u8>, Seal) {
    let row = |change: &Change| Row { table: change.table, key: change.key.clone(), value: change.value.clone() };
    let payload = Batch { changes: changes.iter().map(row).collect() };
    let length = payload.encoded_len();
    let mut record = Vec::with_capacity(LENGTH_BYTES + length + SEAL_BYTES + 1);
    let written = u32::try_from(length).expect("a batch is far smaller than 4 GiB").to_le_bytes();
    record.extend_from_slice(&written);
    record.extend_from_slice(&check(before, written));
    payload.encode(&mut record).expect("a vector grows");
    let seal = seal(before, &record[LENGTH_BYTES..]);
    record.extend_from_slice(&seal);
    record.push(END);
    (record, seal)
}

pub(crate) fn read(before: Seal, bytes: &Bytes) -> Read {
    if bytes.len() < LENGTH_BYTES || bytes.iter().all(|byte| *byte == 0) {
        return Read::Torn;
    }
    let written = [bytes[0], bytes[1], bytes[2], bytes[3]];
    if bytes[4..LENGTH_BYTES] != check(before, written) {
        return Read::Strange("the length of a record is not what was written");
    }
    let length = u32::from_le_bytes(written) as usize;
    let whole = LENGTH_BYTES + length + SEAL_BYTES + 1;
    if bytes.len() < whole || (bytes.len() == whole && bytes[whole - 1] == 0) {
        return Read::Torn;
    }
    let payload = bytes.slice(LENGTH_BYTES..LENGTH_BYTES + length);
    let seal = seal(before, &payload);
    match (bytes[LENGTH_BYTES + length..whole - 1] == seal, bytes[whole - 1] == END) {
        (true, true) => {}
        (false, false) => return Read::Strange("a record is not what was written"),
        _ => return Read::Wrong("a record is not what was written"),
    }
    let Ok(batch) = Batch::decode(payload) else { return Read::Wrong("a record cannot be read") };
    let change = |row: Row| Change { table: row.table, key: row.key, value: row.value };
    Read::Whole { changes: batch.changes.into_iter().map(change).collect(), bytes: whole, seal }
}

/// Whether a record lies anywhere in these bytes, at whose front there is none: what is wrong with them is damage then, and
/// not what was being written when the machine stopped. `before` is the seal of the last record that was read.
pub(crate) fn follows(before: Seal, bytes: &Bytes) -> bool {
    let is_record =
        |before: Seal, at: usize| at < bytes.len() && matches!(read(before, &bytes.slice(at..)), Read::Whole { .. });
    // Behind the seal of another record.
    let mut seals = bytes.windows(SEAL_BYTES + 1).enumerate().filter(|(_, window)| window[SEAL_BYTES] == END);
    let is_behind_one =
        seals.any(|(at, window)| window.first_chunk().is_some_and(|seal| is_record(*seal, at + SEAL_BYTES + 1)));
    // All of these bytes, but for their length.
    let is_one = bytes.len() > LENGTH_BYTES + SEAL_BYTES && bytes.ends_with(&[END]) && {
        let (payload, seal_and_end) = bytes[LENGTH_BYTES..].split_at(bytes.len() - LENGTH_BYTES - SEAL_BYTES - 1);
        seal_and_end[..SEAL_BYTES] == seal(before, payload)
    };
    is_behind_one || is_one
}

fn seal(before: Seal, payload: &[u8]) -> Seal {
    digest(before, b"payload", payload)
}

fn check(before: Seal, length: [u8; 4]) -> [u8; 4] {
    let [first, second, third, fourth, ..] = digest(before, b"length", &length);
    [first, second, third, fourth]
}

fn digest(before: Seal, purpose: &[u8], bytes: &[u8]) -> Seal {
    let mut context = Context::new(&SHA256);
    context.update(&before);
    context.update(purpose);
    context.update(bytes);
    context.finish().as_ref()[..SEAL_BYTES].try_into().expect("SHA-256 has 32 bytes")
}
