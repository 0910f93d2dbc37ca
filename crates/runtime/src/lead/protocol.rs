//! Who reads the sockets: whoever waits.
//!
//! A thread that waits for a value takes the *lead*: it sits in epoll itself and handles what comes, so
//! that the answer to a call wakes the very thread that wants it, once. Others that wait meanwhile are
//! followers and are told when something changed. A background thread leads only when nobody has for
//! [`QUIET`], so that a process busy with its own work still answers its peers.
//!
//! - LEAD-1: at most one thread is in epoll. It never holds the state's lock there.
//! - LEAD-2: whoever gives up the lead while others wait tells them, so that one of them takes it.
//! - LEAD-3: what a thread gathers to be sent, as it acts or as it looks whether its wait is over, is sent in time, whoever leads:
//!   the leader did not know of it when it chose until when it sleeps.
//!
//! `crates/models/src/lead.rs` tries every order of the steps of this file: what it uses of other modules, it names through
//! [`Led`] and `super::sync`.

use super::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long the lead stays free before the background takes it.
const QUIET: Duration = Duration::from_millis(1);
/// The longest that the background looks away while others take turns.
const QUIET_MAX: Duration = Duration::from_millis(8);

/// Why a wait ended without what was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmet {
    /// The deadline passed.
    TimedOut,
    /// A signal arrived; the caller looks whether it matters and waits on.
    Interrupted,
}

/// Who leads, and who waits for the lead.
#[derive(Debug, Default)]
pub(crate) struct Lead {
    taken: bool,
    sleeping: bool,
    in_background: bool,
    parked: bool,
    followers: usize,
    turns: u64,
    /// The background thread is to end.
    closing: bool,
}

impl Lead {
    /// Whether the background thread leads.
    pub(crate) fn is_in_background(&self) -> bool {
        self.in_background
    }

    /// Counts the turns, from 1.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }
}

/// What is waited for to change: it is changed under one lock, by what its sockets bring and by those who use it.
pub(crate) trait Led: Sized {
    /// What brings something, and is read without the lock.
    type Sockets;
    /// What a turn at the sockets needs of the state, and what came of it.
    type Turn;
    /// Something for the user's process to hear.
    type ClientEvent;

    fn lead(&mut self) -> &mut Lead;

    /// Whether something changed that another waiting thread may want to see.
    fn changed(&mut self) -> &mut bool;

    /// Whether a timer was set that may be earlier than what the leader sleeps until.
    fn timer_moved(&mut self) -> &mut bool;

    /// When what was gathered is to be sent, where something was.
    fn flush_at(&self) -> Option<Instant>;

    /// Sends what was gathered.
    fn flush(&mut self);

    fn has_news(&self) -> bool;

    fn take_news(&mut self) -> Option<Self::ClientEvent>;

    /// Until when a follower waits before it looks for signals, where those are this thread's business.
    fn listen_until() -> Option<Instant>;

    /// Whether a signal is for this thread, which waits.
    fn interrupts_this_thread(&self) -> bool;

    /// A turn begins that ends at `deadline`, or earlier.
    fn begin_turn(&mut self, deadline: Option<Instant>) -> Self::Turn;

    /// Waits for the sockets, without the lock.
    fn wait(sockets: &Self::Sockets, turn: &mut Self::Turn);

    /// Handles what came; whether a signal ended the turn.
    fn end_turn(&mut self, turn: Self::Turn) -> bool;

    /// Ends the wait of whoever waits for the sockets.
    fn kick(sockets: &Self::Sockets);
}

/// A state, and those who wait for it to change.
#[derive(Debug)]
pub(crate) struct Waiters<S: Led> {
    state: Mutex<S>,
    changed: Condvar,
    headlines: Condvar,
    background: Condvar,
    sockets: S::Sockets,
}

impl<S: Led> Waiters<S> {
    pub(crate) fn new(state: S, sockets: S::Sockets) -> Self {
        let (changed, headlines, background) = (Condvar::new(), Condvar::new(), Condvar::new());
        Self { state: Mutex::new(state), changed, headlines, background, sockets }
    }

