//! Actors: made, placed, connected, ended. What follows the loss of a process is in `restarts`.

use super::groups::{Need, home};
use super::journal::Undo;
use super::leases::demand_of;
use super::objects::contained_in;
use super::records::Row;
use super::restarts::death;
use super::validation::{check_name, cut};
use super::{Alarm, Duty, GroupMembership, HeadCore, Key, PendingKind};
use crate::Actors;
use crate::{ActorState, Connect, Created, Description};
use bytes::Bytes;
use oxiray_ids::{ActorId, JobId, NodeId, ObjectId, WorkerId};
use oxiray_machine::LEAVING_LIMIT;
use oxiray_resources::{Demand, Quantity, ResourceName};
use oxiray_wire::message::{
    ActorAnswer, ActorConnect, ActorCreate, ActorDeath, ActorDied, ActorLeaving, ActorLookup, ActorPlaced, Content,
    Environment, Failure, Value,
};
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;

/// An actor that nobody has made so long after somebody asked for it is not going to be.
const UNKNOWN_LIMIT: Duration = Duration::from_secs(1);

/// What is kept of an actor while it lives.
#[derive(Debug)]
pub(super) struct Making {
    pub(super) job: JobId,
    pub(super) handle: Bytes,
    running: Demand,
    ticket: Option<u64>,
    /// The node that was last ordered to have its process.
    pub(super) ordered_to: Option<NodeId>,
    /// What its constructor needs, as long as it may have to run.
    pub(super) spec: Option<ActorCreate>,
    contained: Vec<ObjectId>,
    /// What it waits for in the queue.
    need: Option<Need>,
    /// Its constructor's arguments are awaited where it is made.
    pub(super) is_unfinished: bool,
    /// The node that its process was on under another head, until that is back or given up.
    pub(super) post: Option<NodeId>,
}

impl Making {
    pub(super) fn unfinished(job: JobId, handle: Bytes) -> Self {
        Self {
            job,
            handle,
            running: Demand::default(),
            ticket: None,
            ordered_to: None,
            spec: None,
            contained: Vec::new(),
            need: None,
            is_unfinished: true,
            post: None,
        }
    }

    /// What the actor holds while it lives.
    pub(super) fn running(&self) -> &Demand {
        &self.running
    }

    /// The placement group that it is to live in, until its constructor returned.
    pub(super) fn home(&self) -> Option<GroupMembership> {
        self.spec.as_ref().and_then(|spec| home(spec.strategy.as_ref()))
    }

    /// Whether it waits for its resources.
    pub(super) fn is_waiting(&self) -> bool {
        self.ticket.is_some()
    }

    /// What its constructor is to find around it, as long as that may have to run.
    pub(super) fn environment(&self) -> Option<&Environment> {
        self.spec.as_ref()?.environment.as_ref()
    }

    /// Whether it waits under this ticket.
    pub(super) fn waits_as(&self, ticket: u64) -> bool {
        self.ticket == Some(ticket)
    }
}

/// All actors.
#[derive(Debug, Default)]
pub(super) struct ActorTable {
    pub(super) known: Actors<Failure>,
    /// What there is besides of those that are not dead.
    pub(super) making: BTreeMap<ActorId, Making>,
    /// Who asked for actors that nobody has made yet.
    pub(super) early: BTreeMap<ActorId, BTreeSet<Key>>,
}

