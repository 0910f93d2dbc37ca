//! Tasks that are run again, and the pauses before that.
//!
//! The first few attempts follow at once: a worker dies of many things that do not happen twice. A task whose worker dies
//! every time waits longer and longer, so that one that is retried for ever does not keep the machine busy with starting
//! processes; its owner is told once why.
//!
//! - RETRY-1: a task that waits for its next attempt is in no queue, and enters it once.

use crate::core::calls::Target;
use crate::core::client::Client;
use crate::core::io::Io;
use crate::core::retrying::{CRASHES_WITHOUT_PAUSE, PAUSE_MAX, pause_after};
use crate::core::signals::ClientEvent;
use oxiray_ids::TaskId;
use std::time::{Duration, Instant};

/// How often a device may fail under a task without that being counted.
const DEVICE_FAILURES_MAX: u32 = 3;

impl<I: Io> Client<I> {
    /// Puts a task back into its queue, now or later, where it has retries left. `crash` is how its worker ended, where
    /// that is why it is run again.
    pub(crate) fn try_again(&mut self, id: TaskId, crash: Option<&str>) -> bool {
        if !self.spend_retry(id) {
            return false;
        }
        let Some(task) = self.calls.tasks.get_mut(&id) else { return false };
        task.suspect = crash.is_some();
        task.unreached = 0;
        task.crashes = if crash.is_some() { task.crashes + 1 } else { 0 };
        let Target::Class(queue) = task.target else { return false };
        let (crashes, pause) = (task.crashes, self.calls.retries.delay.max(pause_after(task.crashes)));
        if !self.pause(id, queue, pause) {
            return true;
        }
        if let Some(crash) = crash
            && crashes == CRASHES_WITHOUT_PAUSE + 1
            && !std::mem::replace(&mut self.leases.queues[queue].has_told_of_pauses, true)
        {
            let name = self.name_of(id);
            self.signals.tell(ClientEvent::Notice(format!(
                "`{name}` was begun {crashes} times, and each time its worker died: {crash}. It is tried again after pauses \
                 of up to {} s, since its max_retries allows more attempts; cancel() ends that, and the worker's output and \
                 the session's daemon.log may tell what is wrong",
                PAUSE_MAX.as_secs()
            )));
        }
        true
    }

    /// Puts a task back into its queue that no worker has begun, since the network made no stream to that. It spends no
    /// retry, and waits longer and longer.
    pub(crate) fn reach_again(&mut self, id: TaskId) {
        let Some(task) = self.calls.tasks.get_mut(&id) else { return };
        let Target::Class(queue) = task.target else { return };
        task.unreached = task.unreached.saturating_add(1);
        let pause = pause_after(task.unreached);
        self.pause(id, queue, pause);
        if !std::mem::replace(&mut self.leases.queues[queue].has_told_of_network, true) {
            let name = self.name_of(id);
            self.signals.tell(ClientEvent::Notice(format!(
                "no connection could be made to the worker on another node that was to run `{name}`. It has not begun, which \
                 counts as no attempt, and is tried again until it is cancelled; daemon.log of the session on either node \
                 says why. Check that the nodes reach each other's ports"
            )));
        }
    }

    fn name_of(&self, id: TaskId) -> String {
        self.calls.tasks.get(&id).map(|task| task.work.title()).unwrap_or_default()
    }

    /// Puts a task into its queue, now or after a pause; whether there is one (RETRY-1).
    fn pause(&mut self, id: TaskId, queue: usize, pause: Duration) -> bool {
        let Some(task) = self.calls.tasks.get_mut(&id).filter(|_| !pause.is_zero()) else {
            self.leases.queues[queue].pending.push_front(id);
            return false;
        };
        let until = self.now + pause;
        task.paused_until = Some(until);
        self.calls.retries.wait(until, id);
        self.signals.timer_moved = true;
        true
    }

