//! The worker's side of calls whose results come one by one.
//!
//! - YIELDING-1: a call's items go out in the order yielded, before its reply.
//! - YIELDING-2: an item beyond what the owner wants ahead is waited with; one that the owner's process does not take
//!   is not piled up here without limit.

use crate::core::client::{Client, News};
use crate::core::execute::Ticket;
use crate::core::io::{Io, Token};
use oxiray_ids::{ObjectId, TaskId};
use oxiray_wire::message::{Call, StreamItem, StreamRead, Value};
use rustc_hash::FxHashMap;

/// Bytes of items that wait for the owner's process to read them, at most and on one stream.
const UNSENT_LIMIT: usize = 4 << 20;

#[derive(Debug)]
struct Yielding {
    from: Token,
    ahead: u32,
    read: u32,
    stopped: bool,
    announced: bool,
}

/// The calls that came here and yield their results.
#[derive(Debug, Default)]
pub(crate) struct Yieldings {
    open: FxHashMap<TaskId, Yielding>,
}

impl Yieldings {
    pub(crate) fn open(&mut self, from: Token, call: &Call) {
        if let Some(terms) = &call.stream {
            let begun = Yielding { from, ahead: terms.ahead, read: terms.read, stopped: false, announced: false };
            self.open.insert(call.task, begun);
        }
    }

    pub(crate) fn close(&mut self, task: TaskId) {
        if !self.open.is_empty() {
            self.open.remove(&task);
        }
    }

    /// Nobody is left to yield to.
    pub(crate) fn client_gone(&mut self, token: Token) {
        for yielding in self.open.values_mut().filter(|yielding| yielding.from == token) {
            yielding.stopped = true;
        }
    }

    /// Calls to stop or go on with, for those who asked to be told.
    fn take_announced(&mut self, task: TaskId) -> bool {
        self.open.get_mut(&task).is_some_and(|yielding| std::mem::take(&mut yielding.announced))
    }
}

/// What a generator does after it has yielded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// It goes on.
    On,
    /// It waits until more was read.
    Wait,
    /// It ends: nobody reads any more.
    Stop,
}

/// An item on its way.
#[derive(Debug)]
pub struct Yielded {
    /// Its number among the call's items, from 0.
    pub index: u32,
    /// The item.
    pub value: Value,
    /// References inside of it, each with one use that sending it gives up.
    pub handed: Vec<ObjectId>,
    /// Its id where it lies in the store, held by this process until the owner is.
    pub stored: Option<ObjectId>,
}

impl<I: Io> Client<I> {
    /// Asks for news of the call's first object when it may go on or has to end; `false` where that is so already.
    pub(crate) fn announce_reader(&mut self, task: TaskId, yielded: u32) -> bool {
        let waits = self.pace(task, yielded) == Pace::Wait;
        if let Some(yielding) = self.service.yieldings.open.get_mut(&task) {
            yielding.announced = waits;
        }
        waits
    }

    /// How a call that yielded so many items is to go on.
    pub fn pace(&self, task: TaskId, yielded: u32) -> Pace {
        let Some(yielding) = self.service.yieldings.open.get(&task) else { return Pace::Stop };
        let enough = yielding.ahead > 0 && yielded.saturating_sub(yielding.read) >= yielding.ahead;
        if yielding.stopped || self.service.inbox.interrupts.is_left_to_itself(task) {
            Pace::Stop
        } else if enough || self.io.unsent_bytes(yielding.from) > UNSENT_LIMIT {
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
        if let Some(owner) = self.owner_on(ticket.from()) {
            self.give(&handed, &owner);
            self.give(large, &owner);
        }
        self.give_up_written(large);
        let message = StreamItem { task: ticket.task(), index, value: Some(value) };
        if handed.is_empty() && large.is_empty() {
            self.io.send_soon(ticket.from(), &message);
        } else {
            // The owner's holds are counted already, so the owner must hear of them whatever happens here.
            self.io.send_now(ticket.from(), &message);
        }
        for id in handed {
            self.release(id);
        }
        self.pace(ticket.task(), index + 1)
    }

    pub(crate) fn items_read(&mut self, said: &StreamRead) {
        let task = said.task;
        if let Some(yielding) = self.service.yieldings.open.get_mut(&task) {
            yielding.read = yielding.read.max(said.read);
        }
        self.tell_generator(task);
    }

    pub(crate) fn stop_yielding(&mut self, task: TaskId) {
        if let Some(yielding) = self.service.yieldings.open.get_mut(&task) {
            yielding.stopped = true;
        }
        self.tell_generator(task);
    }

    fn tell_generator(&mut self, task: TaskId) {
        self.signals.changed = true;
        if self.service.yieldings.take_announced(task) {
            self.signals.news.push_back(News::Ready(task.object(1)));
        }
    }
}
