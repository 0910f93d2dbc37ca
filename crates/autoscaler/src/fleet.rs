//! All replicas, and what is to be done about them: no clock, no input, no output.
//!
//! - FLEET-1: no group is asked for more replicas than its maximum, those that may still come late included: a request
//!   that was not answered is made again before there is a new one.
//! - FLEET-2: what is wanted is planned anew each round from what the head says, so that no request can be forgotten.
//! - FLEET-3: a group that does not deliver is set aside, each time for longer, and the others are tried.
//! - FLEET-4: nothing is decided on what is not known: without the provider's list, nothing is launched or taken away.
//! - FLEET-5: what its provider has queued may wait for ever, as long as somebody waits for it; when a plan without any of it
//!   would bring nothing for its group's idle time, it goes.
//! - FLEET-6: in which domains machines have come is remembered when they are gone, for as long as somebody waits for a domain:
//!   what did not help is not asked for again and again.

use crate::INSTANCE_LABEL;
use crate::life::{Happening, State};
use crate::provider::{Failed, Instance, InstanceState};
use crate::record::{RecordError, situation};
use oxiray_scheduler::{Plan, SeenDomains, plan};
use oxiray_wire::state::{
    DomainsRecord, GroupEntry, GrowthView, MachineRecord, PlanRecord, ReplicaPhase, ReplicaRecord,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

mod acts;
mod events;

/// How often a request is made that is not answered, before its group is set aside.
const TRIES_MAX: u32 = 3;
/// The most lines of what happened that are kept.
const EVENTS_MAX: usize = 200;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until the provider lists what it was asked for.
    pub answer: Duration,
    /// Until the nodes of what is listed have joined.
    pub join: Duration,
    /// Until the nodes of what is to go are empty, where nothing ran there.
    pub drain: Duration,
    /// Until what is to go is not listed any more; it is then asked for again.
    pub terminate: Duration,
    /// For how long a group is set aside at first, and at most.
    pub set_aside: (Duration, Duration),
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            answer: seconds(30),
            join: seconds(600),
            drain: seconds(300),
            terminate: seconds(60),
            set_aside: (seconds(2), seconds(300)),
        }
    }
}

/// What is known at the start of a round.
#[derive(Clone, Debug)]
pub struct RoundView<'round> {
    /// The groups as they are now.
    pub groups: &'round [GroupEntry],
    /// The provider's machines.
    pub instances: &'round [Instance],
    /// What failed there since the last round.
    pub failed: &'round [Failed],
    /// What the head says.
    pub told: &'round GrowthView,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Have the provider bring replicas.
    Launch {
        /// The group.
        group: String,
        /// How many the request is for.
        replicas: u32,
        /// Its name.
        request: String,
    },
    /// Have the provider take replicas away.
    Terminate {
        /// Which.
        replicas: Vec<String>,
        /// The name of the request.
        request: String,
    },
    /// Have the head empty a node.
    Drain {
        /// `NodeId` in hexadecimal digits.
        node: String,
        /// Only where nothing runs there.
        only_if_idle: bool,
        /// Why, for people.
        why: String,
    },
    /// Have the head keep a node after all.
    Keep {
        /// `NodeId` in hexadecimal digits.
        node: String,
    },
}

/// A replica from the request for it until its machines are gone.
#[derive(Clone, Debug)]
struct Slot {
    group: String,
    request: String,
    /// Its provider's name for it, once that lists it.
    replica: Option<String>,
    state: State,
    since: Duration,
    tries: u32,
    /// Its machines, once they are listed.
    instances: BTreeSet<String>,
    /// How many of them there are to be.
    hosts: usize,
    /// Whether what runs there may end by itself before it goes.
    is_forced: bool,
    /// Since when nothing is there, and how much had been placed there by then; where it is queued, since when nobody waits
    /// for it.
    idle: Option<(Duration, u64)>,
    /// Why its provider has it wait, while it does.
    queued: Option<String>,
    /// Its nodes that were asked to be emptied.
    drained: BTreeSet<String>,
}

/// A group that does not deliver.
#[derive(Clone, Debug)]
struct SetAside {
    until: Duration,
    period: Duration,
    why: String,
}

/// All replicas.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    limits: Limits,
    slots: BTreeMap<u64, Slot>,
    last: u64,
    set_aside: BTreeMap<String, SetAside>,
    /// How many replicas each request is for.
    requests: BTreeMap<String, u32>,
    /// What makes the names of requests differ from those of another autoscaler of this cluster.
    salt: String,
    events: Vec<String>,
    /// When the last round was.
    looked: Duration,
    plan: Plan,
    /// In which domains machines have come, by their group and the label, as long as somebody waits for a domain (FLEET-6).
    domains: BTreeMap<(String, String), SeenDomains>,
}

