//! What is written into the chronicle, where it is decided.

use super::HeadCore;
use crate::actors::ActorState;
use crate::chronicle::DeviceHost;
use crate::jobs::JobEnd;
use crate::placement_groups::GroupPhase;
use oxiray_ids::{JobId, NodeId};
use oxiray_machine::Key;
use oxiray_wire::message::{GrowthState, NodeState, SubmissionState};
use oxiray_wire::state::{ActorPhase, AutoscalerState, ChronicleEntry, ChronicleEvent, GroupState, ReplicaRecord};

impl HeadCore {
    /// Something happened.
    pub(super) fn note(&mut self, entry: ChronicleEntry) {
        self.note_beginning();
        self.figures.chronicle.write(self.clock.wall_ms, entry);
    }

    /// The first entry says how this head began.
    pub(super) fn note_beginning(&mut self) {
        if self.figures.chronicle.last() > 0 {
            return;
        }
        let epoch = self.own.epoch();
        let (event, text) = match epoch {
            0 => (ChronicleEvent::HeadStarted, "its end is final: it writes nothing down".to_owned()),
            1 => (ChronicleEvent::HeadStarted, String::new()),
            _ => {
                (ChronicleEvent::HeadCameBack, format!("it is number {epoch}, and goes on with what was written down"))
            }
        };
        let plan = self.own.plan();
        let entry =
            ChronicleEntry { event, node: Some(plan.node), name: plan.name.clone(), text, ..Default::default() };
        self.figures.chronicle.write(self.clock.wall_ms, entry);
    }

    /// Something became of a node.
    pub(super) fn note_node(&mut self, event: ChronicleEvent, node: NodeId, name: &str, text: &str) {
        let (name, text) = (name.to_owned(), text.to_owned());
        self.note(ChronicleEntry { event, node: Some(node), name, text, ..ChronicleEntry::default() });
    }

    /// A node is gone, and its devices with it.
    pub(super) fn note_lost(&mut self, node: NodeId, name: &str, text: &str) {
        self.note_node(ChronicleEvent::NodeLost, node, name, text);
        self.figures.chronicle.node_gone(self.clock.wall_ms, node);
    }

    /// A member describes its devices; all of them. `is_back` is whether it was a member of the head before this one.
    pub(super) fn note_devices(&mut self, member: Key, is_back: bool) {
        let Some(found) = self.members.by_key.get(&member) else { return };
        let host = DeviceHost { node: found.view.node, sizes: &found.told.device_sizes };
        let (at_ms, groups) = (self.clock.wall_ms, &self.groups);
        let state = &found.state;
        let chronicle = &mut self.figures.chronicle;
        chronicle.holdings_told((at_ms, host), &state.holdings, true, |group| groups.origin_of(group));
        if is_back {
            chronicle.conditions_told_again((at_ms, host), &state.conditions);
        } else {
            chronicle.conditions_told((at_ms, host), &[], &state.conditions);
        }
    }

    /// A member's ledger changed. Returns whether somebody may be placed by that.
    pub(super) fn state_told(&mut self, member: Key, mut state: NodeState) -> bool {
        let holdings = std::mem::take(&mut state.holdings);
        if let Some(found) = self.members.by_key.get_mut(&member) {
            found.holdings.hear(&holdings);
            let host = DeviceHost { node: found.view.node, sizes: &found.told.device_sizes };
            let (at_ms, groups) = (self.clock.wall_ms, &self.groups);
            let chronicle = &mut self.figures.chronicle;
            chronicle.holdings_told((at_ms, host), &holdings, false, |group| groups.origin_of(group));
            if found.state.conditions != state.conditions {
                chronicle.conditions_told((at_ms, host), &found.state.conditions, &state.conditions);
            }
        }
        self.members.changed(member, state)
    }

    /// A driver connected, or is gone.
    pub(super) fn note_job(&mut self, event: ChronicleEvent, job: JobId) {
        let Some(found) = self.jobs.known.get(job) else { return };
        let text = match &found.end {
            Some(JobEnd::Failed(why)) => why.clone(),
            Some(JobEnd::Succeeded) | None => String::new(),
        };
        let (pid, name) = (found.pid, found.facts.entrypoint.clone());
        let node = Some(found.facts.node).filter(|node| !node.is_nil());
        self.note(ChronicleEntry { event, node, job: Some(job), pid, name, text, ..ChronicleEntry::default() });
    }

