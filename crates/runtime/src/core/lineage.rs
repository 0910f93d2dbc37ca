//! How values in the store were made, so that lost ones can be made again.
//!
//! The owner of a task keeps its *task specification*, the call as it was, while one of its stored results may still be wanted. A
//! task specification keeps small values that it was given, and large ones that nothing can make again; of other large ones it keeps, in
//! turn, their own task specifications.
//!
//! - LINEAGE-1: a task is known here as long as it has users: each stored result that this process or the daemon still
//!   refers to, and each task specification that takes one of its results.
//! - LINEAGE-2: the task specifications together never take more bytes than the limit: the oldest give way, and leave the reason.
//! - LINEAGE-3: a task specification is followed at most as often as the task's retries allow, failed attempts included.
//! - LINEAGE-4: what a task specification keeps is given back exactly once: when it gives way, or with its last user.
//!
//! Pure: what it lets go of is returned, and the caller gives it back.

use crate::core::work::{Class, Work};
use oxiray_ids::{ObjectId, TaskId};
use oxiray_wire::message::FailureCode;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes that task specifications may take together, unless configured otherwise.
pub(crate) const BYTES_LIMIT: usize = 1 << 30;
/// What a task specification takes beside its arguments, about.
const TASK_SPEC_BYTES: usize = 512;

/// Why a lost value cannot be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The task's retries are used up.
    AttemptsExceeded,
    /// The task specification gave way to others.
    Evicted,
    /// It was put, and no task makes it.
    Put,
    /// The task, or the actor's method, is not to be run again.
    RetriesDisabled,
    /// The task was cancelled.
    Cancelled,
    /// The value belongs to another process that cannot be asked any more.
    Borrowed,
    /// Nothing is known of it.
    NotFound,
    /// Nothing is recorded in this cluster.
    Disabled,
}

impl Reason {
    /// The failure code, and what it means.
    pub(crate) fn told(self) -> (FailureCode, &'static str) {
        match self {
            Self::AttemptsExceeded => (
                FailureCode::AttemptsExceeded,
                "its task was run as often as max_retries allows, and the value was lost again: raise max_retries, or \
                 find out what loses it",
            ),
            Self::Evicted => (
                FailureCode::LineageEvicted,
                "how it was made was forgotten, to keep the records of all tasks below RAY_max_lineage_bytes: raise that, \
                 or pass large arguments by reference",
            ),
            Self::Put => (
                FailureCode::LostPut,
                "it was made by put() or is an argument given by value, and only what a task returned can be made again: \
                 let a task make it",
            ),
            Self::RetriesDisabled => (
                FailureCode::RetriesDisabled,
                "its task has max_retries=0, or the actor's method that returned it has max_task_retries=0, so it is not to \
                 be run again: set that where it is safe to run twice",
            ),
            Self::Cancelled => (
                FailureCode::LostCancelled,
                "its task was cancelled, and what is cancelled is not run again: submit it anew",
            ),
            Self::Borrowed => (
                FailureCode::LostBorrowed,
                "its task needs a value that belongs to another process and was given back since: keep a reference to it",
            ),
            Self::NotFound => (
                FailureCode::LostUnknown,
                "the process that made it knows nothing of it any more: keep a reference to it there",
            ),
            Self::Disabled => (
                FailureCode::LineageDisabled,
                "nothing is recorded of how values were made, since lineage_pinning_enabled is off: switch it on",
            ),
        }
    }
}

/// What it takes to run a task again.
#[derive(Debug, Clone)]
pub(crate) struct TaskSpec {
    /// The call; its retries are those left.
    pub(crate) work: Work,
    /// What it needs; nothing for a method, which its actor runs.
    pub(crate) class: Option<Arc<Class>>,
    /// How often it was begun.
    pub(crate) attempt: u32,
    /// Objects with a small value, or one that cannot be made again, each with one use that belongs to the task specification.
    pub(crate) held: Vec<ObjectId>,
    /// Tasks of this process whose stored results it takes, once for each argument.
    pub(crate) sources: Vec<TaskId>,
    /// Bytes of the small values.
    pub(crate) held_bytes: usize,
    /// How many items it yielded, where its results come one by one.
    pub(crate) items: u32,
}

impl TaskSpec {
    fn bytes(&self) -> usize {
        TASK_SPEC_BYTES + self.work.arguments.payload.len() + self.held_bytes
    }
}

#[derive(Debug)]
struct Entry {
    users: u32,
    task_spec: Result<TaskSpec, Reason>,
}

/// The task specifications of this process's tasks.
#[derive(Debug)]
pub(crate) struct Lineage {
    entries: FxHashMap<TaskId, Entry>,
    /// Stored results that others refer to, and nobody here: each is a user until the daemon says otherwise.
    elsewhere: FxHashSet<ObjectId>,
    /// The tasks with task specifications, oldest first; those whose task specification is gone are skipped.
    order: VecDeque<TaskId>,
    bytes: usize,
    limit: usize,
    enabled: bool,
}

impl Default for Lineage {
    fn default() -> Self {
        Self {
            entries: FxHashMap::default(),
            elsewhere: FxHashSet::default(),
            order: VecDeque::new(),
            bytes: 0,
            limit: BYTES_LIMIT,
            enabled: true,
        }
    }
}

