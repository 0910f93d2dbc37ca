//! What happens in the cluster, sent as Ray's events to whoever collects those: KubeRay's history server, by its collector.
//!
//! A process of its own, a visitor that only reads: what runs waits for nothing here. Definitions are made of the head's lists,
//! what becomes of actors of the chronicle, and attempts of calls are asked for as `spans.rs` does.
//!
//! - EXPORT-1: each event is sent once, but for those of before where this process was started anew; those have the same
//!   identifiers then.
//! - EXPORT-2: what is remembered as sent is bounded, and so is what waits for a collector (SENDING-1).
//! - EXPORT-3: an event has no value of an environment variable.

mod shapes;

use crate::daemon::Daemon;
use crate::log::say;
use crate::options::CollectorOptions;
use crate::sending::{Collector, PAUSE, Sending, SendingBounds, check_url, judged};
use crate::server::{block_on, end_with_daemon, limit_memory};
use crate::task_questions::TaskQuestions;
use oxiray_ids::{ActorId, JobId, NodeId, TaskId};
use oxiray_state::StateCopy;
use oxiray_visitor::{VisitError, json};
use oxiray_wire::message::{ChronicleFollow, StateChanges, StateFollow, StateReport, TaskStage};
use oxiray_wire::state::{ActorPhase, ActorRow, ChronicleEntry, JobRow, NodeRow, StateKind, TaskRow};
use serde_json::Value as Json;
use shapes::Source;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::signal::unix::{SignalKind, signal};

/// How many events wait, and how many a request has.
const BOUNDS: SendingBounds = SendingBounds { waiting: 50_000, batch: 500 };
/// How much is remembered of each kind as sent.
const REMEMBERED_MAX: usize = 200_000;
/// How many entries about actors wait for their rows.
const ENTRIES_MAX: usize = 10_000;
/// The longest environment that is sent, in bytes.
const ENVIRONMENT_BYTES_MAX: usize = 8 << 10;
/// How long the last events may take at the end.
const FINISH_LIMIT: Duration = Duration::from_secs(4);
/// How long to wait for news of lists.
const LISTS_LIMIT: Duration = Duration::from_secs(5);

/// Sends events until the daemon or a signal ends it.
pub(crate) fn run(options: &CollectorOptions) -> anyhow::Result<()> {
    end_with_daemon(options.daemon)?;
    limit_memory()?;
    check_url(&options.collector, "events", "http://localhost:8084/v1/events")?;
    let collector = Collector::new(options.collector.clone(), "", judged)?;
    say(&format!("events are sent to {}", collector.url()));
    let session = options.session.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let exporter = Exporter {
        told: RefCell::new(Told::new(session)),
        questions: TaskQuestions::default(),
        sending: Sending::new(("events", "events"), collector, BOUNDS),
    };
    block_on(async {
        let daemon = Daemon::enter_reading(&options.session)?;
        let hearing = daemon.clone();
        let mut asks_to_end = signal(SignalKind::terminate())?;
        let result = tokio::select! {
            error = hearing.hear() => Err(error.context("the daemon is gone")),
            _ = asks_to_end.recv() => Ok(()),
            never = exporter.follow_lists(&daemon) => match never {},
            never = exporter.follow_chronicle(&daemon) => match never {},
            never = exporter.ask_for_tasks(&daemon) => match never {},
            never = exporter.sending.send_on(body) => match never {},
        };
        // What is not sent by then is lost, as by a kill.
        let _ = tokio::time::timeout(FINISH_LIMIT, exporter.sending.send_all(body)).await;
        result
    })
}

/// A request of events that are written already.
fn body(events: &[String]) -> String {
    format!("[{}]", events.join(","))
}

/// An environment as it is sent: without what is secret in it, and not where it is very long.
fn sensible_environment(environment: &str) -> String {
    if environment.is_empty() {
        return "{}".to_owned();
    }
    match serde_json::from_str(environment) {
        Ok(Json::Object(mut fields)) if environment.len() <= ENVIRONMENT_BYTES_MAX => {
            shapes::redacted(&mut fields);
            Json::Object(fields).to_string()
        }
        Ok(_) | Err(_) => String::new(),
    }
}

