//! The program: the door, and behind it HTTP, in one thread each.

use crate::answer::{Answer, answer, refused};
use crate::audit::{self, Asker, Audit, Noted};
use crate::certificate::Certificate;
use crate::daemon::Daemon;
use crate::history::{Asked as HistoryAsked, Past, Recorder, Recording, read};
use crate::log::say;
use crate::options::{HealthOptions, Options};
use crate::page::Page;
use crate::profiles::Profiles;
use crate::routes::{self, Answers, Request, Site};
use crate::state::LISTS_MAX;
use crate::stream::{Hyper, Stream, Timers};
use crate::table::{EXPORT, TABLES};
use crate::uploads::Uploads;
use crate::{access, address, metrics};
use anyhow::Context as _;
use http::{Request as Asked, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use oxiray_network::porch::{
    HEAD_BYTES_MAX, HEAD_LIMIT, OpenPath, Porch, PorchOptions, PorchRules, PorchVerdict, ProvenPeer, RefusedRequest,
    RequestHead,
};
use oxiray_visitor::Description;
use oxiray_wire::session::logs_of;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, setrlimit};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

/// The most memory that this process may have of its own, in bytes.
const MEMORY_BYTES_MAX: u64 = 512 << 20;
/// How much memory what is read of history at the start may take, in bytes, and how long that may take.
const PAST_BYTES_MAX: usize = 64 << 20;
const PAST_LIMIT: Duration = Duration::from_secs(10);
/// What probes ask, which send no token.
const HEALTH: [&str; 3] = ["/api/gcs_healthz", "/api/healthz", "/api/local_raylet_healthz"];
/// The page.
pub(crate) const PAGE: &[OpenPath] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// Serves until the daemon or a signal ends it.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    end_with_daemon(options.daemon)?;
    limit_memory()?;
    if options.metrics_only {
        address::check_metrics(options)?;
    } else if options.record_only {
        return record(options);
    } else {
        address::check_plaintext(options)?;
    }
    let rules = PorchRules {
        hosts: address::hosts(&options.allow_hosts, |name| std::env::var(name).ok()),
        open: open(options.metrics_only),
        public: if options.metrics_open { vec![metrics::PATH] } else { Vec::new() },
        ..PorchRules::default()
    };
    access::add_tokens(&rules.keys, &options.session)?;
    block_on(serve(options, Arc::new(rules)))
}

/// Runs until this is over. A thread that waits for a disk or for storage then is not waited for.
pub(crate) fn block_on(serving: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = LocalSet::new().block_on(&runtime, serving);
    runtime.shutdown_background();
    result
}

/// What leaks here ends this process, which is started again, and not the machine's others.
pub(crate) fn limit_memory() -> anyhow::Result<()> {
    let limit = Rlimit { current: Some(MEMORY_BYTES_MAX), maximum: Some(MEMORY_BYTES_MAX) };
    setrlimit(Resource::Data, limit)?;
    let files = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files })?)
}

/// What is answered to everybody.
pub(crate) fn open(is_without_page: bool) -> Vec<OpenPath> {
    let mode = br#"{"authentication_mode": "token"}"#;
    let content_type = "application/json; charset=utf-8";
    let mode = OpenPath { path: "/api/authentication_mode", content_type, body: mode.as_slice(), packed: b"" };
    let page = PAGE.iter().copied().filter(|_| !is_without_page);
    health().into_iter().chain([mode]).chain(page).collect()
}

/// What probes are answered.
fn health() -> [OpenPath; 3] {
    let content_type = "application/text; charset=utf-8";
    HEALTH.map(|path| OpenPath { path, content_type, body: b"success".as_slice(), packed: b"" })
}

/// Tells that the node is healthy until the daemon or a signal ends it.
pub(crate) fn tell_health(options: &HealthOptions) -> anyhow::Result<()> {
    end_with_daemon(options.daemon)?;
    limit_memory()?;
    block_on(async {
        let mut asks_to_end = signal(SignalKind::terminate())?;
        let porch = open_health(Ipv4Addr::LOCALHOST.into(), options.port, Vec::new())?;
        say(&format!("the node's health is served at {}", porch.address()));
        asks_to_end.recv().await;
        Ok(())
    })
}

/// Records history until the daemon or a signal ends it, and answers nobody.
fn record(options: &Options) -> anyhow::Result<()> {
    let recording = options.recording().context("--record-only is of use with --history")?;
    block_on(async {
        let daemon = Daemon::enter_reading(&options.session)?;
        let mut asks_to_end = signal(SignalKind::terminate())?;
        let recorder = begin_history(options, recording)?;
        let result = tokio::select! {
            error = daemon.hear() => Err(error.context("the daemon is gone")),
            _ = asks_to_end.recv() => Ok(()),
            never = recorder.keep(say) => match never {},
        };
        recorder.finish().await;
        result
    })
}

