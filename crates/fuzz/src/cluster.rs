//! A head's core among drivers, workers, members and visitors that say anything.
//!
//! - FUZZ-1: nothing that they say makes it panic, or leaves its tables at odds with each other.
//! - FUZZ-2: a seed tells everything of a run.

use crate::frames;
use crate::grammar::{self, Pool};
use fastrand::Rng;
use oxiray_accelerators::{Detection, offer};
use oxiray_head::Core;
use oxiray_ids::{NodeId, WorkerNumber};
use oxiray_machine::{Effect, IsolationPlan, Key, Plan, Residue};
use oxiray_resources::{Inventory, ResourceName};
use oxiray_wire::Message;
use oxiray_wire::message::{
    Amount, ClientToDaemon, Direction as _, Driver, NodeJoin, NodeOfWorker, NodeState, NodeToDaemon, NodeToHead, Relay,
    RelayedOfVisitor, RelayedToHead, ReportQuery, VisitorToDaemon, VisitorToHead,
};
use oxiray_wire::shape::Shape;
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How many frames one cluster hears before another begins.
pub const FRAMES_PER_CLUSTER: u64 = 5_000;
/// After how many frames the tables are compared.
const AUDIT_PERIOD: u64 = 50;
const DRIVERS_MAX: usize = 4;
const MEMBERS_MAX: usize = 3;

/// Who says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Driver,
    Worker,
    Visitor,
    Member,
}

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub struct CoreRun {
    /// Frames that were said.
    pub frames: u64,
    /// Those of them that could be read.
    pub messages: u64,
    /// Peers that were ended for what they said.
    pub expelled: u64,
    /// What had an effect, by kind: how often.
    pub effective: BTreeMap<u16, u64>,
    /// The most that one message took of a processor, and its kind.
    pub slowest: (Duration, u16),
}

impl CoreRun {
    /// Both together.
    pub fn add(&mut self, other: &Self) {
        self.frames += other.frames;
        self.messages += other.messages;
        self.expelled += other.expelled;
        for (kind, count) in &other.effective {
            *self.effective.entry(*kind).or_default() += count;
        }
        self.slowest = self.slowest.max(other.slowest);
    }
}

/// One head.
#[derive(Debug)]
pub struct Cluster {
    core: Core,
    now: Instant,
    chance: Rng,
    pool: Pool,
    drivers: Vec<Key>,
    visitors: Vec<Key>,
    members: Vec<Key>,
    workers: BTreeSet<Key>,
    doomed: BTreeSet<Key>,
    /// What is not for whom.
    ignored: BTreeSet<(Role, u16)>,
    last_pid: u32,
    last_node: u8,
    /// What came of it.
    pub told: CoreRun,
    /// What was said last, for who looks into a failure.
    pub last: Option<(Key, Message)>,
}

impl Cluster {
    /// A head with a driver, a visitor and a member.
    pub fn new(seed: u64) -> Self {
        let now = Instant::now();
        let mut core = Core::new(plan(), "/session".into(), "127.0.0.1:1".into(), BTreeSet::from(["GPU"]), now);
        core.seed(seed);
        let mut cluster = Self {
            core,
            now,
            chance: Rng::with_seed(seed),
            pool: Pool::default(),
            drivers: Vec::new(),
            visitors: Vec::new(),
            members: Vec::new(),
            workers: BTreeSet::new(),
            doomed: BTreeSet::new(),
            ignored: BTreeSet::new(),
            last_pid: 100,
            last_node: 0,
            told: CoreRun::default(),
            last: None,
        };
        cluster.visitors.push(cluster.core.new_key());
        cluster.driver_comes();
        cluster.member_comes();
        cluster.settle();
        cluster
    }

    /// Goes on until so many frames were said.
    pub fn run(&mut self, frames: u64) {
        while self.told.frames < frames {
            match self.chance.u16(..1000) {
                0..940 => self.somebody_speaks(),
                940..960 => self.time_passes(),
                960..970 if self.drivers.len() < DRIVERS_MAX => self.driver_comes(),
                970..976 if self.members.len() < MEMBERS_MAX => self.member_comes(),
                976..980 => self.somebody_goes(),
                980..1000 => self.a_worker_is_gone(),
                _ => {}
            }
            self.settle();
            if self.told.frames.is_multiple_of(AUDIT_PERIOD) {
                self.core.audit();
            }
        }
    }

