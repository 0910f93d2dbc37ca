//! Questions about the cluster, and the values that it keeps by name.

use crate::core::questions::DaemonAnswer;
use crate::runtime::{Runtime, RuntimeError, unexpected};
use oxiray_wire::message::{KeyValueAnswer, KeyValueRequest, StateQuery, StateReport};
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

    /// A worker leaves: what it ran and recorded is told, so that it is not forgotten with it.
    pub fn tell_all(&self) {
        self.shared.with(|state| {
            state.tell_of_ended();
            state.tell_of_metrics();
        });
    }
}
