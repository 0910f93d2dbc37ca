//! Other machines: members that come from them, streams that lead to them.
//!
//! Whoever is on another machine is reached through the [`Gateway`], a thread that carries bytes between a socket pair's
//! far half and that machine; to the rest of the daemon a stream is a stream. Descriptors do not travel there: in their
//! place a message has a [`Splice`], from which the member makes a socket pair of its own ([decision 8]).
//!
//! [decision 8]: ../../../../docs/decisions/0008-members-join-over-tls.md

use super::entry::{Badge, Entry};
use super::heartbeats::{Home, Patience};
use super::streams::{Role, Stream};
use super::{Daemon, Token};
use bytes::Bytes;
use oxiray_ids::NodeId;
use oxiray_machine::Key;
use oxiray_network::{Credentials, Event, Expectation, Freight, Gateway, Joined, Local, Ticket, Way};
use oxiray_wire::connection::{promise_pair, socket_pair};
use oxiray_wire::message::{Hello, NodeAdmitted, NodeGone, NodeJoin, NodePeer, Splice};
use oxiray_wire::{Connection, Message};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many streams between two processes of this node may have one end given out and not yet the other.
const HALVES_MAX: usize = 1024;
/// How long the last words to other nodes may take.
pub(super) const LAST_WORDS_LIMIT: Duration = Duration::from_secs(2);

/// One end of a stream: itself, or what stands for it in a message to another machine.
#[derive(Debug)]
pub(super) enum End {
    Here(Local),
    There(Splice),
}

/// What a stream is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Two processes speak to each other.
    Calls,
    /// Two nodes give each other objects.
    Objects,
}

impl Purpose {
    /// Both ends of a stream that goes through the gateway: the daemon's, and the gateway's.
    fn pair(self) -> std::io::Result<(Local, Local)> {
        let (pair, way) = match self {
            Self::Calls => (promise_pair()?, Way::Given),
            Self::Objects => (socket_pair()?, Way::Freight(Arc::new(Freight::default()))),
        };
        Ok((Local { socket: pair.0, way: way.clone() }, Local { socket: pair.1, way }))
    }
}

impl End {
    /// The end itself, where it is for this machine.
    pub(super) fn here(self) -> Option<Local> {
        match self {
            Self::Here(local) => Some(local),
            Self::There(_) => None,
        }
    }
}

/// A member on another machine.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) node: NodeId,
    /// Where other nodes reach it.
    listens: Option<SocketAddr>,
    pub(super) patience: Patience,
    /// It has said that all its processes have ended.
    pub(super) has_left: bool,
}

/// All that a daemon has to do with other machines.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) gateway: Gateway,
    /// What this node shows of itself.
    pub(super) badge: Badge,
    /// On a head: who may join.
    pub(super) entry: Option<Entry>,
    pub(super) lease: Duration,
    pub(super) remotes: BTreeMap<Key, Remote>,
    /// On a member: the head.
    pub(super) home: Option<Home>,
    /// When the members' leases were looked at last.
    pub(super) looked: Instant,
    /// The second ends of streams between processes of this node.
    halves: BTreeMap<Ticket, OwnedFd>,
}

impl Network {
    /// Of a head.
    pub(super) fn of_head(gateway: Gateway, credentials: Credentials, entry: Entry, lease: Duration) -> Self {
        Self::new(gateway, credentials, Some(entry), lease, None)
    }

    /// Of a member.
    pub(super) fn of_member(gateway: Gateway, credentials: Credentials, lease: Duration, home: Home) -> Self {
        Self::new(gateway, credentials, None, lease, Some(home))
    }

    fn new(
        gateway: Gateway,
        credentials: Credentials,
        entry: Option<Entry>,
        lease: Duration,
        home: Option<Home>,
    ) -> Self {
        let (remotes, halves, badge) = (BTreeMap::new(), BTreeMap::new(), Badge::new(credentials));
        Self { gateway, badge, entry, lease, remotes, home, looked: Instant::now(), halves }
    }

    /// This is what the node shows of itself from here on.
    pub(super) fn show(&mut self, credentials: Credentials) {
        self.gateway.renew(credentials.clone());
        self.badge = Badge::new(credentials);
    }

    /// On a head: the file of the token that it made at its first start, as long as that holds.
    pub(super) fn token_file(&self) -> Option<String> {
        let path = self.entry.as_ref()?.token_file();
        path.exists().then(|| path.display().to_string())
    }

    /// Where other nodes reach this one.
    pub(super) fn address(&self) -> SocketAddr {
        self.gateway.address()
    }

    /// The stream to a head that came back.
    pub(super) fn carry(&mut self, joined: Joined) -> std::io::Result<OwnedFd> {
        let head = joined.head;
        let local = self.gateway.carry(joined)?;
        if let Some(home) = &mut self.home {
            // It may be another machine's.
            home.address = head;
        }
        Ok(local)
    }

    pub(super) fn watch_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.gateway.wake_fd()
    }

    /// Lets the last words reach the others.
    pub(super) fn finish(self) {
        self.gateway.finish(LAST_WORDS_LIMIT);
    }
}

