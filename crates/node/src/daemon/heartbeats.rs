//! Words of life between a head and members on other machines (LEASE-1, LEASE-2).
//!
//! - BEAT-1: a member whose lease is over serves nothing more: before anything else it ends all that it was granted.
//! - BEAT-2: a daemon that cannot do so, since it hangs or is stopped, is killed by the kernel, and what it started with it.
//!   Its parent starts another in its place (`succession.rs`).
//! - BEAT-3: a member on another machine is dead when it has said that it ended everything, or when its lease and the
//!   head's margin are over; that its stream broke proves nothing.

use super::Daemon;
use super::arrival::Predecessor;
use super::streams::{Role, Stream};
use crate::lease::{self, MemberLease};
use oxiray_machine::Key;
use oxiray_processes::{DeadMansSwitch, since_boot};
use oxiray_wire::Message;
use oxiray_wire::message::{Heartbeat, HeartbeatHeard, NodeLeaves, Refused};
use rustix::io::Errno;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How often the head looks at its members' leases within one of them.
const LOOKS: u32 = 4;

/// What the head knows of a member's life.
#[derive(Debug)]
pub(super) struct Patience {
    lease: Duration,
    heard: Instant,
}

impl Patience {
    pub(super) fn new(lease: Duration, now: Instant) -> Self {
        Self { lease, heard: now }
    }

    fn until(&self) -> Instant {
        self.heard + lease::patience(self.lease)
    }
}

/// The head, as a member on another machine sees it.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) address: SocketAddr,
    lease: MemberLease,
    /// BEAT-2.
    switch: DeadMansSwitch,
    grace: Duration,
    /// The head has said that the cluster ends.
    pub(super) has_left: bool,
}

impl Home {
    /// `asked` is when this node began to ask to be let in.
    pub(super) fn new(address: SocketAddr, lease: Duration, asked: Duration) -> Result<Self, Errno> {
        let grace = lease::margin(lease) / 2;
        let home = Self {
            address,
            lease: MemberLease::new(lease, asked),
            switch: DeadMansSwitch::new()?,
            grace,
            has_left: false,
        };
        home.set_switch(since_boot())?;
        Ok(home)
    }

    fn set_switch(&self, now: Duration) -> Result<(), Errno> {
        self.switch.set((self.lease.until() + self.grace).saturating_sub(now))
    }
}

impl Daemon {
    /// When the network has to be looked at, whatever happens.
    pub(super) fn network_deadline(&self) -> Option<Instant> {
        let network = self.network.as_ref()?;
        let verdicts = network.remotes.values().map(|remote| remote.patience.until());
        let own = network.home.as_ref().map(|home| Instant::now() + home.lease.next().saturating_sub(since_boot()));
        // Looked at more often than an absence lasts, so that sleep is not taken for one.
        let look = (!network.remotes.is_empty()).then(|| network.looked + network.lease / LOOKS);
        let certificate = self.certificate_due().map(|due| Instant::now() + due.saturating_sub(since_boot()));
        verdicts.chain(own).chain(look).chain(certificate).min()
    }

    /// BEAT-1: whether this member may go on. Asked before anything is served.
    pub(super) fn may_go_on(&mut self) -> bool {
        let Some(home) = self.network.as_ref().and_then(|network| network.home.as_ref()) else { return true };
        if since_boot() < home.lease.until() {
            return true;
        }
        self.lose_head("the head has not answered for as long as the lease lasts");
        false
    }

    /// This node is a member no more: its work ends, and it joins anew.
    pub(super) fn lose_head(&mut self, why: &str) {
        if self.is_stopping {
            return;
        }
        self.log.line(&format!("{why}: this node ends what it was granted, and will join anew"));
        self.ended = Ended::LostHead(self.as_predecessor());
        self.is_stopping = true;
    }

    /// What the node that this machine becomes is to know of this one.
    pub(super) fn as_predecessor(&self) -> Predecessor {
        Predecessor {
            node: self.core.own_node(),
            certificate: self.network.as_ref().map(|network| network.badge.credentials.last_certificate()),
            head_may_come_back: self.core.epoch() > 0,
        }
    }

