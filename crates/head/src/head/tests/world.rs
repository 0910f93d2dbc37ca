//! A world around the core that only remembers.

use super::super::*;
use super::*;
use crate::Core;
use oxiray_accelerators::{Detection, DeviceNode, NodeNumber, SlotDevice, offer};
use oxiray_fence::Isolation;
use oxiray_ids::ObjectId;
use oxiray_ids::{LeaseNumber, NodeId};
use oxiray_journal::{Change, Rows};
use oxiray_machine::Whereabouts;
use oxiray_machine::{CheckOutcome, DeviceMemoryLimit, DeviceQuestion, IsolationPlan, Residue, TemplateKey};
use oxiray_resources::{Inventory, ResourceName, Topology};
use oxiray_wire::message::{
    ActorAnswer, Amount, Assign, ClientToDaemon, Direction as _, Environment, HeadToNode, NodeOfWorker, NodeToDaemon,
    NodeToHead, RelayedToHead, Variable,
};
use oxiray_wire::state::MemoryTier;
use std::time::Duration;

pub(super) struct World {
    pub(super) core: Core,
    /// What is said of devices; nothing where the library does not answer.
    pub(super) residue: Option<Residue>,
    /// The processes whose open nodes were to be looked at, each time.
    pub(super) looked_at: Vec<Vec<u32>>,
    /// Who is in the control groups of workers that are gone.
    pub(super) in_groups: BTreeMap<Key, Vec<u32>>,
    /// What was asked, and not answered.
    pub(super) questions: Vec<DeviceQuestion>,
    pub(super) now: Instant,
    pub(super) sent: Vec<(Key, Message)>,
    joined: Vec<(Key, Message, Key)>,
    killed: BTreeSet<Key>,
    dismissed: BTreeSet<Key>,
    closed: BTreeSet<Key>,
    /// Who was ended for what they said, and for what.
    pub(super) expelled: Vec<(Key, String)>,
    pub(super) deleted: Vec<ObjectId>,
    /// What was found out of objects, and not looked at yet.
    pub(super) found: Vec<Whereabouts>,
    pub(super) running: BTreeSet<Key>,
    last_pid: u32,
    /// Which template each worker is of.
    pub(super) forked_from: BTreeMap<Key, TemplateKey>,
    pub(super) ended_templates: Vec<TemplateKey>,
    /// Workers are forked when a test says so, and these by templates that may have devices open.
    pub(super) forks_wait: bool,
    pub(super) forks_even_with_devices: BTreeSet<Key>,
    /// Preparations of environments that were begun, and those that are not needed any more.
    pub(super) preparing: Vec<u64>,
    pub(super) given_up: Vec<u64>,
    /// Which limits workers were given, in order.
    pub(super) confined: Vec<(Key, Option<u64>)>,
    pub(super) device_limits: Vec<DeviceMemoryLimit>,
    /// What is on the disk.
    pub(super) rows: Rows,
    /// Why nothing can be written.
    pub(super) disk_fault: Option<String>,
    /// Writing ends only when a test says so.
    pub(super) disk_is_slow: bool,
    /// What is being written.
    pub(super) writing: Option<Vec<Change>>,
}

pub(super) fn amount(name: &str, units: u64) -> Amount {
    Amount { resource: name.into(), units }
}

fn plan(cpus: u32, gpus: u32) -> Plan {
    let requested = BTreeMap::from([("CPU".to_owned(), f64::from(cpus)), ("GPU".to_owned(), f64::from(gpus))]);
    let detection = Detection { families: Vec::new(), warnings: Vec::new(), ruled_out: Vec::new() };
    let offer = offer(&detection, &|_| None, &requested).expect("an offer");
    let named = requested.iter().map(|(name, total)| (ResourceName::new(name).expect("a name"), *total));
    Plan {
        node: NodeId::new([200; 28]),
        inventory: Inventory::new(named).expect("an inventory"),
        offer,
        isolation: IsolationPlan::default(),
        labels: BTreeMap::new(),
        store_bytes: 0,
        hostname: "here".into(),
        started_ms: 0,
        name: "test".into(),
        ip: "127.0.0.1".into(),
        variables: BTreeMap::new(),
        spare_workers: 1,
        rules: oxiray_machine::Rules::default(),
        warnings: Vec::new(),
        epoch: 0,
    }
}

