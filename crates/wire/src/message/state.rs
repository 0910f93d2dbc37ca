//! What runs and what ran: questions about it, and the processes' own records of their calls.

use super::{Amount, CallError, CallOrigin, Failure, Profile};
use crate::state::{DeviceTold, DrainTold, EndTold, Explanation, GoneRow, StateKind, Summary, Tables};
use oxiray_fields::Fields;
use oxiray_ids::{ActorId, LeaseNumber, LeaseRequestNumber, PlacementGroupId, TaskId, WorkerId};

/// client or command line → daemon: list or count things of one kind. Answered by [`StateReport`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct StateQuery {
    /// Names the question.
    #[field(1)]
    pub request: u64,
    /// What is asked about.
    #[field(7)]
    pub kind: StateKind,
    /// All must hold.
    #[field(3)]
    pub filters: Vec<StateFilter>,
    /// The most rows to return.
    #[field(4)]
    pub limit: u32,
    /// Whether every column is wanted.
    #[field(5)]
    pub detail: bool,
    /// Whether counts are wanted instead of rows.
    #[field(6)]
    pub summary: bool,
    /// Of stacks: how the processes are profiled; left out for where they are now.
    #[field(8)]
    pub profile: Option<Profile>,
    /// With a summary of tasks, and no filters: whether attempts are also counted by job, name and state, those that ended and
    /// that nobody lists any more among them.
    #[field(9)]
    pub by_job: bool,
}

/// A condition on one column.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct StateFilter {
    /// The column.
    #[field(1)]
    pub key: String,
    /// Whether the value must differ.
    #[field(2)]
    pub differs: bool,
    /// What it is compared with, as text.
    #[field(3)]
    pub value: String,
}

/// daemon → asker: the answer to a [`StateQuery`], a [`DrainAsked`](super::DrainAsked), a [`DeviceAsked`](super::DeviceAsked) or an
/// [`EndAsked`](super::EndAsked).
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct StateReport {
    /// The question.
    #[field(1)]
    pub request: u64,
    /// How many rows there are before the limit.
    #[field(4)]
    pub total: u64,
    /// Why there is no answer.
    #[field(5)]
    pub failure: Option<Failure>,
    /// What is missing in the answer, and why; empty where it is whole.
    #[field(6)]
    pub missing: String,
    /// The version of the types that the answer is made of ([`STATE_VERSION`](crate::state::STATE_VERSION)).
    #[field(7)]
    pub version: u32,
    /// The rows, all of the kind that was asked about.
    #[field(8)]
    pub tables: Option<Tables>,
    /// The counts, where those were asked for.
    #[field(9)]
    pub summary: Option<Summary>,
    /// Why what was asked about waits.
    #[field(10)]
    pub explanation: Option<Explanation>,
    /// What came of an order to empty a node.
    #[field(11)]
    pub drained: Option<DrainTold>,
    /// What was ordered of a device.
    #[field(12)]
    pub device: Option<DeviceTold>,
    /// Who was told of an order to kill an actor or to cancel a task.
    #[field(13)]
    pub ended: Option<EndTold>,
    /// What was ordered of each of several devices.
    #[field(14)]
    pub devices: Vec<DeviceTold>,
}

/// visitor → head: what changed in these lists since the cursor? Answered by one [`StateChanges`], when something did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct StateFollow {
    /// Names the question. It takes the place of the visitor's last one.
    #[field(1)]
    pub request: u64,
    /// The lists.
    #[field(2)]
    pub kinds: Vec<StateKind>,
    /// Where the last answer ended; nothing at first.
    #[field(3)]
    pub cursor: Option<StateCursor>,
}

/// Up to where a follower knows changes. It is the head's to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Fields)]
pub struct StateCursor {
    /// Tells the revisions of one head from those of another.
    #[field(1)]
    pub origin: u64,
    /// The revision that there was when the follower began.
    #[field(2)]
    pub begun: u64,
    /// The last revision that it was told.
    #[field(3)]
    pub revision: u64,
}

/// head → visitor: rows that are new or changed since the cursor of a [`StateFollow`], and those that are gone.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct StateChanges {
    /// The question.
    #[field(1)]
    pub request: u64,
    /// The version of the rows' types ([`STATE_VERSION`](crate::state::STATE_VERSION)).
    #[field(2)]
    pub version: u32,
    /// Where the answer ends.
    #[field(3)]
    pub cursor: Option<StateCursor>,
    /// Whether what the follower has is not to be followed from: it is to be forgotten first.
    #[field(4)]
    pub is_fresh: bool,
    /// Whether there is more already.
    #[field(5)]
    pub has_more: bool,
    /// The rows that are new or changed.
    #[field(6)]
    pub tables: Option<Tables>,
    /// Those that are gone.
    #[field(7)]
    pub gone: Vec<GoneRow>,
    /// Why there is no answer.
    #[field(8)]
    pub failure: Option<Failure>,
}

