//! What the page asks of a history: the same as of a living cluster, each as it was at the moment `at`.

use super::line::SCHEMA;
use super::past::Past;
use super::processors;
use crate::answer::{Answer, pieces, text};
use crate::audit::Audit;
use crate::page::counts::{by_job, by_name};
use crate::page::cpus::CpuHolder;
use crate::page::merging::{Part, Window};
use crate::page::replies::reply;
use crate::page::rows::{Asked, Row, listed, listed_unread};
use crate::page::tables::Tables;
use crate::page::views::{asked_job, event_rows, grant_rows, number, parameter, part, span, window, wrong};
use crate::page::{lists, pictures};
use crate::page_api::{begin_session, lend_key};
use crate::routes::{Answers, Request, Route, route};
use http::StatusCode;
use oxiray_ids::{JobId, NodeId};
use oxiray_network::porch::PorchRules;
use oxiray_wire::state::{AttemptCount, Severity};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How often a page that looks at history hears that it is still there.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The lists whose rows stand in the files as the page shows them.
pub(crate) const KEPT: [&str; 5] = ["jobs", "tasks", "actors", "placement_groups", "workers"];
/// The lists that are made of how the cluster was.
pub(crate) const MADE: [&str; 5] = ["nodes", "devices", "waiting", "events", "runs"];
/// What is answered where a history has nothing.
const NOTHING: &str = "this is a history: it has neither what jobs printed nor why something waits now";

/// The paths.
pub(crate) const ROUTES: &[Route<Archive>] = &[
    route!("POST", "/ox/v1/keys", lend_key),
    route!("POST", "/ox/v1/session", begin_session),
    route!("GET", "/ox/v1/overview", overview),
    route!("GET", "/ox/v1/rows/{}", rows),
    route!("GET", "/ox/v1/names/tasks", task_names),
    route!("GET", "/ox/v1/names/jobs", task_jobs),
    route!("GET", "/ox/v1/holdings", holdings),
    route!("GET", "/ox/v1/map", map),
    route!("GET", "/ox/v1/series", series),
    route!("GET", "/ox/v1/live", live),
    route!("GET", "/ox/v1/explain/{}", nothing),
    route!("GET", "/ox/v1/jobs/{}/log", nothing),
];
const TABLES: &[&[Route<Archive>]] = &[ROUTES];

/// What counts are made of. Texts without a sign that JSON escapes are read where they stand.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named<'past> {
    #[serde(borrow)]
    job_id: Option<Cow<'past, str>>,
    #[serde(borrow)]
    name: Option<Cow<'past, str>>,
    #[serde(borrow)]
    state: Option<Cow<'past, str>>,
}

/// A history, and how it was at the moment that was looked at last.
#[derive(Debug)]
pub(crate) struct Archive {
    rules: Arc<PorchRules>,
    past: Past,
    last: RefCell<Option<(u64, Rc<Tables>)>>,
}

impl Answers for Archive {
    fn rules(&self) -> &PorchRules {
        &self.rules
    }

    fn tables(&self) -> &'static [&'static [Route<Self>]] {
        TABLES
    }

    fn audit(&self) -> Option<&Rc<Audit>> {
        None
    }
}

impl Archive {
    /// One of that history.
    pub(crate) fn new(past: Past, rules: Arc<PorchRules>) -> Self {
        Self { rules, past, last: RefCell::default() }
    }

    /// What was read.
    pub(crate) fn past(&self) -> &Past {
        &self.past
    }

    /// A moment within the history.
    pub(crate) fn within(&self, at_ms: Option<u64>) -> u64 {
        let (begun, until) = self.past.span();
        at_ms.map_or(until, |at| at.clamp(begun, until))
    }

    /// The page's tables as they were.
    pub(crate) fn tables_at(&self, at_ms: u64) -> Rc<Tables> {
        let mut last = self.last.borrow_mut();
        if let Some((_, tables)) = last.as_ref().filter(|(at, _)| *at == at_ms) {
            return Rc::clone(tables);
        }
        let tables = Rc::new(self.past.tables(at_ms));
        *last = Some((at_ms, Rc::clone(&tables)));
        tables
    }

    /// The rows of a list as they were; nothing where there is no such list.
    pub(crate) fn rows_at(&self, list: &str, at_ms: u64) -> Option<Vec<Row>> {
        let tables = self.tables_at(at_ms);
        Some(match list {
            "nodes" => lists::nodes(&tables),
            "devices" => lists::devices(&tables),
            "waiting" => lists::waiting(&tables),
            "runs" => tables.runs.rows(),
            "events" => tables.events.rows(&tables.names, Severity::Info, (0, u64::MAX)),
            "jobs" => self.past.jobs(at_ms, &tables),
            list if KEPT.contains(&list) => self.past.rows(list, at_ms),
            "objects" => Vec::new(),
            _ => return None,
        })
    }

