//! The state of a process's runtime, and how threads wait for it to change: `lead/protocol.rs` says who reads the sockets,
//! this file how they are read.

pub(crate) mod protocol;

/// The locks of the protocol: its model has others.
mod sync {
    pub(super) use parking_lot::{Condvar, Mutex, MutexGuard};
}

use crate::core::identity::Identity;
use crate::core::signals::ClientEvent;
use crate::puts::Puts;
use crate::shell::State;
use crate::spin::SPIN;
use crate::watched::{Noticed, Sign, Watched};
use protocol::{Lead, Led, Unmet, Waiters};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How often the main thread, whose business signals are, looks for them while it follows another.
const LISTEN_FOLLOWING: Duration = Duration::from_millis(100);
/// The same while it leads: there a signal wakes it, unless it came right before it slept.
const LISTEN_LEADING: Duration = Duration::from_secs(1);
/// The most streams served in one turn.
const EVENTS_LIMIT: usize = 64;
/// Looks at shared memory between two at the sockets, which cost a system call each.
const LOOKS_BETWEEN: u32 = 128;
/// As long as there is something in shared memory every time, the sockets are looked at once in so many turns.
const TURNS_BETWEEN: u64 = 16;

/// What a wait came to.
#[derive(Debug)]
pub(crate) struct Waited {
    /// Whether the kernel could be asked.
    asked: Result<(), Errno>,
    /// It was known within a short look.
    in_time: bool,
    /// When that was, as far as the clock was read: reading it at every step costs as much as the rest of a short look.
    at: Instant,
}

pub(crate) fn is_main_thread() -> bool {
    thread_local! {
        static IS_MAIN: bool = rustix::thread::gettid() == rustix::process::getpid();
    }
    IS_MAIN.with(|is_main| *is_main)
}

/// A process's runtime, as its threads share it.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Set in a process forked from the one that this belongs to: nothing here is its business.
    pub(crate) abandoned: AtomicBool,
    /// Who this process is: the same for the life of the connection.
    pub(crate) identity: Identity,
    /// INTERRUPT-4.
    pub(crate) end_matters: Arc<AtomicBool>,
    pub(crate) puts: Puts,
    waiters: Waiters<State>,
}

impl Shared {
    pub(crate) fn new(state: State) -> Result<Self, Errno> {
        let (epoll, wake) = state.io.links.waiting_descriptors()?;
        Ok(Self {
            abandoned: AtomicBool::new(false),
            identity: state.identity.clone(),
            end_matters: Arc::clone(&state.service.inbox.interrupts.matters),
            puts: Puts::default(),
            waiters: Waiters::new(state, Sockets { epoll, wake }),
        })
    }

    /// Looks at and changes the state, then lets others know where that is due.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        self.waiters.with(act)
    }

    /// [`Shared::with`], for what depends on the time.
    pub(crate) fn with_time<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        self.with(|state| {
            state.now = Instant::now();
            act(state)
        })
    }

    /// Waits for the next headline.
    pub(crate) fn next_headline(&self) -> ClientEvent {
        self.waiters.next_headline()
    }

    /// Waits until `check` has something, or `deadline`.
    pub(crate) fn wait<R>(
        &self,
        deadline: Option<Instant>,
        check: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, Unmet> {
        self.waiters.wait(deadline, check)
    }

    /// [`Shared::with`], and [`Shared::wait`] with nothing in between.
    pub(crate) fn act_and_wait<R>(
        &self,
        act: impl FnOnce(&mut State),
        deadline: Option<Instant>,
        check: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, Unmet> {
        self.waiters.act_and_wait(act, deadline, check)
    }

    /// What the background thread does until [`Shared::close`]. A defect there must not become a silent hang.
    pub(crate) fn attend_or_abort(&self) {
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.waiters.attend())).is_err() {
            std::process::abort();
        }
    }

    /// Ends the background thread's work.
    pub(crate) fn close(&self) {
        self.waiters.close();
    }
}

/// The descriptors that are used without the lock.
#[derive(Debug)]
pub(crate) struct Sockets {
    epoll: OwnedFd,
    wake: OwnedFd,
}

