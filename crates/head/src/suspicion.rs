//! Devices on which different functions fail that do not fail on others: their drivers may not know that they are ill.
//!
//! - SUSPICION-1: a device is suspected when three workers of three different functions failed on it within [`WINDOW`], and each
//!   of these functions succeeded on another device within it. It is checked, and what is known against it is forgotten.
//! - SUSPICION-2: where one of these functions did not succeed elsewhere, there is nothing to compare with: it is only noted,
//!   once.
//! - SUSPICION-3: what is remembered is bounded, whatever workers do.

use oxiray_ids::WorkerId;
use oxiray_machine::Key;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// For how long failures and successes count.
const WINDOW: Duration = Duration::from_secs(600);
/// Of how many functions failures have to be.
const FUNCTIONS_NEEDED: usize = 3;
/// The failures of one device that are remembered.
const FAILURES_MAX: usize = 16;
/// The functions of which successes are remembered, and the devices of each.
const FUNCTIONS_MAX: usize = 1024;
const SUCCESSES_MAX: usize = 8;
/// The devices that have failures or a note.
const DEVICES_MAX: usize = 4096;

/// A device of a member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MemberDevice {
    pub(crate) member: Key,
    pub(crate) resource: String,
    pub(crate) slot: u32,
}

/// How a worker ended, as far as it says something of its devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Succeeded,
    /// A signal ended it, or an error of its devices was reported or raised.
    Failed(String),
    /// Nothing can be said: somebody ended it, say.
    Unknown,
}

/// What follows for a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Suspected {
    /// It is to be checked, for this reason (SUSPICION-1).
    Check(MemberDevice, String),
    /// It is only noted (SUSPICION-2).
    Note(MemberDevice, String),
}

/// What a worker has.
#[derive(Debug)]
struct Held {
    function: String,
    devices: BTreeSet<MemberDevice>,
    /// The error of a device that it has raised.
    raised: Option<String>,
}

#[derive(Debug)]
struct Failure {
    function: String,
    how: String,
    at: Instant,
}

/// What is known of failures and successes on devices.
#[derive(Debug, Default)]
pub(crate) struct Suspicion {
    held: BTreeMap<WorkerId, Held>,
    failures: BTreeMap<MemberDevice, VecDeque<Failure>>,
    /// Where each function succeeded last.
    successes: BTreeMap<String, VecDeque<(MemberDevice, Instant)>>,
    noted: BTreeSet<MemberDevice>,
}

impl Suspicion {
    /// A worker has a device.
    pub(crate) fn holds(&mut self, worker: WorkerId, function: &str, device: MemberDevice) {
        let held = || Held { function: function.to_owned(), devices: BTreeSet::new(), raised: None };
        self.held.entry(worker).or_insert_with(held).devices.insert(device);
    }

    /// Code that a worker ran raised an error of a device.
    pub(crate) fn raised(&mut self, worker: WorkerId, error: &str) {
        if let Some(held) = self.held.get_mut(&worker) {
            held.raised = Some(error.to_owned());
        }
    }

    /// A worker ended.
    pub(crate) fn ended(&mut self, worker: WorkerId, outcome: Outcome, now: Instant) -> Vec<Suspected> {
        let Some(Held { function, devices, raised }) = self.held.remove(&worker) else { return Vec::new() };
        let outcome = match (outcome, raised) {
            (Outcome::Failed(how), _) => Outcome::Failed(how),
            (_, Some(error)) => Outcome::Failed(error),
            (outcome, None) => outcome,
        };
        self.forget_what_is_old(now);
        let concerned = match outcome {
            Outcome::Unknown => BTreeSet::new(),
            Outcome::Failed(how) => {
                for device in &devices {
                    self.fails(device, Failure { function: function.clone(), how: how.clone(), at: now });
                }
                devices
            }
            Outcome::Succeeded => {
                self.succeeds(&function, devices, now);
                // What was only noted may be compared now.
                let has_failed = |failures: &VecDeque<Failure>| failures.iter().any(|one| one.function == function);
                let failed = self.failures.iter().filter(|(_, failures)| has_failed(failures));
                failed.map(|(device, _)| device.clone()).collect()
            }
        };
        concerned.into_iter().filter_map(|device| self.judge(device)).collect()
    }

