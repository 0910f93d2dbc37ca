//! Calls of this process that have not ended, the workers that were leased for them, and those that were asked for.

use crate::core::code::Codes;
use crate::core::io::Token;
use crate::core::retrying::Retries;
use crate::core::table::Table;
use crate::core::work::{Class, Work};
use oxiray_ids::{ActorId, LeaseNumber, LeaseRequestNumber, TaskId, Unique, WorkerId};
use oxiray_wire::message::{Amount, CallOrigin};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tasks under way on one worker at most. With less, one that does nothing but tiny tasks sleeps ever again until more come.
const DEPTH_LIMIT: usize = 2048;

/// About how much work a worker is given ahead.
const AHEAD_US: f32 = 2_000.0;

/// A worker that has nothing to do for this long is returned.
pub(crate) const IDLE_LIMIT: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    Class(usize),
    Actor(ActorId),
}

/// When a call came to which stage, in microseconds since 1970.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "the unit stands last in each name")]
pub(crate) struct CallTimes {
    pub(crate) called_us: u64,
    /// When its arguments were there; no sense while it waits for some.
    pub(crate) ready_us: u64,
    /// When it was last sent to who runs it; 0 where it was not.
    pub(crate) sent_us: u64,
}

#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) work: Work,
    pub(crate) target: Target,
    pub(crate) waiting_for: usize,
    pub(crate) attempt: u32,
    pub(crate) times: CallTimes,
    /// It was under way on a worker that died: until it is known whether it was to blame, it runs alone.
    pub(crate) suspect: bool,
    /// Of an actor's call that is under way: which of those sent it was, counted from 1.
    pub(crate) sent: u64,
    /// Nobody wants it any more, though a worker has it: it is not run again.
    pub(crate) cancelled: bool,
    /// Its attempt was told to stop, since an item was lost: another yields that anew (REGAIN-2).
    pub(crate) yields_again: bool,
    /// How many workers in a row died of it.
    pub(crate) crashes: u32,
    /// How many workers in a row the network could not reach for it.
    pub(crate) unreached: u32,
    /// How often its worker was ended for want of memory.
    pub(crate) shortages: u32,
    /// How often a device failed under it.
    pub(crate) device_failures: u32,
    /// It waits so long for its next attempt.
    pub(crate) paused_until: Option<Instant>,
}

impl Task {
    /// Whether it may run more than once.
    pub(crate) fn may_repeat(&self) -> bool {
        !self.cancelled && (self.work.retries != 0 || self.attempt > 0)
    }

    /// Who called, and when; `sent_us` is when it is sent to who runs it, where it is.
    pub(crate) fn origin(&self, sent_us: Option<u64>) -> CallOrigin {
        CallOrigin {
            parent: Some(self.work.parent).filter(|parent| !parent.is_nil()),
            called_us: self.times.called_us,
            ready_after_us: (self.waiting_for == 0).then(|| self.times.ready_us.saturating_sub(self.times.called_us)),
            sent_after_us: sent_us.map(|sent| sent.saturating_sub(self.times.ready_us)),
        }
    }

    pub(crate) fn runs_alone(&self) -> bool {
        self.suspect || self.work.max_calls > 0 || self.work.retries == 0
    }
}

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) class: Arc<Class>,
    /// Callers and tasks that name it (CLASSES-1).
    pub(crate) uses: usize,
    pub(crate) pending: VecDeque<TaskId>,
    pub(crate) leases: Vec<LeaseNumber>,
    pub(crate) requests: Vec<LeaseRequestNumber>,
    pub(crate) average_us: Option<f32>,
    /// The user knows that its tasks wait before they are tried again.
    pub(crate) has_told_of_pauses: bool,
    /// Its user was told that workers cannot be reached.
    pub(crate) has_told_of_network: bool,
}

/// What may still become of a lease. Only an open one takes further tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeasePhase {
    Open,
    /// It is returned when what runs on it is done.
    Retiring,
    /// Its worker exits, or its stream is over: the daemon says what became of it.
    Ending,
}

