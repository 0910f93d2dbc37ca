//! Which calls ran in this process and when, told to the daemon when it asks, and once in a while.
//!
//! - LOG-1: a call that ended costs a place in a ring, and no message of its own: at most [`ENDED_MAX`] are told
//!   every [`PERIOD`], however many there were.
//! - LOG-2: a process that is killed takes along what it did in its last [`PERIOD`]; one that leaves tells it.
//! - LOG-3: an actor's constructor is told of as long as the actor lives, however many calls ended since.

use crate::core::calls::Task;
use crate::core::ended_calls::EndedCalls;
use oxiray_ids::{PlacementGroupId, TaskId, WorkerId};
use oxiray_wire::message::{
    ActorCreate, Amount, Assign, Call, CallError, CallOrigin, Content, TaskRecord, TaskStage, Value,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How many calls that ended are remembered.
const ENDED_MAX: usize = 1000;

/// How long a call that ended may go untold.
const PERIOD: Duration = Duration::from_secs(1);

/// Characters kept of what a failure says.
const TEXT_MAX: usize = 1000;

/// Why a call failed, and what that says.
type Error = Box<(CallError, String)>;

/// A call, as cheaply as it can be kept: where one was before another, its memory is used again.
#[derive(Debug)]
struct Entry {
    task: TaskId,
    name: Arc<str>,
    label: Arc<str>,
    attempt: u32,
    started: Option<Instant>,
    ended: Instant,
    error: Option<Error>,
    resources: Option<Arc<Vec<Amount>>>,
    origin: Option<CallOrigin>,
    /// Of a call of this process's: who was to run it.
    sent_to: Option<WorkerId>,
}

/// The name that constructors have among an actor's methods.
const CONSTRUCTOR: &str = "__init__";

/// The making of the actor that this process is: it goes on until it has ended.
#[derive(Debug)]
struct Constructor {
    entry: Entry,
    goes_on: bool,
    is_told: bool,
}

/// The place of a call that runs; free where it is over.
#[derive(Debug)]
struct Place {
    runs: bool,
    entry: Entry,
}

/// How an attempt ended that no worker tells of.
pub(crate) struct Lost<'a> {
    pub(crate) attempt: u32,
    pub(crate) value: &'a Value,
    /// What it needs to run.
    pub(crate) needs: Vec<Amount>,
    /// Who had it.
    pub(crate) worker: Option<WorkerId>,
}

/// The calls of this process.
#[derive(Debug)]
pub(crate) struct TaskLog {
    ended: VecDeque<Entry>,
    places: Vec<Place>,
    free: Vec<usize>,
    /// What the last call was named, and labelled: most have the same, and a copy of it for each would be spread over the heap.
    last: [Arc<str>; 2],
    /// How many of `ended`, the last ones, nobody was told of.
    untold: usize,
    /// How many ended, of which nobody was told.
    pub(crate) counts: EndedCalls,
    /// When they are told.
    pub(crate) tell_at: Option<Instant>,
    /// Whether it was told last that a call runs of which an attempt was made before.
    pub(crate) retry_is_told: bool,
    /// When this process began, and the same in microseconds since 1970.
    began: (Instant, u64),
    /// What the functions that run here need; nothing where an actor's methods do.
    resources: Option<Arc<Vec<Amount>>>,
    /// The placement group that this process runs in.
    group: Option<PlacementGroupId>,
    /// The runtime environment of this process, as JSON; empty for none.
    pub(crate) environment: String,
    /// LOG-3.
    constructor: Option<Constructor>,
}

impl TaskLog {
    /// The log of a process that began at this time, by both clocks.
    pub(crate) fn new(began: (Instant, SystemTime)) -> Self {
        let (ended, places, free) = (VecDeque::new(), Vec::new(), Vec::new());
        let since = began.1.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        let began = (began.0, since);
        let environment = String::new();
        let last = [Arc::from(""), Arc::from("")];
        let (resources, group, constructor) = (None, None, None);
        let (untold, counts, tell_at, retry_is_told) = (0, EndedCalls::default(), None, false);
        Self {
            ended,
            places,
            free,
            last,
            untold,
            counts,
            tell_at,
            retry_is_told,
            began,
            resources,
            group,
            environment,
            constructor,
        }
    }
}

impl TaskLog {
    /// This process is to run what was granted these resources.
    pub(crate) fn assigned(&mut self, assign: &Assign) {
        self.resources = assign.actor.is_none().then(|| Arc::new(assign.resources.clone()));
        self.group = assign.group;
    }

