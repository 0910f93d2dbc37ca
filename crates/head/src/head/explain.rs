//! Why something waits: what it waits for, and for each node the first rule that fails there.

use super::HeadCore;
use super::device_rows::HoldersFound;
use crate::actors::{Actor, ActorState};
use crate::census::CallReport;
use crate::demands::Need;
use crate::members::Member;
use crate::placement_groups::{GroupPhase, PlacementGroup};
use crate::queue::{PendingKind, PendingRequest};
use crate::workers::Duty;
use oxiray_ids::{ActorId, BundleNumber, NodeId, PlacementGroupId, TaskId};
use oxiray_machine::choice_in_words;
use oxiray_resources::{Demand, ResourceName};
use oxiray_scheduler::{Obstacle, Reason, Rule, Verdict, group_verdicts, verdicts};
use oxiray_state::state_name;
use oxiray_wire::message::{Failure, StateQuery, TaskStage};
use oxiray_wire::state::{DevicesChosen, Explanation, NodeVerdict};
use std::collections::BTreeMap;

/// The most nodes that one answer names.
const NODES_MAX: usize = 1_000;

/// The most nodes of which it is told which devices something would get there.
const REACH_NODES_MAX: usize = 16;

/// The most bundles that one message names.
const BUNDLES_NAMED_MAX: usize = 16;

/// For how many of those who wait it is looked on all machines at once who has what they need.
pub(super) const FULLY_NAMED_MAX: usize = 16;

/// What is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    Actor(ActorId),
    Group(PlacementGroupId),
    Task(TaskId),
}

fn subject(asked: &StateQuery) -> Result<Subject, String> {
    let given = asked.filters.first().map(|filter| filter.value.as_str()).unwrap_or_default();
    if let Ok(id) = ActorId::from_hex(given) {
        return Ok(Subject::Actor(id));
    }
    if let Ok(id) = PlacementGroupId::from_hex(given) {
        return Ok(Subject::Group(id));
    }
    let task = TaskId::from_hex(given).map_err(|_| {
        format!(
            "{given:?} names nothing that could wait: give the identifier of a task, an actor or a placement group, as \
             `oxiray list` shows it"
        )
    })?;
    let is_constructor = task.actor().creation_task() == task;
    Ok(if is_constructor { Subject::Actor(task.actor()) } else { Subject::Task(task) })
}

impl HeadCore {
    /// Why it waits, or that it does not; `told` is what processes say of their calls.
    pub(super) fn explanation(&self, asked: &StateQuery, told: &[CallReport]) -> Result<Explanation, String> {
        match subject(asked)? {
            Subject::Actor(id) => self.actor_explained(id),
            Subject::Group(id) => self.group_explained(id),
            Subject::Task(id) => self.task_explained(id, told),
        }
    }

    fn actor_explained(&self, id: ActorId) -> Result<Explanation, String> {
        let actor = self
            .actors
            .known
            .get(id)
            .ok_or_else(|| format!("there is no actor {}, and none is remembered", id.hex()))?;
        let ticket = self
            .pending
            .wanted
            .iter()
            .find(|(_, wanted)| matches!(wanted.want, PendingKind::Actor(waits) if waits == id));
        let name = &actor.description.class_name;
        let state = match &actor.state {
            ActorState::Dead(failure) => {
                return Ok(settled("actor", &id.hex(), name, "DEAD", &failure.text));
            }
            ActorState::Alive(worker) => {
                let on = format!("it runs on node {}", self.node_of_worker(*worker).hex());
                let told = settled("actor", &id.hex(), name, "ALIVE", &on);
                return Ok(Explanation { devices: self.devices_of_worker(*worker), ..told });
            }
            ActorState::Starting(worker) => {
                let on = format!("its constructor runs on node {}", self.node_of_worker(*worker).hex());
                let told = settled("actor", &id.hex(), name, "PENDING_CREATION", &on);
                return Ok(Explanation { devices: self.devices_of_worker(*worker), ..told });
            }
            ActorState::Waiting => "PENDING_CREATION",
            ActorState::Restarting => "RESTARTING",
        };
        Ok(match ticket {
            Some((ticket, _)) => self.ticket_explained("actor", &id.hex(), state, *ticket),
            None => settled("actor", &id.hex(), name, state, &self.why_no_request(actor)),
        })
    }

