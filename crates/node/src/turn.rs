//! One turn of the daemon's loop: from the return of epoll until the next wait, in which nobody else is heard.

mod times;

use oxiray_machine::Key;
use oxiray_wire::state::{DaemonStatistics, TurnFigures};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use times::TurnTimes;

/// How many questions one report answers: a turn is over when so many have asked, before their answers are too many.
const ASKERS_MAX: usize = 64;

/// The turn under way, and how long those before it took.
#[derive(Debug)]
pub(crate) struct Turn {
    /// When it began.
    pub(crate) now: Instant,
    times: TurnTimes,
    /// Who asked how things are, and under which number: all are answered from one report.
    askers: Vec<(Key, u64)>,
}

impl Turn {
    pub(crate) fn new(now: Instant) -> Self {
        Self { now, times: TurnTimes::new(), askers: Vec::new() }
    }

    pub(crate) fn begin(&mut self) {
        self.now = Instant::now();
    }

    /// The turn is over. Returns a line for the log where it is time for one.
    pub(crate) fn end(&mut self) -> Option<String> {
        let now = Instant::now();
        self.times.ended(now - self.now, now).then(|| self.times.line())
    }

    /// How long turns took, for the log.
    pub(crate) fn line(&self) -> String {
        self.times.line()
    }

    pub(crate) fn figures(&self) -> TurnFigures {
        self.times.figures()
    }

    pub(crate) fn counted(&self) -> DaemonStatistics {
        self.times.counted()
    }

    /// Somebody asks how things are, and is answered at the end of the turn.
    pub(crate) fn ask(&mut self, asker: Key, request: u64) {
        self.askers.push((asker, request));
    }

    /// Whether it is time to answer.
    pub(crate) fn has_enough_askers(&self) -> bool {
        self.askers.len() >= ASKERS_MAX
    }

    pub(crate) fn take_askers(&mut self) -> Vec<(Key, u64)> {
        std::mem::take(&mut self.askers)
    }
}

/// The wall clock, in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
