//! What the call that runs here cannot go on without, told to the head when it asks.
//!
//! Only what this process knows for sure is told: calls that it made itself, and those that their arguments come from.

use crate::core::calls::Target;
use crate::core::client::Client;
use crate::core::io::{DAEMON, Io};
use oxiray_ids::{LeaseNumber, ObjectId, TaskId};
use oxiray_wire::message::{Failure, WaitsReport};
use rustc_hash::{FxHashMap, FxHashSet};

/// How many objects that a call waits for are remembered, and how many calls behind them are looked at.
const OBJECTS_MAX: usize = 256;
const CALLS_MAX: usize = 1024;

impl<I: Io> Client<I> {
    /// The call in the main thread waits for all of these, for as long as it takes. `false` where none runs here, and there is
    /// nothing to forget.
    pub fn note_awaited(&mut self, ids: &[ObjectId]) -> bool {
        let runs = !self.service.inbox.is_done();
        if runs {
            self.service.awaited = ids.iter().take(OBJECTS_MAX).copied().collect();
        }
        runs
    }

    /// It does not any more.
    pub fn forget_awaited(&mut self) {
        self.service.awaited = Vec::new();
    }

    /// Tells the head what the call that runs here, and none beside it, cannot go on without.
    pub(crate) fn tell_of_waits(&mut self, number: u64) {
        let mut report = WaitsReport { number, ..WaitsReport::default() };
        if self.service.inbox.runs_one() {
            let leased = self.leases_under_way();
            for task in self.awaited_calls() {
                self.add_awaited(task, &leased, &mut report);
            }
        }
        self.io.send_now(DAEMON, &report);
    }

    /// The calls that make what is awaited and is not there, and those that their arguments wait for.
    fn awaited_calls(&self) -> FxHashSet<TaskId> {
        let (mut calls, mut objects) = (FxHashSet::default(), self.service.awaited.clone());
        while let Some(object) = objects.pop() {
            let id = object.task();
            if calls.len() == CALLS_MAX || self.objects.is_ready(object) || calls.contains(&id) {
                continue;
            }
            let Some(task) = self.calls.tasks.get(&id) else { continue };
            calls.insert(id);
            if task.waiting_for > 0 {
                objects.extend(task.work.arguments.references.iter().map(|(_, object)| *object));
            }
        }
        calls
    }

    fn leases_under_way(&self) -> FxHashMap<TaskId, LeaseNumber> {
        let of_lease = |(number, lease): (&LeaseNumber, &crate::core::calls::Lease)| {
            let number = *number;
            lease.under_way.iter().map(move |task| (*task, number)).collect::<Vec<_>>()
        };
        self.leases.granted.iter().flat_map(of_lease).collect()
    }

    fn add_awaited(&self, id: TaskId, leased: &FxHashMap<TaskId, LeaseNumber>, report: &mut WaitsReport) {
        let Some(task) = self.calls.tasks.get(&id).filter(|task| task.waiting_for == 0) else { return };
        match (task.target, leased.get(&id)) {
            (Target::Actor(actor), _) if !report.actors.contains(&actor) => report.actors.push(actor),
            (Target::Class(_), Some(lease)) if !report.leases.contains(lease) => report.leases.push(*lease),
            (Target::Class(queue), None) if task.paused_until.is_none() => {
                // All requests of a class are for the same.
                let request = self.leases.queues[queue].requests.first();
                report.requests.extend(request.filter(|request| !report.requests.contains(request)));
            }
            _ => {}
        }
    }

    /// The head found that calls of a class wait for ever, since what they need is held by who waits for them: the first that
    /// is awaited here fails.
    pub(crate) fn fail_deadlocked(&mut self, queue: usize, failure: &Failure) {
        let awaited = self.awaited_calls();
        let pending = &mut self.leases.queues[queue].pending;
        let at = pending.iter().position(|task| awaited.contains(task)).unwrap_or(0);
        if let Some(task) = pending.remove(at) {
            self.fail_task(task, failure);
        }
        self.pump(queue);
    }
}
