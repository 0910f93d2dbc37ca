//! The two clocks that the core is told of: it reads none itself.

use super::HeadCore;
use std::time::Instant;

impl HeadCore {
    /// Tells what time it is; call it before a batch of events.
    pub(in crate::core) fn set_now(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.own.set_now(now);
    }

    /// Tells what the wall clock shows, in milliseconds since 1970; nothing but what listings say follows from it.
    pub(in crate::core) fn set_wall_clock(&mut self, now_ms: u64) {
        self.wall_ms = now_ms;
    }
}
