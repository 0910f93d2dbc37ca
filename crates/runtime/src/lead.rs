//! Who reads the sockets: whoever waits.
//!
//! A thread that waits for a value takes the *lead*: it sits in epoll itself and handles what comes, so
//! that the answer to a call wakes the very thread that wants it, once. Others that wait meanwhile are
//! followers and are told when something changed. A background thread leads only when nobody has for
//! [`QUIET`], so that a process busy with its own work still answers its peers.
//!
//! - LEAD-1: at most one thread is in epoll. It never holds the state's lock there.
//! - LEAD-2: whoever gives up the lead while others wait tells them, so that one of them takes it.

use crate::core::client::{Identity, News};
use crate::puts::Puts;
use crate::shell::State;
use crate::spin::{SPIN, Spin};
use crate::watched::{Noticed, Sign, Watched};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{Timespec, epoll};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How long the lead stays free before the background takes it.
const QUIET: Duration = Duration::from_millis(1);
/// The longest that the background looks away while others take turns.
const QUIET_MAX: Duration = Duration::from_millis(8);
/// How often the main thread, whose business signals are, looks for them while it follows another.
const LISTEN_FOLLOWING: Duration = Duration::from_millis(100);
/// The same while it leads: there a signal wakes it, unless it came right before it slept.
const LISTEN_LEADING: Duration = Duration::from_secs(1);
/// The most streams served in one turn.
const EVENTS_LIMIT: usize = 64;

/// Why a wait ended without what was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmet {
    /// The deadline passed.
    TimedOut,
    /// A signal arrived; the caller looks whether it matters and waits on.
    Interrupted,
}

/// Looks at shared memory between two at the sockets, which cost a system call each.
const LOOKS_BETWEEN: u32 = 128;
/// As long as there is something in shared memory every time, the sockets are looked at once in so many turns.
const TURNS_BETWEEN: u64 = 16;

/// What a wait came to.
struct Waited {
    /// Whether the kernel could be asked.
    asked: Result<(), rustix::io::Errno>,
    /// It was known within a short look.
    in_time: bool,
    /// When that was, as far as the clock was read: reading it at every step costs as much as the rest of a short look.
    at: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct Lead {
    spin: Spin,
    taken: bool,
    sleeping: bool,
    in_background: bool,
    parked: bool,
    followers: usize,
    turns: u64,
    /// Streams of which something is noticed: a list that is kept, since one a turn is felt.
    noticed: Vec<Noticed>,
    /// The background thread is to end.
    pub(crate) closing: bool,
}

fn is_main_thread() -> bool {
    thread_local! {
        static IS_MAIN: bool = rustix::thread::gettid() == rustix::process::getpid();
    }
    IS_MAIN.with(|is_main| *is_main)
}

/// The state of a process's runtime, and how to wait for it to change.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Set in a process forked from the one that this belongs to: nothing here is its business.
    pub(crate) abandoned: AtomicBool,
    /// Who this process is: the same for the life of the connection.
    pub(crate) identity: Identity,
    /// INTERRUPT-4.
    pub(crate) end_matters: Arc<AtomicBool>,
    pub(crate) puts: Puts,
    state: Mutex<State>,
    changed: Condvar,
    headlines: Condvar,
    background: Condvar,
    epoll: OwnedFd,
    wake: OwnedFd,
}

impl Shared {
    pub(crate) fn new(state: State) -> Result<Self, rustix::io::Errno> {
        let (epoll, wake) = state.io.links.waiting_descriptors()?;
        Ok(Self {
            abandoned: AtomicBool::new(false),
            identity: state.identity.clone(),
            end_matters: Arc::clone(&state.service.inbox.interrupts.matters),
            puts: Puts::default(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            headlines: Condvar::new(),
            background: Condvar::new(),
            epoll,
            wake,
        })
    }

    /// Looks at and changes the state, then lets others know where that is due.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        self.act(&mut self.state.lock(), act)
    }

