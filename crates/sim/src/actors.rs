//! Actors as their callers see them, and as the processes that they become.
//!
//! - CALLER-1: a call is answered, or fails with what became of the actor.
//! - CALLER-2: the death of an actor is told once to those who know it, and once more for each time that they ask.
//! - CALLER-3: an actor is made no more often than its restarts allow.

use crate::agenda::{Event, MILLISECOND, Micros, SECOND};
use crate::client::{Client, Question};
use crate::process::{Call, Life};
use crate::program::{amounts, bytes};
use crate::stream::{Descriptor, Packet};
use crate::world::{ProcessIndex, World};
use bytes::Bytes;
use oxiray_ids::{ActorId, JobId};
use oxiray_wire::Message;
use oxiray_wire::message::{
    ActorAnswer, ActorConnect, ActorCreate, ActorDied, ActorFailed, ActorKill, ActorLeaving, ActorLookup, ActorPlaced,
    ActorReady, ActorRestarting, Hold, Strategy, Unhold,
};
use std::collections::BTreeSet;

/// What actors hold while they live.
const RUNNING: [&[(&str, u64)]; 5] =
    [&[], &[], &[("CPU", 10_000)], &[("GPU", 5_000)], &[("CPU", 10_000), ("GPU", 10_000)]];
/// The names that actors may have.
const NAMES: [&str; 3] = ["one", "two", "three"];

/// Where the stream to an actor is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    Awaited,
    Open { link: Descriptor, worker: Bytes },
    Dead,
}

/// An actor that a process knows.
#[derive(Debug)]
pub(crate) struct Known {
    line: Line,
    queued: u32,
    under_way: BTreeSet<u64>,
    /// The process made it, and holds its anchor.
    is_mine: bool,
    /// When it is given up.
    ends_at: Micros,
    /// What is said when its constructor's arguments are there.
    unfinished: Option<ActorCreate>,
    /// What was said to make it, while it has no process.
    creates: Vec<ActorCreate>,
    deaths_told: u32,
    asked: u32,
}

impl Known {
    fn new(is_mine: bool, ends_at: Micros) -> Self {
        Self {
            line: Line::Awaited,
            queued: 0,
            under_way: BTreeSet::new(),
            is_mine,
            ends_at,
            unfinished: None,
            creates: Vec::new(),
            deaths_told: 0,
            asked: 0,
        }
    }

    /// Its end of the stream to the actor.
    pub(crate) fn link(&self) -> Option<Descriptor> {
        match &self.line {
            Line::Open { link, .. } => Some(*link),
            Line::Awaited | Line::Dead => None,
        }
    }

    fn calls(&self) -> usize {
        self.queued as usize + self.under_way.len()
    }

    /// Why its owner cannot leave yet.
    pub(crate) fn awaits(&self) -> Option<String> {
        (self.is_mine || self.calls() > 0).then(|| format!("actor {self:?}"))
    }

    fn lose_calls(&mut self) {
        self.under_way.clear();
        if self.line == Line::Dead {
            self.queued = 0;
        }
    }
}

