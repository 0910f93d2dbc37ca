//! Which processes can never go on while others cannot (`crate::deadlocks`), as far as that is known.
//!
//! - STANDSTILL-1: whoever may go on for a reason that is not known here counts as going on: who has not answered, is being ended,
//!   preempted or moved, or can be found by its name.
//! - STANDSTILL-2: an actor without a call keeps what it holds where everybody who has a handle of it is alone and waits in vain, and
//!   nobody has called it.
//! - STANDSTILL-3: a placement group keeps what it has where all of its job waits in vain: anybody there may remove it. Nobody
//!   else may, unless it is detached or has a name.
//! - STANDSTILL-4: who waits for devices has room where one machine has it, device by device (`crate::held_there`).

use super::HeadCore;
use crate::actors::ActorState;
use crate::deadlocks::{Party, Waits, stuck};
use crate::demands::Need;
use crate::fairness::Holder;
use crate::held_there::{HeldThere, ToldPart};
use crate::placement_groups::{GroupOwner, GroupPhase, PlacementGroup};
use crate::workers::Duty;
use oxiray_ids::{ActorId, BundleNumber, JobId, NodeId, PlacementGroupId, WorkerId};
use oxiray_machine::Key;
use oxiray_resources::{Demand, Quantity, ResourceName};
use oxiray_scheduler::{Group, GroupStrategy, NodeView, ResourceRequest, draw};
use oxiray_wire::message::{DeviceHolding, HoldingPhase};
use std::collections::{BTreeMap, BTreeSet};

/// What clients said in a round of questions.
#[derive(Debug)]
pub(super) struct Said {
    waits: BTreeMap<Key, Waits>,
    /// The actors that somebody has called.
    called: BTreeSet<ActorId>,
}

impl Said {
    pub(super) fn new(waits: BTreeMap<Key, Waits>) -> Self {
        let called = waits.values().flat_map(|waits| &waits.called).copied().collect();
        Self { waits, called }
    }

    /// By whom.
    pub(super) fn into_waits(self) -> BTreeMap<Key, Waits> {
        self.waits
    }

    pub(super) fn by(&self, process: Key) -> Option<&Waits> {
        self.waits.get(&process)
    }
}

/// Who has a part of a device: a process, or for all that run in it a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Process(Key),
    Group(PlacementGroupId),
}

/// The parts of devices that each has on a node.
type Parts = BTreeMap<(Owner, NodeId), Vec<ToldPart>>;

/// Who is stuck, as far as is known, what they hold, and what was said.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standstill<'a> {
    pub(super) said: &'a Said,
    pub(super) stuck: &'a BTreeSet<Party>,
    pub(super) held: &'a HeldThere,
}

impl Standstill<'_> {
    pub(super) fn has(&self, process: Key) -> bool {
        self.stuck.contains(&Party::Process(process))
    }

    /// Whether nothing in the process goes on, not even beside what waits there.
    fn has_all_of(&self, process: Key) -> bool {
        self.has(process) && self.said.by(process).is_some_and(|waits| waits.is_alone)
    }

    /// The processes.
    pub(super) fn processes(&self) -> impl Iterator<Item = Key> {
        self.stuck.iter().filter_map(|party| match party {
            Party::Process(key) => Some(*key),
            Party::Job(_) => None,
        })
    }
}

impl HeadCore {
    /// Those who can never go on, and what they hold.
    pub(super) fn standstill(&self, said: &Said) -> (BTreeSet<Party>, HeldThere) {
        let owners = self.groups.known.iter().filter_map(owner_of);
        let jobs: BTreeSet<JobId> = owners.collect();
        // Who waits for nothing goes on.
        let waiting = said.waits.iter().filter(|(_, waits)| waits.waits()).map(|(key, _)| *key);
        let waiting: Vec<Key> = waiting.collect();
        let parts = self.parts_told_on(&waiting);
        stuck(
            waiting.iter().map(|key| Party::Process(*key)).chain(jobs.into_iter().map(Party::Job)),
            |stuck| self.held_by(stuck, &parts),
            |party, stuck, held| {
                let standstill = Standstill { said, stuck, held };
                match party {
                    Party::Process(key) => self.process_is_stuck(key, standstill),
                    Party::Job(job) => self.job_is_stuck(job, standstill),
                }
            },
        )
    }

