//! Actors as programs make and call them, and as the processes that they become.
//!
//! - CALLER-1: an actor is made no more often than its restarts allow.

use crate::agenda::{Event, MILLISECOND, Micros, SECOND};
use crate::process::Life;
use crate::program::{Question, amounts};
use crate::spec::Spec;
use crate::world::{ProcessIndex, World};
use oxiray_ids::{ActorId, TaskId};
use oxiray_runtime::DaemonAnswer;
use oxiray_wire::message::{ActorCreate, ActorLookup, Strategy, StrategyKind};
use std::collections::btree_map::Entry;

/// What actors hold while they live.
const RUNNING: [&[(&str, u64)]; 5] =
    [&[], &[], &[("CPU", 10_000)], &[("GPU", 5_000)], &[("CPU", 10_000), ("GPU", 10_000)]];
/// The names that actors may have.
const NAMES: [&str; 3] = ["one", "two", "three"];

/// An actor of which a program has a handle.
#[derive(Debug)]
pub(crate) struct Owned {
    /// The handle keeps the actor.
    keeps: bool,
    /// When it is given up.
    ends_at: Micros,
}

impl World {
    /// A driver makes an actor.
    pub(crate) fn make_actor(&mut self, process: ProcessIndex, strategy: Option<Strategy>) {
        let within = strategy.as_ref().is_some_and(|strategy| strategy.kind == StrategyKind::Group);
        let running = if within { RUNNING[0] } else { self.chance.one_of(&RUNNING) };
        let mut placement = running.to_vec();
        if running.is_empty() {
            placement.push(("CPU", if within { 5_000 } else { 10_000 }));
        }
        let detached = self.chance.odds(150);
        let name = if self.chance.odds(300) { self.chance.one_of(&NAMES) } else { "" };
        let create = ActorCreate {
            name: name.into(),
            detached,
            get_if_exists: !name.is_empty() && self.chance.odds(300),
            placement: amounts(&placement),
            running: amounts(running),
            class_name: "C".into(),
            max_restarts: self.chance.between(0, 3) as i32 - 1,
            strategy,
            preemptible: self.options.preempts() && self.chance.odds(300),
            ..ActorCreate::default()
        };
        let counted = u32::try_from(create.max_restarts).map_or(u32::MAX, |restarts| restarts + 1);
        // One that ends early, by itself or with its group, is made again without that being counted.
        let is_preemptible = create.preemptible || (within && self.options.preempts());
        let most = if is_preemptible { u32::MAX } else { counted };
        let kind_of_call = self.some_wish(process, 0, 0);
        let arguments = self.work(process, kind_of_call, true).arguments;
        // A name may be taken, and a detached actor must be safe before anybody relies on it.
        let is_asked = detached || !name.is_empty();
        let (actor, request) =
            self.with_core(process, |core| core.create_actor(create, arguments, is_asked, TaskId::NIL));
        if detached {
            self.detached.push(actor);
        }
        self.constructed.insert(actor, (most, 0));
        let ends_at = self.now + self.chance.delay(3 * SECOND);
        let program = &mut self.client(process).program;
        program.actors.insert(actor, Owned { keeps: true, ends_at });
        if is_asked {
            program.questions.insert(request, Question::Actor(actor));
        } else {
            for _ in 0..self.chance.between(0, 3) {
                self.call_actor(process, actor);
            }
        }
    }

    /// A driver looks for an actor by its name.
    pub(crate) fn look_for_actor(&mut self, process: ProcessIndex) {
        let name = self.chance.one_of(&NAMES).to_owned();
        let asked = |request| ActorLookup { request, name, namespace: String::new() }.into();
        let request = self.with_core(process, |core| core.ask(asked));
        self.client(process).program.questions.insert(request, Question::Lookup);
    }

    /// The answer to a question of a program's.
    pub(crate) fn answered(&mut self, process: ProcessIndex, question: Question, answer: DaemonAnswer) {
        match (question, answer) {
            (Question::Kept(key), DaemonAnswer::Kept(said)) => self.kept_answered(&key, &said),
            (Question::Actor(made), DaemonAnswer::Actor(said)) if said.failure.is_none() => {
                let found = said.actor.expect("actors have identifiers");
                if found != made {
                    self.get_handle(process, found);
                    self.unmake(process, made);
                }
                self.call_actor(process, found);
            }
            (Question::Actor(made), _) => self.unmake(process, made),
            (Question::Lookup, DaemonAnswer::Actor(said)) if said.failure.is_none() => {
                let found = said.actor.expect("actors have identifiers");
                self.get_handle(process, found);
                self.call_actor(process, found);
            }
            _ => {}
        }
    }

    /// A handle that does not keep the actor.
    fn get_handle(&mut self, process: ProcessIndex, actor: ActorId) {
        let ends_at = self.now + SECOND;
        let program = &mut self.client(process).program;
        if let Entry::Vacant(place) = program.actors.entry(actor) {
            place.insert(Owned { keeps: false, ends_at });
            self.with_core(process, |core| core.add_handle(actor, false));
        }
    }

