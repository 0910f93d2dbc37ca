//! Placement groups: taken on, run in, given up. Where their bundles are is in [`super::rooms`].
//!
//! - CORE-5: a group's bundles are set aside by their machines from the moment that all of it is reserved until it is
//!   removed, and nothing is granted within one that is removed.

use super::fairness::Holder;
use super::journal::Undo;
use super::leases::demand_of;
use super::records::Row;
use super::strategy::selector;
use super::validation::check_name;
use super::{Duty, GroupMembership, HeadCore, Key, PendingKind};
use crate::PlacementGroups;
use crate::{Awaited, GroupCreated, GroupDescription, GroupOwner, GroupPhase};
use oxiray_ids::{ActorId, JobId, PlacementGroupId};
use oxiray_resources::Demand;
use oxiray_scheduler::{Asks, BUNDLES_MAX, Bundle, Group, GroupPlacement, GroupStrategy, ResourceRequest, place_group};
use oxiray_wire::message::{
    ActorCreate, Amount, Failure, GroupAnswer, GroupAwait, GroupBundle, GroupCreate, LeaseRefused, Notice, Strategy,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The kind of [`Strategy`] that names a placement group.
const WITHIN: u32 = 4;

/// What an entry of the queue waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Need {
    /// Resources of a machine.
    ResourceRequest(ResourceRequest),
    /// Resources of a bundle, or of any bundle of the group.
    Within { group: PlacementGroupId, bundle: Option<usize>, demand: Demand },
    /// BundlePlacement for a whole group.
    Group(Arc<Group>),
}

/// What became of a request for a group that was not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    New,
    /// Its maker asked a head that is gone, which had written it down.
    Before,
}

/// What is kept of a group that is not removed.
#[derive(Debug)]
pub(super) struct Reservation {
    pub(super) ticket: Option<u64>,
    pub(super) since: Instant,
    pub(super) took: Option<Duration>,
    /// Who made it.
    pub(super) maker: Key,
    /// What it asked for, where that is written down.
    pub(super) asked: Option<GroupCreate>,
}

/// The group that a strategy names.
pub(super) fn home(strategy: Option<&Strategy>) -> Option<GroupMembership> {
    let told = strategy.filter(|told| told.kind == WITHIN)?;
    Some(GroupMembership { group: told.group?, captures: told.captures })
}

impl Asks for Need {
    /// Who waits within a group waits for none of what other jobs could have.
    fn demands(&self) -> impl Iterator<Item = &Demand> {
        let (one, bundles) = match self {
            Self::ResourceRequest(resource_request) => (Some(&resource_request.demand), &[][..]),
            Self::Within { .. } => (None, &[][..]),
            Self::Group(group) => (None, &group.bundles[..]),
        };
        one.into_iter().chain(bundles.iter().map(|bundle| &bundle.demand))
    }
}

impl Need {
    /// What it asks for, where that is one demand.
    pub(super) fn demand(&self) -> Option<&Demand> {
        match self {
            Self::ResourceRequest(resource_request) => Some(&resource_request.demand),
            Self::Within { demand, .. } => Some(demand),
            Self::Group(_) => None,
        }
    }
}

/// All placement groups.
#[derive(Debug, Default)]
pub(super) struct GroupTable {
    pub(super) known: PlacementGroups,
    /// What there is besides of those that are not removed.
    pub(super) reservations: BTreeMap<PlacementGroupId, Reservation>,
}

impl HeadCore {
    pub(super) fn group_create(&mut self, from: Key, asked: &GroupCreate) {
        let taken = self.take_group_on(from, asked);
        let id = asked.group;
        // CORE-6 is for who made it: what a repeated request names is not taken back with that request.
        let undo = matches!(taken, Ok(Taken::New)).then_some(Undo::Group { request: asked.request, id });
        if undo.is_some() {
            self.touch(Row::Group(id));
        }
        if taken.is_ok() && asked.tells_when_created {
            if let Some(undo) = undo {
                self.answered_when_created(from, undo);
            }
            return self.group_await(from, &GroupAwait { request: asked.request, group: asked.group });
        }
        if let Some(undo) = undo {
            self.answered_by_next(from, undo);
        }
        self.send(from, GroupAnswer { request: asked.request, failure: taken.err() });
    }

