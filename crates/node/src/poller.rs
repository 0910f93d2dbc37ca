//! The one epoll instance, and what its tokens name.

use oxiray_machine::{Key, TemplateKey};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The most descriptors of which there is news at once. Those that have to wait for their turn are told of anew each time,
/// and must not hide others.
const EVENTS_LIMIT: usize = 1024;

/// How many bits of a token's number say what it is; its key has the others.
const KIND_BITS: u32 = 5;

/// What can become ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Token {
    /// A newcomer.
    Listener,
    /// SIGTERM and its like.
    Stop,
    /// A child of the daemon died.
    Children,
    /// The store's disk thread.
    Store,
    /// The control stream of a client.
    Stream(Key),
    /// A worker's process died.
    Worker(Key),
    /// A driver's process died.
    Driver(Key),
    /// A worker printed.
    Output(Key),
    /// A worker printed an error.
    Errors(Key),
    /// The process that the daemon is to end with died.
    Starter,
    /// A template's stream.
    Template(TemplateKey),
    /// The thread that carries streams to other machines.
    Network,
    /// The process of a submitted job says something.
    Submission(Key),
    /// Forks of a worker failed.
    ProcessLimits,
    /// A vendor's library answered.
    Devices,
    /// The journal's thread is done with something.
    Journal,
    /// The thread that writes what workers print tells something.
    Logs,
}

impl Event {
    fn of(event: &epoll::Event) -> Self {
        // It is read where it lies, which is not aligned.
        let (data, flags) = (event.data, event.flags);
        Self { token: Token::from_number(data.u64()), is_hung_up: flags.contains(epoll::EventFlags::HUP) }
    }
}

impl Token {
    fn to_number(self) -> u64 {
        let (kind, key) = match self {
            Self::Listener => (0, 0),
            Self::Stop => (1, 0),
            Self::Children => (2, 0),
            Self::Store => (3, 0),
            Self::Stream(key) => (4, key),
            Self::Worker(key) => (5, key),
            Self::Driver(key) => (6, key),
            Self::Output(key) => (7, key),
            Self::Errors(key) => (8, key),
            Self::Template(key) => (9, u64::from(key)),
            Self::Starter => (10, 0),
            Self::Network => (11, 0),
            Self::Submission(key) => (12, key),
            Self::ProcessLimits => (13, 0),
            Self::Devices => (14, 0),
            Self::Journal => (15, 0),
            Self::Logs => (16, 0),
        };
        kind | key << KIND_BITS
    }

    fn from_number(number: u64) -> Self {
        let key = number >> KIND_BITS;
        match number & ((1 << KIND_BITS) - 1) {
            0 => Self::Listener,
            1 => Self::Stop,
            2 => Self::Children,
            3 => Self::Store,
            4 => Self::Stream(key),
            5 => Self::Worker(key),
            6 => Self::Driver(key),
            7 => Self::Output(key),
            8 => Self::Errors(key),
            10 => Self::Starter,
            11 => Self::Network,
            12 => Self::Submission(key),
            13 => Self::ProcessLimits,
            14 => Self::Devices,
            15 => Self::Journal,
            16 => Self::Logs,
            _ => Self::Template(key as TemplateKey),
        }
    }
}

/// What became ready.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) token: Token,
    /// The other end is closed in both directions: what it said last may be unread, and nobody reads what is sent there.
    pub(crate) is_hung_up: bool,
}

#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    pub(crate) fn watch(&self, descriptor: impl AsFd, token: Token) -> Result<(), Errno> {
        epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(token.to_number()), epoll::EventFlags::IN)
    }

    /// Tells of what is to be read, or no longer does, and of room to write.
    pub(crate) fn watch_for(&self, descriptor: impl AsFd, token: Token, reads: bool, writes: bool) {
        let of = |flag: epoll::EventFlags, wanted| if wanted { flag } else { epoll::EventFlags::empty() };
        let flags = of(epoll::EventFlags::IN, reads) | of(epoll::EventFlags::OUT, writes);
        // It fails only for a descriptor that is not watched any more.
        let _ = epoll::modify(&self.epoll, descriptor, epoll::EventData::new_u64(token.to_number()), flags);
    }

    pub(crate) fn forget(&self, descriptor: impl AsFd) {
        // One that is not watched needs no forgetting.
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// What is ready, after `limit` at the latest.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> Result<Vec<Event>, Errno> {
        let limit =
            limit.map(|limit| Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) });
        let mut buffer = [MaybeUninit::uninit(); EVENTS_LIMIT];
        match epoll::wait(&self.epoll, &mut buffer, limit.as_ref()) {
            Ok((events, _)) => Ok(events.iter().map(Event::of).collect()),
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_kernel() {
        let all = [
            Token::Listener,
            Token::Stop,
            Token::Children,
            Token::Store,
            Token::Stream(7),
            Token::Worker(8),
            Token::Driver(1 << 50),
            Token::Output(1),
            Token::Errors(0),
            Token::Template(3),
            Token::Starter,
            Token::Network,
            Token::Submission(9),
            Token::ProcessLimits,
            Token::Devices,
            Token::Journal,
            Token::Logs,
        ];
        for token in all {
            assert_eq!(Token::from_number(token.to_number()), token);
        }
    }
}
