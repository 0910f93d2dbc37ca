//! The handle of the thread that carries streams between machines.

use crate::authority::Authority;
use crate::direct_transfer::DirectTransfer;
use crate::exchange::Exchange;
use crate::greeting::TICKET_BYTES;
use crate::join::Joined;
use crate::socket;
use crate::tls::Credentials;
use crate::token::JoinToken;
use oxiray_ids::NodeId;
use oxiray_threads::Waker;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The right to one stream to one node, once. The head makes it and tells both sides. It is not printed (NETWORK-5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(crate) [u8; TICKET_BYTES]);

impl Ticket {
    /// One that nobody else has.
    pub fn generate() -> Self {
        Self(oxiray_ids::random())
    }

    /// The ticket in a message; nothing where it is not whole.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Its bytes, for a message to one of the two.
    pub fn as_bytes(&self) -> &[u8; TICKET_BYTES] {
        &self.0
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket(…)")
    }
}

/// How the thread is to work.
#[derive(Debug)]
pub struct Options {
    /// By what this node is known.
    pub credentials: Credentials,
    /// On the head: what certifies newcomers, and the tokens that let them in.
    pub authority: Option<(Arc<Authority>, Vec<JoinToken>)>,
    /// Where to listen; port 0 for any.
    pub listen: SocketAddr,
    /// Names the version of what is spoken.
    pub protocol: Vec<u8>,
    /// How long is waited for others.
    pub limits: Limits,
}

/// How long is waited for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For a stranger to prove that it may speak.
    pub proving: Duration,
    /// For the bearer of a ticket to come, for the ticket of a bearer to be known, and for a node that is dialled.
    pub ticket: Duration,
    /// For a peer that answers nothing at all, before its streams are given up.
    pub silence: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { proving: Duration::from_secs(5), ticket: Duration::from_secs(10), silence: Duration::from_secs(10) }
    }
}

/// A stream that is to be.
#[derive(Debug)]
pub struct Expectation {
    /// What the other side shows, or is shown.
    pub ticket: Ticket,
    /// Who the other side is.
    pub node: NodeId,
    /// What the stream is joined to.
    pub local: Local,
}

/// This node's end of a stream.
#[derive(Debug)]
pub struct Local {
    /// To or from whoever speaks.
    pub socket: OwnedFd,
    /// How that speaks to the peer. It is the same on both nodes.
    pub way: Way,
}

/// How whoever has a local socket speaks to the peer.
#[derive(Debug, Clone)]
pub enum Way {
    /// What is written to the socket is carried to the peer, and what that says is written to it.
    Carried,
    /// The same, and this besides.
    DirectTransfer(Arc<DirectTransfer>),
    /// The connection itself is given to whoever has the other end of the socket, which is of packets: as one packet, a
    /// [`Handover`](oxiray_records::Handover) with the descriptor. Calls would otherwise wake a thread of each node on the way and on the way back.
    Given,
}

impl From<OwnedFd> for Local {
    fn from(socket: OwnedFd) -> Self {
        Self { socket, way: Way::Carried }
    }
}

/// What the thread tells the daemon.
#[derive(Debug)]
pub enum Event {
    /// Somebody wants to join, and waits for [`Gateway::admit`] or [`Gateway::refuse`].
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

/// Why a newcomer is not let in. The numbers are those of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It has proven nothing.
    Secret = 1,
    /// Too many wrong secrets came from its address.
    Barred = 2,
    /// Its token holds no longer.
    Ended = 3,
    /// Its identity is another node's.
    Taken = 4,
    /// Its certificate was revoked.
    Revoked = 5,
    /// It cannot be written down that it was let in.
    Unwritten = 6,
}

impl Refusal {
    /// What a head says with this byte; one that is not known is a refusal like the first.
    pub(crate) fn of(byte: u8) -> Self {
        let known = [Self::Barred, Self::Ended, Self::Taken, Self::Revoked, Self::Unwritten];
        known.into_iter().find(|refusal| *refusal as u8 == byte).unwrap_or(Self::Secret)
    }

    /// In words, for the head's log.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Secret => "its token is not this cluster's",
            Self::Barred => "too many wrong secrets came from its address",
            Self::Ended => "its token holds no longer",
            Self::Taken => "it wants to be another node, and has not shown that one's certificate",
            Self::Revoked => "its certificate was revoked",
            Self::Unwritten => "it cannot be written down that it is let in",
        }
    }
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

/// The address of who does not listen.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// How many lines may wait to be written to the log; more are dropped, since strangers cause them.
const LINES_MAX: usize = 64;

/// What the two threads hand each other.
#[derive(Debug)]
pub(crate) struct Counter {
    commands: Mutex<Vec<Command>>,
    events: Mutex<Vec<Event>>,
    pub(crate) commanded: Waker,
    told: Waker,
}

impl Counter {
    fn new() -> io::Result<Self> {
        Ok(Self { commands: Mutex::default(), events: Mutex::default(), commanded: Waker::new()?, told: Waker::new()? })
    }

