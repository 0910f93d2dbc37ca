//! Workers that wait for what others of them hold (`crate::deadlocks`): found, told of, and resolved by a call that fails.

use super::HeadCore;
use crate::clock::Alarm;
use crate::deadlocks::{Verdict, Waits, stuck};
use crate::demands::Need;
use crate::queue::PendingKind;
use oxiray_ids::{ActorId, JobId, NodeId};
use oxiray_machine::Key;
use oxiray_resources::{Demand, Quantity, ResourceName};
use oxiray_scheduler::NodeView;
use oxiray_wire::message::{FailureCode, LeaseRefused, Notice, WaitsQuery};
use std::collections::{BTreeMap, BTreeSet};

/// How many of those who hold what a call needs are named in its failure.
const NAMED_MAX: usize = 4;

/// What is held on each node, processors aside.
type HeldThere = BTreeMap<NodeId, Demand>;

impl HeadCore {
    /// Arranges for a look, where somebody waits.
    pub(super) fn arm_deadlocks(&mut self) {
        if let Some(period) = self.pending.deadlocks.arm(self.own.plan().rules.deadlock) {
            self.clock.alarm_at(self.clock.now + period, Alarm::Deadlocks);
        }
    }

    /// Whether something waits for more than processors.
    fn may_be_deadlocked(&self) -> bool {
        self.pending.queue.waiting().any(
            |waiting| matches!(waiting.resource_request, Need::ResourceRequest(request) if needs_more(&request.demand)),
        )
    }

    /// A round of questions is over: looks at what was said, does what follows, and asks anew where there is reason to.
    pub(super) fn look_for_deadlocks(&mut self) {
        let said = self.pending.deadlocks.end_round();
        let found = stuck(
            said.keys().copied(),
            |stuck| self.held_by(stuck),
            |worker, stuck, held| self.is_stuck(worker, &said[&worker], stuck, held),
        );
        match self.pending.deadlocks.find(found.clone(), self.own.plan().rules.deadlock, self.clock.now) {
            Verdict::Nothing => {}
            Verdict::Tell => self.tell_of_deadlock(&found, &said),
            Verdict::Fail => self.fail_for_deadlock(&found, &said),
        }
        if !self.may_be_deadlocked() {
            return;
        }
        let in_use = self.workers.by_key.iter().filter(|(_, worker)| worker.duty.is_use()).map(|(key, _)| *key);
        let asked: Vec<Key> = in_use.filter(|key| self.clients.by_key.contains_key(key)).collect();
        let number = self.new_key();
        for worker in &asked {
            self.send(*worker, WaitsQuery { number });
        }
        let patience = self.own.plan().rules.deadlock;
        let period = self.pending.deadlocks.begin_round(number, asked.len(), patience);
        self.clock.alarm_at(self.clock.now + period, Alarm::Deadlocks);
    }

    /// Whether a worker can never go on while these cannot, and this is held by them.
    fn is_stuck(&self, worker: Key, waits: &Waits, stuck: &BTreeSet<Key>, held: &HeldThere) -> bool {
        let Some(client) = self.clients.by_key.get(&worker) else { return false };
        let lease_is_stuck =
            |key: &u64| self.workers.leases.get(key).is_some_and(|lease| stuck.contains(&lease.worker));
        if waits.leases.iter().filter_map(|number| client.leases.get(number)).any(lease_is_stuck)
            || waits.actors.iter().any(|actor| self.actor_is_stuck(*actor, client.job, stuck, held))
        {
            return true;
        }
        let mut tickets = waits.requests.iter().filter_map(|request| client.waiting.get(request));
        // One that is being served is not in the queue, and others of its kind come after it.
        tickets.any(|ticket| self.never_served(*ticket, held))
            && client.waiting.values().all(|ticket| self.pending.queue.resource_request_of(ticket).is_some())
    }

    fn actor_is_stuck(&self, actor: ActorId, job: JobId, stuck: &BTreeSet<Key>, held: &HeldThere) -> bool {
        let worker = self.actors.known.get(actor).and_then(crate::actors::Actor::worker);
        match worker.and_then(|worker| self.clients.key_of(worker)) {
            Some(key) => stuck.contains(&key),
            None => self.ticket_of(actor, job).is_some_and(|ticket| self.never_served(ticket, held)),
        }
    }

    /// The request of an actor that waits to be made, where it is of that job: a worker may name any, and none of another job
    /// fails for what it says.
    fn ticket_of(&self, actor: ActorId, job: JobId) -> Option<u64> {
        self.actors.making.get(&actor).filter(|making| making.job == job)?.ticket()
    }

    /// What these hold and do not lend while they wait.
    fn held_by(&self, workers: &BTreeSet<Key>) -> HeldThere {
        let mut held = HeldThere::new();
        for (node, demand) in workers.iter().filter_map(|worker| self.pending.fairness.held_by(*worker)) {
            let there = held.entry(node).or_insert_with(Demand::nothing);
            *there = Demand::sum([&*there, &demand]);
        }
        held
    }

    /// Whether a request waits that some machine has room for, but none while this is held, and that no other is to come for.
    fn never_served(&self, ticket: u64, held: &HeldThere) -> bool {
        let Some(Need::ResourceRequest(request)) = self.pending.queue.resource_request_of(&ticket) else {
            return false;
        };
        let is_awaited = self.growth.awaited_until(request, self.clock.now, self.own.plan().rules.node).is_some();
        if is_awaited || self.durable.resumption.nodes_until().is_some() {
            return false;
        }
        let has_room = |view: &NodeView, held: Option<&Demand>| {
            request.demand.iter().all(|(resource, asked)| {
                let (resource, nothing) = (resource.as_str(), Quantity::ZERO);
                let held = held.map_or(nothing, |held| held.get(resource));
                view.inventory.total(resource).units().saturating_sub(held.units()) >= asked.units()
            })
        };
        // What no machine could give is no business of who holds what.
        self.members.views().any(|(_, view)| has_room(view, None))
            && !self.members.views().any(|(_, view)| has_room(view, held.get(&view.node)))
    }

