//! What the page's views ask ([the contract](../../../../docs/formats/page.md)).

use super::acts::said;
use super::events::level;
use super::keeper::{Page, now_ms};
use super::merging::{Part, Window};
use super::replies::reply;
use super::rows::{Asked, Row, listed, listed_unread};
use super::tables::Tables as PageTables;
use super::{counts, cpus, lists, pictures};
use crate::answer::{Answer, json, pieces, text, unanswered};
use crate::routes::{Request, Route, Site, route};
use bytes::Bytes;
use http::StatusCode;
use oxiray_ids::{JobId, NodeId, TaskId};
use oxiray_network::porch::Right;
use oxiray_state::state_name;
use oxiray_visitor::{VisitError, json as state_json};
use oxiray_wire::message::{StateFilter, StateQuery, StateReport, SubmissionAction, SubmissionAsked, TaskStage};
use oxiray_wire::state::{AttemptCount, Severity, StateKind, Tables, TaskRow};
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How old a list of what the head keeps may be.
const KEPT_AGE: Duration = Duration::from_millis(500);
/// How old a list may be that the head collects from all processes.
const COLLECTED_AGE: Duration = Duration::from_millis(1_500);
/// How many rows the head is asked for.
const STATE_ROWS_MAX: u32 = 10_000;
/// How far tasks are that did not begin.
const WAITING: [TaskStage; 3] = [TaskStage::WaitsForArguments, TaskStage::WaitsForWorker, TaskStage::Sent];
/// A task of an actor, and one of none: the same stage has a name for each.
const OF_BOTH_KINDS: [TaskId; 2] = [TaskId::new([0; 24]), TaskId::new([0xff; 24])];
/// The most pixels of a picture.
const PIXELS_MAX: u32 = 4_000;
/// The shortest time between two lines of a stream.
const LINE_PAUSE: Duration = Duration::from_millis(150);
/// The longest time between two lines of a stream.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// After how long a stream ends, and the page asks anew, with a key that may have ended since.
const STREAM_LIMIT: Duration = Duration::from_secs(60 * 60);

/// The paths.
pub(crate) const ROUTES: &[Route] = &[
    route!("GET", "/ox/v1/overview", overview),
    route!("GET", "/ox/v1/rows/{}", rows),
    route!("GET", "/ox/v1/names/tasks", task_names),
    route!("GET", "/ox/v1/names/jobs", task_jobs),
    route!("GET", "/ox/v1/holdings", holdings),
    route!("GET", "/ox/v1/map", map),
    route!("GET", "/ox/v1/series", series),
    route!("GET", "/ox/v1/explain/{}", explain),
    route!("GET", "/ox/v1/live", live),
    route!("GET", "/ox/v1/jobs/{}/log", job_log),
    route!("POST", "/ox/v1/jobs/{}/stop", stop_job),
    route!("POST", "/ox/v1/jobs/{}/delete", delete_job),
];

pub(crate) fn wrong(said: impl Into<String>) -> Answer {
    text(StatusCode::BAD_REQUEST, said)
}