    /// Who has which devices, on the nodes of these and of all groups.
    fn parts_told_on(&self, processes: &[Key]) -> Parts {
        let of_groups = self.groups.known.iter().flat_map(|group| group.nodes.iter().flatten());
        let of_processes = processes.iter().filter_map(|key| Some(self.pending.fairness.held_by(*key)?.0));
        let nodes: BTreeSet<NodeId> = of_groups.copied().chain(of_processes).collect();
        let mut parts = Parts::new();
        for member in nodes.into_iter().filter_map(|node| self.members.at(node)) {
            for (resource, _) in member.device_counts() {
                let sizes: Vec<u64> = member.view.inventory.device_memory(resource.as_str()).collect();
                for told in member.holdings.of(resource.as_str()).filter(|told| told.phase == HoldingPhase::Held) {
                    let Some(owner) = self.owner_of_part(told) else { continue };
                    let size_bytes = sizes.get(told.slot as usize).copied().unwrap_or(0);
                    let share = Quantity::from_units(told.share).min(Quantity::ONE);
                    let part = ToldPart { resource: resource.clone(), slot: told.slot, share, size_bytes };
                    parts.entry((owner, member.view.node)).or_default().push(part);
                }
            }
        }
        parts
    }

    fn owner_of_part(&self, told: &DeviceHolding) -> Option<Owner> {
        let Some(worker) = told.worker else { return told.group.map(Owner::Group) };
        let key = self.clients.key_of(worker)?;
        let home = self.workers.by_key.get(&key)?.home;
        Some(home.map_or(Owner::Process(key), |home| Owner::Group(home.group)))
    }

    /// What these hold and do not lend while they wait.
    fn held_by(&self, stuck: &BTreeSet<Party>, parts: &Parts) -> HeldThere {
        let mut held = HeldThere::default();
        let mut add = |owner: Owner, node: NodeId, demands: &[Demand]| {
            held.add(node, demands, parts.get(&(owner, node)).map_or(&[], Vec::as_slice));
        };
        for party in stuck {
            match *party {
                Party::Process(key) => {
                    if let Some((node, demand)) = self.pending.fairness.held_by(key) {
                        add(Owner::Process(key), node, &[demand]);
                    }
                }
                Party::Job(job) => {
                    for group in self.reserved_by(job) {
                        let mut by_node: BTreeMap<NodeId, Vec<Demand>> = BTreeMap::new();
                        for (node, demand) in bundles_there(group) {
                            by_node.entry(node).or_default().push(without_processors(demand));
                        }
                        for (node, demands) in by_node {
                            add(Owner::Group(group.description.id), node, &demands);
                        }
                    }
                }
            }
        }
        held
    }

    /// The groups that only this job may remove, and that are placed.
    pub(super) fn reserved_by(&self, job: JobId) -> impl Iterator<Item = &PlacementGroup> {
        let groups = self.groups.known.of_job(job).into_iter().filter_map(|id| self.groups.known.get(id));
        let is_settled = |group: &PlacementGroup| {
            matches!(group.phase, GroupPhase::Pending | GroupPhase::Created | GroupPhase::Rescheduling)
        };
        groups.filter(move |group| owner_of(group).is_some() && is_settled(group))
    }

    /// Those of them whose going on would free something: they hold it, or who does waits for them, has them let go of it, or has
    /// them remove it.
    pub(super) fn keepers(&self, standstill: Standstill<'_>) -> BTreeSet<Key> {
        let mut found: Vec<Key> = Vec::new();
        for party in standstill.stuck {
            match *party {
                Party::Process(key) => {
                    let is_within = self.workers.by_key.get(&key).is_some_and(|worker| worker.home.is_some());
                    if is_within || self.pending.fairness.held_by(key).is_some_and(|(_, held)| !held.is_nothing()) {
                        found.push(key);
                    }
                }
                Party::Job(job) if self.reserved_by(job).flat_map(bundles_there).next().is_some() => {
                    found.extend(standstill.processes().filter(|key| self.clients.job_of(*key) == Some(job)));
                }
                Party::Job(_) => {}
            }
        }
        let mut keepers = BTreeSet::new();
        while let Some(key) = found.pop() {
            if keepers.insert(key) {
                found.extend(self.goes_on_with(key, standstill).into_iter().filter(|key| standstill.has(*key)));
            }
        }
        keepers
    }

