//! The processes that serve somebody, wherever they run, and how they end.
//!
//! What they hold is their machine's to know; a spare process is nobody's, and unknown here.

use super::fairness::Holder;
use super::restarts::death;
use super::{Alarm, Effect, GroupMembership, HeadCore, Key};
use oxiray_ids::{ActorId, JobId, WorkerId};
use oxiray_machine::{DYING_LIMIT, LEAVING_LIMIT, does_not_die};
use oxiray_wire::message::{Environment, LeaseEnded, OutOfMemory, Peer, Stop, WorkerDied, WorkerKill};
use std::collections::BTreeMap;

/// What a worker is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Duty {
    /// Done with a lease, and free for another of its job and environment.
    Idle,
    /// On this lease.
    Leased(u64),
    /// The process of this actor.
    Actor(ActorId),
    /// Killed or leaving; it is only waited for.
    Ending,
}

/// A worker from the moment its machine placed an order on it until its process tree is gone.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) id: WorkerId,
    pub(super) pid: Option<u32>,
    pub(super) duty: Duty,
    pub(super) job: JobId,
    /// What it was started with: the job's and its own.
    pub(super) environment: Environment,
    pub(super) label: String,
    pub(super) home: Option<GroupMembership>,
    /// It serves nobody after what it is on.
    pub(super) once: bool,
    /// How many leases lie between it and a driver or an actor.
    pub(super) depth: u32,
    /// Whether it is a detached actor, or works for one.
    pub(super) outlives_job: bool,
    /// The actor's constructor returned.
    pub(super) is_ready: bool,
    pub(super) end: End,
}

/// What is known of a worker's end before it is gone.
#[derive(Debug, Default)]
pub(super) struct End {
    /// Killed or dead: its tree is to be gone soon.
    pub(super) is_doomed: bool,
    /// Why it ends, in its own or its daemon's words; said before it does.
    pub(super) last_words: Option<String>,
    /// That it ends for want of memory, where it does, and the kind of want.
    pub(super) out_of_memory: Option<(String, OutOfMemory)>,
    /// Its work is done, and it stays for the tasks that it made.
    pub(super) lingers: bool,
    /// The actor ends with it, whatever restarts are left.
    pub(super) is_for_good: bool,
    /// It ended with its node, which was emptied: its actor's restart is not counted.
    pub(super) is_moved: bool,
}

impl Worker {
    /// One that serves nobody yet.
    pub(super) fn new(id: WorkerId, job: JobId, pid: u32) -> Self {
        Self {
            id,
            pid: (pid != 0).then_some(pid),
            duty: Duty::Ending,
            job,
            environment: Environment::default(),
            label: String::new(),
            home: None,
            once: false,
            depth: 0,
            outlives_job: false,
            is_ready: false,
            end: End::default(),
        }
    }
}

impl Duty {
    /// Whether somebody has the worker.
    pub(super) fn is_use(self) -> bool {
        matches!(self, Self::Leased(_) | Self::Actor(_))
    }
}

/// All processes that serve somebody, and the leases of those that are leased.
#[derive(Debug, Default)]
pub(super) struct Workers {
    pub(super) by_key: BTreeMap<Key, Worker>,
    pub(super) leases: BTreeMap<u64, super::leases::Lease>,
    /// How many have no process yet.
    pub(super) starting: usize,
}

impl HeadCore {
    /// Has a worker's machine end it.
    pub(crate) fn kill_worker(&mut self, key: Key) {
        if self.tells_before_it_dies(key) {
            return;
        }
        let Some(worker) = self.workers.by_key.get_mut(&key) else { return };
        if worker.duty == Duty::Idle {
            worker.duty = Duty::Ending;
        }
        self.expect_the_end(key);
        let (member, worker) = self.route(key).unwrap_or((super::OWN, key));
        self.order_member(member, WorkerKill { worker });
    }

    /// The worker has done its work: it runs what was left to be run at exit, and is killed where it does not end.
    pub(super) fn dismiss_worker(&mut self, key: Key) {
        self.send(key, Stop {});
        self.alarm_at(self.clock.now + LEAVING_LIMIT, Alarm::Overdue(key));
    }