    fn take_group_on(&mut self, from: Key, asked: &GroupCreate) -> Result<Taken, Failure> {
        let invalid = |text: String| failure("invalid", text);
        let job = self
            .clients
            .by_key
            .get(&from)
            .map(|client| client.job)
            .ok_or_else(|| invalid("its maker is gone".into()))?;
        let ending = || invalid("its job is ending".into());
        if !self.may_begin(from, job) {
            return Err(ending());
        }
        let id = asked.group;
        check_name("a placement group's name", &asked.name).map_err(invalid)?;
        let group = group_of(asked).map_err(invalid)?;
        let owner =
            if asked.detached { GroupOwner::Nobody } else { self.owner_of_what(from, job).ok_or_else(ending)? };
        let namespace = self.jobs.known.get(job).map(|job| job.namespace.clone()).unwrap_or_default();
        let description =
            GroupDescription { id, job, owner, name: asked.name.clone(), namespace, group: group.clone() };
        match self.groups.known.create(description) {
            GroupCreated::New => {}
            GroupCreated::NameTaken(holder) => {
                let text = format!(
                    "the name `{}` is taken by placement group {}; choose another, or get that one with \
                     get_placement_group()",
                    asked.name,
                    holder.hex()
                );
                return Err(failure("system", text));
            }
            GroupCreated::Duplicate => {
                let known = self.groups.known.get(id).map(|known| &known.description);
                let is_same =
                    known.is_some_and(|known| (known.job, &known.name, &known.group) == (job, &asked.name, &group));
                return if is_same { Ok(Taken::Before) } else { Err(invalid(taken_by_another(id))) };
            }
        }
        let label = if asked.name.is_empty() { id.hex() } else { asked.name.clone() };
        let queued = self.enqueue(
            PendingKind::Group { id, maker: from },
            job,
            label.clone(),
            Need::Group(Arc::new(group.clone())),
        );
        let ticket = queued.map_err(|text| {
            self.groups.known.remove(id, &text);
            failure("system", text)
        })?;
        self.groups.reservations.insert(
            id,
            Reservation {
                ticket: Some(ticket),
                since: self.clock.now,
                took: None,
                maker: from,
                asked: self.durable.journal.is_some().then(|| asked.clone()),
            },
        );
        self.notice_never_placed(job, &label, &group);
        Ok(Taken::New)
    }

    /// The driver of a group for which this cluster has no place is told that it waits for one to join.
    fn notice_never_placed(&mut self, job: JobId, label: &str, group: &Group) {
        let fleet = &mut self.members.fleet;
        let has_no_place = fleet.find_group(group, &[]).is_none() && !fleet.could_ever_place(group);
        let need = Need::Group(Arc::new(group.clone()));
        if has_no_place
            && !self.is_brought(&need)
            && let GroupPlacement::Never(reason) = place_group(&self.all_views(), group)
            && let never = self.never_brought(&need)
            && let Some(detail) = self.jobs.details.get_mut(&job)
            && detail.is_news(need)
        {
            let driver = detail.driver;
            let why = format!("{}{never}", reason.message(true));
            let text = format!(
                "placement group `{label}` can never be placed on this cluster, and waits in case it grows: {why}"
            );
            self.send(driver, Notice { text, ..Notice::default() });
        }
    }

