//! Whose turn it is among those that have something to say: each is heard for a moment at a time.
//!
//! Whoever has more to say after its moment is *behind*. All that are behind stand in one line, which takes turns with
//! everybody else as if it were one peer. Each, and that line, has an account of the time that it took, which is compared
//! with what everybody could have had by now: an equal share (the virtual time of fair queueing).
//!
//! - TURNS-1: whoever took least is next, and whoever comes anew or after a pause has a credit. So it waits for a moment of
//!   another or two, however many are behind and however much they have said.
//! - TURNS-2: those that are behind are heard one after the other, and newcomers that keep coming do not keep them out.
//! - TURNS-3: nobody owes more than [`DEBT_MAX`], whatever one message of it took.
//! - TURNS-4: nothing is kept of who is forgotten, nor of who owes nothing and has nothing to say.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// By how much whoever comes anew is ahead of those that always have something to say.
const CREDIT: Duration = Duration::from_millis(1);
/// The most by which an account may be above what everybody could have had.
const DEBT_MAX: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
struct Account {
    taken: Duration,
    /// Its place among those that wait.
    place: Option<(Duration, u64)>,
    /// It stands in the line of those that are behind.
    is_behind: bool,
}

/// Who is heard now.
#[derive(Debug, Clone, Copy)]
struct Current<T> {
    who: T,
    /// It was the turn of those that are behind.
    was_behind: bool,
    /// There was another sign of it meanwhile.
    came_again: bool,
}

/// Those that have something to say, and what each has had.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    /// By their accounts; among equals, who came first. Nobody in particular stands for the line of those that are behind.
    waiting: BTreeSet<(Duration, u64, Option<T>)>,
    accounts: BTreeMap<T, Account>,
    behind: VecDeque<T>,
    of_behind: Account,
    current: Option<Current<T>>,
    /// What everybody could have had by now.
    shared: Duration,
    /// Counts those that came to wait.
    arrivals: u64,
}

impl<T: Copy + Ord> Turns<T> {
    pub(crate) fn new() -> Self {
        Self {
            waiting: BTreeSet::new(),
            accounts: BTreeMap::new(),
            behind: VecDeque::new(),
            of_behind: Account::default(),
            current: None,
            // Nobody has had less than nothing.
            shared: CREDIT,
            arrivals: 0,
        }
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Somebody has something to say.
    pub(crate) fn add(&mut self, who: T) {
        let credited = self.credited();
        if let Some(current) = self.current.as_mut().filter(|current| current.who == who) {
            current.came_again = true;
            return;
        }
        let account = self.accounts.entry(who).or_default();
        if account.place.is_none() && !account.is_behind {
            // TURNS-1, TURNS-3
            account.taken = account.taken.clamp(credited, self.shared + DEBT_MAX);
            self.arrivals += 1;
            account.place = Some((account.taken, self.arrivals));
            self.waiting.insert((account.taken, self.arrivals, Some(who)));
        }
    }

    /// Those that have something to say, in no order that says whose turn it is.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = T> + '_ {
        let waits = |account: &Account| account.place.is_some() || account.is_behind;
        self.accounts.iter().filter(move |(_, account)| waits(account)).map(|(who, _)| *who)
    }

    /// Who is heard next. [`Turns::heard`] follows.
    pub(crate) fn next(&mut self) -> Option<T> {
        let (taken, _, peer) = self.waiting.pop_first()?;
        self.shared = self.shared.max(taken);
        let who = if let Some(who) = peer {
            who
        } else {
            self.of_behind.place = None;
            self.behind.pop_front()?
        };
        if let Some(account) = self.accounts.get_mut(&who) {
            (account.place, account.is_behind) = (None, false);
        }
        self.current = Some(Current { who, was_behind: peer.is_none(), came_again: false });
        Some(who)
    }

    /// How long the one that was next was heard, and whether it has more to say.
    pub(crate) fn heard(&mut self, took: Duration, has_more: bool) {
        let count = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX).saturating_add(1);
        self.shared += took / count;
        let credited = self.credited();
        if let Some(Current { who, was_behind, came_again }) = self.current.take() {
            let account = self.accounts.entry(who).or_default();
            let payer = if was_behind { &mut self.of_behind } else { &mut *account };
            payer.taken += took;
            if has_more {
                account.is_behind = true;
                self.behind.push_back(who);
            } else if came_again {
                self.add(who);
            } else if account.taken <= credited {
                self.accounts.remove(&who);
            }
        }
        self.line_up();
    }

    /// Where whoever comes anew begins.
    fn credited(&self) -> Duration {
        self.shared.saturating_sub(CREDIT)
    }

    /// TURNS-2: the line waits as long as there is somebody in it.
    fn line_up(&mut self) {
        if self.of_behind.place.is_none() && !self.behind.is_empty() {
            let line = &mut self.of_behind;
            line.taken = line.taken.clamp(self.shared, self.shared + DEBT_MAX);
            self.arrivals += 1;
            line.place = Some((line.taken, self.arrivals));
            self.waiting.insert((line.taken, self.arrivals, None));
        }
    }

    /// Something took time that was done later for somebody who had been heard.
    pub(crate) fn charge(&mut self, who: T, took: Duration) {
        let credited = self.credited();
        let account = self.accounts.entry(who).or_default();
        account.taken = account.taken.max(credited) + took;
        if let Some((taken, arrival)) = account.place.take() {
            self.waiting.remove(&(taken, arrival, Some(who)));
            self.add(who);
        }
    }

    /// Somebody is gone (TURNS-4).
    pub(crate) fn forget(&mut self, who: T) {
        let account = self.accounts.remove(&who).unwrap_or_default();
        if let Some((taken, arrival)) = account.place {
            self.waiting.remove(&(taken, arrival, Some(who)));
        }
        if account.is_behind {
            self.behind.retain(|other| *other != who);
            if let Some((taken, arrival)) = self.of_behind.place.take_if(|_| self.behind.is_empty()) {
                self.waiting.remove(&(taken, arrival, None));
            }
        }
        self.current = self.current.filter(|current| current.who != who);
    }
}

#[cfg(test)]
mod tests;
