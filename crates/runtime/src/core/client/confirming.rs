//! Holds that travel with replies and items.
//!
//! Whoever replies has the receiver counted as a holder of what the reply brings, and may die before the reply has left it.
//!
//! - CONFIRMING-1: what a reply or an item brings is confirmed once, before any of it is given back.
//! - CONFIRMING-2: of a process that is dead the daemon is told, once its last words are read, that nothing more comes:
//!   what it counted for this process and did not bring is taken back.

use crate::core::client::Client;
use crate::core::io::{DAEMON, Io, Role, Token};
use crate::core::objects::inner_ids;
use oxiray_ids::{ObjectId, TaskId, WorkerId};
use oxiray_wire::message::{Confirm, Content, Reply, Value};

/// What counts as held by the receiver of an object's value.
fn brought(object: ObjectId, value: &Value, objects: &mut Vec<ObjectId>) {
    if matches!(value.content, Some(Content::Stored(_))) {
        objects.push(object);
    }
    objects.extend(inner_ids(value));
}

fn brought_by(task: TaskId, reply: &Reply) -> Vec<ObjectId> {
    let mut objects = Vec::new();
    for (value, index) in reply.results.iter().zip(1..) {
        brought(task.object(index), value, &mut objects);
    }
    objects.extend(reply.raised.iter().flat_map(inner_ids));
    objects
}

impl<I: Io> Client<I> {
    /// CONFIRMING-1, for a reply.
    pub(crate) fn confirm_reply(&mut self, task: TaskId, reply: &Reply, giver: &WorkerId) {
        self.confirm(giver, &brought_by(task, reply));
    }

    /// CONFIRMING-1, for an item that came on this stream.
    pub(crate) fn confirm_item(&mut self, item: ObjectId, value: &Value, from: Token) {
        let giver = match self.peers.role(from) {
            Some(Role::Lease(lease)) => self.leases.granted.get(&lease).map(|lease| lease.worker),
            Some(Role::Actor(actor)) => self.actors.process_of(actor),
            Some(Role::Daemon | Role::Client(_)) | None => None,
        };
        let mut objects = Vec::new();
        brought(item, value, &mut objects);
        if let Some(giver) = giver {
            self.confirm(&giver, &objects);
        }
    }

    /// What a head that is gone had counted, this process has counted by itself (RESUMING-1).
    fn confirm(&mut self, giver: &WorkerId, objects: &[ObjectId]) {
        if !objects.is_empty() && !self.daemon.resuming.reads_what_came_before {
            self.io.send(DAEMON, &Confirm { giver: *giver, objects: objects.to_vec(), is_over: false });
        }
    }

    /// A reply that asks for another attempt: what it brought is given back.
    pub(crate) fn give_back_brought(&mut self, task: TaskId, reply: &Reply) {
        if !self.daemon.resuming.reads_what_came_before {
            self.unhold(&brought_by(task, reply));
        }
    }

    /// CONFIRMING-2.
    pub(crate) fn giver_is_over(&mut self, giver: &WorkerId) {
        self.io.send_now(DAEMON, &Confirm { giver: *giver, objects: Vec::new(), is_over: true });
    }
}