    /// The worker stays for the tasks that it made.
    pub(super) fn lingers(&mut self, key: Key) {
        self.pending.fairness.lends_cpu(key, true);
        if let Some(worker) = self.workers.by_key.get_mut(&key) {
            worker.end.lingers = true;
        }
    }

    /// The worker was to have ended by now.
    pub(super) fn is_overdue(&mut self, key: Key) {
        if self.workers.by_key.get(&key).is_some_and(|worker| !worker.end.lingers) {
            self.kill_worker(key);
        }
    }

    fn expect_the_end(&mut self, key: Key) {
        let Some(worker) = self.workers.by_key.get_mut(&key).filter(|worker| !worker.end.is_doomed) else { return };
        worker.end.is_doomed = true;
        self.alarm_at(self.clock.now + DYING_LIMIT, Alarm::Undying(key));
        // What it has published is written down before it is killed: a head that ended with it would leave nobody to tell.
        if let Some(client) = self.clients.by_key.get(&key) {
            self.objects.known.client_dying(client.id);
            self.carry_out(Vec::new());
        }
    }

    /// The worker has its process, says its machine.
    pub(super) fn worker_forked(&mut self, key: Key, pid: u32) {
        if let Some(worker) = self.workers.by_key.get_mut(&key).filter(|worker| worker.pid.is_none()) {
            worker.pid = Some(pid);
            self.workers.starting -= 1;
            self.pending.is_due = true;
        }
    }

    /// The worker's process is dead, says its machine; what descends from it may not be.
    pub(super) fn worker_died(&mut self, key: Key, said: &WorkerDied) {
        let kind = said.out_of_memory;
        if kind != OutOfMemory::None
            && let Some(worker) = self.workers.by_key.get_mut(&key)
        {
            worker.end.out_of_memory.get_or_insert_with(|| (said.text.clone(), kind));
        }
        self.expect_the_end(key);
        self.verdict(key, &said.text);
    }

    /// The worker and everything that descends from it are dead and reaped, and what it held is given back.
    pub(super) fn worker_gone(&mut self, key: Key, text: &str) {
        self.verdict(key, text);
        self.remember_end(key, text);
        self.client_gone(key);
        let Some(worker) = self.workers.by_key.remove(&key) else { return };
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
        let text = cause.as_deref().unwrap_or(text);
        match worker.duty {
            Duty::Leased(lease) => self.lease_ended(lease, text, None),
            Duty::Actor(id) => {
                self.actor_lost(key, id, last_words, &format!("its process (pid {pid}) died unexpectedly: {text}"));
            }
            Duty::Idle | Duty::Ending => {}
        }
    }

    /// What an actor held may never come back, and no other process of the actor may run beside this one.
    pub(super) fn worker_does_not_die(&mut self, key: Key) {
        let Some(worker) = self.workers.by_key.get(&key) else { return };
        if let Duty::Actor(id) = worker.duty {
            let reason = does_not_die(worker.pid.unwrap_or(0));
            self.actor_died(id, &death(&format!("{reason}.")));
        }
        self.verdict(key, "was killed, and has not ended since");
    }

    /// The worker serves nobody after what it is on: its owner gives it back when its task ends.
    pub(super) fn worker_spent(&mut self, key: Key) {
        let Some(worker) = self.workers.by_key.get_mut(&key) else { return };
        worker.once = true;
        if let Duty::Leased(lease) = worker.duty {
            self.retire_lease(lease);
        }
    }

    /// Adds why the worker ended to what its owner is told.
    pub(super) fn with_cause(&self, key: Key, ended: LeaseEnded) -> LeaseEnded {
        match self.workers.by_key.get(&key).and_then(|worker| worker.end.out_of_memory.as_ref()) {
            Some((text, kind)) => LeaseEnded { text: text.clone(), out_of_memory: (*kind), ..ended },
            None => ended,
        }
    }

    /// Makes a stream between a client and a worker.
    pub(super) fn connect(&mut self, client: Key, placed: oxiray_wire::Message, worker: Key) {
        let Some(id) = self.clients.by_key.get(&client).map(|client| client.id) else { return };
        self.out.push(Effect::Join { client, placed, worker, peer: Peer { client: id } });
    }
}
