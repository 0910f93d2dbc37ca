//! Drivers come; workers join as clients when they are assigned.

use super::HeadCore;
use super::validation::clear_long_environment;
use crate::jobs::{JobDetail, JobFacts};
use crate::journal::{Row, Undo};
use crate::members::OWN;
use oxiray_ids::{JobId, WorkerId};
use oxiray_machine::Key;
use oxiray_wire::message::Driver;
use oxiray_wire::state::ChronicleEvent;

impl HeadCore {
    /// The driver that wants to see a worker's output.
    pub(crate) fn log_target(&self, worker: Key) -> Option<Key> {
        let detail = self.jobs.details.get(&self.workers.by_key.get(&worker)?.job)?;
        (!detail.is_over && detail.told.wants_logs).then_some(detail.driver)
    }

    pub(crate) fn driver_shown_logs(&self, job: JobId) -> Option<Key> {
        let detail = self.jobs.details.get(&job)?;
        (!detail.is_over && detail.told.wants_logs).then_some(detail.driver)
    }

    pub(crate) fn is_resuming(&self) -> bool {
        self.durable.resumption.is_under_way()
    }

    /// The job that a process works for: a driver, or a worker that was given to a job.
    pub(crate) fn job_of_process(&self, key: Key) -> Option<JobId> {
        self.clients.job_of(key)
    }

    /// A driver was let in.
    pub(crate) fn driver_joined(&mut self, key: Key, mut told: Driver) {
        clear_long_environment(&mut told.runtime_env);
        let id = WorkerId::new(self.chance.bytes());
        let own = NamespaceName(self.chance.bytes());
        let job = self.jobs.known.start(id, told.pid, &told.namespace, || own.to_string()).id;
        self.durable.touch(Row::LastJob);
        self.durable.touch(Row::Job(job));
        self.clients.join(key, id, job);
        let facts = JobFacts {
            entrypoint: told.entrypoint.clone(),
            metadata: told.metadata.clone(),
            started_ms: told.started_ms,
            ip: self.members.ip_of(key).to_owned(),
            node: self.members.node_of(key),
            runtime_env: std::mem::take(&mut told.runtime_env),
        };
        self.jobs.known.set_facts(job, facts);
        self.note_job(ChronicleEvent::JobStarted, job);
        self.jobs.details.insert(job, JobDetail::new(key, id, told));
        let welcome = self.welcome_driver(key, id, job);
        self.answered_by_next(key, Undo::Driver);
        self.send(key, welcome);
        // The interpreter of a driver on another machine may not even be here.
        if self.members.route(key).is_none() {
            self.tell_job(OWN, job);
        }
        self.prepare_for_job(job);
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
