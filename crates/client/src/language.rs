//! What a language adds to a worker: how its functions are called, and how what comes of that is written.

use crate::call::UnderWay;
use bytes::Bytes;
use oxiray_ids::TaskId;
use oxiray_runtime::{Duty, Outcome, Runtime, RuntimeError};
use oxiray_wire::message::{Assign, Call, Value};

/// A thread of a worker that runs functions of a language.
///
/// The order in which these are called is that of [`attend`](crate::attend): [`wait`](Language::wait), then for each call
/// [`begin`](Language::begin), what has to do with its output, [`attempt`](Language::attempt) until none is retried here, [`end`](Language::end).
pub trait Language: Sized {
    /// What it knows of a call that is under way.
    type Own;
    /// What a call returned.
    type Returned;
    /// Why a call failed.
    type Error: std::fmt::Display;
    /// Why the thread cannot go on.
    type Stop;

    /// The runtime of this process.
    fn runtime(&self) -> &Runtime;

    /// Waits for the next duty, and again where the wait ended early.
    fn wait(&mut self, next: impl FnMut() -> Result<Duty, RuntimeError> + Send) -> Result<Duty, Self::Stop>;

    /// WORKER-1: takes on what the daemon assigned.
    fn become_assigned(&mut self, assign: &Assign) -> Result<(), Self::Stop>;

    /// What every call is answered with since what it was to have around it is not there; the worker leaves after the first,
    /// since another may fare better.
    fn flaw(&self) -> Option<Value> {
        None
    }

    /// Whether a call was interrupted in a way that may harm the next one here: the worker leaves after it.
    fn is_unfit(&self) -> bool {
        false
    }

    /// Cancels a call that was handed on.
    fn cancel(&mut self, _task: TaskId) -> Result<(), Self::Stop> {
        Ok(())
    }

    /// Collects garbage.
    fn collect(&mut self) -> Result<(), Self::Stop> {
        Ok(())
    }

    /// A call begins.
    fn begin(&mut self, call: &Call) -> Self::Own;

    /// Whether other calls may print in this process while one does.
    fn shares_output(&self) -> bool;

    /// The call that begins has no label: where something of the language's can tell before it prints, it calls
    /// [`label_print`](oxiray_runtime::label_print).
    fn label_prints(&mut self) {}

    /// Writes out what the program has printed.
    fn flush_output(&mut self);

    /// Runs a call once, having asked [`borrowing`](crate::borrowing) to note what its arguments bring.
    fn attempt(&mut self, call: UnderWay<Self::Own>) -> Attempt<Self>;

    /// The call is over here, and not answered yet; the worker leaves after the answer where it `retires`.
    fn end(&mut self, retires: bool);

    /// What a call comes to that was cancelled before it returned this.
    fn cancelled(
        &self,
        call: &UnderWay<Self::Own>,
        returned: Result<Self::Returned, Self::Error>,
    ) -> Result<Self::Returned, Self::Error>;

    /// Writes what a call returned as its results. Where that fails, what the outcome has by then is given up.
    fn keep(
        &self,
        call: &UnderWay<Self::Own>,
        returned: Self::Returned,
        outcome: &mut Outcome,
    ) -> Result<(), Self::Error>;

    /// Where the error asks this process to end, sees to that: the call is answered or abandoned here. Otherwise both come
    /// back.
    fn leave_on(
        &mut self,
        call: UnderWay<Self::Own>,
        error: Self::Error,
    ) -> Result<(), (UnderWay<Self::Own>, Self::Error)> {
        Err((call, error))
    }

    /// Whether the error is among those after which the call is to be run again, as its owner described them.
    fn asks_retry(&self, wanted: &Bytes, error: &Self::Error) -> bool;

    /// The error as the call's owner is to have it.
    fn raised(&self, call: &UnderWay<Self::Own>, error: Self::Error) -> Value;

    /// The result that a call has besides its items.
    fn nothing(&self) -> Value;

    /// How often the function of this hash was called here.
    fn calls(&self, function: &Bytes) -> u32;
}

/// What running a call once came to.
#[derive(Debug)]
pub enum Attempt<L: Language> {
    /// It is over.
    Over(UnderWay<L::Own>, Result<L::Returned, L::Error>),
    /// It is to be answered from elsewhere, by [`complete`](crate::complete).
    HandedOn,
}
