//! Emptying members ahead of their end.
//!
//! - DRAIN-1: nothing new is placed on a node that is being emptied. What was ordered before and comes to be is ended
//!   before it is used, and placed anew.
//! - DRAIN-2: what runs there may end by itself until the deadline; then the node ends, and what ran there is run again
//!   elsewhere without that being counted.
//! - DRAIN-3: without a deadline, and where all is done before it, the node ends when nothing is left there: no worker,
//!   no program, no bundle, and no object of which there is no other copy.
//! - DRAIN-4: the bundles of a group that are there move together, when nothing runs within them.

use super::members::{Member, Members, Order};
use super::validation::check_name;
use super::{Alarm, Duty, Effect, HeadCore, Key};
use crate::{GroupPhase, PlacementGroup};
use bytes::Bytes;
use oxiray_ids::{NodeId, ObjectId, PlacementGroupId};
use oxiray_resources::Quantity;
use oxiray_wire::message::{CopyWanted, DrainAsked, Draining, Failure, NodeDismissed, StateReport};
use oxiray_wire::state::{DrainState, DrainTold, LeftOnNode, STATE_VERSION};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How often it is looked at what is left on a node.
const PERIOD: Duration = Duration::from_millis(100);
/// How long a copy may take before it is asked for again, elsewhere.
const COPY_LIMIT: Duration = Duration::from_secs(10);
/// How often that is tried; the object is then left where it is, and lost with the node.
const COPIES_MAX: u32 = 3;
/// How many copies are asked for at once.
const COPYING_MAX: usize = 32;

/// A node that is being emptied.
#[derive(Debug, Default)]
pub(super) struct Drain {
    pub(super) reason: String,
    until: Option<Instant>,
    /// It was told to end.
    is_dismissed: bool,
    /// The leases there whose owners know.
    retired: BTreeSet<u64>,
    /// Objects that are copied from there: how often that was tried, and since when.
    copies: BTreeMap<ObjectId, (u32, Instant)>,
    /// Objects that this node's own store has too.
    here: BTreeSet<ObjectId>,
}

/// What keeps a node that is being emptied from ending.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) tasks: usize,
    pub(super) actors: usize,
    pub(super) programs: usize,
    pub(super) bundles: usize,
    pub(super) objects: usize,
    /// Workers that wait for the next task of their job, and hold nothing.
    pub(super) idle: usize,
}

impl Members {
    /// Whether a member can be ordered to do something.
    pub(super) fn takes(&self, key: Key) -> bool {
        self.by_key.get(&key).is_some_and(|member| !member.is_silent) && !self.drains.contains_key(&key)
    }
}

impl Member {
    /// Bytes that are free in its store, about.
    pub(super) fn store_left(&self) -> u64 {
        let room = self.told.totals.iter().find(|amount| amount.resource == "object_store_memory");
        let bytes = room.map_or(0, |amount| amount.units / Quantity::UNITS_PER_WHOLE);
        bytes.saturating_sub(self.state.store_used)
    }
}

impl HeadCore {
    /// A client or the command line wants a node emptied.
    pub(crate) fn drain_asked(&mut self, from: Key, asked: &DrainAsked) {
        let report = match self.drain(asked) {
            Ok(told) => {
                let drained = Some(told);
                StateReport { request: asked.request, drained, version: STATE_VERSION, ..StateReport::default() }
            }
            Err(text) => {
                let failure = Failure { code: "state".into(), text, cause: Bytes::new() };
                StateReport { request: asked.request, failure: Some(failure), ..StateReport::default() }
            }
        };
        self.send(from, report);
    }

