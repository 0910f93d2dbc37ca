//! Calls that others send to this process, waiting to be run, and what running one comes to.

use crate::core::interrupt::Interrupts;
use crate::core::io::Token;
use crate::core::task_log::TaskLog;
use bytes::Bytes;
use oxiray_ids::{ObjectId, TaskId};
use oxiray_wire::message::{Assign, Call, LostArgument, Value};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A task that runs this long is in the way of those behind it.
const PATIENCE: Duration = Duration::from_millis(5);

/// For so many results an outcome has memory that is used again.
const RESULTS_KEPT: usize = 16;

/// The next thing for a worker to do.
#[derive(Debug)]
pub enum Duty {
    /// Who it is now, and what it may use.
    Become(Box<Assign>),
    /// Run this and reply with the ticket.
    Run(Ticket, Box<Call>),
    /// Cancel this call, which an event loop was given.
    Cancel(TaskId),
    /// Collect garbage.
    Collect,
    /// Nothing more comes; leave.
    Leave,
}

/// What a reply needs to find its way.
#[derive(Debug)]
pub struct Ticket {
    pub(crate) from: Token,
    pub(crate) task: TaskId,
    pub(crate) code: Option<Arc<Bytes>>,
    /// Where it stands in the task log.
    pub(crate) place: usize,
}

impl Ticket {
    /// The code that the call names by its hash.
    pub fn code(&self) -> Bytes {
        self.code.as_deref().cloned().unwrap_or_default()
    }

    /// The task that it is the ticket of.
    pub fn task(&self) -> TaskId {
        self.task
    }
}

#[derive(Debug)]
enum Item {
    Assign(Box<Assign>),
    /// The stream it came on, and the code that it names.
    Call(Token, Box<Call>, Option<Arc<Bytes>>),
}

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    items: VecDeque<Item>,
    /// The concurrency groups of an actor, each with threads of its own; all other calls are in `items`.
    groups: Vec<(String, VecDeque<Item>)>,
    /// Whether calls are an actor's, whose order and place are fixed.
    pub(crate) is_actor: bool,
    /// Whether the process is a worker, which its daemon told what it is.
    is_assigned: bool,
    pub(crate) interrupts: Interrupts,
    running: usize,
    running_since: Option<Instant>,
    /// Garbage is to be collected before the next call.
    collects: bool,
    closed: bool,
    closing: bool,
    /// Nothing more is handed out, though those who wait for it do not leave yet.
    ending: bool,
    /// The daemon was told that the actor ends.
    said_leaving: bool,
    /// What was lost of the arguments of calls that go back to their owner.
    lost_arguments: FxHashMap<TaskId, Vec<LostArgument>>,
}

impl Inbox {
    pub(crate) fn assign(&mut self, assign: Box<Assign>) {
        (self.is_actor, self.is_assigned) = (assign.actor.is_some(), true);
        self.items.push_back(Item::Assign(assign));
    }