    fn fails(&mut self, device: &MemberDevice, failure: Failure) {
        if self.failures.len() >= DEVICES_MAX && !self.failures.contains_key(device) {
            return;
        }
        let failures = self.failures.entry(device.clone()).or_default();
        failures.push_back(failure);
        if failures.len() > FAILURES_MAX {
            failures.pop_front();
        }
    }

    fn succeeds(&mut self, function: &str, devices: BTreeSet<MemberDevice>, now: Instant) {
        if self.successes.len() >= FUNCTIONS_MAX && !self.successes.contains_key(function) {
            return;
        }
        let successes = self.successes.entry(function.to_owned()).or_default();
        successes.retain(|(device, _)| !devices.contains(device));
        successes.extend(devices.into_iter().map(|device| (device, now)));
        let surplus = successes.len().saturating_sub(SUCCESSES_MAX);
        successes.drain(..surplus);
    }

    fn judge(&mut self, device: MemberDevice) -> Option<Suspected> {
        let failures = self.failures.get(&device)?;
        let last: BTreeMap<&str, &Failure> = failures.iter().map(|one| (&one.function[..], one)).collect();
        let works_elsewhere = |function: &str| {
            self.successes.get(function).is_some_and(|all| all.iter().any(|(other, _)| *other != device))
        };
        let (compared, others): (Vec<&Failure>, Vec<&Failure>) =
            last.into_values().partition(|one| works_elsewhere(&one.function));
        let named = |failures: &[&Failure]| {
            let named = failures.iter().take(FUNCTIONS_NEEDED).map(|one| format!("`{}` ({})", one.function, one.how));
            named.collect::<Vec<_>>().join(", ")
        };
        if compared.len() >= FUNCTIONS_NEEDED {
            let reason = format!("functions failed on it that succeeded on other devices: {}", named(&compared));
            self.failures.remove(&device);
            self.noted.remove(&device);
            return Some(Suspected::Check(device, reason));
        }
        let all: Vec<&Failure> = compared.into_iter().chain(others).collect();
        if all.len() < FUNCTIONS_NEEDED || self.noted.contains(&device) {
            return None;
        }
        let reason = format!("functions failed on it, not all of which succeeded on other devices: {}", named(&all));
        self.noted.insert(device.clone());
        Some(Suspected::Note(device, reason))
    }

    fn forget_what_is_old(&mut self, now: Instant) {
        let counts = |at: Instant| now.saturating_duration_since(at) < WINDOW;
        self.failures.retain(|_, failures| {
            failures.retain(|one| counts(one.at));
            !failures.is_empty()
        });
        self.successes.retain(|_, successes| {
            successes.retain(|(_, at)| counts(*at));
            !successes.is_empty()
        });
        let failures = &self.failures;
        self.noted.retain(|device| failures.contains_key(device));
    }

