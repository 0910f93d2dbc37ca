//! The runtime of a driver or a worker: the real core, and the time, the streams and the timers that it needs.
//!
//! - CLIENT-1: each lease is granted once, and its end is told once.
//! - CLIENT-2: a subscription is answered once.
//! - CLIENT-3: a process whose program let go of everything keeps nothing.

use crate::agenda::{Event, Micros};
use crate::ports::Ports;
use crate::process::{Kind, Life};
use crate::program::Program;
use crate::stream::{Descriptor, Packet};
use crate::world::{ProcessIndex, World};
use oxiray_ids::{LeaseNumber, ObjectId, PlacementGroupId, Unique};
use oxiray_runtime::{Client as Core, ClientEvent, DAEMON, Identity, Retained, Token};
use oxiray_wire::Message;
use oxiray_wire::message::{Assign, Failure, FailureCode, Welcome};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

/// What was said to a process, and by it, as far as it must agree.
#[derive(Debug, Default)]
pub(crate) struct Said {
    granted: BTreeSet<LeaseNumber>,
    ended: BTreeSet<LeaseNumber>,
    /// How many leases it was asked to give back.
    pub(crate) retired: u64,
    subscribed: BTreeMap<ObjectId, u32>,
    /// Detached groups that are to be made, by the number of the question.
    detached_groups: BTreeMap<u64, PlacementGroupId>,
}

/// The runtime of a driver or a worker.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) core: Core<Ports>,
    pub(crate) program: Program,
    pub(crate) said: Said,
    /// When its core is woken for what is due.
    due: Option<Micros>,
}

impl Client {
    /// What it still waits for, in words; empty where everything was answered.
    pub(crate) fn awaits(&self) -> Vec<String> {
        self.program.awaits()
    }
}

impl World {
    /// The client of a process that has one.
    pub(crate) fn client(&mut self, process: ProcessIndex) -> &mut Client {
        self.processes[process].client.as_mut().expect("the process has a runtime")
    }

    /// The moment as processes see it.
    fn instant(&self) -> Instant {
        self.start + Duration::from_micros(self.now)
    }

    /// Has the core of a process do something, and then what it wants done.
    pub(crate) fn with_core<R>(&mut self, process: ProcessIndex, act: impl FnOnce(&mut Core<Ports>) -> R) -> R {
        let now = self.instant();
        let core = &mut self.client(process).core;
        core.set_now(now);
        let result = act(core);
        self.carry_out_for(process);
        result
    }

    /// A process learns who it is.
    pub(crate) fn comes_to_life(&mut self, process: ProcessIndex, packet: Packet) {
        let Packet::Said { message, .. } = packet else { return self.dies(process) };
        self.log.line(self.now, format_args!("process {process} begins with {message:?}"));
        match *message {
            Message::Welcome(welcome) => {
                self.begin_client(process, &welcome, None);
                self.agenda.plan(self.now + 1000, Event::Step(process));
            }
            Message::Assign(assign) => {
                let welcome = assign.welcome.clone().expect("a worker is told who it is");
                self.processes[process].access.takes_on(assign.fence.as_ref());
                self.begin_client(process, &welcome, Some(&assign));
                if let Some(actor) = &assign.actor {
                    self.construct(process, actor);
                }
            }
            _ => {}
        }
    }

    fn begin_client(&mut self, process: ProcessIndex, welcome: &Welcome, assign: Option<&Assign>) {
        let identity = Identity::from_welcome(welcome);
        let is_driver = self.processes[process].kind == Kind::Driver;
        let returns = is_driver && self.options.heads_die && self.options.heads_are_awaited;
        let ports = Ports::new(self.processes[process].control, returns);
        let unique = Unique::of_seed(self.chance.seed());
        let began = (self.instant(), SystemTime::UNIX_EPOCH + Duration::from_micros(self.now));
        let mut core = Core::new(identity, ports, unique, began);
        if returns {
            core.wait_for_daemon();
        }
        if let Some(assign) = assign {
            core.assigned(assign);
            if assign.actor.is_none() {
                core.serve_interrupts();
            }
        }
        let client = Client { core, program: Program::default(), said: Said::default(), due: None };
        self.processes[process].client = Some(client);
    }

    /// Plans to wake the core for what is due.
    pub(crate) fn wake_for(&mut self, process: ProcessIndex) {
        let (start, now) = (self.start, self.now);
        let Some(client) = &mut self.processes[process].client else { return };
        let Some(at) = client.core.next_timer() else { return };
        let at = (at.saturating_duration_since(start).as_nanos().div_ceil(1000) as Micros).max(now);
        if client.due.is_none_or(|due| at < due || due < now) {
            client.due = Some(at);
            self.agenda.plan(at, Event::Due(process));
        }
    }

