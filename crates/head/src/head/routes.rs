//! Where clients are: workers of members, drivers, and proxied clients.

use super::members::{Members, OWN};
use super::{HeadCore, Key};
use oxiray_ids::{NodeId, WorkerId};

impl Members {
    /// From here on, `key` is what the member calls `number`. What its own machine has, the head calls the same.
    pub(super) fn add_route(&mut self, key: Key, member: Key, number: u64) {
        if member != OWN {
            self.routes.insert(key, (member, number));
        }
        if let Some(member) = self.by_key.get_mut(&member) {
            member.workers.insert(number, key);
        }
    }

    pub(super) fn remove_route(&mut self, key: Key) {
        let (member, number) = self.routes.remove(&key).unwrap_or((OWN, key));
        if let Some(member) = self.by_key.get_mut(&member) {
            member.workers.remove(&number);
        }
    }
}

impl HeadCore {
    /// The member that has the client, and what it calls it; nothing for one of the head's own machine.
    pub(crate) fn route(&self, client: Key) -> Option<(Key, u64)> {
        self.members.routes.get(&client).copied()
    }

    /// The member that a client's process runs on.
    pub(super) fn member_with(&self, client: Key) -> Key {
        self.route(client).map_or(OWN, |(member, _)| member)
    }

    /// The node that a client's process runs on.
    pub(super) fn node_of(&self, client: Key) -> NodeId {
        self.members.by_key.get(&self.member_with(client)).map_or(self.own.plan().node, |member| member.view.node)
    }

    /// The address of the node that a client's process runs on.
    pub(super) fn ip_of(&self, client: Key) -> &str {
        self.members.by_key.get(&self.member_with(client)).map_or(&self.own.plan().ip, |member| &member.told.ip)
    }

    /// The node that a worker runs on; this one where the worker is not known any more.
    pub(super) fn node_of_worker(&self, worker: WorkerId) -> NodeId {
        self.clients.keys.get(&worker).map_or(self.own.plan().node, |key| self.node_of(*key))
    }
}
