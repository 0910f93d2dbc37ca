//! What is to be done: because time is over, because a node is empty, because the plan says so.

use super::events::nodes_of;
use super::{Act, Fleet, State, TRIES_MAX, idle_timeout};
use crate::life::Happening;
use crate::record::{RecordError, situation};
use oxiray_scheduler::{Launch, Plan, Removal, plan};
use oxiray_wire::state::{MachineRecord, PlanRecord};
use std::collections::BTreeSet;
use std::time::Duration;

impl Fleet {
    /// Asks again, or gives up, where something takes too long.
    pub(super) fn mind_the_time(&mut self, now: Duration, acts: &mut Vec<Act>) {
        let mut asked_again = BTreeSet::new();
        for id in self.slots.keys().copied().collect::<Vec<_>>() {
            let slot = &self.slots[&id];
            let is_due = self.limit_of(slot).is_some_and(|limit| now >= slot.since + limit);
            if !is_due {
                continue;
            }
            let (group, request, tries) = (slot.group.clone(), slot.request.clone(), slot.tries);
            match slot.state {
                State::Requested if tries < TRIES_MAX => {
                    self.again(now, id, tries + 1);
                    asked_again.insert((group, request));
                }
                State::Requested => {
                    let why = format!("its provider has not answered, asked {TRIES_MAX} times");
                    self.turn(now, id, Happening::Overdue, &why);
                    self.put_aside(now, &group, &why);
                }
                State::Launched => {
                    let why = format!("its nodes have not joined for {} s", self.limits.join.as_secs_f64());
                    self.dismiss(now, id, Happening::Overdue, &why);
                    self.put_aside(now, &group, &why);
                }
                State::Draining if !slot.is_forced => {
                    let nodes = std::mem::take(&mut self.slots.get_mut(&id).expect("it was just seen").drained);
                    self.turn(now, id, Happening::Overdue, "its nodes are not empty in time");
                    acts.extend(nodes.into_iter().map(|node| Act::Keep { node }));
                }
                State::Terminating => {
                    let replica = slot.replica.clone();
                    self.again(now, id, tries + 1);
                    acts.extend(replica.map(|replica| self.terminate(vec![replica])));
                }
                _ => {}
            }
        }
        acts.extend(asked_again.into_iter().map(|(group, request)| self.ask(group, request)));
    }

    fn again(&mut self, now: Duration, id: u64, tries: u32) {
        if let Some(slot) = self.slots.get_mut(&id) {
            (slot.since, slot.tries) = (now, tries);
        }
    }

    /// LIFE-2.
    fn ask(&self, group: String, request: String) -> Act {
        let replicas = self.requests.get(&request).copied().unwrap_or(1);
        Act::Launch { group, replicas, request }
    }

    fn terminate(&mut self, replicas: Vec<String>) -> Act {
        self.last += 1;
        Act::Terminate { replicas, request: format!("{}-{}", self.salt, self.last) }
    }

    /// A replica is to go, whatever runs there: that ends by itself first.
    pub(super) fn dismiss(&mut self, now: Duration, id: u64, happening: Happening, why: &str) {
        if self.turn(now, id, happening, why)
            && let Some(slot) = self.slots.get_mut(&id)
        {
            slot.is_forced = true;
        }
    }

    /// Empties nodes of what is to go, and has that taken away of which no node is left (LIFE-1).
    pub(super) fn go_on_draining(&mut self, now: Duration, machines: &[MachineRecord], acts: &mut Vec<Act>) {
        let nodes = nodes_of(machines);
        let mut gone = Vec::new();
        for id in self.slots.keys().copied().collect::<Vec<_>>() {
            let slot = &self.slots[&id];
            if slot.state == State::Draining {
                let there: Vec<String> =
                    slot.instances.iter().filter_map(|one| Some(nodes.get(one)?.node_id.clone())).collect();
                if there.is_empty() {
                    self.turn(now, id, Happening::NodesGone, "none of its nodes is left");
                } else if slot.is_forced {
                    self.drain(id, there, false, "its replica is given up", acts);
                }
            }
            let slot = self.slots.get_mut(&id).expect("none was removed");
            if slot.state == State::Terminating && slot.since == now {
                slot.tries = 1;
                gone.extend(slot.replica.clone());
            }
        }
        if !gone.is_empty() {
            let terminate = self.terminate(gone);
            acts.push(terminate);
        }
    }

