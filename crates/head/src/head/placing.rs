//! Who is served, and on which node.

use super::bundle_placement::BundlePlacement;
use super::groups::Need;
use super::leases::LARGE_ARGUMENTS_MAX;
use super::{BundleKey, HeadCore, Key, PendingKind, PendingRequest};
use bytes::Bytes;
use oxiray_ids::{NodeId, ObjectId};
use oxiray_scheduler::{Found, LARGE_BYTES_MIN, Near, NodeView, Placement, Reason, ResourceRequest, place};
use oxiray_wire::message::{ArgumentReference, Content, Failure};
use std::collections::BTreeSet;

/// What someone who waited is given.
#[derive(Debug)]
pub(super) enum Share {
    /// BundlePlacement for all bundles of a group that have none: the node of each.
    BundlePlacement(BundlePlacement),
    /// An order to a machine, and the bundle there in which it is to be carried out.
    On(Key, Need, Option<BundleKey>),
    /// Objects are to travel to that node first.
    Prefetches(Need, (NodeId, BTreeSet<ObjectId>)),
}

/// One round through the queue.
#[derive(Debug, Default)]
struct Round {
    /// How many more may be served.
    budget: usize,
    /// What no node can meet.
    refused: Vec<ResourceRequest>,
}

impl HeadCore {
    /// Serves whoever can be served, at most `budget` of them.
    pub(super) fn serve_queue(&mut self, budget: usize) -> Vec<(u64, Share)> {
        let mut round = Round { budget, ..Round::default() };
        let mut queue = std::mem::take(&mut self.pending.queue);
        let mut shares = std::mem::take(self.pending.fairness.shares());
        let served = queue.serve(&mut shares, |job, need, ticket| {
            let Need::ResourceRequest(resource_request) = need else {
                return self.share_of_group(need, *ticket, &mut round);
            };
            if self.pending.fairness.stands_back(job, self.clock.now) {
                return None;
            }
            let share = self.share_for(resource_request, *ticket, &mut round)?;
            self.pending.fairness.is_served(job, resource_request);
            Some(share)
        });
        *self.pending.fairness.shares() = shares;
        self.pending.queue = queue;
        for resource_request in round.refused {
            self.no_node_can(&resource_request);
        }
        served
    }

    /// BundlePlacement for a group, or a part of what it has.
    fn share_of_group(&mut self, need: &Need, ticket: u64, round: &mut Round) -> Option<Share> {
        if let Need::Group(group) = need {
            return self.room_for(ticket, group).map(Share::BundlePlacement);
        }
        round.budget = round.budget.checked_sub(1)?;
        self.share_within(need)
    }

    fn share_for(&mut self, resource_request: &ResourceRequest, ticket: u64, round: &mut Round) -> Option<Share> {
        round.budget = round.budget.checked_sub(1)?;
        let arguments = self.bytes_by_node(&self.reads_of(ticket));
        let near = Near { home: Some(self.home_of(ticket)), arguments: &arguments };
        match self.members.fleet.find(resource_request, &near) {
            Found::On(node) => {
                let to_bring = self.to_bring(ticket, node);
                if !to_bring.is_empty() {
                    return Some(Share::Prefetches(Need::ResourceRequest(resource_request.clone()), (node, to_bring)));
                }
                self.members.fleet.take(node, &resource_request.demand);
                Some(Share::On(
                    *self.members.by_node.get(&node)?,
                    Need::ResourceRequest(resource_request.clone()),
                    None,
                ))
            }
            Found::Busy => None,
            Found::Never => {
                round.refused.push(resource_request.clone());
                None
            }
        }
    }

    /// The machines that can be ordered to do something, as they stand.
    pub(super) fn all_views(&self) -> Vec<NodeView> {
        self.members.views().map(|(_, view)| view.clone()).collect()
    }

    /// Places a request by a look at every node, for the reason.
    pub(super) fn look_everywhere(&self, resource_request: &ResourceRequest) -> Placement {
        place(&self.all_views(), resource_request, &Near::default(), 0)
    }

    /// The node that someone who waits asks from.
    fn home_of(&self, ticket: u64) -> NodeId {
        let asker = match self.pending.wanted.get(&ticket).map(|wanted| &wanted.want) {
            Some(PendingKind::Lease { client, .. }) => Some(*client),
            Some(PendingKind::Actor(id)) => {
                self.actors.known.get(*id).and_then(|actor| self.clients.keys.get(&actor.description.creator)).copied()
            }
            Some(PendingKind::Group { .. }) | None => None,
        };
        asker.map_or(self.own.plan().node, |asker| self.node_of(asker))
    }

    /// The large objects that someone who waits will read, and their bytes.
    pub(super) fn reads_of(&self, ticket: u64) -> Vec<(ObjectId, u64)> {
        match self.pending.wanted.get(&ticket).map(|wanted| &wanted.want) {
            Some(PendingKind::Lease { arguments, .. }) => arguments.clone(),
            Some(PendingKind::Actor(id)) => {
                let spec = self.actors.making.get(id).and_then(|making| making.spec.as_ref());
                spec.map(|spec| stored_among(&spec.references)).unwrap_or_default()
            }
            Some(PendingKind::Group { .. }) | None => Vec::new(),
        }
    }

    /// Why no node there is could ever meet the request.
    pub(super) fn never(&mut self, resource_request: &ResourceRequest) -> Option<Reason> {
        if self.members.fleet.find(resource_request, &Near::default()) != Found::Never {
            return None;
        }
        match self.look_everywhere(resource_request) {
            Placement::Never(reason) => Some(reason),
            Placement::On(_) | Placement::Wait(_) => None,
        }
    }

    /// What keeps the request from being met now.
    pub(super) fn obstacle(&self, resource_request: &ResourceRequest) -> Option<Reason> {
        match self.look_everywhere(resource_request) {
            Placement::Never(reason) | Placement::Wait(reason) => Some(reason),
            Placement::On(_) => None,
        }
    }

    /// Tells someone who waited that they wait for a request no more.
    pub(super) fn turn_away(&mut self, wanted: &PendingRequest, text: String) {
        match wanted.want {
            PendingKind::Lease { client, request, .. } => {
                if let Some(client) = self.clients.by_key.get_mut(&client) {
                    client.waiting.remove(&request);
                }
                self.refuse_lease(client, request, text);
            }
            PendingKind::Actor(id) => {
                let failure = Failure { code: "actor_unschedulable".into(), text, cause: Bytes::new() };
                self.actor_died(id, &failure);
            }
            // It waits for room and not for a request.
            PendingKind::Group { .. } => {}
        }
    }
}

/// The arguments that lie in a store, and their bytes.
fn stored_among(references: &[ArgumentReference]) -> Vec<(ObjectId, u64)> {
    let stored = |argument: &ArgumentReference| match argument.value.as_ref()?.content.as_ref()? {
        Content::Stored(bytes) if *bytes >= LARGE_BYTES_MIN => Some((argument.reference.as_ref()?.object, *bytes)),
        _ => None,
    };
    references.iter().filter_map(stored).take(LARGE_ARGUMENTS_MAX).collect()
}
