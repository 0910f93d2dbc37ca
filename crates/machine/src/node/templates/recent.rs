//! How many processes are kept ready: as many as were wanted at once lately, and fewer the longer that is ago.

use crate::node::{Alarm, Duty, NodeCore, Worker};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// For so long a peak counts in full.
const FULL_FOR: Duration = Duration::from_secs(60);
/// Afterwards it counts half as much after each of these.
pub(super) const HALF_LIFE: Duration = Duration::from_secs(15);
/// Workers that are taken within this time are wanted at once.
const AT_ONCE: Duration = Duration::from_secs(1);
/// A burst is over when none was taken for so long.
pub(super) const QUIET: Duration = Duration::from_millis(100);
/// For so long an idle worker is kept in any case: the next task of its environment finds what it has loaded.
const IDLE_KEPT: Duration = Duration::from_secs(1);
/// The most idle workers that are kept for that reason alone.
const IDLE_SURPLUS_MAX: usize = 16;
/// The most spare workers of one template: in the time that this many tasks take, others are forked.
const SPARES_MAX: usize = 16;
/// The most spare workers of one template for each processor.
const SPARES_PER_CPU: u64 = 8;
/// How much of the machine's memory there is for each spare worker, at least.
const BYTES_PER_SPARE: u64 = 512 << 20;

/// The highest of some counts, which fades.
#[derive(Debug, Default)]
pub(super) struct Peak {
    noted: Option<(usize, Instant)>,
}

impl Peak {
    pub(super) fn note(&mut self, count: usize, now: Instant) {
        if count >= self.at(now) {
            self.noted = Some((count, now));
        }
    }

    /// What it counts now.
    pub(super) fn at(&self, now: Instant) -> usize {
        let Some((count, since)) = self.noted else { return 0 };
        let faded = now.saturating_duration_since(since).saturating_sub(FULL_FOR);
        let halvings = faded.as_nanos().div_ceil(HALF_LIFE.as_nanos());
        count.checked_shr(halvings as u32).unwrap_or(0)
    }
}

/// How many workers of a template were taken at once lately.
#[derive(Debug, Default)]
pub(super) struct Bursts {
    /// When the last ones were taken, oldest first.
    taken: VecDeque<Instant>,
    peak: Peak,
}

impl Bursts {
    pub(super) fn take(&mut self, now: Instant) {
        self.taken.push_back(now);
        let is_over = |at: &Instant| now.saturating_duration_since(*at) >= AT_ONCE;
        while self.taken.len() > SPARES_MAX || self.taken.front().is_some_and(is_over) {
            self.taken.pop_front();
        }
        self.peak.note(self.taken.len(), now);
    }

    /// Whether one was taken just now.
    pub(super) fn goes_on(&self, now: Instant) -> bool {
        self.taken.back().is_some_and(|last| now.saturating_duration_since(*last) < QUIET)
    }
}

/// How many workers served tasks at once lately.
#[derive(Debug, Default)]
pub(super) struct Recent {
    serving: Peak,
    /// When it is looked at next how many processes are wanted.
    next: Option<Instant>,
}

impl NodeCore {
    /// How many spare workers a template is to have after what was taken of it.
    pub(super) fn spares_wanted(&self, bursts: &Bursts) -> usize {
        let always = self.plan.spare_workers;
        if always == 0 {
            return 0;
        }
        let total = |name| self.plan.inventory.total(name).wholes();
        let room = (total("memory") / BYTES_PER_SPARE).min(total("CPU") * SPARES_PER_CPU);
        bursts.peak.at(self.now).min(room as usize).max(always)
    }

    /// How many idle workers are kept.
    fn idle_wanted(&self) -> usize {
        self.plan.idle_workers_kept().max(self.templates.recent.serving.at(self.now))
    }

    /// A worker is idle now that was not before.
    pub(in crate::node) fn note_idle(&mut self) {
        let serves = |worker: &&Worker| matches!(worker.duty, Duty::Leased(_)) && !worker.once;
        let serving = self.workers.values().filter(serves).count() + 1;
        self.templates.recent.serving.note(serving, self.now);
        self.trim_idle(IDLE_SURPLUS_MAX);
    }

    /// Ends those that were idle longest, but for so many more than are wanted.
    fn trim_idle(&mut self, surplus: usize) {
        while self.idle.len() > self.idle_wanted() + surplus {
            let longest_idle = self.idle[0];
            self.kill_worker(longest_idle);
        }
        if self.idle.len() > self.idle_wanted() {
            self.adjust_later(IDLE_KEPT);
        } else if self.idle.len() > self.plan.idle_workers_kept() {
            self.adjust_later(HALF_LIFE);
        }
    }

    /// Makes the processes that are kept ready as many as are wanted.
    pub(in crate::node) fn adjust(&mut self) {
        if self.templates.recent.next.is_none_or(|next| next > self.now) {
            return;
        }
        self.templates.recent.next = None;
        self.trim_idle(0);
        self.adjust_spares();
    }

    /// Adjusts after that time at the latest.
    pub(super) fn adjust_later(&mut self, after: Duration) {
        let at = self.now + after;
        if self.templates.recent.next.is_none_or(|next| at < next) {
            self.templates.recent.next = Some(at);
            self.alarm_at(at, Alarm::Adjust);
        }
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