impl Daemon {
    pub(super) fn network_told(&mut self) {
        let Some(network) = &self.network else { return };
        for event in network.gateway.events() {
            match event {
                Event::Told(line) => self.log.line(&line),
                Event::Asks { number, node, token, before } => {
                    self.asks_to_join(number, node, token, before);
                }
                Event::Joined { node, predecessor, ip, local } => {
                    self.log.line(&format!("node {node} comes from {ip}"));
                    if let Some(predecessor) = predecessor {
                        self.give_up_predecessor(predecessor);
                    }
                    self.admit_remote(node, &ip.to_string(), local);
                }
            }
        }
    }

    /// A node that was let in.
    fn admit_remote(&mut self, node: NodeId, ip: &str, local: OwnedFd) {
        let head = self.core.own_node();
        let connection = match Connection::new(local) {
            Ok(connection) => connection,
            Err(error) => return self.log.line(&format!("the stream to node {node} cannot be used: {error}")),
        };
        let Some(network) = &mut self.network else { return };
        let (key, lease) = (self.core.new_key(), network.lease);
        let patience = Patience::new(lease, Instant::now());
        network.remotes.insert(key, Remote { node, listens: None, patience, has_left: false });
        self.add_stream(key, Stream::new(connection, Role::Member(None), 0));
        let lease_ms = lease.as_millis() as u64;
        let (address, epoch) = (self.address.clone(), self.core.epoch());
        let admitted = NodeAdmitted { ip: ip.to_owned(), address, head: Some(head), lease_ms, epoch };
        self.queue(key, &admitted.into(), Vec::new());
    }

    /// Who has proven the token's secret and is no node, but an autoscaler that runs elsewhere.
    pub(super) fn turn_visitor(&mut self, from: Key, hello: &Hello) {
        let Some(network) = &mut self.network else { return };
        let is_node = network.remotes.get(&from).is_none_or(|remote| remote.listens.is_some());
        if is_node || hello.driver.is_some() || hello.node.is_some() {
            return self.log.line(&format!("member {from} greets again and is ignored"));
        }
        // It has no lease: nothing here depends on its being alive.
        network.remotes.remove(&from);
        if let Some(stream) = self.streams.get_mut(&from) {
            stream.role = Role::Visitor;
        }
        self.log.line(&format!("client {from} is no node, but a visitor from another machine"));
    }

    /// It ended all that it was granted, and came again under another name.
    fn give_up_predecessor(&mut self, predecessor: NodeId) {
        let Some(network) = &self.network else { return };
        let known = network.remotes.iter().filter(|(_, remote)| remote.node == predecessor).map(|(key, _)| *key);
        for key in known.collect::<Vec<_>>() {
            self.give_up(key, "it lost the head, ended its work, and has joined anew");
        }
    }

    /// What a member on another machine says of itself must be what its certificate says.
    pub(super) fn is_honest(&mut self, from: Key, told: &NodeJoin) -> bool {
        let Some(remote) = self.network.as_mut().and_then(|network| network.remotes.get_mut(&from)) else {
            return true;
        };
        remote.listens = told.listens.parse().ok();
        remote.node == told.node && remote.listens.is_some()
    }

    /// Ends all that there was with a member on another machine.
    pub(super) fn forget_remote(&mut self, key: Key) {
        let Some(network) = &mut self.network else { return };
        let Some(remote) = network.remotes.remove(&key) else { return };
        network.gateway.forget(remote.node);
        let others: Vec<Key> = network.remotes.keys().copied().collect();
        let gone = Message::from(NodeGone { node: remote.node });
        for other in others {
            self.queue(other, &gone, Vec::new());
        }
    }

    /// The head says that another node is gone.
    pub(super) fn node_gone(&mut self, said: &NodeGone) {
        if let Some(network) = &self.network {
            network.gateway.forget(said.node);
        }
    }

    /// The member on another machine that a client's process is on.
    fn far_member_of(&self, client: Key) -> Option<Key> {
        let network = self.network.as_ref()?;
        let (member, _) = self.core.route(client)?;
        network.remotes.contains_key(&member).then_some(member)
    }

    /// Makes a stream between the processes of two clients, and gives each its end with a message.
    pub(super) fn introduce_clients(
        &mut self,
        (one, to_one): (Key, &Message),
        (other, to_other): (Key, &Message),
    ) -> std::io::Result<()> {
        let ends = (self.far_member_of(one), self.far_member_of(other));
        let (near, far) = self.stream_between(ends, Purpose::Calls)?;
        let of_neighbours = (ends == (None, None)).then(|| as_neighbours(to_one.clone()));
        self.queue_with_end(one, of_neighbours.as_ref().unwrap_or(to_one), near);
        self.queue_with_end(other, to_other, far);
        Ok(())
    }

    fn queue_with_end(&mut self, to: Key, message: &Message, end: End) {
        match end {
            End::Here(local) => self.queue(to, message, vec![local.socket]),
            End::There(splice) => {
                if let Some((member, worker)) = self.core.route(to) {
                    let mut relay = message.relayed(worker);
                    relay.splice = Some(splice);
                    self.queue(member, &relay.into(), Vec::new());
                }
            }
        }
    }

