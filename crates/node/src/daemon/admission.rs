//! Who is let in.
//!
//! - ADMIT-1: until a peer has shown the session's token, nothing but its greeting is read, no more than
//!   [`oxiray_wire::frame::HELLO_BYTES_LIMIT`] of it, for no longer than [`GREETING_LIMIT`].
//! - ADMIT-2: at most [`NEWCOMERS_MAX`] peers are in that state; more wait in the kernel's queue, and so do all while there
//!   are no descriptors for them. The listener is watched again in one place ([`Daemon::open_door`]), whatever became of
//!   the newcomers. While others wait, whoever has been in that state the longest, and for [`CROWDED_LIMIT`], gives its
//!   place up, so that those who say nothing keep nobody out: a greeting is sent with the connection, and read in the round
//!   after the one in which that was accepted.
//! - ADMIT-3: the log tells of those who are turned away once a second at most, and how many they were.

use super::descriptors::{in_words, pidfd_of};
use super::streams::{Role, Stream};
use super::{Daemon, Token};
use oxiray_machine::Key;
use oxiray_processes::peer_of;
use oxiray_wire::message::{Driver, Hello, Refused, Returning};
use oxiray_wire::{Connection, Message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

/// How long a newcomer has to greet.
pub(super) const GREETING_LIMIT: Duration = Duration::from_secs(5);
/// How many newcomers there may be at once.
pub(super) const NEWCOMERS_MAX: usize = 64;
/// How long a newcomer has to greet while others wait for its place.
const CROWDED_LIMIT: Duration = Duration::from_millis(100);
/// How long nobody is accepted after that has failed.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the log tells of those who were turned away.
const TELLING_PERIOD: Duration = Duration::from_secs(1);

/// Where newcomers come in.
#[derive(Debug)]
pub(crate) struct Door {
    listener: UnixListener,
    /// What whoever is let in has to show.
    token: String,
    is_watched: bool,
    paused_until: Option<Instant>,
    turned_away: TurnedAway,
}

impl Door {
    pub(super) fn new(listener: UnixListener, token: String) -> Self {
        Self { listener, token, is_watched: false, paused_until: None, turned_away: TurnedAway::default() }
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

impl Daemon {
    pub(super) fn admit(&mut self) {
        for _ in self.newcomers()..NEWCOMERS_MAX {
            match self.door.listener.accept() {
                Ok((socket, _)) => self.newcomer(socket.into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => {
                    self.turned_away(format!("newcomers have to wait: {}", in_words(&error)));
                    self.door.paused_until = Some(self.now + PAUSE);
                    break;
                }
            }
        }
        self.poller.forget(&self.door.listener);
        self.door.is_watched = false;
    }

    fn newcomers(&self) -> usize {
        self.streams.values().filter(|stream| matches!(stream.role, Role::Newcomer(_))).count()
    }

    /// ADMIT-2. Called when all else of a round is done.
    pub(super) fn open_door(&mut self) {
        if self.door.is_watched || self.door.paused_until.is_some_and(|until| until > self.now) {
            return;
        }
        self.door.paused_until = None;
        if self.newcomers() >= NEWCOMERS_MAX && self.does_somebody_wait() && !self.make_room() {
            return;
        }
        self.door.is_watched = self.poller.watch(&self.door.listener, Token::Listener).is_ok();
        self.door.paused_until = (!self.door.is_watched).then(|| self.now + PAUSE);
    }

    fn does_somebody_wait(&self) -> bool {
        let mut listener = [PollFd::new(&self.door.listener, PollFlags::IN)];
        poll(&mut listener, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Ends the newcomer that has been silent the longest; `false` where it is not long enough yet.
    fn make_room(&mut self) -> bool {
        let newcomers = self.streams.iter().filter_map(|(key, stream)| match stream.role {
            Role::Newcomer(until) => Some((until, *key)),
            _ => None,
        });
        let Some((until, key)) = newcomers.min() else { return true };
        let due = until.checked_sub(GREETING_LIMIT).map_or(self.now, |since| since + CROWDED_LIMIT);
        if due > self.now {
            self.door.paused_until = Some(due);
            return false;
        }
        self.turned_away(format!("client {key} has said nothing and gives its place to one that waits"));
        self.stream_over(key);
        true
    }

    pub(super) fn turned_away(&mut self, text: String) {
        self.door.turned_away.note(text);
        self.tell_turned_away();
    }

    pub(super) fn tell_turned_away(&mut self) {
        if let Some(text) = self.door.turned_away.tell(self.now) {
            self.log.line(&text);
        }
    }

    fn newcomer(&mut self, socket: OwnedFd) {
        let peer = match peer_of(&socket) {
            Ok(peer) => peer,
            Err(error) => return self.turned_away(format!("a newcomer has no credentials: {error}")),
        };
        if peer.uid != rustix::process::geteuid().as_raw() {
            return self.turned_away(format!("process {} of user {} was turned away", peer.pid, peer.uid));
        }
        match Connection::unproven(socket) {
            Ok(connection) => {
                let key = self.core.new_key();
                let role = Role::Newcomer(self.now + GREETING_LIMIT);
                self.add_stream(key, Stream::new(connection, role, peer.pid));
                if peer.pid == 0 {
                    self.refuse(
                        key,
                        "this process is in a PID namespace that the daemon does not see into, so that it cannot be \
                         watched: start it in the daemon's (with `docker run --pid=...`, or `shareProcessNamespace` of a \
                         pod), or start a daemon of its own there",
                    );
                }
            }
            Err(error) => self.turned_away(format!("a newcomer's socket cannot be used: {error}")),
        }
    }

    /// The first message of a peer.
    pub(super) fn greeted(&mut self, key: Key, message: Message) {
        let Some(stream) = self.streams.get(&key).filter(|stream| !stream.is_closing) else { return };
        let (is_expected, peer_pid) = (matches!(stream.role, Role::Expected), stream.peer_pid);
        let Message::Hello(hello) = message else {
            return self.refuse(key, "the first message must be a greeting: this is no client of Oxiray");
        };
        let Hello { token, driver, node, returning } = *hello;
        if !is_expected && !same(token.as_bytes(), self.door.token.as_bytes()) {
            return self
                .refuse(key, "the token is not this session's: read it from session.json in the session's directory");
        }
        let head = self.core.head_key();
        if head.is_some() && node.is_some() {
            let text =
                format!("this is a member of the cluster at {} and not a cluster of its own: join there", self.address);
            return self.refuse(key, &text);
        }
        match (driver, node) {
            (Some(driver), _) => self.admit_driver(key, driver, peer_pid, is_expected, returning.as_ref()),
            (None, Some(node)) => self.admit_member(key, &node, peer_pid),
            (None, None) => {
                if let Some(head) = head {
                    self.admit_guest(head, key, None, None);
                } else if let Some(stream) = self.streams.get_mut(&key) {
                    stream.connection.prove();
                    stream.role = Role::Visitor;
                }
            }
        }
    }

    fn admit_driver(
        &mut self,
        key: Key,
        driver: Driver,
        peer_pid: u32,
        is_expected: bool,
        returning: Option<&Returning>,
    ) {
        // A socket pair names the process that made it, which may have started the driver in another namespace.
        if !is_expected && driver.pid != peer_pid {
            let text =
                format!("the driver says that it is process {}, and the socket that it is {peer_pid}", driver.pid);
            return self.refuse(key, &text);
        }
        let pidfd = match pidfd_of(driver.pid) {
            Ok(pidfd) => pidfd,
            Err(text) => return self.refuse(key, &text),
        };
        self.log.line(&format!("driver {key} joins: process {}", driver.pid));
        match self.core.head_key() {
            Some(head) => self.admit_guest(head, key, Some(driver), pidfd),
            None => self.become_driver(key, driver, pidfd, returning),
        }
    }

    pub(super) fn refuse(&mut self, key: Key, text: &str) {
        let line = format!("client {key} was refused: {text}");
        match self.streams.get(&key).map(|stream| &stream.role) {
            Some(Role::Newcomer(_)) => self.turned_away(line),
            _ => self.log.line(&line),
        }
        self.queue(key, &Refused { text: text.to_owned() }.into(), Vec::new());
        self.close_when_sent(key);
    }

    /// When the longest-waiting newcomer has to have greeted, the door is to be opened, or the log to be told.
    pub(super) fn admission_deadline(&self) -> Option<Instant> {
        let deadlines = self.streams.values().filter_map(|stream| match stream.role {
            Role::Newcomer(until) => Some(until),
            _ => None,
        });
        deadlines.chain(self.door.paused_until).chain(self.door.turned_away.due()).min()
    }

    pub(super) fn end_slow_newcomers(&mut self) {
        let is_late = |stream: &Stream| matches!(stream.role, Role::Newcomer(until) if until <= self.now);
        let late: Vec<Key> = self.streams.iter().filter(|(_, stream)| is_late(stream)).map(|(key, _)| *key).collect();
        for key in &late {
            self.turned_away(format!("client {key} did not greet within {} s", GREETING_LIMIT.as_secs()));
            self.stream_over(*key);
        }
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
