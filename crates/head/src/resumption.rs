//! Who is to come back to a head that goes on with what another wrote down, and what they claim that is not back yet.

use oxiray_ids::{JobId, LeaseNumber, NodeId, WorkerId};
use oxiray_machine::Key;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long drivers have to come back.
const DRIVERS_LIMIT: Duration = Duration::from_secs(10);
/// How long clients have to tell everything, once all that are awaited have come or are given up.
const TELLING_LIMIT: Duration = Duration::from_secs(30);

/// The lease of a worker that its node says is leased, until its owner claims it.
pub(crate) const UNCLAIMED: u64 = 0;

/// The first number that a head of that epoch names anything by.
pub(crate) const fn first_number(epoch: u64) -> u64 {
    epoch << 40
}

/// Those who are to come back; nobody any more, once all are there who will be.
#[derive(Debug, Default)]
pub(crate) struct Resumption {
    awaited: Option<Awaited>,
}

#[derive(Debug)]
struct Awaited {
    /// Nodes, and when each is given up.
    nodes: BTreeMap<NodeId, Instant>,
    /// Jobs whose drivers are awaited.
    drivers: BTreeSet<JobId>,
    drivers_until: Instant,
    /// Clients that are back and may not have told everything.
    unsettled: BTreeSet<Key>,
    /// Those of them that are to be killed then: what they own nobody else may know yet.
    doomed: BTreeSet<Key>,
    /// Leases of workers that are not back, and their owners.
    claims: BTreeMap<WorkerId, Claim>,
    until: Instant,
}

/// A lease that its owner has of a worker which is not back.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) owner: Key,
    pub(crate) lease: LeaseNumber,
    /// The owner can reach the worker no more, and awaits its end.
    pub(crate) is_to_end: bool,
}

/// Everybody is back who will be.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Those who were to be killed when they have told everything.
    pub(crate) doomed: BTreeSet<Key>,
    /// Leases of workers that did not come back.
    pub(crate) claims: Vec<Claim>,
}

impl Resumption {
    /// The nodes are awaited, each until then, and the drivers of these jobs. Returns when somebody may have to be given up.
    pub(crate) fn begin(
        &mut self,
        nodes: BTreeMap<NodeId, Instant>,
        drivers: BTreeSet<JobId>,
        now: Instant,
    ) -> Vec<Instant> {
        // Some drivers come by their members.
        let last = nodes.values().copied().fold(now + DRIVERS_LIMIT, Instant::max);
        let until = last + TELLING_LIMIT;
        let times = nodes.values().copied().chain([last, until]).collect();
        self.awaited = Some(Awaited {
            nodes,
            drivers,
            drivers_until: last,
            unsettled: BTreeSet::new(),
            doomed: BTreeSet::new(),
            claims: BTreeMap::new(),
            until,
        });
        times
    }

    /// Whether somebody is still awaited.
    pub(crate) fn is_under_way(&self) -> bool {
        self.awaited.is_some()
    }

    /// Whether the node had joined the last head and may still come.
    pub(crate) fn awaits_node(&self, node: NodeId) -> bool {
        self.awaited.as_ref().is_some_and(|awaited| awaited.nodes.contains_key(&node))
    }

    /// Until when nodes may come back, any of which could meet what none can now.
    pub(crate) fn nodes_until(&self) -> Option<Instant> {
        self.awaited.as_ref().and_then(|awaited| awaited.nodes.values().max().copied())
    }

    /// Whether the driver of a job may still come.
    pub(crate) fn awaits_driver(&self, job: JobId) -> bool {
        self.awaited.as_ref().is_some_and(|awaited| awaited.drivers.contains(&job))
    }

    /// The node is back, and has told what it has.
    pub(crate) fn node_came(&mut self, node: NodeId) {
        if let Some(awaited) = &mut self.awaited {
            awaited.nodes.remove(&node);
        }
    }

    /// The driver of a job is back, and has yet to tell what it has.
    pub(crate) fn driver_came(&mut self, job: JobId, key: Key) {
        if let Some(awaited) = &mut self.awaited {
            awaited.drivers.remove(&job);
            awaited.unsettled.insert(key);
        }
    }

