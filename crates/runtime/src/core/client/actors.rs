//! Actors as their callers see them: one ordered stream of calls to each.
//!
//! - ACTORS-1: calls of this process to one actor are sent in the order made, each once its arguments are there; calls
//!   of an actor that takes them out of order, in the order in which their arguments are.
//! - ACTORS-2: after an actor's stream ends, the daemon's word decides what becomes of calls under way: those with
//!   retries left are sent again, in order and before later ones, when the actor is there again.
//! - ACTORS-3: this process uses the actor's anchor as long as it has a handle that counts, or a call that such a
//!   handle made is not answered. With the last use anywhere the actor ends.
//! - ACTORS-4: a call to an actor that is made anew waits for so long at most; then it fails, or uses a retry up and waits
//!   again. Where the actor is made anew since its machine was emptied, waiting uses no retry up.

use crate::core::actors::{PATIENCE, Restart, Stream};
use crate::core::calls::{Target, Task};
use crate::core::client::Client;
use crate::core::io::{DAEMON, Io, Role, Token};
use oxiray_ids::{ActorId, TaskId, WorkerId};
use oxiray_wire::message::{
    ActorConnect, ActorDied, ActorKill, ActorPlaced, ActorRestarting, ActorToCaller, Cancel, Failure, FailureCode,
};
use std::time::Instant;

impl<I: Io> Client<I> {
    /// One more handle of an actor; `keeps` is whether it keeps the actor.
    pub fn add_handle(&mut self, id: ActorId, keeps: bool) {
        let actor = self.actors.get(id);
        actor.handles += 1;
        actor.keeping += usize::from(keeps);
        if keeps && !std::mem::replace(&mut actor.is_anchored, true) {
            self.objects.borrow(id.anchor(), WorkerId::NIL);
        }
    }

    /// A handle is gone.
    pub fn drop_handle(&mut self, id: ActorId, keeps: bool) {
        let actor = self.actors.get(id);
        actor.handles = actor.handles.saturating_sub(1);
        actor.keeping = actor.keeping.saturating_sub(usize::from(keeps));
        self.let_go_when_done(id);
    }

    /// A call of an actor that is known to the tasks; `overtakable` where others may go first while it waits for its
    /// arguments.
    pub(crate) fn queue_actor_call(&mut self, id: ActorId, task: TaskId, overtakable: bool) {
        let actor = self.actors.get(id);
        if let Stream::Dead(failure) = &actor.stream {
            let failure = failure.clone();
            self.fail_task(task, &failure);
            return;
        }
        if overtakable {
            actor.unready.insert(task);
        } else {
            actor.queue.push_back(task);
        }
        if matches!(actor.stream, Stream::None) {
            actor.stream = Stream::Awaited;
            self.io.send_now(DAEMON, &ActorConnect { actor: id, lost: None });
        }
        self.deliver(id);
    }

    /// A call's arguments are there.
    pub(crate) fn actor_call_ready(&mut self, id: ActorId, task: TaskId) {
        let actor = self.actors.get(id);
        if actor.unready.remove(&task) {
            actor.queue.push_back(task);
        }
        self.deliver(id);
    }

    /// Sends what can be sent, in order (ACTORS-1).
    pub(crate) fn deliver(&mut self, id: ActorId) {
        loop {
            let actor = self.actors.get(id);
            let Stream::Open(token, _) = actor.stream else { return };
            if actor.killed || actor.paused {
                return;
            }
            let Some(front) = actor.queue.front().copied() else { return };
            let Some(task) = self.calls.tasks.get_mut(&front) else {
                actor.queue.pop_front();
                self.let_go_when_done(id);
                continue;
            };
            if task.waiting_for > 0 {
                return;
            }
            actor.queue.pop_front();
            if !task.work.arguments.references.is_empty()
                && let Some(value) = self.failed_argument(front)
            {
                self.finish_with(front, &value);
                self.let_go_when_done(id);
                continue;
            }
            let is_lone = self.note_sent(id, front);
            self.send_call(token, front, is_lone);
        }
    }

    /// A call goes out; whether no other is under way.
    fn note_sent(&mut self, id: ActorId, call: TaskId) -> bool {
        let actor = self.actors.get(id);
        actor.sent += 1;
        if let Some(task) = self.calls.tasks.get_mut(&call) {
            task.sent = actor.sent;
            actor.under_way += 1;
        }
        actor.under_way <= 1
    }

    /// The calls under way, in the order sent; none is from here on.
    fn take_under_way(&mut self, id: ActorId) -> Vec<TaskId> {
        if std::mem::take(&mut self.actors.get(id).under_way) == 0 {
            return Vec::new();
        }
        let is_it = |task: &Task| task.sent > 0 && matches!(task.target, Target::Actor(actor) if actor == id);
        let found = self.calls.tasks.iter_mut().filter(|(_, task)| is_it(task));
        let mut sent: Vec<(u64, TaskId)> = found.map(|(call, task)| (std::mem::take(&mut task.sent), *call)).collect();
        sent.sort_unstable_by_key(|(number, _)| *number);
        sent.into_iter().map(|(_, call)| call).collect()
    }

