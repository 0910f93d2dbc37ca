//! Leases: asked for, taken back, and returned by their owners.

use super::HeadCore;
use super::validation::ProtocolError;
use crate::demands::{Need, demand_of, home, large};
use crate::queue::PendingKind;
use crate::workers::Lease;
use oxiray_ids::{LeaseNumber, LeaseRequestNumber};
use oxiray_machine::{Key, cut};
use oxiray_scheduler::Claimant;
use oxiray_wire::message::{CancelObject, FailureCode, LeaseRefused, LeaseRequest};
use oxiray_wire::state::ExitKind;

impl HeadCore {
    pub(super) fn lease_request(&mut self, from: Key, mut asked: LeaseRequest) {
        asked.label = cut(asked.label);
        let Some(job) = self.clients.job_of(from) else { return };
        if self.clients.by_key.get(&from).is_some_and(|client| client.waiting.contains_key(&asked.request)) {
            return self.expel(from, &ProtocolError::RequestTwice(asked.request));
        }
        if !self.may_begin(from, job) {
            return self.refuse_lease(from, asked.request, "its job is ending".to_owned());
        }
        let label = if asked.label.is_empty() { "a task".to_owned() } else { format!("task `{}`", asked.label) };
        let home = home(asked.strategy.as_ref());
        let need = match (home, &asked.strategy) {
            (Some(_), Some(told)) => self.groups.need_within(&asked.demand, told, &label),
            _ => demand_of(&asked.demand, &label)
                .and_then(|demand| self.check(job, demand, asked.strategy.as_ref(), &label))
                .map(Need::ResourceRequest)
                .map_err(|text| FailureCode::TaskUnschedulable.because(text)),
        };
        let need = match need {
            Ok(need) => need,
            Err(failure) => {
                return self.send(from, LeaseRefused { request: asked.request, failure: Some(failure) });
            }
        };
        let environment = asked.environment.unwrap_or_default();
        let arguments = large(&asked.arguments);
        let (request, fresh, may_repeat, preemptible) =
            (asked.request, asked.fresh, asked.may_repeat, asked.preemptible);
        let client = from;
        let want = PendingKind::Lease { client, request, environment, fresh, home, arguments, may_repeat, preemptible };
        match self.enqueue(want, Claimant::new(job, asked.priority), asked.label, need) {
            Ok(ticket) => {
                let client = self.clients.by_key.get_mut(&from).expect("it was just looked up");
                client.waiting.insert(asked.request, ticket);
            }
            Err(text) => self.refuse_lease(from, asked.request, text),
        }
    }

    pub(super) fn lease_cancel(&mut self, from: Key, request: LeaseRequestNumber) {
        if let Some(ticket) = self.clients.waits_no_more(from, request) {
            self.pending.withdraw(ticket);
        }
    }

    /// A lease is over because its owner says so. One that ended by itself is unknown here, which is no error:
    /// the two messages crossed.
    pub(super) fn lease_return(&mut self, from: Key, number: LeaseNumber, retiring: bool) {
        let key = self.clients.by_key.get_mut(&from).and_then(|client| client.leases.remove(&number));
        let Some(Lease { worker, .. }) = key.and_then(|key| self.workers.leases.remove(&key)) else {
            return self.durable.resumption.claim_no_longer(from, number);
        };
        let Some(found) = self.workers.by_key.get(&worker) else { return };
        let (job, once) = (found.job, found.once);
        if self.jobs.is_ending(job) {
            return self.kill_worker(worker);
        }
        if retiring {
            self.exits_by(
                worker,
                ExitKind::IntendedUser,
                "it left after a task: that ended it, or was the last of max_calls",
            );
        }
        if once || retiring {
            return self.dismiss_worker(worker);
        }
        self.return_to_member(worker);
    }

    /// The owner can reach the worker no more: it is told of the worker's end as of any other.
    pub(super) fn lease_kill(&mut self, from: Key, number: LeaseNumber) {
        let key = self.clients.by_key.get(&from).and_then(|client| client.leases.get(&number));
        if let Some(lease) = key.and_then(|key| self.workers.leases.get(key)) {
            self.kill_broken_worker(lease.worker);
        } else {
            self.durable.resumption.claim_to_end(from, number);
        }
    }

    /// Only the owner knows where a task is; with it the task is gone too.
    pub(super) fn pass_to_owner(&mut self, asked: CancelObject) {
        if let Some(key) = asked.owner.and_then(|owner| self.clients.key_of(owner)) {
            self.send(key, asked);
        }
    }
}
