//! Who reads the sockets of a process (`crates/runtime/src/lead/protocol.rs`): at most one thread does (LEAD-1), and everybody
//! who waits is woken for what concerns it, whoever read that and whoever has left meanwhile (LEAD-2).
//!
//! The sockets are a queue of answers that peers post to, watched as epoll watches: what is there is noticed until it is
//! read. Whoever sleeps while nobody wakes it is a deadlock, which loom reports. Time does not pass: a wait with a limit,
//! which only the background thread has here, is over at once.

#[expect(dead_code, unreachable_pub, reason = "the product uses, and shows to others, what this model does not")]
#[path = "../../runtime/src/lead/protocol.rs"]
mod protocol;

/// The locks that the protocol is written for, over loom's.
mod sync {
    use std::ops::{Deref, DerefMut};
    use std::time::Instant;

    #[derive(Debug)]
    pub(super) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(super) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard { mutex: self, held: Some(self.0.lock().expect("nobody panics with the lock")) }
        }
    }

    #[derive(Debug)]
    pub(super) struct MutexGuard<'mutex, T> {
        mutex: &'mutex Mutex<T>,
        /// Nothing only while the lock is given up.
        held: Option<loom::sync::MutexGuard<'mutex, T>>,
    }

    impl<T> MutexGuard<'_, T> {
        pub(super) fn unlocked<R>(guard: &mut Self, act: impl FnOnce() -> R) -> R {
            guard.held = None;
            let result = act();
            guard.held = guard.mutex.lock().held.take();
            result
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.held.as_ref().expect("the lock is held")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.held.as_mut().expect("the lock is held")
        }
    }

    /// Whether a wait with a limit ended without a word.
    pub(super) struct TimedOut(bool);

    impl TimedOut {
        pub(super) fn timed_out(&self) -> bool {
            self.0
        }
    }

    #[derive(Debug)]
    pub(super) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(super) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub(super) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.held.take().expect("the lock is held");
            guard.held = Some(self.0.wait(held).expect("nobody panics with the lock"));
        }

        /// It is over before anybody can say a word: others have the lock meanwhile.
        #[expect(clippy::unused_self, reason = "it stands for a condition variable's method")]
        pub(super) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _: Instant) -> TimedOut {
            MutexGuard::unlocked(guard, loom::thread::yield_now);
            TimedOut(true)
        }

        pub(super) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(super) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

use loom::thread;
use protocol::{Lead, Led, Unmet, Waiters};
use std::sync::Arc;
use std::time::Instant;

/// How often loom may take the processor from a thread that could go on. Mistakes in such protocols need two or three.
const PREEMPTIONS_MAX: usize = 3;

/// What the kernel knows.
#[derive(Debug, Default)]
struct Kernel {
    /// Answers that came and were not read.
    came: Vec<usize>,
    /// The leader is to look up.
    is_kicked: bool,
    /// Somebody is in epoll (LEAD-1).
    is_waited_in: bool,
}

#[derive(Debug)]
struct Sockets {
    kernel: loom::sync::Mutex<Kernel>,
    ready: loom::sync::Condvar,
}

impl Sockets {
    fn change(&self, change: impl FnOnce(&mut Kernel)) {
        change(&mut self.kernel.lock().expect("nobody panics with the lock"));
        self.ready.notify_all();
    }

    /// A peer answers.
    fn post(&self, answer: usize) {
        self.change(|kernel| kernel.came.push(answer));
    }
}

/// What a process knows: which answers came.
#[derive(Debug)]
struct State {
    lead: Lead,
    changed: bool,
    timer_moved: bool,
    sockets: Arc<Sockets>,
    answers: [bool; 3],
    news: Vec<usize>,
    /// What a peer is to be asked, and was not yet.
    gathered: Vec<usize>,
}

impl Led for State {
    type Sockets = Arc<Sockets>;
    /// Whether the turn has a limit, which is over at once.
    type Turn = bool;
    type ClientEvent = usize;

    fn lead(&mut self) -> &mut Lead {
        &mut self.lead
    }

    fn changed(&mut self) -> &mut bool {
        &mut self.changed
    }