    /// What a history is, for who looks at it.
    pub(crate) fn about(&self, at_ms: u64) -> Json {
        let (begun_ms, until_ms) = self.past.span();
        let begin = self.past.begin();
        json!({
            "schema": SCHEMA, "session": begin.session, "cluster": begin.cluster, "version": begin.version, "begun_ms": begun_ms,
            "until_ms": until_ms, "at_ms": at_ms, "seams": self.past.seams(), "gaps": self.past.gaps(), "notes": self.past.notes(),
        })
    }

    /// The cluster in short as it was.
    pub(crate) fn overview_at(&self, at_ms: u64) -> Json {
        let mut told = pictures::overview(&self.tables_at(at_ms));
        let begin = self.past.begin();
        let count = |list: &str, is: &dyn Fn(&str) -> bool| {
            self.past.read::<Named<'_>>(list, at_ms).filter(|row| is(row.state.as_deref().unwrap_or_default())).count()
        };
        told["session"] = begin.session.clone().into();
        told["address"] = begin.cluster.clone().into();
        told["version"] = begin.version.clone().into();
        told["jobs"] = json!({"RUNNING": count("jobs", &|state| state == "RUNNING")});
        told["actors"] = count("actors", &|state| state != "DEAD").into();
        told["groups"] = count("placement_groups", &|state| state != "REMOVED").into();
        told["processes"] = count("workers", &|state| state != "DEAD").into();
        told["warnings"] = json!(self.past.notes());
        told["may_write"] = false.into();
        told["history"] = self.about(at_ms);
        told
    }

    /// How many tasks of each job and name were how far.
    fn attempts_at(&self, at_ms: u64) -> Vec<AttemptCount> {
        let mut counts: BTreeMap<(Option<JobId>, String, String), u64> = BTreeMap::new();
        for row in self.past.read::<Named<'_>>("tasks", at_ms) {
            let job = row.job_id.as_deref().and_then(|job| JobId::from_hex(job).ok());
            let (name, state) = (row.name.unwrap_or_default(), row.state.unwrap_or_default());
            *counts.entry((job, name.into_owned(), state.into_owned())).or_default() += 1;
        }
        let told = |((job_id, name, state), count)| AttemptCount { job_id, name, state, count };
        counts.into_iter().map(told).collect()
    }

    /// How many tasks of each name were how far.
    pub(crate) fn task_names_at(&self, at_ms: u64, job: Option<JobId>) -> Json {
        by_name(&self.attempts_at(at_ms), job, "")
    }

    /// How many tasks of each job were how far.
    pub(crate) fn task_jobs_at(&self, at_ms: u64) -> Json {
        by_job(&self.attempts_at(at_ms))
    }

    /// Who held devices between two moments; or CPUs, where there were no devices.
    pub(crate) fn holdings_at(&self, at_ms: u64, (window, part): (Window, Part)) -> Json {
        let tables = self.tables_at(at_ms);
        match self.cpu_holders_at(at_ms) {
            Some(holders) => pictures::cpu_holdings(&tables, &holders, self.past.span().0, (window, part)),
            None => pictures::holdings(&tables, window, part),
        }
    }

    /// Who held CPUs until a moment, for a cluster without devices.
    pub(crate) fn cpu_holders_at(&self, at_ms: u64) -> Option<Vec<CpuHolder>> {
        self.tables_at(at_ms).is_without_devices().then(|| processors::holders(&self.past, at_ms))
    }

    /// The same as rows, and what is to be said of them.
    fn grants_at(&self, at_ms: u64, asked: &mut Asked) -> Result<(Vec<Row>, Option<String>), String> {
        let tables = self.tables_at(at_ms);
        let is_of_device = asked.key().is_some_and(|key| key.parse::<u64>().is_ok());
        match self.cpu_holders_at(at_ms).filter(|_| !is_of_device) {
            Some(holders) => Ok((lists::cpu_grants(&tables, &holders, span(asked)?), None)),
            None => grant_rows(&tables, asked),
        }
    }

    /// Writes everything as it was, as one JSON object, a row at a time.
    pub(crate) fn write(&self, at_ms: u64, out: &mut impl Write) -> io::Result<()> {
        let about = self.about(at_ms).to_string();
        write!(out, "{}", about.trim_end_matches('}'))?;
        for list in KEPT.iter().chain(&MADE) {
            write!(out, ",\"{list}\":[")?;
            let is_made = MADE.contains(list) || *list == "jobs";
            let mut comma = "";
            if is_made {
                for row in in_order(self.rows_at(list, at_ms).unwrap_or_default(), usize::MAX) {
                    write!(out, "{comma}{row}")?;
                    comma = ",";
                }
            } else {
                for row in self.past.texts(list, at_ms) {
                    // It has a key and then at least its state.
                    let (key, cells) = (Json::from(row.key), row.cells.trim_start_matches('{'));
                    write!(out, "{comma}{{\"key\":{key}{}{cells}", if cells == "}" { "" } else { "," })?;
                    comma = ",";
                }
            }
            write!(out, "]")?;
        }
        writeln!(out, "}}")
    }
}

