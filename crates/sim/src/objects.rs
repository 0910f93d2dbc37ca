//! Objects that travel: promised and published by who made them, handed on, read, freed and let go of.
//!
//! - READER-1: what is subscribed to is answered once, with a value or with the reason why there is none.

use crate::agenda::{Event, MILLISECOND, SECOND};
use crate::process::{Kind, Life};
use crate::program::bytes;
use crate::world::{ProcessIndex, World};
use bytes::Bytes;
use oxiray_wire::Message;
use oxiray_wire::message::{
    Content, Free, Hold, Promise, Publish, Published, Recover, Reference, Subscribe, Unhold, Value,
};
use std::collections::BTreeMap;

/// What a client knows of objects.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Its own that it has not let go of, each with the processes that have written it.
    own: BTreeMap<usize, Vec<ProcessIndex>>,
    /// What it waits for, and how often it was handed that.
    awaited: BTreeMap<Bytes, usize>,
    /// What it reads from a store, and how often it was handed that.
    reading: BTreeMap<Bytes, usize>,
    /// What it was handed within something else and will read later, each as often as it was.
    kept: BTreeMap<usize, usize>,
    /// What it published and somebody may refer to.
    published: BTreeMap<usize, Value>,
}

impl Held {
    /// Why its process cannot leave yet.
    pub(crate) fn awaits(&self) -> Option<String> {
        let is_done = self.awaited.is_empty() && self.reading.is_empty() && self.kept.is_empty() && self.own.is_empty();
        (!is_done).then(|| format!("objects {self:?}"))
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
        self.client(process).objects.own.insert(number, Vec::new());
        self.say(process, Promise { objects: vec![object] });
        for _ in 0..self.chance.between(0, 3) {
            self.hand_on(process, number);
        }
        let at = self.now + self.chance.delay(200 * MILLISECOND).min(5 * SECOND);
        self.agenda.plan(at, Event::Published { process, object: number });
        let at = at + self.chance.delay(SECOND).min(5 * SECOND);
        self.agenda.plan(at, Event::LetGo { process, object: number });
    }

    /// An owner hands an object on that has its value for a while.
    pub(crate) fn hands_on_later(&mut self, process: ProcessIndex, number: usize) {
        if self.processes[process].life == Life::Running && self.client(process).objects.own.contains_key(&number) {
            self.hand_on(process, number);
        }
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
        let epoch = self.client(process).epoch;
        self.in_flight.push((reader, epoch));
        self.agenda.plan(at, Event::Handed { process: reader, object: number, epoch });
    }

    /// A reference has come. Whom the last head counted has itself counted by this one; what comes from a process that
    /// knows a later head waits until this one knows it too (RESUMING-1, RESUMING-2).
    pub(crate) fn arrives(&mut self, process: ProcessIndex, number: usize, epoch: u64) {
        let own = self.processes[process].client.as_ref().map_or(0, |client| client.epoch);
        if self.processes[process].life == Life::Running && own < epoch {
            let event = Event::Handed { process, object: number, epoch };
            return self.agenda.plan(self.now + 10 * MILLISECOND, event);
        }
        let place = self.in_flight.iter().position(|one| *one == (process, epoch)).expect("it was on its way");
        self.in_flight.swap_remove(place);
        if self.processes[process].life == Life::Running && own > epoch {
            let holder = self.client(process).id.clone();
            self.say(process, Hold { objects: vec![self.objects[number].object.clone()], holder });
        }
        self.handed(process, number);
        self.settle_clients();
    }

    /// Nobody refers to an object any more that this process published.
    pub(crate) fn forgotten(&mut self, process: ProcessIndex, object: &Bytes) {
        let number = self.objects.iter().position(|known| known.object == *object).expect("it was made");
        self.client(process).objects.published.remove(&number);
    }

