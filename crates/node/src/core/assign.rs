//! Which process becomes whose worker, and what it is told.

use super::{Core, Effect, Key, bytes_of};
use crate::core::clients::amounts;
use crate::core::ending::memory::Caller;
use crate::core::groups::{Home, home_bytes};
use oxiray_accelerators::{WorkerEnvironment, environment, visible_ids};
use oxiray_families::device_resources;
use oxiray_ids::JobId;
use oxiray_resources::{Grant, GrantId, Quantity};
use oxiray_wire::Message;
use oxiray_wire::message::{ActorCreate, Assign, Devices, Environment, Peer, Variable};
use std::collections::BTreeMap;

/// How many threads numeric libraries start.
const THREADS: &str = "OMP_NUM_THREADS";

/// Who the worker is for.
pub(crate) struct Post {
    pub(crate) job: JobId,
    pub(crate) environment: Environment,
    pub(crate) label: String,
    pub(crate) fresh: bool,
    pub(crate) outlives_job: bool,
    pub(crate) actor: Option<ActorCreate>,
    pub(crate) home: Option<Home>,
    pub(crate) caller: Caller,
}

impl Core {
    /// Finds a worker for the post, tells it what it is, and gives it the grant.
    pub(crate) fn appoint(&mut self, post: Post, grant: Grant) -> Option<Key> {
        let detail = self.details.get(&post.job)?;
        let (driver, setup) = (detail.driver_id, detail.told.setup.clone());
        let environment = merged(detail.told.environment.as_ref(), &post.environment);
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
        worker.once = once;
        worker.outlives_job = post.outlives_job;
        worker.label = post.label;
        worker.home = post.home;
        worker.memory.caller = post.caller;
        worker.environment = environment;
        let id = worker.id;
        let mut assign = self.assignment(&self.workers[&key].environment, &grant);
        assign.worker = bytes_of(id.as_bytes());
        assign.welcome = Some(self.welcome(id, post.job));
        assign.setup = setup;
        assign.driver = bytes_of(driver.as_bytes());
        assign.actor = post.actor;
        assign.group = home_bytes(post.home);
        assign.captures = post.home.is_some_and(|home| home.captures);
        assign.environment = Some(self.workers[&key].environment.clone());
        self.workers.get_mut(&key).expect("it was just chosen").grant = Some(grant);
        self.confine(key);
        if reused.is_none() {
            self.join(key, id, post.job);
        }
        self.send(key, assign);
        Some(key)
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

    /// Makes a stream between a client and a worker.
    pub(crate) fn connect(&mut self, client: Key, placed: Message, worker: Key) {
        let Some(id) = self.clients.get(&client).map(|client| client.id) else { return };
        self.out.push(Effect::Join { client, placed, worker, peer: Peer { client: bytes_of(id.as_bytes()) } });
    }

    /// Who holds shares of a device, in words.
    pub(crate) fn holders_of(&self, resource: &str, slot: u32) -> Vec<(u32, String, Quantity)> {
        let by_grant: BTreeMap<_, _> =
            self.workers.values().filter_map(|worker| Some((worker.grant.as_ref()?.id(), worker))).collect();
        let of_group = |id: GrantId| {
            let (group, index) = self.reservations.iter().find_map(|(group, reservation)| {
                let (index, _) = reservation.bundles.iter().find(|(_, bundle)| bundle.grant() == id)?;
                Some((group, *index))
            })?;
            Some(format!("placement group {}, bundle {index}, unused", self.group_name(*group)))
        };
        let holders = self.ledger.holders(resource, slot).into_iter().map(|(grant, share)| {
            let found = by_grant.get(&grant);
            let ending = || "a process that is ending".to_owned();
            let label = found.map_or_else(|| of_group(grant).unwrap_or_else(ending), |worker| worker.label.clone());
            (found.and_then(|worker| worker.pid).unwrap_or(0), label, share)
        });
        holders.collect()
    }

    /// Every device: resource and slot.
    pub(crate) fn devices(&self) -> Vec<(&'static str, u32)> {
        let of = |resource: &'static str| {
            let total = self.ledger.inventory().total(resource);
            (0..total.wholes() as u32).map(move |slot| (resource, slot))
        };
        device_resources().flat_map(|resource| of(resource.name)).collect()
    }
}

/// The task's variables on top of the job's; the other fields come whole from the one or the other. A program of the
/// user's own takes nothing of a job's besides.
pub(crate) fn merged(job: Option<&Environment>, own: &Environment) -> Environment {
    let of_job = job.map_or(&[][..], |environment| &environment.variables);
    let mut by_name: BTreeMap<&str, &Variable> = BTreeMap::new();
    for variable in of_job.iter().chain(&own.variables) {
        by_name.insert(&variable.name, variable);
    }
    let variables = by_name.into_values().cloned().collect();
    let fields = job.filter(|_| own.fields.is_empty() && !own.native).unwrap_or(own);
    Environment { variables, ..fields.clone() }
}
