//! What processes are told when something fails.

use oxiray_wire::message::{Content, Failure, FailureCode, Value};

/// An actor's death, in words that say what became of it first.
pub(crate) fn death(why: &str) -> Failure {
    FailureCode::ActorDied.because(format!("The actor is dead because {why}"))
}

/// What a task is told of its placement, for an actor.
pub(crate) fn for_actor(told: &Failure) -> Failure {
    let was_removed = told.code == FailureCode::TaskGroupRemoved;
    let code = if was_removed { FailureCode::ActorGroupRemoved } else { FailureCode::ActorUnschedulable };
    code.because(told.text.clone())
}

/// What stands for the value of an object that there will never be.
pub(crate) fn failed_value(code: FailureCode, text: impl Into<String>) -> Value {
    Value { content: Some(Content::Failed(code.because(text))), contained: Vec::new() }
}
