//! Who stands behind an entry of the queue: where they are, what they read, and whether they still want it.

use super::HeadCore;
use crate::actors::Making;
use crate::demands::Need;
use crate::queue::{PendingKind, PendingRequest};
use oxiray_ids::{ActorId, JobId, NodeId, ObjectId};
use oxiray_machine::environments::merged;
use oxiray_machine::{GroupMembership, Key};
use oxiray_scheduler::PushError;
use oxiray_wire::message::{Environment, Failure};

impl HeadCore {
    /// Has somebody wait for what they need.
    pub(super) fn push(&mut self, ticket: u64, wanted: &PendingRequest, need: Need) -> Result<(), PushError> {
        self.pending.push(self.depth_behind(&wanted.want), ticket, wanted.claimant, need)
    }

    /// How many leases away from a driver or an actor the one is who asked.
    pub(super) fn depth_behind(&self, want: &PendingKind) -> u32 {
        self.asker(want).map_or(0, |client| self.workers.depth_of(client))
    }

    /// The process that asked.
    pub(super) fn asker(&self, want: &PendingKind) -> Option<Key> {
        match want {
            PendingKind::Lease { client, .. } => Some(*client),
            PendingKind::Group { maker, .. } => Some(*maker),
            PendingKind::Actor(id) => {
                let maker = self.actors.making.get(id).and_then(Making::maker);
                maker.and_then(|maker| self.clients.key_of(maker))
            }
        }
    }

    /// Whether what was asked for may end early for what is more urgent.
    pub(super) fn may_be_preempted(&self, want: &PendingKind) -> bool {
        match want {
            PendingKind::Lease { preemptible, .. } => *preemptible,
            PendingKind::Actor(id) => self.actors.known.get(*id).is_some_and(|actor| actor.description.preemptible),
            PendingKind::Group { .. } => false,
        }
    }

    /// Whether nobody took back meanwhile what was ordered.
    pub(super) fn still_waits(&self, wanted: &PendingRequest, ticket: u64) -> bool {
        match wanted.want {
            PendingKind::Lease { client, request, .. } => {
                self.clients.by_key.get(&client).is_some_and(|client| client.waiting.get(&request) == Some(&ticket))
            }
            PendingKind::Actor(id) => self.actors.making.get(&id).is_some_and(|making| making.waits_as(ticket)),
            PendingKind::Group { .. } => false,
        }
    }

    /// The group that somebody who waits is to run in.
    pub(super) fn home_wanted(&self, want: &PendingKind) -> Option<GroupMembership> {
        match want {
            PendingKind::Lease { home, .. } => *home,
            PendingKind::Actor(actor) => self.actors.making.get(actor).and_then(Making::home),
            PendingKind::Group { .. } => None,
        }
    }

    /// That the group in which somebody was to run was removed meanwhile.
    pub(super) fn home_lost(&self, want: &PendingKind) -> Option<Failure> {
        self.groups.lost(self.home_wanted(want)?)
    }

    /// The environment that somebody asks for besides that of their job.
    pub(super) fn own_environment<'a>(&'a self, want: &'a PendingKind) -> Option<&'a Environment> {
        match want {
            PendingKind::Lease { environment, .. } => Some(environment),
            PendingKind::Actor(id) => self.actors.making.get(id).and_then(Making::environment),
            PendingKind::Group { .. } => None,
        }
    }

    /// What somebody who waits is to find around it.
    pub(super) fn environment_wanted(&self, wanted: &PendingRequest) -> Environment {
        let of_job = self.jobs.details.get(&wanted.claimant.job).and_then(|detail| detail.told.environment.as_ref());
        merged(of_job, self.own_environment(&wanted.want).unwrap_or(&Environment::default()))
    }

    /// The node that someone who waits asks from.
    pub(super) fn home_of(&self, ticket: u64) -> NodeId {
        let asker = match self.pending.wanted.get(&ticket).map(|wanted| &wanted.want) {
            Some(PendingKind::Lease { client, .. }) => Some(*client),
            Some(PendingKind::Actor(id)) => {
                self.actors.known.get(*id).and_then(|actor| self.clients.keys.get(&actor.description.creator)).copied()
            }
            Some(PendingKind::Group { .. }) | None => None,
        };
        asker.map_or(self.own.plan().node, |asker| self.members.node_of(asker))
    }

    /// The large objects that someone who waits will read, and their bytes.
    pub(super) fn reads_of(&self, ticket: u64) -> Vec<(ObjectId, u64)> {
        match self.pending.wanted.get(&ticket).map(|wanted| &wanted.want) {
            Some(PendingKind::Lease { arguments, .. }) => arguments.clone(),
            Some(PendingKind::Actor(id)) => self.actors.making.get(id).map(Making::reads).unwrap_or_default(),
            Some(PendingKind::Group { .. }) | None => Vec::new(),
        }
    }

    /// Whether it goes on when its job is over: it is detached, or made by one that is.
    pub(super) fn actor_outlives_its_job(&self, id: ActorId) -> bool {
        self.actors.known.get(id).is_some_and(|actor| {
            let creator = self.clients.key_of(actor.description.creator);
            actor.description.detached || creator.is_some_and(|creator| self.workers.outlives_its_job(creator))
        })
    }

    /// Whether what somebody asked for goes on when its job is over.
    pub(super) fn wanted_outlives_its_job(&self, want: &PendingKind) -> bool {
        match want {
            PendingKind::Lease { client, .. } => self.workers.outlives_its_job(*client),
            PendingKind::Actor(id) => self.actor_outlives_its_job(*id),
            PendingKind::Group { .. } => false,
        }
    }

    /// Whether a client of the job may have something new begin: detached actors, and who works for them, still may when
    /// the job ends.
    pub(super) fn may_begin(&self, client: Key, job: JobId) -> bool {
        !self.jobs.is_ending(job) || self.workers.outlives_its_job(client)
    }
}
