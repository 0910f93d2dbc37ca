//! What a node does with what it hears: as the daemon's shell does, message by message.

use crate::node::Role;
use crate::stream::{Descriptor, Packet};
use crate::world::{NodeIndex, World};
use oxiray_machine::{Key, is_about_ledger};
use oxiray_wire::Message;

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
            Role::Driver => self.dispatch(node, key, message),
            Role::Worker => match self.nodes[node].core.head_key() {
                None => self.dispatch(node, key, message),
                Some(head) => self.worker_of_member_said(node, head, key, &message),
            },
            Role::Member(_) => {
                if let Message::Heartbeat(said) = &message {
                    return self.word_heard(key, said);
                }
                if self.member_said_of_objects(key, &message) {
                    return;
                }
                if let Some((worker, message)) = self.nodes[node].core.member_said(key, message) {
                    self.dispatch(node, worker, message);
                }
            }
            Role::Head => self.head_said(node, message, end),
        }
    }

    /// What a driver or a worker says.
    fn dispatch(&mut self, node: NodeIndex, from: Key, message: Message) {
        if node != 0 || !self.client_said_of_objects(from, &message) {
            self.nodes[node].core.message(from, message);
        }
    }

    fn head_said(&mut self, node: NodeIndex, message: Message, descriptor: Option<Descriptor>) {
        if let Message::HeartbeatHeard(said) = &message {
            return self.word_answered(node, said);
        }
        if self.head_said_of_objects(node, &message) {
            return;
        }
        match &message {
            Message::NodeDismissed(_) => return self.is_dismissed(node),
            Message::Refused(_) => return self.head_stays_away(node, "the head does not wait for it"),
            _ => {}
        }
        let Message::Relay(relayed) = message else { return self.nodes[node].core.head_said(message) };
        let kind = u16::try_from(relayed.kind).expect("kinds are small");
        let message = Message::decode(kind, relayed.body).expect("what is relayed was encoded by a node");
        let message = message.expect("every node knows every message");
        self.queue(node, relayed.worker, message, descriptor);
    }

    fn worker_of_member_said(&mut self, node: NodeIndex, head: Key, from: Key, message: &Message) {
        if is_about_ledger(message) {
            self.dispatch(node, from, message.clone());
        }
        if self.is_for_this_head(node, from, message) {
            self.queue(node, head, message.relayed(from).into(), None);
        }
    }
}
