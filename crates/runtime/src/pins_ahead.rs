//! Pins that are asked for before their objects are read.
//!
//! Whoever reads many stored objects one after the other asks for the next ones while it reads these, so that neither it
//! nor the daemon is woken for each.

use crate::core::DAEMON;
use crate::core::contained::ScannedValue;
use crate::lead::Shared;
use crate::runtime::Runtime;
use oxiray_ids::ObjectId;
use oxiray_wire::Message;
use oxiray_wire::message::{Content, Pin, Unpin};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How many objects are asked for ahead, and how many bytes they may have together: what is asked for stays in memory.
const OBJECTS_MAX: usize = 256;
const BYTES_MAX: u64 = 32 << 20;

/// A pin that was asked for; it is given back where it is dropped.
#[derive(Debug)]
pub struct AskedPin {
    object: ObjectId,
    question: u64,
    /// The head under which it was asked for.
    epoch: u64,
    is_taken: bool,
    shared: Arc<Shared>,
}

impl AskedPin {
    /// The caller waits for the answer: the question, and the head under which it was asked.
    pub(crate) fn take(mut self) -> (u64, u64) {
        self.is_taken = true;
        (self.question, self.epoch)
    }
}

impl Drop for AskedPin {
    fn drop(&mut self) {
        if self.is_taken || self.shared.abandoned.load(Ordering::Relaxed) {
            return;
        }
        self.shared.with(|state| {
            if let Some(object) = state.daemon.questions.abandon(self.question, Some(self.object)) {
                state.io.links.post(DAEMON, &Unpin { object });
            }
        });
    }
}

/// Asks for the pins of objects that are read in order.
#[derive(Debug)]
pub struct PinsAhead<'a> {
    runtime: &'a Runtime,
    /// Stored objects and their bytes, of which nothing is asked yet.
    later: VecDeque<(ObjectId, u64)>,
    asked: VecDeque<(ObjectId, u64, AskedPin)>,
    asked_bytes: u64,
}

impl Runtime {
    /// Has the stored bytes of these objects brought to this machine, as far as their values are known and the bytes were
    /// not asked for before. Nothing is done where there is one machine only.
    pub fn fetch(&self, ids: impl Iterator<Item = ObjectId>) {
        self.shared.with(|state| {
            if state.leases.is_alone || state.daemon.lost.is_some() {
                return;
            }
            for id in ids {
                if state.objects.take_fetch(id) {
                    let question = state.daemon.questions.ask();
                    state.io.links.post(DAEMON, &Pin { request: question, object: id });
                    // The answer is given back when it comes, and the bytes stay.
                    state.daemon.questions.abandon(question, Some(id));
                }
            }
            state.io.links.flush_all();
        });
    }
}

impl<'a> PinsAhead<'a> {
    /// For the values of these objects, which are about to be read in this order.
    pub fn new(runtime: &'a Runtime, ids: &[ObjectId], values: &[ScannedValue]) -> Self {
        let stored = ids.iter().zip(values).filter_map(|(id, value)| match value.content {
            Some(Content::Stored(size)) => Some((*id, size)),
            _ => None,
        });
        Self { runtime, later: stored.collect(), asked: VecDeque::new(), asked_bytes: 0 }
    }

    /// The pin of the object that is read next, where one is asked for.
    pub fn next(&mut self, id: ObjectId) -> Option<AskedPin> {
        if self.asked.len() <= OBJECTS_MAX / 2 && self.asked.len() + self.later.len() > 1 {
            self.ask();
        }
        if self.asked.front().is_some_and(|(asked, ..)| *asked == id) {
            let (_, bytes, pin) = self.asked.pop_front()?;
            self.asked_bytes -= bytes;
            return Some(pin);
        }
        // Too large to be asked for ahead, or no stored object.
        if self.later.front().is_some_and(|(later, _)| *later == id) {
            self.later.pop_front();
        }
        None
    }

    fn ask(&mut self) {
        let mut count = 0;
        for (_, bytes) in self.later.iter().take(OBJECTS_MAX - self.asked.len()) {
            if self.asked_bytes + bytes > BYTES_MAX {
                break;
            }
            self.asked_bytes += bytes;
            count += 1;
        }
        if count == 0 {
            return;
        }
        let shared = &self.runtime.shared;
        let asked = shared.with(|state| {
            if state.daemon.lost.is_some() {
                return Vec::new();
            }
            let epoch = state.peers.epoch();
            let mut asked = Vec::with_capacity(count);
            for (id, bytes) in self.later.drain(..count) {
                let (object, question) = (id, state.daemon.questions.ask());
                let message = Message::from(Pin { request: question, object });
                state.note_question(question, &message);
                state.io.links.post(DAEMON, &message);
                let shared = Arc::clone(shared);
                asked.push((id, bytes, AskedPin { object, question, epoch, is_taken: false, shared }));
            }
            state.io.links.flush_all();
            asked
        });
        self.asked.extend(asked);
    }
}