impl Fleet {
    /// No replicas; `salt` makes the names of its requests differ from those of others.
    pub fn new(limits: Limits, salt: &str) -> Self {
        Self { limits, salt: salt.to_owned(), ..Self::default() }
    }

    /// Looks at what is known, plans, and says what is to be done (FLEET-2).
    pub fn round(&mut self, now: Duration, seen: &RoundView<'_>) -> Result<Vec<Act>, RecordError> {
        let mut acts = Vec::new();
        self.looked = now;
        self.compare(now, seen);
        self.hear_failures(now, seen.failed);
        self.watch_nodes(now, &seen.told.machines);
        self.note_domains(seen.told);
        self.mind_the_time(now, &mut acts);
        self.go_on_draining(now, &seen.told.machines, &mut acts);
        let record = self.record(now, seen.groups, seen.told);
        let planned = plan(&situation(&record)?);
        self.carry_out(now, &planned, &seen.told.machines, &mut acts);
        self.give_up_turns(now, record)?;
        self.plan = planned;
        self.slots.retain(|_, slot| !matches!(slot.state, State::Terminated | State::Failed));
        let in_use: BTreeSet<&String> = self.slots.values().map(|slot| &slot.request).collect();
        self.requests.retain(|request, _| in_use.contains(request));
        Ok(acts)
    }

    /// The head does not empty a node, since something runs there: the replica stays, and its other nodes too.
    pub fn drain_refused(&mut self, now: Duration, node: &str, why: &str) -> Vec<Act> {
        let found = self.slots.iter().find(|(_, slot)| slot.drained.contains(node)).map(|(id, _)| *id);
        let Some(id) = found.filter(|id| !self.slots[id].is_forced) else { return Vec::new() };
        let others = std::mem::take(&mut self.slots.get_mut(&id).expect("it was just found").drained);
        self.turn(now, id, Happening::DrainRefused, why);
        others.into_iter().filter(|other| other != node).map(|node| Act::Keep { node }).collect()
    }

    /// The provider refused a request at once.
    pub fn launch_refused(&mut self, now: Duration, group: &str, request: &str, text: &str) {
        let replicas = self.requests.get(request).copied().unwrap_or_default();
        let failed =
            Failed::Launch { group: group.to_owned(), request: request.to_owned(), replicas, text: text.to_owned() };
        self.hear_failures(now, &[failed]);
    }

    /// The same as a record: what the last plan was made from, or the next one will be.
    pub fn record(&self, now: Duration, groups: &[GroupEntry], told: &GrowthView) -> PlanRecord {
        let by_instance = self.by_instance();
        let machines = told.machines.iter().map(|machine| {
            let slot = machine.labels.get(INSTANCE_LABEL).and_then(|instance| by_instance.get(instance));
            MachineRecord { replica: slot.map(|id| self.name_of(*id)), ..machine.clone() }
        });
        // What was not answered is none to count on, and is asked for again before anything else (FLEET-1).
        let counted = self.slots.iter().filter(|(_, slot)| slot.state != State::Unanswered);
        PlanRecord {
            groups: groups.to_vec(),
            set_aside: self.set_aside_now(now),
            machines: machines.collect(),
            replicas: counted.filter_map(|(id, slot)| self.replica_record(now, *id, slot)).collect(),
            waiting: told.waiting.clone(),
            standing: told.standing.clone(),
            domains: self.domain_records(),
        }
    }

    /// FLEET-6.
    fn note_domains(&mut self, told: &GrowthView) {
        let wanted: BTreeSet<&String> = told.waiting.iter().filter_map(|waiting| waiting.domain.as_ref()).collect();
        self.domains.retain(|(_, label), _| wanted.contains(label));
        let by_instance = self.by_instance();
        let slot_of = |machine: &MachineRecord| by_instance.get(machine.labels.get(INSTANCE_LABEL)?).copied();
        let of_groups =
            told.machines.iter().filter_map(|machine| Some((machine, &self.slots[&slot_of(machine)?].group)));
        let of_groups: Vec<(&MachineRecord, &String)> = of_groups.collect();
        for label in wanted {
            // A label may have been withdrawn for a while: what is there now has the last word.
            for (_, group) in &of_groups {
                self.domains.entry(((*group).clone(), label.clone())).or_default().is_unlabelled = false;
            }
            for (machine, group) in &of_groups {
                let seen = self.domains.entry(((*group).clone(), label.clone())).or_default();
                match machine.labels.get(label) {
                    Some(value) => drop(seen.values.insert(value.clone())),
                    None => seen.is_unlabelled = true,
                }
            }
        }
    }

