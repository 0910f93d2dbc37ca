//! What the objects are called that a process puts.

use oxiray_ids::{ActorId, JobId, ObjectId, TaskId, Unique};
use std::sync::{Mutex, PoisonError};

/// Where the next one is counted.
///
/// A forked child has a connection, and so a task, of its own: no two processes number the same task's objects.
#[derive(Debug, Default)]
pub(crate) struct Puts(Mutex<Option<(TaskId, u32)>>);

impl Puts {
    pub(crate) fn next(&self, job: JobId) -> (TaskId, u32) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (task, number) = match *last {
            Some((task, number)) if number < ObjectId::FIRST_PUT - 1 => (task, number + 1),
            _ => (TaskId::generate(ActorId::nil_of(job), &mut Unique::new()), 0),
        };
        *last = Some((task, number));
        (task, ObjectId::FIRST_PUT | number)
    }
}
