//! For how long storage that does not answer is asked again.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// For how long after something failed everything is tried again.
const PATIENCE: Duration = Duration::from_secs(15);
/// The first pause, doubled each time up to the last.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// How long an attempt may take once patience is over: whoever asks is to hear of it soon.
const IMPATIENT: Duration = Duration::from_secs(5);

/// Since when nothing has worked; what all orders share.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    failing: Mutex<Option<(Instant, Duration)>>,
}

impl Patience {
    /// Something worked.
    pub(crate) fn worked(&self) {
        *self.failing() = None;
    }

    /// Something failed. Returns after which pause it is tried again, if it is.
    pub(crate) fn failed(&self, now: Instant) -> Option<Duration> {
        let mut failing = self.failing();
        let (since, pause) = failing.get_or_insert((now, PAUSE));
        let next = *pause;
        *pause = (next * 2).min(PAUSE_MAX);
        (now.saturating_duration_since(*since) < PATIENCE).then_some(next)
    }

    /// How long the next attempt may take, where that is limited.
    pub(crate) fn limit(&self, now: Instant) -> Option<Duration> {
        let (since, _) = (*self.failing())?;
        (now.saturating_duration_since(since) >= PATIENCE).then_some(IMPATIENT)
    }

    fn failing(&self) -> std::sync::MutexGuard<'_, Option<(Instant, Duration)>> {
        self.failing.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_a_while_and_is_back_when_something_works() {
        let (patience, start) = (Patience::default(), Instant::now());
        assert_eq!(patience.limit(start), None);
        assert_eq!(patience.failed(start), Some(PAUSE));
        assert_eq!(patience.failed(start + PAUSE), Some(2 * PAUSE));
        assert_eq!(patience.limit(start + PAUSE), None);
        assert_eq!(patience.failed(start + PATIENCE), None);
        assert_eq!(patience.limit(start + PATIENCE), Some(IMPATIENT));
        patience.worked();
        assert_eq!(patience.limit(start + PATIENCE), None);
        assert_eq!(patience.failed(start + PATIENCE), Some(PAUSE));
    }
}
