//! The life of a member on another machine, from both ends: what the member knows of its head, and the head of the member.
//!
//! - BEAT-2: a daemon that cannot end what it was granted in time, since it hangs or is stopped, is killed by the kernel, and
//!   what it started with it. Its parent starts another in its place (`succession.rs`).
//! - BEAT-3: a member on another machine is dead when it has said that it ended everything, or when its lease and the
//!   head's margin are over; that its stream broke proves nothing.

use crate::lease::{self, MemberLease};
use oxiray_processes::{DeadMansSwitch, since_boot};
use rustix::io::Errno;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// What the head knows of a member's life.
#[derive(Debug)]
pub(crate) struct MemberDeadline {
    lease: Duration,
    heard: Instant,
}

impl MemberDeadline {
    pub(crate) fn new(lease: Duration, now: Instant) -> Self {
        Self { lease, heard: now }
    }

    /// The member has said a word.
    pub(crate) fn hears(&mut self, now: Instant) {
        self.heard = now;
    }

    /// When the member is given up, unless it says a word (BEAT-3).
    pub(crate) fn until(&self) -> Instant {
        self.heard + lease::patience(self.lease)
    }
}

/// The head, as a member on another machine sees it.
#[derive(Debug)]
pub(crate) struct HeadLink {
    pub(crate) address: SocketAddr,
    lease: MemberLease,
    /// BEAT-2.
    switch: DeadMansSwitch,
    grace: Duration,
}

impl HeadLink {
    /// `asked` is when this node began to ask to be let in.
    pub(crate) fn new(address: SocketAddr, lease: Duration, asked: Duration) -> Result<Self, Errno> {
        let grace = lease::margin(lease) / 2;
        let link = Self { address, lease: MemberLease::new(lease, asked), switch: DeadMansSwitch::new()?, grace };
        link.set_switch(since_boot())?;
        Ok(link)
    }

    /// Whether the lease lasts at that time since the machine was started.
    pub(crate) fn lasts(&self, now: Duration) -> bool {
        now < self.lease.until()
    }

    /// When the next word is to be said.
    pub(crate) fn next_word(&self) -> Instant {
        Instant::now() + self.lease.next().saturating_sub(since_boot())
    }

    /// The word that is to be said now, where it is time for one.
    pub(crate) fn word(&mut self, now: Duration) -> Option<u64> {
        self.lease.word(now)
    }

    /// The head has heard a word, so that the lease lasts longer.
    pub(crate) fn heard(&mut self, number: u64) -> Result<(), Errno> {
        self.lease.heard(number);
        self.set_switch(since_boot())
    }

    fn set_switch(&self, now: Duration) -> Result<(), Errno> {
        self.switch.set((self.lease.until() + self.grace).saturating_sub(now))
    }
}
