//! Who is gone, and what goes with them: workers, drivers, and the jobs of those.

use super::HeadCore;
use crate::amounts::by_name;
use crate::clock::Alarm;
use crate::failures::death;
use crate::fairness::Holder;
use crate::jobs::{JobDetail, JobEnd};
use crate::journal::Row;
use crate::members::ProxiedClient;
use crate::suspicion::Outcome;
use crate::workers::{Duty, Worker};
use oxiray_ids::{ActorId, JobId, NodeId};
use oxiray_machine::{DYING_LIMIT, Effect, Key, does_not_die};
use oxiray_wire::message::{FailureCode, Goodbye, OutOfMemory, WorkerDied, WorkerGone};
use oxiray_wire::state::{ChronicleEntry, ChronicleEvent, ExitKind, WorkerDuty, WorkerExit, WorkerRow};
use std::collections::BTreeMap;

/// How processes end by what they do themselves, which a device that answers wrongly may have them do.
const OWN_SIGNALS: [&str; 7] = ["(SIGSEGV", "(SIGABRT", "(SIGBUS", "(SIGFPE", "(SIGILL", "(SIGTRAP", "(SIGSYS"];
/// How a process ended that nothing went wrong with.
const AS_USUAL: &str = "exited with status 0";

impl HeadCore {
    /// The worker's process is dead, says its machine; what descends from it may not be.
    pub(super) fn worker_died(&mut self, key: Key, said: &WorkerDied) {
        let kind = said.out_of_memory;
        if kind != OutOfMemory::None
            && let Some(worker) = self.workers.by_key.get_mut(&key)
        {
            worker.end.out_of_memory.get_or_insert_with(|| (said.text.clone(), kind));
        }
        if said.is_device_failure
            && let Some(worker) = self.workers.by_key.get_mut(&key)
        {
            worker.end.is_device_failure = true;
            worker.end.exit.get_or_insert_with(|| (ExitKind::SystemError, said.text.clone()));
        }
        if said.is_device_error
            && let Some(worker) = self.workers.by_key.get_mut(&key)
        {
            worker.end.device_error.get_or_insert_with(|| said.text.clone());
        }
        if said.is_violation
            && let Some(worker) = self.workers.by_key.get_mut(&key)
        {
            // Another process of the actor would do the same.
            worker.end.is_for_good = true;
            worker.end.exit.get_or_insert_with(|| (ExitKind::SystemError, said.text.clone()));
            worker.end.violation.get_or_insert_with(|| said.text.clone());
        }
        self.expect_the_end(key);
        self.verdict(key, &said.text);
    }

    /// The worker and everything that descends from it are dead and reaped, and what it held is given back.
    pub(super) fn worker_gone(&mut self, key: Key, said: &WorkerGone) {
        let text = said.text.as_str();
        if said.is_surplus
            && let Some(worker) = self.workers.by_key.get_mut(&key)
        {
            let why = "it was idle, and more workers were than are kept for the next tasks";
            worker.end.exit.get_or_insert_with(|| (ExitKind::IntendedSystem, why.to_owned()));
        }
        self.verdict(key, text);
        self.remember_end(key, text);
        self.client_gone(key);
        let Some(worker) = self.workers.by_key.remove(&key) else { return };
        self.suspect_devices(worker.id, outcome_of(&worker, text));
        self.workers.starting -= usize::from(worker.pid.is_none());
        self.pending.fairness.lets_go(Holder::Worker(key));
        if let Duty::Actor(id) = worker.duty {
            self.restart_when_due(id);
        }
        self.pending.is_due = true;
        self.close_when_over(worker.job);
        self.forget_job_when_over(worker.job);
    }

    /// Tells who depends on the worker that it is dead, once.
    fn verdict(&mut self, key: Key, text: &str) {
        let Some(worker) = self.workers.by_key.get_mut(&key) else { return };
        let pid = worker.pid.unwrap_or(0);
        let last_words = worker.end.last_words.take();
        let cause = worker.end.out_of_memory.as_ref().map(|(text, _)| text.clone());
        let preempted = || worker.end.preempted.as_ref().map(|reason| format!("it was preempted: {reason} ({text})"));
        let cause = cause.or_else(preempted);
        let text = cause.as_deref().unwrap_or(text);
        let violation = worker.end.violation.as_ref().map(|text| FailureCode::DeviceViolation.because(text));
        match worker.duty {
            Duty::Leased(lease) => self.lease_ended(lease, text, violation.as_ref()),
            Duty::Actor(id) => {
                self.actor_lost(key, id, last_words, &format!("its process (pid {pid}) died unexpectedly: {text}"));
            }
            Duty::Idle | Duty::Ending => {}
        }
    }

