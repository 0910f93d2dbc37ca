//! How the thread that runs calls is made to ask whether its call was cancelled (`core/interrupt.rs`).

use crate::shell::State;
use std::thread::ThreadId;

/// How the thread that runs calls is made to ask.
#[derive(Debug)]
pub(crate) struct Knocker {
    knock: fn(),
    thread: ThreadId,
}

impl Knocker {
    /// `knock` makes the calling thread ask.
    pub(crate) fn of_this_thread(knock: fn()) -> Self {
        Self { knock, thread: std::thread::current().id() }
    }

    pub(crate) fn knock(&self) {
        (self.knock)();
    }
}

impl State {
    /// INTERRUPT-5: whether the call that the asking thread runs was cancelled, so that it is to wait for nothing more.
    pub(crate) fn ends_waits_here(&self) -> bool {
        let interrupts = &self.service.inbox.interrupts;
        interrupts.any_is_cancelled() && self.io.here.is_some_and(|here| interrupts.is_cancelled(here()))
    }

    /// Whether the calling thread, which waits for something, is to ask.
    pub(crate) fn interrupts_this_thread(&self) -> bool {
        self.service.inbox.interrupts.is_awaited()
            && self.io.knocker.as_ref().is_some_and(|knocker| knocker.thread == std::thread::current().id())
    }
}
