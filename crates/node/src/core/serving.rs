//! A node that serves a head: it carries out orders within its own ledger, and tells what becomes of its workers.

use super::clients::amounts;
use super::shortage::Noticed;
use super::{Core, Duty, JobDetail, Key, Origin, bytes_of, identifier};
use crate::core::assign::Post;
use crate::core::ending::memory::Caller;
use crate::core::groups::Home;
use crate::core::rooms::BundleKey;
use oxiray_ids::{ActorId, JobId, PlacementGroupId, WorkerId};
use oxiray_resources::{BundleId, Demand, Grant, Quantity, ResourceName};
use oxiray_wire::Message;
use oxiray_wire::message::{
    Amount, DevicesFree, JobTold, NodeJoin, NodeState, Place, PlaceRefused, Placed, WorkerDied, WorkerForked,
    WorkerGone,
};
use std::collections::BTreeMap;

/// In how many steps a node tells how full its store is.
const STORE_STEPS: u64 = 256;

/// The head that this node serves.
#[derive(Debug)]
pub(crate) struct Head {
    /// Its control stream.
    pub(crate) key: Key,
    /// The last order taken.
    pub(crate) order: u64,
    pub(crate) told: NodeState,
    /// The bundles that are set aside for it.
    pub(crate) bundles: BTreeMap<BundleKey, BundleId>,
    /// Whether it is on another machine, or treated as if it were.
    pub(crate) is_far: bool,
    /// Orders that wait for their environments.
    pub(crate) held: BTreeMap<u64, super::held::Held>,
    /// How this node is being emptied.
    pub(crate) draining: Option<super::drain::Told>,
}

impl Core {
    /// From here on this node serves the head at the other end of a stream. `listens` is where nodes of other machines
    /// reach it; empty where there are none.
    pub fn serve_head(&mut self, key: Key, listens: String) {
        let join = self.described(0, listens);
        let told = join.state.clone().unwrap_or_default();
        let is_far = !join.listens.is_empty();
        self.head =
            Some(Head { key, order: 0, told, bundles: BTreeMap::new(), is_far, held: BTreeMap::new(), draining: None });
        self.send(key, join);
    }

    /// What this node is, for a head.
    pub(crate) fn described(&self, order: u64, listens: String) -> NodeJoin {
        NodeJoin {
            node: bytes_of(self.plan.node.as_bytes()),
            ip: self.plan.ip.clone(),
            hostname: self.plan.hostname.clone(),
            labels: self.plan.labels.clone(),
            totals: amounts(self.ledger.inventory().totals()),
            state: Some(self.node_state(order)),
            session: self.session.clone(),
            name: self.plan.name.clone(),
            listens,
            draining: self.draining_told(),
        }
    }

    /// The head's stream, where this node serves one.
    pub fn head_key(&self) -> Option<Key> {
        self.head.as_ref().map(|head| head.key)
    }

    /// What the head orders.
    pub fn head_said(&mut self, message: Message) {
        match message {
            Message::JobTold(told) => self.job_told(*told),
            Message::Draining(said) => self.note_draining(&said),
            Message::JobOver(said) => {
                let job = identifier!(JobId, &said.job);
                self.refuse_held_of(job);
                if let Some(detail) = self.details.get_mut(&job) {
                    detail.is_over = true;
                }
                self.forget_job_when_over(job);
            }
            Message::Place(order) => self.place_for_head(*order),
            Message::GroupPrepare(order) => self.prepare_for_head(&order),
            Message::GroupRelease(said) => self.release_for_head(&said),
            Message::WorkerReturn(said) => self.make_idle(said.worker),
            Message::WorkerKill(said) => self.kill_worker(said.worker),
            other => self.log(format!("the head sent a message of kind {} that is not for a member", other.kind())),
        }
    }

    fn job_told(&mut self, told: JobTold) {
        let (job, Some(driver)) = (identifier!(JobId, &told.job), told.driver) else { return };
        let Some(head) = self.head_key() else { return };
        let driver_id = identifier!(WorkerId, &told.driver_id);
        self.jobs.learn(job, driver_id, driver.pid, &driver.namespace);
        let detail = JobDetail {
            // What is for the driver goes to the head, which passes it on.
            driver: head,
            driver_id,
            told: driver,
            said_goodbye: false,
            is_over: false,
            noticed: Noticed::default(),
        };
        let origin = Origin::plain(&detail.told.interpreter);
        self.details.insert(job, detail);
        self.ensure_template(&origin, Some(job));
    }

    fn place_for_head(&mut self, order: Place) {
        let Some(head) = &mut self.head else { return };
        head.order = order.order;
        let (to, number, job) = (head.key, order.order, identifier!(JobId, &order.job));
        let is_known = self.details.get(&job).is_some_and(|detail| !detail.is_over);
        let granted =
            demand(&order.demand).filter(|_| is_known).and_then(|demand| self.grant_for_head(&order, &demand));
        if let Some(grant) = granted {
            return self.begin_order(order, grant);
        }
        let state = Some(self.node_state(number));
        self.send(to, PlaceRefused { order: number, state, failure: None });
    }

