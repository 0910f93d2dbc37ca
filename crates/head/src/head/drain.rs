//! Emptying members ahead of their end.
//!
//! - DRAIN-1: nothing new is placed on a node that is being emptied. What was ordered before and comes to be is ended
//!   before it is used, and placed anew.
//! - DRAIN-2: what runs there may end by itself until the deadline; then the node ends, and what ran there is run again
//!   elsewhere without that being counted.
//! - DRAIN-3: without a deadline, and where all is done before it, the node ends when nothing is left there: no worker,
//!   no program, no bundle, and no object of which there is no other copy.
//! - DRAIN-4: the bundles of a group that are there move together, when nothing runs within them.
//! - DRAIN-5: that a node is to be emptied, or is kept after all, is written down before it is answered, and holds for the
//!   heads that come after this one.

use super::HeadCore;
use crate::clock::Alarm;
use crate::journal::{Row, Undo};
use crate::members::{DrainRow, Left, Order};
use crate::placement_groups::{GroupPhase, PlacementGroup};
use crate::workers::Duty;
use oxiray_ids::{NodeId, ObjectId, PlacementGroupId};
use oxiray_machine::{Effect, Key, check_name};
use oxiray_wire::message::{CopyWanted, DrainAsked, Draining, NodeDismissed, StateReport};
use oxiray_wire::state::{ChronicleEvent, DrainState, DrainTold, STATE_VERSION};
use std::collections::BTreeSet;
use std::time::Duration;

/// How often it is looked at what is left on a node.
const PERIOD: Duration = Duration::from_millis(100);

impl HeadCore {
    /// A client or the command line wants a node emptied.
    pub(crate) fn drain_asked(&mut self, from: Key, asked: &DrainAsked) {
        let (request, version) = (asked.request, STATE_VERSION);
        let report = |told| StateReport { request, drained: Some(told), version, ..StateReport::default() };
        let answer = self.drain(from, asked).map(report);
        self.answer_state(from, request, answer, String::new());
    }

    fn drain(&mut self, from: Key, asked: &DrainAsked) -> Result<DrainTold, String> {
        check_name("a node's name", &asked.node)?;
        check_name("a reason", &asked.reason)?;
        let (key, node) = self.members.drainable(&asked.node)?;
        let before = self.members.drains.get(&key).map(|drain| drain.asked.clone());
        let told = self.drain_member(key, node, asked)?;
        let undo = Undo::Drain { request: asked.request, node, before };
        self.durable.asked(from, undo, Some(self.out.len()));
        Ok(told)
    }

    fn drain_member(&mut self, key: Key, node: NodeId, asked: &DrainAsked) -> Result<DrainTold, String> {
        if asked.undo {
            return self.keep_after_all(key, node);
        }
        let left = self.left_on(key);
        if asked.only_if_idle && self.work_on(key).is_in_use() {
            return Err(format!("node {node} is not idle: {left}. Drain it without asking for that"));
        }
        let is_new = !self.members.drains.contains_key(&key);
        self.log(format!("node {node} is being drained, {}: {}", Self::in_words(asked.deadline_ms), asked.reason));
        let until_ms = asked.deadline_ms.map(|left| self.clock.wall_ms.saturating_add(left));
        self.begin_drain(key, DrainRow { reason: asked.reason.clone(), until_ms });
        if is_new {
            self.drain_on(key);
        }
        Ok(DrainTold { node_id: node, draining: true, left: Some(self.left_on(key).shown()) })
    }

    /// Empties a node whose end is decided: what runs there may end by itself.
    pub(super) fn drain_for(&mut self, key: Key, reason: &str) {
        self.begin_drain(key, DrainRow { reason: reason.to_owned(), until_ms: None });
        self.drain_on(key);
    }

    /// GROW-3.
    pub(super) fn drain_leaving(&mut self, key: Key) {
        let is_leaving = self.members.by_key.get(&key).is_some_and(|member| self.growth.takes_away(&member.told));
        if is_leaving && !self.members.drains.contains_key(&key) {
            self.drain_for(key, "its machine is being taken away");
        }
    }

    fn begin_drain(&mut self, key: Key, asked: DrainRow) {
        let left_ms = |until_ms: u64| until_ms.saturating_sub(self.clock.wall_ms);
        let until = asked.until_ms.map(|until_ms| self.clock.now + Duration::from_millis(left_ms(until_ms)));
        self.note_draining(ChronicleEvent::NodeDraining, key, &asked.reason);
        let drain = self.members.drains.entry(key).or_default();
        (drain.until, drain.asked) = (until, asked);
        self.write_drain(key);
        self.members.show(key);
        self.tell_draining(key);
    }

