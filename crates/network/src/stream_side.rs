//! What is known of one side of a stream, and of the whole.

use std::io::{self, ErrorKind};

/// Whether it has something to read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamSide {
    /// It may have something to read: it has not been found empty since the kernel last told of it.
    pub(crate) is_ready: bool,
    /// It will end behind what it has, so that a short read is not the last.
    is_ending: bool,
}

impl StreamSide {
    pub(crate) const UNKNOWN: Self = Self { is_ready: true, is_ending: false };

    pub(crate) fn told(&mut self, is_ending: bool) {
        self.is_ready = true;
        self.is_ending |= is_ending;
    }

    /// So much was read where there was room for so much. What comes after a short read is told of anew (epoll(7)).
    pub(crate) fn has_read(&mut self, count: usize, room: usize) {
        self.is_ready = count == room || self.is_ending;
    }

    /// Whether something may have moved all the same.
    pub(crate) fn has_failed(&mut self, error: io::Error) -> io::Result<bool> {
        match error.kind() {
            ErrorKind::WouldBlock => {
                self.is_ready = false;
                Ok(false)
            }
            ErrorKind::Interrupted => Ok(true),
            _ => Err(error),
        }
    }
}

/// How a stream stands after it was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamStanding {
    /// Nothing more can be moved for now.
    Idle,
    /// There may be more to move at once.
    Busy,
    /// Both sides are done with it.
    Over,
}
