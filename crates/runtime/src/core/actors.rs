//! Actors as their callers see them: one ordered stream of calls to each.

use crate::core::io::Token;
use crate::core::work::Arguments;
use oxiray_ids::{ActorId, ObjectId, TaskId, WorkerId};
use oxiray_wire::message::{ActorCreate, Failure};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// How long a call waits for an actor that is made anew (ACTORS-4).
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) enum Stream {
    /// Nobody has asked for one.
    None,
    /// Asked for, or lost and waiting for the verdict.
    Awaited,
    Open(Token, WorkerId),
    Dead(Failure),
}

/// Where an actor stands, as far as its callers know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActorPhase {
    /// It is made, and has had no process yet.
    Pending,
    /// It has a process.
    Alive,
    /// Its process died, and there will be another.
    Restarting,
    /// It has ended.
    Dead,
}

/// An actor is made anew (ACTORS-4).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Restart {
    /// When its callers hear of that, or hear of it again.
    pub(crate) told_at: Instant,
    /// Nothing failed: its machine was emptied, or it ended for others' sake.
    pub(crate) is_move: bool,
}

#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) stream: Stream,
    /// The process that the last stream led to, until it is known to be dead.
    pub(crate) process: Option<WorkerId>,
    pub(crate) queue: VecDeque<TaskId>,
    /// Calls that enter the queue when their arguments are there, whatever others do.
    pub(crate) unready: FxHashSet<TaskId>,
    /// How many calls were sent and are not answered; each knows its place in the order ([`Task::sent`]).
    pub(crate) under_way: usize,
    pub(crate) sent: u64,
    /// This process made it, and it ends with this process.
    pub(crate) is_own: bool,
    pub(crate) handles: usize,
    /// How many of the handles keep the actor.
    pub(crate) keeping: usize,
    /// ACTORS-3.
    pub(crate) is_anchored: bool,
    /// This process asked for its end: nothing more is sent, and the verdict is awaited.
    pub(crate) killed: bool,
    /// This process asked for the end of its process: nothing more is sent to that one.
    pub(crate) paused: bool,
    /// Where its process died, and the next one is not there yet.
    pub(crate) restart: Option<Restart>,
    /// What its constructor's arguments refer to, kept until it is dead.
    pub(crate) arguments: Vec<ObjectId>,
    /// What the daemon was told to make it, until it has a process.
    pub(crate) creates: Vec<ActorCreate>,
}

impl Actor {
    pub(crate) fn is_quiet(&self) -> bool {
        self.queue.is_empty() && self.under_way == 0 && self.unready.is_empty()
    }

    fn phase(&self) -> Option<ActorPhase> {
        match self.stream {
            Stream::Dead(_) => Some(ActorPhase::Dead),
            _ if self.restart.is_some() => Some(ActorPhase::Restarting),
            Stream::Open(..) => Some(ActorPhase::Alive),
            // A stream that broke says nothing of the process.
            _ if self.process.is_some() => Some(ActorPhase::Alive),
            Stream::Awaited => Some(ActorPhase::Pending),
            Stream::None => self.is_own.then_some(ActorPhase::Pending),
        }
    }

    fn pending(&self) -> usize {
        self.queue.len() + self.under_way + self.unready.len()
    }
}

/// An actor whose constructor's arguments are not all there.
#[derive(Debug)]
pub(crate) struct Creation {
    pub(crate) actor: ActorId,
    pub(crate) create: ActorCreate,
    pub(crate) arguments: Arguments,
    pub(crate) waiting_for: usize,
}

/// Every actor this process has, or had, a handle of.
#[derive(Debug, Default)]
pub(crate) struct Actors {
    pub(crate) known: FxHashMap<ActorId, Actor>,
    /// Those whose constructor's arguments are not all there, by what waits for them.
    pub(crate) creations: FxHashMap<TaskId, Creation>,
    /// Those that are made anew, by when their callers hear of it.
    restarting: BTreeSet<(Instant, ActorId)>,
}

impl Actors {
    /// What is known of an actor here.
    pub(crate) fn phase(&self, id: ActorId) -> Option<ActorPhase> {
        self.known.get(&id)?.phase()
    }

    pub(crate) fn get(&mut self, id: ActorId) -> &mut Actor {
        self.known.entry(id).or_insert_with(|| Actor {
            stream: Stream::None,
            process: None,
            queue: VecDeque::new(),
            unready: FxHashSet::default(),
            under_way: 0,
            sent: 0,
            is_own: false,
            handles: 0,
            keeping: 0,
            is_anchored: false,
            killed: false,
            paused: false,
            restart: None,
            arguments: Vec::new(),
            creates: Vec::new(),
        })
    }

