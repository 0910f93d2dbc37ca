//! The world: everything there is, and what happens next.

use crate::agenda::{Agenda, Event, MILLISECOND, Micros, SECOND};
use crate::chance::Chance;
use crate::gpus::Gpus;
use crate::heads::Disk;
use crate::log::Log;
use crate::machine::{Machine, Memory};
use crate::node::Node;
use crate::options::Options;
use crate::process::{Life, Process};
use crate::program::DETACHED_END_AFTER;
use crate::stream::Stream;
use crate::waits::{Seen, Standstill};
use oxiray_ids::{ActorId, ObjectId, PlacementGroupId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

pub(crate) type NodeIndex = usize;
pub(crate) type ProcessIndex = usize;
pub(crate) type StreamIndex = usize;

/// How long everything may take to come to rest once nothing goes wrong any more and the last call has begun.
const REST_LIMIT: Micros = 300 * SECOND;
/// How long at most, with all calls: each may hold a device while its children wait for a node that never comes.
const REST_LONGEST: Micros = 10 * REST_LIMIT;
/// How often it is looked whether it has.
const LOOK_PERIOD: Micros = SECOND;

/// The calls that programs made, each by its number.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// The number of the last one.
    pub(crate) last: u64,
    /// How often each may be begun at most, and was; by whom it was made, where that matters.
    pub(crate) most_begun: BTreeMap<u64, u32>,
    pub(crate) begun: BTreeMap<u64, u32>,
    /// When the last one was begun.
    pub(crate) begun_at: Micros,
    pub(crate) callers: BTreeMap<u64, ProcessIndex>,
    /// The last one of each caller that each actor's process has begun.
    pub(crate) last_begun: BTreeMap<(ProcessIndex, ProcessIndex), u64>,
}

/// A cluster and all that surrounds it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) options: Options,
    pub(crate) chance: Chance,
    pub(crate) start: Instant,
    pub(crate) now: Micros,
    pub(crate) agenda: Agenda,
    pub(crate) log: Log,
    pub(crate) machines: Vec<Machine>,
    /// The first is the head; one that died stays, and its machine may get another.
    pub(crate) nodes: Vec<Node>,
    pub(crate) processes: Vec<Process>,
    pub(crate) drivers: Vec<ProcessIndex>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) last_pid: u32,
    /// Actors that outlive whoever made them.
    pub(crate) detached: Vec<ActorId>,
    pub(crate) detached_groups: Vec<PlacementGroupId>,
    /// How often each actor may be constructed, and was.
    pub(crate) constructed: BTreeMap<ActorId, (u32, u32)>,
    pub(crate) disk: Disk,
    pub(crate) calls: Calls,
    pub(crate) standstill: Standstill,
    pub(crate) seen: Seen,
    /// What programs freed.
    pub(crate) freed: BTreeSet<ObjectId>,
    /// Somebody looked at the end whether what was kept is there.
    pub(crate) has_looked: bool,
    /// How often a link broke or stood still, or a node did.
    pub(crate) troubles: u64,
    /// How often a member ended all that it was granted.
    pub(crate) fenced: u64,
    /// Nothing goes wrong any more, and no new work comes.
    pub(crate) is_calm: bool,
}

impl World {
    pub(crate) fn new(options: Options, log: Log) -> Self {
        let chance = Chance::new(options.seed);
        Self {
            options,
            chance,
            start: Instant::now(),
            now: 0,
            agenda: Agenda::default(),
            log,
            machines: Vec::new(),
            nodes: Vec::new(),
            processes: Vec::new(),
            drivers: Vec::new(),
            streams: Vec::new(),
            last_pid: 100,
            detached: Vec::new(),
            detached_groups: Vec::new(),
            constructed: BTreeMap::new(),
            disk: Disk::default(),
            calls: Calls::default(),
            standstill: Standstill::default(),
            seen: Seen::default(),
            freed: BTreeSet::new(),
            has_looked: false,
            troubles: 0,
            fenced: 0,
            is_calm: false,
        }
    }

    /// Runs from the first node's start until all is quiet.
    ///
    /// # Panics
    /// Where something does not hold that must, or somebody waits in vain.
    pub(crate) fn run(&mut self) {
        for index in 0..=self.options.members {
            let machine = Machine {
                cpus: self.chance.between(u64::from(index != 0), 4) as u32,
                gpus: Gpus::new(self.options.gpus(index, self.chance.between(0, 2))),
                disks: self.chance.between(0, 1) as u32,
                zone: self.chance.one_of(&["a", "b"]),
                memory: Memory::default(),
                predecessor: None,
                cut_until: 0,
            };
            self.machines.push(machine);
            let at = if index == 0 { 0 } else { self.chance.between(0, SECOND) };
            self.agenda.plan(at, Event::NodeComes { machine: index });
        }
        for _ in 0..self.options.drivers {
            let at = self.chance.between(10 * MILLISECOND, self.options.calm_at / 2);
            self.agenda.plan(at, Event::DriverComes);
        }
        self.agenda.plan(self.options.between_faults, Event::Fault);
        self.agenda.plan(self.options.calm_at, Event::Calm);
        self.agenda.plan(self.options.calm_at + DETACHED_END_AFTER, Event::DriverComes);
        let mut look_at = self.options.calm_at;
        while let Some((at, event)) = self.agenda.next() {
            self.now = at;
            self.happen(event);
            self.look_for_standstill();
            if self.is_calm && self.now >= look_at {
                look_at = self.now + LOOK_PERIOD;
                let unrest = self.unrest();
                if unrest.is_empty() {
                    return;
                }
                let has_time = self.now < self.calls.begun_at.max(self.options.calm_at) + REST_LIMIT
                    && self.now < self.options.calm_at + REST_LONGEST;
                assert!(has_time, "nobody waits for ever, and nothing is left:\n  {}", unrest.join("\n  "));
            }
        }
    }

