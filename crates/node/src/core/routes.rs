//! Where the clients of members are: workers there, and guests.

use super::members::{Member, Members};
use super::{Core, Key};
use oxiray_ids::{NodeId, WorkerId};

impl Members {
    /// From here on, `key` is what the member calls `number`.
    pub(crate) fn add_route(&mut self, key: Key, member: Key, number: u64) {
        self.routes.insert(key, (member, number));
        if let Some(member) = self.by_key.get_mut(&member) {
            member.workers.insert(number, key);
        }
    }

    pub(crate) fn remove_route(&mut self, key: Key) {
        let Some((member, number)) = self.routes.remove(&key) else { return };
        if let Some(member) = self.by_key.get_mut(&member) {
            member.workers.remove(&number);
        }
    }
}

impl Core {
    /// The member that has the worker, and what it calls it; nothing for a worker or client of this node.
    pub fn route(&self, worker: Key) -> Option<(Key, u64)> {
        self.members.routes.get(&worker).copied()
    }

    /// The member that a client's process runs on; nothing for this node.
    pub(crate) fn member_with(&self, client: Key) -> Option<&Member> {
        self.route(client).and_then(|(member, _)| self.members.by_key.get(&member))
    }

    /// The node that a client's process runs on.
    pub(crate) fn node_of(&self, client: Key) -> NodeId {
        self.member_with(client).map_or(self.plan.node, |member| member.view.node)
    }

    /// The address of this node.
    pub fn own_ip(&self) -> &str {
        &self.plan.ip
    }

    /// The address of the node that a client's process runs on.
    pub(crate) fn ip_of(&self, client: Key) -> &str {
        self.member_with(client).map_or(&self.plan.ip, |member| &member.told.ip)
    }

    /// The node that a worker runs on; this one where the worker is not known any more.
    pub(crate) fn node_of_worker(&self, worker: WorkerId) -> NodeId {
        self.keys.get(&worker).map_or(self.plan.node, |key| self.node_of(*key))
    }
}
