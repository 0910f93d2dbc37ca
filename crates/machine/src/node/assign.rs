//! Which process becomes whose worker, and what it is told.

use super::NodeCore;
use super::device_memory::asked_memory;
use crate::device_memory::{PRELOAD_VARIABLE, memory_variables};
use crate::isolation::{Decision, DeviceFence, Refusal, Slots};
use crate::served_head::Link;
use crate::worker::{Duty, Post, Worker};
use crate::{Effect, GroupMembership, Key, amounts};
use oxiray_accelerators::{WorkerEnvironment, environment, unusable_together, visible_ids};
use oxiray_families::{device_resource, device_resources};
use oxiray_ids::{JobId, WorkerId};
use oxiray_resources::{DeviceShares, Grant, Quantity, ResourceName};
use oxiray_wire::message::{
    Amount, AskedIsolation, Assign, DeviceFacts, DeviceNumbers, Devices, Environment, Variable, Welcome,
};
use oxiray_wire::state::{DeviceIsolation, DeviceTier, MemoryTier, RealmDevices};
use std::collections::BTreeMap;

/// How many threads numeric libraries start.
const THREADS: &str = "OMP_NUM_THREADS";

/// The devices of a grant.
fn slots_of(grant: &Grant) -> Slots<'_> {
    let of = |devices: &DeviceShares| devices.shares.iter().map(|share| share.device).collect();
    grant.devices().iter().map(|devices| (devices.resource.as_str(), of(devices))).collect()
}

/// The numbers of the devices of a grant, as the head is told of them.
pub(super) fn device_numbers(grant: &Grant) -> Vec<DeviceNumbers> {
    let numbers = |(resource, numbers): (&str, Vec<u32>)| DeviceNumbers { resource: resource.to_owned(), numbers };
    slots_of(grant).into_iter().map(numbers).collect()
}