#[derive(Debug)]
struct Exporter {
    told: RefCell<Told>,
    questions: TaskQuestions,
    sending: Sending<String>,
}

impl Exporter {
    async fn follow_lists(&self, daemon: &Daemon) -> Infallible {
        let mut copy = StateCopy::default();
        loop {
            if copy.jobs.values().any(|job| !job.state.is_final()) {
                self.questions.note_work();
            }
            let kinds = vec![StateKind::Nodes, StateKind::Jobs, StateKind::Actors];
            let asked = StateFollow { request: 0, kinds, cursor: Some(copy.cursor()) };
            match daemon.ask_within(LISTS_LIMIT, asked).await {
                Ok(changes) if json::check(changes.version).is_ok() => {
                    self.sending.add(self.told.borrow_mut().lists(&changes, now_us()));
                    copy.apply(changes);
                }
                // Nothing happened for a while.
                Err(VisitError::NoAnswer(_)) => {}
                Ok(_) | Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    async fn follow_chronicle(&self, daemon: &Daemon) -> Infallible {
        let mut cursor = None;
        loop {
            match daemon.ask(ChronicleFollow { cursor, ..ChronicleFollow::default() }).await {
                Ok(batch) if json::check(batch.version).is_ok() => {
                    if let Some(gap) = batch.gap {
                        say(&format!(
                            "{} entries of the chronicle were forgotten before they were read, and what they say of actors is not \
                             sent",
                            gap.to - gap.from + 1
                        ));
                    }
                    cursor = batch.cursor.or(cursor);
                    self.sending.add(self.told.borrow_mut().entries(batch.entries));
                }
                // Nothing happened for a while.
                Err(VisitError::NoAnswer(_)) => {}
                Ok(_) | Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    async fn ask_for_tasks(&self, daemon: &Daemon) -> Infallible {
        let told = |report: StateReport| {
            let rows = report.tables.unwrap_or_default().tasks;
            self.sending.add(self.told.borrow_mut().tasks(&rows));
        };
        self.questions.ask(daemon, told).await
    }
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// What was said last of many things, of which those that were added first are forgotten first (EXPORT-2).
#[derive(Debug)]
struct Remembered<K, V> {
    by_key: BTreeMap<K, V>,
    order: VecDeque<K>,
}

impl<K: Ord + Copy, V: PartialEq> Remembered<K, V> {
    fn new() -> Self {
        Self { by_key: BTreeMap::new(), order: VecDeque::new() }
    }

    fn get(&self, key: K) -> Option<&V> {
        self.by_key.get(&key)
    }

    /// Returns what was remembered.
    fn set(&mut self, key: K, value: V) -> Option<V> {
        let before = self.by_key.insert(key, value);
        if before.is_none() {
            self.order.push_back(key);
            if self.order.len() > REMEMBERED_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.by_key.remove(&oldest);
            }
        }
        before
    }
}

/// How a node was when it was last told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NodeTold {
    alive: bool,
    draining: bool,
}

/// What was sent (EXPORT-1).
#[derive(Debug)]
struct Told {
    session: String,
    nodes: Remembered<NodeId, NodeTold>,
    /// Whether its end was told.
    jobs: Remembered<JobId, bool>,
    actors: Remembered<ActorId, ActorRow>,
    /// How many steps of an attempt were told, and its stage.
    tasks: Remembered<(TaskId, u32), (usize, TaskStage)>,
    /// What is said of actors whose rows did not come yet.
    entries: VecDeque<ChronicleEntry>,
}

impl Told {
    fn new(session: String) -> Self {
        let (nodes, jobs) = (Remembered::new(), Remembered::new());
        let (actors, tasks) = (Remembered::new(), Remembered::new());
        Self { session, nodes, jobs, actors, tasks, entries: VecDeque::new() }
    }

    fn source(&self, node: Option<NodeId>, at_us: u64) -> Source<'_> {
        Source { session: &self.session, node, at_us }
    }

    /// What follows from lists that changed.
    fn lists(&mut self, changes: &StateChanges, now_us: u64) -> Vec<String> {
        let Some(tables) = &changes.tables else { return Vec::new() };
        let mut events = Vec::new();
        for row in &tables.nodes {
            self.node(row, now_us, &mut events);
        }
        for row in &tables.jobs {
            self.job(row, &mut events);
        }
        for row in &tables.actors {
            let is_new = self.actors.set(row.actor_id, row.clone()).is_none();
            if is_new {
                events.push(shapes::actor_definition(self.source(row.node_id, now_us), row));
            }
        }
        let mut written = written(&events);
        let waiting = std::mem::take(&mut self.entries);
        written.extend(self.entries(waiting));
        written
    }

    fn node(&mut self, row: &NodeRow, now_us: u64, events: &mut Vec<Json>) {
        let now = NodeTold { alive: row.alive, draining: row.draining.is_some() };
        let lifetime = row.lifetime().unwrap_or_default();
        let before = self.nodes.set(row.node_id, now);
        if before == Some(now) || before.is_some_and(|before| !before.alive) {
            return;
        }
        let known = |ms: u64| if ms > 0 { ms * 1_000 } else { now_us };
        let at_us = match before {
            None if row.alive => known(lifetime.started_ms),
            _ if !row.alive => known(lifetime.ended_ms),
            _ => now_us,
        };
        let was_draining = before.is_some_and(|before| before.draining) || now.draining;
        let source = self.source(Some(row.node_id), at_us);
        if before.is_none() {
            events.push(shapes::node_definition(source, row));
        }
        events.push(shapes::node_lifecycle(source, row, was_draining));
    }

    fn job(&mut self, row: &JobRow, events: &mut Vec<Json>) {
        let Some(driver) = &row.driver else { return };
        let has_ended = row.ended_ms > 0;
        let before = self.jobs.set(driver.job, has_ended);
        if before == Some(has_ended) {
            return;
        }
        let at_ms = if has_ended { row.ended_ms } else { row.started_ms };
        let source = self.source(row.node, at_ms * 1_000);
        if before.is_none() {
            events.push(shapes::job_definition(source, row, driver));
        }
        events.push(shapes::job_lifecycle(source, row, driver));
    }

    /// What follows from entries of the chronicle. Those about actors whose rows are not there yet wait for them.
    fn entries(&mut self, entries: impl IntoIterator<Item = ChronicleEntry>) -> Vec<String> {
        let mut events = Vec::new();
        for entry in entries {
            let Some((actor, phase)) = shapes::actor_of(&entry) else { continue };
            match self.actors.get(actor) {
                Some(row) if row.state == phase || phase != ActorPhase::Dead => {
                    let source = self.source(entry.node, entry.at_ms * 1_000);
                    events.push(shapes::actor_lifecycle(source, &entry, phase, row));
                }
                // Its row says what of its end the entry does not, and comes.
                Some(_) | None => {
                    if self.entries.len() >= ENTRIES_MAX {
                        self.entries.pop_front();
                    }
                    self.entries.push_back(entry);
                }
            }
        }
        written(&events)
    }

    /// What follows from attempts of calls.
    fn tasks(&mut self, rows: &[TaskRow]) -> Vec<String> {
        let mut events = Vec::new();
        for row in rows {
            let now = (shapes::steps(row).len(), row.stage);
            let before = self.tasks.set((row.task_id, row.attempt), now);
            if before == Some(now) {
                continue;
            }
            let last = shapes::steps(row).last().map_or(0, |(_, at)| *at).max(row.ended_us);
            let source = self.source(row.node_id, last);
            if before.is_none() {
                events.push(shapes::task_definition(source, row));
            }
            if last > 0 {
                events.push(shapes::task_lifecycle(source, row));
            }
        }
        written(&events)
    }
}

fn written(events: &[Json]) -> Vec<String> {
    events.iter().map(Json::to_string).collect()
}

#[cfg(test)]
mod tests;