pub(crate) fn parameter(request: &Request, name: &str) -> Option<String> {
    request.query().into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// A number that the query names; the usual one where it does not.
pub(crate) fn number(request: &Request, name: &str, usual: u64) -> Result<u64, String> {
    let Some(value) = parameter(request, name) else { return Ok(usual) };
    // The page counts in fractions of milliseconds now and then.
    let read = value.parse::<f64>().ok().filter(|number| number.is_finite());
    read.map(|number| number.max(0.0) as u64).ok_or_else(|| format!("{name}={value} is no number"))
}

async fn overview(site: Rc<Site>, request: Request) -> Answer {
    let mut told = site.page.read(pictures::overview);
    told["may_write"] = (request.right == Right::All).into();
    reply(&request, &told)
}

async fn map(site: Rc<Site>, request: Request) -> Answer {
    reply(&request, &site.page.read(lists::map))
}

/// The stretch of time that a picture is of.
pub(crate) fn window(request: &Request, now: u64) -> Result<Window, String> {
    let (from_ms, to_ms) = (number(request, "from", now.saturating_sub(600_000))?, number(request, "to", now)?);
    let pixels = number(request, "pixels", 1_000)?.clamp(1, PIXELS_MAX.into()) as u32;
    if from_ms >= to_ms {
        return Err(format!("from={from_ms} is not before to={to_ms}"));
    }
    Ok(Window { from_ms, to_ms, pixels })
}

/// The nodes whose devices a picture shows; all where the query does not say.
pub(crate) fn part(request: &Request) -> Result<Part, String> {
    let whole =
        |name: &str, usual: u64| Ok::<_, String>(usize::try_from(number(request, name, usual)?).unwrap_or(usize::MAX));
    Ok(Part::of(whole("first", 0)?, whole("count", u64::MAX)?))
}

async fn holdings(site: Rc<Site>, request: Request) -> Answer {
    let (window, part) = match window(&request, now_ms()).and_then(|window| Ok((window, part(&request)?))) {
        Ok(asked) => asked,
        Err(said) => return wrong(said),
    };
    if !site.page.read(PageTables::is_without_devices) {
        return reply(&request, &site.page.read(|tables| pictures::holdings(tables, window, part)));
    }
    match begun_tasks(&site).await {
        Ok(report) => reply(
            &request,
            &site.page.read(|tables| {
                let tasks = tasks_of(&report);
                let holders = cpus::holders(tasks, &tables.cpu_actors);
                let begun_ms = cpus::begun_ms(tasks, tables.begun_ms());
                let mut told = pictures::cpu_holdings(tables, &holders, begun_ms, (window, part));
                told["note"] = note_of_cpus(&report, tables).into();
                told
            }),
        ),
        Err(error) => unanswered(&error),
    }
}

/// What the head is asked for the tasks that began. Those of actors are among them: the head forgets ended calls of all kinds
/// together, and whether it did is seen from how many there are.
fn begun_query() -> StateQuery {
    let names = |stage: TaskStage| OF_BOTH_KINDS.map(|task| state_name(task, stage));
    let waiting: BTreeSet<&str> = WAITING.into_iter().flat_map(names).collect();
    let not = |state: &str| StateFilter { key: "state".into(), differs: true, value: state.into() };
    let filters = waiting.into_iter().map(not).collect();
    StateQuery { filters, ..state_query(StateKind::Tasks, &Asked::default(), &[]) }
}

/// The tasks that began; while the head does not answer, those of its last answer.
async fn begun_tasks(site: &Site) -> Result<Rc<StateReport>, VisitError> {
    let asked = begun_query();
    let told = site.page.list(&site.daemon, asked.clone(), COLLECTED_AGE).await;
    told.or_else(|error| site.page.kept(&asked).ok_or(error))
}

/// What is missing of who held CPUs, for people.
fn note_of_cpus(report: &StateReport, tables: &PageTables) -> Option<String> {
    let cut = (report.total > STATE_ROWS_MAX.into())
        .then(|| format!("{} tasks began; {STATE_ROWS_MAX} of them are looked at.", report.total));
    let missing = Some(report.missing.clone()).filter(|text| !text.is_empty());
    let said: Vec<String> = cut.into_iter().chain(missing).chain(tables.cpu_actors.note()).collect();
    (!said.is_empty()).then(|| said.join(" "))
}

fn tasks_of(report: &StateReport) -> &[TaskRow] {
    report.tables.as_ref().map_or(&[], |tables| &tables.tasks)
}

/// Who held parts of devices; or CPUs, where there are no devices.
async fn grants(site: &Site, asked: &mut Asked) -> Result<(Vec<Row>, Option<String>), Answer> {
    let is_of_device = asked.key().is_some_and(|key| key.parse::<u64>().is_ok());
    if is_of_device || !site.page.read(PageTables::is_without_devices) {
        return site.page.read(|tables| grant_rows(tables, asked)).map_err(wrong);
    }
    let span = span(asked).map_err(wrong)?;
    let report = begun_tasks(site).await.map_err(|error| unanswered(&error))?;
    let told = |tables: &PageTables| {
        let holders = cpus::holders(tasks_of(&report), &tables.cpu_actors);
        (lists::cpu_grants(tables, &holders, span), note_of_cpus(&report, tables))
    };
    Ok(site.page.read(told))
}

async fn series(site: Rc<Site>, request: Request) -> Answer {
    let node = parameter(&request, "node").and_then(|node| NodeId::from_hex(&node).ok());
    match (parameter(&request, "of").as_deref(), node) {
        (Some("store"), _) => reply(&request, &site.page.read(pictures::store_chart)),
        (Some("node"), Some(node)) => reply(&request, &site.page.read(|tables| pictures::node_chart(tables, node))),
        (Some("run"), _) => {
            let key = parameter(&request, "run").unwrap_or_default();
            reply(&request, &site.page.read(|tables| pictures::run_chart(tables, &key)))
        }
        _ => wrong("there are series of=store, of=node with node=IDENTIFIER, and of=run with run=KEY"),
    }
}

/// What the head is asked for a list, with those of the conditions that it can look at itself.
fn state_query(kind: StateKind, asked: &Asked, columns: &[&str]) -> StateQuery {
    let condition = |name: &&str| {
        let value = asked.equals(name)?.to_owned();
        Some(StateFilter { key: (*name).to_owned(), differs: false, value })
    };
    let mut filters: Vec<StateFilter> = columns.iter().filter_map(condition).collect();
    if kind == StateKind::Tasks
        && let Some((task, _)) = asked.key().and_then(|key| key.split_once(':'))
    {
        filters.push(StateFilter { key: "task_id".into(), differs: false, value: task.to_owned() });
    }
    StateQuery { kind, filters, limit: STATE_ROWS_MAX, detail: true, ..StateQuery::default() }
}

/// What is missing in a list, for people.
fn note_of(report: &StateReport) -> Option<String> {
    let is_cut = report.total > STATE_ROWS_MAX.into();
    let cut = is_cut.then(|| {
        format!("There are {} of them; {STATE_ROWS_MAX} are looked at. Narrow the search to see others.", report.total)
    });
    let said: Vec<String> =
        cut.into_iter().chain(Some(report.missing.clone()).filter(|text| !text.is_empty())).collect();
    (!said.is_empty()).then(|| said.join(" "))
}

/// A list that the head has.
async fn state_list(site: &Site, name: &str, asked: &Asked) -> Result<Json, VisitError> {
    let (kind, columns, age): (_, &[&str], _) = match name {
        "tasks" => {
            (StateKind::Tasks, &["name", "state", "job_id", "actor_id", "parent_task_id", "worker_id"], COLLECTED_AGE)
        }
        "objects" => (StateKind::Objects, &[], COLLECTED_AGE),
        "actors" => (StateKind::Actors, &["job_id"], KEPT_AGE),
        "placement_groups" => (StateKind::PlacementGroups, &[], KEPT_AGE),
        "jobs" => (StateKind::Jobs, &[], KEPT_AGE),
        _ => (StateKind::Workers, &[], KEPT_AGE),
    };
    let report = site.page.list(&site.daemon, state_query(kind, asked, columns), age).await?;
    let none = Tables::default();
    let told = report.tables.as_ref().unwrap_or(&none);
    let note = note_of(&report);
    let note = note.as_deref();
    Ok(site.page.read(|tables| match kind {
        StateKind::Tasks => listed_unread(lists::tasks(&told.tasks, &tables.names).collect(), asked, note),
        StateKind::Objects => listed_unread(lists::objects(&told.objects).collect(), asked, note),
        StateKind::Actors => listed(lists::actors(&told.actors, &tables.names), asked, note),
        StateKind::PlacementGroups => listed(lists::placement_groups(&told.placement_groups), asked, note),
        StateKind::Jobs => {
            let mut rows = lists::jobs(&told.jobs, tables);
            rows.extend(site.page.past_jobs(&rows));
            listed(rows, asked, note)
        }
        _ => listed(lists::measured_workers(&told.workers, tables), asked, note),
    }))
}

/// The span that a list is narrowed to: all time where the query does not say.
pub(crate) fn span(asked: &mut Asked) -> Result<(u64, u64), String> {
    let mut bound = |name: &str, usual: u64| -> Result<u64, String> {
        let Some(value) = asked.take(name) else { return Ok(usual) };
        value.parse::<f64>().map(|number| number.max(0.0) as u64).map_err(|_| format!("{name}={value} is no number"))
    };
    Ok((bound("from", 0)?, bound("to", u64::MAX)?))
}

/// What happened, of a level and a span where those are asked for.
pub(crate) fn event_rows(tables: &PageTables, asked: &mut Asked) -> Result<Vec<Row>, String> {
    let least = asked.take("level").and_then(|name| level(&name)).unwrap_or(Severity::Info);
    Ok(tables.events.rows(&tables.names, least, span(asked)?))
}

/// Who held devices; one of them by its key.
pub(crate) fn grant_rows(tables: &PageTables, asked: &mut Asked) -> Result<(Vec<Row>, Option<String>), String> {
    let (from, to) = span(asked)?;
    if let Some(number) = asked.key().and_then(|key| key.parse().ok()) {
        let found = tables.holdings.find(number).map(|(key, one)| lists::grant(key, one, &tables.names));
        return Ok((found.into_iter().collect(), None));
    }
    let (rows, is_cut) = lists::grants(tables, from, to);
    Ok((rows, is_cut.then(|| "Only the newest 10,000 holdings of this span are looked at.".to_owned())))
}

async fn rows(site: Rc<Site>, request: Request) -> Answer {
    let mut asked = match Asked::read(request.query()) {
        Ok(asked) => asked,
        Err(said) => return wrong(said),
    };
    let list = request.named.first().map(String::as_str).unwrap_or_default();
    let (rows, note) = match list {
        "nodes" => (site.page.read(lists::nodes), None),
        "devices" => (site.page.read(lists::devices), None),
        "waiting" => (site.page.read(lists::waiting), None),
        "runs" => (site.page.read(|tables| tables.runs.rows()), None),
        "events" => match site.page.read(|tables| event_rows(tables, &mut asked)) {
            Ok(told) => (told, None),
            Err(said) => return wrong(said),
        },
        "grants" => match grants(&site, &mut asked).await {
            Ok(told) => told,
            Err(answer) => return answer,
        },
        "tasks" | "objects" | "actors" | "placement_groups" | "jobs" | "workers" => {
            return match state_list(&site, list, &asked).await {
                Ok(told) => reply(&request, &told),
                Err(error) => unanswered(&error),
            };
        }
        other => return text(StatusCode::NOT_FOUND, format!("there is no list `{other}`")),
    };
    reply(&request, &listed(rows, &asked, note.as_deref()))
}

/// The counts of all tasks, as the head has them. Those of names and of jobs are of one answer.
async fn attempts(site: &Site) -> Result<Rc<StateReport>, VisitError> {
    let counts = StateQuery { summary: true, by_job: true, ..StateQuery::default() };
    let asked = StateQuery { kind: StateKind::Tasks, limit: STATE_ROWS_MAX, ..counts };
    site.page.list(&site.daemon, asked, COLLECTED_AGE).await
}

fn counted(report: &StateReport) -> &[AttemptCount] {
    report.summary.as_ref().map_or(&[], |summary| &summary.attempts)
}

/// The job that counts are of; all where the query does not say.
pub(crate) fn asked_job(request: &Request) -> Result<Option<JobId>, String> {
    let read = |job: String| {
        JobId::from_hex(&job).map_err(|_| format!("job_id={job} is no job's identifier: `oxiray list jobs` shows them"))
    };
    parameter(request, "job_id").map(read).transpose()
}

/// How many tasks of each name are how far.
async fn task_names(site: Rc<Site>, request: Request) -> Answer {
    let job = match asked_job(&request) {
        Ok(job) => job,
        Err(said) => return wrong(said),
    };
    match attempts(&site).await {
        Ok(report) => reply(&request, &counts::by_name(counted(&report), job, &report.missing)),
        Err(error) => unanswered(&error),
    }
}

/// How many tasks of each job are how far.
async fn task_jobs(site: Rc<Site>, request: Request) -> Answer {
    match attempts(&site).await {
        Ok(report) => reply(&request, &counts::by_job(counted(&report))),
        Err(error) => unanswered(&error),
    }
}

/// Why something waits.
async fn explain(site: Rc<Site>, request: Request) -> Answer {
    let value = request.named.first().cloned().unwrap_or_default();
    let filters = vec![StateFilter { key: "id".into(), differs: false, value }];
    let asked = StateQuery { kind: StateKind::Explain, filters, limit: 1, ..StateQuery::default() };
    match site.page.list(&site.daemon, asked, KEPT_AGE).await {
        Ok(report) => match report.explanation.as_ref().map(state_json::value) {
            Some(Ok(told)) => reply(&request, &told),
            _ => text(StatusCode::NOT_FOUND, "nothing of that identifier is known"),
        },
        Err(VisitError::Failed(failure)) => text(StatusCode::NOT_FOUND, failure.text),
        Err(error) => unanswered(&error),
    }
}

/// A line for each change, as long as the page listens.
async fn live(site: Rc<Site>, request: Request) -> Answer {
    let since = match number(&request, "since", 0) {
        Ok(since) => since,
        Err(said) => return wrong(said),
    };
    let (answer, sender) = pieces("application/x-ndjson");
    let may_write = request.right == Right::All;
    tokio::task::spawn_local(async move {
        // Whoever is still there after that asks again.
        let _ = tokio::time::timeout(STREAM_LIMIT, tell(Rc::clone(&site.page), sender, since, may_write)).await;
    });
    answer
}

/// PAGE-2.
async fn tell(page: Rc<Page>, sender: mpsc::Sender<Bytes>, mut since: u64, may_write: bool) {
    let (_watching, mut changes) = page.watch();
    let mut overview = Json::Null;
    loop {
        let (sequence, until, kinds, mut now) = page.read(|tables| {
            (tables.sequence(), tables.until_ms, tables.changed_since(since), pictures::overview(tables))
        });
        let mut line = json!({"seq": sequence, "now_ms": now_ms(), "until_ms": until, "changed": kinds});
        now["may_write"] = may_write.into();
        if now != overview && until > 0 {
            line["overview"] = now.clone();
            overview = now;
        }
        since = sequence;
        if sender.send(format!("{line}\n").into()).await.is_err() {
            return;
        }
        tokio::select! {
            () = sender.closed() => return,
            // The page lives as long as who reads it.
            _ = changes.changed() => tokio::time::sleep(LINE_PAUSE).await,
            () = tokio::time::sleep(HEARTBEAT) => {}
        }
    }
}

/// What a submitted job printed from a byte on.
async fn job_log(site: Rc<Site>, request: Request) -> Answer {
    let from = match number(&request, "from", 0) {
        Ok(from) => from,
        Err(said) => return wrong(said),
    };
    let id = request.named.first().cloned().unwrap_or_default();
    let read = SubmissionAsked { offset: from, ..order(SubmissionAction::Read, id) };
    match site.daemon.ask(read).await {
        Ok(told) => {
            let is_over = told.jobs.first().is_none_or(|job| job.state.is_final());
            let whole = whole_characters(&told.printed);
            let printed = &told.printed[..whole];
            let next = from + printed.len() as u64;
            let is_ended = is_over && printed.is_empty();
            json(&json!({
                "text": String::from_utf8_lossy(printed), "from": from, "next": next, "ended": is_ended, "more": !printed.is_empty() && is_over,
            }))
        }
        Err(error) => failed(&error),
    }
}

/// How many bytes there are without a character at the end whose rest is still to come.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        _ => bytes.len(),
    }
}