    pub(crate) fn actor_said(&mut self, token: Token, id: ActorId, message: ActorToCaller) {
        match message {
            ActorToCaller::StreamItem(item) => self.item_arrived(token, *item),
            ActorToCaller::Reply(reply) => {
                let task = reply.task;
                let is_under_way = self.calls.tasks.get(&task).is_some_and(|task| task.sent > 0);
                if let (true, Stream::Open(_, worker)) = (is_under_way, &self.actors.get(id).stream) {
                    let worker = *worker;
                    self.finish(task, reply, worker);
                }
                self.let_go_when_done(id);
            }
            ActorToCaller::Retried(retried) => drop(self.spend_retry(retried.task)),
        }
    }

    pub(crate) fn actor_placed(&mut self, placed: &ActorPlaced, descriptor: Option<I::Descriptor>) {
        let (id, Some(stream)) = (placed.actor, descriptor) else { return };
        if matches!(self.actors.get(id).stream, Stream::Open(..) | Stream::Dead(_)) {
            return;
        }
        let Some(token) = self.open_stream(stream, Role::Actor(id), placed.is_near) else { return };
        let worker = placed.worker;
        let actor = self.actors.get(id);
        actor.stream = Stream::Open(token, worker);
        self.actors.set_restart(id, None);
        let actor = self.actors.get(id);
        actor.process = Some(worker);
        actor.paused = false;
        actor.creates.clear();
        if actor.under_way > 0 {
            let text = "the stream to its process broke, and there is a new one.".to_owned();
            self.lose_calls(id, Some((&FailureCode::ActorUnavailable.because(text), Some(worker))), false);
        }
        self.deliver(id);
    }

    /// ACTORS-2: the stream ended; the daemon's word is awaited.
    pub(crate) fn actor_silent(&mut self, id: ActorId) {
        let actor = self.actors.get(id);
        if let Stream::Open(_, worker) = actor.stream {
            actor.stream = Stream::Awaited;
            self.io.send_now(DAEMON, &ActorConnect { actor: id, lost: Some(worker) });
        }
    }

    /// The network made no stream to the actor's process. Calls that were to go through it have not begun, and none spends
    /// a retry.
    pub(crate) fn actor_unreached(&mut self, id: ActorId) {
        self.lose_calls(id, None, false);
        self.actor_silent(id);
    }

    /// ACTORS-2: the actor's process died, and there will be another.
    pub(crate) fn actor_restarting(&mut self, said: ActorRestarting) {
        let id = said.actor;
        let process = self.close_stream_to(id);
        let actor = self.actors.get(id);
        actor.stream = Stream::Awaited;
        actor.paused = false;
        // One that waits for the arguments of its first constructor was never there.
        if said.failure.is_some() {
            let told_at = actor.restart.map_or(self.now + PATIENCE, |restart| restart.told_at);
            self.actors.set_restart(id, Some(Restart { told_at, is_move: said.was_drained }));
            self.signals.timer_moved = true;
        }
        let failure = said.failure.unwrap_or_default();
        self.lose_calls(id, (!said.began_nothing).then_some((&failure, process)), said.was_drained);
        self.let_go_when_done(id);
        self.signals.changed = true;
    }

    /// What was under way fails, or goes back to the front of the queue where it has retries left or never ran. `failure`
    /// is of the process that had it.
    fn lose_calls(&mut self, id: ActorId, failure: Option<(&Failure, Option<WorkerId>)>, was_drained: bool) {
        for task in self.take_under_way(id).into_iter().rev() {
            if self.end_if_cancelled(task) {
                continue;
            }
            if let Some((failure, worker)) = failure {
                let goes_on = (was_drained && self.repeat_uncounted(task)) || self.spend_retry(task);
                if !goes_on {
                    self.fail_task_of(worker, task, failure);
                    continue;
                }
                self.note_lost_attempt(worker, task, failure);
            }
            self.actors.get(id).queue.push_front(task);
        }
    }

    /// ACTORS-4.
    pub(crate) fn tell_of_restarts(&mut self, now: Instant) {
        while let Some(id) = self.actors.next_restarting(now) {
            let actor = self.actors.get(id);
            let is_move = actor.restart.is_some_and(|restart| restart.is_move);
            let waiting: Vec<TaskId> = actor.queue.iter().chain(&actor.unready).copied().collect();
            let lost = waiting.into_iter().filter(|call| !self.goes_on_waiting(*call, is_move));
            let lost: Vec<TaskId> = lost.collect();
            self.actors.set_restart(id, Some(Restart { told_at: now + PATIENCE, is_move }));
            let actor = self.actors.get(id);
            actor.queue.retain(|call| !lost.contains(call));
            actor.unready.retain(|call| !lost.contains(call));
            for call in lost {
                self.fail_task(call, &restarting());
            }
            self.let_go_when_done(id);
        }
    }

