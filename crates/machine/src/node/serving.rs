//! The head that a node serves: what it orders, and what it is told.

use super::NodeCore;
use super::assign::device_numbers;
use crate::encoding::{device_sizes, devices_free, nearness};
use crate::environments::merged;
use crate::isolation::Refusal;
use crate::memory::Caller;
use crate::origin::Origin;
use crate::served_head::{Held, Link, ServedHead, SetAside};
use crate::worker::{Duty, Job, Post, Progress, Worker};
use crate::{Effect, GroupMembership, Key, amounts, demand};
use oxiray_ids::{JobId, WorkerNumber};
use oxiray_resources::{Demand, Grant};
use oxiray_wire::message::{
    DevicesFree, Environment, Failure, FailureCode, HeadOrder, JobAnnounced, NodeJoin, NodeReport, NodeState, Notice,
    Place, PlaceRefused, Placed,
};
use oxiray_wire::state::{DaemonStatistics, HealthState, NodeStatistics};
use std::collections::BTreeMap;

/// How a node gets fences, for who must have one.
const WAYS_TO_A_FENCE: &str = "Fences take root, or a cgroup that is delegated with CAP_BPF and CAP_NET_ADMIN, or a kernel with \
                               Landlock (NVIDIA's devices only): `oxiray hardware` tells what is missing";
/// In how many steps a node tells how full its store is.
const STORE_STEPS: u64 = 256;

impl NodeCore {
    /// From here on this node serves a head, which is told of the node in words that are returned. `listens` is where
    /// nodes of other machines reach this one; empty where there are none.
    pub fn serve(&mut self, stream: Option<Key>, listens: String) -> NodeJoin {
        let join = self.described(0, listens);
        self.told_all_holdings();
        let told = NodeState { bundles: Vec::new(), holdings: Vec::new(), ..join.state.clone().unwrap_or_default() };
        let is_far = !join.listens.is_empty();
        let link = stream.map_or(Link::InProcess(Vec::new()), |key| Link::Stream { key, is_far });
        let (bundles, held) = (SetAside::default(), BTreeMap::new());
        self.head = Some(ServedHead { link, order: 0, told, bundles, held });
        join
    }

    /// What this node is, for a head.
    pub fn described(&self, order: u64, listens: String) -> NodeJoin {
        NodeJoin {
            node: self.plan.node,
            ip: self.plan.ip.clone(),
            hostname: self.plan.hostname.clone(),
            started_ms: self.plan.started_ms,
            labels: self.plan.labels.clone(),
            totals: amounts(self.ledger.inventory().totals()),
            state: Some(NodeState {
                bundles: self.all_bundles_for_head(),
                holdings: self.all_holdings(),
                ..self.node_state(order)
            }),
            session: self.about.session.clone(),
            name: self.plan.name.clone(),
            listens,
            device_sizes: device_sizes(self.ledger.inventory(), &self.plan.offer),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            nearness: nearness(self.ledger.inventory()),
        }
    }

    /// The head's stream, where there is one.
    pub fn head_key(&self) -> Option<Key> {
        match self.head.as_ref()?.link {
            Link::Stream { key, .. } => Some(key),
            Link::InProcess(_) => None,
        }
    }

    /// What a head in this process is to hear.
    pub fn reports(&mut self) -> Vec<NodeReport> {
        match self.head.as_mut().map(|head| &mut head.link) {
            Some(Link::InProcess(reports)) => std::mem::take(reports),
            Some(Link::Stream { .. }) | None => Vec::new(),
        }
    }

    /// Tells the head.
    pub(super) fn report(&mut self, report: impl Into<NodeReport>) {
        match self.head.as_mut().map(|head| &mut head.link) {
            Some(Link::InProcess(reports)) => reports.push(report.into()),
            Some(Link::Stream { key, .. }) => {
                self.out.push(Effect::Send { to: *key, message: report.into().into() });
            }
            None => {}
        }
    }

    /// What the head orders.
    pub fn head_said(&mut self, order: HeadOrder) {
        match order {
            HeadOrder::JobAnnounced(told) => self.job_told(*told),
            HeadOrder::JobOver(said) => self.job_over(said.job),
            HeadOrder::EnvironmentMade(said) => self.environment_made(*said),
            HeadOrder::Place(order) => self.place_for_head(*order),
            HeadOrder::GroupPrepare(order) => self.prepare_for_head(&order),
            HeadOrder::GroupRelease(said) => self.release_for_head(&said),
            HeadOrder::WorkerReturn(said) => self.make_idle(said.worker.0),
            HeadOrder::WorkerKill(said) => self.kill_worker(said.worker.0),
            HeadOrder::DeviceOrder(order) => self.device_ordered(&order),
        }
    }

    fn job_told(&mut self, told: JobAnnounced) {
        let (id, Some(driver)) = (told.job, told.driver) else { return };
        let origin = Origin::plain(&driver.interpreter);
        let job = Job { driver: told.driver_id, told: driver, is_over: false };
        self.jobs.insert(id, job);
        self.ensure_template(&origin, Some(id));
    }