    /// The next head hears of all objects that this process refers to or published.
    pub(crate) fn tell_of_objects_again(&mut self, process: ProcessIndex) {
        let holder = self.client(process).id.clone();
        let name = |number: &usize| self.objects[*number].object.clone();
        let written = self.processes.iter().filter_map(|found| found.client.as_ref()).flat_map(|client| {
            let of = |(number, writers): (&usize, &Vec<ProcessIndex>)| {
                let times = writers.iter().filter(|writer| **writer == process).count();
                std::iter::repeat_n(*number, times)
            };
            client.objects.own.iter().flat_map(of)
        });
        let mut held: Vec<Bytes> = written.map(|number| name(&number)).collect();
        let found = &self.processes[process].client.as_ref().expect("it resumes").objects;
        held.extend(found.kept.iter().flat_map(|(number, times)| std::iter::repeat_n(name(number), *times)));
        for (object, times) in found.awaited.iter().chain(&found.reading) {
            held.extend(std::iter::repeat_n(object.clone(), *times));
        }
        let promised: Vec<Bytes> = found.own.keys().map(name).collect();
        let wanted: Vec<Bytes> = found.awaited.keys().cloned().collect();
        let told = |number: &usize, value: &Value| Publish { object: name(number), value: Some(value.clone()) };
        let mut said: Vec<Message> = vec![Promise { objects: promised }.into(), Hold { objects: held, holder }.into()];
        for (number, value) in &found.published {
            if found.own.contains_key(number) {
                said.push(told(number, value).into());
            } else {
                // Nobody here refers to it: to promise it says whose it is.
                let objects = vec![name(number)];
                said.extend([Promise { objects: objects.clone() }.into(), told(number, value).into()]);
                said.push(Unhold { objects }.into());
            }
        }
        for object in wanted {
            let reference = self.objects.iter().find(|known| known.object == object).cloned();
            said.push(Subscribe { reference }.into());
        }
        for message in said {
            self.say(process, message);
        }
    }

    /// What a driver reads it asks the next daemon for.
    pub(crate) fn read_again(&mut self, process: ProcessIndex) {
        for object in self.client(process).objects.reading.keys().cloned().collect::<Vec<_>>() {
            let reference = self.objects.iter().find(|known| known.object == object).expect("it was made").clone();
            self.read(process, reference);
        }
    }

    /// An object has its value: at times its value.
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

    /// A process reads what it kept.
    pub(crate) fn reads_later(&mut self, process: ProcessIndex, number: usize) {
        if self.processes[process].life != Life::Running {
            return;
        }
        let kept = &mut self.client(process).objects.kept;
        let times = kept.get_mut(&number).expect("it is read as often as it was kept");
        *times -= 1;
        if *times == 0 {
            kept.remove(&number);
        }
        self.handed(process, number);
    }

    /// An object has its value: at times one that refers to another of its owner's.
    pub(crate) fn publish(&mut self, process: ProcessIndex, number: usize) {
        if self.processes[process].life != Life::Running {
            return;
        }
        // Only older ones: values that refer to each other would never be let go of.
        let others: Vec<usize> = self.client(process).objects.own.range(..number).map(|(other, _)| *other).collect();
        let inner = if self.chance.odds(500) { self.chance.pick(&others) } else { None };
        let contained = inner.map(|inner| self.objects[inner].clone()).into_iter().collect();
        let content = self.written(process, number);
        let value = Value { content: Some(content), contained };
        self.client(process).objects.published.insert(number, value.clone());
        let object = self.objects[number].object.clone();
        self.say(process, Publish { object, value: Some(value) });
        for _ in 0..self.chance.between(0, 2) {
            let at = self.now + self.chance.delay(500 * MILLISECOND);
            self.agenda.plan(at, Event::HandsOn { process, object: number });
        }
        if self.chance.odds(100) {
            let references = vec![self.objects[number].clone()];
            self.say(process, Free { references });
        }
    }

    /// An owner needs its object no more.
    pub(crate) fn let_go(&mut self, process: ProcessIndex, number: usize) {
        if self.processes[process].life != Life::Running {
            return;
        }
        let Some(writers) = self.client(process).objects.own.remove(&number) else { return };
        for holder in [process].into_iter().chain(writers) {
            if self.processes[holder].life == Life::Running {
                let objects = vec![self.objects[number].object.clone()];
                self.say(holder, Unhold { objects });
            }
        }
    }

