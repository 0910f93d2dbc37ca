//! What a worker prints, as it comes out of a pipe.

use crate::logs::Splitter;
use oxiray_logs::Printed;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// How much is read of one pipe before others get their turn.
pub(super) const READ_BYTES: usize = 64 << 10;

/// The reading end of a worker's output.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) descriptor: OwnedFd,
    splitter: Splitter,
    pub(super) is_over: bool,
    /// Not watched, since whom it is for has enough to read.
    pub(super) is_paused: bool,
    /// Bytes that could not be handed to who writes them, since the last that were.
    pub(super) missed: u64,
}

impl Pipe {
    pub(super) fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor, splitter: Splitter::default(), is_over: false, is_paused: false, missed: 0 }
    }

    /// How many reads take all that is there, and find the end after it.
    pub(super) fn reads_left(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.descriptor).unwrap_or(0).div_ceil(READ_BYTES as u64) + 1
    }

    /// One read; nothing where nothing is there, and the last piece at the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Option<Vec<Printed>> {
        if self.is_over {
            return None;
        }
        match rustix::io::read(&self.descriptor, &mut *buffer) {
            Ok(0) => {
                self.is_over = true;
                Some(self.splitter.finish())
            }
            Ok(read) => Some(self.splitter.feed(&buffer[..read])),
            Err(Errno::INTR) => Some(Vec::new()),
            Err(_) => None,
        }
    }

    /// What was printed last and did not end its line.
    pub(super) fn finish(&mut self) -> Vec<Printed> {
        self.splitter.finish()
    }
}
