//! Metrics, as Prometheus scrapes them: those of this node and, on the head's, of the cluster; and where to scrape.
//!
//! - SCRAPE-1: the daemon is asked at most once in [`FRESH`], however many scrape.

use crate::answer::{Answer, answer, text, unanswered};
use crate::routes::{Request, Route, Site, route};
use http::StatusCode;
use oxiray_ray_api::discovery::targets;
use oxiray_visitor::VisitError;
use oxiray_wire::message::{MetricsQuery, StateQuery};
use oxiray_wire::session::PROMETHEUS_TARGETS;
use oxiray_wire::state::StateKind;
use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long a text of metrics is told again.
const FRESH: Duration = Duration::from_secs(1);
/// How often it is looked whether nodes came or went.
const LOOKED_FOR_NODES: Duration = Duration::from_secs(5);
/// Ray's variable that says how many series there are; `low` leaves names out.
const CARDINALITY: &str = "RAY_metric_cardinality_level";
/// The most nodes that are told of.
const NODES_MAX: u32 = 10_000;
/// The format of Prometheus, in the version that all of its scrapers read.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Where metrics are scraped.
pub(crate) const PATH: &str = "/metrics";

/// What is answered where metrics are exported and nothing else.
pub(crate) const EXPORTED: &[Route] = &[route!("GET", "/metrics", metrics)];
/// What is answered beside the dashboard's lists.
pub(crate) const ROUTES: &[Route] = &[route!("GET", "/api/prometheus/sd", discovery)];

/// The last text of metrics.
pub(crate) type Cache = RefCell<Option<(Instant, String)>>;

async fn metrics(site: Rc<Site>, _: Request) -> Answer {
    let known = site.metrics.borrow().clone().filter(|(at, _)| at.elapsed() < FRESH);
    if let Some((_, known)) = known {
        return answer(StatusCode::OK, TEXT, known);
    }
    let leaves_names_out = std::env::var(CARDINALITY).is_ok_and(|level| level == "low");
    match site.daemon.ask(MetricsQuery { is_export: true, leaves_names_out, ..MetricsQuery::default() }).await {
        Ok(report) => {
            *site.metrics.borrow_mut() = Some((Instant::now(), report.text.clone()));
            answer(StatusCode::OK, TEXT, report.text)
        }
        Err(error) => unanswered(&error),
    }
}

/// For Prometheus' discovery over HTTP.
async fn discovery(site: Rc<Site>, _: Request) -> Answer {
    match exporting(&site).await {
        Ok(body) => answer(StatusCode::OK, "application/json; charset=utf-8", body),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// The nodes that export metrics, in the form of Prometheus.
async fn exporting(site: &Site) -> Result<String, VisitError> {
    let asked = StateQuery { kind: StateKind::Nodes, limit: NODES_MAX, detail: true, ..StateQuery::default() };
    let report = site.daemon.ask(asked).await?;
    oxiray_visitor::json::check(report.version)?;
    let tables = report.tables.unwrap_or_default();
    Ok(targets(&tables.nodes, &tables.measured))
}

/// Keeps the file by which Prometheus finds the nodes, as long as the head is there.
pub(crate) async fn keep_discovery_file(site: Rc<Site>) {
    let path = site.session.join(PROMETHEUS_TARGETS);
    let mut written = None;
    let mut ticks = tokio::time::interval(LOOKED_FOR_NODES);
    loop {
        ticks.tick().await;
        let Ok(body) = exporting(&site).await else { continue };
        if written.as_ref() != Some(&body) && replace(&path, &body).is_ok() {
            written = Some(body);
        }
    }
}

/// Readers find the old file or the new one, and never a part.
fn replace(path: &Path, body: &str) -> io::Result<()> {
    let fresh = path.with_extension(format!("json.{}", std::process::id()));
    fs::write(&fresh, body)?;
    fs::rename(&fresh, path)
}