    fn domain_records(&self) -> Vec<DomainsRecord> {
        let records = self.domains.iter().map(|((group, label), seen)| DomainsRecord {
            group: group.clone(),
            label: label.clone(),
            values: seen.values.iter().cloned().collect(),
            is_unlabelled: seen.is_unlabelled,
        });
        records.collect()
    }

    /// When the next round is due, whatever happens: perhaps already, where time went by since the last one.
    pub fn next_alarm(&self, groups: &[GroupEntry]) -> Option<Duration> {
        let slots = self.slots.values().filter_map(|slot| {
            if slot.state == State::Joined || slot.queued.is_some() {
                let group = groups.iter().find(|entry| entry.name == slot.group)?;
                return Some(slot.idle?.0 + idle_timeout(group));
            }
            Some(slot.since + self.limit_of(slot)?)
        });
        let due = slots.chain(self.set_aside.values().map(|one| one.until));
        // What the last round found due and kept waits for something else to happen.
        due.filter(|due| *due > self.looked).min()
    }

    /// Whether the provider is to be asked soon: something is on its way.
    pub fn is_moving(&self) -> bool {
        self.slots.values().any(|slot| !matches!(slot.state, State::Joined | State::Unanswered))
    }

    /// The last plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What happened since the last call.
    pub fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    /// How many replicas of a group there are in each state; those that are queued by the reason, too.
    pub fn counts(&self, group: &str) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for slot in self.slots.values().filter(|slot| slot.group == group) {
            let state = match &slot.queued {
                Some(why) => queued(why),
                None => slot.state.name().to_owned(),
            };
            *counts.entry(state).or_default() += 1;
        }
        counts
    }

    /// The provider's machines and the replica of each.
    pub fn instances(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let slots = self.slots.iter();
        slots.flat_map(|(id, slot)| slot.instances.iter().map(|instance| (instance.clone(), self.name_of(*id))))
    }

    /// The machines whose nodes are to get no work, should they join now.
    pub fn leaving(&self) -> BTreeSet<String> {
        let leaving = self.slots.values().filter(|slot| matches!(slot.state, State::Draining | State::Terminating));
        leaving.flat_map(|slot| slot.instances.iter().cloned()).collect()
    }

    /// Why groups are set aside.
    pub fn set_aside_now(&self, now: Duration) -> BTreeMap<String, String> {
        let still = self.set_aside.iter().filter(|(_, one)| now < one.until);
        still.map(|(group, one)| (group.clone(), one.why.clone())).collect()
    }

    fn replica_record(&self, now: Duration, id: u64, slot: &Slot) -> Option<ReplicaRecord> {
        let (state, idle_s) = match slot.state {
            State::Requested | State::Launched => (ReplicaPhase::Coming, 0.0),
            State::Joined => match slot.idle {
                Some((since, _)) => (ReplicaPhase::Idle, now.saturating_sub(since).as_secs_f64()),
                None => (ReplicaPhase::InUse, 0.0),
            },
            State::Draining | State::Terminating => (ReplicaPhase::Leaving, 0.0),
            State::Unanswered | State::Terminated | State::Failed => return None,
        };
        Some(ReplicaRecord { name: self.name_of(id), group: slot.group.clone(), state, idle_s })
    }

    fn name_of(&self, id: u64) -> String {
        let slot = &self.slots[&id];
        slot.replica.clone().unwrap_or_else(|| format!("{}/{id}", slot.request))
    }

    fn by_instance(&self) -> BTreeMap<String, u64> {
        let pairs = self.slots.iter().flat_map(|(id, slot)| slot.instances.iter().map(|one| (one.clone(), *id)));
        pairs.collect()
    }

    fn limit_of(&self, slot: &Slot) -> Option<Duration> {
        match slot.state {
            State::Requested => Some(self.limits.answer),
            State::Launched if slot.queued.is_some() => None,
            State::Launched => Some(self.limits.join),
            State::Draining => Some(self.limits.drain),
            State::Terminating => Some(self.limits.terminate),
            State::Unanswered | State::Joined | State::Terminated | State::Failed => None,
        }
    }
}

/// How a replica is told of that its provider has queued.
fn queued(why: &str) -> String {
    if why.is_empty() { "queued".to_owned() } else { format!("queued ({why})") }
}

/// For how long a replica of a group may be idle.
fn idle_timeout(group: &GroupEntry) -> Duration {
    Duration::try_from_secs_f64(group.idle_timeout_s).unwrap_or(Duration::MAX)
}

/// Whether the provider takes a machine away by itself.
fn is_leaving(instance: &Instance) -> bool {
    instance.state == InstanceState::Terminating
}
