//! Actors as their callers see them: one ordered stream of calls to each.
//!
//! - ACTORS-1: calls of this process to one actor are sent in the order made, each once its arguments are there.
//! - ACTORS-2: after an actor's stream ends, the daemon's verdict decides what becomes of calls under way.

use crate::links::{DAEMON, Role, Token};
use crate::objects::copy;
use crate::state::State;
use bytes::Bytes;
use oxiray_ids::{ActorId, ObjectId, TaskId, WorkerId};
use oxiray_wire::Message;
use oxiray_wire::message::{ActorConnect, ActorDied, ActorKill, ActorPlaced, ActorRelease, Cancel, Failure};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

#[derive(Debug)]
enum Stream {
    /// Nobody has asked for one.
    None,
    /// Asked for, or lost and waiting for the verdict.
    Awaited,
    Open(Token, WorkerId),
    Dead(Failure),
}

#[derive(Debug)]
struct Actor {
    stream: Stream,
    queue: VecDeque<TaskId>,
    under_way: FxHashSet<TaskId>,
    handles: usize,
    /// This process made it, and its end is this process's to decide.
    mine: bool,
    /// A handle went elsewhere or a name leads to it: it lives until its job ends or it is killed.
    shared: bool,
    released: bool,
    /// This process asked for its end: nothing more is sent, and the verdict is awaited.
    killed: bool,
    /// What its constructor's arguments refer to, kept until it is dead.
    arguments: Vec<ObjectId>,
}

/// Every actor this process has, or had, a handle of.
#[derive(Debug, Default)]
pub(crate) struct Actors {
    known: FxHashMap<ActorId, Actor>,
}

impl Actors {
    fn get(&mut self, id: ActorId) -> &mut Actor {
        self.known.entry(id).or_insert_with(|| Actor {
            stream: Stream::None,
            queue: VecDeque::new(),
            under_way: FxHashSet::default(),
            handles: 0,
            mine: false,
            shared: false,
            released: false,
            killed: false,
            arguments: Vec::new(),
        })
    }

    /// An actor of this process's own, with one handle for the caller.
    pub(crate) fn made(&mut self, id: ActorId, shared: bool, arguments: Vec<ObjectId>) {
        let actor = self.get(id);
        actor.handles += 1;
        actor.mine = true;
        actor.shared = shared;
        actor.stream = Stream::Awaited;
        actor.arguments = arguments;
    }

    /// The stream over which a call is under way.
    pub(crate) fn link_of(&self, id: ActorId, call: TaskId) -> Option<Token> {
        match self.known.get(&id) {
            Some(Actor { stream: Stream::Open(token, _), under_way, .. }) if under_way.contains(&call) => Some(*token),
            _ => None,
        }
    }

    pub(crate) fn retain(&mut self, id: ActorId) {
        self.get(id).handles += 1;
    }

    /// Whether the call was sent, and is not answered yet.
    pub(crate) fn is_under_way(&self, id: ActorId, task: TaskId) -> bool {
        self.known.get(&id).is_some_and(|actor| actor.under_way.contains(&task))
    }

    pub(crate) fn share(&mut self, id: ActorId) {
        self.get(id).shared = true;
    }

    pub(crate) fn fail_all(&mut self, failure: &Failure) {
        for actor in self.known.values_mut() {
            actor.stream = Stream::Dead(failure.clone());
            actor.queue.clear();
            actor.under_way.clear();
        }
    }
}

impl State {
    pub(crate) fn queue_actor_call(&mut self, id: ActorId, task: TaskId) {
        let actor = self.actors.get(id);
        if let Stream::Dead(failure) = &actor.stream {
            let failure = failure.clone();
            self.fail_task(task, &failure);
            return;
        }
        actor.queue.push_back(task);
        if matches!(actor.stream, Stream::None) {
            actor.stream = Stream::Awaited;
            self.links.post_now(DAEMON, &ActorConnect { actor: copy(id.as_bytes()) }.into());
        }
        self.deliver(id);
    }

    /// Sends what can be sent, in order (ACTORS-1).
    pub(crate) fn deliver(&mut self, id: ActorId) {
        loop {
            let actor = self.actors.get(id);
            let Stream::Open(token, _) = actor.stream else { return };
            if actor.killed {
                return;
            }
            let Some(front) = actor.queue.front().copied() else { return };
            if self.tasks.tasks.get(&front).is_some_and(|task| task.waiting_for > 0) {
                return;
            }
            actor.queue.pop_front();
            if !self.tasks.tasks.contains_key(&front) {
                continue;
            }
            let lone = actor.under_way.is_empty();
            if let Some(value) = self.failed_argument(front) {
                self.finish_with(front, &value);
                continue;
            }
            let call = self.call(front);
            self.actors.get(id).under_way.insert(front);
            let message = Message::from(call);
            if lone { self.links.post_now(token, &message) } else { self.links.post(token, &message) }
        }
    }

