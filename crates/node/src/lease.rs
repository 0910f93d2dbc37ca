//! For how long a member on another machine may go on without a word from the head. No I/O and no clock.
//!
//! ```text
//! member   says a word at s ────────────────────── its lease is over at s + L: it ends all it was granted
//! head         hears it at h ≥ s, answers ──────────────────── gives it up at h + L + margin, not before
//! ```
//!
//! - LEASE-1: the member's lease runs from when it *said* what the head has answered, the head's patience from when it
//!   *heard* what the member said last. So whatever is lost or late on the way, the member has ended what it was granted
//!   before the head gives it up. Only the *rates* of the two clocks must agree, within [`MARGIN_SHARE`].
//! - LEASE-2: a word that the head has not answered within the lease is as good as none: a link that works one way only
//!   ends the same way.

use std::collections::VecDeque;
use std::time::Duration;

/// A lease where nothing else is said.
pub const LEASE: Duration = Duration::from_secs(10);
/// The shortest lease: less than that passes on a busy machine.
pub const LEASE_MIN: Duration = Duration::from_millis(200);
/// How many words a member says within a lease.
const WORDS: u32 = 10;
/// The part of a lease that the head waits longer.
const MARGIN_SHARE: f64 = 0.2;
/// What it waits longer in any case: a member must have the time to kill.
const MARGIN_MIN: Duration = Duration::from_secs(1);
/// How many words of a member may be unanswered; older ones are forgotten.
const UNANSWERED_MAX: usize = 64;

/// How long after a lease the head waits before it gives a member up.
pub fn margin(lease: Duration) -> Duration {
    lease.mul_f64(MARGIN_SHARE).max(MARGIN_MIN)
}

/// How long after its last word was heard a member is given up.
pub fn patience(lease: Duration) -> Duration {
    lease + margin(lease)
}

/// The member's side. Times are since the machine was started, those of suspension included.
#[derive(Debug)]
pub struct MemberLease {
    lease: Duration,
    until: Duration,
    next_word: Duration,
    last: u64,
    unanswered: VecDeque<(u64, Duration)>,
}

impl MemberLease {
    /// The lease of a member that was let in; `asked` is when it began to ask.
    pub fn new(lease: Duration, asked: Duration) -> Self {
        Self { lease, until: asked + lease, next_word: asked, last: 0, unanswered: VecDeque::new() }
    }

    /// The number of the word that is to be said now, where one is.
    pub fn word(&mut self, now: Duration) -> Option<u64> {
        if now < self.next_word {
            return None;
        }
        self.next_word = now + self.lease / WORDS;
        self.last += 1;
        self.unanswered.push_back((self.last, now));
        if self.unanswered.len() > UNANSWERED_MAX {
            self.unanswered.pop_front();
        }
        Some(self.last)
    }

    /// The head has answered a word.
    pub fn heard(&mut self, number: u64) {
        while let Some((word, said)) = self.unanswered.front().copied()
            && word <= number
        {
            self.unanswered.pop_front();
            self.until = self.until.max(said + self.lease);
        }
    }

    /// When all that was granted must have ended.
    pub fn until(&self) -> Duration {
        self.until
    }

    /// When something is to be done next.
    pub fn next(&self) -> Duration {
        self.next_word.min(self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_member_that_is_answered_goes_on() {
        let mut member = MemberLease::new(LEASE, Duration::ZERO);
        let mut now = Duration::ZERO;
        for _ in 0..1000 {
            let word = member.word(now).expect("it is time");
            assert_eq!(member.word(now), None, "one at a time");
            member.heard(word);
            assert_eq!(member.until(), now + LEASE);
            now = member.next();
        }
    }

    #[test]
    fn answers_to_nothing_change_nothing() {
        let mut member = MemberLease::new(LEASE, Duration::ZERO);
        member.heard(u64::MAX);
        assert_eq!(member.until(), LEASE);
    }

    proptest! {
        /// LEASE-1, under any delays and losses both ways.
        #[test]
        fn the_member_ends_before_it_is_given_up(
            links in proptest::collection::vec((proptest::option::of(0_u64..5_000), proptest::option::of(0_u64..5_000)), 1..60),
        ) {
            let mut member = MemberLease::new(LEASE, Duration::ZERO);
            // The head hears the newcomer no sooner than it asks.
            let mut last_heard = Duration::ZERO;
            let mut answers: BTreeMap<Duration, Vec<u64>> = BTreeMap::new();
            for (there, back) in links {
                let now = member.next();
                for (_, words) in answers.extract_if(..=now, |_, _| true) {
                    for word in words {
                        member.heard(word);
                    }
                }
                if now >= member.until() {
                    break;
                }
                let Some(word) = member.word(now) else { continue };
                if let Some(there) = there {
                    let heard = now + Duration::from_millis(there);
                    last_heard = last_heard.max(heard);
                    if let Some(back) = back {
                        answers.entry(heard + Duration::from_millis(back)).or_default().push(word);
                    }
                }
            }
            prop_assert!(member.until() + margin(LEASE) <= last_heard + patience(LEASE));
        }
    }
}
