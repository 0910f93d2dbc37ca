//! Records a cluster: follows its chronicle and its lists, and hands what is news to the writer each [`FLUSH_PERIOD`].
//!
//! It is a visitor that only reads, over a connection of its own. Lists that the head makes without asking anybody are
//! followed; tasks are asked for ([`TaskQuestions`]).

use super::index::{Index, IndexedJob};
use super::line::{Begin, CLUSTER, HistoryLine, LineKind, SCHEMA};
use super::seen::{Filed, Seen};
use super::shelf::Shelf;
use super::tidying::Bounds;
use super::writer::{Batch, Writer};
use crate::daemon::Daemon;
use crate::page::lists;
use crate::page::now_ms;
use crate::page::rows::Row;
use crate::page::tables::{Names, name};
use crate::task_questions::{TAIL, TASKS_MAX, TaskQuestions};
use oxiray_state::StateCopy;
use oxiray_visitor::{Description, VisitError, json};
use oxiray_wire::message::{ChronicleFollow, ClusterQuery, StateFollow, StateReport};
use oxiray_wire::state::{ChronicleCursor, ClusterState, DaemonState, JobRow, StateKind, Tables};
use serde_json::{Value as Json, json as object};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

/// How often what is news is written (HISTORY-1).
const FLUSH_PERIOD: Duration = Duration::from_secs(5);
/// From how many bytes on it is written before that is over.
const FLUSH_BYTES: usize = 1 << 20;
/// The most bytes that wait to be written (HISTORY-2).
const PENDING_BYTES_MAX: usize = 16 << 20;
/// How often lists are asked for.
const LIST_PERIOD: Duration = Duration::from_secs(1);
/// How often the cluster is asked how it is, for each [`NODES_AT_ONCE`] nodes.
const LOOK_PERIOD: Duration = Duration::from_secs(5);
const NODES_AT_ONCE: usize = 64;
/// How often bounds are looked at.
const TIDY_PERIOD: Duration = Duration::from_secs(60);
/// How often it is said that all is known up to now, where nothing else is to be said.
const IDLE_PERIOD: Duration = Duration::from_secs(60);
/// After how long without a word what was between is a gap, in milliseconds.
const GAP_MS: u64 = 2 * 60 * 1_000;
/// How long to wait where something does not work.
const PAUSE: Duration = Duration::from_secs(2);
/// How long the last lines may take at the end.
const FINISH_LIMIT: Duration = Duration::from_secs(4);
/// The lists that are followed.
const FOLLOWED: [StateKind; 4] = [StateKind::Jobs, StateKind::Actors, StateKind::PlacementGroups, StateKind::Workers];

/// Where history is kept, and how much of it.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    /// The place: a folder, or a URL.
    pub(crate) place: String,
    /// How much is kept.
    pub(crate) bounds: Bounds,
}

/// Lines that are to be written.
#[derive(Debug, Default)]
struct Pending {
    lines: BTreeMap<String, Vec<u8>>,
    bytes: usize,
    /// The jobs of which lines had no room, and since when.
    lost: BTreeMap<String, u64>,
}

impl Pending {
    fn add(&mut self, job: &str, line: &HistoryLine) {
        if self.bytes >= PENDING_BYTES_MAX {
            self.lost.entry(job.to_owned()).or_insert(line.at_ms);
            return;
        }
        let lines = self.lines.entry(job.to_owned()).or_default();
        let before = lines.len();
        line.write(lines);
        self.bytes += lines.len() - before;
    }
}

/// Records one session.
#[derive(Debug)]
pub(crate) struct Recorder {
    recording: Recording,
    directory: PathBuf,
    session: String,
    seen: RefCell<Seen>,
    copy: RefCell<StateCopy>,
    names: RefCell<Names>,
    nodes: RefCell<Vec<(String, String)>>,
    pending: RefCell<Pending>,
    index: RefCell<Index>,
    /// Shared with the thread that waits for it: an order under way is carried out though nobody waits any more.
    writer: RefCell<Option<Arc<Mutex<Writer>>>>,
    /// Rows are to be told anew.
    again: Notify,
    /// There is enough to be written.
    is_full: Notify,
    questions: TaskQuestions,
    /// When it began, in milliseconds since 1970.
    began_ms: Cell<u64>,
}

