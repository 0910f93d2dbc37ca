//! Which process becomes whose worker, and what it is told.

use super::NodeCore;
use crate::environments::merged;
use crate::served_head::Link;
use crate::worker::{Duty, Post};
use crate::{BundleKey, Key, amounts};
use oxiray_accelerators::{WorkerEnvironment, environment, visible_ids};
use oxiray_families::device_resources;
use oxiray_ids::{JobId, WorkerId};
use oxiray_resources::{Grant, Quantity, ResourceName};
use oxiray_wire::message::{Assign, Devices, Environment, Variable, Welcome};
use std::collections::BTreeMap;

/// How many threads numeric libraries start.
const THREADS: &str = "OMP_NUM_THREADS";

impl NodeCore {
    /// Finds a worker for the post, tells it what it is, and gives it the grant.
    pub(super) fn appoint(&mut self, post: Post, grant: Grant, surplus: Option<Grant>) -> Option<Key> {
        let job = self.jobs.get(&post.job)?;
        let (driver, setup) = (job.driver, job.told.setup.clone());
        let environment = merged(job.told.environment.as_ref(), &post.environment);
        let once = post.fresh || post.actor.is_some() || !grant.devices().is_empty();
        let reused = if once { None } else { self.take_idle(post.job, &environment) };
        let key = if let Some(key) = reused {
            key
        } else {
            let origin = self.origin_of(post.job, &environment);
            self.take_spare(&origin, post.job)
        };
        let worker = self.workers.get_mut(&key).expect("it was just chosen");
        worker.job = Some(post.job);
        worker.duty = post.duty;
        worker.surplus = surplus;
        worker.once = once;
        worker.outlives_job = post.outlives_job;
        worker.label = post.label;
        worker.home = post.home;
        worker.memory.caller = post.caller;
        worker.environment = environment;
        let id = worker.id;
        let mut assign = self.assignment(&self.workers[&key].environment, &grant);
        assign.worker = id;
        assign.welcome = Some(self.welcome(id, post.job));
        assign.setup = setup;
        assign.driver = driver;
        assign.actor = post.actor;
        assign.group = post.home.map(|home| home.group);
        assign.captures = post.home.is_some_and(|home| home.captures);
        assign.environment = Some(self.workers[&key].environment.clone());
        self.workers.get_mut(&key).expect("it was just chosen").grant = Some(grant);
        self.confine(key);
        self.send(key, assign);
        Some(key)
    }

    /// Who a worker is, and where.
    fn welcome(&self, id: WorkerId, job: JobId) -> Welcome {
        let namespace = self.jobs.get(&job).map(|job| job.told.namespace.clone()).unwrap_or_default();
        let is_with_head = self.head.as_ref().is_some_and(|head| matches!(head.link, Link::InProcess(_)));
        Welcome {
            node: self.plan.node,
            worker: id,
            job,
            namespace,
            session: self.about.session.clone(),
            address: self.about.address.clone(),
            totals: amounts(self.ledger.inventory().totals()),
            epoch: self.about.epoch,
            comes_back: self.about.epoch > 0 && is_with_head,
        }
    }

    fn take_idle(&mut self, job: JobId, environment: &Environment) -> Option<Key> {
        let fits = |key: &Key| {
            let worker = &self.workers[key];
            worker.job == Some(job) && worker.environment == *environment
        };
        // The one that served last has the warmest caches.
        let position = self.idle.iter().rposition(fits)?;
        Some(self.idle.remove(position))
    }