    /// What an actor without a process waits for that has no request in the queue.
    fn why_no_request(&self, actor: &Actor<Failure>) -> String {
        let id = actor.description.id;
        let making = self.actors.making.get(&id);
        let is_its = |want: &PendingKind| matches!(want, PendingKind::Actor(ordered) if *ordered == id);
        if let Some(order) = self.members.orders.values().find(|order| is_its(&order.wanted.want)) {
            let node = self.members.node_of_member(order.member);
            let node = node.map(|node| format!("node {} ", node.hex())).unwrap_or_default();
            return format!("a node was chosen: {node}is making its process");
        }
        if let Some(node) = making.and_then(|making| making.post) {
            return format!(
                "it was on node {} when the head was restarted, and that node has not come back yet",
                node.hex()
            );
        }
        if let Some(worker) = self.workers.by_key.values().find(|worker| worker.duty == Duty::Actor(id)) {
            return format!("its last process (pid {}) is ending", worker.pid.unwrap_or(0));
        }
        if self.actors.known.awaits_arguments(id) {
            return "it waits for arguments of its constructor, which were lost and are made again".into();
        }
        if making.is_some_and(|making| making.is_unfinished) {
            return "it waits for the arguments of its constructor".into();
        }
        match actor.failed_starts {
            0 => "nothing is under way for it, which is a defect of Oxiray: report it, and kill the actor".into(),
            1 => "its constructor did not end; it is tried again after a pause".into(),
            times => format!("its constructor did not end {times} times; it is tried again after a pause"),
        }
    }

    fn group_explained(&self, id: PlacementGroupId) -> Result<Explanation, String> {
        let unknown = || format!("there is no placement group {}, and none is remembered", id.hex());
        let group = self.groups.known.get(id).ok_or_else(unknown)?;
        let name = &group.description.name;
        let state = match &group.phase {
            GroupPhase::Removed(why) => return Ok(settled("placement group", &id.hex(), name, "REMOVED", why)),
            GroupPhase::Created => {
                let told = settled("placement group", &id.hex(), name, "CREATED", "all its bundles are set aside");
                return Ok(Explanation { devices: self.devices_of_group(group), ..told });
            }
            GroupPhase::Prepared { awaited, .. } => {
                let nodes: Vec<String> = awaited.iter().map(NodeId::hex).collect();
                let why =
                    format!("nodes were chosen, and these have not set its bundles aside yet: {}", nodes.join(", "));
                return Ok(settled("placement group", &id.hex(), name, "PREPARED", &why));
            }
            GroupPhase::Pending => "PENDING",
            GroupPhase::Rescheduling => "RESCHEDULING",
        };
        let ticket = self.groups.reservations.get(&id).and_then(|reservation| reservation.ticket);
        Ok(match ticket {
            Some(ticket) => self.ticket_explained("placement group", &id.hex(), state, ticket),
            None => settled("placement group", &id.hex(), name, state, "it is about to be placed"),
        })
    }

