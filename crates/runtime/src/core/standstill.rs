//! What the main thread waits for, and the head's question about that.
//!
//! Whether the main thread is alone only the language knows, and only in that thread: it is interrupted in its wait, says so, and
//! waits again.

use oxiray_ids::ObjectId;
use std::cell::Cell;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Standstill {
    /// What the main thread cannot go on without; nothing where it waits for nothing, or not for all of it.
    pub(crate) awaited: Vec<ObjectId>,
    /// The language says whether the main thread is alone.
    pub(crate) has_language: bool,
    /// The question that waits for the main thread.
    asked: Option<u64>,
    /// The main thread is to see to the question, and does not know yet.
    interrupts: Cell<bool>,
    /// The question, and whether the main thread is alone, from when it said so until it waits again.
    answered: Option<(u64, bool)>,
}

impl Standstill {
    /// The head asks.
    pub(crate) fn ask(&mut self, number: u64) {
        self.asked = Some(number);
        self.interrupts.set(true);
    }

    /// Whether a thread's wait is to end, where it is the main thread; once a question.
    pub(crate) fn interrupts(&self, is_main: impl FnOnce() -> bool) -> bool {
        self.interrupts.get() && is_main() && self.interrupts.take()
    }

    /// The question that the main thread is to answer.
    pub(crate) fn take_asked(&mut self) -> Option<u64> {
        self.asked.take()
    }

    /// The main thread knows whether it is alone, and waits again.
    pub(crate) fn answer_when_waiting(&mut self, number: u64, is_alone: bool) {
        self.answered = Some((number, is_alone));
    }

    /// It waits again.
    pub(crate) fn take_answered(&mut self) -> Option<(u64, bool)> {
        self.answered.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_ends_one_wait_and_is_answered_in_the_next() {
        let mut standstill = Standstill::default();
        assert!(!standstill.interrupts(|| true));
        standstill.ask(1);
        standstill.ask(2);
        let ended = [false, true, true].map(|is_main| standstill.interrupts(|| is_main));
        assert_eq!(ended, [false, true, false], "a wait that nobody begins anew ends once");
        assert_eq!([(); 2].map(|()| standstill.take_asked()), [Some(2), None]);
        assert_eq!(standstill.take_answered(), None);
        standstill.answer_when_waiting(2, true);
        assert_eq!([(); 2].map(|()| standstill.take_answered()), [Some((2, true)), None]);
    }
}