    fn timer_moved(&mut self) -> &mut bool {
        &mut self.timer_moved
    }

    fn flush_at(&self) -> Option<Instant> {
        (!self.gathered.is_empty()).then(Instant::now)
    }

    /// The peer answers at once.
    fn flush(&mut self) {
        for asked in std::mem::take(&mut self.gathered) {
            self.sockets.post(asked);
        }
    }

    fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    fn take_news(&mut self) -> Option<usize> {
        self.news.pop()
    }

    fn listen_until() -> Option<Instant> {
        None
    }

    fn interrupts_this_thread(&self) -> bool {
        false
    }

    fn begin_turn(&mut self, deadline: Option<Instant>) -> bool {
        if !self.lead.is_in_background() {
            self.flush();
        }
        deadline.is_some() || self.flush_at().is_some()
    }

    fn wait(sockets: &Arc<Sockets>, has_limit: &mut bool) {
        let mut kernel = sockets.kernel.lock().expect("nobody panics with the lock");
        assert!(!std::mem::replace(&mut kernel.is_waited_in, true), "LEAD-1: one thread is in epoll");
        while kernel.came.is_empty() && !kernel.is_kicked && !*has_limit {
            kernel = sockets.ready.wait(kernel).expect("nobody panics with the lock");
        }
        kernel.is_waited_in = false;
    }

    fn end_turn(&mut self, _: bool) -> bool {
        self.flush();
        let mut kernel = self.sockets.kernel.lock().expect("nobody panics with the lock");
        kernel.is_kicked = false;
        for answer in std::mem::take(&mut kernel.came) {
            self.answers[answer] = true;
            self.changed = true;
            self.news.push(answer);
        }
        false
    }

    fn kick(sockets: &Arc<Sockets>) {
        sockets.change(|kernel| kernel.is_kicked = true);
    }
}

/// A process with nobody in it yet, and its sockets.
fn process() -> (Arc<Waiters<State>>, Arc<Sockets>) {
    let sockets =
        Arc::new(Sockets { kernel: loom::sync::Mutex::new(Kernel::default()), ready: loom::sync::Condvar::new() });
    let state = State {
        lead: Lead::default(),
        changed: false,
        timer_moved: false,
        sockets: Arc::clone(&sockets),
        answers: [false; 3],
        news: Vec::new(),
        gathered: Vec::new(),
    };
    (Arc::new(Waiters::new(state, Arc::clone(&sockets))), sockets)
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(model);
}

/// Waits for an answer for as long as it takes.
fn wait_for(process: &Waiters<State>, answer: usize) {
    assert_eq!(process.wait(None, |state| state.answers[answer].then_some(())), Ok(()));
}

#[test]
fn an_answer_to_what_is_asked_as_the_wait_begins_comes_through() {
    explore(|| {
        let (process, sockets) = process();
        let other = Arc::clone(&process);
        let waiting = thread::spawn(move || wait_for(&other, 1));
        let peer = Arc::clone(&sockets);
        let ask = |state: &mut State| {
            state.timer_moved = true;
            peer.post(1);
            peer.post(0);
        };
        assert_eq!(process.act_and_wait(ask, None, |state| state.answers[0].then_some(())), Ok(()));
        waiting.join().expect("it has its answer");
    });
}

#[test]
fn what_is_asked_as_a_wait_ends_is_sent_though_another_thread_leads() {
    explore(|| {
        let (process, _sockets) = process();
        let other = Arc::clone(&process);
        let waiting = thread::spawn(move || wait_for(&other, 1));
        let found = process.wait(None, |state| {
            state.gathered.push(1);
            Some(())
        });
        assert_eq!(found, Ok(()));
        waiting.join().expect("it has its answer");
    });
}

#[test]
fn what_is_asked_by_who_waits_on_is_sent_though_another_thread_leads() {
    explore(|| {
        let (process, _sockets) = process();
        let other = Arc::clone(&process);
        let waiting = thread::spawn(move || wait_for(&other, 1));
        let mut was_asked = false;
        let found = process.wait(None, |state| {
            if !std::mem::replace(&mut was_asked, true) {
                state.gathered.extend([1, 0]);
            }
            state.answers[0].then_some(())
        });
        assert_eq!(found, Ok(()));
        waiting.join().expect("it has its answer");
    });
}

