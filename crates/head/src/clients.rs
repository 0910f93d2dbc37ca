//! The processes with a runtime that are connected: drivers, and workers that were assigned.

use oxiray_ids::{JobId, LeaseNumber, LeaseRequestNumber, WorkerId};
use oxiray_machine::Key;
use std::collections::BTreeMap;

/// A process with a runtime that is connected: a driver, or a worker that was assigned.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: WorkerId,
    pub(crate) job: JobId,
    /// The key of each of its leases, by the number that it knows it by.
    pub(crate) leases: BTreeMap<LeaseNumber, u64>,
    /// Its requests that wait, by their number.
    pub(crate) waiting: BTreeMap<LeaseRequestNumber, u64>,
}

/// All that are connected.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    pub(crate) by_key: BTreeMap<Key, Client>,
    /// The key of each by its identifier, and of workers that are connected or not.
    pub(crate) keys: BTreeMap<WorkerId, Key>,
}

impl Clients {
    /// Somebody is connected from here on.
    pub(crate) fn join(&mut self, key: Key, id: WorkerId, job: JobId) {
        self.keys.insert(id, key);
        self.by_key.insert(key, Client { id, job, leases: BTreeMap::new(), waiting: BTreeMap::new() });
    }

    /// Who it is, where it is connected.
    pub(crate) fn id_of(&self, key: Key) -> Option<WorkerId> {
        self.by_key.get(&key).map(|client| client.id)
    }

    /// The job that it works for, where it is connected.
    pub(crate) fn job_of(&self, key: Key) -> Option<JobId> {
        self.by_key.get(&key).map(|client| client.job)
    }

    /// Its key, where the process is there.
    pub(crate) fn key_of(&self, id: WorkerId) -> Option<Key> {
        self.keys.get(&id).copied()
    }

    /// A request of a client waits no more.
    pub(crate) fn waits_no_more(&mut self, client: Key, request: LeaseRequestNumber) -> Option<u64> {
        self.by_key.get_mut(&client)?.waiting.remove(&request)
    }
}
