//! What workers are told: that they serve somebody, have done so, or are to end. How they end is in `exits`.

use super::HeadCore;
use crate::clock::Alarm;
use crate::fairness::Holder;
use crate::members::OWN;
use crate::workers::{Duty, Lease};
use oxiray_ids::{LeaseNumber, LeaseRequestNumber, WorkerNumber};
use oxiray_machine::{DYING_LIMIT, Effect, Key, LEAVING_LIMIT};
use oxiray_wire::message::{LeaseGranted, LeaseRetire, Peer, Stop, WorkerKill, WorkerReturn};
use oxiray_wire::state::ExitKind;

impl HeadCore {
    /// Has a worker's machine end it: what it was there for is over.
    pub(crate) fn kill_worker(&mut self, key: Key) {
        self.exits_by(key, ExitKind::IntendedSystem, "the cluster ended it: what it was there for is over");
        self.kill_broken_worker(key);
    }

    /// Has a worker's machine end it, since it may have ended by itself already.
    pub(crate) fn kill_broken_worker(&mut self, key: Key) {
        if self.durable.resumption.tells_before_it_dies(key) {
            return;
        }
        let Some(worker) = self.workers.by_key.get_mut(&key) else { return };
        if worker.duty == Duty::Idle {
            worker.duty = Duty::Ending;
        }
        self.expect_the_end(key);
        let (member, worker) = self.members.route(key).unwrap_or((OWN, WorkerNumber(key)));
        self.order_member(member, WorkerKill { worker });
    }

    /// The worker has done its work: it runs what was left to be run at exit, and is killed where it does not end.
    pub(super) fn dismiss_worker(&mut self, key: Key) {
        self.exits_by(key, ExitKind::IntendedSystem, "it was not needed any more");
        self.send(key, Stop {});
        self.clock.alarm_at(self.clock.now + LEAVING_LIMIT, Alarm::Overdue(key));
    }

    /// It is known what kind of end the worker comes to, and why: the first word counts, and none after its end.
    pub(super) fn exits_by(&mut self, key: Key, kind: ExitKind, why: &str) {
        if let Some(worker) = self.workers.by_key.get_mut(&key).filter(|worker| !worker.end.is_doomed) {
            worker.end.exit.get_or_insert_with(|| (kind, why.to_owned()));
        }
    }

    /// The worker stays for the tasks that it made.
    pub(super) fn lingers(&mut self, key: Key) {
        self.pending.fairness.lends_cpu(key, true);
        if let Some(worker) = self.workers.by_key.get_mut(&key) {
            worker.end.lingers = true;
        }
    }

    /// The worker was to have ended by now.
    pub(super) fn is_overdue(&mut self, key: Key) {
        if self.workers.by_key.get(&key).is_some_and(|worker| !worker.end.lingers) {
            self.kill_worker(key);
        }
    }

    /// The worker is killed or dead: its tree is to be gone soon.
    pub(super) fn expect_the_end(&mut self, key: Key) {
        let Some(worker) = self.workers.by_key.get_mut(&key).filter(|worker| !worker.end.is_doomed) else { return };
        worker.end.is_doomed = true;
        // A member watches its own and tells: it is waited for longer, for one that is cut off is given up first.
        let limit = if self.members.route(key).is_none() { DYING_LIMIT } else { DYING_LIMIT * 2 };
        self.clock.alarm_at(self.clock.now + limit, Alarm::Undying(key));
        // What it has published is written down before it is killed: a head that ended with it would leave nobody to tell.
        if let Some(client) = self.clients.by_key.get(&key) {
            self.objects.known.client_dying(client.id);
            self.touch_orphans();
        }
    }

    /// The worker has its process, says its machine.
    pub(super) fn worker_forked(&mut self, key: Key, pid: u32) {
        if let Some(worker) = self.workers.by_key.get_mut(&key).filter(|worker| worker.pid.is_none()) {
            worker.pid = Some(pid);
            worker.launched_ms = self.clock.wall_ms;
            self.workers.starting -= 1;
            self.pending.is_due = true;
        }
    }

    /// The worker serves nobody after what it is on: its owner gives it back when its task ends.
    pub(super) fn worker_spent(&mut self, key: Key) {
        let Some(worker) = self.workers.by_key.get_mut(&key) else { return };
        worker.once = true;
        if let Duty::Leased(lease) = worker.duty {
            self.retire_lease(lease);
        }
    }

    /// Makes a stream between a client and a worker.
    pub(super) fn connect(&mut self, client: Key, placed: oxiray_wire::Message, worker: Key) {
        let Some(id) = self.clients.id_of(client) else { return };
        self.out.push(Effect::Join { client, placed, worker, peer: Peer { client: id } });
    }

    /// The worker is the owner's now.
    pub(super) fn grant_lease(&mut self, client: Key, request: LeaseRequestNumber, worker: Key) {
        let lease = self.new_key();
        let depth = self.workers.depth_of(client).saturating_add(1);
        let found = self.workers.by_key.get_mut(&worker).expect("a worker was just chosen");
        found.duty = Duty::Leased(lease);
        found.depth = depth;
        let worker_id = found.id;
        let number = LeaseNumber(lease);
        self.workers.leases.insert(lease, Lease { owner: client, worker, number });
        let owner = self.clients.by_key.get_mut(&client).expect("requests of the gone are cancelled");
        owner.waiting.remove(&request);
        owner.leases.insert(number, lease);
        let granted = LeaseGranted {
            request,
            lease: number,
            worker: worker_id,
            is_alone: self.members.is_alone(),
            is_near: false,
        };
        self.connect(client, granted.into(), worker);
    }

    /// The lease of a worker is over: its machine has it serve the next one.
    pub(super) fn return_to_member(&mut self, worker: Key) {
        let (member, number) = self.members.route(worker).unwrap_or((OWN, WorkerNumber(worker)));
        let Some(found) = self.workers.by_key.get_mut(&worker) else { return };
        if found.once || self.members.drains.contains_key(&member) {
            return self.dismiss_worker(worker);
        }
        found.duty = Duty::Idle;
        self.pending.fairness.lets_go(Holder::Worker(worker));
        self.order_member(member, WorkerReturn { worker: number });
    }

    /// The owner of a lease gives it back when what runs on it is done, and sends nothing more there.
    pub(super) fn retire_lease(&mut self, lease: u64) {
        if let Some(Lease { owner, number, .. }) = self.workers.leases.get(&lease) {
            self.send(*owner, LeaseRetire { lease: *number });
        }
    }
}
