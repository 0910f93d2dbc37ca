//! Work that ends early for what is more urgent: who was told so, and what is due.
//!
//! - PREEMPTION-1: who is to end hears of it and has the grace from then on. At half of it a task is asked to end by itself;
//!   at its end whatever is left is killed.
//! - PREEMPTION-2: where nobody more urgent waits any more who could have what it holds, it goes on.
//! - PREEMPTION-3: nothing of it is lost or counted: tasks are run again, actors are made anew, and a group waits for room.
//! - PREEMPTION-4: nothing begins within a group that is to end.

use crate::demands::Need;
use crate::fairness::Holder;
use oxiray_scheduler::Preemptible;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The shortest time between two looks at who waits.
pub(crate) const LOOK_PERIOD: Duration = Duration::from_millis(250);
/// How long a request waits until somebody ends for it, and how long where the autoscaler may bring a machine for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
pub(crate) const PATIENCE_FOR_MACHINES: Duration = Duration::from_secs(60);
/// How many victims one look considers, how many it takes, and how many machines it looks at for a group.
pub(crate) const CONSIDERED_MAX: usize = 256;
pub(crate) const TAKEN_MAX: usize = 64;
pub(crate) const MACHINES_MAX: usize = 512;

/// Somebody who may end early: what holds something for a job since then. Who began later is the larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Victim {
    pub(crate) began: Instant,
    pub(crate) holder: Holder,
}

/// Somebody who was told to end.
#[derive(Debug)]
pub(crate) struct Warned {
    pub(crate) told: Preemptible<Victim>,
    /// Who: a name for people.
    pub(crate) name: String,
    /// For what it is to end.
    pub(crate) reason: String,
    /// What is waited for by the one it is to end for.
    pub(crate) need: Need,
    /// When it is asked to end by itself; nothing once it was.
    half: Option<Instant>,
    pub(crate) until: Instant,
}

/// What is due for somebody who was told to end (PREEMPTION-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Ask,
    End,
}

/// Everybody who was told to end.
#[derive(Debug, Default)]
pub(crate) struct Preemptions {
    warned: BTreeMap<Victim, Warned>,
    /// When the next look is, where one is arranged for.
    armed: Option<Instant>,
    looked: Option<Instant>,
}

impl Preemptions {
    /// When the next look is to be, where one is to be arranged for.
    pub(crate) fn arm(&mut self, now: Instant) -> Option<Instant> {
        let at = self.looked.map_or(now, |looked| (looked + LOOK_PERIOD).max(now));
        let is_new = self.armed.is_none_or(|armed| armed > at);
        is_new.then(|| *self.armed.insert(at))
    }

    /// There is a look now.
    pub(crate) fn look(&mut self, now: Instant) {
        (self.armed, self.looked) = (None, Some(now));
    }

    /// Somebody was told to end within the grace.
    pub(crate) fn warn(
        &mut self,
        told: Preemptible<Victim>,
        (name, reason): (String, String),
        need: Need,
        now: Instant,
        grace: Duration,
    ) {
        let (half, until) = (Some(now + grace / 2), now + grace);
        self.warned.insert(told.victim, Warned { told, name, reason, need, half, until });
    }

    pub(crate) fn is_warned(&self, victim: &Victim) -> bool {
        self.warned.contains_key(victim)
    }

    /// Whether it is to end, whenever it began.
    pub(crate) fn is_ending(&self, holder: Holder) -> bool {
        self.warned.keys().any(|victim| victim.holder == holder)
    }

    /// Everybody who was told to end.
    pub(crate) fn warned(&self) -> impl ExactSizeIterator<Item = &Warned> {
        self.warned.values()
    }

    /// It ends no more, or has ended.
    pub(crate) fn forget(&mut self, victim: &Victim) -> Option<Warned> {
        self.warned.remove(victim)
    }

    /// What is due by now, once.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<(Victim, Step)> {
        let step = |(victim, warned): (&Victim, &mut Warned)| {
            if warned.until <= now {
                return Some((*victim, Step::End));
            }
            warned.half.take_if(|half| *half <= now).map(|_| (*victim, Step::Ask))
        };
        self.warned.iter_mut().filter_map(step).collect()
    }

    /// When something is due next.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.warned.values().map(|warned| warned.half.unwrap_or(warned.until)).min()
    }

    /// Who was told to end for those that wait for this, and until when.
    pub(crate) fn ending_for<'a>(&'a self, need: &'a Need) -> impl Iterator<Item = &'a Warned> {
        self.warned.values().filter(move |warned| warned.need == *need)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_resources::Demand;
    use oxiray_scheduler::Priority;

    #[test]
    fn at_half_of_the_grace_it_is_asked_and_at_its_end_it_ends() {
        let (mut preemption, now) = (Preemptions::default(), Instant::now());
        let victim = Victim { began: now, holder: Holder::Worker(7) };
        let need = Need::ResourceRequest(Demand::nothing().into());
        let told = Preemptible { victim, priority: Priority(0), parts: Vec::new() };
        let named = ("f".to_owned(), "something waits".to_owned());
        preemption.warn(told, named, need.clone(), now, Duration::from_secs(10));
        assert!(preemption.is_ending(Holder::Worker(7)) && !preemption.is_ending(Holder::Worker(8)));
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(preemption.next_due(), Some(at(5)));
        assert_eq!(preemption.due(at(4)), []);
        assert_eq!(preemption.due(at(5)), [(victim, Step::Ask)]);
        assert_eq!(preemption.due(at(6)), [], "once");
        assert_eq!((preemption.next_due(), preemption.ending_for(&need).count()), (Some(at(10)), 1));
        assert_eq!(preemption.due(at(10)), [(victim, Step::End)]);
        assert!(preemption.forget(&victim).is_some_and(|warned| warned.reason == "something waits"));
        assert_eq!((preemption.next_due(), preemption.due(at(20)).len()), (None, 0));
    }

    #[test]
    fn looks_have_time_between_them() {
        let (mut preemption, now) = (Preemptions::default(), Instant::now());
        assert_eq!(preemption.arm(now), Some(now));
        assert_eq!(preemption.arm(now), None, "it is arranged for");
        preemption.look(now);
        assert_eq!(preemption.arm(now), Some(now + LOOK_PERIOD));
    }
}
