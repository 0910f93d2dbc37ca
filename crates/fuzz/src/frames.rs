//! Frames that are cut, changed and mixed up, into a real connection: each ends in messages or in an error.

use crate::grammar::{self, Pool};
use fastrand::Rng;
use oxiray_wire::frame::{HEADER_BYTES, WIRE_VERSION};
use oxiray_wire::message::Direction;
use oxiray_wire::shape::Shape;
use oxiray_wire::{Connection, Message};
use std::io::Write as _;
use std::os::unix::net::UnixStream;

/// A frame of any kind.
pub fn frame(chance: &mut Rng, pool: &Pool, kind: u16) -> Vec<u8> {
    let body = Shape::of(kind).map(|shape| grammar::body(chance, shape, pool)).unwrap_or_default();
    frame_around(kind, &body)
}

/// The frame of a body.
pub fn frame_around(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER_BYTES + body.len());
    frame.extend_from_slice(&header(body.len() as u32, kind));
    frame.extend_from_slice(body);
    frame
}

/// The header that announces so many bytes of a body.
pub fn header(length: u32, kind: u16) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..6].copy_from_slice(&kind.to_le_bytes());
    header[7] = WIRE_VERSION;
    header
}

/// Any kind.
pub fn kind(chance: &mut Rng) -> u16 {
    Message::KINDS[chance.usize(..Message::KINDS.len())]
}

/// Any kind that goes in a direction; seldom any other, which ends the stream.
pub fn kind_said<D: Direction>(chance: &mut Rng) -> u16 {
    let kinds = D::kinds();
    if chance.u8(..) == 0 { kind(chance) } else { kinds[chance.usize(..kinds.len())] }
}

/// Sends so many frames, over as many connections as it takes; returns how many messages came of them.
pub fn run(seed: u64, frames: u64) -> u64 {
    let (mut chance, pool) = (Rng::with_seed(seed), Pool::default());
    let (mut said, mut heard) = (0, 0);
    while said < frames {
        let Ok((mut near, far)) = UnixStream::pair() else { return heard };
        let Ok(mut far) = Connection::new(far.into()) else { return heard };
        far.take_rings();
        let mut inbox = Vec::new();
        while said < frames {
            let mut bytes = Vec::new();
            let count = chance.u64(1..32);
            for _ in 0..count {
                let kind = kind(&mut chance);
                bytes.extend(frame(&mut chance, &pool, kind));
            }
            said += count;
            if chance.u8(..) < 64 {
                let place = chance.usize(..bytes.len());
                bytes[place] = chance.u8(..);
            }
            // What is not taken at once is lost, which is one more way to break the format.
            let cut = chance.usize(..=bytes.len());
            let is_over = [&bytes[..cut], &bytes[cut..]].into_iter().any(|part| {
                let _ = near.set_nonblocking(true).and_then(|()| near.write_all(part));
                far.receive(&mut inbox).is_err()
            });
            heard += inbox.drain(..).count() as u64;
            if is_over {
                break;
            }
        }
    }
    heard
}