    /// A call begins to run; the place to name when it ends. Of one of which an attempt was made before it is told, as of what
    /// has ended: a timer may be set.
    pub(crate) fn begin(&mut self, task: TaskId, call: &Call, now: Instant) -> usize {
        if call.attempt > 0 {
            self.tell_later(now);
        }
        let [name, label] = self.named(&call.name, &call.label);
        let Some(place) = self.free.pop() else {
            let attempt = call.attempt;
            let (resources, started) = (self.resources.clone(), Some(now));
            let origin = call.origin;
            let (error, sent_to) = (None, None);
            let entry = Entry { task, name, label, attempt, started, ended: now, error, resources, origin, sent_to };
            self.places.push(Place { runs: true, entry });
            return self.places.len() - 1;
        };
        let Place { runs, entry } = &mut self.places[place];
        *runs = true;
        entry.task = task;
        (entry.name, entry.label) = (name, label);
        entry.attempt = call.attempt;
        entry.started = Some(now);
        entry.resources.clone_from(&self.resources);
        entry.origin = call.origin;
        place
    }

    fn named(&mut self, name: &str, label: &str) -> [Arc<str>; 2] {
        for (last, given) in self.last.iter_mut().zip([name, label]) {
            if **last != *given {
                *last = given.into();
            }
        }
        self.last.clone()
    }

    /// When the call at this place began.
    pub(crate) fn started(&self, place: usize) -> Option<Instant> {
        self.places.get(place).filter(|place| place.runs).and_then(|place| place.entry.started)
    }

    /// When the call began that runs here, or the constructor; nothing where it does not.
    pub(crate) fn began(&self, task: TaskId) -> Option<Instant> {
        let places = self.places.iter().filter(|place| place.runs).map(|place| &place.entry);
        let made = self.constructor.iter().filter(|made| made.goes_on).map(|made| &made.entry);
        places.chain(made).find(|entry| entry.task == task).and_then(|entry| entry.started)
    }

    /// Whether the call runs here.
    pub(crate) fn is_running(&self, task: TaskId) -> bool {
        self.places.iter().any(|place| place.runs && place.entry.task == task)
    }

    /// Leaves the place; whether a call was there.
    fn vacate(&mut self, place: usize) -> bool {
        let left = self.places.get_mut(place).is_some_and(|place| std::mem::take(&mut place.runs));
        if left {
            self.free.push(place);
        }
        left
    }

    /// Nobody hears how the call at this place ended.
    pub(crate) fn abandon(&mut self, place: usize) {
        self.vacate(place);
    }

    /// The call at this place ended with these results; what it raised says `text`. Says whether a timer was set.
    pub(crate) fn end(&mut self, place: usize, ended: Instant, results: &[Value], text: &str) -> bool {
        if !self.vacate(place) {
            return false;
        }
        self.have_room();
        let entry = &mut self.places[place].entry;
        entry.ended = ended;
        entry.error = results.iter().find_map(error_of);
        if let Some(error) = entry.error.as_deref_mut().filter(|(_, known)| known.is_empty()) {
            error.1 = text.chars().take(TEXT_MAX).collect();
        }
        count(&mut self.counts, entry);
        if self.ended.len() < ENDED_MAX {
            let (task, [name, label]) = (TaskId::NIL, self.last.clone());
            let (started, error, resources, origin, sent_to) = (None, None, None, None, None);
            let unused = Entry { task, name, label, attempt: 0, started, ended, error, resources, origin, sent_to };
            self.ended.push_back(std::mem::replace(entry, unused));
        } else if let Some(mut oldest) = self.ended.pop_front() {
            std::mem::swap(entry, &mut oldest);
            self.ended.push_back(oldest);
        }
        self.note_untold(ended)
    }

    /// The constructor of the actor that this process is begins to run.
    pub(crate) fn constructor_begins(&mut self, create: &ActorCreate, now: Instant) {
        self.counts.class.clone_from(&create.class_name);
        let entry = Entry {
            task: create.actor.creation_task(),
            name: CONSTRUCTOR.into(),
            label: format!("{}.{CONSTRUCTOR}", create.class_name).into(),
            attempt: create.restarts,
            started: Some(now),
            ended: now,
            error: None,
            resources: Some(Arc::new(create.running.clone())),
            origin: None,
            sent_to: None,
        };
        self.constructor = Some(Constructor { entry, goes_on: true, is_told: false });
    }

    /// The constructor ended, with this error where it failed. Says whether a timer was set.
    pub(crate) fn constructor_ends(&mut self, ended: Instant, error: Option<&Value>) -> bool {
        let Some(made) = self.constructor.as_mut().filter(|made| made.goes_on) else { return false };
        made.goes_on = false;
        made.entry.ended = ended;
        made.entry.error = error.and_then(error_of);
        count(&mut self.counts, &made.entry);
        self.tell_later(ended)
    }

    /// The constructor, as far as it is.
    fn constructed(&self) -> Option<TaskRecord> {
        let made = self.constructor.as_ref()?;
        let stage = if made.goes_on { TaskStage::Runs } else { stage(&made.entry) };
        Some(self.record(&made.entry, stage))
    }