impl HeadCore {
    pub(super) fn actor_create(&mut self, from: Key, mut asked: ActorCreate) {
        asked.class_name = cut(asked.class_name);
        let Some(client) = self.clients.by_key.get(&from) else { return };
        let (job, creator) = (client.job, client.id);
        let id = asked.actor;
        if self.actors.known.get(id).is_some_and(|actor| actor.description.creator == creator) {
            if asked.is_again && !asked.finishes {
                let (request, handle) = (asked.request, asked.handle.clone());
                self.send(from, ActorAnswer { request, actor: Some(id), handle, ..ActorAnswer::default() });
            }
            return self.finish_actor(id, asked);
        }
        // Its announcement was refused, or answered with another actor: the answer is on its way.
        if asked.finishes {
            return;
        }
        if !asked.is_again {
            let mut out = Vec::new();
            self.objects.known.hold(creator, &[id.anchor()], &mut out);
            self.carry_out(out);
        }
        if !self.may_begin(from, job) {
            return self.refuse_actor(from, &asked);
        }
        let namespace = match asked.namespace.as_str() {
            "" => self.jobs.known.get(job).map(|job| job.namespace.clone()).unwrap_or_default(),
            named => named.to_owned(),
        };
        let description = Description {
            id,
            job,
            creator,
            name: asked.name.clone(),
            namespace,
            class_name: asked.class_name.clone(),
            detached: asked.detached,
            max_restarts: asked.max_restarts,
        };
        let answer = ActorAnswer { request: asked.request, ..ActorAnswer::default() };
        let checked = check_name("an actor's name", &asked.name);
        if let Err(text) = checked.and_then(|()| check_name("a namespace", &asked.namespace)) {
            let failure = Some(Failure { code: "invalid".into(), text, cause: Bytes::new() });
            return self.send(from, ActorAnswer { failure, ..answer });
        }
        match self.actors.known.create(description, asked.get_if_exists) {
            Created::New => {
                self.answered_by_next(from, Undo::Actor { request: asked.request, id });
                self.send(from, ActorAnswer { actor: Some(id), handle: asked.handle.clone(), ..answer });
                self.make_actor(id, job, asked);
                self.connect_early(id);
            }
            Created::Exists(existing) => self.send(from, self.found(answer, existing)),
            Created::NameTaken(_) => {
                let text = format!(
                    "the name `{}` is taken by an actor that lives; choose another, or pass get_if_exists=True to get that one",
                    asked.name
                );
                let failure = Failure { code: "actor_name_taken".into(), text, cause: Bytes::new() };
                self.send(from, ActorAnswer { failure: Some(failure), ..answer });
            }
            Created::Duplicate => self.log(format!("client {from} made actor {id} twice")),
        }
    }

    /// Nothing is made: neither who waits for its name nor who calls it waits for ever.
    fn refuse_actor(&mut self, from: Key, asked: &ActorCreate) {
        let failure = death("it was never made: its job was ending when it was asked for.");
        let answer = ActorAnswer { request: asked.request, failure: Some(failure.clone()), ..ActorAnswer::default() };
        self.send(from, answer);
        self.send(from, ActorDied { actor: asked.actor, failure: Some(failure) });
    }

    fn found(&self, answer: ActorAnswer, id: ActorId) -> ActorAnswer {
        let handle = self.actors.making.get(&id).map(|making| making.handle.clone()).unwrap_or_default();
        ActorAnswer { actor: Some(id), handle, existed: true, ..answer }
    }

    fn make_actor(&mut self, id: ActorId, job: JobId, asked: ActorCreate) {
        self.actors.making.insert(id, Making::unfinished(job, asked.handle.clone()));
        self.touch(Row::Actor(id));
        if !asked.unfinished {
            self.finish_actor(id, asked);
        }
    }

    /// Everything that the actor's constructor needs is there.
    fn finish_actor(&mut self, id: ActorId, asked: ActorCreate) {
        if asked.unfinished || self.actors.making.get(&id).is_none_or(|making| !making.is_unfinished) {
            return;
        }
        self.know_constructor(id, asked);
        self.queue_actor(id);
    }

    /// What the actor's constructor needs is kept, and the objects in it are held.
    pub(super) fn know_constructor(&mut self, id: ActorId, asked: ActorCreate) {
        let references = asked.references.iter().filter_map(|argument| argument.reference.clone());
        let mut contained = contained_in(&asked.contained);
        contained.extend(contained_in(&references.collect::<Vec<_>>()));
        self.objects.known.contain(&contained);
        let Some(making) = self.actors.making.get_mut(&id) else { return };
        making.contained = contained;
        making.is_unfinished = false;
        making.spec = Some(asked);
        self.touch(Row::Actor(id));
        self.touch(Row::Constructor(id));
    }