    /// Their drivers hear of it, once.
    fn tell_of_deadlock(&mut self, found: &BTreeSet<Key>, said: &BTreeMap<Key, Waits>) {
        let Some((ticket, _)) = self.youngest(found, said) else { return };
        let Some(why) = self.why_never(ticket, found, said) else { return };
        let jobs: BTreeSet<JobId> = found.iter().filter_map(|worker| self.clients.job_of(*worker)).collect();
        let next = match self.own.plan().rules.deadlock {
            Some(patience) => format!("In {} s one of them fails, so that the others go on", patience.as_secs_f64()),
            None => "They wait until one of them is cancelled (OXIRAY_DEADLOCK is `tell`)".to_owned(),
        };
        let text = format!("{why}. {next}");
        for job in jobs {
            let Some(driver) = self.jobs.details.get(&job).map(|detail| detail.driver) else { continue };
            self.send(driver, Notice { text: text.clone(), ..Notice::default() });
        }
    }

    /// DEADLOCK-2: the youngest of what they wait for fails.
    fn fail_for_deadlock(&mut self, found: &BTreeSet<Key>, said: &BTreeMap<Key, Waits>) {
        let Some((ticket, client)) = self.youngest(found, said) else { return };
        let Some(text) = self.why_never(ticket, found, said) else { return };
        let Some(wanted) = self.pending.withdraw(ticket) else { return };
        match (client, &wanted.want) {
            (Some(client), PendingKind::Lease { request, .. }) => {
                self.clients.waits_no_more(client, *request);
                let failure = Some(FailureCode::DeviceDeadlock.because(text));
                self.send(client, LeaseRefused { request: *request, failure });
            }
            _ => self.turn_away(&wanted, text),
        }
    }

    /// The latest request that one of these waits for in vain, and whose it is where it is one for a worker.
    fn youngest(&self, found: &BTreeSet<Key>, said: &BTreeMap<Key, Waits>) -> Option<(u64, Option<Key>)> {
        let held = self.held_by(found);
        let mut tickets = Vec::new();
        for worker in found {
            let (Some(client), Some(waits)) = (self.clients.by_key.get(worker), said.get(worker)) else { continue };
            let requests = waits.requests.iter().filter_map(|request| client.waiting.get(request));
            tickets.extend(requests.map(|ticket| (*ticket, Some(*worker))));
            tickets.extend(
                waits.actors.iter().filter_map(|actor| self.ticket_of(*actor, client.job)).map(|ticket| (ticket, None)),
            );
        }
        tickets.into_iter().filter(|(ticket, _)| self.never_served(*ticket, &held)).max()
    }

    /// Why a request is never met.
    fn why_never(&self, ticket: u64, found: &BTreeSet<Key>, said: &BTreeMap<Key, Waits>) -> Option<String> {
        let wanted = self.pending.wanted.get(&ticket)?;
        let demand = self.pending.queue.resource_request_of(&ticket)?.demand()?;
        let holds = |worker: &Key| {
            let (_, held) = self.pending.fairness.held_by(*worker)?;
            demand.iter().any(|(resource, _)| held.get(resource.as_str()) > Quantity::ZERO).then_some((*worker, held))
        };
        let holders: Vec<(Key, Demand)> = found.iter().filter_map(holds).collect();
        let named = holders.iter().take(NAMED_MAX).map(|(worker, held)| self.holder_in_words(*worker, held, said));
        let more = holders.len().saturating_sub(NAMED_MAX);
        let more = if more == 0 { String::new() } else { format!("; and {more} more") };
        let (kind, label) = (wanted.want.kind(), &wanted.label);
        Some(format!(
            "{kind} `{label}` waits for {demand} and would for ever: what it needs is held by processes that wait for such \
             calls themselves: {}{more}. Ask for less in `{label}`, have its caller ask for less, or offer more of it",
            named.collect::<Vec<_>>().join("; ")
        ))
    }

    fn holder_in_words(&self, worker: Key, held: &Demand, said: &BTreeMap<Key, Waits>) -> String {
        let (label, pid) =
            self.workers.by_key.get(&worker).map_or(("", 0), |known| (known.label.as_str(), known.pid.unwrap_or(0)));
        let client = self.clients.by_key.get(&worker);
        let tickets = said.get(&worker).into_iter().flat_map(|waits| {
            let of_requests = waits.requests.iter().filter_map(|request| client?.waiting.get(request).copied());
            of_requests.chain(waits.actors.iter().filter_map(|actor| self.ticket_of(*actor, client?.job)))
        });
        let labels: BTreeSet<&str> =
            tickets.filter_map(|ticket| self.pending.wanted.get(&ticket)).map(|wanted| wanted.label.as_str()).collect();
        let awaited = if labels.is_empty() {
            "a call that one of the others runs".to_owned()
        } else {
            labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(" and ")
        };
        format!("`{label}` (pid {pid} on {}, which holds {held}) waits for {awaited}", self.members.ip_of(worker))
    }
}

/// Whether it asks for something that is not lent while its holder waits.
fn needs_more(demand: &Demand) -> bool {
    demand.iter().any(|(resource, _)| *resource != ResourceName::CPU)
}