    /// Whom a process waits for; of an actor without a call, who has a handle of it.
    fn goes_on_with(&self, process: Key, Standstill { said, .. }: Standstill<'_>) -> Vec<Key> {
        let (Some(client), Some(waits)) = (self.clients.by_key.get(&process), said.by(process)) else {
            return Vec::new();
        };
        if waits.rests {
            let actor = self.workers.actor_on(process);
            let holders = actor.and_then(|actor| self.objects.known.holders(actor.anchor()));
            return holders.into_iter().flatten().filter_map(|holder| self.clients.key_of(holder)).collect();
        }
        let leases = waits.leases.iter().filter_map(|number| self.workers.leases.get(client.leases.get(number)?));
        let actors = waits.actors.iter().filter_map(|actor| self.actors.known.get(*actor)?.worker());
        leases.map(|lease| lease.worker).chain(actors.filter_map(|worker| self.clients.key_of(worker))).collect()
    }

    /// Whether a process can never go on by itself while these cannot.
    fn process_is_stuck(&self, process: Key, standstill: Standstill<'_>) -> bool {
        let (Some(client), Some(waits)) = (self.clients.by_key.get(&process), standstill.said.by(process)) else {
            return false;
        };
        if self.may_end(process, client.job) {
            return false;
        }
        if waits.rests {
            return match self.workers.by_key.get(&process).map(|worker| worker.duty) {
                Some(Duty::Actor(actor)) => self.actor_rests_for_good(actor, standstill),
                // Whoever would give it something to do is looked at.
                Some(Duty::Idle) => true,
                Some(Duty::Leased(_) | Duty::Ending) | None => false,
            };
        }
        let lease_is_stuck = |key: &u64| self.workers.leases.get(key).is_some_and(|lease| standstill.has(lease.worker));
        if waits.leases.iter().filter_map(|number| client.leases.get(number)).any(lease_is_stuck)
            || waits.actors.iter().any(|actor| self.actor_is_stuck(*actor, client.job, standstill))
            || waits.groups.iter().any(|group| self.awaited_group(process, *group, standstill).is_some())
        {
            return true;
        }
        let mut tickets = waits.requests.iter().filter_map(|request| client.waiting.get(request));
        // One that is being served is not in the queue, and others of its kind come after it.
        tickets.any(|ticket| self.never_served(*ticket, standstill))
            && client.waiting.values().all(|ticket| self.pending.queue.resource_request_of(ticket).is_some())
    }

    /// STANDSTILL-1: whether a process is being ended, or may be soon.
    fn may_end(&self, process: Key, job: JobId) -> bool {
        match self.workers.by_key.get(&process) {
            Some(worker) => {
                let ends = worker.end.is_doomed || worker.end.preempted.is_some();
                ends || self.members.is_draining(process) || (!worker.outlives_job && self.jobs.is_ending(job))
            }
            None => self.jobs.is_ending(job),
        }
    }

    fn actor_is_stuck(&self, actor: ActorId, job: JobId, standstill: Standstill<'_>) -> bool {
        let worker = self.actors.known.get(actor).and_then(crate::actors::Actor::worker);
        match worker.and_then(|worker| self.clients.key_of(worker)) {
            Some(key) => standstill.has(key),
            None => self.ticket_of(actor, job).is_some_and(|ticket| self.never_served(ticket, standstill)),
        }
    }

    /// The request of an actor that waits to be made, where it is of that job: a worker may name any, and none of another job
    /// fails for what it says.
    pub(super) fn ticket_of(&self, actor: ActorId, job: JobId) -> Option<u64> {
        self.actors.making.get(&actor).filter(|making| making.job == job)?.ticket()
    }