    fn command(&self, command: Command) {
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
}

/// The thread that carries a node's streams to and from other machines. It ends with its handle.
#[derive(Debug)]
pub struct Gateway {
    counter: Arc<Counter>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
}

impl Gateway {
    /// Listens, and carries from here on. Where this node has joined a head, the stream to that is returned too.
    ///
    /// # Errors
    /// Where the address cannot be listened at, or the operating system refuses.
    pub fn start(options: Options) -> io::Result<Self> {
        let listener = socket::listen(options.listen)?;
        Self::begin(options, Some(listener), None).map(|(gateway, _)| gateway)
    }

    /// As [`Gateway::start`], of a node that was let in: the local socket is its stream to the head.
    ///
    /// # Errors
    /// As [`Gateway::start`].
    pub fn start_joined(
        joined: Joined,
        listen: SocketAddr,
        protocol: Vec<u8>,
        limits: Limits,
    ) -> io::Result<(Self, OwnedFd)> {
        let listener = socket::listen(listen)?;
        Self::carry_first(joined, Some(listener), listen, protocol, limits)
    }

    /// As [`Gateway::start_joined`], of somebody who only speaks to the head: nothing is listened at.
    ///
    /// # Errors
    /// Where the operating system refuses.
    pub fn start_visiting(joined: Joined, protocol: Vec<u8>, limits: Limits) -> io::Result<(Self, OwnedFd)> {
        Self::carry_first(joined, None, NOWHERE, protocol, limits)
    }

    fn carry_first(
        joined: Joined,
        listener: Option<TcpListener>,
        listen: SocketAddr,
        protocol: Vec<u8>,
        limits: Limits,
    ) -> io::Result<(Self, OwnedFd)> {
        let Joined { tls, tcp, credentials, .. } = joined;
        let options = Options { credentials, authority: None, listen, protocol, limits };
        let (gateway, local) = Self::begin(options, listener, Some((tls, tcp)))?;
        Ok((gateway, local.expect("a carried stream has a local end")))
    }

    fn begin(
        options: Options,
        listener: Option<TcpListener>,
        carried: Option<(rustls::Connection, std::net::TcpStream)>,
    ) -> io::Result<(Self, Option<OwnedFd>)> {
        let address = listener.as_ref().map_or(Ok(NOWHERE), TcpListener::local_addr)?;
        let counter = Arc::new(Counter::new()?);
        let mut exchange = Exchange::new(options, listener, counter.clone())?;
        let local = match carried {
            Some((tls, tcp)) => {
                let (near, far) = UnixStream::pair()?;
                exchange.carry_joined(tls, tcp, near)?;
                Some(OwnedFd::from(far))
            }
            None => None,
        };
        let thread = oxiray_threads::spawn(oxiray_threads::NETWORK, move || exchange.run())?;
        Ok((Self { counter, thread: Some(thread), address }, local))
    }

    /// Where it listens; port 0 where it does not.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Readable when there are [`Gateway::events`].
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.counter.told.as_fd()
    }

    /// What happened since the last call.
    pub fn events(&self) -> Vec<Event> {
        self.counter.told.silence();
        std::mem::take(&mut *self.counter.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Carries the stream to a head that came back, as which this node was let in again; returns its local end.
    ///
    /// # Errors
    /// Where no socket can be made.
    pub fn carry(&self, joined: Joined) -> io::Result<OwnedFd> {
        let (near, far) = UnixStream::pair()?;
        self.counter.command(Command::Carry(Box::new(joined.tls), joined.tcp, near));
        Ok(far.into())
    }

    /// Lets in who asked.
    pub fn admit(&self, number: u64) {
        self.counter.command(Command::Admit(number));
    }

    /// Turns away who asked.
    pub fn refuse(&self, number: u64, why: Refusal) {
        self.counter.command(Command::Refuse(number, why));
    }

    /// These are the tokens by whose secrets newcomers are known from here on.
    pub fn set_tokens(&self, tokens: Vec<JoinToken>) {
        self.counter.command(Command::Tokens(tokens));
    }

    /// This is what the node shows from here on; streams that there are stay.
    pub fn renew(&self, credentials: Credentials) {
        self.counter.command(Command::Renew(Box::new(credentials)));
    }

    /// Waits for the other side to come with the ticket. Where it does not come, the local socket is closed.
    pub fn expect(&self, expectation: Expectation) {
        self.counter.command(Command::Expect(expectation));
    }

    /// Goes to the other side with the ticket. Where that fails, the local socket is closed.
    pub fn dial(&self, address: SocketAddr, expectation: Expectation) {
        self.counter.command(Command::Dial(address, expectation));
    }

    /// Ends every stream to the node, and every wait for it: it is gone.
    pub fn forget(&self, node: NodeId) {
        self.counter.command(Command::Forget(node));
    }

    /// Lets what was said reach the other nodes for at most that long, then ends.
    pub fn finish(mut self, limit: Duration) {
        self.counter.command(Command::Finish(limit));
        self.wait();
    }

    fn wait(&mut self) {
        if let Some(thread) = self.thread.take() {
            // It panics only on a fault of ours, which its message has named.
            let _ = thread.join();
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.counter.command(Command::Finish(Duration::ZERO));
        self.wait();
    }
}
