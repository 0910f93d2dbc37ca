//! A head that came back is told where this process stands.
//!
//! All of it is said at once, under the lock: what was said before was for the last head, what is said after for this
//! one. What other processes had on their way here meanwhile is told apart by the mark on each stream.
//!
//! - RESUMING-1: what a stream brings before its mark was counted by a head that is gone, so that this process has
//!   itself counted as the holder; behind its mark, whoever sent it has.
//! - RESUMING-2: a mark that comes before this process has resumed holds the stream back until then.

use crate::links::{DAEMON, Role, Token};
use crate::objects::{copy, inner_ids};
use crate::state::{News, State};
use crate::submit::Lease;
use bytes::Bytes;
use oxiray_ids::{ObjectId, WorkerId};
use oxiray_wire::message::{
    ActorConnect, ActorKill, ClientResume, ClientSettled, Hold, LeaseEnded, LeaseHeld, Promise, Publish, Resumed,
    Subscribe, Unhold, Value,
};
use oxiray_wire::{Message, Received};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Identifiers in one message at most.
const BATCH_MAX: usize = 10_000;
/// What was said this long ago was heard, unless the head was away.
const RECENT: Duration = Duration::from_secs(30);
/// Of what was said and is not answered, no more is said again.
const RECENT_MAX: usize = 1000;

/// What is said again to a head that comes back.
#[derive(Debug, Default)]
pub(crate) struct Resuming {
    /// Counts the heads of this cluster; 0 where the end of this one is final.
    pub(crate) epoch: u64,
    /// Deeds that nobody answers, and that do no harm when they are done twice.
    recent: VecDeque<(Instant, Message)>,
    /// Not every stream has brought its mark.
    is_unsettled: bool,
    /// What the stream brings that is read now was counted by a head that is gone (RESUMING-1).
    pub(crate) reads_what_came_before: bool,
}

impl Resuming {
    pub(crate) fn new(epoch: u64) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// Whether the head comes back when it ends.
    pub(crate) fn is_needed(&self) -> bool {
        self.epoch > 0
    }

    fn remember(&mut self, message: Message) {
        let now = Instant::now();
        while self.recent.front().is_some_and(|(at, _)| *at + RECENT < now) || self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((now, message));
    }
}

impl State {
    /// Asks the daemon for something that it does not answer.
    pub(crate) fn demand(&mut self, message: Message) {
        self.links.post_soon(DAEMON, &message);
        if self.resuming.is_needed() {
            self.resuming.remember(message);
        }
    }

    /// A question, in case it has to be asked again.
    pub(crate) fn note_question(&mut self, question: u64, message: &Message) {
        if self.resuming.is_needed() {
            self.questions.note(question, message);
        }
    }

    /// A mark on a stream.
    pub(crate) fn peer_resumed(&mut self, token: Token, epoch: u64) {
        if epoch > self.resuming.epoch {
            self.links.hold_back(token);
        } else {
            self.links.mark(token, epoch);
        }
    }

    /// Tells the head of that number where this process stands. `is_new_daemon` says that it is the daemon of this
    /// process too.
    pub(crate) fn resume(&mut self, epoch: u64, is_new_daemon: bool) {
        if epoch <= self.resuming.epoch {
            return;
        }
        self.resuming.epoch = epoch;
        self.links.begin_epoch(epoch);
        // The next head says it again where it is still so.
        self.draining = None;
        let is_broken = |lease: &Lease| lease.closing && !lease.retires;
        let (broken, leases): (Vec<_>, Vec<_>) = self.tasks.leases.iter().partition(|(_, lease)| is_broken(lease));
        let leases = leases.into_iter().map(|(id, lease)| (*id, lease.worker));
        let leases = leases.map(|(lease, worker)| LeaseHeld { lease, worker: copy(worker.as_bytes()) }).collect();
        let broken: Vec<u64> = broken.into_iter().map(|(id, _)| *id).collect();
        let actors = self.actors.connected().map(|actor| copy(actor.as_bytes())).collect();
        self.links.post(DAEMON, &ClientResume { epoch, leases, actors });
        self.tell_of_objects_again();
        self.ask_for_actors_again();
        for message in self.questions.unanswered(is_new_daemon) {
            self.links.post(DAEMON, &message);
        }
        for (_, message) in std::mem::take(&mut self.resuming.recent) {
            self.links.post(DAEMON, &message);
        }
        self.ask_for_leases_again();
        for lease in broken {
            let text = "the stream to it broke while the head of the cluster was away".to_owned();
            self.lease_ended(&LeaseEnded { lease, text, node_died: true, ..LeaseEnded::default() });
        }
        for token in self.links.others() {
            self.links.post(token, &Resumed { epoch });
        }
        self.resuming.is_unsettled = true;
        self.links.flush_all();
        self.read_on();
        self.settle();
        self.news = true;
    }

