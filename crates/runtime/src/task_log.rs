//! Which calls ran in this process and when, told to the daemon when it asks, and once in a while.
//!
//! - LOG-1: a call that ended costs a place in a ring, and no message of its own: at most [`ENDED_MAX`] are told
//!   every [`PERIOD`], however many there were.
//! - LOG-2: a process that is killed takes along what it did in its last [`PERIOD`]; one that leaves tells it.

use crate::links::DAEMON;
use crate::state::State;
use crate::submit::{Target, Task};
use oxiray_ids::TaskId;
use oxiray_wire::message::{Call, Content, TaskLog as Told, TaskRecord, TaskStage, Value};
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How many calls that ended are remembered.
const ENDED_MAX: usize = 1000;
/// How long a call that ended may go untold.
const PERIOD: Duration = Duration::from_secs(1);
/// How many calls a process tells of that have not ended.
const OPEN_MAX: usize = 10_000;
/// Characters kept of what a failure says.
const TEXT_MAX: usize = 1000;

/// A call that ended, as cheaply as it can be kept.
#[derive(Debug)]
struct Entry {
    task: bytes::Bytes,
    name: String,
    attempt: u32,
    started: Option<Instant>,
    ended: Instant,
    error: Option<(String, String)>,
}

/// The calls of this process.
#[derive(Debug)]
pub(crate) struct TaskLog {
    ended: VecDeque<Entry>,
    running: Vec<Option<Entry>>,
    free: Vec<usize>,
    /// How many of `ended`, the last ones, nobody was told of.
    untold: usize,
    /// When they are told.
    pub(crate) tell_at: Option<Instant>,
    began: (Instant, SystemTime),
}

impl Default for TaskLog {
    fn default() -> Self {
        let began = (Instant::now(), SystemTime::now());
        Self { ended: VecDeque::new(), running: Vec::new(), free: Vec::new(), untold: 0, tell_at: None, began }
    }
}

impl TaskLog {
    /// A call begins to run; the place to name when it ends.
    pub(crate) fn begin(&mut self, call: &Call, started: Instant) -> usize {
        let (task, name) = (call.task.clone(), call.name.clone());
        let entry = Entry { task, name, attempt: call.attempt, started: Some(started), ended: started, error: None };
        if let Some(place) = self.free.pop() {
            self.running[place] = Some(entry);
            place
        } else {
            self.running.push(Some(entry));
            self.running.len() - 1
        }
    }

    /// The call at this place ended with these results.
    pub(crate) fn end(&mut self, place: usize, ended: Instant, results: &[Value]) -> bool {
        let Some(mut entry) = self.running.get_mut(place).and_then(Option::take) else { return false };
        self.free.push(place);
        entry.ended = ended;
        entry.error = results.iter().find_map(error_of);
        self.remember(entry)
    }

    /// A call of this process's ended without its worker's answer, or without a worker.
    pub(crate) fn failed(&mut self, task: TaskId, name: &str, attempt: u32, value: &Value) -> bool {
        let task = bytes::Bytes::copy_from_slice(task.as_bytes());
        let error = error_of(value);
        self.remember(Entry { task, name: name.to_owned(), attempt, started: None, ended: Instant::now(), error })
    }

    /// Says whether a timer was set.
    fn remember(&mut self, entry: Entry) -> bool {
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        let is_first = self.tell_at.is_none();
        if is_first {
            self.tell_at = Some(entry.ended + PERIOD);
        }
        self.untold = (self.untold + 1).min(ENDED_MAX);
        self.ended.push_back(entry);
        is_first
    }

    /// What nobody was told of.
    fn take_untold(&mut self) -> Vec<TaskRecord> {
        self.tell_at = None;
        let from = self.ended.len() - std::mem::take(&mut self.untold);
        self.ended.iter().skip(from).map(|entry| self.record(entry, stage(entry))).collect()
    }

    fn record(&self, entry: &Entry, stage: TaskStage) -> TaskRecord {
        let microseconds = |at: Instant| {
            let since = self.began.1 + at.saturating_duration_since(self.began.0);
            since.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
        };
        let (error, text) = entry.error.clone().unwrap_or_default();
        TaskRecord {
            task: entry.task.clone(),
            attempt: entry.attempt,
            name: entry.name.clone(),
            stage: stage.into(),
            started_us: entry.started.map_or(0, microseconds),
            ended_us: if stage == TaskStage::Runs { 0 } else { microseconds(entry.ended) },
            error,
            text,
        }
    }

