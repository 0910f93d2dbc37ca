//! Submitted jobs: programs that the head starts and looks after, so that nobody has to stay for them.

use super::Failure;
use bytes::Bytes;
use std::collections::BTreeMap;

/// command line, operator → head: submit, list or stop jobs, or read what one printed. Answered by [`SubmissionTold`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct SubmissionAsked {
    /// Names the question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// What is to be done.
    #[prost(enumeration = "SubmissionAction", tag = "2")]
    pub action: i32,
    /// Which job; empty for a new name, or to list all of them.
    #[prost(string, tag = "3")]
    pub id: String,
    /// Submit: the job.
    #[prost(message, optional, tag = "4")]
    pub spec: Option<SubmissionSpec>,
    /// Read: from which byte on.
    #[prost(uint64, tag = "5")]
    pub offset: u64,
}

/// What is done with submitted jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
pub enum SubmissionAction {
    /// Nothing: what a peer says that knows more actions than this one.
    Unknown = 0,
    /// Start it, unless it was submitted before.
    Submit = 1,
    /// Tell of it, or of all.
    List = 2,
    /// End it.
    Stop = 3,
    /// Tell what it printed.
    Read = 4,
}

/// A job as it is submitted.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SubmissionSpec {
    /// A line for the shell.
    #[prost(string, tag = "1")]
    pub entrypoint: String,
    /// Its runtime environment, JSON; empty for none.
    #[prost(string, tag = "2")]
    pub runtime_env: String,
    /// What its user notes of it.
    #[prost(btree_map = "string, string", tag = "3")]
    pub metadata: BTreeMap<String, String>,
    /// What the entrypoint itself holds while it runs; nothing has it run on the head's machine.
    #[prost(btree_map = "string, double", tag = "4")]
    pub resources: BTreeMap<String, f64>,
}

/// Where a submitted job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
pub enum SubmissionState {
    /// What a peer says that knows more states than this one.
    Unknown = 0,
    /// Its environment is made, or what it asks for is not free.
    Pending = 1,
    /// Its entrypoint runs.
    Running = 2,
    /// Its entrypoint ended with status 0.
    Succeeded = 3,
    /// It ended otherwise, or was never begun.
    Failed = 4,
    /// It was ended on request.
    Stopped = 5,
}

impl SubmissionState {
    /// Whether nothing more becomes of it.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Stopped)
    }

    /// Its name, as Ray spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Stopped => "STOPPED",
        }
    }
}

/// A submitted job. In the head's journal, too.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Submission {
    /// Its name.
    #[prost(string, tag = "1")]
    pub id: String,
    /// What was submitted.
    #[prost(message, optional, tag = "2")]
    pub spec: Option<SubmissionSpec>,
    /// Where it stands.
    #[prost(enumeration = "SubmissionState", tag = "3")]
    pub state: i32,
    /// What there is to say of that, for people.
    #[prost(string, tag = "4")]
    pub message: String,
    /// With which status its entrypoint ended; minus the signal's number where one killed it.
    #[prost(int32, optional, tag = "5")]
    pub exit_code: Option<i32>,
    /// When it was submitted, in milliseconds since 1970.
    #[prost(uint64, tag = "6")]
    pub submitted_ms: u64,
    /// When its entrypoint was started; 0 where it was not.
    #[prost(uint64, tag = "7")]
    pub started_ms: u64,
    /// When it ended; 0 where it has not, or nobody knows when.
    #[prost(uint64, tag = "8")]
    pub ended_ms: u64,
}

/// head → command line, operator: the answer to a [`SubmissionAsked`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct SubmissionTold {
    /// The question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// The jobs, those submitted first at first.
    #[prost(message, repeated, tag = "2")]
    pub jobs: Vec<Submission>,
    /// Read: what it printed from the offset on, as much of it as one answer holds.
    #[prost(bytes = "bytes", tag = "3")]
    pub printed: Bytes,
    /// Why it was not done.
    #[prost(message, optional, tag = "4")]
    pub failure: Option<Failure>,
}
