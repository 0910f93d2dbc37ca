//! What the head writes down before it answers, and what it takes back where it cannot.
//!
//! - CORE-6: whoever is told that something was done is told only when its row is safe; where it cannot be written, it is
//!   taken back and refused. What merely happened is written with the next batch that can be.

use super::records::Row;
use super::{Effect, HeadCore, Key};
use crate::KeyValueStore;
use crate::outbox::Outbox;
use bytes::Bytes;
use oxiray_ids::{ActorId, PlacementGroupId};
use oxiray_wire::Message;
use oxiray_wire::message::{ActorAnswer, Failure, GroupAnswer, KeyValueAnswer, Refused};
use std::collections::BTreeSet;

/// The name of a kept value: its namespace and its key.
pub(super) type KeyValueName = (Bytes, Bytes);

/// What was done on request, and is taken back where it cannot be written down.
#[derive(Debug)]
pub(super) enum Undo {
    /// KeyValueStore values were put or deleted: what was there before.
    KeyValueStore { request: u64, before: Vec<(KeyValueName, Option<Bytes>)> },
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

/// What is written down and what is to be, and what is done when it is safe.
#[derive(Debug, Default)]
pub(super) struct Journal {
    next: Batch,
    /// Nothing new came to the next batch since its rows could not be written.
    was_tried: bool,
    /// What is being written.
    under_way: Option<Batch>,
    outbox: Outbox<Effect>,
}

/// What is written in one step.
#[derive(Debug, Default)]
struct Batch {
    rows: BTreeSet<Row>,
    asked: Vec<Asked>,
}

impl Journal {
    fn has_news(&self) -> bool {
        !self.was_tried && !self.next.rows.is_empty()
    }

    fn add(&mut self, effects: Vec<Effect>) {
        let has_news = self.has_news();
        self.outbox.add(effects, has_news, Effect::is_quiet);
    }
}

/// A request that is answered when the rows are safe.
#[derive(Debug)]
struct Asked {
    from: Key,
    /// The number of the effect that is the answer, where that is known when it is asked.
    answer: Option<u64>,
    undo: Undo,
}

/// What outlives this head, and what of the last one's is awaited.
#[derive(Debug, Default)]
pub(super) struct Durable {
    pub(super) kept: KeyValueStore,
    /// What is to be written down, where this daemon keeps a journal.
    pub(super) journal: Option<Journal>,
    /// Who is to come back to this head.
    pub(super) resumption: Option<super::resume::Resumption>,
}

impl HeadCore {
    /// Of what came of a turn, what may be done now (CORE-6), and what is to be written.
    pub(super) fn hold_back(&mut self, effects: Vec<Effect>) -> Vec<Effect> {
        let Some(journal) = &mut self.durable.journal else { return effects };
        journal.add(effects);
        let begins = journal.has_news() && journal.under_way.is_none();
        if begins {
            journal.under_way = Some(std::mem::take(&mut journal.next));
            journal.outbox.begin();
        }
        let mut free = journal.outbox.take();
        if begins && let Some(batch) = self.durable.journal.as_ref().and_then(|journal| journal.under_way.as_ref()) {
            free.push(Effect::Write(batch.rows.iter().map(|row| self.change_of(row)).collect()));
        }
        free
    }

    /// Whether something is being written.
    pub(crate) fn is_writing(&self) -> bool {
        self.durable.journal.as_ref().is_some_and(|journal| journal.outbox.is_writing())
    }

    /// How much waits until something is written.
    pub(crate) fn held_back(&self) -> usize {
        self.durable.journal.as_ref().map_or(0, |journal| journal.outbox.held())
    }

    /// What was to be written is safe.
    pub(crate) fn written(&mut self) {
        if let Some(journal) = self.durable.journal.as_mut().filter(|journal| journal.under_way.is_some()) {
            journal.under_way = None;
            journal.outbox.safe();
        }
    }

    /// It is not, for this reason: what was asked for in it is taken back and refused, and all that was asked for since,
    /// which may build on it. What merely happened is written with the next batch.
    pub(crate) fn not_written(&mut self, fault: &str) {
        let effects = std::mem::take(&mut self.out);
        let Some(journal) = &mut self.durable.journal else { return };
        journal.add(effects);
        let Some(failed) = journal.under_way.take() else { return };
        journal.next.rows.extend(failed.rows);
        journal.was_tried = true;
        let since = std::mem::take(&mut journal.next.asked);
        self.log(fault.to_owned());
        for Asked { from, answer, undo } in failed.asked.into_iter().chain(since).rev() {
            let failure = Failure { code: "system".into(), text: fault.to_owned(), cause: Bytes::new() };
            let outbox = self.durable.journal.as_ref().map(|journal| &journal.outbox);
            let find = || outbox.and_then(|outbox| outbox.find(|effect| undo.is_answered_by(from, effect)));
            let answer = answer.or_else(find);
            let said = self.take_back(from, undo, failure);
            let outbox = self.durable.journal.as_mut().map(|journal| &mut journal.outbox);
            if let Some(held) = answer.and_then(|answer| outbox?.get_mut(answer)) {
                *held = said;
            }
        }
        if let Some(journal) = &mut self.durable.journal {
            journal.outbox.refused();
        }
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
        self.durable.journal.as_ref().is_none_or(|journal| {
            let being_written = journal.under_way.as_ref().is_some_and(|batch| batch.rows.contains(row));
            !being_written && !journal.next.rows.contains(row)
        })
    }

    /// Has a row written with the next batch.
    pub(super) fn touch(&mut self, row: Row) {
        if let Some(journal) = &mut self.durable.journal {
            journal.next.rows.insert(row);
            journal.was_tried = false;
        }
    }

    /// The next effect tells `from` that it was done what it asked for, and is carried out only when this is safe.
    pub(super) fn answered_by_next(&mut self, from: Key, undo: Undo) {
        let place = self.out.len() as u64;
        if let Some(journal) = &mut self.durable.journal {
            let answer = Some(journal.outbox.count() + place);
            journal.next.asked.push(Asked { from, answer, undo });
        }
    }

    /// `from` is told when the group is there, now or later; only where its row is safe is there one.
    pub(super) fn answered_when_created(&mut self, from: Key, undo: Undo) {
        if let Some(journal) = &mut self.durable.journal {
            journal.next.asked.push(Asked { from, answer: None, undo });
        }
    }
}
