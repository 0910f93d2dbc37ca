//! How long the turns of the daemon's loop take: from the return of epoll until the next wait, in which nobody else is
//! heard. A histogram of fixed size, so that what is kept of a turn does not grow.

use oxiray_wire::state::{DaemonStatistics, TURN_STEPS_MS, TurnFigures};
use std::time::{Duration, Instant};

/// A power of two is divided into so many buckets: a percentile is known to an eighth.
const PARTS: u64 = 8;
/// Bits of [`PARTS`].
const PART_BITS: u32 = 3;
/// Enough for 33 s; what is longer counts as that.
const BUCKETS: usize = 192;
/// A turn above this is worth a line in the log.
pub(crate) const LONG: Duration = Duration::from_millis(5);
/// The least time between two such lines.
const LINE_PERIOD: Duration = Duration::from_secs(10);

/// The turns since the daemon began.
#[derive(Debug)]
pub(crate) struct TurnTimes {
    counts: [u64; BUCKETS],
    longer: [u64; TURN_STEPS_MS.len()],
    count: u64,
    total: Duration,
    longest: Duration,
    /// When the last line was written, and whether there was a long turn since.
    told_at: Option<Instant>,
    is_news: bool,
}

fn bucket_of(microseconds: u64) -> usize {
    if microseconds < PARTS {
        return microseconds as usize;
    }
    let exponent = microseconds.ilog2();
    let part = (microseconds >> (exponent - PART_BITS)) % PARTS;
    let bucket = u64::from(exponent - PART_BITS + 1) * PARTS + part;
    (bucket as usize).min(BUCKETS - 1)
}

/// The first length that is beyond the bucket, in microseconds.
fn end_of(bucket: usize) -> u64 {
    let next = bucket as u64 + 1;
    if next < 2 * PARTS { next } else { (PARTS + next % PARTS) << (next / PARTS - 1) }
}

impl TurnTimes {
    pub(crate) fn new() -> Self {
        Self {
            counts: [0; BUCKETS],
            longer: [0; TURN_STEPS_MS.len()],
            count: 0,
            total: Duration::ZERO,
            longest: Duration::ZERO,
            told_at: None,
            is_news: false,
        }
    }

    /// A turn is over. Returns whether it is time for a line in the log.
    pub(crate) fn ended(&mut self, took: Duration, now: Instant) -> bool {
        let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.counts[bucket_of(microseconds)] += 1;
        for (longer, _) in self.longer.iter_mut().zip(TURN_STEPS_MS).filter(|(_, shown)| microseconds > shown * 1000) {
            *longer += 1;
        }
        self.count += 1;
        self.total = self.total.saturating_add(took);
        self.longest = self.longest.max(took);
        self.is_news |= took > LONG;
        let is_due = self.is_news && self.told_at.is_none_or(|told| now >= told + LINE_PERIOD);
        if is_due {
            (self.told_at, self.is_news) = (Some(now), false);
        }
        is_due
    }

    /// For the head's metrics.
    pub(crate) fn counted(&self) -> DaemonStatistics {
        let turns_us = u64::try_from(self.total.as_micros()).unwrap_or(u64::MAX);
        let longer_turns = self.longer.to_vec();
        DaemonStatistics { turns: self.count, turns_us, longer_turns, ..DaemonStatistics::default() }
    }

    pub(crate) fn figures(&self) -> TurnFigures {
        let longest_us = u64::try_from(self.longest.as_micros()).unwrap_or(u64::MAX);
        let above = self.count / 1000;
        let mut counted = 0;
        let bucket = (0..BUCKETS).rev().find(|bucket| {
            counted += self.counts[*bucket];
            counted > above
        });
        let p999_us = bucket.map_or(0, |bucket| end_of(bucket).min(longest_us));
        TurnFigures { count: self.count, p999_us, longest_us }
    }

    /// For the log; `tests/chaos` reads it there.
    pub(crate) fn line(&self) -> String {
        let TurnFigures { count, p999_us, longest_us } = self.figures();
        let longer: Vec<String> =
            TURN_STEPS_MS.iter().zip(&self.longer).map(|(shown, count)| format!("{shown} ms: {count}")).collect();
        format!(
            "turns of the loop of process {}: {count}, 99.9 % within {:.3} ms, the longest {:.3} ms; longer than {}",
            std::process::id(),
            p999_us as f64 / 1000.0,
            longest_us as f64 / 1000.0,
            longer.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_lies_in_its_bucket() {
        let mut last = 0;
        for microseconds in (0..5000).chain((5000..40_000_000).step_by(997)) {
            let bucket = bucket_of(microseconds);
            assert!(bucket == last || bucket == last + 1 || microseconds > 5000, "buckets follow each other");
            assert!(microseconds < end_of(bucket) || bucket == BUCKETS - 1, "{microseconds} in {bucket}");
            assert!(bucket == 0 || microseconds >= end_of(bucket - 1), "{microseconds} in {bucket}");
            last = bucket;
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_last_of_a_thousand_is_beyond_the_percentile() {
        let (mut times, now) = (TurnTimes::new(), Instant::now());
        assert_eq!(times.figures(), TurnFigures::default());
        for _ in 0..999 {
            times.ended(Duration::from_micros(100), now);
        }
        assert_eq!(times.figures().p999_us, 100, "never more than the longest");
        times.ended(Duration::from_millis(70), now);
        assert_eq!(times.figures(), TurnFigures { count: 1000, p999_us: 104, longest_us: 70_000 });
        times.ended(Duration::from_millis(30), now);
        assert_eq!(times.figures().p999_us, 30_720, "two of a thousand are long");
        let counted = times.counted();
        assert_eq!((counted.turns, counted.turns_us), (1001, 999 * 100 + 100_000));
        assert_eq!(counted.longer_turns, [2, 2, 2, 2, 2, 1, 0, 0, 0, 0]);
        assert!(times.line().ends_with("20 ms: 2, 50 ms: 1, 100 ms: 0, 200 ms: 0, 500 ms: 0, 1000 ms: 0"));
    }

    #[test]
    fn long_turns_are_told_of_at_times() {
        let (mut times, now) = (TurnTimes::new(), Instant::now());
        assert!(!times.ended(LONG, now));
        assert!(times.ended(LONG * 2, now));
        assert!(!times.ended(LONG * 2, now), "there was a line a moment ago");
        assert!(times.ended(LONG, now + LINE_PERIOD), "it is told of later");
        assert!(!times.ended(LONG, now + LINE_PERIOD * 2), "nothing is new");
    }
}
