//! Words of life between a head and members on other machines (LEASE-1, LEASE-2).
//!
//! - BEAT-1: a member whose lease is over serves nothing more: before anything else it ends all that it was granted.

use super::Daemon;
use crate::lifetime::{Ended, Predecessor};
use crate::streams::{Role, Stream};
use crate::succession;
use oxiray_machine::Key;
use oxiray_processes::since_boot;
use oxiray_wire::Message;
use oxiray_wire::message::{Heartbeat, HeartbeatHeard, NodeLeaves, Refused};

impl Daemon {
    /// BEAT-1: whether this member may go on. Asked before anything is served.
    pub(super) fn may_go_on(&mut self) -> bool {
        let head = self.network.as_ref().and_then(|network| network.head.as_ref());
        if head.is_none_or(|head| head.lasts(since_boot())) {
            return true;
        }
        self.lose_head("the head has not answered for as long as the lease lasts");
        false
    }

    /// This node is a member no more: its work ends, and it joins anew.
    pub(super) fn lose_head(&mut self, why: &str) {
        if self.lifetime.is_stopping() {
            return;
        }
        self.log.line(&format!("{why}: this node ends what it was granted, and will join anew"));
        self.lifetime.end_as(Ended::LostHead(self.as_predecessor()));
    }

    /// What the node that this machine becomes is to know of this one.
    fn as_predecessor(&self) -> Predecessor {
        Predecessor {
            node: self.core.own_node(),
            certificate: self.network.as_ref().map(|network| network.badge.credentials.last_certificate()),
            head_may_come_back: self.core.epoch() > 0,
        }
    }

    /// Leaves a note to the process that is started in place of this one, should the switch end it.
    pub(super) fn leave_note(&mut self) {
        let Some(lease) = self.network.as_ref().map(|network| network.lease) else { return };
        let log = self.session.logs().join("daemon.log");
        if let Err(error) = succession::leave(log, lease, self.as_predecessor()) {
            self.log.line(&format!("should this node be stopped for too long, it cannot come back: {error}"));
        }
    }

    /// Says a word where it is time, and gives up whoever has said none for too long (BEAT-3).
    pub(super) fn keep_leases(&mut self) {
        self.renew_certificate(since_boot());
        let Some(network) = &mut self.network else { return };
        let late = network.look(self.turn.now);
        let word = network.head.as_mut().and_then(|head| head.word(since_boot()));
        if let (Some(number), Some(head)) = (word, self.core.head_key()) {
            self.queue(head, &Heartbeat { number }.into(), Vec::new());
        }
        for key in late {
            self.give_up(key, "it has said nothing for longer than its lease");
        }
    }

    /// A member on another machine says that it lives.
    pub(super) fn heartbeat(&mut self, from: Key, said: &Heartbeat) {
        if self.network.as_mut().is_some_and(|network| network.hears(from)) {
            self.queue(from, &HeartbeatHeard { number: said.number }.into(), Vec::new());
        }
    }

    /// The head has heard a word of this member's.
    pub(super) fn heartbeat_heard(&mut self, said: &HeartbeatHeard) {
        let Some(head) = self.network.as_mut().and_then(|network| network.head.as_mut()) else { return };
        if let Err(error) = head.heard(said.number) {
            self.log.line(&format!("the switch that ends a daemon which hangs cannot be set: {error}"));
        }
    }

    /// All processes of a member on another machine have ended, and it ends.
    pub(super) fn member_leaves(&mut self, key: Key) {
        if self.network.as_mut().is_some_and(|network| network.leaves(key)) {
            self.give_up(key, "it has left");
        }
    }

    /// The head says that the cluster ends.
    pub(super) fn head_leaves(&mut self) {
        self.log.line("the head ends the cluster, and this node ends with it");
        self.lifetime.stop();
    }

    /// The stream to a member on another machine is over; whether it may live nevertheless.
    pub(super) fn may_live(&self, key: Key) -> bool {
        self.network.as_ref().is_some_and(|network| network.may_live(key))
    }

    /// The member is dead: its work is placed anew, and its devices are counted out.
    pub(super) fn give_up(&mut self, key: Key, why: &str) {
        let Some(node) = self.network.as_ref().and_then(|network| network.node_of(key)) else { return };
        self.log.line(&format!("node {node} is given up: {why}"));
        if self.core.is_dismissed(key) {
            self.shut_out(node);
        }
        self.remove_stream(key);
        self.forget_remote(key);
        self.member_over(key);
    }

    /// On the head, before it ends for good: its members end with it, and no driver waits for it.
    pub(super) fn dismiss_all(&mut self) {
        if !matches!(self.lifetime.ended(), Ended::Stopped) || self.core.head_key().is_some() {
            return;
        }
        let said = |stream: &Stream| match stream.role {
            Role::Member(_) => Some(Message::from(NodeLeaves {})),
            Role::Driver(_) => Some(Refused { text: "the cluster was stopped".into() }.into()),
            _ => None,
        };
        let words: Vec<_> = self.streams.iter().filter_map(|(key, stream)| Some((key, said(stream)?))).collect();
        for (key, word) in words {
            self.queue(key, &word, Vec::new());
        }
    }

    /// On a member, when all its processes have ended: says so, where it ends by itself.
    pub(super) fn say_farewell(mut connection: oxiray_wire::Connection) {
        connection.send(&Message::from(NodeLeaves {}));
        // What the socket does not take at once is lost, and the head waits for the lease to be over.
        let _ = connection.flush();
    }
}
