//! What the call or the program that runs here cannot go on without, told to the head when it asks.
//!
//! Only what this process knows for sure is told: calls that it made itself, those that their arguments come from, and placement
//! groups.

use crate::core::calls::{Target, Task};
use crate::core::client::Client;
use crate::core::io::{DAEMON, Io};
use oxiray_ids::{LeaseNumber, ObjectId, PlacementGroupId, TaskId};
use oxiray_wire::message::{Failure, WaitsReport};
use rustc_hash::{FxHashMap, FxHashSet};

/// How many objects that a call waits for are remembered, and how many calls behind them are looked at.
const OBJECTS_MAX: usize = 256;
const CALLS_MAX: usize = 1024;
/// How many actors with calls that are not answered are told of.
const CALLED_MAX: usize = 256;
/// How many calls that are not over are looked at whether they may begin.
const LOOKED_AT_MAX: usize = 4096;

impl<I: Io> Client<I> {
    /// The main thread waits for all of these, for as long as it takes. `false` where no call of a worker runs in it, and there
    /// is nothing to forget.
    pub fn note_awaited(&mut self, ids: &[ObjectId]) -> bool {
        let runs = !self.service.inbox.is_done() || self.service.inbox.is_in_one();
        if runs {
            self.service.standstill.awaited = ids.iter().take(OBJECTS_MAX).copied().collect();
            if let Some((number, is_alone)) = self.service.standstill.take_answered() {
                self.tell_of_waits(number, is_alone);
            }
        }
        runs
    }

    /// It does not any more.
    pub fn forget_awaited(&mut self) {
        self.service.standstill.awaited = Vec::new();
    }

    /// The head asks what this process waits for. Where the language is to say whether the main thread is alone, that answers.
    pub(crate) fn waits_asked(&mut self, number: u64) {
        if self.service.standstill.has_language && (self.is_blocked() || self.service.inbox.rests()) {
            self.service.standstill.ask(number);
            self.signals.changed = true;
            return;
        }
        self.tell_of_waits(number, false);
    }

    /// The main thread, whose wait ended for the question, says whether it is alone; it waits for calls, or waits again at once for
    /// what it waited for.
    pub(crate) fn waits_answered(&mut self, number: u64, is_alone: bool, waits_for_calls: bool) {
        if !waits_for_calls {
            return self.service.standstill.answer_when_waiting(number, is_alone);
        }
        let mut report = WaitsReport { number, is_alone, ..WaitsReport::default() };
        self.add_what_is_under_way(&mut report);
        report.rests = report.is_alone && self.service.inbox.rests();
        self.io.send_now(DAEMON, &report);
    }

    fn is_blocked(&self) -> bool {
        !self.service.standstill.awaited.is_empty() && self.service.inbox.is_in_one()
    }

    /// Tells the head what the main thread cannot go on without, where it runs one call or a program.
    fn tell_of_waits(&mut self, number: u64, is_alone: bool) {
        let mut report = WaitsReport { number, is_alone, ..WaitsReport::default() };
        if self.is_blocked() {
            let leased = self.leases_under_way();
            let (calls, others) = self.awaited_calls();
            for task in calls {
                self.add_awaited(task, &leased, &mut report);
            }
            for object in others {
                self.add_awaited_group(object, &mut report);
            }
        }
        self.add_what_is_under_way(&mut report);
        self.io.send_now(DAEMON, &report);
    }

    /// The actors with calls that are not answered. Who has more to begin by itself than is looked at is not alone.
    fn add_what_is_under_way(&self, report: &mut WaitsReport) {
        report.called = self.actors.called().take(CALLED_MAX + 1).collect();
        report.is_alone &= report.called.len() <= CALLED_MAX && !self.may_begin_something();
    }

    /// Whether a call may be made for a reason that does not lie in this process's own calls: it is to be tried again, or an
    /// argument of it comes from elsewhere.
    fn may_begin_something(&self) -> bool {
        let tasks = &self.calls.tasks;
        let is_own = |object: ObjectId| {
            self.objects.is_ready(object) || tasks.contains_key(&object.task()) || self.group_of(object).is_some()
        };
        let may_begin = |task: &Task| {
            let arguments = &task.work.arguments.references;
            let waits = task.waiting_for > 0 && !arguments.iter().all(|(_, object)| is_own(*object));
            waits || task.paused_until.is_some()
        };
        tasks.len() > LOOKED_AT_MAX || tasks.values().any(may_begin)
    }

    /// The placement group that an object stands for, and whether nobody else knows of it.
    fn group_of(&self, object: ObjectId) -> Option<(PlacementGroupId, bool)> {
        let private = self.groups.fresh.group_of(object);
        private.or_else(|| Some((self.groups.awaited.group_of(object)?, false)))
    }

    /// The calls that make what is awaited and is not there, and those that their arguments wait for; and the objects that no
    /// call of this process's makes.
    fn awaited_calls(&self) -> (FxHashSet<TaskId>, Vec<ObjectId>) {
        let (mut calls, mut objects) = (FxHashSet::default(), self.service.standstill.awaited.clone());
        let mut others = Vec::new();
        while let Some(object) = objects.pop() {
            let id = object.task();
            if calls.len() == CALLS_MAX || self.objects.is_ready(object) || calls.contains(&id) {
                continue;
            }
            let Some(task) = self.calls.tasks.get(&id) else {
                others.push(object);
                continue;
            };
            calls.insert(id);
            if task.waiting_for > 0 {
                objects.extend(task.work.arguments.references.iter().map(|(_, object)| *object));
            }
        }
        (calls, others)
    }

    fn add_awaited_group(&self, object: ObjectId, report: &mut WaitsReport) {
        let found = self.group_of(object).filter(|(group, _)| !report.groups.contains(group));
        let Some((group, is_private)) = found else { return };
        report.groups.push(group);
        if is_private {
            report.private_groups.push(group);
        }
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
        let (awaited, _) = self.awaited_calls();
        let pending = &mut self.leases.queues[queue].pending;
        let at = pending.iter().position(|task| awaited.contains(task)).unwrap_or(0);
        if let Some(task) = pending.remove(at) {
            self.fail_task(task, failure);
        }
        self.pump(queue);
    }
}
