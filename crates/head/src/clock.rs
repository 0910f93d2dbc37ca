//! The two clocks that the core is told of, since it reads none itself, and what is due at which time.

use oxiray_ids::ActorId;
use oxiray_machine::{Key, environments};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// What is due at a certain time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    Reclaim,
    Notice,
    NoNodeCame,
    Census(u64),
    Overdue(Key),
    Undying(Key),
    Environment(environments::Alarm),
    Restart(ActorId),
    Unmade(ActorId),
    Reconnect(Key, Key),
    Silent(Key),
    Drain(Key),
    Resumption,
    Prefetches(u64),
    Growth,
    Changes,
    Chronicle,
    Recall,
    Deadlocks,
    KeptRoom,
    QueueScan,
    Preemption,
}

/// What time it is, and what is due when.
#[derive(Debug)]
pub(crate) struct Clock {
    pub(crate) now: Instant,
    /// The time in milliseconds since 1970, for listings; 0 until it is told.
    pub(crate) wall_ms: u64,
    alarms: BTreeSet<(Instant, Alarm)>,
}

impl Clock {
    pub(crate) fn new(now: Instant) -> Self {
        Self { now, wall_ms: 0, alarms: BTreeSet::new() }
    }

    /// It is so late; time never goes back.
    pub(crate) fn set_now(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Has something become due at that time.
    pub(crate) fn alarm_at(&mut self, at: Instant, alarm: Alarm) {
        self.alarms.insert((at, alarm));
    }

    /// When something is due next.
    pub(crate) fn next_alarm(&self) -> Option<Instant> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// Takes the first of what is due by now.
    pub(crate) fn take_due(&mut self) -> Option<Alarm> {
        self.next_alarm().filter(|at| *at <= self.now)?;
        self.alarms.pop_first().map(|(_, alarm)| alarm)
    }
}

/// Something that is done at most once a period: when it was last, and for when an alarm is set.
#[derive(Debug, Default)]
pub(crate) struct Periodic {
    done: Option<Instant>,
    alarm: Option<Instant>,
}

/// When something is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Now,
    /// An alarm is to be set for then.
    At(Instant),
    /// An alarm is set, or there is nothing to do.
    Later,
}

impl Periodic {
    /// Whether it is to be done now.
    pub(crate) fn due(&mut self, period: Duration, now: Instant) -> Due {
        let due = self.done.map_or(now, |done| done + period);
        if now >= due {
            return Due::Now;
        }
        if self.alarm.is_some_and(|alarm| alarm <= due) {
            return Due::Later;
        }
        self.alarm = Some(due);
        Due::At(due)
    }

    /// It is done.
    pub(crate) fn done(&mut self, now: Instant) {
        self.done = Some(now);
    }

    /// The alarm that was set has rung.
    pub(crate) fn alarm_rang(&mut self) {
        self.alarm = None;
    }
}
