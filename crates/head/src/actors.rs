//! Actors: their names, where they are, who waits for them, and why they died.
//!
//! - ACTOR-1: a name belongs to one living actor; it is free again when that one dies.
//! - ACTOR-2: whoever was connected or asked is told of the death exactly once.
//! - ACTOR-3: an actor is made anew as often as it may be, and has one process at a time.
//! - ACTOR-4: nothing brings back an actor that nobody can reach, or that is dead.
//! - ACTOR-5: whoever calls an actor for the first time may do so while its constructor runs; one that is made anew takes
//!   calls again when its constructor has returned, so that until then its callers know that it has not.

mod making;

pub(crate) use making::{ActorTable, Making};
use oxiray_ids::{ActorId, JobId, ObjectId, WorkerId};
use oxiray_wire::message::{ActorReady, CallOrigin};
use oxiray_wire::state::ActorPhase;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many dead actors are remembered, with the cause of their death.
pub(crate) const DEAD_ACTORS_KEPT: usize = 4096;

/// What is said of an actor when it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Description {
    /// Who it is.
    pub id: ActorId,
    /// The job it belongs to.
    pub job: JobId,
    /// The client that made it, and with which it dies unless it is detached.
    pub creator: WorkerId,
    /// Its name; empty for none.
    pub name: String,
    /// Where the name lives.
    pub namespace: String,
    /// Its class.
    pub class_name: String,
    /// Whether it outlives its creator and its job.
    pub detached: bool,
    /// How often it is made anew; negative for always.
    pub max_restarts: i32,
    /// Whether it may end early for what is more urgent: it is made anew then, though it may not be restarted.
    pub preemptible: bool,
}

/// Where an actor is in its life. `C` is the cause of a death.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ActorState<C> {
    /// It waits for its resources.
    Waiting,
    /// It has a process, in which its constructor runs.
    Starting(WorkerId),
    /// Its constructor returned.
    Alive(WorkerId),
    /// Its process died, and it waits for the resources of the next.
    Restarting,
    /// For good.
    Dead(C),
}

impl<C> ActorState<C> {
    /// How far it is, for people and programs.
    pub(crate) fn phase(&self) -> ActorPhase {
        match self {
            Self::Waiting => ActorPhase::Waiting,
            Self::Starting(_) => ActorPhase::Starting,
            Self::Alive(_) => ActorPhase::Alive,
            Self::Restarting => ActorPhase::Restarting,
            Self::Dead(_) => ActorPhase::Dead,
        }
    }
}

/// One actor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Actor<C> {
    /// What was said of it.
    pub description: Description,
    /// Where it is in its life.
    pub state: ActorState<C>,
    /// How often it was made anew.
    pub restarts: u32,
    /// How many of its latest processes died before its constructor returned.
    pub failed_starts: u32,
    /// Nobody can reach it any more: it ends when its calls are done.
    pub is_unreferenced: bool,
    /// How many of its restarts are not counted: its node was emptied, or it was preempted.
    pub moves: u32,
    /// By which task it was made, and when by the head's clock; when it was last sent to be made.
    pub origin: CallOrigin,
    /// What its process said of itself when its constructor had returned.
    pub said: ActorReady,
    interested: BTreeSet<WorkerId>,
}

impl<C> Actor<C> {
    /// An actor that nobody is connected to.
    pub(crate) fn new(description: Description, state: ActorState<C>, restarts: u32, is_unreferenced: bool) -> Self {
        let (said, origin, interested) = (ActorReady::default(), CallOrigin::default(), BTreeSet::new());
        Self { description, state, restarts, failed_starts: 0, moves: 0, origin, said, is_unreferenced, interested }
    }

    /// Its process, where it has one.
    pub(crate) fn worker(&self) -> Option<WorkerId> {
        match self.state {
            ActorState::Starting(worker) | ActorState::Alive(worker) => Some(worker),
            ActorState::Waiting | ActorState::Restarting | ActorState::Dead(_) => None,
        }
    }

    /// Who is connected to it or asked to be.
    pub(crate) fn interested(&self) -> impl Iterator<Item = WorkerId> {
        self.interested.iter().copied()
    }

    /// Whether it is made anew should its process die.
    pub(crate) fn may_restart(&self) -> bool {
        let allowed =
            u32::try_from(self.description.max_restarts).map_or(true, |most| self.restarts - self.moves < most);
        allowed && !self.is_unreferenced && !self.is_dead()
    }

