//! Calls whose results come one by one, as the worker that yields them sees them.

use crate::core::io::Token;
use oxiray_ids::{ObjectId, TaskId};
use oxiray_wire::message::{Call, Value};
use rustc_hash::FxHashMap;

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

    /// Whether a call asked to be told when it may go on or has to end; it is told now.
    pub(crate) fn take_announced(&mut self, task: TaskId) -> bool {
        self.open.get_mut(&task).is_some_and(|yielding| std::mem::take(&mut yielding.announced))
    }

    /// Whether a call is to be told when it may go on or has to end.
    pub(crate) fn announce(&mut self, task: TaskId, is_to_be_told: bool) {
        if let Some(yielding) = self.open.get_mut(&task) {
            yielding.announced = is_to_be_told;
        }
    }

    /// Whether a call that yielded so many items waits until more was read (YIELDING-2), and on which stream they go; nothing
    /// where it is to end.
    pub(crate) fn waits(&self, task: TaskId, yielded: u32) -> Option<(bool, Token)> {
        let yielding = self.open.get(&task).filter(|yielding| !yielding.stopped)?;
        let enough = yielding.ahead > 0 && yielded.saturating_sub(yielding.read) >= yielding.ahead;
        Some((enough, yielding.from))
    }

    /// The owner has read so many items.
    pub(crate) fn read(&mut self, task: TaskId, count: u32) {
        if let Some(yielding) = self.open.get_mut(&task) {
            yielding.read = yielding.read.max(count);
        }
    }

    /// Nobody reads the call's items any more.
    pub(crate) fn stop(&mut self, task: TaskId) {
        if let Some(yielding) = self.open.get_mut(&task) {
            yielding.stopped = true;
        }
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
