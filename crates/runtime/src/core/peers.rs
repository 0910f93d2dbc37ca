//! The streams of this process: who is at the other end, and by which head what they bring is counted.
//!
//! - RESUMING-1: what a stream brings before its mark was counted by a head that is gone, so that this process has
//!   itself counted as the holder; behind its mark, whoever sent it has.
//! - RESUMING-2: a mark that comes before this process has resumed holds the stream back until then.

use crate::core::io::{DAEMON, Role, Token};
use oxiray_wire::Received;
use rustc_hash::FxHashMap;

#[derive(Debug)]
struct Peer<D> {
    role: Role,
    /// The head by which what it brings is counted.
    epoch: u64,
    /// What came behind a mark for which this process is not ready; nothing more is read meanwhile.
    held: Option<Vec<Received<D>>>,
}

/// What to do with a message that a stream brought.
#[derive(Debug)]
pub(crate) enum Brought<D> {
    /// It is handled now; `is_behind` where it was counted by a head that is gone.
    Now { role: Role, is_behind: bool, received: Received<D> },
    /// Nothing: it is kept until this process has resumed, or its stream is closed.
    Kept,
}

/// Every open stream of this process.
#[derive(Debug)]
pub(crate) struct Peers<D> {
    open: FxHashMap<Token, Peer<D>>,
    /// Counts the heads of this cluster; 0 where the end of this one is final.
    epoch: u64,
}

impl<D> Peers<D> {
    pub(crate) fn new(epoch: u64) -> Self {
        Self { open: FxHashMap::default(), epoch }
    }

    /// The head that this process knows.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// A head with a higher number has come: streams that are open now are behind until their marks come.
    pub(crate) fn begin_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    pub(crate) fn add(&mut self, stream: Token, role: Role) {
        self.open.insert(stream, Peer { role, epoch: self.epoch, held: None });
    }

    pub(crate) fn remove(&mut self, stream: Token) -> Option<Role> {
        self.open.remove(&stream).map(|peer| peer.role)
    }

    pub(crate) fn role(&self, stream: Token) -> Option<Role> {
        self.open.get(&stream).map(|peer| peer.role)
    }

    /// The streams to other processes than the daemon.
    pub(crate) fn others(&self) -> Vec<Token> {
        let mut others: Vec<Token> = self.open.keys().copied().filter(|stream| *stream != DAEMON).collect();
        others.sort_unstable();
        others
    }

    /// The streams from those whose calls run here.
    pub(crate) fn clients(&self) -> Vec<Token> {
        let is_client = |peer: &Peer<D>| matches!(peer.role, Role::Client(_));
        self.open.iter().filter(|(_, peer)| is_client(peer)).map(|(stream, _)| *stream).collect()
    }

    /// What to do with a message that came (RESUMING-2).
    pub(crate) fn bring(&mut self, stream: Token, received: Received<D>) -> Brought<D> {
        let Some(peer) = self.open.get_mut(&stream) else { return Brought::Kept };
        if let Some(held) = &mut peer.held {
            held.push(received);
            return Brought::Kept;
        }
        let is_behind = peer.epoch < self.epoch && stream != DAEMON;
        Brought::Now { role: peer.role, is_behind, received }
    }

    /// Whether nothing more is read of the stream for now.
    pub(crate) fn is_held_back(&self, stream: Token) -> bool {
        self.open.get(&stream).is_some_and(|peer| peer.held.is_some())
    }

    /// A mark came on a stream. Whether it is held back, since this process does not know that head yet.
    pub(crate) fn mark(&mut self, stream: Token, epoch: u64) -> bool {
        let Some(peer) = self.open.get_mut(&stream) else { return false };
        let is_early = epoch > self.epoch;
        if is_early {
            peer.held.get_or_insert_default();
        } else {
            peer.epoch = peer.epoch.max(epoch);
        }
        is_early
    }

    /// Whether a stream has not brought its mark.
    pub(crate) fn awaits_marks(&self) -> bool {
        self.open.iter().any(|(stream, peer)| *stream != DAEMON && peer.epoch < self.epoch)
    }

    /// Everything that was held back, which is read again.
    pub(crate) fn read_on(&mut self) -> Vec<(Token, Vec<Received<D>>)> {
        let mut came = Vec::new();
        for (stream, peer) in &mut self.open {
            if let Some(held) = peer.held.take() {
                peer.epoch = self.epoch;
                came.push((*stream, held));
            }
        }
        came.sort_unstable_by_key(|(stream, _)| *stream);
        came
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::LeaseNumber;
    use oxiray_wire::message::Unblocked;

    const STREAM: Token = 7;

    fn something() -> Received<()> {
        Received { message: Unblocked {}.into(), descriptors: Vec::new() }
    }

    fn peers() -> Peers<()> {
        let mut peers = Peers::new(1);
        peers.add(DAEMON, Role::Daemon);
        peers.add(STREAM, Role::Lease(LeaseNumber(3)));
        peers
    }

    /// Whether what comes now is handled, and was counted by a head that is gone.
    fn comes(peers: &mut Peers<()>, stream: Token) -> Option<bool> {
        match peers.bring(stream, something()) {
            Brought::Now { is_behind, .. } => Some(is_behind),
            Brought::Kept => None,
        }
    }

    #[test]
    fn what_comes_before_a_mark_is_behind_and_what_comes_after_it_is_not() {
        let mut peers = peers();
        assert_eq!(comes(&mut peers, STREAM), Some(false));
        peers.begin_epoch(2);
        assert!(peers.awaits_marks());
        assert_eq!((comes(&mut peers, STREAM), comes(&mut peers, DAEMON)), (Some(true), Some(false)));
        assert!(!peers.mark(STREAM, 2));
        assert_eq!((comes(&mut peers, STREAM), peers.awaits_marks()), (Some(false), false));
    }

    #[test]
    fn a_mark_of_a_head_that_is_not_known_yet_holds_the_stream_back() {
        let mut peers = peers();
        assert!(peers.mark(STREAM, 2));
        assert_eq!(comes(&mut peers, STREAM), None);
        peers.begin_epoch(2);
        let held = peers.read_on();
        assert_eq!((held.len(), held[0].0, held[0].1.len()), (1, STREAM, 1));
        assert_eq!((comes(&mut peers, STREAM), peers.awaits_marks()), (Some(false), false), "it was behind its mark");
        assert!(peers.read_on().is_empty());
    }

    #[test]
    fn a_stream_that_is_closed_brings_nothing_and_is_not_waited_for() {
        let mut peers = peers();
        peers.begin_epoch(2);
        assert_eq!(peers.remove(STREAM), Some(Role::Lease(LeaseNumber(3))));
        assert_eq!((comes(&mut peers, STREAM), peers.awaits_marks(), peers.remove(STREAM)), (None, false, None));
    }
}
