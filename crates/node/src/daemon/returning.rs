//! A member whose head is away: its work goes on while it dials again, until its lease is over.
//!
//! - RETURN-1: a member serves a head that comes after its own, and none that is older or the same: that one has given
//!   up, or will, what came on the stream that broke.
//! - RETURN-2: what workers say for the head between two heads is dropped. Each tells the new one where it stands before
//!   anything else that it says is passed on.

use super::Daemon;
use crate::arrival::rejoin;
use crate::join::Way;
use crate::membership::{Dialling, HeadReconnect};
use crate::streams::{Role, Stream};
use oxiray_machine::Key;
use oxiray_visitor::{Description, session};
use oxiray_wire::message::{HeadToNewcomer, Hello, Newcomer, NodeAdmitted};
use oxiray_wire::{Connection, Message};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

/// How long a member on the head's machine waits for it. Others have a lease.
const NEAR_LIMIT: Duration = Duration::from_secs(10);
impl Daemon {
    /// The stream to the head is over. Where that is to come back, the node goes on without it for now.
    pub(super) fn head_silent(&mut self) {
        if self.lifetime.is_stopping() {
            return;
        }
        if self.core.epoch() == 0 {
            return self.head_stays_away("the head is gone");
        }
        self.log.line("the stream to the head is over: work goes on, and the head is looked for");
        self.membership.away = Some(HeadReconnect::new(self.turn.now));
    }

    /// Looks for the head, where it is time.
    pub(super) fn look_for_head(&mut self) {
        if self.lifetime.is_stopping() {
            return;
        }
        let Some((way, since)) = self.membership.is_to_look(self.turn.now) else { return };
        match way {
            Way::Near(_) if self.turn.now >= since + NEAR_LIMIT => {
                self.head_stays_away("the head did not come back within 10 s");
            }
            Way::Near(directory) => self.dial_near(&directory),
            Way::Far { address, token_file } => self.dial_far(address, token_file),
        }
    }

    fn dial_near(&mut self, directory: &Path) {
        if self.membership.away.as_ref().is_none_or(HeadReconnect::is_answered) {
            return;
        }
        let Some(description) = Description::read(directory) else { return };
        let connected = session::connect(directory).ok().and_then(|socket| Connection::new(socket.into()).ok());
        let Some(mut connection) = connected else { return };
        let node = Some(Newcomer { pid: std::process::id() });
        connection.send(&Hello { token: description.token, node, ..Hello::default() });
        self.greet_head(connection);
    }

    /// It blocks, so that a thread does it.
    fn dial_far(&mut self, address: String, token_file: PathBuf) {
        let Some(away) = self.membership.away.as_mut().filter(|away| !away.is_answered()) else { return };
        match away.take_call() {
            Dialling::UnderWay => {}
            Dialling::Nobody => {
                let (sender, receiver) = channel();
                let node = self.core.own_node();
                let before = self.network.as_ref().map(|network| network.badge.credentials.last_certificate());
                let dial = move || drop(sender.send(rejoin(&address, &token_file, node, before.as_ref())));
                if oxiray_threads::spawn(oxiray_threads::RETURN, dial).is_ok() {
                    away.calls(receiver);
                }
            }
            Dialling::Over(joined) => {
                let carried = joined.and_then(|joined| self.network.as_mut()?.carry(*joined).ok());
                if let Some(connection) = carried.and_then(|local| Connection::new(local).ok()) {
                    self.greet_head(connection);
                }
            }
        }
    }

    fn greet_head(&mut self, connection: Connection) {
        let key = self.core.new_key();
        self.add_stream(key, Stream::new(connection, Role::Returning, 0));
        self.streams.is_to_flush(key);
        if let Some(away) = &mut self.membership.away {
            away.answered(self.streams.get(key).map(|_| key));
        }
    }

    /// Whoever answers at the head's address does not let this node in, or is gone again.
    pub(super) fn head_not_back(&mut self, key: Key) {
        if let Some(away) = &mut self.membership.away {
            away.hung_up(key);
        }
    }

    /// What is said by whoever answers at the head's address.
    pub(super) fn head_answers(&mut self, key: Key, message: &HeadToNewcomer) {
        match message {
            HeadToNewcomer::NodeAdmitted(admitted) if admitted.epoch > self.core.epoch() => {
                self.head_is_back(key, admitted);
            }
            HeadToNewcomer::NodeAdmitted(_) => {
                self.stream_over(key);
                self.head_stays_away("the head did not go away, and only the stream to it broke");
            }
            HeadToNewcomer::Refused(_) => self.stream_over(key),
        }
    }

    fn head_is_back(&mut self, key: Key, admitted: &NodeAdmitted) {
        let Some(away) = self.membership.away.take() else { return };
        if let Some(stream) = self.streams.get_mut(key) {
            stream.role = Role::Head;
        }
        let seconds = away.since().elapsed().as_secs_f64();
        self.log.line(&format!("the head is back after {seconds:.1} s, as number {}", admitted.epoch));
        let listens = self.network.as_ref().map(|network| network.address().to_string()).unwrap_or_default();
        let stored = self.objects.store.objects().collect();
        for worker in self.core.serve_next_head(key, admitted.epoch, listens, stored) {
            self.await_word_of(worker);
        }
        // The head knows this node before its proxied clients.
        self.carry_out();
        self.proxied_clients_return(key, admitted.epoch);
        self.tell_head_of_unshown(key);
        self.workers.logs.tell_failed(admitted.keeps_logs);
        self.ask_next_head(key);
        self.objects.fetches.ask_again();
    }

    /// RETURN-2.
    pub(super) fn await_word_of(&mut self, client: Key) {
        if let Some(stream) = self.streams.get_mut(client) {
            stream.is_unresumed = true;
        }
    }

    /// RETURN-2: whether what a worker says is for the head that there is now.
    pub(super) fn is_for_this_head(&mut self, worker: Key, message: &Message) -> bool {
        let epoch = self.core.epoch();
        let Some(stream) = self.streams.get_mut(worker) else { return true };
        if matches!(message, Message::ClientResume(told) if told.epoch == epoch) {
            stream.is_unresumed = false;
        }
        !stream.is_unresumed
    }

    /// The work of this node ends.
    pub(super) fn head_stays_away(&mut self, why: &str) {
        self.membership.away = None;
        if self.network.is_some() {
            return self.lose_head(why);
        }
        self.log.line(&format!("{why}, and this node ends"));
        self.lifetime.stop();
    }
}