    /// Has a task that was ended since others took memory too run again later, without that being counted.
    pub(crate) fn try_with_more_memory(&mut self, id: TaskId, why: &str) -> bool {
        let shortages = self.calls.tasks.get(&id).map_or(0, |task| task.shortages);
        let Some(pause) = self.calls.retries.memory_pause(shortages) else { return false };
        if !self.repeat_uncounted(id) {
            return false;
        }
        let Some(task) = self.calls.tasks.get_mut(&id) else { return false };
        let Target::Class(queue) = task.target else { return false };
        task.shortages += 1;
        let count = task.shortages;
        self.pause(id, queue, pause);
        // One that never finds memory is told of ever more seldom, and never in silence.
        if count.is_power_of_two() {
            let name = self.name_of(id);
            let left = self
                .calls
                .retries
                .memory
                .limit
                .map_or("without a limit".to_owned(), |limit| format!("{limit} times at most"));
            self.signals.tell(ClientEvent::Notice(format!(
                "`{name}` did not finish: {why}. It is begun again in {:.1} s, when others may have ended; so far it was ended \
                 {count} times, and is begun again {left} (RAY_task_oom_retries)",
                pause.as_secs_f64()
            )));
        }
        true
    }

    /// Has a task that ended with its machine, which was emptied, or with a device run once more without that being counted; `false` where
    /// it was to run once at most.
    pub(crate) fn try_elsewhere(&mut self, id: TaskId) -> bool {
        let Some(Target::Class(queue)) = self.calls.tasks.get(&id).map(|task| task.target) else { return false };
        let may_repeat = self.repeat_uncounted(id);
        if may_repeat {
            self.leases.queues[queue].pending.push_front(id);
        }
        may_repeat
    }

    /// Has a task that ended since a device failed run once more without that being counted; `false` where it was to run once
    /// at most, or devices fail under it again and again.
    pub(crate) fn try_on_another_device(&mut self, id: TaskId) -> bool {
        let Some(task) = self.calls.tasks.get_mut(&id).filter(|task| task.device_failures < DEVICE_FAILURES_MAX) else {
            return false;
        };
        task.device_failures += 1;
        self.try_elsewhere(id)
    }

    /// Has what ended with a machine that was emptied, or was preempted, count as one more attempt, and spends no retry;
    /// `false` where it was to run once at most, and is not preemptible.
    pub(crate) fn repeat_uncounted(&mut self, id: TaskId) -> bool {
        let leaving = self.calls.leaving;
        let Some(task) = self.calls.tasks.get_mut(&id).filter(|_| !leaving) else { return false };
        let is_preemptible = match task.target {
            Target::Class(index) => self.leases.queues[index].class.preemptible && !task.cancelled,
            Target::Actor(_) => false,
        };
        let may_repeat = task.may_repeat() || is_preemptible;
        task.attempt += u32::from(may_repeat);
        may_repeat
    }

    /// Counts one more attempt; `false` where none is left.
    pub(crate) fn spend_retry(&mut self, id: TaskId) -> bool {
        let leaving = self.calls.leaving;
        let Some(task) = self.calls.tasks.get_mut(&id) else { return false };
        if task.work.retries == 0 || leaving || task.cancelled {
            return false;
        }
        task.work.retries -= i32::from(task.work.retries > 0);
        task.attempt += 1;
        true
    }

    /// Tasks whose pause is over enter their queues (RETRY-1).
    pub(crate) fn end_pauses(&mut self, now: Instant) {
        while let Some((at, id)) = self.calls.retries.take_due(now) {
            // It may have ended meanwhile, and even have begun anew.
            let Some(task) = self.calls.tasks.get_mut(&id).filter(|task| task.paused_until == Some(at)) else {
                continue;
            };
            task.paused_until = None;
            if let Target::Class(queue) = task.target {
                self.leases.queues[queue].pending.push_front(id);
                self.pump(queue);
            }
        }
    }
}