    /// What an object becomes: a small value, or one that a worker writes into its node's store, and holds.
    fn written(&mut self, process: ProcessIndex, number: usize) -> Content {
        let small = Content::Inline(Bytes::from_static(b"value"));
        let is_known = self.client(process).objects.own.contains_key(&number);
        if !is_known || !self.options.has_stores || self.chance.odds(400) {
            return small;
        }
        let job = self.client(process).job.clone();
        let may_write = |index: &usize| {
            let found = &self.processes[*index];
            found.life == Life::Running && found.client.as_ref().is_some_and(|client| client.job == job)
        };
        let writers: Vec<usize> = (0..self.processes.len()).filter(may_write).collect();
        let Some(writer) = self.chance.pick(&writers) else { return small };
        let object = self.objects[number].object.clone();
        self.shelve(writer, &object);
        self.client(process).objects.own.entry(number).or_default().push(writer);
        Content::Stored(1 << 20)
    }

    /// The bytes of an object are lost that this process owns: it makes them again in its time.
    pub(crate) fn told_of_loss(&mut self, process: ProcessIndex, object: &Bytes) {
        let number = self.objects.iter().position(|known| known.object == *object).expect("it was made");
        let at = self.now + self.chance.delay(20 * MILLISECOND);
        self.agenda.plan(at, Event::MadeAgain { process, object: number });
    }

    pub(crate) fn make_again(&mut self, process: ProcessIndex, number: usize) {
        if self.processes[process].life != Life::Running {
            return;
        }
        let value = Value { content: Some(self.written(process, number)), contained: Vec::new() };
        self.client(process).objects.published.insert(number, value.clone());
        let object = self.objects[number].object.clone();
        self.say(process, Publish { object, value: Some(value) });
    }

    /// A value is there: it is read, here or from a store, and let go of with what it refers to.
    pub(crate) fn value_came(&mut self, process: ProcessIndex, said: &Published) {
        let times = self.client(process).objects.awaited.remove(&said.object);
        let times = times.expect("READER-1: a subscription is answered once");
        // What it contains is the reader's now, and is read in its turn: at times long after what it came in was let go of.
        for inner in said.value.iter().flat_map(|value| &value.contained) {
            let number = self.objects.iter().position(|known| known.object == inner.object).expect("it was made");
            if self.chance.odds(500) {
                self.handed(process, number);
            } else {
                let at = self.now + self.chance.delay(SECOND).min(5 * SECOND);
                *self.client(process).objects.kept.entry(number).or_default() += 1;
                self.agenda.plan(at, Event::ReadsLater { process, object: number });
            }
        }
        let reference = self.objects.iter().find(|known| known.object == said.object).expect("it was made").clone();
        *self.client(process).objects.reading.entry(said.object.clone()).or_default() += times;
        match said.value.as_ref().and_then(|value| value.content.as_ref()) {
            Some(Content::Stored(_)) => self.read(process, reference),
            _ => self.has_read(process, &reference),
        }
    }

    /// What was read is let go of.
    pub(crate) fn has_read(&mut self, process: ProcessIndex, reference: &Reference) {
        let times = self.client(process).objects.reading.remove(&reference.object).unwrap_or_default();
        self.say(process, Unhold { objects: vec![reference.object.clone(); times] });
    }

    /// What was to be read is in no store: its owner is told, and whoever wants it waits for it anew.
    pub(crate) fn is_lost(&mut self, process: ProcessIndex, reference: Reference) {
        if self.processes[process].life != Life::Running {
            return;
        }
        let objects = &mut self.client(process).objects;
        let times = objects.reading.remove(&reference.object).unwrap_or_default();
        let awaited = objects.awaited.entry(reference.object.clone()).or_default();
        *awaited += times;
        let is_first = *awaited == times;
        self.say(process, Recover { reference: Some(reference.clone()) });
        if is_first {
            self.say(process, Subscribe { reference: Some(reference) });
        }
    }
}
