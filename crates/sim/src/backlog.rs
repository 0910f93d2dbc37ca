//! A driver with a backlog that keeps every worker busy for hours, and a second driver beside it: nothing goes wrong, and
//! nobody's turn may be far.

use crate::agenda::{Event, MILLISECOND, Micros, SECOND};
use crate::client::Client;
use crate::gpus::Gpus;
use crate::log::Log;
use crate::machine::{Machine, Memory};
use crate::options::Options;
use crate::program::CallKind;
use crate::spec::{Form, Spec};
use crate::world::{ProcessIndex, World};
use oxiray_runtime::Class;
use oxiray_wire::message::Environment;
use std::time::Duration;

/// What a task of a backlog takes.
const TASK_TIME: Micros = 50 * MILLISECOND;
/// For how long the first driver is alone.
const ALONE: Micros = 5 * SECOND;
/// For how long a turn is waited for.
const PATIENCE: Micros = 60 * SECOND;
/// For how long both drivers have a backlog, and how much of that is not counted.
const BESIDE: Micros = 20 * SECOND;
const SETTLING: Micros = 2 * SECOND;
/// The backlog of the second driver.
const SECOND_BACKLOG: u64 = 10_000;

/// What became of two drivers beside each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turns {
    /// How many leases of the first driver were recalled while it was alone.
    pub recalled_alone: u64,
    /// How long the one task of the second driver waited until it began; nothing where it did not within a minute.
    pub waited: Option<Duration>,
    /// The same for a task that needs all processors of a machine at once.
    pub waited_for_all: Option<Duration>,
    /// How many tasks of each began while both had a backlog.
    pub begun: [u64; 2],
    /// How many began in as long as that while the first was alone.
    pub begun_alone: u64,
}

/// Runs a driver with a backlog of so many tasks, and another beside it.
pub fn run_backlog(seed: u64, tasks: u64) -> Turns {
    let mut world = World::new(Options::without_faults(seed), Log::new(None));
    world.begin_machines();
    let first = world.scripted_driver();
    let own = world.add_backlog(first, tasks);
    let alone_since = world.now;
    world.run_until(alone_since + SETTLING, |_| false);
    let begun_early = world.calls.begun.len() as u64;
    world.run_until(alone_since + ALONE, |_| false);
    let begun_alone = world.calls.begun.len() as u64 - begun_early;
    let recalled_alone = world.client(first).retired();

    let second = world.scripted_driver();
    let waited = world.turn_of(second, 1);
    let cpus = world.machines.iter().map(|machine| u64::from(machine.cpus)).max().unwrap_or(1);
    let waited_for_all = world.turn_of(second, cpus);
    let other = world.add_backlog(second, SECOND_BACKLOG);
    let settled = world.now + SETTLING;
    world.run_until(settled, |_| false);
    let count =
        |world: &World| [&own, &other].map(|numbers| world.calls.begun.range((*numbers).clone()).count() as u64);
    let before = count(&world);
    let end = world.now + BESIDE - SETTLING;
    world.run_until(end, |_| false);
    let after = count(&world);
    Turns {
        recalled_alone,
        waited,
        waited_for_all,
        begun: [after[0] - before[0], after[1] - before[1]],
        begun_alone: begun_alone * ((BESIDE - SETTLING) / (ALONE - SETTLING)),
    }
}

impl World {
    /// Machines with processors and nothing else, each with a node.
    fn begin_machines(&mut self) {
        for index in 0..=self.options.members {
            self.machines.push(Machine {
                cpus: self.chance.between(1, 4) as u32,
                gpus: Gpus::default(),
                disks: 0,
                zone: "a",
                memory: Memory::default(),
                predecessor: None,
                cut_until: 0,
            });
            let at = index as Micros * 10 * MILLISECOND;
            self.agenda.plan(at, Event::NodeComes { machine: index });
        }
        let count = self.machines.len();
        assert!(self.run_until(SECOND, |world| world.nodes.len() == count), "every node comes");
    }

    /// A driver that does nothing of its own.
    fn scripted_driver(&mut self) -> ProcessIndex {
        self.driver_comes();
        let driver = *self.drivers.last().expect("it just came");
        let until = self.now + SECOND;
        assert!(self.run_until(until, |world| world.processes[driver].client.is_some()), "it is welcome");
        self.client(driver).program.is_scripted = true;
        driver
    }

    /// The numbers of the calls.
    fn add_backlog(&mut self, driver: ProcessIndex, tasks: u64) -> std::ops::RangeInclusive<u64> {
        let first = self.calls.last + 1;
        for _ in 0..tasks {
            self.call(driver, 1);
        }
        first..=self.calls.last
    }

    /// How long a task that needs so many processors waits until it begins.
    fn turn_of(&mut self, driver: ProcessIndex, cpus: u64) -> Option<Duration> {
        let asked = self.now;
        self.call(driver, cpus);
        let number = self.calls.last;
        let has_begun = self.run_until(asked + PATIENCE, |world| world.calls.begun.contains_key(&number));
        has_begun.then(|| Duration::from_micros(self.now - asked))
    }

    fn call(&mut self, driver: ProcessIndex, cpus: u64) {
        self.calls.last += 1;
        let spec =
            Spec { number: self.calls.last, time: TASK_TIME, children: 0, form: Form::Small, contained: Vec::new() };
        self.calls.most_begun.insert(spec.number, u32::MAX);
        let (given, contained) = (Vec::new(), Vec::new());
        let kind_of_call = CallKind { spec, retries: 2, max_calls: 0, retries_exceptions: false, given, contained };
        let work = self.work(driver, kind_of_call, false);
        let class = Class {
            demand: vec![("CPU".to_owned(), cpus * 10_000)],
            environment: Environment::default(),
            fresh: false,
            strategy: None,
            near: Vec::new(),
            priority: 0,
            preemptible: false,
        };
        self.with_core(driver, |core| {
            let class = core.class(class);
            core.submit_task(class, work);
            core.release_class(class);
        });
    }
}

impl Client {
    /// How many of its leases it was asked to give back.
    fn retired(&self) -> u64 {
        self.said.retired
    }
}
