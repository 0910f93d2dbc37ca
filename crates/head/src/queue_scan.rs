//! Which classes of the queue a round tries to place, where so many wait that trying each would hold up the daemon's loop.
//!
//! - SCAN-1: whatever waits is tried within a bounded time after something changed, however many classes that nothing has room for
//!   stand ahead of it.

use std::time::Duration;

/// How many classes from the queue's head on every round tries.
const FRONT: usize = 64;
/// How many of those behind them a round tries at most: the next round goes on from there.
const WINDOW: usize = 64;
/// How long after a round the next one goes on, where nothing else asks for one.
pub(crate) const GO_ON_AFTER: Duration = Duration::from_millis(10);

/// How far the rounds are.
#[derive(Debug, Default)]
pub(crate) struct QueueScan {
    /// The class behind the front that the next round begins with.
    from: usize,
    /// The class that is next in this round, and how many behind the front it may try still.
    at: usize,
    left: usize,
    /// Where this round stopped.
    stopped: Option<usize>,
    /// Something changed since those before `from` were tried.
    is_stale: bool,
    /// The next round is to go on where the last one stopped: at the alarm, and from when it rang.
    is_armed: bool,
    goes_on: bool,
}

impl QueueScan {
    /// A round begins, since something changed or to go on.
    pub(crate) fn begin(&mut self, has_changed: bool) {
        self.is_stale |= has_changed && self.from > 0;
        (self.at, self.left, self.stopped) = (0, WINDOW, None);
    }

    /// Whether the next class is tried.
    pub(crate) fn tries_next(&mut self) -> bool {
        let at = self.at;
        self.at += 1;
        if at < FRONT {
            return true;
        }
        if at < self.from {
            return false;
        }
        let tries = self.left > 0;
        if tries {
            self.left -= 1;
        } else {
            self.stopped.get_or_insert(at);
        }
        tries
    }

    /// Nobody else can be served in this round, whatever there is room for.
    pub(crate) fn stop(&mut self) {
        self.stopped.get_or_insert(self.at.max(self.from).max(FRONT));
    }

    /// The one that was tried was served: another entry of its class, or none, is in its place.
    pub(crate) fn was_served(&mut self) {
        self.at -= 1;
    }

    /// The round is over. Whether an alarm is to have another go on with those that it did not try; not where nobody else
    /// `can_be_served` whatever there is room for, since what ends that is a change, which begins another.
    pub(crate) fn end(&mut self, can_be_served: bool) -> bool {
        self.from = self.stopped.unwrap_or(0);
        let is_needed = self.from > 0 || std::mem::take(&mut self.is_stale);
        is_needed && can_be_served && !std::mem::replace(&mut self.is_armed, true)
    }

    /// The alarm rang.
    pub(crate) fn alarm_rang(&mut self) {
        (self.is_armed, self.goes_on) = (false, true);
    }

    /// Whether a round is to go on.
    pub(crate) fn take_goes_on(&mut self) -> bool {
        std::mem::take(&mut self.goes_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The classes that a round tries of so many, none of which is served.
    fn round(scan: &mut QueueScan, has_changed: bool, classes: usize) -> (Vec<usize>, bool) {
        scan.begin(has_changed);
        let tried = (0..classes).filter(|_| scan.tries_next()).collect();
        let is_armed = scan.end(true);
        scan.alarm_rang();
        (tried, is_armed)
    }

    #[test]
    fn rounds_go_on_until_each_class_was_tried_after_the_last_change() {
        let mut scan = QueueScan::default();
        let front: Vec<usize> = (0..FRONT).collect();
        let window = |from: usize, to: usize| front.iter().copied().chain(from..to).collect::<Vec<_>>();
        assert_eq!(round(&mut scan, true, FRONT + WINDOW), (window(64, 128), false), "all of them in one");
        assert_eq!(round(&mut scan, true, 200), (window(64, 128), true));
        assert_eq!(round(&mut scan, true, 200), (window(128, 192), true));
        assert_eq!(round(&mut scan, false, 200), (window(192, 200), true), "a change came after some were tried");
        assert_eq!(round(&mut scan, false, 200), (window(64, 128), true));
        assert_eq!(round(&mut scan, false, 200), (window(128, 192), true));
        assert_eq!(round(&mut scan, false, 200), (window(192, 200), false));
    }

    #[test]
    fn where_no_more_can_be_served_the_next_change_goes_on() {
        let mut scan = QueueScan::default();
        scan.begin(true);
        assert!(scan.tries_next());
        scan.stop();
        assert!(!scan.end(false));
        assert!(round(&mut scan, true, 200).1, "then as ever");
    }

    #[test]
    fn who_is_served_takes_no_place() {
        let mut scan = QueueScan::default();
        scan.begin(true);
        for _ in 0..1_000 {
            assert!(scan.tries_next());
            scan.was_served();
        }
        assert!((0..FRONT + WINDOW).all(|_| scan.tries_next()) && !scan.tries_next() && scan.end(true));
    }
}
