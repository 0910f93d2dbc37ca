//! Results that come one by one, as the language front reads them.

use crate::core::client::reading::Next;
use crate::core::streams::item;
use crate::runtime::{Runtime, RuntimeError};
use oxiray_ids::{ObjectId, TaskId};
use std::time::Instant;

impl Runtime {
    /// The next item of a call, where there is something to say without waiting.
    pub fn try_next(&self, task: TaskId) -> Option<Next> {
        self.shared.with(|state| state.take_item(task))
    }

    /// Waits for the next item of a call.
    pub fn next_item(&self, task: TaskId, deadline: Option<Instant>) -> Result<Next, RuntimeError> {
        self.waiting((&[], false), deadline, |state| state.take_item(task))
    }

    /// Whether [`Runtime::try_next`] has something to say.
    pub fn is_next_ready(&self, task: TaskId) -> bool {
        self.shared.with(|state| {
            state.streams.touch(task);
            state.streams.is_ready(task)
        })
    }

    /// Whether everything of a call was read, and it has ended.
    pub fn is_stream_over(&self, task: TaskId) -> bool {
        self.shared.with(|state| state.streams.is_over(task))
    }

    /// The object that the next item of a call is.
    pub fn next_item_id(&self, task: TaskId) -> ObjectId {
        self.shared.with(|state| item(task, state.streams.next_index(task)))
    }

    /// Asks for [`ClientEvent::Ready`] of the next item's object when it is there or the call has ended; `false` where
    /// that is so already.
    pub fn announce_item(&self, task: TaskId) -> bool {
        self.shared.with(|state| state.streams.announce(task))
    }

    /// References to the items of a call that are read next, each with one use for the caller, whether they are there or
    /// not. One that does not come becomes an error that says so.
    pub fn look_ahead(&self, task: TaskId, count: u32) -> Vec<ObjectId> {
        self.shared.with(|state| state.look_ahead(task, count))
    }

    /// Reads so many items of a call to which [`Runtime::look_ahead`] gave references; `false` where one of them may still
    /// come, and then none is read.
    pub fn pass_over(&self, task: TaskId, count: u32) -> bool {
        self.shared.with_time(|state| state.pass_over(task, count))
    }

    /// Whoever read a call's items is gone.
    pub fn leave_stream(&self, task: TaskId) {
        self.shared.with_time(|state| state.leave_stream(task));
    }
}
