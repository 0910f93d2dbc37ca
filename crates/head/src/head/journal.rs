//! What is held back until it is written down, and how it is taken back where it cannot be.

use super::HeadCore;
use crate::journal::{Asked, Undo};
use oxiray_machine::{Effect, Key};
use oxiray_wire::message::{ActorAnswer, Failure, FailureCode, GroupAnswer, KeyValueAnswer, Refused, StateReport};
use oxiray_wire::state::STATE_VERSION;

impl HeadCore {
    /// Of what came of a turn, what may be done now (CORE-6), and what is to be written.
    pub(super) fn hold_back(&mut self, effects: Vec<Effect>) -> Vec<Effect> {
        let (mut free, begins) = self.durable.hold_back(effects);
        if begins {
            free.push(Effect::Write(self.durable.being_written().map(|row| self.change_of(row)).collect()));
        }
        free
    }

    /// Whether something is being written.
    pub(crate) fn is_writing(&self) -> bool {
        self.durable.is_writing()
    }

    /// How much waits until something is written.
    pub(crate) fn held_back(&self) -> usize {
        self.durable.held_back()
    }

    /// What was to be written is safe.
    pub(crate) fn written(&mut self) {
        self.durable.written();
    }

    /// It is not, for this reason: what was asked for in it is taken back and refused, and all that was asked for since,
    /// which may build on it. What merely happened is written with the next batch.
    pub(crate) fn not_written(&mut self, fault: &str) {
        let effects = std::mem::take(&mut self.out);
        let Some(asked) = self.durable.not_written(effects) else { return };
        self.log(fault.to_owned());
        for Asked { from, answer, undo } in asked {
            let said = self.take_back(from, undo, FailureCode::System.because(fault));
            self.durable.say_instead(answer, said);
        }
        self.durable.refused();
    }

    /// Returns what is to be said in place of that it was done.
    fn take_back(&mut self, from: Key, undo: Undo, failure: Failure) -> Effect {
        let message = match undo {
            Undo::KeyValueStore { request, before } => {
                for ((namespace, key), value) in before {
                    self.durable.kept.set(namespace, key, value);
                }
                KeyValueAnswer { request, failure: Some(failure), ..KeyValueAnswer::default() }.into()
            }
            Undo::Driver => {
                self.driver_left(from);
                self.out.push(Effect::Close { client: from });
                Refused { text: failure.text }.into()
            }
            Undo::Actor { request, id } => {
                self.end_actor(id, &format!("it was never made: {}.", failure.text));
                self.durable.deny(id, &failure);
                ActorAnswer { request, failure: Some(failure), ..ActorAnswer::default() }.into()
            }
            Undo::Drain { request, node, before } => {
                self.undo_drain(node, before);
                StateReport { request, failure: Some(failure), version: STATE_VERSION, ..StateReport::default() }.into()
            }
            Undo::Submission { request, id } => self.unsubmit(request, &id, failure),
            Undo::Group { request, id } => {
                self.group_remove(id, &failure.text);
                GroupAnswer { request, failure: Some(failure) }.into()
            }
        };
        Effect::Send { to: from, message }
    }
}
