//! A task that waits lends its CPU.

use crate::core::client::Client;
use crate::core::io::{DAEMON, Io};
use oxiray_ids::ObjectId;
use oxiray_wire::message::{Blocked as Told, Unblocked};
use std::time::{Duration, Instant};

/// A task that waits longer than this for what its process makes lends its CPU.
const OWN_PATIENCE: Duration = Duration::from_millis(1);

/// The same for values of other processes: the daemon may have them, and lending would cost a process for the time in which
/// it says so.
const FOREIGN_PATIENCE: Duration = Duration::from_millis(20);

impl<I: Io> Client<I> {
    /// The task of this thread waits for these from now on: its CPU may be lent after a moment. `false` where no task runs
    /// here, and there is nothing to end.
    pub fn begin_waiting(&mut self, ids: &[ObjectId]) -> bool {
        if self.daemon.lost.is_some() || !self.service.inbox.runs_task() {
            return false;
        }
        let is_foreign = ids.iter().all(|id| !self.objects.is_own(*id));
        let tell_at = self.now + if is_foreign { FOREIGN_PATIENCE } else { OWN_PATIENCE };
        self.service.blocked.begin(tell_at);
        self.signals.timer_moved = true;
        true
    }

    /// Where the task waits long enough, tells the daemon; whether it did.
    pub(crate) fn tell_of_waiting(&mut self, now: Instant) -> bool {
        let is_due = self.service.blocked.take_due(now);
        if is_due {
            self.io.send_now(DAEMON, &Told {});
        }
        is_due
    }

    /// The task of this thread goes on.
    pub fn end_waiting(&mut self) {
        if self.service.blocked.end() {
            self.io.send_now(DAEMON, &Unblocked {});
        }
    }
}
