//! How many processes are kept ready: as many as were wanted at once lately, and fewer the longer that is ago.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// For so long a peak counts in full.
const FULL_FOR: Duration = Duration::from_secs(60);
/// Afterwards it counts half as much after each of these.
pub(crate) const HALF_LIFE: Duration = Duration::from_secs(15);
/// Workers that are taken within this time are wanted at once.
const AT_ONCE: Duration = Duration::from_secs(1);
/// A burst is over when none was taken for so long.
pub(crate) const QUIET: Duration = Duration::from_millis(100);
/// The most spare workers of one template: in the time that this many tasks take, others are forked.
const SPARES_MAX: usize = 16;

/// The highest of some counts, which fades.
#[derive(Debug, Default)]
pub(crate) struct Peak {
    noted: Option<(usize, Instant)>,
}

impl Peak {
    pub(crate) fn note(&mut self, count: usize, now: Instant) {
        if count >= self.at(now) {
            self.noted = Some((count, now));
        }
    }

    /// What it counts now.
    pub(crate) fn at(&self, now: Instant) -> usize {
        let Some((count, since)) = self.noted else { return 0 };
        let faded = now.saturating_duration_since(since).saturating_sub(FULL_FOR);
        let halvings = faded.as_nanos().div_ceil(HALF_LIFE.as_nanos());
        count.checked_shr(halvings as u32).unwrap_or(0)
    }
}

/// How many workers of a template were taken at once lately.
#[derive(Debug, Default)]
pub(crate) struct Bursts {
    /// When the last ones were taken, oldest first.
    taken: VecDeque<Instant>,
    pub(crate) peak: Peak,
}

impl Bursts {
    pub(crate) fn take(&mut self, now: Instant) {
        self.taken.push_back(now);
        let is_over = |at: &Instant| now.saturating_duration_since(*at) >= AT_ONCE;
        while self.taken.len() > SPARES_MAX || self.taken.front().is_some_and(is_over) {
            self.taken.pop_front();
        }
        self.peak.note(self.taken.len(), now);
    }

    /// Whether one was taken just now.
    pub(crate) fn goes_on(&self, now: Instant) -> bool {
        self.taken.back().is_some_and(|last| now.saturating_duration_since(*last) < QUIET)
    }
}

/// How many workers served tasks at once lately.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    pub(crate) serving: Peak,
    /// When it is looked at next how many processes are wanted.
    next: Option<Instant>,
}

impl Recent {
    /// It is looked at then how many processes are wanted; whether that is earlier than it was to be.
    pub(crate) fn look_at(&mut self, at: Instant) -> bool {
        let is_earlier = self.next.is_none_or(|next| at < next);
        if is_earlier {
            self.next = Some(at);
        }
        is_earlier
    }

    /// Whether it is looked at now.
    pub(crate) fn take_due(&mut self, now: Instant) -> bool {
        self.next.take_if(|next| *next <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64) -> Instant {
        use std::sync::OnceLock;
        static START: OnceLock<Instant> = OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_secs(seconds)
    }

    #[test]
    fn a_peak_counts_in_full_for_a_while_and_then_fades() {
        let mut peak = Peak::default();
        assert_eq!(peak.at(after(0)), 0);
        peak.note(8, after(0));
        peak.note(3, after(10));
        let seen = [10, 60, 61, 75, 76, 91, 106, 1_000_000].map(|seconds| peak.at(after(seconds)));
        assert_eq!(seen, [8, 8, 4, 4, 2, 1, 0, 0]);
        peak.note(3, after(80));
        assert_eq!(peak.at(after(130)), 3, "a lower one counts where the higher has faded");
    }

    #[test]
    fn what_is_taken_within_a_second_is_a_burst() {
        let mut bursts = Bursts::default();
        for number in 0..10 {
            bursts.take(after(0) + Duration::from_millis(10 * number));
        }
        assert_eq!(bursts.peak.at(after(30)), 10);
        let mut seldom = Bursts::default();
        for number in 0..10 {
            seldom.take(after(2 * number));
        }
        assert_eq!(seldom.peak.at(after(20)), 1);
        let mut many = Bursts::default();
        (0..1000).for_each(|_| many.take(after(0)));
        assert_eq!(many.peak.at(after(0)), SPARES_MAX);
    }
}
