//! Calls as spans, sent to a collector of OpenTelemetry: OTLP over HTTP, as JSON.
//!
//! A process of its own, a visitor that only reads: what runs waits for nothing here.
//!
//! - SPANS-1: an attempt of a call is sent once, when it has ended: as far back as the cluster remembers attempts, and again
//!   only where this process was started anew.

use crate::daemon::Daemon;
use crate::log::say;
use crate::options::CollectorOptions;
use crate::sending::{Collector, PAUSE, Sending, SendingBounds, Sent, check_url, judged};
use crate::server::{block_on, end_with_daemon, limit_memory};
use crate::task_questions::TaskQuestions;
use oxiray_ids::{JobId, NodeId, TaskId, WorkerId};
use oxiray_state::{StateCopy, state_name};
use oxiray_visitor::{VisitError, json};
use oxiray_wire::message::{ChronicleFollow, StateFollow, StateReport, TaskStage};
use oxiray_wire::state::{ChronicleEntry, ChronicleEvent, ChronicleKind, StateKind, TaskRow};
use ring::digest::{SHA256, digest};
use serde_json::{Value as Json, json as object};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How long to wait for news of jobs.
const JOBS_LIMIT: Duration = Duration::from_secs(5);
/// How many attempts are remembered as sent, and how many wait to be.
const REMEMBERED_MAX: usize = 200_000;
/// Of how many workers it is remembered which devices they had: a worker with devices works for one lease.
const WORKERS_MAX: usize = 20_000;
const BOUNDS: SendingBounds = SendingBounds { waiting: 50_000, batch: 500 };
/// Where collectors take spans.
const PATH: &str = "/v1/traces";
/// How long the last spans may take at the end.
const FINISH_LIMIT: Duration = Duration::from_secs(4);

/// Sends spans until the daemon or a signal ends it.
pub(crate) fn run(options: &CollectorOptions) -> anyhow::Result<()> {
    end_with_daemon(options.daemon)?;
    limit_memory()?;
    let headers = std::env::var("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
    let collector = Collector::new(full_url(&options.collector)?, &headers, judged_spans)?;
    say(&format!("spans of calls are sent to {}", collector.url()));
    let session = options.session.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let exporter = Exporter {
        attempts: RefCell::default(),
        devices: RefCell::default(),
        questions: TaskQuestions::default(),
        sending: Sending::new(("spans", "attempts of calls"), collector, BOUNDS),
    };
    let body = |rows: &[TaskRow]| request(&session, rows, &exporter.devices.borrow()).to_string();
    block_on(async {
        let daemon = Daemon::enter_reading(&options.session)?;
        let hearing = daemon.clone();
        let mut asks_to_end = signal(SignalKind::terminate())?;
        let result = tokio::select! {
            error = hearing.hear() => Err(error.context("the daemon is gone")),
            _ = asks_to_end.recv() => Ok(()),
            never = exporter.follow_jobs(&daemon) => match never {},
            never = exporter.follow_devices(&daemon) => match never {},
            never = exporter.ask_for_tasks(&daemon) => match never {},
            never = exporter.sending.send_on(body) => match never {},
        };
        // What is not sent by then is lost, as by a kill.
        let _ = tokio::time::timeout(FINISH_LIMIT, exporter.sending.send_all(body)).await;
        result
    })
}

/// Which attempts were taken already.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    known: BTreeSet<(TaskId, u32)>,
    order: VecDeque<(TaskId, u32)>,
}

impl Attempts {
    /// Those that ended and were not taken yet (SPANS-1).
    pub(crate) fn take(&mut self, rows: Vec<TaskRow>) -> Vec<TaskRow> {
        let has_ended =
            |row: &TaskRow| row.ended_us > 0 && matches!(row.stage, TaskStage::Finished | TaskStage::Failed);
        rows.into_iter().filter(|row| has_ended(row) && self.is_new((row.task_id, row.attempt))).collect()
    }

