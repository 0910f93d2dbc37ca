//! What processes were asked of their calls and of the objects that they refer to, and what they said.
//!
//! - CENSUS-1: each question is answered once: when every process that was asked has told, is gone, or the [`patience`] of
//!   the question is over; then the answer says who is missing in it.

use oxiray_ids::WorkerId;
use oxiray_machine::Key;
use oxiray_wire::message::{ObjectLog, Profile, Stack, StateQuery, TaskLog, TaskRecord};
use prost::Message as _;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How long processes have to tell of their calls.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long they have to put together what they sampled, on a machine with much to do.
const PROFILE_PATIENCE: Duration = Duration::from_secs(15);
/// How long processes have to answer a question.
pub(crate) fn patience(asked: &StateQuery) -> Duration {
    let sampled = |profile: Profile| PROFILE_PATIENCE + Duration::from_millis(profile.duration_ms.into());
    asked.profile.map_or(PATIENCE, sampled)
}

/// Questions that may be open at once.
pub(crate) const OPEN_MAX: usize = 64;
/// Calls that ended which are remembered, at most.
const REMEMBERED_MAX: usize = 5_000;

/// A call, and who told of it.
#[derive(Debug)]
pub(crate) struct CallReport {
    pub(crate) record: TaskRecord,
    pub(crate) by: WorkerId,
    pub(crate) pid: u32,
    /// The runtime environment of that process, as JSON; empty for none.
    pub(crate) environment: Arc<str>,
}

/// The calls of a log that a process told.
pub(crate) fn reports(log: TaskLog, by: WorkerId, pid: u32) -> impl Iterator<Item = CallReport> {
    let environment: Arc<str> = log.environment.into();
    log.records.into_iter().map(move |record| CallReport { record, by, pid, environment: Arc::clone(&environment) })
}

/// What one process told of its objects.
#[derive(Debug)]
pub(crate) struct ObjectReport {
    pub(crate) by: Key,
    pub(crate) log: ObjectLog,
}

/// Where the threads of one process are.
#[derive(Debug)]
pub(crate) struct StacksHeard {
    pub(crate) by: Key,
    pub(crate) stacks: Vec<Stack>,
    pub(crate) note: String,
}

/// A question, who has not answered it yet, and what the others said.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) asker: Key,
    pub(crate) asked: StateQuery,
    pub(crate) awaited: BTreeSet<Key>,
    pub(crate) heard: Heard,
    is_late: bool,
}

/// What processes said to one question.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) calls: Vec<CallReport>,
    pub(crate) objects: Vec<ObjectReport>,
    pub(crate) stacks: Vec<StacksHeard>,
}

/// Calls that one process told of, as they lie on the wire: a fifth of what they take as records.
#[derive(Debug)]
struct Remembered {
    log: Box<[u8]>,
    calls: usize,
    by: WorkerId,
    pid: u32,
}

impl Remembered {
    fn told(&self) -> impl Iterator<Item = CallReport> {
        let log = TaskLog::decode(&*self.log).expect("it was encoded here");
        reports(log, self.by, self.pid)
    }
}

/// The questions that are open, and the calls that are remembered.
#[derive(Debug, Default)]
pub(crate) struct Census {
    open: BTreeMap<u64, Question>,
    remembered: VecDeque<Remembered>,
    /// In all of `remembered`.
    calls: usize,
}

impl Census {
    /// Whether no more may be asked for now.
    pub(crate) fn is_full(&self) -> bool {
        self.open.len() >= OPEN_MAX
    }

    /// These processes are asked.
    pub(crate) fn ask(&mut self, number: u64, asker: Key, asked: StateQuery, awaited: BTreeSet<Key>) {
        let (heard, is_late) = (Heard::default(), false);
        self.open.insert(number, Question { asker, asked, awaited, heard, is_late });
    }

    /// A process answers a question, once: `hear` is given what was asked.
    pub(crate) fn hear(&mut self, number: u64, from: Key, hear: impl FnOnce(&StateQuery, &mut Heard)) {
        if let Some(question) = self.open.get_mut(&number)
            && question.awaited.remove(&from)
        {
            hear(&question.asked, &mut question.heard);
        }
    }

    /// Nothing more is to be expected of a process.
    pub(crate) fn without(&mut self, gone: Key) {
        self.open.retain(|_, question| question.asker != gone);
        for question in self.open.values_mut() {
            question.awaited.remove(&gone);
        }
    }

    /// Nobody is waited for any longer.
    pub(crate) fn is_late(&mut self, number: u64) {
        if let Some(question) = self.open.get_mut(&number) {
            question.is_late = true;
        }
    }

    /// Takes the questions that are to be answered now (CENSUS-1).
    pub(crate) fn take_due(&mut self) -> Vec<Question> {
        let is_due = |question: &Question| question.is_late || question.awaited.is_empty();
        let due = self.open.iter().filter(|(_, question)| is_due(question)).map(|(number, _)| *number);
        due.collect::<Vec<_>>().into_iter().filter_map(|number| self.open.remove(&number)).collect()
    }

    /// Calls that ended are remembered for a while.
    pub(crate) fn remember(&mut self, log: &TaskLog, by: WorkerId, pid: u32) {
        let calls = log.records.len();
        self.remembered.push_back(Remembered { log: log.encode_to_vec().into(), calls, by, pid });
        self.calls += calls;
        while self.calls > REMEMBERED_MAX
            && let Some(oldest) = self.remembered.pop_front()
        {
            self.calls -= oldest.calls;
        }
    }

    /// The calls that are remembered.
    pub(crate) fn remembered(&self) -> impl Iterator<Item = CallReport> {
        self.remembered.iter().flat_map(Remembered::told)
    }
}
