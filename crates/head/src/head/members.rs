//! The machines of the cluster: what they have, what they were ordered to do, and their workers. The head's own is one of
//! them, and gets its orders in this process.
//!
//! - MEMBER-1: a member's ledger decides. The head orders by a view that may be old; an order that is refused stands in
//!   the queue again. That of its own machine is never old when something is ordered.
//! - MEMBER-2: a worker on a member is a client like all others: what is said to it and by it is passed on
//!   ([`HeadCore::route`]).
//! - MEMBER-3: an order is answered once, or ends with its member; whatever it was for is then placed, queued or gone.

use super::bundle_placement::Prepare;
use super::fairness::{Held, Holder};
use super::groups::{Need, home};
use super::node_report::{ReportedBundle, apply, bundle_of, is_placed_by, view_of};
use super::records::Row;
use super::validation::ProtocolError;
use super::workers::{Duty, Worker};
use super::{BundleKey, Effect, HeadCore, Key, PendingKind, PendingRequest, amounts};
use oxiray_ids::{JobId, NodeId, WorkerId};
use oxiray_machine::environments::merged;
use oxiray_resources::Demand;
use oxiray_scheduler::{Fleet, NodeView};
use oxiray_wire::message::{
    BundleName, Environment, HeadOrder, JobAnnounced, JobOver, NodeJoin, NodeReport, NodeState, Notice, Place,
    PlaceRefused, Placed,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How many dead members are remembered for listings.
const LOST_KEPT: usize = 100;
/// How long the process of a member may live without its stream: it ends its own workers in that time.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);
/// The head's own machine among its members; no number that the daemon gives.
pub(super) const OWN: Key = 0;

/// A machine.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) told: NodeJoin,
    /// As its ledger stood when it last told.
    reported: NodeView,
    /// The same, less what it was ordered since.
    pub(super) view: NodeView,
    /// What is free within the bundles that are set aside there, when it last told and less what was ordered since.
    reported_bundles: BTreeMap<BundleKey, ReportedBundle>,
    pub(super) bundles: BTreeMap<BundleKey, NodeView>,
    pub(super) under_way: BTreeMap<u64, UnderWay>,
    pub(super) workers: BTreeMap<u64, Key>,
    pub(super) jobs: BTreeSet<JobId>,
    /// Its stream is over, and its process is waited for: nothing more is ordered.
    pub(super) is_silent: bool,
    /// What it told last; of bundles only what changed with that.
    pub(super) state: NodeState,
}

impl Member {
    fn new(told: NodeJoin, reported: NodeView) -> Self {
        Self {
            state: told.state.clone().unwrap_or_default(),
            told,
            view: reported.clone(),
            reported,
            reported_bundles: BTreeMap::new(),
            bundles: BTreeMap::new(),
            under_way: BTreeMap::new(),
            workers: BTreeMap::new(),
            jobs: BTreeSet::new(),
            is_silent: false,
        }
    }

    /// Whether all that it has is known here: nothing is ordered that it has not told the outcome of.
    #[must_use]
    pub(super) fn is_settled(&self) -> bool {
        self.under_way.is_empty()
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
        for key in bundles {
            match self.reported_bundles.get(key) {
                Some(told) => self.bundles.insert(*key, told.view.clone()),
                None => self.bundles.remove(key),
            };
        }
        for (within, demands) in self.under_way.values() {
            let view = match within {
                Some(bundle) => self.bundles.get_mut(bundle).filter(|_| bundles.contains(bundle)),
                None => Some(&mut self.view),
            };
            if let Some(view) = view {
                for demand in demands {
                    view.take(demand);
                }
            }
        }
    }

    /// Its ledger changed.
    fn hear(&mut self, state: &NodeState) {
        apply(&mut self.reported, state);
        let later = self.under_way.split_off(&state.order.saturating_add(1));
        let settled = std::mem::replace(&mut self.under_way, later);
        let mut changed: BTreeSet<BundleKey> = settled.into_values().filter_map(|(within, _)| within).collect();
        for BundleName { group, bundle } in &state.dissolved {
            let key = (*group, *bundle as usize);
            self.reported_bundles.remove(&key);
            changed.insert(key);
        }
        for told in &state.bundles {
            let key = (told.group, told.bundle as usize);
            self.reported_bundles.insert(key, bundle_of(self.reported.node, told));
            changed.insert(key);
        }
        self.look_again_at(&changed);
    }

