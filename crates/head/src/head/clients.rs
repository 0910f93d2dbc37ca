//! Drivers come and go; workers join as clients when they are assigned.

use super::journal::Undo;
use super::members::OWN;
use super::records::Row;
use super::shortage::Noticed;
use super::{Effect, HeadCore, Key, amounts};
use crate::Jobs;
use crate::{JobEnd, JobFacts};
use oxiray_ids::{ActorId, JobId, WorkerId};
use oxiray_wire::message::{Driver, Goodbye, Welcome};
use std::collections::BTreeMap;

/// A process with a runtime that is connected: a driver, or a worker that was assigned.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) id: WorkerId,
    pub(super) job: JobId,
    /// The key of each of its leases, by the number that it knows it by.
    pub(super) leases: BTreeMap<u64, u64>,
    /// Its requests that wait, by their number.
    pub(super) waiting: BTreeMap<u64, u64>,
}

/// All that are connected.
#[derive(Debug, Default)]
pub(super) struct Clients {
    pub(super) by_key: BTreeMap<Key, Client>,
    /// The key of each by its identifier, and of workers that are connected or not.
    pub(super) keys: BTreeMap<WorkerId, Key>,
}

/// What a job leaves to its workers.
#[derive(Debug)]
pub(super) struct JobDetail {
    pub(super) driver: Key,
    pub(super) driver_id: WorkerId,
    pub(super) told: Driver,
    pub(super) said_goodbye: bool,
    pub(super) is_over: bool,
    /// What its driver was told of that waits.
    pub(super) noticed: super::shortage::Noticed,
}

/// All jobs.
#[derive(Debug, Default)]
pub(super) struct JobTable {
    pub(super) known: Jobs,
    /// What there is besides of those that are not over.
    pub(super) details: BTreeMap<JobId, JobDetail>,
    pub(super) submitted: super::submissions::Submitted,
}

impl HeadCore {
    /// The driver that wants to see a worker's output.
    pub(crate) fn log_target(&self, worker: Key) -> Option<Key> {
        let detail = self.jobs.details.get(&self.workers.by_key.get(&worker)?.job)?;
        (!detail.is_over && detail.told.wants_logs).then_some(detail.driver)
    }

    /// The job that a process works for: a driver, or a worker that was given to a job.
    pub(crate) fn job_of_process(&self, key: Key) -> Option<JobId> {
        self.clients.by_key.get(&key).map(|client| client.job)
    }

    /// A driver was let in.
    pub(crate) fn driver_joined(&mut self, key: Key, told: Driver) {
        let id = WorkerId::new(self.chance.bytes());
        let own = NamespaceName(self.chance.bytes());
        let job = self.jobs.known.start(id, told.pid, &told.namespace, || own.to_string()).id;
        self.touch(Row::LastJob);
        self.touch(Row::Job(job));
        self.join(key, id, job);
        let facts = JobFacts {
            entrypoint: told.entrypoint.clone(),
            metadata: told.metadata.clone(),
            started_ms: told.started_ms,
            ip: self.ip_of(key).to_owned(),
            node: self.node_of(key),
        };
        self.jobs.known.set_facts(job, facts);
        let detail = JobDetail {
            driver: key,
            driver_id: id,
            told,
            said_goodbye: false,
            is_over: false,
            noticed: Noticed::default(),
        };
        self.jobs.details.insert(job, detail);
        let welcome = self.welcome_driver(key, id, job);
        self.answered_by_next(key, Undo::Driver);
        self.send(key, welcome);
        // The interpreter of a driver on another machine may not even be here.
        if self.route(key).is_none() {
            self.tell_job(OWN, job);
        }
        self.prepare_for_job(job);
    }

    /// A driver said that it leaves: its stream is closed when the last of its workers is gone.
    pub(super) fn goodbye(&mut self, key: Key, said: Goodbye) {
        let Some(job) = self.clients.by_key.get(&key).map(|client| client.job) else { return };
        let Some(detail) = self.jobs.details.get_mut(&job).filter(|detail| detail.driver == key) else { return };
        detail.said_goodbye = true;
        let end = if said.error.is_empty() { JobEnd::Succeeded } else { JobEnd::Failed(said.error) };
        self.end_job(job, end);
        self.close_when_over(job);
    }

    /// A driver is gone, with or without a word.
    pub(crate) fn driver_left(&mut self, key: Key) {
        let Some(client) = self.clients.by_key.get(&key) else { return };
        let job = client.job;
        let text = "its driver ended without disconnecting: it was killed, it crashed, or it left by os._exit()";
        self.end_job(job, JobEnd::Failed(text.to_owned()));
        if let Some(detail) = self.jobs.details.get_mut(&job) {
            detail.is_over = true;
            detail.said_goodbye = false;
        }
        self.remember_end(key, "its program ended");
        self.client_gone(key);
        self.forget_job_when_over(job);
    }

