//! A node: the real core, and around it what the daemon's shell does, without descriptors and processes.

use crate::agenda::{Event, MILLISECOND, Micros, SECOND};
use crate::clock::Clock;
use crate::kernel::with_nodes;
use crate::leases::Leases;
use crate::process::{Kind, Life, Process};
use crate::stores::Shelf;
use crate::stream::{Descriptor, End, Packet};
use crate::world::{NodeIndex, ProcessIndex, StreamIndex, World};
use oxiray_accelerators::{DeviceOffer, DeviceUse, STRATEGY_VARIABLE, Usage, offer};
use oxiray_families::{Health, Recovery};
use oxiray_fence::Isolation;
use oxiray_head::Core;
use oxiray_ids::{NodeId, PlacementGroupId};
use oxiray_machine::{CheckOutcome, DeviceQuestion, DeviceSlot, Effect, IsolationPlan, Key, Plan, TemplateKey};
use oxiray_resources::{Inventory, ResourceName};
use oxiray_wire::Message;
use oxiray_wire::message::Peer;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a message between two processes of one machine takes: what the one said is there before its end is heard of.
const WITHIN_MACHINE: Micros = 50;
/// How late the word of a process's death comes at most after the process, where nothing is in the way.
const NODE_DEATH_NOTICED: Micros = 50 * MILLISECOND;

/// When a vendor's library has answered at last.
const ANSWER_LATEST: Micros = 15 * SECOND;

/// What a node wants to know of its devices.
#[derive(Debug)]
pub(crate) enum AskedOfDevices {
    /// Whether one still holds memory of a dead process.
    Residue(DeviceQuestion),
    /// What the driver says of all.
    Health,
    /// Whether one passes the check.
    Check(DeviceSlot),
}

/// Who is at the other end of a node's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Driver,
    Worker,
    Member(NodeIndex),
    Head,
}

/// One daemon.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) core: Core,
    pub(crate) machine: usize,
    pub(crate) is_alive: bool,
    pub(crate) frozen_until: Option<Micros>,
    pub(crate) streams: BTreeMap<Key, (StreamIndex, Role)>,
    /// Streams that ended before the process behind them.
    over: BTreeSet<Key>,
    pub(crate) workers: BTreeMap<Key, ProcessIndex>,
    pub(crate) templates: BTreeSet<TemplateKey>,
    pub(crate) clock: Clock,
    pub(crate) leases: Leases,
    pub(crate) shelf: Shelf,
    /// Since when its head is away.
    pub(crate) away_since: Option<Micros>,
    /// Its clients that have not told the next head where they stand.
    pub(crate) unresumed: BTreeSet<Key>,
    /// What was asked about devices, and is not answered.
    pub(crate) questions: BTreeMap<u64, AskedOfDevices>,
    pub(crate) turn: Turn,
}

/// When a node decides next, and between what its decision lies.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    next: Option<Micros>,
    /// The devices of each placement group, as they were at some moment since the last turn whose decisions were all carried out.
    pub(crate) devices_of_groups: BTreeSet<(PlacementGroupId, BTreeSet<u32>)>,
}

impl Node {
    /// Nothing more is said or heard there.
    pub(crate) fn forget_stream(&mut self, key: Key) {
        self.streams.remove(&key);
        self.over.remove(&key);
    }

    /// What it decides now goes by these, although they may change again before its decision is carried out.
    fn note_groups(&mut self) {
        let groups = self.core.devices_of_groups().into_iter();
        let slots = |devices: BTreeSet<DeviceSlot>| devices.into_iter().map(|(_, slot)| slot).collect();
        self.turn.devices_of_groups.extend(groups.map(|(group, devices)| (group, slots(devices))));
    }
}

impl World {
    /// A daemon starts on a machine that has none; the first is the head.
    pub(crate) fn start_node(&mut self, machine: usize) -> NodeIndex {
        let index = self.nodes.len();
        let node = self.new_node(index, machine);
        self.nodes.push(node);
        self.log.line(self.now, format_args!("node {index} starts on machine {machine}"));
        self.lease_begins(index);
        if index == 0 {
            self.go_on_from_disk();
        } else {
            self.wake(0);
            self.give_up_predecessor(machine);
            self.join_head(index);
            self.after_event(0);
        }
        self.settle(index);
        index
    }