    fn task_explained(&self, id: TaskId, told: &[CallReport]) -> Result<Explanation, String> {
        let of_task = told.iter().filter(|told| told.record.task == id);
        let latest = of_task.max_by_key(|told| (told.record.attempt, told.record.stage));
        let latest = latest.ok_or_else(|| {
            format!("no process knows of a task {}: it ended long ago, or another cluster has it", id.hex())
        })?;
        let (stage, name) = (latest.record.stage, latest.record.title());
        let done = |why: &str| Ok(settled("task", &id.hex(), name, state_name(id, stage), why));
        match stage {
            TaskStage::WaitsForWorker => {}
            TaskStage::WaitsForArguments => return done("it waits for its arguments: what makes them has not ended"),
            TaskStage::Sent => return done("it was sent to its worker, which has others to run first"),
            TaskStage::Runs => {
                let told = done(&format!("it runs on node {}", self.node_of_worker(latest.by).hex()))?;
                return Ok(Explanation { devices: self.devices_of_worker(latest.by), ..told });
            }
            TaskStage::Finished => return done("it is done"),
            TaskStage::Failed => return done(&latest.record.text),
            TaskStage::Unknown => return done("the process that has it does not say how far it is"),
        }
        let owner = self.clients.key_of(latest.by);
        let of_owner = self.pending.wanted.iter().filter(|(_, wanted)| {
            matches!(wanted.want, PendingKind::Lease { client, .. } if Some(client) == owner) && wanted.label == name
        });
        // Its owner asks for one worker for all calls alike.
        match of_owner.map(|(ticket, _)| *ticket).min() {
            Some(ticket) => Ok(self.ticket_explained("task", &id.hex(), state_name(id, stage), ticket)),
            None => {
                done("its owner has as many workers for such tasks as it asked for, and they have others to run first")
            }
        }
    }

    /// What stands in the queue, node by node.
    fn ticket_explained(&self, kind: &str, id: &str, state: &str, ticket: u64) -> Explanation {
        let wanted = &self.pending.wanted[&ticket];
        let waited = self.clock.now.saturating_duration_since(wanted.since).as_secs_f64();
        let Some(need) = self.pending.queue.resource_request_of(&ticket) else {
            if let Some(node) = self.pending.ahead.node_of(ticket) {
                let why = format!("large objects that it reads travel to node {}, where it is to run", node.hex());
                return settled(kind, id, &wanted.label, state, &why);
            }
            return settled(kind, id, &wanted.label, state, "its runtime environment is being made");
        };
        let count = self.pending.queue.tickets(need).len();
        let mut devices = Vec::new();
        let nodes = match need {
            Need::ResourceRequest(resource_request) => {
                let verdicts = verdicts(&self.members.all_views(), resource_request);
                devices = self.devices_within_reach(&verdicts, &resource_request.demand);
                self.judged(verdicts)
            }
            Need::Group(group) => self.judged(group_verdicts(&self.members.all_views(), group)),
            Need::Within { group, bundle, .. } => self.bundles_judged(*group, *bundle),
        };
        let kept = need.demand().and_then(|demand| self.kept_room_in_words(ticket, demand));
        let deadlock = self.deadlock_around(ticket);
        let found = deadlock.as_ref().map(|found| found.reason.clone());
        let waits = self.why_it_waits(wanted, need, count, Some(&HoldersFound::default()));
        let why = [Some(waits), kept, self.preempted_in_words(need), found];
        let why: Vec<String> = why.into_iter().flatten().collect();
        Explanation {
            waits: true,
            waited_s: Some(waited),
            nodes,
            never: Some(self.growth.never_brought(&self.members.all_views(), need)),
            deadlock,
            devices,
            ..settled(kind, id, &wanted.label, state, &why.join("; "))
        }
    }

    /// The devices that a demand would get on each machine that has room for it.
    pub(super) fn devices_within_reach(&self, verdicts: &[Verdict], demand: &Demand) -> Vec<DevicesChosen> {
        let with_room = verdicts.iter().filter(|verdict| verdict.failed.is_none()).take(REACH_NODES_MAX);
        let chosen = with_room.filter_map(|verdict| self.members.at(verdict.node)).flat_map(|member| {
            let view = &member.view;
            let free = |resource: &ResourceName| view.free_devices.get(resource).cloned().unwrap_or_default();
            let choices = view.inventory.choices(demand, free).unwrap_or_default().into_iter();
            choices.filter(|choice| is_told(member, choice.resource.as_str())).map(move |choice| DevicesChosen {
                node_id: Some(view.node),
                address: member.told.ip.clone(),
                resource: choice.resource.to_string(),
                why: choice_in_words(&choice, false),
                slots: choice.devices,
                ..DevicesChosen::default()
            })
        });
        chosen.collect()
    }