    /// Makes a stream between two nodes; nothing stands for this one and what is on its machine.
    pub(super) fn stream_between_nodes(&mut self, one: Option<Key>, other: Key) -> std::io::Result<(End, End)> {
        let is_far = |key: &Key| self.network.as_ref().is_some_and(|network| network.remotes.contains_key(key));
        let (one, other) = (one.filter(is_far), Some(other).filter(is_far));
        self.stream_between((one, other), Purpose::Objects)
    }

    /// Tells a member of a stream to another node, or that there is none to be had.
    pub(super) fn send_peer(&mut self, to: Key, node: NodeId, end: Option<End>) {
        match end {
            None => self.queue(to, &NodePeer { node, splice: None }.into(), Vec::new()),
            Some(End::Here(local)) => {
                self.queue(to, &NodePeer { node, splice: None }.into(), vec![local.socket]);
            }
            Some(End::There(splice)) => {
                self.queue(to, &NodePeer { node, splice: Some(splice) }.into(), Vec::new());
            }
        }
    }

    /// A stream whose ends go to two members on other machines, or to this one.
    fn stream_between(&mut self, ends: (Option<Key>, Option<Key>), purpose: Purpose) -> std::io::Result<(End, End)> {
        match ends {
            (None, None) => {
                let (near, far) = socket_pair()?;
                Ok((End::Here(near.into()), End::Here(far.into())))
            }
            (None, Some(member)) => self.stream_from_here(member, purpose),
            (Some(member), None) => self.stream_from_here(member, purpose).map(|(near, far)| (far, near)),
            (Some(one), Some(other)) => {
                let remotes = self.network.as_ref().map(|network| &network.remotes);
                let found = remotes.and_then(|remotes| Some((remotes.get(&one)?, remotes.get(&other)?)));
                let (one, other) = found.ok_or_else(nowhere)?;
                let ticket = Ticket::generate();
                let to = |remote: &Remote, address: String| Splice {
                    ticket: Bytes::copy_from_slice(ticket.as_bytes()),
                    node: remote.node,
                    address,
                    is_head: false,
                };
                let listens = other.listens.ok_or_else(nowhere)?;
                Ok((End::There(to(other, listens.to_string())), End::There(to(one, String::new()))))
            }
        }
    }

    /// A stream from here to a member, which comes to this machine for it.
    fn stream_from_here(&mut self, member: Key, purpose: Purpose) -> std::io::Result<(End, End)> {
        let own = self.core.own_node();
        let network = self.network.as_ref().ok_or_else(nowhere)?;
        let node = network.remotes.get(&member).ok_or_else(nowhere)?.node;
        let (near, local) = purpose.pair()?;
        let ticket = Ticket::generate();
        network.gateway.expect(Expectation { ticket, node, local });
        let ticket = Bytes::copy_from_slice(ticket.as_bytes());
        Ok((End::Here(near), End::There(Splice { ticket, node: own, address: String::new(), is_head: true })))
    }

    /// This node's end of a stream that the head makes.
    pub(super) fn end_of(&mut self, splice: &Splice, purpose: Purpose) -> Option<Local> {
        let made = self.make_end(splice, purpose);
        if let Err(error) = &made {
            self.log.line(&format!("a stream to another node cannot be made: {error}"));
        }
        made.ok()
    }

    fn make_end(&mut self, splice: &Splice, purpose: Purpose) -> std::io::Result<Local> {
        let own = self.core.own_node();
        let network = self.network.as_mut().ok_or_else(nowhere)?;
        let ticket = Ticket::from_slice(&splice.ticket).ok_or_else(nowhere)?;
        let node = splice.node;
        if node == own {
            if let Some(second) = network.halves.remove(&ticket) {
                return Ok(second.into());
            }
            let (first, second) = socket_pair()?;
            if network.halves.len() >= HALVES_MAX {
                network.halves.clear();
            }
            network.halves.insert(ticket, second);
            return Ok(first.into());
        }
        let (near, local) = purpose.pair()?;
        let expectation = Expectation { ticket, node, local };
        if splice.is_head {
            let home = network.home.as_ref().ok_or_else(nowhere)?;
            network.gateway.dial(home.address, expectation);
        } else if splice.address.is_empty() {
            network.gateway.expect(expectation);
        } else {
            let address = splice.address.parse().map_err(|_| nowhere())?;
            network.gateway.dial(address, expectation);
        }
        Ok(near)
    }

    pub(super) fn watch_network(&self) -> std::io::Result<()> {
        match &self.network {
            Some(network) => Ok(self.poller.watch(network.watch_fd(), Token::Network)?),
            None => Ok(()),
        }
    }
}

fn nowhere() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::NotFound, "the node is not known here, or not any more")
}

/// Says with a stream that both its ends are on this machine.
fn as_neighbours(mut message: Message) -> Message {
    match &mut message {
        Message::LeaseGranted(granted) => granted.is_near = true,
        Message::ActorPlaced(placed) => placed.is_near = true,
        _ => {}
    }
    message
}