    /// When callers of an actor that is made anew are to hear of it next.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.restarting.first().map(|(at, _)| *at)
    }

    /// The next actor whose callers are to hear that it is made anew.
    pub(crate) fn next_restarting(&self, now: Instant) -> Option<ActorId> {
        self.restarting.first().filter(|(at, _)| *at <= now).map(|(_, id)| *id)
    }

    /// Callers of the actor hear then that it is made anew, or not at all.
    pub(crate) fn set_restart(&mut self, id: ActorId, restart: Option<Restart>) {
        if let Some(last) = std::mem::replace(&mut self.get(id).restart, restart) {
            self.restarting.remove(&(last.told_at, id));
        }
        self.restarting.extend(restart.map(|restart| (restart.told_at, id)));
    }

    /// An actor of this process's own, which will be connected without asking.
    pub(crate) fn made(&mut self, id: ActorId, arguments: Vec<ObjectId>, ends_with_maker: bool) {
        let actor = self.get(id);
        actor.stream = Stream::Awaited;
        (actor.is_own, actor.arguments) = (ends_with_maker, arguments);
    }

    /// What the daemon is told to make it.
    pub(crate) fn note_creation(&mut self, id: ActorId, create: ActorCreate) {
        self.get(id).creates.push(create);
    }

    /// Whether an actor that this process made lives, or may yet.
    pub(crate) fn has_made_some(&self) -> bool {
        let lives = |actor: &Actor| !matches!(actor.stream, Stream::Dead(_));
        !self.creations.is_empty() || self.known.values().any(|actor| actor.is_own && lives(actor))
    }

    /// The actors that this process has a stream to.
    pub(crate) fn connected(&self) -> impl Iterator<Item = ActorId> {
        let is_open = |actor: &Actor| matches!(actor.stream, Stream::Open(..));
        self.known.iter().filter(move |(_, actor)| is_open(actor)).map(|(id, _)| *id)
    }

    /// The actors that a stream is awaited to.
    pub(crate) fn awaited(&self) -> Vec<ActorId> {
        let is_awaited = |actor: &Actor| matches!(actor.stream, Stream::Awaited);
        self.known.iter().filter(|(_, actor)| is_awaited(actor)).map(|(id, _)| *id).collect()
    }

    /// What was said to make those that have no process yet, as far as is known here.
    pub(crate) fn unplaced(&self) -> Vec<ActorCreate> {
        self.known.values().flat_map(|actor| actor.creates.iter().cloned()).collect()
    }

    /// The actors with calls of this process's that are not answered, or whose end it asked for.
    pub(crate) fn called(&self) -> impl Iterator<Item = ActorId> {
        let is_called = |actor: &Actor| !actor.is_quiet() || actor.killed || actor.paused;
        let lives = |actor: &Actor| !matches!(actor.stream, Stream::Dead(_));
        self.known.iter().filter(move |(_, actor)| lives(actor) && is_called(actor)).map(|(id, _)| *id)
    }

    /// The actors whose end this process asked for, and whether there may be another process.
    pub(crate) fn doomed(&self) -> Vec<(ActorId, bool)> {
        let lives = |actor: &Actor| !matches!(actor.stream, Stream::Dead(_));
        let doomed = self.known.iter().filter(|(_, actor)| lives(actor) && (actor.killed || actor.paused));
        doomed.map(|(id, actor)| (*id, !actor.killed)).collect()
    }

    /// The stream over which calls go, where there is one.
    pub(crate) fn link_of(&self, id: ActorId) -> Option<Token> {
        match self.known.get(&id)?.stream {
            Stream::Open(token, _) => Some(token),
            _ => None,
        }
    }

    /// The process that the actor has, or had last, as far as is known here.
    pub(crate) fn process_of(&self, id: ActorId) -> Option<WorkerId> {
        self.known.get(&id)?.process
    }

    /// A call that was sent is answered, or never will be.
    pub(crate) fn call_ended(&mut self, id: ActorId) {
        if let Some(actor) = self.known.get_mut(&id) {
            actor.under_way = actor.under_way.saturating_sub(1);
        }
    }

    /// How many calls of this process to the actor are not answered.
    pub(crate) fn pending(&self, id: ActorId) -> usize {
        self.known.get(&id).map_or(0, Actor::pending)
    }

    pub(crate) fn fail_all(&mut self, failure: &Failure) {
        self.restarting.clear();
        for actor in self.known.values_mut() {
            actor.stream = Stream::Dead(failure.clone());
            actor.restart = None;
            actor.queue.clear();
            actor.unready.clear();
            actor.under_way = 0;
        }
    }
}
