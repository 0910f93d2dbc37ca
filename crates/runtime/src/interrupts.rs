//! How the thread that runs calls is made to ask whether its call was cancelled (`core/interrupt.rs`).

use std::thread::ThreadId;

/// How the thread that runs calls is made to ask.
#[derive(Debug)]
pub(crate) struct Interrupter {
    knock: fn(),
    thread: ThreadId,
}

impl Interrupter {
    /// `knock` makes the calling thread ask.
    pub(crate) fn of_this_thread(knock: fn()) -> Self {
        Self { knock, thread: std::thread::current().id() }
    }

    pub(crate) fn knock(&self) {
        (self.knock)();
    }

    /// Whether it is the calling thread that runs calls.
    pub(crate) fn is_of_this_thread(&self) -> bool {
        self.thread == std::thread::current().id()
    }
}
