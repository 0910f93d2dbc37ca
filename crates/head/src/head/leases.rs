//! Leases: asked for, granted, returned.

use super::fairness::Holder;
use super::groups::{Need, home};
use super::members::OWN;
use super::strategy::resource_request;
use super::validation::{ProtocolError, cut};
use super::{Duty, HeadCore, Key, PendingKind, PendingRequest};
use oxiray_ids::{JobId, ObjectId};
use oxiray_resources::{Demand, Quantity, ResourceName};
use oxiray_scheduler::{PushError, ResourceRequest};
use oxiray_wire::message::{
    Amount, CancelObject, Failure, LargeArgument, LeaseEnded, LeaseGranted, LeaseRefused, LeaseRequest, LeaseRetire,
    OutOfMemory, Strategy, WorkerReturn,
};

/// How many objects of a request are looked for.
pub(super) const LARGE_ARGUMENTS_MAX: usize = 16;

/// The right to one worker.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) owner: Key,
    pub(super) worker: Key,
    /// What the owner calls it: its key, unless that was another owner's lease when the owner came back (DOOR-2).
    pub(super) number: u64,
}

/// What a demand was refused for, in words.
pub(super) type Refusal = String;

impl HeadCore {
    pub(super) fn lease_request(&mut self, from: Key, mut asked: LeaseRequest) {
        asked.label = cut(asked.label);
        let Some(job) = self.clients.by_key.get(&from).map(|client| client.job) else { return };
        if self.clients.by_key.get(&from).is_some_and(|client| client.waiting.contains_key(&asked.request)) {
            return self.expel(from, &ProtocolError::RequestTwice(asked.request));
        }
        if !self.may_begin(from, job) {
            return self.refuse_lease(from, asked.request, "its job is ending".to_owned());
        }
        let label = if asked.label.is_empty() { "a task".to_owned() } else { format!("task `{}`", asked.label) };
        let home = home(asked.strategy.as_ref());
        let need = match (home, &asked.strategy) {
            (Some(_), Some(told)) => self.need_within(&asked.demand, told, &label),
            _ => demand_of(&asked.demand, &label)
                .and_then(|demand| self.check(job, demand, asked.strategy.as_ref(), &label))
                .map(Need::ResourceRequest)
                .map_err(unschedulable),
        };
        let need = match need {
            Ok(need) => need,
            Err(failure) => {
                return self.send(from, LeaseRefused { request: asked.request, failure: Some(failure) });
            }
        };
        let environment = asked.environment.unwrap_or_default();
        let arguments = large(&asked.arguments);
        let (request, fresh, may_repeat) = (asked.request, asked.fresh, asked.may_repeat);
        let want = PendingKind::Lease { client: from, request, environment, fresh, home, arguments, may_repeat };
        match self.enqueue(want, job, asked.label, need) {
            Ok(ticket) => {
                let client = self.clients.by_key.get_mut(&from).expect("it was just looked up");
                client.waiting.insert(asked.request, ticket);
            }
            Err(text) => self.refuse_lease(from, asked.request, text),
        }
    }

    /// Whether nothing new may begin for a job: its driver said goodbye, or is gone.
    pub(super) fn is_ending(&self, job: JobId) -> bool {
        self.jobs.details.get(&job).is_none_or(|detail| detail.said_goodbye || detail.is_over)
    }

    /// Whether a client of the job may have something new begin: detached actors, and who works for them, still may when
    /// the job ends.
    pub(super) fn may_begin(&self, client: Key, job: JobId) -> bool {
        !self.is_ending(job) || self.outlives_its_job(client)
    }

    pub(super) fn refuse_lease(&mut self, to: Key, request: u64, text: String) {
        self.send(to, LeaseRefused { request, failure: Some(unschedulable(text)) });
    }

    /// What is wished for, where it can be met, or waits for a node that can.
    pub(super) fn check(
        &mut self,
        job: JobId,
        demand: Demand,
        strategy: Option<&Strategy>,
        label: &str,
    ) -> Result<ResourceRequest, Refusal> {
        let resource_request = resource_request(demand, strategy);
        match self.never(&resource_request) {
            Some(reason) if !self.may_wait_for_a_node(job, &resource_request, &reason, label) => {
                Err(format!("{}{}", reason.message(label), self.why_no_group(&resource_request)))
            }
            _ => Ok(resource_request),
        }
    }

    /// Takes back what somebody waits for, wherever it waits (ENVIRONMENT-2).
    pub(super) fn withdraw(&mut self, ticket: u64) -> Option<PendingRequest> {
        if !self.pending.queue.cancel(&ticket) {
            self.pending.environments.withdraw(ticket);
            self.pending.ahead.withdraw(ticket);
        }
        self.pending.wanted.remove(&ticket)
    }

    /// How many tasks wait for each other from a driver or an actor down to what `client` runs: none in those two.
    fn depth_of(&self, client: Key) -> u32 {
        self.workers.by_key.get(&client).map_or(0, |worker| worker.depth)
    }

    /// Has somebody wait for what they need.
    pub(super) fn push(&mut self, ticket: u64, wanted: &PendingRequest, need: Need) -> Result<(), PushError> {
        let from = match &wanted.want {
            PendingKind::Lease { client, .. } => Some(*client),
            PendingKind::Group { maker, .. } => Some(*maker),
            PendingKind::Actor(id) => {
                let spec = self.actors.making.get(id).and_then(|making| making.spec.as_ref());
                spec.and_then(|spec| self.clients.keys.get(&spec.owner).copied())
            }
        };
        let depth = from.map_or(0, |client| self.depth_of(client));
        self.pending.queue.push_from(depth, wanted.job, ticket, need)
    }