    fn write_drain(&mut self, key: Key) {
        if let Some(node) = self.members.node_of_member(key) {
            self.durable.touch(Row::Member(node));
        }
    }

    /// A member comes back that the last head may have been emptying (DRAIN-5).
    pub(super) fn drain_again(&mut self, key: Key, node: NodeId) {
        let Some(asked) = self.members.drained_before.remove(&node) else { return };
        self.begin_drain(key, asked);
        self.clock.alarm_at(self.clock.now + PERIOD, Alarm::Drain(key));
    }

    /// What was asked for could not be written down: the node is emptied as `before`, or not at all.
    pub(super) fn undo_drain(&mut self, node: NodeId, before: Option<DrainRow>) {
        let Some(key) = self.members.by_node.get(&node).copied() else { return };
        match before {
            Some(asked) => {
                self.begin_drain(key, asked);
                self.drain_on(key);
            }
            // Where it ends already, nothing takes that back.
            None => drop(self.keep_after_all(key, node)),
        }
    }

    fn in_words(deadline_ms: Option<u64>) -> String {
        deadline_ms.map_or("without a deadline".to_owned(), |ms| format!("for {} s at most", ms as f64 / 1000.0))
    }

    fn keep_after_all(&mut self, key: Key, node: NodeId) -> Result<DrainTold, String> {
        match self.members.drains.get(&key) {
            None => return Err(format!("node {node} is not being drained")),
            Some(drain) if drain.is_dismissed => return Err(format!("node {node} ends already")),
            Some(_) => {}
        }
        self.members.drains.remove(&key);
        self.log(format!("node {node} is not drained after all"));
        self.note_draining(ChronicleEvent::NodeKept, key, "");
        self.write_drain(key);
        self.members.show(key);
        self.pending.is_due = true;
        self.tell_all_on(key, &Draining { is_over: true, ..Draining::default() });
        Ok(DrainTold { node_id: node, draining: false, left: None })
    }

    fn note_draining(&mut self, event: ChronicleEvent, key: Key, text: &str) {
        let Some(member) = self.members.by_key.get(&key) else { return };
        let (node, name) = (member.view.node, member.told.name.clone());
        self.note_node(event, node, &name, text);
    }

    fn clients_on(&self, member: Key) -> Vec<Key> {
        let Some(member) = self.members.by_key.get(&member) else { return Vec::new() };
        member.workers.values().copied().filter(|key| self.clients.by_key.contains_key(key)).collect()
    }

    fn tell_draining(&mut self, key: Key) {
        if let Some(told) = self.members.draining_of(key, self.clock.now) {
            self.tell_all_on(key, &told);
        }
    }

    /// The clients on a member hear how it is being emptied.
    fn tell_all_on(&mut self, member: Key, told: &Draining) {
        for client in self.clients_on(member) {
            self.send(client, told.clone());
        }
    }

    /// Goes on emptying a node, and has it end when it is empty or its time is over.
    pub(super) fn drain_on(&mut self, key: Key) {
        let Some(drain) = self.members.drains.get(&key).filter(|drain| !drain.is_dismissed) else { return };
        let until = drain.until;
        let is_over = until.is_some_and(|until| until <= self.clock.now);
        if self.durable.resumption.is_under_way() && !is_over {
            // What is left there is not known before all who are there have told.
            return self.clock.alarm_at(self.clock.now + PERIOD, Alarm::Drain(key));
        }
        self.retire_leases(key);
        self.dismiss_idle(key);
        self.move_bundles(key);
        self.copy_objects(key);
        let is_empty = self.left_on(key) == Left::default();
        if is_empty || is_over {
            return self.dismiss_member(key, is_empty);
        }
        let next = self.clock.now + PERIOD;
        self.clock.alarm_at(until.map_or(next, |until| until.min(next)), Alarm::Drain(key));
    }

    fn dismiss_member(&mut self, key: Key, is_empty: bool) {
        let Some(drain) = self.members.drains.get_mut(&key) else { return };
        drain.is_dismissed = true;
        let why = if is_empty { "nothing is left there" } else { "its time is over" };
        let text = format!("this node was drained ({}), and {why}", drain.asked.reason);
        self.log(format!("member {key} is told to end: {why}"));
        self.send(key, NodeDismissed { text });
    }

    /// DRAIN-1: owners give their workers there back when what these run is done.
    fn retire_leases(&mut self, key: Key) {
        let on_member = |worker: &Key| self.members.member_with(*worker) == key;
        let there = self.workers.leases.iter().filter(|(_, lease)| on_member(&lease.worker));
        let there: Vec<u64> = there.map(|(key, _)| *key).collect();
        let Some(drain) = self.members.drains.get_mut(&key) else { return };
        for lease in drain.retire(there.into_iter()) {
            self.retire_lease(lease);
        }
    }

