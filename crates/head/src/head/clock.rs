//! The two clocks that the core is told of: it reads none itself.

use super::HeadCore;
use std::collections::BTreeSet;
use std::time::Instant;

/// What time it is, and what is due when.
#[derive(Debug)]
pub(super) struct Clock {
    pub(super) now: Instant,
    /// The time in milliseconds since 1970, for listings; 0 until it is told.
    pub(super) wall_ms: u64,
    pub(super) alarms: BTreeSet<(Instant, super::Alarm)>,
}

impl Clock {
    pub(super) fn new(now: Instant) -> Self {
        Self { now, wall_ms: 0, alarms: BTreeSet::new() }
    }
}

impl HeadCore {
    /// Tells what time it is; call it before a batch of events.
    pub(crate) fn set_now(&mut self, now: Instant) {
        self.clock.now = self.clock.now.max(now);
        self.own.set_now(now);
    }

    /// Tells what the wall clock shows, in milliseconds since 1970; nothing but what listings say follows from it.
    pub(crate) fn set_wall_clock(&mut self, now_ms: u64) {
        self.clock.wall_ms = now_ms;
    }
}