/// Rows as the page has them, the highest first.
pub(crate) fn in_order(mut rows: Vec<Row>, most: usize) -> Vec<Json> {
    rows.sort_by(|one, other| other.rank.cmp(&one.rank).then_with(|| one.key.cmp(&other.key)));
    rows.truncate(most);
    let keyed = |row: Row| {
        let mut cells: Map<String, Json> = row.cells;
        cells.insert("key".to_owned(), row.key.into());
        Json::Object(cells)
    };
    rows.into_iter().map(keyed).collect()
}

/// The moment that a request is of.
fn moment(archive: &Archive, request: &Request) -> Result<u64, String> {
    let at = parameter(request, "at").map(|_| number(request, "at", 0)).transpose()?;
    Ok(archive.within(at))
}

async fn overview(archive: Rc<Archive>, request: Request) -> Answer {
    match moment(&archive, &request) {
        Ok(at) => reply(&request, &archive.overview_at(at)),
        Err(said) => wrong(said),
    }
}

async fn rows(archive: Rc<Archive>, request: Request) -> Answer {
    let asked = moment(&archive, &request).and_then(|at| Ok((at, Asked::read(request.query())?)));
    let (at, mut asked) = match asked {
        Ok(asked) => asked,
        Err(said) => return wrong(said),
    };
    asked.take("at");
    let list = request.named.first().map(String::as_str).unwrap_or_default();
    let tables = archive.tables_at(at);
    let (rows, note) = match list {
        "grants" => match archive.grants_at(at, &mut asked) {
            Ok(told) => told,
            Err(said) => return wrong(said),
        },
        "events" => match event_rows(&tables, &mut asked) {
            Ok(told) => (told, None),
            Err(said) => return wrong(said),
        },
        "objects" => (Vec::new(), Some("References to objects are not recorded.".to_owned())),
        list if KEPT.contains(&list) && list != "jobs" => {
            return reply(&request, &listed_unread(archive.past.texts(list, at), &asked, None));
        }
        list => match archive.rows_at(list, at) {
            Some(rows) => (rows, None),
            None => return text(StatusCode::NOT_FOUND, format!("there is no list `{list}`")),
        },
    };
    reply(&request, &listed(rows, &asked, note.as_deref()))
}

async fn task_names(archive: Rc<Archive>, request: Request) -> Answer {
    match moment(&archive, &request).and_then(|at| Ok((at, asked_job(&request)?))) {
        Ok((at, job)) => reply(&request, &archive.task_names_at(at, job)),
        Err(said) => wrong(said),
    }
}

async fn task_jobs(archive: Rc<Archive>, request: Request) -> Answer {
    match moment(&archive, &request) {
        Ok(at) => reply(&request, &archive.task_jobs_at(at)),
        Err(said) => wrong(said),
    }
}

async fn holdings(archive: Rc<Archive>, request: Request) -> Answer {
    let asked = moment(&archive, &request).and_then(|at| Ok((at, window(&request, at)?, part(&request)?)));
    match asked {
        Ok((at, window, part)) => reply(&request, &archive.holdings_at(at, (window, part))),
        Err(said) => wrong(said),
    }
}

async fn map(archive: Rc<Archive>, request: Request) -> Answer {
    match moment(&archive, &request) {
        Ok(at) => reply(&request, &lists::map(&archive.tables_at(at))),
        Err(said) => wrong(said),
    }
}

async fn series(archive: Rc<Archive>, request: Request) -> Answer {
    let at = match moment(&archive, &request) {
        Ok(at) => at,
        Err(said) => return wrong(said),
    };
    let tables = archive.tables_at(at);
    let node = parameter(&request, "node").and_then(|node| NodeId::from_hex(&node).ok());
    match (parameter(&request, "of").as_deref(), node) {
        (Some("store"), _) => reply(&request, &pictures::store_chart(&tables)),
        (Some("node"), Some(node)) => reply(&request, &pictures::node_chart(&tables, node)),
        (Some("run"), _) => {
            let key = parameter(&request, "run").unwrap_or_default();
            reply(&request, &pictures::run_chart(&tables, &key))
        }
        _ => wrong("there are series of=store, of=node with node=IDENTIFIER, and of=run with run=KEY"),
    }
}

async fn nothing(_: Rc<Archive>, _: Request) -> Answer {
    text(StatusCode::NOT_FOUND, NOTHING)
}

/// One line, and then only that the server is still there: history does not change.
async fn live(archive: Rc<Archive>, _: Request) -> Answer {
    let (answer, sender) = pieces("application/x-ndjson");
    tokio::task::spawn_local(async move {
        let (_, until) = archive.past.span();
        let first = json!({"seq": 1, "now_ms": until, "until_ms": until, "changed": [], "overview": archive.overview_at(until)});
        let mut line = format!("{first}\n");
        let again = json!({"seq": 1, "now_ms": until, "until_ms": until, "changed": []});
        while sender.send(line.into()).await.is_ok() {
            line = format!("{again}\n");
            tokio::select! {
                () = sender.closed() => return,
                () = tokio::time::sleep(HEARTBEAT) => {}
            }
        }
    });
    answer
}
