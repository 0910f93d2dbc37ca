//! Interrupting the call that a worker runs.
//!
//! A cancelled call must be interrupted in the user's code and nowhere else, and the call after it never. So whoever
//! learns of the wish only knocks: it makes the thread that runs calls ask, at a point where the language can raise,
//! whether what it runs *now* is what was cancelled. The answer is given under the runtime's lock.
//!
//! - INTERRUPT-1: a call is interrupted only between being handed out and [`Interrupts::end_of_user_code`].
//! - INTERRUPT-2: one wish interrupts once. A call that goes on regardless is left alone until it is cancelled again.
//! - INTERRUPT-3: the knocking is repeated until it was heard: a thread may have been about to sleep.
//! - INTERRUPT-4: while no call is open to an interrupt and none is cancelled, the end of user code changes nothing.
//! - INTERRUPT-5: where threads tell which call they run, every wait of a cancelled one ends, and none of any other.

use oxiray_ids::TaskId;
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// The first pause between two knocks, and the longest.
const KNOCKS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// How the thread that runs calls is made to ask.
#[derive(Debug)]
struct Knocker {
    knock: fn(),
    thread: ThreadId,
}

#[derive(Debug)]
struct Wish {
    task: TaskId,
    again_at: Instant,
    pause: Duration,
}

/// Which of the calls that run here are not wanted any more.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    knocker: Option<Knocker>,
    has_event_loop: bool,
    /// Tells the call that the asking thread runs, where threads know.
    here: Option<fn() -> TaskId>,
    cancelled: FxHashSet<TaskId>,
    /// The call whose user code may be interrupted.
    open_to_it: Option<TaskId>,
    wish: Option<Wish>,
    for_event_loop: VecDeque<TaskId>,
    /// Whether the end of user code matters (INTERRUPT-4); read without the lock that all else here is under.
    pub(crate) matters: Arc<AtomicBool>,
}

impl Interrupts {
    pub(crate) fn serve(&mut self, knock: fn()) {
        self.knocker = Some(Knocker { knock, thread: std::thread::current().id() });
    }

    pub(crate) fn serve_event_loop(&mut self) {
        self.has_event_loop = true;
    }

    pub(crate) fn end_waits_of(&mut self, here: fn() -> TaskId) {
        self.here = Some(here);
    }

    /// Whether those who wait for the end of a call are to be told of its cancelling.
    pub(crate) fn ends_waits(&self) -> bool {
        self.here.is_some()
    }

    /// INTERRUPT-5: whether the call that the asking thread runs was cancelled, so that it is to wait for nothing more.
    pub(crate) fn ends_waits_here(&self) -> bool {
        !self.cancelled.is_empty() && self.here.is_some_and(|here| self.cancelled.contains(&here()))
    }

    /// A call is handed out; `is_alone` where the one thread that runs calls takes it.
    pub(crate) fn begin(&mut self, task: TaskId, is_alone: bool) {
        if is_alone && self.knocker.is_some() {
            self.open_to_it = Some(task);
            self.note_whether_it_matters();
        }
    }

    fn note_whether_it_matters(&self) {
        self.matters.store(self.open_to_it.is_some() || !self.cancelled.is_empty(), Ordering::Release);
    }

    pub(crate) fn is_cancelled(&self, task: TaskId) -> bool {
        self.cancelled.contains(&task)
    }

    /// Whether a call was cancelled that nothing interrupts: it has to look for itself.
    pub(crate) fn is_left_to_itself(&self, task: TaskId) -> bool {
        !self.cancelled.is_empty() && self.is_cancelled(task) && self.open_to_it != Some(task)
    }

    /// A call that runs is not wanted any more.
    pub(crate) fn cancel(&mut self, task: TaskId, now: Instant) {
        let is_new = self.cancelled.insert(task);
        self.note_whether_it_matters();
        if self.has_event_loop {
            if is_new {
                self.for_event_loop.push_back(task);
            }
        } else if self.open_to_it == Some(task) {
            self.wish = Some(Wish { task, again_at: now, pause: KNOCKS.0 });
            self.repeat(now);
        }
    }

    pub(crate) fn next_for_event_loop(&mut self) -> Option<TaskId> {
        self.for_event_loop.pop_front()
    }

    /// When to knock again.
    pub(crate) fn again_at(&self) -> Option<Instant> {
        self.wish.as_ref().map(|wish| wish.again_at)
    }

    /// Knocks where that is due (INTERRUPT-3).
    pub(crate) fn repeat(&mut self, now: Instant) {
        let (Some(wish), Some(knocker)) = (&mut self.wish, &self.knocker) else { return };
        if wish.again_at <= now {
            wish.again_at = now + wish.pause;
            wish.pause = (wish.pause * 2).min(KNOCKS.1);
            (knocker.knock)();
        }
    }