fn order(action: SubmissionAction, id: String) -> SubmissionAsked {
    SubmissionAsked { request: 0, action, id, spec: None, offset: 0 }
}

/// What the head says against an order.
pub(crate) fn failed(error: &VisitError) -> Answer {
    match error {
        VisitError::Failed(failure) => text(StatusCode::CONFLICT, failure.text.clone()),
        other => unanswered(other),
    }
}

async fn stop_job(site: Rc<Site>, request: Request) -> Answer {
    done(site, request, SubmissionAction::Stop).await
}

async fn delete_job(site: Rc<Site>, request: Request) -> Answer {
    done(site, request, SubmissionAction::Delete).await
}

async fn done(site: Rc<Site>, mut request: Request, action: SubmissionAction) -> Answer {
    if let Err(answer) = said(&mut request).await {
        return answer;
    }
    let id = request.named.first().cloned().unwrap_or_default();
    match site.daemon.ask(order(action, id)).await {
        Ok(_) => json(&json!({"done": true})),
        Err(error) => failed(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_that_came_in_part_waits_for_the_rest() {
        let text = "grün".as_bytes();
        assert_eq!(whole_characters(text), text.len());
        assert_eq!(whole_characters(&text[..3]), 2);
        assert_eq!(whole_characters(&text[2..3]), 1, "alone it is told as it is, so that reading goes on");
        assert_eq!(whole_characters(&[b'a', 0xff, b'b']), 3);
    }

    #[test]
    fn who_holds_cpus_is_asked_for_without_what_waits() {
        let [of_actor, of_none] = OF_BOTH_KINDS;
        let row = |stage| TaskRow { task_id: of_none, stage, ..TaskRow::default() };
        let stages = [
            TaskStage::WaitsForArguments,
            TaskStage::WaitsForWorker,
            TaskStage::Sent,
            TaskStage::Runs,
            TaskStage::Finished,
            TaskStage::Failed,
        ];
        let of_actor = TaskRow { task_id: of_actor, ..row(TaskStage::Sent) };
        let rows = stages.map(row).into_iter().chain([of_actor]).collect();
        let report = oxiray_state::list(&begun_query(), rows).expect("an answer");
        let told: Vec<TaskStage> = tasks_of(&report).iter().map(|row| row.stage).collect();
        assert_eq!(told, [TaskStage::Runs, TaskStage::Finished, TaskStage::Failed]);
        let report = StateReport { total: 10_001, missing: "one is silent".into(), ..report };
        let note = note_of_cpus(&report, &PageTables::default()).unwrap_or_default();
        assert_eq!(note, "10001 tasks began; 10000 of them are looked at. one is silent");
    }

    #[test]
    fn the_head_looks_at_the_conditions_that_it_knows() {
        let query = [("name", "f"), ("node_name", "x"), ("key", "ab:1"), ("limit", "3")];
        let asked = Asked::read(query.map(|(name, value)| (name.to_owned(), value.to_owned()))).expect("a question");
        let query = state_query(StateKind::Tasks, &asked, &["name", "state"]);
        let told: Vec<_> = query.filters.iter().map(|filter| (filter.key.as_str(), filter.value.as_str())).collect();
        assert_eq!(told, [("name", "f"), ("task_id", "ab")]);
    }
}
