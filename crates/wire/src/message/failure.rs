//! What kinds of failures there are, and what the cause of one holds, where it is more than an exception.

use super::{Content, Failure, Value};
use crate::words::spelled;
use bytes::Bytes;
use oxiray_fields::Fields;
use oxiray_ids::{ActorId, NodeId};
use prost::Message as _;

/// How many tasks that waited for each other's results are named; of more, the first ones and the last.
const TASKS_NAMED_MAX: usize = 16;
/// The most characters of the error in the text of those that have it as their argument.
const TEXT_MAX: usize = 1000;

spelled! {
    /// What kind of failure it is. The front turns it into an exception type.
    FailureCode {
        /// Something that was not to be expected; the text says what.
        System: "system",
        /// What was asked for makes no sense.
        Invalid: "invalid",
        /// A list or an explanation cannot be had.
        State: "state",
        /// There is no submitted job of that name.
        NotFound: "not_found",
        /// A submitted job's output cannot be read.
        Unreadable: "unreadable",
        /// What was asked about join tokens was not done.
        Token: "token",
        /// The call was cancelled; the cause is its `TaskId`.
        Cancelled: "cancelled",
        /// The task did not run, since an argument of it is an error; the cause is an [`ArgumentFailed`].
        ArgumentFailed: "argument_failed",
        /// The task's worker died.
        WorkerCrashed: "worker_crashed",
        /// The task's worker died with its node.
        NodeDied: "node_died",
        /// The task's worker was ended for want of memory.
        OutOfMemory: "out_of_memory",
        /// No machine can ever run the task.
        TaskUnschedulable: "task_unschedulable",
        /// The task waits for what tasks hold that wait for it, or for each other.
        DeviceDeadlock: "device_deadlock",
        /// The task was to run in a placement group that was removed.
        TaskGroupRemoved: "task_placement_group_removed",
        /// The actor is dead; the cause is an [`ActorDeath`].
        ActorDied: "actor_died",
        /// The actor ended itself in this call.
        ActorLeft: "actor_left",
        /// The actor's process died, and another one is made.
        ActorUnavailable: "actor_unavailable",
        /// No machine can ever run the actor.
        ActorUnschedulable: "actor_unschedulable",
        /// The actor ran in a placement group that was removed.
        ActorGroupRemoved: "actor_placement_group_removed",
        /// Another actor has that name.
        ActorNameTaken: "actor_name_taken",
        /// No actor has that name.
        ActorNotFound: "actor_not_found",
        /// As many calls of the actor wait as may.
        PendingCalls: "pending_calls",
        /// An environment cannot be made.
        RuntimeEnv: "runtime_env",
        /// The kernel cannot keep it from devices that it was not granted, where its node requires that.
        DeviceIsolation: "device_isolation",
        /// It had a device open that it was not granted, and its node ends what does.
        DeviceViolation: "device_violation",
        /// The hardware of a device that it had failed.
        DeviceFailed: "device_failed",
        /// It took more memory of a device than it asked for, and its node ended it.
        DeviceMemory: "device_memory_exceeded",
        /// The connection to the daemon is over.
        DaemonDied: "daemon_died",
        /// The object's owner died before it published the value.
        OwnerDied: "owner_died",
        /// The object's stored bytes are gone.
        ObjectLost: "object_lost",
        /// The object was freed.
        ObjectFreed: "object_freed",
        /// The object was sealed already.
        ObjectSealed: "object_sealed",
        /// The object's bytes did not come in time.
        ObjectNotReady: "object_not_ready",
        /// The object store has no room.
        StoreFull: "store_full",
        /// The disk has no room for objects.
        OutOfDisk: "out_of_disk",
        /// An argument's stored bytes are gone, and the call goes back to its owner.
        GivenBack: "given_back",
        /// A generator that was run again did not yield what it had yielded before.
        StreamReplay: "stream_replay",
        /// A generator ended before it yielded the item.
        StreamEnd: "end_of_stream",
        /// A lost value is not made again: its task's retries are used up.
        AttemptsExceeded: "unreconstructable_max_attempts_exceeded",
        /// A lost value is not made again: how it was made was forgotten.
        LineageEvicted: "unreconstructable_lineage_evicted",
        /// A lost value is not made again: it was put.
        LostPut: "unreconstructable_put",
        /// A lost value is not made again: its task is not to be run again.
        RetriesDisabled: "unreconstructable_retries_disabled",
        /// A lost value is not made again: its task was cancelled.
        LostCancelled: "unreconstructable_task_cancelled",
        /// A lost value is not made again: it needs one of another process that cannot be asked any more.
        LostBorrowed: "unreconstructable_borrowed",
        /// A lost value is not made again: nothing is known of it.
        LostUnknown: "unreconstructable_ref_not_found",
        /// A lost value is not made again: nothing is recorded in this cluster.
        LineageDisabled: "unreconstructable_lineage_disabled",
    }
}

impl FailureCode {
    /// A failure of this kind, without a cause.
    pub fn because(self, text: impl Into<String>) -> Failure {
        Failure { code: self, text: text.into(), cause: Bytes::new() }
    }
}

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallError {
    /// Its own code raised.
    Raised,
    /// The runtime could not run it, or not to its end.
    Failed(FailureCode),
}

impl CallError {
    const RAISED: &str = "raised";