    fn driver_comes(&mut self) {
        let key = self.core.new_key();
        self.drivers.push(key);
        self.core.driver_joined(key, Driver { interpreter: "python".into(), pid: 7, ..Driver::default() });
    }

    fn member_comes(&mut self) {
        let key = self.core.new_key();
        self.members.push(key);
        self.last_node = self.last_node.wrapping_add(1);
        let amounts = |units: u64| vec![Amount { resource: "CPU".into(), units }];
        let state = Some(NodeState { free: amounts(40_000), ..NodeState::default() });
        let node = NodeId::new([self.last_node; NodeId::BYTES]);
        let ip = "127.0.0.9".to_owned();
        let told = NodeJoin { node, ip, totals: amounts(40_000), state, ..NodeJoin::default() };
        self.core.member_said(key, told.into());
    }

    fn somebody_speaks(&mut self) {
        let speakers = [
            (Role::Driver, self.drivers.as_slice()),
            (Role::Visitor, &self.visitors),
            (Role::Member, &self.members),
            (Role::Worker, &self.workers.iter().copied().collect::<Vec<_>>()),
        ];
        let speakers: Vec<(Role, Key)> =
            speakers.into_iter().flat_map(|(role, keys)| keys.iter().map(move |key| (role, *key))).collect();
        let (role, from) = speakers[self.chance.usize(..speakers.len())];
        // What is not for them is tried again at times: by then it may be.
        let kind =
            match (0..8).map(|_| frames::kind(&mut self.chance)).find(|kind| !self.ignored.contains(&(role, *kind))) {
                Some(kind) => kind,
                None => frames::kind(&mut self.chance),
            };
        let Some(message) = self.message(kind) else { return };
        let message = if role == Role::Member && self.chance.bool() { self.relay(&message) } else { message };
        self.last = Some((from, message.clone()));
        let began = computed();
        self.says(role, from, message);
        self.settle();
        let took = computed().saturating_sub(began);
        if took > self.told.slowest.0 {
            self.told.slowest = (took, kind);
        }
    }

    fn message(&mut self, kind: u16) -> Option<Message> {
        self.told.frames += 1;
        let body = grammar::body(&mut self.chance, Shape::of(kind)?, &self.pool);
        let message = Message::decode(kind, body.into()).ok()??;
        self.told.messages += 1;
        Some(message)
    }

    fn relay(&mut self, message: &Message) -> Message {
        let number = grammar::number(&mut self.chance, &self.pool);
        message.relayed(WorkerNumber(number)).into()
    }

    /// What the shell does with what somebody says: what is not for it is refused there.
    fn says(&mut self, role: Role, from: Key, message: Message) {
        let kind = message.kind();
        let is_heard = match role {
            Role::Driver | Role::Worker => ClientToDaemon::of(message).map(|message| self.client_says(from, message)),
            Role::Visitor => VisitorToDaemon::of(message).map(|message| self.visitor_says(from, message)),
            Role::Member => NodeToHead::of(message).map(|message| self.member_says(from, message)),
        };
        if !is_heard.unwrap_or(false) {
            self.ignored.insert((role, kind));
        }
    }

    fn client_says(&mut self, from: Key, message: ClientToDaemon) -> bool {
        match message {
            ClientToDaemon::Head(message) => self.core.client_said(from, message),
            ClientToDaemon::Worker(message) => self.core.worker_said(from, &message),
            ClientToDaemon::Machine(asked) => self.core.worker_asked(from, &asked),
            ClientToDaemon::Report(asked) => self.reports(&asked),
            ClientToDaemon::Store(_) => return false,
        }
        true
    }

    fn visitor_says(&mut self, from: Key, message: VisitorToDaemon) -> bool {
        match message {
            VisitorToDaemon::Head(message) => self.visits(from, message),
            VisitorToDaemon::Report(asked) => self.reports(&asked),
            VisitorToDaemon::Session(_) => return false,
        }
        true
    }