/// A turn at the sockets.
#[derive(Debug)]
pub(crate) struct Turn {
    began: Instant,
    /// Until when it lasts, where nothing comes.
    until: Option<Instant>,
    /// Until when it lasts for the sake of signals.
    listen_until: Option<Instant>,
    /// It begins with a look that does not sleep.
    looks: bool,
    /// The kernel is asked even where there is something in shared memory.
    polls_all: bool,
    watched: Watched,
    noticed: Vec<Noticed>,
    /// What it came to, once it is over.
    waited: Option<Waited>,
}

impl Led for State {
    type Sockets = Sockets;
    type Turn = Turn;
    type ClientEvent = ClientEvent;

    fn lead(&mut self) -> &mut Lead {
        &mut self.io.lead
    }

    fn changed(&mut self) -> &mut bool {
        &mut self.signals.changed
    }

    fn timer_moved(&mut self) -> &mut bool {
        &mut self.signals.timer_moved
    }

    fn flush_at(&self) -> Option<Instant> {
        self.io.links.flush_at()
    }

    fn flush(&mut self) {
        self.io.links.flush_all();
    }

    fn has_news(&self) -> bool {
        !self.signals.news.is_empty()
    }

    fn take_news(&mut self) -> Option<ClientEvent> {
        self.signals.news.pop_front()
    }

    fn listen_until() -> Option<Instant> {
        is_main_thread().then(|| Instant::now() + LISTEN_FOLLOWING)
    }

    fn interrupts_this_thread(&self) -> bool {
        self.is_this_thread_interrupted() || self.service.standstill.interrupts(is_main_thread)
    }

    fn begin_turn(&mut self, deadline: Option<Instant>) -> Turn {
        let in_background = self.io.lead.is_in_background();
        if !in_background {
            // Whoever waits wants an answer, so what leads to it goes out now.
            self.io.links.flush_gathered();
        }
        let began = Instant::now();
        let listen_until = is_main_thread().then(|| began + LISTEN_LEADING);
        Turn {
            began,
            until: [deadline, self.due_at(), listen_until].into_iter().flatten().min(),
            listen_until,
            looks: !in_background && self.io.spin.is_due(),
            polls_all: self.io.lead.turns().is_multiple_of(TURNS_BETWEEN),
            watched: self.io.links.watched.clone(),
            noticed: std::mem::take(&mut self.io.noticed),
            waited: None,
        }
    }

    fn wait(sockets: &Sockets, turn: &mut Turn) {
        let Turn { began, until, looks, polls_all, .. } = *turn;
        let looks_until = if looks { until.map_or(began + SPIN, |until| until.min(began + SPIN)) } else { began };
        let times = (began, looks_until, until);
        turn.waited = Some(sockets.look_or_poll(times, &turn.watched, polls_all, &mut turn.noticed));
    }

    fn end_turn(&mut self, turn: Turn) -> bool {
        let Turn { until, listen_until, looks, watched, mut noticed, waited, .. } = turn;
        let Waited { asked, in_time, at } = waited.expect("a turn ends after its wait");
        drop(watched);
        self.now = at;
        self.io.links.watched.leave_sleeping();
        if looks {
            self.io.spin.learn(in_time);
        }
        let mut interrupted = false;
        match asked {
            Ok(()) if noticed.is_empty() => interrupted = until == listen_until && until.is_some(),
            Ok(()) => self.serve(&noticed),
            Err(Errno::INTR) => interrupted = true,
            Err(error) => panic!("LEAD-1: epoll on descriptors of our own failed: {error}"),
        }
        noticed.clear();
        self.io.noticed = noticed;
        self.do_what_is_due(at);
        interrupted
    }

    fn kick(sockets: &Sockets) {
        let _ = rustix::io::write(&sockets.wake, &1_u64.to_ne_bytes());
    }
}

impl Sockets {
    /// Looks at shared memory for a moment, and sleeps where nothing comes.
    fn look_or_poll(
        &self,
        (began, looks_until, until): (Instant, Instant, Option<Instant>),
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
    fn poll(&self, limit: Option<Duration>, noticed: &mut Vec<Noticed>) -> Result<(), Errno> {
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
}