    /// Its word in a body.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raised => Self::RAISED,
            Self::Failed(code) => code.name(),
        }
    }

    /// The error of that word.
    pub fn from_name(name: &str) -> Option<Self> {
        if name == Self::RAISED { Some(Self::Raised) } else { FailureCode::from_name(name).map(Self::Failed) }
    }

    pub(crate) fn names() -> Vec<&'static str> {
        [Self::RAISED].into_iter().chain(FailureCode::names()).collect()
    }
}

/// The cause of a failure with code `argument_failed`: the error that an argument is, and who could not run because of it.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct ArgumentFailed {
    /// The names of the tasks, the one whose argument it was first, the one that is asked about last.
    #[field(1)]
    pub tasks: Vec<String>,
    /// The error.
    #[field(2)]
    pub value: Option<Value>,
}

/// The cause of a failure with code `actor_died`: what is known of the actor.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ActorDeath {
    /// The exception that its constructor raised, serialized.
    #[field(1)]
    pub raised: Bytes,
    /// Its class.
    #[field(2)]
    pub class_name: String,
    /// Its name; empty for none.
    #[field(3)]
    pub name: String,
    /// Where its name lives.
    #[field(4)]
    pub namespace: String,
    /// `ActorId`.
    #[field(5)]
    pub actor: ActorId,
    /// `NodeId` of the node of its last process; empty where it had none.
    #[field(6)]
    pub node: Option<NodeId>,
    /// The address of that node.
    #[field(7)]
    pub ip: String,
    /// Its last process; 0 where it had none, or none that is remembered.
    #[field(8)]
    pub pid: u32,
    /// It never had a process.
    #[field(9)]
    pub never_ran: bool,
}

impl Failure {
    /// What a task fails with that could not run, since an argument of it is this error.
    pub fn of_argument(task: &str, mut error: Value) -> Value {
        let contained = std::mem::take(&mut error.contained);
        let known = match &error.content {
            Some(Content::Failed(failure)) => failure.argument_failed(),
            _ => None,
        };
        let mut told = known.unwrap_or_else(|| ArgumentFailed { tasks: Vec::new(), value: Some(error) });
        told.tasks.truncate(TASKS_NAMED_MAX - 1);
        told.tasks.push(task.to_owned());
        let why = match told.value.as_ref().and_then(|value| value.content.as_ref()) {
            Some(Content::Failed(failure)) => failure.text.chars().take(TEXT_MAX).collect(),
            _ => "its task raised an exception".to_owned(),
        };
        let failure = Self {
            code: FailureCode::ArgumentFailed,
            text: format!("`{task}` did not run, since an argument of it could not be computed: {why}"),
            cause: told.encode_to_vec().into(),
        };
        Value { content: Some(Content::Failed(failure)), contained }
    }

    /// The error of an argument, where this is the failure of a task that could not run because of one.
    pub fn argument_failed(&self) -> Option<ArgumentFailed> {
        if self.code != FailureCode::ArgumentFailed {
            return None;
        }
        ArgumentFailed::decode(self.cause.clone()).ok().filter(|told| told.value.is_some())
    }

    /// An actor's death with what is known of it. Other failures stay as they are.
    #[must_use]
    pub fn with_death(self, death: ActorDeath) -> Self {
        if self.code != FailureCode::ActorDied {
            return self;
        }
        Self { cause: ActorDeath { raised: self.cause, ..death }.encode_to_vec().into(), ..self }
    }

    /// What is known of an actor, where this is the failure of its death.
    pub fn actor_death(&self) -> Option<ActorDeath> {
        let is_told = self.code == FailureCode::ActorDied && !self.cause.is_empty();
        is_told.then(|| ActorDeath::decode(self.cause.clone()).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raised() -> Value {
        Value { content: Some(Content::Raised("boom".into())), contained: Vec::new() }
    }

    fn told(value: &Value) -> ArgumentFailed {
        let Some(Content::Failed(failure)) = &value.content else { panic!("{value:?} is a failure") };
        failure.argument_failed().expect("it is that of an argument")
    }

    #[test]
    fn the_tasks_that_could_not_run_are_named_in_their_order_and_the_error_is_that_of_the_first() {
        let first = Failure::of_argument("use", raised());
        let second = Failure::of_argument("again", first);
        assert_eq!(told(&second), ArgumentFailed { tasks: vec!["use".into(), "again".into()], value: Some(raised()) });
    }

    #[test]
    fn a_long_chain_of_tasks_has_an_error_of_bounded_size_that_names_the_last() {
        let mut value = raised();
        for number in 0..10_000 {
            value = Failure::of_argument(&format!("task {number}"), value);
        }
        let found = told(&value);
        assert_eq!((found.tasks.len(), found.value), (TASKS_NAMED_MAX, Some(raised())));
        assert_eq!((found.tasks[0].as_str(), found.tasks[TASKS_NAMED_MAX - 1].as_str()), ("task 0", "task 9999"));
    }

    #[test]
    fn only_an_actors_death_is_told_of() {
        let failure = |code| Failure { code, text: "text".into(), cause: "boom".into() };
        let death = ActorDeath { class_name: "Counter".into(), pid: 9, ..ActorDeath::default() };
        let other = failure(FailureCode::ActorUnschedulable).with_death(death.clone());
        assert_eq!((other.actor_death(), other.cause), (None, "boom".into()));
        let died = failure(FailureCode::ActorDied).with_death(death.clone());
        assert_eq!(
            (died.actor_death(), died.text.as_str()),
            (Some(ActorDeath { raised: "boom".into(), ..death }), "text")
        );
        assert_eq!(Failure { cause: Bytes::new(), ..failure(FailureCode::ActorDied) }.actor_death(), None);
    }
}