    /// With whom a group ends that `client` makes: with its job, or with the detached actor that it works for; with
    /// nobody where that is over already.
    fn owner_of_what(&self, client: Key, job: JobId) -> Option<GroupOwner> {
        let mut client = client;
        while let Some(worker) = self.workers.by_key.get(&client).filter(|worker| worker.outlives_job) {
            match worker.duty {
                // These may be the last words of a process that is being killed.
                Duty::Actor(actor) => {
                    return self.actors.making.contains_key(&actor).then_some(GroupOwner::Actor(actor));
                }
                Duty::Leased(lease) => match self.workers.leases.get(&lease) {
                    Some(lease) => client = lease.owner,
                    None => break,
                },
                Duty::Idle | Duty::Ending => break,
            }
        }
        (!self.is_ending(job)).then_some(GroupOwner::Job(job))
    }

    pub(super) fn group_await(&mut self, from: Key, asked: &GroupAwait) {
        let Some(client) = self.clients.by_key.get(&from).map(|client| client.id) else { return };
        let id = asked.group;
        let failure = match self.groups.known.await_created(id, client, asked.request) {
            Awaited::Later => return,
            Awaited::Now => None,
            Awaited::Removed(_) | Awaited::Unknown => Some(self.gone(id, "task_placement_group_removed")),
        };
        self.send(from, GroupAnswer { request: asked.request, failure });
    }

    /// That a group is no more, and why.
    fn gone(&self, id: PlacementGroupId, code: &str) -> Failure {
        let why = match self.groups.known.get(id).map(|group| &group.phase) {
            Some(GroupPhase::Removed(why)) => why.as_str(),
            _ => "it was removed long ago, or another cluster made it",
        };
        let name =
            self.groups.known.get(id).map(|group| group.description.name.as_str()).filter(|name| !name.is_empty());
        let named = name.map(|name| format!(" `{name}`")).unwrap_or_default();
        let text = format!("placement group{named} {} is no more: {why}. Make a new one to run within", id.hex());
        failure(code, text)
    }

    /// The group is given up: what waits or runs within it ends, and what it reserved is free as soon as that is gone.
    pub(super) fn group_remove(&mut self, id: PlacementGroupId, why: &str) {
        let Some(waiters) = self.groups.known.remove(id, why) else { return };
        for (client, request) in waiters {
            if let Some(key) = self.clients.keys.get(&client).copied() {
                let failure = Some(self.gone(id, "task_placement_group_removed"));
                self.send(key, GroupAnswer { request, failure });
            }
        }
        let reservation = self.groups.reservations.remove(&id).expect("a group that is not removed is held");
        self.pending.fairness.lets_go(Holder::Group(id));
        self.touch(Row::Group(id));
        if let Some(ticket) = reservation.ticket {
            self.withdraw(ticket);
        }
        self.refuse_within(id);
        self.kill_within(id);
        self.release_bundles(id);
        self.pending.is_due = true;
    }

