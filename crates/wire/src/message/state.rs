//! What runs and what ran: questions about it, and the processes' own records of their calls.

use super::{Amount, Failure};
use bytes::Bytes;

/// client or command line → daemon: list or count things of one kind. Answered by [`StateReport`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StateQuery {
    /// Names the question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// What is asked about: `actors`, `tasks`, `nodes` and so on.
    #[prost(string, tag = "2")]
    pub kind: String,
    /// All must hold.
    #[prost(message, repeated, tag = "3")]
    pub filters: Vec<StateFilter>,
    /// The most rows to return.
    #[prost(uint32, tag = "4")]
    pub limit: u32,
    /// Whether every column is wanted.
    #[prost(bool, tag = "5")]
    pub detail: bool,
    /// Whether counts are wanted instead of rows.
    #[prost(bool, tag = "6")]
    pub summary: bool,
}

/// A condition on one column.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StateFilter {
    /// The column.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Whether the value must differ.
    #[prost(bool, tag = "2")]
    pub differs: bool,
    /// What it is compared with, as text.
    #[prost(string, tag = "3")]
    pub value: String,
}

/// daemon → asker: the answer to a [`StateQuery`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StateReport {
    /// The question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// The rows, or the counts: JSON.
    #[prost(string, tag = "2")]
    pub rows: String,
    /// The columns of the rows, in the order in which they are shown.
    #[prost(string, repeated, tag = "3")]
    pub columns: Vec<String>,
    /// How many rows there are before the limit.
    #[prost(uint64, tag = "4")]
    pub total: u64,
    /// Why there is no answer.
    #[prost(message, optional, tag = "5")]
    pub failure: Option<Failure>,
    /// What is missing in the answer, and why; empty where it is whole.
    #[prost(string, tag = "6")]
    pub missing: String,
}

/// daemon → client: which calls are under way with you, and which ended lately? Answered by [`TaskLog`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TaskLogQuery {
    /// Names the question.
    #[prost(uint64, tag = "1")]
    pub number: u64,
}

/// client → daemon: calls that it runs, ran, or waits for.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TaskLog {
    /// The question; 0 for what a worker leaves behind unasked.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// The calls.
    #[prost(message, repeated, tag = "2")]
    pub records: Vec<TaskRecord>,
}

/// One attempt of a call.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TaskRecord {
    /// `TaskId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub task: Bytes,
    /// Which attempt, counted from 0.
    #[prost(uint32, tag = "2")]
    pub attempt: u32,
    /// The function's or method's name.
    #[prost(string, tag = "3")]
    pub name: String,
    /// How far it is.
    #[prost(enumeration = "TaskStage", tag = "4")]
    pub stage: i32,
    /// When it began to run, in microseconds since 1970; 0 where the sender does not run it.
    #[prost(uint64, tag = "5")]
    pub started_us: u64,
    /// When it ended, likewise.
    #[prost(uint64, tag = "6")]
    pub ended_us: u64,
    /// Why it failed: the code of a [`Failure`], or `raised` for an exception of its own code.
    #[prost(string, tag = "7")]
    pub error: String,
    /// What the failure says, cut short.
    #[prost(string, tag = "8")]
    pub text: String,
    /// What the call needs to run; nothing for an actor's method.
    #[prost(message, repeated, tag = "9")]
    pub resources: Vec<Amount>,
}

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
pub enum TaskStage {
    /// A stage that this build does not know.
    Unknown = 0,
    /// It waits for its arguments.
    WaitsForArguments = 1,
    /// It waits for a worker.
    WaitsForWorker = 2,
    /// It was sent to its worker.
    Sent = 3,
    /// Its code runs.
    Runs = 4,
    /// It returned.
    Finished = 5,
    /// It did not.
    Failed = 6,
}