    fn records(&self) -> Vec<TaskRecord> {
        let ended = self.ended.iter().map(|entry| self.record(entry, stage(entry)));
        ended.chain(self.running.iter().flatten().map(|entry| self.record(entry, TaskStage::Runs))).collect()
    }
}

fn stage(entry: &Entry) -> TaskStage {
    if entry.error.is_some() { TaskStage::Failed } else { TaskStage::Finished }
}

fn error_of(value: &Value) -> Option<(String, String)> {
    match value.content.as_ref()? {
        Content::Raised(_) => Some(("raised".into(), String::new())),
        Content::Failed(failure) => Some((failure.code.clone(), failure.text.chars().take(TEXT_MAX).collect())),
        Content::Inline(_) | Content::Stored(_) => None,
    }
}

impl State {
    /// Tells the daemon of every call that this process runs, ran lately, or waits for.
    pub(crate) fn tell_of_tasks(&mut self, number: u64) {
        let mut records = self.log.records();
        let sent = self.sent();
        records.extend(self.tasks.tasks.iter().take(OPEN_MAX).map(|(id, task)| {
            let stage = Self::stage(id, task, &sent);
            TaskRecord {
                task: crate::objects::copy(id.as_bytes()),
                attempt: task.attempt,
                name: task.work.name.clone(),
                stage: stage.into(),
                ..TaskRecord::default()
            }
        }));
        self.links.post_now(DAEMON, &Told { number, records });
    }

    /// The calls of functions that are under way with some worker.
    pub(crate) fn sent(&self) -> FxHashSet<TaskId> {
        self.tasks.leases.values().flat_map(|lease| lease.under_way.iter().copied()).collect()
    }

    /// How far a call is that has not ended; `sent` as [`State::sent`] says.
    pub(crate) fn stage(id: &TaskId, task: &Task, sent: &FxHashSet<TaskId>) -> TaskStage {
        let is_sent = match task.target {
            Target::Class(_) => sent.contains(id),
            Target::Actor(_) => task.sent > 0,
        };
        match task.waiting_for {
            0 if is_sent => TaskStage::Sent,
            0 => TaskStage::WaitsForWorker,
            _ => TaskStage::WaitsForArguments,
        }
    }

    /// Tells the daemon of calls that ended since it was told last.
    pub(crate) fn tell_of_ended(&mut self) {
        let records = self.log.take_untold();
        if !records.is_empty() && self.lost.is_none() {
            self.links.post_now(DAEMON, &Told { number: 0, records });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(log: &mut TaskLog, name: &str, value: Content) -> bool {
        let call = Call { task: bytes::Bytes::from_static(&[7; 24]), name: name.into(), ..Call::default() };
        let now = Instant::now();
        let place = log.begin(&call, now);
        assert_eq!(log.records().last().map(TaskRecord::stage), Some(TaskStage::Runs));
        log.end(place, now, &[Value { content: Some(value), contained: Vec::new() }])
    }

    #[test]
    fn what_ended_is_told_once_and_remembered_within_bounds() {
        let mut log = TaskLog::default();
        let fine = || Content::Inline(bytes::Bytes::new());
        assert!(run(&mut log, "first", fine()), "a timer is set");
        assert!(!run(&mut log, "second", Content::Raised(bytes::Bytes::new())), "it was set already");
        let told = log.take_untold();
        let expected = [("first", TaskStage::Finished, ""), ("second", TaskStage::Failed, "raised")];
        assert_eq!(told.iter().map(|one| (&*one.name, one.stage(), &*one.error)).collect::<Vec<_>>(), expected);
        assert!(log.take_untold().is_empty() && log.tell_at.is_none());
        for _ in 0..=ENDED_MAX {
            run(&mut log, "more", fine());
        }
        assert_eq!((log.records().len(), log.take_untold().len(), log.running.len()), (ENDED_MAX, ENDED_MAX, 1));
    }
}
