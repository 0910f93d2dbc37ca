//! A call as a worker runs it: attempted, perhaps again, and answered; and the loop of each thread that does so.
//!
//! ```text
//! wait ──▶ begin ──▶ attempt ──▶ settle ──▶ answered with the next wait
//!                       ▲           │
//!                       └─ again ───┘
//! ```
//!
//! - WORKER-2: every call that is taken is answered once, or its process dies.
//! - WORKER-3: an actor's call that raises what is to be retried is run again in its place, before those behind it. A task
//!   goes back to its owner.

use crate::borrowing;
use crate::language::{Attempt, Language};
use oxiray_ids::{ObjectId, TaskId};
use oxiray_runtime::{Duty, Outcome, Runtime, Ticket};
use oxiray_wire::message::Call;

/// A call that is not answered yet.
#[derive(Debug)]
pub struct UnderWay<O> {
    /// What its answer needs to find its way.
    pub ticket: Ticket,
    /// What its owner said.
    pub call: Box<Call>,
    /// Items that it yielded so far, where they go one by one.
    pub yielded: u32,
    /// What its language knows of it.
    pub own: O,
    /// References that the arguments of earlier attempts brought.
    borrowed: Vec<ObjectId>,
}

impl<O> UnderWay<O> {
    /// A call that is about to be attempted.
    pub fn new(ticket: Ticket, call: Box<Call>, own: O) -> Self {
        Self { ticket, call, yielded: 0, own, borrowed: Vec::new() }
    }

    /// The task that it is.
    pub fn task(&self) -> TaskId {
        self.ticket.task()
    }

    /// Whether its items go one by one.
    pub fn streams(&self) -> bool {
        self.call.stream.is_some()
    }

    /// Whether an error may make it run once more, here: its arguments are to be kept until then.
    pub fn may_run_again(&self) -> bool {
        // A task has a function, and an actor's call a name.
        self.call.function.is_empty() && self.call.retries != 0 && !self.call.retry_exceptions.is_empty()
    }

    /// One more attempt, which skips the items that earlier ones yielded.
    fn run_again(&mut self, borrowed: Vec<ObjectId>) {
        self.borrowed.extend(borrowed);
        self.call.retries -= i32::from(self.call.retries > 0);
        self.call.attempt += 1;
        if let Some(terms) = &mut self.call.stream {
            terms.arrived = terms.arrived.max(std::mem::take(&mut self.yielded));
        }
    }
}

/// What is to become of a call after an attempt.
enum Settled<O> {
    /// It is to be answered with the outcome.
    Over(UnderWay<O>),
    /// WORKER-3.
    Again(UnderWay<O>),
    /// It was answered or abandoned, and the worker leaves.
    Left,
}

/// Decides what becomes of a call that returned this or failed with that; what it is to be answered with is in `outcome`.
/// `borrowed` is asked once everything of the call is dropped.
fn settle<L: Language>(
    language: &mut L,
    mut call: UnderWay<L::Own>,
    returned: Result<L::Returned, L::Error>,
    outcome: &mut Outcome,
    borrowed: impl FnOnce() -> Vec<ObjectId>,
) -> Settled<L::Own> {
    let was_cancelled = language.runtime().end_of_user_code(call.task());
    let returned = if was_cancelled { language.cancelled(&call, returned) } else { returned };
    outcome.items = call.yielded;
    if let Err(error) = returned.and_then(|returned| language.keep(&call, returned, outcome)) {
        give_up(language.runtime(), outcome);
        let (failed, error) = match language.leave_on(call, error) {
            Ok(()) => return Settled::Left,
            Err(stays) => stays,
        };
        call = failed;
        let wanted = &call.call.retry_exceptions;
        outcome.retry = !was_cancelled && !wanted.is_empty() && language.asks_retry(wanted, &error);
        if outcome.retry && call.may_run_again() {
            drop(error);
            outcome.retry = false;
            call.run_again(borrowed());
            language.runtime().call_is_retried(&call.ticket);
            return Settled::Again(call);
        }
        outcome.error_text = error.to_string();
        let value = language.raised(&call, error);
        if call.streams() {
            // The error is the last item, and that the call is over is its result all the same.
            outcome.results.push(language.nothing());
            outcome.raised = Some(value);
        } else {
            outcome.results.resize(call.call.results as usize, value);
        }
    }
    call.call.references = Vec::new();
    outcome.borrowed = std::mem::take(&mut call.borrowed);
    outcome.borrowed.extend(borrowed());
    let max_calls = call.call.max_calls;
    let was_last = max_calls > 0 && language.calls(&call.call.function) >= max_calls;
    outcome.retiring = was_last || language.is_unfit();
    if was_last && !outcome.error_text.is_empty() {
        outcome.error_text += &left_after(max_calls);
    }
    Settled::Over(call)
}

/// What is added to the error of a call after which the process ends.
fn left_after(max_calls: u32) -> String {
    format!(
        "\n\nSystem error:\nIntentionalSystemExit: Worker exits with an exit code 0. Exited because worker reached \
         max_calls={max_calls} for this method."
    )
}

