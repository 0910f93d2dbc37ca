//! What ends, and what ends with it: actors, placement groups, leases, objects that nobody holds any more, and those who
//! wait for one of them. Each of these may drag the others along, wherever it begins.
//!
//! - CORE-2: a lease that ended before it was returned is reported to its owner once; an actor's death
//!   once to each that was connected or asked.
//! - CORE-5: a group's bundles are set aside by their machines from the moment that all of it is reserved until it is
//!   removed, and nothing is granted within one that is removed.

use super::HeadCore;
use crate::actors::{Actor, ActorState};
use crate::failures::{death, failed_value, for_actor};
use crate::fairness::Holder;
use crate::journal::Row;
use crate::objects::Outcome;
use crate::queue::{PendingKind, PendingRequest};
use crate::workers::{Duty, Lease, Worker};
use bytes::Bytes;
use oxiray_ids::{ActorId, BundleNumber, JobId, LeaseRequestNumber, NodeId, ObjectId, PlacementGroupId, WorkerId};
use oxiray_machine::{Effect, Key};
use oxiray_wire::message::{
    ActorDeath, ActorDied, Failure, FailureCode, Forgotten, Freed, GroupAnswer, GroupRelease, LeaseEnded, LeaseRefused,
    Lost, ObjectDelete, OutOfMemory, Published, Stop, Value, ValueWanted,
};
use oxiray_wire::state::ExitKind;
use std::collections::BTreeMap;

impl HeadCore {
    /// Ends an actor at once, wherever it is in its life.
    pub(super) fn end_actor(&mut self, id: ActorId, text: &str) {
        let Some(actor) = self.actors.known.get(id) else { return };
        let worker = actor.worker();
        self.actor_died(id, &death(&format!("{text}{}", self.actors.never_ran(id))));
        if let Some(key) = worker.and_then(|worker| self.clients.key_of(worker)) {
            self.exits_by(key, ExitKind::IntendedSystem, text);
            self.kill_worker(key);
        }
    }

    /// The verdict over an actor (CORE-2).
    pub(super) fn actor_died(&mut self, id: ActorId, failure: &Failure) {
        let failure = failure.clone().with_death(self.death_of(id));
        self.forget_constructor(id);
        if let Some(mut making) = self.actors.making.remove(&id) {
            if let Some(ticket) = making.stop_waiting() {
                self.pending.withdraw(ticket);
            }
            self.forget_job_when_over(making.job);
        }
        self.durable.touch(Row::Actor(id));
        let interested = self.actors.known.died(id, failure.clone());
        for forgotten in self.actors.known.forgotten() {
            self.durable.touch(Row::Actor(forgotten));
        }
        for client in interested {
            self.tell(client, ActorDied { actor: id, failure: Some(failure.clone()) });
        }
        self.end_groups_of_actor(id);
    }

    /// What is known of an actor that dies now.
    fn death_of(&self, id: ActorId) -> ActorDeath {
        let Some(actor) = self.actors.known.get(id) else { return ActorDeath::default() };
        let described = &actor.description;
        let process = actor.worker().and_then(|worker| self.clients.keys.get(&worker)).copied();
        ActorDeath {
            raised: Bytes::new(),
            class_name: described.class_name.clone(),
            name: described.name.clone(),
            namespace: described.namespace.clone(),
            actor: id,
            node: process.map(|key| self.members.node_of(key)),
            ip: process.map(|key| self.members.ip_of(key).to_owned()).unwrap_or_default(),
            pid: process.and_then(|key| self.workers.pid_of(key)).unwrap_or_default(),
            never_ran: process.is_none() && actor.state == ActorState::Waiting && actor.restarts == 0,
        }
    }

    /// The constructor's arguments are no longer needed: what the actor kept of them, it holds itself by now.
    pub(super) fn forget_constructor(&mut self, id: ActorId) {
        let Some(making) = self.actors.making.get_mut(&id) else { return };
        let contained = making.forget_constructor();
        self.durable.touch(Row::Constructor(id));
        let mut out = Vec::new();
        self.objects.known.let_go(&contained, &mut out);
        self.carry_out(out);
    }

    /// Nobody has a handle of the actor any more, nor a call under way that was made through one.
    pub(super) fn actor_unreachable(&mut self, id: ActorId) {
        const WHY: &str = "all references to the actor were removed.";
        if !self.actors.known.unreferenced(id) {
            return;
        }
        self.durable.touch(Row::Actor(id));
        let Some(worker) = self.actors.known.get(id).and_then(Actor::worker) else { return self.end_actor(id, WHY) };
        let Some(key) = self.clients.key_of(worker) else { return };
        if let Some(worker) = self.workers.by_key.get_mut(&key) {
            worker.end.last_words.get_or_insert_with(|| WHY.into());
            worker.end.is_for_good = true;
        }
        self.exits_by(key, ExitKind::IntendedSystem, WHY);
        self.send(key, Stop {});
    }

