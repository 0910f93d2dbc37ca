//! What processes are told when something fails.

use bytes::Bytes;
use oxiray_wire::message::{Content, Failure, Value};

/// A failure that no exception caused.
pub(crate) fn failure(code: &str, text: impl Into<String>) -> Failure {
    Failure { code: code.to_owned(), text: text.into(), cause: Bytes::new() }
}

/// An actor's death, in words that say what became of it first.
pub(crate) fn death(why: &str) -> Failure {
    failure("actor_died", format!("The actor is dead because {why}"))
}

/// What a task is told of its placement, for an actor.
pub(crate) fn for_actor(told: &Failure) -> Failure {
    let code = match told.code.as_str() {
        "task_placement_group_removed" => "actor_placement_group_removed",
        _ => "actor_unschedulable",
    };
    failure(code, told.text.clone())
}

/// What stands for the value of an object that there will never be.
pub(crate) fn failed_value(code: &str, text: impl Into<String>) -> Value {
    Value { content: Some(Content::Failed(failure(code, text))), contained: Vec::new() }
}