    /// Nobody waits any more for what a removed group had.
    fn refuse_within(&mut self, id: PlacementGroupId) {
        let within = self
            .pending
            .wanted
            .iter()
            .filter(|(_, wanted)| self.home_wanted(&wanted.want).is_some_and(|home| home.group == id));
        for ticket in within.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            let wanted = self.withdraw(ticket).expect("it was just looked at");
            let failure = self.gone(id, "task_placement_group_removed");
            self.refuse_home(&wanted.want, &failure);
        }
    }

    /// The group that somebody who waits is to run in.
    pub(super) fn home_wanted(&self, want: &PendingKind) -> Option<GroupMembership> {
        match want {
            PendingKind::Lease { home, .. } => *home,
            PendingKind::Actor(actor) => self.actors.making.get(actor).and_then(super::actors::Making::home),
            PendingKind::Group { .. } => None,
        }
    }

    /// That the group in which somebody was to run was removed meanwhile.
    pub(super) fn home_lost(&self, want: &PendingKind) -> Option<Failure> {
        let home = self.home_wanted(want)?;
        let is_there = self.groups.reservations.contains_key(&home.group);
        (!is_there).then(|| self.gone(home.group, "task_placement_group_removed"))
    }

    /// Tells somebody who waited that their group is no more.
    pub(super) fn refuse_home(&mut self, want: &PendingKind, failure: &Failure) {
        match *want {
            PendingKind::Lease { client, request, .. } => {
                if let Some(client) = self.clients.by_key.get_mut(&client) {
                    client.waiting.remove(&request);
                }
                self.send(client, LeaseRefused { request, failure: Some(failure.clone()) });
            }
            PendingKind::Actor(actor) => self.actor_died(actor, &of_actor(failure)),
            PendingKind::Group { .. } => {}
        }
    }

    fn kill_within(&mut self, id: PlacementGroupId) {
        let within = |worker: &super::Worker| worker.home.is_some_and(|home| home.group == id);
        let keys: Vec<Key> =
            self.workers.by_key.iter().filter(|(_, worker)| within(worker)).map(|(key, _)| *key).collect();
        for key in keys {
            let failure = self.gone(id, "task_placement_group_removed");
            match self.workers.by_key[&key].duty {
                Duty::Leased(lease) => self.lease_ended(lease, "its placement group was removed", Some(&failure)),
                Duty::Actor(actor) => self.actor_died(actor, &of_actor(&failure)),
                Duty::Idle | Duty::Ending => continue,
            }
            self.kill_worker(key);
        }
    }

    /// What somebody waits for who wants to run in a group; otherwise why they never can.
    pub(super) fn need_within(&self, amounts: &[Amount], told: &Strategy, label: &str) -> Result<Need, Failure> {
        let unschedulable = |text: String| failure("task_unschedulable", text);
        let demand = demand_of(amounts, label).map_err(unschedulable)?;
        let id = told.group.unwrap_or_default();
        let found = self.groups.known.get(id).filter(|group| !matches!(group.phase, GroupPhase::Removed(_)));
        let Some(found) = found else { return Err(self.gone(id, "task_placement_group_removed")) };
        let bundles = &found.description.group.bundles;
        let bundle = (told.bundle as usize).checked_sub(1);
        let asked: Vec<&Bundle> = match bundle {
            Some(index) => bundles.get(index).into_iter().collect(),
            None => bundles.iter().collect(),
        };
        if !asked.iter().any(|bundle| holds(&bundle.demand, &demand)) {
            let there: Vec<String> = asked.iter().map(|bundle| bundle.demand.to_string()).collect();
            let there = if there.is_empty() { "there is no such bundle".to_owned() } else { there.join(", ") };
            let text = format!(
                "{label} asks for {demand} within placement group {}, and no bundle it may use has that: {there}; ask for \
                 less, or make the group with larger bundles",
                id.hex()
            );
            return Err(unschedulable(text));
        }
        Ok(Need::Within { group: id, bundle, demand })
    }

    /// The same for an actor, with what it holds once it runs.
    pub(super) fn actor_within(
        &self,
        asked: &ActorCreate,
        told: &Strategy,
        label: &str,
    ) -> Result<(Need, Demand), Failure> {
        let need = self.need_within(&asked.placement, told, label).map_err(|failure| of_actor(&failure))?;
        let unschedulable = |text: String| failure("actor_unschedulable", text);
        let running = demand_of(&asked.running, label).map_err(unschedulable)?;
        if !need.demand().is_some_and(|placement| holds(placement, &running)) {
            return Err(unschedulable(format!("{label} holds more than it asks for when it is placed")));
        }
        Ok((need, running))
    }

    /// Why somebody in the queue waits, where it has to do with a group.
    pub(super) fn why_within(&self, group: PlacementGroupId, bundle: Option<usize>) -> String {
        let Some(found) = self.groups.known.get(group) else { return "its placement group is gone".to_owned() };
        if matches!(found.phase, GroupPhase::Pending | GroupPhase::Prepared { .. }) {
            let why = self.why_not_placed(&found.description.group);
            return format!("the placement group is not created yet: {why}");
        }
        let asked = (0..found.nodes.len()).filter(|index| bundle.is_none_or(|only| only == *index));
        let free = asked.map(|index| {
            let Some(node) = found.nodes[index] else {
                return format!("bundle {index} waits for a node, since its node died");
            };
            let amounts = self.available_there(node, group, index);
            let free: Vec<String> = amounts.iter().map(|(name, amount)| format!("{name}: {amount}")).collect();
            let devices = self.devices_of_bundle(found, index);
            let devices =
                devices.into_iter().map(|(resource, numbers)| format!(", of {resource} {}", listed(&numbers)));
            format!("bundle {index} has {{{}}} free{}", free.join(", "), devices.collect::<String>())
        });
        free.take(super::waiting::HOLDERS_NAMED_MAX).collect::<Vec<_>>().join(", ")
    }

    /// The group's name, or its identifier where it has none, as it stands in a sentence.
    pub(super) fn group_name(&self, id: PlacementGroupId) -> String {
        let name =
            self.groups.known.get(id).map(|group| group.description.name.as_str()).filter(|name| !name.is_empty());
        name.map_or_else(|| id.hex(), |name| format!("`{name}`"))
    }

    /// What stands in a group's way now.
    pub(super) fn why_not_placed(&self, group: &Group) -> String {
        match place_group(&self.all_views(), group) {
            GroupPlacement::On(_) => "it is about to be placed".to_owned(),
            GroupPlacement::Wait(reason) => reason.message(false),
            GroupPlacement::Never(reason) => reason.message(true),
        }
    }

    /// The groups of a job end with it.
    pub(super) fn end_groups_of_job(&mut self, job: JobId) {
        for id in self.groups.known.of_job(job) {
            self.group_remove(id, "the job that made it is over, and it was not detached");
        }
    }

    /// The groups of a detached actor end with it.
    pub(super) fn end_groups_of_actor(&mut self, actor: ActorId) {
        for id in self.groups.known.of_actor(actor) {
            self.group_remove(id, "the detached actor that made it is dead, and it was not detached itself");
        }
    }
}