    fn drain(&mut self, asked: &DrainAsked) -> Result<DrainTold, String> {
        check_name("a node's name", &asked.node)?;
        check_name("a reason", &asked.reason)?;
        let (key, node) = self.drainable(&asked.node)?;
        if asked.undo {
            return self.keep_after_all(key, node);
        }
        let left = self.left_on(key);
        if asked.only_if_idle && self.work_on(key).is_in_use() {
            return Err(format!("node {node} is not idle: {left}. Drain it without asking for that"));
        }
        let is_new = !self.members.drains.contains_key(&key);
        self.log(format!("node {node} is being drained, {}: {}", Self::in_words(asked.deadline_ms), asked.reason));
        self.begin_drain(key, asked.deadline_ms, asked.reason.clone());
        if is_new {
            self.drain_on(key);
        }
        Ok(DrainTold { node_id: node, draining: true, left: Some(self.left_on(key).shown()) })
    }

    /// Empties a node whose end is decided: what runs there may end by itself.
    pub(super) fn drain_for(&mut self, key: Key, reason: &str) {
        self.begin_drain(key, None, reason.to_owned());
        self.drain_on(key);
    }

    fn begin_drain(&mut self, key: Key, deadline_ms: Option<u64>, reason: String) {
        let until = deadline_ms.map(|left| self.clock.now + Duration::from_millis(left));
        let drain = self.members.drains.entry(key).or_default();
        (drain.until, drain.reason) = (until, reason);
        self.members.show(key);
        self.tell_draining(key);
    }

    /// A member comes back that the last head was emptying.
    pub(super) fn drain_again(&mut self, key: Key, told: Option<Draining>) {
        let Some(told) = told.filter(|told| !told.is_over) else { return };
        self.begin_drain(key, told.left_ms, told.reason);
        self.alarm_at(self.clock.now + PERIOD, Alarm::Drain(key));
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
        self.members.show(key);
        self.pending.is_due = true;
        self.tell_all_on(key, &Draining { is_over: true, ..Draining::default() });
        Ok(DrainTold { node_id: node, draining: false, left: None })
    }

    /// The one member that is meant.
    pub(crate) fn drainable(&self, text: &str) -> Result<(Key, NodeId), String> {
        let own = self.own.plan();
        if !text.is_empty() && (own.node.hex().starts_with(text) || [&own.name, &own.ip].contains(&&text.to_owned())) {
            return Err(format!(
                "node {} is the head's, which the cluster ends with: it cannot be drained. End the cluster with `oxiray stop`",
                own.node
            ));
        }
        let living = || self.members.others().filter(|(_, member)| !member.is_silent);
        let is_meant = |member: &Member| {
            member.view.node.hex().starts_with(text) || member.told.name == text || member.told.ip == text
        };
        let mut meant = living().filter(|(_, member)| !text.is_empty() && is_meant(member));
        let names = || living().map(|(_, member)| member.view.node.hex()).collect::<Vec<_>>().join(", ");
        match (meant.next(), meant.next()) {
            (Some((key, member)), None) => Ok((*key, member.view.node)),
            (Some(_), Some(_)) => Err(format!("`{text}` may mean several nodes: name one of {}", names())),
            (None, _) if living().next().is_none() => {
                Err(format!("no living node is `{text}`: there is none beside the head, which cannot be drained"))
            }
            (None, _) => Err(format!("no living node is `{text}`; there are {}", names())),
        }
    }

    fn clients_on(&self, member: Key) -> Vec<Key> {
        let Some(member) = self.members.by_key.get(&member) else { return Vec::new() };
        member.workers.values().copied().filter(|key| self.clients.by_key.contains_key(key)).collect()
    }

    /// What a member and those on it are told that is being emptied.
    pub(super) fn draining_of(&self, key: Key) -> Option<Draining> {
        let drain = self.members.drains.get(&key)?;
        let left_ms = drain.until.map(|until| until.saturating_duration_since(self.clock.now).as_millis() as u64);
        Some(Draining { left_ms, reason: drain.reason.clone(), is_over: false })
    }

    fn tell_draining(&mut self, key: Key) {
        if let Some(told) = self.draining_of(key) {
            self.tell_all_on(key, &told);
        }
    }