    fn drain(&mut self, id: u64, nodes: Vec<String>, only_if_idle: bool, why: &str, acts: &mut Vec<Act>) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        for node in nodes {
            if slot.drained.insert(node.clone()) {
                acts.push(Act::Drain { node, only_if_idle, why: why.to_owned() });
            }
        }
    }

    pub(super) fn carry_out(&mut self, now: Duration, plan: &Plan, machines: &[MachineRecord], acts: &mut Vec<Act>) {
        for launch in &plan.launches {
            self.launch(now, launch, acts);
        }
        for removal in &plan.removals {
            self.remove(now, removal, machines, acts);
        }
    }

    /// FLEET-5. All of it or none: part of a plan may wait for a group that is set aside.
    pub(super) fn give_up_turns(&mut self, now: Duration, mut record: PlanRecord) -> Result<(), RecordError> {
        let queued: BTreeSet<u64> =
            self.slots.iter().filter(|(_, slot)| slot.queued.is_some()).map(|(id, _)| *id).collect();
        if queued.is_empty() {
            return Ok(());
        }
        let names: BTreeSet<String> = queued.iter().map(|id| self.name_of(*id)).collect();
        record.replicas.retain(|replica| !names.contains(&replica.name));
        let is_wanted = !plan(&situation(&record)?).launches.is_empty();
        let mut due = Vec::new();
        for id in queued {
            let slot = self.slots.get_mut(&id).expect("it was just seen");
            let since = slot.idle.map_or(now, |(since, _)| since);
            slot.idle = (!is_wanted).then_some((since, 0));
            let limit = record.groups.iter().find(|entry| entry.name == slot.group).map(idle_timeout);
            if !is_wanted && limit.is_some_and(|limit| now >= since + limit) {
                due.push(id);
            }
        }
        for id in due {
            self.dismiss(now, id, Happening::Dismissed, "nobody waits for it any more");
        }
        Ok(())
    }

    /// FLEET-1.
    fn launch(&mut self, now: Duration, launch: &Launch, acts: &mut Vec<Act>) {
        let unanswered = self.slots.iter();
        let unanswered = unanswered.filter(|(_, slot)| slot.group == launch.group && slot.state == State::Unanswered);
        let again: Vec<u64> = unanswered.map(|(id, _)| *id).take(launch.replicas as usize).collect();
        let fresh = launch.replicas - again.len() as u32;
        let mut requests = BTreeSet::new();
        for id in again {
            self.turn(now, id, Happening::WantedAgain, "one more is wanted");
            // One more try for each time that it is wanted: its group is set aside for longer each time.
            self.again(now, id, TRIES_MAX);
            requests.insert(self.slots[&id].request.clone());
        }
        if fresh > 0 {
            self.last += 1;
            let request = format!("{}-{}", self.salt, self.last);
            self.requests.insert(request.clone(), fresh);
            for _ in 0..fresh {
                self.add(now, &launch.group, &request);
            }
            requests.insert(request);
        }
        self.event(format!("{} more of `{}`: {}", launch.replicas, launch.group, launch.why.join(", ")));
        acts.extend(requests.into_iter().map(|request| self.ask(launch.group.clone(), request)));
    }

    fn remove(&mut self, now: Duration, removal: &Removal, machines: &[MachineRecord], acts: &mut Vec<Act>) {
        let Some(id) = self.slots.keys().copied().find(|id| self.name_of(*id) == removal.replica) else { return };
        if !self.turn(now, id, Happening::Dismissed, &removal.why) {
            return;
        }
        let nodes = nodes_of(machines);
        let slot = self.slots.get_mut(&id).expect("it was just found");
        // One that has not joined has nothing to be asked for; what did join of it ends its work.
        slot.is_forced = removal.is_in_use || slot.instances.iter().any(|one| !nodes.contains_key(one));
        let there: Vec<String> =
            slot.instances.iter().filter_map(|one| Some(nodes.get(one)?.node_id.clone())).collect();
        let only_if_idle = !slot.is_forced;
        self.drain(id, there, only_if_idle, &removal.why, acts);
    }
}