    /// Something may be due at a process.
    pub(crate) fn due(&mut self, process: ProcessIndex) {
        if self.processes[process].life != Life::Running || self.processes[process].client.is_none() {
            return;
        }
        self.client(process).due = None;
        let now = self.instant();
        self.with_core(process, |core| core.run_timers(now));
        self.go_on(process);
    }

    /// What a process does of what it has heard.
    pub(crate) fn go_on(&mut self, process: ProcessIndex) {
        while self.processes[process].life == Life::Running {
            match self.client(process).core.take_news() {
                Some(ClientEvent::Over) if self.processes[process].kind == Kind::Driver => return self.dies(process),
                Some(_) => {}
                None => break,
            }
        }
        self.serve(process);
        self.look_at_values(process);
    }

    /// What a process says.
    pub(crate) fn note_said(&mut self, process: ProcessIndex, message: &Message) {
        let said = &mut self.client(process).said;
        match message {
            Message::Subscribe(asked) => {
                let object = asked.reference.as_ref().map(|reference| reference.object).unwrap_or_default();
                *said.subscribed.entry(object).or_default() += 1;
            }
            // All of it is said again.
            Message::ClientResume(_) => said.subscribed.clear(),
            Message::GroupCreate(asked) if asked.detached => {
                said.detached_groups.insert(asked.request, asked.group);
            }
            _ => {}
        }
    }

    /// CLIENT-1, CLIENT-2, DISK-1.
    pub(crate) fn check_heard(&mut self, process: ProcessIndex, token: Token, message: &Message) {
        if token != DAEMON {
            return;
        }
        let said = &mut self.client(process).said;
        match message {
            Message::LeaseGranted(told) => {
                assert!(said.granted.insert(told.lease), "CLIENT-1: lease {} is granted twice", told.lease);
            }
            Message::LeaseEnded(told) => {
                let is_first = said.granted.contains(&told.lease) && said.ended.insert(told.lease);
                assert!(is_first, "CLIENT-1: the end of lease {} is told twice, or it was never granted", told.lease);
            }
            Message::LeaseRetire(_) => said.retired += 1,
            Message::LeaseRefused(told) if is_for_deadlock(told.failure.as_ref()) => self.is_said_to_be_stuck(process),
            Message::Published(told) => {
                let subscribed = said.subscribed.get_mut(&told.object).filter(|count| **count > 0);
                *subscribed.expect("CLIENT-2: a subscription is answered once") -= 1;
            }
            Message::GroupAnswer(told) if told.failure.is_none() => {
                if let Some(group) = said.detached_groups.remove(&told.request) {
                    self.check_detached_group(process, group);
                }
            }
            Message::ActorAnswer(told) if told.failure.is_none() => {
                if let Some(actor) = told.actor.filter(|actor| self.detached.contains(actor)) {
                    self.check_row("an actor", actor.as_bytes());
                }
            }
            _ => {}
        }
    }

    /// CLIENT-3.
    pub(crate) fn check_nothing_is_kept(&self, process: ProcessIndex) -> Option<Retained> {
        let kept = self.processes[process].client.as_ref()?.core.kept();
        let nothing = Retained { objects: 0, tasks: 0, leases: kept.leases, task_specs: 0, task_spec_bytes: 0 };
        (kept != nothing).then_some(kept)
    }

    /// A driver's stream to its daemon is over, and the daemon may come back.
    pub(crate) fn look_for_head(&mut self, process: ProcessIndex) {
        self.look_for_head_from(process, self.now);
    }

    /// The driver hears of a daemon that it was let in by, before its core does.
    pub(crate) fn hears_of_next_head(&mut self, process: ProcessIndex, packet: Packet) {
        match packet {
            Packet::Said { message, .. } => {
                let Message::Welcome(welcome) = *message else { return };
                let control: Descriptor = self.processes[process].control;
                self.client(process).core.io().daemon_is_back(control);
                self.with_core(process, |core| core.daemon_back(welcome.epoch));
                self.read_again(process);
                self.go_on(process);
            }
            Packet::Over => self.look_for_head(process),
        }
    }
}

fn is_for_deadlock(failure: Option<&Failure>) -> bool {
    failure.is_some_and(|failure| failure.code == FailureCode::DeviceDeadlock)
}
