//! What drivers do of their own: make work while there is trouble, and leave when everything is answered.

use crate::agenda::{Event, MILLISECOND, Micros, SECOND};
use crate::client::{Client, Kind, Task};
use crate::groups::WITHIN;
use crate::node::Role;
use crate::process::{Life, Process};
use crate::stream::{Descriptor, End, Packet};
use crate::world::{ProcessIndex, World};
use bytes::Bytes;
use oxiray_wire::Message;
use oxiray_wire::message::{Amount, Driver, Goodbye, LabelCondition, Strategy};

/// What tasks ask for, in 1/10,000.
const DEMANDS: [&[(&str, u64)]; 9] = [
    &[("CPU", 10_000)],
    &[("CPU", 10_000)],
    &[("CPU", 20_000)],
    &[("CPU", 5_000)],
    &[("CPU", 10_000), ("GPU", 10_000)],
    &[("CPU", 10_000), ("GPU", 5_000)],
    &[("GPU", 3_000)],
    &[("GPU", 20_000)],
    &[("CPU", 10_000), ("disk", 10_000)],
];

/// How long after the calm somebody ends what is detached.
pub(crate) const DETACHED_END_AFTER: Micros = 40 * SECOND;
/// What a task takes at most, so that what comes to rest does so in time.
const TASK_LONGEST: Micros = 10 * SECOND;

impl World {
    /// A driver connects to the head.
    pub(crate) fn driver_comes(&mut self) {
        if self.is_without_head() {
            return self.agenda.plan(self.now + SECOND / 2, Event::DriverComes);
        }
        let process = self.processes.len();
        let key = self.nodes[0].core.new_key();
        let stream = self.new_stream([End::Node { node: 0, key }, End::Process(process)], 50);
        let mut driver = Process::new(0, crate::process::Kind::Driver, Life::Running, stream);
        self.last_pid += 1;
        driver.pid = self.last_pid;
        self.processes.push(driver);
        self.drivers.push(process);
        self.nodes[0].streams.insert(key, (stream, Role::Driver));
        self.log.line(self.now, format_args!("driver {process} comes as {key}"));
        let told = Driver {
            pid: self.last_pid,
            interpreter: "python".into(),
            namespace: if self.chance.odds(500) { "shared".into() } else { String::new() },
            ..Driver::default()
        };
        self.wake(0);
        self.nodes[0].core.driver_joined(key, told);
        self.after_event(0);
    }

    /// Something arrives at a process.
    pub(crate) fn process_hears(&mut self, process: ProcessIndex, at: Descriptor, packet: Packet) {
        if self.processes[process].life != Life::Running {
            return self.lose(&packet);
        }
        if at == self.processes[process].control {
            return match packet {
                Packet::Said { message, descriptor } => {
                    self.log.line(self.now, format_args!("process {process} <- {message:?}"));
                    self.told_by_daemon(process, *message, descriptor);
                }
                _ => self.daemon_is_gone(process),
            };
        }
        if let Some(lease) = self.lease_of(process, at) {
            return self.worker_said(process, lease, &packet);
        }
        if let Some(actor) = self.actor_of(process, at) {
            return self.actor_said(process, &actor, &packet);
        }
        match packet {
            Packet::Call(call) => self.called(process, at, call),
            Packet::Cancel { number, force } => self.told_to_cancel(process, at, number, force),
            Packet::Over => self.caller_left(process, at),
            Packet::Said { .. } | Packet::Reply(_) => self.lose(&packet),
        }
    }

    fn told_by_daemon(&mut self, process: ProcessIndex, message: Message, descriptor: Option<Descriptor>) {
        match message {
            Message::Welcome(welcome) if self.processes[process].client.is_some() => {
                self.resume(process, welcome.epoch);
            }
            Message::HeadBack(said) => self.resume(process, said.epoch),
            Message::Forgotten(said) => self.forgotten(process, &said.object),
            Message::Welcome(welcome) => {
                self.processes[process].client = Some(Client::new(&welcome));
                self.agenda.plan(self.now + MILLISECOND, Event::Step(process));
            }
            Message::Assign(assign) => self.assigned(process, &assign),
            Message::Peer(_) => {
                let end = descriptor.expect("a peer comes with a stream");
                self.processes[process].callers.push(end);
                self.adopt(end, process);
            }
            Message::LeaseGranted(said) => self.lease_granted(process, &said, descriptor),
            Message::LeaseRefused(said) => self.lease_refused(process, said.request),
            Message::LeaseEnded(said) => self.lease_ended(process, &said),
            Message::LeaseRetire(asked) => self.retire_lease(process, asked.lease),
            Message::LeaseReclaim(_) => self.return_idle(process),
            Message::ActorAnswer(said) => self.actor_answered(process, &said),
            Message::ActorPlaced(said) => self.actor_placed(process, &said, descriptor),
            Message::ActorRestarting(said) => self.actor_restarts(process, &said),
            Message::ActorDied(said) => self.actor_is_dead(process, &said),
            Message::KeptAnswer(said) => self.kept_answered(process, &said),
            Message::GroupAnswer(said) => self.group_answered(process, &said),
            Message::Published(said) => self.value_came(process, &said),
            Message::Lost(said) => self.told_of_loss(process, &said.object),
            Message::Stop(_) => self.stop(process),
            _ => self.lose(&Packet::Said { message: Box::new(message), descriptor }),
        }
    }

