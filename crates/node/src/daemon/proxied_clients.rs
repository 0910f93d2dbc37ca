//! Drivers and the command line that connect to a member: clients of its head.
//!
//! What is about this node's own store stays here; all else is passed on under the proxied client's number.

use super::Daemon;
use crate::membership::ProxiedClient;
use crate::poller::Token;
use crate::streams::{Rights, Role};
use oxiray_ids::WorkerNumber;
use oxiray_machine::Key;
use oxiray_wire::Message;
use oxiray_wire::message::{
    Driver, HeadBack, ProxiedClientClose, ProxiedClientJoined, ProxiedClientLeft, VisitorToDaemon,
};
use std::os::fd::OwnedFd;

impl Daemon {
    /// Somebody who may come in came to this member.
    pub(super) fn admit_proxied_client(
        &mut self,
        (head, key): (Key, Key),
        driver: Option<Driver>,
        pidfd: Option<OwnedFd>,
        rights: Rights,
    ) {
        if let Some(pidfd) = &pidfd
            && let Err(error) = self.poller.watch(pidfd, Token::Driver(key))
        {
            self.log.line(&format!("the process of driver {key} cannot be watched: {error}"));
        }
        let Some(stream) = self.streams.get_mut(key) else { return };
        stream.connection.prove();
        stream.role = if driver.is_some() { Role::Driver(pidfd) } else { Role::Visitor(rights) };
        if let Some(driver) = &driver {
            self.membership.proxied_clients.insert(key, ProxiedClient { driver: driver.clone(), who: None });
        }
        self.queue(
            head,
            &ProxiedClientJoined { proxied_client: WorkerNumber(key), driver, returning: None }.into(),
            Vec::new(),
        );
    }

    /// Another head is to know the proxied clients, too. What the command line asked is not asked again.
    pub(super) fn proxied_clients_return(&mut self, head: Key, epoch: u64) {
        let visitors = self.streams.iter().filter(|(_, stream)| matches!(stream.role, Role::Visitor(_)));
        for key in visitors.map(|(key, _)| key).collect::<Vec<_>>() {
            self.stream_over(key);
        }
        for (proxied_client, told) in std::mem::take(&mut self.membership.proxied_clients) {
            let (driver, returning) = (Some(told.driver.clone()), told.who.clone());
            self.queue(
                head,
                &ProxiedClientJoined { proxied_client: WorkerNumber(proxied_client), driver, returning }.into(),
                Vec::new(),
            );
            if told.who.is_some() {
                self.queue(proxied_client, &HeadBack { epoch }.into(), Vec::new());
                self.await_word_of(proxied_client);
            }
            self.membership.proxied_clients.insert(proxied_client, told);
        }
    }

    /// The command line asks a member. What is asked of the session is asked of this one; else of the cluster.
    pub(super) fn proxied_client_visits(&mut self, head: Key, key: Key, message: VisitorToDaemon) {
        match message {
            VisitorToDaemon::Session(asked) => self.session_asked(&asked),
            VisitorToDaemon::Report(asked) => self.pass_on(head, key, &asked.into()),
            VisitorToDaemon::Head(message) => self.pass_on(head, key, &message.into()),
        }
    }

    /// Passes on what a client or a visitor of this member says.
    pub(super) fn pass_on(&mut self, head: Key, from: Key, message: &Message) {
        self.queue(head, &message.relayed(WorkerNumber(from)).into(), Vec::new());
    }

    /// The stream of a proxied client of this member is over.
    pub(super) fn proxied_client_over(&mut self, head: Key, key: Key) {
        self.membership.proxied_clients.remove(&key);
        self.queue(head, &ProxiedClientLeft { proxied_client: WorkerNumber(key) }.into(), Vec::new());
        self.objects.client_gone(key);
    }

    /// The head has nothing more to say to the proxied client.
    pub(super) fn close_proxied_client(&mut self, said: &ProxiedClientClose) {
        self.close_when_sent(said.proxied_client.0);
    }

    /// Closes a client's stream when everything is sent, wherever it ends.
    pub(super) fn close_when_sent(&mut self, client: Key) {
        if let Some((member, proxied_client)) = self.core.route(client) {
            return self.queue(member, &ProxiedClientClose { proxied_client }.into(), Vec::new());
        }
        self.streams.close_when_sent(client);
    }

    /// The stream by which a client is told something: its own, or that of its member.
    pub(super) fn way_to(&self, client: Key) -> Key {
        self.core.route(client).map_or(client, |(member, _)| member)
    }
}
