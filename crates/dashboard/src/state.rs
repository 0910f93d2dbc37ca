//! Lists of the cluster's state, as Ray's client and its page ask for them.
//!
//! - LISTS-1: at most [`LISTS_MAX`] of these are answered at once; whoever asks for more is told so at once, as by Ray.

use crate::answer::{Answer, answer};
use crate::jobs;
use crate::routes::{Request, Route, Site, route};
use http::StatusCode;
use oxiray_ray_api::cluster_status;
use oxiray_ray_api::nodes::{self, ClusterView};
use oxiray_ray_api::state::{self, ListAsked, refused};
use oxiray_ray_api::{RayAnswer, jobs::JobDetails};
use oxiray_visitor::{Remembered, VisitError, json};
use oxiray_wire::message::{ChronicleFollow, ClusterQuery, StateQuery, StateReport};
use oxiray_wire::state::{ChronicleEntry, StateKind, Tables};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// As many as Ray.
pub(crate) const LISTS_MAX: usize = 100;
/// The most rows that are asked for at once.
const ROWS_MAX: u32 = 10_000;

/// Their paths.
pub(crate) const ROUTES: &[Route] = &[
    route!("GET", "/api/cluster_status", status),
    route!("GET", "/api/v0/cluster_metadata", metadata),
    route!("GET", "/api/v0/tasks/timeline", timeline),
    route!("GET", "/api/v0/cluster_events", events),
    route!("GET", "/api/v0/{}", list),
    route!("GET", "/api/v0/{}/summarize", summarize),
    route!("GET", "/nodes", all_nodes),
    route!("GET", "/nodes/{}", one_node),
    route!("GET", "/logical/actors", all_actors),
    route!("GET", "/logical/actors/{}", one_actor),
];