    fn reports(&mut self, asked: &ReportQuery) {
        match asked {
            ReportQuery::HoldingsQuery(asked) => drop(self.core.holdings(asked, |_| None)),
            ReportQuery::ClusterQuery(asked) => {
                let _ = self.core.report(asked.request, &oxiray_head::StoreFigures::default(), 0);
            }
        }
    }

    fn visits(&mut self, from: Key, message: VisitorToHead) {
        match message {
            VisitorToHead::StateQuery(asked) => self.core.state_query(from, *asked),
            VisitorToHead::MetricsQuery(asked) => self.core.metrics_query(from, &asked),
            VisitorToHead::DrainAsked(asked) => self.core.drain_asked(from, &asked),
            VisitorToHead::DeviceAsked(asked) => self.core.device_asked(from, &asked),
            VisitorToHead::EndAsked(asked) => self.core.end_asked(from, &asked),
            VisitorToHead::StateFollow(asked) => self.core.state_follow(from, asked),
            VisitorToHead::ChronicleFollow(asked) => self.core.chronicle_follow(from, asked),
            VisitorToHead::GrowthState(state) => self.core.growth_state(from, &state),
            VisitorToHead::GrowthQuery(asked) => self.core.growth_query(from, asked.request),
            VisitorToHead::SubmissionAsked(asked) => self.core.submission_asked(from, &asked, 1),
            // The shell has the tokens and the files of logs.
            VisitorToHead::TokenAsked(_) | VisitorToHead::LogQuery(_) => {}
        }
    }

    fn member_says(&mut self, from: Key, message: NodeToHead) -> bool {
        match message {
            NodeToHead::Report(report) => self.core.member_said(from, report),
            NodeToHead::Daemon(NodeToDaemon::Relay(relayed)) => self.passes_on(from, *relayed),
            NodeToHead::Daemon(NodeToDaemon::Locate(asked)) => {
                self.core.locate(Some(from), asked.object, asked.without, false);
            }
            NodeToHead::Daemon(NodeToDaemon::Copied(said)) => self.core.copied(from, said.object),
            NodeToHead::Daemon(NodeToDaemon::Spilled(said)) => self.core.spilled(said.object),
            NodeToHead::Daemon(NodeToDaemon::CopyRefused(said)) => {
                self.core.cannot_come(Some(from), said.object);
            }
            // What the shell keeps to itself.
            NodeToHead::Daemon(_) => return false,
        }
        true
    }

    fn passes_on(&mut self, member: Key, relayed: Relay) {
        let Some(process) = self.core.process_of(member, relayed.worker) else { return };
        let kind = u16::try_from(relayed.kind).unwrap_or(u16::MAX);
        if self.core.is_visiting(process) {
            return match RelayedOfVisitor::decode(kind, relayed.body) {
                Ok(Some(RelayedOfVisitor::Head(message))) => self.visits(process, message),
                Ok(Some(RelayedOfVisitor::Report(asked))) => self.reports(&asked),
                Ok(None) | Err(_) => {}
            };
        }
        match RelayedToHead::decode(kind, relayed.body) {
            Ok(Some(RelayedToHead::Node(NodeOfWorker::Stored(said)))) => {
                self.core.stored_elsewhere(process, said.object);
            }
            Ok(Some(RelayedToHead::Node(NodeOfWorker::Abort(said)))) => {
                self.core.unstored_elsewhere(process, said.object);
            }
            Ok(Some(RelayedToHead::Node(NodeOfWorker::LogLines(_)))) => drop(self.core.log_target(process)),
            Ok(Some(RelayedToHead::Worker(message))) => self.core.worker_said(process, &message),
            Ok(Some(RelayedToHead::Report(asked))) => self.reports(&asked),
            Ok(Some(RelayedToHead::Head(message))) => self.core.client_said(process, message),
            Ok(None) | Err(_) => {}
        }
    }

    fn time_passes(&mut self) {
        let most = [1, 50, 1_000, 20_000][self.chance.usize(..4)];
        self.now += Duration::from_millis(self.chance.u64(..=most));
        self.core.set_now(self.now);
    }