    /// A daemon as it begins.
    pub(crate) fn new_node(&mut self, index: NodeIndex, machine: usize) -> Node {
        let seed = self.chance.seed();
        // Leases allow for clocks whose rates differ by a fifth at most.
        let most = if self.options.has_leases { 50 } else { 200 };
        let drift = if self.options.clocks_drift { most } else { 0 };
        let clock = Clock::new(self.start, drift, &mut self.chance);
        let plan = self.plan(index, machine);
        let offered = plan.offer.devices.iter().map(DeviceOffer::resource);
        let monitored = offered.chain(["GPU"]).collect();
        let address = "127.0.0.1:6379".to_owned();
        let begin = if index == 0 { Core::new } else { Core::member };
        let mut core = begin(plan, format!("/session-{index}"), address, monitored, clock.shows(self.now));
        core.seed(seed);
        core.prepare("python");
        Node {
            core,
            machine,
            is_alive: true,
            frozen_until: None,
            streams: BTreeMap::new(),
            over: BTreeSet::new(),
            workers: BTreeMap::new(),
            templates: BTreeSet::new(),
            clock,
            leases: Leases::default(),
            shelf: Shelf::default(),
            away_since: None,
            unresumed: BTreeSet::new(),
            questions: BTreeMap::new(),
            turn: Turn::default(),
        }
    }

    fn plan(&self, index: NodeIndex, machine: usize) -> Plan {
        let machine = &self.machines[machine];
        let (cpus, gpus, disks) = (machine.cpus, machine.gpus.count(), machine.disks);
        let mut requested =
            BTreeMap::from([("CPU".to_owned(), f64::from(cpus)), ("disk".to_owned(), f64::from(disks))]);
        if !machine.gpus.are_cut() {
            requested.insert("GPU".to_owned(), f64::from(gpus));
        }
        let strategy = machine.gpus.are_alike().then(|| "single".to_owned());
        let environment = |name: &str| strategy.clone().filter(|_| name == STRATEGY_VARIABLE);
        let offer = offer(&machine.gpus.detection(), &environment, &requested).expect("it can be offered");
        // Nobody knows the device nodes of instances here.
        let unknown = (Isolation::Variable, Vec::new());
        let (asked, mechanisms) = if machine.gpus.are_cut() { unknown } else { self.options.isolation(index) };
        let has_nodes = asked > Isolation::Variable;
        let totals = offer.totals().into_iter();
        let named = totals.map(|(name, total)| (ResourceName::new(&name).expect("a proper name"), total));
        Plan {
            node: NodeId::new([self.mark_of(index); 28]),
            inventory: Inventory::new(named)
                .expect("whole numbers of anything can be had")
                .with_device_memory(ResourceName::GPU, machine.gpus.sizes()),
            offer: if has_nodes { with_nodes(offer) } else { offer },
            isolation: IsolationPlan { asked, mechanisms, why: "nothing works".to_owned(), ..IsolationPlan::default() },
            labels: BTreeMap::from([("zone".to_owned(), machine.zone.to_owned())]),
            store_bytes: 1 << 30,
            hostname: format!("machine-{index}"),
            started_ms: 0,
            name: format!("node-{index}"),
            ip: format!("127.0.0.{}", index + 1),
            variables: BTreeMap::new(),
            spare_workers: 1,
            rules: oxiray_machine::Rules {
                node: Duration::from_secs(self.options.node_wait_s),
                preemption_grace: self.options.preempts().then_some(Duration::from_millis(400)),
                ..oxiray_machine::Rules::default()
            },
            warnings: Vec::new(),
            epoch: if index == 0 { self.disk.epoch + 1 } else { 0 },
        }
    }