    /// The group is given up: what waits or runs within it ends, and what it reserved is free as soon as that is gone.
    pub(super) fn group_remove(&mut self, id: PlacementGroupId, why: &str) {
        self.group_fails(id, why, None);
    }

    /// The same, where whoever waits for the group is told another failure.
    pub(super) fn group_fails(&mut self, id: PlacementGroupId, why: &str, failure: Option<&Failure>) {
        let Some(waiters) = self.groups.known.remove(id, why) else { return };
        for (client, request) in waiters {
            let failure = failure.cloned().unwrap_or_else(|| self.groups.gone(id));
            self.tell(client, GroupAnswer { request, failure: Some(failure) });
        }
        let reservation = self.groups.reservations.remove(&id).expect("a group that is not removed is held");
        self.pending.fairness.lets_go(Holder::Group(id));
        self.durable.touch(Row::Group(id));
        if let Some(ticket) = reservation.ticket {
            self.pending.withdraw(ticket);
        }
        self.refuse_within(id);
        self.kill_within(id);
        self.release_bundles(id);
        self.pending.is_due = true;
    }

    /// Nobody waits any more for what a removed group had.
    fn refuse_within(&mut self, id: PlacementGroupId) {
        let within = self
            .pending
            .wanted
            .iter()
            .filter(|(_, wanted)| self.home_wanted(&wanted.want).is_some_and(|home| home.group == id));
        for ticket in within.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            let wanted = self.pending.withdraw(ticket).expect("it was just looked at");
            self.refuse_home(&wanted.want, &self.groups.gone(id));
        }
    }

    /// Tells somebody who waited that their group is no more.
    pub(super) fn refuse_home(&mut self, want: &PendingKind, failure: &Failure) {
        match *want {
            PendingKind::Lease { client, request, .. } => {
                self.clients.waits_no_more(client, request);
                self.send(client, LeaseRefused { request, failure: Some(failure.clone()) });
            }
            PendingKind::Actor(actor) => self.actor_died(actor, &for_actor(failure)),
            PendingKind::Group { .. } => {}
        }
    }

    fn kill_within(&mut self, id: PlacementGroupId) {
        let within = |worker: &Worker| worker.home.is_some_and(|home| home.group == id);
        let keys: Vec<Key> =
            self.workers.by_key.iter().filter(|(_, worker)| within(worker)).map(|(key, _)| *key).collect();
        for key in keys {
            let failure = self.groups.gone(id);
            match self.workers.by_key[&key].duty {
                Duty::Leased(lease) => self.lease_ended(lease, "its placement group was removed", Some(&failure)),
                Duty::Actor(actor) => self.actor_died(actor, &for_actor(&failure)),
                Duty::Idle | Duty::Ending => continue,
            }
            self.exits_by(key, ExitKind::IntendedSystem, "its placement group was removed");
            self.kill_worker(key);
        }
    }

    /// The group is removed: machines give back what they have of it.
    pub(super) fn release_bundles(&mut self, id: PlacementGroupId) {
        self.members.prepares.retain(|_, prepare| prepare.group != id);
        let mut there: BTreeMap<NodeId, Vec<BundleNumber>> = BTreeMap::new();
        let nodes = self.groups.known.get(id).map(|group| group.nodes.clone()).unwrap_or_default();
        for (bundle, node) in nodes.into_iter().enumerate().filter_map(|(bundle, node)| Some((bundle, node?))) {
            there.entry(node).or_default().push(BundleNumber::at(bundle));
        }
        self.tell_release(id, there);
    }

    /// Machines give back what they set aside for a group.
    pub(super) fn tell_release(&mut self, id: PlacementGroupId, there: BTreeMap<NodeId, Vec<BundleNumber>>) {
        for (node, bundles) in there {
            if let Some(key) = self.members.by_node.get(&node).copied() {
                self.order_member(key, GroupRelease { group: id, bundles });
            }
        }
    }

    /// The groups of a job end with it.
    pub(super) fn end_groups_of_job(&mut self, job: JobId) {
        for id in self.groups.known.of_job(job) {
            self.group_remove(id, "the job that made it is over, and it was not detached");
        }
    }

    /// The groups of a detached actor end with it.
    pub(super) fn end_groups_of_actor(&mut self, actor: ActorId) {
        for id in self.groups.known.of_actor(actor) {
            self.group_remove(id, "the detached actor that made it is dead, and it was not detached itself");
        }
    }

    /// A request of a client is never met.
    pub(super) fn refuse_lease(&mut self, to: Key, request: LeaseRequestNumber, text: String) {
        self.send(to, LeaseRefused { request, failure: Some(FailureCode::TaskUnschedulable.because(text)) });
    }

    /// The lease's worker died with its node.
    pub(super) fn lease_lost(&mut self, key: u64, text: &str, was_drained: bool) {
        let Some(Lease { owner, number, .. }) = self.workers.leases.remove(&key) else { return };
        if let Some(client) = self.clients.by_key.get_mut(&owner) {
            client.leases.remove(&number);
            let text = text.to_owned();
            self.send(owner, LeaseEnded { lease: number, text, node_died: true, was_drained, ..LeaseEnded::default() });
        }
    }

    /// The lease's worker died before it was returned (CORE-2).
    pub(super) fn lease_ended(&mut self, key: u64, text: &str, failure: Option<&Failure>) {
        let Some(Lease { owner, worker, number }) = self.workers.leases.remove(&key) else { return };
        if let Some(client) = self.clients.by_key.get_mut(&owner) {
            client.leases.remove(&number);
            let failure = failure.cloned();
            let (text, was_drained) = (text.to_owned(), self.members.dies_of_drain(worker));
            let end = self.workers.by_key.get(&worker).map(|worker| &worker.end);
            let was_preempted = end.is_some_and(|end| end.preempted.is_some());
            let ended = LeaseEnded {
                lease: number,
                text,
                node_died: was_drained,
                failure,
                was_drained,
                out_of_memory: OutOfMemory::None,
                is_device_failure: false,
                was_preempted,
            };
            self.send(owner, self.workers.with_cause(worker, ended));
        }
    }

    /// Tells someone who waited that they wait for a request no more.
    pub(super) fn turn_away(&mut self, wanted: &PendingRequest, text: String) {
        match wanted.want {
            PendingKind::Lease { client, request, .. } => {
                self.clients.waits_no_more(client, request);
                self.refuse_lease(client, request, text);
            }
            PendingKind::Actor(id) => {
                let failure = FailureCode::ActorUnschedulable.because(text);
                self.actor_died(id, &failure);
            }
            // It waits for room and not for a request.
            PendingKind::Group { .. } => {}
        }
    }

    /// Tells those who wait for an environment that there will be none.
    pub(super) fn refuse_unprepared(&mut self) {
        for (ticket, failure) in std::mem::take(&mut self.pending.unprepared) {
            let Some(wanted) = self.pending.wanted.remove(&ticket) else { continue };
            match wanted.want {
                PendingKind::Actor(id) => self.actor_died(id, &failure),
                // Room needs no environment.
                PendingKind::Group { .. } => {}
                PendingKind::Lease { client, request, .. } => {
                    self.clients.waits_no_more(client, request);
                    self.send(client, LeaseRefused { request, failure: Some(failure) });
                }
            }
        }
    }

    /// A job of which nothing is left is forgotten.
    pub(super) fn forget_job_when_over(&mut self, job: JobId) {
        let is_used = self.workers.by_key.values().any(|worker| worker.job == job)
            || self.actors.making.values().any(|making| making.job == job);
        if !is_used && self.jobs.details.get(&job).is_some_and(|detail| detail.is_over) {
            self.jobs.details.remove(&job);
            self.pending.fairness.forget(job);
            self.durable.touch(Row::Job(job));
            self.release_environments(job);
            self.tell_job_over(job);
        }
    }

    /// Carries out what the directory of objects decided.
    pub(super) fn carry_out(&mut self, outcomes: Vec<Outcome<Value>>) {
        self.touch_orphans();
        for outcome in outcomes {
            match outcome {
                Outcome::Answer { client, object, value } => self.tell_value(client, object, value),
                Outcome::OwnerDied { client, object, owner } => {
                    let text = self.figures.ends.owner_died(object, owner, self.clock.now);
                    self.tell_value(client, object, failed_value(FailureCode::OwnerDied, text));
                }
                Outcome::Lost { owner, object } => {
                    self.tell(owner, Lost { object });
                }
                Outcome::ValueWanted { owner, object } => {
                    self.tell(owner, ValueWanted { object });
                }
                Outcome::Freed { owner, object } => {
                    self.tell(owner, Freed { object });
                }
                Outcome::Forgotten { owner, object } => {
                    self.tell(owner, Forgotten { object });
                }
                Outcome::Unreachable(actor) => self.actor_unreachable(actor),
                Outcome::Delete(object) => self.delete_everywhere(object),
            }
        }
    }

    fn tell_value(&mut self, client: WorkerId, object: ObjectId, value: Value) {
        self.tell(client, Published { object, value: Some(value) });
    }

    /// LOCATION-2.
    pub(super) fn delete_everywhere(&mut self, object: ObjectId) {
        for member in self.objects.locations.deleted(object) {
            self.send(member, ObjectDelete { object });
        }
        self.out.push(Effect::Delete { object });
    }
}
