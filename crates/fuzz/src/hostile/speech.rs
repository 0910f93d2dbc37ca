//! What a hostile process says next: frames of the grammar, new ones, old ones, and in another order.

use crate::frames;
use crate::grammar::Pool;
use fastrand::Rng;
use oxiray_ids::WorkerNumber;
use oxiray_wire::Message;
use oxiray_wire::frame::HEADER_BYTES;
use oxiray_wire::message::Direction;
use std::collections::VecDeque;

/// How many frames are remembered, to be said again.
const SAID_MAX: usize = 32;
/// How many frames are held back at once.
const HELD_MAX: usize = 8;

/// One speaker.
#[derive(Debug)]
pub struct Speech {
    pub(crate) chance: Rng,
    pub(crate) pool: Pool,
    said: VecDeque<Vec<u8>>,
    held: Vec<Vec<u8>>,
}

impl Speech {
    /// That of a seed.
    pub fn new(seed: u64) -> Self {
        let (said, held) = (VecDeque::new(), Vec::new());
        Self { chance: Rng::with_seed(seed), pool: Pool::default(), said, held }
    }

    /// Remembers what was heard, but for what names what is others'.
    pub fn learn(&mut self, message: &Message) {
        if !super::left_out::names_what_is_others(message) {
            self.pool.learn(message);
        }
    }

    /// A frame that is not left out: one of `frame`'s, one that was said before, or one that was held back.
    pub fn next(&mut self, is_left_out: fn(&Message) -> bool, frame: fn(&mut Rng, &Pool) -> Vec<u8>) -> Vec<u8> {
        match self.chance.u8(..) {
            0..16 if !self.said.is_empty() => self.said[self.chance.usize(..self.said.len())].clone(),
            16..48 if !self.held.is_empty() => self.held.swap_remove(self.chance.usize(..self.held.len())),
            number => {
                let mut made = self.new_frame(is_left_out, frame);
                if number >= 240 && self.held.len() < HELD_MAX {
                    let earlier = std::mem::replace(&mut made, self.new_frame(is_left_out, frame));
                    self.held.push(earlier);
                }
                if self.said.len() == SAID_MAX {
                    self.said.pop_front();
                }
                self.said.push_back(made.clone());
                made
            }
        }
    }

    fn new_frame(&mut self, is_left_out: fn(&Message) -> bool, frame: fn(&mut Rng, &Pool) -> Vec<u8>) -> Vec<u8> {
        loop {
            let made = frame(&mut self.chance, &self.pool);
            let is_said = match message_of(&made) {
                Some(message) => !is_left_out(&message),
                // It ends the stream, so that nothing more would be heard there.
                None => self.chance.u8(..8) == 0,
            };
            if is_said {
                return made;
            }
        }
    }
}

/// A frame of any kind.
pub fn any_frame(chance: &mut Rng, pool: &Pool) -> Vec<u8> {
    let kind = frames::kind(chance);
    frames::frame(chance, pool, kind)
}

/// A frame that goes in a direction; seldom any other.
pub fn said_frame<D: Direction>(chance: &mut Rng, pool: &Pool) -> Vec<u8> {
    let kind = frames::kind_said::<D>(chance);
    frames::frame(chance, pool, kind)
}

/// The message of a frame; nothing where it cannot be read.
fn message_of(frame: &[u8]) -> Option<Message> {
    let kind = u16::from_le_bytes([frame[4], frame[5]]);
    Message::decode(kind, frame[HEADER_BYTES..].to_vec().into()).ok().flatten()
}

/// The frame of a message.
pub fn frame_of(message: &Message) -> Vec<u8> {
    frames::frame_around(message.kind(), &message.relayed(WorkerNumber(0)).body)
}