    /// A driver's program goes on.
    pub(crate) fn step(&mut self, process: ProcessIndex) {
        if self.processes[process].life != Life::Running {
            return;
        }
        self.tend_actors(process);
        self.tend_groups(process);
        if self.is_calm {
            if self.now >= self.options.calm_at + DETACHED_END_AFTER {
                self.end_the_detached(process);
                self.end_detached_groups(process);
                if !std::mem::replace(&mut self.has_looked, true) {
                    self.look_at_what_is_kept(process);
                }
            }
            if self.client(process).awaits().is_empty() {
                return self.leaves(process);
            }
            return self.agenda.plan(self.now + SECOND / 2, Event::Step(process));
        }
        if self.options.drivers_leave && self.chance.odds(15) {
            if self.chance.odds(500) {
                return self.dies(process);
            }
            return self.leaves(process);
        }
        for _ in 0..self.chance.between(1, 4) {
            match self.chance.between(0, 9) {
                0 | 1 if self.options.has_actors => {
                    let strategy = self.strategy(process);
                    self.make_actor(process, strategy);
                }
                2 if self.options.has_actors => self.look_for_actor(process),
                6 if self.options.heads_die => self.keep_value(process),
                3 if self.options.has_groups => self.make_group(process),
                4 | 5 if self.options.has_objects => self.make_object(process),
                7 if self.options.tasks_are_cancelled => self.cancel_some_task(process),
                _ => self.make_task(process),
            }
        }
        let at = self.now + self.chance.delay(500 * MILLISECOND);
        self.agenda.plan(at, Event::Step(process));
    }

    /// The program is at its end.
    pub(crate) fn leaves(&mut self, process: ProcessIndex) {
        self.processes[process].is_leaving = true;
        self.say(process, Goodbye::default());
    }

    fn make_task(&mut self, process: ProcessIndex) {
        let strategy = self.strategy(process);
        let within = strategy.as_ref().is_some_and(|strategy| strategy.kind == WITHIN);
        let demand = if within { DEMANDS[3] } else { self.chance.one_of(&DEMANDS) };
        let fresh = self.chance.odds(100);
        let kind = Kind { demand: amounts(demand), strategy, fresh, preparation: self.some_preparation() };
        let usual = if self.chance.odds(50) { 3 * SECOND } else { 50 * MILLISECOND };
        let time = self.chance.delay(usual).min(TASK_LONGEST);
        let is_parent = self.options.tasks_nest && self.chance.odds(150);
        let children = if is_parent { self.chance.between(1, 3) as u32 } else { 0 };
        self.submit(process, kind, Task { time, children, retries: 2, awaited_by: None });
    }

    fn strategy(&mut self, process: ProcessIndex) -> Option<Strategy> {
        if self.options.has_groups && self.chance.odds(300) {
            return self.within(process);
        }
        if !self.options.has_strategies || self.chance.odds(700) {
            return None;
        }
        let kind = self.chance.between(1, 3) as u32;
        let node = self.chance.between(0, self.nodes.len() as u64) as u8;
        let zone = self.chance.one_of(&["a", "b", "c"]);
        let condition = LabelCondition { key: "zone".into(), operator: 1, values: vec![zone.into()] };
        let is_hard = self.chance.odds(500);
        let (hard, preferred) = if is_hard { (vec![condition], Vec::new()) } else { (Vec::new(), vec![condition]) };
        Some(Strategy {
            kind,
            node: vec![node; 28].into(),
            soft: self.chance.odds(500),
            spill: self.chance.odds(500),
            hard,
            preferred,
            ..Strategy::default()
        })
    }
}

/// Bytes as they travel.
pub(crate) fn bytes(of: &[u8]) -> Bytes {
    Bytes::copy_from_slice(of)
}

/// Amounts as they travel.
pub(crate) fn amounts(named: &[(&str, u64)]) -> Vec<Amount> {
    named.iter().map(|(resource, units)| Amount { resource: (*resource).to_owned(), units: *units }).collect()
}
