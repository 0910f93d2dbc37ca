//! Nothing more is awaited of somebody who is to come back to this head; and what follows when nobody is awaited any more.
//!
//! - RESUME-1: until everybody who is awaited has told what there is or is given up, nothing is deleted for want of
//!   holders, and nobody is called dead who may still come.

use super::HeadCore;
use crate::resumption::{Claim, UNCLAIMED};
use crate::workers::Duty;
use oxiray_ids::LeaseNumber;
use oxiray_machine::Key;
use oxiray_wire::message::{ClientSettled, LeaseEnded};

impl HeadCore {
    /// A client has told everything.
    pub(super) fn client_settled(&mut self, from: Key, said: &ClientSettled) {
        if said.epoch == self.own.epoch() {
            self.comes_not_back(from);
        }
    }

    /// Nothing more is awaited of a client: it has told everything, or is gone.
    pub(super) fn comes_not_back(&mut self, client: Key) {
        let is_doomed = self.durable.resumption.settled(client);
        if !self.clients.by_key.contains_key(&client) {
            self.durable.resumption.client_gone(client);
        }
        if is_doomed {
            self.kill_worker(client);
        }
        self.end_resumption_when_done();
    }

    /// Every process that can return may have done so.
    pub(super) fn end_resumption_when_done(&mut self) {
        let Some(ended) = self.durable.resumption.end() else { return };
        self.log(
            "the head has resumed: every process that could return has done so, and the others are given up".to_owned(),
        );
        // Jobs that ended with the last head, or before, and of which nothing has come back.
        let over = self.jobs.details.iter().filter(|(_, detail)| detail.is_over).map(|(job, _)| *job);
        for job in over.collect::<Vec<_>>() {
            self.forget_job_when_over(job);
        }
        for worker in ended.doomed {
            self.kill_worker(worker);
        }
        for Claim { owner, lease, .. } in ended.claims {
            self.claim_fails(owner, lease);
        }
        let unclaimed = self.workers.by_key.iter().filter(|(_, worker)| worker.duty == Duty::Leased(UNCLAIMED));
        for worker in unclaimed.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.kill_worker(worker);
        }
        let orphans = self.actors.known.iter().filter(|actor| {
            let description = &actor.description;
            !actor.is_dead() && !description.detached && !self.clients.keys.contains_key(&description.creator)
        });
        for actor in orphans.map(|actor| actor.description.id).collect::<Vec<_>>() {
            self.end_actor(actor, "its owner has died: the process that made it is gone, and it was not detached.");
        }
        let mut out = Vec::new();
        let keys = &self.clients.keys;
        self.objects.known.end_gathering(|client| keys.contains_key(&client), &mut out);
        self.carry_out(out);
        let forgotten = self.actors.known.iter().filter(|actor| !actor.is_dead());
        let forgotten =
            forgotten.map(|actor| actor.description.id).filter(|id| !self.objects.known.is_kept(id.anchor()));
        for actor in forgotten.collect::<Vec<_>>() {
            self.actor_unreachable(actor);
        }
        self.pending.is_due = true;
    }

    /// A lease is over whose worker did not come back.
    pub(super) fn claim_fails(&mut self, owner: Key, lease: LeaseNumber) {
        let text = "its process ended while the head of its cluster was away".to_owned();
        self.send(owner, LeaseEnded { lease, text, node_died: true, ..LeaseEnded::default() });
    }
}
