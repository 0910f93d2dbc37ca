//! Actors whose process is lost: made anew, or dead.
//!
//! - RESTARTS-1: the next process is asked for only when the tree of the last is gone, so that the grant is given back
//!   before it is taken anew, and a crash loop never has two processes of one actor.

use super::HeadCore;
use crate::actors::{Actor, ActorState};
use crate::clock::Alarm;
use crate::failures::death;
use crate::journal::Row;
use crate::workers::{Duty, NodeEnd};
use oxiray_ids::{ActorId, TaskId};
use oxiray_machine::{Key, check_name};
use oxiray_wire::message::{
    ActorKill, ActorRestarting, ArgumentLost, CancelObject, EndAsked, FailureCode, StateReport,
};
use oxiray_wire::state::{EndTold, ExitKind, STATE_VERSION};
use std::time::Duration;

/// How long an actor waits that died in its constructor, and the most that this doubles to each further time.
const FAILED_START_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

impl HeadCore {
    /// The actor's process is dead. Its tree may not be gone yet.
    pub(super) fn actor_lost(&mut self, worker: Key, id: ActorId, last_words: Option<String>, text: &str) {
        let Some(found) = self.workers.by_key.get(&worker) else { return };
        let (worker_id, is_final) = (found.id, found.end.is_for_good);
        let was_drained = found.end.with_node == Some(NodeEnd::Drained) || self.members.dies_of_drain(worker);
        let is_unheard = found.end.with_node.is_some();
        let was_drained = was_drained || found.end.preempted.is_some();
        let is_counted = !was_drained && !self.members.is_draining(worker);
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
        self.durable.touch(Row::Actor(id));
        let text = last_words.unwrap_or_else(|| format!("{text}."));
        let failure = FailureCode::ActorUnavailable.because(text);
        // Calls go to the first process before its constructor has returned, and a node that is lost may not have said
        // that it did.
        let (actor, began_nothing) = (id, lost.began_nothing && !is_unheard);
        let said = ActorRestarting { actor, failure: Some(failure), began_nothing, was_drained };
        for client in lost.clients {
            self.tell(client, said.clone());
        }
    }

    fn goes_on_after_its_job(&self, id: ActorId) -> bool {
        let Some(making) = self.actors.making.get(&id) else { return false };
        !self.jobs.is_ending(making.job) || self.actor_outlives_its_job(id)
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
                self.clock.alarm_at(self.clock.now + pause.min(FAILED_START_PAUSES.1), Alarm::Restart(id));
            }
        }
    }

    /// The constructor of an actor waits for an argument that is lost. Where that is made again, the actor waits without a
    /// process, so that it holds nothing which making the argument may need; otherwise the constructor hears why it is not.
    pub(super) fn argument_lost(&mut self, from: Key, said: &ArgumentLost) {
        let Some(id) = self.workers.actor_on(from) else { return };
        if !self.objects.known.is_awaited(said.object) {
            return;
        }
        let Some(lost) = self.actors.known.sent_back(id, said.object) else { return };
        self.durable.touch(Row::Actor(id));
        let said = ActorRestarting { actor: id, began_nothing: true, ..ActorRestarting::default() };
        for client in lost.clients {
            self.tell(client, said.clone());
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

    /// The actor is made anew, unless it waits for its arguments.
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
        let Some(key) = actor.worker().and_then(|worker| self.clients.key_of(worker)) else { return };
        if let Some(worker) = self.workers.by_key.get_mut(&key) {
            worker
                .end
                .last_words
                .get_or_insert_with(|| "its process was killed by `ray.kill(no_restart=False)`.".into());
        }
        self.exits_by(key, ExitKind::IntendedSystem, "it was killed by `ray.kill(no_restart=False)`");
        self.kill_worker(key);
    }

    /// Somebody at the command line wants an actor killed or a task cancelled.
    pub(crate) fn end_asked(&mut self, from: Key, asked: &EndAsked) {
        let (request, version) = (asked.request, STATE_VERSION);
        let told = check_name("a reason", &asked.reason).and_then(|()| match (asked.actor, asked.task) {
            (Some(actor), _) => self.end_by_hand(actor, &asked.reason),
            (None, Some(task)) => self.cancel_by_hand(task),
            (None, None) => Err("name an actor to kill, or a task to cancel".to_owned()),
        });
        let report = |ended| StateReport { request, ended: Some(ended), version, ..StateReport::default() };
        self.answer_state(from, request, told.map(report), String::new());
    }

    fn end_by_hand(&mut self, id: ActorId, reason: &str) -> Result<EndTold, String> {
        let Some(actor) = self.actors.known.get(id) else {
            return Err(format!("no actor {id} is known: `oxiray list actors` shows those that there are"));
        };
        if let ActorState::Dead(_) = actor.state {
            return Err(format!("actor {id} is dead already"));
        }
        let processes = u32::from(actor.worker().is_some());
        self.end_actor(id, &format!("it was killed by hand: {reason}."));
        Ok(EndTold { processes })
    }

    /// Which process owns a task only that process knows: all of the job's are told, and for the others it is no matter.
    fn cancel_by_hand(&mut self, task: TaskId) -> Result<EndTold, String> {
        let job = task.job();
        let of_job = self.clients.by_key.iter().filter(|(_, client)| client.job == job).map(|(key, _)| *key);
        let told: Vec<Key> = of_job.collect();
        if told.is_empty() {
            return Err(format!("task {task} is of job {job}, and no process of that job runs: the task is over"));
        }
        for key in &told {
            self.send(*key, CancelObject { object: task.object(1), owner: None, force: false, recursive: true });
        }
        Ok(EndTold { processes: u32::try_from(told.len()).unwrap_or(u32::MAX) })
    }
}
