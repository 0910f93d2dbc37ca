//! The handle of the thread that carries streams between machines.

use crate::exchange::Exchange;
use crate::expectation::Expectation;
use crate::greeting::Refusal;
use crate::join::Joined;
use crate::mailbox::{Command, Counter, Event};
use crate::options::{Limits, Options};
use crate::socket;
use crate::tls::Credentials;
use crate::token::JoinToken;
use oxiray_ids::NodeId;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The address of who does not listen.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
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
        self.counter.events()
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