    fn job_over(&mut self, id: JobId) {
        self.refuse_held_of(id);
        if let Some(job) = self.jobs.get_mut(&id) {
            job.is_over = true;
        }
        self.forget_job_when_over(id);
    }

    /// Nothing of a job that is over is left here.
    pub(super) fn forget_job_when_over(&mut self, id: JobId) {
        let is_used = self.workers.values().any(|worker| worker.job == Some(id));
        if !is_used && self.jobs.get(&id).is_some_and(|job| job.is_over) {
            self.jobs.remove(&id);
            self.templates.forget(id);
            self.environments.release(id, self.now);
            self.see_to_environments();
        }
    }

    /// Has the driver of a job told something that its user should know.
    pub(super) fn notify(&mut self, job: JobId, text: &str) {
        if self.jobs.get(&job).is_some_and(|job| !job.is_over) {
            self.report(Notice { text: text.to_owned(), job: Some(job) });
        }
    }

    fn place_for_head(&mut self, order: Place) {
        let Some(head) = &mut self.head else { return };
        head.order = order.order;
        let (number, job) = (order.order, order.job);
        let is_known = self.jobs.get(&job).is_some_and(|job| !job.is_over);
        if let Some(grant) = is_known.then(|| self.grant_for_head(&order)).flatten() {
            return self.begin_order(order, grant);
        }
        let state = Some(self.news(number));
        self.report(PlaceRefused { order: number, state, failure: None });
    }

    /// Has a worker for an order whose environment is there.
    pub(super) fn carry_out_order(&mut self, order: Place, grant: Grant) {
        let (number, job) = (order.order, order.job);
        let actor = order.actor.as_ref().map(|actor| actor.actor);
        let (grant, surplus) = match actor {
            Some(_) => self.split(grant, &demand(&order.running).unwrap_or_default()),
            None => (grant, None),
        };
        let of_job = self.jobs.get(&job).and_then(|job| job.told.environment.as_ref());
        let environment = merged(of_job, order.environment.as_ref().unwrap_or(&Environment::default()));
        let home = order.group.map(|group| GroupMembership { group, captures: order.captures });
        if let Some(why) = self.unusable(&grant) {
            if let Some(surplus) = surplus {
                self.ledger.release(surplus);
            }
            let code = if actor.is_some() { FailureCode::ActorUnschedulable } else { FailureCode::TaskUnschedulable };
            let (node, ip) = (self.plan.node, &self.plan.ip);
            let failure =
                code.because(format!("`{}` cannot run on node {node} ({ip}): {why}. Ask for one", order.label));
            return self.refuse_order(Held { order, grant }, Some(failure));
        }
        let told = match self.assignment(&environment, &grant, home) {
            Ok(told) => told,
            Err(refusal) => {
                if let Some(surplus) = surplus {
                    self.ledger.release(surplus);
                }
                let failure = self.not_isolated(&order.label, refusal);
                return self.refuse_order(Held { order, grant }, Some(failure));
            }
        };
        let post = Post {
            job,
            duty: actor.map_or(Duty::Leased(number), Duty::Actor),
            environment,
            label: order.label,
            fresh: order.fresh,
            outlives_job: order.outlives_job,
            actor: order.actor,
            home,
            caller: Caller {
                owner: order.owner.unwrap_or_default(),
                may_repeat: order.may_repeat,
                priority: order.priority,
                preemptible: order.preemptible,
            },
        };
        let key = self.appoint(post, (grant, surplus), told).expect("orders of a job that is over are refused");
        let worker = &self.workers[&key];
        let (id, pid, once) = (worker.id, worker.pid.unwrap_or(0), worker.once);
        let devices = worker.grant.as_ref().filter(|_| order.preemptible).map(device_numbers).unwrap_or_default();
        self.report(Placed { order: number, worker: WorkerNumber(key), id, pid, once, devices });
    }

    /// Why a task or actor does not run here that is to be kept from devices in another way than it can be.
    fn not_isolated(&self, label: &str, refusal: Refusal) -> Failure {
        let (node, ip, mode) = (self.plan.node, &self.plan.ip, self.plan.isolation.asked.word());
        let text = match refusal {
            Refusal::Weaker { asked } => format!(
                "task or actor `{label}` asks for device_isolation=\"{}\", and node {node} ({ip}) was started with \
                 --device-isolation={mode}, which is stricter: a request may only ask for more. Leave device_isolation out, or \
                 ask for \"{mode}\"",
                asked.word()
            ),
            Refusal::Unfenced { is_own_wish: true, why } => format!(
                "task or actor `{label}` asks for device_isolation=\"require\", and no fence is possible for it on node {node} \
                 ({ip}): {why}. {WAYS_TO_A_FENCE}; or ask for device_isolation=\"fence\" to have it run all the same"
            ),
            Refusal::Unfenced { is_own_wish: false, why } => format!(
                "task or actor `{label}` is to be fenced on node {node} ({ip}), which was started with \
                 --device-isolation=require, and cannot be: {why}. {WAYS_TO_A_FENCE}; or start the node with \
                 --device-isolation=fence to have it run all the same"
            ),
        };
        FailureCode::DeviceIsolation.because(text)
    }

