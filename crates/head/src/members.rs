//! The machines of the cluster: what they have, what they were ordered to do, where their workers and proxied clients are,
//! and which are being emptied. The head's own is one of them.
//!
//! - MEMBER-1: a member's ledger decides. The head orders by a view that may be old; an order that is refused stands in
//!   the queue again. That of its own machine is never old when something is ordered.
//! - MEMBER-2: a worker on a member is a client like all others: what is said to it and by it is passed on
//!   ([`Members::route`]).
//! - MEMBER-3: an order is answered once, or ends with its member; whatever it was for is then placed, queued or gone.

mod devices;
mod drains;
mod holdings;
mod reports;

use crate::amounts::{Amounts, add, available_of, total_of};
use crate::breaker::{Breaker, Kept};
use crate::demands::Need;
use crate::placement_groups::PlacementGroup;
use crate::queue::PendingRequest;
pub(crate) use drains::{Drain, DrainRow, Left};
pub(crate) use holdings::Holdings;
use oxiray_ids::{BundleNumber, JobId, NodeId, PlacementGroupId, WorkerNumber};
use oxiray_machine::{BundleKey, Key};
use oxiray_resources::{Demand, Quantity, ResourceName};
use oxiray_scheduler::{
    BundlePart, Fleet, Found, Group, GroupPlacement, GroupReason, Near, NodeView, Placement, Reason, ResourceRequest,
    Strategy, place, place_group,
};
use oxiray_wire::message::{BundleName, Draining, HeadOrder, NodeJoin, NodeState};
use oxiray_wire::state::{DeviceCondition, TURN_STEPS_MS};
use reports::{ReportedBundle, apply, is_placed_by};
pub(crate) use reports::{bundle_of, view_of};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// How many dead members are remembered for listings.
const LOST_KEPT: usize = 100;
/// Of how many workers of one machine it is kept what they use.
const MEASURED_WORKERS_MAX: usize = 4_096;
/// How many devices that are kept in service one message names.
const KEPT_NAMED_MAX: usize = 8;
/// How many labels that are withdrawn one message names.
const WITHDRAWN_NAMED_MAX: usize = 4;
/// Over 1, 5 and 15 minutes.
const LOADS: usize = 3;
/// The head's own machine among its members; no number that the daemon gives.
pub(crate) const OWN: Key = 0;

/// A machine.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) told: NodeJoin,
    /// As its ledger stood when it last told.
    reported: NodeView,
    /// The same, less what it was ordered since.
    pub(crate) view: NodeView,
    /// What is free within the bundles that are set aside there, when it last told and less what was ordered since.
    reported_bundles: BTreeMap<BundleKey, ReportedBundle>,
    bundles: BTreeMap<BundleKey, NodeView>,
    under_way: BTreeMap<u64, Booked>,
    pub(crate) workers: BTreeMap<WorkerNumber, Key>,
    pub(crate) jobs: BTreeSet<JobId>,
    /// Its stream is over, and its process is waited for: nothing more is ordered.
    pub(crate) is_silent: bool,
    /// What it told last; of bundles and holdings only what changed with that.
    pub(crate) state: NodeState,
    pub(crate) holdings: Holdings,
    /// The devices for which it is to be started again, and which it has not found well since: by resource and slot.
    pub(crate) restarts_for: BTreeSet<(String, u32)>,
}

/// What an order books.
#[derive(Debug)]
pub(crate) enum Booked {
    OfMachine(Vec<Demand>),
    /// Within bundles of a group.
    Within(PlacementGroupId, Vec<BundlePart>),
}

impl Booked {
    /// Each bundle, and what is booked within it.
    fn within(&self) -> impl Iterator<Item = (BundleKey, &Demand)> {
        let within = match self {
            Self::OfMachine(_) => None,
            Self::Within(group, parts) => Some((*group, parts)),
        };
        within.into_iter().flat_map(|(group, parts)| parts.iter().map(move |part| ((group, part.bundle), &part.demand)))
    }

    /// What is booked of the machine.
    fn of_machine(&self) -> &[Demand] {
        match self {
            Self::OfMachine(demands) => demands,
            Self::Within(..) => &[],
        }
    }
}

