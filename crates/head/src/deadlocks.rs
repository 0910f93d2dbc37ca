//! Processes that wait for each other: each holds what a call or a placement group needs that another of them waits for.
//!
//! While something waits for more than processors, clients are asked every [`PERIOD`] what they cannot go on without, and of
//! what they say those are found that can never go on. Whatever is not known is taken to go on, so that nobody is found
//! who could: a wait that ends by itself, a call of somebody else's, a process that does not answer.
//!
//! - DEADLOCK-1: a call fails for this only after [`Rules::deadlock`](oxiray_machine::Rules) in which every round found
//!   somebody who was found before.
//! - DEADLOCK-2: one call fails at a time; then everything is looked at anew.

use oxiray_ids::{ActorId, JobId, LeaseNumber, LeaseRequestNumber, PlacementGroupId};
use oxiray_machine::Key;
use oxiray_wire::message::WaitsReport;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long a round of questions takes, where the patience is short, and how many workers lengthen it by a second.
const PERIOD: Duration = Duration::from_secs(2);
const PERIOD_MIN: Duration = Duration::from_millis(250);
const WORKERS_A_SECOND: u64 = 128;
/// How much of what one worker says is looked at: each takes a look at every machine.
const SAID_MAX: usize = 32;
/// Who names more than so many actors or groups counts as one who goes on: of what is left out nothing can be concluded. A client
/// names fewer.
const NAMES_MAX: usize = 1024;

/// What a process cannot go on without.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waits {
    pub(crate) requests: Vec<LeaseRequestNumber>,
    pub(crate) leases: Vec<LeaseNumber>,
    pub(crate) actors: Vec<ActorId>,
    pub(crate) groups: Vec<PlacementGroupId>,
    /// Those of them that nobody else was told of.
    pub(crate) private_groups: BTreeSet<PlacementGroupId>,
    /// Every actor that has to do something for it still.
    pub(crate) called: BTreeSet<ActorId>,
    /// Nothing in it goes on by itself while it waits.
    pub(crate) is_alone: bool,
    /// It runs nothing.
    pub(crate) rests: bool,
}

impl Waits {
    /// Whether it may be one that cannot go on.
    pub(crate) fn waits(&self) -> bool {
        let Self { requests, leases, actors, groups, rests, .. } = self;
        *rests || !(requests.is_empty() && leases.is_empty() && actors.is_empty() && groups.is_empty())
    }
}

impl From<WaitsReport> for Waits {
    fn from(told: WaitsReport) -> Self {
        if told.actors.len() + told.called.len() + told.private_groups.len() > NAMES_MAX {
            return Self::default();
        }
        let WaitsReport { mut requests, mut leases, mut actors, mut groups, is_alone, rests, .. } = told;
        let called = actors.iter().chain(&told.called).copied().collect();
        requests.truncate(SAID_MAX);
        leases.truncate(SAID_MAX);
        actors.truncate(SAID_MAX);
        groups.truncate(SAID_MAX);
        let private_groups = told.private_groups.into_iter().collect();
        Self { requests, leases, actors, groups, private_groups, called, is_alone, rests }
    }
}

/// Who is looked at whether anything can go on there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    Process(Key),
    /// All processes of a job, and whatever waits in its name: whoever could remove its placement groups.
    Job(JobId),
}

/// Who was found, and since when; their drivers know.
#[derive(Debug)]
struct Found {
    workers: BTreeSet<Key>,
    since: Instant,
    /// What was said in the last round that found them.
    said: BTreeMap<Key, Waits>,
}

/// What is to be done about those who were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Nothing,
    /// Their drivers are told.
    Tell,
    /// One of their calls fails (DEADLOCK-1).
    Fail,
}

/// The round of questions that is open, and who was found by those before it.
#[derive(Debug, Default)]
pub(crate) struct Deadlocks {
    is_armed: bool,
    /// Names the round; 0 where none is open.
    round: u64,
    /// None was open when it was time to look: the next is short, so that little time passes before somebody is found.
    begins: bool,
    heard: BTreeMap<Key, Waits>,
    found: Option<Found>,
}

impl Deadlocks {
    /// There is reason to look. When, where that is to be arranged for.
    pub(crate) fn arm(&mut self, patience: Option<Duration>) -> Option<Duration> {
        (!std::mem::replace(&mut self.is_armed, true)).then(|| least_period(patience) / 4)
    }

    /// It is time to look: what was said in the round that ends now.
    pub(crate) fn end_round(&mut self) -> BTreeMap<Key, Waits> {
        (self.is_armed, self.begins, self.round) = (false, self.round == 0, 0);
        std::mem::take(&mut self.heard)
    }

    /// So many workers are asked in a new round. When it ends.
    pub(crate) fn begin_round(&mut self, round: u64, workers: usize, patience: Option<Duration>) -> Duration {
        (self.is_armed, self.round) = (true, round);
        let least = if self.begins { least_period(patience) / 2 } else { least_period(patience) };
        least.max(Duration::from_secs(workers as u64 / WORKERS_A_SECOND))
    }

    /// A client answers a question.
    pub(crate) fn hear(&mut self, from: Key, told: WaitsReport) {
        if self.round != 0 && told.number == self.round {
            self.heard.insert(from, told.into());
        }
    }