    fn is_new(&mut self, key: (TaskId, u32)) -> bool {
        if !self.known.insert(key) {
            return false;
        }
        self.order.push_back(key);
        if self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}

/// A part of a device that is granted: its node, the resource, the device's number, and the grant's.
type GrantKey = (Option<NodeId>, String, u32, u64);

/// What is known of a worker.
#[derive(Debug, Default)]
struct DevicesOfWorker {
    named: BTreeSet<String>,
    held: BTreeSet<GrantKey>,
    /// Its place in the order in which workers are forgotten.
    place: u64,
}

/// Which devices workers have or had.
///
/// - SPANS-2: of workers that hold none any more, the one that has been without for longest is forgotten first; of others one only
///   where all hold some, and then the one whose first grant is the oldest.
#[derive(Debug, Default)]
struct DevicesOfWorkers {
    known: BTreeMap<WorkerId, DevicesOfWorker>,
    /// Who is forgotten next; those that hold devices come last.
    order: BTreeMap<(bool, u64), WorkerId>,
    last: u64,
}

impl DevicesOfWorkers {
    fn note(&mut self, entry: &ChronicleEntry) {
        let (Some(worker), Some(part)) = (entry.worker, &entry.device) else { return };
        let grant = (entry.node, part.resource.clone(), part.slot, part.grant);
        match entry.event {
            ChronicleEvent::DeviceGranted => {
                let mut found = self.take(worker).unwrap_or_default();
                found.named.insert(format!("{} {} {}", part.resource, part.slot, part.id));
                let is_first = found.held.is_empty();
                found.held.insert(grant);
                self.put(worker, found, is_first);
            }
            ChronicleEvent::DeviceFree => {
                let Some(mut found) = self.take(worker) else { return };
                let is_last = found.held.remove(&grant) && found.held.is_empty();
                self.put(worker, found, is_last);
            }
            _ => {}
        }
        if self.known.len() > WORKERS_MAX
            && let Some((_, first)) = self.order.pop_first()
        {
            self.known.remove(&first);
        }
    }

    /// What is held is told anew: the ends of some grants were missed.
    fn begin_anew(&mut self) {
        for (worker, found) in &mut self.known {
            self.order.remove(&(!found.held.is_empty(), found.place));
            found.held.clear();
            self.order.insert((false, found.place), *worker);
        }
    }

    fn take(&mut self, worker: WorkerId) -> Option<DevicesOfWorker> {
        let found = self.known.remove(&worker)?;
        self.order.remove(&(!found.held.is_empty(), found.place));
        Some(found)
    }

    fn put(&mut self, worker: WorkerId, mut found: DevicesOfWorker, has_moved: bool) {
        if has_moved {
            self.last += 1;
            found.place = self.last;
        }
        self.order.insert((!found.held.is_empty(), found.place), worker);
        self.known.insert(worker, found);
    }