/// The rows of a list that is followed.
fn followed_rows(tables: &Tables, names: &Names) -> [(&'static str, Vec<Row>); 4] {
    [
        ("jobs", job_rows(&tables.jobs, names)),
        ("actors", lists::actors(&tables.actors, names)),
        ("placement_groups", lists::placement_groups(&tables.placement_groups)),
        ("workers", lists::workers(&tables.workers, names)),
    ]
}

/// Jobs without the devices that they hold: who reads knows these from the chronicle.
fn job_rows(rows: &[JobRow], names: &Names) -> Vec<Row> {
    let mut told: Vec<Row> = rows.iter().map(|one| lists::job(one, names, (0.0, 0.0))).collect();
    for row in &mut told {
        row.cells.remove("devices");
        row.cells.remove("device_seconds");
    }
    told
}

/// The rows of how the cluster is.
fn cluster_rows(state: ClusterState) -> Result<[(&'static str, Vec<Row>); 4], serde_json::Error> {
    let head = state.nodes.iter().find(|node| node.head).map(|node| node.node_id).unwrap_or_default();
    let row = |key: String, cells: Json| Row::new(0, key, cells);
    let nodes: Result<Vec<Row>, _> = state
        .nodes
        .iter()
        .map(|node| Ok::<_, serde_json::Error>(row(node.node_id.to_string(), serde_json::to_value(node)?)))
        .collect();
    let devices: Result<Vec<Row>, _> = state
        .devices
        .iter()
        .map(|device| {
            let key = format!("{}/{}/{}", device.node.unwrap_or(head), device.resource, device.slot);
            Ok::<_, serde_json::Error>(row(key, serde_json::to_value(device)?))
        })
        .collect();
    let waiting = object!({"rows": serde_json::to_value(&state.waiting)?});
    // What the daemon's process takes changes all the time, and is a metric.
    let daemon = state.daemon.map(|daemon| DaemonState {
        address: daemon.address,
        session: daemon.session,
        warnings: daemon.warnings,
        alerts: daemon.alerts,
        ..DaemonState::default()
    });
    let rest = ClusterState {
        totals: state.totals,
        available: state.available,
        autoscaler: state.autoscaler,
        store: state.store,
        daemon,
        ..ClusterState::default()
    };
    let rest = serde_json::to_value(rest)?;
    let all = |cells: Json| vec![row("all".to_owned(), cells)];
    Ok([("nodes", nodes?), ("devices", devices?), ("waiting", all(waiting)), ("cluster", all(rest))])
}

impl Recorder {
    /// One that records nothing yet.
    pub(crate) fn new(recording: Recording, directory: &Path) -> Rc<Self> {
        let session = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Rc::new(Self {
            recording,
            directory: directory.to_owned(),
            session,
            seen: RefCell::default(),
            copy: RefCell::default(),
            names: RefCell::default(),
            nodes: RefCell::default(),
            pending: RefCell::default(),
            index: RefCell::default(),
            writer: RefCell::default(),
            again: Notify::new(),
            is_full: Notify::new(),
            questions: TaskQuestions::default(),
            began_ms: Cell::new(0),
        })
    }

    /// Records as long as the daemon lives, whatever goes wrong with the place (HISTORY-4).
    pub(crate) async fn keep(&self, say: impl Fn(&str)) -> Infallible {
        let mut said = String::new();
        loop {
            let error = match self.run(&say).await {
                Ok(never) => match never {},
                Err(error) => format!("history is not recorded at {}: {error:#}", self.recording.place),
            };
            if error != said {
                say(&error);
                said = error;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn run(&self, say: &impl Fn(&str)) -> anyhow::Result<Infallible> {
        self.open().await?;
        let daemon = Daemon::enter_reading(&self.directory)?;
        let hearing = daemon.clone();
        tokio::select! {
            error = hearing.hear() => Err(error),
            never = self.follow_chronicle(&daemon) => match never {},
            never = self.follow_lists(&daemon) => match never {},
            never = self.look(&daemon) => match never {},
            never = self.ask_for_tasks(&daemon) => match never {},
            never = self.flush_on(say) => match never {},
            never = self.tidy_on(say) => match never {},
        }
    }

    /// Opens the place, and goes on where the last recorder of the session ended.
    async fn open(&self) -> anyhow::Result<()> {
        if self.writer.borrow().is_some() {
            return Ok(());
        }
        let (place, session, bounds) = (self.recording.place.clone(), self.session.clone(), self.recording.bounds);
        let opened = spawn_blocking(move || Writer::open(Shelf::of(&place)?, &session, bounds)).await?;
        let (opened, known) = opened?;
        *self.writer.borrow_mut() = Some(Arc::new(Mutex::new(opened)));
        let before: Option<Index> = serde_json::from_slice(&known).ok();
        let (mut index, now) = (before.clone().unwrap_or_default(), now_ms());
        index.schema = SCHEMA;
        env!("CARGO_PKG_VERSION").clone_into(&mut index.version);
        index.session.clone_from(&self.session);
        index.cluster = Description::read(&self.directory).map(|told| told.address).unwrap_or_default();
        if index.begun_ms == 0 {
            index.begun_ms = now;
        }
        *self.index.borrow_mut() = index;
        self.began_ms.set(now);
        if let Some(until_ms) = before.map(|index| index.until_ms).filter(|until| now > until.saturating_add(GAP_MS)) {
            self.file(CLUSTER, &HistoryLine::gap((until_ms, now), "nothing was recorded meanwhile"));
        }
        Ok(())
    }

    fn file(&self, job: &str, line: &HistoryLine) {
        let mut pending = self.pending.borrow_mut();
        pending.add(job, line);
        if pending.bytes >= FLUSH_BYTES {
            self.is_full.notify_one();
        }
    }

    fn file_all(&self, filed: impl IntoIterator<Item = Filed>) {
        for (job, line) in filed {
            self.file(&job, &line);
            // The list of jobs outlives the files of single ones.
            if line.list == "jobs" && job != CLUSTER {
                self.file(CLUSTER, &line);
            }
        }
    }

    async fn follow_chronicle(&self, daemon: &Daemon) -> Infallible {
        let mut cursor = self.cursor();
        loop {
            match daemon.ask(ChronicleFollow { cursor, ..ChronicleFollow::default() }).await {
                Ok(batch) if json::check(batch.version).is_ok() => {
                    let now = now_ms();
                    if let Some(gap) = batch.gap {
                        let text = format!(
                            "{} entries of the chronicle were forgotten before they were read",
                            gap.to - gap.from + 1
                        );
                        let from_ms = self.index.borrow().until_ms;
                        self.file(CLUSTER, &HistoryLine::gap((from_ms, now), text));
                    }
                    cursor = batch.cursor.or(cursor);
                    let origin = cursor.map(|cursor| format!("{:016x}", cursor.origin)).unwrap_or_default();
                    for entry in batch.entries {
                        let job = entry.job.map_or_else(|| CLUSTER.to_owned(), |job| job.to_string());
                        let at_ms = entry.at_ms;
                        let event = Some(entry);
                        let of = HistoryLine::of(LineKind::Event, at_ms);
                        self.file(&job, &HistoryLine { event, origin: origin.clone(), ..of });
                    }
                    let mut index = self.index.borrow_mut();
                    index.number = cursor.map(|cursor| cursor.number).unwrap_or_default();
                    index.origin = origin;
                }
                // Nothing happened for a while.
                Err(VisitError::NoAnswer(_)) => {}
                Ok(_) | Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Up to where the chronicle is in the files.
    fn cursor(&self) -> Option<ChronicleCursor> {
        let index = self.index.borrow();
        let origin = u64::from_str_radix(&index.origin, 16).ok()?;
        Some(ChronicleCursor { origin, number: index.number, begun: 0 })
    }

    async fn follow_lists(&self, daemon: &Daemon) -> Infallible {
        *self.copy.borrow_mut() = StateCopy::default();
        let mut is_fresh = true;
        loop {
            let cursor = Some(self.copy.borrow().cursor());
            let asked = StateFollow { request: 0, kinds: FOLLOWED.to_vec(), cursor };
            tokio::select! {
                changes = daemon.ask(asked) => match changes {
                    Ok(changes) if json::check(changes.version).is_ok() => {
                        is_fresh |= changes.is_fresh;
                        self.list_changes(&mut is_fresh, changes);
                    }
                    Err(VisitError::NoAnswer(_)) => {}
                    Ok(_) | Err(_) => tokio::time::sleep(PAUSE).await,
                },
                () = self.again.notified() => self.tell_whole(),
            }
            if self.copy.borrow().jobs.values().any(|job| !job.state.is_final()) {
                self.questions.note_work();
            }
            tokio::time::sleep(LIST_PERIOD).await;
        }
    }

    fn list_changes(&self, is_fresh: &mut bool, changes: oxiray_wire::message::StateChanges) {
        let now = now_ms();
        if *is_fresh {
            if self.copy.borrow_mut().apply(changes) {
                self.tell_whole();
                *is_fresh = false;
            }
            return;
        }
        let mut lines = Vec::new();
        {
            let (mut seen, names) = (self.seen.borrow_mut(), self.names.borrow());
            for gone in &changes.gone {
                let key = digits(&gone.key);
                lines.extend(list_name(gone.kind).and_then(|list| seen.gone(list, &key, now)));
            }
            let rows = changes.tables.iter().flat_map(|tables| followed_rows(tables, &names));
            for (list, rows) in rows {
                lines.extend(rows.into_iter().filter_map(|row| seen.row(list, row, now)));
            }
        }
        self.index_jobs(changes.tables.iter().flat_map(|tables| &tables.jobs));
        self.file_all(lines);
        self.copy.borrow_mut().apply(changes);
    }

    /// All rows that are known from following.
    fn tell_whole(&self) {
        let tables = {
            let copy = self.copy.borrow();
            Tables {
                jobs: copy.jobs.values().cloned().collect(),
                actors: copy.actors.values().cloned().collect(),
                placement_groups: copy.placement_groups.values().cloned().collect(),
                workers: copy.workers.values().cloned().collect(),
                ..Tables::default()
            }
        };
        let now = now_ms();
        let lines: Vec<Filed> = {
            let (mut seen, names) = (self.seen.borrow_mut(), self.names.borrow());
            followed_rows(&tables, &names).into_iter().flat_map(|(list, rows)| seen.whole(list, rows, now)).collect()
        };
        self.index_jobs(&tables.jobs);
        self.file_all(lines);
    }

    fn index_jobs<'row>(&self, rows: impl IntoIterator<Item = &'row JobRow>) {
        let mut index = self.index.borrow_mut();
        let soon = now_ms().saturating_sub(TAIL.as_millis() as u64);
        for row in rows {
            if !row.state.is_final() || row.ended_ms > soon {
                self.questions.note_work();
            }
            let Some(driver) = &row.driver else { continue };
            let told = IndexedJob {
                submission: row.submission.clone(),
                state: row.state.name().to_owned(),
                started_ms: row.started_ms,
                ended_ms: row.ended_ms,
            };
            index.set_job(driver.job.to_string(), told);
        }
    }

    async fn look(&self, daemon: &Daemon) -> Infallible {
        loop {
            let mut pause = LOOK_PERIOD;
            if let Ok(state) = daemon.ask(ClusterQuery::default()).await.and_then(|report| Ok(json::cluster(report)?)) {
                pause *= 1 + (state.nodes.len() / NODES_AT_ONCE) as u32;
                *self.names.borrow_mut() = Names::of_nodes(&state.nodes);
                *self.nodes.borrow_mut() = state
                    .nodes
                    .iter()
                    .filter(|node| node.alive)
                    .map(|node| (node.node_id.to_string(), name(node)))
                    .collect();
                let now = now_ms();
                if let Ok(told) = cluster_rows(state) {
                    let lines: Vec<Filed> = {
                        let mut seen = self.seen.borrow_mut();
                        told.into_iter().flat_map(|(list, rows)| seen.whole(list, rows, now)).collect()
                    };
                    self.file_all(lines);
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn ask_for_tasks(&self, daemon: &Daemon) -> Infallible {
        let mut missing = String::new();
        let told = |report: StateReport| {
            let said = match report.total.checked_sub(TASKS_MAX.into()).filter(|more| *more > 0) {
                Some(more) => format!("{more} tasks more than {TASKS_MAX} were not looked at {}", report.missing),
                None => report.missing.clone(),
            };
            self.tell_tasks(&report.tables.unwrap_or_default(), (said != missing).then_some(&said));
            missing = said;
        };
        self.questions.ask(daemon, told).await
    }

    fn tell_tasks(&self, tables: &Tables, missing: Option<&String>) {
        let now = now_ms();
        let lines: Vec<Filed> = {
            let (mut seen, names) = (self.seen.borrow_mut(), self.names.borrow());
            lists::tasks(&tables.tasks, &names).filter_map(|row| seen.row("tasks", row.made(), now)).collect()
        };
        self.file_all(lines);
        if let Some(text) = missing.filter(|text| !text.is_empty()) {
            let gap = HistoryLine { list: "tasks".to_owned(), ..HistoryLine::gap((now, now), text.clone()) };
            self.file(CLUSTER, &gap);
        }
    }

    async fn flush_on(&self, say: &impl Fn(&str)) -> Infallible {
        let mut said = None;
        let mut last = Instant::now();
        loop {
            tokio::select! {
                () = tokio::time::sleep(FLUSH_PERIOD) => {}
                () = self.is_full.notified() => {}
            }
            if self.pending.borrow().bytes == 0 && last.elapsed() < IDLE_PERIOD {
                continue;
            }
            last = Instant::now();
            let trouble = self.flush().await;
            if trouble != said {
                say(&match &trouble {
                    Some(trouble) => format!("history cannot be written: {trouble}; what has room is written later"),
                    None => "history is written again".to_owned(),
                });
                said = trouble;
            }
        }
    }

    /// Writes what is news. Returns why that did not work, where it did not.
    async fn flush(&self) -> Option<String> {
        let writer = self.writer.borrow().clone()?;
        let batch = self.batch();
        let done = spawn_blocking(move || writer.lock().unwrap_or_else(PoisonError::into_inner).write(batch));
        let written = match done.await {
            Ok(written) => written,
            Err(error) => return Some(error.to_string()),
        };
        if !written.again.is_empty() {
            for job in &written.again {
                self.seen.borrow_mut().forget(job);
            }
            self.again.notify_one();
        }
        written.trouble
    }

    fn batch(&self) -> Batch {
        let now = now_ms();
        let Pending { mut lines, lost, .. } = std::mem::take(&mut *self.pending.borrow_mut());
        for (job, from_ms) in lost {
            let gap = HistoryLine::gap((from_ms, now), "more happened than there was room for");
            gap.write(lines.entry(job.clone()).or_default());
            self.seen.borrow_mut().forget(&job);
            self.again.notify_one();
        }
        let mut index = self.index.borrow_mut();
        index.until_ms = now;
        let begin = Begin {
            schema: SCHEMA,
            version: index.version.clone(),
            cluster: index.cluster.clone(),
            session: index.session.clone(),
            nodes: self.nodes.borrow().clone(),
            ..Begin::default()
        };
        let began_ms = self.began_ms.get();
        Batch { lines, index: serde_json::to_vec(&*index).unwrap_or_default(), begin, began_ms, now_ms: now }
    }

    async fn tidy_on(&self, say: &impl Fn(&str)) -> Infallible {
        let mut pause = FLUSH_PERIOD;
        loop {
            tokio::time::sleep(std::mem::replace(&mut pause, TIDY_PERIOD)).await;
            let Some(writer) = self.writer.borrow().clone() else { continue };
            let (active, now) = (self.active(), now_ms());
            let done = spawn_blocking(move || writer.lock().unwrap_or_else(PoisonError::into_inner).tidy(&active, now));
            let Ok(removed) = done.await else { continue };
            match removed {
                Ok(removed) => {
                    for one in &removed {
                        self.index.borrow_mut().cut(one, now);
                        let text = format!("history of {}/{} was removed: it was {}", one.session, one.job, one.why);
                        say(&text);
                        self.file(CLUSTER, &HistoryLine { text, ..HistoryLine::of(LineKind::Cut, now) });
                    }
                }
                Err(error) => say(&format!("the bounds of history cannot be kept: {error}")),
            }
        }
    }

    /// The jobs that go on.
    fn active(&self) -> BTreeSet<String> {
        let copy = self.copy.borrow();
        let goes_on = copy.jobs.values().filter(|job| !job.state.is_final());
        goes_on.filter_map(|job| Some(job.driver.as_ref()?.job.to_string())).collect()
    }

    /// Writes the last lines, where that does not take long.
    pub(crate) async fn finish(&self) {
        // What is not written by then is lost, as by a kill.
        let _ = tokio::time::timeout(FINISH_LIMIT, self.flush()).await;
    }
}

/// What names a row, as text: its identifier's hexadecimal digits.
fn digits(key: &[u8]) -> String {
    key.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn list_name(kind: StateKind) -> Option<&'static str> {
    match kind {
        StateKind::Jobs => Some("jobs"),
        StateKind::Actors => Some("actors"),
        StateKind::PlacementGroups => Some("placement_groups"),
        StateKind::Workers => Some("workers"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::NodeId;
    use oxiray_wire::state::{NodeDaemon, NodeRow, WaitingRow};

    #[test]
    fn what_has_no_room_is_lost_and_said_to_be() {
        let mut pending = Pending::default();
        let line = HistoryLine { text: "x".repeat(1 << 20), ..HistoryLine::of(LineKind::Gap, 7) };
        for _ in 0..PENDING_BYTES_MAX / (1 << 20) + 5 {
            pending.add("01", &line);
        }
        assert!(pending.bytes <= PENDING_BYTES_MAX + (2 << 20));
        assert_eq!(pending.lost, BTreeMap::from([("01".to_owned(), 7)]));
    }

    #[test]
    fn how_the_cluster_is_becomes_rows_that_can_be_read_back() {
        // What is in a row of its own on the wire stands among the others in JSON.
        let daemon = Some(NodeDaemon::default());
        let node = NodeRow { node_id: NodeId::new([1; 28]), alive: true, head: true, daemon, ..NodeRow::default() };
        let state = ClusterState {
            nodes: vec![node.clone()],
            waiting: vec![WaitingRow { name: "f".into(), seconds: 3.0, ..WaitingRow::default() }],
            totals: BTreeMap::from([("CPU".into(), 2.0)]),
            ..ClusterState::default()
        };
        let [nodes, devices, waiting, cluster] = cluster_rows(state).expect("they have a form");
        let read: NodeRow = serde_json::from_value(Json::Object(nodes.1[0].cells.clone())).expect("a node");
        assert_eq!((read, devices.1.len()), (node, 0));
        assert_eq!(waiting.1[0].cells["rows"][0]["name"], "f");
        let read: ClusterState = serde_json::from_value(Json::Object(cluster.1[0].cells.clone())).expect("a state");
        assert_eq!(read.totals, BTreeMap::from([("CPU".into(), 2.0)]));
    }
}
