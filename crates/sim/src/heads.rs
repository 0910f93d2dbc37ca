//! The head's disk, and heads that die and come again on it.
//!
//! - DISK-1: what somebody was told to be done is on the disk, and so it is there whoever is the head.

use crate::agenda::{Event, MILLISECOND, Micros, SECOND};
use crate::program::Question;
use crate::world::{NodeIndex, ProcessIndex, World};
use bytes::Bytes;
use oxiray_journal::Change;
use oxiray_wire::message::{KeyValueAction, KeyValueAnswer, KeyValueRequest};
use std::collections::BTreeMap;
use std::time::Duration;

/// The first byte of the identifiers of heads, each of which is another node.
const FIRST_HEAD: u8 = 200;
/// How long a cluster is without a head at most.
const ABSENCE_LONGEST: Micros = 5 * SECOND;
/// How long a write takes at most once it is calm: the head publishes nothing until it has ended, its questions neither.
const WRITE_LONGEST: Micros = SECOND;

/// How long a head that comes waits for the members of the last one, which all come as others here.
const PATIENCE: Duration = Duration::from_secs(4);

/// What survives a head.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    rows: BTreeMap<(u32, Bytes), Bytes>,
    /// How many heads there were before this one.
    pub(crate) epoch: u64,
    /// Nothing can be written until then.
    full_until: Micros,
    /// The head dies when it has something to write.
    is_doomed: bool,
    /// What is being written.
    writing: Option<Vec<Change>>,
    /// What was kept for somebody who was told so.
    kept: BTreeMap<Bytes, Bytes>,
}

impl Disk {
    /// Whether the head waits for rows to be written.
    pub(crate) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    fn write(&mut self) {
        for change in self.writing.take().into_iter().flatten() {
            let key = (change.table, change.key);
            match change.value {
                Some(value) => self.rows.insert(key, value),
                None => self.rows.remove(&key),
            };
        }
    }
}

impl World {
    /// The first byte of a node's identifier.
    pub(crate) fn mark_of(&self, node: NodeIndex) -> u8 {
        if node == 0 && self.disk.epoch > 0 { FIRST_HEAD + (self.disk.epoch % 50) as u8 } else { node as u8 }
    }

    /// The node whose identifier begins like this; none where it was a head that is dead.
    pub(crate) fn marked(&self, mark: u8) -> Option<NodeIndex> {
        if mark == self.mark_of(0) { Some(0) } else { (mark < FIRST_HEAD && mark > 0).then_some(mark.into()) }
    }

    /// A head that has come goes on with what is on the disk.
    pub(crate) fn go_on_from_disk(&mut self) {
        if self.options.heads_die {
            self.nodes[0].core.restore(&self.disk.rows, PATIENCE).expect("it reads what heads have written");
        }
    }

    /// The head has rows written, which takes a while.
    pub(crate) fn write_down(&mut self, changes: Vec<Change>) {
        let usual = if self.chance.odds(50) { 500 * MILLISECOND } else { 2 * MILLISECOND };
        let latest = self.now.max(self.options.calm_at) + WRITE_LONGEST;
        let at = (self.now + self.chance.delay(usual)).min(latest);
        self.disk.writing = Some(changes);
        self.agenda.plan(at, Event::Written);
    }

    /// What became of it.
    pub(crate) fn written(&mut self) {
        if !self.nodes[0].is_alive {
            return;
        }
        if self.now < self.disk.full_until {
            self.disk.writing = None;
            return self.nodes[0].core.not_written("the disk is full");
        }
        if std::mem::take(&mut self.disk.is_doomed) {
            return self.head_dies();
        }
        self.disk.write();
        self.nodes[0].core.written();
    }

    /// DISK-1.
    pub(crate) fn check_row(&self, what: &str, id: &[u8]) {
        let is_there = !self.options.heads_die || self.disk.rows.keys().any(|(_, key)| key[..] == *id);
        assert!(is_there, "DISK-1: {what} is acknowledged, and is not on the disk");
    }

    /// Nothing is the matter with the head any more.
    pub(crate) fn spare_the_head(&mut self) {
        self.disk.is_doomed = false;
    }