    pub(super) fn enqueue(&mut self, want: PendingKind, job: JobId, label: String, need: Need) -> Result<u64, Refusal> {
        let ticket = self.new_key();
        let wanted = PendingRequest { want, job, label, since: self.clock.now, is_brought: false };
        // It waits for its environment first, and only then for resources.
        if let Some(need) = self.await_environment(ticket, &wanted, need) {
            self.push(ticket, &wanted, need).map_err(|error| error.to_string())?;
        }
        self.pending.wanted.insert(ticket, wanted);
        self.pending.is_due = true;
        self.pending.fairness.reclaim.someone_came = true;
        Ok(ticket)
    }

    pub(super) fn lease_cancel(&mut self, from: Key, request: u64) {
        let Some(client) = self.clients.by_key.get_mut(&from) else { return };
        if let Some(ticket) = client.waiting.remove(&request) {
            self.withdraw(ticket);
        }
    }

    /// The lease's worker died with its node.
    pub(super) fn lease_lost(&mut self, key: u64, text: &str, was_drained: bool) {
        let Some(Lease { owner, number, .. }) = self.workers.leases.remove(&key) else { return };
        if let Some(client) = self.clients.by_key.get_mut(&owner) {
            client.leases.remove(&number);
            let text = text.to_owned();
            self.send(owner, LeaseEnded { lease: number, text, node_died: true, was_drained, ..LeaseEnded::default() });
        }
    }

    /// A lease is over because its owner says so. One that ended by itself is unknown here, which is no error:
    /// the two messages crossed.
    pub(super) fn lease_return(&mut self, from: Key, number: u64, retiring: bool) {
        let key = self.clients.by_key.get_mut(&from).and_then(|client| client.leases.remove(&number));
        let Some(Lease { worker, .. }) = key.and_then(|key| self.workers.leases.remove(&key)) else {
            return self.claim_no_longer(from, number);
        };
        let Some(found) = self.workers.by_key.get(&worker) else { return };
        let (job, once) = (found.job, found.once);
        if self.is_ending(job) {
            return self.kill_worker(worker);
        }
        if once || retiring {
            return self.dismiss_worker(worker);
        }
        self.return_to_member(worker);
    }

    /// The lease of a worker is over: its machine has it serve the next one.
    pub(super) fn return_to_member(&mut self, worker: Key) {
        let (member, number) = self.route(worker).unwrap_or((OWN, worker));
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

    /// The owner can reach the worker no more: it is told of the worker's end as of any other.
    pub(super) fn lease_kill(&mut self, from: Key, number: u64) {
        let key = self.clients.by_key.get(&from).and_then(|client| client.leases.get(&number));
        if let Some(lease) = key.and_then(|key| self.workers.leases.get(key)) {
            self.kill_worker(lease.worker);
        } else {
            self.claim_to_end(from, number);
        }
    }

    /// Only the owner knows where a task is; with it the task is gone too.
    pub(super) fn pass_to_owner(&mut self, asked: CancelObject) {
        if let Some(key) = asked.owner.and_then(|owner| self.clients.keys.get(&owner).copied()) {
            self.send(key, asked);
        }
    }

    /// The worker is the owner's now.
    pub(super) fn grant_lease(&mut self, client: Key, request: u64, worker: Key) {
        let lease = self.new_key();
        let depth = self.depth_of(client).saturating_add(1);
        let found = self.workers.by_key.get_mut(&worker).expect("a worker was just chosen");
        found.duty = Duty::Leased(lease);
        found.depth = depth;
        let worker_id = found.id;
        self.workers.leases.insert(lease, Lease { owner: client, worker, number: lease });
        let owner = self.clients.by_key.get_mut(&client).expect("requests of the gone are cancelled");
        owner.waiting.remove(&request);
        owner.leases.insert(lease, lease);
        let granted =
            LeaseGranted { request, lease, worker: worker_id, is_alone: self.members.is_alone(), is_near: false };
        self.connect(client, granted.into(), worker);
    }

    /// The lease's worker died before it was returned (CORE-2).
    pub(super) fn lease_ended(&mut self, key: u64, text: &str, failure: Option<&Failure>) {
        let Some(Lease { owner, worker, number }) = self.workers.leases.remove(&key) else { return };
        if let Some(client) = self.clients.by_key.get_mut(&owner) {
            client.leases.remove(&number);
            let failure = failure.cloned();
            let (text, was_drained) = (text.to_owned(), self.dies_of_drain(worker));
            let ended = LeaseEnded {
                lease: number,
                text,
                node_died: was_drained,
                failure,
                was_drained,
                out_of_memory: OutOfMemory::None,
            };
            self.send(owner, self.with_cause(worker, ended));
        }
    }
}

/// The demand that the amounts make.
pub(super) fn demand_of(amounts: &[Amount], label: &str) -> Result<Demand, Refusal> {
    let named = amounts.iter().map(|amount| {
        let name = ResourceName::new(&amount.resource).map_err(|error| format!("{label}: {error}"))?;
        Ok((name, Quantity::from_units(amount.units)))
    });
    Demand::new(named.collect::<Result<Vec<_>, Refusal>>()?).map_err(|error| format!("{label}: {error}"))
}

/// The objects that a request names.
fn large(arguments: &[LargeArgument]) -> Vec<(ObjectId, u64)> {
    arguments.iter().take(LARGE_ARGUMENTS_MAX).map(|argument| (argument.object, argument.bytes)).collect()
}

fn unschedulable(text: String) -> Failure {
    Failure { code: "task_unschedulable".into(), text, cause: bytes::Bytes::new() }
}
