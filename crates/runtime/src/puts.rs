//! What the objects are called that a process puts.

use crate::core::INLINE_BYTES;
use crate::runtime::Runtime;
use oxiray_ids::{ActorId, JobId, ObjectId, TaskId, Unique};
use std::sync::{Mutex, PoisonError};

/// Where the next one is counted.
///
/// A forked child has a connection, and so a task, of its own: no two processes number the same task's objects.
#[derive(Debug, Default)]
pub(crate) struct Puts(Mutex<Option<(TaskId, u32)>>);

impl Puts {
    fn next(&self, job: JobId) -> (TaskId, u32) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (task, number) = match *last {
            Some((task, number)) if number < ObjectId::FIRST_PUT - 1 => (task, number + 1),
            _ => (TaskId::generate(ActorId::nil_of(job), &mut Unique::new()), 0),
        };
        *last = Some((task, number));
        (task, ObjectId::FIRST_PUT | number)
    }
}

impl Runtime {
    /// For the next object that this process puts, of `size` bytes: a task of the connection's own, and the object's
    /// number there. An object larger than [`INLINE_BYTES`] is stored next under that name.
    pub fn next_put(&self, size: usize) -> (TaskId, u32) {
        let with_room =
            if size > INLINE_BYTES { self.shared.with_time(|state| state.name_with_room(size)) } else { None };
        with_room.unwrap_or_else(|| self.new_name())
    }

    pub(crate) fn new_name(&self) -> (TaskId, u32) {
        self.shared.puts.next(self.shared.identity.job)
    }
}
