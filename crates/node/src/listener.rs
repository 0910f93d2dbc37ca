//! Where newcomers come in: the listener of the session's socket, and what the log is told of those who are turned away.
//!
//! - ADMIT-3: the log tells of those who are turned away once a second at most, and how many they were.

use crate::poller::{Poller, Token};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

/// How long nobody is accepted after that has failed.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the log tells of those who were turned away.
const TELLING_PERIOD: Duration = Duration::from_secs(1);

/// The listener, and what whoever comes has to show.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: UnixListener,
    /// What whoever is let in has to show.
    token: String,
    is_watched: bool,
    paused_until: Option<Instant>,
    turned_away: TurnedAway,
}

impl Listener {
    pub(crate) fn new(listener: UnixListener, token: String) -> Self {
        Self { socket: listener, token, is_watched: false, paused_until: None, turned_away: TurnedAway::default() }
    }

    /// Whether that is what whoever is let in has to show.
    pub(crate) fn is_token(&self, shown: &str) -> bool {
        same(shown.as_bytes(), self.token.as_bytes())
    }

    pub(crate) fn accept(&self) -> io::Result<OwnedFd> {
        self.socket.accept().map(|(socket, _)| socket.into())
    }

    /// Nobody is accepted until [`Listener::open`].
    pub(crate) fn close(&mut self, poller: &Poller) {
        poller.forget(&self.socket);
        self.is_watched = false;
    }

    /// Accepting has failed: it is tried again in a while.
    pub(crate) fn pause(&mut self, now: Instant) {
        self.paused_until = Some(now + PAUSE);
    }

    /// The door stays closed until then.
    pub(crate) fn pause_until(&mut self, until: Instant) {
        self.paused_until = Some(until);
    }

    /// Whether it is closed and may be opened; a pause that is over is forgotten.
    pub(crate) fn may_open(&mut self, now: Instant) -> bool {
        if self.is_watched || self.paused_until.is_some_and(|until| until > now) {
            return false;
        }
        self.paused_until = None;
        true
    }

    pub(crate) fn open(&mut self, poller: &Poller, now: Instant) {
        self.is_watched = poller.watch(&self.socket, Token::Listener).is_ok();
        self.paused_until = (!self.is_watched).then(|| now + PAUSE);
    }

    pub(crate) fn does_somebody_wait(&self) -> bool {
        let mut listener = [PollFd::new(&self.socket, PollFlags::IN)];
        poll(&mut listener, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Somebody was turned away, for this reason.
    pub(crate) fn turned_away(&mut self, text: String) {
        self.turned_away.note(text);
    }

    /// What the log is told now.
    pub(crate) fn tell(&mut self, now: Instant) -> Option<String> {
        self.turned_away.tell(now)
    }

    /// When the door is to be opened, or the log to be told.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.paused_until.into_iter().chain(self.turned_away.due()).min()
    }
}

/// What the log has yet to tell (ADMIT-3).
#[derive(Debug, Default)]
struct TurnedAway {
    untold: u64,
    last: String,
    told: Option<Instant>,
}

impl TurnedAway {
    fn note(&mut self, text: String) {
        self.untold += 1;
        self.last = text;
    }

    /// When there is something to tell.
    fn due(&self) -> Option<Instant> {
        (self.untold > 0).then(|| self.told.map(|told| told + TELLING_PERIOD)).flatten()
    }

    /// What the log is told now.
    fn tell(&mut self, now: Instant) -> Option<String> {
        if self.untold == 0 || self.due().is_some_and(|due| due > now) {
            return None;
        }
        self.told = Some(now);
        let text = std::mem::take(&mut self.last);
        Some(match std::mem::take(&mut self.untold) - 1 {
            0 => text,
            more => format!("{text}; {more} more such lines were left out"),
        })
    }
}

/// Takes the same time wherever they differ.
fn same(given: &[u8], wanted: &[u8]) -> bool {
    let difference = given.iter().zip(wanted).fold(0, |sum, (given, wanted)| sum | (given ^ wanted));
    given.len() == wanted.len() && difference == 0
}

#[cfg(test)]
mod tests {
    use super::{TELLING_PERIOD, TurnedAway, same};
    use std::time::Instant;

    #[test]
    fn the_log_tells_of_many_in_one_line_a_second() {
        let (mut turned_away, begun) = (TurnedAway::default(), Instant::now());
        assert_eq!((turned_away.tell(begun), turned_away.due()), (None, None));
        turned_away.note("one was".into());
        assert_eq!(turned_away.tell(begun).as_deref(), Some("one was"));
        for number in 0..1000 {
            turned_away.note(format!("number {number} was"));
            assert_eq!(turned_away.tell(begun + TELLING_PERIOD / 2), None);
        }
        assert_eq!(turned_away.due(), Some(begun + TELLING_PERIOD));
        let told = turned_away.tell(begun + TELLING_PERIOD);
        assert_eq!(told.as_deref(), Some("number 999 was; 999 more such lines were left out"));
        assert_eq!((turned_away.tell(begun + 9 * TELLING_PERIOD), turned_away.due()), (None, None));
    }

    #[test]
    fn tokens_are_equal_only_in_whole() {
        assert!(same(b"secret", b"secret"));
        for other in [&b"secres"[..], b"secre", b"secrets", b""] {
            assert!(!same(other, b"secret"));
        }
    }
}
