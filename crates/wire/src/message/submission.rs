//! Submitted jobs: programs that the head starts and looks after, so that nobody has to stay for them.

use super::Failure;
use bytes::Bytes;
use oxiray_fields::Fields;
use std::collections::BTreeMap;

/// command line, operator → head: submit, list, stop or delete jobs, or read what one printed. Answered by [`SubmissionAnswer`].
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct SubmissionAsked {
    /// Names the question.
    #[field(1)]
    pub request: u64,
    /// What is to be done.
    #[field(2)]
    pub action: SubmissionAction,
    /// Which job; empty for a new name, or to list all of them.
    #[field(3)]
    pub id: String,
    /// Submit: the job.
    #[field(4)]
    pub spec: Option<SubmissionSpec>,
    /// Read: from which byte on.
    #[field(5)]
    pub offset: u64,
}

/// What is done with submitted jobs. A question that does not say changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
pub enum SubmissionAction {
    /// Tell of it, or of all.
    List = 2,
    /// Start it, unless it was submitted before.
    Submit = 1,
    /// End it.
    Stop = 3,
    /// Tell what it printed.
    Read = 4,
    /// Forget it, which has ended.
    Delete = 5,
}

/// A job as it is submitted.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct SubmissionSpec {
    /// A line for the shell.
    #[field(1)]
    pub entrypoint: String,
    /// Its runtime environment, JSON; empty for none.
    #[field(2)]
    pub runtime_env: String,
    /// What its user notes of it.
    #[field(3)]
    pub metadata: BTreeMap<String, String>,
    /// What the entrypoint itself holds while it runs; nothing has it run on the head's machine.
    #[field(4)]
    pub resources: BTreeMap<String, f64>,
    /// What the labels of the node must be that the entrypoint runs on; nothing where any will do.
    #[field(5)]
    pub label_selector: BTreeMap<String, String>,
}

/// Where a submitted job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
pub enum SubmissionState {
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
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Stopped => "STOPPED",
        }
    }
}

/// A submitted job. In the head's journal, too.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct Submission {
    /// Its name.
    #[field(1)]
    pub id: String,
    /// What was submitted.
    #[field(2)]
    pub spec: Option<SubmissionSpec>,
    /// Where it stands.
    #[field(3)]
    pub state: SubmissionState,
    /// What there is to say of that, for people.
    #[field(4)]
    pub message: String,
    /// With which status its entrypoint ended; minus the signal's number where one killed it.
    #[field(5)]
    pub exit_code: Option<i32>,
    /// When it was submitted, in milliseconds since 1970.
    #[field(6)]
    pub submitted_ms: u64,
    /// When its entrypoint was started; 0 where it was not.
    #[field(7)]
    pub started_ms: u64,
    /// When it ended; 0 where it has not, or nobody knows when.
    #[field(8)]
    pub ended_ms: u64,
}

/// head → command line, operator: the answer to a [`SubmissionAsked`].
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct SubmissionAnswer {
    /// The question.
    #[field(1)]
    pub request: u64,
    /// The jobs, those submitted first at first.
    #[field(2)]
    pub jobs: Vec<Submission>,
    /// Read: what it printed from the offset on, as much of it as one answer holds.
    #[field(3)]
    pub printed: Bytes,
    /// Why it was not done.
    #[field(4)]
    pub failure: Option<Failure>,
}
