//! What members are ordered to have workers for, and what comes of that.

use super::HeadCore;
use super::validation::ProtocolError;
use crate::demands::{Need, home};
use crate::fairness::{Held, Holder};
use crate::journal::Row;
use crate::members::{Booked, OWN, Order};
use crate::queue::{PendingKind, PendingRequest};
use crate::workers::{Duty, Worker};
use oxiray_ids::{BundleNumber, JobId, WorkerId};
use oxiray_machine::{Key, amounts};
use oxiray_scheduler::BundlePart;
use oxiray_wire::message::{BundleAsked, Place, PlaceRefused, Placed};

impl HeadCore {
    /// Has a member place someone who waited (MEMBER-1).
    pub(super) fn order(&mut self, member: Key, ticket: u64, wanted: PendingRequest, share: (Need, Vec<BundlePart>)) {
        self.tell_job(member, wanted.claimant.job);
        let number = self.members.next_order();
        let (need, parts) = share;
        let Some(demand) = need.demand().cloned() else { return };
        let preemptible = self.may_be_preempted(&wanted.want);
        let mut place = Place {
            order: number,
            job: wanted.claimant.job,
            demand: amounts(demand.iter()),
            group: need.group(),
            bundle: parts.first().map_or(BundleNumber(0), |first| first.bundle),
            further: parts.iter().skip(1).map(asked_of).collect(),
            label: wanted.label.clone(),
            outlives_job: self.wanted_outlives_its_job(&wanted.want),
            priority: wanted.claimant.priority.0,
            preemptible: preemptible || need.group().is_some_and(|id| self.groups.is_preemptible(id)),
            ..Place::default()
        };
        match &wanted.want {
            PendingKind::Lease { client, environment, fresh, home, may_repeat, .. } => {
                (place.owner, place.may_repeat) = (self.clients.id_of(*client), *may_repeat);
                place.captures = home.is_some_and(|home| home.captures);
                place.environment = Some(environment.clone());
                place.fresh = *fresh;
            }
            PendingKind::Actor(id) => {
                let spec = self.actors.constructor_of(*id);
                if let Some(origin) = self.actors.known.origin_of(*id) {
                    *origin = origin.sent_at(self.clock.wall_ms * 1000);
                }
                place.environment = Some(spec.environment.clone().unwrap_or_default());
                place.captures = home(spec.strategy.as_ref()).is_some_and(|home| home.captures);
                place.fresh = true;
                place.running =
                    amounts(self.actors.making.get(id).into_iter().flat_map(|making| making.running().iter()));
                place.actor = Some(spec);
                let node = self.members.node_of_member(member);
                if let Some(making) = self.actors.making.get_mut(id) {
                    making.ordered_to = node;
                }
                self.durable.touch(Row::Actor(*id));
            }
            // A group waits for room, which is not ordered.
            PendingKind::Group { .. } => return,
        }
        // Those on other machines make environments themselves.
        if self.members.by_key.get(&member).is_some_and(|member| member.told.listens.is_empty()) {
            place.command = self.command_of(wanted.claimant.job, place.environment.as_ref());
        }
        let booked = match need.group() {
            Some(group) => Booked::Within(group, parts),
            None => Booked::OfMachine(vec![demand.clone()]),
        };
        let is_of_machine = need.group().is_none();
        let node = self.members.book(member, number, booked);
        if let Some(node) = node.filter(|_| is_of_machine) {
            let is_lease = matches!(wanted.want, PendingKind::Lease { .. });
            let held = Held { claimant: wanted.claimant, demands: vec![demand], is_lease, preemptible };
            self.pending.fairness.holds(Holder::Order(number), held, node, self.clock.now);
        }
        self.members.orders.insert(number, Order { member, ticket, wanted, need });
        self.order_member(member, place);
    }

    /// A member has a worker for what it was ordered.
    pub(super) fn placed(&mut self, member: Key, said: &Placed) -> Result<(), ProtocolError> {
        // Before the order is taken: where this cannot be meant, the order ends with its member (MEMBER-3).
        let known = self.placed_worker(member, said)?;
        let id = if known.is_none() { self.new_worker_id(said.id)? } else { WorkerId::NIL };
        let Some(order) = self.answered_order(member, said.order)? else { return Ok(()) };
        let worker = known.unwrap_or_else(|| self.new_worker_on(member, id, said, order.wanted.claimant.job));
        self.serves_on(worker, said, &order.wanted);
        self.pending.fairness.carried_out(said.order, worker, self.members.node_of(worker), self.clock.now);
        self.pending.fairness.has_devices(worker, &said.devices);
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
            PendingKind::Lease { .. } if !self.jobs.is_ending(wanted.claimant.job) => self.return_to_member(worker),
            PendingKind::Lease { .. } | PendingKind::Actor(_) | PendingKind::Group { .. } => self.kill_worker(worker),
        }
        Ok(())
    }

    /// MEMBER-2.
    fn new_worker_on(&mut self, member: Key, id: WorkerId, said: &Placed, job: JobId) -> Key {
        let key = if member == OWN { said.worker.0 } else { self.new_key() };
        self.workers.starting += usize::from(said.pid == 0);
        self.workers.by_key.insert(key, Worker::new(id, job, said.pid, self.clock.wall_ms));
        self.members.add_route(key, member, said.worker);
        self.clients.join(key, id, job);
        key
    }

    /// What the worker is there for from here on, but for whose it is.
    fn serves_on(&mut self, key: Key, said: &Placed, wanted: &PendingRequest) {
        let (home, outlives_job) = (self.home_wanted(&wanted.want), self.wanted_outlives_its_job(&wanted.want));
        let environment = self.environment_wanted(wanted);
        let Some(worker) = self.workers.by_key.get_mut(&key) else { return };
        worker.duty = Duty::Ending;
        worker.job = wanted.claimant.job;
        worker.environment = environment;
        worker.once = said.once;
        worker.home = home;
        worker.outlives_job = outlives_job;
        worker.label.clone_from(&wanted.label);
        worker.end.preempted = None;
    }

    /// A member has no room for what it was ordered after all, or cannot make the environment.
    pub(super) fn place_refused(&mut self, member: Key, said: PlaceRefused) -> Result<(), ProtocolError> {
        let order = self.answered_order(member, said.order)?;
        let has_changed = said.state.is_some_and(|state| self.state_told(member, state));
        self.members.refused(member, said.order);
        // Nothing has changed on the head's own: it would be refused again, at once and for ever.
        self.pending.is_due |= has_changed && member != OWN;
        let Some(order) = order else { return Ok(()) };
        self.pending.fairness.lets_go(Holder::Order(said.order));
        match said.failure {
            None => self.queue_again(order),
            Some(failure) if self.still_waits(&order.wanted, order.ticket) => {
                self.cannot_run_there(order.ticket, order.wanted, failure);
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// What an order was for is placed anew, unless nobody wants it any more.
    pub(super) fn queue_again(&mut self, order: Order) {
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

    /// How many of those for whom there is an order still want it.
    pub(super) fn awaited_orders(&self) -> usize {
        self.members.orders.values().filter(|order| self.still_waits(&order.wanted, order.ticket)).count()
    }
}

/// What a member is to grant out of a bundle.
fn asked_of(part: &BundlePart) -> BundleAsked {
    BundleAsked { bundle: part.bundle, demand: amounts(part.demand.iter()) }
}