impl Member {
    fn new(told: NodeJoin, reported: NodeView) -> Self {
        Self {
            state: told.state.clone().unwrap_or_default(),
            holdings: Holdings::new(told.state.as_ref().map_or(&[], |state| &state.holdings)),
            told,
            view: reported.clone(),
            reported,
            reported_bundles: BTreeMap::new(),
            restarts_for: BTreeSet::new(),
            bundles: BTreeMap::new(),
            under_way: BTreeMap::new(),
            workers: BTreeMap::new(),
            jobs: BTreeSet::new(),
            is_silent: false,
        }
    }

    /// Whether all that it has is known here: nothing is ordered that it has not told the outcome of.
    #[must_use]
    pub(crate) fn is_settled(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether a text means it: its name or address, or its identifier or the beginning of that.
    fn is_meant(&self, text: &str) -> bool {
        let names = [&self.told.name, &self.told.ip];
        let is_named = self.view.node.hex().starts_with(text) || names.into_iter().any(|name| name == text);
        !text.is_empty() && is_named
    }

    /// The resources of its devices, and how many it has of each.
    pub(crate) fn device_counts(&self) -> impl Iterator<Item = (ResourceName, u64)> + '_ {
        let devices = self.view.inventory.totals().filter(|(name, total)| name.is_device() && !total.is_zero());
        devices.map(|(name, total)| (name.clone(), total.wholes()))
    }

    /// Bytes that are free in its store, about.
    pub(crate) fn store_left(&self) -> u64 {
        let room = self.told.totals.iter().find(|amount| amount.resource == "object_store_memory");
        let bytes = room.map_or(0, |amount| amount.units / Quantity::UNITS_PER_WHOLE);
        bytes.saturating_sub(self.state.store_used)
    }

    /// What is free within the bundles that are set aside there.
    pub(crate) fn bundles(&self) -> &BTreeMap<BundleKey, NodeView> {
        &self.bundles
    }

    /// Its ledger changed.
    fn hear(&mut self, state: &NodeState) {
        apply(&mut self.reported, state, &self.told.labels);
        let later = self.under_way.split_off(&state.order.saturating_add(1));
        let settled = std::mem::replace(&mut self.under_way, later);
        let mut changed: BTreeSet<BundleKey> =
            settled.values().flat_map(|booked| booked.within().map(|(bundle, _)| bundle)).collect();
        for BundleName { group, bundle } in &state.dissolved {
            let key = (*group, *bundle);
            self.reported_bundles.remove(&key);
            changed.insert(key);
        }
        for told in &state.bundles {
            let key = (told.group, told.bundle);
            self.reported_bundles.insert(key, bundle_of(self.reported.node, told, &self.reported.inventory));
            changed.insert(key);
        }
        self.look_again_at(&changed);
    }

    /// What it has, less what it was ordered since.
    fn look_again(&mut self) {
        let all = self.bundles.keys().copied().collect();
        self.look_again_at(&all);
    }

    /// The same for the machine, and of its bundles for some.
    fn look_again_at(&mut self, bundles: &BTreeSet<BundleKey>) {
        self.view.free.clone_from(&self.reported.free);
        self.view.free_devices.clone_from(&self.reported.free_devices);
        self.view.labels.clone_from(&self.reported.labels);
        for key in bundles {
            match self.reported_bundles.get(key) {
                Some(told) => self.bundles.insert(*key, told.view.clone()),
                None => self.bundles.remove(key),
            };
        }
        for booked in self.under_way.values() {
            for demand in booked.of_machine() {
                self.view.take(demand);
            }
            for (bundle, demand) in booked.within().filter(|(bundle, _)| bundles.contains(bundle)) {
                if let Some(view) = self.bundles.get_mut(&bundle) {
                    view.take(demand);
                }
            }
        }
    }
}

/// A node that is dead.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) told: NodeJoin,
    pub(crate) view: NodeView,
    pub(crate) at: Instant,
    /// The same in milliseconds since 1970.
    pub(crate) ended_ms: u64,
    /// How it ended.
    pub(crate) how: String,
}

/// What a member was ordered to have a worker for.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) member: Key,
    pub(crate) ticket: u64,
    pub(crate) wanted: PendingRequest,
    pub(crate) need: Need,
}

/// What a member was asked to set aside.
#[derive(Debug)]
pub(crate) struct Prepare {
    pub(crate) member: Key,
    pub(crate) group: PlacementGroupId,
}

/// A client of the head whose stream ends at another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProxiedClient {
    Driver,
    /// The command line.
    Visitor,
}