impl World {
    /// A driver makes an actor.
    pub(crate) fn make_actor(&mut self, process: ProcessIndex, strategy: Option<Strategy>) {
        let job = JobId::from_slice(&self.client(process).job).unwrap_or(JobId::NIL);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.chance.seed().to_be_bytes());
        id[12..].copy_from_slice(job.as_bytes());
        let within = strategy.as_ref().is_some_and(|strategy| strategy.kind == crate::groups::WITHIN);
        let running = if within { RUNNING[0] } else { self.chance.one_of(&RUNNING) };
        let mut placement = running.to_vec();
        if running.is_empty() {
            placement.push(("CPU", if within { 5_000 } else { 10_000 }));
        }
        let detached = self.chance.odds(150);
        let client = self.client(process);
        let request = client.new_number();
        let owner = client.id.clone();
        let made = ActorCreate {
            request,
            actor: bytes(&id),
            name: if self.chance.odds(300) { self.chance.one_of(&NAMES).into() } else { String::new() },
            detached,
            get_if_exists: self.chance.odds(300),
            placement: amounts(&placement),
            running: amounts(running),
            class_name: "C".into(),
            handle: bytes(&id),
            owner,
            max_restarts: self.chance.between(0, 3) as i32 - 1,
            unfinished: self.chance.odds(200),
            strategy,
            ..ActorCreate::default()
        };
        if detached {
            self.detached.push(made.actor.clone());
        }
        let most = u32::try_from(made.max_restarts).map_or(u32::MAX, |restarts| restarts + 1);
        self.constructed.insert(made.actor.clone(), (most, 0));
        let ends_at = self.now + self.chance.delay(3 * SECOND);
        let queued = self.chance.between(0, 3) as u32;
        let mut known = Known { queued, ..Known::new(true, ends_at) };
        known.creates.push(made.clone());
        known.unfinished = made.unfinished.then(|| ActorCreate { unfinished: false, finishes: true, ..made.clone() });
        let client = self.client(process);
        client.questions.insert(request, Question::Actor(made.actor.clone()));
        client.actors.insert(made.actor.clone(), known);
        self.say(process, made);
    }

    /// A driver looks for an actor by its name.
    pub(crate) fn look_for_actor(&mut self, process: ProcessIndex) {
        let name = self.chance.one_of(&NAMES).to_owned();
        let client = self.client(process);
        let request = client.new_number();
        client.questions.insert(request, Question::Lookup);
        self.say(process, ActorLookup { request, name, namespace: String::new() });
    }

    pub(crate) fn actor_answered(&mut self, process: ProcessIndex, said: &ActorAnswer) {
        let Some(question) = self.client(process).questions.remove(&said.request) else {
            let is_again = self.client(process).epoch > 1;
            return assert!(is_again, "a question about an actor is answered once by each head");
        };
        if let Question::Actor(made) = &question
            && (said.failure.is_some() || *made != said.actor)
            && let Some(known) = self.client(process).actors.get_mut(made)
        {
            known.creates.clear();
        }
        if let Question::Actor(made) = &question
            && *made != said.actor
            && let Some(known) = self.client(process).actors.get_mut(made)
        {
            known.line = Line::Dead;
            known.lose_calls();
        }
        if let Question::Actor(made) = &question
            && *made == said.actor
            && said.failure.is_none()
            && self.detached.contains(made)
        {
            self.check_row("an actor", made);
        }
        if said.failure.is_some() || self.client(process).actors.contains_key(&said.actor) {
            return;
        }
        let ends_at = self.now + SECOND;
        let known = Known { queued: 1, asked: 1, ..Known::new(false, ends_at) };
        self.client(process).actors.insert(said.actor.clone(), known);
        self.say(process, ActorConnect { actor: said.actor.clone(), lost: Bytes::new() });
    }

    pub(crate) fn actor_placed(&mut self, process: ProcessIndex, said: &ActorPlaced, link: Option<Descriptor>) {
        let link = link.expect("an actor is placed with a stream");
        let known = self.client(process).actors.get_mut(&said.actor);
        let Some(known) = known.filter(|known| known.line == Line::Awaited) else { return self.close(link) };
        known.line = Line::Open { link, worker: said.worker.clone() };
        known.creates.clear();
        known.lose_calls();
        self.adopt(link, process);
        self.call_actor(process, &said.actor);
    }

    fn call_actor(&mut self, process: ProcessIndex, actor: &Bytes) {
        loop {
            let client = self.client(process);
            let number = client.new_number();
            let Some(known) = client.actors.get_mut(actor).filter(|known| known.queued > 0) else { return };
            let Some(link) = known.link() else { return };
            known.queued -= 1;
            known.under_way.insert(number);
            let time = self.chance.delay(20 * MILLISECOND);
            let is_deadly = self.options.tasks_crash && self.chance.odds(50);
            self.send(link, Packet::Call(Call { number, time, children: 0, is_deadly }));
        }
    }

    pub(crate) fn actor_restarts(&mut self, process: ProcessIndex, said: &ActorRestarting) {
        let Some(known) = self.client(process).actors.get_mut(&said.actor) else { return };
        assert_ne!(known.line, Line::Dead, "ACTOR-4: the dead are not made anew");
        let link = known.link();
        known.line = Line::Awaited;
        known.lose_calls();
        if let Some(link) = link {
            self.close(link);
        }
    }

    pub(crate) fn actor_is_dead(&mut self, process: ProcessIndex, said: &ActorDied) {
        let Some(known) = self.client(process).actors.get_mut(&said.actor) else { return };
        known.deaths_told += 1;
        let most = known.asked + u32::from(known.is_mine || known.asked > 0);
        assert!(known.deaths_told <= most.max(1), "CALLER-2: a death is told {} times", known.deaths_told);
        let link = known.link();
        known.line = Line::Dead;
        known.creates.clear();
        known.lose_calls();
        if let Some(link) = link {
            self.close(link);
        }
    }

    /// The next head hears which actors a process has a stream to.
    pub(crate) fn connected(&mut self, process: ProcessIndex) -> Vec<Bytes> {
        let actors = self.client(process).actors.iter_mut();
        let open = actors.filter(|(_, known)| known.link().is_some());
        open.map(|(actor, known)| {
            known.asked += 1;
            actor.clone()
        })
        .collect()
    }

    /// The next head is asked for actors anew, and hears who holds them.
    pub(crate) fn ask_for_actors_again(&mut self, process: ProcessIndex) {
        let holder = self.client(process).id.clone();
        let mut said: Vec<Message> = Vec::new();
        for (actor, known) in &mut self.client(process).actors {
            if known.is_mine {
                let anchor = ActorId::from_slice(actor).unwrap_or(ActorId::NIL).anchor();
                said.push(Hold { objects: vec![bytes(anchor.as_bytes())], holder: holder.clone() }.into());
            }
            said.extend(known.creates.iter().map(|made| ActorCreate { is_again: true, ..made.clone() }.into()));
            if known.line == Line::Awaited {
                known.asked += 1;
                said.push(ActorConnect { actor: actor.clone(), lost: Bytes::new() }.into());
            }
        }
        for message in said {
            self.say(process, message);
        }
    }

    /// Which actor a stream is to.
    pub(crate) fn actor_of(&self, process: ProcessIndex, link: Descriptor) -> Option<Bytes> {
        let client = self.processes[process].client.as_ref()?;
        client.actors.iter().find(|(_, known)| known.link() == Some(link)).map(|(actor, _)| actor.clone())
    }

    /// The actor's process answered, or its stream is over.
    pub(crate) fn actor_said(&mut self, process: ProcessIndex, actor: &Bytes, packet: &Packet) {
        let Some(known) = self.client(process).actors.get_mut(actor) else { return };
        if let Packet::Reply(number) = packet {
            known.under_way.remove(number);
            return;
        }
        let Line::Open { worker, .. } = std::mem::replace(&mut known.line, Line::Awaited) else { return };
        known.asked += 1;
        self.say(process, ActorConnect { actor: actor.clone(), lost: worker });
    }

    /// A driver finishes, kills, and gives up its actors in their time.
    pub(crate) fn tend_actors(&mut self, process: ProcessIndex) {
        let actors: Vec<Bytes> = self.client(process).actors.keys().cloned().collect();
        for actor in actors {
            let (is_late, now) = (self.is_calm, self.now);
            let is_finished = self.chance.odds(500);
            let Some(known) = self.client(process).actors.get_mut(&actor) else { continue };
            if let Some(made) = known.unfinished.take_if(|_| is_finished) {
                known.creates.push(made.clone());
                self.say(process, made);
                continue;
            }
            if !known.is_mine || !(is_late || now >= known.ends_at) {
                if self.chance.odds(30) {
                    self.say(process, ActorKill { actor: actor.clone(), restart: true });
                }
                continue;
            }
            // In the calm every call is answered first: an actor that is not made anew would be found out.
            let may_be_killed = !is_late || known.calls() == 0;
            // An actor whose arguments never come is given up with its calls.
            if known.calls() == 0 || known.unfinished.is_some() {
                known.is_mine = false;
                known.queued = 0;
                let id = ActorId::from_slice(&actor).unwrap_or(ActorId::NIL);
                self.say(process, Unhold { objects: vec![bytes(id.anchor().as_bytes())] });
            }
            if may_be_killed && self.chance.odds(300) {
                self.say(process, ActorKill { actor: actor.clone(), restart: false });
            }
        }
    }

    /// A worker is to become an actor.
    pub(crate) fn construct(&mut self, process: ProcessIndex, actor: &Bytes) {
        let (most, times) = self.constructed.get_mut(actor).expect("somebody asked for it");
        *times += 1;
        // The head may never hear of one that was made on a node that was lost then.
        let most = most.saturating_add(self.troubles as u32);
        assert!(*times <= most, "CALLER-3: an actor is constructed {times} times of {most}");
        self.processes[process].is_constructing = true;
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
                self.say(process, ActorFailed { error: None });
            }
            let at = self.now + self.chance.delay(MILLISECOND);
            return self.agenda.plan(at, Event::Dies(process));
        }
        self.say(process, ActorReady {});
        self.processes[process].is_constructing = false;
        if self.options.tasks_crash && self.chance.odds(50) {
            let unintended = self.chance.odds(500);
            self.say(process, ActorLeaving { text: "it had enough".into(), unintended });
            let at = self.now + self.chance.delay(MILLISECOND);
            self.agenda.plan(at, Event::Dies(process));
        }
        self.run_next(process);
    }

    /// Somebody ends what goes on without its maker.
    pub(crate) fn end_the_detached(&mut self, process: ProcessIndex) {
        for actor in self.detached.clone() {
            self.say(process, ActorKill { actor, restart: false });
        }
    }
}

impl Client {
    /// Why it cannot leave yet, as far as actors go.
    pub(crate) fn awaits_of_actors(&self) -> Vec<String> {
        self.actors.values().filter_map(Known::awaits).collect()
    }
}
