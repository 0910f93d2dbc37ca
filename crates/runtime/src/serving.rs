//! The runtime as a worker uses it: what is to be done, and what came of it.

use crate::core::execute::{Duty, Outcome, Ticket};
use crate::interrupts::Interrupter;
use crate::lead::protocol::Unmet;
use crate::runtime::{Runtime, RuntimeError};
use crate::shell::State;
use oxiray_ids::{ObjectId, TaskId};
use oxiray_wire::message::{ActorCreate, Call, Value};
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Runtime {
    /// The next thing to do for a thread of that concurrency group, or of none; waits for it.
    pub fn next_duty(&self, group: Option<&str>) -> Result<Duty, RuntimeError> {
        self.reply_and_next(&mut None, &mut Outcome::default(), group)
    }

    /// [`Runtime::reply`] for a call that the thread has run, where there is one, and [`Runtime::next_duty`]: two for little
    /// more than the price of one. What is `done` is taken, and `outcome` empty then.
    pub fn reply_and_next(
        &self,
        done: &mut Option<(Ticket, Box<Call>)>,
        outcome: &mut Outcome,
        group: Option<&str>,
    ) -> Result<Duty, RuntimeError> {
        let is_time_known = Cell::new(false);
        let reply = |state: &mut State| {
            if let Some((ticket, call)) = done.take() {
                state.now = Instant::now();
                is_time_known.set(true);
                state.reply(ticket, outcome);
                // Its owner has the reply by now.
                drop(call);
            }
        };
        // A call that waits already begins as the one before it ends.
        let take = |state: &mut State| {
            let is_time_known = is_time_known.take();
            let State { service, log, now, signals, .. } = state;
            let had_timer = log.tell_at.is_some();
            let duty = service.inbox.take(group, log, || if is_time_known { *now } else { Instant::now() });
            signals.timer_moved |= !had_timer && log.tell_at.is_some();
            duty
        };
        Ok(self.shared.act_and_wait(reply, None, take)?)
    }

    /// From here on, the actor's calls of these groups go to threads that ask for them.
    pub fn divide_calls(&self, groups: Vec<String>) {
        self.shared.with(|state| state.service.inbox.divide(groups));
    }

    /// Waits until every call that was begun is over, `limit` at most.
    pub fn finish_calls(&self, limit: Duration) {
        let deadline = Some(Instant::now() + limit);
        let is_over = |state: &mut State| (state.service.inbox.is_done() || state.daemon.lost.is_some()).then_some(());
        while matches!(self.shared.wait(deadline, is_over), Err(Unmet::Interrupted)) {}
    }

    /// Waits until the tasks and actors that this process made have ended: it owns them, and they would end with it.
    pub fn finish_own(&self) {
        let has_unfinished = self.shared.with(|state| {
            let has_unfinished = state.has_unfinished();
            if has_unfinished {
                state.linger();
            }
            has_unfinished
        });
        let is_over = |state: &mut State| (!state.has_unfinished()).then_some(());
        while has_unfinished && matches!(self.shared.wait(None, is_over), Err(Unmet::Interrupted)) {}
    }

    /// The call will not be answered: its process ends.
    pub fn abandon_call(&self, ticket: &Ticket) {
        self.shared.with(|state| state.abandon_call(ticket));
    }

    /// The call is run again in its place: one of its retries is used up.
    pub fn call_is_retried(&self, ticket: &Ticket) {
        self.shared.with(|state| state.call_is_retried(ticket));
    }

    /// No further call is begun, in any thread; the one that says so still replies before it stops all.
    pub fn begin_no_more(&self) {
        self.shared.with(|state| state.service.inbox.end());
    }

    /// Every thread that asks for a duty is told to leave.
    pub fn stop_serving(&self) {
        self.shared.with(|state| {
            state.service.inbox.close();
            state.signals.changed = true;
        });
    }

    /// Calls that the caller's thread runs from here on are interrupted by `interrupt`, which makes that thread call
    /// [`Runtime::take_interrupt`] soon.
    pub fn interrupt_with(&self, interrupt: fn()) {
        self.shared.with(|state| {
            state.io.knocker = Some(Interrupter::of_this_thread(interrupt));
            state.service.inbox.interrupts.serve();
        });
    }

    /// From here on, the waits of a call end when it is cancelled; `here` names the call that the asking thread runs.
    /// [`crate::ClientEvent::Ready`] of the call's first result tells of it, too.
    pub fn end_waits_of(&self, here: fn() -> TaskId) {
        self.shared.with(|state| {
            state.io.here = Some(here);
            state.service.inbox.interrupts.end_waits();
        });
    }

    /// Calls are handed on to an event loop: their cancelling is a duty of its own.
    pub fn serve_with_event_loop(&self) {
        self.shared.with(|state| state.service.inbox.interrupts.serve_event_loop());
    }

    /// Whether the call that this thread runs is to be interrupted, here and now. Asked once an interrupt.
    pub fn take_interrupt(&self) -> bool {
        self.shared.with(|state| state.service.inbox.interrupts.take())
    }

    /// An interrupt was lost on its way: in a destructor, say.
    pub fn interrupt_again(&self) {
        self.shared.with(|state| state.service.inbox.interrupts.again(Instant::now()));
    }

    /// The user's part of a call is over: it is not interrupted any more. Whether it was cancelled.
    pub fn end_of_user_code(&self, task: TaskId) -> bool {
        self.shared.end_matters.load(Ordering::Acquire)
            && self.shared.with(|state| state.service.inbox.interrupts.end_of_user_code(task))
    }

    /// Whether a call that runs here was cancelled.
    pub fn is_cancelled(&self, task: TaskId) -> bool {
        self.shared.with(|state| state.service.inbox.interrupts.is_cancelled(task))
    }

    /// Sends a call's outcome to its owner.
    pub fn reply(&self, ticket: Ticket, mut outcome: Outcome) {
        self.shared.with_time(|state| state.reply(ticket, &mut outcome));
    }

    /// Gives up what a call's results hold when they are not sent after all.
    pub fn discard(&self, handed: &[ObjectId], stored: &[ObjectId]) {
        self.shared.with(|state| {
            for id in handed {
                state.release(*id);
            }
            state.give_up_written(stored);
        });
    }

    /// The constructor of the actor that this process is begins.
    pub fn constructor_begins(&self, create: &ActorCreate) {
        self.shared.with_time(|state| state.constructor_begins(create));
    }

    /// The actor's constructor returned; `borrowed` are the references that its arguments brought, and `repr_name` is how the
    /// actor names itself, empty where it goes by its class.
    pub fn actor_ready(&self, borrowed: &[ObjectId], repr_name: String) {
        self.shared.with_time(|state| state.actor_ready(borrowed, repr_name));
    }

    /// The actor's constructor failed with this error.
    pub fn actor_failed(&self, error: Value) {
        self.shared.with_time(|state| state.actor_failed(error));
    }

    /// The actor ends; `unintended` where nobody meant it to, so that it may be made anew. Only the first word counts.
    pub fn actor_leaving(&self, text: String, unintended: bool) {
        self.shared.with(|state| state.actor_leaving(text, unintended));
    }
}
