//! A head that came back: who is awaited, and what they tell.
//!
//! What must outlive a head it has read in its journal; the rest is told again, by members first and then by each client
//! (decision 9).
//!
//! - RESUME-1: until everybody who is awaited has told what there is or is given up, nothing is deleted for want of
//!   holders, and nobody is called dead who may still come.
//! - RESUME-2: whoever was given up is not taken back: a node ends its work before that, and joins as another.
//! - RESUME-3: a worker that nobody claims, an actor that nobody knows, and whoever runs within a group that is removed,
//!   is killed.

use super::fairness::{Held, Holder};
use super::leases::Lease;
use super::members::OWN;
use super::records::Row;
use super::restarts::death;
use super::validation::ProtocolError;
use super::workers::{Duty, Worker};
use super::{Client, GroupMembership, HeadCore, Key};
use crate::{Connect, GroupPhase, JobEnd};
use bytes::Bytes;
use oxiray_ids::{ActorId, JobId, NodeId, PlacementGroupId, WorkerId};
use oxiray_machine::demand;
use oxiray_wire::message::{
    ActorDied, ActorRestarting, ClientResume, ClientSettled, Driver, Failure, GroupRelease, JobOver, LeaseEnded,
    NodeResume, NodeState, Refused, Returning, ValueWanted, WorkerHeld,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The first number that a head of that epoch names anything by.
pub(super) const fn first_number(epoch: u64) -> u64 {
    epoch << 40
}

/// How long drivers have to come back.
pub(super) const DRIVERS_LIMIT: Duration = Duration::from_secs(10);
/// How long clients have to tell everything, once all that are awaited have come or are given up.
const TELLING_LIMIT: Duration = Duration::from_secs(30);
/// The lease of a worker that its node says is leased, until its owner claims it.
const UNCLAIMED: u64 = 0;

/// Who is to come back to this head.
#[derive(Debug)]
pub(super) struct Resumption {
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
struct Claim {
    owner: Key,
    lease: u64,
    /// The owner can reach the worker no more, and awaits its end.
    is_to_end: bool,
}

impl HeadCore {
    /// This head has read its journal: the nodes are awaited, each until then, and the drivers of all jobs.
    pub(crate) fn begin_resumption(&mut self, nodes: BTreeMap<NodeId, Instant>) {
        let drivers = self.jobs.details.iter().filter(|(_, detail)| !detail.is_over).map(|(job, _)| *job).collect();
        // Some come by their members.
        let last = nodes.values().copied().fold(self.clock.now + DRIVERS_LIMIT, Instant::max);
        let drivers_until = last;
        for at in nodes.values().copied().chain([last, last + TELLING_LIMIT]) {
            self.alarm_at(at, super::Alarm::Resumption);
        }
        self.objects.known.begin_gathering();
        let (unsettled, doomed, claims) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        let until = last + TELLING_LIMIT;
        self.durable.resumption = Some(Resumption { nodes, drivers, drivers_until, unsettled, doomed, claims, until });
        self.end_resumption_when_done();
    }

    /// Whether a process lives, as far as can be known (RESUME-1).
    pub(super) fn may_live(&self, client: WorkerId) -> bool {
        self.clients.keys.contains_key(&client) || self.durable.resumption.is_some()
    }

    /// Whether the node had joined the last head and may still come.
    pub(super) fn is_awaited(&self, node: NodeId) -> bool {
        self.durable.resumption.as_ref().is_some_and(|resumption| resumption.nodes.contains_key(&node))
    }

    /// A node that served the last head.
    pub(super) fn resume_member(&mut self, key: Key, told: NodeResume) -> Result<(), ProtocolError> {
        let described = told.node.ok_or(ProtocolError::Description)?;
        let (node, state) = (described.node, described.state.clone());
        let draining = described.draining.clone();
        if !self.is_awaited(node) {
            let text = "this head does not wait for the node any more: it is to end its work and to join anew".into();
            self.send(key, Refused { text });
            return Ok(());
        }
        self.member_joined(key, described)?;
        self.log(format!("node {node} is back with {} workers", told.workers.len()));
        self.resume_jobs(key, &told.jobs);
        self.resume_bundles(key, node, &state.unwrap_or_default());
        for worker in &told.workers {
            self.resume_worker(key, worker)?;
        }
        for object in &told.stored {
            self.found_on(key, *object);
        }
        if let Some(resumption) = &mut self.durable.resumption {
            resumption.nodes.remove(&node);
        }
        self.search_on(key);
        self.end_searches_that_are_answered();
        self.actors_missing(node);
        self.pending.is_due = true;
        self.drain_again(key, draining);
        self.end_resumption_when_done();
        Ok(())
    }

    fn resume_jobs(&mut self, member: Key, jobs: &[JobId]) {
        for job in jobs.iter().copied() {
            if self.jobs.details.contains_key(&job) {
                if let Some(member) = self.members.by_key.get_mut(&member) {
                    member.jobs.insert(job);
                }
            } else {
                self.order_member(member, JobOver { job });
            }
        }
    }

    /// What the member set aside for groups that this head does not know it for is given back.
    fn resume_bundles(&mut self, member: Key, node: NodeId, state: &NodeState) {
        self.member_changed(member, state);
        let told: BTreeSet<(PlacementGroupId, usize)> =
            state.bundles.iter().map(|of| (of.group, of.bundle as usize)).collect();
        let living = self.groups.known.iter().filter(|group| !matches!(group.phase, GroupPhase::Removed(_)));
        let expected: BTreeSet<(PlacementGroupId, usize)> = living
            .flat_map(|group| {
                let there = group.nodes.iter().enumerate().filter(|(_, on)| **on == Some(node));
                there.map(|(bundle, _)| (group.description.id, bundle))
            })
            .collect();
        let mut released: BTreeMap<PlacementGroupId, Vec<u32>> = BTreeMap::new();
        // A group with a bundle that is not there after all is placed anew, as far as it was on this node.
        let is_whole = expected.is_subset(&told);
        for (group, bundle) in told.iter().filter(|of| !is_whole || !expected.contains(*of)) {
            released.entry(*group).or_default().push(*bundle as u32);
        }
        for (group, bundles) in released {
            self.order_member(member, GroupRelease { group, bundles });
        }
        if !is_whole {
            self.bundles_lost(member, node);
        }
    }

    fn resume_worker(&mut self, member: Key, told: &WorkerHeld) -> Result<(), ProtocolError> {
        let number = self.new_number(member, told.number)?;
        let (id, job) = (self.new_worker_id(told.id)?, told.job);
        let key = self.new_key();
        // The word that the group is removed may have been lost with the last head.
        let is_homeless = told.group.is_some_and(|group| !self.groups.reservations.contains_key(&group));
        let mut worker = Worker::new(id, job, told.pid);
        worker.once = told.once;
        worker.outlives_job = told.outlives_job;
        worker.label.clone_from(&told.label);
        worker.home = told.group.map(|group| GroupMembership { group, captures: told.captures });
        worker.duty = if told.is_leased { Duty::Leased(UNCLAIMED) } else { Duty::Idle };
        self.workers.starting += usize::from(told.pid == 0);
        if let Some(demand) = demand(&told.holds).filter(|_| worker.home.is_none()) {
            let held = Held { job, demands: vec![demand], is_lease: told.is_leased };
            let node = self.members.by_key.get(&member).map_or(self.own.plan().node, |member| member.view.node);
            self.pending.fairness.holds(Holder::Worker(key), held, node, self.clock.now);
            self.pending.fairness.lends_cpu(key, told.lends_cpu);
        }
        self.workers.by_key.insert(key, worker);
        self.members.add_route(key, member, number);
        self.join(key, id, job);
        if let Some(resumption) = &mut self.durable.resumption {
            resumption.unsettled.insert(key);
            if let Some(Claim { owner, lease, is_to_end }) = resumption.claims.remove(&id) {
                self.claim(owner, lease, id);
                if is_to_end {
                    self.kill_worker(key);
                }
            }
        }
        if is_homeless {
            self.kill_worker(key);
        } else if let Some(actor) = told.actor {
            self.resume_actor(key, actor, told.is_ready);
        } else if !self.jobs.details.contains_key(&job) {
            self.kill_worker(key);
        }
        Ok(())
    }

    fn resume_actor(&mut self, worker: Key, id: ActorId, is_ready: bool) {
        // DOOR-2: what was written down of where it was is what the last head had ordered before anybody heard of it.
        let node = self.node_of(worker);
        let is_its = self.posted_to(node).contains(&id)
            && self.actors.known.get(id).is_some_and(|actor| actor.worker().is_none() && !actor.is_dead());
        if !is_its {
            return self.kill_worker(worker);
        }
        self.stop_waiting(id);
        self.actor_has(id, worker);
        self.touch(Row::Actor(id));
        if is_ready {
            self.actor_ready(worker);
        }
    }

    /// The actors that had a process on a node which is back without it, or does not come back.
    fn actors_missing(&mut self, node: NodeId) {
        for id in self.posted_to(node) {
            self.stop_waiting(id);
            self.touch(Row::Actor(id));
            let text = "its process ended while the head of its cluster was away.".to_owned();
            let Some(lost) = self.actors.known.missing(id) else {
                self.actor_died(id, &death(&text));
                continue;
            };
            let failure = Some(Failure { code: "actor_unavailable".into(), text, cause: Bytes::new() });
            let said = ActorRestarting { actor: id, failure, ..ActorRestarting::default() };
            for client in lost.clients {
                if let Some(key) = self.clients.keys.get(&client).copied() {
                    self.send(key, said.clone());
                }
            }
            self.restart_when_due(id);
        }
    }

    /// A driver that the last head had let in. The error says why it is not.
    pub(crate) fn resume_driver(&mut self, key: Key, told: Driver, who: &Returning) -> Result<(), String> {
        let (id, job) = (who.worker, who.job);
        let is_awaited = self.durable.resumption.as_ref().is_some_and(|resumption| resumption.drivers.contains(&job));
        let Some(detail) = self.jobs.details.get_mut(&job).filter(|detail| is_awaited && detail.driver_id == id) else {
            return Err("its job is over: the head of this cluster was away, and did not wait for it any longer".into());
        };
        detail.driver = key;
        detail.told = told;
        if let Some(resumption) = &mut self.durable.resumption {
            resumption.drivers.remove(&job);
            resumption.unsettled.insert(key);
        }
        self.join(key, id, job);
        let welcome = self.welcome_driver(key, id, job);
        self.send(key, welcome);
        if self.route(key).is_none() {
            self.tell_job(OWN, job);
        }
        self.prepare_for_job(job);
        Ok(())
    }

    /// What a client has of others, the first that it says to this head.
    pub(super) fn resume_client(&mut self, from: Key, told: &ClientResume) {
        let Some(Client { id, .. }) = self.clients.by_key.get(&from) else { return };
        let id = *id;
        for held in &told.leases {
            self.claim(from, held.lease, held.worker);
        }
        for actor in told.actors.iter().copied() {
            let failure = match self.actors.known.connect(id, actor) {
                Connect::Now(_) | Connect::Later => continue,
                Connect::Dead(failure) => failure,
                Connect::Unknown => death("the head of its cluster knows nothing of it since it came back."),
            };
            self.send(from, ActorDied { actor, failure: Some(failure) });
        }
        for object in self.objects.known.awaited_of(id) {
            self.send(from, ValueWanted { object });
        }
    }

    /// A lease goes on where its worker does.
    fn claim(&mut self, owner: Key, lease: u64, worker: WorkerId) {
        if lease >= first_number(self.own.epoch()) {
            // This head has named it, or will: no lease that it knows of goes on under it.
            return self.claim_fails(owner, lease);
        }
        let Some(found) = self.clients.keys.get(&worker).copied() else {
            return match &mut self.durable.resumption {
                Some(resumption) if !resumption.nodes.is_empty() => {
                    resumption.claims.insert(worker, Claim { owner, lease, is_to_end: false });
                }
                _ => self.claim_fails(owner, lease),
            };
        };
        let (number, depth) =
            (self.new_key(), self.workers.by_key.get(&owner).map_or(0, |worker| worker.depth).saturating_add(1));
        let is_free = |worker: &&mut Worker| worker.duty == Duty::Leased(UNCLAIMED);
        let (Some(worker), Some(client)) =
            (self.workers.by_key.get_mut(&found).filter(is_free), self.clients.by_key.get_mut(&owner))
        else {
            return self.claim_fails(owner, lease);
        };
        if client.leases.contains_key(&lease) {
            return self.claim_fails(owner, lease);
        }
        // DOOR-2: what another owner calls by the same number stays that one's.
        let key = if self.workers.leases.contains_key(&lease) { number } else { lease };
        worker.duty = Duty::Leased(key);
        worker.depth = depth;
        client.leases.insert(lease, key);
        self.workers.leases.insert(key, Lease { owner, worker: found, number: lease });
    }

    /// The owner gives a lease up whose worker is not back.
    pub(super) fn claim_no_longer(&mut self, owner: Key, lease: u64) {
        if let Some(resumption) = &mut self.durable.resumption {
            resumption.claims.retain(|_, claim| (claim.owner, claim.lease) != (owner, lease));
        }
    }

    /// The owner can reach a worker no more that is not back: it is told of the end once there is one, as of any other.
    pub(super) fn claim_to_end(&mut self, owner: Key, lease: u64) {
        let claims = self.durable.resumption.iter_mut().flat_map(|resumption| resumption.claims.values_mut());
        for claim in claims.filter(|claim| (claim.owner, claim.lease) == (owner, lease)) {
            claim.is_to_end = true;
        }
    }

    /// Until when nodes may come back, any of which could meet what none can now.
    pub(super) fn nodes_awaited_until(&self) -> Option<Instant> {
        self.durable.resumption.as_ref().and_then(|resumption| resumption.nodes.values().max().copied())
    }

    fn claim_fails(&mut self, owner: Key, lease: u64) {
        let text = "its process ended while the head of its cluster was away".to_owned();
        self.send(owner, LeaseEnded { lease, text, node_died: true, ..LeaseEnded::default() });
    }

    pub(super) fn client_settled(&mut self, from: Key, said: &ClientSettled) {
        if said.epoch == self.own.epoch() {
            self.comes_not_back(from);
        }
    }

    /// Nothing more is awaited of a client: it has told everything, or is gone.
    pub(super) fn comes_not_back(&mut self, client: Key) {
        let Some(resumption) = &mut self.durable.resumption else { return };
        resumption.unsettled.remove(&client);
        let is_doomed = resumption.doomed.remove(&client);
        if !self.clients.by_key.contains_key(&client) {
            resumption.claims.retain(|_, claim| claim.owner != client);
        }
        if is_doomed {
            self.kill_worker(client);
        }
        self.end_resumption_when_done();
    }

    /// Whether a worker is killed as soon as it has told what it owns.
    pub(super) fn is_killed_when_it_has_told(&self, worker: Key) -> bool {
        self.durable.resumption.as_ref().is_some_and(|resumption| resumption.doomed.contains(&worker))
    }

    /// Whether a worker that is to be killed has yet to tell what it owns; it is killed then.
    pub(super) fn tells_before_it_dies(&mut self, worker: Key) -> bool {
        let Some(resumption) = &mut self.durable.resumption else { return false };
        let is_awaited = resumption.unsettled.contains(&worker);
        if is_awaited {
            resumption.doomed.insert(worker);
        }
        is_awaited
    }

    /// RESUME-2.
    pub(super) fn give_up_missing(&mut self) {
        let Some(resumption) = &mut self.durable.resumption else { return };
        let late = resumption.nodes.iter().filter(|(_, until)| **until <= self.clock.now).map(|(node, _)| *node);
        let late: Vec<NodeId> = late.collect();
        resumption.nodes.retain(|node, _| !late.contains(node));
        let mut drivers = BTreeSet::new();
        if resumption.drivers_until <= self.clock.now {
            drivers = std::mem::take(&mut resumption.drivers);
        }
        if resumption.until <= self.clock.now {
            resumption.unsettled.clear();
        }
        for node in late {
            self.log(format!("node {node} did not come back"));
            let nobody = self.new_key();
            self.touch(Row::Member(node));
            self.bundles_lost(nobody, node);
            self.actors_missing(node);
        }
        for job in drivers {
            self.driver_missing(job);
        }
        self.end_searches_that_are_answered();
        self.end_resumption_when_done();
    }

    fn driver_missing(&mut self, job: JobId) {
        let Some(detail) = self.jobs.details.get_mut(&job) else { return };
        detail.is_over = true;
        let driver = detail.driver_id;
        self.log(format!("the driver of job {job} did not come back"));
        let text = "its driver did not come back when the cluster's head did";
        self.end_job(job, JobEnd::Failed(text.to_owned()));
        for actor in self.actors.known.client_died(driver) {
            self.end_actor(actor, "its owner has died: the process that made it is gone, and it was not detached.");
        }
        self.forget_job_when_over(job);
    }

    fn end_resumption_when_done(&mut self) {
        let is_done = |of: &Resumption| of.nodes.is_empty() && of.drivers.is_empty() && of.unsettled.is_empty();
        let Some(resumption) = self.durable.resumption.take_if(|resumption| is_done(resumption)) else { return };
        self.log("everybody is back who will be".to_owned());
        // Jobs that ended with the last head, or before, and of which nothing has come back.
        let over = self.jobs.details.iter().filter(|(_, detail)| detail.is_over).map(|(job, _)| *job);
        for job in over.collect::<Vec<_>>() {
            self.forget_job_when_over(job);
        }
        for worker in resumption.doomed {
            self.kill_worker(worker);
        }
        for Claim { owner, lease, .. } in resumption.claims.into_values() {
            self.claim_fails(owner, lease);
        }
        let unclaimed = self.workers.by_key.iter().filter(|(_, worker)| worker.duty == Duty::Leased(UNCLAIMED));
        for worker in unclaimed.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.kill_worker(worker);
        }
        let orphans = self.actors.known.iter().filter(|actor| {
            let description = &actor.description;
            !actor.is_dead() && !description.detached && !self.clients.keys.contains_key(&description.creator)
        });
        for actor in orphans.map(|actor| actor.description.id).collect::<Vec<_>>() {
            self.end_actor(actor, "its owner has died: the process that made it is gone, and it was not detached.");
        }
        let mut out = Vec::new();
        let keys = &self.clients.keys;
        self.objects.known.end_gathering(|client| keys.contains_key(&client), &mut out);
        self.carry_out(out);
        let forgotten = self.actors.known.iter().filter(|actor| !actor.is_dead());
        let forgotten =
            forgotten.map(|actor| actor.description.id).filter(|id| !self.objects.known.is_kept(id.anchor()));
        for actor in forgotten.collect::<Vec<_>>() {
            self.actor_unreachable(actor);
        }
        self.pending.is_due = true;
    }
}