    fn somebody_goes(&mut self) {
        if self.chance.bool() && !self.members.is_empty() {
            let gone = self.members.swap_remove(self.chance.usize(..self.members.len()));
            if self.chance.bool() {
                self.core.member_silent(gone, self.chance.bool());
            }
            self.core.member_gone(gone);
        } else if !self.drivers.is_empty() {
            let gone = self.drivers.swap_remove(self.chance.usize(..self.drivers.len()));
            self.core.driver_left(gone);
        }
    }

    fn a_worker_is_gone(&mut self) {
        let among = if self.doomed.is_empty() { &self.workers } else { &self.doomed };
        let Some(worker) = among.iter().nth(self.chance.usize(..among.len().max(1))).copied() else { return };
        self.workers.remove(&worker);
        self.doomed.remove(&worker);
        if self.chance.bool() {
            self.core.worker_died(worker);
        }
        self.core.worker_gone(worker, "killed by signal 9 (SIGKILL)");
    }

    fn settle(&mut self) {
        loop {
            let effects = self.core.settle();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.carry_out(effect);
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send { message, .. } => {
                *self.told.effective.entry(message.kind()).or_default() += 1;
                self.pool.learn(&message);
            }
            Effect::Join { placed, worker, .. } => {
                self.pool.learn(&placed);
                self.pool.number(worker);
            }
            Effect::Fork { worker, .. } if self.chance.u8(..) < 10 => {
                self.core.worker_gone(worker, "could not be started");
            }
            Effect::Fork { worker, .. } => {
                self.last_pid += 1;
                self.workers.insert(worker);
                self.pool.number(worker);
                self.core.forked(worker, self.last_pid);
            }
            Effect::Kill { worker } if self.workers.remove(&worker) => drop(self.doomed.insert(worker)),
            Effect::KillMember { member: peer } | Effect::Close { client: peer } => self.goes(peer),
            Effect::Expel { peer, .. } => {
                self.told.expelled += 1;
                self.goes(peer);
            }
            Effect::Copy { object } if self.chance.bool() => self.core.copied_here(object),
            Effect::Copy { object } => self.core.cannot_come(None, object),
            Effect::AskDevice(question) => {
                let said = [Residue::Gone, Residue::Gone, Residue::Held, Residue::Unknown];
                self.core.device_answered(&question, said[self.chance.usize(..said.len())]);
            }
            Effect::Prepare { number, .. } => {
                let made = if self.chance.bool() { Ok(vec!["python".to_owned()]) } else { Err("no".to_owned()) };
                self.core.prepared(number, made);
            }
            _ => {}
        }
    }

    fn goes(&mut self, peer: Key) {
        if let Some(place) = self.drivers.iter().position(|key| *key == peer) {
            self.drivers.swap_remove(place);
            self.core.driver_left(peer);
        } else if let Some(place) = self.members.iter().position(|key| *key == peer) {
            self.members.swap_remove(place);
            self.core.member_gone(peer);
        }
    }
}

/// For how long this thread has computed: whoever else is busy on the machine does not count.
fn computed() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn plan() -> Plan {
    let requested = BTreeMap::from([("CPU".to_owned(), 2.0), ("GPU".to_owned(), 2.0)]);
    let detection = Detection { families: Vec::new(), warnings: Vec::new(), ruled_out: Vec::new() };
    let offer = offer(&detection, &|_| None, &requested).expect("whole numbers of anything can be offered");
    let named = requested.iter().map(|(name, total)| (ResourceName::new(name).expect("a proper name"), *total));
    Plan {
        node: NodeId::new([0xee; 28]),
        inventory: Inventory::new(named).expect("whole numbers of anything can be had"),
        offer,
        isolation: IsolationPlan::default(),
        labels: BTreeMap::new(),
        store_bytes: 1 << 30,
        hostname: "here".into(),
        started_ms: 0,
        name: "fuzzed".into(),
        ip: "127.0.0.1".into(),
        variables: BTreeMap::new(),
        spare_workers: 1,
        rules: oxiray_machine::Rules { node: Duration::from_secs(5), ..oxiray_machine::Rules::default() },
        warnings: Vec::new(),
        epoch: 0,
    }
}
