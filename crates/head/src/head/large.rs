//! Room that is kept for a request which smaller ones overtake, or for which others end.

use super::HeadCore;
use crate::clock::Alarm;
use crate::demands::Need;
use crate::large::{LargeRequests, Places, nearest};
use oxiray_ids::{JobId, NodeId};
use oxiray_resources::{Capacity, Demand, FreeDevices, Quantity, ResourceName, Room};
use oxiray_scheduler::{Claimant, Found, Near, Priority};
use std::collections::BTreeSet;
use std::time::Instant;

impl HeadCore {
    /// Keeps room for a request that is overtaken again and again, where there is none for which some is kept.
    pub(super) fn keep_room(&mut self) {
        if !self.pending.large.is_due(self.clock.now) {
            return;
        }
        let mut found = None;
        for waiting in self.pending.queue.waiting().filter(|waiting| waiting.depth == 0) {
            let (ticket, Need::ResourceRequest(asked)) = (*waiting.oldest, waiting.resource_request) else { continue };
            let since = self.pending.wanted.get(&ticket).map(|wanted| wanted.since);
            let waited = since.map(|since| self.clock.now.saturating_duration_since(since)).unwrap_or_default();
            if !LargeRequests::is_large(waiting.overtaken, waited) {
                continue;
            }
            let nodes = self.members.views().filter(|(_, view)| asked.may_be_met_on(view));
            let nodes = nodes.map(|(_, view)| (view, Demand::sum(&self.pending.fairness.leased_on(view.node))));
            if let Some(place) = nearest(nodes, &asked.demand) {
                found = Some(((ticket, waiting.resource_request.clone()), waiting.claimant.priority, place));
                break;
            }
        }
        if let Some((waits, priority, place)) = found {
            let until = self.pending.large.keep(waits, priority, place, self.clock.now);
            self.clock.alarm_at(until, Alarm::KeptRoom);
        }
    }

    /// LARGE-4: others end for one who waits, at the latest by then.
    pub(super) fn keep_made_room(&mut self, waits: (u64, Need), priority: Priority, places: Places, ended_by: Instant) {
        if let Some(until) = self.pending.large.keep_made(waits, priority, places, ended_by) {
            self.clock.alarm_at(until, Alarm::KeptRoom);
        }
    }

    /// Room was kept for long enough: whoever waits is looked at anew.
    pub(super) fn room_is_kept_no_longer(&mut self) {
        self.pending.is_due |= self.pending.large.expires(self.clock.now);
    }

    /// Whether room that is kept is not kept from that one (LARGE-3).
    pub(super) fn may_take_kept_room(&self, claimant: Claimant<JobId>, ticket: u64) -> bool {
        let Some(kept) = self.pending.large.kept() else { return true };
        let is_called = || self.pending.wanted.get(&ticket).is_some_and(|wanted| self.depth_behind(&wanted.want) > 0);
        kept.ticket == ticket || claimant.priority > kept.priority || is_called()
    }

    /// Whether that node is where room is kept, of which the demand would take some.
    pub(super) fn is_kept_room(&self, node: NodeId, demand: &Demand) -> bool {
        self.pending.large.kept().is_some_and(|kept| kept.is_taken_on(node, demand))
    }

    /// Whether one of the demands could take of what is kept.
    pub(super) fn may_meet_kept_room<'a>(&self, mut demands: impl Iterator<Item = &'a Demand>) -> bool {
        self.pending.large.kept().is_some_and(|kept| demands.any(|demand| kept.is_taken_by(demand)))
    }

    /// For the rest of this round nobody finds what is kept, unless it is enough by now: then the one for whom it is kept is
    /// served in this round, or was. Returns whether it is hidden.
    pub(super) fn hide_kept_room(&mut self) -> bool {
        let Some(kept) = self.pending.large.kept() else { return false };
        let is_enough = match &kept.need {
            Need::ResourceRequest(request) => {
                matches!(self.members.fleet.find(request, &Near::default()), Found::On(_))
            }
            Need::Group(group) => self.members.fleet.find_group(group, &[]).is_some(),
            Need::Within { .. } => true,
        };
        if is_enough {
            return false;
        }
        for (node, resources) in &kept.places {
            let Some(mut view) = self.members.fleet.view_of(*node) else { continue };
            for name in resources {
                view.free.entry(name.clone()).and_modify(|free| *free = Quantity::ZERO);
                view.free_devices.entry(name.clone()).and_modify(|devices| *devices = without_free(devices));
            }
            self.members.fleet.put(&view);
        }
        self.pending.large.is_hidden = true;
        true
    }

    /// The round is over: the nodes where room is kept are shown as they stand.
    pub(super) fn show_kept_room(&mut self, nodes: &[NodeId]) {
        if std::mem::take(&mut self.pending.large.is_hidden) {
            for node in nodes {
                if let Some(key) = self.members.by_node.get(node).copied() {
                    self.members.show(key);
                }
            }
        }
    }

    /// Why a request waits for which room is kept, or from which it is; nothing where that has nothing to do with it.
    pub(super) fn kept_room_in_words(&self, ticket: u64, demand: &Demand) -> Option<String> {
        let kept = self.pending.large.kept()?;
        let names: BTreeSet<&str> = kept.places.values().flatten().map(ResourceName::as_str).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(" and ");
        let nodes: Vec<String> = kept.places.keys().map(NodeId::hex).collect();
        let nodes = format!("{} {}", if nodes.len() == 1 { "node" } else { "nodes" }, nodes.join(", "));
        if kept.ticket == ticket {
            let why = if kept.is_made { "others end for it" } else { "it was overtaken often" };
            return Some(format!("{why}, and the {names} that become free on {nodes} are kept for it"));
        }
        let label = &self.pending.wanted.get(&kept.ticket)?.label;
        let why = if kept.is_made { "for which others end" } else { "which was overtaken often" };
        kept.is_taken_by(demand).then(|| format!("the {names} of {nodes} are kept for `{label}`, {why}"))
    }
}

/// Devices of which nothing is free.
fn without_free(devices: &FreeDevices) -> FreeDevices {
    devices.iter().map(|room| room.map(|room| Room { free: Capacity::default(), ..room })).collect()
}