/// All members.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// What its own machine is to hear.
    to_own: Vec<HeadOrder>,
    pub(crate) by_key: BTreeMap<Key, Member>,
    /// Where each of their workers and proxied clients is: the member, and what it calls that.
    routes: BTreeMap<Key, (Key, WorkerNumber)>,
    pub(crate) orders: BTreeMap<u64, Order>,
    pub(crate) lost: Vec<Lost>,
    last_order: u64,
    pub(crate) by_node: BTreeMap<NodeId, Key>,
    /// The bundles that members were asked to set aside and have not answered for, by the order.
    pub(crate) prepares: BTreeMap<u64, Prepare>,
    /// Those that can be ordered to do something, and this node, as the scheduler knows them.
    pub(crate) fleet: Fleet,
    pub(crate) proxied_clients: BTreeMap<Key, ProxiedClient>,
    /// Those that are being emptied.
    pub(crate) drains: BTreeMap<Key, Drain>,
    /// Those of the last head, of nodes that are not back yet (DRAIN-5).
    pub(crate) drained_before: BTreeMap<NodeId, DrainRow>,
    /// The devices for which they are to be started again, as the last head knew them.
    pub(crate) restarts_before: BTreeMap<NodeId, BTreeSet<(String, u32)>>,
    /// The devices that they took out of service by themselves.
    breaker: Breaker,
}

/// Who is there.
impl Members {
    /// Those of a cluster of one machine, that of the head, which describes itself so.
    pub(crate) fn of(told: NodeJoin) -> Self {
        let view = view_of(&told).expect("a node describes itself by its own ledger");
        let mut members = Self::default();
        members.join(OWN, told, view);
        members
    }

    /// A machine joins that describes itself so, with nothing running.
    pub(crate) fn join(&mut self, key: Key, told: NodeJoin, view: NodeView) {
        self.by_node.insert(view.node, key);
        let restarts_for = self.restarts_before.remove(&view.node).unwrap_or_default();
        self.by_key.insert(key, Member { restarts_for, ..Member::new(told, view) });
        self.show(key);
    }

    /// A machine is gone, and what it had with it. Its drain and its orders are for the caller to end.
    pub(crate) fn leave(&mut self, key: Key) -> Option<Member> {
        let member = self.by_key.remove(&key)?;
        self.breaker.member_gone(key);
        self.by_node.remove(&member.view.node);
        self.fleet.remove(member.view.node);
        for worker in member.workers.values() {
            self.routes.remove(worker);
        }
        Some(member)
    }

    /// One that left is remembered for a while.
    pub(crate) fn remember(&mut self, member: Member, (at, ended_ms): (Instant, u64), how: String) {
        self.lost.push(Lost { told: member.told, view: member.reported, at, ended_ms, how });
        if self.lost.len() > LOST_KEPT {
            self.lost.remove(0);
        }
    }

    /// Whether there is no machine beside the head's own.
    pub(crate) fn is_alone(&self) -> bool {
        self.by_key.len() == 1
    }

    /// The machines beside the head's own.
    pub(crate) fn others(&self) -> impl Iterator<Item = (&Key, &Member)> {
        self.by_key.iter().filter(|(key, _)| **key != OWN)
    }

    /// The head's own machine.
    pub(crate) fn own(&self) -> &Member {
        &self.by_key[&OWN]
    }

    /// The machine that a node is.
    pub(crate) fn at(&self, node: NodeId) -> Option<&Member> {
        self.by_key.get(self.by_node.get(&node)?)
    }

    /// The member of a node, but for the head's own, whose store this process has.
    pub(crate) fn member_of(&self, node: NodeId) -> Option<Key> {
        self.by_node.get(&node).copied().filter(|member| *member != OWN)
    }

    /// The node of a member.
    pub(crate) fn node_of_member(&self, member: Key) -> Option<NodeId> {
        self.by_key.get(&member).map(|member| member.view.node)
    }

    /// Whether there is a node of that identity.
    pub(crate) fn knows_node(&self, node: NodeId) -> bool {
        self.by_node.contains_key(&node)
    }

    /// The members on this machine, the head's own among them, that know a job.
    pub(crate) fn near_with(&self, job: JobId) -> Vec<Key> {
        let near =
            self.by_key.iter().filter(|(_, member)| member.told.listens.is_empty() && member.jobs.contains(&job));
        near.map(|(key, _)| *key).collect()
    }

