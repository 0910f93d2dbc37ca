//! What the user's process is to hear, and whether threads that wait are to look.

use crate::core::draining::Preempted;
use oxiray_ids::ObjectId;
use oxiray_wire::message::{LogLines, Value};
use std::collections::VecDeque;

/// Lines from workers that wait to be shown; of more, only the number is.
const LINES_LIMIT: usize = 10_000;

/// Something for the user's process to act on.
#[derive(Debug)]
pub enum ClientEvent {
    /// A worker printed.
    Lines(LogLines),
    /// The daemon has something to say.
    Notice(String),
    /// An object's value is there (or never will be).
    Ready(ObjectId),
    /// Nothing in this process refers to an object any more.
    Ended(ObjectId),
    /// This process is to end early, is asked to now where that says so, or is not to after all.
    Preempted {
        /// Why, and when at the latest; nothing where it goes on.
        told: Option<Preempted>,
        /// Half of its time is over.
        ends_now: bool,
    },
    /// A task's error that nobody looked at before it was dropped.
    Unseen(Value),
    /// The daemon is gone, or said everything it had to.
    Over,
}

/// What the user's process is to hear, and whether threads that wait are to look.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    pub(crate) news: VecDeque<ClientEvent>,
    dropped: u64,
    /// Something changed that another waiting thread may want to see.
    pub(crate) changed: bool,
    /// A timer was set that may be earlier than what the leader sleeps until.
    pub(crate) timer_moved: bool,
}

impl Signals {
    pub(crate) fn tell(&mut self, news: ClientEvent) {
        if self.news.len() >= LINES_LIMIT {
            self.dropped += 1;
            return;
        }
        self.tell_what_was_dropped();
        self.news.push_back(news);
        self.changed = true;
    }

    /// Where lines were dropped, says how many, in their place.
    pub(crate) fn tell_what_was_dropped(&mut self) {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let text = format!(
                "{dropped} messages of workers are not shown here, since more came than this program could print: the \
                 files of its workers among the session's logs have them all"
            );
            self.news.push_back(ClientEvent::Notice(text));
        }
    }
}