    /// A submitted job is in another state.
    pub(super) fn note_submission(&mut self, id: &str) {
        let Some(found) = self.jobs.submitted.get(id) else { return };
        let event = match found.state {
            SubmissionState::Pending => ChronicleEvent::SubmissionPending,
            SubmissionState::Running => ChronicleEvent::SubmissionRunning,
            SubmissionState::Succeeded => ChronicleEvent::SubmissionSucceeded,
            SubmissionState::Failed => ChronicleEvent::SubmissionFailed,
            SubmissionState::Stopped => ChronicleEvent::SubmissionStopped,
        };
        let (name, text) = (id.to_owned(), found.message.clone());
        self.note(ChronicleEntry { event, name, text, ..ChronicleEntry::default() });
    }

    /// Actors and groups that are in another state since this was last called.
    pub(super) fn note_moves(&mut self) {
        for (id, phase) in self.actors.known.take_moves() {
            let event = match phase {
                ActorPhase::Waiting => ChronicleEvent::ActorWaiting,
                ActorPhase::Starting => ChronicleEvent::ActorStarting,
                ActorPhase::Alive => ChronicleEvent::ActorAlive,
                ActorPhase::Restarting => ChronicleEvent::ActorRestarting,
                ActorPhase::Dead => ChronicleEvent::ActorDead,
            };
            let entry = ChronicleEntry { event, actor: Some(id), ..ChronicleEntry::default() };
            let Some(actor) = self.actors.known.get(id) else { continue };
            let worker = actor.worker().and_then(|worker| self.clients.key_of(worker));
            let text = match &actor.state {
                ActorState::Dead(why) => why.text.clone(),
                _ => String::new(),
            };
            let description = &actor.description;
            let entry = ChronicleEntry {
                job: Some(description.job),
                name: title(&description.class_name, &description.name),
                worker: actor.worker(),
                node: worker.map(|key| self.members.node_of(key)),
                pid: worker.and_then(|key| self.workers.pid_of(key)).unwrap_or(0),
                text,
                ..entry
            };
            self.note(entry);
        }
        for (id, state) in self.groups.known.take_moves() {
            let event = match state {
                GroupState::Pending | GroupState::Prepared => ChronicleEvent::GroupPending,
                GroupState::Created => ChronicleEvent::GroupCreated,
                GroupState::Rescheduling => ChronicleEvent::GroupRescheduling,
                GroupState::Removed => ChronicleEvent::GroupRemoved,
            };
            let Some(group) = self.groups.known.get(id) else { continue };
            let text = match &group.phase {
                GroupPhase::Removed(why) => why.clone(),
                _ => String::new(),
            };
            let (name, job) = (group.description.name.clone(), Some(group.description.job));
            self.note(ChronicleEntry { event, group: Some(id), job, name, text, ..ChronicleEntry::default() });
        }
    }

    /// The autoscaler said what it may bring, after `before`.
    pub(super) fn note_growth(&mut self, is_new: bool, before: Option<&AutoscalerState>, said: &GrowthState) {
        if is_new {
            let text = format!("it may bring machines of {} groups", said.groups.len());
            self.note(ChronicleEntry { event: ChronicleEvent::AutoscalerJoined, text, ..ChronicleEntry::default() });
        }
        let trouble = said.state.as_ref().map_or("", |state| &state.trouble);
        if !trouble.is_empty() && before.map_or("", |state| &state.trouble) != trouble {
            let text = trouble.to_owned();
            self.note(ChronicleEntry { event: ChronicleEvent::AutoscalerTroubled, text, ..ChronicleEntry::default() });
        }
        let (was, now) = (replicas(before), replicas(said.state.as_ref()));
        for replica in now {
            let known = was.iter().find(|known| known.name == replica.name);
            if known.is_none_or(|known| known.state != replica.state) {
                self.note_replica(ChronicleEvent::ReplicaChanged, replica, replica.state.name());
            }
        }
        for gone in was.iter().filter(|replica| !now.iter().any(|known| known.name == replica.name)) {
            self.note_replica(ChronicleEvent::ReplicaGone, gone, "");
        }
    }

    fn note_replica(&mut self, event: ChronicleEvent, replica: &ReplicaRecord, state: &str) {
        let name = format!("{}/{}", replica.group, replica.name);
        self.note(ChronicleEntry { event, name, text: state.to_owned(), ..ChronicleEntry::default() });
    }
}

fn replicas(state: Option<&AutoscalerState>) -> &[ReplicaRecord] {
    state.and_then(|state| state.record.as_ref()).map_or(&[], |record| &record.replicas)
}

/// What an actor is called: by its class, and its name where it has one.
fn title(class: &str, name: &str) -> String {
    if name.is_empty() { class.to_owned() } else { format!("{class} `{name}`") }
}
