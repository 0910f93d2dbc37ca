//! Workers as their machine knows them, and the jobs that they work for.

use crate::memory::{Caller, OfWorker};
use crate::names::{GroupMembership, TemplateKey};
use oxiray_ids::{ActorId, JobId, WorkerId};
use oxiray_resources::Grant;
use oxiray_wire::message::{ActorCreate, Driver, Environment};

/// What a worker is there for, as its machine knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Forked or being forked, and nobody's.
    Spare,
    /// Done with an order, and free for another of its job and environment.
    Idle,
    /// On this order.
    Leased(u64),
    /// The process of this actor.
    Actor(ActorId),
    /// Killed or leaving; it is only waited for.
    Ending,
    /// Killed because more workers were idle than are kept.
    Surplus,
}

/// A worker from the moment its fork is ordered until its process tree is gone.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) template: TemplateKey,
    pub(crate) pid: Option<u32>,
    pub(crate) duty: Duty,
    pub(crate) job: Option<JobId>,
    pub(crate) environment: Environment,
    pub(crate) label: String,
    pub(crate) grant: Option<Grant>,
    /// What an actor needs beyond `grant` until its constructor returned.
    pub(crate) surplus: Option<Grant>,
    pub(crate) home: Option<GroupMembership>,
    /// CORE-3.
    pub(crate) once: bool,
    /// Whether it is a detached actor, or works for one.
    pub(crate) outlives_job: bool,
    /// Killed or dead: its tree is to be gone soon.
    pub(crate) is_doomed: bool,
    pub(crate) memory: OfWorker,
    pub(crate) progress: Progress,
}

/// How far a worker is with what it is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Begun,
    /// The actor's constructor returned.
    Ready,
    /// Its work is done, and it stays for the tasks that it made.
    Lingering,
}

impl Worker {
    /// One whose fork is ordered, and that is nobody's.
    pub(crate) fn new(id: WorkerId, template: TemplateKey) -> Self {
        Self {
            id,
            template,
            pid: None,
            duty: Duty::Spare,
            job: None,
            environment: Environment::default(),
            label: String::new(),
            grant: None,
            surplus: None,
            home: None,
            once: false,
            outlives_job: false,
            is_doomed: false,
            memory: OfWorker::default(),
            progress: Progress::Begun,
        }
    }

    /// What it was granted, where it is on a lease.
    pub(crate) fn grant_on_lease(&mut self) -> Option<&mut Grant> {
        self.grant.as_mut().filter(|_| matches!(self.duty, Duty::Leased(_)))
    }

    /// All that it holds of the ledger.
    pub(crate) fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.grant.iter().chain(&self.surplus)
    }
}

/// A job that orders may name.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) driver: WorkerId,
    pub(crate) told: Driver,
    /// Nothing more is placed for it.
    pub(crate) is_over: bool,
}

/// What a worker is wanted for.
pub(crate) struct Post {
    pub(crate) job: JobId,
    pub(crate) duty: Duty,
    pub(crate) environment: Environment,
    pub(crate) label: String,
    pub(crate) fresh: bool,
    pub(crate) outlives_job: bool,
    pub(crate) actor: Option<ActorCreate>,
    pub(crate) home: Option<GroupMembership>,
    pub(crate) caller: Caller,
}
