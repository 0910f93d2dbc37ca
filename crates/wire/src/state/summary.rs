//! How many rows there are, by what they are of.

use super::words::{StateKind, TaskKind};
use oxiray_fields::Fields;
use oxiray_ids::JobId;
use std::collections::BTreeMap;

/// Counts over all rows of a kind that pass the filters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Summary {
    /// What was counted: actors, tasks or objects.
    #[field(1)]
    pub of: StateKind,
    /// Actors by class, or tasks by function, each by its name.
    #[field(2)]
    pub calls: BTreeMap<String, CallCounts>,
    /// References to objects, by where those were made.
    #[field(3)]
    pub objects: BTreeMap<String, ObjectCounts>,
    /// How many rows there are of each kind of task, by its word.
    #[field(4)]
    pub kinds: BTreeMap<String, u64>,
    /// How many rows there are.
    #[field(5)]
    pub total: u64,
    /// Attempts by job, name and state, where the question has `by_job`.
    #[field(6)]
    pub attempts: Vec<AttemptCount>,
}

/// Attempts of tasks and calls that are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct AttemptCount {
    /// The job; nothing for attempts of any job that have no count of their own.
    #[field(1)]
    pub job_id: Option<JobId>,
    /// What lists call them; empty for those whose name has no count of its own.
    #[field(2)]
    pub name: String,
    /// How far they are, by Ray's word for it.
    #[field(3)]
    pub state: String,
    /// How many.
    #[field(4)]
    pub count: u64,
}

/// Actors of one class, or tasks of one function.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct CallCounts {
    /// What kind of task they are.
    #[field(1)]
    pub kind: TaskKind,
    /// How many there are in each state, by Ray's word for it.
    #[field(2)]
    pub states: BTreeMap<String, u64>,
}

/// References to objects that were made in one place.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ObjectCounts {
    /// How many references there are.
    #[field(1)]
    pub references: u64,
    /// The bytes of their objects, those excepted whose size is not known.
    #[field(2)]
    pub bytes: u64,
    /// How many processes refer to them.
    #[field(3)]
    pub processes: u64,
    /// On how many machines.
    #[field(4)]
    pub machines: u64,
    /// How many there are by the stage of the task that makes the object, by Ray's word for it.
    #[field(5)]
    pub stages: BTreeMap<String, u64>,
    /// How many there are by the attempt of that task.
    #[field(6)]
    pub attempts: BTreeMap<String, u64>,
    /// How many there are by what the object is referred to for, by Ray's word for it.
    #[field(7)]
    pub uses: BTreeMap<String, u64>,
}
