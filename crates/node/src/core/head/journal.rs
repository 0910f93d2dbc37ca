//! What the head writes down before it answers, and what it takes back where it cannot.
//!
//! - CORE-6: whoever is told that something was done is told only when its row is safe; where it cannot be written, it is
//!   taken back and refused. What merely happened is written with the next batch that can be.

use super::records::Row;
use super::{Effect, HeadCore, Key};
use bytes::Bytes;
use oxiray_ids::{ActorId, PlacementGroupId};
use oxiray_journal::Change;
use oxiray_wire::Message;
use oxiray_wire::message::{ActorAnswer, Failure, GroupAnswer, KeptAnswer, Refused};
use std::collections::BTreeSet;

/// The name of a kept value: its namespace and its key.
pub(super) type KeptName = (Bytes, Bytes);

/// What was done on request, and is taken back where it cannot be written down.
#[derive(Debug)]
pub(super) enum Undo {
    /// Kept values were put or deleted: what was there before.
    Kept { request: u64, before: Vec<(KeptName, Option<Bytes>)> },
    /// A driver was let in.
    Driver,
    /// An actor was made.
    Actor { request: u64, id: ActorId },
    /// A placement group was taken on.
    Group { request: u64, id: PlacementGroupId },
    /// A job was submitted.
    Submission { request: u64, id: String },
}

impl Undo {
    /// Whether this effect tells `from` that a group is there, which it may be at once.
    fn is_answered_by(&self, from: Key, effect: &Effect) -> bool {
        let Self::Group { request, .. } = self else { return false };
        matches!(effect, Effect::Send { to, message: Message::GroupAnswer(said) } if *to == from && said.request == *request)
    }
}

/// What is to be written down with the next batch.
#[derive(Debug, Default)]
pub(super) struct Pending {
    rows: BTreeSet<Row>,
    /// Nothing new came since they could not be written.
    was_tried: bool,
    asked: Vec<Asked>,
}

/// A request that is answered when the rows are safe.
#[derive(Debug)]
struct Asked {
    from: Key,
    /// Which effect is the answer, where that is known when it is asked.
    answer: Option<usize>,
    undo: Undo,
}

impl HeadCore {
    /// The changes that must be safe before what [`HeadCore::settle`] returned is carried out; with nothing where all are.
    pub(in crate::core) fn unwritten(&self) -> Vec<Change> {
        let rows = self.journal.iter().filter(|pending| !pending.was_tried).flat_map(|pending| &pending.rows);
        rows.map(|row| self.change_of(row)).collect()
    }

    /// They are safe.
    pub(in crate::core) fn written(&mut self) {
        if let Some(pending) = &mut self.journal {
            *pending = Pending::default();
        }
    }

    /// They are not, for this reason: what was asked for is taken back, and `effects`, which go with it, say so.
    pub(in crate::core) fn not_written(&mut self, effects: &mut Vec<Effect>, fault: &str) {
        let Some(pending) = &mut self.journal else { return };
        pending.was_tried = true;
        let asked = std::mem::take(&mut pending.asked);
        self.log(fault.to_owned());
        for Asked { from, answer, undo } in asked.into_iter().rev() {
            let failure = Failure { code: "system".into(), text: fault.to_owned(), cause: Bytes::new() };
            let answer = answer.or_else(|| effects.iter().position(|effect| undo.is_answered_by(from, effect)));
            let said = self.take_back(from, undo, failure);
            if let Some(answer) = answer.and_then(|answer| effects.get_mut(answer)) {
                *answer = said;
            }
        }
        effects.append(&mut self.out);
    }

    /// Returns what is to be said in place of that it was done.
    fn take_back(&mut self, from: Key, undo: Undo, failure: Failure) -> Effect {
        let message = match undo {
            Undo::Kept { request, before } => {
                for ((namespace, key), value) in before {
                    self.kept.set(namespace, key, value);
                }
                KeptAnswer { request, failure: Some(failure), ..KeptAnswer::default() }.into()
            }
            Undo::Driver => {
                self.driver_left(from);
                self.out.push(Effect::Close { client: from });
                Refused { text: failure.text }.into()
            }
            Undo::Actor { request, id } => {
                self.end_actor(id, &format!("it was never made: {}.", failure.text));
                ActorAnswer { request, failure: Some(failure), ..ActorAnswer::default() }.into()
            }
            Undo::Submission { request, id } => self.unsubmit(request, &id, failure),
            Undo::Group { request, id } => {
                self.group_remove(id, &failure.text);
                GroupAnswer { request, failure: Some(failure) }.into()
            }
        };
        Effect::Send { to: from, message }
    }

    /// Whether what the row holds now is safe, as far as it ever is here.
    pub(super) fn is_safe(&self, row: &Row) -> bool {
        self.journal.as_ref().is_none_or(|pending| !pending.rows.contains(row))
    }

    /// Has a row written with the next batch.
    pub(super) fn touch(&mut self, row: Row) {
        if let Some(pending) = &mut self.journal {
            pending.rows.insert(row);
            pending.was_tried = false;
        }
    }

    /// The next effect tells `from` that it was done what it asked for, and is carried out only when this is safe.
    pub(super) fn answered_by_next(&mut self, from: Key, undo: Undo) {
        let answer = Some(self.out.len());
        if let Some(pending) = &mut self.journal {
            pending.asked.push(Asked { from, answer, undo });
        }
    }

    /// `from` is told when the group is there, now or later; only where its row is safe is there one.
    pub(super) fn answered_when_created(&mut self, from: Key, undo: Undo) {
        if let Some(pending) = &mut self.journal {
            pending.asked.push(Asked { from, answer: None, undo });
        }
    }
}
