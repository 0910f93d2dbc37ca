//! Room in the store for what this process may put next.
//!
//! A program that puts objects of one size one after the other asks for the next one's room along with the seal of the
//! last, and does not wait for the answer. The room is asked for under the name that the next object will have.
//!
//! - AHEAD-1: room is asked for ahead after two objects of one size within [`UNUSED_MAX`], for one object at a time. It is
//!   given back when it was not used for that long, or as soon as an object of another size is put.
//! - AHEAD-2: no object is known by a name for which the daemon has not counted this process as the holder: room is used
//!   when its grant is here, and for the object that it was granted for.
//! - AHEAD-3: what a daemon granted is not used once that daemon is gone.

use crate::core::INLINE_BYTES;
use crate::core::client::Client;
use crate::core::io::{DAEMON, Io};
use crate::core::questions::DaemonAnswer;
use oxiray_ids::{ObjectId, TaskId};
use oxiray_wire::Message;
use oxiray_wire::message::{Abort, Allocate, Seal};
use std::time::{Duration, Instant};

/// How long room may lie unused, and how close together puts are that are worth it.
const UNUSED_MAX: Duration = Duration::from_millis(100);
/// The largest object that room is asked for ahead: of larger ones, writing them takes most of the time.
const SIZE_MAX: usize = 4 << 20;
/// How long nothing is asked for after the daemon had nothing to spare.
const REST: Duration = Duration::from_secs(1);

/// Room that was asked for, granted or not.
#[derive(Debug, Clone, Copy)]
struct Spare {
    task: TaskId,
    index: u32,
    size: usize,
    question: u64,
    /// The head by which this process was counted then.
    epoch: u64,
    ends_at: Instant,
}

impl Spare {
    fn object(&self) -> ObjectId {
        self.task.object(self.index)
    }
}

#[derive(Debug, Default)]
pub(crate) struct RoomAhead {
    /// The size of what was put last, and when.
    last: Option<(usize, Instant)>,
    /// What was put before was as large.
    repeats: bool,
    spare: Option<Spare>,
    /// For objects that have got their names, and are about to be written.
    taken: Vec<Spare>,
    /// When the spare is looked at; it stays where one spare follows another, so that nobody is woken for each.
    pub(crate) looks_at: Option<Instant>,
    rests_until: Option<Instant>,
}

impl<I: Io> Client<I> {
    /// The name of an object of `size` bytes that is put now, where there is room for it.
    pub(crate) fn name_with_room(&mut self, size: usize) -> Option<(TaskId, u32)> {
        let now = self.now;
        let ahead = &mut self.daemon.room;
        let last = ahead.last.replace((size, now));
        ahead.repeats = last.is_some_and(|(before, at)| before == size && at + UNUSED_MAX > now);
        let spare = ahead.spare?;
        if spare.size != size {
            self.give_room_back();
            return None;
        }
        ahead.spare = None;
        ahead.taken.push(spare);
        Some((spare.task, spare.index))
    }

    /// The question whose answer is, or will be, the room for an object that is about to be written, and the head under
    /// which it was asked.
    pub(crate) fn take_room(&mut self, object: ObjectId) -> Option<(u64, u64)> {
        let taken = &mut self.daemon.room.taken;
        let at = taken.iter().position(|spare| spare.object() == object)?;
        let spare = taken.swap_remove(at);
        Some((spare.question, spare.epoch))
    }

    /// The daemon had nothing to spare.
    pub(crate) fn no_room_ahead(&mut self) {
        self.daemon.room.rests_until = Some(self.now + REST);
    }

    /// Says that an object is written, and asks for room for the next where there will be one; `name` makes its name.
    pub(crate) fn seal(&mut self, object: ObjectId, size: usize, name: impl FnOnce() -> (TaskId, u32)) {
        let seal = Seal { object };
        let now = self.now;
        if object.index() < ObjectId::FIRST_PUT || !self.wants_room(size, now) {
            return self.io.send_now(DAEMON, &seal);
        }
        self.io.send(DAEMON, &seal);
        let (task, index) = name();
        let request = self.daemon.questions.ask();
        let object = task.object(index);
        let message = Message::from(Allocate { request, object, size: size as u64, ahead: true });
        self.note_question(request, &message);
        self.io.send_now(DAEMON, &message);
        let ends_at = now + UNUSED_MAX;
        let epoch = self.peers.epoch();
        self.daemon.room.spare = Some(Spare { task, index, size, question: request, epoch, ends_at });
        if self.daemon.room.looks_at.is_none() {
            self.daemon.room.looks_at = Some(ends_at);
            self.signals.timer_moved = true;
        }
    }

    /// AHEAD-1.
    fn wants_room(&self, size: usize, now: Instant) -> bool {
        let ahead = &self.daemon.room;
        let rests = ahead.rests_until.is_some_and(|until| now < until);
        let is_usual = ahead.repeats && ahead.last.is_some_and(|(last, _)| last == size);
        let is_fit = size > INLINE_BYTES && size <= SIZE_MAX;
        is_usual && is_fit && !rests && ahead.spare.is_none() && self.daemon.lost.is_none() && !self.is_away()
    }

    /// Looks whether the spare was not used for too long.
    pub(crate) fn look_at_room(&mut self, now: Instant) {
        if self.daemon.room.spare.is_some_and(|spare| spare.ends_at <= now) {
            self.give_room_back();
        }
        // One that the daemon has not granted yet is looked at again.
        self.daemon.room.looks_at = self.daemon.room.spare.map(|spare| spare.ends_at.max(now + UNUSED_MAX / 2));
    }

    /// Gives the spare back, where it is granted.
    fn give_room_back(&mut self) {
        let Some(spare) = self.daemon.room.spare else { return };
        let Some(answer) = self.daemon.questions.take(spare.question) else { return };
        self.daemon.room.spare = None;
        if matches!(answer, DaemonAnswer::Allocated(_)) {
            self.daemon.questions.writing.remove(&spare.object());
            self.io.send(DAEMON, &Abort { object: spare.object() });
        } else {
            self.no_room_ahead();
        }
    }

    /// AHEAD-3: the daemon is gone, and with it the room.
    pub(crate) fn forget_room(&mut self) {
        let RoomAhead { spare, taken, .. } = std::mem::take(&mut self.daemon.room);
        for spare in spare.into_iter().chain(taken) {
            self.daemon.questions.withdraw(spare.question);
            self.daemon.questions.writing.remove(&spare.object());
        }
    }
}
