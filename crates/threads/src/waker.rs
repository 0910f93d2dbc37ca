//! A descriptor by which one thread wakes another's loop.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Readable from when it is rung until it is silenced, however often it is rung meanwhile.
#[derive(Debug, Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// One that does not ring.
    ///
    /// # Errors
    /// Where there are no descriptors left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Wakes whoever waits.
    pub fn ring(&self) {
        // A bell that rings already is full.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Forgets the calls so far: to be done before it is looked at what they were about.
    pub fn silence(&self) {
        // One that does not ring has nothing to read.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
