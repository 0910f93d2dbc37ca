//! Who is served, and on which node.

use super::HeadCore;
use super::bundle_placement::BundlePlacement;
use crate::demands::Need;
use oxiray_ids::{JobId, NodeId, ObjectId};
use oxiray_machine::Key;
use oxiray_scheduler::{BundlePart, Claimant, Found, Near, ResourceRequest};
use std::collections::BTreeSet;

/// What someone who waited is given.
#[derive(Debug)]
pub(super) enum Share {
    /// Room for all bundles of a group that have none: the node of each.
    BundlePlacement(BundlePlacement),
    /// An order to a machine, and what each bundle there gives for it where it is to be carried out in a group.
    On(Key, Need, Vec<BundlePart>),
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
        let served = queue.serve(&mut shares, |claimant, need, ticket| {
            let Need::ResourceRequest(resource_request) = need else {
                return self.share_of_group(need, claimant, *ticket, &mut round);
            };
            if self.pending.fairness.stands_back(claimant, self.clock.now) {
                return None;
            }
            let share = self.share_for(resource_request, claimant, *ticket, &mut round)?;
            self.pending.fairness.is_served(claimant, resource_request);
            self.pending.large.waits_no_more(*ticket);
            Some(share)
        });
        *self.pending.fairness.shares() = shares;
        self.pending.queue = queue;
        for resource_request in round.refused {
            self.no_node_can(&resource_request);
        }
        served
    }

    /// Room for a group, or a part of what it has.
    fn share_of_group(
        &mut self,
        need: &Need,
        claimant: Claimant<JobId>,
        ticket: u64,
        round: &mut Round,
    ) -> Option<Share> {
        if let Need::Group(group) = need {
            let is_kept_from = self.may_meet_kept_room(group.bundles.iter().map(|bundle| &bundle.demand))
                && !self.may_take_kept_room(claimant, ticket);
            if is_kept_from && !self.hide_kept_room() {
                return None;
            }
            let room = self.room_for(ticket, group)?;
            self.pending.large.waits_no_more(ticket);
            return Some(Share::BundlePlacement(room));
        }
        round.budget = round.budget.checked_sub(1)?;
        let (member, parts) = self.share_within(need)?;
        Some(Share::On(member, need.clone(), parts))
    }

    fn share_for(
        &mut self,
        resource_request: &ResourceRequest,
        claimant: Claimant<JobId>,
        ticket: u64,
        round: &mut Round,
    ) -> Option<Share> {
        round.budget = round.budget.checked_sub(1)?;
        let arguments = self.bytes_by_node(&self.reads_of(ticket));
        let near = Near { home: Some(self.home_of(ticket)), arguments: &arguments };
        let mut found = self.members.fleet.find(resource_request, &near);
        if let Found::On(node) = found
            && self.is_kept_room(node, &resource_request.demand)
            && !self.may_take_kept_room(claimant, ticket)
        {
            if !self.hide_kept_room() {
                return None;
            }
            found = self.members.fleet.find(resource_request, &near);
        }
        match found {
            Found::On(node) => {
                let to_bring = self.to_bring(ticket, node);
                if !to_bring.is_empty() {
                    return Some(Share::Prefetches(Need::ResourceRequest(resource_request.clone()), (node, to_bring)));
                }
                self.members.fleet.take(node, &resource_request.demand);
                Some(Share::On(
                    *self.members.by_node.get(&node)?,
                    Need::ResourceRequest(resource_request.clone()),
                    Vec::new(),
                ))
            }
            Found::Busy => None,
            Found::Never => {
                round.refused.push(resource_request.clone());
                None
            }
        }
    }
}