#[test]
fn what_is_asked_by_who_does_not_wait_is_sent_in_the_background() {
    explore(|| {
        let (process, _sockets) = process();
        let background = Arc::clone(&process);
        let attending = thread::spawn(move || background.attend());
        let found = process.wait(None, |state| {
            state.gathered.push(2);
            Some(())
        });
        assert_eq!(found, Ok(()));
        while process.next_headline() != 2 {}
        process.close();
        attending.join().expect("it ends");
    });
}

#[test]
fn two_that_wait_get_their_answers_whoever_reads_them() {
    explore(|| {
        let (process, sockets) = process();
        let other = Arc::clone(&process);
        let waiting = thread::spawn(move || wait_for(&other, 1));
        let peer = thread::spawn(move || {
            sockets.post(1);
            sockets.post(0);
        });
        wait_for(&process, 0);
        waiting.join().expect("it has its answer");
        peer.join().expect("it ends");
    });
}

#[test]
fn whoever_reads_the_answer_of_another_tells_it_though_it_waits_on_itself() {
    explore(|| {
        let (process, sockets) = process();
        let (other, next) = (Arc::clone(&process), Arc::clone(&sockets));
        let waiting = thread::spawn(move || {
            wait_for(&other, 1);
            // Only now the first one's answer comes.
            next.post(0);
        });
        let peer = thread::spawn(move || sockets.post(1));
        wait_for(&process, 0);
        waiting.join().expect("it has its answer");
        peer.join().expect("it ends");
    });
}

#[test]
fn whoever_gives_up_hands_the_lead_on() {
    explore(|| {
        let (process, sockets) = process();
        let other = Arc::clone(&process);
        let waiting = thread::spawn(move || wait_for(&other, 1));
        // Its time is over: it looks once.
        let nothing = process.wait(Some(Instant::now()), |state| state.answers[0].then_some(()));
        assert_eq!(nothing, Err(Unmet::TimedOut));
        sockets.post(1);
        waiting.join().expect("it has its answer");
    });
}

#[test]
fn what_another_thread_of_the_process_does_is_seen_by_whoever_waits_for_it() {
    explore(|| {
        let (process, _sockets) = process();
        let others = [0, 1].map(|answer| {
            let other = Arc::clone(&process);
            thread::spawn(move || wait_for(&other, answer))
        });
        process.with(|state| {
            state.answers = [true; 3];
            state.changed = true;
        });
        for other in others {
            other.join().expect("it has its answer");
        }
    });
}

#[test]
fn the_background_reads_for_nobody_and_leaves_the_lead_to_whoever_waits() {
    explore(|| {
        let (process, sockets) = process();
        let background = Arc::clone(&process);
        let attending = thread::spawn(move || background.attend());
        let peer = thread::spawn(move || sockets.post(0));
        wait_for(&process, 0);
        process.close();
        attending.join().expect("it ends");
        peer.join().expect("it ends");
    });
}

#[test]
fn the_background_hears_news_while_nobody_waits() {
    explore(|| {
        let (process, sockets) = process();
        let (background, listener) = (Arc::clone(&process), Arc::clone(&process));
        let attending = thread::spawn(move || background.attend());
        let listening = thread::spawn(move || listener.next_headline());
        sockets.post(2);
        assert_eq!(listening.join().expect("it hears something"), 2);
        process.close();
        attending.join().expect("it ends");
    });
}

#[test]
fn the_background_reads_on_when_whoever_led_has_left() {
    explore(|| {
        let (process, sockets) = process();
        let background = Arc::clone(&process);
        let attending = thread::spawn(move || background.attend());
        let peer = Arc::clone(&sockets);
        let answering = thread::spawn(move || peer.post(0));
        wait_for(&process, 0);
        // Nobody waits for this one.
        sockets.post(2);
        while process.next_headline() != 2 {}
        process.close();
        attending.join().expect("it ends");
        answering.join().expect("it ends");
    });
}