    pub(crate) fn serve_as(&mut self, is_actor: bool) {
        (self.is_actor, self.is_assigned) = (is_actor, true);
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    pub(crate) fn collect(&mut self) {
        self.collects = true;
    }

    pub(crate) fn end(&mut self) {
        self.ending = true;
    }

    pub(crate) fn close_when_empty(&mut self) {
        self.closing = true;
    }

    /// Takes a call out that has not begun; the number of its results.
    pub(crate) fn withdraw(&mut self, from: Token, task: TaskId) -> Option<u32> {
        let is_it = |item: &Item| matches!(item, Item::Call(token, call, _) if *token == from && call.task == task);
        let mut queues = std::iter::once(&mut self.items).chain(self.groups.iter_mut().map(|(_, items)| items));
        let found = queues.find_map(|items| items.iter().position(is_it).and_then(|at| items.remove(at)));
        match found {
            Some(Item::Call(_, call, _)) => Some(call.results),
            _ => None,
        }
    }

    /// Drops what a client asked for that has not begun; the tasks.
    pub(crate) fn client_gone(&mut self, token: Token) -> Vec<TaskId> {
        let mut dropped = Vec::new();
        for items in std::iter::once(&mut self.items).chain(self.groups.iter_mut().map(|(_, items)| items)) {
            items.retain(|item| match item {
                Item::Call(from, call, _) if *from == token => {
                    dropped.push(call.task);
                    false
                }
                _ => true,
            });
        }
        dropped
    }

    /// From here on, calls of these groups queue for themselves.
    pub(crate) fn divide(&mut self, groups: Vec<String>) {
        self.groups = groups.into_iter().map(|name| (name, VecDeque::new())).collect();
        for item in std::mem::take(&mut self.items) {
            self.push(item);
        }
    }

    /// A call came on a stream.
    pub(crate) fn came(&mut self, from: Token, call: Box<Call>, code: Option<Arc<Bytes>>) {
        self.push(Item::Call(from, call, code));
    }

    /// EXECUTE-2: takes the calls out that wait behind the running one, by whose they are.
    pub(crate) fn take_queued(&mut self) -> Vec<(Token, Vec<TaskId>)> {
        let mut queued: Vec<(Token, Vec<TaskId>)> = Vec::new();
        self.items.retain(|item| {
            let Item::Call(from, call, _) = item else { return true };
            match queued.iter_mut().find(|(token, _)| token == from) {
                Some((_, tasks)) => tasks.push(call.task),
                None => queued.push((*from, vec![call.task])),
            }
            false
        });
        queued
    }

    /// A call was answered, or never will be. Returns whether those who wait for one are to look: nothing more may come.
    pub(crate) fn is_over(&mut self) -> bool {
        self.running -= 1;
        if self.running > 0 {
            return false;
        }
        self.running_since = None;
        self.closing || self.closed
    }

    /// An argument of a call is lost: the call goes back to its owner (EXECUTE-3).
    pub(crate) fn lacks(&mut self, call: TaskId, lost: LostArgument) {
        self.lost_arguments.entry(call).or_default().push(lost);
    }

    /// What was lost of the arguments of a call that goes back to its owner.
    pub(crate) fn take_lost(&mut self, call: TaskId) -> Option<Vec<LostArgument>> {
        self.lost_arguments.remove(&call)
    }

    /// The daemon is told that the actor ends; whether it was not yet.
    pub(crate) fn says_leaving(&mut self) -> bool {
        !std::mem::replace(&mut self.said_leaving, true)
    }

    fn push(&mut self, item: Item) {
        let group = match &item {
            Item::Call(_, call, _) if !call.group.is_empty() => Some(call.group.as_str()),
            _ => None,
        };
        let own = group.and_then(|group| self.groups.iter_mut().find(|(name, _)| name == group));
        own.map_or(&mut self.items, |(_, items)| items).push_back(item);
    }

    /// Whether every call that came was begun.
    fn is_empty(&self) -> bool {
        self.items.is_empty() && self.groups.iter().all(|(_, items)| items.is_empty())
    }

    /// Whether every call that was begun is over.
    pub(crate) fn is_done(&self) -> bool {
        self.running == 0
    }

    /// Whether a call runs here, and none beside it.
    pub(crate) fn runs_one(&self) -> bool {
        self.running == 1
    }

    /// Whether the process is a worker that runs nothing and leaves neither.
    pub(crate) fn rests(&self) -> bool {
        let leaves = self.closed || self.closing || self.ending;
        self.is_assigned && self.running == 0 && self.is_empty() && !leaves
    }

    /// Whether the main thread is a program's, or runs one call of a worker's and none beside it.
    pub(crate) fn is_in_one(&self) -> bool {
        self.runs_one() || !self.is_assigned
    }

    /// Whether a task is under way here; an actor's calls lend nothing.
    pub(crate) fn runs_task(&self) -> bool {
        self.running > 0 && !self.is_actor
    }

    /// When calls behind the running one are to be given back.
    pub(crate) fn give_back_at(&self) -> Option<Instant> {
        if self.is_actor || self.items.is_empty() {
            return None;
        }
        self.running_since.map(|since| since + PATIENCE)
    }

    /// The next thing to do for a thread of the named group, or of none; `clock` tells the time where there is something.
    pub(crate) fn take(
        &mut self,
        group: Option<&str>,
        log: &mut TaskLog,
        clock: impl FnOnce() -> Instant,
    ) -> Option<Duty> {
        if self.closed {
            return Some(Duty::Leave);
        }
        if self.ending {
            return None;
        }
        if let Some(task) = self.interrupts.next_for_event_loop() {
            return Some(Duty::Cancel(task));
        }
        if std::mem::take(&mut self.collects) {
            return Some(Duty::Collect);
        }
        let items = match group {
            None => &mut self.items,
            Some(group) => self.groups.iter_mut().find(|(name, _)| name == group).map(|(_, items)| items)?,
        };
        match items.pop_front() {
            Some(Item::Assign(assign)) => {
                log.assigned(&assign);
                Some(Duty::Become(assign))
            }
            Some(Item::Call(from, call, code)) => {
                let started = clock();
                self.running += 1;
                self.running_since = Some(started);
                let task = call.task;
                self.interrupts.begin(task, !self.is_actor);
                let place = log.begin(task, &call, started);
                Some(Duty::Run(Ticket { from, task, code, place }, call))
            }
            None if self.closing && self.running == 0 && self.is_empty() => Some(Duty::Leave),
            None => None,
        }
    }
}

/// What running a call came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// One value a result.
    pub results: Vec<Value>,
    /// References that the arguments brought.
    pub borrowed: Vec<ObjectId>,
    /// References inside of the results, each with one use that the reply gives up.
    pub handed: Vec<ObjectId>,
    /// Ids of the results that lie in the store, held by this process until the owner is.
    pub stored: Vec<ObjectId>,
    /// Whether the owner is to try again, as it asked.
    pub retry: bool,
    /// For a stream: how many items it had.
    pub items: u32,
    /// For a stream: what ended it early.
    pub raised: Option<Value>,
    /// What it raised says, for lists.
    pub error_text: String,
    /// Whether the worker leaves now.
    pub retiring: bool,
}

impl Outcome {
    /// Empties it. What is mostly in use keeps its memory.
    pub(crate) fn clear(&mut self) {
        let Self { results, borrowed, handed, stored, retry, items, raised, error_text, retiring } = self;
        results.clear();
        results.shrink_to(RESULTS_KEPT);
        for ids in [borrowed, handed, stored] {
            *ids = Vec::new();
        }
        (*retry, *items, *raised, *retiring) = (false, 0, None, false);
        *error_text = String::new();
    }
}
