//! Who is let in.
//!
//! - ADMIT-1: until a peer has shown the session's token, nothing but its greeting is read, no more than
//!   [`oxiray_wire::frame::HELLO_BYTES_LIMIT`] of it, for no longer than [`GREETING_LIMIT`].
//! - ADMIT-2: at most [`NEWCOMERS_MAX`] peers are in that state; more wait in the kernel's queue.

use super::streams::{Role, Stream};
use super::{Daemon, Token};
use crate::core::Key;
use oxiray_wire::message::{Driver, Hello, Refused, Returning};
use oxiray_wire::{Connection, Message};
use rustix::net::sockopt::socket_peercred;
use std::time::{Duration, Instant};

/// How long a newcomer has to greet.
pub(super) const GREETING_LIMIT: Duration = Duration::from_secs(5);
/// How many newcomers there may be at once.
pub(super) const NEWCOMERS_MAX: usize = 64;

impl Daemon {
    pub(super) fn admit(&mut self) {
        let newcomers = self.streams.values().filter(|stream| matches!(stream.role, Role::Newcomer(_))).count();
        for _ in newcomers..NEWCOMERS_MAX {
            match self.listener.accept() {
                Ok((socket, _)) => self.newcomer(socket.into()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) => return self.log.line(&format!("a newcomer cannot be accepted: {error}")),
            }
        }
        // ADMIT-2: the listener is watched again when one of them has greeted or is gone.
        self.poller.forget(&self.listener);
    }

    fn newcomer(&mut self, socket: std::os::fd::OwnedFd) {
        let own = rustix::process::geteuid();
        let (uid, pid) = match socket_peercred(&socket) {
            Ok(peer) => (peer.uid, peer.pid.as_raw_nonzero().get() as u32),
            Err(error) => return self.log.line(&format!("a newcomer has no credentials: {error}")),
        };
        if uid != own {
            return self.log.line(&format!("process {pid} of user {} was turned away", uid.as_raw()));
        }
        match Connection::unproven(socket) {
            Ok(connection) => {
                let key = self.core.new_key();
                let role = Role::Newcomer(self.now + GREETING_LIMIT);
                self.add_stream(key, Stream::new(connection, role, pid));
            }
            Err(error) => self.log.line(&format!("a newcomer's socket cannot be used: {error}")),
        }
    }

    /// The first message of a peer.
    pub(super) fn greeted(&mut self, key: Key, message: Message) {
        let Some(stream) = self.streams.get(&key) else { return };
        let (is_expected, peer_pid) = (matches!(stream.role, Role::Expected), stream.peer_pid);
        let Message::Hello(hello) = message else {
            return self.refuse(key, "the first message must be a greeting: this is no client of Oxiray");
        };
        let Hello { token, driver, node, returning } = *hello;
        if !is_expected && !same(token.as_bytes(), self.token.as_bytes()) {
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
        self.watch_listener();
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
        let pidfd = oxiray_processes::pidfd_of(driver.pid).ok();
        self.log.line(&format!("driver {key} joins: process {}", driver.pid));
        match self.core.head_key() {
            Some(head) => self.admit_guest(head, key, Some(driver), pidfd),
            None => self.become_driver(key, driver, pidfd, returning),
        }
    }

    pub(super) fn refuse(&mut self, key: Key, text: &str) {
        self.log.line(&format!("client {key} was refused: {text}"));
        self.queue(key, &Refused { text: text.to_owned() }.into(), Vec::new());
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.is_closing = true;
        }
    }

    /// When the longest-waiting newcomer has to have greeted.
    pub(super) fn admission_deadline(&self) -> Option<Instant> {
        let deadlines = self.streams.values().filter_map(|stream| match stream.role {
            Role::Newcomer(until) => Some(until),
            _ => None,
        });
        deadlines.min()
    }

    pub(super) fn end_slow_newcomers(&mut self) {
        let is_late = |stream: &Stream| matches!(stream.role, Role::Newcomer(until) if until <= self.now);
        let late: Vec<Key> = self.streams.iter().filter(|(_, stream)| is_late(stream)).map(|(key, _)| *key).collect();
        for key in &late {
            self.log.line(&format!("client {key} did not greet within {} s", GREETING_LIMIT.as_secs()));
            self.stream_over(*key);
        }
        if !late.is_empty() {
            self.watch_listener();
        }
    }

    fn watch_listener(&mut self) {
        // It may be watched already, which is as good.
        let _ = self.poller.watch(&self.listener, Token::Listener);
    }
}

/// Takes the same time wherever they differ.
fn same(given: &[u8], wanted: &[u8]) -> bool {
    let difference = given.iter().zip(wanted).fold(0, |sum, (given, wanted)| sum | (given ^ wanted));
    given.len() == wanted.len() && difference == 0
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn tokens_are_equal_only_in_whole() {
        assert!(same(b"secret", b"secret"));
        for other in [&b"secres"[..], b"secre", b"secrets", b""] {
            assert!(!same(other, b"secret"));
        }
    }
}
