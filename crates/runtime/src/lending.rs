//! A task that waits lends its CPU.

use crate::links::DAEMON;
use crate::state::State;
use oxiray_wire::message::Unblocked;
use std::time::{Duration, Instant};

/// A task that waits longer than this lends its CPU.
pub(crate) const BLOCKED_AFTER: Duration = Duration::from_millis(1);

/// Threads that wait within tasks, since when, and whether the daemon knows.
#[derive(Debug, Default)]
pub(crate) struct Blocked {
    pub(crate) waiting: usize,
    pub(crate) since: Option<Instant>,
    pub(crate) told: bool,
}

impl State {
    /// The task of this thread waits from now on: its CPU may be lent after a moment. `false` where no task
    /// runs here, and there is nothing to end.
    pub(crate) fn begin_waiting(&mut self) -> bool {
        if self.lost.is_some() || !self.inbox.runs_task() {
            return false;
        }
        self.blocked.waiting += 1;
        if self.blocked.waiting == 1 {
            self.blocked.since = Some(Instant::now());
            self.timer_moved = true;
        }
        true
    }

    pub(crate) fn end_waiting(&mut self) {
        self.blocked.waiting -= 1;
        if self.blocked.waiting == 0 {
            self.blocked.since = None;
            if std::mem::take(&mut self.blocked.told) {
                self.links.post_now(DAEMON, &Unblocked {});
            }
        }
    }
}