    /// The devices that bundles of a group have.
    fn devices_of_group(&self, group: &PlacementGroup) -> Vec<DevicesChosen> {
        let of_bundle = |index: usize| {
            let member = group.nodes[index].and_then(|node| self.members.at(node));
            let devices = self.members.devices_of_bundle(group, index).into_iter();
            devices.map(move |(resource, slots)| DevicesChosen {
                node_id: member.map(|member| member.view.node),
                address: member.map(|member| member.told.ip.clone()).unwrap_or_default(),
                bundle: u32::try_from(index).ok(),
                resource,
                slots,
                is_held: true,
                ..DevicesChosen::default()
            })
        };
        (0..group.nodes.len()).flat_map(of_bundle).take(NODES_MAX).collect()
    }

    /// The living nodes, and the dead ones that are remembered.
    fn judged(&self, verdicts: Vec<Verdict>) -> Vec<NodeVerdict> {
        let names: BTreeMap<_, _> = self.members.by_key.values().map(|one| (one.view.node, &one.told.ip)).collect();
        let row = |verdict: Verdict| {
            let address = names.get(&verdict.node).map_or(&self.own.plan().ip, |ip| *ip);
            let (rule, why) = match verdict.failed {
                Some((rule, why)) => (Some(rule.name()), why),
                None => (None, "it has room".to_owned()),
            };
            of_node(verdict.node, address, rule, why)
        };
        let lost = self.members.lost.iter();
        let lost = lost.map(|lost| of_node(lost.view.node, &lost.told.ip, Some("dead"), lost.how.clone()));
        let drained = self.members.drains.keys().filter_map(|key| {
            let member = self.members.by_key.get(key)?;
            Some(of_node(member.view.node, &member.told.ip, Some("draining"), self.drain_in_words(*key)))
        });
        verdicts.into_iter().map(row).chain(drained).chain(lost).take(NODES_MAX).collect()
    }

    fn bundles_judged(&self, id: PlacementGroupId, bundle: Option<BundleNumber>) -> Vec<NodeVerdict> {
        let nodes = self.groups.known.get(id).map(|group| group.nodes.clone()).unwrap_or_default();
        let asked = nodes.into_iter().enumerate().filter(|(index, _)| bundle.is_none_or(|only| only.index() == *index));
        let row = |(index, node): (usize, Option<NodeId>)| NodeVerdict {
            node_id: node,
            address: None,
            bundle: u32::try_from(index).ok(),
            rule: Some(Rule::Busy.name().to_owned()),
            why: self.why_within(id, Some(BundleNumber::at(index))),
        };
        asked.take(NODES_MAX).map(row).collect()
    }

    /// Why something in the queue waits, as a sentence. With `holders`, who holds what it needs is looked for on all machines, and
    /// of what has no devices not only on the head's.
    pub(super) fn why_it_waits(
        &self,
        wanted: &PendingRequest,
        need: &Need,
        count: usize,
        holders: Option<&HoldersFound>,
    ) -> String {
        let what = format!("{} `{}`", wanted.want.kind(), wanted.label);
        let waited = self.clock.now.saturating_duration_since(wanted.since).as_secs();
        let others = if count > 1 { format!(" ({} more wait for the same)", count - 1) } else { String::new() };
        let resource_request = match need {
            Need::ResourceRequest(resource_request) => resource_request,
            Need::Within { group, bundle, demand } => {
                let (name, why) = (self.groups.name_of(*group), self.why_within(*group, *bundle));
                return format!(
                    "{what} has waited {waited} s for {demand} within placement group {name}{others}: {why}"
                );
            }
            Need::Group(group) => {
                let (strategy, count) = (group.strategy.name(), group.bundles.len());
                let plural = if count == 1 { "" } else { "s" };
                let why = self.members.why_not_placed(group);
                let left = self.left_waiting_in_words(need);
                return format!(
                    "{what} ({strategy}, {count} bundle{plural}) has waited {waited} s{others}: {why}{left}"
                );
            }
        };
        let demand = &resource_request.demand;
        let (among, busy) = match self.members.obstacle(resource_request) {
            Some(Reason { obstacle: Obstacle::Busy(busy), among, .. }) => (among, busy),
            Some(never) => {
                if let Some(group) = self.growth.group_for(resource_request) {
                    let how_far = self.growth.how_far(group);
                    return format!(
                        "{what} has waited {waited} s for {demand}{others}: the autoscaler is to bring a machine of \
                         group `{group}`{how_far}"
                    );
                }
                let reason = never.message(&what);
                return match self.members.withdrawn_for(resource_request) {
                    Some(withdrawn) => format!("{reason}{withdrawn}. It has waited {waited} s for that to hold again"),
                    None => format!("{reason}. It has waited {waited} s for such a machine to join"),
                };
            }
            None => {
                let starting = self.workers.starting;
                let room = if demand.is_nothing() {
                    "it needs no resources".to_owned()
                } else {
                    format!("there is room for {demand}")
                };
                return format!(
                    "{what} has waited {waited} s{others}: {room}, and its worker process has not started yet ({starting} \
                     are starting now)"
                );
            }
        };
        let holders = self.named_holders(busy.resource.source(), resource_request, holders);
        let held = if holders.is_empty() { String::new() } else { format!("; held by {}", holders.join(", ")) };
        format!("{what} has waited {waited} s for {demand}{among}{others}: {busy}{held}")
    }

