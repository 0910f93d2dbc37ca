//! Drivers and the command line on members' machines: clients of the head whose streams end at another node.
//!
//! - GUEST-1: a guest is routed like a worker of its member, and is gone with it.

use super::door::ProtocolError;
use super::{HeadCore, Key};
use oxiray_ids::{JobId, WorkerId};
use oxiray_wire::message::{GuestJoined, Refused, Welcome};
use std::collections::BTreeMap;

/// The guests of all members.
#[derive(Debug, Default)]
pub(super) struct Guests {
    by_key: BTreeMap<Key, Guest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guest {
    Driver,
    /// The command line.
    Visitor,
}

impl HeadCore {
    /// A member let somebody in.
    pub(super) fn guest_joined(&mut self, member: Key, said: GuestJoined) -> Result<(), ProtocolError> {
        if !self.members.by_key.contains_key(&member) {
            return Ok(());
        }
        let number = self.new_number(member, said.guest)?;
        let key = self.new_key();
        self.members.add_route(key, member, number);
        let guest = if said.driver.is_some() { Guest::Driver } else { Guest::Visitor };
        self.members.guests.by_key.insert(key, guest);
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
        if let Some(told) = self.draining_of(member).filter(|_| guest == Guest::Driver) {
            self.send(key, told);
        }
        Ok(())
    }

    /// The guest of a member is gone.
    pub(super) fn guest_left(&mut self, member: Key, number: u64) {
        let known = self.process_of(member, number);
        if let Some(key) = known.filter(|key| self.members.guests.by_key.contains_key(key)) {
            self.guest_gone(key);
            self.members.remove_route(key);
        }
    }

    /// Whether it is the command line, which asks through a member.
    pub(crate) fn is_visiting(&self, key: Key) -> bool {
        self.members.guests.by_key.get(&key) == Some(&Guest::Visitor)
    }

    /// GUEST-1: a member is about to be forgotten.
    pub(super) fn guests_gone(&mut self, member: Key) {
        let of_member = |key: &Key| self.route(*key).is_some_and(|(found, _)| found == member);
        for key in self.members.guests.by_key.keys().copied().filter(of_member).collect::<Vec<_>>() {
            self.guest_gone(key);
        }
    }

    fn guest_gone(&mut self, key: Key) {
        match self.members.guests.by_key.remove(&key) {
            Some(Guest::Driver) => self.driver_left(key),
            Some(Guest::Visitor) => self.census_without(key),
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