    /// The part of [`Assign`] that follows from what was granted.
    fn assignment(&self, own: &Environment, grant: &Grant) -> Assign {
        let slots: Vec<(&str, Vec<u32>)> = grant
            .devices()
            .iter()
            .map(|of| (of.resource.as_str(), of.shares.iter().map(|share| share.device).collect()))
            .collect();
        let own_variables: BTreeMap<&str, Option<&str>> =
            own.variables.iter().map(|variable| (variable.name.as_str(), variable.value.as_deref())).collect();
        let node = |name: &str| self.plan.variables.get(name).cloned();
        let own_value = |name: &str| own_variables.get(name).copied().flatten().map(str::to_owned);
        let around = WorkerEnvironment { node: &node, own: &own_value };
        let mut variables = own.variables.clone();
        let shown = environment(&self.plan.offer, &slots, around);
        variables.extend(shown.into_iter().map(|(name, value)| Variable { name, value }));
        if node(THREADS).is_none() && !own_variables.contains_key(THREADS) {
            let threads = grant.demand().get("CPU").wholes().max(1);
            variables.push(Variable { name: THREADS.into(), value: Some(threads.to_string()) });
        }
        let devices = slots.iter().map(|(resource, slots)| {
            let (ids, preset) = visible_ids(&self.plan.offer, resource, slots, around);
            Devices { resource: (*resource).to_owned(), ids, preset }
        });
        Assign { variables, devices: devices.collect(), resources: amounts(grant.demand().iter()), ..Assign::default() }
    }

    /// Who holds shares of a device: the process, in words where it is not one that `of_bundle` names, and how much.
    pub fn holders_of(
        &self,
        (resource, slot): (&str, u32),
        of_bundle: impl Fn(BundleKey) -> String,
    ) -> Vec<(u32, String, Quantity)> {
        let by_grant: BTreeMap<_, _> =
            self.workers.values().filter_map(|worker| Some((worker.grant.as_ref()?.id(), worker))).collect();
        let holders = self.ledger.holders(resource, slot).into_iter().map(|(grant, share)| {
            let found = by_grant.get(&grant);
            let ending = || "a process that is ending".to_owned();
            let unnamed = || self.bundle_of(grant).map_or_else(ending, &of_bundle);
            let label = found.map_or_else(unnamed, |worker| worker.label.clone());
            (found.and_then(|worker| worker.pid).unwrap_or(0), label, share)
        });
        holders.collect()
    }

    /// Who holds some of a resource that has no devices, in words. Who waits for others lends its CPUs.
    pub fn holders_in_words(&self, resource: &str) -> Vec<String> {
        let holders = self.workers.values().filter_map(|worker| {
            let grant = worker.grant.as_ref().filter(|grant| !grant.cpu_is_lent() || resource != "CPU")?;
            let amount = grant.demand().get(resource);
            let pid = worker.pid.unwrap_or(0);
            (!amount.is_zero()).then(|| format!("pid {pid} ({}: {amount})", worker.label))
        });
        holders.collect()
    }

    /// What a worker holds, and nothing for one of another machine.
    pub fn held_by(&self, worker: Key) -> impl Iterator<Item = (&ResourceName, Quantity)> {
        let grant = self.workers.get(&worker).and_then(|worker| worker.grant.as_ref());
        grant.into_iter().flat_map(|grant| grant.demand().iter())
    }

    /// The workers that are nobody's, and their processes.
    pub fn spares(&self) -> impl Iterator<Item = (WorkerId, Option<u32>)> + '_ {
        let spare = self.workers.values().filter(|worker| worker.duty == Duty::Spare);
        spare.map(|worker| (worker.id, worker.pid))
    }

    /// Whose output a worker's is: the worker and the job that it works for, of none where it is a spare one.
    pub fn named_in_logs(&self, worker: Key) -> Option<(WorkerId, JobId)> {
        let worker = self.workers.get(&worker)?;
        Some((worker.id, worker.job.unwrap_or(JobId::NIL)))
    }

    /// The job that a worker serves, where its driver wants to see what it prints.
    pub fn is_wanted_in_logs(&self, worker: Key) -> bool {
        let job = self.workers.get(&worker).and_then(|worker| self.jobs.get(&worker.job?));
        job.is_some_and(|job| !job.is_over && job.told.wants_logs)
    }

    /// The job that a worker works for.
    pub fn job_of(&self, worker: Key) -> Option<JobId> {
        self.workers.get(&worker)?.job
    }

    /// Every device: resource and slot.
    pub fn devices(&self) -> Vec<(&'static str, u32)> {
        let of = |resource: &'static str| {
            let total = self.ledger.inventory().total(resource);
            (0..total.wholes() as u32).map(move |slot| (resource, slot))
        };
        device_resources().flat_map(|resource| of(resource.name)).collect()
    }
}
