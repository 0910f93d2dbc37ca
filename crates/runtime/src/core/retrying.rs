//! When tasks are run again: how long each pause is, and who waits.

use oxiray_ids::TaskId;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How many workers in a row a task may lose before it waits.
pub(crate) const CRASHES_WITHOUT_PAUSE: u32 = 3;

/// The first pause; each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// The longest pause.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How often and when what was ended for want of memory is run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryRetries {
    /// How often at most; `None` for as often as it takes.
    pub limit: Option<u32>,
    /// The first pause; each further one is twice as long, up to a minute.
    pub pause: Duration,
}

impl Default for MemoryRetries {
    fn default() -> Self {
        Self { limit: None, pause: Duration::from_secs(1) }
    }
}

/// The longest pause after an end for want of memory.
const MEMORY_PAUSE_MAX: Duration = Duration::from_secs(60);

/// The tasks that wait for their next attempt.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    /// How long every task waits at least.
    pub(crate) delay: Duration,
    /// For tasks that were ended for want of memory.
    pub(crate) memory: MemoryRetries,
    waiting: BTreeSet<(Instant, TaskId)>,
}

impl Retries {
    /// When the next task is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.waiting.first().map(|(at, _)| *at)
    }

    /// A task waits until then (RETRY-1).
    pub(crate) fn wait(&mut self, until: Instant, id: TaskId) {
        self.waiting.insert((until, id));
    }

    /// The next task whose pause is over, and when it was to be.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<(Instant, TaskId)> {
        self.next_due().filter(|at| *at <= now)?;
        self.waiting.pop_first()
    }

    /// How long a task waits that was ended for want of memory so often; nothing where it is not begun again.
    pub(crate) fn memory_pause(&self, shortages: u32) -> Option<Duration> {
        let MemoryRetries { limit, pause } = self.memory;
        let is_over = limit.is_some_and(|limit| shortages >= limit);
        (!is_over).then(|| pause.saturating_mul(1 << shortages.min(16)).min(MEMORY_PAUSE_MAX))
    }
}

/// How long to wait after so many deaths in a row.
pub(crate) fn pause_after(crashes: u32) -> Duration {
    match crashes.checked_sub(CRASHES_WITHOUT_PAUSE + 1) {
        None => Duration::ZERO,
        Some(doublings) => PAUSE_MIN.saturating_mul(1 << doublings.min(16)).min(PAUSE_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_begin_late_and_end_at_a_limit() {
        let milliseconds = |crashes| pause_after(crashes).as_millis();
        assert_eq!([0, 1, 3].map(milliseconds), [0, 0, 0]);
        assert_eq!([4, 5, 6, 10, 11, 40, u32::MAX].map(milliseconds), [100, 200, 400, 6400, 10_000, 10_000, 10_000]);
    }
}
