//! Which request goes where: a table, looked through by method and path (`paths.rs`).

use crate::answer::{Answer, not_found, text};
use crate::audit::{Asker, Audit, Noted};
use crate::daemon::Daemon;
use crate::page::Page;
use crate::paths::{decode, matched};
use crate::profiles::Profiles;
use crate::uploads::Uploads;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use oxiray_network::porch::{PorchRules, Right};
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// What every answer may need.
#[derive(Debug)]
pub(crate) struct Site {
    /// The daemon of the head.
    pub(crate) daemon: Daemon,
    /// The directory of its session.
    pub(crate) session: PathBuf,
    /// What the page is answered from.
    pub(crate) page: Rc<Page>,
    /// What the door goes by.
    pub(crate) rules: Arc<PorchRules>,
    /// One job is submitted at a time, so that a name is seen to be taken.
    pub(crate) submitting: tokio::sync::Mutex<()>,
    /// What was uploaded.
    pub(crate) uploads: Uploads,
    /// The last text of metrics.
    pub(crate) metrics: crate::metrics::Cache,
    /// What is answered.
    pub(crate) tables: &'static [&'static [Route]],
    /// Places of those who are told lists of the cluster's state.
    pub(crate) lists: tokio::sync::Semaphore,
    /// Profiles that are taken, and the last ones.
    pub(crate) profiles: Profiles,
    /// Events of the cluster are asked for by one at a time.
    pub(crate) chronicle: tokio::sync::Mutex<()>,
    /// Where it is recorded who does what.
    pub(crate) audit: Rc<Audit>,
}

/// How a query names a process.
const PROCESSES: [&str; 4] = ["worker_id", "actor_id", "task_id", "pid"];

/// One request.
#[derive(Debug)]
pub(crate) struct Request {
    /// What the path names, in the order of the route's braces.
    pub(crate) named: Vec<String>,
    /// Its head.
    pub(crate) head: Parts,
    /// Its body, which was not read.
    pub(crate) body: Incoming,
    /// What whoever asks may do.
    pub(crate) right: Right,
    /// Whether a browser asks.
    pub(crate) is_from_browser: bool,
    /// Who asks.
    pub(crate) asker: Asker,
    /// What is found out for the record.
    pub(crate) noted: Rc<Noted>,
}

/// Why a body was not taken.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// It is longer than it may be.
    TooLong,
    /// It does not come.
    Gone,
}

impl Request {
    /// The parameters of the query, decoded; those that cannot be are left out.
    pub(crate) fn query(&self) -> Vec<(String, String)> {
        let pairs = self.head.uri.query().unwrap_or_default().split('&');
        let decoded = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(&name.replace('+', " "))?, decode(&value.replace('+', " "))?))
        };
        pairs.filter(|pair| !pair.is_empty()).filter_map(decoded).collect()
    }

    /// What it is about, for the record: what its path names, or else the process that its query does.
    fn subject(&self) -> String {
        let process = || self.query().into_iter().find(|(name, _)| PROCESSES.contains(&name.as_str()));
        match self.named.as_slice() {
            [] => process().map_or_else(String::new, |(name, value)| format!("{name}={value}")),
            named => named.join("/"),
        }
    }

    /// The whole body, where it is not longer than this.
    pub(crate) async fn read(&mut self, limit: usize) -> Result<Bytes, BodyError> {
        let mut read = Vec::new();
        while let Some(frame) = self.body.frame().await {
            let Ok(data) = frame.map_err(|_| BodyError::Gone)?.into_data() else { continue };
            if read.len() + data.len() > limit {
                return Err(BodyError::TooLong);
            }
            read.extend_from_slice(&data);
        }
        Ok(read.into())
    }
}

/// What becomes of a request.
pub(crate) type Reply = Pin<Box<dyn Future<Output = Answer>>>;

/// What answers are made from, and by which rules and table.
pub(crate) trait Answers: Sized + 'static {
    /// What the door goes by.
    fn rules(&self) -> &PorchRules;

    /// What is answered.
    fn tables(&self) -> &'static [&'static [Route<Self>]];

    /// Where it is recorded who does what, where something can be done.
    fn audit(&self) -> Option<&Rc<Audit>>;
}

impl Answers for Site {
    fn rules(&self) -> &PorchRules {
        &self.rules
    }

    fn tables(&self) -> &'static [&'static [Route]] {
        self.tables
    }

    fn audit(&self) -> Option<&Rc<Audit>> {
        Some(&self.audit)
    }
}

/// A method, a path, and what answers.
#[derive(Debug)]
pub(crate) struct Route<S: 'static = Site>(
    pub(crate) &'static str,
    pub(crate) &'static str,
    pub(crate) fn(Rc<S>, Request) -> Reply,
);

/// Has a handler answer, whether or not it waits for something.
pub(crate) fn reply<S, F: Future<Output = Answer> + 'static>(
    handler: fn(Rc<S>, Request) -> F,
    site: Rc<S>,
    request: Request,
) -> Reply {
    Box::pin(handler(site, request))
}

/// A row of the table.
macro_rules! route {
    ($method:literal, $path:literal, $handler:path) => {
        crate::routes::Route($method, $path, |site, request| crate::routes::reply($handler, site, request))
    };
}
pub(crate) use route;

/// Answers a request.
pub(crate) async fn answer<S: Answers>(site: Rc<S>, mut request: Request) -> Answer {
    let path = request.head.uri.path().to_owned();
    // What may be read may be asked for without its body.
    let method = if request.head.method == Method::HEAD { Method::GET } else { request.head.method.clone() };
    let mut is_known = false;
    for Route(known, pattern, handler) in site.tables().iter().copied().flatten() {
        let Some(named) = matched(pattern, &path) else { continue };
        if *known == method {
            request.named = named;
            let asked = (request.head.method.as_str(), path.as_str());
            let act =
                site.audit().and_then(|audit| audit.begin(asked, request.asker, &request.subject(), &request.noted));
            let answer = handler(site, request).await;
            // AUDIT-1: that is written now.
            if let Some(act) = act {
                act.done(answer.status());
            }
            return answer;
        }
        is_known = true;
    }
    if is_known { text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed") } else { not_found() }
}
