//! Who is let in.
//!
//! - ADMIT-1: until a peer has shown the session's token, nothing but its greeting is read, no more than
//!   [`oxiray_wire::frame::HELLO_BYTES_LIMIT`] of it, for no longer than [`GREETING_LIMIT`].
//! - ADMIT-2: at most [`NEWCOMERS_MAX`] peers are in that state; more wait in the kernel's queue, and so do all while there
//!   are no descriptors for them. The listener is watched again in one place ([`Daemon::open_door`]), whatever became of
//!   the newcomers. While others wait, whoever has been in that state the longest, for [`CROWDED_LIMIT`], and has said nothing
//!   that waits for its turn, gives its place up, so that those who say nothing keep nobody out: a greeting is sent with
//!   the connection, and read in the round after the one in which that was accepted.

use super::Daemon;
use crate::descriptors::{in_words, pidfd_of};
use crate::poller::Token;
use crate::streams::{Rights, Role, Stream};
use oxiray_machine::Key;
use oxiray_processes::peer_of;
use oxiray_wire::message::{Driver, Hello, Refused, Returning};
use oxiray_wire::{Connection, Message};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long a newcomer has to greet.
const GREETING_LIMIT: Duration = Duration::from_secs(5);
/// How many newcomers there may be at once.
const NEWCOMERS_MAX: usize = 64;
/// How long a newcomer has to greet while others wait for its place. A greeting is sent with the connection; but a process
/// of a busy machine may lose its processor between the two.
const CROWDED_LIMIT: Duration = Duration::from_secs(1);

impl Daemon {
    pub(super) fn admit(&mut self) {
        for _ in self.streams.newcomers().count()..NEWCOMERS_MAX {
            match self.listener.accept() {
                Ok(socket) => self.newcomer(socket),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => {
                    self.turned_away(format!("newcomers have to wait: {}", in_words(&error)));
                    self.listener.pause(self.turn.now);
                    break;
                }
            }
        }
        self.listener.close(&self.poller);
    }

    /// ADMIT-2. Called when all else of a round is done.
    pub(super) fn open_door(&mut self) {
        if !self.listener.may_open(self.turn.now) {
            return;
        }
        let is_full = self.streams.newcomers().count() >= NEWCOMERS_MAX;
        if is_full && self.listener.does_somebody_wait() && !self.make_room() {
            return;
        }
        self.listener.open(&self.poller, self.turn.now);
    }

    /// Ends the newcomer that has been silent the longest; `false` where it is not long enough yet, or where all have said
    /// something that waits for its turn.
    fn make_room(&mut self) -> bool {
        let speaking: BTreeSet<Token> = self.streams.turns.waiting().collect();
        let silent = self.streams.newcomers().filter(|(_, key)| !speaking.contains(&Token::Stream(*key)));
        let Some((until, key)) = silent.min() else { return false };
        let due = until.checked_sub(GREETING_LIMIT).map_or(self.turn.now, |since| since + CROWDED_LIMIT);
        if due > self.turn.now {
            self.listener.pause_until(due);
            return false;
        }
        self.turned_away(format!("client {key} has said nothing and gives its place to one that waits"));
        self.stream_over(key);
        true
    }

    pub(super) fn turned_away(&mut self, text: String) {
        self.listener.turned_away(text);
        self.tell_turned_away();
    }

    pub(super) fn tell_turned_away(&mut self) {
        if let Some(text) = self.listener.tell(self.turn.now) {
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
                let role = Role::Newcomer(self.turn.now + GREETING_LIMIT);
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
        let Some(stream) = self.streams.get(key).filter(|stream| !stream.is_closing) else { return };
        let (is_expected, peer_pid) = (matches!(stream.role, Role::Expected), stream.peer_pid);
        let Message::Hello(hello) = message else {
            return self.refuse(key, "the first message must be a greeting: this is no client of Oxiray");
        };
        let Hello { token, driver, node, returning, reads_only } = *hello;
        if !is_expected && !self.listener.is_token(&token) {
            return self
                .refuse(key, "the token is not this session's: read it from session.json in the session's directory");
        }
        let head = self.core.head_key();
        if head.is_some() && node.is_some() {
            let text = format!(
                "this is a member of the cluster at {} and not a cluster of its own: join there",
                self.membership.address
            );
            return self.refuse(key, &text);
        }
        match (driver, node) {
            (Some(driver), _) => self.admit_driver(key, driver, peer_pid, is_expected, returning.as_ref()),
            (None, Some(node)) => self.admit_member(key, &node, peer_pid),
            (None, None) => {
                if let Some(head) = head {
                    self.admit_proxied_client((head, key), None, None, Rights::of(reads_only));
                } else if let Some(stream) = self.streams.get_mut(key) {
                    stream.connection.prove();
                    stream.role = Role::Visitor(Rights::of(reads_only));
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
            Some(head) => self.admit_proxied_client((head, key), Some(driver), pidfd, Rights::All),
            None => self.become_driver(key, driver, pidfd, returning),
        }
    }

    pub(super) fn refuse(&mut self, key: Key, text: &str) {
        let line = format!("client {key} was refused: {text}");
        match self.streams.get(key).map(|stream| &stream.role) {
            Some(Role::Newcomer(_)) => self.turned_away(line),
            _ => self.log.line(&line),
        }
        self.queue(key, &Refused { text: text.to_owned() }.into(), Vec::new());
        self.close_when_sent(key);
    }

    /// When the longest-waiting newcomer has to have greeted, the door is to be opened, or the log to be told.
    pub(super) fn admission_deadline(&self) -> Option<Instant> {
        self.streams.newcomers().map(|(until, _)| until).chain(self.listener.deadline()).min()
    }

    pub(super) fn end_slow_newcomers(&mut self) {
        let is_late = |(until, key): (Instant, Key)| (until <= self.turn.now).then_some(key);
        for key in self.streams.newcomers().filter_map(is_late).collect::<Vec<_>>() {
            self.turned_away(format!("client {key} did not greet within {} s", GREETING_LIMIT.as_secs()));
            self.stream_over(key);
        }
    }
}
