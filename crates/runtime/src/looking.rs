//! Questions about the cluster, and the values that it keeps by name.

use crate::core::questions::DaemonAnswer;
use crate::runtime::{Runtime, RuntimeError, unexpected};
use oxiray_wire::message::{KeyValueAnswer, KeyValueRequest, StackQuery, StackReport, StateQuery, StateReport};
use std::time::Instant;

impl Runtime {
    /// Puts, gets, deletes or lists kept values; the number of the request is filled in here.
    pub fn kept(&self, asked: &KeyValueRequest) -> Result<KeyValueAnswer, RuntimeError> {
        match self.ask(|request| KeyValueRequest { request, ..asked.clone() }.into())? {
            DaemonAnswer::Kept(mut answer) => match answer.failure.take() {
                Some(failure) => Err(RuntimeError::Failed(failure)),
                None => Ok(*answer),
            },
            _ => Err(unexpected()),
        }
    }

    /// Lists or counts things of one kind; the number of the request is filled in here. The question is given up at the
    /// deadline.
    pub fn look(&self, asked: &StateQuery, deadline: Option<Instant>) -> Result<StateReport, RuntimeError> {
        match self.ask_until(deadline, None, |request| StateQuery { request, ..asked.clone() }.into())? {
            DaemonAnswer::State(mut report) => match report.failure.take() {
                Some(failure) => Err(RuntimeError::Failed(failure)),
                None => Ok(*report),
            },
            _ => Err(unexpected()),
        }
    }

    /// Where the threads of this process are is told by `take` from here on, which is given the question and must not wait:
    /// [`Runtime::tell_stacks`] answers it, unless `take` says why nobody will.
    pub fn tell_stacks_by(&self, take: fn(&StackQuery) -> Result<(), String>) {
        self.shared.with(|state| state.io.stacks = Some(take));
    }

    /// Tells where the threads of this process are.
    pub fn tell_stacks(&self, told: &StackReport) {
        self.shared.with(|state| state.tell_stacks(told));
    }

    /// A worker leaves: what it ran and recorded is told, so that it is not forgotten with it.
    pub fn tell_all(&self) {
        self.shared.with(|state| {
            state.tell_of_ended();
            state.tell_of_metrics();
        });
    }
}