    /// Whether a call waits on for an actor that is made anew: one that may be repeated does. That uses a retry up, except
    /// where that `is_move` and nothing failed.
    fn goes_on_waiting(&mut self, call: TaskId, is_move: bool) -> bool {
        let may_repeat = self.calls.tasks.get(&call).is_some_and(Task::may_repeat);
        (is_move && may_repeat) || self.spend_retry(call)
    }

    /// The actor's process is dead: what it had said is read, and the stream to it closed. Returns that process.
    fn close_stream_to(&mut self, id: ActorId) -> Option<WorkerId> {
        if let Stream::Open(token, _) = self.actors.get(id).stream {
            self.hear_last_words(token);
            self.close_stream(token);
        }
        let process = self.actors.get(id).process.take();
        if let Some(process) = &process {
            self.giver_is_over(process);
        }
        process
    }

    pub(crate) fn actor_died(&mut self, died: ActorDied) {
        let id = died.actor;
        let failure = died.failure.unwrap_or_else(|| FailureCode::ActorDied.because("the actor is dead"));
        let process = self.close_stream_to(id);
        self.actors.set_restart(id, None);
        self.forget_creation(id);
        let actor = self.actors.get(id);
        actor.stream = Stream::Dead(failure.clone());
        actor.creates.clear();
        let arguments = std::mem::take(&mut actor.arguments);
        for task in self.take_under_way(id) {
            self.fail_task_of(process, task, &failure);
        }
        let actor = self.actors.get(id);
        let mut waiting: Vec<TaskId> = actor.queue.drain(..).collect();
        waiting.extend(actor.unready.drain());
        for task in waiting {
            self.fail_task(task, &failure);
        }
        for object in arguments {
            self.release(object);
        }
        self.let_go_when_done(id);
        self.signals.changed = true;
    }

    /// An actor that was not made after all: its name was taken.
    pub fn unmake_actor(&mut self, id: ActorId) {
        self.forget_creation(id);
        self.actors.set_restart(id, None);
        if let Some(actor) = self.actors.known.remove(&id) {
            if actor.is_anchored {
                self.release(id.anchor());
            }
            for object in actor.arguments {
                self.release(object);
            }
        }
    }

    /// Ends an actor's process; `restart` is whether there may be another.
    pub fn kill_actor(&mut self, id: ActorId, restart: bool) {
        let actor = self.actors.get(id);
        if restart {
            actor.paused = matches!(actor.stream, Stream::Open(..));
        } else {
            actor.killed = true;
        }
        self.io.send_now(DAEMON, &ActorKill { actor: id, restart });
    }

    /// Whether the actor's process has the call. One that it has not got is not sent any more.
    pub(crate) fn cancel_actor_call(&mut self, id: ActorId, task: TaskId, recursive: bool) -> bool {
        if self.calls.tasks.get(&task).is_none_or(|task| task.sent == 0) {
            return false;
        }
        if let Stream::Open(token, _) = self.actors.get(id).stream {
            let cancel = Cancel { task, force: false, recursive };
            self.io.send_now(token, &cancel);
        }
        true
    }

    /// Calls were taken out of an actor's queue.
    pub(crate) fn actor_calls_left(&mut self, id: ActorId) {
        let tasks = &self.calls.tasks;
        let actor = self.actors.get(id);
        actor.unready.retain(|task| tasks.contains_key(task));
        while actor.queue.front().is_some_and(|front| !tasks.contains_key(front)) {
            actor.queue.pop_front();
        }
        self.deliver(id);
        self.let_go_when_done(id);
    }

    /// ACTORS-3.
    fn let_go_when_done(&mut self, id: ActorId) {
        let actor = self.actors.get(id);
        if !actor.is_quiet() {
            return;
        }
        let lets_go = actor.keeping == 0 && std::mem::take(&mut actor.is_anchored);
        if actor.handles == 0 && matches!(actor.stream, Stream::Dead(_) | Stream::None) {
            self.actors.known.remove(&id);
        }
        if lets_go {
            self.release(id.anchor());
        }
    }
}

/// What a call fails with whose actor is made anew for too long.
fn restarting() -> Failure {
    let text = format!(
        "The actor is temporarily unavailable: it was not there again within {} s. The actor is restarting.",
        PATIENCE.as_secs()
    );
    FailureCode::ActorUnavailable.because(text)
}