/// A recorder of this session, and where it records, for whoever looks for it.
fn begin_history(options: &Options, recording: Recording) -> anyhow::Result<Rc<Recorder>> {
    address::tell_history(&options.session, &recording.place)?;
    say(&format!("history is recorded at {}", recording.place));
    Ok(Recorder::new(recording, &options.session))
}

/// What this session's history says of the time before this program began, where that is soon read.
async fn past(options: &Options, recording: &Recording) -> Option<Past> {
    let session = options.session.file_name()?.to_string_lossy().into_owned();
    let asked =
        HistoryAsked { place: recording.place.clone(), session: Some(session), job: None, most_bytes: PAST_BYTES_MAX };
    let reading = tokio::task::spawn_blocking(move || read(&asked).ok());
    tokio::time::timeout(PAST_LIMIT, reading).await.ok()?.ok()?
}

async fn serve(options: &Options, rules: Arc<PorchRules>) -> anyhow::Result<()> {
    // Who only exports metrics gives no orders.
    let enter = if options.metrics_only { Daemon::enter_reading } else { Daemon::enter };
    let daemon = enter(&options.session)?;
    let (sender, mut arrivals) = mpsc::unbounded_channel();
    let (tell_refused, refused) = audit::hear_refusals();
    let porches = open_porches(options, &rules, sender, tell_refused)?;
    let audit = Audit::new(&logs_of(&options.session), audit::name(options.metrics_only));
    let uploads = Uploads::new(&options.session)?;
    let site = Rc::new(Site {
        daemon: daemon.clone(),
        session: options.session.clone(),
        page: Page::new(),
        rules,
        submitting: tokio::sync::Mutex::default(),
        uploads,
        metrics: metrics::Cache::default(),
        tables: if options.metrics_only { EXPORT } else { TABLES },
        lists: tokio::sync::Semaphore::new(LISTS_MAX),
        profiles: Profiles::new(),
        chronicle: tokio::sync::Mutex::new(()),
        audit: Rc::clone(&audit),
    });
    let mut asks_to_end = signal(SignalKind::terminate())?;
    let hearing = spawn_local(async move { daemon.hear().await });
    if is_of_head(&options.session) {
        spawn_local(metrics::keep_discovery_file(Rc::clone(&site)));
    }
    let page = Rc::clone(&site.page);
    let recording = options.recording();
    let recorder = recording.clone().map(|recording| begin_history(options, recording)).transpose()?;
    // What was before is read before more is written.
    let (ready, is_ready) = tokio::sync::oneshot::channel();
    let kept = async {
        if options.metrics_only {
            return std::future::pending().await;
        }
        if let Some(recording) = &recording
            && let Some(past) = past(options, recording).await
        {
            let (tables, jobs) = past.before();
            page.remember(tables, jobs);
        }
        // Nobody waits for it where nothing is recorded.
        let _ = ready.send(());
        page.keep(&options.session).await
    };
    let recorded = async {
        let (Some(recorder), Ok(())) = (&recorder, is_ready.await) else { return std::future::pending().await };
        recorder.keep(say).await
    };
    let result = tokio::select! {
        never = recorded => match never {},
        never = refused.record(&audit) => match never {},
        error = kept => error.map(|never| match never {}).context("the page's tables cannot be kept"),
        ended = hearing => Err(ended?.context("the daemon is gone")),
        _ = asks_to_end.recv() => Ok(()),
        () = async {
            while let Some(arrival) = arrivals.recv().await {
                spawn_local(connection(Rc::clone(&site), arrival));
            }
        } => Ok(()),
    };
    drop(porches);
    audit.finish();
    if let Some(recorder) = recorder {
        recorder.finish().await;
    }
    result
}

/// Whether the session is that of the head, and not of a member.
fn is_of_head(session: &Path) -> bool {
    Description::read(session).is_some_and(|description| !description.member)
}

