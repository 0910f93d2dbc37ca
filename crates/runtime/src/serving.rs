//! The runtime as a worker uses it: what is to be done, and what came of it.

use crate::execute::{Duty, Outcome, Ticket};
use crate::runtime::{Runtime, RuntimeError};
use oxiray_ids::ObjectId;
use oxiray_wire::message::Value;

impl Runtime {
    /// The next thing to do; waits for it.
    pub fn next_duty(&self) -> Result<Duty, RuntimeError> {
        Ok(self.shared.wait(None, |state| state.inbox.take())?)
    }

    /// No further call is begun, in any thread; the one that says so still replies before it stops all.
    pub fn begin_no_more(&self) {
        self.shared.with(|state| state.inbox.end());
    }

    /// Every thread that asks for a duty is told to leave.
    pub fn stop_serving(&self) {
        self.shared.with(|state| {
            state.inbox.close();
            state.news = true;
        });
    }

    /// Sends a call's outcome to its owner.
    pub fn reply(&self, ticket: Ticket, outcome: Outcome) {
        self.shared.with(|state| state.reply(ticket, outcome));
    }

    /// Gives up what a call's results hold when they are not sent after all.
    pub fn discard(&self, handed: &[ObjectId], stored: &[ObjectId]) {
        self.shared.with(|state| {
            for id in handed {
                state.release(*id);
            }
            state.unhold(stored);
        });
    }

    /// The actor's constructor returned; `borrowed` are the references that its arguments brought.
    pub fn actor_ready(&self, borrowed: &[ObjectId]) {
        self.shared.with(|state| state.actor_ready(borrowed));
    }

    /// The actor's constructor failed with this error.
    pub fn actor_failed(&self, error: Value) {
        self.shared.with(|state| state.actor_failed(error));
    }

    /// The actor ends itself.
    pub fn actor_leaving(&self, text: String) {
        self.shared.with(|state| state.actor_leaving(text));
    }
}
