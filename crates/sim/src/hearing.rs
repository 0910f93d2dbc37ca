//! What a node does with what it hears: as the daemon's shell does, message by message.

use crate::node::Role;
use crate::stream::{Descriptor, Packet};
use crate::world::{NodeIndex, World};
use oxiray_ids::WorkerNumber;
use oxiray_machine::Key;
use oxiray_wire::Message;
use oxiray_wire::message::{
    ClientToDaemon, ClientToHead, DaemonToNode, Direction, HeadToNode, NodeOfWorker, NodeToDaemon, NodeToHead, Relay,
    RelayedToHead, RelayedToNode,
};

impl World {
    /// Something arrives at a node.
    pub(crate) fn node_hears(&mut self, node: NodeIndex, key: Key, packet: Packet) {
        let Some((_, role)) = self.nodes[node].streams.get(&key).copied().filter(|_| self.nodes[node].is_alive) else {
            return self.lose(&packet);
        };
        self.wake(node);
        match packet {
            Packet::Said { message, descriptor } => {
                self.log.line(self.now, format_args!("node {node} <- {key}: {message:?}"));
                self.node_is_told(node, key, role, *message, descriptor);
            }
            Packet::Over => {
                self.log.line(self.now, format_args!("node {node} <- {key}: over"));
                self.stream_over(node, key);
            }
        }
        if self.nodes[node].is_alive {
            self.after_event(node);
        }
    }

    fn node_is_told(&mut self, node: NodeIndex, key: Key, role: Role, message: Message, end: Option<Descriptor>) {
        match role {
            // Who writes an object says so itself: no process of the simulation asks a store for room.
            Role::Driver | Role::Worker if matches!(message, Message::Stored(_)) => self.has_stored(node, key, message),
            Role::Driver => self.client_said(node, key, said(message)),
            Role::Worker => match self.nodes[node].core.head_key() {
                None => self.client_said(node, key, said(message)),
                Some(head) => self.worker_of_member_said(node, head, key, said(message)),
            },
            Role::Member(_) => match said(message) {
                NodeToHead::Report(report) => self.nodes[node].core.member_said(key, report),
                NodeToHead::Daemon(message) => self.daemon_of_member_said(node, key, message),
            },
            Role::Head => match said(message) {
                HeadToNode::Order(order) => self.nodes[node].core.head_said(order),
                HeadToNode::Daemon(message) => self.daemon_of_head_said(node, message, end),
            },
        }
    }

    /// The node passes on that a process of its has written an object.
    fn has_stored(&mut self, node: NodeIndex, key: Key, message: Message) {
        match (self.nodes[node].core.head_key(), message) {
            (None, Message::Stored(said)) => self.stored(key, said.object),
            (Some(head), message) if self.is_for_this_head(node, key, &message) => {
                self.queue(node, head, message.relayed(WorkerNumber(key)).into(), None);
            }
            (_, _) => {}
        }
    }

    /// What a driver or a worker says to the daemon at whose head it is.
    fn client_said(&mut self, node: NodeIndex, from: Key, message: ClientToDaemon) {
        match message {
            ClientToDaemon::Head(message) => self.head_hears(node, from, message),
            ClientToDaemon::Worker(message) => self.nodes[node].core.worker_said(from, &message),
            ClientToDaemon::Store(_) | ClientToDaemon::Machine(_) | ClientToDaemon::Report(_) => unsimulated(&message),
        }
    }

    fn head_hears(&mut self, node: NodeIndex, from: Key, message: ClientToHead) {
        if !self.is_found_again(&message) {
            self.nodes[node].core.client_said(from, message);
        }
    }

    fn daemon_of_member_said(&mut self, node: NodeIndex, key: Key, message: NodeToDaemon) {
        match message {
            NodeToDaemon::Relay(relayed) => {
                let Some(worker) = self.nodes[node].core.process_of(key, relayed.worker) else { return };
                match read::<RelayedToHead>(*relayed) {
                    RelayedToHead::Node(NodeOfWorker::Stored(said)) => self.stored(worker, said.object),
                    RelayedToHead::Worker(message) => self.nodes[node].core.worker_said(worker, &message),
                    RelayedToHead::Head(message) => self.head_hears(node, worker, message),
                    message @ (RelayedToHead::Node(_) | RelayedToHead::Report(_)) => unsimulated(&message),
                }
            }
            NodeToDaemon::Heartbeat(said) => self.word_heard(key, &said),
            NodeToDaemon::Locate(asked) => self.locate_for(key, &asked),
            NodeToDaemon::Copied(said) => self.nodes[node].core.copied(key, said.object),
            NodeToDaemon::Spilled(_)
            | NodeToDaemon::Connect(_)
            | NodeToDaemon::CopyRefused(_)
            | NodeToDaemon::CertificateWanted(_)
            | NodeToDaemon::PackageWanted(_)
            | NodeToDaemon::PackagePiece(_)
            | NodeToDaemon::LogAnswer(_)
            | NodeToDaemon::LogsUnshown(_)
            | NodeToDaemon::FailedTaskLog(_)
            | NodeToDaemon::NodeLeaves(_)
            | NodeToDaemon::Hello(_) => unsimulated(&message),
        }
    }

    fn daemon_of_head_said(&mut self, node: NodeIndex, message: DaemonToNode, descriptor: Option<Descriptor>) {
        match message {
            DaemonToNode::Relay(relayed) => {
                let worker = relayed.worker.0;
                self.queue(node, worker, read::<RelayedToNode>(*relayed).into(), descriptor);
            }
            DaemonToNode::HeartbeatHeard(said) => self.word_answered(node, &said),
            DaemonToNode::ObjectDelete(said) => self.unshelve(node, said.object),
            DaemonToNode::CopyWanted(asked) => self.copy_here(node, asked.object),
            DaemonToNode::Seek(asked) => self.sought(node, asked.search, asked.object),
            DaemonToNode::Located(said) => self.located(node, said.object, said.node),
            DaemonToNode::NodeDismissed(_) => self.is_dismissed(node),
            DaemonToNode::Refused(_) => self.head_stays_away(node, "the head does not wait for it"),
            DaemonToNode::NodePeer(_)
            | DaemonToNode::CertificateIssued(_)
            | DaemonToNode::PackageWanted(_)
            | DaemonToNode::PackagePiece(_)
            | DaemonToNode::LogQuery(_)
            | DaemonToNode::NodeGone(_)
            | DaemonToNode::NodeLeaves(_)
            | DaemonToNode::ProxiedClientClose(_) => unsimulated(&message),
        }
    }

    fn worker_of_member_said(&mut self, node: NodeIndex, head: Key, from: Key, message: ClientToDaemon) {
        if let ClientToDaemon::Worker(message) = &message {
            self.nodes[node].core.worker_said(from, message);
        }
        let message = Message::from(message);
        if self.is_for_this_head(node, from, &message) {
            self.queue(node, head, message.relayed(WorkerNumber(from)).into(), None);
        }
    }
}

/// What an honest peer says goes in its direction.
fn said<D: Direction>(message: Message) -> D {
    D::of(message).unwrap_or_else(|error| panic!("DIRECTION-1: {error}"))
}

fn read<D: Direction>(relayed: Relay) -> D {
    let kind = u16::try_from(relayed.kind).expect("kinds are small");
    let message = D::decode(kind, relayed.body).unwrap_or_else(|error| panic!("DIRECTION-1: {error}"));
    message.expect("every node knows every message")
}

/// Nothing of the kind is said here.
fn unsimulated(message: &impl std::fmt::Debug) {
    panic!("no process of the simulation says {message:?}");
}
