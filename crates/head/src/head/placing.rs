//! Who is served, and on which node.

use super::HeadCore;
use super::bundle_placement::BundlePlacement;
use crate::clock::Alarm;
use crate::demands::Need;
use crate::queue_scan::{GO_ON_AFTER, QueueScan};
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
    scan: QueueScan,
    /// What no node can meet.
    refused: Vec<ResourceRequest>,
}

impl Round {
    /// Whether the next class is tried.
    fn tries_next(&mut self) -> bool {
        if self.budget == 0 {
            self.scan.stop();
        }
        self.budget > 0 && self.scan.tries_next()
    }

    /// The one that was tried was served.
    fn serves(&mut self) {
        self.budget -= 1;
        self.scan.was_served();
    }
}

impl HeadCore {
    /// Serves whoever can be served, at most `budget` of them, since something changed or to go on with the last round.
    pub(super) fn serve_queue(&mut self, budget: usize, has_changed: bool) -> Vec<(u64, Share)> {
        let mut round = Round { budget, scan: std::mem::take(&mut self.pending.scan), ..Round::default() };
        round.scan.begin(has_changed);
        let mut queue = std::mem::take(&mut self.pending.queue);
        let mut shares = std::mem::take(self.pending.fairness.shares());
        let served = queue.serve(&mut shares, |claimant, need, ticket| {
            let Need::ResourceRequest(resource_request) = need else {
                return self.share_of_group(need, claimant, *ticket, &mut round);
            };
            if self.pending.fairness.stands_back(claimant, self.clock.now) {
                return None;
            }
            if !round.tries_next() {
                return None;
            }
            let share = self.share_for(resource_request, claimant, *ticket, &mut round)?;
            round.serves();
            self.pending.fairness.is_served(claimant, resource_request);
            self.pending.large.waits_no_more(*ticket);
            Some(share)
        });
        *self.pending.fairness.shares() = shares;
        self.pending.queue = queue;
        if round.scan.end(round.budget > 0) {
            self.clock.alarm_at(self.clock.now + GO_ON_AFTER, Alarm::QueueScan);
        }
        self.pending.scan = round.scan;
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
        if !round.tries_next() {
            return None;
        }
        let (member, parts) = self.share_within(need)?;
        round.serves();
        Some(Share::On(member, need.clone(), parts))
    }

    fn share_for(
        &mut self,
        resource_request: &ResourceRequest,
        claimant: Claimant<JobId>,
        ticket: u64,
        round: &mut Round,
    ) -> Option<Share> {
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