    /// STANDSTILL-2
    fn actor_rests_for_good(&self, id: ActorId, standstill: Standstill<'_>) -> bool {
        let Some(actor) = self.actors.known.get(id) else { return false };
        let description = &actor.description;
        let is_found_by_others = description.detached || !description.name.is_empty();
        if is_found_by_others || actor.is_unreferenced || !matches!(actor.state, ActorState::Alive(_)) {
            return false;
        }
        let is_called = standstill.said.called.contains(&id);
        let Some(holders) = self.objects.known.holders(id.anchor()).filter(|_| !is_called) else { return false };
        let mut all = holders.chain(actor.interested()).chain([description.creator]);
        all.all(|client| self.is_stuck_as_a_whole(client, standstill))
    }

    fn is_stuck_as_a_whole(&self, client: WorkerId, standstill: Standstill<'_>) -> bool {
        self.clients.key_of(client).is_some_and(|key| standstill.has_all_of(key))
    }

    /// STANDSTILL-3: whether nothing of a job can go on.
    fn job_is_stuck(&self, job: JobId, standstill: Standstill<'_>) -> bool {
        let Some(driver) = self.jobs.driver_of(job).filter(|_| !self.jobs.is_ending(job)) else { return false };
        let clients = self.clients.by_key.iter().filter(|(_, client)| client.job == job).map(|(key, _)| *key);
        let workers = self.workers.by_key.iter().filter(|(_, worker)| worker.job == job).map(|(key, _)| *key);
        let mut processes = clients.chain(workers).chain([driver]);
        let mut waiting = self.pending.wanted.iter().filter(|(_, wanted)| wanted.claimant.job == job);
        // An actor without a process and without a request is on its way to one.
        let is_at_rest = |id: &ActorId| self.actors.known.get(*id).is_some_and(|actor| actor.worker().is_some());
        let mut making = self.actors.making.iter().filter(|(_, making)| making.job == job);
        processes.all(|key| standstill.has_all_of(key))
            && waiting.all(|(ticket, _)| self.never_served(*ticket, standstill))
            && making.all(|(id, making)| making.ticket().is_some() || is_at_rest(id))
            && self.members.orders.values().all(|order| order.wanted.claimant.job != job)
    }

    /// The ticket of a group that a process waits for in vain. Whoever may remove it waits in vain as well.
    pub(super) fn awaited_group(&self, from: Key, id: PlacementGroupId, standstill: Standstill<'_>) -> Option<u64> {
        // A process may name any: none of another job fails for what it says.
        let job = owner_of(self.groups.known.get(id)?).filter(|job| self.clients.job_of(from) == Some(*job))?;
        let is_private = standstill.said.by(from).is_some_and(|waits| waits.private_groups.contains(&id));
        let is_own = self.groups.reservations.get(&id).is_some_and(|reservation| reservation.maker == from);
        let is_only_its = is_private && is_own && standstill.has_all_of(from);
        if !is_only_its && !standstill.stuck.contains(&Party::Job(job)) {
            return None;
        }
        self.pending_ticket(id).filter(|ticket| self.never_served(*ticket, standstill))
    }

    /// The ticket of a group that was never there yet.
    fn pending_ticket(&self, id: PlacementGroupId) -> Option<u64> {
        let group = self.groups.known.get(id)?;
        if group.phase != GroupPhase::Pending {
            return None;
        }
        self.groups.reservations.get(&id)?.ticket
    }

    /// Whether something waits that there is room for, but none while these are stuck, and that no other room is to come for.
    pub(super) fn never_served(&self, ticket: u64, standstill: Standstill<'_>) -> bool {
        let Some(need) = self.pending.queue.resource_request_of(&ticket) else { return false };
        let comes_back = self.durable.resumption.nodes_until().is_some() || self.members.awaits_some();
        if comes_back {
            return false;
        }
        match need {
            Need::ResourceRequest(request) => self.never_has_room(request, standstill.held),
            Need::Group(group) => {
                let has_room = |held: &HeldThere| self.has_room_for_group(group, held);
                !self.growth.may_bring() && has_room(&HeldThere::default()) && !has_room(standstill.held)
            }
            Need::Within { group, bundle, demand } => self.never_within((*group, *bundle), demand, standstill),
        }
    }