    /// These were found in the round that ended.
    pub(crate) fn find(&mut self, workers: BTreeSet<Key>, patience: Option<Duration>, now: Instant) -> Verdict {
        let before = self.found.take();
        if workers.is_empty() {
            return Verdict::Nothing;
        }
        let Some(Found { since, .. }) = before.filter(|before| !before.workers.is_disjoint(&workers)) else {
            self.found = Some(Found { workers, since: now, said: BTreeMap::new() });
            return Verdict::Tell;
        };
        if patience.is_some_and(|patience| now.saturating_duration_since(since) >= patience) {
            // DEADLOCK-2: the time begins anew.
            return Verdict::Fail;
        }
        self.found = Some(Found { workers, since, said: BTreeMap::new() });
        Verdict::Nothing
    }

    /// This was said in the round of which [`Deadlocks::find`] was told.
    pub(crate) fn remember(&mut self, said: BTreeMap<Key, Waits>) {
        if let Some(found) = &mut self.found {
            found.said = said;
        }
    }

    /// What those said who were found last, and since when they were.
    pub(crate) fn found(&self) -> Option<(&BTreeMap<Key, Waits>, Instant)> {
        self.found.as_ref().map(|found| (&found.said, found.since))
    }
}

/// How long a round takes in which few workers are asked.
fn least_period(patience: Option<Duration>) -> Duration {
    patience.map_or(PERIOD, |patience| (patience / 2).clamp(PERIOD_MIN, PERIOD))
}

/// Those of `waiting` that can never go on, and what they hold. `held_by` says what these hold, and `waits` of one of them whether
/// it waits while these are stuck and that is held.
pub(crate) fn stuck<P: Copy + Ord, H>(
    waiting: impl IntoIterator<Item = P>,
    held_by: impl Fn(&BTreeSet<P>) -> H,
    waits: impl Fn(P, &BTreeSet<P>, &H) -> bool,
) -> (BTreeSet<P>, H) {
    let mut stuck: BTreeSet<P> = waiting.into_iter().collect();
    loop {
        let held = held_by(&stuck);
        let goes_on: Vec<P> = stuck.iter().copied().filter(|party| !waits(*party, &stuck, &held)).collect();
        if goes_on.is_empty() {
            return (stuck, held);
        }
        for party in goes_on {
            stuck.remove(&party);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_names_too_many_counts_as_one_who_goes_on() {
        let told = |count| {
            let called = vec![ActorId::nil_of(JobId::from_number(1)); count];
            Waits::from(WaitsReport { called, is_alone: true, rests: true, ..WaitsReport::default() })
        };
        let (all, none) = (told(NAMES_MAX), told(NAMES_MAX + 1));
        assert_eq!((all.is_alone, all.rests, all.called.len()), (true, true, 1));
        assert_eq!((none.is_alone, none.rests, none.called.len()), (false, false, 0));
    }

    #[test]
    fn who_waits_for_somebody_who_can_go_on_is_not_stuck() {
        // Whoever has an arrow to nobody waits for nobody; 9 goes on.
        let arrows =
            BTreeMap::from([(1, vec![2]), (2, vec![1]), (3, vec![9]), (4, vec![3]), (5, vec![1, 3]), (6, vec![])]);
        let waits =
            |worker: Key, stuck: &BTreeSet<Key>, (): &()| arrows[&worker].iter().any(|other| stuck.contains(other));
        assert_eq!(stuck(arrows.keys().copied(), |_| (), waits).0, BTreeSet::from([1, 2, 5]));
    }

    #[test]
    fn a_call_fails_when_every_round_of_the_limit_found_the_same() {
        let (began, mut deadlocks) = (Instant::now(), Deadlocks::default());
        let mut at = |seconds: u64, workers: &[Key]| {
            let patience = Some(Duration::from_secs(10));
            deadlocks.find(workers.iter().copied().collect(), patience, began + Duration::from_secs(seconds))
        };
        assert_eq!(at(0, &[1, 2]), Verdict::Tell);
        assert_eq!(at(2, &[2, 3]), Verdict::Nothing);
        assert_eq!(at(4, &[]), Verdict::Nothing);
        assert_eq!(at(12, &[1, 2]), Verdict::Tell, "DEADLOCK-1: it was over in between");
        assert_eq!(at(14, &[7]), Verdict::Tell, "it is another");
        assert_eq!(at(20, &[7]), Verdict::Nothing);
        assert_eq!(at(24, &[7, 8]), Verdict::Fail);
        assert_eq!(at(26, &[8]), Verdict::Tell, "DEADLOCK-2");
    }

    #[test]
    fn an_answer_counts_in_its_own_round() {
        let mut deadlocks = Deadlocks::default();
        let told = |number: u64| WaitsReport { number, leases: vec![LeaseNumber(4)], ..WaitsReport::default() };
        deadlocks.hear(1, told(0));
        assert_eq!((deadlocks.arm(None), deadlocks.arm(None)), (Some(PERIOD / 4), None));
        assert!(deadlocks.end_round().is_empty());
        assert_eq!(deadlocks.begin_round(7, 1000, None), Duration::from_secs(7));
        assert_eq!(deadlocks.arm(None), None);
        deadlocks.hear(1, told(7));
        deadlocks.hear(2, told(6));
        assert_eq!(deadlocks.end_round().into_keys().collect::<Vec<_>>(), [1]);
        let few = |deadlocks: &mut Deadlocks| deadlocks.begin_round(8, 10, Some(Duration::from_secs(1)));
        assert_eq!(few(&mut deadlocks), Duration::from_millis(500));
        deadlocks.end_round();
        deadlocks.end_round();
        assert_eq!(few(&mut deadlocks), Duration::from_millis(250), "the first round is short");
    }
}