fn plan_with_memory_tiers(tiers: &[MemoryTier], is_part: bool) -> Plan {
    let mut plan = plan(1, 1);
    plan.inventory = plan.inventory.with_device_memory(ResourceName::GPU, vec![16 << 30]);
    plan.isolation.memory.tiers = tiers.to_vec();
    let (address, region) = ("0000:03:00.0".to_owned(), "drm/0000:03:00.0/vram0".to_owned());
    plan.isolation.memory.regions.insert(address.clone(), region);
    let (nodes, memory_bytes, uuid, numa_node) = (Vec::new(), Some(16 << 30), None, None);
    let slot = SlotDevice { index: 0, is_part, nodes, memory_bytes, uuid, numa_node, pci_address: Some(address) };
    for offered in &mut plan.offer.devices {
        offered.slots = vec![Some(slot.clone())];
    }
    plan
}

impl World {
    /// The head of a cluster.
    pub(super) fn new(cpus: u32, gpus: u32) -> Self {
        Self::of(plan(cpus, gpus), Core::new)
    }

    /// The head of a cluster whose machine has this label.
    pub(super) fn labelled(cpus: u32, (key, value): (&str, &str)) -> Self {
        let mut plan = plan(cpus, 0);
        plan.labels.insert(key.to_owned(), value.to_owned());
        Self::of(plan, Core::new)
    }

    /// The head of a cluster whose machine has `/dev/nvidia0` for its first GPU, and so on.
    pub(super) fn with_own_nodes(cpus: u32, gpus: u32) -> Self {
        Self::kept_by(Isolation::Watch, cpus, gpus)
    }

    /// The same, started to keep devices in that way.
    pub(super) fn kept_by(asked: Isolation, cpus: u32, gpus: u32) -> Self {
        let mut plan = plan(cpus, gpus);
        plan.isolation.asked = asked;
        for offered in &mut plan.offer.devices {
            let slot = |index: usize| {
                let number = NodeNumber { major: 195, minor: index as u32 };
                let nodes = vec![DeviceNode { path: format!("/dev/nvidia{index}"), number: Some(number) }];
                let (memory_bytes, uuid, numa_node, pci_address) = (None, None, None, None);
                Some(SlotDevice { index, is_part: false, nodes, memory_bytes, uuid, numa_node, pci_address })
            };
            offered.slots = (0..offered.count).map(slot).collect();
        }
        Self::of(plan, Core::new)
    }

    /// The head of a cluster whose machine has one GPU of 16 GiB, perhaps a part of one, and these tiers.
    pub(super) fn with_memory_tiers(tiers: &[MemoryTier], is_part: bool) -> Self {
        Self::of(plan_with_memory_tiers(tiers, is_part), Core::new)
    }

    /// A machine with one GPU of 16 GiB and these tiers that is to serve a head elsewhere.
    pub(super) fn member_with_memory_tiers(tiers: &[MemoryTier], node: NodeId) -> Self {
        Self::of(Plan { node, ..plan_with_memory_tiers(tiers, false) }, Core::member)
    }

    /// A machine with GPUs that is to serve a head elsewhere.
    pub(super) fn member_with_devices(gpus: u32, node: NodeId) -> Self {
        Self::of(Plan { node, ..plan(1, gpus) }, Core::member)
    }

    /// The same with four GPUs on one NUMA node, of which 0-1 and 2-3 are linked.
    pub(super) fn member_with_linked_pairs(node: NodeId) -> Self {
        let mut plan = plan(1, 4);
        let pairs = [((0, 1), 420), ((2, 3), 420)];
        let topology = Topology::new(&[Some(0); 4], pairs).expect("some are nearer than others");
        plan.inventory = plan.inventory.with_topology(ResourceName::GPU, topology);
        Self::of(Plan { node, ..plan }, Core::member)
    }

    /// A machine that is to serve a head elsewhere.
    pub(super) fn member(cpus: u32, node: NodeId) -> Self {
        Self::of(Plan { node, ..plan(cpus, 0) }, Core::member)
    }

    /// The head of a cluster whose machine has these resources.
    pub(super) fn with<const N: usize>(resources: [(&str, f64); N]) -> Self {
        let named = resources.map(|(name, total)| (ResourceName::new(name).expect("a name"), total));
        let gpus = resources.iter().find(|(name, _)| *name == "GPU").map_or(0, |(_, total)| *total as u32);
        let inventory = Inventory::new(named).expect("an inventory");
        Self::of(Plan { inventory, ..plan(0, gpus) }, Core::new)
    }