    pub(crate) fn actor_said(&mut self, id: ActorId, message: Message) {
        let Message::Reply(reply) = message else { return };
        let Some(task) = TaskId::from_slice(&reply.task) else { return };
        let actor = self.actors.get(id);
        if actor.under_way.remove(&task)
            && let Stream::Open(_, worker) = actor.stream
        {
            self.finish(task, reply, worker);
        }
        self.release_when_done(id);
    }

    pub(crate) fn actor_placed(&mut self, placed: &ActorPlaced, descriptor: Option<OwnedFd>) {
        let (Some(id), Some(stream)) = (ActorId::from_slice(&placed.actor), descriptor) else { return };
        if let Ok(token) = self.links.adopt(stream, Role::Actor(id)) {
            let worker = WorkerId::from_slice(&placed.worker).unwrap_or(WorkerId::NIL);
            self.actors.get(id).stream = Stream::Open(token, worker);
            self.deliver(id);
            self.release_when_done(id);
        }
    }

    /// ACTORS-2: the stream ended; the daemon's word is awaited.
    pub(crate) fn actor_silent(&mut self, id: ActorId) {
        let actor = self.actors.get(id);
        if matches!(actor.stream, Stream::Open(..)) {
            actor.stream = Stream::Awaited;
        }
    }

    pub(crate) fn actor_died(&mut self, died: ActorDied) {
        let Some(id) = ActorId::from_slice(&died.actor) else { return };
        if let Stream::Open(token, _) = self.actors.get(id).stream {
            self.hear_last_words(token, Role::Actor(id));
        }
        let failure = died.failure.unwrap_or_else(|| Failure {
            code: "actor_died".into(),
            text: "the actor is dead".into(),
            cause: Bytes::new(),
        });
        let actor = self.actors.get(id);
        let before = std::mem::replace(&mut actor.stream, Stream::Dead(failure.clone()));
        let arguments = std::mem::take(&mut actor.arguments);
        let lost: Vec<TaskId> = actor.under_way.drain().chain(actor.queue.drain(..)).collect();
        if let Stream::Open(token, _) = before {
            self.links.remove(token);
        }
        for task in lost {
            self.fail_task(task, &failure);
        }
        for object in arguments {
            self.release(object);
        }
        self.forget_actor(id);
        self.news = true;
    }

    /// An actor that was not made after all: its name was taken.
    pub(crate) fn unmake_actor(&mut self, id: ActorId) {
        if let Some(actor) = self.actors.known.remove(&id) {
            for object in actor.arguments {
                self.release(object);
            }
        }
    }

    pub(crate) fn kill_actor(&mut self, id: ActorId) {
        if self.abandon_creation(id) {
            return;
        }
        self.actors.get(id).killed = true;
        self.links.post_now(DAEMON, &ActorKill { actor: copy(id.as_bytes()) }.into());
    }

    /// A handle is gone. With the last one, an actor that nobody else can reach ends.
    pub(crate) fn drop_handle(&mut self, id: ActorId) {
        let actor = self.actors.get(id);
        actor.handles = actor.handles.saturating_sub(1);
        self.release_when_done(id);
        self.forget_actor(id);
    }

    /// Whether the actor's process has the call. One that it has not got is not sent any more.
    pub(crate) fn cancel_actor_call(&mut self, id: ActorId, task: TaskId, recursive: bool) -> bool {
        let actor = self.actors.get(id);
        if !actor.under_way.contains(&task) {
            return false;
        }
        if let Stream::Open(token, _) = actor.stream {
            let cancel = Cancel { task: copy(task.as_bytes()), force: false, recursive };
            self.links.post_now(token, &cancel.into());
        }
        true
    }

    /// Calls were taken out of an actor's queue.
    pub(crate) fn actor_calls_left(&mut self, id: ActorId) {
        let tasks = &self.tasks.tasks;
        let queue = &mut self.actors.get(id).queue;
        while queue.front().is_some_and(|front| !tasks.contains_key(front)) {
            queue.pop_front();
        }
        self.deliver(id);
        self.release_when_done(id);
    }

    fn release_when_done(&mut self, id: ActorId) {
        let actor = self.actors.get(id);
        let over = actor.handles == 0 && actor.queue.is_empty() && actor.under_way.is_empty();
        if over && actor.mine && !actor.shared && !actor.released && matches!(actor.stream, Stream::Open(..)) {
            actor.released = true;
            self.links.post_now(DAEMON, &ActorRelease { actor: copy(id.as_bytes()) }.into());
        }
    }

    fn forget_actor(&mut self, id: ActorId) {
        let actor = self.actors.get(id);
        let quiet = actor.queue.is_empty() && actor.under_way.is_empty();
        if actor.handles == 0 && quiet && matches!(actor.stream, Stream::Dead(_) | Stream::None) {
            self.actors.known.remove(&id);
        }
    }
}
