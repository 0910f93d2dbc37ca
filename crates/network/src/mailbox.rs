//! What the daemon and the thread that carries its streams hand each other.

use crate::expectation::Expectation;
use crate::greeting::Refusal;
use crate::tls::Credentials;
use crate::token::JoinToken;
use oxiray_ids::NodeId;
use oxiray_threads::Waker;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What the thread tells the daemon.
#[derive(Debug)]
pub enum Event {
    /// Somebody wants to join, and waits for [`Gateway::admit`](crate::Gateway::admit) or [`Gateway::refuse`](crate::Gateway::refuse).
    Asks {
        /// Names the question.
        number: u64,
        /// Who it wants to be.
        node: NodeId,
        /// The name of the token whose secret it has proven, if it has proven one.
        token: Option<String>,
        /// The node whose certificate it has shown, if it has shown one.
        before: Option<NodeId>,
    },
    /// A newcomer was admitted.
    Joined {
        /// Who it is.
        node: NodeId,
        /// Who it was before, where it comes again and has shown that node's certificate.
        predecessor: Option<NodeId>,
        /// Where it comes from.
        ip: IpAddr,
        /// Its stream.
        local: OwnedFd,
    },
    /// A line for daemon.log.
    Told(String),
}

/// What the daemon tells the thread.
#[derive(Debug)]
pub(crate) enum Command {
    Expect(Expectation),
    Dial(SocketAddr, Expectation),
    Carry(Box<rustls::Connection>, std::net::TcpStream, UnixStream),
    Forget(NodeId),
    Admit(u64),
    Refuse(u64, Refusal),
    Tokens(Vec<JoinToken>),
    Renew(Box<Credentials>),
    Finish(Duration),
}

/// How many lines may wait to be written to the log; more are dropped, since strangers cause them.
const LINES_MAX: usize = 64;

/// What the two threads hand each other.
#[derive(Debug)]
pub(crate) struct Counter {
    commands: Mutex<Vec<Command>>,
    events: Mutex<Vec<Event>>,
    pub(crate) commanded: Waker,
    pub(crate) told: Waker,
}

impl Counter {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { commands: Mutex::default(), events: Mutex::default(), commanded: Waker::new()?, told: Waker::new()? })
    }

    pub(crate) fn command(&self, command: Command) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        self.commanded.ring();
    }

    pub(crate) fn commands(&self) -> Vec<Command> {
        self.commanded.silence();
        std::mem::take(&mut *self.commands.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn tell(&self, event: Event) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(event, Event::Told(_)) || events.len() < LINES_MAX {
            events.push(event);
            self.told.ring();
        }
    }

    /// What the thread has told since the last call.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.told.silence();
        std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