    /// What an actor held may never come back, and no other process of the actor may run beside this one.
    pub(super) fn worker_does_not_die(&mut self, key: Key) {
        if self.is_on_silent_member(key) {
            // Whether it lives is said when its node's lease is over.
            return self.clock.alarm_at(self.clock.now + DYING_LIMIT, Alarm::Undying(key));
        }
        let Some(worker) = self.workers.by_key.get(&key) else { return };
        if let Duty::Actor(id) = worker.duty {
            let reason = does_not_die(worker.pid.unwrap_or(0));
            self.actor_died(id, &death(&format!("{reason}.")));
        }
        self.verdict(key, "was killed, and has not ended since");
    }

    /// Everything that a client asked for or holds goes with it.
    pub(super) fn client_gone(&mut self, key: Key) {
        let Some(client) = self.clients.by_key.remove(&key) else { return };
        self.clients.keys.remove(&client.id);
        self.figures.census.without(key);
        self.figures.metrics.process_gone(client.id);
        for ticket in client.waiting.into_values() {
            self.pending.withdraw(ticket);
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
        for actor in self.actors.unfinished_of(client.id) {
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

    /// A driver said that it leaves: its stream is closed when the last of its workers is gone.
    pub(super) fn goodbye(&mut self, key: Key, said: Goodbye) {
        let Some(job) = self.clients.job_of(key) else { return };
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

    /// Kills what lives only for the job.
    pub(super) fn end_job(&mut self, job: JobId, end: JobEnd) {
        self.durable.touch(Row::Job(job));
        let was_over = self.jobs.known.get(job).is_none_or(|job| job.end.is_some());
        let details = &self.jobs.details;
        for forgotten in self.jobs.known.end(job, end, self.clock.wall_ms, |job| details.contains_key(&job)) {
            self.durable.touch(Row::Job(forgotten));
            self.figures.ended_tasks.forget(forgotten);
            self.figures.chronicle.device_time.forget(forgotten);
        }
        if !was_over {
            self.note_job(ChronicleEvent::JobEnded, job);
        }
        let of_job = self.workers.by_key.iter().filter(|(_, worker)| worker.job == job).map(|(key, _)| *key);
        for worker in of_job.collect::<Vec<_>>() {
            if !self.workers.outlives_its_job(worker) {
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
        for (namespace, key) in self.growth.withdraw_optional_demand(&mut self.durable.kept, job) {
            self.durable.touch(Row::KeyValueStore(namespace, key));
        }
        let Some(detail) = self.jobs.details.get(&job) else { return };
        let waiting = self.clients.by_key.get_mut(&detail.driver).map(|client| std::mem::take(&mut client.waiting));
        for ticket in waiting.unwrap_or_default().into_values() {
            self.pending.withdraw(ticket);
        }
    }

    /// The stream of a driver that said goodbye is closed when the last of its workers is gone.
    fn close_when_over(&mut self, job: JobId) {
        let Some(detail) = self.jobs.details.get(&job).filter(|detail| detail.said_goodbye) else { return };
        let driver = detail.driver;
        let mut of_job = self.workers.by_key.iter().filter(|(_, worker)| worker.job == job).map(|(key, _)| *key);
        if of_job.all(|worker| self.workers.outlives_its_job(worker)) {
            self.out.push(Effect::Close { client: driver });
        }
    }

    /// A process is about to be forgotten; `text` is how it ended.
    pub(super) fn remember_end(&mut self, key: Key, text: &str) {
        let ip = self.members.ip_of(key).to_owned();
        self.remember_end_on(self.members.node_of(key), &ip, key, text);
    }

    /// A process of this node is about to be forgotten.
    pub(super) fn remember_end_on(&mut self, node: NodeId, ip: &str, key: Key, text: &str) {
        let Some(who) = self.clients.id_of(key) else { return };
        let worker = self.workers.by_key.get(&key);
        let role = if worker.is_some() { "worker" } else { "driver" };
        let pid = worker.and_then(|worker| worker.pid).map_or(String::new(), |pid| format!(", pid {pid}"));
        let shown = self.ended_row(key, node, ip, text);
        if let Some(row) = &shown {
            self.note_death(row);
        }
        let text = format!("the {role} {who}{pid}, on node {node} ({ip}): {text}");
        self.figures.ends.remember(who, self.clock.now, text, shown);
    }

    /// A process ended that nobody wanted to end.
    fn note_death(&mut self, row: &WorkerRow) {
        let unwanted = |exit: &&WorkerExit| matches!(exit.kind, ExitKind::SystemError | ExitKind::OutOfMemory);
        let Some(exit) = row.exit.as_ref().filter(unwanted).filter(|_| row.duty != WorkerDuty::Driver) else { return };
        self.figures.ends.count_unwanted(row, exit.kind);
        self.note(ChronicleEntry {
            event: ChronicleEvent::WorkerDied,
            node: row.node,
            job: row.job_id,
            worker: Some(row.worker_id),
            pid: row.pid.unwrap_or(0),
            name: row.name.clone(),
            text: exit.detail.clone(),
            ..ChronicleEntry::default()
        });
    }

    /// The row of a driver in lists.
    pub(super) fn row_of_driver(&self, job: JobId, detail: &JobDetail) -> WorkerRow {
        WorkerRow {
            worker_id: detail.driver_id,
            pid: Some(detail.told.pid),
            duty: WorkerDuty::Driver,
            job_id: Some(job),
            node: Some(self.members.node_of(detail.driver)),
            ip: self.members.ip_of(detail.driver).to_owned(),
            started_ms: self.jobs.known.get(job).map_or(0, |job| job.facts.started_ms),
            ..WorkerRow::default()
        }
    }

    /// The row of a worker in lists.
    pub(super) fn worker_row(&self, key: Key, worker: &Worker) -> WorkerRow {
        WorkerRow {
            worker_id: worker.id,
            pid: worker.pid,
            duty: match worker.duty {
                Duty::Idle => WorkerDuty::Idle,
                Duty::Leased(_) => WorkerDuty::Task,
                Duty::Actor(_) => WorkerDuty::Actor,
                Duty::Ending => WorkerDuty::Ending,
            },
            name: worker.label.clone(),
            job_id: Some(worker.job),
            resources: by_name(self.own.held_by(key)),
            node: Some(self.members.node_of(key)),
            ip: self.members.ip_of(key).to_owned(),
            started_ms: worker.started_ms,
            launched_ms: worker.launched_ms,
            exit: None,
        }
    }

    /// The row of a process of this node that has just ended; nothing for one that never was.
    fn ended_row(&self, key: Key, node: NodeId, ip: &str, text: &str) -> Option<WorkerRow> {
        let (row, kind, detail) = if let Some(worker) = self.workers.by_key.get(&key) {
            worker.pid?;
            let (kind, detail) = exit_of(worker, text);
            (WorkerRow { resources: BTreeMap::new(), ..self.worker_row(key, worker) }, kind, detail)
        } else {
            let job = self.clients.job_of(key)?;
            let detail = self.jobs.details.get(&job).filter(|detail| detail.driver == key)?;
            let said = matches!(self.jobs.known.get(job)?.end, Some(JobEnd::Succeeded));
            let kind = if said { ExitKind::IntendedUser } else { ExitKind::SystemError };
            (self.row_of_driver(job, detail), kind, text.to_owned())
        };
        let exit = Some(WorkerExit { kind, detail, ended_ms: self.clock.wall_ms });
        Some(WorkerRow { node: Some(node), ip: ip.to_owned(), exit, ..row })
    }

    /// PROXIED_CLIENT-1: a member is about to be forgotten.
    pub(super) fn proxied_clients_gone(&mut self, member: Key) {
        for key in self.members.proxied_clients_of(member) {
            self.proxied_client_gone(key);
        }
    }

    /// A proxied client is gone, with or without its member.
    pub(super) fn proxied_client_gone(&mut self, key: Key) {
        match self.members.proxied_clients.remove(&key) {
            Some(ProxiedClient::Driver) => self.driver_left(key),
            Some(ProxiedClient::Visitor) => {
                self.figures.census.without(key);
                self.figures.following.visitor_left(key);
                self.figures.readers.visitor_left(key);
            }
            None => {}
        }
    }
}

/// What a worker's end says of its devices; `text` is how its process ended. What the hardware is to blame for is known by
/// another way, and signals that others send say nothing.
fn outcome_of(worker: &Worker, text: &str) -> Outcome {
    let end = &worker.end;
    let is_explained =
        end.is_device_failure || end.out_of_memory.is_some() || end.violation.is_some() || end.preempted.is_some();
    if is_explained {
        return Outcome::Unknown;
    }
    if let Some(error) = &end.device_error {
        return Outcome::Failed(error.rsplit("; ").next().unwrap_or_default().to_owned());
    }
    let is_own_signal = OWN_SIGNALS.iter().any(|signal| text.contains(signal));
    match exit_of(worker, text) {
        _ if text == AS_USUAL => Outcome::Succeeded,
        (ExitKind::SystemError, _) if is_own_signal => Outcome::Failed(first_words(text)),
        _ => Outcome::Unknown,
    }
}

/// How a process ended, without where its last output is.
fn first_words(text: &str) -> String {
    text.split(';').next().unwrap_or_default().to_owned()
}

/// What kind of end a worker came to, and why; `text` is how its process ended.
fn exit_of(worker: &Worker, text: &str) -> (ExitKind, String) {
    let end = &worker.end;
    match (&end.out_of_memory, &end.exit) {
        (Some((text, _)), _) => (ExitKind::OutOfMemory, text.clone()),
        (None, Some(known)) => known.clone(),
        (None, None) if text == AS_USUAL => {
            let why = "it left by itself: its code ended it, or had run as often as max_calls allows";
            (ExitKind::IntendedUser, format!("{why} ({text})"))
        }
        (None, None) => (ExitKind::SystemError, text.to_owned()),
    }
}