    /// Whether the calling thread, which waits for something, is to ask.
    pub(crate) fn is_for_this_thread(&self) -> bool {
        self.wish.is_some()
            && self.knocker.as_ref().is_some_and(|knocker| knocker.thread == std::thread::current().id())
    }

    /// The thread that runs calls asks: whether what it runs is to be interrupted now.
    pub(crate) fn take(&mut self) -> bool {
        self.wish.take().is_some_and(|wish| self.open_to_it == Some(wish.task))
    }

    /// An interrupt was raised where nothing could be ended by it.
    pub(crate) fn again(&mut self, now: Instant) {
        if let Some(task) = self.open_to_it
            && self.cancelled.contains(&task)
        {
            self.wish = Some(Wish { task, again_at: now + KNOCKS.0, pause: KNOCKS.0 });
        }
    }

    /// INTERRUPT-1.
    pub(crate) fn end_of_user_code(&mut self, task: TaskId) -> bool {
        if self.open_to_it == Some(task) {
            self.open_to_it = None;
            self.wish = None;
            self.note_whether_it_matters();
        }
        !self.cancelled.is_empty() && self.cancelled.contains(&task)
    }

    /// The call is answered.
    pub(crate) fn end(&mut self, task: TaskId) {
        if !self.cancelled.is_empty() {
            self.cancelled.remove(&task);
            self.note_whether_it_matters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::{ActorId, JobId, Unique};
    use std::sync::atomic::{AtomicU32, Ordering};

    static KNOCKED: AtomicU32 = AtomicU32::new(0);

    fn knock() {
        KNOCKED.fetch_add(1, Ordering::Relaxed);
    }

    fn tasks() -> [TaskId; 2] {
        let mut unique = Unique::new();
        [(); 2].map(|()| TaskId::generate(ActorId::nil_of(JobId::from_number(1)), &mut unique))
    }

    fn serving() -> Interrupts {
        let mut interrupts = Interrupts::default();
        interrupts.serve(knock);
        interrupts
    }

    #[test]
    fn a_wish_interrupts_once() {
        let [task, _] = tasks();
        let mut interrupts = serving();
        interrupts.begin(task, true);
        let before = KNOCKED.load(Ordering::Relaxed);
        interrupts.cancel(task, Instant::now());
        assert!(KNOCKED.load(Ordering::Relaxed) > before);
        assert!(interrupts.is_for_this_thread());
        assert_eq!((interrupts.take(), interrupts.take()), (true, false));
        assert!(!interrupts.is_for_this_thread());
        assert!(interrupts.end_of_user_code(task));
    }

    #[test]
    fn an_interrupt_that_comes_late_meets_nobody() {
        let [first, second] = tasks();
        let mut interrupts = serving();
        interrupts.begin(first, true);
        interrupts.cancel(first, Instant::now());
        assert!(interrupts.end_of_user_code(first));
        interrupts.end(first);
        assert!(!interrupts.matters.load(Ordering::Acquire), "nothing is open, nothing cancelled");
        interrupts.begin(second, true);
        assert!(interrupts.matters.load(Ordering::Acquire));
        assert_eq!(interrupts.again_at(), None, "what is over is not knocked for");
        assert!(!interrupts.take());
        interrupts.cancel(first, Instant::now());
        assert!(!interrupts.take());
        assert!(!interrupts.end_of_user_code(second));
    }

    thread_local! {
        static HERE: std::cell::Cell<TaskId> = const { std::cell::Cell::new(TaskId::NIL) };
    }

    #[test]
    fn the_waits_of_a_cancelled_call_end_and_those_of_no_other() {
        let [first, second] = tasks();
        let mut interrupts = Interrupts::default();
        for task in [first, second] {
            interrupts.begin(task, false);
        }
        interrupts.cancel(first, Instant::now());
        HERE.set(first);
        assert!(!interrupts.ends_waits_here(), "nobody said that its threads know");
        interrupts.end_waits_of(|| HERE.get());
        assert!(interrupts.ends_waits_here() && interrupts.ends_waits_here());
        HERE.set(second);
        assert!(!interrupts.ends_waits_here());
        HERE.set(first);
        interrupts.end(first);
        assert!(!interrupts.ends_waits_here(), "it is over");
    }

    #[test]
    fn knocking_goes_on_until_it_is_heard_ever_more_seldom() {
        let [task, _] = tasks();
        let mut interrupts = serving();
        interrupts.begin(task, true);
        let now = Instant::now();
        interrupts.cancel(task, now);
        let first = interrupts.again_at().expect("it was not heard yet");
        interrupts.repeat(first);
        let second = interrupts.again_at().expect("it was not heard yet");
        assert!(second - first > first - now);
        assert!(interrupts.take());
        assert_eq!(interrupts.again_at(), None);
        interrupts.again(second);
        assert!(interrupts.again_at().is_some_and(|at| at > second), "one that was lost is made anew");
    }
}
