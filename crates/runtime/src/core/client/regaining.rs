//! Items of generators whose bytes are lost: the generator is run again, and yields them anew.
//!
//! - REGAIN-1: an item that is known and has no value when its call ends gets one: it is made again, or becomes the error
//!   that says why not. Nobody waits for it for ever.
//! - REGAIN-2: where an item is lost whose call still runs, and which may wait until that is read, the attempt is ended, and
//!   the next one yields the item anew. That uses a retry up.

use crate::core::calls::Target;
use crate::core::client::Client;
use crate::core::client::recover::unreconstructable;
use crate::core::io::Io;
use crate::core::lineage::Reason;
use crate::core::objects::{failed, is_error};
use crate::core::streams::item;
use oxiray_ids::{ObjectId, TaskId};
use oxiray_wire::message::{FailureCode, Reply, StreamStop, StreamTerms, Value};

/// What a call yielded that has come to its end.
pub(crate) struct Yielded {
    /// How many items.
    pub(crate) items: u32,
    /// What it ended with, where it did not end well.
    pub(crate) error: Option<Value>,
}

/// The error that a call ended with.
pub(crate) fn error_of(reply: &Reply) -> Option<Value> {
    reply.raised.clone().or_else(|| reply.results.first().filter(|value| is_error(value)).cloned())
}

impl<I: Io> Client<I> {
    /// How many items of a call this process has ever had; none where its results come all at once.
    pub(crate) fn items_of(&self, task: TaskId) -> u32 {
        let is_stream = self.calls.tasks.get(&task).is_some_and(|task| task.work.stream.is_some());
        if !is_stream {
            return 0;
        }
        self.lineage.items(task).or_else(|| self.streams.arrived(task)).unwrap_or(0)
    }

    /// What the worker is told of a call that is run for items that were lost: it yields all of them anew.
    pub(crate) fn terms_of_regaining(&self, task: TaskId) -> Option<StreamTerms> {
        let per_yield = self.calls.tasks.get(&task)?.work.stream?.per_yield;
        self.lineage.knows(task).then_some(StreamTerms { ahead: 0, per_yield, arrived: 0, read: 0 })
    }

    /// Counts the stored items of a call as users of its task specification; how many are new ones.
    pub(crate) fn take_item_task_specs_on(&mut self, task: TaskId, items: u32) -> u32 {
        let stored = (0..items).filter(|index| {
            let id = item(task, *index);
            self.objects.may_be_lost(id) && self.objects.take_task_spec_on(id)
        });
        stored.count() as u32
    }

    /// A call came back: what it should have yielded and is not there is looked after (REGAIN-1).
    pub(crate) fn make_missing_items(&mut self, task: TaskId, items: u32, yielded: &Yielded, is_repeated: bool) {
        for index in self.missing_items(task, items) {
            let id = item(task, index);
            if index < yielded.items || !is_repeated {
                self.make_again(id);
                continue;
            }
            let text = format!(
                "item {index} was lost, and its generator yielded only {} items when it was run again to make it: a \
                 generator that may be retried must yield the same each time. Make it so, or set max_retries=0",
                yielded.items
            );
            let failure = FailureCode::StreamReplay.because(text);
            self.resolve(id, yielded.error.clone().unwrap_or_else(|| failed(failure)), 0, 0);
        }
    }

    /// A call failed without a word of its own: so do its items that are not there.
    pub(crate) fn fail_missing_items(&mut self, task: TaskId, items: u32, value: &Value) {
        for index in self.missing_items(task, items) {
            self.resolve(item(task, index), value.clone(), 0, 0);
        }
    }

    /// The first item of a call that came and has no value any more: it is to be yielded anew.
    pub(crate) fn first_missing_item(&self, task: TaskId, items: u32) -> Option<u32> {
        self.missing_items(task, items).first().copied()
    }

    /// REGAIN-2.
    pub(crate) fn yield_again(&mut self, lost: ObjectId) {
        let id = lost.task();
        let Some(task) = self.calls.tasks.get(&id) else { return };
        // A call that no worker has is told of what is missing when one has; an actor's goes on for others.
        let is_task = matches!(task.target, Target::Class(_)) && task.work.stream.is_some();
        if !is_task || task.cancelled || task.yields_again || self.lineage.knows(id) {
            return;
        }
        let is_first = task.attempt == 0;
        let Some(token) = self.link_of(id) else { return };
        if !self.spend_retry(id) {
            let reason = if is_first { Reason::RetriesDisabled } else { Reason::AttemptsExceeded };
            return self.resolve(lost, unreconstructable(lost, reason), 0, 0);
        }
        if let Some(task) = self.calls.tasks.get_mut(&id) {
            task.yields_again = true;
        }
        self.io.send_now(token, &StreamStop { task: id });
    }

    /// An attempt that was told to stop came back: whether the call waits for another.
    pub(crate) fn goes_on_yielding(&mut self, id: TaskId, reply: &Reply) -> bool {
        let Some(task) = self.calls.tasks.get(&id).filter(|task| task.yields_again && !task.cancelled) else {
            return false;
        };
        let Target::Class(queue) = task.target else { return false };
        self.give_back_brought(id, reply);
        self.requeue(queue, id);
        true
    }

    fn missing_items(&self, task: TaskId, items: u32) -> Vec<u32> {
        let is_missing = |index: &u32| {
            let id = item(task, *index);
            self.objects.is_own(id) && !self.objects.is_ready(id)
        };
        (0..items).filter(is_missing).collect()
    }
}
