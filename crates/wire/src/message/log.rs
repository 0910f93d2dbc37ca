//! Files of logs, on whichever node they lie: listed, read in pieces, followed.

use super::Failure;
use bytes::Bytes;
use oxiray_fields::Fields;
use oxiray_ids::{ActorId, JobId, NodeId, TaskId, WorkerId};

/// command line → head, head → member: which files of logs there are on a node, or what is in one. Answered by
/// [`LogAnswer`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct LogQuery {
    /// Names the question.
    #[field(1)]
    pub request: u64,
    /// What is asked.
    #[field(2)]
    pub action: LogAction,
    /// On which node; the head's own where nothing is said.
    #[field(3)]
    pub node: Option<NodeId>,
    /// List: which files.
    #[field(4)]
    pub wanted: Option<LogSelector>,
    /// List: those whose names come after this one. Read and follow: the file's name, as a list tells it.
    #[field(5)]
    pub file: String,
    /// Read and follow: from which byte on, counted from the first that was ever written to it.
    #[field(6)]
    pub offset: u64,
    /// Read: up to which byte; to its end where nothing is said.
    #[field(7)]
    pub limit: Option<u64>,
    /// Read: only so many lines before the limit.
    #[field(8)]
    pub tail: Option<u64>,
    /// Watch: the mark of the list that the asker has, as [`LogAnswer::mark`] told it.
    #[field(9)]
    pub mark: u64,
}

/// What is asked about files of logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
pub enum LogAction {
    /// Which files there are.
    List = 1,
    /// What is in one.
    Read = 2,
    /// The same, once there is more of it, or never will be. Where a task and its attempt are wanted, only what that printed.
    Follow = 3,
    /// Which files there are, once that is not what the asker knows.
    Watch = 4,
}

/// Which files of logs are meant: those that fit all that is said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct LogSelector {
    /// A pattern of their names with `*`, `?` and `[…]`; empty for any.
    #[field(1)]
    pub glob: String,
    /// What workers printed for that job.
    #[field(2)]
    pub job: Option<JobId>,
    /// What the processes of that actor printed.
    #[field(3)]
    pub actor: Option<ActorId>,
    /// What printed that task.
    #[field(4)]
    pub task: Option<TaskId>,
    /// Which attempt of the task, counted from 0; all where nothing is said.
    #[field(5)]
    pub attempt: Option<u32>,
    /// What the worker with this process id printed.
    #[field(6)]
    pub pid: Option<u32>,
    /// What that worker printed.
    #[field(7)]
    pub worker: Option<WorkerId>,
    /// Standard error, or standard output; both where nothing is said.
    #[field(8)]
    pub error: Option<bool>,
    /// Only what was written to since then, in milliseconds since 1970.
    #[field(9)]
    pub since_ms: u64,
}

/// head → asker, member → head: the answer to a [`LogQuery`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct LogAnswer {
    /// The question.
    #[field(1)]
    pub request: u64,
    /// List: files by their names.
    #[field(2)]
    pub files: Vec<ListedLog>,
    /// List: there are further ones after the last.
    #[field(3)]
    pub more: bool,
    /// Read and follow: a piece of the file.
    #[field(4)]
    pub bytes: Bytes,
    /// Where the piece begins. What was asked for and lies before it is not kept any more.
    #[field(5)]
    pub offset: u64,
    /// Where the file ends at present.
    #[field(6)]
    pub end: u64,
    /// Nothing more will be written to it.
    #[field(7)]
    pub is_over: bool,
    /// Why there is no answer.
    #[field(8)]
    pub failure: Option<Failure>,
    /// List and watch: tells lists apart. It changes when a file or a part of one is begun, is over or is removed.
    #[field(9)]
    pub mark: u64,
}

/// A file of logs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ListedLog {
    /// Its name in the folder of the session's logs.
    #[field(1)]
    pub name: String,
    /// The worker that printed it; nothing for files of another kind.
    #[field(2)]
    pub worker: Option<WorkerId>,
    /// The job that it printed that for.
    #[field(3)]
    pub job: Option<JobId>,
    /// The actor that it is.
    #[field(4)]
    pub actor: Option<ActorId>,
    /// The task, class or actor that printed last.
    #[field(5)]
    pub label: String,
    /// The worker's process id.
    #[field(6)]
    pub pid: u32,
    /// Whether it is of standard error.
    #[field(7)]
    pub error: bool,
    /// When it was begun, in milliseconds since 1970.
    #[field(8)]
    pub began_ms: u64,
    /// When its process ended; nothing where it has not.
    #[field(9)]
    pub ended_ms: Option<u64>,
    /// The first byte of it that is kept, counted from the first that was ever written.
    #[field(10)]
    pub begin: u64,
    /// Where it ends.
    #[field(11)]
    pub end: u64,
    /// Where a task was asked for: its attempts' parts of it.
    #[field(12)]
    pub parts: Vec<LogPart>,
}

/// What one attempt of a task printed: a part of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct LogPart {
    /// The task.
    #[field(1)]
    pub task: TaskId,
    /// Which attempt.
    #[field(2)]
    pub attempt: u32,
    /// The first byte.
    #[field(3)]
    pub from: u64,
    /// The first byte that is not its any more; nothing while it runs.
    #[field(4)]
    pub to: Option<u64>,
    /// Others of the same process printed meanwhile: their lines are among these.
    #[field(5)]
    pub shared: bool,
}

/// member → head: so much that workers of a job printed was shown to nobody, as the head was away. It is in the member's files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct LogsUnshown {
    /// The job.
    #[field(1)]
    pub job: JobId,
    /// How many lines.
    #[field(2)]
    pub lines: u64,
    /// How many bytes they have.
    #[field(3)]
    pub bytes: u64,
}

/// member → head: the last that an attempt of a task printed which failed, for the head to keep ([`NodeAdmitted::keeps_logs`]).
///
/// [`NodeAdmitted::keeps_logs`]: super::NodeAdmitted::keeps_logs
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct FailedTaskLog {
    /// The task.
    #[field(1)]
    pub task: TaskId,
    /// Which attempt.
    #[field(2)]
    pub attempt: u32,
    /// Whether it is of standard error.
    #[field(3)]
    pub error: bool,
    /// Whether others of the same process printed meanwhile: their lines are among these.
    #[field(4)]
    pub shared: bool,
    /// What it printed last.
    #[field(5)]
    pub bytes: Bytes,
    /// How many bytes before that it printed.
    #[field(6)]
    pub cut: u64,
}
