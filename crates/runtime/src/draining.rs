//! That this process's node is being emptied, and asking for that.

use crate::questions::Answer;
use crate::runtime::{Runtime, RuntimeError, unexpected};
use oxiray_wire::message::{self, DrainAsked, StateReport};
use std::time::{Duration, Instant};

/// This process's node is being emptied, and ends then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draining {
    /// When it ends at the latest; nothing where it ends when nothing is left there.
    pub until: Option<Instant>,
    /// Why, for people.
    pub reason: String,
}

impl Draining {
    pub(crate) fn heard(said: message::Draining) -> Option<Self> {
        let until = said.left_ms.map(|left| Instant::now() + Duration::from_millis(left));
        (!said.is_over).then_some(Self { until, reason: said.reason })
    }
}

impl Runtime {
    /// How this process's node is being emptied, where it is.
    pub fn draining(&self) -> Option<Draining> {
        self.shared.with(|state| state.draining.clone())
    }

    /// Has a node emptied, or not after all; the answer's row tells what is left there. Fails where there is no such
    /// node, or it is the head's.
    pub fn drain(&self, asked: &DrainAsked) -> Result<StateReport, RuntimeError> {
        match self.ask(|request| DrainAsked { request, ..asked.clone() }.into())? {
            Answer::State(mut report) => match report.failure.take() {
                Some(failure) => Err(RuntimeError::Failed(failure)),
                None => Ok(*report),
            },
            _ => Err(unexpected()),
        }
    }
}
