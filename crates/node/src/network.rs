//! Other machines: members that come from them, streams that lead to them.
//!
//! Whoever is on another machine is reached through the [`Gateway`], a thread that carries bytes between a socket pair's
//! far half and that machine; to the rest of the daemon a stream is a stream. Descriptors do not travel there: in their
//! place a message has a [`ConnectionTicket`], from which the member makes a socket pair of its own ([decision 8]).
//!
//! [decision 8]: ../../../docs/decisions/0008-members-join-over-tls.md

use crate::entry::{Entry, NodeProof};
use crate::head_link::{HeadLink, MemberDeadline};
use crate::site_certificate::SiteCertificates;
use bytes::Bytes;
use oxiray_ids::NodeId;
use oxiray_machine::Key;
use oxiray_network::{Credentials, DirectTransfer, Expectation, Gateway, Joined, Local, Ticket, Way};
use oxiray_processes::since_boot;
use oxiray_wire::connection::{promise_pair, socket_pair};
use oxiray_wire::message::{ConnectionTicket, NodeJoin};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many streams between two processes of this node may have one end given out and not yet the other.
const HALVES_MAX: usize = 1024;
/// How long the last words to other nodes may take.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(2);
/// How often the head looks at its members' leases within one of them.
const LOOKS: u32 = 4;

/// One end of a stream: itself, or what stands for it in a message to another machine.
#[derive(Debug)]
pub(crate) enum End {
    Here(Local),
    There(ConnectionTicket),
}

/// What a stream is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Two processes speak to each other.
    Calls,
    /// Two nodes give each other objects.
    Objects,
}

impl Purpose {
    /// Both ends of a stream that goes through the gateway: the daemon's, and the gateway's.
    fn pair(self) -> io::Result<(Local, Local)> {
        let (pair, way) = match self {
            Self::Calls => (promise_pair()?, Way::Given),
            Self::Objects => (socket_pair()?, Way::DirectTransfer(Arc::new(DirectTransfer::default()))),
        };
        Ok((Local { socket: pair.0, way: way.clone() }, Local { socket: pair.1, way }))
    }
}

impl End {
    /// The end itself, where it is for this machine.
    pub(crate) fn here(self) -> Option<Local> {
        match self {
            Self::Here(local) => Some(local),
            Self::There(_) => None,
        }
    }
}

/// A member on another machine.
#[derive(Debug)]
pub(crate) struct Remote {
    node: NodeId,
    /// Where other nodes reach it.
    listens: Option<SocketAddr>,
    patience: MemberDeadline,
    /// It has said that all its processes have ended.
    has_left: bool,
}

/// All that a daemon has to do with other machines.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) gateway: Gateway,
    /// What this node shows of itself.
    pub(crate) badge: NodeProof,
    /// On a head: who may join.
    pub(crate) entry: Option<Entry>,
    pub(crate) lease: Duration,
    remotes: BTreeMap<Key, Remote>,
    /// On a member: the head.
    pub(crate) head: Option<HeadLink>,
    /// When the members' leases were looked at last.
    looked: Instant,
    /// The second ends of streams between processes of this node.
    halves: BTreeMap<Ticket, OwnedFd>,
}

impl Network {
    /// Of a head.
    pub(crate) fn of_head(gateway: Gateway, credentials: Credentials, entry: Entry, lease: Duration) -> Self {
        Self::new(gateway, credentials, Some(entry), lease, None)
    }

    /// Of a member.
    pub(crate) fn of_member(gateway: Gateway, credentials: Credentials, lease: Duration, head: HeadLink) -> Self {
        Self::new(gateway, credentials, None, lease, Some(head))
    }

    fn new(
        gateway: Gateway,
        credentials: Credentials,
        entry: Option<Entry>,
        lease: Duration,
        head: Option<HeadLink>,
    ) -> Self {
        let (remotes, halves, badge) = (BTreeMap::new(), BTreeMap::new(), NodeProof::new(credentials));
        Self { gateway, badge, entry, lease, remotes, head, looked: Instant::now(), halves }
    }

