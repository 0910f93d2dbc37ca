//! Drivers and the command line on members' machines: clients of the head whose streams end at another node.
//!
//! - PROXIED_CLIENT-1: a proxied client is routed like a worker of its member, and is gone with it.

use super::validation::ProtocolError;
use super::{HeadCore, Key};
use oxiray_ids::{JobId, WorkerId};
use oxiray_wire::message::{ProxiedClientJoined, Refused, Welcome};
use std::collections::BTreeMap;

/// The proxied clients of all members.
#[derive(Debug, Default)]
pub(super) struct ProxiedClients {
    by_key: BTreeMap<Key, ProxiedClient>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProxiedClient {
    Driver,
    /// The command line.
    Visitor,
}

impl HeadCore {
    /// A member let somebody in.
    pub(super) fn proxied_client_joined(
        &mut self,
        member: Key,
        said: ProxiedClientJoined,
    ) -> Result<(), ProtocolError> {
        if !self.members.by_key.contains_key(&member) {
            return Ok(());
        }
        let number = self.new_number(member, said.proxied_client)?;
        let key = self.new_key();
        self.members.add_route(key, member, number);
        let proxied_client = if said.driver.is_some() { ProxiedClient::Driver } else { ProxiedClient::Visitor };
        self.members.proxied_clients.by_key.insert(key, proxied_client);
        if let (Some(driver), Some(who)) = (&said.driver, &said.returning) {
            if let Err(text) = self.resume_driver(key, driver.clone(), who) {
                self.send(key, Refused { text });
                return Ok(());
            }
        } else if let Some(driver) = said.driver {
            self.log(format!("driver {key} joins by member {member}: process {}", driver.pid));
            self.driver_joined(key, driver);
        }
        // Whoever comes, or comes back, hears what those there were told before.
        if let Some(told) = self.draining_of(member).filter(|_| proxied_client == ProxiedClient::Driver) {
            self.send(key, told);
        }
        Ok(())
    }

    /// The proxied client of a member is gone.
    pub(super) fn proxied_client_left(&mut self, member: Key, number: u64) {
        let known = self.process_of(member, number);
        if let Some(key) = known.filter(|key| self.members.proxied_clients.by_key.contains_key(key)) {
            self.proxied_client_gone(key);
            self.members.remove_route(key);
        }
    }

    /// Whether it is the command line, which asks through a member.
    pub(crate) fn is_visiting(&self, key: Key) -> bool {
        self.members.proxied_clients.by_key.get(&key) == Some(&ProxiedClient::Visitor)
    }

    /// PROXIED_CLIENT-1: a member is about to be forgotten.
    pub(super) fn proxied_clients_gone(&mut self, member: Key) {
        let of_member = |key: &Key| self.route(*key).is_some_and(|(found, _)| found == member);
        for key in self.members.proxied_clients.by_key.keys().copied().filter(of_member).collect::<Vec<_>>() {
            self.proxied_client_gone(key);
        }
    }

    fn proxied_client_gone(&mut self, key: Key) {
        match self.members.proxied_clients.by_key.remove(&key) {
            Some(ProxiedClient::Driver) => self.driver_left(key),
            Some(ProxiedClient::Visitor) => self.census_without(key),
            None => {}
        }
    }

    /// What a driver is told that is let in: the facts of the node that it is on.
    pub(super) fn welcome_driver(&mut self, key: Key, id: WorkerId, job: JobId) -> Welcome {
        let mut welcome = self.welcome(id, job);
        if let Some((member, _)) = self.route(key) {
            self.tell_job(member, job);
            welcome.comes_back = false;
            if let Some(member) = self.members.by_key.get(&member) {
                welcome.node = member.told.node;
                welcome.session.clone_from(&member.told.session);
                welcome.totals.clone_from(&member.told.totals);
            }
        }
        welcome
    }
}