/// The doors: that of the dashboard, and where it was asked for, one at which the node's health is told and nothing else.
fn open_porches(
    options: &Options,
    rules: &Arc<PorchRules>,
    sender: mpsc::UnboundedSender<ProvenPeer>,
    tell_refused: impl FnMut(RefusedRequest) + Send + 'static,
) -> anyhow::Result<Vec<Porch>> {
    let certificate = Certificate::read(options)?;
    let tls = certificate.as_ref().map(Certificate::tls);
    if let Some(certificate) = certificate {
        spawn_local(certificate.keep());
    }
    let scheme = if tls.is_some() { "https" } else { "http" };
    let listener = address::listen(options.host, options.port)?;
    let main = PorchOptions { listener, rules: Arc::clone(rules), tls };
    // The porch lets a bounded number in, and whoever is in has a place until its connection ends.
    let mut porches = vec![Porch::open(main, move |arrival| drop(sender.send(arrival)), tell_refused)?];
    if let Some(port) = options.agent_port {
        porches.push(open_health(options.host, port, rules.hosts.clone())?);
    }
    if options.metrics_only {
        say(&format!("metrics are exported at {}", porches[0].address()));
        return Ok(porches);
    }
    let url = address::tell(&options.session, scheme, porches[0].address())?;
    say(&format!("it answers at {url}"));
    if scheme == "http" && !options.host.is_loopback() {
        say(&format!(
            "WARNING: tokens and answers travel in the clear at {} (--dashboard-plaintext): whoever can read this network can \
             run programs on this cluster",
            options.host
        ));
    }
    Ok(porches)
}

/// The door at which the node's health is told and nothing else.
fn open_health(host: IpAddr, port: u16, hosts: Vec<String>) -> anyhow::Result<Porch> {
    let rules = PorchRules { hosts, open: health().to_vec(), ..PorchRules::default() };
    let listener = address::listen(host, Some(port))?;
    // No secret opens anything there, so that none is a wrong one.
    Ok(Porch::open(PorchOptions { listener, rules: Arc::new(rules), tls: None }, drop, drop)?)
}

/// Serves one peer until it goes.
pub(crate) async fn connection<S: Answers>(site: Rc<S>, arrival: ProvenPeer) {
    let (peer, local) = (arrival.peer, arrival.stream.local());
    let Ok(stream) = Stream::new(arrival) else { return };
    let service = service_fn(move |asked| {
        let site = Rc::clone(&site);
        async move { Ok::<_, Infallible>(one(site, asked, (peer, local)).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(Timers).header_read_timeout(HEAD_LIMIT).max_buf_size(HEAD_BYTES_MAX);
    // What goes wrong on a connection ends it, and is nobody else's business.
    let _ = http.serve_connection(Hyper(stream), service).with_upgrades().await;
}

/// HTTP-1.
async fn one<S: Answers>(
    site: Rc<S>,
    asked: Asked<Incoming>,
    (peer, local): (SocketAddr, Option<SocketAddr>),
) -> Answer {
    let (head, body) = asked.into_parts();
    let target = head.uri.to_string();
    let fields = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let judged = RequestHead { method: head.method.as_str(), target: &target, fields };
    let is_from_browser = judged.is_from_browser();
    let now = Instant::now();
    let verdict = site.rules().judge(&judged, now);
    let key = site.rules().key_of(&judged, now);
    let right = match verdict {
        PorchVerdict::Open(open) => return answer(StatusCode::OK, open.content_type, open.body),
        PorchVerdict::Refused(refusal) => {
            let (method, path) = (judged.method.to_owned(), judged.path().to_owned());
            let told = RefusedRequest { peer, local, method, path, key, refusal };
            if let Some(audit) = site.audit() {
                audit.refuse(&told, now);
            }
            return refused(&refusal);
        }
        PorchVerdict::Proven(right) => right,
    };
    let (named, asker, noted) = (Vec::new(), Asker { peer, local, key }, Rc::new(Noted::default()));
    let request = Request { named, head, body, right, is_from_browser, asker, noted };
    routes::answer(site, request).await
}

/// This process ends with the daemon that started it, however that ends.
pub(crate) fn end_with_daemon(daemon: Option<u32>) -> anyhow::Result<()> {
    let Some(daemon) = daemon else { return Ok(()) };
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    let parent = rustix::process::getppid().map(Pid::as_raw_nonzero);
    if parent.map(|parent| parent.get() as u32) != Some(daemon) {
        anyhow::bail!("the daemon {daemon} that started it is gone");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a browser loads of the page at most, in bytes.
    const COMPRESSED_MAX: usize = 100_000;

    #[test]
    fn all_of_the_page_is_small_and_comes_without_its_comments() {
        let sent = |file: &OpenPath| if file.packed.is_empty() { file.body.len() } else { file.packed.len() };
        let size: usize = PAGE.iter().map(sent).sum();
        assert!(PAGE.len() > 20 && size < COMPRESSED_MAX, "{size} bytes of {} files", PAGE.len());
        let main = PAGE.iter().find(|file| file.path == "/static/main.js").expect("the page has it");
        let source: &[u8] = include_bytes!("../page/main.js");
        let lines = |text: &[u8]| text.split(|byte| *byte == b'\n').count();
        assert_eq!(lines(main.body), lines(source), "a line keeps its number");
        assert!(main.body.len() < source.len());
    }
}