    /// An attempt of a call of this process's ended without its worker's answer, or without a worker.
    pub(crate) fn failed(&mut self, id: TaskId, task: &Task, lost: Lost<'_>, now: Instant) -> bool {
        self.have_room();
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        let [name, label] = self.named(&task.work.name, &task.work.label);
        let entry = Entry {
            task: id,
            name,
            label,
            attempt: lost.attempt,
            started: None,
            ended: now,
            error: error_of(lost.value),
            resources: Some(Arc::new(lost.needs)),
            origin: Some(task.origin(lost.worker.map(|_| task.times.sent_us))),
            sent_to: lost.worker,
        };
        self.counts.add(&task.work.title().into(), false, entry.attempt > 0, entry.error.is_some());
        self.ended.push_back(entry);
        self.note_untold(now)
    }

    /// The ring has its full length from the first call on. Memory that nobody has written to yet costs nothing; to grow step
    /// by step would write all of it twice, while many calls run.
    fn have_room(&mut self) {
        if self.ended.capacity() == 0 {
            self.ended.reserve_exact(ENDED_MAX);
        }
    }

    /// Says whether a timer was set.
    fn note_untold(&mut self, ended: Instant) -> bool {
        self.untold = (self.untold + 1).min(ENDED_MAX);
        self.tell_later(ended)
    }

    fn tell_later(&mut self, ended: Instant) -> bool {
        let is_first = self.tell_at.is_none();
        if is_first {
            self.tell_at = Some(ended + PERIOD);
        }
        is_first
    }

    /// What nobody was told of.
    pub(crate) fn take_untold(&mut self) -> Vec<TaskRecord> {
        self.tell_at = None;
        let from = self.ended.len() - std::mem::take(&mut self.untold);
        let made = self.constructor.as_mut().filter(|made| !made.goes_on && !made.is_told);
        let is_made = made.map(|made| made.is_told = true).is_some();
        let ended = self.ended.iter().skip(from).map(|entry| self.record(entry, stage(entry)));
        self.constructed().filter(|_| is_made).into_iter().chain(ended).collect()
    }

    /// Whether a call runs of which an attempt was made before; nothing where that is what was told last.
    pub(crate) fn take_retry_news(&mut self) -> Option<bool> {
        let runs_retry = self.places.iter().any(|place| place.runs && place.entry.attempt > 0);
        (std::mem::replace(&mut self.retry_is_told, runs_retry) != runs_retry).then_some(runs_retry)
    }

    /// A moment in microseconds since 1970.
    pub(crate) fn microseconds(&self, at: Instant) -> u64 {
        // This is on the path of each call: nothing here is wider than 64 bits.
        let since = at.saturating_duration_since(self.began.0);
        self.began.1 + since.as_secs() * 1_000_000 + u64::from(since.subsec_micros())
    }

    fn record(&self, entry: &Entry, stage: TaskStage) -> TaskRecord {
        let (error, text) = entry.error.as_deref().cloned().unzip();
        TaskRecord {
            task: entry.task,
            attempt: entry.attempt,
            name: entry.name.as_ref().into(),
            stage,
            started_us: entry.started.map_or(0, |at| self.microseconds(at)),
            ended_us: if stage == TaskStage::Runs { 0 } else { self.microseconds(entry.ended) },
            error,
            text: text.unwrap_or_default(),
            resources: entry.resources.as_deref().cloned().unwrap_or_default(),
            label: entry.label.as_ref().into(),
            origin: entry.origin,
            group: self.group.filter(|_| entry.started.is_some()),
            sent_to: entry.sent_to,
        }
    }

    /// Every call that runs here or ran lately.
    pub(crate) fn records(&self) -> Vec<TaskRecord> {
        let ended = self.ended.iter().map(|entry| self.record(entry, stage(entry)));
        let running = self.places.iter().filter(|place| place.runs);
        let running = running.map(|place| self.record(&place.entry, TaskStage::Runs));
        self.constructed().into_iter().chain(ended).chain(running).collect()
    }
}

/// An attempt ended that ran here.
fn count(counts: &mut EndedCalls, entry: &Entry) {
    let is_method = entry.label.is_empty() && !counts.class.is_empty();
    let name = if entry.label.is_empty() { &entry.name } else { &entry.label };
    counts.add(name, is_method, entry.attempt > 0, entry.error.is_some());
}

fn stage(entry: &Entry) -> TaskStage {
    if entry.error.is_some() { TaskStage::Failed } else { TaskStage::Finished }
}