    /// The numbers of the devices that a bundle has a part of.
    pub(super) fn devices_of(&self, bundle: &BundleKey) -> Option<&BTreeMap<String, Vec<u32>>> {
        self.reported_bundles.get(bundle).map(|told| &told.devices)
    }
}

/// What an order books: within a bundle, or of the machine.
pub(super) type UnderWay = (Option<BundleKey>, Vec<Demand>);
/// What is ordered, and within which bundle.
pub(super) type Ordered = (Need, Option<BundleKey>);

/// A node that is dead.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) told: NodeJoin,
    pub(super) view: NodeView,
    pub(super) at: Instant,
    /// How it ended.
    pub(super) how: String,
}

#[derive(Debug)]
pub(super) struct Order {
    pub(super) member: Key,
    ticket: u64,
    pub(super) wanted: PendingRequest,
    need: Need,
}

/// All members.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// What its own machine is to hear.
    to_own: Vec<HeadOrder>,
    pub(super) by_key: BTreeMap<Key, Member>,
    /// Where each of their workers and proxied clients is: the member, and what it calls that.
    pub(super) routes: BTreeMap<Key, (Key, u64)>,
    pub(super) orders: BTreeMap<u64, Order>,
    pub(super) lost: Vec<Lost>,
    pub(super) last_order: u64,
    pub(super) by_node: BTreeMap<NodeId, Key>,
    /// The bundles that members were asked to set aside and have not answered for, by the order.
    pub(super) prepares: BTreeMap<u64, Prepare>,
    /// Those that can be ordered to do something, and this node, as the scheduler knows them.
    pub(super) fleet: Fleet,
    pub(super) proxied_clients: super::proxied_clients::ProxiedClients,
    /// Those that are being emptied.
    pub(super) drains: BTreeMap<Key, super::drain::Drain>,
}

impl Members {
    /// Those of a cluster of one machine, that of the head, which describes itself so.
    pub(super) fn of(told: NodeJoin) -> Self {
        let view = view_of(&told).expect("a node describes itself by its own ledger");
        let mut members = Self::default();
        members.by_node.insert(view.node, OWN);
        members.fleet.put(&view);
        members.by_key.insert(OWN, Member::new(told, view));
        members
    }

    /// Has its own machine hear something.
    pub(super) fn order_own(&mut self, order: HeadOrder) {
        self.to_own.push(order);
    }

    /// What its own machine is to hear.
    pub(super) fn orders_of_own(&mut self) -> Vec<HeadOrder> {
        std::mem::take(&mut self.to_own)
    }

    /// Whether there is no machine beside the head's own.
    pub(super) fn is_alone(&self) -> bool {
        self.by_key.len() == 1
    }

    /// The machines beside the head's own.
    pub(super) fn others(&self) -> impl Iterator<Item = (&Key, &Member)> {
        self.by_key.iter().filter(|(key, _)| **key != OWN)
    }

    /// The head's own machine.
    pub(super) fn own(&self) -> &Member {
        &self.by_key[&OWN]
    }

    /// The members on this machine, the head's own among them, that know a job.
    pub(super) fn near_with(&self, job: JobId) -> Vec<Key> {
        let near =
            self.by_key.iter().filter(|(_, member)| member.told.listens.is_empty() && member.jobs.contains(&job));
        near.map(|(key, _)| *key).collect()
    }

    /// Those that can be ordered to do something.
    pub(super) fn views(&self) -> impl Iterator<Item = (Key, &NodeView)> {
        self.by_key.iter().filter(|(key, _)| self.takes(**key)).map(|(key, member)| (*key, &member.view))
    }

    /// Takes back what was booked on the member for an order that was not given.
    pub(super) fn look_again(&mut self, key: Key) {
        if let Some(member) = self.by_key.get_mut(&key) {
            member.look_again();
        }
        self.show(key);
    }