    pub(super) fn join(&mut self, key: Key, id: WorkerId, job: JobId) {
        self.clients.keys.insert(id, key);
        self.clients.by_key.insert(key, Client { id, job, leases: BTreeMap::new(), waiting: BTreeMap::new() });
    }

    pub(super) fn welcome(&self, id: WorkerId, job: JobId) -> Welcome {
        let namespace = self.jobs.known.get(job).map(|job| job.namespace.clone()).unwrap_or_default();
        Welcome {
            node: self.own.plan().node,
            worker: id,
            job,
            namespace,
            session: self.own.session().to_owned(),
            address: self.own.address().to_owned(),
            totals: amounts(self.own.plan().inventory.totals()),
            epoch: self.own.epoch(),
            comes_back: self.own.epoch() > 0,
        }
    }

    /// Everything that a client asked for or holds goes with it.
    pub(super) fn client_gone(&mut self, key: Key) {
        let Some(client) = self.clients.by_key.remove(&key) else { return };
        self.clients.keys.remove(&client.id);
        self.census_without(key);
        self.figures.metrics.process_gone(client.id);
        for ticket in client.waiting.into_values() {
            self.withdraw(ticket);
        }
        for lease in client.leases.into_values() {
            if let Some(lease) = self.workers.leases.remove(&lease) {
                self.kill_worker(lease.worker);
            }
        }
        let orphans = self.actors.known.client_died(client.id);
        for actor in orphans {
            self.end_actor(actor, "its owner has died: the process that made it is gone, and it was not detached.");
        }
        // Those are detached: nobody is left who could tell of their constructor's arguments.
        let unfinished = self.actors.making.iter().filter(|(id, making)| {
            making.is_unfinished
                && self.actors.known.get(**id).is_some_and(|actor| actor.description.creator == client.id)
        });
        for actor in unfinished.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end_actor(actor, "the process that made it is gone.");
        }
        self.groups.known.client_died(client.id);
        let mut out = Vec::new();
        self.objects.known.client_died(client.id, &mut out);
        self.carry_out(out);
        self.restart_with_arguments();
        self.out.push(Effect::LeaveStore { client: key });
        self.comes_not_back(key);
        self.pending.is_due = true;
    }

    /// Kills what lives only for the job.
    pub(super) fn end_job(&mut self, job: JobId, end: JobEnd) {
        self.touch(Row::Job(job));
        for forgotten in self.jobs.known.end(job, end, self.clock.wall_ms) {
            self.touch(Row::Job(forgotten));
        }
        let of_job = self.workers.by_key.iter().filter(|(_, worker)| worker.job == job).map(|(key, _)| *key);
        for worker in of_job.collect::<Vec<_>>() {
            if !self.outlives_its_job(worker) {
                self.kill_worker(worker);
            }
        }
        let has_no_process = |id: &ActorId| self.actors.known.get(*id).is_some_and(|actor| actor.worker().is_none());
        let unplaced = self
            .actors
            .making
            .iter()
            .filter(|(id, making)| making.job == job && has_no_process(id) && !self.actor_outlives_its_job(**id));
        for id in unplaced.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end_actor(id, "its job is over, and it was not detached.");
        }
        self.end_groups_of_job(job);
        self.hopes_end(job);
        let Some(detail) = self.jobs.details.get(&job) else { return };
        let waiting = self.clients.by_key.get_mut(&detail.driver).map(|client| std::mem::take(&mut client.waiting));
        for ticket in waiting.unwrap_or_default().into_values() {
            self.withdraw(ticket);
        }
    }

    /// Detached actors, and what they lease and make.
    pub(super) fn outlives_its_job(&self, worker: Key) -> bool {
        self.workers.by_key.get(&worker).is_some_and(|worker| worker.outlives_job && worker.duty.is_use())
    }

    pub(super) fn close_when_over(&mut self, job: JobId) {
        let Some(detail) = self.jobs.details.get(&job).filter(|detail| detail.said_goodbye) else { return };
        let driver = detail.driver;
        let mut of_job = self.workers.by_key.iter().filter(|(_, worker)| worker.job == job).map(|(key, _)| *key);
        if of_job.all(|worker| self.outlives_its_job(worker)) {
            self.out.push(Effect::Close { client: driver });
        }
    }

    pub(super) fn forget_job_when_over(&mut self, job: JobId) {
        let is_used = self.workers.by_key.values().any(|worker| worker.job == job)
            || self.actors.making.values().any(|making| making.job == job);
        if !is_used && self.jobs.details.get(&job).is_some_and(|detail| detail.is_over) {
            self.jobs.details.remove(&job);
            self.pending.fairness.forget(job);
            self.touch(Row::Job(job));
            self.release_environments(job);
            self.tell_job_over(job);
        }
    }
}

/// The namespace of a job that named none: nobody else's.
struct NamespaceName([u8; 16]);

impl std::fmt::Display for NamespaceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if [4, 6, 8, 10].contains(&index) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}