impl Lineage {
    /// Sets how much may be kept, and whether anything is.
    pub(crate) fn configure(&mut self, enabled: bool, limit: usize) {
        self.enabled = enabled;
        self.limit = limit;
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// How many tasks are known, and what their task specifications take.
    pub(crate) fn figures(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
    }

    /// The values that task specifications keep, once for each use.
    pub(crate) fn held(&self) -> impl Iterator<Item = ObjectId> {
        self.entries
            .values()
            .filter_map(|entry| entry.task_spec.as_ref().ok())
            .flat_map(|task_spec| task_spec.held.iter().copied())
    }

    pub(crate) fn knows(&self, task: TaskId) -> bool {
        self.entries.contains_key(&task)
    }

    /// One more user of a task; `false` where it is not known.
    pub(crate) fn retain(&mut self, task: TaskId) -> bool {
        let Some(entry) = self.entries.get_mut(&task) else { return false };
        entry.users += 1;
        true
    }

    /// A task that is not known ended with `users` stored results. Its sources count as used from here on.
    /// Returns the objects to be given back for what gave way.
    pub(crate) fn keep(&mut self, task: TaskId, users: u32, task_spec: TaskSpec) -> Vec<ObjectId> {
        assert!(users > 0 && !self.knows(task), "LINEAGE-1");
        self.bytes += task_spec.bytes();
        self.entries.insert(task, Entry { users, task_spec: Ok(task_spec) });
        self.order.push_back(task);
        let mut freed = Vec::new();
        while self.bytes > self.limit {
            let Some(oldest) = self.order.pop_front() else { break };
            self.evict(oldest, &mut freed);
        }
        if self.order.len() > 2 * self.entries.len() + 16 {
            let entries = &self.entries;
            self.order.retain(|task| entries.get(task).is_some_and(|entry| entry.task_spec.is_ok()));
        }
        freed
    }

    /// A task that is not known ended with `users` stored results, and is not to be run again for this reason.
    pub(crate) fn keep_reason(&mut self, task: TaskId, users: u32, reason: Reason) {
        assert!(users > 0 && !self.knows(task), "LINEAGE-1");
        self.entries.insert(task, Entry { users, task_spec: Err(reason) });
    }

    /// How many items a task yielded whose task specification is kept.
    pub(crate) fn items(&self, task: TaskId) -> Option<u32> {
        self.entries.get(&task)?.task_spec.as_ref().ok().map(|task_spec| task_spec.items)
    }

    /// LINEAGE-2.
    fn evict(&mut self, task: TaskId, freed: &mut Vec<ObjectId>) {
        let Some(entry) = self.entries.get_mut(&task) else { return };
        let Ok(task_spec) = std::mem::replace(&mut entry.task_spec, Err(Reason::Evicted)) else { return };
        self.forgotten(task_spec, freed);
    }

    /// One user of a task less. Returns the objects to be given back for what went with it.
    pub(crate) fn release(&mut self, task: TaskId) -> Vec<ObjectId> {
        let mut freed = Vec::new();
        self.release_all(vec![task], &mut freed);
        freed
    }

    fn release_all(&mut self, mut ending: Vec<TaskId>, freed: &mut Vec<ObjectId>) {
        while let Some(task) = ending.pop() {
            let Some(entry) = self.entries.get_mut(&task) else { continue };
            entry.users = entry.users.checked_sub(1).expect("LINEAGE-1: a task has as many users as were counted");
            if entry.users > 0 {
                continue;
            }
            let entry = self.entries.remove(&task).expect("it was just found");
            if let Ok(task_spec) = entry.task_spec {
                self.bytes -= task_spec.bytes();
                freed.extend(task_spec.held);
                ending.extend(task_spec.sources);
            }
        }
    }

    fn forgotten(&mut self, task_spec: TaskSpec, freed: &mut Vec<ObjectId>) {
        self.bytes -= task_spec.bytes();
        freed.extend(task_spec.held);
        self.release_all(task_spec.sources, freed);
    }

    /// The task specification is to be followed once more (LINEAGE-3); or why it cannot be.
    pub(crate) fn follow(&mut self, task: TaskId) -> Result<TaskSpec, Reason> {
        let entry = self.entries.get_mut(&task).ok_or(Reason::NotFound)?;
        let task_spec = entry.task_spec.as_mut().map_err(|reason| *reason)?;
        if task_spec.work.retries == 0 {
            return Err(if task_spec.attempt == 0 { Reason::RetriesDisabled } else { Reason::AttemptsExceeded });
        }
        task_spec.work.retries -= i32::from(task_spec.work.retries > 0);
        task_spec.attempt += 1;
        Ok(task_spec.clone())
    }

    /// A task specification that was followed came to its end: what its attempts used up is used up.
    pub(crate) fn followed(&mut self, task: TaskId, retries: i32, attempt: u32) {
        if let Some(Entry { task_spec: Ok(task_spec), .. }) = self.entries.get_mut(&task) {
            task_spec.work.retries = retries;
            task_spec.attempt = attempt;
        }
    }

    /// A user that was here is elsewhere from now on.
    pub(crate) fn enter_elsewhere(&mut self, object: ObjectId) {
        self.elsewhere.insert(object);
    }

    /// Whether others refer to the stored result, and nobody here.
    pub(crate) fn is_elsewhere(&self, object: ObjectId) -> bool {
        self.elsewhere.contains(&object)
    }

    /// A user that was elsewhere is here again, or gone; `false` where it was not elsewhere.
    pub(crate) fn leave_elsewhere(&mut self, object: ObjectId) -> bool {
        self.elsewhere.remove(&object)
    }

    /// Everything is over.
    pub(crate) fn clear(&mut self) {
        self.elsewhere.clear();
        self.entries.clear();
        self.order.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests;