fn error_of(value: &Value) -> Option<Error> {
    match value.content.as_ref()? {
        Content::Raised(_) => Some(Box::new((CallError::Raised, String::new()))),
        Content::Failed(failure) => {
            // A task that did not run is listed with what its argument failed with.
            let argument = failure.argument_failed().and_then(|argument| error_of(&argument.value?));
            let error = argument.map_or(CallError::Failed(failure.code), |error| error.0);
            Some(Box::new((error, failure.text.chars().take(TEXT_MAX).collect())))
        }
        Content::Inline(_) | Content::Stored(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(log: &mut TaskLog, name: &str, value: Content) -> bool {
        let call = Call { name: name.into(), ..Call::default() };
        let (task, now) = (TaskId::new([7; 24]), Instant::now());
        let place = log.begin(task, &call, now);
        assert!(log.is_running(task));
        assert_eq!(log.records().last().map(|record| record.stage), Some(TaskStage::Runs));
        let sets_timer = log.end(place, now, &[Value { content: Some(value), contained: Vec::new() }], "");
        assert!(!log.is_running(task));
        sets_timer
    }

    #[test]
    fn what_ended_is_told_once_and_remembered_within_bounds() {
        let mut log = TaskLog::new((Instant::now(), SystemTime::now()));
        let fine = || Content::Inline(bytes::Bytes::new());
        assert!(run(&mut log, "first", fine()), "a timer is set");
        assert!(!run(&mut log, "second", Content::Raised(bytes::Bytes::new())), "it was set already");
        let told = log.take_untold();
        let expected = [("first", TaskStage::Finished, None), ("second", TaskStage::Failed, Some(CallError::Raised))];
        assert_eq!(told.iter().map(|one| (&*one.name, one.stage, one.error)).collect::<Vec<_>>(), expected);
        assert!(log.take_untold().is_empty() && log.tell_at.is_none());
        for _ in 0..=ENDED_MAX {
            run(&mut log, "more", fine());
        }
        assert_eq!((log.records().len(), log.take_untold().len(), log.places.len()), (ENDED_MAX, ENDED_MAX, 1));
    }

    #[test]
    fn it_is_told_when_a_retry_runs_and_when_none_does() {
        let mut log = TaskLog::new((Instant::now(), SystemTime::now()));
        let now = Instant::now();
        let place = log.begin(TaskId::new([7; 24]), &Call { attempt: 1, ..Call::default() }, now);
        assert_eq!((log.tell_at, log.take_retry_news(), log.take_retry_news()), (Some(now + PERIOD), Some(true), None));
        assert!(log.take_untold().is_empty(), "it goes on");
        log.end(place, now, &[], "");
        assert_eq!((log.take_retry_news(), log.take_retry_news()), (Some(false), None));
        log.begin(TaskId::new([8; 24]), &Call::default(), now);
        assert_eq!(log.take_retry_news(), None);
    }

    #[test]
    fn a_constructor_is_told_of_as_long_as_its_actor_lives() {
        let mut log = TaskLog::new((Instant::now(), SystemTime::now()));
        let now = Instant::now();
        let create = ActorCreate { class_name: "Counter".into(), restarts: 2, ..ActorCreate::default() };
        log.constructor_begins(&create, now);
        let told = |log: &TaskLog| {
            let made = log.records().into_iter().find(|record| record.label == "Counter.__init__").expect("a record");
            (made.stage, made.attempt, made.started_us > 0, made.ended_us > 0, made.error)
        };
        assert_eq!(told(&log), (TaskStage::Runs, 2, true, false, None));
        assert!(log.take_untold().is_empty(), "it goes on");
        assert!(log.constructor_ends(now, None), "a timer is set");
        assert!(!log.constructor_ends(now, Some(&Value::default())), "it ended already");
        assert_eq!((log.take_untold().len(), log.take_untold().len()), (1, 0));
        for _ in 0..=ENDED_MAX {
            run(&mut log, "more", Content::Inline(bytes::Bytes::new()));
        }
        assert_eq!(told(&log), (TaskStage::Finished, 2, true, true, None));
        assert_eq!(log.take_untold().len(), ENDED_MAX, "it was told once");
        let counts: Vec<_> = log.counts.take().into_iter().map(|told| (told.name, told.count)).collect();
        assert_eq!(counts, [("Counter.__init__".to_owned(), 1), ("Counter.more".to_owned(), ENDED_MAX as u64 + 1)]);
    }

    #[test]
    fn a_constructor_that_raised_failed() {
        let mut log = TaskLog::new((Instant::now(), SystemTime::now()));
        log.constructor_begins(&ActorCreate::default(), Instant::now());
        let raised = Value { content: Some(Content::Raised(bytes::Bytes::new())), contained: Vec::new() };
        log.constructor_ends(Instant::now(), Some(&raised));
        let told = log.take_untold();
        assert_eq!((told[0].stage, told[0].error), (TaskStage::Failed, Some(CallError::Raised)));
    }
}
