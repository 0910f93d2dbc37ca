//! What threads hand to the loop of another.
//!
//! - MAILBOX-1: whatever was posted is taken, in order, and the bell rings until it is; it rings for the end of the last
//!   post, too.

use crate::Waker;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

/// The end that is posted to. With the last one the mailbox is over.
#[derive(Debug)]
pub struct Post<T> {
    /// Nothing only while it is dropped.
    sender: Option<Sender<T>>,
    bell: Waker,
}

/// The end of the loop, which waits for its descriptor.
#[derive(Debug)]
pub struct Mailbox<T> {
    receiver: Receiver<T>,
    bell: Waker,
}

/// Nobody posts any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nobody posts any more")]
pub struct Over;

/// Both ends. What is posted is bounded by what its owner has asked for.
///
/// # Errors
/// Where there are no descriptors left.
pub fn mailbox<T>() -> io::Result<(Post<T>, Mailbox<T>)> {
    let (bell, (sender, receiver)) = (Waker::new()?, channel());
    Ok((Post { sender: Some(sender), bell: bell.clone() }, Mailbox { receiver, bell }))
}

impl<T> Post<T> {
    /// Hands something over; where nobody takes it any more, it is dropped.
    pub fn post(&self, item: T) {
        if let Some(sender) = &self.sender {
            let _ = sender.send(item);
        }
        self.bell.ring();
    }
}

impl<T> Clone for Post<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), bell: self.bell.clone() }
    }
}

impl<T> Drop for Post<T> {
    fn drop(&mut self) {
        self.sender = None;
        self.bell.ring();
    }
}

impl<T> Mailbox<T> {
    /// What was posted since the last call.
    ///
    /// # Errors
    /// Where there is nothing, and nobody posts any more.
    pub fn take(&self) -> Result<Vec<T>, Over> {
        self.bell.silence();
        let taken: Vec<T> = self.receiver.try_iter().collect();
        match self.receiver.try_recv() {
            Err(TryRecvError::Disconnected) if taken.is_empty() => Err(Over),
            Err(_) => Ok(taken),
            Ok(late) => Ok(taken.into_iter().chain([late]).collect()),
        }
    }

    /// Waits for the next item, or for that long. Only where nobody is served meanwhile.
    ///
    /// # Errors
    /// Where nothing came, or nobody posts any more.
    pub fn wait(&self, limit: Duration) -> Result<T, RecvTimeoutError> {
        self.receiver.recv_timeout(limit)
    }
}

impl<T> AsFd for Mailbox<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn rings(mailbox: &Mailbox<u32>) -> bool {
        poll(&mut [PollFd::new(mailbox, PollFlags::IN)], Some(&Timespec::default())).expect("a descriptor") > 0
    }

    #[test]
    fn the_bell_rings_until_what_was_posted_is_taken() {
        let (post, mailbox) = mailbox().expect("a descriptor");
        assert!(!rings(&mailbox));
        let other = post.clone();
        post.post(1);
        other.post(2);
        assert!(rings(&mailbox));
        assert_eq!(mailbox.take(), Ok(vec![1, 2]));
        assert!(!rings(&mailbox));
        assert_eq!(mailbox.take(), Ok(vec![]), "there are posts");
    }

    #[test]
    fn the_last_post_is_heard_to_end() {
        let (post, mailbox) = mailbox().expect("a descriptor");
        let thread = crate::spawn(crate::JOURNAL, move || post.post(7)).expect("a thread");
        thread.join().expect("it ends");
        assert!(rings(&mailbox));
        assert_eq!(mailbox.take(), Ok(vec![7]), "what was posted comes first (MAILBOX-1)");
        assert_eq!(mailbox.take(), Err(Over));
    }
}
