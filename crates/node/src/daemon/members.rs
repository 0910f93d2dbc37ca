//! Nodes among each other: members let in by a head, and a member's messages to and from its head.

use super::Daemon;
use super::descriptors::pidfd_of;
use super::network::Purpose;
use super::streams::Role;
use oxiray_ids::{NodeId, ObjectId};
use oxiray_machine::Key;
use oxiray_network::Local;
use oxiray_wire::Message;
use oxiray_wire::message::{Newcomer, NodeAdmitted, Sought};
use std::os::fd::OwnedFd;

/// Members are told apart by addresses of the loopback network, the head's own excepted.
pub(super) const FIRST_MEMBER: u32 = 2;

impl Daemon {
    /// A node wants to be part of the cluster.
    pub(super) fn admit_member(&mut self, key: Key, node: &Newcomer, peer_pid: u32) {
        if node.pid != peer_pid {
            let text = format!("the node says that it is process {}, and the socket that it is {peer_pid}", node.pid);
            return self.refuse(key, &text);
        }
        let pidfd = match pidfd_of(node.pid) {
            Ok(pidfd) => pidfd,
            Err(text) => return self.refuse(key, &text),
        };
        if let Some(pidfd) = &pidfd
            && let Err(error) = self.poller.watch(pidfd, super::Token::Driver(key))
        {
            self.log.line(&format!("the process of member {key} cannot be watched: {error}"));
        }
        let Some(stream) = self.streams.get_mut(&key) else { return };
        stream.connection.prove();
        stream.role = Role::Member(pidfd);
        let number = FIRST_MEMBER + self.members_admitted;
        self.members_admitted += 1;
        let [_, high, middle, low] = number.to_be_bytes();
        let ip = format!("127.{high}.{middle}.{low}");
        let (address, epoch) = (self.address.clone(), self.core.epoch());
        let admitted = NodeAdmitted { ip, address, epoch, ..NodeAdmitted::default() };
        self.queue(key, &admitted.into(), Vec::new());
    }

    /// The process of a member is to go; its end is noticed as any other's.
    pub(super) fn kill_member(&mut self, key: Key) {
        let Some(stream) = self.streams.get(&key) else { return };
        if let Role::Member(Some(pidfd)) = &stream.role
            && let Err(error) = oxiray_processes::kill_by_pidfd(pidfd)
        {
            self.log.line(&format!("the process of member {key} cannot be killed: {error}"));
        }
    }

    /// The process of a member is gone.
    pub(super) fn member_over(&mut self, key: Key) {
        self.packages_without(key);
        self.core.member_gone(key);
    }

    /// What a member says, or one of its workers through it.
    pub(super) fn member_said(&mut self, from: Key, message: Message) {
        let object = |bytes: &[u8]| ObjectId::from_slice(bytes).unwrap_or(ObjectId::NIL);
        match &message {
            Message::Locate(asked) => return self.locate_for(from, asked),
            Message::Connect(asked) => return self.connect_for(from, asked),
            Message::Copied(said) => return self.core.copied(from, object(&said.object)),
            Message::CopyRefused(said) => return self.core.cannot_come(Some(from), object(&said.object)),
            Message::Heartbeat(said) => return self.heartbeat(from, said),
            Message::CertificateWanted(asked) => return self.certificate_wanted(from, asked),
            Message::PackageWanted(asked) => return self.give_package(from, asked.clone()),
            Message::PackagePiece(piece) => return self.take_package(from, piece),
            Message::NodeLeaves(_) => return self.member_leaves(from),
            Message::Hello(hello) => return self.turn_visitor(from, hello),
            Message::NodeJoin(told) if !self.is_honest(from, told) => {
                return self.give_up(from, "it says that it is another node than its certificate says");
            }
            Message::NodeResume(told) => {
                let node = told.node.clone().unwrap_or_default();
                if !self.is_honest(from, &node) {
                    return self.give_up(from, "it says that it is another node than its certificate says");
                }
                self.keep_address(&node.ip);
            }
            _ => {}
        }
        let Some((worker, message)) = self.core.member_said(from, message) else { return };
        if self.core.is_visiting(worker) {
            return self.visited(worker, &message);
        }
        match message {
            Message::Stored(said) => self.core.stored_elsewhere(worker, object(&said.object)),
            Message::Abort(said) => self.core.unstored_elsewhere(worker, object(&said.object)),
            Message::LogLines(lines) => {
                // Where nobody wants to see them, they are in the files of the worker's own node.
                if let Some(driver) = self.core.log_target(worker) {
                    self.queue(driver, &Message::LogLines(lines), Vec::new());
                }
            }
            message => self.dispatch(worker, message),
        }
    }