    /// [`Shared::with`], for what depends on the time.
    pub(crate) fn with_time<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        self.with(|state| {
            state.now = Instant::now();
            act(state)
        })
    }

    fn act<R>(&self, state: &mut MutexGuard<'_, State>, act: impl FnOnce(&mut State) -> R) -> R {
        let flushing = state.io.links.flush_at.is_some();
        let result = act(state);
        if (state.signals.timer_moved || state.signals.changed || (!flushing && state.io.links.flush_at.is_some()))
            && state.io.lead.sleeping
        {
            self.kick();
        }
        state.signals.timer_moved = false;
        self.spread(state);
        result
    }

    /// Wakes those who may want to see what changed.
    fn spread(&self, state: &mut MutexGuard<'_, State>) {
        if std::mem::take(&mut state.signals.changed) && state.io.lead.followers > 0 {
            self.changed.notify_all();
        }
        if !state.signals.news.is_empty() {
            self.headlines.notify_one();
        }
    }

    /// Waits for the next headline. Whoever does never leads: it would keep the lead from those in a hurry.
    pub(crate) fn next_headline(&self) -> News {
        let mut state = self.state.lock();
        loop {
            if let Some(news) = state.signals.news.pop_front() {
                return news;
            }
            self.headlines.wait(&mut state);
        }
    }

    fn kick(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Waits until `check` has something, or `deadline`.
    pub(crate) fn wait<R>(
        &self,
        deadline: Option<Instant>,
        check: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, Unmet> {
        self.wait_on(self.state.lock(), deadline, check)
    }

    /// [`Shared::with`], and [`Shared::wait`] with nothing in between.
    pub(crate) fn act_and_wait<R>(
        &self,
        act: impl FnOnce(&mut State),
        deadline: Option<Instant>,
        check: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, Unmet> {
        let mut state = self.state.lock();
        self.act(&mut state, act);
        self.wait_on(state, deadline, check)
    }

    fn wait_on<R>(
        &self,
        mut state: MutexGuard<'_, State>,
        deadline: Option<Instant>,
        mut check: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, Unmet> {
        let mut interrupted = false;
        let mut looked = false;
        loop {
            if let Some(found) = check(&mut state) {
                self.leave(&mut state);
                return Ok(found);
            }
            // A deadline that has passed still leaves one look at what has arrived.
            if interrupted || (looked && deadline.is_some_and(|deadline| Instant::now() >= deadline)) {
                self.leave(&mut state);
                return Err(if interrupted { Unmet::Interrupted } else { Unmet::TimedOut });
            }
            looked = true;
            if state.io.lead.taken {
                interrupted = self.follow(&mut state, deadline);
            } else {
                interrupted = self.turn(&mut state, deadline);
            }
            interrupted |= state.interrupts_this_thread();
        }
    }

    fn follow(&self, state: &mut MutexGuard<'_, State>, deadline: Option<Instant>) -> bool {
        if state.io.lead.in_background || (state.signals.timer_moved && state.io.lead.sleeping) {
            self.kick();
        }
        state.signals.timer_moved = false;
        state.io.lead.followers += 1;
        let listen_until = is_main_thread().then(|| Instant::now() + LISTEN_FOLLOWING);
        let until = [deadline, listen_until].into_iter().flatten().min();
        let timed_out = if let Some(until) = until {
            self.changed.wait_until(state, until).timed_out()
        } else {
            self.changed.wait(state);
            false
        };
        state.io.lead.followers -= 1;
        timed_out && until == listen_until
    }

    /// Hands on what a thread that stops waiting would otherwise keep to itself (LEAD-2).
    fn leave(&self, state: &mut MutexGuard<'_, State>) {
        if state.signals.changed {
            self.changed.notify_all();
        } else if !state.io.lead.taken {
            // One is enough: it takes the lead, or leaves likewise.
            self.changed.notify_one();
        }
        if state.io.lead.parked && !state.io.lead.taken {
            state.io.lead.parked = false;
            self.background.notify_one();
        }
        state.signals.changed = false;
    }

    /// One round of epoll; `true` where a signal ended it.
    fn turn(&self, state: &mut MutexGuard<'_, State>, deadline: Option<Instant>) -> bool {
        state.io.lead.taken = true;
        state.io.lead.turns += 1;
        if !state.io.lead.in_background {
            // Whoever waits wants an answer, so what leads to it goes out now.
            state.io.links.flush_all();
        }
        let began = Instant::now();
        let listen_until = is_main_thread().then(|| began + LISTEN_LEADING);
        let until = [deadline, state.due_at(), listen_until].into_iter().flatten().min();
        state.io.lead.sleeping = true;
        let looks = !state.io.lead.in_background && state.io.lead.spin.is_due();
        let polls_all = state.io.lead.turns.is_multiple_of(TURNS_BETWEEN);
        let watched = state.io.links.watched.clone();
        let mut noticed = std::mem::take(&mut state.io.lead.noticed);
        let Waited { asked, in_time, at } = MutexGuard::unlocked(state, || {
            let looks_until = if looks { until.map_or(began + SPIN, |until| until.min(began + SPIN)) } else { began };
            self.look_or_poll(began, looks_until, until, &watched, polls_all, &mut noticed)
        });
        drop(watched);
        state.now = at;
        state.io.lead.sleeping = false;
        state.io.links.watched.leave_sleeping();
        if looks {
            state.io.lead.spin.learn(in_time);
        }
        let mut interrupted = false;
        match asked {
            Ok(()) if noticed.is_empty() => interrupted = until == listen_until && until.is_some(),
            Ok(()) => state.serve(&noticed),
            Err(rustix::io::Errno::INTR) => interrupted = true,
            Err(error) => panic!("LEAD-1: epoll on descriptors of our own failed: {error}"),
        }
        noticed.clear();
        state.io.lead.noticed = noticed;
        state.do_what_is_due(at);
        state.io.lead.taken = false;
        state.signals.timer_moved = false;
        self.spread(state);
        interrupted
    }

    /// Looks at shared memory for a moment, and sleeps where nothing comes.
    fn look_or_poll(
        &self,
        began: Instant,
        looks_until: Instant,
        until: Option<Instant>,
        watched: &Watched,
        polls_all: bool,
        noticed: &mut Vec<Noticed>,
    ) -> Waited {
        if watched.notice(noticed) {
            if polls_all {
                // What the kernel has to say otherwise is heard in another turn.
                let _ = self.poll(Some(Duration::ZERO), noticed);
            }
            return Waited { asked: Ok(()), in_time: true, at: began };
        }
        let mut now = began;
        while now < looks_until {
            for _ in 0..if watched.is_empty() { 1 } else { LOOKS_BETWEEN } {
                if watched.notice(noticed) {
                    return Waited { asked: Ok(()), in_time: true, at: now };
                }
                std::hint::spin_loop();
            }
            let asked = self.poll(Some(Duration::ZERO), noticed);
            now = Instant::now();
            if asked.is_err() || !noticed.is_empty() {
                return Waited { asked, in_time: true, at: now };
            }
        }
        watched.sleep(noticed);
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let asked = if noticed.is_empty() { self.poll(left, noticed) } else { Ok(()) };
        Waited { asked, in_time: false, at: Instant::now() }
    }

    /// Asks the kernel, and adds streams of which it has noticed something.
    fn poll(&self, limit: Option<Duration>, noticed: &mut Vec<Noticed>) -> Result<(), rustix::io::Errno> {
        let timeout = limit.map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut buffer = [MaybeUninit::uninit(); EVENTS_LIMIT];
        let (events, _) = epoll::wait(&self.epoll, &mut buffer, timeout.as_ref())?;
        let told = |event: &epoll::Event| {
            let (data, flags) = (event.data, event.flags);
            let sign = if flags.contains(epoll::EventFlags::OUT) { Sign::Writable } else { Sign::Readable };
            (data.u64(), sign)
        };
        noticed.extend(events.iter().map(told));
        Ok(())
    }

    /// What the background thread does until [`Lead::closing`]. A defect there must not become a silent hang.
    pub(crate) fn attend_or_abort(&self) {
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.attend())).is_err() {
            std::process::abort();
        }
    }

    /// What the background thread does until [`Lead::closing`].
    ///
    /// As long as others take turns it only looks in, less and less often, so that it costs those nothing.
    fn attend(&self) {
        let mut state = self.state.lock();
        let mut seen = state.io.lead.turns;
        let mut pause = QUIET;
        while !state.io.lead.closing {
            if state.io.lead.turns != seen {
                seen = state.io.lead.turns;
                self.look_in_after(&mut state, pause);
                pause = (pause * 2).min(QUIET_MAX);
            } else if state.io.lead.taken {
                state.io.lead.parked = true;
                self.background.wait(&mut state);
                state.io.lead.parked = false;
            } else {
                pause = QUIET;
                state.io.lead.in_background = true;
                self.turn(&mut state, None);
                state.io.lead.in_background = false;
                let followed = state.io.lead.followers > 0;
                if followed {
                    self.changed.notify_all();
                }
                // With a thread waiting, what this turn did counts as somebody else's, so that it may lead.
                seen = if followed { state.io.lead.turns.wrapping_sub(1) } else { state.io.lead.turns };
            }
        }
    }

    fn look_in_after(&self, state: &mut MutexGuard<'_, State>, pause: Duration) {
        let until = Instant::now() + pause;
        let until = state.io.links.flush_at.map_or(until, |flush| flush.min(until));
        self.background.wait_until(state, until);
        if !state.io.lead.taken && state.io.links.flush_at.is_some_and(|flush| flush <= Instant::now()) {
            state.io.links.flush_all();
        }
    }

    /// Ends the background thread's work.
    pub(crate) fn close(&self) {
        self.state.lock().io.lead.closing = true;
        self.background.notify_all();
        self.kick();
    }
}