    /// Names the next order.
    pub(super) fn next_order(&mut self) -> u64 {
        self.last_order += 1;
        self.last_order
    }

    /// Has the scheduler know the member as it stands.
    pub(super) fn show(&mut self, key: Key) {
        match self.by_key.get(&key) {
            Some(member) if self.takes(key) => self.fleet.put(&member.view),
            Some(member) => self.fleet.remove(member.view.node),
            None => {}
        }
    }
}

impl HeadCore {
    /// What the head's own machine reports.
    pub(super) fn own_said(&mut self, report: NodeReport) {
        if let Err(error) = self.member_told(OWN, report) {
            self.log(format!("the head's own node broke the protocol, which is a defect: {error}"));
        }
    }

    /// What a member reports.
    pub(crate) fn member_said(&mut self, from: Key, report: NodeReport) {
        if let Err(error) = self.member_told(from, report) {
            self.expel(from, &error);
        }
    }

    fn member_told(&mut self, from: Key, report: NodeReport) -> Result<(), ProtocolError> {
        match report {
            NodeReport::NodeJoin(told) => self.member_joined(from, *told)?,
            NodeReport::NodeResume(told) => self.resume_member(from, *told)?,
            NodeReport::NodeState(state) => self.member_changed(from, &state),
            NodeReport::ProxiedClientJoined(said) => self.proxied_client_joined(from, *said)?,
            NodeReport::ProxiedClientLeft(said) => self.proxied_client_left(from, said.proxied_client),
            NodeReport::Placed(said) => self.placed(from, &said)?,
            NodeReport::Sought(said) => self.sought(from, &said),
            NodeReport::PlaceRefused(said) => self.place_refused(from, *said)?,
            NodeReport::GroupPrepared(said) => self.prepared_there(from, &said)?,
            NodeReport::WorkerForked(said) => {
                if let Some(key) = self.worker_of(from, said.worker)? {
                    self.worker_forked(key, said.pid);
                }
            }
            NodeReport::WorkerSpent(said) => {
                if let Some(key) = self.worker_of(from, said.worker)? {
                    self.worker_spent(key);
                }
            }
            NodeReport::WorkerDied(said) => {
                if let Some(key) = self.worker_of(from, said.worker)? {
                    self.worker_died(key, &said);
                }
            }
            NodeReport::WorkerGone(said) => {
                if let Some(key) = self.worker_of(from, said.worker)? {
                    self.members.remove_route(key);
                    self.worker_gone(key, &said.text);
                }
            }
            NodeReport::Notice(said) => self.pass_notice(from, said),
        }
        Ok(())
    }

    pub(super) fn member_joined(&mut self, key: Key, told: NodeJoin) -> Result<(), ProtocolError> {
        let reported = self.new_node(key, &told).and_then(|_| view_of(&told).ok_or(ProtocolError::Description))?;
        self.log(format!("node {} joins from {}", reported.node, told.session));
        let member = Member::new(told, reported);
        self.pending.fairness.machine_came(&member.view.inventory);
        self.touch(Row::Member(member.view.node));
        self.members.by_node.insert(member.view.node, key);
        self.members.by_key.insert(key, member);
        self.members.show(key);
        self.drain_leaving(key);
        self.pending.is_due = true;
        Ok(())
    }

    pub(super) fn member_changed(&mut self, key: Key, state: &NodeState) {
        let Some(member) = self.members.by_key.get_mut(&key) else { return };
        let before = std::mem::replace(&mut member.state, state.clone());
        if !is_placed_by(&before, state) {
            return;
        }
        member.hear(state);
        self.members.show(key);
        self.pending.is_due = true;
    }

