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

use crate::core::client::Client;
use crate::core::io::{DAEMON, Io};
use crate::core::questions::DaemonAnswer;
use oxiray_ids::{ObjectId, TaskId};
use oxiray_wire::Message;
use oxiray_wire::message::{Abort, Allocate, Seal};
use std::time::Instant;

impl<I: Io> Client<I> {
    /// The name of an object of `size` bytes that is put now, where there is room for it.
    pub(crate) fn name_with_room(&mut self, size: usize) -> Option<(TaskId, u32)> {
        self.daemon.room.put(size, self.now);
        if self.daemon.room.spare?.size != size {
            self.give_room_back();
            return None;
        }
        let spare = self.daemon.room.take_spare()?;
        Some((spare.task, spare.index))
    }

    /// The question whose answer is, or will be, the room for an object that is about to be written, and the head under
    /// which it was asked.
    pub(crate) fn take_room(&mut self, object: ObjectId) -> Option<(u64, u64)> {
        let spare = self.daemon.room.take(object)?;
        Some((spare.question, spare.epoch))
    }

    /// The daemon had nothing to spare.
    pub(crate) fn no_allocation_credit(&mut self) {
        self.daemon.room.rest(self.now);
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
        let epoch = self.peers.epoch();
        self.signals.timer_moved |= self.daemon.room.ask((task, index), size, request, epoch, now);
    }

    /// AHEAD-1.
    fn wants_room(&self, size: usize, now: Instant) -> bool {
        self.daemon.room.is_worth(size, now) && self.daemon.lost.is_none() && !self.is_away()
    }

    /// Looks whether the spare was not used for too long.
    pub(crate) fn look_at_room(&mut self, now: Instant) {
        if self.daemon.room.is_unused(now) {
            self.give_room_back();
        }
        self.daemon.room.has_looked(now);
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
            self.no_allocation_credit();
        }
    }

    /// AHEAD-3: the daemon is gone, and with it the room.
    pub(crate) fn forget_room(&mut self) {
        for spare in self.daemon.room.take_all() {
            self.daemon.questions.withdraw(spare.question);
            self.daemon.questions.writing.remove(&spare.object());
        }
    }
}