    fn split(&mut self, grant: Grant, running: &Demand) -> (Grant, Option<Grant>) {
        if grant.demand() == running {
            return (grant, None);
        }
        let before = grant.id();
        let (running, surplus) = self.ledger.divide(grant, running);
        self.choices_pass(before, running.id());
        (running, Some(surplus))
    }

    /// The actor's constructor returned: what only that needed is given back.
    pub(super) fn actor_ready(&mut self, worker: Key) {
        let Some(worker) = self.workers.get_mut(&worker) else { return };
        if matches!(worker.duty, Duty::Actor(_)) {
            worker.progress = Progress::Ready;
            if let Some(surplus) = worker.surplus.take() {
                self.ledger.release(surplus);
            }
        }
    }

    /// A worker stays for the tasks that it made: these may need what it lends.
    pub(super) fn lingers(&mut self, worker: Key) {
        self.blocked(worker);
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.progress = Progress::Lingering;
        }
    }

    /// A worker that blocks lends its CPUs; an actor keeps them.
    pub(super) fn blocked(&mut self, worker: Key) {
        if let Some(grant) = self.workers.get_mut(&worker).and_then(Worker::grant_on_lease) {
            self.ledger.lend_cpu(grant);
        }
    }

    pub(super) fn unblocked(&mut self, worker: Key) {
        if let Some(grant) = self.workers.get_mut(&worker).and_then(Worker::grant_on_lease) {
            self.ledger.restore_cpu(grant);
        }
    }

    /// The worker of an order that is over serves the next one.
    fn make_idle(&mut self, worker: Key) {
        let serves = |duty| matches!(duty, Duty::Leased(_));
        if self.workers.get(&worker).is_some_and(|worker| serves(worker.duty) && !worker.is_doomed) {
            self.idle_worker(worker);
        }
    }

    /// Bytes that objects take in this node's store; whether that is news.
    pub fn store_holds(&mut self, bytes: u64) -> bool {
        // In steps, so that not every object is told of.
        let step = (self.plan.store_bytes / STORE_STEPS).max(1);
        let used = bytes.div_ceil(step) * step;
        std::mem::replace(&mut self.usage.store_used, used) != used
    }

    /// How the machine and its workers' processes are.
    pub fn machine_measured(&mut self, found: NodeStatistics) {
        self.usage.untold = Some(found);
    }

    /// How its daemon is: the head is told with the machine's statistics.
    pub fn daemon_measured(&mut self, found: DaemonStatistics) {
        self.usage.untold_of_daemon = Some(found);
    }

    /// Tells the head what the ledger has, where that changed.
    pub fn tell_state(&mut self) {
        let Some(order) = self.head.as_ref().map(|head| head.order) else { return };
        let state = self.node_state(order);
        let (bundles, dissolved) = self.changed_bundles_for_head();
        let holdings = self.changed_holdings();
        let statistics = self.usage.untold.take();
        let daemon = self.usage.untold_of_daemon.take_if(|_| statistics.is_some());
        let head = self.head.as_mut().expect("it was just found");
        let is_new = head.told != state || !bundles.is_empty() || !dissolved.is_empty();
        if is_new || !holdings.is_empty() || statistics.is_some() {
            head.told = state.clone();
            self.report(NodeState { bundles, dissolved, holdings, statistics, daemon, ..state });
        }
    }

    /// What the ledger has, for a head that is told of it whether or not that changed.
    pub(super) fn news(&mut self, order: u64) -> NodeState {
        let (bundles, dissolved) = self.changed_bundles_for_head();
        NodeState { bundles, dissolved, holdings: self.changed_holdings(), ..self.node_state(order) }
    }

    /// What the ledger has, without its bundles.
    fn node_state(&self, order: u64) -> NodeState {
        let names = self.ledger.inventory().totals().map(|(name, _)| name).filter(|name| name.is_device());
        let devices = names.map(|name| {
            let free = self.ledger.free_per_device(name.as_str());
            let is_well = |slot: &u32| self.devices.health.state(&(name.to_string(), *slot)) == HealthState::Healthy;
            let healthy = free.in_service().map(|(slot, _)| slot).filter(is_well).collect();
            DevicesFree { healthy, ..devices_free(name, &free, Vec::new()) }
        });
        let devices = devices.collect();
        let available = self.ledger.available();
        let free =
            amounts(available.iter().filter(|(name, _)| !name.is_device()).map(|(name, amount)| (name, *amount)));
        let (uses, conditions) = (self.devices.measured.uses.clone(), self.device_conditions());
        let (store_used, withdrawn_labels) = (self.usage.store_used, self.devices.health.links.withdrawn_labels());
        let isolation = self.devices.kept.clone();
        NodeState {
            order,
            free,
            devices,
            store_used,
            uses,
            conditions,
            withdrawn_labels,
            isolation,
            ..NodeState::default()
        }
    }
}