    /// Has a member place someone who waited (MEMBER-1).
    pub(super) fn order(&mut self, member: Key, ticket: u64, wanted: PendingRequest, share: Ordered) {
        self.tell_job(member, wanted.job);
        let number = self.members.next_order();
        let (need, within) = share;
        let Some(demand) = need.demand().cloned() else { return };
        let mut place = Place {
            order: number,
            job: wanted.job,
            demand: amounts(demand.iter()),
            group: within.map(|(group, _)| group),
            bundle: within.map_or(0, |(_, bundle)| bundle as u32),
            label: wanted.label.clone(),
            ..Place::default()
        };
        match &wanted.want {
            PendingKind::Lease { client, environment, fresh, home, may_repeat, .. } => {
                let owner = self.clients.by_key.get(client).map(|client| client.id);
                (place.owner, place.may_repeat) = (owner, *may_repeat);
                place.captures = home.is_some_and(|home| home.captures);
                place.environment = Some(environment.clone());
                place.fresh = *fresh;
                place.outlives_job = self.outlives_its_job(*client);
            }
            PendingKind::Actor(id) => {
                let spec = self.constructor_of(*id);
                place.environment = Some(spec.environment.clone().unwrap_or_default());
                place.captures = home(spec.strategy.as_ref()).is_some_and(|home| home.captures);
                place.fresh = true;
                place.outlives_job = self.actor_outlives_its_job(*id);
                place.running =
                    amounts(self.actors.making.get(id).into_iter().flat_map(|making| making.running().iter()));
                place.actor = Some(spec);
                let node = self.members.by_key.get(&member).map(|member| member.view.node);
                if let Some(making) = self.actors.making.get_mut(id) {
                    making.ordered_to = node;
                }
                self.touch(Row::Actor(*id));
            }
            // A group waits for room, which is not ordered.
            PendingKind::Group { .. } => return,
        }
        // Those on other machines make environments themselves.
        if self.members.by_key.get(&member).is_some_and(|member| member.told.listens.is_empty()) {
            place.command = self.command_of(wanted.job, place.environment.as_ref());
        }
        if let Some(member) = self.members.by_key.get_mut(&member) {
            if within.is_none() {
                member.view.take(&demand);
            }
            member.under_way.insert(number, (within, vec![demand.clone()]));
            if within.is_none() {
                let is_lease = matches!(wanted.want, PendingKind::Lease { .. });
                let held = Held { job: wanted.job, demands: vec![demand], is_lease };
                self.pending.fairness.holds(Holder::Order(number), held, member.view.node, self.clock.now);
            }
        }
        self.members.orders.insert(number, Order { member, ticket, wanted, need });
        self.order_member(member, place);
    }

    /// A member has something to say to the driver of a job.
    fn pass_notice(&mut self, from: Key, said: Notice) {
        let detail = said.job.and_then(|job| self.jobs.details.get(&job));
        match detail.filter(|detail| !detail.is_over).map(|detail| detail.driver) {
            Some(driver) => self.send(driver, Notice { text: said.text, ..Notice::default() }),
            None => self.log(format!("member {from}: {}", said.text)),
        }
    }

    pub(super) fn tell_job(&mut self, member: Key, job: JobId) {
        let Some(detail) = self.jobs.details.get(&job) else { return };
        let Some(found) = self.members.by_key.get_mut(&member) else { return };
        if !found.jobs.insert(job) {
            return;
        }
        let mut driver = detail.told.clone();
        driver.namespace = self.jobs.known.get(job).map(|job| job.namespace.clone()).unwrap_or_default();
        let driver_id = detail.driver_id;
        self.order_member(member, JobAnnounced { job, driver_id, driver: Some(driver) });
    }

    /// The job is forgotten here, and so it is there.
    pub(super) fn tell_job_over(&mut self, job: JobId) {
        let told = self.members.by_key.iter_mut().filter(|(_, member)| member.jobs.contains(&job));
        let told: Vec<Key> = told.map(|(key, member)| (member.jobs.remove(&job), *key).1).collect();
        for key in told {
            self.order_member(key, JobOver { job });
        }
    }