    /// The head is to die: at once, or in the middle of writing.
    pub(crate) fn trouble_for_the_head(&mut self) {
        if !self.nodes[0].is_alive {
            return;
        }
        match self.chance.between(0, 2) {
            0 => self.disk.full_until = self.now + self.chance.delay(SECOND).min(ABSENCE_LONGEST),
            1 => self.disk.is_doomed = true,
            _ => self.head_dies(),
        }
    }

    fn head_dies(&mut self) {
        self.troubles += 1;
        self.node_dies(0);
        self.break_gateway();
        let at = self.now + self.chance.between(MILLISECOND, ABSENCE_LONGEST);
        self.agenda.plan(at, Event::NodeComes { machine: 0 });
    }

    /// Another head takes the place of the one that died; everybody on its machine is new.
    pub(crate) fn head_comes(&mut self) {
        self.disk.epoch += 1;
        // What was being written when the last one died is there whole or not at all.
        if self.chance.odds(500) {
            self.disk.write();
        }
        self.disk.writing = None;
        // What was to happen to the last one does not happen to this one.
        self.agenda.forget(|event| {
            matches!(
                event,
                Event::Turn(0)
                    | Event::Forked { node: 0, .. }
                    | Event::TemplateEnds { node: 0, .. }
                    | Event::Fetched { node: 0, .. }
                    | Event::Prepared { node: 0, .. }
                    | Event::DeviceAnswers { node: 0, .. }
                    | Event::Written
                    | Event::Thaws(0)
                    | Event::Look
            )
        });
        let node = self.new_node(0, 0);
        self.nodes[0] = node;
        self.log.line(self.now, format_args!("head {} comes", self.disk.epoch));
        self.go_on_from_disk();
        self.lease_begins(0);
        self.settle(0);
        if !self.is_calm {
            for _ in 0..self.options.drivers {
                let at = self.now + self.chance.between(10 * MILLISECOND, SECOND);
                self.agenda.plan(at, Event::DriverComes);
            }
        }
    }

    /// A driver has a value kept under a key of its own.
    pub(crate) fn keep_value(&mut self, process: ProcessIndex) {
        let key = Bytes::copy_from_slice(&self.chance.seed().to_be_bytes());
        self.ask_for_kept(process, key.clone(), KeyValueAction::Put);
    }

    fn ask_for_kept(&mut self, process: ProcessIndex, key: Bytes, action: KeyValueAction) {
        let question = Question::Kept(key.clone());
        let value = key.clone();
        let asked = |request| {
            let (action, widely) = (action, true);
            KeyValueRequest { request, action, key, value, widely, ..KeyValueRequest::default() }.into()
        };
        let request = self.with_core(process, |core| core.ask(asked));
        self.client(process).program.questions.insert(request, question);
    }

    /// What was kept is there, whoever is the head.
    pub(crate) fn kept_answered(&mut self, key: &Bytes, said: &KeyValueAnswer) {
        if said.failure.is_some() {
            return;
        }
        match self.disk.kept.insert(key.clone(), key.clone()) {
            None => self.check_kept_rows(key),
            Some(_) => assert_eq!(said.value, *key, "DISK-1: a value that was kept is there"),
        }
    }

    fn check_kept_rows(&self, key: &Bytes) {
        let holds = |(_, name): &&(u32, Bytes)| name.windows(key.len()).any(|part| part == &key[..]);
        let is_there = !self.options.heads_die || self.disk.rows.keys().any(|row| holds(&row));
        assert!(is_there, "DISK-1: a kept value is acknowledged, and is not on the disk");
    }

    /// Somebody looks at all that was kept.
    pub(crate) fn look_at_what_is_kept(&mut self, process: ProcessIndex) {
        let keys: Vec<Bytes> = self.disk.kept.keys().cloned().collect();
        for key in keys {
            self.ask_for_kept(process, key, KeyValueAction::Get);
        }
    }

    /// The last head is dead, and the next one has not come.
    pub(crate) fn is_without_head(&self) -> bool {
        self.nodes.first().is_none_or(|head| !head.is_alive)
    }
}
