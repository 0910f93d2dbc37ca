//! Room in the store for what this process may put next: what was asked for, and what was put.

use crate::core::INLINE_BYTES;
use oxiray_ids::{ObjectId, TaskId};
use std::time::{Duration, Instant};

/// How long room may lie unused, and how close together puts are that are worth it.
const UNUSED_MAX: Duration = Duration::from_millis(100);

/// The largest object that room is asked for ahead: of larger ones, writing them takes most of the time.
const SIZE_MAX: usize = 4 << 20;

/// How long nothing is asked for after the daemon had nothing to spare.
const REST: Duration = Duration::from_secs(1);

/// Room that was asked for, granted or not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spare {
    pub(crate) task: TaskId,
    pub(crate) index: u32,
    pub(crate) size: usize,
    pub(crate) question: u64,
    /// The head by which this process was counted then.
    pub(crate) epoch: u64,
    ends_at: Instant,
}

impl Spare {
    pub(crate) fn object(&self) -> ObjectId {
        self.task.object(self.index)
    }
}

#[derive(Debug, Default)]
pub(crate) struct AllocationCredit {
    /// The size of what was put last, and when.
    last: Option<(usize, Instant)>,
    /// What was put before was as large.
    repeats: bool,
    pub(crate) spare: Option<Spare>,
    /// For objects that have got their names, and are about to be written.
    taken: Vec<Spare>,
    /// When the spare is looked at; it stays where one spare follows another, so that nobody is woken for each.
    pub(crate) looks_at: Option<Instant>,
    rests_until: Option<Instant>,
}

impl AllocationCredit {
    /// An object of this size is put now.
    pub(crate) fn put(&mut self, size: usize, now: Instant) {
        let last = self.last.replace((size, now));
        self.repeats = last.is_some_and(|(before, at)| before == size && at + UNUSED_MAX > now);
    }

    /// The object that is put now lies in the spare room.
    pub(crate) fn take_spare(&mut self) -> Option<Spare> {
        let spare = self.spare.take()?;
        self.taken.push(spare);
        Some(spare)
    }

    /// The room for an object that is about to be written.
    pub(crate) fn take(&mut self, object: ObjectId) -> Option<Spare> {
        let at = self.taken.iter().position(|spare| spare.object() == object)?;
        Some(self.taken.swap_remove(at))
    }

    /// The daemon had nothing to spare.
    pub(crate) fn rest(&mut self, now: Instant) {
        self.rests_until = Some(now + REST);
    }

    /// AHEAD-1: whether room for another object of this size is worth asking for.
    pub(crate) fn is_worth(&self, size: usize, now: Instant) -> bool {
        let rests = self.rests_until.is_some_and(|until| now < until);
        let is_usual = self.repeats && self.last.is_some_and(|(last, _)| last == size);
        let is_fit = size > INLINE_BYTES && size <= SIZE_MAX;
        is_usual && is_fit && !rests && self.spare.is_none()
    }

    /// Room was asked for under this name. Returns whether a timer was set.
    pub(crate) fn ask(
        &mut self,
        (task, index): (TaskId, u32),
        size: usize,
        question: u64,
        epoch: u64,
        now: Instant,
    ) -> bool {
        let ends_at = now + UNUSED_MAX;
        self.spare = Some(Spare { task, index, size, question, epoch, ends_at });
        let sets_timer = self.looks_at.is_none();
        self.looks_at.get_or_insert(ends_at);
        sets_timer
    }

    /// Whether the spare was not used for too long.
    pub(crate) fn is_unused(&self, now: Instant) -> bool {
        self.spare.is_some_and(|spare| spare.ends_at <= now)
    }

    /// The spare was looked at. One that the daemon has not granted yet is looked at again.
    pub(crate) fn has_looked(&mut self, now: Instant) {
        self.looks_at = self.spare.map(|spare| spare.ends_at.max(now + UNUSED_MAX / 2));
    }

    /// All room is forgotten. Returns it.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Spare> {
        let Self { spare, taken, .. } = std::mem::take(self);
        spare.into_iter().chain(taken)
    }
}