    /// The members that know a job, which they forget.
    pub(crate) fn forget_job(&mut self, job: JobId) -> Vec<Key> {
        let told = self.by_key.iter_mut().filter_map(|(key, member)| member.jobs.remove(&job).then_some(*key));
        told.collect()
    }
}

/// Where the processes are that run on them.
impl Members {
    /// From here on, `key` is what the member calls `number`. What its own machine has, the head calls the same.
    pub(crate) fn add_route(&mut self, key: Key, member: Key, number: WorkerNumber) {
        if member != OWN {
            self.routes.insert(key, (member, number));
        }
        if let Some(member) = self.by_key.get_mut(&member) {
            member.workers.insert(number, key);
        }
    }

    pub(crate) fn remove_route(&mut self, key: Key) {
        let (member, number) = self.routes.remove(&key).unwrap_or((OWN, WorkerNumber(key)));
        if let Some(member) = self.by_key.get_mut(&member) {
            member.workers.remove(&number);
        }
    }

    /// The member that has the client, and what it calls it; nothing for one of the head's own machine.
    pub(crate) fn route(&self, client: Key) -> Option<(Key, WorkerNumber)> {
        self.routes.get(&client).copied()
    }

    /// What a member calls `number`, worker or proxied client; nothing where it is gone.
    pub(crate) fn process_of(&self, member: Key, number: WorkerNumber) -> Option<Key> {
        self.by_key.get(&member)?.workers.get(&number).copied()
    }

    /// The member that a client's process runs on.
    pub(crate) fn member_with(&self, client: Key) -> Key {
        self.route(client).map_or(OWN, |(member, _)| member)
    }

    fn machine_with(&self, client: Key) -> &Member {
        self.by_key.get(&self.member_with(client)).unwrap_or_else(|| self.own())
    }

    /// The node that a client's process runs on.
    pub(crate) fn node_of(&self, client: Key) -> NodeId {
        self.machine_with(client).view.node
    }

    /// The address of the node that a client's process runs on.
    pub(crate) fn ip_of(&self, client: Key) -> &str {
        &self.machine_with(client).told.ip
    }

    /// Whether it is the command line, which asks through a member.
    pub(crate) fn is_visiting(&self, key: Key) -> bool {
        self.proxied_clients.get(&key) == Some(&ProxiedClient::Visitor)
    }

    /// Drivers and visitors whose streams end at a member.
    pub(crate) fn proxied_clients_of(&self, member: Key) -> Vec<Key> {
        let of_member = |key: &Key| self.route(*key).is_some_and(|(found, _)| found == member);
        self.proxied_clients.keys().copied().filter(of_member).collect()
    }
}

/// What they are ordered, and what they have.
impl Members {
    /// Has its own machine hear something.
    pub(crate) fn order_own(&mut self, order: HeadOrder) {
        self.to_own.push(order);
    }

    /// What its own machine is to hear.
    pub(crate) fn orders_of_own(&mut self) -> Vec<HeadOrder> {
        std::mem::take(&mut self.to_own)
    }

    /// Names the next order.
    pub(crate) fn next_order(&mut self) -> u64 {
        self.last_order += 1;
        self.last_order
    }

    /// Orders are named from here on at least.
    pub(crate) fn number_orders_from(&mut self, first: u64) {
        self.last_order = self.last_order.max(first);
    }

    /// Books what a member is ordered, until it tells what came of that. Returns its node.
    pub(crate) fn book(&mut self, key: Key, order: u64, booked: Booked) -> Option<NodeId> {
        let member = self.by_key.get_mut(&key)?;
        for demand in booked.of_machine() {
            member.view.take(demand);
        }
        member.under_way.insert(order, booked);
        Some(member.view.node)
    }

    /// Books what bundles that a member has set aside are to give; they have it free.
    pub(crate) fn take_within(&mut self, key: Key, group: PlacementGroupId, parts: &[BundlePart]) {
        let Some(member) = self.by_key.get_mut(&key) else { return };
        for part in parts {
            if let Some(view) = member.bundles.get_mut(&(group, part.bundle)) {
                view.take(&part.demand);
            }
        }
    }

    /// What was booked for an order that a member refused is not.
    pub(crate) fn refused(&mut self, key: Key, order: u64) {
        if let Some(member) = self.by_key.get_mut(&key) {
            member.under_way.remove(&order);
        }
        self.look_again(key);
    }

