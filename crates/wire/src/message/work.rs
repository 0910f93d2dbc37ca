//! The work itself: owner and worker, with no daemon between.

use super::{Reference, StreamTerms, Value};
use bytes::Bytes;

/// owner → worker: code that calls on this stream name by its hash. Sent once a stream, before its first use.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Function {
    /// Content hash.
    #[prost(bytes = "bytes", tag = "1")]
    pub hash: Bytes,
    /// The serialized function.
    #[prost(bytes = "bytes", tag = "2")]
    pub body: Bytes,
}

/// An argument that was given as a reference: the value takes its place.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ArgumentReference {
    /// Its place among the positional arguments, where `keyword` is empty.
    #[prost(uint32, tag = "1")]
    pub position: u32,
    /// Its keyword.
    #[prost(string, tag = "2")]
    pub keyword: String,
    /// Which object.
    #[prost(message, optional, tag = "3")]
    pub reference: Option<Reference>,
    /// Its value, where the owner has it.
    #[prost(message, optional, tag = "4")]
    pub value: Option<Value>,
}

/// owner → worker: run this. Calls of one stream start in the order sent.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Call {
    /// `TaskId`; results are its objects 1, 2, ….
    #[prost(bytes = "bytes", tag = "1")]
    pub task: Bytes,
    /// Hash of the function; empty for an actor's method.
    #[prost(bytes = "bytes", tag = "2")]
    pub function: Bytes,
    /// The function's name in logs and errors, or the method to call.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Serialized positional and keyword arguments; empty for none.
    #[prost(bytes = "bytes", tag = "4")]
    pub arguments: Bytes,
    /// Arguments given as references.
    #[prost(message, repeated, tag = "5")]
    pub references: Vec<ArgumentReference>,
    /// How many results.
    #[prost(uint32, tag = "6")]
    pub results: u32,
    /// After how many calls of this function the worker exits; 0 for never.
    #[prost(uint32, tag = "7")]
    pub max_calls: u32,
    /// Which errors are retried, as the worker reads it: pickled for Python, and any bytes for Rust; empty for none.
    #[prost(bytes = "bytes", tag = "8")]
    pub retry_exceptions: Bytes,
    /// Which attempt this is, counted from 0.
    #[prost(uint32, tag = "9")]
    pub attempt: u32,
    /// The actor's concurrency group in which it runs; empty for the default one.
    #[prost(string, tag = "10")]
    pub group: String,
    /// How often an actor's method that raises what is to be retried is run again, here; negative for always.
    #[prost(int32, tag = "11")]
    pub retries: i32,
    /// What the call is named in logs, errors and its own context; empty for the method's name.
    #[prost(string, tag = "12")]
    pub label: String,
    /// Set for a call whose results come one by one.
    #[prost(message, optional, tag = "14")]
    pub stream: Option<StreamTerms>,
}

/// worker → owner: a call is done.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Reply {
    /// `TaskId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub task: Bytes,
    /// Its results, in order.
    #[prost(message, repeated, tag = "2")]
    pub results: Vec<Value>,
    /// References from the arguments that the worker still has; the owner registers its hold.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub kept: Vec<Bytes>,
    /// Whether the worker exits now.
    #[prost(bool, tag = "4")]
    pub retiring: bool,
    /// How long the call ran.
    #[prost(uint32, tag = "5")]
    pub run_us: u32,
    /// Whether the call raised something that the owner asked to retry.
    #[prost(bool, tag = "6")]
    pub retry: bool,
    /// For a stream: how many items it had, those of earlier attempts included.
    #[prost(uint32, tag = "7")]
    pub items: u32,
    /// For a stream: what ended it early, which becomes its last item. For a call without results here: the error that
    /// each of them is.
    #[prost(message, optional, tag = "8")]
    pub raised: Option<Value>,
}

/// worker → owner: these were not started and will not be; another worker may take them.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Returned {
    /// `TaskId`s.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub tasks: Vec<Bytes>,
}

/// owner → worker, with a memory file: the rest of the stream may go through it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RingOffered {}

/// Either to the other: this was the last frame on the socket; all others are in the memory that was offered.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RingTaken {}
