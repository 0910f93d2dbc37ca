//! Telling the daemon which calls ran in this process, run, and wait.

use crate::core::calls::{Target, Task};
use crate::core::client::Client;
use crate::core::io::{DAEMON, Io};
use oxiray_ids::{TaskId, WorkerId};
use oxiray_wire::message::{StackQuery, StackReport, TaskLog as Told, TaskRecord, TaskStage};
use rustc_hash::FxHashMap;

/// How many calls a process tells of that have not ended.
const OPEN_MAX: usize = 10_000;

impl<I: Io> Client<I> {
    /// Tells the daemon of every call that this process runs, ran lately, or waits for. What ended is told first: who adds up what ended
    /// and what goes on counts each attempt then.
    pub(crate) fn tell_of_tasks(&mut self, number: u64) {
        self.tell_of_ended();
        let mut records = self.log.records();
        let sent = self.sent();
        records.extend(self.calls.tasks.iter().take(OPEN_MAX).map(|(id, task)| {
            let stage = Self::stage(id, task, &sent);
            TaskRecord {
                task: *id,
                attempt: task.attempt,
                name: task.work.name.clone(),
                label: task.work.label.clone(),
                stage,
                resources: self.leases.needs_of(task),
                origin: Some(task.origin((stage == TaskStage::Sent).then_some(task.times.sent_us))),
                group: self.leases.group_of(task),
                sent_to: sent.get(id).copied().or_else(|| self.actor_of(task, stage)),
                ..TaskRecord::default()
            }
        }));
        let environment = self.log.environment.clone();
        self.io.send_now(DAEMON, &Told { number, records, environment, ended: Vec::new(), runs_retry: false });
    }

    /// Somebody asks where the threads of this process are, or what they do over a time.
    pub(crate) fn stacks_wanted(&mut self, asked: &StackQuery) {
        if let Err(note) = self.io.take_stacks(asked) {
            self.tell_stacks(&StackReport { number: asked.number, note, ..StackReport::default() });
        }
    }

    /// Tells the daemon where the threads of this process are.
    pub fn tell_stacks(&mut self, told: &StackReport) {
        if self.daemon.lost.is_none() {
            self.io.send_now(DAEMON, told);
        }
    }

    /// What runs here runs in this runtime environment, given as JSON.
    pub fn note_environment(&mut self, environment: String) {
        self.log.environment = environment;
    }

    /// The calls of functions that are under way, each with its worker.
    pub(crate) fn sent(&self) -> FxHashMap<TaskId, WorkerId> {
        let leases = self.leases.granted.values();
        leases.flat_map(|lease| lease.under_way.iter().map(|task| (*task, lease.worker))).collect()
    }

    /// The process of the actor that has this call.
    fn actor_of(&self, task: &Task, stage: TaskStage) -> Option<WorkerId> {
        let Target::Actor(actor) = task.target else { return None };
        self.actors.process_of(actor).filter(|_| stage == TaskStage::Sent)
    }

    /// How far a call is that has not ended; `sent` as [`State::sent`] says.
    pub(crate) fn stage(id: &TaskId, task: &Task, sent: &FxHashMap<TaskId, WorkerId>) -> TaskStage {
        let is_sent = match task.target {
            Target::Class(_) => sent.contains_key(id),
            Target::Actor(_) => task.sent > 0,
        };
        match task.waiting_for {
            0 if is_sent => TaskStage::Sent,
            0 => TaskStage::WaitsForWorker,
            _ => TaskStage::WaitsForArguments,
        }
    }

    /// Tells the daemon of calls that ended since it was told last, and of retries that run.
    pub(crate) fn tell_of_ended(&mut self) {
        let (records, ended) = (self.log.take_untold(), self.log.counts.take());
        let retry_news = self.log.take_retry_news();
        if (!records.is_empty() || retry_news.is_some()) && self.daemon.lost.is_none() {
            let (environment, runs_retry) = (self.log.environment.clone(), self.log.retry_is_told);
            self.io.send_now(DAEMON, &Told { number: 0, records, environment, ended, runs_retry });
        }
    }
}