    fn join_head(&mut self, index: NodeIndex) {
        let stream = self.new_stream([End::Nobody, End::Nobody], self.options.network);
        let at_head = self.nodes[0].core.new_key();
        self.streams[stream].ends[0] = End::Node { node: 0, key: at_head };
        self.nodes[0].streams.insert(at_head, (stream, Role::Member(index)));
        if self.options.has_leases {
            self.member_is_heard(at_head);
        }
        let key = self.nodes[index].core.new_key();
        self.streams[stream].ends[1] = End::Node { node: index, key };
        self.nodes[index].streams.insert(key, (stream, Role::Head));
        self.nodes[index].core.serve_head(key, String::new());
        if self.options.heads_die && self.options.heads_are_awaited {
            let epoch = self.nodes[0].core.epoch();
            self.nodes[index].core.begin_epoch(epoch);
        }
    }

    /// A node is told what time it is, before anything else that it hears.
    pub(crate) fn wake(&mut self, node: NodeIndex) {
        let found = &mut self.nodes[node];
        found.note_groups();
        found.core.set_now(found.clock.shows(self.now));
    }

    /// Has a node do what is due; at times a moment later, together with what else comes until then.
    pub(crate) fn after_event(&mut self, node: NodeIndex) {
        if self.chance.odds(200) {
            let at = self.now + self.chance.between(0, MILLISECOND);
            return self.agenda.plan(at, Event::Turn(node));
        }
        self.settle(node);
    }

