//! The work itself: owner and worker, with no daemon between.

use super::{Reference, StreamTerms, Value};
use bytes::Bytes;
use oxiray_fields::Fields;
use oxiray_ids::{ObjectId, TaskId};

/// owner → worker: code that calls on this stream name by its hash. Sent once a stream, before its first use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Function {
    /// Content hash.
    #[field(1)]
    pub hash: Bytes,
    /// The serialized function.
    #[field(2)]
    pub body: Bytes,
}

/// An argument that was given as a reference: the value takes its place.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct ArgumentReference {
    /// Its place among the positional arguments, where `keyword` is empty.
    #[field(1)]
    pub position: u32,
    /// Its keyword.
    #[field(2)]
    pub keyword: String,
    /// Which object.
    #[field(3)]
    pub reference: Option<Reference>,
    /// Its value, where the owner has it.
    #[field(4)]
    pub value: Option<Value>,
    /// How often the owner of the call had found the value lost before it sent this one.
    #[field(5)]
    pub losses: u32,
}

/// owner → worker: run this. Calls of one stream start in the order sent.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct Call {
    /// `TaskId`; results are its objects 1, 2, ….
    #[field(1)]
    pub task: TaskId,
    /// Hash of the function; empty for an actor's method.
    #[field(2)]
    pub function: Bytes,
    /// The function's name in logs and errors, or the method to call.
    #[field(3)]
    pub name: String,
    /// Serialized positional and keyword arguments; empty for none.
    #[field(4)]
    pub arguments: Bytes,
    /// Arguments given as references.
    #[field(5)]
    pub references: Vec<ArgumentReference>,
    /// How many results.
    #[field(6)]
    pub results: u32,
    /// After how many calls of this function the worker exits; 0 for never.
    #[field(7)]
    pub max_calls: u32,
    /// Which errors are retried, as the worker reads it: pickled for Python, and any bytes for Rust; empty for none.
    #[field(8)]
    pub retry_exceptions: Bytes,
    /// Which attempt this is, counted from 0.
    #[field(9)]
    pub attempt: u32,
    /// The actor's concurrency group in which it runs; empty for the default one.
    #[field(10)]
    pub group: String,
    /// How often an actor's method that raises what is to be retried is run again, here; negative for always.
    #[field(11)]
    pub retries: i32,
    /// What the call is named in logs, errors and its own context; empty for the method's name.
    #[field(12)]
    pub label: String,
    /// Set for a call whose results come one by one.
    #[field(14)]
    pub stream: Option<StreamTerms>,
    /// Who called, and when.
    #[field(15)]
    pub origin: Option<CallOrigin>,
}

/// Who called, and how long it took until the call was sent to who runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Fields)]
pub struct CallOrigin {
    /// The task that called; nothing for a driver.
    #[field(1)]
    pub parent: Option<TaskId>,
    /// When it called, in microseconds since 1970.
    #[field(2)]
    pub called_us: u64,
    /// How many microseconds later the call's arguments were there; nothing where they are not yet.
    #[field(3)]
    pub ready_after_us: Option<u64>,
    /// How many microseconds after that it was sent; nothing where it is not yet.
    #[field(4)]
    pub sent_after_us: Option<u64>,
}

impl CallOrigin {
    /// The same of a call that is sent at this time, in microseconds since 1970.
    #[must_use]
    pub fn sent_at(self, now_us: u64) -> Self {
        let ready_us = self.called_us.saturating_add(self.ready_after_us.unwrap_or(0));
        Self { sent_after_us: Some(now_us.saturating_sub(ready_us)), ..self }
    }
}

/// worker → owner: a call is done.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct Reply {
    /// `TaskId`.
    #[field(1)]
    pub task: TaskId,
    /// Its results, in order.
    #[field(2)]
    pub results: Vec<Value>,
    /// `ObjectId`s of references from the arguments that the worker still has; the owner registers its hold.
    #[field(3)]
    pub kept: Vec<ObjectId>,
    /// Whether the worker exits now.
    #[field(4)]
    pub retiring: bool,
    /// How long the call ran.
    #[field(5)]
    pub run_us: u32,
    /// Whether the call raised something that the owner asked to retry.
    #[field(6)]
    pub retry: bool,
    /// For a stream: how many items it had, those of earlier attempts included.
    #[field(7)]
    pub items: u32,
    /// For a stream: what ended it early, which becomes its last item. For a call without results here: the error that
    /// each of them is.
    #[field(8)]
    pub raised: Option<Value>,
}

/// worker → owner: these were not started and will not be; another worker may take them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Returned {
    /// `TaskId`s.
    #[field(1)]
    pub tasks: Vec<TaskId>,
    /// Arguments of theirs whose stored bytes are lost, where that is why.
    #[field(2)]
    pub lost: Vec<LostArgument>,
}

/// An argument whose stored bytes a worker found lost.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct LostArgument {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
    /// As [`ArgumentReference::losses`].
    #[field(2)]
    pub losses: u32,
}

/// owner → worker, with a memory file: the rest of the stream may go through it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct RingOffered {}

/// Either to the other: this was the last frame on the socket; all others are in the memory that was offered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct RingTaken {}