    fn tell_of_objects_again(&mut self) {
        let told = self.objects.retold();
        let wire = |ids: &[ObjectId]| ids.iter().map(|id| copy(id.as_bytes())).collect::<Vec<Bytes>>();
        for promised in told.promised.chunks(BATCH_MAX) {
            self.links.post(DAEMON, &Promise { objects: wire(promised) });
        }
        let holder = copy(self.identity.worker.as_bytes());
        let held: Vec<ObjectId> = told.held.into_iter().chain(self.questions.writing.iter().copied()).collect();
        for held in held.chunks(BATCH_MAX) {
            self.links.post(DAEMON, &Hold { objects: wire(held), holder: holder.clone() });
        }
        for id in told.published {
            if let Some(value) = self.objects.value(id).cloned() {
                self.publish_value(id, value);
            }
        }
        // Nobody here refers to these: promising them says whose they are.
        for (id, value) in told.kept {
            let object = copy(id.as_bytes());
            self.links.post(DAEMON, &Promise { objects: vec![object.clone()] });
            self.publish_value(id, value);
            self.links.post(DAEMON, &Unhold { objects: vec![object] });
        }
        for reference in told.wanted {
            self.links.post(DAEMON, &Subscribe { reference: Some(reference) });
        }
    }

    fn publish_value(&mut self, id: ObjectId, value: Value) {
        self.links.post(DAEMON, &Publish { object: copy(id.as_bytes()), value: Some(value) });
    }

    fn ask_for_actors_again(&mut self) {
        for mut create in self.actors.unplaced() {
            create.is_again = true;
            self.links.post(DAEMON, &create);
        }
        for (actor, restart) in self.actors.doomed() {
            self.links.post(DAEMON, &ActorKill { actor: copy(actor.as_bytes()), restart });
        }
        for actor in self.actors.awaited() {
            self.links.post(DAEMON, &ActorConnect { actor: copy(actor.as_bytes()), lost: Bytes::new() });
        }
    }

    fn ask_for_leases_again(&mut self) {
        self.tasks.requests.clear();
        for index in 0..self.tasks.queues.len() {
            self.tasks.queues[index].requests.clear();
            if !self.tasks.queues[index].pending.is_empty() {
                self.pump(index);
            }
        }
    }

    /// RESUMING-2: what was held back is read.
    fn read_on(&mut self) {
        for (token, role, held) in self.links.read_on() {
            for received in held {
                self.said(token, role, received);
            }
        }
    }

    /// Says when nothing is on its way here any more that no head has counted.
    pub(crate) fn settle(&mut self) {
        let epoch = self.resuming.epoch;
        if self.resuming.is_unsettled && !self.links.awaits_marks() {
            self.resuming.is_unsettled = false;
            self.links.post_now(DAEMON, &ClientSettled { epoch });
        }
    }

    /// RESUMING-1: this process has itself counted for what came before the mark.
    pub(crate) fn hold_what_came_before(&mut self, id: ObjectId, value: &Value, holds: u32, inner_holds: u32) {
        if !self.resuming.reads_what_came_before || holds + inner_holds == 0 {
            return;
        }
        let own = (0..holds).map(|_| id);
        let inner = inner_ids(value).into_iter().flat_map(|id| (0..inner_holds).map(move |_| id));
        let (ids, me): (Vec<ObjectId>, _) = (own.chain(inner).collect(), self.identity.worker);
        self.hold_for(&ids, &me);
    }

    /// RESUMING-1: what a worker kept before the mark it has said by itself.
    pub(crate) fn hold_kept(&mut self, kept: &[ObjectId], worker: &WorkerId) {
        if !self.resuming.reads_what_came_before {
            self.hold_for(kept, worker);
        }
    }

    /// What a stream brings, where it is not held back.
    pub(crate) fn heard(&mut self, token: Token, role: Role, received: Received) {
        if self.links.is_held_back(token) {
            return self.links.keep(token, received);
        }
        if let Message::Resumed(said) = &received.message {
            return self.peer_resumed(token, said.epoch);
        }
        self.resuming.reads_what_came_before = self.links.is_behind(token);
        self.said(token, role, received);
        self.resuming.reads_what_came_before = false;
    }

    pub(crate) fn notice(&mut self, text: String) {
        self.tell(News::Notice(text));
    }
}
