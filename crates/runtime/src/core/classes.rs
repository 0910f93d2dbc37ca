//! Classes come and go with those who name them.
//!
//! A program may call with ever new options, each set of them a class. So a class is forgotten once no caller, no task,
//! no lease and no request is of it, and its place is given to the next.
//!
//! - CLASSES-1: whoever keeps the number of a class counts as one of its uses: callers, and tasks until they are over.
//!   Leases and requests stand in the class itself.

use crate::core::calls::{Leases, Queue, Target, Task, amounts};
use crate::core::work::{Class, ClassIndex};
use oxiray_ids::PlacementGroupId;
use oxiray_wire::message::Amount;
use std::collections::VecDeque;
use std::sync::Arc;

impl Leases {
    /// The class of these needs, with one use for the caller.
    pub(crate) fn class(&mut self, class: Arc<Class>) -> ClassIndex {
        if let Some(index) = self.classes.get(&class) {
            self.queues[*index].uses += 1;
            return ClassIndex(*index);
        }
        let queue = Queue {
            class: Arc::clone(&class),
            uses: 1,
            pending: VecDeque::new(),
            leases: Vec::new(),
            requests: Vec::new(),
            average_us: None,
            has_told_of_pauses: false,
            has_told_of_network: false,
        };
        let index = self.free_queues.pop().unwrap_or(self.queues.len());
        if index == self.queues.len() {
            self.queues.push(queue);
        } else {
            self.queues[index] = queue;
        }
        self.classes.insert(class, index);
        ClassIndex(index)
    }

    /// The resources that a task needs; none for an actor's method.
    pub(crate) fn needs_of(&self, task: &Task) -> Vec<Amount> {
        match task.target {
            Target::Class(index) => amounts(&self.queues[index].class.demand),
            Target::Actor(_) => Vec::new(),
        }
    }

    /// The placement group that a task is to run in; of an actor's call only the actor knows it.
    pub(crate) fn group_of(&self, task: &Task) -> Option<PlacementGroupId> {
        let Target::Class(index) = task.target else { return None };
        self.queues[index].class.strategy.as_ref()?.group
    }

    /// One use less.
    pub(crate) fn release_class(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        // After the daemon is gone nothing is counted any more.
        queue.uses = queue.uses.saturating_sub(1);
        if queue.uses == 0 {
            self.forget_if_unused(index);
        }
    }

    pub(crate) fn forget_if_unused(&mut self, index: usize) {
        let queue = &self.queues[index];
        let is_used = queue.uses > 0 || !queue.pending.is_empty() || !queue.leases.is_empty();
        if is_used || !queue.requests.is_empty() || self.classes.get(&queue.class) != Some(&index) {
            return;
        }
        self.classes.remove(&queue.class);
        self.free_queues.push(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::LeaseRequestNumber;
    use oxiray_wire::message::Environment;

    fn class(units: u64) -> Arc<Class> {
        let demand = vec![("CPU".to_owned(), units)];
        Arc::new(Class {
            demand,
            environment: Environment::default(),
            fresh: false,
            strategy: None,
            near: Vec::new(),
            priority: 0,
            preemptible: false,
        })
    }

    #[test]
    fn ever_new_classes_take_no_more_room_than_those_in_use() {
        let mut tasks = Leases::default();
        let kept = tasks.class(class(0));
        for units in 1..10_000 {
            let index = tasks.class(class(units));
            assert_eq!(tasks.class(class(units)), index);
            tasks.release_class(index.0);
            assert_eq!(tasks.class(class(units)), index, "it is still in use");
            tasks.release_class(index.0);
            tasks.release_class(index.0);
        }
        assert_eq!((tasks.queues.len(), tasks.classes.len(), tasks.free_queues.len()), (2, 1, 1));
        assert_eq!(tasks.class(class(0)), kept);
    }

    #[test]
    fn a_class_stays_while_something_is_under_way_for_it() {
        let mut tasks = Leases::default();
        let index = tasks.class(class(1)).0;
        tasks.queues[index].requests.push(LeaseRequestNumber(7));
        tasks.release_class(index);
        assert_eq!(tasks.class(class(1)).0, index);
        tasks.release_class(index);
        tasks.queues[index].requests.clear();
        tasks.forget_if_unused(index);
        tasks.forget_if_unused(index);
        assert_eq!((tasks.classes.len(), tasks.free_queues.as_slice()), (0, &[index][..]), "its place is given once");
    }
}
