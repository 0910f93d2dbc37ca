//! Visitors that follow the lists: each is told what changed since it asked last, as soon as something did.
//!
//! - FOLLOW-1: a follower's question is answered once. Its next one says that it has read the answer, so that one who reads
//!   slowly has one answer on its way and costs nothing else.
//! - FOLLOW-2: the head's lists are looked at at most once a period, and only while somebody waits for a change.

use crate::changes::Changes;
use crate::clock::{Due, Periodic};
use bytes::Bytes;
use oxiray_machine::Key;
use oxiray_state::FOLLOWED;
use oxiray_wire::message::{StateChanges, StateFollow};
use oxiray_wire::state::StateKind;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How often changes are looked for.
const PERIOD: Duration = Duration::from_millis(200);
/// The most rows of one answer.
const ANSWER_ROWS_MAX: usize = 2_000;
/// How many may follow at once.
const FOLLOWERS_MAX: usize = 256;

/// A row by what names it, and as it is encoded.
pub(crate) type EncodedRow = (Bytes, Vec<u8>);

/// Who follows, and what changed.
#[derive(Debug, Default)]
pub(crate) struct Following {
    changes: Option<Changes>,
    /// The question of each that waits for a change; nothing where the last one was answered.
    followers: BTreeMap<Key, Option<StateFollow>>,
    looking: Periodic,
}

impl Following {
    /// A visitor asks what changed. Returns what it is told at once: the rest of an answer that was cut, where the lists
    /// may be told of. The error says why it may not follow.
    pub(crate) fn asks(
        &mut self,
        from: Key,
        asked: StateFollow,
        may_be_told: bool,
    ) -> Result<Option<StateChanges>, String> {
        let Some(kinds) = kinds_of(&asked) else {
            let names: Vec<&str> = FOLLOWED.iter().map(|kind| kind.name()).collect();
            return Err(format!(
                "a list was asked about whose changes cannot be followed: those of {} can",
                names.join(", ")
            ));
        };
        if !self.followers.contains_key(&from) && self.followers.len() >= FOLLOWERS_MAX {
            return Err(format!("{FOLLOWERS_MAX} visitors follow the cluster's changes already: end one of them"));
        }
        let known = self.changes.as_ref().filter(|_| may_be_told);
        // Who begins may ask about lists that were not looked at yet.
        let told = known
            .and_then(|changes| changes.since(asked.cursor.unwrap_or_default(), &kinds, ANSWER_ROWS_MAX))
            .filter(|told| !told.is_fresh);
        let request = asked.request;
        self.followers.insert(from, if told.is_none() { Some(asked) } else { None });
        Ok(told.map(|told| StateChanges { request, ..told }))
    }

    /// A visitor is gone.
    pub(crate) fn visitor_left(&mut self, key: Key) {
        self.followers.remove(&key);
        if self.followers.is_empty() {
            self.changes = None;
        }
    }

    /// Whether the lists are to be looked at (FOLLOW-2).
    pub(crate) fn due(&mut self, now: Instant) -> Due {
        if self.followers.values().all(Option::is_none) { Due::Later } else { self.looking.due(PERIOD, now) }
    }

    /// The lists that somebody waits for a change of.
    pub(crate) fn kinds(&self) -> BTreeSet<StateKind> {
        self.followers.values().flatten().filter_map(kinds_of).flatten().collect()
    }

    /// These are the rows of some lists now. Returns what those are told who waited (FOLLOW-1). `origin` is drawn at random.
    pub(crate) fn look(
        &mut self,
        lists: Vec<(StateKind, Vec<EncodedRow>)>,
        origin: u64,
        now: Instant,
    ) -> Vec<(Key, StateChanges)> {
        self.looking.done(now);
        let changes = self.changes.get_or_insert_with(|| Changes::new(origin));
        for (kind, rows) in lists {
            changes.set(kind, rows);
        }
        let mut answers = Vec::new();
        for (key, waiting) in &mut self.followers {
            let Some(asked) = waiting else { continue };
            let kinds = kinds_of(asked).unwrap_or_default();
            if let Some(told) = changes.since(asked.cursor.unwrap_or_default(), &kinds, ANSWER_ROWS_MAX) {
                answers.push((*key, StateChanges { request: asked.request, ..told }));
                *waiting = None;
            }
        }
        answers
    }

    pub(crate) fn alarm_rang(&mut self) {
        self.looking.alarm_rang();
    }

    /// Whether nobody follows, and nothing is kept for anybody.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.followers.is_empty() && self.changes.is_none()
    }
}

/// The lists that are asked about; nothing where one of them cannot be followed, or where more are named than there are.
fn kinds_of(asked: &StateFollow) -> Option<Vec<StateKind>> {
    if asked.kinds.len() > FOLLOWED.len() {
        return None;
    }
    asked.kinds.iter().all(|kind| FOLLOWED.contains(kind)).then(|| asked.kinds.clone())
}
