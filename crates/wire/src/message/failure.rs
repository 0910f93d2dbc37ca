//! What the cause of a failure holds, where it is more than an exception.

use super::{Content, Failure, Value};
use bytes::Bytes;
use oxiray_fields::Fields;
use oxiray_ids::{ActorId, NodeId};
use prost::Message as _;

/// The code of a task that did not run, since one of its arguments is an error.
const ARGUMENT_FAILED: &str = "argument_failed";
/// The code of an actor's death.
const ACTOR_DIED: &str = "actor_died";
/// How many tasks that waited for each other's results are named; of more, the first ones and the last.
const TASKS_NAMED_MAX: usize = 16;
/// The most characters of the error in the text of those that have it as their argument.
const TEXT_MAX: usize = 1000;

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
            code: ARGUMENT_FAILED.into(),
            text: format!("`{task}` did not run, since an argument of it could not be computed: {why}"),
            cause: told.encode_to_vec().into(),
        };
        Value { content: Some(Content::Failed(failure)), contained }
    }

    /// The error of an argument, where this is the failure of a task that could not run because of one.
    pub fn argument_failed(&self) -> Option<ArgumentFailed> {
        if self.code != ARGUMENT_FAILED {
            return None;
        }
        ArgumentFailed::decode(self.cause.clone()).ok().filter(|told| told.value.is_some())
    }

    /// An actor's death with what is known of it. Other failures stay as they are.
    #[must_use]
    pub fn with_death(self, death: ActorDeath) -> Self {
        if self.code != ACTOR_DIED {
            return self;
        }
        Self { cause: ActorDeath { raised: self.cause, ..death }.encode_to_vec().into(), ..self }
    }

    /// What is known of an actor, where this is the failure of its death.
    pub fn actor_death(&self) -> Option<ActorDeath> {
        let is_told = self.code == ACTOR_DIED && !self.cause.is_empty();
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
        let failure = |code: &str| Failure { code: code.into(), text: "text".into(), cause: "boom".into() };
        let death = ActorDeath { class_name: "Counter".into(), pid: 9, ..ActorDeath::default() };
        let other = failure("actor_unschedulable").with_death(death.clone());
        assert_eq!((other.actor_death(), other.cause), (None, "boom".into()));
        let died = failure("actor_died").with_death(death.clone());
        assert_eq!(
            (died.actor_death(), died.text.as_str()),
            (Some(ActorDeath { raised: "boom".into(), ..death }), "text")
        );
        assert_eq!(Failure { cause: Bytes::new(), ..failure("actor_died") }.actor_death(), None);
    }
}
