//! What happened to replicas since the last round.

use super::{EVENTS_MAX, Fleet, RoundView, SetAside, Slot, State, is_leaving};
use crate::INSTANCE_LABEL;
use crate::life::Happening;
use crate::provider::{Failed, Instance, InstanceState};
use oxiray_wire::state::MachineRecord;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

impl Fleet {
    /// Has something happen to a replica; whether that changed anything.
    pub(super) fn turn(&mut self, now: Duration, id: u64, happening: Happening, why: &str) -> bool {
        let name = self.name_of(id);
        let Some(slot) = self.slots.get_mut(&id) else { return false };
        let after = slot.state.after(happening);
        if after == slot.state {
            return false;
        }
        let line = format!("{name} of `{}`: {} -> {} ({why})", slot.group, slot.state.name(), after.name());
        (slot.state, slot.since, slot.idle, slot.queued) = (after, now, None, None);
        self.event(line);
        true
    }

    pub(super) fn event(&mut self, line: String) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(line);
        }
    }

    /// FLEET-3.
    pub(super) fn put_aside(&mut self, now: Duration, group: &str, why: &str) {
        let (first, most) = self.limits.set_aside;
        if let Some(one) = self.set_aside.get_mut(group).filter(|one| now < one.until) {
            why.clone_into(&mut one.why);
            return;
        }
        let period = self.set_aside.get(group).map_or(first, |one| (one.period * 2).min(most));
        self.event(format!("group `{group}` is set aside for {} s: {why}", period.as_secs_f64()));
        self.set_aside.insert(group.to_owned(), SetAside { until: now + period, period, why: why.to_owned() });
    }

    pub(super) fn hear_failures(&mut self, now: Duration, failed: &[Failed]) {
        for failure in failed {
            match failure {
                Failed::Launch { group, request, replicas, text } => {
                    self.put_aside(now, group, text);
                    let of_request = |state: State| {
                        let slots =
                            self.slots.iter().filter(|(_, slot)| slot.request == *request && slot.state == state);
                        slots.map(|(id, _)| *id).collect::<Vec<u64>>()
                    };
                    // Those that are waited for first.
                    let states = [State::Requested, State::Unanswered];
                    let hit: Vec<u64> = states.into_iter().flat_map(of_request).take(*replicas as usize).collect();
                    for id in hit {
                        self.turn(now, id, Happening::Refused, text);
                    }
                }
                Failed::Stuck { group, replica, text } => {
                    let hit = self.named().find(|(_, name)| name == replica).map(|(id, _)| id);
                    match hit.map(|id| (id, self.slots[&id].state)) {
                        // Its group did deliver.
                        Some((_, State::Joined | State::Draining | State::Terminating)) => {
                            self.event(format!("{replica} goes: {text}"));
                        }
                        Some((id, State::Launched)) => {
                            self.put_aside(now, group, text);
                            self.dismiss(now, id, Happening::Refused, text);
                        }
                        _ => self.put_aside(now, group, text),
                    }
                }
                Failed::Terminate { replica, text } => self.event(format!("{replica} is not taken away: {text}")),
            }
        }
    }

    /// Compares the replicas with what the provider lists.
    pub(super) fn compare(&mut self, now: Duration, seen: &RoundView<'_>) {
        let mut listed: BTreeMap<&str, Vec<&Instance>> = BTreeMap::new();
        for instance in seen.instances {
            listed.entry(&instance.replica).or_default().push(instance);
        }
        for (id, replica) in self.named() {
            if !listed.contains_key(replica.as_str()) {
                let was_coming = self.slots[&id].state == State::Launched;
                let group = self.slots[&id].group.clone();
                self.turn(now, id, Happening::Vanished, "its machines are gone");
                if was_coming {
                    self.put_aside(now, &group, "its machines went before their nodes joined");
                }
            }
        }
        let known: BTreeMap<String, u64> = self.named().map(|(id, replica)| (replica, id)).collect();
        for (replica, instances) in listed {
            let first = instances[0];
            let id = known.get(replica).copied().unwrap_or_else(|| self.appear(now, replica, first));
            self.note_turn(now, id, &instances);
            let expiring = instances.iter().find(|instance| instance.state == InstanceState::Expiring);
            if let Some(instance) = expiring.filter(|_| self.slots[&id].state == State::Joined) {
                self.dismiss(now, id, Happening::Dismissed, &instance.detail);
            }
            if let Some(slot) = self.slots.get_mut(&id) {
                slot.instances.extend(instances.iter().map(|instance| instance.id.clone()));
                let group = seen.groups.iter().find(|entry| entry.name == slot.group);
                slot.hosts = group.map_or(slot.instances.len(), |entry| entry.hosts as usize);
                if instances.iter().any(|instance| is_leaving(instance)) && slot.state != State::Terminating {
                    // Somebody else takes it away, whole.
                    (slot.state, slot.since) = (State::Terminating, now);
                    let line = format!("{replica} of `{}` is being taken away by its provider", slot.group);
                    self.event(line);
                }
            }
        }
    }

    /// What is queued takes as long as it takes; its time to join begins when it has its turn (FLEET-5).
    fn note_turn(&mut self, now: Duration, id: u64, instances: &[&Instance]) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let queued = instances.iter().find(|instance| instance.state == InstanceState::Queued);
        let queued = queued.filter(|_| slot.state == State::Launched).map(|instance| instance.detail.clone());
        if queued == slot.queued {
            return;
        }
        if queued.is_none() {
            (slot.since, slot.idle) = (now, None);
        }
        let how = queued.as_ref().map_or_else(|| "not queued any more".to_owned(), |why| super::queued(why));
        let line = format!("{} of `{}`: {how}", instances[0].replica, slot.group);
        slot.queued = queued;
        self.event(line);
    }

    fn named(&self) -> impl Iterator<Item = (u64, String)> + use<> {
        let named = self.slots.iter().filter_map(|(id, slot)| Some((*id, slot.replica.clone()?)));
        named.collect::<Vec<_>>().into_iter()
    }

    /// The replica that was asked for and is listed now; one that nobody remembers is taken on.
    fn appear(&mut self, now: Duration, replica: &str, first: &Instance) -> u64 {
        let is_awaited = |slot: &Slot| {
            matches!(slot.state, State::Requested | State::Unanswered)
                && slot.group == first.group
                && first.request.as_ref().is_none_or(|request| *request == slot.request)
        };
        let mut awaited: Vec<(State, u64)> =
            self.slots.iter().filter(|(_, slot)| is_awaited(slot)).map(|(id, slot)| (slot.state, *id)).collect();
        awaited.sort_unstable();
        let (id, why) = match awaited.first() {
            Some((_, id)) => (*id, "its machines are listed"),
            None => (self.add(now, &first.group, first.request.as_deref().unwrap_or("")), "it was found"),
        };
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.replica = Some(replica.to_owned());
        }
        self.turn(now, id, Happening::Appeared, why);
        id
    }

    /// Another replica, asked for.
    pub(super) fn add(&mut self, now: Duration, group: &str, request: &str) -> u64 {
        self.last += 1;
        let slot = Slot {
            group: group.to_owned(),
            request: request.to_owned(),
            replica: None,
            state: State::Requested,
            since: now,
            tries: 1,
            instances: BTreeSet::new(),
            hosts: 1,
            is_forced: false,
            idle: None,
            queued: None,
            drained: BTreeSet::new(),
        };
        self.slots.insert(self.last, slot);
        self.last
    }

    /// Compares the replicas with the nodes that are alive.
    pub(super) fn watch_nodes(&mut self, now: Duration, machines: &[MachineRecord]) {
        let nodes = nodes_of(machines);
        for id in self.slots.keys().copied().collect::<Vec<_>>() {
            let slot = &self.slots[&id];
            let there: Vec<&MachineRecord> = slot.instances.iter().filter_map(|one| nodes.get(one).copied()).collect();
            let (missing, is_empty) = (there.len() < slot.instances.len().max(slot.hosts), there.is_empty());
            match slot.state {
                State::Launched if !missing && !is_empty => {
                    let group = slot.group.clone();
                    self.turn(now, id, Happening::NodesJoined, "all of its nodes joined");
                    self.set_aside.remove(&group);
                    self.note_use(now, id, &there);
                }
                State::Joined if is_empty => drop(self.turn(now, id, Happening::NodesGone, "its nodes are dead")),
                State::Joined if missing => {
                    self.turn(now, id, Happening::NodeLost, "one of its nodes is dead");
                    if let Some(slot) = self.slots.get_mut(&id) {
                        slot.is_forced = true;
                    }
                }
                State::Joined => self.note_use(now, id, &there),
                _ => {}
            }
        }
    }

    /// Idle from the first look at which nothing is there on, and from then on nothing was placed there.
    fn note_use(&mut self, now: Duration, id: u64, there: &[&MachineRecord]) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let uses = there.iter().map(|machine| machine.uses).sum();
        let is_idle = !there.iter().any(|machine| machine.in_use);
        slot.idle = match slot.idle {
            _ if !is_idle => None,
            Some((since, before)) if before == uses => Some((since, before)),
            _ => Some((now, uses)),
        };
    }
}

/// The machines that are some provider's, by its name for them.
pub(super) fn nodes_of(machines: &[MachineRecord]) -> BTreeMap<&String, &MachineRecord> {
    machines.iter().filter_map(|machine| Some((machine.labels.get(INSTANCE_LABEL)?, machine))).collect()
}
