//! Visitors that follow the lists: each is told what changed since it asked last, as soon as something did.
//!
//! - FOLLOW-1: a follower's question is answered once. Its next one says that it has read the answer, so that one who reads
//!   slowly has one answer on its way and costs nothing else.
//! - FOLLOW-2: the head's lists are looked at at most once a period, and only while somebody waits for a change.

use super::rows::ROWS_MAX;
use super::{Alarm, HeadCore, Key};
use crate::changes::Changes;
use bytes::Bytes;
use oxiray_state::{FOLLOWED, Row};
use oxiray_wire::message::{Failure, StateChanges, StateFollow};
use oxiray_wire::state::StateKind;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often changes are looked for.
const PERIOD: Duration = Duration::from_millis(200);
/// The most rows of one answer.
const ANSWER_ROWS_MAX: usize = 2_000;
/// How many may follow at once.
const FOLLOWERS_MAX: usize = 256;

/// Who follows, and what changed.
#[derive(Debug, Default)]
pub(super) struct Following {
    changes: Option<Changes>,
    /// The question of each that waits for a change; nothing where the last one was answered.
    followers: BTreeMap<Key, Option<StateFollow>>,
    looked_at: Option<Instant>,
    alarm: Option<Instant>,
}

#[cfg(test)]
impl Following {
    /// Whether nobody follows, and nothing is kept for anybody.
    pub(super) fn is_idle(&self) -> bool {
        self.followers.is_empty() && self.changes.is_none()
    }
}

impl HeadCore {
    /// A visitor asks what changed.
    pub(crate) fn state_follow(&mut self, from: Key, asked: StateFollow) {
        let is_new = !self.figures.following.followers.contains_key(&from);
        let refused = match kinds_of(&asked) {
            None => {
                let names: Vec<&str> = FOLLOWED.iter().map(|kind| kind.name()).collect();
                Some(format!(
                    "a list was asked about whose changes cannot be followed: those of {} can",
                    names.join(", ")
                ))
            }
            Some(_) if is_new && self.figures.following.followers.len() >= FOLLOWERS_MAX => {
                Some(format!("{FOLLOWERS_MAX} visitors follow the cluster's changes already: end one of them"))
            }
            Some(_) => None,
        };
        if let Some(text) = refused {
            let failure = Some(Failure { code: "state".into(), text, cause: Bytes::new() });
            self.send(from, StateChanges { request: asked.request, failure, ..StateChanges::default() });
            return;
        }
        // What is known already is told at once: the rest of an answer that was cut.
        let known = self.figures.following.changes.as_ref();
        let told = known.filter(|_| self.durable.resumption.is_none()).and_then(|changes| {
            let told = changes.since(asked.cursor.unwrap_or_default(), &kinds_of(&asked)?, ANSWER_ROWS_MAX);
            // Who begins may ask about lists that were not looked at yet.
            told.filter(|told| !told.is_fresh)
        });
        let request = asked.request;
        let question = if told.is_none() { Some(asked) } else { None };
        self.figures.following.followers.insert(from, question);
        if let Some(told) = told {
            self.send(from, StateChanges { request, ..told });
        }
    }

    /// A visitor is gone.
    pub(super) fn follower_left(&mut self, key: Key) {
        let following = &mut self.figures.following;
        following.followers.remove(&key);
        if following.followers.is_empty() {
            following.changes = None;
        }
    }

    /// To be called after each batch of events.
    pub(super) fn tell_changes(&mut self) {
        let following = &self.figures.following;
        let waiting: Vec<Key> =
            following.followers.iter().filter(|(_, asked)| asked.is_some()).map(|(key, _)| *key).collect();
        if waiting.is_empty() || self.durable.resumption.is_some() {
            return;
        }
        // FOLLOW-2.
        let due = following.looked_at.map_or(self.clock.now, |at| at + PERIOD);
        if self.clock.now < due {
            if following.alarm.is_none_or(|alarm| due < alarm) {
                self.figures.following.alarm = Some(due);
                self.alarm_at(due, Alarm::Changes);
            }
            return;
        }
        let origin = u64::from_le_bytes(self.chance.bytes());
        let mut changes = self.figures.following.changes.take().unwrap_or_else(|| Changes::new(origin));
        let asked = self.figures.following.followers.values().flatten().filter_map(kinds_of).flatten();
        let kinds: std::collections::BTreeSet<StateKind> = asked.collect();
        for kind in kinds {
            self.look_at(kind, &mut changes);
        }
        for key in waiting {
            let asked = self.figures.following.followers.get(&key).cloned().flatten();
            let Some(asked) = asked else { continue };
            let kinds = kinds_of(&asked).unwrap_or_default();
            let told = changes.since(asked.cursor.unwrap_or_default(), &kinds, ANSWER_ROWS_MAX);
            if let Some(told) = told {
                // FOLLOW-1.
                self.figures.following.followers.insert(key, None);
                self.send(key, StateChanges { request: asked.request, ..told });
            }
        }
        self.figures.following.looked_at = Some(self.clock.now);
        self.figures.following.changes = Some(changes);
    }

    pub(super) fn changes_alarm(&mut self) {
        self.figures.following.alarm = None;
    }

    fn look_at(&self, kind: StateKind, changes: &mut Changes) {
        match kind {
            StateKind::Actors => set(kind, &self.actor_list(ROWS_MAX), changes),
            StateKind::Nodes => set(kind, &self.all_nodes(), changes),
            StateKind::Workers => set(kind, &self.worker_rows(), changes),
            StateKind::Jobs => set(kind, &self.job_rows(), changes),
            StateKind::RuntimeEnvs => set(kind, &self.environment_rows(), changes),
            StateKind::PlacementGroups => set(kind, &self.group_list(ROWS_MAX), changes),
            // They are refused.
            StateKind::Unknown | StateKind::Tasks | StateKind::Timeline | StateKind::Objects | StateKind::Explain => {}
        }
    }
}

fn set<R: Row + prost::Message>(kind: StateKind, rows: &[R], changes: &mut Changes) {
    changes.set(kind, rows.iter().map(|row| (row.key(), row.encode_to_vec())));
}

/// The lists that are asked about; nothing where one of them cannot be followed, or where more are named than there are.
fn kinds_of(asked: &StateFollow) -> Option<Vec<StateKind>> {
    if asked.kinds.len() > FOLLOWED.len() {
        return None;
    }
    let kind = |number: &u32| FOLLOWED.into_iter().find(|kind| i32::from(*kind).cast_unsigned() == *number);
    asked.kinds.iter().map(kind).collect()
}
