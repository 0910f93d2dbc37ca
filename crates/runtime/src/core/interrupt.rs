//! Interrupting the call that a worker runs.
//!
//! A cancelled call must be interrupted in the user's code and nowhere else, and the call after it never. So whoever
//! learns of the request only knocks ([`Io::interrupt`](crate::core::Io::interrupt)): it makes the thread that runs calls ask, at a point where the language can raise,
//! whether what it runs *now* is what was cancelled. The answer is given under the runtime's lock.
//!
//! - INTERRUPT-1: a call is interrupted only between being handed out and [`Interrupts::end_of_user_code`].
//! - INTERRUPT-2: one request interrupts once. A call that goes on regardless is left alone until it is cancelled again.
//! - INTERRUPT-3: the knocking is repeated until it was heard: a thread may have been about to sleep.
//! - INTERRUPT-4: while no call is open to an interrupt and none is cancelled, the end of user code changes nothing.
//! - INTERRUPT-5: where threads tell which call they run, every wait of a cancelled one ends, and none of any other.

use oxiray_ids::TaskId;
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The first pause between two knocks, and the longest.
const KNOCKS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

#[derive(Debug)]
struct InterruptRequest {
    task: TaskId,
    again_at: Instant,
    pause: Duration,
}

/// Which of the calls that run here are not wanted any more.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    /// There is a thread that runs calls and can be interrupted.
    has_thread: bool,
    has_event_loop: bool,
    /// Threads know which call they run.
    ends_waits: bool,
    cancelled: FxHashSet<TaskId>,
    /// The call whose user code may be interrupted.
    open_to_it: Option<TaskId>,
    interrupt_request: Option<InterruptRequest>,
    for_event_loop: VecDeque<TaskId>,
    /// Whether the end of user code matters (INTERRUPT-4); read without the lock that all else here is under.
    pub(crate) matters: Arc<AtomicBool>,
}

impl Interrupts {
    /// The thread that runs calls can be interrupted.
    pub(crate) fn serve(&mut self) {
        self.has_thread = true;
    }

    pub(crate) fn serve_event_loop(&mut self) {
        self.has_event_loop = true;
    }

    /// From here on, threads know which call they run.
    pub(crate) fn end_waits(&mut self) {
        self.ends_waits = true;
    }

    /// Whether those who wait for the end of a call are to be told of its cancelling (INTERRUPT-5).
    pub(crate) fn ends_waits(&self) -> bool {
        self.ends_waits
    }

    /// Whether some call that runs here was cancelled.
    pub(crate) fn any_is_cancelled(&self) -> bool {
        !self.cancelled.is_empty()
    }

    /// A call is handed out; `is_alone` where the one thread that runs calls takes it.
    pub(crate) fn begin(&mut self, task: TaskId, is_alone: bool) {
        if is_alone && self.has_thread {
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

    /// A call that runs is not wanted any more. Whether the thread that runs calls is to be interrupted now.
    pub(crate) fn cancel(&mut self, task: TaskId, now: Instant) -> bool {
        let is_new = self.cancelled.insert(task);
        self.note_whether_it_matters();
        if self.has_event_loop {
            if is_new {
                self.for_event_loop.push_back(task);
            }
            return false;
        }
        if self.open_to_it != Some(task) {
            return false;
        }
        self.interrupt_request = Some(InterruptRequest { task, again_at: now, pause: KNOCKS.0 });
        self.is_due(now)
    }

    pub(crate) fn next_for_event_loop(&mut self) -> Option<TaskId> {
        self.for_event_loop.pop_front()
    }

    /// When to knock again.
    pub(crate) fn again_at(&self) -> Option<Instant> {
        self.interrupt_request.as_ref().map(|interrupt_request| interrupt_request.again_at)
    }

    /// Whether the thread that runs calls is to be interrupted again now (INTERRUPT-3).
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let Some(interrupt_request) =
            self.interrupt_request.as_mut().filter(|interrupt_request| interrupt_request.again_at <= now)
        else {
            return false;
        };
        interrupt_request.again_at = now + interrupt_request.pause;
        interrupt_request.pause = (interrupt_request.pause * 2).min(KNOCKS.1);
        true
    }

    /// Whether the thread that runs calls has yet to look.
    pub(crate) fn is_awaited(&self) -> bool {
        self.interrupt_request.is_some()
    }

    /// The thread that runs calls asks: whether what it runs is to be interrupted now.
    pub(crate) fn take(&mut self) -> bool {
        self.interrupt_request.take().is_some_and(|interrupt_request| self.open_to_it == Some(interrupt_request.task))
    }

    /// An interrupt was raised where nothing could be ended by it.
    pub(crate) fn again(&mut self, now: Instant) {
        if let Some(task) = self.open_to_it
            && self.cancelled.contains(&task)
        {
            self.interrupt_request = Some(InterruptRequest { task, again_at: now + KNOCKS.0, pause: KNOCKS.0 });
        }
    }

    /// INTERRUPT-1.
    pub(crate) fn end_of_user_code(&mut self, task: TaskId) -> bool {
        if self.open_to_it == Some(task) {
            self.open_to_it = None;
            self.interrupt_request = None;
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

    fn tasks() -> [TaskId; 2] {
        let mut unique = Unique::new();
        [(); 2].map(|()| TaskId::generate(ActorId::nil_of(JobId::from_number(1)), &mut unique))
    }

    fn serving() -> Interrupts {
        let mut interrupts = Interrupts::default();
        interrupts.serve();
        interrupts
    }

    #[test]
    fn a_wish_interrupts_once() {
        let [task, _] = tasks();
        let mut interrupts = serving();
        interrupts.begin(task, true);
        assert!(interrupts.cancel(task, Instant::now()));
        assert!(interrupts.is_awaited());
        assert_eq!((interrupts.take(), interrupts.take()), (true, false));
        assert!(!interrupts.is_awaited());
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

    #[test]
    fn knocking_goes_on_until_it_is_heard_ever_more_seldom() {
        let [task, _] = tasks();
        let mut interrupts = serving();
        interrupts.begin(task, true);
        let now = Instant::now();
        interrupts.cancel(task, now);
        let first = interrupts.again_at().expect("it was not heard yet");
        assert!(interrupts.is_due(first) && !interrupts.is_due(first));
        let second = interrupts.again_at().expect("it was not heard yet");
        assert!(second - first > first - now);
        assert!(interrupts.take());
        assert_eq!(interrupts.again_at(), None);
        interrupts.again(second);
        assert!(interrupts.again_at().is_some_and(|at| at > second), "one that was lost is made anew");
    }
}