    fn placed(&mut self, member: Key, said: &Placed) -> Result<(), ProtocolError> {
        // Before the order is taken: where this cannot be meant, the order ends with its member (MEMBER-3).
        let known = self.placed_worker(member, said)?;
        let id = if known.is_none() { self.new_worker_id(said.id)? } else { WorkerId::NIL };
        let Some(order) = self.answered_order(member, said.order)? else { return Ok(()) };
        let worker = known.unwrap_or_else(|| self.new_worker_on(member, id, said, order.wanted.job));
        self.serves_on(worker, said, &order.wanted);
        self.pending.fairness.carried_out(said.order, worker, self.node_of(worker), self.clock.now);
        if self.members.drains.contains_key(&member) {
            self.kill_worker(worker);
            self.queue_again(order);
            return Ok(());
        }
        let Order { ticket, wanted, .. } = order;
        if let Some(failure) = self.home_lost(&wanted.want) {
            if self.still_waits(&wanted, ticket) {
                self.refuse_home(&wanted.want, &failure);
            }
            self.kill_worker(worker);
            return Ok(());
        }
        match wanted.want {
            PendingKind::Lease { client, request, .. } if self.still_waits(&wanted, ticket) => {
                self.grant_lease(client, request, worker);
            }
            PendingKind::Actor(id) if self.still_waits(&wanted, ticket) => self.actor_has(id, worker),
            // It was cancelled, or is gone, while the order was under way.
            PendingKind::Lease { .. } if !self.is_ending(wanted.job) => self.return_to_member(worker),
            PendingKind::Lease { .. } | PendingKind::Actor(_) | PendingKind::Group { .. } => self.kill_worker(worker),
        }
        Ok(())
    }

    /// Whether nobody took back meanwhile what was ordered.
    fn still_waits(&self, wanted: &PendingRequest, ticket: u64) -> bool {
        match wanted.want {
            PendingKind::Lease { client, request, .. } => {
                self.clients.by_key.get(&client).is_some_and(|client| client.waiting.get(&request) == Some(&ticket))
            }
            PendingKind::Actor(id) => self.actors.making.get(&id).is_some_and(|making| making.waits_as(ticket)),
            PendingKind::Group { .. } => false,
        }
    }

    /// How many of those for whom there is an order still want it.
    pub(super) fn awaited_orders(&self) -> usize {
        self.members.orders.values().filter(|order| self.still_waits(&order.wanted, order.ticket)).count()
    }

    /// MEMBER-2.
    fn new_worker_on(&mut self, member: Key, id: WorkerId, said: &Placed, job: JobId) -> Key {
        let key = if member == OWN { said.worker } else { self.new_key() };
        self.workers.starting += usize::from(said.pid == 0);
        self.workers.by_key.insert(key, Worker::new(id, job, said.pid));
        self.members.add_route(key, member, said.worker);
        self.join(key, id, job);
        key
    }

    /// What the worker is there for from here on, but for whose it is.
    fn serves_on(&mut self, key: Key, said: &Placed, wanted: &PendingRequest) {
        let home = match wanted.want {
            PendingKind::Lease { home, .. } => home,
            PendingKind::Actor(id) => self.actors.making.get(&id).and_then(super::actors::Making::home),
            PendingKind::Group { .. } => None,
        };
        let outlives_job = match wanted.want {
            PendingKind::Lease { client, .. } => self.outlives_its_job(client),
            PendingKind::Actor(id) => self.actor_outlives_its_job(id),
            PendingKind::Group { .. } => false,
        };
        let environment = self.environment_wanted(wanted);
        let Some(worker) = self.workers.by_key.get_mut(&key) else { return };
        worker.duty = Duty::Ending;
        worker.job = wanted.job;
        worker.environment = environment;
        worker.once = said.once;
        worker.home = home;
        worker.outlives_job = outlives_job;
        worker.label.clone_from(&wanted.label);
    }

    /// What somebody who waits is to find around it.
    fn environment_wanted(&self, wanted: &PendingRequest) -> Environment {
        let none = Environment::default();
        let own = match &wanted.want {
            PendingKind::Lease { environment, .. } => Some(environment),
            PendingKind::Actor(id) => self.actors.making.get(id).and_then(super::actors::Making::environment),
            PendingKind::Group { .. } => None,
        };
        let of_job = self.jobs.details.get(&wanted.job).and_then(|detail| detail.told.environment.as_ref());
        merged(of_job, own.unwrap_or(&none))
    }

