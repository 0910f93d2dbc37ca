//! What the head writes down before it answers, and what it takes back where it cannot.
//!
//! - CORE-6: whoever is told that something was done is told only when its row is safe; where it cannot be written, it is
//!   taken back and refused. What merely happened is written with the next batch that can be.

use crate::key_value::KeyValueStore;
use crate::members::DrainRow;
use crate::outbox::Outbox;
use crate::resumption::Resumption;
use bytes::Bytes;
use oxiray_ids::{ActorId, JobId, NodeId, ObjectId, PlacementGroupId};
use oxiray_machine::{Effect, Key};
use oxiray_wire::Message;
use oxiray_wire::message::{ActorAnswer, Failure};
use std::collections::BTreeSet;

/// Which row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Row {
    /// A kept value, by its namespace and key.
    KeyValueStore(Bytes, Bytes),
    /// The number of the last job.
    LastJob,
    Job(JobId),
    Member(NodeId),
    Actor(ActorId),
    /// What an actor's constructor needs.
    Constructor(ActorId),
    Group(PlacementGroupId),
    /// The value of an object whose owner is dead.
    Orphan(ObjectId),
    /// A submitted job, by its name.
    Submission(String),
}

/// The name of a kept value: its namespace and its key.
pub(crate) type KeyValueName = (Bytes, Bytes);

/// What was done on request, and is taken back where it cannot be written down.
#[derive(Debug)]
pub(crate) enum Undo {
    /// Kept values were put or deleted: what was there before.
    KeyValueStore { request: u64, before: Vec<(KeyValueName, Option<Bytes>)> },
    /// A driver was let in.
    Driver,
    /// An actor was made.
    Actor { request: u64, id: ActorId },
    /// A placement group was taken on.
    Group { request: u64, id: PlacementGroupId },
    /// A job was submitted.
    Submission { request: u64, id: String },
    /// A node is to be emptied, or is kept after all: how it was emptied before.
    Drain { request: u64, node: NodeId, before: Option<DrainRow> },
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
struct Journal {
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
pub(crate) struct Asked {
    pub(crate) from: Key,
    /// The number of the effect that is the answer, where that is known.
    pub(crate) answer: Option<u64>,
    pub(crate) undo: Undo,
}

/// What outlives this head, and what of the last one's is awaited.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    pub(crate) kept: KeyValueStore,
    /// What is to be written down, where this daemon keeps a journal.
    journal: Option<Journal>,
    /// Who is to come back to this head.
    pub(crate) resumption: Resumption,
}

impl Durable {
    /// What changes from here on is written down.
    pub(crate) fn begin_journal(&mut self) {
        self.journal = Some(Journal::default());
    }

    /// Whether what changes is written down.
    pub(crate) fn has_journal(&self) -> bool {
        self.journal.is_some()
    }

    /// Has a row written with the next batch.
    pub(crate) fn touch(&mut self, row: Row) {
        if let Some(journal) = &mut self.journal {
            journal.next.rows.insert(row);
            journal.was_tried = false;
        }
    }

    /// Whether what the row holds now is safe, as far as it ever is here.
    pub(crate) fn is_safe(&self, row: &Row) -> bool {
        self.journal.as_ref().is_none_or(|journal| {
            let being_written = journal.under_way.as_ref().is_some_and(|batch| batch.rows.contains(row));
            !being_written && !journal.next.rows.contains(row)
        })
    }

    /// What `from` asked for was done. It is told so by that effect of this turn, or later where none is named.
    pub(crate) fn asked(&mut self, from: Key, undo: Undo, effect: Option<usize>) {
        if let Some(journal) = &mut self.journal {
            let answer = effect.map(|effect| journal.outbox.count() + effect as u64);
            journal.next.asked.push(Asked { from, answer, undo });
        }
    }

    /// Of what came of a turn, what may be done now (CORE-6), and whether [`Self::being_written`] is to be written now.
    pub(crate) fn hold_back(&mut self, effects: Vec<Effect>) -> (Vec<Effect>, bool) {
        let Some(journal) = &mut self.journal else { return (effects, false) };
        journal.add(effects);
        let begins = journal.has_news() && journal.under_way.is_none();
        if begins {
            journal.under_way = Some(std::mem::take(&mut journal.next));
            journal.outbox.begin();
        }
        (journal.outbox.take(), begins)
    }

    /// The rows that are being written.
    pub(crate) fn being_written(&self) -> impl Iterator<Item = &Row> {
        let batch = self.journal.iter().filter_map(|journal| journal.under_way.as_ref());
        batch.flat_map(|batch| &batch.rows)
    }

    /// Whether something is being written.
    pub(crate) fn is_writing(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.outbox.is_writing())
    }

    /// How much waits until something is written.
    pub(crate) fn held_back(&self) -> usize {
        self.journal.as_ref().map_or(0, |journal| journal.outbox.held())
    }

    /// What was to be written is safe.
    pub(crate) fn written(&mut self) {
        if let Some(journal) = self.journal.as_mut().filter(|journal| journal.under_way.is_some()) {
            journal.under_way = None;
            journal.outbox.safe();
        }
    }

    /// It is not. Returns what was asked for in it, and all that was asked for since, in the order in which it is to be
    /// taken back; what merely happened is written with the next batch. [`Self::refused`] is to be called after that.
    pub(crate) fn not_written(&mut self, effects: Vec<Effect>) -> Option<Vec<Asked>> {
        let journal = self.journal.as_mut()?;
        journal.add(effects);
        let failed = journal.under_way.take()?;
        journal.next.rows.extend(failed.rows);
        journal.was_tried = true;
        let since = std::mem::take(&mut journal.next.asked);
        let mut asked: Vec<Asked> = failed.asked.into_iter().chain(since).rev().collect();
        for Asked { from, answer, undo } in &mut asked {
            *answer = answer.or_else(|| journal.outbox.find(|effect| undo.is_answered_by(*from, effect)));
        }
        Some(asked)
    }

    /// Whoever was to be told that an actor is there, which is taken back, is told why there is none: they may have looked it
    /// up since it was made.
    pub(crate) fn deny(&mut self, actor: ActorId, failure: &Failure) {
        for effect in self.journal.iter_mut().flat_map(|journal| journal.outbox.held_mut()) {
            if let Effect::Send { message: Message::ActorAnswer(said), .. } = effect
                && said.actor == Some(actor)
            {
                let request = said.request;
                **said = ActorAnswer { request, failure: Some(failure.clone()), ..ActorAnswer::default() };
            }
        }
    }

    /// This is said in place of an answer that is held back.
    pub(crate) fn say_instead(&mut self, answer: Option<u64>, said: Effect) {
        let outbox = self.journal.as_mut().map(|journal| &mut journal.outbox);
        if let Some(held) = outbox.zip(answer).and_then(|(outbox, answer)| outbox.get_mut(answer)) {
            *held = said;
        }
    }

    /// All that could not be written was taken back.
    pub(crate) fn refused(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.outbox.refused();
        }
    }
}