    fn dismiss_idle(&mut self, key: Key) {
        let idle = |worker: &Key| self.workers.by_key.get(worker).is_some_and(|worker| worker.duty == Duty::Idle);
        for worker in self.clients_on(key).into_iter().filter(idle).collect::<Vec<_>>() {
            self.kill_worker(worker);
        }
    }

    /// DRAIN-4.
    fn move_bundles(&mut self, key: Key) {
        let Some(node) = self.members.node_of_member(key) else { return };
        let is_settled =
            |group: &&PlacementGroup| matches!(group.phase, GroupPhase::Created | GroupPhase::Rescheduling);
        let hit = self.groups.known.iter().filter(is_settled).filter(|group| group.nodes.contains(&Some(node)));
        let idle = hit.map(|group| group.description.id).filter(|id| !self.is_used(key, *id));
        for id in idle.collect::<Vec<_>>() {
            self.move_from(id, BTreeSet::from([node]));
        }
    }

    /// Whether anything runs within a group's bundles on a member, or is about to.
    fn is_used(&self, key: Key, group: PlacementGroupId) -> bool {
        let Some(member) = self.members.by_key.get(&key) else { return false };
        let workers = member.workers.values().filter_map(|worker| self.workers.by_key.get(worker));
        let mut within = workers.filter(|worker| worker.home.is_some_and(|home| home.group == group));
        let is_ordered = |order: &Order| {
            order.member == key && self.home_wanted(&order.wanted.want).is_some_and(|home| home.group == group)
        };
        within.next().is_some() || self.members.orders.values().any(is_ordered)
    }

    /// Copies elsewhere what only nodes have that are being emptied.
    fn copy_objects(&mut self, key: Key) {
        let only = self.only_there(key);
        let Some(drain) = self.members.drains.get_mut(&key) else { return };
        for (object, tries) in drain.copies_due(&only, self.clock.now) {
            // Where the roomiest did not get it, this node is asked.
            match self.members.roomiest().filter(|_| tries == 0) {
                Some(member) => self.send(member, CopyWanted { object }),
                None => self.out.push(Effect::Copy { object }),
            }
        }
    }

    /// The objects of which no node has a copy but the member, and others that are being emptied.
    fn only_there(&self, key: Key) -> Vec<ObjectId> {
        let drain = self.members.drains.get(&key);
        let is_lasting = |member: &Key| !self.members.drains.contains_key(member);
        let of_member = self.objects.locations.held_by(key).filter(|(object, members)| {
            !members.iter().any(is_lasting) && drain.is_none_or(|drain| !drain.has_copy_here(*object))
        });
        of_member.map(|(object, _)| object).filter(|object| self.objects.known.has_bytes(*object)).collect()
    }

    /// DRAIN-3.
    pub(super) fn left_on(&self, key: Key) -> Left {
        let given_up = |object: &ObjectId| {
            self.members.drains.get(&key).is_some_and(|drain| drain.is_given_up(*object, self.clock.now))
        };
        let objects = self.only_there(key).iter().filter(|object| !given_up(object)).count();
        Left { objects, ..self.work_on(key) }
    }

    /// The same without objects.
    pub(super) fn work_on(&self, key: Key) -> Left {
        let Some(member) = self.members.by_key.get(&key) else { return Left::default() };
        let mut left = Left::default();
        for client in member.workers.values() {
            match self.workers.by_key.get(client).map(|worker| worker.duty) {
                Some(Duty::Actor(_)) => left.actors += 1,
                Some(Duty::Leased(_) | Duty::Ending) => left.tasks += 1,
                Some(Duty::Idle) => left.idle += 1,
                None => left.programs += usize::from(self.clients.by_key.contains_key(client)),
            }
        }
        left.tasks += self.members.orders.values().filter(|order| order.member == key).count();
        let node = Some(member.view.node);
        let in_use = self.groups.known.iter().filter(|group| !matches!(group.phase, GroupPhase::Removed(_)));
        left.bundles = in_use.flat_map(|group| &group.nodes).filter(|on| **on == node).count();
        left
    }

    /// How a member is being emptied, for people and programs.
    pub(super) fn draining_shown(&self, key: Key) -> Option<DrainState> {
        self.members.drains.get(&key).map(|drain| drain.shown(self.left_on(key), self.clock.now))
    }

    /// The same in a sentence.
    pub(super) fn drain_in_words(&self, key: Key) -> String {
        let drain = self.members.drains.get(&key);
        drain.map(|drain| drain.in_words(self.left_on(key), self.clock.now)).unwrap_or_default()
    }
}
