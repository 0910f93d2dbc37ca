//! The stores of the nodes: objects written there by who makes them, fetched from node to node, and lost with a node.
//!
//! - STORE-1: what nobody refers to any more lies in no store.
//! - STORE-2: whoever reads an object gets it, or learns that it is lost; nobody reads for ever.

use crate::agenda::{Event, MILLISECOND};
use crate::process::Life;
use crate::stream::Packet;
use crate::world::{NodeIndex, ProcessIndex, World};
use oxiray_ids::{NodeId, ObjectId};
use oxiray_machine::{Key, Whereabouts};
use oxiray_wire::message::{ClientToHead, Copied, Locate, Located, Recover, Reference, Sought, Stored};
use std::collections::{BTreeMap, BTreeSet};

/// What lies on a node, and who there waits for what lies elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    objects: BTreeSet<ObjectId>,
    readers: BTreeMap<ObjectId, Vec<(ProcessIndex, Reference)>>,
}

impl Shelf {
    /// What is left on it.
    pub(crate) fn left(&self) -> usize {
        self.objects.len()
    }
}

impl World {
    /// A process writes an object into the store of its node, which tells the head.
    pub(crate) fn shelve(&mut self, process: ProcessIndex, object: ObjectId) {
        let node = self.processes[process].node;
        self.nodes[node].shelf.objects.insert(object);
        let control = self.processes[process].control;
        let message = Box::new(Stored { object }.into());
        self.send(control, Packet::Said { message, descriptor: None });
    }

    /// The head learns who has written an object.
    pub(crate) fn stored(&mut self, from: Key, object: ObjectId) {
        if self.nodes[0].core.route(from).is_some() {
            self.nodes[0].core.stored_elsewhere(from, object);
        } else if !self.nodes[0].core.stored(from, object) {
            self.nodes[0].shelf.objects.remove(&object);
        }
    }

    /// A process reads a stored object, wherever it lies.
    pub(crate) fn read(&mut self, process: ProcessIndex, reference: Reference) {
        let (node, object) = (self.processes[process].node, reference.object);
        if self.nodes[node].shelf.objects.contains(&object) {
            return self.has_read_from_store(process, object);
        }
        let is_first = !self.nodes[node].shelf.readers.contains_key(&object);
        let readers = self.nodes[node].shelf.readers.entry(object).or_default();
        readers.push((process, reference));
        if is_first {
            self.locate(node, object, None);
        }
    }

    fn locate(&mut self, node: NodeIndex, object: ObjectId, without: Option<NodeId>) {
        let Some(head) = self.nodes[node].core.head_key() else {
            self.wake(node);
            let is_here = self.nodes[node].shelf.objects.contains(&object);
            self.nodes[node].core.locate(None, object, without, is_here);
            return self.after_event(node);
        };
        self.queue(node, head, Locate { object, without }.into(), None);
    }

    /// A member asks the head where an object lies.
    pub(crate) fn locate_for(&mut self, member: Key, asked: &Locate) {
        let object = asked.object;
        let is_here = self.nodes[0].shelf.objects.contains(&object);
        self.nodes[0].core.locate(Some(member), object, asked.without, is_here);
    }

    /// The head has found an object, or found that nobody has it.
    pub(crate) fn tell_whereabouts(&mut self, found: Whereabouts) {
        let node = found.node;
        match found.asker {
            Some(member) => {
                let located = Located { object: found.object, node, ..Located::default() };
                self.queue(0, member, located.into(), None);
            }
            None => self.located(0, found.object, node),
        }
    }

    /// A node learns where an object lies, and fetches it from there.
    pub(crate) fn located(&mut self, node: NodeIndex, object: ObjectId, from: Option<NodeId>) {
        if self.nodes[node].shelf.objects.contains(&object) {
            return self.serve_readers(node, object);
        }
        let Some(from) = from.map(|node| node.as_bytes()[0]) else {
            for (process, reference) in self.nodes[node].shelf.readers.remove(&object).unwrap_or_default() {
                self.is_lost(process, reference.object);
            }
            return;
        };
        let Some(from) = self.marked(from) else {
            return self.locate(node, object, Some(NodeId::new([from; 28])));
        };
        let at = self.now + self.chance.delay(10 * MILLISECOND);
        self.agenda.plan(at, Event::Fetched { node, object, from });
    }

    /// A node is to have a copy, for nobody in particular.
    pub(crate) fn copy_here(&mut self, node: NodeIndex, object: ObjectId) {
        let is_here = self.nodes[node].shelf.objects.contains(&object);
        match self.nodes[node].core.head_key() {
            _ if !is_here => {
                let is_coming = self.nodes[node].shelf.readers.contains_key(&object);
                self.nodes[node].shelf.readers.entry(object).or_default();
                if !is_coming {
                    self.locate(node, object, None);
                }
            }
            None => self.nodes[node].core.copied_here(object),
            Some(head) => self.queue(node, head, Copied { object }.into(), None),
        }
    }

    /// Whoever waits for an object asks the next head where it is.
    pub(crate) fn locate_again(&mut self, node: NodeIndex) {
        for object in self.nodes[node].shelf.readers.keys().copied().collect::<Vec<_>>() {
            self.locate(node, object, None);
        }
    }

    /// What lies on a node.
    pub(crate) fn on_shelf(&self, node: NodeIndex) -> Vec<ObjectId> {
        self.nodes[node].shelf.objects.iter().copied().collect()
    }

    /// A copy has come, or whoever was to send it has it not.
    pub(crate) fn fetched(&mut self, node: NodeIndex, object: ObjectId, from: NodeIndex) {
        if !self.nodes[node].is_alive || !self.nodes[node].shelf.readers.contains_key(&object) {
            return;
        }
        if !self.nodes[from].is_alive || !self.nodes[from].shelf.objects.contains(&object) {
            return self.locate(node, object, Some(NodeId::new([self.mark_of(from); 28])));
        }
        match self.nodes[node].core.head_key() {
            None if !self.nodes[node].core.is_stored(object) => {}
            None => {
                self.nodes[node].shelf.objects.insert(object);
                self.nodes[node].core.copied_here(object);
            }
            Some(head) => {
                self.nodes[node].shelf.objects.insert(object);
                self.queue(node, head, Copied { object }.into(), None);
            }
        }
        self.serve_readers(node, object);
    }

    fn serve_readers(&mut self, node: NodeIndex, object: ObjectId) {
        for (process, reference) in self.nodes[node].shelf.readers.remove(&object).unwrap_or_default() {
            if self.processes[process].life == Life::Running {
                self.has_read_from_store(process, reference.object);
            }
        }
    }

    /// Nobody refers to the object any more.
    pub(crate) fn unshelve(&mut self, node: NodeIndex, object: ObjectId) {
        self.nodes[node].shelf.objects.remove(&object);
    }

    /// A member is asked whether it has an object after all.
    pub(crate) fn sought(&mut self, node: NodeIndex, search: u64, object: ObjectId) {
        let is_here = self.nodes[node].shelf.objects.contains(&object);
        if let Some(head) = self.nodes[node].core.head_key() {
            self.queue(node, head, Sought { search, is_here }.into(), None);
        }
    }

    /// Whether somebody says that an object is lost which can be read, or was made again meanwhile.
    pub(crate) fn is_found_again(&self, message: &ClientToHead) -> bool {
        let ClientToHead::Recover(Recover { reference: Some(lost) }) = message else { return false };
        let object = lost.object;
        self.nodes[0].shelf.objects.contains(&object) || self.nodes[0].core.holder_of(object).is_some()
    }
}