#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) queue: usize,
    pub(crate) token: Token,
    pub(crate) worker: WorkerId,
    pub(crate) under_way: VecDeque<TaskId>,
    /// What was given to it last runs alone.
    pub(crate) is_for_one: bool,
    pub(crate) codes: Codes,
    pub(crate) idle_since: Option<Instant>,
    pub(crate) phase: LeasePhase,
    /// Why its stream was closed here.
    pub(crate) broken: Option<String>,
}

/// The calls of this process that have not ended.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) tasks: Table<TaskId, Task>,
    pub(crate) retries: Retries,
    pub(crate) unique: Unique,
    /// The job is ending: nothing is asked for or tried again.
    pub(crate) leaving: bool,
}

impl Calls {
    pub(crate) fn new(unique: Unique) -> Self {
        Self { tasks: Table::default(), retries: Retries::default(), unique, leaving: false }
    }
}

/// The classes of this process's tasks, the workers that were leased for them, and those that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    pub(crate) classes: FxHashMap<Arc<Class>, usize>,
    pub(crate) queues: Vec<Queue>,
    /// Places in `queues` that no class has.
    pub(crate) free_queues: Vec<usize>,
    pub(crate) granted: FxHashMap<LeaseNumber, Lease>,
    pub(crate) requests: FxHashMap<LeaseRequestNumber, usize>,
    pub(crate) next_request: u64,
    pub(crate) idle: usize,
    /// There was no other node when a worker was granted last.
    pub(crate) is_alone: bool,
}

impl Leases {
    pub(crate) fn forget_all(&mut self) {
        self.granted.clear();
        self.requests.clear();
        self.idle = 0;
        for queue in &mut self.queues {
            queue.pending.clear();
            queue.leases.clear();
            queue.requests.clear();
        }
    }

    pub(crate) fn next_idle_end(&self) -> Option<Instant> {
        if self.idle == 0 {
            return None;
        }
        self.granted.values().filter_map(|lease| lease.idle_since).min().map(|since| since + IDLE_LIMIT)
    }

    /// The lease that takes the front task of a queue now.
    pub(crate) fn choose(&self, queue: &Queue, task: &Task) -> Option<LeaseNumber> {
        let alone = queue.class.fresh || queue.class.is_spread() || task.runs_alone();
        let depth = match queue.average_us {
            Some(average) if !alone => ((AHEAD_US / average.max(1.0)) as usize).clamp(1, DEPTH_LIMIT),
            _ => 1,
        };
        let candidates =
            queue.leases.iter().map(|id| (*id, &self.granted[id])).filter(|(_, lease)| lease.phase == LeasePhase::Open);
        let (id, lease) = candidates.min_by_key(|(_, lease)| lease.under_way.len())?;
        // SUBMIT-3: nothing joins what runs alone.
        let is_taken = lease.is_for_one && !lease.under_way.is_empty();
        (lease.under_way.len() < depth && !is_taken).then_some(id)
    }

    /// Whether a lease has had nothing to do, and since when.
    pub(crate) fn set_idle(&mut self, id: LeaseNumber, since: Option<Instant>) {
        let Some(lease) = self.granted.get_mut(&id) else { return };
        match (lease.idle_since, since) {
            (None, Some(_)) => {
                lease.idle_since = since;
                self.idle += 1;
            }
            (Some(_), None) => {
                lease.idle_since = None;
                self.idle -= 1;
            }
            _ => {}
        }
    }

    pub(crate) fn remove_lease(&mut self, id: LeaseNumber) -> Option<Lease> {
        self.set_idle(id, None);
        let lease = self.granted.remove(&id)?;
        self.queues[lease.queue].leases.retain(|other| *other != id);
        self.forget_if_unused(lease.queue);
        Some(lease)
    }
}

/// Resource amounts as messages carry them.
pub fn amounts(demand: &[(String, u64)]) -> Vec<Amount> {
    demand.iter().map(|(resource, units)| Amount { resource: resource.clone(), units: *units }).collect()
}
