//! Where the bundles of placement groups are: on which machines, chosen together, set aside in two phases.
//!
//! First every node that was chosen sets its bundles aside, all of them or none, in its own ledger; only when all have
//! is the group created. Where one has no room after all, or dies, the others give back what they set aside for this
//! attempt, and the group waits again. A member ends with its head, and so does whatever it set aside.
//!
//! - ROOM-1: an answer counts only for the attempt that it is about: what is undone is not waited for any more.
//! - ROOM-2: a bundle keeps its place in its group when it moves to another node; the bundles that did not lose theirs
//!   stay where they are.

use super::HeadCore;
use super::validation::ProtocolError;
use crate::demands::Need;
use crate::fairness::{Held, Holder};
use crate::journal::Row;
use crate::members::{Booked, Prepare};
use crate::queue::PendingKind;
use oxiray_ids::{BundleNumber, NodeId, PlacementGroupId};
use oxiray_machine::{Key, amounts};
use oxiray_resources::Demand;
use oxiray_scheduler::{BundlePart, Claimant, DrawnBundle, Group, draw};
use oxiray_wire::message::{BundleAsked, GroupAnswer, GroupPrepare, GroupPrepared};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The nodes of the bundles that had none.
#[derive(Debug)]
pub(super) struct BundlePlacement {
    nodes: Vec<NodeId>,
}

impl HeadCore {
    /// Room for the bundles of a group that have none: the machines are asked.
    pub(super) fn room_for(&mut self, ticket: u64, wanted: &Group) -> Option<BundlePlacement> {
        let PendingKind::Group { id, .. } = self.pending.wanted.get(&ticket)?.want else { return None };
        let found = self.groups.known.get(id)?;
        let missing = found.missing();
        let standing: Vec<NodeId> = found.nodes.iter().flatten().copied().collect();
        // ROOM-2
        let nodes = self.members.fleet.find_group(wanted, &standing)?;
        let mut of_node: BTreeMap<NodeId, Vec<(usize, Demand)>> = BTreeMap::new();
        for ((index, node), bundle) in missing.into_iter().zip(&nodes).zip(&wanted.bundles) {
            of_node.entry(*node).or_default().push((index, bundle.demand.clone()));
        }
        for (node, bundles) in of_node {
            self.prepare_there(id, node, &bundles);
        }
        Some(BundlePlacement { nodes })
    }

    fn prepare_there(&mut self, group: PlacementGroupId, node: NodeId, bundles: &[(usize, Demand)]) {
        let Some(key) = self.members.by_node.get(&node).copied() else { return };
        let order = self.members.next_order();
        let booked = Booked::OfMachine(bundles.iter().map(|(_, demand)| demand.clone()).collect());
        self.members.book(key, order, booked);
        self.members.show(key);
        self.members.prepares.insert(order, Prepare { member: key, group });
        let asked = bundles
            .iter()
            .map(|(index, demand)| BundleAsked { bundle: BundleNumber::at(*index), demand: amounts(demand.iter()) });
        self.order_member(key, GroupPrepare { order, group, bundles: asked.collect() });
    }

    /// Nodes are chosen, and were asked.
    pub(super) fn group_placed(&mut self, want: &PendingKind, room: &BundlePlacement) {
        let PendingKind::Group { id, .. } = *want else { return };
        let reservation = self.groups.reservations.get_mut(&id).expect("a removed group waits for nothing");
        reservation.ticket = None;
        self.groups.known.placed(id, &room.nodes);
        self.count_bundles(id);
    }

    /// The group's job holds the bundles that have a node.
    pub(super) fn count_bundles(&mut self, id: PlacementGroupId) {
        let Some(group) = self.groups.known.get(id) else { return };
        let bundles = group.nodes.iter().zip(&group.description.group.bundles);
        let there = bundles.filter(|(node, _)| node.is_some()).map(|(_, bundle)| bundle.demand.clone());
        let asked =
            self.groups.reservations.get(&id).map(|reservation| (reservation.priority, reservation.preemptible));
        let (priority, preemptible) = asked.unwrap_or_default();
        let claimant = Claimant::new(group.description.job, priority);
        let held = Held { claimant, demands: there.collect(), is_lease: false, preemptible };
        self.pending.fairness.holds(Holder::Group(id), held, self.own.plan().node, self.clock.now);
    }

    /// A node has set its bundles aside; with the last of them the group is created.
    fn node_prepared(&mut self, id: PlacementGroupId, node: NodeId) {
        let Some(waiters) = self.groups.known.prepared(id, node) else { return };
        self.durable.touch(Row::Group(id));
        if let Some(reservation) = self.groups.reservations.get_mut(&id) {
            let took = self.clock.now.saturating_duration_since(reservation.since);
            reservation.took.get_or_insert(took);
        }
        for (client, request) in waiters {
            self.tell(client, GroupAnswer { request, failure: None });
        }
        // Those that wait within it may have been tried already in this round.
        self.pending.is_due = true;
    }

