//! The memory that there is, looked at a few times each second, and who is ended where it gets short.
//!
//! - MEMORY-1: the object store takes no more than what the tightest limit leaves beside everybody else, less a reserve.
//! - MEMORY-2: one worker at a time is ended for want of memory, and the next only when that one is gone; none while the
//!   object store is about to give back enough.
//! - MEMORY-3: the nearer a limit is, the sooner it is looked again.

use crate::limits::{Limits, kibibytes};
use oxiray_machine::{Key, Level};
use oxiray_processes::descendants_of;
use std::fs;
use std::time::{Duration, Instant};

/// How often memory is looked at where there is plenty.
const STORE_PERIOD: Duration = Duration::from_millis(250);
/// How often at most.
const PERIOD_MIN: Duration = Duration::from_millis(10);
/// How fast processes may take memory, in bytes a second: the next look comes before they can have met the limit.
const GROWTH: u64 = 2 << 30;
/// How much of a limit the object store leaves free, in percent: for what is taken between two looks.
const RESERVE_PERCENT: u64 = 10;
/// All work waited for memory during so much of the last ten seconds, in thousandths: memory is short although less of it
/// is used than may be.
const STALLED_MAX: u32 = 400;
/// The part that must be in use for that, in thousandths.
const STALLED_USED_MIN: u64 = 800;
/// The part in use from which on nothing is waited for, in thousandths.
const URGENT: u64 = 985;
/// For how long a kill by the kernel explains that a worker was killed.
const KILL_IS_NEWS: Duration = Duration::from_secs(2);
/// How long a worker that was ended may take to be gone, before another is.
const ENDING_LIMIT: Duration = Duration::from_secs(10);

/// How the memory monitor works, from Ray's variables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MonitorOptions {
    /// The part of a limit that may be in use, in thousandths.
    pub threshold: u32,
    /// How often memory is looked at; zero where nobody is to be ended.
    pub period: Duration,
}

/// What is known of memory from one look to the next.
#[derive(Debug)]
pub(crate) struct MemoryWatch {
    /// Nothing where neither the machine nor the kernel tells.
    limits: Option<Limits>,
    options: MonitorOptions,
    next: Option<Instant>,
    /// The worker that was ended last, and until when it is waited for.
    ending: Option<(Key, Instant)>,
    /// How many processes the kernel had killed for want of memory, and when it last killed more.
    kills: Option<u64>,
    killed: Option<Instant>,
    /// The bound that was the nearest.
    nearest: Option<Level>,
    /// Whether it was told already that memory is short and nobody's end would help.
    has_told: bool,
}

impl MemoryWatch {
    pub(crate) fn new(limits: Option<Limits>, options: MonitorOptions) -> Self {
        Self { limits, options, next: None, ending: None, kills: None, killed: None, nearest: None, has_told: false }
    }

    /// When memory is looked at next.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        self.limits.is_some().then(|| self.next.unwrap_or(now))
    }

    /// How full memory is: the bounds, the nearest of which is kept for reports, and when they are looked at again.
    pub(crate) fn look(&mut self, now: Instant) -> Vec<Level> {
        let levels = self.levels();
        self.next = Some(now + period(&levels, self.options));
        self.nearest = nearest(&levels).cloned();
        levels
    }

    fn levels(&self) -> Vec<Level> {
        self.limits.as_ref().map(Limits::memory).unwrap_or_default()
    }

    /// The bound that was the nearest.
    pub(crate) fn nearest(&self) -> Option<&Level> {
        self.nearest.as_ref()
    }

    /// The bound of which too much is in use, where somebody is to be ended for that, and how much may be in use.
    pub(crate) fn short<'levels>(&mut self, levels: &'levels [Level]) -> Option<(&'levels Level, u32)> {
        let is_watched = !self.options.period.is_zero();
        let level = if is_watched { shortest(levels, self.options.threshold) } else { None };
        self.has_told &= level.is_some();
        level.map(|level| (level, self.options.threshold))
    }

    /// The worker that was ended last, where it may take longer to be gone (MEMORY-2).
    pub(crate) fn awaited(&self, now: Instant) -> Option<Key> {
        self.ending.filter(|(_, until)| *until > now).map(|(key, _)| key)
    }

    /// A worker was ended for want of memory, or nobody's end would help. Returns whether that is to be told.
    pub(crate) fn has_ended(&mut self, worker: Option<Key>, now: Instant) -> bool {
        self.ending = worker.map(|key| (key, now + ENDING_LIMIT));
        self.ending.is_none() && !std::mem::replace(&mut self.has_told, true)
    }

    /// Counts what the kernel has killed for want of memory.
    pub(crate) fn count_kills(&mut self, now: Instant) {
        let kills = self.limits.as_ref().map_or(0, Limits::kills);
        if self.kills.replace(kills).is_some_and(|before| before < kills) {
            self.killed = Some(now);
        }
    }

    /// The kernel has killed somebody for want of memory just now.
    pub(crate) fn has_killed(&mut self, now: Instant) {
        self.killed = Some(now);
    }

    /// Whether the kernel killed somebody for want of memory a moment ago.
    pub(crate) fn has_killed_lately(&self, now: Instant) -> bool {
        self.killed.is_some_and(|at| at + KILL_IS_NEWS > now)
    }

    /// The bound that is the nearest now.
    pub(crate) fn measure_nearest(&self) -> Option<Level> {
        nearest(&self.levels()).cloned()
    }
}

