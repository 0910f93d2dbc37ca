//! Everybody who waits for a worker or for bundles: for an environment first, then in the queue, and for objects that
//! travel ahead of them.

mod prefetches;

use crate::deadlocks::Deadlocks;
use crate::demands::Need;
use crate::fairness::Fairness;
use crate::large::LargeRequests;
use crate::preemption::Preemptions;
use crate::queue_scan::QueueScan;
use oxiray_ids::{ActorId, JobId, LeaseRequestNumber, ObjectId, PlacementGroupId};
use oxiray_machine::environments::Environments;
use oxiray_machine::{GroupMembership, Key};
use oxiray_scheduler::{Claimant, PushError, ResourceRequest, WaitQueue};
use oxiray_wire::message::{Environment, Failure};
use oxiray_wire::state::DemandKind;
pub(crate) use prefetches::{AHEAD_LIMIT, Prefetches};
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// Who waits.
#[derive(Debug, Clone)]
pub(crate) enum PendingKind {
    Lease {
        client: Key,
        request: LeaseRequestNumber,
        environment: Environment,
        fresh: bool,
        home: Option<GroupMembership>,
        /// Large objects that are read, and their bytes.
        arguments: Vec<(ObjectId, u64)>,
        /// Whether its tasks may be run again.
        may_repeat: bool,
        /// Whether they may end early for what is more urgent.
        preemptible: bool,
    },
    Actor(ActorId),
    Group {
        id: PlacementGroupId,
        maker: Key,
    },
}

impl PendingKind {
    /// In a word.
    pub(crate) fn kind(&self) -> DemandKind {
        match self {
            Self::Lease { .. } => DemandKind::Task,
            Self::Actor(_) => DemandKind::Actor,
            Self::Group { .. } => DemandKind::Group,
        }
    }
}

/// What stands behind a ticket.
#[derive(Debug, Clone)]
pub(crate) struct PendingRequest {
    pub(crate) want: PendingKind,
    pub(crate) claimant: Claimant<JobId>,
    pub(crate) label: String,
    pub(crate) since: Instant,
    /// Objects have travelled for it once: nobody waits so twice.
    pub(crate) is_brought: bool,
}

impl PendingRequest {
    /// Who it is, as the autoscaler is told and people are.
    pub(crate) fn in_words(&self) -> String {
        format!("{} `{}`", self.want.kind(), self.label)
    }
}

/// When a class of the queue that no node can meet is to be looked at again.
pub(crate) type Shortages = HashMap<ResourceRequest, Instant>;

/// Everybody who waits for a worker or for bundles, and who is served first.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) queue: WaitQueue<JobId, u64, Need>,
    pub(crate) scan: QueueScan,
    /// Who stands behind each ticket, in the queue or out of it.
    pub(crate) wanted: BTreeMap<u64, PendingRequest>,
    pub(crate) environments: Environments<Need>,
    /// Who is to be told that there is no environment for them, and why.
    pub(crate) unprepared: Vec<(u64, Failure)>,
    pub(crate) ahead: Prefetches,
    pub(crate) shortages: Shortages,
    pub(crate) fairness: Fairness,
    pub(crate) large: LargeRequests,
    pub(crate) deadlocks: Deadlocks,
    pub(crate) preemption: Preemptions,
    /// Something came or changed by which somebody may be served.
    pub(crate) is_due: bool,
}

impl Pending {
    /// Somebody stands in the queue, or will.
    pub(crate) fn someone_came(&mut self) {
        self.is_due = true;
        self.fairness.reclaim.someone_came = true;
    }

    /// Has somebody stand in the queue who runs, or waits, so many leases away from a driver or an actor.
    pub(crate) fn push(
        &mut self,
        depth: u32,
        ticket: u64,
        claimant: Claimant<JobId>,
        need: Need,
    ) -> Result<(), PushError> {
        self.queue.push_from(depth, claimant, ticket, need)
    }

    /// Takes back what somebody waits for, wherever it waits (ENVIRONMENT-2).
    pub(crate) fn withdraw(&mut self, ticket: u64) -> Option<PendingRequest> {
        self.large.waits_no_more(ticket);
        if !self.queue.cancel(&ticket) {
            self.environments.withdraw(ticket);
            self.ahead.withdraw(ticket);
        }
        self.wanted.remove(&ticket)
    }

    /// All who wait for what no machine could give are looked at anew.
    pub(crate) fn look_at_all_shortages(&mut self) {
        self.shortages.clear();
        self.is_due = true;
    }
}
