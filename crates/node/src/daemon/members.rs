//! Nodes among each other: members let in by a head, and a member's messages to and from its head.

use super::Daemon;
use crate::descriptors::pidfd_of;
use crate::membership::Unshown;
use crate::network::Purpose;
use crate::poller::Token;
use crate::streams::Role;
use oxiray_machine::Key;
use oxiray_network::Local;
use oxiray_wire::Message;
use oxiray_wire::message::{
    ClientToDaemon, ClientToStore, DaemonToNewcomer, DaemonToNode, Direction as _, HeadToNode, LogsUnshown, Newcomer,
    NodeAdmitted, NodeOfWorker, NodeReport, NodeToDaemon, NodeToHead, Relay, RelayedOfVisitor, RelayedToHead,
    RelayedToNode, Sought,
};
use std::os::fd::OwnedFd;

/// Why a member is given up that joins as another than it is.
const NOT_ITS_CERTIFICATE: &str = "it says that it is another node than its certificate says";

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
            && let Err(error) = self.poller.watch(pidfd, Token::Driver(key))
        {
            self.log.line(&format!("the process of member {key} cannot be watched: {error}"));
        }
        let Some(stream) = self.streams.get_mut(key) else { return };
        stream.connection.prove();
        stream.role = Role::Member(pidfd);
        let ip = self.membership.next_address();
        let (address, epoch) = (self.membership.address.clone(), self.core.epoch());
        let keeps_logs = self.membership.keeps_logs;
        let admitted = NodeAdmitted { ip, address, epoch, keeps_logs, ..NodeAdmitted::default() };
        self.queue(key, &admitted.into(), Vec::new());
    }

    /// The process of a member is to go; its end is noticed as any other's.
    pub(super) fn kill_member(&mut self, key: Key) {
        let Some(stream) = self.streams.get(key) else { return };
        if let Role::Member(Some(pidfd)) = &stream.role
            && let Err(error) = oxiray_processes::kill_by_pidfd(pidfd)
        {
            self.log.line(&format!("the process of member {key} cannot be killed: {error}"));
        }
    }

    /// The process of a member is gone.
    pub(super) fn member_over(&mut self, key: Key) {
        self.packages_without(key);
        self.logs_without(key);
        self.core.member_gone(key);
    }

    /// What a member says.
    pub(super) fn member_said(&mut self, from: Key, message: NodeToHead) {
        match message {
            NodeToHead::Report(report) => self.member_reports(from, report),
            NodeToHead::Daemon(message) => self.daemon_of_member_said(from, message),
        }
    }

    fn member_reports(&mut self, from: Key, report: NodeReport) {
        if let NodeReport::NodeJoin(told) = &report
            && !self.is_honest(from, told)
        {
            return self.give_up(from, NOT_ITS_CERTIFICATE);
        }
        if let NodeReport::NodeResume(told) = &report {
            let node = told.node.clone().unwrap_or_default();
            if !self.is_honest(from, &node) {
                return self.give_up(from, NOT_ITS_CERTIFICATE);
            }
            self.membership.keep_address(&node.ip);
        }
        self.core.member_said(from, report);
    }

    fn daemon_of_member_said(&mut self, from: Key, message: NodeToDaemon) {
        match message {
            NodeToDaemon::Relay(relayed) => self.relayed(from, *relayed),
            NodeToDaemon::Locate(asked) => self.locate_for(from, &asked),
            NodeToDaemon::Connect(asked) => self.connect_for(from, &asked),
            NodeToDaemon::Copied(said) => self.core.copied(from, said.object),
            NodeToDaemon::Spilled(said) => self.core.spilled(said.object),
            NodeToDaemon::CopyRefused(said) => self.core.cannot_come(Some(from), said.object),
            NodeToDaemon::Heartbeat(said) => self.heartbeat(from, &said),
            NodeToDaemon::CertificateWanted(asked) => self.certificate_wanted(from, &asked),
            NodeToDaemon::PackageWanted(asked) => self.give_package(from, asked),
            NodeToDaemon::PackagePiece(piece) => self.take_package(from, &piece),
            NodeToDaemon::LogAnswer(answer) => self.logs_answered(from, *answer),
            NodeToDaemon::LogsUnshown(LogsUnshown { job, lines, bytes }) => {
                self.membership.unshown.add(job, Unshown { lines, bytes });
            }
            NodeToDaemon::FailedTaskLog(told) => self.failed_task_told(from, *told),
            NodeToDaemon::NodeLeaves(_) => self.member_leaves(from),
            NodeToDaemon::Hello(hello) => self.turn_visitor(from, &hello),
        }
    }

    /// What a member passes on: of one of its workers, or of a proxied client.
    fn relayed(&mut self, from: Key, relayed: Relay) {
        let Some(process) = self.core.process_of(from, relayed.worker) else { return };
        let kind = u16::try_from(relayed.kind).unwrap_or(u16::MAX);
        let heard = if self.core.is_visiting(process) {
            let read = RelayedOfVisitor::decode(kind, relayed.body);
            read.map(|message| message.into_iter().for_each(|message| self.proxied_client_asked(process, message)))
        } else {
            let read = RelayedToHead::decode(kind, relayed.body);
            read.map(|message| message.into_iter().for_each(|message| self.client_of_another_said(process, message)))
        };
        if let Err(error) = heard {
            self.expel(from, &format!("it broke the protocol in what it passes on: {error}"));
        }
    }

    fn proxied_client_asked(&mut self, proxied_client: Key, message: RelayedOfVisitor) {
        match message {
            RelayedOfVisitor::Report(asked) => self.report_asked(proxied_client, &asked),
            RelayedOfVisitor::Head(message) => self.visitor_said(proxied_client, message),
        }
    }

    fn client_of_another_said(&mut self, client: Key, message: RelayedToHead) {
        match message {
            RelayedToHead::Node(NodeOfWorker::Stored(said)) => {
                self.core.stored_elsewhere(client, said.object);
            }
            RelayedToHead::Node(NodeOfWorker::Abort(said)) => {
                self.core.unstored_elsewhere(client, said.object);
            }
            RelayedToHead::Node(NodeOfWorker::LogLines(mut lines)) => {
                // Where nobody wants to see them, they are in the files of the worker's own node.
                if let Some(driver) = self.core.log_target(client) {
                    if !self.core.is_apart(client, driver) {
                        lines.ip.clear();
                    }
                    self.queue(driver, &Message::LogLines(lines), Vec::new());
                } else if self.core.is_resuming()
                    && let Some(job) = self.core.job_of_process(client)
                {
                    self.membership.unshown.add(job, Unshown::of(&lines.lines));
                }
            }
            RelayedToHead::Worker(message) => self.core.worker_said(client, &message),
            RelayedToHead::Report(asked) => self.report_asked(client, &asked),
            RelayedToHead::Head(message) => self.client_said(client, message),
        }
    }

    /// What the head says.
    pub(super) fn head_said(&mut self, message: HeadToNode, descriptors: Vec<OwnedFd>) {
        match message {
            HeadToNode::Order(order) => self.core.head_said(order),
            HeadToNode::Daemon(message) => self.daemon_of_head_said(message, descriptors),
        }
    }

    fn daemon_of_head_said(&mut self, message: DaemonToNode, descriptors: Vec<OwnedFd>) {
        match message {
            DaemonToNode::Relay(relayed) => self.pass_down(*relayed, descriptors),
            DaemonToNode::ObjectDelete(said) => self.objects.delete(said.object),
            DaemonToNode::Seek(asked) => {
                let sought = Sought { search: asked.search, is_here: self.objects.has_of_its_own(asked.object) };
                if let Some(head) = self.core.head_key() {
                    self.queue(head, &sought.into(), Vec::new());
                }
            }
            DaemonToNode::Located(said) => self.located(*said),
            DaemonToNode::NodePeer(said) => {
                let end = said
                    .connection_ticket
                    .as_ref()
                    .and_then(|connection_ticket| self.end_of(connection_ticket, Purpose::Objects));
                self.add_link(said.node, descriptors.into_iter().map(Local::from).chain(end).next());
            }
            DaemonToNode::HeartbeatHeard(said) => self.heartbeat_heard(&said),
            DaemonToNode::CertificateIssued(said) => self.certificate_issued(&said),
            DaemonToNode::PackageWanted(asked) => self.for_head(|daemon, head| daemon.give_package(head, asked)),
            DaemonToNode::PackagePiece(piece) => self.for_head(|daemon, head| daemon.take_package(head, &piece)),
            DaemonToNode::LogQuery(asked) => self.for_head(|daemon, head| daemon.own_logs_asked(head, *asked)),
            DaemonToNode::NodeGone(said) => self.node_gone(&said),
            DaemonToNode::NodeLeaves(_) => self.head_leaves(),
            DaemonToNode::ProxiedClientClose(said) => self.close_proxied_client(&said),
            DaemonToNode::CopyWanted(asked) => self.copy_here(asked.object),
            DaemonToNode::NodeDismissed(said) => {
                self.log.line(&said.text);
                self.lifetime.stop();
            }
            DaemonToNode::Refused(said) => self.head_stays_away(&said.text),
        }
    }

    /// What the head has this node tell one of its workers or proxied clients.
    fn pass_down(&mut self, relayed: Relay, descriptors: Vec<OwnedFd>) {
        let end = relayed
            .connection_ticket
            .as_ref()
            .and_then(|connection_ticket| self.end_of(connection_ticket, Purpose::Calls));
        let descriptors = descriptors.into_iter().chain(end.map(|end| end.socket)).collect();
        let kind = u16::try_from(relayed.kind).unwrap_or(u16::MAX);
        match RelayedToNode::decode(kind, relayed.body) {
            Ok(Some(message)) => {
                if let RelayedToNode::Newcomer(DaemonToNewcomer::Welcome(welcome)) = &message
                    && self.membership.note_proxied_client(relayed.worker.0, welcome)
                {
                    return;
                }
                self.queue(relayed.worker.0, &message.into(), descriptors);
            }
            Ok(None) => self.log.line(&format!("the head passes on a message of the unknown kind {kind}")),
            Err(error) => self.log.line(&format!("the head passes on what cannot be read: {error}")),
        }
    }

    fn for_head(&mut self, answer: impl FnOnce(&mut Self, Key)) {
        if let Some(head) = self.core.head_key() {
            answer(self, head);
        }
    }

    /// What a worker or proxied client of a member says: what is about this node's ledger and store stays here, the rest is the
    /// head's.
    pub(super) fn client_of_member_said(&mut self, head: Key, from: Key, message: ClientToDaemon) {
        let message = match message {
            ClientToDaemon::Store(ClientToStore::Abort(said)) => {
                if let Err(error) = self.objects.store.abort(from, said.object) {
                    self.log.line(&format!("client {from}: {error}"));
                }
                said.into()
            }
            ClientToDaemon::Store(message) => return self.store_asked(from, &message),
            ClientToDaemon::Machine(asked) => return self.core.worker_asked(from, &asked),
            // The head counts what workers lend.
            ClientToDaemon::Worker(message) => {
                self.core.worker_said(from, &message);
                message.into()
            }
            ClientToDaemon::Report(asked) => asked.into(),
            ClientToDaemon::Head(message) => message.into(),
        };
        if self.is_for_this_head(from, &message) {
            self.pass_on(head, from, &message);
        }
    }
}