    /// Whether it is made anew where that is not counted.
    pub(crate) fn may_move(&self) -> bool {
        let may = self.description.max_restarts != 0 || self.description.preemptible;
        may && !self.is_unreferenced && !self.is_dead()
    }

    /// Whether callers are connected to its process (ACTOR-5).
    fn takes_calls(&self) -> bool {
        matches!(self.state, ActorState::Alive(_)) || (self.restarts == 0 && self.worker().is_some())
    }

    /// Whether it is dead for good.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, ActorState::Dead(_))
    }
}

/// An actor's process died, and there will be another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Whether nobody has said that its constructor had returned.
    pub began_nothing: bool,
    /// Who is to be told.
    pub clients: Vec<WorkerId>,
}

/// What became of a request to make an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Created {
    /// It is made, and waits for its resources.
    New,
    /// An actor of that name lives, and was asked for.
    Exists(ActorId),
    /// An actor of that name lives, and was not asked for.
    NameTaken(ActorId),
    /// The identifier was used before.
    Duplicate,
}

/// What becomes of a request to be connected.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Connect<C> {
    /// It has a process.
    Now(WorkerId),
    /// When it has one; [`Actors::placed`] names who waits.
    Later,
    /// Never: it died of this.
    Dead(C),
    /// Never: nobody made it, or it died so long ago that it is forgotten.
    Unknown,
}

/// All actors of a session.
#[derive(Debug)]
pub(crate) struct Actors<C> {
    by_id: BTreeMap<ActorId, Actor<C>>,
    names: BTreeMap<(String, String), ActorId>,
    living_of: BTreeMap<WorkerId, BTreeSet<ActorId>>,
    asked_by: BTreeMap<WorkerId, BTreeSet<ActorId>>,
    dead: VecDeque<ActorId>,
    forgotten: Vec<ActorId>,
    /// Those without a process that wait for arguments of their constructor which are made again.
    awaiting: BTreeMap<ActorId, BTreeSet<ObjectId>>,
    /// Those that came into another state, in order.
    moves: Vec<(ActorId, ActorPhase)>,
}

impl<C> Default for Actors<C> {
    fn default() -> Self {
        Self {
            by_id: BTreeMap::new(),
            names: BTreeMap::new(),
            living_of: BTreeMap::new(),
            asked_by: BTreeMap::new(),
            dead: VecDeque::new(),
            forgotten: Vec::new(),
            awaiting: BTreeMap::new(),
            moves: Vec::new(),
        }
    }
}

impl<C: Clone> Actors<C> {
    /// Makes an actor; its creator will be connected when it is placed.
    pub(crate) fn create(&mut self, description: Description, get_if_exists: bool) -> Created {
        if self.by_id.contains_key(&description.id) {
            return Created::Duplicate;
        }
        if !description.name.is_empty() {
            let name = (description.namespace.clone(), description.name.clone());
            match self.names.get(&name) {
                Some(holder) if get_if_exists => return Created::Exists(*holder),
                Some(holder) => return Created::NameTaken(*holder),
                None => self.names.insert(name, description.id),
            };
        }
        let (id, creator) = (description.id, description.creator);
        self.living_of.entry(creator).or_default().insert(id);
        self.asked_by.entry(creator).or_default().insert(id);
        let actor = Actor {
            description,
            state: ActorState::Waiting,
            restarts: 0,
            moves: 0,
            failed_starts: 0,
            origin: CallOrigin::default(),
            said: ActorReady::default(),
            is_unreferenced: false,
            interested: [creator].into(),
        };
        self.by_id.insert(id, actor);
        self.moves.push((id, ActorPhase::Waiting));
        Created::New
    }

    /// An actor as another head knew it. Nobody is connected to it.
    pub(crate) fn restore(&mut self, actor: Actor<C>) {
        let (id, creator) = (actor.description.id, actor.description.creator);
        if actor.is_dead() {
            self.dead.push_back(id);
        } else {
            self.living_of.entry(creator).or_default().insert(id);
            if !actor.description.name.is_empty() && !actor.is_unreferenced {
                let name = (actor.description.namespace.clone(), actor.description.name.clone());
                self.names.insert(name, id);
            }
        }
        self.by_id.insert(id, actor);
    }

    /// The dead that are not remembered any more, each once.
    pub(crate) fn forgotten(&mut self) -> Vec<ActorId> {
        std::mem::take(&mut self.forgotten)
    }