/// Results that were made before one failed are nobody's.
fn give_up(runtime: &Runtime, outcome: &mut Outcome) {
    outcome.results.clear();
    let (handed, stored) = (std::mem::take(&mut outcome.handed), std::mem::take(&mut outcome.stored));
    if !handed.is_empty() || !stored.is_empty() {
        runtime.discard(&handed, &stored);
    }
}

/// What running a call came to.
enum Ended<O> {
    /// It is to be answered with the outcome.
    Over(UnderWay<O>),
    /// It is answered from elsewhere.
    HandedOn,
    /// The worker leaves.
    Left,
}

/// What is printed from here on is of this attempt.
fn prints_begin<L: Language>(language: &mut L, task: TaskId, attempt: u32) {
    let is_said = oxiray_runtime::begin_prints(task, attempt, language.shares_output());
    if !is_said {
        language.label_prints();
    }
}

/// What is printed from here on is no more of this attempt; where the process leaves with it, what is printed until then is,
/// unless that it failed is to be said.
fn prints_end<L: Language>(language: &mut L, task: TaskId, attempt: u32, leaves: bool, has_failed: bool) {
    if oxiray_runtime::has_prints(task, attempt) {
        language.flush_output();
    }
    if !leaves || has_failed {
        oxiray_runtime::end_prints(task, attempt, has_failed);
    }
}

/// Which attempt of a call was the last; one of a process that leaves was the first, or its end tells.
fn last_attempt<O>(ended: &Ended<O>, first: u32) -> u32 {
    match ended {
        Ended::Over(over) => over.call.attempt,
        Ended::HandedOn | Ended::Left => first,
    }
}

/// Runs a call until it is to be answered, or somebody else will.
fn run<L: Language>(language: &mut L, mut call: UnderWay<L::Own>, outcome: &mut Outcome) -> Ended<L::Own> {
    loop {
        let Attempt::Over(attempted, returned) = language.attempt(call) else { return Ended::HandedOn };
        match settle(language, attempted, returned, outcome, borrowing::end) {
            Settled::Over(over) => return Ended::Over(over),
            Settled::Again(again) => {
                prints_end(language, again.task(), again.call.attempt - 1, false, true);
                prints_begin(language, again.task(), again.call.attempt);
                call = again;
            }
            Settled::Left => return Ended::Left,
        }
    }
}

/// Goes on with a call that was handed on, now that it returned this or failed with that; whether the worker leaves.
/// `borrowed` are the references that its arguments brought.
pub fn complete<L: Language>(
    language: &mut L,
    call: UnderWay<L::Own>,
    returned: Result<L::Returned, L::Error>,
    borrowed: Vec<ObjectId>,
) -> bool {
    let mut outcome = Outcome::default();
    let (task, attempt) = (call.task(), call.call.attempt);
    let ended = match settle(language, call, returned, &mut outcome, || borrowed) {
        Settled::Over(over) => Ended::Over(over),
        Settled::Again(again) => run(language, again, &mut outcome),
        Settled::Left => Ended::Left,
    };
    let leaves = outcome.retiring || matches!(ended, Ended::Left);
    prints_end(language, task, last_attempt(&ended, attempt), leaves, !outcome.error_text.is_empty());
    language.end(leaves);
    if let Ended::Over(over) = ended {
        language.runtime().reply(over.ticket, outcome);
    }
    leaves
}

/// The loop of a thread that runs the calls of a concurrency group, or of none. It answers a call as it asks for the next
/// duty, which costs little more than either, and returns when there is none any more.
///
/// # Errors
/// Where the language cannot go on.
pub fn attend<L: Language>(language: &mut L, group: Option<&str>) -> Result<(), L::Stop> {
    let runtime = language.runtime().clone();
    let (mut done, mut outcome) = (None, Outcome::default());
    loop {
        let (ticket, call) = match language.wait(|| runtime.reply_and_next(&mut done, &mut outcome, group))? {
            Duty::Run(ticket, call) => (ticket, call),
            Duty::Become(assign) => {
                language.become_assigned(&assign)?;
                continue;
            }
            Duty::Cancel(task) => {
                language.cancel(task)?;
                continue;
            }
            Duty::Collect => {
                language.collect()?;
                continue;
            }
            Duty::Leave => return Ok(()),
        };
        if let Some(flaw) = language.flaw() {
            let results = vec![flaw; call.results as usize];
            runtime.reply(ticket, Outcome { results, retiring: true, ..Outcome::default() });
            return Ok(());
        }
        let own = language.begin(&call);
        let (task, attempt) = (ticket.task(), call.attempt);
        prints_begin(language, task, attempt);
        let ended = run(language, UnderWay::new(ticket, call, own), &mut outcome);
        let leaves = outcome.retiring || matches!(ended, Ended::Left);
        if !matches!(ended, Ended::HandedOn) {
            prints_end(language, task, last_attempt(&ended, attempt), leaves, !outcome.error_text.is_empty());
        }
        language.end(leaves);
        oxiray_processes::note_working_set();
        match ended {
            Ended::Over(over) if outcome.retiring => {
                runtime.reply(over.ticket, outcome);
                return Ok(());
            }
            Ended::Over(over) => done = Some((over.ticket, over.call)),
            Ended::HandedOn => {}
            Ended::Left => return Ok(()),
        }
    }
}