impl NodeCore {
    /// Finds a worker for the post, tells it what follows from the grant and what it is, and gives it the grant.
    pub(super) fn appoint(
        &mut self,
        post: Post,
        (grant, surplus): (Grant, Option<Grant>),
        (mut assign, decision): (Assign, Decision),
    ) -> Option<Key> {
        let job = self.jobs.get(&post.job)?;
        let (driver, setup) = (job.driver, job.told.setup.clone());
        let environment = post.environment;
        // CORE-3: what the fence lets it open besides its own is open to nobody else's task.
        let holds_devices = !grant.devices().is_empty() || decision.opens_devices();
        let once = post.fresh || post.actor.is_some() || holds_devices;
        let reused = if once { None } else { self.take_idle(post.job, &environment) };
        let key = if let Some(key) = reused {
            key
        } else {
            let mut origin = self.origin_of(post.job, &environment);
            if let Some(value) = self.preload_of(&grant, &environment) {
                origin.variables.retain(|variable| variable.name != PRELOAD_VARIABLE);
                origin.variables.push(Variable { name: PRELOAD_VARIABLE.to_owned(), value: Some(value) });
            }
            self.take_spare(&origin, post.job, decision.by_cgroup.is_some())
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
        (assign.priority, assign.preemptible) = (post.caller.priority, post.caller.preemptible);
        worker.environment = environment;
        let id = worker.id;
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
        self.limit_device_memory(key);
        self.fence(key, decision);
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

    /// Why one process could not use what was granted to it.
    pub(super) fn unusable(&self, grant: &Grant) -> Option<String> {
        unusable_together(&self.plan.offer, &slots_of(grant))
    }

    /// The part of [`Assign`] that follows from what was granted, and how the worker is kept from other devices. An error
    /// says why one that must be fenced cannot be (ISOLATION-1).
    pub(super) fn assignment(
        &self,
        own: &Environment,
        grant: &Grant,
        home: Option<GroupMembership>,
    ) -> Result<(Assign, Decision), Refusal> {
        let slots = slots_of(grant);
        let realm = self.realm_of(&slots, home);
        self.around(own, |around| {
            let decision = self.plan.isolation.decide(own.isolation, &self.plan.offer, (&slots, &realm), around)?;
            let realm = if decision.fence.is_some() { &realm[..] } else { &[] };
            let around = WorkerEnvironment { realm, ..around };
            let mut variables = own.variables.clone();
            let shown = environment(&self.plan.offer, &slots, around);
            variables.extend(shown.into_iter().map(|(name, value)| Variable { name, value }));
            if (around.node)(THREADS).is_none() && !own.variables.iter().any(|variable| variable.name == THREADS) {
                let threads = grant.demand().get("CPU").wholes().max(1);
                variables.push(Variable { name: THREADS.into(), value: Some(threads.to_string()) });
            }
            let devices = slots.iter().map(|(resource, slots)| {
                let (ids, preset) = visible_ids(&self.plan.offer, resource, slots, around);
                let facts = self.device_facts(grant, resource, decision.told.tier, own);
                Devices { resource: (*resource).to_owned(), ids, preset, facts }
            });
            let mut resources = amounts(grant.demand().iter());
            if let Some(granted) = self.memory_granted(grant, own) {
                let (whole, part) = (granted.size_bytes, granted.share);
                if asked_memory(grant).is_some() {
                    resources.push(Amount { resource: ResourceName::GPU.to_string(), units: part.share.units() });
                }
                let is_set = |name: &str| (around.node)(name).is_some() || (around.own)(name).is_some();
                let tier = self.memory_kept(grant, own).map_or(MemoryTier::None, |kept| kept.tier);
                let tells_frameworks = self.plan.isolation.memory.has(MemoryTier::Framework);
                let mut given = memory_variables((part.memory_bytes, whole), tier, tells_frameworks, is_set);
                given.extend(self.preload_of(grant, own).map(|value| (PRELOAD_VARIABLE.to_owned(), value)));
                variables.extend(given.into_iter().map(|(name, value)| Variable { name, value: Some(value) }));
            }
            let (fence, cpus) = (decision.fence.clone(), self.processors_for(grant, &slots));
            let devices = devices.collect();
            Ok((Assign { variables, devices, resources, fence, cpus, ..Assign::default() }, decision))
        })
    }

    /// What a process may know of the devices that it was granted of a resource.
    fn device_facts(
        &self,
        grant: &Grant,
        resource: &str,
        isolation: DeviceTier,
        own: &Environment,
    ) -> Vec<DeviceFacts> {
        let memory = self.memory_kept(grant, own).filter(|_| resource == ResourceName::GPU.as_str());
        let slots = self.plan.offer.of(resource).map_or(&[][..], |of| &of.slots);
        let facts = grant.devices_of(resource).iter().map(|part| {
            let known = slots.get(part.device as usize).and_then(Option::as_ref);
            DeviceFacts {
                slot: part.device,
                uuid: known.and_then(|known| known.uuid.clone()).unwrap_or_default(),
                pci_address: known.and_then(|known| known.pci_address.clone()).unwrap_or_default(),
                share: part.share.units(),
                memory_bytes: part.memory_bytes,
                isolation,
                memory: memory.clone(),
            }
        });
        facts.collect()
    }

    /// The processors that a worker with whole devices is to run on; empty for any. What has a share of one runs anywhere.
    fn processors_for(&self, grant: &Grant, slots: &Slots<'_>) -> String {
        let is_whole = grant.devices().iter().flat_map(|of| &of.shares).all(|share| share.share == Quantity::ONE);
        let near = self.plan.offer.processors_near(slots).filter(|_| is_whole);
        near.unwrap_or_default().to_owned()
    }

    /// Looks at something with the variables of a worker that has these of its own.
    fn around<R>(&self, own: &Environment, look: impl FnOnce(WorkerEnvironment<'_>) -> R) -> R {
        let own: BTreeMap<&str, Option<&str>> =
            own.variables.iter().map(|variable| (variable.name.as_str(), variable.value.as_deref())).collect();
        let node = |name: &str| self.plan.variables.get(name).cloned();
        let own = |name: &str| own.get(name).copied().flatten().map(str::to_owned);
        look(WorkerEnvironment { node: &node, own: &own, realm: &[] })
    }

    /// ISOLATION-2: the devices of a grant, and of its placement group on this machine.
    fn realm_of<'a>(&'a self, granted: &Slots<'a>, home: Option<GroupMembership>) -> Slots<'a> {
        let mut realm: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (resource, slots) in granted {
            realm.entry(resource).or_default().extend(slots);
        }
        let bundles = home.into_iter().flat_map(|home| self.bundles_in(home.group));
        for (resource, slots) in bundles.flat_map(slots_of) {
            realm.entry(resource).or_default().extend(slots);
        }
        realm.into_iter().collect()
    }

    /// ISOLATION-1: the worker has a grant, and is refused what is not its own from here on.
    fn fence(&mut self, key: Key, decision: Decision) {
        if let Some(denied) = decision.by_cgroup {
            self.out.push(Effect::Fence(DeviceFence { worker: key, denied }));
        }
        if decision.fence.is_some() {
            self.devices.open.fenced.insert(key);
        } else {
            self.devices.open.fenced.remove(&key);
        }
        let worker = self.workers.get(&key);
        let granted = worker.and_then(|worker| worker.grant.as_ref()).filter(|grant| !grant.devices().is_empty());
        if granted.is_some() {
            let mut realm: BTreeMap<String, Vec<u32>> = BTreeMap::new();
            for (resource, slot) in self.open_to(key) {
                realm.entry(resource).or_default().push(slot);
            }
            let realm = realm.into_iter().map(|(resource, slots)| RealmDevices { resource, slots }).collect();
            self.devices.isolation.insert(key, DeviceIsolation { realm, ..decision.told });
        }
    }

    /// How this node keeps processes from devices is another way now, or is known for the first time.
    pub(super) fn settle_isolation(&mut self) {
        let first = self.ledger.inventory().totals().map(|(name, _)| name).find(|name| name.is_device());
        self.devices.kept = first.map(|resource| {
            let one: Slots<'_> = vec![(resource.as_str(), vec![0])];
            let decision = self.around(&Environment::default(), |around| {
                self.plan.isolation.decide(AskedIsolation::Unsaid, &self.plan.offer, (&one, &one), around)
            });
            self.plan.isolation.of_node(decision, self.watch_period_s())
        });
    }

    /// ISOLATION-1: a worker's fence could not be made.
    pub fn fence_failed(&mut self, key: Key, why: &str) {
        self.log(format!("worker {key} cannot be fenced and is ended: {why}. No cgroup is counted on from here on"));
        self.plan.isolation.breaks(why);
        self.settle_isolation();
        self.kill_worker(key);
        // What their cgroups refuse them since they were born is not exchanged for what they are granted any more.
        let is_spare = |worker: &Worker| worker.duty == Duty::Spare;
        let spares = self.workers.iter().filter(|(_, worker)| is_spare(worker)).map(|(spare, _)| *spare);
        for spare in spares.collect::<Vec<_>>() {
            self.kill_worker(spare);
        }
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
        let known =
            self.ledger.inventory().totals().filter_map(|(name, total)| Some((device_resource(name.as_str())?, total)));
        let mut known: Vec<_> = known.map(|(resource, total)| (resource.name, total.wholes() as u32)).collect();
        // The families' order, and then that of the names of parts.
        let place = |name: &str| device_resources().position(|resource| resource.name == name).unwrap_or(usize::MAX);
        known.sort_by_key(|(name, _)| place(name));
        known.into_iter().flat_map(|(name, count)| (0..count).map(move |slot| (name, slot))).collect()
    }
}
