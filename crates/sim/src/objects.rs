//! Objects that travel: promised and published by who made them, handed on, read, freed and let go of.
//!
//! - READER-1: what is subscribed to is answered once, with a value or with the reason why there is none.

use crate::agenda::{Event, MILLISECOND, SECOND};
use crate::process::{Kind, Life};
use crate::program::bytes;
use crate::world::{ProcessIndex, World};
use bytes::Bytes;
use oxiray_wire::message::{Content, Free, Hold, Promise, Publish, Published, Reference, Subscribe, Unhold, Value};
use std::collections::{BTreeMap, BTreeSet};

/// What a client knows of objects.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Its own that it has not let go of.
    own: BTreeSet<usize>,
    /// What it waits for, and how often it was handed that.
    awaited: BTreeMap<Bytes, usize>,
}

impl Held {
    /// Why its process cannot leave yet.
    pub(crate) fn awaits(&self) -> Option<String> {
        (!self.awaited.is_empty() || !self.own.is_empty()).then(|| format!("objects {self:?}"))
    }
}

impl World {
    /// A driver makes an object, and hands it on before it has a value.
    pub(crate) fn make_object(&mut self, process: ProcessIndex) {
        let mut id = [0xff; 28];
        id[..8].copy_from_slice(&self.chance.seed().to_be_bytes());
        id[20..24].copy_from_slice(&self.client(process).job[..4]);
        id[24..].copy_from_slice(&1_u32.to_le_bytes());
        let number = self.objects.len();
        let owner = self.client(process).id.clone();
        let object = bytes(&id);
        self.objects.push(Reference { object: object.clone(), owner });
        self.client(process).objects.own.insert(number);
        self.say(process, Promise { objects: vec![object] });
        for _ in 0..self.chance.between(0, 3) {
            self.hand_on(process, number);
        }
        let at = self.now + self.chance.delay(200 * MILLISECOND).min(5 * SECOND);
        self.agenda.plan(at, Event::Published { process, object: number });
        let at = at + self.chance.delay(500 * MILLISECOND).min(5 * SECOND);
        self.agenda.plan(at, Event::LetGo { process, object: number });
    }

    /// The receiver's hold is registered before the owner gives up its own; which of the two clients is heard first is
    /// open.
    fn hand_on(&mut self, process: ProcessIndex, number: usize) {
        let wants_driver = self.chance.odds(600);
        let may_read = |index: &usize| {
            let found = &self.processes[*index];
            let is_wanted = (found.kind == Kind::Driver) == wants_driver;
            is_wanted && *index != process && found.life == Life::Running && found.client.is_some()
        };
        let readers: Vec<usize> = (0..self.processes.len()).filter(may_read).collect();
        let Some(reader) = self.chance.pick(&readers) else { return };
        let holder = self.client(reader).id.clone();
        let object = self.objects[number].object.clone();
        self.say(process, Hold { objects: vec![object], holder });
        let at = self.now + self.chance.delay(MILLISECOND);
        self.agenda.plan(at, Event::Handed { process: reader, object: number });
    }

    /// A process was handed an object, and wants its value.
    pub(crate) fn handed(&mut self, process: ProcessIndex, number: usize) {
        if self.processes[process].life != Life::Running {
            return;
        }
        let reference = self.objects[number].clone();
        let times = self.client(process).objects.awaited.entry(reference.object.clone()).or_default();
        *times += 1;
        if *times == 1 {
            self.say(process, Subscribe { reference: Some(reference) });
        }
    }

    /// An object has its value: at times one that refers to another of its owner's.
    pub(crate) fn publish(&mut self, process: ProcessIndex, number: usize) {
        if self.processes[process].life != Life::Running {
            return;
        }
        // Only older ones: values that refer to each other would never be let go of.
        let others: Vec<usize> = self.client(process).objects.own.range(..number).copied().collect();
        let inner = if self.chance.odds(300) { self.chance.pick(&others) } else { None };
        let contained = inner.map(|inner| self.objects[inner].clone()).into_iter().collect();
        let value = Value { content: Some(Content::Inline(Bytes::from_static(b"value"))), contained };
        let object = self.objects[number].object.clone();
        self.say(process, Publish { object, value: Some(value) });
        if self.chance.odds(100) {
            let references = vec![self.objects[number].clone()];
            self.say(process, Free { references });
        }
    }

    /// An owner needs its object no more.
    pub(crate) fn let_go(&mut self, process: ProcessIndex, number: usize) {
        if self.processes[process].life == Life::Running && self.client(process).objects.own.remove(&number) {
            let objects = vec![self.objects[number].object.clone()];
            self.say(process, Unhold { objects });
        }
    }

    /// A value is there: it is read, and let go of with what it refers to.
    pub(crate) fn value_came(&mut self, process: ProcessIndex, said: &Published) {
        let times = self.client(process).objects.awaited.remove(&said.object);
        let times = times.expect("READER-1: a subscription is answered once");
        let mut objects = vec![said.object.clone(); times];
        let contained = said.value.iter().flat_map(|value| &value.contained);
        objects.extend(contained.map(|reference| reference.object.clone()));
        self.say(process, Unhold { objects });
    }
}