    /// This is what the node shows of itself from here on.
    pub(crate) fn show(&mut self, credentials: Credentials) {
        self.gateway.renew(credentials.clone());
        self.badge = NodeProof::new(credentials);
    }

    /// On a head: the file of the token that it made at its first start, as long as that holds.
    pub(crate) fn token_file(&self) -> Option<String> {
        let path = self.entry.as_ref()?.token_file();
        path.exists().then(|| path.display().to_string())
    }

    /// Where other nodes reach this one.
    pub(crate) fn address(&self) -> SocketAddr {
        self.gateway.address()
    }

    /// The stream to a head that came back.
    pub(crate) fn carry(&mut self, joined: Joined) -> io::Result<OwnedFd> {
        let address = joined.head;
        let local = self.gateway.carry(joined)?;
        if let Some(head) = &mut self.head {
            // It may be another machine's.
            head.address = address;
        }
        Ok(local)
    }

    pub(crate) fn watch_fd(&self) -> BorrowedFd<'_> {
        self.gateway.wake_fd()
    }

    // --- members on other machines ---

    /// A member on another machine was let in. Returns how long its lease is.
    pub(crate) fn add(&mut self, key: Key, node: NodeId) -> Duration {
        let patience = MemberDeadline::new(self.lease, Instant::now());
        self.remotes.insert(key, Remote { node, listens: None, patience, has_left: false });
        self.lease
    }

    /// Who came in as a member, and has not said yet where it listens, is none: it has no lease, and nothing here depends on
    /// its being alive. Returns `false` where it is a member.
    pub(crate) fn is_no_member(&mut self, key: Key) -> bool {
        let is_visitor = self.remotes.get(&key).is_some_and(|remote| remote.listens.is_none());
        if is_visitor {
            self.remotes.remove(&key);
        }
        is_visitor
    }

    /// What a member on another machine says of itself; `false` where its certificate says otherwise.
    pub(crate) fn has_said(&mut self, from: Key, told: &NodeJoin) -> bool {
        let Some(remote) = self.remotes.get_mut(&from) else { return true };
        remote.listens = told.listens.parse().ok();
        remote.node == told.node && remote.listens.is_some()
    }

    /// The members on other machines.
    pub(crate) fn members(&self) -> impl Iterator<Item = Key> {
        self.remotes.keys().copied()
    }

    /// The member's name, where it is on another machine.
    pub(crate) fn node_of(&self, key: Key) -> Option<NodeId> {
        self.remotes.get(&key).map(|remote| remote.node)
    }

    /// The members that are this node.
    pub(crate) fn members_that_are(&self, node: NodeId) -> impl Iterator<Item = Key> {
        self.remotes.iter().filter(move |(_, remote)| remote.node == node).map(|(key, _)| *key)
    }

    /// Ends all that there was with a member on another machine. Returns which node it was.
    pub(crate) fn forget(&mut self, key: Key) -> Option<NodeId> {
        let remote = self.remotes.remove(&key)?;
        self.gateway.forget(remote.node);
        Some(remote.node)
    }

    // --- leases ---

    /// When the network has to be looked at, whatever happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let verdicts = self.remotes.values().map(|remote| remote.patience.until());
        // Looked at more often than an absence lasts, so that sleep is not taken for one.
        let look = (!self.remotes.is_empty()).then(|| self.looked + self.lease / LOOKS);
        let site = self.entry.as_ref().and_then(|entry| entry.site.as_ref()).map(SiteCertificates::look_at);
        let due = site.map_or(self.badge.due(), |look_at| look_at.min(self.badge.due()));
        let certificate = Instant::now() + due.saturating_sub(since_boot());
        verdicts.chain(self.head.as_ref().map(HeadLink::next_word)).chain(look).chain([certificate]).min()
    }

    /// Looks at the members' leases. Returns those that have said no word for too long (BEAT-3).
    pub(crate) fn look(&mut self, now: Instant) -> Vec<Key> {
        let absence = now.saturating_duration_since(std::mem::replace(&mut self.looked, now));
        if absence > 2 * (self.lease / LOOKS) {
            // This daemon was stopped, or its machine: what members said meanwhile is still on its way.
            self.remotes.values_mut().for_each(|remote| remote.patience.hears(now));
        }
        let is_late = |remote: &Remote| remote.patience.until() <= now;
        self.remotes.iter().filter(|(_, remote)| is_late(remote)).map(|(key, _)| *key).collect()
    }

    /// A member says that it lives; `false` where it is none of another machine.
    pub(crate) fn hears(&mut self, from: Key) -> bool {
        let Some(remote) = self.remotes.get_mut(&from) else { return false };
        remote.patience.hears(Instant::now());
        true
    }

    /// The member says that all its processes have ended; `false` where it is none of another machine.
    pub(crate) fn leaves(&mut self, key: Key) -> bool {
        let Some(remote) = self.remotes.get_mut(&key) else { return false };
        remote.has_left = true;
        true
    }

    /// The stream to a member on another machine is over; whether it may live nevertheless.
    pub(crate) fn may_live(&self, key: Key) -> bool {
        self.remotes.get(&key).is_some_and(|remote| !remote.has_left)
    }

    // --- streams ---

    /// What two members on other machines make a stream between them from.
    pub(crate) fn splices(&self, one: Key, other: Key) -> io::Result<(End, End)> {
        let found = self.remotes.get(&one).zip(self.remotes.get(&other));
        let (one, other) = found.ok_or_else(nowhere)?;
        let ticket = Ticket::generate();
        let to = |remote: &Remote, address: String| ConnectionTicket {
            ticket: Bytes::copy_from_slice(ticket.as_bytes()),
            node: remote.node,
            address,
            is_head: false,
        };
        let listens = other.listens.ok_or_else(nowhere)?;
        Ok((End::There(to(other, listens.to_string())), End::There(to(one, String::new()))))
    }

    /// A stream from this node, `own`, to a member, which comes to this machine for it.
    pub(crate) fn stream_to(&self, member: Key, own: NodeId, purpose: Purpose) -> io::Result<(End, End)> {
        let node = self.node_of(member).ok_or_else(nowhere)?;
        let (near, local) = purpose.pair()?;
        let ticket = Ticket::generate();
        self.gateway.expect(Expectation { ticket, node, local });
        let ticket = Bytes::copy_from_slice(ticket.as_bytes());
        Ok((End::Here(near), End::There(ConnectionTicket { ticket, node: own, address: String::new(), is_head: true })))
    }

    /// The end of a stream that the head makes, on this node, which is `own`.
    pub(crate) fn end_of(
        &mut self,
        connection_ticket: &ConnectionTicket,
        own: NodeId,
        purpose: Purpose,
    ) -> io::Result<Local> {
        let ticket = Ticket::from_slice(&connection_ticket.ticket).ok_or_else(nowhere)?;
        let node = connection_ticket.node;
        if node == own {
            if let Some(second) = self.halves.remove(&ticket) {
                return Ok(second.into());
            }
            let (first, second) = socket_pair()?;
            if self.halves.len() >= HALVES_MAX {
                self.halves.clear();
            }
            self.halves.insert(ticket, second);
            return Ok(first.into());
        }
        let (near, local) = purpose.pair()?;
        let expectation = Expectation { ticket, node, local };
        if connection_ticket.is_head {
            let head = self.head.as_ref().ok_or_else(nowhere)?;
            self.gateway.dial(head.address, expectation);
        } else if connection_ticket.address.is_empty() {
            self.gateway.expect(expectation);
        } else {
            let address = connection_ticket.address.parse().map_err(|_| nowhere())?;
            self.gateway.dial(address, expectation);
        }
        Ok(near)
    }

    /// Lets the last words reach the others.
    pub(crate) fn finish(self) {
        self.gateway.finish(LAST_WORDS_LIMIT);
    }
}

/// Why there is no stream to a node.
pub(crate) fn nowhere() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the node is not known here, or not any more")
}