    fn of(plan: Plan, begin: fn(Plan, String, String, Monitored, Instant) -> Core) -> Self {
        let now = Instant::now();
        let monitored = BTreeSet::from(["GPU"]);
        Self {
            core: begin(plan, "/session".into(), "127.0.0.1:1".into(), monitored, now),
            residue: Some(Residue::Unknown),
            looked_at: Vec::new(),
            in_groups: BTreeMap::new(),
            questions: Vec::new(),
            now,
            sent: Vec::new(),
            joined: Vec::new(),
            killed: BTreeSet::new(),
            dismissed: BTreeSet::new(),
            closed: BTreeSet::new(),
            expelled: Vec::new(),
            deleted: Vec::new(),
            found: Vec::new(),
            running: BTreeSet::new(),
            last_pid: 100,
            forked_from: BTreeMap::new(),
            ended_templates: Vec::new(),
            forks_wait: false,
            forks_even_with_devices: BTreeSet::new(),
            preparing: Vec::new(),
            given_up: Vec::new(),
            confined: Vec::new(),
            device_limits: Vec::new(),
            rows: Rows::new(),
            disk_fault: None,
            disk_is_slow: false,
            writing: None,
        }
    }

    /// One that goes on with these rows, and keeps them.
    pub(super) fn keeping(cpus: u32, gpus: u32, rows: Rows) -> Self {
        let mut world = Self::new(cpus, gpus);
        world.core.restore(&rows, Duration::from_secs(12)).expect("they can be read");
        world.rows = rows;
        world.settle();
        world
    }

    pub(super) fn driver(&mut self) -> Key {
        self.driver_with(&[])
    }

    pub(super) fn driver_with(&mut self, variables: &[(&str, &str)]) -> Key {
        let key = self.core.new_key();
        let variables =
            variables.iter().map(|(name, value)| Variable { name: (*name).into(), value: Some((*value).into()) });
        let environment = Some(Environment { variables: variables.collect(), ..Environment::default() });
        self.core.driver_joined(key, Driver { interpreter: "python".into(), environment, ..Driver::default() });
        self.settle();
        key
    }

    pub(super) fn say(&mut self, from: Key, message: impl Into<Message>) {
        match ClientToDaemon::of(message.into()).expect("a client says it") {
            ClientToDaemon::Head(message) => self.core.client_said(from, message),
            ClientToDaemon::Worker(message) => self.core.worker_said(from, &message),
            ClientToDaemon::Machine(asked) => self.core.worker_asked(from, &asked),
            other => panic!("{other:?} is for the daemon"),
        }
        self.settle();
    }

    /// What a member says, or passes on of a worker.
    pub(super) fn hear_member(&mut self, member: Key, message: Message) {
        match NodeToHead::of(message).expect("a member says it") {
            NodeToHead::Report(report) => self.core.member_said(member, report),
            NodeToHead::Daemon(NodeToDaemon::Relay(relayed)) => {
                let Some(worker) = self.core.process_of(member, relayed.worker) else { return };
                let kind = u16::try_from(relayed.kind).expect("kinds are small");
                let message = RelayedToHead::decode(kind, relayed.body).expect("a member passes it on");
                match message.expect("it is known") {
                    RelayedToHead::Head(message) => self.core.client_said(worker, message),
                    RelayedToHead::Worker(message) => self.core.worker_said(worker, &message),
                    RelayedToHead::Node(NodeOfWorker::Stored(said)) => {
                        self.core.stored_elsewhere(worker, said.object);
                    }
                    other => panic!("{other:?} is for the daemon"),
                }
            }
            NodeToHead::Daemon(other) => panic!("{other:?} is for the daemon"),
        }
    }

    /// An order of the head.
    pub(super) fn hear_head(&mut self, message: Message) {
        match HeadToNode::of(message).expect("a head says it") {
            HeadToNode::Order(order) => self.core.head_said(order),
            // The daemon's.
            HeadToNode::Daemon(_) => {}
        }
    }