    /// Says a word where it is time, and gives up whoever has said none for too long (BEAT-3).
    pub(super) fn keep_leases(&mut self) {
        self.renew_certificate(since_boot());
        let Some(network) = &mut self.network else { return };
        let absence = self.now.saturating_duration_since(std::mem::replace(&mut network.looked, self.now));
        if absence > 2 * (network.lease / LOOKS) {
            // This daemon was stopped, or its machine: what members said meanwhile is still on its way.
            network.remotes.values_mut().for_each(|remote| remote.patience.heard = self.now);
        }
        let late: Vec<Key> = network
            .remotes
            .iter()
            .filter(|(_, remote)| remote.patience.until() <= self.now)
            .map(|(key, _)| *key)
            .collect();
        let word = network.home.as_mut().and_then(|home| home.lease.word(since_boot()));
        if let (Some(number), Some(head)) = (word, self.core.head_key()) {
            self.queue(head, &Heartbeat { number }.into(), Vec::new());
        }
        for key in late {
            self.give_up(key, "it has said nothing for longer than its lease");
        }
    }

    /// A member on another machine says that it lives.
    pub(super) fn heartbeat(&mut self, from: Key, said: &Heartbeat) {
        let Some(remote) = self.network.as_mut().and_then(|network| network.remotes.get_mut(&from)) else { return };
        remote.patience.heard = Instant::now();
        self.queue(from, &HeartbeatHeard { number: said.number }.into(), Vec::new());
    }

    /// The head has heard a word of this member's.
    pub(super) fn heartbeat_heard(&mut self, said: &HeartbeatHeard) {
        let Some(home) = self.network.as_mut().and_then(|network| network.home.as_mut()) else { return };
        home.lease.heard(said.number);
        if let Err(error) = home.set_switch(since_boot()) {
            self.log.line(&format!("the switch that ends a daemon which hangs cannot be set: {error}"));
        }
    }

    /// All processes of a member on another machine have ended, and it ends.
    pub(super) fn member_leaves(&mut self, key: Key) {
        if let Some(remote) = self.network.as_mut().and_then(|network| network.remotes.get_mut(&key)) {
            remote.has_left = true;
            self.give_up(key, "it has left");
        }
    }

    /// The head says that the cluster ends.
    pub(super) fn head_leaves(&mut self) {
        if let Some(home) = self.network.as_mut().and_then(|network| network.home.as_mut()) {
            home.has_left = true;
        }
        self.log.line("the head ends the cluster, and this node ends with it");
        self.is_stopping = true;
    }

    /// The stream to a member on another machine is over; whether it may live nevertheless.
    pub(super) fn may_live(&self, key: Key) -> bool {
        let remote = self.network.as_ref().and_then(|network| network.remotes.get(&key));
        remote.is_some_and(|remote| !remote.has_left)
    }

    /// The member is dead: its work is placed anew, and its devices are counted out.
    pub(super) fn give_up(&mut self, key: Key, why: &str) {
        let Some(remote) = self.network.as_ref().and_then(|network| network.remotes.get(&key)) else { return };
        let node = remote.node;
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
        if !matches!(self.ended, Ended::Stopped) || self.core.head_key().is_some() {
            return;
        }
        let said = |stream: &Stream| match stream.role {
            Role::Member(_) => Some(Message::from(NodeLeaves {})),
            Role::Driver(_) => Some(Refused { text: "the cluster was stopped".into() }.into()),
            _ => None,
        };
        let words: Vec<_> = self.streams.iter().filter_map(|(key, stream)| Some((*key, said(stream)?))).collect();
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

/// How a daemon has ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// For good.
    Stopped,
    /// As if it had been killed: what it has written down is for the next head.
    Left,
    /// It was the head, and may be it no more.
    LostTurn,
    /// It lost the head that it had joined; this it was there.
    LostHead(Predecessor),
}