    fn of(&self, worker: Option<WorkerId>) -> impl Iterator<Item = &String> {
        worker.and_then(|worker| self.known.get(&worker)).into_iter().flat_map(|found| &found.named)
    }
}

#[derive(Debug)]
struct Exporter {
    attempts: RefCell<Attempts>,
    devices: RefCell<DevicesOfWorkers>,
    questions: TaskQuestions,
    sending: Sending<TaskRow>,
}

impl Exporter {
    /// Notes when the last job worked.
    async fn follow_jobs(&self, daemon: &Daemon) -> Infallible {
        let mut copy = StateCopy::default();
        loop {
            if copy.jobs.values().any(|job| !job.state.is_final()) {
                self.questions.note_work();
            }
            let asked = StateFollow { request: 0, kinds: vec![StateKind::Jobs], cursor: Some(copy.cursor()) };
            match daemon.ask_within(JOBS_LIMIT, asked).await {
                Ok(changes) if json::check(changes.version).is_ok() => drop(copy.apply(changes)),
                // Nothing happened for a while.
                Err(VisitError::NoAnswer(_)) => {}
                Ok(_) | Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Notes who is granted which devices.
    async fn follow_devices(&self, daemon: &Daemon) -> Infallible {
        let (mut cursor, kinds) = (None, vec![ChronicleKind::Device]);
        loop {
            match daemon.ask(ChronicleFollow { cursor, kinds: kinds.clone(), ..ChronicleFollow::default() }).await {
                Ok(batch) if json::check(batch.version).is_ok() => {
                    let mut devices = self.devices.borrow_mut();
                    if batch.is_fresh {
                        devices.begin_anew();
                    }
                    batch.entries.iter().for_each(|entry| devices.note(entry));
                    cursor = batch.cursor.or(cursor);
                }
                // Nothing happened for a while.
                Err(VisitError::NoAnswer(_)) => {}
                Ok(_) | Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    async fn ask_for_tasks(&self, daemon: &Daemon) -> Infallible {
        let told = |report: StateReport| {
            self.sending.add(self.attempts.borrow_mut().take(report.tables.unwrap_or_default().tasks));
        };
        self.questions.ask(daemon, told).await
    }
}

/// The URL that spans are posted to.
fn full_url(given: &str) -> anyhow::Result<String> {
    check_url(given, "spans", "http://127.0.0.1:4318")?;
    let base = given.trim_end_matches('/');
    Ok(if base.ends_with(PATH) { base.to_owned() } else { format!("{base}{PATH}") })
}

/// What an answer means: a collector may leave some of them out.
fn judged_spans(status: u16, text: &str) -> Sent {
    let told: Json = serde_json::from_str(text).unwrap_or_default();
    let partial = &told["partialSuccess"];
    let rejected = partial["rejectedSpans"].as_u64().or_else(|| partial["rejectedSpans"].as_str()?.parse().ok());
    match (judged(status, text), rejected) {
        (Sent::Taken(None), Some(rejected)) if rejected > 0 => {
            let why = partial["errorMessage"].as_str().unwrap_or("it does not say why");
            Sent::Taken(Some(format!("{rejected} spans: {why}")))
        }
        (sent, _) => sent,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The trace of a job: its calls, from whatever process.
fn trace_of(session: &str, job: JobId) -> String {
    hex(&digest(&SHA256, format!("{session} {job}").as_bytes()).as_ref()[..16])
}

/// The span of an attempt, or of a part of it.
fn span_of(task: TaskId, attempt: u32, part: &str) -> String {
    hex(&digest(&SHA256, format!("{task} {attempt} {part}").as_bytes()).as_ref()[..8])
}

fn attribute(key: &str, value: &impl ToString) -> Json {
    object!({"key": key, "value": {"stringValue": value.to_string()}})
}

fn number(key: &str, value: u64) -> Json {
    // As text: JSON's numbers have 53 bits.
    object!({"key": key, "value": {"intValue": value.to_string()}})
}

/// What a collector is sent of these attempts.
fn request(session: &str, rows: &[TaskRow], devices: &DevicesOfWorkers) -> Json {
    let version = env!("CARGO_PKG_VERSION");
    let spans: Vec<Json> = rows.iter().flat_map(|row| spans(session, row, devices)).collect();
    object!({"resourceSpans": [{
        "resource": {"attributes": [
            attribute("service.name", &"oxiray"),
            attribute("service.version", &version),
            attribute("service.instance.id", &session),
        ]},
        "scopeSpans": [{"scope": {"name": "oxiray", "version": version}, "spans": spans}],
    }]})
}

/// The span of an attempt from the call to its end, and below it what that time went to.
fn spans(session: &str, row: &TaskRow, devices: &DevicesOfWorkers) -> Vec<Json> {
    let (trace, own) = (trace_of(session, row.task_id.job()), span_of(row.task_id, row.attempt, ""));
    let span = |name: &str, id: &str, parent: Option<&str>, (from, to): (u64, u64)| {
        object!({
            "traceId": trace, "spanId": id, "parentSpanId": parent.unwrap_or_default(), "name": name, "kind": 1,
            "startTimeUnixNano": (from * 1_000).to_string(), "endTimeUnixNano": (to.max(from) * 1_000).to_string(),
        })
    };
    let origin = row.origin.unwrap_or_default();
    let parent = origin.parent.map(|parent| span_of(parent, 0, ""));
    let known = |at: u64| (at > 0).then_some(at);
    let began = known(origin.called_us).or(known(row.started_us)).unwrap_or(row.ended_us);
    let mut whole = span(&row.name, &own, parent.as_deref(), (began, row.ended_us));
    whole["attributes"] = attributes(row, devices).into();
    if row.stage == TaskStage::Failed {
        whole["status"] =
            object!({"code": 2, "message": row.message.clone().or_else(|| row.error.clone()).unwrap_or_default()});
    }
    let ready = origin.ready_after_us.filter(|_| origin.called_us > 0).map(|after| origin.called_us + after);
    let parts = [
        ("wait for arguments", known(origin.called_us), ready),
        ("wait for a worker", ready, known(row.started_us)),
        ("run", known(row.started_us), known(row.ended_us)),
    ];
    let parts = parts.into_iter().filter_map(|(name, from, to)| Some((name, from?, to?)));
    let below = parts
        .filter(|(_, from, to)| to > from)
        .map(|(name, from, to)| span(name, &span_of(row.task_id, row.attempt, name), Some(&own), (from, to)));
    let below: Vec<Json> = below.collect();
    std::iter::once(whole).chain(below).collect()
}

/// What is known of an attempt, under Ray's names where Ray has them.
fn attributes(row: &TaskRow, devices: &DevicesOfWorkers) -> Vec<Json> {
    let mut found = vec![
        attribute("ray.function", &row.function),
        attribute("ray.task_id", &row.task_id),
        attribute("ray.job_id", &row.task_id.job()),
        attribute("oxiray.state", &state_name(row.task_id, row.stage)),
        number("oxiray.attempt", row.attempt.into()),
    ];
    found.extend(row.node_id.map(|node| attribute("ray.node_id", &node)));
    found.extend(row.worker_id.map(|worker| attribute("ray.worker_id", &worker)));
    found.extend(row.pid.map(|pid| number("ray.pid", pid.into())));
    found.extend(row.actor().map(|actor| attribute("ray.actor_id", &actor)));
    for (resource, amount) in row.resources.iter().flat_map(|needed| &needed.by_name) {
        found.push(object!({"key": format!("oxiray.resource.{resource}"), "value": {"doubleValue": amount}}));
    }
    let had: Vec<Json> = devices.of(row.worker_id).map(|device| object!({"stringValue": device})).collect();
    if !had.is_empty() {
        found.push(object!({"key": "oxiray.device", "value": {"arrayValue": {"values": had}}}));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_wire::message::CallOrigin;
    use oxiray_wire::state::DevicePart;

    fn task(number: u8) -> TaskId {
        TaskId::new([number; 24])
    }

    fn ended(number: u8) -> TaskRow {
        TaskRow {
            task_id: task(number),
            name: "train".into(),
            function: "program.train".into(),
            stage: TaskStage::Finished,
            node_id: Some(NodeId::new([3; 28])),
            pid: Some(71),
            started_us: 5_000,
            ended_us: 9_000,
            origin: Some(CallOrigin {
                parent: Some(task(9)),
                called_us: 1_000,
                ready_after_us: Some(1_500),
                sent_after_us: None,
            }),
            ..TaskRow::default()
        }
    }

    fn text<'json>(span: &'json Json, key: &str) -> &'json str {
        span[key].as_str().expect("a text")
    }

    #[test]
    fn an_attempt_has_a_span_below_its_caller_and_one_for_each_part_of_its_time() {
        let made = spans("session", &ended(1), &DevicesOfWorkers::default());
        let [whole, arguments, worker, run] = &made[..] else { panic!("{made:?}") };
        assert_eq!((text(whole, "name"), text(whole, "parentSpanId")), ("train", span_of(task(9), 0, "").as_str()));
        assert_eq!((text(whole, "traceId").len(), text(whole, "spanId").len()), (32, 16));
        assert_eq!((text(whole, "startTimeUnixNano"), text(whole, "endTimeUnixNano")), ("1000000", "9000000"));
        for (span, name, from, to) in [
            (arguments, "wait for arguments", "1000000", "2500000"),
            (worker, "wait for a worker", "2500000", "5000000"),
            (run, "run", "5000000", "9000000"),
        ] {
            assert_eq!((text(span, "name"), text(span, "parentSpanId")), (name, text(whole, "spanId")));
            assert_eq!((text(span, "startTimeUnixNano"), text(span, "endTimeUnixNano")), (from, to));
            assert_eq!(text(span, "traceId"), text(whole, "traceId"));
        }
        let of =
            |key: &str| whole["attributes"].as_array().expect("some").iter().find(|one| one["key"] == key).cloned();
        assert_eq!(of("ray.pid"), Some(object!({"key": "ray.pid", "value": {"intValue": "71"}})));
        assert_eq!(whole.get("status"), None);
        let job =
            |session: &str| text(&spans(session, &ended(1), &DevicesOfWorkers::default())[0], "traceId").to_owned();
        assert_ne!(job("session"), job("another"), "jobs of different sessions have the same numbers");
    }

    #[test]
    fn an_attempt_names_the_devices_that_its_worker_was_granted() {
        let worker = |number: u32| {
            let mut id = [0; 28];
            id[..4].copy_from_slice(&number.to_be_bytes());
            WorkerId::from_slice(&id).expect("as long as an identifier is")
        };
        let granted = |number: u32, slot: u32| {
            let device =
                DevicePart { resource: "GPU".into(), slot, id: format!("uuid-{slot}"), ..DevicePart::default() };
            let (event, worker) = (ChronicleEvent::DeviceGranted, Some(worker(number)));
            ChronicleEntry { event, worker, device: Some(device), ..ChronicleEntry::default() }
        };
        let mut devices = DevicesOfWorkers::default();
        for entry in [granted(1, 3), granted(1, 3), granted(1, 4), granted(2, 5)] {
            devices.note(&entry);
            devices.note(&ChronicleEntry { event: ChronicleEvent::DeviceFree, ..entry });
        }
        let row = TaskRow { worker_id: Some(worker(1)), ..ended(1) };
        let told = |row: &TaskRow, devices: &DevicesOfWorkers| {
            let found = attributes(row, devices).into_iter().find(|one| one["key"] == "oxiray.device");
            found.map(|one| one["value"]["arrayValue"]["values"].clone())
        };
        let expected = object!([{"stringValue": "GPU 3 uuid-3"}, {"stringValue": "GPU 4 uuid-4"}]);
        assert_eq!(told(&row, &devices), Some(expected));
        assert_eq!(told(&ended(1), &devices), None);
        devices.note(&granted(3, 6));
        let living = TaskRow { worker_id: Some(worker(3)), ..ended(1) };
        for number in 10..9 + WORKERS_MAX as u32 {
            devices.note(&granted(number, 0));
            devices.note(&ChronicleEntry { event: ChronicleEvent::DeviceFree, ..granted(number, 0) });
        }
        assert_eq!((told(&row, &devices), devices.known.len()), (None, WORKERS_MAX), "it is bounded");
        let expected = object!([{"stringValue": "GPU 6 uuid-6"}]);
        assert_eq!(told(&living, &devices), Some(expected), "SPANS-2: who was granted it before all those holds it");
        for number in 100_000..100_000 + WORKERS_MAX as u32 {
            devices.note(&granted(number, 0));
        }
        assert_eq!((told(&living, &devices), devices.known.len()), (None, WORKERS_MAX), "all hold some");
        devices.begin_anew();
        devices.note(&granted(3, 6));
        assert_eq!((told(&living, &devices).is_some(), devices.known.len()), (true, WORKERS_MAX));
        assert_eq!(devices.order.len(), WORKERS_MAX);
    }

    #[test]
    fn what_failed_says_why_and_what_is_not_known_is_left_out() {
        let row = TaskRow {
            stage: TaskStage::Failed,
            message: Some("it raised".into()),
            origin: None,
            started_us: 0,
            ..ended(1)
        };
        let made = spans("session", &row, &DevicesOfWorkers::default());
        assert_eq!(made.len(), 1);
        assert_eq!(made[0]["status"], object!({"code": 2, "message": "it raised"}));
        assert_eq!((text(&made[0], "startTimeUnixNano"), text(&made[0], "parentSpanId")), ("9000000", ""));
    }

    #[test]
    fn an_attempt_is_taken_once_when_it_has_ended() {
        let mut attempts = Attempts::default();
        let runs = TaskRow { stage: TaskStage::Runs, ended_us: 0, ..ended(1) };
        assert_eq!(attempts.take(vec![runs, ended(2)]).len(), 1);
        assert_eq!(attempts.take(vec![ended(1), ended(2), TaskRow { attempt: 1, ..ended(2) }]).len(), 2);
        let many = |from: u32| (from..from + 60_000).map(|attempt| TaskRow { attempt, ..ended(3) }).collect::<Vec<_>>();
        for round in 0..4 {
            assert_eq!(attempts.take(many(round * 60_000)).len(), 60_000);
        }
        assert_eq!((attempts.known.len(), attempts.order.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
    }

    #[test]
    fn a_url_gets_the_path_of_traces() {
        for (given, full) in [
            ("http://here:4318", "http://here:4318/v1/traces"),
            ("http://here/otlp/", "http://here/otlp/v1/traces"),
            ("http://here/v1/traces", "http://here/v1/traces"),
        ] {
            assert_eq!(full_url(given).expect("one"), full);
        }
    }

    #[test]
    fn a_collector_says_what_it_leaves_out() {
        assert_eq!(judged_spans(200, "{}"), Sent::Taken(None));
        assert_eq!(
            judged_spans(200, r#"{"partialSuccess":{"rejectedSpans":"2","errorMessage":"old"}}"#),
            Sent::Taken(Some("2 spans: old".into()))
        );
        assert!(matches!(judged_spans(503, "busy"), Sent::Later(_)));
    }
}