    /// The actor waits for the resources of a process, where there can be such.
    pub(super) fn queue_actor(&mut self, id: ActorId) {
        let Some(making) = self.actors.making.get_mut(&id) else { return };
        let (job, Some(spec)) = (making.job, making.spec.take()) else { return };
        making.ordered_to = None;
        self.touch(Row::Actor(id));
        let label = spec.class_name.clone();
        let needs = self.actor_needs(job, &spec, &format!("actor `{label}`"));
        self.actors.making.get_mut(&id).expect("it was just looked at").spec = Some(spec);
        let queued = needs.and_then(|(need, running)| {
            let making = self.actors.making.get_mut(&id).expect("it was just looked at");
            (making.need, making.running) = (Some(need.clone()), running);
            self.enqueue(PendingKind::Actor(id), job, label, need).map_err(unschedulable)
        });
        match queued {
            Ok(ticket) => self.actors.making.get_mut(&id).expect("it was just looked at").ticket = Some(ticket),
            Err(failure) => self.actor_died(id, &failure),
        }
    }

    /// What an actor waits for, and what it holds once it runs.
    fn actor_needs(&mut self, job: JobId, asked: &ActorCreate, named: &str) -> Result<(Need, Demand), Failure> {
        let strategy = asked.strategy.as_ref();
        if let (Some(_), Some(told)) = (home(strategy), strategy) {
            return self.actor_within(asked, told, named);
        }
        let demands = demand_of(&asked.running, named).and_then(|running| {
            let placement = at_least(&demand_of(&asked.placement, named)?, &running);
            Ok((Need::ResourceRequest(self.check(job, placement, strategy, named)?), running))
        });
        demands.map_err(unschedulable)
    }

    /// What the actor's process is to be told of its constructor.
    pub(super) fn constructor_of(&self, id: ActorId) -> ActorCreate {
        let making = self.actors.making.get(&id).expect("a dead actor waits for nothing");
        let mut spec = making.spec.clone().unwrap_or_default();
        spec.restarts = self.actors.known.get(id).map_or(0, |actor| actor.restarts);
        spec
    }

    /// Whether it goes on when its job is over: it is detached, or made by one that is.
    pub(super) fn actor_outlives_its_job(&self, id: ActorId) -> bool {
        self.actors.known.get(id).is_some_and(|actor| {
            let creator = self.clients.keys.get(&actor.description.creator).copied();
            actor.description.detached || creator.is_some_and(|creator| self.outlives_its_job(creator))
        })
    }

    /// The actors whose processes were on that node under another head.
    pub(super) fn posted_to(&self, node: NodeId) -> Vec<ActorId> {
        self.actors.making.iter().filter(|(_, making)| making.post == Some(node)).map(|(id, _)| *id).collect()
    }

    /// The actor is not waited for any more: neither for its process of before, nor for room for another.
    pub(super) fn stop_waiting(&mut self, id: ActorId) {
        let Some(making) = self.actors.making.get_mut(&id) else { return };
        making.post = None;
        if let Some(ticket) = making.ticket.take() {
            self.withdraw(ticket);
        }
    }

    /// The actor has this process: whoever waits for it is connected.
    pub(super) fn actor_has(&mut self, id: ActorId, worker: Key) {
        if let Some(making) = self.actors.making.get_mut(&id) {
            making.ticket = None;
        }
        self.touch(Row::Actor(id));
        let found = self.workers.by_key.get_mut(&worker).expect("it was just placed");
        found.duty = Duty::Actor(id);
        let worker_id = found.id;
        let clients = self.actors.known.placed(id, worker_id);
        self.connect_all(clients, id, worker);
    }

    fn connect_all(&mut self, clients: Vec<WorkerId>, id: ActorId, worker: Key) {
        for client in clients {
            if let Some(key) = self.clients.keys.get(&client).copied() {
                self.connect_actor(key, id, worker);
            }
        }
    }

    pub(super) fn connect_actor(&mut self, client: Key, id: ActorId, worker: Key) {
        let worker_id = self.workers.by_key[&worker].id;
        let placed = ActorPlaced { actor: id, worker: worker_id, is_near: false };
        self.connect(client, placed.into(), worker);
    }

