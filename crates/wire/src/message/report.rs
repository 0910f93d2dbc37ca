//! Looking and telling.

use super::Amount;
use bytes::Bytes;

/// client or command line → daemon: how are things? Answered by [`ClusterReport`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ClusterQuery {
    /// Names the question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
}

/// daemon → asker.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClusterReport {
    /// The question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// What the cluster offers in whole.
    #[prost(message, repeated, tag = "2")]
    pub totals: Vec<Amount>,
    /// What is free now; nothing is listed at zero.
    #[prost(message, repeated, tag = "3")]
    pub available: Vec<Amount>,
    /// Nodes, holders of devices, what waits and why: JSON, for people and for `nodes()`.
    #[prost(string, tag = "4")]
    pub detail: String,
}

/// daemon → driver: what a worker printed, whole lines.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LogLines {
    /// The worker's process id.
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    /// The task, class or actor that printed.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Whether it went to standard error.
    #[prost(bool, tag = "3")]
    pub error: bool,
    /// Lines, each with its newline; bytes as written.
    #[prost(bytes = "bytes", tag = "4")]
    pub lines: Bytes,
}

/// daemon → driver: something its user should know, said once.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Notice {
    /// The text.
    #[prost(string, tag = "1")]
    pub text: String,
    /// member → head: `JobId` of the driver's job, who is told; empty where it is the head that is told.
    #[prost(bytes = "bytes", tag = "2")]
    pub job: Bytes,
}