    /// What a member says to an order to set bundles aside (ROOM-1).
    pub(super) fn prepared_there(&mut self, from: Key, said: &GroupPrepared) -> Result<(), ProtocolError> {
        let Some(Prepare { group, .. }) = self.answered_prepare(from, said.order)? else { return Ok(()) };
        let Some(node) = self.members.node_of_member(from) else { return Ok(()) };
        if !said.is_refused {
            self.node_prepared(group, node);
            return Ok(());
        }
        self.members.refused(from, said.order);
        let offered = self.groups.offered(group);
        self.groups.known.refused(group, node);
        self.undo(group, offered, node);
        self.group_waits_again(group);
        Ok(())
    }

    /// Gives back what was set aside for an attempt that failed because of one node.
    fn undo(&mut self, id: PlacementGroupId, offered: Vec<(usize, NodeId)>, failed: NodeId) {
        self.members.prepares.retain(|_, prepare| prepare.group != id);
        let mut there: BTreeMap<NodeId, Vec<BundleNumber>> = BTreeMap::new();
        for (bundle, node) in offered {
            if node != failed {
                there.entry(node).or_default().push(BundleNumber::at(bundle));
            }
        }
        self.tell_release(id, there);
    }

    /// A member is gone, and the bundles that it had set aside: their groups wait for others in their place.
    pub(super) fn bundles_lost(&mut self, member: Key, node: NodeId) {
        self.members.prepares.retain(|_, prepare| prepare.member != member);
        let hit = self.groups.known.iter().filter(|group| group.nodes.contains(&Some(node)));
        let under_way: Vec<_> = hit.map(|group| group.description.id).map(|id| (id, self.groups.offered(id))).collect();
        let again = self.groups.known.machine_died(node);
        for (id, _) in again {
            self.durable.touch(Row::Group(id));
            let offered = under_way.iter().find(|(hit, _)| *hit == id).map(|(_, offered)| offered.clone());
            self.undo(id, offered.unwrap_or_default(), node);
            self.group_waits_again(id);
        }
    }

    /// A group gives back the bundles that it has on these nodes, and they wait for room anew.
    pub(super) fn move_from(&mut self, id: PlacementGroupId, nodes: BTreeSet<NodeId>) {
        let mut there: BTreeMap<NodeId, Vec<BundleNumber>> = BTreeMap::new();
        for node in nodes {
            let bundles: Vec<_> = self.groups.known.moved(id, node).into_iter().map(BundleNumber::at).collect();
            if !bundles.is_empty() {
                there.insert(node, bundles);
            }
        }
        if there.is_empty() {
            return;
        }
        self.durable.touch(Row::Group(id));
        self.tell_release(id, there);
        self.group_waits_again(id);
    }

    /// The group's missing bundles stand in the queue.
    pub(super) fn group_waits_again(&mut self, id: PlacementGroupId) {
        self.count_bundles(id);
        let Some(reservation) = self.groups.reservations.get_mut(&id) else { return };
        let (maker, priority) = (reservation.maker, reservation.priority);
        if let Some(stale) = reservation.ticket.take() {
            // It waited for fewer bundles.
            self.pending.withdraw(stale);
        }
        let Some(found) = self.groups.known.get(id) else { return };
        let description = &found.description;
        let mut group = Group::clone(&description.group);
        group.bundles = found.missing().into_iter().map(|bundle| group.bundles[bundle].clone()).collect();
        let claimant = Claimant::new(description.job, priority);
        let label = if description.name.is_empty() { id.hex() } else { description.name.clone() };
        match self.enqueue(PendingKind::Group { id, maker }, claimant, label, Need::Group(Arc::new(group))) {
            Ok(ticket) => {
                if let Some(reservation) = self.groups.reservations.get_mut(&id) {
                    reservation.ticket = Some(ticket);
                }
            }
            Err(full) => self.group_remove(id, &full),
        }
    }

    /// What the bundle that is named gives, or those of the group whose choice [`draw`] makes.
    pub(super) fn share_within(&mut self, need: &Need) -> Option<(Key, Vec<BundlePart>)> {
        let Need::Within { group, bundle, demand } = need else { return None };
        if self.pending.preemption.is_ending(Holder::Group(*group)) {
            // PREEMPTION-4.
            return None;
        }
        let (node, parts) = draw(&self.bundles_for(*group, *bundle)?, demand)?;
        let key = *self.members.by_node.get(&node)?;
        self.members.take_within(key, *group, &parts);
        Some((key, parts))
    }

    /// The bundle that is named, or all of the group, where they may give something.
    pub(super) fn bundles_for(
        &self,
        group: PlacementGroupId,
        bundle: Option<BundleNumber>,
    ) -> Option<Vec<DrawnBundle<'_>>> {
        let found = self.groups.known.get(group)?;
        let among = bundle.map_or(0..found.nodes.len(), |bundle| bundle.index()..bundle.index() + 1);
        let bundles = among.filter_map(|index| {
            let key = self.members.by_node.get(&found.nodes.get(index).copied().flatten()?)?;
            // DRAIN-1: where it is being emptied, the bundle moves as soon as nothing runs there.
            let member = self.members.by_key.get(key).filter(|_| self.members.takes(*key))?;
            let number = BundleNumber::at(index);
            let reserved = &found.description.group.bundles[index].demand;
            Some(DrawnBundle { number, reserved, view: member.bundles().get(&(group, number))? })
        });
        Some(bundles.collect())
    }
}