    /// A worker is back, and has yet to tell what it has. Returns who claimed it.
    pub(crate) fn worker_came(&mut self, key: Key, id: WorkerId) -> Option<Claim> {
        let awaited = self.awaited.as_mut()?;
        awaited.unsettled.insert(key);
        awaited.claims.remove(&id)
    }

    /// An owner claims a worker that is not back. `false` where it will not come.
    pub(crate) fn claim(&mut self, owner: Key, lease: LeaseNumber, worker: WorkerId) -> bool {
        let Some(awaited) = self.awaited.as_mut().filter(|awaited| !awaited.nodes.is_empty()) else { return false };
        awaited.claims.insert(worker, Claim { owner, lease, is_to_end: false });
        true
    }

    /// The owner gives a lease up whose worker is not back.
    pub(crate) fn claim_no_longer(&mut self, owner: Key, lease: LeaseNumber) {
        if let Some(awaited) = &mut self.awaited {
            awaited.claims.retain(|_, claim| (claim.owner, claim.lease) != (owner, lease));
        }
    }

    /// The owner can reach a worker no more that is not back: it is told of the end once there is one, as of any other.
    pub(crate) fn claim_to_end(&mut self, owner: Key, lease: LeaseNumber) {
        let claims = self.awaited.iter_mut().flat_map(|awaited| awaited.claims.values_mut());
        for claim in claims.filter(|claim| (claim.owner, claim.lease) == (owner, lease)) {
            claim.is_to_end = true;
        }
    }

    /// Whether a worker that is to be killed has yet to tell what it owns; it is killed then.
    pub(crate) fn tells_before_it_dies(&mut self, worker: Key) -> bool {
        let Some(awaited) = &mut self.awaited else { return false };
        let is_awaited = awaited.unsettled.contains(&worker);
        if is_awaited {
            awaited.doomed.insert(worker);
        }
        is_awaited
    }

    /// Whether a worker is killed as soon as it has told what it owns.
    pub(crate) fn is_killed_when_it_has_told(&self, worker: Key) -> bool {
        self.awaited.as_ref().is_some_and(|awaited| awaited.doomed.contains(&worker))
    }

    /// Nothing more is awaited of a client. Returns whether it is to be killed now.
    pub(crate) fn settled(&mut self, client: Key) -> bool {
        let Some(awaited) = &mut self.awaited else { return false };
        awaited.unsettled.remove(&client);
        awaited.doomed.remove(&client)
    }

    /// A client is gone, and what it claimed is nobody's.
    pub(crate) fn client_gone(&mut self, client: Key) {
        if let Some(awaited) = &mut self.awaited {
            awaited.claims.retain(|_, claim| claim.owner != client);
        }
    }

    /// Gives up those whose time is over: returns the nodes, and the jobs whose drivers did not come.
    pub(crate) fn give_up(&mut self, now: Instant) -> (Vec<NodeId>, BTreeSet<JobId>) {
        let Some(awaited) = &mut self.awaited else { return (Vec::new(), BTreeSet::new()) };
        let late = awaited.nodes.iter().filter(|(_, until)| **until <= now).map(|(node, _)| *node);
        let late: Vec<NodeId> = late.collect();
        awaited.nodes.retain(|node, _| !late.contains(node));
        let drivers = if awaited.drivers_until <= now { std::mem::take(&mut awaited.drivers) } else { BTreeSet::new() };
        if awaited.until <= now {
            awaited.unsettled.clear();
        }
        (late, drivers)
    }

    /// Ends it when nobody is awaited any more.
    pub(crate) fn end(&mut self) -> Option<Ended> {
        let is_done = |of: &Awaited| of.nodes.is_empty() && of.drivers.is_empty() && of.unsettled.is_empty();
        let Awaited { doomed, claims, .. } = self.awaited.take_if(|awaited| is_done(awaited))?;
        Some(Ended { doomed, claims: claims.into_values().collect() })
    }
}