    /// The living actor of that name (ACTOR-1).
    pub(crate) fn lookup(&self, namespace: &str, name: &str) -> Option<ActorId> {
        self.names.get(&(namespace.to_owned(), name.to_owned())).copied()
    }

    /// A client wants to call the actor.
    pub(crate) fn connect(&mut self, client: WorkerId, id: ActorId) -> Connect<C> {
        let Some(actor) = self.by_id.get_mut(&id) else { return Connect::Unknown };
        if let ActorState::Dead(cause) = &actor.state {
            return Connect::Dead(cause.clone());
        }
        actor.interested.insert(client);
        self.asked_by.entry(client).or_default().insert(id);
        actor.worker().filter(|_| actor.takes_calls()).map_or(Connect::Later, Connect::Now)
    }

    /// The actor has its process. Returns who is to be connected to it (ACTOR-5).
    pub(crate) fn placed(&mut self, id: ActorId, worker: WorkerId) -> Vec<WorkerId> {
        let Some(actor) = self.by_id.get_mut(&id) else { return Vec::new() };
        let waits = matches!(actor.state, ActorState::Waiting | ActorState::Restarting);
        assert!(waits, "ACTOR-3: an actor has one process at a time");
        actor.state = ActorState::Starting(worker);
        self.moves.push((id, ActorPhase::Starting));
        if actor.takes_calls() { actor.interested.iter().copied().collect() } else { Vec::new() }
    }

    /// The actor's constructor returned. Returns who is to be connected to it (ACTOR-5).
    pub(crate) fn ready(&mut self, id: ActorId) -> Vec<WorkerId> {
        let Some(actor) = self.by_id.get_mut(&id) else { return Vec::new() };
        let ActorState::Starting(worker) = actor.state else { return Vec::new() };
        let took_calls = actor.takes_calls();
        actor.state = ActorState::Alive(worker);
        self.moves.push((id, ActorPhase::Alive));
        actor.failed_starts = 0;
        if took_calls { Vec::new() } else { actor.interested.iter().copied().collect() }
    }

    /// By whom and when it was made, to be written down.
    pub(crate) fn origin_of(&mut self, id: ActorId) -> Option<&mut CallOrigin> {
        self.by_id.get_mut(&id).map(|actor| &mut actor.origin)
    }

    /// What the actor's process says of itself.
    pub(crate) fn says(&mut self, id: ActorId, said: ActorReady) {
        if let Some(actor) = self.by_id.get_mut(&id) {
            actor.said = said;
        }
    }

    /// The actor's process died. `None` where it is not to be made anew (ACTOR-3). Where that is not counted, it is made
    /// anew as long as it may be restarted, or preempted, at all.
    pub(crate) fn lost(&mut self, id: ActorId, is_counted: bool) -> Option<Lost> {
        let actor = self.by_id.get_mut(&id)?;
        let is_move = !is_counted && actor.may_move();
        if actor.worker().is_none() || !(is_move || actor.may_restart()) {
            return None;
        }
        actor.moves += u32::from(is_move);
        let began_nothing = matches!(actor.state, ActorState::Starting(_));
        actor.failed_starts += u32::from(began_nothing);
        actor.restarts += 1;
        actor.state = ActorState::Restarting;
        self.moves.push((id, ActorPhase::Restarting));
        Some(Lost { began_nothing, clients: actor.interested.iter().copied().collect() })
    }

    /// What the actor's constructor was given is lost and made again: it waits for that without a process, and what it is
    /// given is no restart. `None` where its constructor does not run, or nobody can reach it.
    pub(crate) fn sent_back(&mut self, id: ActorId, argument: ObjectId) -> Option<Lost> {
        let actor = self.by_id.get_mut(&id)?;
        if actor.is_unreferenced || !matches!(actor.state, ActorState::Starting(_)) {
            return None;
        }
        actor.state = ActorState::Restarting;
        self.moves.push((id, ActorPhase::Restarting));
        let clients = actor.interested.iter().copied().collect();
        self.awaiting.entry(id).or_default().insert(argument);
        Some(Lost { began_nothing: true, clients })
    }

    /// Whether the actor waits for arguments.
    pub(crate) fn awaits_arguments(&self, id: ActorId) -> bool {
        self.awaiting.contains_key(&id)
    }

