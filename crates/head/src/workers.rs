//! The processes that serve somebody, wherever they run, and the leases of those that are leased.
//!
//! What they hold is their machine's to know; a spare process is nobody's, and unknown here.

use crate::suspicion::Suspicion;
use oxiray_ids::{ActorId, JobId, LeaseNumber, WorkerId};
use oxiray_machine::{GroupMembership, Key};
use oxiray_wire::message::{Environment, LeaseEnded, OutOfMemory};
use oxiray_wire::state::ExitKind;
use std::collections::BTreeMap;

/// What a worker is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
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
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) pid: Option<u32>,
    /// When it was placed, in milliseconds since 1970; 0 where an earlier head did that.
    pub(crate) started_ms: u64,
    /// When its machine told of its process, likewise; 0 where it has not.
    pub(crate) launched_ms: u64,
    pub(crate) duty: Duty,
    pub(crate) job: JobId,
    /// What it was started with: the job's and its own.
    pub(crate) environment: Environment,
    pub(crate) label: String,
    pub(crate) home: Option<GroupMembership>,
    /// It serves nobody after what it is on.
    pub(crate) once: bool,
    /// How many leases lie between it and a driver or an actor.
    pub(crate) depth: u32,
    /// Whether it is a detached actor, or works for one.
    pub(crate) outlives_job: bool,
    /// The actor's constructor returned.
    pub(crate) is_ready: bool,
    /// An attempt of a task runs there that was made before, as far as its process told.
    pub(crate) runs_retry: bool,
    pub(crate) end: End,
}

/// What is known of a worker's end before it is gone.
#[derive(Debug, Default)]
pub(crate) struct End {
    /// Killed or dead: its tree is to be gone soon.
    pub(crate) is_doomed: bool,
    /// Why it ends, in its own or its daemon's words; said before it does.
    pub(crate) last_words: Option<String>,
    /// That it ends for want of memory, where it does, and the kind of want.
    pub(crate) out_of_memory: Option<(String, OutOfMemory)>,
    /// That it had a device open which it was not granted, where it ends for that.
    pub(crate) violation: Option<String>,
    /// The hardware of a device that it had failed just before.
    pub(crate) is_device_failure: bool,
    /// The error that a device of it reported just before and that applications cause, in words.
    pub(crate) device_error: Option<String>,
    /// Its work is done, and it stays for the tasks that it made.
    pub(crate) lingers: bool,
    /// The actor ends with it, whatever restarts are left.
    pub(crate) is_for_good: bool,
    /// What kind of end it is and why, from the moment that it is known; the first word counts.
    pub(crate) exit: Option<(ExitKind, String)>,
    /// For what it is to end early, where it was told so.
    pub(crate) preempted: Option<String>,
    /// It ended with its node, and what it had said last may not have come.
    pub(crate) with_node: Option<NodeEnd>,
}

/// How a node ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeEnd {
    /// It was emptied before: restarts of its actors are not counted.
    Drained,
    Lost,
}

impl Worker {
    /// One that serves nobody yet.
    pub(crate) fn new(id: WorkerId, job: JobId, pid: u32, started_ms: u64) -> Self {
        Self {
            id,
            pid: (pid != 0).then_some(pid),
            started_ms,
            launched_ms: if pid == 0 { 0 } else { started_ms },
            duty: Duty::Ending,
            job,
            environment: Environment::default(),
            label: String::new(),
            home: None,
            once: false,
            depth: 0,
            outlives_job: false,
            is_ready: false,
            runs_retry: false,
            end: End::default(),
        }
    }
}

impl Duty {
    /// Whether somebody has the worker.
    pub(crate) fn is_use(self) -> bool {
        matches!(self, Self::Leased(_) | Self::Actor(_))
    }
}

/// The right to one worker.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) owner: Key,
    pub(crate) worker: Key,
    /// What the owner calls it: its key, unless that was another owner's lease when the owner came back (DOOR-2).
    pub(crate) number: LeaseNumber,
}

/// All processes that serve somebody, and the leases of those that are leased.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    pub(crate) by_key: BTreeMap<Key, Worker>,
    pub(crate) leases: BTreeMap<u64, Lease>,
    /// How many have no process yet.
    pub(crate) starting: usize,
    /// What their ends say of the devices that they had.
    pub(crate) suspicion: Suspicion,
}

impl Workers {
    /// Detached actors, and what they lease and make.
    pub(crate) fn outlives_its_job(&self, worker: Key) -> bool {
        self.by_key.get(&worker).is_some_and(|worker| worker.outlives_job && worker.duty.is_use())
    }

    /// How many tasks wait for each other from a driver or an actor down to what `client` runs: none in those two.
    pub(crate) fn depth_of(&self, client: Key) -> u32 {
        self.by_key.get(&client).map_or(0, |worker| worker.depth)
    }

    /// Its number on its machine, once it has a process.
    pub(crate) fn pid_of(&self, worker: Key) -> Option<u32> {
        self.by_key.get(&worker)?.pid
    }

    /// The actor whose process it is.
    pub(crate) fn actor_on(&self, worker: Key) -> Option<ActorId> {
        match self.by_key.get(&worker)?.duty {
            Duty::Actor(id) => Some(id),
            Duty::Idle | Duty::Leased(_) | Duty::Ending => None,
        }
    }

    /// Adds why the worker ended to what its owner is told.
    pub(crate) fn with_cause(&self, key: Key, ended: LeaseEnded) -> LeaseEnded {
        let Some(end) = self.by_key.get(&key).map(|worker| &worker.end) else { return ended };
        let is_device_failure = end.is_device_failure;
        match &end.out_of_memory {
            Some((text, kind)) => LeaseEnded { text: text.clone(), out_of_memory: *kind, ..ended },
            None => LeaseEnded { is_device_failure, ..ended },
        }
    }
}
