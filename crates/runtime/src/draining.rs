//! That this process's node is being emptied or it is preempted, and asking for the former.

use crate::core::draining::{Draining, Preempted};
use crate::core::questions::DaemonAnswer;
use crate::runtime::{Runtime, RuntimeError, unexpected};
use oxiray_wire::message::{DrainAsked, StateReport};

impl Runtime {
    /// How this process's node is being emptied, where it is.
    pub fn draining(&self) -> Option<Draining> {
        self.shared.with(|state| state.daemon.draining.clone())
    }

    /// That this process is to end early for what is more urgent, where it is.
    pub fn preempted(&self) -> Option<Preempted> {
        self.shared.with(|state| state.daemon.preempted.clone())
    }

    /// Has a node emptied, or not after all; the answer's row tells what is left there. Fails where there is no such
    /// node, or it is the head's.
    pub fn drain(&self, asked: &DrainAsked) -> Result<StateReport, RuntimeError> {
        match self.ask(|request| DrainAsked { request, ..asked.clone() }.into())? {
            DaemonAnswer::State(mut report) => match report.failure.take() {
                Some(failure) => Err(RuntimeError::Failed(failure)),
                None => Ok(*report),
            },
            _ => Err(unexpected()),
        }
    }
}
