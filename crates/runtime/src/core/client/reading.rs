//! The owner's side of calls whose results come one by one: what arrives, what is read, and the end.
//!
//! How much is there is counted in `streams.rs`; the items are objects of this process like any others.

use crate::core::calls::Target;
use crate::core::client::Client;
use crate::core::io::{Io, Token};
use crate::core::objects::{failed, is_error};
use crate::core::signals::ClientEvent;
use crate::core::streams::{Ahead, Found, item};
use oxiray_ids::{ObjectId, TaskId};
use oxiray_wire::message::{
    Content, Failure, FailureCode, Reply, StreamItem, StreamRead, StreamStop, StreamTerms, Value,
};

/// Something to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Waitable {
    /// The object's value.
    Object(ObjectId),
    /// The next item of a call, or its end.
    Item(TaskId),
}

impl Waitable {
    /// The object, where it is one.
    pub fn object(&self) -> Option<ObjectId> {
        match self {
            Self::Object(id) => Some(*id),
            Self::Item(_) => None,
        }
    }
}

/// What there is to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The next item, with one use for the caller.
    Item(ObjectId),
    /// Everything was read, and nothing more comes.
    End,
}

/// What a reference to an item is that its generator did not yield.
fn past_the_end(index: u32) -> Value {
    let text = format!("the generator ended before it yielded item {index}: there are no more items to read");
    failed(FailureCode::StreamEnd.because(text))
}

impl<I: Io> Client<I> {
    /// What the worker is told about a call's stream.
    pub(crate) fn stream_terms(&self, task: TaskId) -> Option<StreamTerms> {
        let terms = self.calls.tasks.get(&task)?.work.stream?;
        if let Some(terms) = self.terms_of_regaining(task) {
            return Some(terms);
        }
        let arrived = self.streams.arrived(task)?;
        let sent_from = self.first_missing_item(task, arrived).unwrap_or(arrived);
        // What nobody reads holds nobody up.
        let (ahead, read) = self.streams.read(task).map_or((0, arrived), |read| (terms.ahead, read));
        Some(StreamTerms { ahead, per_yield: terms.per_yield, arrived: sent_from, read })
    }

    pub(crate) fn item_arrived(&mut self, from: Token, said: StreamItem) {
        if let (task, Some(value)) = (said.task, said.value) {
            let holds = u32::from(matches!(value.content, Some(Content::Stored(_))));
            self.confirm_item(item(task, said.index), &value, from);
            self.keep_item(task, said.index, Some(from), value, holds, 1);
        }
    }

    fn keep_item(&mut self, task: TaskId, index: u32, from: Option<Token>, value: Value, holds: u32, inner_holds: u32) {
        if self.streams.accept(task, index, from) {
            self.objects.expect(item(task, index));
        }
        // An item that is not kept gives back what it holds.
        self.resolve(item(task, index), value, holds, inner_holds);
        self.tell_reader(task);
    }

    fn tell_reader(&mut self, task: TaskId) {
        if let Some(next) = self.streams.take_announcement(task) {
            self.signals.news.push_back(ClientEvent::Ready(item(task, next)));
            self.signals.changed = true;
        }
    }

    /// The call came back, for good.
    pub(crate) fn stream_replied(&mut self, task: TaskId, reply: &mut Reply) {
        let Some(arrived) = self.streams.arrived(task) else { return };
        let refused = reply.results.first().filter(|value| is_error(value));
        let value = reply.raised.take().or_else(|| refused.cloned());
        if reply.items < arrived && value.is_none() {
            let text = format!(
                "a generator was run again after its worker died, and yielded {} items where {arrived} had arrived \
                 before: a generator that may be retried must yield the same each time. Make it so, or set max_retries=0",
                reply.items
            );
            let failure = FailureCode::StreamReplay.because(text);
            self.keep_item(task, arrived, None, failed(failure), 0, 0);
        } else if let Some(value) = value {
            self.keep_item(task, arrived, None, value, 0, 1);
        }
        self.end_stream(task, None);
    }

    /// The call failed without a word of its own.
    pub(crate) fn stream_failed(&mut self, task: TaskId, value: &Value) {
        if let Some(arrived) = self.streams.arrived(task) {
            self.keep_item(task, arrived, None, value.clone(), 0, 0);
            self.end_stream(task, Some(value));
        }
    }