    /// Takes back what was booked on the member for an order that was not given.
    pub(crate) fn look_again(&mut self, key: Key) {
        if let Some(member) = self.by_key.get_mut(&key) {
            member.look_again();
        }
        self.show(key);
    }

    /// A member's ledger changed. Returns whether somebody may be placed by that.
    pub(crate) fn changed(&mut self, key: Key, mut state: NodeState) -> bool {
        if let Some(statistics) = &mut state.statistics {
            statistics.workers.truncate(MEASURED_WORKERS_MAX);
            statistics.loads.truncate(LOADS);
        }
        if let Some(daemon) = &mut state.daemon {
            daemon.longer_turns.truncate(TURN_STEPS_MS.len());
        }
        let Some(member) = self.by_key.get_mut(&key) else { return false };
        let is_news = is_placed_by(&member.state, &state);
        if is_news {
            member.hear(&state);
        }
        // What is measured is told once, and the latest is kept.
        state.statistics = state.statistics.or_else(|| member.state.statistics.take());
        state.daemon = state.daemon.or_else(|| member.state.daemon.take());
        member.state = state;
        if is_news {
            self.show(key);
        }
        is_news
    }

    /// Has the scheduler know the member as it stands.
    pub(crate) fn show(&mut self, key: Key) {
        match self.by_key.get(&key) {
            Some(member) if self.takes(key) => self.fleet.put(&member.view),
            Some(member) => self.fleet.remove(member.view.node),
            None => {}
        }
    }

    /// Whether a member can be ordered to do something.
    pub(crate) fn takes(&self, key: Key) -> bool {
        self.by_key.get(&key).is_some_and(|member| !member.is_silent) && !self.drains.contains_key(&key)
    }

    /// Whether some may come back whose streams broke.
    pub(crate) fn awaits_some(&self) -> bool {
        self.by_key.values().any(|member| member.is_silent)
    }

    /// Those that can be ordered to do something.
    pub(crate) fn views(&self) -> impl Iterator<Item = (Key, &NodeView)> {
        self.by_key.iter().filter(|(key, _)| self.takes(**key)).map(|(key, member)| (*key, &member.view))
    }

    /// The machines that can be ordered to do something, as they stand.
    pub(crate) fn all_views(&self) -> Vec<NodeView> {
        self.views().map(|(_, view)| view.clone()).collect()
    }

    /// What the cluster has, and what of it is free: devices out of service excepted, none at zero.
    pub(crate) fn cluster_amounts(&self) -> (Amounts, Amounts) {
        let (mut totals, mut available) = (Amounts::new(), Amounts::new());
        for (_, view) in self.views() {
            add(&mut totals, total_of(view));
            add(&mut available, available_of(view));
        }
        (totals, available)
    }

    /// Places a request by a look at every node, for the reason.
    pub(crate) fn look_everywhere(&self, resource_request: &ResourceRequest) -> Placement {
        place(&self.all_views(), resource_request, &Near::default(), 0)
    }

    /// Why no node there is could ever meet the request.
    pub(crate) fn never(&mut self, resource_request: &ResourceRequest) -> Option<Reason> {
        if self.fleet.find(resource_request, &Near::default()) != Found::Never {
            return None;
        }
        match self.look_everywhere(resource_request) {
            Placement::Never(reason) => Some(reason),
            Placement::On(_) | Placement::Wait(_) => None,
        }
    }

    /// What keeps the request from being met now.
    pub(crate) fn obstacle(&self, resource_request: &ResourceRequest) -> Option<Reason> {
        match self.look_everywhere(resource_request) {
            Placement::Never(reason) | Placement::Wait(reason) => Some(reason),
            Placement::On(_) => None,
        }
    }