    fn place_refused(&mut self, member: Key, said: PlaceRefused) -> Result<(), ProtocolError> {
        let order = self.answered_order(member, said.order)?;
        let pumps = self.pending.is_due;
        if let Some(state) = said.state {
            self.member_changed(member, &state);
        }
        if let Some(found) = self.members.by_key.get_mut(&member) {
            found.under_way.remove(&said.order);
            found.look_again();
        }
        self.members.show(member);
        if member == OWN {
            // Nothing has changed there: it would be refused again, at once and for ever.
            self.pending.is_due = pumps;
        }
        let Some(order) = order else { return Ok(()) };
        self.pending.fairness.lets_go(Holder::Order(said.order));
        match said.failure {
            None => self.queue_again(order),
            Some(failure) if self.still_waits(&order.wanted, order.ticket) => {
                self.unprepared_there(order.ticket, order.wanted, failure.text);
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn queue_again(&mut self, order: Order) {
        let Order { member, ticket, wanted, need } = order;
        if !self.still_waits(&wanted, ticket) {
            return;
        }
        if let Some(failure) = self.home_lost(&wanted.want) {
            return self.refuse_home(&wanted.want, &failure);
        }
        match self.push(ticket, &wanted, need) {
            Ok(()) => {
                self.pending.wanted.insert(ticket, wanted);
                self.pending.is_due |= member != OWN;
            }
            Err(full) => self.turn_away(&wanted, full.to_string()),
        }
    }

    /// The member's stream is over: it is dead or about to be. One on another machine has a lease.
    pub(crate) fn member_silent(&mut self, key: Key, is_far: bool) {
        if let Some(member) = self.members.by_key.get_mut(&key) {
            member.is_silent = true;
            self.search_without(key);
            if !is_far {
                self.alarm_at(self.clock.now + SILENCE_LIMIT, super::Alarm::Silent(key));
            }
        }
        self.members.show(key);
    }

    /// The member's stream is over, and its process lives on: nobody can tell it anything any more.
    pub(super) fn end_silent_member(&mut self, key: Key) {
        if let Some(member) = self.members.by_key.get(&key) {
            let (node, seconds) = (member.view.node, SILENCE_LIMIT.as_secs());
            self.log(format!("the stream to node {node} ended {seconds} s ago, and its process did not: it is killed"));
            self.out.push(Effect::KillMember { member: key });
            self.member_gone(key);
        }
    }

    /// The member's process is gone, and its workers with it.
    pub(crate) fn member_gone(&mut self, key: Key) {
        self.proxied_clients_gone(key);
        let Some(member) = self.members.by_key.remove(&key) else { return };
        let node = member.view.node;
        self.members.by_node.remove(&node);
        self.pending.fairness.machine_left(&member.view.inventory);
        self.touch(Row::Member(node));
        self.members.fleet.remove(node);
        self.log(format!("node {node} at {} is gone", member.told.ip));
        for worker in member.workers.values() {
            self.members.routes.remove(worker);
        }
        self.forget_locations(key, node);
        self.search_without(key);
        let text = format!("the node {node} ({}) that it ran on died", member.told.ip);
        let was_drained = self.is_dismissed(key);
        for worker in member.workers.values() {
            if let Some(worker) = self.workers.by_key.get_mut(worker) {
                worker.end.is_moved = was_drained;
            }
            if let Some(Duty::Leased(lease)) = self.workers.by_key.get(worker).map(|worker| worker.duty) {
                self.lease_lost(lease, &text, was_drained);
            }
            self.remember_end_on(node, &member.told.ip, *worker, &text);
            self.worker_gone(*worker, &text);
        }
        let orders = self.members.orders.iter().filter(|(_, order)| order.member == key).map(|(number, _)| *number);
        for number in orders.collect::<Vec<_>>() {
            let order = self.members.orders.remove(&number).expect("MEMBER-3: an order ends once");
            self.pending.fairness.lets_go(Holder::Order(number));
            self.queue_again(order);
        }
        self.bundles_lost(key, node);
        let how = match self.members.drains.remove(&key) {
            Some(drain) if was_drained => format!("it was drained: {}", drain.reason),
            _ => "its daemon ended or was killed".to_owned(),
        };
        self.members.lost.push(Lost { told: member.told, view: member.reported, at: self.clock.now, how });
        if self.members.lost.len() > LOST_KEPT {
            self.members.lost.remove(0);
        }
        self.pending.is_due = true;
    }
}
