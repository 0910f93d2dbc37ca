//! What there is of an actor besides its place in the world, while it lives: how it is made, and what it waits for.

use super::Actors;
use crate::demands::{Need, home, stored_among};
use bytes::Bytes;
use oxiray_ids::{ActorId, JobId, NodeId, ObjectId, WorkerId};
use oxiray_machine::{GroupMembership, Key};
use oxiray_resources::Demand;
use oxiray_wire::message::{ActorCreate, Environment, Failure};
use std::collections::{BTreeMap, BTreeSet};

/// What is kept of an actor while it lives.
#[derive(Debug)]
pub(crate) struct Making {
    pub(crate) job: JobId,
    pub(crate) handle: Bytes,
    running: Demand,
    ticket: Option<u64>,
    /// The node that was last ordered to have its process.
    pub(crate) ordered_to: Option<NodeId>,
    /// What its constructor needs, as long as it may have to run.
    pub(crate) spec: Option<ActorCreate>,
    contained: Vec<ObjectId>,
    /// What it waits for in the queue.
    need: Option<Need>,
    /// Its constructor's arguments are awaited where it is made.
    pub(crate) is_unfinished: bool,
    /// The node that its process was on under another head, until that is back or given up.
    pub(crate) post: Option<NodeId>,
}

impl Making {
    pub(crate) fn unfinished(job: JobId, handle: Bytes) -> Self {
        Self {
            job,
            handle,
            running: Demand::default(),
            ticket: None,
            ordered_to: None,
            spec: None,
            contained: Vec::new(),
            need: None,
            is_unfinished: true,
            post: None,
        }
    }

    /// What its constructor needs is known, and `contained` are the objects in it, which are held for it.
    pub(crate) fn know_constructor(&mut self, spec: ActorCreate, contained: Vec<ObjectId>) {
        (self.spec, self.contained, self.is_unfinished) = (Some(spec), contained, false);
    }

    /// Its constructor runs no more. Returns the objects that were held for it.
    pub(crate) fn forget_constructor(&mut self) -> Vec<ObjectId> {
        self.spec = None;
        std::mem::take(&mut self.contained)
    }

    /// What it is to wait for, and what it holds once it runs.
    pub(crate) fn asks_for(&mut self, need: Need, running: Demand) {
        (self.need, self.running) = (Some(need), running);
    }

    /// What the actor holds while it lives.
    pub(crate) fn running(&self) -> &Demand {
        &self.running
    }

    /// The placement group that it is to live in, until its constructor returned.
    pub(crate) fn home(&self) -> Option<GroupMembership> {
        self.spec.as_ref().and_then(|spec| home(spec.strategy.as_ref()))
    }

    /// What its constructor is to find around it, as long as that may have to run.
    pub(crate) fn environment(&self) -> Option<&Environment> {
        self.spec.as_ref()?.environment.as_ref()
    }

    /// Who made it, as long as its constructor may have to run.
    pub(crate) fn maker(&self) -> Option<WorkerId> {
        self.spec.as_ref().map(|spec| spec.owner)
    }

    /// The large objects that its constructor reads, and their bytes.
    pub(crate) fn reads(&self) -> Vec<(ObjectId, u64)> {
        self.spec.as_ref().map(|spec| stored_among(&spec.references)).unwrap_or_default()
    }

    /// It waits for its resources, under this ticket.
    pub(crate) fn waits_under(&mut self, ticket: u64) {
        self.ticket = Some(ticket);
    }

    /// It waits no more. Returns the ticket under which it did.
    pub(crate) fn stop_waiting(&mut self) -> Option<u64> {
        self.ticket.take()
    }

    /// The ticket under which it waits.
    pub(crate) fn ticket(&self) -> Option<u64> {
        self.ticket
    }

    /// Whether it waits for its resources.
    pub(crate) fn is_waiting(&self) -> bool {
        self.ticket.is_some()
    }

    /// Whether it waits under this ticket.
    pub(crate) fn waits_as(&self, ticket: u64) -> bool {
        self.ticket == Some(ticket)
    }
}

/// All actors.
#[derive(Debug, Default)]
pub(crate) struct ActorTable {
    pub(crate) known: Actors<Failure>,
    /// What there is besides of those that are not dead.
    pub(crate) making: BTreeMap<ActorId, Making>,
    /// Who asked for actors that nobody has made yet.
    pub(crate) early: BTreeMap<ActorId, BTreeSet<Key>>,
}

impl ActorTable {
    /// What the actor's process is to be told of its constructor.
    pub(crate) fn constructor_of(&self, id: ActorId) -> ActorCreate {
        let making = self.making.get(&id).expect("a dead actor waits for nothing");
        let mut spec = making.spec.clone().unwrap_or_default();
        spec.restarts = self.known.get(id).map_or(0, |actor| actor.restarts);
        spec
    }

    /// The actors whose processes were on that node under another head.
    pub(crate) fn posted_to(&self, node: NodeId) -> Vec<ActorId> {
        self.making.iter().filter(|(_, making)| making.post == Some(node)).map(|(id, _)| *id).collect()
    }

    /// Those whose constructors' arguments `creator` was to tell of.
    pub(crate) fn unfinished_of(&self, creator: WorkerId) -> Vec<ActorId> {
        let is_its = |id: ActorId| self.known.get(id).is_some_and(|actor| actor.description.creator == creator);
        let unfinished = self.making.iter().filter(|(id, making)| making.is_unfinished && is_its(**id));
        unfinished.map(|(id, _)| *id).collect()
    }

    /// What an actor that ends without having run was waiting for, in words; empty where it ran.
    pub(crate) fn never_ran(&self, id: ActorId) -> String {
        let has_run = self.known.get(id).is_some_and(|actor| actor.worker().is_some() || actor.restarts > 0);
        match self.making.get(&id) {
            Some(_) if has_run => String::new(),
            Some(making) if making.is_unfinished => {
                " It never ran: the arguments of its constructor were still awaited.".into()
            }
            Some(Making { need: Some(Need::ResourceRequest(resource_request)), .. }) => {
                format!(" It never ran: it was still waiting for {}.", resource_request.demand)
            }
            Some(_) => " It never ran: it was still waiting for its place.".into(),
            None => String::new(),
        }
    }
}