    /// The labels that are withdrawn for now on nodes that are there, of those that somebody asks for: in words.
    fn withdrawn_in_words<'label>(&self, asked: impl IntoIterator<Item = &'label str>) -> Option<String> {
        let asked: BTreeSet<&str> = asked.into_iter().collect();
        let members = self.by_key.iter().filter(|(key, _)| self.takes(**key)).map(|(_, member)| member);
        let withdrawn = members.flat_map(|member| {
            let labels = member.state.withdrawn_labels.iter().filter(|label| asked.contains(&label[..]));
            labels.map(|label| format!("`{label}` of node {}", member.view.node.hex()))
        });
        let named: Vec<String> = withdrawn.take(WITHDRAWN_NAMED_MAX).collect();
        let why = "withdrawn while a driver needs its domain of shared memory (IMEX) recovered";
        (!named.is_empty()).then(|| format!("; {why}: label {}", named.join(", ")))
    }

    /// The same for a request.
    pub(crate) fn withdrawn_for(&self, resource_request: &ResourceRequest) -> Option<String> {
        let place = resource_request.place.as_deref()?;
        let hard = match &place.strategy {
            Strategy::Labels { hard, .. } => Some(hard),
            Strategy::Node { .. } | Strategy::Default | Strategy::Spread => None,
        };
        let conditions = place.selectors.iter().chain(hard).flat_map(|selector| &selector.0);
        self.withdrawn_in_words(conditions.map(|condition| &condition.key[..]))
    }

    /// The same for a group.
    pub(crate) fn withdrawn_for_group(&self, group: &Group) -> Option<String> {
        let conditions = group.bundles.iter().flat_map(|bundle| &bundle.selector.0);
        self.withdrawn_in_words(conditions.map(|condition| &condition.key[..]).chain(group.domain.as_deref()))
    }

    /// When the last node died that could have met the request.
    pub(crate) fn last_loss(&self, resource_request: &ResourceRequest) -> Option<Instant> {
        let could = |view| {
            !matches!(place(std::slice::from_ref(view), resource_request, &Near::default(), 0), Placement::Never(_))
        };
        self.lost.iter().rev().find(|lost| could(&lost.view)).map(|lost| lost.at)
    }

    /// What stands in a group's way now.
    pub(crate) fn why_not_placed(&self, group: &Group) -> String {
        match place_group(&self.all_views(), group) {
            GroupPlacement::On(_) => "it is about to be placed".to_owned(),
            GroupPlacement::Wait(reason) => self.group_reason(group, &reason, false),
            GroupPlacement::Never(reason) => self.group_reason(group, &reason, true),
        }
    }

    /// A reason why a group waits, with the labels that are withdrawn for now.
    pub(crate) fn group_reason(&self, group: &Group, reason: &GroupReason, is_never: bool) -> String {
        let withdrawn = self.withdrawn_for_group(group);
        reason.message(is_never && withdrawn.is_none()) + &withdrawn.unwrap_or_default()
    }

    /// What is free within a bundle.
    pub(crate) fn available_within(&self, node: NodeId, bundle: BundleKey) -> Amounts {
        let view = self.at(node).and_then(|member| member.bundles.get(&bundle));
        view.map(available_of).unwrap_or_default()
    }

    /// The numbers of the devices that a bundle has a part of, on the node where it is.
    pub(crate) fn devices_of_bundle(&self, group: &PlacementGroup, index: usize) -> BTreeMap<String, Vec<u32>> {
        let member = group.nodes[index].and_then(|node| self.at(node));
        let told =
            member.and_then(|member| member.reported_bundles.get(&(group.description.id, BundleNumber::at(index))));
        told.map(|told| told.devices.clone()).unwrap_or_default()
    }
}

/// Which of them are being emptied.
impl Members {
    /// The one member that is meant, which can be drained.
    pub(crate) fn drainable(&self, text: &str) -> Result<(Key, NodeId), String> {
        if self.own().is_meant(text) {
            return Err(format!(
                "node {} is the head's, which the cluster ends with: it cannot be drained. End the cluster with `oxiray stop`",
                self.own().view.node
            ));
        }
        let living: Vec<_> = self.others().filter(|(_, member)| !member.is_silent).collect();
        if living.is_empty() {
            return Err(format!("no living node is `{text}`: there is none beside the head, which cannot be drained"));
        }
        only_one_meant(&living, text)
    }

    /// The one member that is meant, the head's own among them.
    pub(crate) fn meant(&self, text: &str) -> Result<(Key, NodeId), String> {
        let living: Vec<_> = self.by_key.iter().filter(|(_, member)| !member.is_silent).collect();
        only_one_meant(&living, text)
    }

    /// The members that are heard of.
    pub(crate) fn living_nodes(&self) -> Vec<(Key, NodeId)> {
        let living = self.by_key.iter().filter(|(_, member)| !member.is_silent);
        living.map(|(key, member)| (*key, member.view.node)).collect()
    }