    pub(super) fn actor_connect(&mut self, from: Key, asked: &ActorConnect) {
        let Some(client) = self.clients.by_key.get(&from).map(|client| client.id) else { return };
        let id = asked.actor;
        match self.actors.known.connect(client, id) {
            Connect::Now(worker) if asked.lost == Some(worker) => self.reconnect_later(from, worker),
            Connect::Now(worker) => {
                if let Some(key) = self.clients.keys.get(&worker).copied() {
                    self.connect_actor(from, id, key);
                }
            }
            Connect::Later => {}
            Connect::Dead(failure) => self.send(from, ActorDied { actor: id, failure: Some(failure) }),
            // Its handle may have come sooner, by the way of a call, than its creator's word, which takes a stream of its own.
            Connect::Unknown => {
                self.actors.early.entry(id).or_default().insert(from);
                self.alarm_at(self.clock.now + UNKNOWN_LIMIT, Alarm::Unmade(id));
            }
        }
    }

    /// It is known now: who asked for it before is connected like all others.
    fn connect_early(&mut self, id: ActorId) {
        for client in self.actors.early.remove(&id).unwrap_or_default() {
            self.actor_connect(client, &ActorConnect { actor: id, lost: None });
        }
    }

    /// Nobody has made it so long after somebody asked for it.
    pub(super) fn never_made(&mut self, id: ActorId) {
        let text =
            "Can't find actor: this cluster has no such actor. It might be dead or it's from a different cluster";
        for client in self.actors.early.remove(&id).unwrap_or_default() {
            let failure = Failure { code: "actor_died".into(), text: text.to_owned(), cause: Bytes::new() };
            self.send(client, ActorDied { actor: id, failure: Some(failure) });
        }
    }

    pub(super) fn actor_lookup(&mut self, from: Key, asked: &ActorLookup) {
        let job = self.clients.by_key.get(&from).and_then(|client| self.jobs.known.get(client.job));
        let own = job.map(|job| job.namespace.clone()).unwrap_or_default();
        let namespace = if asked.namespace.is_empty() { &own } else { &asked.namespace };
        let answer = ActorAnswer { request: asked.request, ..ActorAnswer::default() };
        let checked = check_name("an actor's name", &asked.name).and_then(|()| check_name("a namespace", namespace));
        let answer = if let Err(text) = checked {
            ActorAnswer { failure: Some(Failure { code: "invalid".into(), text, cause: Bytes::new() }), ..answer }
        } else if let Some(id) = self.actors.known.lookup(namespace, &asked.name) {
            self.found(answer, id)
        } else {
            let text = format!(
                "no living actor is named `{}` in namespace `{namespace}`; check the name and the namespace, and that \
                 the actor's handle or its job is still there",
                asked.name
            );
            let failure = Failure { code: "actor_not_found".into(), text, cause: Bytes::new() };
            ActorAnswer { failure: Some(failure), ..answer }
        };
        self.send(from, answer);
    }

    pub(super) fn actor_ready(&mut self, from: Key) {
        let Some(worker) = self.workers.by_key.get_mut(&from) else { return };
        let Duty::Actor(id) = worker.duty else { return };
        worker.is_ready = true;
        let clients = self.actors.known.ready(id);
        self.connect_all(clients, id, from);
        if !self.actors.known.get(id).is_some_and(crate::Actor::may_restart) {
            self.forget_constructor(id);
        }
    }

    /// The constructor's arguments are no longer needed: what the actor kept of them, it holds itself by now.
    fn forget_constructor(&mut self, id: ActorId) {
        let Some(making) = self.actors.making.get_mut(&id) else { return };
        making.spec = None;
        let contained = std::mem::take(&mut making.contained);
        self.touch(Row::Constructor(id));
        let mut out = Vec::new();
        self.objects.known.let_go(&contained, &mut out);
        self.carry_out(out);
    }