fn nearest(levels: &[Level]) -> Option<&Level> {
    levels.iter().min_by_key(|level| level.free())
}

/// MEMORY-3.
fn period(levels: &[Level], options: MonitorOptions) -> Duration {
    let longest = if options.period.is_zero() { STORE_PERIOD } else { options.period };
    let left = levels.iter().map(|level| part(level.limit, options.threshold.into()).saturating_sub(level.used)).min();
    let soonest = Duration::from_secs_f64(left.unwrap_or(u64::MAX) as f64 / GROWTH as f64);
    longest.min(soonest.max(PERIOD_MIN))
}

/// The bound of which too much is in use, the worst first.
fn shortest(levels: &[Level], threshold: u32) -> Option<&Level> {
    let is_short = |level: &&Level| {
        let is_stalled = level.stalled.is_some_and(|stalled| stalled >= STALLED_MAX);
        level.used >= part(level.limit, threshold.into())
            || is_stalled && level.used >= part(level.limit, STALLED_USED_MIN)
    };
    levels.iter().filter(is_short).min_by_key(|level| level.free())
}

/// What the object store may take (MEMORY-1), where its segments are so large together.
pub(crate) fn store_bound(levels: &[Level], segments: u64) -> u64 {
    let bound = |level: &Level| {
        let others = level.used.saturating_sub(level.shared.min(segments));
        (level.limit / 100 * (100 - RESERVE_PERCENT)).saturating_sub(others)
    };
    levels.iter().map(bound).min().unwrap_or(u64::MAX)
}

/// Whether an object store that gives back so many bytes relieves a bound of which too much is in use.
pub(crate) fn is_relieved(level: &Level, leaving: u64, threshold: u32) -> bool {
    let left = level.used.saturating_sub(leaving);
    left < part(level.limit, threshold.into()) && level.used < part(level.limit, URGENT)
}

fn part(limit: u64, thousandths: u64) -> u64 {
    limit / 1000 * thousandths
}

/// Memory that a process and everything below it have for themselves: memory files are the object store's.
pub(crate) fn own_bytes(pid: u32) -> u64 {
    let of = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        kibibytes(&status, "RssAnon:").unwrap_or(0) << 10
    };
    of(pid) + descendants_of(pid).into_iter().map(of).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(limit: u64, used: u64, shared: u64) -> Level {
        Level { source: String::new(), limit: limit << 20, used: used << 20, shared: shared << 20, stalled: None }
    }

    #[test]
    fn the_store_has_what_others_leave() {
        let bound = |levels: &[Level], segments: u64| store_bound(levels, segments << 20) >> 20;
        assert_eq!(bound(&[level(1000, 0, 0)], 0), 900);
        assert_eq!(bound(&[level(1000, 500, 300)], 300), 700, "what the store itself takes is not others' use");
        assert_eq!(bound(&[level(1000, 500, 300)], 100), 500, "memory files of others are");
        assert_eq!(bound(&[level(1000, 500, 100)], 300), 500, "segments may be empty, or another group's");
        assert_eq!(bound(&[level(16_000, 5000, 0), level(1000, 950, 0)], 0), 0);
        assert_eq!(store_bound(&[], 1), u64::MAX);
    }

    #[test]
    fn memory_is_short_by_what_is_used_or_by_what_waits() {
        let machine = level(16_000, 15_000, 0);
        let group = level(1000, 951, 0);
        assert_eq!(shortest(&[machine.clone(), group.clone()], 950), Some(&group));
        assert_eq!(shortest(&[machine.clone(), level(1000, 949, 0)], 950), None);
        let stalled = Level { stalled: Some(500), ..level(1000, 850, 0) };
        assert_eq!(shortest(&[machine, stalled.clone()], 950), Some(&stalled));
        assert_eq!(shortest(&[Level { stalled: Some(900), ..level(1000, 300, 0) }], 950), None, "others' fault");
    }

    #[test]
    fn the_nearer_a_limit_the_sooner_it_is_looked_again() {
        let options = MonitorOptions { threshold: 950, period: Duration::from_millis(250) };
        let after = |used: u64| period(&[level(16_000, 1000, 0), level(4096, used, 0)], options).as_millis();
        assert_eq!((after(100), after(3700), after(3890), after(5000)), (250, 93, 10, 10));
        let off = MonitorOptions { period: Duration::ZERO, ..options };
        assert_eq!(period(&[level(4096, 0, 0)], off), STORE_PERIOD);
    }
}
