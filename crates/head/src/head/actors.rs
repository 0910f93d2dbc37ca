//! Actors: made, placed, and connected to those who call them. What follows the loss of a process is in `restarts`, and
//! what their end brings in `termination`.

use super::HeadCore;
use super::validation::clear_long_environment;
use crate::actors::{Actor, Connect, Created, Description, Making};
use crate::clock::Alarm;
use crate::demands::{Need, at_least, demand_of, home};
use crate::failures::death;
use crate::journal::{Row, Undo};
use crate::objects::contained_in;
use crate::queue::PendingKind;
use crate::workers::Duty;
use oxiray_ids::{ActorId, JobId, WorkerId};
use oxiray_machine::{Key, LEAVING_LIMIT, VERDICT_LIMIT, check_name, cut};
use oxiray_resources::Demand;
use oxiray_scheduler::Claimant;
use oxiray_wire::message::{
    ActorAnswer, ActorConnect, ActorCreate, ActorDied, ActorLeaving, ActorLookup, ActorMaker, ActorPlaced, ActorReady,
    Content, Failure, FailureCode, Value,
};
use oxiray_wire::state::ExitKind;
use std::time::Duration;

/// An actor that nobody has made so long after somebody asked for it is not going to be.
const UNKNOWN_LIMIT: Duration = Duration::from_secs(1);
/// How long a process to which a stream ended has to turn out dead before there is another stream to it: longer than its node may
/// wait for the word on how it died, or calls would go to a dead one.
const RECONNECT_AFTER: Duration = VERDICT_LIMIT.saturating_add(Duration::from_secs(1));

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
            "" => self.jobs.known.namespace_of(job),
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
            preemptible: asked.preemptible,
        };
        let answer = ActorAnswer { request: asked.request, ..ActorAnswer::default() };
        let checked = check_name("an actor's name", &asked.name);
        if let Err(text) = checked.and_then(|()| check_name("a namespace", &asked.namespace)) {
            let failure = Some(FailureCode::Invalid.because(text));
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
                let failure = FailureCode::ActorNameTaken.because(text);
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
        if let Some(origin) = self.actors.known.origin_of(id) {
            origin.called_us = self.clock.wall_ms * 1000;
        }
        self.durable.touch(Row::Actor(id));
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
        if let Some(origin) = self.actors.known.origin_of(id) {
            origin.ready_after_us = Some((self.clock.wall_ms * 1000).saturating_sub(origin.called_us));
        }
        self.queue_actor(id);
    }

    /// A task of the client's makes the actor.
    pub(super) fn actor_maker(&mut self, from: Key, said: &ActorMaker) {
        let creator = self.clients.id_of(from);
        let is_its = |actor: &Actor<Failure>| Some(actor.description.creator) == creator;
        if self.actors.known.get(said.actor).is_some_and(is_its)
            && let Some(origin) = self.actors.known.origin_of(said.actor)
        {
            origin.parent = Some(said.task);
        }
    }

    /// What the actor's constructor needs is kept, and the objects in it are held.
    pub(super) fn know_constructor(&mut self, id: ActorId, asked: ActorCreate) {
        let references = asked.references.iter().filter_map(|argument| argument.reference.clone());
        let mut contained = contained_in(&asked.contained);
        contained.extend(contained_in(&references.collect::<Vec<_>>()));
        self.objects.known.contain(&contained);
        let Some(making) = self.actors.making.get_mut(&id) else { return };
        making.know_constructor(asked, contained);
        self.durable.touch(Row::Actor(id));
        self.durable.touch(Row::Constructor(id));
    }

    /// The actor waits for the resources of a process, where there can be such.
    pub(super) fn queue_actor(&mut self, id: ActorId) {
        let Some(making) = self.actors.making.get_mut(&id) else { return };
        let (job, Some(spec)) = (making.job, making.spec.take()) else { return };
        making.ordered_to = None;
        self.durable.touch(Row::Actor(id));
        let (label, priority) = (spec.class_name.clone(), spec.priority);
        let needs = self.actor_needs(job, &spec, &format!("actor `{label}`"));
        self.actors.making.get_mut(&id).expect("it was just looked at").spec = Some(spec);
        let queued = needs.and_then(|(need, running)| {
            let making = self.actors.making.get_mut(&id).expect("it was just looked at");
            making.asks_for(need.clone(), running);
            self.enqueue(PendingKind::Actor(id), Claimant::new(job, priority), label, need).map_err(unschedulable)
        });
        match queued {
            Ok(ticket) => self.actors.making.get_mut(&id).expect("it was just looked at").waits_under(ticket),
            Err(failure) => self.actor_died(id, &failure),
        }
    }

    /// What an actor waits for, and what it holds once it runs.
    fn actor_needs(&mut self, job: JobId, asked: &ActorCreate, named: &str) -> Result<(Need, Demand), Failure> {
        let strategy = asked.strategy.as_ref();
        if let (Some(_), Some(told)) = (home(strategy), strategy) {
            return self.groups.actor_within(asked, told, named);
        }
        let demands = demand_of(&asked.running, named).and_then(|running| {
            let placement = at_least(&demand_of(&asked.placement, named)?, &running);
            Ok((Need::ResourceRequest(self.check(job, placement, strategy, named)?), running))
        });
        demands.map_err(unschedulable)
    }

    /// The actor is not waited for any more: neither for its process of before, nor for room for another.
    pub(super) fn stop_waiting(&mut self, id: ActorId) {
        let Some(making) = self.actors.making.get_mut(&id) else { return };
        making.post = None;
        if let Some(ticket) = making.stop_waiting() {
            self.pending.withdraw(ticket);
        }
    }

    /// The actor has this process: whoever waits for it is connected.
    pub(super) fn actor_has(&mut self, id: ActorId, worker: Key) {
        if let Some(making) = self.actors.making.get_mut(&id) {
            making.stop_waiting();
        }
        self.durable.touch(Row::Actor(id));
        let found = self.workers.by_key.get_mut(&worker).expect("it was just placed");
        found.duty = Duty::Actor(id);
        let worker_id = found.id;
        let clients = self.actors.known.placed(id, worker_id);
        self.connect_all(clients, id, worker);
    }

    fn connect_all(&mut self, clients: Vec<WorkerId>, id: ActorId, worker: Key) {
        for client in clients {
            if let Some(key) = self.clients.key_of(client) {
                self.connect_actor(key, id, worker);
            }
        }
    }

    fn connect_actor(&mut self, client: Key, id: ActorId, worker: Key) {
        let worker_id = self.workers.by_key[&worker].id;
        let placed = ActorPlaced { actor: id, worker: worker_id, is_near: false };
        self.connect(client, placed.into(), worker);
    }

    pub(super) fn actor_connect(&mut self, from: Key, asked: &ActorConnect) {
        let Some(client) = self.clients.id_of(from) else { return };
        let id = asked.actor;
        match self.actors.known.connect(client, id) {
            Connect::Now(worker) if asked.lost == Some(worker) => self.reconnect_later(from, worker),
            Connect::Now(worker) => {
                if let Some(key) = self.clients.key_of(worker) {
                    self.connect_actor(from, id, key);
                }
            }
            Connect::Later => {}
            Connect::Dead(failure) => self.send(from, ActorDied { actor: id, failure: Some(failure) }),
            // Its handle may have come sooner, by the way of a call, than its creator's word, which takes a stream of its own.
            Connect::Unknown => {
                self.actors.early.entry(id).or_default().insert(from);
                self.clock.alarm_at(self.clock.now + UNKNOWN_LIMIT, Alarm::Unmade(id));
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
            let failure = FailureCode::ActorDied.because(text.to_owned());
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
            ActorAnswer { failure: Some(FailureCode::Invalid.because(text)), ..answer }
        } else if let Some(id) = self.actors.known.lookup(namespace, &asked.name) {
            self.found(answer, id)
        } else {
            let text = format!(
                "no living actor is named `{}` in namespace `{namespace}`; check the name and the namespace, and that \
                 the actor's handle or its job is still there",
                asked.name
            );
            let failure = FailureCode::ActorNotFound.because(text);
            ActorAnswer { failure: Some(failure), ..answer }
        };
        self.send(from, answer);
    }

    /// The constructor returned, and its process says so.
    pub(super) fn actor_says(&mut self, from: Key, mut said: ActorReady) {
        said.repr_name = cut(said.repr_name);
        clear_long_environment(&mut said.environment);
        if let Some(id) = self.workers.actor_on(from) {
            self.actors.known.says(id, said);
        }
        self.actor_ready(from);
    }

    pub(super) fn actor_ready(&mut self, from: Key) {
        let Some(worker) = self.workers.by_key.get_mut(&from) else { return };
        let Duty::Actor(id) = worker.duty else { return };
        worker.is_ready = true;
        let clients = self.actors.known.ready(id);
        self.connect_all(clients, id, from);
        if !self.actors.known.get(id).is_some_and(|actor| actor.may_restart() || actor.may_move()) {
            self.forget_constructor(id);
        }
    }

    pub(super) fn actor_failed(&mut self, from: Key, error: Option<Value>) {
        let Some(id) = self.workers.actor_on(from) else { return };
        let failure = match error.and_then(|value| value.content) {
            Some(Content::Raised(cause)) => Failure { cause, ..death("its constructor raised an exception.") },
            Some(Content::Failed(failure)) => failure,
            _ => death("its constructor failed."),
        };
        self.actor_died(id, &failure);
        self.exits_by(from, ExitKind::UserError, &failure.text);
        self.clock.alarm_at(self.clock.now + LEAVING_LIMIT, Alarm::Overdue(from));
    }

    pub(super) fn actor_leaving(&mut self, from: Key, said: &ActorLeaving) {
        if let Some(worker) = self.workers.by_key.get_mut(&from) {
            worker.end.last_words.get_or_insert_with(|| format!("{}.", cut(said.text.clone())));
            worker.end.is_for_good |= !said.unintended;
            let kind = if said.unintended { ExitKind::SystemError } else { ExitKind::IntendedUser };
            worker.end.exit.get_or_insert_with(|| (kind, cut(said.text.clone())));
            self.clock.alarm_at(self.clock.now + LEAVING_LIMIT, Alarm::Overdue(from));
        }
    }

    /// A client's stream to the process of an actor ended. Mostly the process is dead, and the verdict follows.
    fn reconnect_later(&mut self, client: Key, worker: WorkerId) {
        if let Some(worker) = self.clients.key_of(worker) {
            self.clock.alarm_at(self.clock.now + RECONNECT_AFTER, Alarm::Reconnect(client, worker));
        }
    }

    /// Whether nobody can tell for now how a worker is.
    pub(super) fn is_on_silent_member(&self, worker: Key) -> bool {
        self.members.by_key.get(&self.members.member_with(worker)).is_some_and(|member| member.is_silent)
    }

    /// The process lives all the same.
    pub(super) fn reconnect(&mut self, client: Key, worker: Key) {
        if self.is_on_silent_member(worker) {
            // Whether it lives is said when its node's lease is over.
            return self.clock.alarm_at(self.clock.now + RECONNECT_AFTER, Alarm::Reconnect(client, worker));
        }
        let Some(found) = self.workers.by_key.get(&worker).filter(|worker| !worker.end.is_doomed) else { return };
        if let Duty::Actor(id) = found.duty
            && self.clients.by_key.contains_key(&client)
            && self.actors.known.get(id).and_then(Actor::worker) == Some(found.id)
        {
            self.connect_actor(client, id, worker);
        }
    }
}

fn unschedulable(text: String) -> Failure {
    FailureCode::ActorUnschedulable.because(text)
}