    /// Why the autoscaler brings nothing for it, in words to add; empty where it may, or does not say.
    fn left_waiting_in_words(&self, need: &Need) -> String {
        let oldest = self.pending.queue.tickets(need).into_iter().min();
        let wanted = oldest.and_then(|ticket| self.pending.wanted.get(&ticket));
        let why = wanted.and_then(|wanted| self.growth.why_left_waiting(&wanted.in_words()));
        why.map(|why| format!(". The autoscaler brings no machines for it: {why}")).unwrap_or_default()
    }

    /// Why somebody in the queue waits, where it has to do with a group.
    fn why_within(&self, group: PlacementGroupId, bundle: Option<BundleNumber>) -> String {
        let Some(found) = self.groups.known.get(group) else { return "its placement group is gone".to_owned() };
        if matches!(found.phase, GroupPhase::Pending | GroupPhase::Prepared { .. }) {
            let why = self.members.why_not_placed(&found.description.group);
            return format!("the placement group is not created yet: {why}");
        }
        let asked = (0..found.nodes.len()).filter(|index| bundle.is_none_or(|only| only.index() == *index));
        let free = asked.map(|index| {
            let Some(node) = found.nodes[index] else {
                return format!("bundle {index} waits for a node, since its node died");
            };
            let amounts = self.members.available_within(node, (group, BundleNumber::at(index)));
            let free: Vec<String> = amounts.iter().map(|(name, amount)| format!("{name}: {amount}")).collect();
            let devices = self.members.devices_of_bundle(found, index);
            let devices =
                devices.into_iter().map(|(resource, numbers)| format!(", of {resource} {}", listed(&numbers)));
            format!("bundle {index} has {{{}}} free{}", free.join(", "), devices.collect::<String>())
        });
        free.take(BUNDLES_NAMED_MAX).collect::<Vec<_>>().join(", ")
    }
}

/// Whether it is known which devices a machine would choose.
fn is_told(member: &Member, resource: &str) -> bool {
    !member.told.nearness.iter().any(|of| of.resource == resource && of.numa.is_empty())
}

fn of_node(node: NodeId, address: &str, rule: Option<&str>, why: String) -> NodeVerdict {
    let (address, rule) = (Some(address.to_owned()), rule.map(str::to_owned));
    NodeVerdict { node_id: Some(node), address, bundle: None, rule, why }
}

/// It does not wait for a node.
fn settled(kind: &str, id: &str, name: &str, state: &str, why: &str) -> Explanation {
    Explanation {
        kind: kind.to_owned(),
        id: id.to_owned(),
        name: name.to_owned(),
        state: state.to_owned(),
        reason: why.to_owned(),
        ..Explanation::default()
    }
}

fn listed(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" and ")
}