    fn never_has_room(&self, request: &ResourceRequest, held: &HeldThere) -> bool {
        if self.growth.awaited_until(request, self.clock.now, self.own.plan().rules.node).is_some() {
            return false;
        }
        let has_room = |held: &HeldThere| self.members.views().any(|(_, view)| held.leaves(view, &request.demand));
        // What no machine could give is no business of who holds what.
        has_room(&HeldThere::default()) && !has_room(held)
    }

    /// Whether a group may have room while this is held: each of its bundles, all of them together, and their whole devices; on one
    /// machine, where that is to give them all, it is looked at how.
    fn has_room_for_group(&self, group: &Group, held: &HeldThere) -> bool {
        let views: Vec<&NodeView> = self.members.views().map(|(_, view)| view).collect();
        let bundles: Vec<&Demand> = group.bundles.iter().map(|bundle| &bundle.demand).collect();
        let sum = |of: &dyn Fn(&NodeView) -> u64| views.iter().map(|view| of(view)).fold(0, u64::saturating_add);
        let has_wholes = |resource: &ResourceName| {
            let asked =
                bundles.iter().map(|demand| demand.get(resource.as_str()).wholes()).fold(0, u64::saturating_add);
            !resource.is_device() || sum(&|view| held.wholes(view, resource)) >= asked
        };
        let is_of_one = group.strategy == GroupStrategy::StrictPack || views.len() == 1;
        bundles.iter().all(|demand| views.iter().any(|view| held.leaves(view, demand)))
            && Demand::sum(bundles.iter().copied()).iter().all(|(resource, asked)| {
                sum(&|view| held.left(view, resource)) >= asked.units() && has_wholes(resource)
            })
            && (!is_of_one || views.iter().any(|view| held.may_leave(view, &bundles)))
    }

    /// Whether what waits within a group waits for ever: for the group, or for what those who run in it hold.
    fn never_within(
        &self,
        (id, bundle): (PlacementGroupId, Option<BundleNumber>),
        demand: &Demand,
        standstill: Standstill<'_>,
    ) -> bool {
        let Some(group) = self.groups.known.get(id) else { return false };
        if !owner_of(group).is_some_and(|job| standstill.stuck.contains(&Party::Job(job))) {
            return false;
        }
        if let Some(ticket) = self.pending_ticket(id) {
            return self.never_served(ticket, standstill);
        }
        let mut within =
            self.workers.by_key.iter().filter(|(_, worker)| worker.home.is_some_and(|home| home.group == id));
        let Some(bundles) = self.bundles_for(id, bundle).filter(|_| group.phase == GroupPhase::Created) else {
            return false;
        };
        let asked = bundle.map_or(group.nodes.len(), |_| 1);
        let is_whole = |view: &NodeView| view.free_devices.values().all(|devices| devices.out_of_service() == 0);
        bundles.len() == asked
            && bundles.iter().all(|bundle| is_whole(bundle.view))
            && !self.pending.preemption.is_ending(Holder::Group(id))
            && self.members.orders.values().all(|order| order.need.group() != Some(id))
            && within.all(|(key, _)| standstill.has_all_of(*key))
            && draw(&bundles, demand).is_none()
    }
}

/// The job that alone may remove the group.
fn owner_of(group: &PlacementGroup) -> Option<JobId> {
    match group.description.owner {
        GroupOwner::Job(job) if group.description.name.is_empty() => Some(job),
        GroupOwner::Job(_) | GroupOwner::Actor(_) | GroupOwner::Nobody => None,
    }
}

/// What a group has on each node.
fn bundles_there(group: &PlacementGroup) -> impl Iterator<Item = (NodeId, &Demand)> {
    let bundles = group.nodes.iter().zip(&group.description.group.bundles);
    bundles.filter_map(|(node, bundle)| Some(((*node)?, &bundle.demand)))
}

fn without_processors(demand: &Demand) -> Demand {
    let cpus = Demand::new([(ResourceName::CPU, demand.get(ResourceName::CPU.as_str()))]);
    cpus.map_or_else(|_| demand.clone(), |cpus| demand.without(&cpus))
}
