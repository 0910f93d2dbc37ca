//! What is said again to a head that comes back.

use oxiray_wire::Message;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What was said this long ago was heard, unless the head was away.
const RECENT: Duration = Duration::from_secs(30);

/// Of what was said and is not answered, no more is said again.
const RECENT_MAX: usize = 1000;

/// What is said again to a head that comes back.
#[derive(Debug, Default)]
pub(crate) struct Resuming {
    /// Deeds that nobody answers, and that do no harm when they are done twice.
    recent: VecDeque<(Instant, Message)>,
    /// Not every stream has brought its mark.
    pub(crate) is_unsettled: bool,
    /// What the stream brings that is read now was counted by a head that is gone (RESUMING-1).
    pub(crate) reads_what_came_before: bool,
}

impl Resuming {
    /// Something was said that the next head is told too.
    pub(crate) fn remember(&mut self, message: Message, now: Instant) {
        while self.recent.front().is_some_and(|(at, _)| *at + RECENT < now) || self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((now, message));
    }

    /// What is to be said again.
    pub(crate) fn take_recent(&mut self) -> impl Iterator<Item = Message> {
        std::mem::take(&mut self.recent).into_iter().map(|(_, message)| message)
    }
}