    /// A member is gone, with its devices.
    pub(crate) fn member_gone(&mut self, member: Key) {
        self.held.retain(|_, held| held.devices.iter().all(|device| device.member != member));
        self.failures.retain(|device, _| device.member != member);
        self.noted.retain(|device| device.member != member);
        self.successes.retain(|_, successes| {
            successes.retain(|(device, _)| device.member != member);
            !successes.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(member: Key, slot: u32) -> MemberDevice {
        MemberDevice { member, resource: "GPU".to_owned(), slot }
    }

    /// Counts workers, each of which runs one function.
    #[derive(Default)]
    struct Run {
        suspicion: Suspicion,
        workers: u8,
    }

    impl Run {
        fn ends(&mut self, function: &str, device: &MemberDevice, outcome: Outcome, at: Instant) -> Vec<Suspected> {
            self.workers += 1;
            let worker = WorkerId::new([self.workers; 28]);
            self.suspicion.holds(worker, function, device.clone());
            self.suspicion.ended(worker, outcome, at)
        }

        fn fails(&mut self, function: &str, device: &MemberDevice, at: Instant) -> Vec<Suspected> {
            self.ends(function, device, Outcome::Failed("signal 11".to_owned()), at)
        }
    }

    #[test]
    fn a_device_is_checked_where_three_functions_failed_that_succeeded_elsewhere() {
        let (mut run, now, bad) = (Run::default(), Instant::now(), gpu(1, 0));
        for (function, device) in [("a", gpu(1, 1)), ("b", gpu(2, 0)), ("c", gpu(2, 0))] {
            assert_eq!(run.ends(function, &device, Outcome::Succeeded, now), []);
        }
        assert_eq!(run.fails("a", &bad, now), []);
        assert_eq!(run.fails("a", &bad, now), [], "it is the same function");
        assert_eq!(run.fails("b", &bad, now), []);
        assert_eq!(run.ends("d", &bad, Outcome::Unknown, now), [], "somebody ended it");
        let found = run.fails("c", &bad, now);
        let [Suspected::Check(device, reason)] = &found[..] else { panic!("SUSPICION-1: {found:?}") };
        assert_eq!(device, &bad);
        assert!(reason.contains("`a` (signal 11), `b` (signal 11), `c`"), "{reason}");
        assert_eq!(run.fails("a", &bad, now), [], "it begins anew");
    }

    #[test]
    fn without_something_to_compare_with_it_is_only_noted_and_that_once() {
        let (mut run, now, bad) = (Run::default(), Instant::now(), gpu(1, 0));
        for function in ["a", "b"] {
            run.ends(function, &gpu(1, 1), Outcome::Succeeded, now);
            run.fails(function, &bad, now);
        }
        let on_itself = run.ends("c", &bad, Outcome::Succeeded, now);
        assert_eq!(on_itself, []);
        let found = run.fails("c", &bad, now);
        assert!(matches!(&found[..], [Suspected::Note(device, _)] if *device == bad), "SUSPICION-2: {found:?}");
        assert_eq!(run.fails("d", &bad, now), [], "once");
        let found = run.ends("c", &gpu(3, 7), Outcome::Succeeded, now);
        assert!(matches!(&found[..], [Suspected::Check(device, _)] if *device == bad), "it is compared: {found:?}");
    }

    #[test]
    fn what_is_long_ago_and_what_is_of_a_member_that_is_gone_does_not_count() {
        let (mut run, now, bad) = (Run::default(), Instant::now(), gpu(1, 0));
        for function in ["a", "b", "c"] {
            run.ends(function, &gpu(2, 0), Outcome::Succeeded, now + WINDOW);
        }
        run.fails("a", &bad, now);
        run.fails("b", &bad, now + WINDOW);
        assert_eq!(run.fails("c", &bad, now + WINDOW), [], "the first is long ago");
        run.suspicion.member_gone(2);
        let found = run.fails("a", &bad, now + WINDOW);
        assert!(matches!(&found[..], [Suspected::Note(..)]), "nothing is left to compare with: {found:?}");
        run.suspicion.member_gone(1);
        let left = (run.suspicion.failures.len(), run.suspicion.noted.len(), run.suspicion.successes.len());
        assert_eq!((left, run.suspicion.held.len()), ((0, 0, 0), 0));
    }

    #[test]
    fn an_error_that_was_raised_counts_whatever_became_of_the_worker() {
        let (mut suspicion, now, bad) = (Suspicion::default(), Instant::now(), gpu(1, 0));
        for (number, function) in ["a", "b", "c"].into_iter().enumerate() {
            let worker = WorkerId::new([number as u8 + 1; 28]);
            suspicion.holds(worker, function, bad.clone());
            suspicion.raised(worker, "CUDA error: misaligned address");
            let found = suspicion.ended(worker, Outcome::Succeeded, now);
            assert_eq!(found.len(), usize::from(number == 2), "{found:?}");
        }
        suspicion.raised(WorkerId::new([9; 28]), "CUDA error: nobody has a device");
        assert!(suspicion.held.is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut run, now) = (Run::default(), Instant::now());
        for number in 0..2 * FUNCTIONS_MAX {
            run.workers = 0;
            run.ends(&format!("f{number}"), &gpu(1, number as u32 % 20), Outcome::Succeeded, now);
            run.workers = 0;
            run.ends("f0", &gpu(2, number as u32), Outcome::Succeeded, now);
            run.workers = 0;
            run.fails("g", &gpu(3, 0), now);
        }
        assert_eq!(run.suspicion.successes.len(), FUNCTIONS_MAX, "SUSPICION-3");
        assert!(run.suspicion.successes.values().all(|devices| devices.len() <= SUCCESSES_MAX));
        assert_eq!(run.suspicion.failures[&gpu(3, 0)].len(), FAILURES_MAX);
    }
}