/// What a group asks for, checked.
pub(super) fn group_of(asked: &GroupCreate) -> Result<Group, String> {
    let strategy = GroupStrategy::from_name(&asked.strategy).ok_or_else(|| {
        format!("{:?} is no strategy: it is PACK, SPREAD, STRICT_PACK or STRICT_SPREAD", asked.strategy)
    })?;
    if asked.bundles.is_empty() || asked.bundles.len() > BUNDLES_MAX {
        let count = asked.bundles.len();
        return Err(format!("a placement group has from 1 to {BUNDLES_MAX} bundles, and {count} were given"));
    }
    let bundles = asked.bundles.iter().enumerate().map(|(index, GroupBundle { demand, conditions })| {
        let demand = demand_of(demand, &format!("bundle {index}"))?;
        if demand.is_nothing() {
            return Err(format!("bundle {index} asks for nothing; give it a resource, as in {{\"CPU\": 1}}"));
        }
        Ok(Bundle { demand, selector: selector(conditions) })
    });
    let preferred = asked.preferred;
    Ok(Group { strategy, bundles: bundles.collect::<Result<_, String>>()?, preferred })
}

fn taken_by_another(id: PlacementGroupId) -> String {
    let id = id.hex();
    format!("the identifier {id} is that of another placement group; each group is made under an identifier of its own")
}

fn listed(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" and ")
}

/// Whether a bundle of this size could grant the demand with nothing running in it.
fn holds(bundle: &Demand, demand: &Demand) -> bool {
    demand.iter().all(|(name, amount)| amount <= bundle.get(name.as_str()))
}

fn failure(code: &str, text: String) -> Failure {
    Failure { code: code.to_owned(), text, cause: bytes::Bytes::new() }
}

/// What a task is told, for an actor.
fn of_actor(told: &Failure) -> Failure {
    let code = match told.code.as_str() {
        "task_placement_group_removed" => "actor_placement_group_removed",
        _ => "actor_unschedulable",
    };
    failure(code, told.text.clone())
}