    /// The stream has ended, with that failure where the call did not end by itself.
    fn end_stream(&mut self, task: TaskId, failed: Option<&Value>) {
        for index in self.streams.end(task) {
            let value = failed.cloned().unwrap_or_else(|| past_the_end(index));
            self.resolve(item(task, index), value, 0, 0);
        }
        self.tell_reader(task);
        self.signals.changed = true;
    }

    pub(crate) fn fail_streams(&mut self, failure: &Failure) {
        for (task, arrived) in self.streams.unfinished() {
            let value = failed(failure.clone());
            self.keep_item(task, arrived, None, value.clone(), 0, 0);
            self.end_stream(task, Some(&value));
        }
    }

    /// The next item of a call, where there is something to say.
    pub fn take_item(&mut self, task: TaskId) -> Option<Next> {
        match self.streams.next(task) {
            Found::Item(index, told) => {
                if let Some((from, read)) = told {
                    self.io.send(from, &StreamRead { task, read });
                }
                Some(Next::Item(item(task, index)))
            }
            Found::End => Some(Next::End),
            Found::NotYet => None,
        }
    }

    /// References to the items that are read next, each with one use for the caller, whether they are there or not
    /// (STREAMS-5). One that does not come becomes an error that says so: that of the call, where the runtime ended it.
    pub fn look_ahead(&mut self, task: TaskId, count: u32) -> Vec<ObjectId> {
        let ended_by =
            self.objects.value(task.object(1)).filter(|value| matches!(value.content, Some(Content::Failed(_))));
        let ended_by = ended_by.cloned();
        let ahead = self.streams.look_ahead(task, count);
        let refer = |(index, place)| {
            let id = item(task, index);
            match place {
                Ahead::Here => self.objects.retain(id),
                Ahead::Coming => self.objects.expect(id),
                Ahead::Never => {
                    self.objects.expect(id);
                    self.resolve(id, ended_by.clone().unwrap_or_else(|| past_the_end(index)), 0, 0);
                }
            }
            id
        };
        ahead.into_iter().map(refer).collect()
    }

    /// Reads so many items that somebody has references to; `false` where one of them may still come.
    pub fn pass_over(&mut self, task: TaskId, count: u32) -> bool {
        if !self.streams.are_settled(task, count) {
            return false;
        }
        for _ in 0..count {
            let Some(Next::Item(id)) = self.take_item(task) else { break };
            self.release(id);
        }
        true
    }

    /// The reader is gone. The call is stopped where it was being read and nobody waits for its end: one whose items
    /// nobody ever asked for is run for what it does, like any call whose result is dropped.
    pub fn leave_stream(&mut self, task: TaskId) {
        let Some(left) = self.streams.leave(task) else { return };
        for index in left.unread {
            self.release(item(task, index));
        }
        if left.in_the_middle && self.objects.is_last_use(task.object(1)) {
            self.stop_stream(task);
            return;
        }
        // A worker that waits for a reader would wait for ever.
        if let Some(token) = self.link_of(task) {
            self.io.send(token, &StreamRead { task, read: u32::MAX });
        }
    }

    fn stop_stream(&mut self, id: TaskId) {
        let Some(token) = self.link_of(id) else {
            self.cancel_task(id, false, false);
            return;
        };
        if let Some(task) = self.calls.tasks.get_mut(&id) {
            task.cancelled = true;
        }
        self.io.send_now(token, &StreamStop { task: id });
    }

    /// The stream to the worker that has the call, where it is under way.
    pub(crate) fn link_of(&self, id: TaskId) -> Option<Token> {
        let task = self.calls.tasks.get(&id)?;
        match task.target {
            Target::Actor(actor) => self.actors.link_of(actor).filter(|_| task.sent > 0),
            Target::Class(queue) => self.lease_of(queue, id),
        }
    }

    /// The user hears that this is there.
    pub(crate) fn heard_of(&mut self, waitable: Waitable) {
        match waitable {
            Waitable::Object(id) => {
                self.objects.look_at(id);
            }
            Waitable::Item(task) => self.streams.touch(task),
        }
    }

    pub(crate) fn is_there(&self, waitable: Waitable) -> bool {
        match waitable {
            Waitable::Object(id) => self.objects.is_ready(id),
            Waitable::Item(task) => self.streams.is_ready(task),
        }
    }
}
