//! What a daemon lives for, and how it ends.

use crate::poller::{Poller, Token};
use oxiray_ids::NodeId;
use oxiray_machine::Key;
use oxiray_network::LastCertificate;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// What a node was that lost its head.
#[derive(Debug, Clone)]
pub(crate) struct Predecessor {
    pub(crate) node: NodeId,
    /// By what the head knows that the successor is the same machine.
    pub(crate) certificate: Option<LastCertificate>,
    /// Whether a head that was killed is started again: one without a journal never is.
    pub(crate) head_may_come_back: bool,
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

/// Whom a daemon ends with, and whether and how it ends.
#[derive(Debug)]
pub(crate) struct Lifetime {
    stop_signals: OwnedFd,
    /// Whoever started this daemon, where it is to end with that process.
    starter: Option<OwnedFd>,
    /// The driver that a private daemon lives for.
    only_driver: Option<Key>,
    /// Whether a signal ends the head and not its cluster.
    keeps_cluster: bool,
    is_stopping: bool,
    /// How it will have ended.
    ended: Ended,
}

impl Lifetime {
    pub(crate) fn new(stop_signals: OwnedFd, starter: Option<OwnedFd>, keeps_cluster: bool) -> Self {
        Self { stop_signals, starter, only_driver: None, keeps_cluster, is_stopping: false, ended: Ended::Stopped }
    }

    pub(crate) fn watch(&self, poller: &Poller) -> Result<(), Errno> {
        poller.watch(&self.stop_signals, Token::Stop)?;
        self.starter.as_ref().map_or(Ok(()), |starter| poller.watch(starter, Token::Starter))
    }

    /// The daemon ends with this driver.
    pub(crate) fn live_for(&mut self, driver: Key) {
        self.only_driver = Some(driver);
    }

    /// The stream of a client is over.
    pub(crate) fn client_left(&mut self, key: Key) {
        self.is_stopping |= self.only_driver == Some(key);
    }

    /// A signal asks to stop. `is_kept`: what must outlive this daemon is written down.
    pub(crate) fn signalled(&mut self, is_kept: bool) {
        if self.keeps_cluster && is_kept {
            self.ended = Ended::Left;
        }
        self.is_stopping = true;
    }

    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Stops, and says how the daemon will have ended.
    pub(crate) fn end_as(&mut self, ended: Ended) {
        self.ended = ended;
        self.is_stopping = true;
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// How the daemon will have ended, where it ends.
    pub(crate) fn ended(&self) -> &Ended {
        &self.ended
    }

    pub(crate) fn into_ended(self) -> Ended {
        self.ended
    }
}