    /// The devices that a member is to keep in service though it found them ill (BREAKER-1).
    pub(crate) fn kept_in_service(&mut self, key: Key, now: Instant) -> Vec<(Kept, bool)> {
        let Some(member) = self.by_key.get(&key) else { return Vec::new() };
        let total = |resource: &str| {
            let counts = self.by_key.values().flat_map(Member::device_counts);
            counts.filter(|(name, _)| name.as_str() == resource).map(|(_, count)| count).sum()
        };
        let has = |of: &&DeviceCondition| {
            let mut counts = member.device_counts();
            counts.any(|(name, count)| name.as_str() == of.resource && u64::from(of.slot) < count)
        };
        self.breaker.judge(key, member.state.conditions.iter().filter(has), total, now)
    }

    /// What people are to know of now.
    pub(crate) fn alerts(&self, now: Instant) -> Vec<String> {
        self.breaker_alerts(now).into_iter().chain(self.restart_alert()).collect()
    }

    /// What people are to know of devices that are kept in service so (BREAKER-2).
    fn breaker_alerts(&self, now: Instant) -> Vec<String> {
        let mut by_resource: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for kept in self.breaker.kept(now) {
            let Some(member) = self.by_key.get(&kept.member) else { continue };
            let Kept { resource, slot, reason, .. } = kept;
            // Something else took it out of service: a person, or that it does not answer any more.
            if member.is_out_of_service(&resource, slot) {
                continue;
            }
            let text = format!("{resource} {slot} of node {} ({reason})", member.view.node);
            by_resource.entry(resource).or_default().push(text);
        }
        let alert = |(resource, mut devices): (String, Vec<String>)| {
            let more = devices.len().saturating_sub(KEPT_NAMED_MAX);
            devices.truncate(KEPT_NAMED_MAX);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            format!(
                "more than half of the cluster's devices of `{resource}` would be out of service for what their nodes found; \
                 these are kept in service: {}{more}. A fault of a driver looks like this: look at the nodes, and drain by \
                 hand (`oxiray device drain`) what is not to be used",
                devices.join(", ")
            )
        };
        by_resource.into_iter().map(alert).collect()
    }

    /// What a member and those on it are told that is being emptied.
    pub(crate) fn draining_of(&self, key: Key, now: Instant) -> Option<Draining> {
        self.drains.get(&key).map(|drain| drain.told(now))
    }

    /// Whether a worker's node is being emptied.
    pub(crate) fn is_draining(&self, worker: Key) -> bool {
        self.drains.contains_key(&self.member_with(worker))
    }

    /// Whether a worker's node was told to end: it dies of that (DRAIN-2).
    pub(crate) fn dies_of_drain(&self, worker: Key) -> bool {
        self.is_dismissed(self.member_with(worker))
    }

    /// Whether a member was told to end.
    pub(crate) fn is_dismissed(&self, member: Key) -> bool {
        self.drains.get(&member).is_some_and(|drain| drain.is_dismissed)
    }

    /// The member with the most room in its store, where that is more than the head's own has.
    pub(crate) fn roomiest(&self) -> Option<Key> {
        let lasting = self
            .others()
            .filter(|(key, member)| !member.is_silent && !self.drains.contains_key(key) && member.store_left() > 0);
        let (key, member) = lasting.max_by_key(|(_, member)| member.store_left())?;
        (member.store_left() > self.own().store_left()).then_some(*key)
    }
}

/// The only one of these members that the text means.
fn only_one_meant(living: &[(&Key, &Member)], text: &str) -> Result<(Key, NodeId), String> {
    let meant: Vec<_> = living.iter().filter(|(_, member)| member.is_meant(text)).collect();
    let named = |members: &mut dyn Iterator<Item = &Member>| {
        members.map(|member| format!("{} at {}", member.view.node, member.told.ip)).collect::<Vec<_>>().join(", ")
    };
    match meant[..] {
        [(key, member)] => Ok((**key, member.view.node)),
        [] => Err(format!("no living node is `{text}`; there are {}", named(&mut living.iter().map(|(_, one)| *one)))),
        _ => {
            let meant = named(&mut meant.iter().map(|(_, one)| *one));
            Err(format!("`{text}` may be any of these nodes: {meant}. Give more of the identifier"))
        }
    }
}