    /// Goes on until that moment, or until something is so; says whether it is.
    pub(crate) fn run_until(&mut self, until: Micros, is_so: impl Fn(&Self) -> bool) -> bool {
        while !is_so(self) {
            match self.agenda.next() {
                Some((at, event)) if at <= until => {
                    self.now = at;
                    self.happen(event);
                }
                Some((at, event)) => {
                    self.agenda.plan(at, event);
                    self.now = until;
                    return false;
                }
                None => return false,
            }
        }
        true
    }

    /// The node that an event is for, which has to be awake.
    fn concerns(&self, event: Event) -> Option<NodeIndex> {
        match event {
            Event::Fetched { node, .. }
            | Event::Prepared { node, .. }
            | Event::DeviceAnswers { node, .. }
            | Event::Dials(node)
            | Event::Turn(node)
            | Event::Forked { node, .. }
            | Event::TemplateEnds { node, .. } => Some(node),
            Event::Noticed(process) | Event::Gone(process) => Some(self.processes[process].node),
            Event::NodeGone(_) | Event::DriverComes | Event::Look | Event::Written => Some(0),
            Event::Arrive { .. }
            | Event::Dies(_)
            | Event::Finished { .. }
            | Event::Constructed(_)
            | Event::Redials { .. }
            | Event::Step(_)
            | Event::Due(_)
            | Event::NodeComes { .. }
            | Event::Beat(_)
            | Event::Thaws(_)
            | Event::Heals { .. }
            | Event::Fault
            | Event::Calm => None,
        }
    }

    fn happen(&mut self, event: Event) {
        let node = self.concerns(event);
        if let Some(until) = node.and_then(|node| self.nodes[node].frozen_until) {
            return self.agenda.plan(until, event);
        }
        if let Some(node) = node.filter(|node| self.nodes[*node].is_alive) {
            self.wake(node);
        }
        self.happens(event);
        if let Some(node) = node.filter(|node| self.nodes[*node].is_alive) {
            match event {
                Event::Turn(_) => self.settle(node),
                _ => self.after_event(node),
            }
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Arrive { stream, to } => self.arrive(stream, to),
            Event::Turn(_) => {}
            Event::Forked { node, worker } => self.forked(node, worker),
            Event::TemplateEnds { node, template } => self.template_ends(node, template),
            Event::Dies(process) => self.dies(process),
            Event::Noticed(process) => self.noticed(process),
            Event::Gone(process) => self.is_gone(process),
            Event::Finished { process, run } => self.finished(process, run),
            Event::Constructed(process) => self.constructed(process),
            Event::Dials(node) => self.dial_head(node),
            Event::Redials { process, until } => self.redial_head(process, until),
            Event::Prepared { node, number } => self.prepared(node, number),
            Event::Written => self.written(),
            Event::DeviceAnswers { node, number } => self.device_answers(node, number),
            Event::Fetched { node, object, from } => self.fetched(node, object, from),
            Event::Step(process) => self.step(process),
            Event::Due(process) => self.due(process),
            Event::DriverComes => self.driver_comes(),
            Event::NodeComes { machine } => self.node_comes(machine),
            Event::NodeGone(node) => self.member_is_gone(node),
            Event::Beat(node) => self.beat(node),
            Event::Look => self.look(),
            Event::Thaws(node) => self.nodes[node].frozen_until = None,
            Event::Heals { stream, to } => self.heal(stream, to),
            Event::Fault => self.fault(),
            Event::Calm => self.calm(),
        }
    }

    /// A node starts where nothing of the last one is left, on the devices neither: a node that starts knows nobody whom
    /// it could ask them about.
    fn node_comes(&mut self, machine: usize) {
        let of_machine = |process: &&Process| self.nodes[process.node].machine == machine;
        let is_worker = |process: &&Process| process.kind != crate::process::Kind::Driver;
        let mut left = self.processes.iter().filter(of_machine).filter(is_worker);
        let is_somebody_left = left.any(|process| process.life < Life::Gone);
        if is_somebody_left || !self.machines[machine].memory.of_the_dead(self.now).is_empty() {
            return self.agenda.plan(self.now + SECOND, Event::NodeComes { machine });
        }
        let cut_until = self.machines[machine].cut_until;
        if machine == 0 && !self.nodes.is_empty() {
            return self.head_comes();
        }
        if machine != 0 && self.is_without_head() {
            return self.agenda.plan(self.now + SECOND / 2, Event::NodeComes { machine });
        }
        let not_before = self.nodes.first().and_then(|head| head.frozen_until).unwrap_or(0).max(cut_until);
        if not_before > self.now {
            return self.agenda.plan(not_before, Event::NodeComes { machine });
        }
        self.start_node(machine);
    }

    fn calm(&mut self) {
        self.is_calm = true;
        self.spare_the_head();
        self.log.line(self.now, format_args!("calm"));
    }
}
