//! Visitors that follow the chronicle: each is told what happened since it asked last.
//!
//! - READERS-1: a question is answered once. The next one says that the answer was read, so that one who reads slowly has one
//!   answer on its way and costs nothing else.
//! - READERS-2: who waits is told at most once a period. Who is behind is answered at once.

use super::Chronicle;
use crate::clock::{Due, Periodic};
use oxiray_machine::Key;
use oxiray_wire::message::{ChronicleBatch, ChronicleFollow};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often those who wait are told.
const PERIOD: Duration = Duration::from_millis(100);
/// How many may follow at once.
const READERS_MAX: usize = 256;
/// The most kinds that a question may name.
const KINDS_MAX: usize = 16;

/// One who follows.
#[derive(Debug, Default)]
struct Reader {
    /// The question that waits; nothing where the last one was answered.
    waiting: Option<ChronicleFollow>,
    /// Whether there was more when it was answered last.
    has_more: bool,
}

/// Who follows.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    by_key: BTreeMap<Key, Reader>,
    /// The last entry that those who waited were told of.
    told: u64,
    telling: Periodic,
    /// How many entries followers were not told of (CHRONICLE-4).
    pub(crate) missed: u64,
}

impl Readers {
    /// A visitor asks. Returns what it is told at once: all that is behind what others were told already. The error says why
    /// it may not follow.
    pub(crate) fn asks(
        &mut self,
        from: Key,
        mut asked: ChronicleFollow,
        chronicle: &Chronicle,
    ) -> Result<Option<ChronicleBatch>, String> {
        if asked.kinds.len() > KINDS_MAX {
            return Err(format!("a follower of the chronicle names {KINDS_MAX} kinds at most; none stands for all"));
        }
        if !self.by_key.contains_key(&from) && self.by_key.len() >= READERS_MAX {
            return Err(format!("{READERS_MAX} visitors follow the chronicle already: end one of them"));
        }
        let cursor = asked.cursor.unwrap_or_default();
        let had_more = self.by_key.get(&from).is_some_and(|reader| reader.has_more);
        let is_behind = had_more || cursor.number < self.told || !chronicle.is_ours(cursor);
        let batch = if is_behind { answer(&mut asked, chronicle) } else { None };
        let has_more = batch.as_ref().is_some_and(|batch| batch.has_more);
        self.missed = self.missed.saturating_add(batch.as_ref().map_or(0, missed));
        self.by_key.insert(from, Reader { waiting: batch.is_none().then_some(asked), has_more });
        Ok(batch)
    }

    /// A visitor is gone.
    pub(crate) fn visitor_left(&mut self, key: Key) {
        self.by_key.remove(&key);
    }

    /// Whether those who wait are to be told (READERS-2).
    pub(crate) fn due(&mut self, chronicle: &Chronicle, now: Instant) -> Due {
        let waits = self.by_key.values().any(|reader| reader.waiting.is_some());
        if waits && chronicle.last() > self.told { self.telling.due(PERIOD, now) } else { Due::Later }
    }

    /// What those are told who wait (READERS-1).
    pub(crate) fn tell(&mut self, chronicle: &Chronicle, now: Instant) -> Vec<(Key, ChronicleBatch)> {
        self.telling.done(now);
        self.told = chronicle.last();
        let mut answers = Vec::new();
        for (key, reader) in &mut self.by_key {
            if let Some(batch) = reader.waiting.as_mut().and_then(|asked| answer(asked, chronicle)) {
                *reader = Reader { waiting: None, has_more: batch.has_more };
                self.missed = self.missed.saturating_add(missed(&batch));
                answers.push((*key, batch));
            }
        }
        answers
    }

    pub(crate) fn alarm_rang(&mut self) {
        self.telling.alarm_rang();
    }
}

/// How many entries an answer passes over.
fn missed(batch: &ChronicleBatch) -> u64 {
    batch.gap.map_or(0, |gap| (gap.to + 1).saturating_sub(gap.from))
}

/// The answer; where there is none, the question goes on from where was looked.
fn answer(asked: &mut ChronicleFollow, chronicle: &Chronicle) -> Option<ChronicleBatch> {
    let found = chronicle.since(asked.cursor.unwrap_or_default(), &asked.kinds, asked.latest);
    asked.cursor = Some(found.cursor);
    found.batch.map(|batch| ChronicleBatch { request: asked.request, ..batch })
}