    /// A member and its clients hear how it is being emptied.
    fn tell_all_on(&mut self, member: Key, told: &Draining) {
        self.order_member(member, told.clone());
        for client in self.clients_on(member) {
            self.send(client, told.clone());
        }
    }

    /// Goes on emptying a node, and has it end when it is empty or its time is over.
    pub(super) fn drain_on(&mut self, key: Key) {
        let Some(drain) = self.members.drains.get(&key).filter(|drain| !drain.is_dismissed) else { return };
        let until = drain.until;
        let is_over = until.is_some_and(|until| until <= self.clock.now);
        if self.durable.resumption.is_some() && !is_over {
            // What is left there is not known before all who are there have told.
            return self.alarm_at(self.clock.now + PERIOD, Alarm::Drain(key));
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
        self.alarm_at(until.map_or(next, |until| until.min(next)), Alarm::Drain(key));
    }

    fn dismiss_member(&mut self, key: Key, is_empty: bool) {
        let Some(drain) = self.members.drains.get_mut(&key) else { return };
        drain.is_dismissed = true;
        let why = if is_empty { "nothing is left there" } else { "its time is over" };
        let text = format!("this node was drained ({}), and {why}", drain.reason);
        self.log(format!("member {key} is told to end: {why}"));
        self.send(key, NodeDismissed { text });
    }

    /// DRAIN-1: owners give their workers there back when what these run is done.
    fn retire_leases(&mut self, key: Key) {
        let on_member = |worker: &Key| self.member_with(*worker) == key;
        let there = self.workers.leases.iter().filter(|(_, lease)| on_member(&lease.worker));
        let there: Vec<u64> = there.map(|(key, _)| *key).collect();
        let Some(drain) = self.members.drains.get_mut(&key) else { return };
        let told = there.into_iter().filter(|key| drain.retired.insert(*key));
        for lease in told.collect::<Vec<_>>() {
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
        let Some(node) = self.node_of_member(key) else { return };
        let is_settled =
            |group: &&PlacementGroup| matches!(group.phase, GroupPhase::Created | GroupPhase::Rescheduling);
        let hit = self.groups.known.iter().filter(is_settled).filter(|group| group.nodes.contains(&Some(node)));
        let idle = hit.map(|group| group.description.id).filter(|id| !self.is_used(key, *id));
        for id in idle.collect::<Vec<_>>() {
            self.move_from(id, node);
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
        let now = self.clock.now;
        let mut wanted = Vec::new();
        let only = self.only_there(key);
        let Some(drain) = self.members.drains.get_mut(&key) else { return };
        drain.copies.retain(|object, _| only.contains(object));
        let under_way =
            drain.copies.values().filter(|(tries, since)| *tries < COPIES_MAX && now < *since + COPY_LIMIT).count();
        for object in only {
            let (tries, since) = drain.copies.get(&object).copied().unwrap_or((0, now));
            let is_due = tries == 0 || (tries < COPIES_MAX && now >= since + COPY_LIMIT);
            if is_due && under_way + wanted.len() < COPYING_MAX {
                drain.copies.insert(object, (tries + 1, now));
                wanted.push((object, tries));
            }
        }
        for (object, tries) in wanted {
            let bytes = object;
            // Where the roomiest did not get it, this node is asked.
            match self.roomiest().filter(|_| tries == 0) {
                Some(member) => self.send(member, CopyWanted { object: bytes }),
                None => self.out.push(Effect::Copy { object }),
            }
        }
    }

    /// The objects of which no node has a copy but the member, and others that are being emptied.
    fn only_there(&self, key: Key) -> Vec<ObjectId> {
        let here = self.members.drains.get(&key).map(|drain| &drain.here);
        let is_lasting = |member: &Key| !self.members.drains.contains_key(member);
        let of_member = self.objects.locations.held_by(key).filter(|(object, members)| {
            !members.iter().any(is_lasting) && here.is_none_or(|here| !here.contains(object))
        });
        of_member.map(|(object, _)| object).filter(|object| self.objects.known.has_bytes(*object)).collect()
    }

    /// This node's own store has the object.
    pub(crate) fn copied_here(&mut self, object: ObjectId) {
        self.objects.locations.lies_here(object);
        self.has_come(self.own.plan().node, object);
        for drain in self.members.drains.values_mut().filter(|drain| drain.copies.contains_key(&object)) {
            drain.here.insert(object);
        }
    }

    /// The member with the most room in its store, where that is more than this node has.
    fn roomiest(&self) -> Option<Key> {
        let lasting = self.members.others().filter(|(key, member)| {
            !member.is_silent && !self.members.drains.contains_key(key) && member.store_left() > 0
        });
        let found = lasting.max_by_key(|(_, member)| member.store_left())?;
        (found.1.store_left() > self.members.own().store_left()).then_some(*found.0)
    }

    /// DRAIN-3.
    pub(super) fn left_on(&self, key: Key) -> Left {
        let given_up = |object: &ObjectId| {
            let copies = self.members.drains.get(&key).and_then(|drain| drain.copies.get(object));
            copies.is_some_and(|(tries, since)| *tries >= COPIES_MAX && self.clock.now >= *since + COPY_LIMIT)
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

    /// Whether a worker's node is being emptied.
    pub(super) fn is_draining(&self, worker: Key) -> bool {
        self.members.drains.contains_key(&self.member_with(worker))
    }

    /// Whether a worker's node was told to end: it dies of that (DRAIN-2).
    pub(super) fn dies_of_drain(&self, worker: Key) -> bool {
        self.is_dismissed(self.member_with(worker))
    }

    /// Whether a member was told to end.
    pub(crate) fn is_dismissed(&self, member: Key) -> bool {
        self.members.drains.get(&member).is_some_and(|drain| drain.is_dismissed)
    }

    /// How a member is being emptied, for people and programs.
    pub(super) fn draining_shown(&self, key: Key) -> Option<DrainState> {
        let drain = self.members.drains.get(&key)?;
        let left_s = drain.until.map(|until| until.saturating_duration_since(self.clock.now).as_secs_f64());
        Some(DrainState {
            reason: drain.reason.clone(),
            deadline_s: left_s,
            left: Some(self.left_on(key).shown()),
            words: self.drain_in_words(key),
        })
    }

    /// The same in a sentence.
    pub(super) fn drain_in_words(&self, key: Key) -> String {
        let Some(drain) = self.members.drains.get(&key) else { return String::new() };
        let reason = if drain.reason.is_empty() { String::new() } else { format!(" ({})", drain.reason) };
        let when = drain.until.map_or("when nothing is left there".to_owned(), |until| {
            format!("in {:.0} s at most", until.saturating_duration_since(self.clock.now).as_secs_f64())
        });
        format!("it is being drained{reason} and ends {when}; still there: {}", self.left_on(key))
    }
}

impl Left {
    /// Whether anything would be missed.
    pub(super) fn is_in_use(&self) -> bool {
        *self != Self { idle: self.idle, ..Self::default() }
    }

    fn shown(self) -> LeftOnNode {
        LeftOnNode {
            tasks: (self.tasks + self.idle) as u64,
            actors: self.actors as u64,
            programs: self.programs as u64,
            bundles: self.bundles as u64,
            objects: self.objects as u64,
        }
    }
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = [
            (self.tasks + self.idle, "workers on tasks"),
            (self.actors, "actors"),
            (self.programs, "programs"),
            (self.bundles, "bundles"),
            (self.objects, "objects without another copy"),
        ];
        let words: Vec<String> =
            counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        f.write_str(if words.is_empty() { "nothing" } else { "" })?;
        f.write_str(&words.join(", "))
    }
}