    /// Looks at and changes the state, then lets others know where that is due.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut S) -> R) -> R {
        self.act(&mut self.state.lock(), act)
    }

    fn act<R>(&self, state: &mut MutexGuard<'_, S>, act: impl FnOnce(&mut S) -> R) -> R {
        let result = self.hastening(state, act);
        self.spread(state);
        result
    }

    /// Has the leader look up where there is now something for it to do (LEAD-3).
    fn hastening<R>(&self, state: &mut MutexGuard<'_, S>, act: impl FnOnce(&mut S) -> R) -> R {
        let flush_before = state.flush_at();
        let result = act(state);
        let is_sooner = |at: Instant| flush_before.is_none_or(|before| at < before);
        let flushes_sooner = state.flush_at().is_some_and(is_sooner);
        if (*state.timer_moved() || *state.changed() || flushes_sooner) && state.lead().sleeping {
            S::kick(&self.sockets);
        }
        *state.timer_moved() = false;
        result
    }

    /// Wakes those who may want to see what changed.
    fn spread(&self, state: &mut MutexGuard<'_, S>) {
        if std::mem::take(state.changed()) && state.lead().followers > 0 {
            self.changed.notify_all();
        }
        if state.has_news() {
            self.headlines.notify_one();
        }
    }

    /// Waits for the next headline. Whoever does never leads: it would keep the lead from those in a hurry.
    pub(crate) fn next_headline(&self) -> S::ClientEvent {
        let mut state = self.state.lock();
        loop {
            if let Some(news) = state.take_news() {
                return news;
            }
            self.headlines.wait(&mut state);
        }
    }

    /// Waits until `check` has something, or `deadline`.
    pub(crate) fn wait<R>(
        &self,
        deadline: Option<Instant>,
        check: impl FnMut(&mut S) -> Option<R>,
    ) -> Result<R, Unmet> {
        self.wait_on(self.state.lock(), deadline, check)
    }

    /// [`Waiters::with`], and [`Waiters::wait`] with nothing in between.
    pub(crate) fn act_and_wait<R>(
        &self,
        act: impl FnOnce(&mut S),
        deadline: Option<Instant>,
        check: impl FnMut(&mut S) -> Option<R>,
    ) -> Result<R, Unmet> {
        let mut state = self.state.lock();
        self.act(&mut state, act);
        self.wait_on(state, deadline, check)
    }

    fn wait_on<R>(
        &self,
        mut state: MutexGuard<'_, S>,
        deadline: Option<Instant>,
        mut check: impl FnMut(&mut S) -> Option<R>,
    ) -> Result<R, Unmet> {
        let mut interrupted = false;
        let mut looked = false;
        loop {
            if let Some(found) = self.hastening(&mut state, &mut check) {
                self.leave(&mut state);
                return Ok(found);
            }
            // A deadline that has passed still leaves one look at what has arrived.
            if interrupted || (looked && deadline.is_some_and(|deadline| Instant::now() >= deadline)) {
                self.leave(&mut state);
                return Err(if interrupted { Unmet::Interrupted } else { Unmet::TimedOut });
            }
            looked = true;
            if state.lead().taken {
                interrupted = self.follow(&mut state, deadline);
            } else {
                interrupted = self.turn(&mut state, deadline);
            }
            interrupted |= state.interrupts_this_thread();
        }
    }

    fn follow(&self, state: &mut MutexGuard<'_, S>, deadline: Option<Instant>) -> bool {
        if state.lead().in_background {
            S::kick(&self.sockets);
        }
        state.lead().followers += 1;
        let listen_until = S::listen_until();
        let until = [deadline, listen_until].into_iter().flatten().min();
        let timed_out = if let Some(until) = until {
            self.changed.wait_until(state, until).timed_out()
        } else {
            self.changed.wait(state);
            false
        };
        state.lead().followers -= 1;
        timed_out && until == listen_until
    }

    /// Hands on what a thread that stops waiting would otherwise keep to itself (LEAD-2).
    fn leave(&self, state: &mut MutexGuard<'_, S>) {
        if std::mem::take(state.changed()) {
            self.changed.notify_all();
        } else if !state.lead().taken {
            // One is enough: it takes the lead, or leaves likewise.
            self.changed.notify_one();
        }
        let lead = state.lead();
        if lead.parked && !lead.taken {
            lead.parked = false;
            self.background.notify_one();
        }
    }

    /// One turn at the sockets; `true` where a signal ended it.
    fn turn(&self, state: &mut MutexGuard<'_, S>, deadline: Option<Instant>) -> bool {
        let lead = state.lead();
        lead.taken = true;
        lead.turns += 1;
        let mut turn = state.begin_turn(deadline);
        state.lead().sleeping = true;
        MutexGuard::unlocked(state, || S::wait(&self.sockets, &mut turn));
        state.lead().sleeping = false;
        let interrupted = state.end_turn(turn);
        state.lead().taken = false;
        *state.timer_moved() = false;
        self.spread(state);
        interrupted
    }

    /// What the background thread does until [`Waiters::close`].
    ///
    /// As long as others take turns it only looks in, less and less often, so that it costs those nothing.
    pub(crate) fn attend(&self) {
        let mut state = self.state.lock();
        let mut seen = state.lead().turns;
        let mut pause = QUIET;
        while !state.lead().closing {
            if state.lead().turns != seen {
                seen = state.lead().turns;
                self.look_in_after(&mut state, pause);
                pause = (pause * 2).min(QUIET_MAX);
            } else if state.lead().taken {
                state.lead().parked = true;
                self.background.wait(&mut state);
                state.lead().parked = false;
            } else {
                pause = QUIET;
                state.lead().in_background = true;
                self.turn(&mut state, None);
                let lead = state.lead();
                lead.in_background = false;
                let followed = lead.followers > 0;
                // With a thread waiting, what this turn did counts as somebody else's, so that it may lead.
                seen = if followed { lead.turns.wrapping_sub(1) } else { lead.turns };
                if followed {
                    self.changed.notify_all();
                }
            }
        }
    }

    fn look_in_after(&self, state: &mut MutexGuard<'_, S>, pause: Duration) {
        let until = Instant::now() + pause;
        let until = state.flush_at().map_or(until, |flush| flush.min(until));
        self.background.wait_until(state, until);
        if !state.lead().taken && state.flush_at().is_some_and(|flush| flush <= Instant::now()) {
            state.flush();
        }
    }

    /// Ends the background thread's work.
    pub(crate) fn close(&self) {
        self.state.lock().lead().closing = true;
        self.background.notify_all();
        S::kick(&self.sockets);
    }
}