/// An answer of Ray's.
pub(crate) fn told(told: RayAnswer) -> Answer {
    let status = StatusCode::from_u16(told.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer(status, "application/json; charset=utf-8", told.body)
}

/// LISTS-1.
pub(crate) fn has_too_many() -> Answer {
    let text = format!(
        "Max number of in-progress requests={LISTS_MAX} reached. Ask again when some of them are answered, or for fewer rows \
         with filters."
    );
    told(refused(429, &text))
}

/// Asks the head as long as the client waits.
async fn ask(site: &Site, asked: StateQuery, limit: Duration) -> Result<StateReport, RayAnswer> {
    let asking = tokio::time::timeout(limit, site.daemon.ask(asked));
    let report = asking.await.map_err(|_| VisitError::NoAnswer(limit)).and_then(|answered| answered);
    let checked = report.and_then(|report| {
        oxiray_visitor::json::check(report.version)?;
        Ok(report)
    });
    checked.map_err(|error| refused(500, &format!("Failed to query the data source: {error}")))
}

async fn report(site: &Site, asked: &ListAsked) -> Result<StateReport, RayAnswer> {
    ask(site, asked.query.clone(), Duration::from_secs(asked.timeout_s)).await
}

/// `/api/v0/{kind}`.
async fn list(site: Rc<Site>, request: Request) -> Answer {
    let Ok(_turn) = site.lists.try_acquire() else { return has_too_many() };
    let Some(kind) = state::kind(&request.named[0]) else { return crate::answer::not_found() };
    told(listed(&site, &request, kind).await.unwrap_or_else(|refusal| refusal))
}

async fn listed(site: &Site, request: &Request, kind: StateKind) -> Result<RayAnswer, RayAnswer> {
    let asked = state::asked(kind, &request.query())?;
    let mut report = report(site, &asked).await?;
    if kind != StateKind::Jobs {
        return Ok(state::listed(&asked, &report, request.is_from_browser));
    }
    let mut rows = report.tables.take().unwrap_or_default().jobs;
    rows.sort_by(|one, other| {
        one.driver.as_ref().map(|driver| driver.job).cmp(&other.driver.as_ref().map(|driver| driver.job))
    });
    let details: Vec<JobDetails> = rows.iter().map(|row| jobs::told(site, request, row)).collect();
    Ok(state::listed_jobs(&asked, &report, &details))
}

/// `/api/v0/cluster_events`.
async fn events(site: Rc<Site>, request: Request) -> Answer {
    let Ok(_turn) = site.lists.try_acquire() else { return has_too_many() };
    let listed = async {
        let asked = state::events_asked(&request.query())?;
        let remembered = chronicle(&site).await;
        let rows = remembered
            .and_then(|(origin, entries)| Ok(json::events((origin, &entries), &asked.filters, asked.limit as usize)?));
        let (rows, total) = rows.map_err(|error| refused(500, &format!("Failed to query the data source: {error}")))?;
        Ok::<_, RayAnswer>(state::listed_events(&asked, &rows, total))
    };
    told(listed.await.unwrap_or_else(|refusal| refusal))
}

/// All events of the cluster that the head remembers, and the number that tells this head's from another's.
async fn chronicle(site: &Site) -> Result<(u64, Vec<ChronicleEntry>), VisitError> {
    // The head answers the last such question of a connection.
    let _turn = site.chronicle.lock().await;
    let mut remembered = Remembered::default();
    loop {
        let (kinds, cursor) = (json::EVENT_KINDS.to_vec(), Some(remembered.cursor));
        let batch = site.daemon.ask(ChronicleFollow { kinds, cursor, ..ChronicleFollow::default() }).await?;
        if !remembered.take(batch)? {
            return Ok((remembered.cursor.origin, remembered.entries));
        }
    }
}

/// `/api/v0/{kind}/summarize`.
async fn summarize(site: Rc<Site>, request: Request) -> Answer {
    let Ok(_turn) = site.lists.try_acquire() else { return has_too_many() };
    let counted = [StateKind::Tasks, StateKind::Actors, StateKind::Objects];
    let Some(kind) = state::kind(&request.named[0]).filter(|kind| counted.contains(kind)) else {
        return crate::answer::not_found();
    };
    let counts = async {
        let asked = state::counts_asked(kind, &request.query())?;
        Ok::<_, RayAnswer>(state::counted(&asked, &report(&site, &asked).await?))
    };
    told(counts.await.unwrap_or_else(|refusal| refusal))
}

/// All rows of a kind.
pub(crate) async fn rows(site: &Site, kind: StateKind) -> Result<Tables, RayAnswer> {
    let asked = StateQuery { kind, limit: ROWS_MAX, detail: true, ..StateQuery::default() };
    Ok(ask(site, asked, Duration::from_secs(30)).await?.tables.unwrap_or_default())
}

/// `/api/v0/tasks/timeline`.
async fn timeline(site: Rc<Site>, request: Request) -> Answer {
    let Ok(_turn) = site.lists.try_acquire() else { return has_too_many() };
    let query = request.query();
    let of = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let made = async {
        let (tasks, nodes) = (rows(&site, StateKind::Timeline).await?, rows(&site, StateKind::Nodes).await?);
        Ok::<_, RayAnswer>(nodes::timeline(&tasks.tasks, &nodes.nodes, of("job_id")))
    };
    let mut answer = told(made.await.unwrap_or_else(|refusal| refusal));
    if of("download") == Some("1") {
        let named = http::HeaderValue::from_static("attachment; filename=\"timeline.json\"");
        answer.headers_mut().insert(http::header::CONTENT_DISPOSITION, named);
    }
    answer
}

/// `/api/v0/cluster_metadata`.
async fn metadata(_: Rc<Site>, _: Request) -> Answer {
    told(nodes::cluster_metadata())
}

/// `/api/cluster_status`.
async fn status(site: Rc<Site>, request: Request) -> Answer {
    let Ok(_turn) = site.lists.try_acquire() else { return has_too_many() };
    let report = site.daemon.ask(ClusterQuery::default()).await;
    match report.and_then(|report| Ok(oxiray_visitor::json::cluster(report)?)) {
        Ok(state) => {
            let is_formatted = request.query().contains(&("format".to_owned(), "1".to_owned()));
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            told(cluster_status::answer(&state, is_formatted, (now.as_secs(), now.subsec_micros())))
        }
        Err(error) => told(refused(500, &error.to_string())),
    }
}

/// What answers on nodes and actors are made of.
struct Known {
    nodes: Tables,
    workers: Tables,
    actors: Tables,
}

impl Known {
    async fn of(site: &Site) -> Result<Self, RayAnswer> {
        Ok(Self {
            nodes: rows(site, StateKind::Nodes).await?,
            workers: rows(site, StateKind::Workers).await?,
            actors: rows(site, StateKind::Actors).await?,
        })
    }

    fn view(&self) -> ClusterView<'_> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        ClusterView {
            nodes: &self.nodes.nodes,
            measured: &self.nodes.measured,
            workers: &self.workers.workers,
            actors: &self.actors.actors,
            now_ms: now.as_millis() as u64,
        }
    }
}

async fn view(site: &Site, shown: impl FnOnce(&ClusterView<'_>) -> RayAnswer) -> Answer {
    let Ok(_turn) = site.lists.try_acquire() else { return has_too_many() };
    match Known::of(site).await {
        Ok(known) => told(shown(&known.view())),
        Err(refusal) => told(refusal),
    }
}

/// `/nodes?view=`.
#[expect(clippy::redundant_closure_for_method_calls, reason = "the path of a method is for one lifetime, not for any")]
async fn all_nodes(site: Rc<Site>, request: Request) -> Answer {
    let query = request.query();
    let asked = query.iter().find(|(key, _)| key == "view").map(|(_, value)| value.to_lowercase());
    match asked.as_deref() {
        Some("summary") => view(&site, |cluster| cluster.summary()).await,
        Some("hostnamelist") => view(&site, |cluster| cluster.host_names()).await,
        other => {
            let text = format!("Unknown view {}: there are summary and hostNameList", other.unwrap_or("None"));
            told(refused(500, &text))
        }
    }
}

async fn one_node(site: Rc<Site>, request: Request) -> Answer {
    view(&site, |cluster| cluster.detail(&request.named[0])).await
}

async fn all_actors(site: Rc<Site>, request: Request) -> Answer {
    let query = request.query();
    let ids = query.iter().find(|(key, _)| key == "ids").map(|(_, value)| value.as_str());
    view(&site, |cluster| cluster.logical_actors(ids)).await
}

async fn one_actor(site: Rc<Site>, request: Request) -> Answer {
    view(&site, |cluster| cluster.logical_actor(&request.named[0])).await
}
