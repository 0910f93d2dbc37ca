//! Members on other machines: let in, introduced to each other, forgotten.

use super::Daemon;
use crate::network::{End, Purpose, nowhere};
use crate::poller::Token;
use crate::streams::{Rights, Role, Stream};
use oxiray_ids::NodeId;
use oxiray_machine::Key;
use oxiray_network::{Event, Local};
use oxiray_wire::connection::socket_pair;
use oxiray_wire::message::{ConnectionTicket, Hello, NodeAdmitted, NodeGone, NodeJoin, NodePeer};
use oxiray_wire::{Connection, Message};
use std::os::fd::OwnedFd;

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
        let key = self.core.new_key();
        let lease = network.add(key, node);
        self.add_stream(key, Stream::new(connection, Role::Member(None), 0));
        let lease_ms = lease.as_millis() as u64;
        let (address, epoch) = (self.membership.address.clone(), self.core.epoch());
        let keeps_logs = self.membership.keeps_logs;
        let admitted = NodeAdmitted { ip: ip.to_owned(), address, head: Some(head), lease_ms, epoch, keeps_logs };
        self.queue(key, &admitted.into(), Vec::new());
    }

    /// Who has proven the token's secret and is no node, but an autoscaler that runs elsewhere.
    pub(super) fn turn_visitor(&mut self, from: Key, hello: &Hello) {
        let Some(network) = &mut self.network else { return };
        if hello.driver.is_some() || hello.node.is_some() || !network.is_no_member(from) {
            return self.log.line(&format!("member {from} greets again and is ignored"));
        }
        if let Some(stream) = self.streams.get_mut(from) {
            stream.role = Role::Visitor(Rights::of(hello.reads_only));
        }
        self.log.line(&format!("client {from} is no node, but a visitor from another machine"));
    }

    /// It ended all that it was granted, and came again under another name.
    fn give_up_predecessor(&mut self, predecessor: NodeId) {
        let Some(network) = &self.network else { return };
        for key in network.members_that_are(predecessor).collect::<Vec<_>>() {
            self.give_up(key, "it lost the head, ended its work, and has joined anew");
        }
    }

    /// What a member on another machine says of itself must be what its certificate says.
    pub(super) fn is_honest(&mut self, from: Key, told: &NodeJoin) -> bool {
        self.network.as_mut().is_none_or(|network| network.has_said(from, told))
    }

    /// Ends all that there was with a member on another machine.
    pub(super) fn forget_remote(&mut self, key: Key) {
        let Some(network) = &mut self.network else { return };
        let Some(node) = network.forget(key) else { return };
        let others: Vec<Key> = network.members().collect();
        let gone = Message::from(NodeGone { node });
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
        network.node_of(member).map(|_| member)
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
            End::There(connection_ticket) => {
                if let Some((member, worker)) = self.core.route(to) {
                    let mut relay = message.relayed(worker);
                    relay.connection_ticket = Some(connection_ticket);
                    self.queue(member, &relay.into(), Vec::new());
                }
            }
        }
    }

    /// Makes a stream between two nodes; nothing stands for this one and what is on its machine.
    pub(super) fn stream_between_nodes(&mut self, one: Option<Key>, other: Key) -> std::io::Result<(End, End)> {
        let is_far = |key: &Key| self.network.as_ref().is_some_and(|network| network.node_of(*key).is_some());
        let (one, other) = (one.filter(is_far), Some(other).filter(is_far));
        self.stream_between((one, other), Purpose::Objects)
    }

    /// Tells a member of a stream to another node, or that there is none to be had.
    pub(super) fn send_peer(&mut self, to: Key, node: NodeId, end: Option<End>) {
        match end {
            None => self.queue(to, &NodePeer { node, connection_ticket: None }.into(), Vec::new()),
            Some(End::Here(local)) => {
                self.queue(to, &NodePeer { node, connection_ticket: None }.into(), vec![local.socket]);
            }
            Some(End::There(connection_ticket)) => {
                self.queue(to, &NodePeer { node, connection_ticket: Some(connection_ticket) }.into(), Vec::new());
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
            (Some(one), Some(other)) => self.network.as_ref().ok_or_else(nowhere)?.splices(one, other),
        }
    }

    /// A stream from here to a member, which comes to this machine for it.
    fn stream_from_here(&self, member: Key, purpose: Purpose) -> std::io::Result<(End, End)> {
        self.network.as_ref().ok_or_else(nowhere)?.stream_to(member, self.core.own_node(), purpose)
    }

    /// This node's end of a stream that the head makes.
    pub(super) fn end_of(&mut self, connection_ticket: &ConnectionTicket, purpose: Purpose) -> Option<Local> {
        let own = self.core.own_node();
        let made = self
            .network
            .as_mut()
            .ok_or_else(nowhere)
            .and_then(|network| network.end_of(connection_ticket, own, purpose));
        if let Err(error) = &made {
            self.log.line(&format!("a stream to another node cannot be made: {error}"));
        }
        made.ok()
    }

    pub(super) fn watch_network(&self) -> std::io::Result<()> {
        match &self.network {
            Some(network) => Ok(self.poller.watch(network.watch_fd(), Token::Network)?),
            None => Ok(()),
        }
    }
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