    /// Carries out what the core decides until it decides nothing more.
    pub(crate) fn settle(&mut self, node: NodeIndex) {
        while self.nodes[node].is_alive {
            self.nodes[node].note_groups();
            let effects = self.nodes[node].core.settle();
            self.nodes[node].note_groups();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.carry_out(node, effect);
            }
        }
        if !self.nodes[node].is_alive {
            return;
        }
        self.nodes[node].core.audit();
        self.check_fences(node);
        // What the head holds back until rows are written was decided by what there was until then.
        let holds_back = node == 0 && self.disk.is_writing();
        let found = &mut self.nodes[node];
        if !holds_back {
            found.turn.devices_of_groups.clear();
        }
        if let Some(at) = found.core.next_alarm().map(|at| found.clock.when(at).max(self.now + 1))
            && found.turn.next.is_none_or(|planned| at < planned || planned <= self.now)
        {
            found.turn.next = Some(at);
            self.agenda.plan(at, Event::Turn(node));
        }
    }

    fn carry_out(&mut self, node: NodeIndex, effect: Effect) {
        match effect {
            Effect::Send { to, message } => self.queue(node, to, message, None),
            Effect::Join { client, placed, worker, peer } => self.introduce(node, client, placed, worker, peer),
            Effect::StartTemplate { template, .. } => {
                if self.options.forks_fail && self.chance.odds(30) {
                    return self.nodes[node].core.template_gone(template);
                }
                self.nodes[node].templates.insert(template);
            }
            Effect::EndTemplate { template } => {
                let at = self.now + self.chance.delay(MILLISECOND);
                self.agenda.plan(at, Event::TemplateEnds { node, template });
            }
            Effect::Fork { worker, template, is_fenced, .. } => self.fork(node, worker, (template, is_fenced)),
            Effect::Fence(told) => self.fence(node, &told),
            Effect::LookAtGroup { worker } => self.look_at_group(node, worker),
            Effect::Kill { worker } => {
                if let Some(process) = self.nodes[node].workers.get(&worker).copied() {
                    self.kill(process);
                }
            }
            Effect::Expel { peer, why } => panic!("node {node} ends {peer}, which is honest: {why}"),
            Effect::Close { client } => {
                if let Some((stream, _)) = self.nodes[node].streams.get(&client).copied() {
                    self.close(Descriptor { stream, side: 0 });
                    self.stream_over(node, client);
                }
            }
            Effect::Located(found) => self.tell_whereabouts(found),
            Effect::Delete { object } => self.unshelve(node, object),
            Effect::Copy { object } => self.copy_here(node, object),
            Effect::Prepare { number, .. } => self.prepare(node, number),
            Effect::EndPreparation { number } => {
                self.agenda.forget(|event| *event == Event::Prepared { node, number });
            }
            // No process leaves anything half written, nobody submits jobs, and nobody takes memory.
            Effect::LeaveStore { .. }
            | Effect::Submission(_)
            | Effect::Confine(_)
            | Effect::LimitDeviceMemory(_)
            | Effect::LookAtOpenNodes { .. }
            | Effect::RememberHealth(_)
            | Effect::KillMember { .. } => {}
            Effect::Write(changes) => self.write_down(changes),
            Effect::AskDevice(question) => self.ask_devices(node, AskedOfDevices::Residue(question)),
            Effect::MeasureDevices => self.ask_devices(node, AskedOfDevices::Health),
            Effect::CheckDevice { device } => self.ask_devices(node, AskedOfDevices::Check(device)),
            Effect::Log(line) => self.log.line(self.now, format_args!("node {node} notes: {line}")),
        }
    }

    /// The library is slow at times.
    pub(crate) fn ask_devices(&mut self, node: NodeIndex, asked: AskedOfDevices) {
        if matches!(asked, AskedOfDevices::Health) && !self.options.devices_fail() {
            return;
        }
        let usual = if self.chance.odds(50) { 5 * SECOND } else { 2 * MILLISECOND };
        let at = self.now + self.chance.delay(usual).min(ANSWER_LATEST);
        let number = self.agenda.next_number();
        self.nodes[node].questions.insert(number, asked);
        self.agenda.plan(at, Event::DeviceAnswers { node, number });
    }

    /// The library looks at the device, and says what it sees.
    pub(crate) fn device_answers(&mut self, node: NodeIndex, number: u64) {
        match self.nodes[node].questions.remove(&number) {
            Some(AskedOfDevices::Residue(question)) => {
                let machine = self.nodes[node].machine;
                let residue = self.machines[machine].memory.residue(&question, self.now);
                self.nodes[node].core.device_answered(&question, residue);
            }
            Some(AskedOfDevices::Health) => self.tell_health(node),
            Some(AskedOfDevices::Check(device)) => {
                let outcome = match self.chance.between(0, 9) {
                    _ if self.is_calm || !self.options.devices_fail() => CheckOutcome::Passed,
                    0..=1 => CheckOutcome::Failed("1 words of memory are not what was written to them".to_owned()),
                    2 => CheckOutcome::NotMade("there is no library".to_owned()),
                    _ => CheckOutcome::Passed,
                };
                self.nodes[node].core.device_tested(&device, outcome);
            }
            None => {}
        }
    }

    /// Drivers need nothing most of the time, and nothing any more when all is calm.
    fn tell_health(&mut self, node: NodeIndex) {
        let mut found = Vec::new();
        for (resource, slot) in self.nodes[node].core.devices() {
            let is_told = !self.is_calm && self.chance.odds(30);
            let needs = match is_told {
                true if self.odds_apart(self.now, 250) => Recovery::DrainLinks,
                true if self.odds_apart(self.now + 1, 250) => Recovery::RecoverDomain,
                true => Recovery::Reset,
                false => Recovery::Nothing,
            };
            let is_remap_pending = !self.is_calm && self.chance.odds(50);
            let health = Health { recovery: Some(needs), is_remap_pending, ..Health::default() };
            found.push(DeviceUse { resource, slot, id: slot.to_string(), usage: Usage { health, ..Usage::default() } });
        }
        self.nodes[node].core.devices_measured(found);
    }

    /// Sends to whoever the node knows by a key, by way of a member where it is a member's worker.
    pub(crate) fn queue(&mut self, node: NodeIndex, to: Key, message: Message, descriptor: Option<Descriptor>) {
        let known = self.nodes[node].streams.get(&to).filter(|_| !self.nodes[node].over.contains(&to)).copied();
        if let Some((stream, role)) = known {
            if let Message::Assign(assign) = &message {
                if self.has_no_fence(node, to) {
                    return;
                }
                self.check_assignment(node, to, assign);
            }
            self.log.line(self.now, format_args!("node {node} -> {to}: {message:?}"));
            let side = usize::from(matches!(role, Role::Head));
            return self.send(Descriptor { stream, side }, Packet::Said { message: Box::new(message), descriptor });
        }
        match self.nodes[node].core.route(to) {
            Some((member, worker)) => {
                self.log.line(self.now, format_args!("node {node} -> {to}, worker {worker} of {member}: {message:?}"));
                self.queue(node, member, message.relayed(worker).into(), descriptor);
            }
            None => self.lose(&Packet::Said { message: Box::new(message), descriptor }),
        }
    }

    fn introduce(&mut self, node: NodeIndex, client: Key, placed: Message, worker: Key, peer: Peer) {
        let core = &self.nodes[node].core;
        let [of_client, of_worker] = [client, worker].map(|key| core.route(key).map(|(member, _)| member));
        let usual = if of_client == of_worker { WITHIN_MACHINE } else { self.options.network };
        let stream = self.new_stream([End::Nobody, End::Nobody], usual);
        self.queue(node, client, placed, Some(Descriptor { stream, side: 0 }));
        self.queue(node, worker, peer.into(), Some(Descriptor { stream, side: 1 }));
    }

    fn fork(&mut self, node: NodeIndex, worker: Key, (template, is_fenced): (TemplateKey, bool)) {
        if !self.nodes[node].templates.contains(&template) {
            return self.nodes[node].core.worker_gone(worker, "could not be started: its interpreter does not run");
        }
        let process = self.processes.len();
        let stream = self.new_stream([End::Node { node, key: worker }, End::Process(process)], 50);
        self.processes.push(Process::new(node, Kind::Worker { key: worker, template }, Life::Starting, stream));
        self.is_born(process, is_fenced);
        self.nodes[node].workers.insert(worker, process);
        self.nodes[node].streams.insert(worker, (stream, Role::Worker));
        let at = self.now + self.chance.delay(5 * MILLISECOND);
        self.agenda.plan(at, Event::Forked { node, worker });
    }

    /// The template made the process, or could not.
    pub(crate) fn forked(&mut self, node: NodeIndex, worker: Key) {
        let Some(process) = self.nodes[node].workers.get(&worker).copied() else { return };
        if self.processes[process].life != Life::Starting {
            return;
        }
        if self.options.forks_fail && self.chance.odds(20) {
            self.processes[process].life = Life::Running;
            return self.is_gone(process);
        }
        self.last_pid += 1;
        self.processes[process].pid = self.last_pid;
        self.processes[process].life = Life::Running;
        self.log
            .line(self.now, format_args!("node {node}: worker {worker} is process {process}, pid {}", self.last_pid));
        self.nodes[node].core.forked(worker, self.last_pid);
        self.adopt(self.processes[process].control, process);
        if self.processes[process].is_doomed {
            self.kill(process);
        }
    }

    /// A template ends, and what was forked of it.
    pub(crate) fn template_ends(&mut self, node: NodeIndex, template: TemplateKey) {
        if !self.nodes[node].is_alive || !self.nodes[node].templates.remove(&template) {
            return;
        }
        self.log.line(self.now, format_args!("node {node}: template {template} is gone"));
        self.nodes[node].core.template_gone(template);
        let of = |process: &&ProcessIndex| matches!(self.processes[**process].kind, Kind::Worker { template: own, .. } if own == template);
        for process in self.nodes[node].workers.values().filter(of).copied().collect::<Vec<_>>() {
            self.processes[process].life = self.processes[process].life.max(Life::Running);
            self.is_gone(process);
        }
    }

    /// The worker and what it started are gone: what it said last comes first.
    pub(crate) fn worker_is_gone(&mut self, node: NodeIndex, process: ProcessIndex) {
        let Kind::Worker { key, .. } = self.processes[process].kind else { return };
        if !self.nodes[node].is_alive || !self.nodes[node].workers.contains_key(&key) {
            return;
        }
        let control = self.processes[process].control;
        self.read_to_the_end(control.stream, 0);
        self.close(Descriptor { stream: control.stream, side: 0 });
        self.nodes[node].streams.remove(&key);
        self.nodes[node].over.remove(&key);
        self.nodes[node].workers.remove(&key);
        self.log.line(self.now, format_args!("node {node}: worker {key} is gone"));
        self.look_at_group(node, key);
        // What crashed by itself has its devices suspected.
        let has_crashed = self.odds_apart(process as u64 + 7_654_321, 500);
        let how = if has_crashed { "killed by signal 11 (SIGSEGV)" } else { "killed by signal 9 (SIGKILL)" };
        self.nodes[node].core.worker_gone(key, how);
    }

    /// The daemon sees that a worker's process is dead.
    pub(crate) fn noticed(&mut self, process: ProcessIndex) {
        let (node, kind) = (self.processes[process].node, self.processes[process].kind);
        if let Kind::Worker { key, .. } = kind
            && self.nodes[node].workers.contains_key(&key)
        {
            self.nodes[node].core.worker_died(key);
        }
    }

    /// A daemon dies, and everything on its machine with it.
    pub(crate) fn node_dies(&mut self, node: NodeIndex) {
        if !std::mem::replace(&mut self.nodes[node].is_alive, false) {
            return;
        }
        self.log.line(self.now, format_args!("node {node} dies"));
        self.nodes[node].frozen_until = None;
        let streams: Vec<_> = self.nodes[node].streams.values().copied().collect();
        for (stream, role) in streams {
            let side = usize::from(matches!(role, Role::Head));
            if matches!(role, Role::Head) && self.options.messages_get_lost {
                self.lose_tail(Descriptor { stream, side });
            }
            self.close(Descriptor { stream, side });
        }
        for process in 0..self.processes.len() {
            if self.processes[process].node == node && matches!(self.processes[process].kind, Kind::Worker { .. }) {
                self.processes[process].life = self.processes[process].life.max(Life::Running);
                self.kill(process);
            }
        }
        // Of a member on another machine nobody hears: its lease runs out.
        if node != 0 && !self.options.has_leases {
            let at = self.now + self.chance.between(0, NODE_DEATH_NOTICED);
            self.agenda.plan(at, Event::NodeGone(node));
        }
    }

    /// The head learns that a member's process is gone. What it said last comes first.
    pub(crate) fn member_is_gone(&mut self, node: NodeIndex) {
        let known = self.nodes[0].streams.iter().find(|(_, (_, role))| *role == Role::Member(node));
        let Some((key, stream)) = known.map(|(key, (stream, _))| (*key, *stream)) else { return };
        self.read_to_the_end(stream, 0);
        self.nodes[0].forget_stream(key);
        self.nodes[0].core.member_gone(key);
    }

    /// The stream is at its end. A worker's or a member's is kept in mind until its process is gone.
    pub(crate) fn stream_over(&mut self, node: NodeIndex, key: Key) {
        let Some((stream, role)) = self.nodes[node].streams.get(&key).copied() else { return };
        self.close(Descriptor { stream, side: usize::from(matches!(role, Role::Head)) });
        match role {
            Role::Worker => {
                self.nodes[node].over.insert(key);
                self.nodes[node].core.worker_left(key);
            }
            Role::Member(_) => {
                self.nodes[node].over.insert(key);
                self.nodes[node].core.member_silent(key, self.options.has_leases);
            }
            Role::Driver => {
                self.nodes[node].streams.remove(&key);
                self.nodes[node].core.driver_left(key);
            }
            Role::Head if self.nodes[node].core.epoch() > 0 => self.head_is_away(node, key),
            Role::Head if self.options.has_leases => self.is_fenced(node, "its stream to the head broke"),
            // A member ends with its head; whoever started it starts it again.
            Role::Head => {
                self.node_dies(node);
                if self.options.heads_die {
                    let (at, machine) = (self.now + SECOND, self.nodes[node].machine);
                    self.agenda.plan(at, Event::NodeComes { machine });
                }
            }
        }
    }
}
