//! Whether the calling thread is to ask about the call that it runs.

use crate::interrupts::Interrupter;
use crate::shell::State;

impl State {
    /// INTERRUPT-5: whether the call that the asking thread runs was cancelled, so that it is to wait for nothing more.
    pub(crate) fn ends_waits_here(&self) -> bool {
        let interrupts = &self.service.inbox.interrupts;
        interrupts.any_is_cancelled() && self.io.here.is_some_and(|here| interrupts.is_cancelled(here()))
    }

    /// Whether the calling thread, which waits for something, is to ask.
    pub(crate) fn is_this_thread_interrupted(&self) -> bool {
        self.service.inbox.interrupts.is_awaited()
            && self.io.knocker.as_ref().is_some_and(Interrupter::is_of_this_thread)
    }
}