/// daemon → client: which calls are under way with you, and which ended lately? Answered by [`TaskLog`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct TaskLogQuery {
    /// Names the question.
    #[field(1)]
    pub number: u64,
}

/// head → client: what do you wait for? Answered by [`WaitsReport`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct WaitsQuery {
    /// Names the question.
    #[field(1)]
    pub number: u64,
}

/// client → head: what its task or program waits for, where it cannot go on before all of that is there: calls that it made,
/// and placement groups. Nothing where its wait ends with a deadline, is for some of many, or is one of several.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct WaitsReport {
    /// The question.
    #[field(1)]
    pub number: u64,
    /// Of calls that have no worker yet: a request for one, for all calls that need the same.
    #[field(2)]
    pub requests: Vec<LeaseRequestNumber>,
    /// The leases on whose workers others run.
    #[field(3)]
    pub leases: Vec<LeaseNumber>,
    /// The actors that have others: an `ActorId` each.
    #[field(4)]
    pub actors: Vec<ActorId>,
    /// The placement groups that are not there yet: a `PlacementGroupId` each.
    #[field(5)]
    pub groups: Vec<PlacementGroupId>,
    /// Those of them that this process made and told nobody of.
    #[field(6)]
    pub private_groups: Vec<PlacementGroupId>,
    /// Every actor with a call of this process's that is not answered, or whose end it asked for.
    #[field(7)]
    pub called: Vec<ActorId>,
    /// Nothing else in the process goes on by itself: no other thread runs the user's code, and no alarm is set.
    #[field(8)]
    pub is_alone: bool,
    /// It runs nothing and waits for calls.
    #[field(9)]
    pub rests: bool,
}

/// client → daemon: calls that it runs, ran, or waits for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct TaskLog {
    /// The question; 0 for what a worker leaves behind unasked.
    #[field(1)]
    pub number: u64,
    /// The calls.
    #[field(2)]
    pub records: Vec<TaskRecord>,
    /// The runtime environment of the process that tells, as JSON; empty for none.
    #[field(3)]
    pub environment: String,
    /// How many attempts ended since this was told last. Only what is told unasked has it.
    #[field(4)]
    pub ended: Vec<EndedCalls>,
    /// Whether a call runs here of which an attempt was made before. Only what is told unasked has it.
    #[field(5)]
    pub runs_retry: bool,
}

/// Attempts that ended alike.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct EndedCalls {
    /// What the calls are called in lists; empty for all that are of no name of their own here.
    #[field(1)]
    pub name: String,
    /// Whether an attempt of each was made before.
    #[field(2)]
    pub is_retry: bool,
    /// Whether they failed.
    #[field(3)]
    pub has_failed: bool,
    /// How many.
    #[field(4)]
    pub count: u64,
}

/// One attempt of a call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct TaskRecord {
    /// `TaskId`.
    #[field(1)]
    pub task: TaskId,
    /// Which attempt, counted from 0.
    #[field(2)]
    pub attempt: u32,
    /// The function's or method's name.
    #[field(3)]
    pub name: String,
    /// How far it is.
    #[field(4)]
    pub stage: TaskStage,
    /// When it began to run, in microseconds since 1970; 0 where the sender does not run it.
    #[field(5)]
    pub started_us: u64,
    /// When it ended, likewise.
    #[field(6)]
    pub ended_us: u64,
    /// Why it failed.
    #[field(7)]
    pub error: Option<CallError>,
    /// What the failure says, cut short.
    #[field(8)]
    pub text: String,
    /// What the call needs to run; nothing for an actor's method.
    #[field(9)]
    pub resources: Vec<Amount>,
    /// The name that it was called under; empty for its own.
    #[field(10)]
    pub label: String,
    /// Who called, and when.
    #[field(11)]
    pub origin: Option<CallOrigin>,
    /// The placement group that it runs in.
    #[field(12)]
    pub group: Option<PlacementGroupId>,
    /// The process that the sender had sent it to, where that one told nothing of it; nothing where the sender ran it.
    #[field(13)]
    pub sent_to: Option<WorkerId>,
}

impl TaskRecord {
    /// What the call is named: as it was called, or else as its function or method.
    pub fn title(&self) -> &str {
        if self.label.is_empty() { &self.name } else { &self.label }
    }
}

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
pub enum TaskStage {
    /// Nobody has said.
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
