//! The worker's side of calls whose results come one by one.
//!
//! - YIELDING-1: a call's items go out in the order yielded, before its reply.
//! - YIELDING-2: an item beyond what the owner wants ahead is waited with; one that the owner's process does not take
//!   is not piled up here without limit.

use crate::core::client::Client;
use crate::core::execute::Ticket;
use crate::core::io::Io;
use crate::core::signals::ClientEvent;
use crate::core::yielding::{Pace, Yielded};
use oxiray_ids::TaskId;
use oxiray_wire::message::{StreamItem, StreamRead};

/// Bytes of items that wait for the owner's process to read them, at most and on one stream.
const UNSENT_LIMIT: usize = 4 << 20;

impl<I: Io> Client<I> {
    /// Asks for news of the call's first object when it may go on or has to end; `false` where that is so already.
    pub(crate) fn announce_reader(&mut self, task: TaskId, yielded: u32) -> bool {
        let waits = self.pace(task, yielded) == Pace::Wait;
        self.service.yieldings.announce(task, waits);
        waits
    }

    /// How a call that yielded so many items is to go on.
    pub fn pace(&self, task: TaskId, yielded: u32) -> Pace {
        let Some((enough, owner)) = self.service.yieldings.waits(task, yielded) else { return Pace::Stop };
        if self.service.inbox.interrupts.is_left_to_itself(task) {
            Pace::Stop
        } else if enough || self.io.unsent_bytes(owner) > UNSENT_LIMIT {
            Pace::Wait
        } else {
            Pace::On
        }
    }

    /// Sends an item of a call to its owner.
    pub fn send_item(&mut self, ticket: &Ticket, yielded: Yielded) -> Pace {
        let Yielded { index, value, handed, stored } = yielded;
        let large = stored.as_slice();
        self.promise(&handed);
        if let Some(owner) = self.owner_on(ticket.from) {
            self.give(&handed, &owner);
            self.give(large, &owner);
        }
        self.give_up_written(large);
        let message = StreamItem { task: ticket.task(), index, value: Some(value) };
        if handed.is_empty() && large.is_empty() {
            self.io.send_soon(ticket.from, &message);
        } else {
            // The owner's holds are counted already, so the owner must hear of them whatever happens here.
            self.io.send_now(ticket.from, &message);
        }
        for id in handed {
            self.release(id);
        }
        self.pace(ticket.task(), index + 1)
    }

    pub(crate) fn items_read(&mut self, said: &StreamRead) {
        let task = said.task;
        self.service.yieldings.read(task, said.read);
        self.tell_generator(task);
    }

    pub(crate) fn stop_yielding(&mut self, task: TaskId) {
        self.service.yieldings.stop(task);
        self.tell_generator(task);
    }

    fn tell_generator(&mut self, task: TaskId) {
        self.signals.changed = true;
        if self.service.yieldings.take_announced(task) {
            self.signals.news.push_back(ClientEvent::Ready(task.object(1)));
        }
    }
}