    /// The actors that wait for arguments of which none is awaited any more; they do not wait from here on.
    pub(crate) fn have_arguments(&mut self, is_awaited: impl Fn(ObjectId) -> bool) -> Vec<ActorId> {
        let is_due = |objects: &BTreeSet<ObjectId>| !objects.iter().any(|object| is_awaited(*object));
        let due: Vec<ActorId> =
            self.awaiting.iter().filter(|(_, objects)| is_due(objects)).map(|(id, _)| *id).collect();
        for id in &due {
            self.awaiting.remove(id);
        }
        due
    }

    /// The process that the actor had under another head is gone. `None` where it is not to be made anew (ACTOR-3).
    pub(crate) fn missing(&mut self, id: ActorId) -> Option<Lost> {
        let actor = self.by_id.get_mut(&id)?;
        if actor.worker().is_some() || !actor.may_restart() {
            return None;
        }
        actor.restarts += 1;
        actor.state = ActorState::Restarting;
        self.moves.push((id, ActorPhase::Restarting));
        Some(Lost { began_nothing: false, clients: actor.interested.iter().copied().collect() })
    }

    /// Nobody can reach the actor any more, nor find it by its name (ACTOR-4). `false` where that was known, or
    /// changes nothing: it is dead or detached.
    pub(crate) fn unreferenced(&mut self, id: ActorId) -> bool {
        let Some(actor) = self.by_id.get_mut(&id) else { return false };
        if actor.is_unreferenced || actor.is_dead() || actor.description.detached {
            return false;
        }
        actor.is_unreferenced = true;
        self.free_name(id);
        true
    }

    /// ACTOR-1.
    fn free_name(&mut self, id: ActorId) {
        let Some(description) = self.by_id.get(&id).map(|actor| &actor.description) else { return };
        let name = (description.namespace.clone(), description.name.clone());
        if self.names.get(&name) == Some(&id) {
            self.names.remove(&name);
        }
    }

    /// The actor is dead. Returns who is to be told; nobody where it was dead already (ACTOR-2).
    pub(crate) fn died(&mut self, id: ActorId, cause: C) -> Vec<WorkerId> {
        let Some(actor) = self.by_id.get_mut(&id) else { return Vec::new() };
        if matches!(actor.state, ActorState::Dead(_)) {
            return Vec::new();
        }
        actor.state = ActorState::Dead(cause);
        self.moves.push((id, ActorPhase::Dead));
        let interested = std::mem::take(&mut actor.interested);
        let creator = actor.description.creator;
        self.free_name(id);
        self.awaiting.remove(&id);
        remove(&mut self.living_of, creator, id);
        for client in &interested {
            remove(&mut self.asked_by, *client, id);
        }
        self.dead.push_back(id);
        if self.dead.len() > DEAD_ACTORS_KEPT
            && let Some(forgotten) = self.dead.pop_front()
        {
            self.by_id.remove(&forgotten);
            self.forgotten.push(forgotten);
        }
        interested.into_iter().collect()
    }

    /// A client is gone. Returns the living actors that it made and that go with it.
    pub(crate) fn client_died(&mut self, client: WorkerId) -> Vec<ActorId> {
        for id in self.asked_by.remove(&client).unwrap_or_default() {
            if let Some(actor) = self.by_id.get_mut(&id) {
                actor.interested.remove(&client);
            }
        }
        let made = self.living_of.get(&client).into_iter().flatten();
        made.copied().filter(|id| self.by_id.get(id).is_some_and(|actor| !actor.description.detached)).collect()
    }

    /// Who came into which state since this was last called, in order.
    pub(crate) fn take_moves(&mut self) -> Vec<(ActorId, ActorPhase)> {
        std::mem::take(&mut self.moves)
    }

    /// The actor, alive or remembered.
    pub(crate) fn get(&self, id: ActorId) -> Option<&Actor<C>> {
        self.by_id.get(&id)
    }

    /// The actor of each name that is taken.
    pub(crate) fn named(&self) -> impl Iterator<Item = ActorId> {
        self.names.values().copied()
    }

    /// All actors, alive or remembered.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Actor<C>> {
        self.by_id.values()
    }
}

fn remove(index: &mut BTreeMap<WorkerId, BTreeSet<ActorId>>, client: WorkerId, id: ActorId) {
    if let Some(ids) = index.get_mut(&client) {
        ids.remove(&id);
        if ids.is_empty() {
            index.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests;
