//! Drivers and the command line on members' machines: clients of the head whose streams end at another node.
//!
//! - PROXIED_CLIENT-1: a proxied client is routed like a worker of its member, and is gone with it.

use super::HeadCore;
use super::validation::ProtocolError;
use crate::members::ProxiedClient;
use oxiray_ids::WorkerNumber;
use oxiray_machine::Key;
use oxiray_wire::message::{ProxiedClientJoined, Refused};

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
        self.members.proxied_clients.insert(key, proxied_client);
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
        if let Some(told) =
            self.members.draining_of(member, self.clock.now).filter(|_| proxied_client == ProxiedClient::Driver)
        {
            self.send(key, told);
        }
        Ok(())
    }

    /// The proxied client of a member is gone.
    pub(super) fn proxied_client_left(&mut self, member: Key, number: WorkerNumber) {
        let known = self.members.process_of(member, number);
        if let Some(key) = known.filter(|key| self.members.proxied_clients.contains_key(key)) {
            self.proxied_client_gone(key);
            self.members.remove_route(key);
        }
    }
}