    pub(super) fn actor_failed(&mut self, from: Key, error: Option<Value>) {
        let Some(Duty::Actor(id)) = self.workers.by_key.get(&from).map(|worker| worker.duty) else { return };
        let failure = match error.and_then(|value| value.content) {
            Some(Content::Raised(cause)) => Failure { cause, ..death("its constructor raised an exception.") },
            Some(Content::Failed(failure)) => failure,
            _ => death("its constructor failed."),
        };
        self.actor_died(id, &failure);
        self.alarm_at(self.clock.now + LEAVING_LIMIT, Alarm::Overdue(from));
    }

    pub(super) fn actor_leaving(&mut self, from: Key, said: &ActorLeaving) {
        if let Some(worker) = self.workers.by_key.get_mut(&from) {
            worker.end.last_words.get_or_insert_with(|| format!("{}.", cut(said.text.clone())));
            worker.end.is_for_good |= !said.unintended;
            self.alarm_at(self.clock.now + LEAVING_LIMIT, Alarm::Overdue(from));
        }
    }

    /// Ends an actor at once, wherever it is in its life.
    pub(super) fn end_actor(&mut self, id: ActorId, text: &str) {
        let Some(actor) = self.actors.known.get(id) else { return };
        let worker = actor.worker();
        let waited = match self.actors.making.get(&id) {
            Some(_) if worker.is_some() || actor.restarts > 0 => String::new(),
            Some(making) if making.is_unfinished => {
                " It never ran: the arguments of its constructor were still awaited.".into()
            }
            Some(Making { need: Some(Need::ResourceRequest(resource_request)), .. }) => {
                format!(" It never ran: it was still waiting for {}.", resource_request.demand)
            }
            Some(_) => " It never ran: it was still waiting for its place.".into(),
            None => String::new(),
        };
        self.actor_died(id, &death(&format!("{text}{waited}")));
        if let Some(key) = worker.and_then(|worker| self.clients.keys.get(&worker).copied()) {
            self.kill_worker(key);
        }
    }

    /// What is known of an actor that dies now.
    fn death_of(&self, id: ActorId) -> ActorDeath {
        let Some(actor) = self.actors.known.get(id) else { return ActorDeath::default() };
        let described = &actor.description;
        let process = actor.worker().and_then(|worker| self.clients.keys.get(&worker)).copied();
        ActorDeath {
            raised: Bytes::new(),
            class_name: described.class_name.clone(),
            name: described.name.clone(),
            namespace: described.namespace.clone(),
            actor: id,
            node: process.map(|key| self.node_of(key)),
            ip: process.map(|key| self.ip_of(key).to_owned()).unwrap_or_default(),
            pid: process.and_then(|key| self.workers.by_key.get(&key)?.pid).unwrap_or_default(),
            never_ran: process.is_none() && actor.state == ActorState::Waiting && actor.restarts == 0,
        }
    }

    /// The verdict over an actor (CORE-2).
    pub(super) fn actor_died(&mut self, id: ActorId, failure: &Failure) {
        let failure = failure.clone().with_death(self.death_of(id));
        self.forget_constructor(id);
        if let Some(making) = self.actors.making.remove(&id) {
            if let Some(ticket) = making.ticket {
                self.withdraw(ticket);
            }
            self.forget_job_when_over(making.job);
        }
        self.touch(Row::Actor(id));
        let interested = self.actors.known.died(id, failure.clone());
        for forgotten in self.actors.known.forgotten() {
            self.touch(Row::Actor(forgotten));
        }
        for client in interested {
            if let Some(key) = self.clients.keys.get(&client).copied() {
                self.send(key, ActorDied { actor: id, failure: Some(failure.clone()) });
            }
        }
        self.end_groups_of_actor(id);
    }
}

/// What is needed to place an actor is at least what it holds later.
fn at_least(placement: &Demand, running: &Demand) -> Demand {
    let mut most: BTreeMap<ResourceName, Quantity> = BTreeMap::new();
    for (name, amount) in placement.iter().chain(running.iter()) {
        let entry = most.entry(name.clone()).or_default();
        *entry = amount.max(*entry);
    }
    Demand::new(most).unwrap_or_else(|_| running.clone())
}

fn unschedulable(text: String) -> Failure {
    Failure { code: "actor_unschedulable".into(), text, cause: Bytes::new() }
}
