//! Tasks that read large objects run where those lie.
//!
//! A worker that is leased already may be on any machine. So a task with large arguments waits in a class of its own, by
//! what it reads: tasks that read the same share their workers, and each such worker was asked for with these objects
//! named. Where there is one machine only, none of this is done.

use crate::core::calls::{Leases, Target};
use crate::core::client::Client;
use crate::core::io::Io;
use crate::core::work::Class;
use oxiray_ids::{LeaseNumber, ObjectId, TaskId};
use oxiray_wire::message::{Content, LargeArgument};
use std::cmp::Reverse;
use std::sync::Arc;

/// From so many bytes on an object takes longer to fetch than a worker to be found.
const LARGE_BYTES_MIN: u64 = 1 << 20;
/// The most objects that one class names: the largest.
const NEAR_MAX: usize = 16;

impl<I: Io> Client<I> {
    /// The class in which the task waits: `queue`, or that of tasks that read the same large objects.
    pub(crate) fn near(&mut self, queue: usize, id: TaskId) -> usize {
        let class = &self.leases.queues[queue].class;
        // Where every task has a worker of its own, a class more costs nothing.
        if (class.strategy.is_some() && !class.fresh) || (self.leases.is_alone && class.near.is_empty()) {
            return queue;
        }
        let near = self.large_arguments(id);
        let class = &self.leases.queues[queue].class;
        if class.near == near {
            return queue;
        }
        let class = Class { near, ..Class::clone(class) };
        let found = self.leases.class(Arc::new(class)).0;
        self.leases.release_class(queue);
        if let Some(task) = self.calls.tasks.get_mut(&id) {
            task.target = Target::Class(found);
        }
        found
    }

    fn large_arguments(&mut self, id: TaskId) -> Vec<(ObjectId, u64)> {
        let Some(task) = self.calls.tasks.get(&id).filter(|_| !self.leases.is_alone) else { return Vec::new() };
        let objects = &mut self.objects;
        let references = task.work.arguments.references.iter();
        let bytes_of =
            |object: ObjectId, objects: &mut crate::core::objects::Objects| match objects.look_at(object)?.content {
                Some(Content::Stored(bytes)) if bytes >= LARGE_BYTES_MIN => Some((object, bytes)),
                _ => None,
            };
        let mut large: Vec<_> = references.filter_map(|(_, object)| bytes_of(*object, objects)).collect();
        large.sort_unstable_by_key(|(object, bytes)| (Reverse(*bytes), *object));
        large.dedup();
        large.truncate(NEAR_MAX);
        large
    }
}

impl Leases {
    /// Whether the lease that a task came back on is over: one that spreads is the last on its machine, and one that
    /// was near what it read is so where nobody waits for the same.
    pub(crate) fn is_last(&self, queue: usize, lease: LeaseNumber) -> bool {
        let Some(found) = self.granted.get(&lease) else { return false };
        let queue = &self.queues[queue];
        let is_unused = found.under_way.is_empty() && queue.pending.is_empty();
        queue.class.is_spread() || (is_unused && !queue.class.near.is_empty())
    }
}

impl Class {
    /// As a request for a worker names them.
    pub(crate) fn large_arguments(&self) -> Vec<LargeArgument> {
        let named = |(object, bytes): &(ObjectId, u64)| LargeArgument { object: *object, bytes: *bytes };
        self.near.iter().map(named).collect()
    }
}
