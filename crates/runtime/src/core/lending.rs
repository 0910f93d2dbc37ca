//! A task that waits lends its CPU.

use crate::core::client::Client;
use crate::core::io::{DAEMON, Io};
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

impl<I: Io> Client<I> {
    /// The task of this thread waits from now on: its CPU may be lent after a moment. `false` where no task
    /// runs here, and there is nothing to end.
    pub fn begin_waiting(&mut self) -> bool {
        if self.daemon.lost.is_some() || !self.service.inbox.runs_task() {
            return false;
        }
        self.service.blocked.waiting += 1;
        if self.service.blocked.waiting == 1 {
            self.service.blocked.since = Some(self.now);
            self.signals.timer_moved = true;
        }
        true
    }

    /// The task of this thread goes on.
    pub fn end_waiting(&mut self) {
        self.service.blocked.waiting -= 1;
        if self.service.blocked.waiting == 0 {
            self.service.blocked.since = None;
            if std::mem::take(&mut self.service.blocked.told) {
                self.io.send_now(DAEMON, &Unblocked {});
            }
        }
    }
}
