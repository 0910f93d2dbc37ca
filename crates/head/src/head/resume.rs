//! A head that came back: who is awaited, and what they tell.
//!
//! What must outlive a head it has read in its journal; the rest is told again, by members first and then by each client
//! (decision 9).
//!
//! - RESUME-1: until everybody who is awaited has told what there is or is given up, nothing is deleted for want of
//!   holders, and nobody is called dead who may still come.
//! - RESUME-2: whoever was given up is not taken back: a node ends its work before that, and joins as another.
//! - RESUME-3: a worker that nobody claims, an actor that nobody knows, whoever lives only for a job that is over, and
//!   whoever runs within a group that is removed, is killed.

use super::HeadCore;
use super::validation::ProtocolError;
use crate::actors::Connect;
use crate::clock::Alarm;
use crate::failures::death;
use crate::fairness::{Held, Holder};
use crate::jobs::JobEnd;
use crate::journal::Row;
use crate::members::OWN;
use crate::placement_groups::GroupPhase;
use crate::resumption::{Claim, UNCLAIMED, first_number};
use crate::workers::{Duty, Lease, Worker};
use oxiray_ids::{ActorId, BundleNumber, JobId, LeaseNumber, NodeId, PlacementGroupId, WorkerId, WorkerNumber};
use oxiray_machine::{BundleKey, GroupMembership, Key, demand};
use oxiray_scheduler::Claimant;
use oxiray_wire::message::{
    ActorDied, ActorRestarting, ClientResume, DeviceNumbers, Driver, FailureCode, GroupRelease, JobOver, NodeResume,
    NodeState, Refused, Returning, ValueWanted, WorkerHeld,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

impl HeadCore {
    /// This head has read its journal: the nodes are awaited, each until then, and the drivers of all jobs.
    pub(crate) fn begin_resumption(&mut self, nodes: BTreeMap<NodeId, Instant>) {
        let drivers = self.jobs.details.iter().filter(|(_, detail)| !detail.is_over).map(|(job, _)| *job).collect();
        for at in self.durable.resumption.begin(nodes, drivers, self.clock.now) {
            self.clock.alarm_at(at, Alarm::Resumption);
        }
        self.objects.known.begin_gathering();
        self.end_resumption_when_done();
    }

    /// A node that served the last head.
    pub(super) fn resume_member(&mut self, key: Key, told: NodeResume) -> Result<(), ProtocolError> {
        let described = told.node.ok_or(ProtocolError::Description)?;
        let (node, state) = (described.node, described.state.clone());
        if !self.durable.resumption.awaits_node(node) {
            let text = "this head does not wait for the node any more: it is to end its work and to join anew".into();
            self.send(key, Refused { text });
            return Ok(());
        }
        self.member_joined(key, described)?;
        self.log(format!("node {node} is back with {} workers", told.workers.len()));
        self.resume_jobs(key, &told.jobs);
        self.resume_bundles(key, node, &state.unwrap_or_default());
        let may_end: BTreeMap<WorkerNumber, &[DeviceNumbers]> =
            told.preemptible.iter().map(|worker| (worker.number, &worker.devices[..])).collect();
        for worker in &told.workers {
            self.resume_worker(key, worker, may_end.get(&worker.number).copied())?;
        }
        for object in &told.stored {
            self.found_on(key, *object);
        }
        self.durable.resumption.node_came(node);
        self.search_on(key);
        self.end_searches_that_are_answered();
        self.actors_missing(node);
        self.pending.is_due = true;
        self.drain_again(key, node);
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
        self.pending.is_due |= self.members.changed(member, state.clone());
        let told: BTreeSet<BundleKey> = state.bundles.iter().map(|of| (of.group, of.bundle)).collect();
        let living = self.groups.known.iter().filter(|group| !matches!(group.phase, GroupPhase::Removed(_)));
        let expected: BTreeSet<BundleKey> = living
            .flat_map(|group| {
                let there = group.nodes.iter().enumerate().filter(|(_, on)| **on == Some(node));
                there.map(|(index, _)| (group.description.id, BundleNumber::at(index)))
            })
            .collect();
        let mut released: BTreeMap<PlacementGroupId, Vec<BundleNumber>> = BTreeMap::new();
        // A group with a bundle that is not there after all is placed anew, as far as it was on this node.
        let is_whole = expected.is_subset(&told);
        for (group, bundle) in told.iter().filter(|of| !is_whole || !expected.contains(*of)) {
            released.entry(*group).or_default().push(*bundle);
        }
        for (group, bundles) in released {
            self.order_member(member, GroupRelease { group, bundles });
        }
        if !is_whole {
            self.bundles_lost(member, node);
        }
    }

    /// A worker runs there; where it may end early, `may_end` are its devices.
    fn resume_worker(
        &mut self,
        member: Key,
        told: &WorkerHeld,
        may_end: Option<&[DeviceNumbers]>,
    ) -> Result<(), ProtocolError> {
        let number = self.new_number(member, told.number)?;
        let (id, job) = (self.new_worker_id(told.id)?, told.job);
        let key = self.new_key();
        // The word that the group is removed may have been lost with the last head.
        let is_homeless = told.group.is_some_and(|group| !self.groups.reservations.contains_key(&group));
        let mut worker = Worker::new(id, job, told.pid, 0);
        worker.once = told.once;
        worker.outlives_job = told.outlives_job;
        worker.label.clone_from(&told.label);
        worker.home = told.group.map(|group| GroupMembership { group, captures: told.captures });
        worker.duty = if told.is_leased { Duty::Leased(UNCLAIMED) } else { Duty::Idle };
        self.workers.starting += usize::from(told.pid == 0);
        if let Some(demand) = demand(&told.holds).filter(|_| worker.home.is_none()) {
            let claimant = Claimant::new(job, told.priority);
            let (is_lease, preemptible) = (told.is_leased, may_end.is_some());
            let held = Held { claimant, demands: vec![demand], is_lease, preemptible };
            let node = self.members.node_of_member(member).unwrap_or(self.own.plan().node);
            self.pending.fairness.holds(Holder::Worker(key), held, node, self.clock.now);
            self.pending.fairness.lends_cpu(key, told.lends_cpu);
            self.pending.fairness.has_devices(key, may_end.unwrap_or_default());
        }
        self.workers.by_key.insert(key, worker);
        self.members.add_route(key, member, number);
        self.clients.join(key, id, job);
        if let Some(Claim { owner, lease, is_to_end }) = self.durable.resumption.worker_came(key, id) {
            self.claim(owner, lease, id);
            if is_to_end {
                self.kill_worker(key);
            }
        }
        if is_homeless {
            self.kill_worker(key);
        } else if let Some(actor) = told.actor {
            self.resume_actor(key, actor, told.is_ready);
        } else if self.jobs.is_ending(job) && !self.workers.outlives_its_job(key) {
            self.kill_worker(key);
        }
        Ok(())
    }

    fn resume_actor(&mut self, worker: Key, id: ActorId, is_ready: bool) {
        // DOOR-2: what was written down of where it was is what the last head had ordered before anybody heard of it.
        let node = self.members.node_of(worker);
        let is_its = self.actors.posted_to(node).contains(&id)
            && self.actors.known.get(id).is_some_and(|actor| actor.worker().is_none() && !actor.is_dead());
        if !is_its {
            return self.kill_worker(worker);
        }
        self.stop_waiting(id);
        self.actor_has(id, worker);
        self.durable.touch(Row::Actor(id));
        if is_ready {
            self.actor_ready(worker);
        }
    }

    /// The actors that had a process on a node which is back without it, or does not come back.
    fn actors_missing(&mut self, node: NodeId) {
        for id in self.actors.posted_to(node) {
            self.stop_waiting(id);
            self.durable.touch(Row::Actor(id));
            let text = "its process ended while the head of its cluster was away.".to_owned();
            let Some(lost) = self.actors.known.missing(id) else {
                self.actor_died(id, &death(&text));
                continue;
            };
            let failure = Some(FailureCode::ActorUnavailable.because(text));
            let said = ActorRestarting { actor: id, failure, ..ActorRestarting::default() };
            for client in lost.clients {
                self.tell(client, said.clone());
            }
            self.restart_when_due(id);
        }
    }

    /// A driver that the last head had let in. The error says why it is not.
    pub(crate) fn resume_driver(&mut self, key: Key, told: Driver, who: &Returning) -> Result<(), String> {
        let (id, job) = (who.worker, who.job);
        let is_awaited = self.durable.resumption.awaits_driver(job);
        let Some(detail) = self.jobs.details.get_mut(&job).filter(|detail| is_awaited && detail.driver_id == id) else {
            return Err("its job is over: the head of this cluster was away, and did not wait for it any longer".into());
        };
        detail.driver = key;
        detail.told = told;
        self.durable.resumption.driver_came(job, key);
        self.clients.join(key, id, job);
        let welcome = self.welcome_driver(key, id, job);
        self.send(key, welcome);
        if self.members.route(key).is_none() {
            self.tell_job(OWN, job);
        }
        self.prepare_for_job(job);
        Ok(())
    }

    /// What a client has of others, the first that it says to this head.
    pub(super) fn resume_client(&mut self, from: Key, told: &ClientResume) {
        let Some(id) = self.clients.id_of(from) else { return };
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
    fn claim(&mut self, owner: Key, lease: LeaseNumber, worker: WorkerId) {
        if lease.0 >= first_number(self.own.epoch()) {
            // This head has named it, or will: no lease that it knows of goes on under it.
            return self.claim_fails(owner, lease);
        }
        let Some(found) = self.clients.key_of(worker) else {
            if !self.durable.resumption.claim(owner, lease, worker) {
                self.claim_fails(owner, lease);
            }
            return;
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
        let key = if self.workers.leases.contains_key(&lease.0) { number } else { lease.0 };
        worker.duty = Duty::Leased(key);
        worker.depth = depth;
        client.leases.insert(lease, key);
        self.workers.leases.insert(key, Lease { owner, worker: found, number: lease });
    }

    /// RESUME-2.
    pub(super) fn give_up_missing(&mut self) {
        let (late, drivers) = self.durable.resumption.give_up(self.clock.now);
        for node in late {
            self.log(format!("node {node} did not come back"));
            let nobody = self.new_key();
            self.durable.touch(Row::Member(node));
            self.members.drained_before.remove(&node);
            self.members.restarts_before.remove(&node);
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
}