    /// Has a worker for an order whose environment is there.
    pub(crate) fn carry_out_order(&mut self, order: Place, grant: Grant) {
        let Some(to) = self.head_key() else { return };
        let (number, job) = (order.order, identifier!(JobId, &order.job));
        let actor = order.actor.as_ref().map(|actor| identifier!(ActorId, &actor.actor));
        let (grant, surplus) = match actor {
            Some(_) => self.split(grant, &demand(&order.running).unwrap_or_default()),
            None => (grant, None),
        };
        let environment = order.environment.unwrap_or_default();
        let post = Post {
            job,
            environment,
            label: order.label,
            fresh: order.fresh,
            outlives_job: order.outlives_job,
            actor: order.actor,
            home: (!order.group.is_empty())
                .then(|| Home { group: identifier!(PlacementGroupId, &order.group), captures: order.captures }),
            caller: Caller { owner: identifier!(WorkerId, &order.owner), may_repeat: order.may_repeat },
        };
        let key = self.appoint(post, grant).expect("orders of a job that is over are refused");
        let worker = self.workers.get_mut(&key).expect("it was just appointed");
        worker.duty = actor.map_or(Duty::Leased(number), Duty::Actor);
        worker.surplus = surplus;
        let (id, pid, once) = (bytes_of(worker.id.as_bytes()), worker.pid.unwrap_or(0), worker.once);
        self.send(to, Placed { order: number, worker: key, id, pid, once });
    }

    /// The worker of an order that is over serves the next one.
    fn make_idle(&mut self, worker: Key) {
        let serves = |duty| matches!(duty, Duty::Leased(_));
        if self.workers.get(&worker).is_some_and(|worker| serves(worker.duty) && !worker.is_doomed) {
            self.idle_worker(worker);
        }
    }

    /// The worker has its process: the head is told, where it knows of the worker.
    pub(crate) fn tell_forked(&mut self, worker: Key, pid: u32) {
        let is_known = self.workers.get(&worker).is_some_and(|worker| worker.job.is_some());
        if let Some(to) = self.head_key().filter(|_| is_known) {
            self.send(to, WorkerForked { worker, pid });
        }
    }

    pub(crate) fn tell_died(&mut self, worker: Key, text: &str) {
        if let Some(to) = self.head_key() {
            let cause = self.workers.get(&worker).and_then(|worker| worker.memory.cause.clone());
            let out_of_memory = cause.map_or(0, |cause| cause.kind.into());
            self.send(to, WorkerDied { worker, text: text.to_owned(), out_of_memory });
        }
    }

    pub(crate) fn tell_gone(&mut self, worker: Key, text: &str) {
        if let Some(to) = self.head_key() {
            self.send(to, WorkerGone { worker, text: text.to_owned() });
        }
    }

    /// Bytes that objects take in this node's store.
    pub fn store_holds(&mut self, bytes: u64) {
        // In steps, so that not every object is told of.
        let step = (self.plan.store_bytes / STORE_STEPS).max(1);
        self.store_used = bytes.div_ceil(step) * step;
    }

    /// Tells the head what the ledger has, where that changed.
    pub(crate) fn tell_state(&mut self) {
        let Some(order) = self.head.as_ref().map(|head| head.order) else { return };
        let state = self.node_state(order);
        let head = self.head.as_mut().expect("it was just found");
        if head.told != state {
            head.told = state.clone();
            let to = head.key;
            self.send(to, state);
        }
    }

    pub(crate) fn node_state(&self, order: u64) -> NodeState {
        let names = self.ledger.inventory().totals().map(|(name, _)| name).filter(|name| name.is_device());
        let devices = names.map(|name| {
            let free = self.ledger.free_per_device(name.as_str());
            DevicesFree {
                resource: name.to_string(),
                free: free.shares().map(|free| free.map_or(0, |free| free.units() + 1)).collect(),
                numbers: Vec::new(),
            }
        });
        let devices = devices.collect();
        let available = self.ledger.available();
        let free =
            amounts(available.iter().filter(|(name, _)| !name.is_device()).map(|(name, amount)| (name, *amount)));
        let (bundles, uses) = (self.bundles_for_head(), self.measured.uses.clone());
        NodeState { order, free, devices, store_used: self.store_used, bundles, uses }
    }
}

pub(crate) fn demand(amounts: &[Amount]) -> Option<Demand> {
    let named = amounts
        .iter()
        .map(|amount| Some((ResourceName::new(&amount.resource).ok()?, Quantity::from_units(amount.units))));
    Demand::new(named.collect::<Option<Vec<_>>>()?).ok()
}