    /// What the head says, to this node or to one of its workers.
    pub(super) fn head_said(&mut self, message: Message, descriptors: Vec<OwnedFd>) {
        match message {
            Message::Relay(relayed) => {
                let end = relayed.splice.as_ref().and_then(|splice| self.end_of(splice, Purpose::Calls));
                let descriptors = descriptors.into_iter().chain(end.map(|end| end.socket)).collect();
                let kind = u16::try_from(relayed.kind).unwrap_or(u16::MAX);
                match Message::decode(kind, relayed.body) {
                    Ok(Some(message)) => {
                        if let Message::Welcome(welcome) = &message {
                            self.note_guest(relayed.worker, welcome);
                        }
                        self.queue(relayed.worker, &message, descriptors);
                    }
                    Ok(None) | Err(_) => {
                        self.log.line(&format!("the head passes on a message of kind {kind}, which cannot be read"));
                    }
                }
            }
            Message::ObjectDelete(said) => {
                self.delete(ObjectId::from_slice(&said.object).unwrap_or(ObjectId::NIL));
            }
            Message::Seek(asked) => {
                let object = ObjectId::from_slice(&asked.object).unwrap_or(ObjectId::NIL);
                let sought = Sought { search: asked.search, is_here: self.has_of_its_own(object) };
                if let Some(head) = self.core.head_key() {
                    self.queue(head, &sought.into(), Vec::new());
                }
            }
            Message::Located(said) => self.located(*said),
            Message::NodePeer(said) => {
                let end = said.splice.as_ref().and_then(|splice| self.end_of(splice, Purpose::Objects));
                if let Some(node) = NodeId::from_slice(&said.node) {
                    self.add_link(node, descriptors.into_iter().map(Local::from).chain(end).next());
                }
            }
            Message::HeartbeatHeard(said) => self.heartbeat_heard(&said),
            Message::CertificateIssued(said) => self.certificate_issued(&said),
            Message::PackageWanted(asked) => self.for_head(|daemon, head| daemon.give_package(head, asked)),
            Message::PackagePiece(piece) => self.for_head(|daemon, head| daemon.take_package(head, &piece)),
            Message::NodeGone(said) => self.node_gone(&said),
            Message::NodeLeaves(_) => self.head_leaves(),
            Message::GuestClose(said) => self.close_guest(&said),
            Message::CopyWanted(asked) => self.copy_here(ObjectId::from_slice(&asked.object).unwrap_or(ObjectId::NIL)),
            Message::NodeDismissed(said) => {
                self.log.line(&said.text);
                self.is_stopping = true;
            }
            Message::Refused(said) => self.head_stays_away(&said.text),
            message => self.core.head_said(message),
        }
    }

    fn for_head(&mut self, answer: impl FnOnce(&mut Self, Key)) {
        if let Some(head) = self.core.head_key() {
            answer(self, head);
        }
    }

    /// What a worker or guest of a member says: what is about this node's ledger and store stays here, the rest is the
    /// head's.
    pub(super) fn client_of_member_said(&mut self, head: Key, from: Key, message: Message) {
        match &message {
            Message::Allocate(_)
            | Message::Pin(_)
            | Message::Seal(_)
            | Message::Unpin(_)
            | Message::SegmentsUnmapped(_) => {
                return self.dispatch(from, message);
            }
            Message::Abort(said) => {
                let object = ObjectId::from_slice(&said.object).unwrap_or(ObjectId::NIL);
                if let Err(error) = self.store.abort(from, object) {
                    self.log.line(&format!("client {from}: {error}"));
                }
            }
            // The head counts what workers lend.
            Message::Blocked(_) | Message::Unblocked(_) | Message::ActorReady(_) => {
                self.core.message(from, message.clone());
            }
            _ => {}
        }
        if self.is_for_this_head(from, &message) {
            self.queue(head, &message.relayed(from).into(), Vec::new());
        }
    }
}