    fn unmake(&mut self, process: ProcessIndex, actor: ActorId) {
        self.client(process).program.actors.remove(&actor);
        self.with_core(process, |core| core.unmake_actor(actor));
    }

    fn call_actor(&mut self, process: ProcessIndex, actor: ActorId) {
        let time = self.chance.delay(20 * MILLISECOND);
        let mut kind_of_call = self.some_wish(process, time, 0);
        kind_of_call.retries = self.chance.one_of(&[0, 0, 2]);
        let number = kind_of_call.spec.number;
        self.calls.most_begun.insert(number, if kind_of_call.retries == 0 { 1 } else { u32::MAX });
        self.calls.callers.insert(number, process);
        let work = self.work(process, kind_of_call, true);
        let task = self.with_core(process, |core| core.submit_call(actor, work));
        self.expect(process, task.object(1), number);
    }

    /// A driver calls, kills, and gives up its actors in their time.
    pub(crate) fn tend_actors(&mut self, process: ProcessIndex) {
        let program = &self.client(process).program;
        let is_asked = |actor: &ActorId| program.questions.values().any(|one| *one == Question::Actor(*actor));
        let actors: Vec<ActorId> = program.actors.keys().filter(|actor| !is_asked(actor)).copied().collect();
        for actor in actors {
            let is_late = self.is_calm || self.now >= self.client(process).program.actors[&actor].ends_at;
            if !is_late {
                if self.chance.odds(30) {
                    self.with_core(process, |core| core.kill_actor(actor, true));
                } else if self.chance.odds(200) {
                    self.call_actor(process, actor);
                }
                continue;
            }
            let owned = self.client(process).program.actors.remove(&actor).expect("it was just found");
            if owned.keeps && self.chance.odds(300) {
                self.with_core(process, |core| core.kill_actor(actor, false));
            }
            self.with_core(process, |core| core.drop_handle(actor, owned.keeps));
            self.client(process).program.left.push(actor);
        }
    }

    /// A program ends what goes on although it let go of it.
    pub(crate) fn end_the_left(&mut self, process: ProcessIndex) {
        for actor in std::mem::take(&mut self.client(process).program.left) {
            self.end_actor(process, actor);
        }
    }

    fn end_actor(&mut self, process: ProcessIndex, actor: ActorId) {
        self.with_core(process, |core| {
            core.add_handle(actor, false);
            core.kill_actor(actor, false);
            core.drop_handle(actor, false);
        });
    }

    /// A worker is to become an actor.
    pub(crate) fn construct(&mut self, process: ProcessIndex, create: &ActorCreate) {
        let (most, times) = self.constructed.get_mut(&create.actor).expect("somebody asked for it");
        *times += 1;
        // The head may never hear of one that was made on a node that was lost then.
        let most = most.saturating_add(self.troubles as u32);
        assert!(*times <= most, "CALLER-1: an actor is constructed {times} times of {most}");
        self.processes[process].is_constructing = true;
        self.user_code_begins(process);
        let given = create
            .references
            .iter()
            .filter_map(|argument| argument.reference.as_ref())
            .map(|given| (given.object, given.owner.unwrap_or_default()));
        let borrowed: Vec<_> = Spec::decode(create.arguments.clone()).contained.into_iter().chain(given).collect();
        for (id, owner) in borrowed {
            self.client(process).program.references.push(id);
            self.with_core(process, |core| core.borrow(id, owner));
        }
        let at = self.now + self.chance.delay(10 * MILLISECOND);
        self.agenda.plan(at, Event::Constructed(process));
    }

    /// The constructor returned, or did not.
    pub(crate) fn constructed(&mut self, process: ProcessIndex) {
        if self.processes[process].life != Life::Running {
            return;
        }
        if self.options.tasks_crash && self.chance.odds(100) {
            if self.chance.odds(500) {
                self.with_core(process, |core| core.actor_failed(oxiray_wire::message::Value::default()));
            }
            let at = self.now + self.chance.delay(MILLISECOND);
            return self.agenda.plan(at, Event::Dies(process));
        }
        let mut borrowed = self.client(process).program.references.clone();
        borrowed.sort_unstable();
        borrowed.dedup();
        self.with_core(process, |core| core.actor_ready(&borrowed, String::new()));
        self.processes[process].is_constructing = false;
        if self.options.tasks_crash && self.chance.odds(50) {
            let unintended = self.chance.odds(500);
            self.with_core(process, |core| core.actor_leaving("it had enough".into(), unintended));
            let at = self.now + self.chance.delay(MILLISECOND);
            self.agenda.plan(at, Event::Dies(process));
        }
        self.go_on(process);
    }

    /// Somebody ends what goes on without its maker.
    pub(crate) fn end_the_detached(&mut self, process: ProcessIndex) {
        for actor in self.detached.clone() {
            self.end_actor(process, actor);
        }
    }
}
