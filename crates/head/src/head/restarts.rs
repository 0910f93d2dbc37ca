//! Actors whose process is lost: made anew, reconnected, or dead.
//!
//! - RESTARTS-1: the next process is asked for only when the tree of the last is gone, so that the grant is given back
//!   before it is taken anew, and a crash loop never has two processes of one actor.

use super::records::Row;
use super::{Alarm, Duty, HeadCore, Key};
use crate::{Actor, ActorState};
use bytes::Bytes;
use oxiray_ids::{ActorId, WorkerId};
use oxiray_wire::message::{ActorKill, ActorRestarting, ArgumentLost, Failure, Stop};
use std::time::Duration;

/// How long an actor waits that died in its constructor, and the most that this doubles to each further time.
const FAILED_START_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// How long a process to which a stream ended has to turn out dead before there is another stream to it.
const RECONNECT_AFTER: Duration = Duration::from_secs(1);

/// An actor's death, in words that say what became of it first.
pub(super) fn death(why: &str) -> Failure {
    let text = format!("The actor is dead because {why}");
    Failure { code: "actor_died".into(), text, cause: Bytes::new() }
}

impl HeadCore {
    /// The actor's process is dead. Its tree may not be gone yet.
    pub(super) fn actor_lost(&mut self, worker: Key, id: ActorId, last_words: Option<String>, text: &str) {
        let Some(found) = self.workers.by_key.get(&worker) else { return };
        let (worker_id, is_final) = (found.id, found.end.is_for_good);
        let was_drained = found.end.is_moved || self.dies_of_drain(worker);
        let is_counted = !was_drained && !self.is_draining(worker);
        if self.actors.known.get(id).and_then(Actor::worker) != Some(worker_id) {
            return;
        }
        let restarts = !is_final && self.goes_on_after_its_job(id);
        let Some(lost) = restarts.then(|| self.actors.known.lost(id, is_counted)).flatten() else {
            let restarts = self.actors.known.get(id).map_or(0, |actor| actor.restarts);
            let spent =
                if restarts == 0 { String::new() } else { format!(" It was restarted {restarts} times before.") };
            let why = last_words.unwrap_or_else(|| format!("{text}.{spent}"));
            return self.actor_died(id, &death(&why));
        };
        self.touch(Row::Actor(id));
        let text = last_words.unwrap_or_else(|| format!("{text}."));
        let failure = Failure { code: "actor_unavailable".into(), text, cause: Bytes::new() };
        let (actor, began_nothing) = (id, lost.began_nothing);
        let said = ActorRestarting { actor, failure: Some(failure), began_nothing, was_drained };
        for client in lost.clients {
            if let Some(key) = self.clients.keys.get(&client).copied() {
                self.send(key, said.clone());
            }
        }
    }

    fn goes_on_after_its_job(&self, id: ActorId) -> bool {
        let Some(making) = self.actors.making.get(&id) else { return false };
        !self.is_ending(making.job) || self.actor_outlives_its_job(id)
    }

    /// RESTARTS-1: the tree of the actor's last process is gone.
    pub(super) fn restart_when_due(&mut self, id: ActorId) {
        let Some(actor) = self.actors.known.get(id).filter(|actor| actor.state == ActorState::Restarting) else {
            return;
        };
        let doublings = actor.failed_starts.checked_sub(1);
        match doublings {
            None => self.restart(id),
            Some(doublings) => {
                let pause = FAILED_START_PAUSES.0 * 2_u32.saturating_pow(doublings.min(16));
                self.alarm_at(self.clock.now + pause.min(FAILED_START_PAUSES.1), Alarm::Restart(id));
            }
        }
    }

    /// The constructor of an actor waits for an argument that is lost. Where that is made again, the actor waits without a
    /// process, so that it holds nothing which making the argument may need; otherwise the constructor hears why it is not.
    pub(super) fn argument_lost(&mut self, from: Key, said: &ArgumentLost) {
        let Some(Duty::Actor(id)) = self.workers.by_key.get(&from).map(|worker| worker.duty) else { return };
        if !self.objects.known.is_awaited(said.object) {
            return;
        }
        let Some(lost) = self.actors.known.sent_back(id, said.object) else { return };
        self.touch(Row::Actor(id));
        let said = ActorRestarting { actor: id, began_nothing: true, ..ActorRestarting::default() };
        for client in lost.clients {
            if let Some(key) = self.clients.keys.get(&client).copied() {
                self.send(key, said.clone());
            }
        }
        self.kill_worker(from);
    }

    /// Actors whose constructors' arguments have come are made.
    pub(super) fn restart_with_arguments(&mut self) {
        for id in self.actors.known.have_arguments(|object| self.objects.known.is_awaited(object)) {
            // RESTARTS-1.
            if !self.workers.by_key.values().any(|worker| worker.duty == Duty::Actor(id)) {
                self.restart_when_due(id);
            }
        }
    }

    pub(super) fn restart(&mut self, id: ActorId) {
        if self.actors.known.awaits_arguments(id) {
            return;
        }
        if self.actors.known.get(id).is_some_and(|actor| actor.state == ActorState::Restarting) {
            self.queue_actor(id);
        }
    }

    pub(super) fn actor_kill(&mut self, asked: &ActorKill) {
        let id = asked.actor;
        let Some(actor) = self.actors.known.get(id) else { return };
        if !asked.restart || !actor.may_restart() {
            return self.end_actor(id, "it was killed by `ray.kill`.");
        }
        // One without a process is about to be made anew as it is.
        let Some(key) = actor.worker().and_then(|worker| self.clients.keys.get(&worker).copied()) else { return };
        if let Some(worker) = self.workers.by_key.get_mut(&key) {
            worker
                .end
                .last_words
                .get_or_insert_with(|| "its process was killed by `ray.kill(no_restart=False)`.".into());
        }
        self.kill_worker(key);
    }

    /// Nobody has a handle of the actor any more, nor a call under way that was made through one.
    pub(super) fn actor_unreachable(&mut self, id: ActorId) {
        const WHY: &str = "all references to the actor were removed.";
        if !self.actors.known.unreferenced(id) {
            return;
        }
        self.touch(Row::Actor(id));
        let Some(worker) = self.actors.known.get(id).and_then(Actor::worker) else { return self.end_actor(id, WHY) };
        let Some(key) = self.clients.keys.get(&worker).copied() else { return };
        if let Some(worker) = self.workers.by_key.get_mut(&key) {
            worker.end.last_words.get_or_insert_with(|| WHY.into());
            worker.end.is_for_good = true;
        }
        self.send(key, Stop {});
    }

    /// A client's stream to the process of an actor ended. Mostly the process is dead, and the verdict follows.
    pub(super) fn reconnect_later(&mut self, client: Key, worker: WorkerId) {
        if let Some(worker) = self.clients.keys.get(&worker).copied() {
            self.alarm_at(self.clock.now + RECONNECT_AFTER, Alarm::Reconnect(client, worker));
        }
    }

    /// Whether nobody can tell for now how a worker is.
    fn is_on_silent_member(&self, worker: Key) -> bool {
        self.members.by_key.get(&self.member_with(worker)).is_some_and(|member| member.is_silent)
    }

    /// The process lives all the same.
    pub(super) fn reconnect(&mut self, client: Key, worker: Key) {
        if self.is_on_silent_member(worker) {
            // Whether it lives is said when its node's lease is over.
            return self.alarm_at(self.clock.now + RECONNECT_AFTER, Alarm::Reconnect(client, worker));
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
