//! A head that came back is told where this process stands.
//!
//! All of it is said at once, under the lock: what was said before was for the last head, what is said after for this
//! one. What other processes had on their way here meanwhile is told apart by the mark on each stream:
//! RESUMING-1 and RESUMING-2 stand in `peers.rs`.

use crate::core::calls::{Lease, LeasePhase};
use crate::core::client::Client;
use crate::core::io::{DAEMON, Io};
use crate::core::objects::inner_ids;
use crate::core::signals::ClientEvent;
use oxiray_ids::{LeaseNumber, ObjectId, WorkerId};
use oxiray_wire::Message;
use oxiray_wire::message::{
    ActorConnect, ActorKill, ClientResume, ClientSettled, Hold, LeaseEnded, LeaseHeld, Promise, Publish, Resumed,
    Subscribe, Unhold, Value,
};

/// Identifiers in one message at most.
const BATCH_MAX: usize = 10_000;

impl<I: Io> Client<I> {
    /// Whether the head comes back when it ends.
    pub(crate) fn is_resumable(&self) -> bool {
        self.peers.epoch() > 0
    }

    /// Asks the daemon for something that it does not answer.
    pub(crate) fn demand(&mut self, message: Message) {
        self.io.send_soon(DAEMON, &message);
        if self.is_resumable() {
            self.daemon.resuming.remember(message, self.now);
        }
    }

    /// A question, in case it has to be asked again.
    pub(crate) fn note_question(&mut self, question: u64, message: &Message) {
        if self.is_resumable() {
            self.daemon.questions.note(question, message);
        }
    }

    /// Tells the head of that number where this process stands. `is_new_daemon` says that it is the daemon of this
    /// process too.
    pub(crate) fn resume(&mut self, epoch: u64, is_new_daemon: bool) {
        if epoch <= self.peers.epoch() {
            return;
        }
        self.peers.begin_epoch(epoch);
        // The next head says it again where it is still so.
        self.daemon.draining = None;
        self.goes_on_after_all();
        let is_broken = |lease: &Lease| lease.phase == LeasePhase::Ending;
        let (broken, leases): (Vec<_>, Vec<_>) = self.leases.granted.iter().partition(|(_, lease)| is_broken(lease));
        let leases = leases.into_iter().map(|(id, lease)| (*id, lease.worker));
        let leases = leases.map(|(lease, worker)| LeaseHeld { lease, worker }).collect();
        let broken: Vec<LeaseNumber> = broken.into_iter().map(|(id, _)| *id).collect();
        let actors = self.actors.connected().collect();
        self.io.send(DAEMON, &ClientResume { epoch, leases, actors });
        self.tell_of_objects_again();
        self.ask_for_actors_again();
        for message in self.daemon.questions.unanswered(is_new_daemon) {
            self.io.send(DAEMON, &message);
        }
        for message in self.daemon.resuming.take_recent() {
            self.io.send(DAEMON, &message);
        }
        self.ask_for_leases_again();
        for lease in broken {
            let text = "the stream to it broke while the head of the cluster was away".to_owned();
            self.lease_ended(&LeaseEnded { lease, text, node_died: true, ..LeaseEnded::default() });
        }
        for token in self.peers.others() {
            self.io.send(token, &Resumed { epoch });
        }
        self.daemon.resuming.is_unsettled = true;
        self.io.flush();
        self.read_on();
        self.settle();
        self.signals.changed = true;
    }

    fn tell_of_objects_again(&mut self) {
        let told = self.objects.retold();
        for promised in told.promised.chunks(BATCH_MAX) {
            self.io.send(DAEMON, &Promise { objects: promised.to_vec() });
        }
        let holder = self.identity.worker;
        let held: Vec<ObjectId> = told.held.into_iter().chain(self.daemon.questions.writing.iter().copied()).collect();
        for held in held.chunks(BATCH_MAX) {
            self.io.send(DAEMON, &Hold { objects: held.to_vec(), holder, until_confirmed: false });
        }
        for id in told.published {
            if let Some(value) = self.objects.value(id).cloned() {
                self.publish_value(id, value);
            }
        }
        // Nobody here refers to these: promising them says whose they are.
        for (id, value) in told.kept {
            self.io.send(DAEMON, &Promise { objects: vec![id] });
            self.publish_value(id, value);
            self.io.send(DAEMON, &Unhold { objects: vec![id] });
        }
        for reference in told.wanted {
            self.io.send(DAEMON, &Subscribe { reference: Some(reference) });
        }
    }

    fn publish_value(&mut self, id: ObjectId, value: Value) {
        self.io.send(DAEMON, &Publish { object: id, value: Some(value) });
    }

    fn ask_for_actors_again(&mut self) {
        for mut create in self.actors.unplaced() {
            create.is_again = true;
            self.io.send(DAEMON, &create);
        }
        for (actor, restart) in self.actors.doomed() {
            self.io.send(DAEMON, &ActorKill { actor, restart });
        }
        for actor in self.actors.awaited() {
            self.io.send(DAEMON, &ActorConnect { actor, lost: None });
        }
    }

    fn ask_for_leases_again(&mut self) {
        self.leases.requests.clear();
        for index in 0..self.leases.queues.len() {
            self.leases.queues[index].requests.clear();
            if !self.leases.queues[index].pending.is_empty() {
                self.pump(index);
            }
        }
    }

    /// RESUMING-2: what was held back is read.
    fn read_on(&mut self) {
        for (stream, held) in self.peers.read_on() {
            self.io.read_again(stream);
            for received in held {
                self.heard(stream, received);
            }
        }
    }

    /// Says when nothing is on its way here any more that no head has counted.
    pub fn settle(&mut self) {
        let epoch = self.peers.epoch();
        if self.daemon.resuming.is_unsettled && !self.peers.awaits_marks() {
            self.daemon.resuming.is_unsettled = false;
            self.io.send_now(DAEMON, &ClientSettled { epoch });
        }
    }

    /// RESUMING-1: this process has itself counted for what came before the mark.
    pub(crate) fn hold_what_came_before(&mut self, id: ObjectId, value: &Value, holds: u32, inner_holds: u32) {
        if !self.daemon.resuming.reads_what_came_before || holds + inner_holds == 0 {
            return;
        }
        let own = (0..holds).map(|_| id);
        let inner = inner_ids(value).into_iter().flat_map(|id| (0..inner_holds).map(move |_| id));
        let (ids, me): (Vec<ObjectId>, _) = (own.chain(inner).collect(), self.identity.worker);
        self.hold_for(&ids, &me);
    }

    /// RESUMING-1: what a worker kept before the mark it has said by itself.
    pub(crate) fn hold_kept(&mut self, kept: &[ObjectId], worker: &WorkerId) {
        if !self.daemon.resuming.reads_what_came_before {
            self.hold_for(kept, worker);
        }
    }

    pub(crate) fn notice(&mut self, text: String) {
        self.signals.tell(ClientEvent::Notice(text));
    }
}
