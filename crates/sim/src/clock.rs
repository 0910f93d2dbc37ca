//! The clocks of the nodes: each goes its own way, and none goes back.

use crate::agenda::Micros;
use crate::chance::Chance;
use std::time::{Duration, Instant};

/// A clock goes right in this many parts of its own.
const RIGHT: u64 = 1000;

/// One node's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
    ahead: Micros,
    /// How fast it goes, in parts of [`RIGHT`].
    rate: u64,
}

impl Clock {
    /// A clock; it goes too slow or too fast by up to `drift`, in parts of a thousand.
    pub(crate) fn new(start: Instant, drift: u64, chance: &mut Chance) -> Self {
        let rate = chance.between(RIGHT - drift, RIGHT + drift);
        Self { start, ahead: chance.between(0, 3_600_000_000), rate }
    }

    /// How long it has gone.
    pub(crate) fn reads(&self, at: Micros) -> Duration {
        self.shows(at).saturating_duration_since(self.start)
    }

    /// The first moment of the world at which it has gone for at least so long.
    pub(crate) fn when_it_reads(&self, gone: Duration) -> Micros {
        self.when(self.start + gone)
    }

    /// What it shows at a moment of the world.
    pub(crate) fn shows(&self, at: Micros) -> Instant {
        self.start + Duration::from_micros(self.ahead + at * self.rate / RIGHT)
    }

    /// The first moment of the world at which it shows at least this.
    pub(crate) fn when(&self, shown: Instant) -> Micros {
        let local = shown.saturating_duration_since(self.start).as_micros() as u64;
        (local.saturating_sub(self.ahead) * RIGHT).div_ceil(self.rate)
    }
}
