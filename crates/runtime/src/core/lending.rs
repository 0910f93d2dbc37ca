//! Threads that wait within tasks.

use std::time::Instant;

/// Threads that wait within tasks, when the daemon is to be told, and whether it was.
#[derive(Debug, Default)]
pub(crate) struct Blocked {
    waiting: usize,
    tell_at: Option<Instant>,
    told: bool,
}

impl Blocked {
    /// A thread waits within a task: the daemon is to be told then, where it has not gone on by that.
    pub(crate) fn begin(&mut self, tell_at: Instant) {
        self.waiting += 1;
        self.tell_at = Some(self.tell_at.map_or(tell_at, |at| at.min(tell_at)));
    }

    /// Whether the daemon is told now.
    pub(crate) fn take_due(&mut self, now: Instant) -> bool {
        let is_due = self.due().is_some_and(|at| at <= now);
        self.told |= is_due;
        is_due
    }

    /// A thread goes on. Returns whether the daemon is to be told: it knows that one waits, and none does any more.
    pub(crate) fn end(&mut self) -> bool {
        self.waiting -= 1;
        if self.waiting > 0 {
            return false;
        }
        self.tell_at = None;
        std::mem::take(&mut self.told)
    }

    /// When the daemon is to be told.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.tell_at.filter(|_| !self.told)
    }
}
