//! Results that go one by one, as a worker sends them.

use crate::core::execute::Ticket;
use crate::core::streams::item;
use crate::core::yielding::{Pace, Yielded};
use crate::runtime::{Runtime, RuntimeError};
use oxiray_ids::{ObjectId, TaskId};

impl Runtime {
    /// The object of a call's item, by its number.
    pub fn item_id(task: TaskId, index: u32) -> ObjectId {
        item(task, index)
    }

    /// Sends an item of a call to its owner.
    pub fn yield_item(&self, ticket: &Ticket, yielded: Yielded) -> Pace {
        self.shared.with(|state| state.send_item(ticket, yielded))
    }

    /// Waits until a call that yielded so many items may go on ([`Pace::On`]) or has to end ([`Pace::Stop`]).
    pub fn await_reader(&self, task: TaskId, yielded: u32) -> Result<Pace, RuntimeError> {
        self.waiting((&[], false), None, |state| Some(state.pace(task, yielded)).filter(|pace| *pace != Pace::Wait))
    }

    /// Asks for [`ClientEvent::Ready`] of the call's first object when it may go on or has to end; `false` where that is
    /// so already.
    pub fn announce_reader(&self, task: TaskId, yielded: u32) -> bool {
        self.shared.with(|state| state.announce_reader(task, yielded))
    }

    /// How a call that yielded so many items is to go on.
    pub fn pace(&self, task: TaskId, yielded: u32) -> Pace {
        self.shared.with(|state| state.pace(task, yielded))
    }
}