    /// Time passes, and whatever is due happens in its time.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.core.next_alarm().filter(|at| *at <= until) {
            self.now = at;
            self.core.set_now(at);
            self.settle();
        }
        self.now = until;
        self.core.set_now(until);
        self.settle();
    }

    /// Forks happen at once; deaths when [`World::bury`] says so.
    pub(super) fn settle(&mut self) {
        loop {
            self.answer_questions();
            let effects = self.core.settle();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.carry_out(effect);
            }
        }
        self.core.node().ledger().audit();
    }

    /// The node starts, and its devices' libraries say of them what they would say later.
    pub(super) fn doubt_devices(&mut self) {
        let devices = self.core.devices().into_iter();
        let found = devices.map(|(resource, slot)| ((resource.to_owned(), slot), self.residue)).collect();
        self.core.doubt_devices(found);
        self.settle();
    }

    fn answer_questions(&mut self) {
        let Some(residue) = self.residue else { return };
        for question in std::mem::take(&mut self.questions) {
            self.core.device_answered(&question, residue);
        }
    }

    /// What was being written is safe, or could not be written.
    pub(super) fn end_writing(&mut self) {
        let changes = self.writing.take().expect("something is being written");
        if let Some(fault) = &self.disk_fault {
            return self.core.not_written(fault);
        }
        for Change { table, key, value } in changes {
            match value {
                Some(value) => drop(self.rows.insert((table, key), value)),
                None => drop(self.rows.remove(&(table, key))),
            }
        }
        self.core.written();
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send { to, message } => {
                if matches!(message, Message::Stop(_)) {
                    self.dismissed.insert(to);
                }
                self.sent.push((to, message));
            }
            Effect::Join { client, placed, worker, .. } => self.joined.push((client, placed, worker)),
            Effect::EndTemplate { template } => self.ended_templates.push(template),
            Effect::Fork { worker, template, even_with_devices, .. } => {
                self.forked_from.insert(worker, template);
                if even_with_devices {
                    self.forks_even_with_devices.insert(worker);
                }
                if self.forks_wait {
                    return;
                }
                self.last_pid += 1;
                self.running.insert(worker);
                self.core.forked(worker, self.last_pid);
            }
            Effect::Kill { worker: killed } | Effect::KillMember { member: killed } => drop(self.killed.insert(killed)),
            Effect::Expel { peer, why } => self.expelled.push((peer, why)),
            Effect::Close { client } => drop(self.closed.insert(client)),
            Effect::Delete { object } => self.deleted.push(object),
            Effect::Located(found) => self.found.push(found),
            Effect::Prepare { number, .. } => self.preparing.push(number),
            Effect::EndPreparation { number } => self.given_up.push(number),
            Effect::Confine(told) => self.confined.push((told.worker, told.memory)),
            Effect::LimitDeviceMemory(told) => self.device_limits.push(told),
            Effect::Write(changes) => {
                assert!(self.writing.replace(changes).is_none(), "one batch is written at a time");
                if !self.disk_is_slow {
                    self.end_writing();
                }
            }
            Effect::AskDevice(question) => self.questions.push(question),
            Effect::CheckDevice { device } => self.core.device_tested(&device, CheckOutcome::Passed),
            Effect::LookAtOpenNodes { workers } => self.looked_at.push(workers),
            Effect::LookAtGroup { worker } => {
                let pids = self.in_groups.get(&worker).cloned().unwrap_or_default();
                self.core.group_has(worker, pids);
            }
            Effect::Copy { .. }
            | Effect::Fence(_)
            | Effect::MeasureDevices
            | Effect::RememberHealth(_)
            | Effect::StartTemplate { .. }
            | Effect::LeaveStore { .. }
            | Effect::Submission(_)
            | Effect::Log(_) => {}
        }
    }

    /// The worker's tree is gone.
    pub(super) fn bury(&mut self, worker: Key, text: &str) {
        self.running.remove(&worker);
        self.killed.remove(&worker);
        self.dismissed.remove(&worker);
        if let Some(pids) = self.in_groups.get(&worker) {
            self.core.group_has(worker, pids.clone());
        }
        self.core.worker_gone(worker, text);
        self.settle();
    }

    /// Those that are to die, by force or by themselves.
    pub(super) fn ending(&self) -> Vec<Key> {
        self.killed.union(&self.dismissed).copied().collect()
    }

    pub(super) fn is_dismissed(&self, worker: Key) -> bool {
        self.dismissed.contains(&worker)
    }

    pub(super) fn is_killed(&self, worker: Key) -> bool {
        self.killed.contains(&worker)
    }

    pub(super) fn is_closed(&self, driver: Key) -> bool {
        self.closed.contains(&driver)
    }

    /// Request, lease and worker of every grant to a client.
    pub(super) fn grants_of(&self, client: Key) -> Vec<(u64, LeaseNumber, Key)> {
        let to_client = self.joined.iter().filter(|(to, ..)| *to == client);
        let grants = to_client.filter_map(|(_, message, worker)| match message {
            Message::LeaseGranted(granted) => Some((granted.request.0, granted.lease, *worker)),
            _ => None,
        });
        grants.collect()
    }

    pub(super) fn granted(&self, client: Key, request: u64) -> (LeaseNumber, Key) {
        let grants = self.grants_of(client);
        let found = grants.iter().rev().find(|(granted, ..)| *granted == request);
        let (_, lease, worker) = found.unwrap_or_else(|| panic!("request {request} is not granted: {grants:?}"));
        (*lease, *worker)
    }

    pub(super) fn placed(&self, client: Key, actor: u8) -> Option<Key> {
        let placed = self.joined.iter().rev().find(|(to, message, _)| {
            *to == client && matches!(message, Message::ActorPlaced(placed) if placed.actor.as_bytes()[0] == actor)
        });
        placed.map(|(.., worker)| *worker)
    }

    /// The process that an actor has now, whoever is connected to it.
    pub(super) fn process_of(&self, actor: u8) -> Option<Key> {
        let head = self.core.as_head();
        let worker = head.actors.known.get(super::actor_id(actor))?.worker()?;
        head.clients.keys.get(&worker).copied()
    }

    pub(super) fn to(&self, client: Key) -> impl Iterator<Item = &Message> {
        self.sent.iter().filter(move |(to, _)| *to == client).map(|(_, message)| message)
    }

    pub(super) fn assignment(&self, worker: Key) -> &Assign {
        let assigned = self.to(worker).filter_map(|message| match message {
            Message::Assign(assign) => Some(assign),
            _ => None,
        });
        assigned.last().expect("the worker was assigned")
    }

    pub(super) fn refusal(&self, client: Key, request: u64) -> String {
        let refused = self.to(client).find_map(|message| match message {
            Message::LeaseRefused(refused) if refused.request.0 == request => refused.failure.clone(),
            _ => None,
        });
        refused.expect("the request was refused").text
    }

    /// The requests that were refused.
    pub(super) fn refusals(&self, client: Key) -> Vec<u64> {
        let refused = self.to(client).filter_map(|message| match message {
            Message::LeaseRefused(refused) => Some(refused.request.0),
            _ => None,
        });
        refused.collect()
    }

    pub(super) fn ended(&self, client: Key) -> Vec<(LeaseNumber, String)> {
        let ended = self.to(client).filter_map(|message| match message {
            Message::LeaseEnded(ended) => Some((ended.lease, ended.text.clone())),
            _ => None,
        });
        ended.collect()
    }

    pub(super) fn reclaims(&self, client: Key) -> usize {
        self.to(client).filter(|message| matches!(message, Message::LeaseReclaim(_))).count()
    }

    pub(super) fn notices(&self, client: Key) -> Vec<String> {
        let notices = self.to(client).filter_map(|message| match message {
            Message::Notice(notice) => Some(notice.text.clone()),
            _ => None,
        });
        notices.collect()
    }

    pub(super) fn deaths(&self, client: Key, actor: u8) -> Vec<String> {
        let deaths = self.to(client).filter_map(|message| match message {
            Message::ActorDied(died) if died.actor.as_bytes()[0] == actor => {
                died.failure.as_ref().map(|failure| failure.text.clone())
            }
            _ => None,
        });
        deaths.collect()
    }

    /// Of each restart that a client was told of, whether nothing had begun.
    pub(super) fn restarts(&self, client: Key, actor: u8) -> Vec<bool> {
        let restarts = self.to(client).filter_map(|message| match message {
            Message::ActorRestarting(said) if said.actor.as_bytes()[0] == actor => Some(said.began_nothing),
            _ => None,
        });
        restarts.collect()
    }

    pub(super) fn answer(&self, client: Key, request: u64) -> ActorAnswer {
        let answer = self.to(client).find_map(|message| match message {
            Message::ActorAnswer(answer) if answer.request == request => Some(answer.clone()),
            _ => None,
        });
        *answer.expect("the question was answered")
    }

    pub(super) fn published(&self, client: Key, object: u8) -> Option<Value> {
        self.to(client).find_map(|message| match message {
            Message::Published(published) if published.object.as_bytes()[0] == object => published.value.clone(),
            _ => None,
        })
    }

    pub(super) fn is_told_to_leave(&self, worker: Key) -> bool {
        self.to(worker).any(|message| matches!(message, Message::Stop(_)))
    }

    pub(super) fn free(&self, resource: &str) -> u64 {
        self.core.node().ledger().available().get(resource).map_or(0, |amount| amount.units())
    }

    /// Why devices are out of service.
    pub(super) fn out_of_service(&self) -> Vec<String> {
        self.core.node().ledger().out_of_service().map(|found| found.reason.to_owned()).collect()
    }

    pub(super) fn total(&self, resource: &str) -> u64 {
        self.core.node().ledger().totals().get(resource).map_or(0, |amount| amount.units())
    }
}
