//! Looking and telling.

use crate::state::ClusterState;
use bytes::Bytes;
use oxiray_fields::Fields;
use oxiray_ids::JobId;

/// client or command line → daemon: how are things? Answered by [`ClusterReport`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ClusterQuery {
    /// Names the question.
    #[field(1)]
    pub request: u64,
}

/// daemon → asker.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct ClusterReport {
    /// The question.
    #[field(1)]
    pub request: u64,
    /// The version of the types that the answer is made of ([`STATE_VERSION`](crate::state::STATE_VERSION)).
    #[field(5)]
    pub version: u32,
    /// How things are.
    #[field(6)]
    pub state: Option<ClusterState>,
}

/// daemon → driver: what a worker printed, whole lines.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct LogLines {
    /// The worker's process id.
    #[field(1)]
    pub pid: u32,
    /// The task, class or actor that printed.
    #[field(2)]
    pub name: String,
    /// Whether it went to standard error.
    #[field(3)]
    pub error: bool,
    /// Lines, each with its newline; bytes as written.
    #[field(4)]
    pub lines: Bytes,
    /// The address of the worker's node; empty on its way to a driver that is there too.
    #[field(5)]
    pub ip: String,
}

/// daemon → driver: something its user should know, said once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Notice {
    /// The text.
    #[field(1)]
    pub text: String,
    /// member → head: `JobId` of the driver's job, who is told; empty where it is the head that is told.
    #[field(2)]
    pub job: Option<JobId>,
}
