//! `oxiray dashboard`, and what `oxiray start` is told of the dashboard.

use crate::arguments::{DashboardOptions, StartOptions};
use crate::{http, say, visit};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use oxiray_node::{DashboardConfig, HeadConfig, MetricsConfig};
use oxiray_wire::session::{DASHBOARD, HISTORY, HTTP_TOKEN, HTTP_TOKEN_READ};
use serde::Deserialize;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program that shows history, beside this one.
const PROGRAM: &str = "oxiray-dashboard";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DashboardOrder {
    #[command(subcommand)]
    order: Option<Order>,
    /// The cluster's address; the default is the current cluster.
    #[arg(long, env = "RAY_ADDRESS")]
    address: Option<String>,
    #[command(flatten)]
    history: HistoryOptions,
}

/// The page of what was recorded, in place of a running cluster's.
#[derive(Debug, Args)]
struct HistoryOptions {
    /// Shows what `oxiray start --head --history` recorded in this directory, or at `s3://bucket/prefix`, on a page of its own
    /// at 127.0.0.1, until the command is interrupted.
    #[arg(long, value_name = "DIRECTORY|URL")]
    history: Option<String>,
    /// With --history: the session, given by its name or the beginning of it; the default is the one that was written last.
    #[arg(long, requires = "history")]
    session: Option<String>,
    /// With --history: shows one job only, given by its identifier, its submission's name, or the beginning of one.
    #[arg(long, requires = "history")]
    job: Option<String>,
    /// With --history and --once-json: the moment, in milliseconds since 1970; the default is the last one that was recorded.
    #[arg(long, value_name = "MILLISECONDS", requires = "once_json")]
    at: Option<u64>,
    /// With --history: prints the state that was recorded as JSON instead of showing a page.
    #[arg(long, requires = "history")]
    once_json: bool,
    /// With --history: the port of the page; the default is the first free one from 8265 on.
    #[arg(long, value_name = "PORT", requires = "history")]
    port: Option<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct ReportOptions {
    /// The job, given by its identifier, its submission's name, or the beginning of one.
    job: String,
    /// The file to write.
    #[arg(long, short, value_name = "FILE.html")]
    output: PathBuf,
    /// Where the history lies: a directory, or `s3://bucket/prefix`; the default is where the current cluster records it.
    #[arg(long, value_name = "DIRECTORY|URL")]
    history: Option<String>,
    /// The session, given by its name or the beginning of it; the default is the one that was written last, or that of the
    /// current cluster.
    #[arg(long)]
    session: Option<String>,
    /// The cluster's address; the default is the current cluster.
    #[arg(long, env = "RAY_ADDRESS")]
    address: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Order {
    /// Prints the address alone.
    Url(UrlOptions),
    /// Prints the token for programs, which they send as `Authorization: Bearer TOKEN`.
    Token(TokenOptions),
}

#[derive(Debug, Args)]
struct UrlOptions {
    /// The cluster's address; the default is the current cluster.
    #[arg(long, env = "RAY_ADDRESS")]
    address: Option<String>,
}

#[derive(Debug, Args)]
struct TokenOptions {
    /// Prints the token that only allows reading: for dashboards and colleagues.
    #[arg(long)]
    read: bool,
    /// The cluster's address; the default is the current cluster.
    #[arg(long, env = "RAY_ADDRESS")]
    address: Option<String>,
}

/// What the dashboard tells of itself in its session's directory.
#[derive(Debug, Deserialize)]
struct Running {
    url: String,
    pid: u32,
}

pub(crate) fn run(options: &DashboardOrder) -> anyhow::Result<()> {
    if let Some(place) = &options.history.history {
        return show_history(place, &options.history);
    }
    let found = |address: Option<&str>| visit::find(address).map(|found| found.directory);
    let text = match &options.order {
        Some(Order::Url(options)) => running(&found(options.address.as_deref())?)?.url,
        Some(Order::Token(options)) => token(&found(options.address.as_deref())?, options.read)?,
        None => page(&found(options.address.as_deref())?)?,
    };
    say(&text);
    Ok(())
}

/// The program that shows history takes this one's place.
fn show_history(place: &str, options: &HistoryOptions) -> anyhow::Result<()> {
    let mut words = vec!["history".to_owned(), place.to_owned()];
    let texts = [("session", options.session.clone()), ("job", options.job.clone())];
    let numbers = [("at", options.at), ("port", options.port.map(u64::from))];
    let numbers = numbers.map(|(name, number)| (name, number.map(|number| number.to_string())));
    let given = texts.into_iter().chain(numbers).filter_map(|(name, value)| Some((name, value?)));
    words.extend(given.map(|(name, value)| format!("--{name}={value}")));
    words.extend(options.once_json.then(|| "--once-json".to_owned()));
    become_program(&words)
}

/// `oxiray report`.
pub(crate) fn report(options: &ReportOptions) -> anyhow::Result<()> {
    let (place, session) = if let Some(place) = &options.history {
        (place.clone(), options.session.clone())
    } else {
        let session = visit::find(options.address.as_deref())?.directory;
        let name = session.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (recorded_at(&session)?, options.session.clone().or(Some(name)))
    };
    let output = options.output.display().to_string();
    let mut words = vec!["report".to_owned(), format!("--history={place}"), format!("--output={output}")];
    words.extend(session.map(|session| format!("--session={session}")));
    words.extend(["--".to_owned(), options.job.clone()]);
    become_program(&words)
}

/// Where the history of that session is recorded.
fn recorded_at(session: &Path) -> anyhow::Result<String> {
    let told = fs::read_to_string(session.join(HISTORY)).ok();
    let told: Option<Recorded> = told.and_then(|text| serde_json::from_str(&text).ok());
    Ok(told
        .context("this cluster records no history: start it with `oxiray start --head --history=DIRECTORY`, or name one with --history")?
        .place)
}

/// The program beside this one takes its place.
fn become_program(words: &[String]) -> anyhow::Result<()> {
    let error = Command::new(std::env::current_exe()?.with_file_name(PROGRAM)).args(words).exec();
    bail!("the program {PROGRAM} cannot be run: {error}")
}

/// The place for history that was named, as the daemon takes it; nothing where none was.
pub(crate) fn history(options: &StartOptions) -> anyhow::Result<Option<String>> {
    let Some(given) = options.of_head.dashboard.history.as_deref().filter(|given| !given.is_empty() && options.head)
    else {
        return Ok(None);
    };
    match given.split_once("://") {
        Some(("s3", rest)) if !rest.starts_with('/') && !rest.is_empty() => Ok(Some(given.to_owned())),
        Some(_) => bail!(
            "--history={given} is no place for history: name a directory, or storage that speaks S3 as s3://bucket/prefix"
        ),
        None => {
            let path = std::path::absolute(given)?;
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.with_context(|| format!("--history={given}: the directory cannot be made"))?;
            let text = path.to_str().context("--history names a directory whose name is no text")?;
            Ok(Some(text.to_owned()))
        }
    }
}

/// The collector that spans are sent to.
pub(crate) fn spans(options: &StartOptions) -> anyhow::Result<Option<String>> {
    let Some(given) = options.of_head.dashboard.otlp.as_deref() else { return Ok(None) };
    if !options.head {
        bail!("--otlp is of use with --head only: the head's machine sends the spans of all nodes");
    }
    let host = given.strip_prefix("http://").unwrap_or_default();
    if host.is_empty() || host.starts_with(['/', ':']) {
        bail!(
            "--otlp={given} is no collector that spans can be sent to: name one that takes OTLP over plain HTTP, such as \
             http://127.0.0.1:4318, which sends them on"
        );
    }
    Ok(Some(given.to_owned()))
}

/// The variable by which KubeRay names its collector of events.
const EVENTS: &str = "RAY_DASHBOARD_AGGREGATOR_AGENT_EVENTS_EXPORT_ADDR";

/// The collector that Ray's events are sent to; a head's, since that knows what happens on all nodes.
pub(crate) fn events(
    options: &StartOptions,
    variable: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Option<String>> {
    let said = || variable(EVENTS).filter(|given| !given.is_empty());
    let Some(given) = options.head.then(said).flatten() else { return Ok(None) };
    let host = given.strip_prefix("http://").unwrap_or_default();
    if host.is_empty() || host.starts_with(['/', ':']) {
        bail!(
            "{EVENTS}={given} is no collector that events can be sent to: name one that takes them over plain HTTP, such as \
             http://localhost:8084/v1/events, or unset the variable"
        );
    }
    Ok(Some(given))
}

/// The address of the page with a key that opens it once.
fn page(session: &Path) -> anyhow::Result<String> {
    let Running { url, .. } = running(session)?;
    let told = http::post(&format!("{url}/ox/v1/keys"), &token(session, false)?)?;
    let key = told["key"].as_str().context("the dashboard gave no key")?;
    Ok(format!("{url}/#key={key}"))
}

/// What is told of where history is recorded, in the session's directory.
#[derive(Debug, Deserialize)]
struct Recorded {
    place: String,
}

/// The dashboard of that session, which a process of this user's is.
fn running(session: &Path) -> anyhow::Result<Running> {
    let told = fs::read_to_string(session.join(DASHBOARD)).ok();
    let running: Option<Running> = told.and_then(|text| serde_json::from_str(&text).ok());
    let is_own = |running: &Running| {
        let about = fs::metadata(format!("/proc/{}", running.pid));
        about.is_ok_and(|about| about.uid() == rustix::process::geteuid().as_raw())
    };
    running.filter(is_own).context(
        "this cluster has no dashboard that runs: start it with `oxiray start --head --include-dashboard=true`, or see \
         dashboard.log among its logs",
    )
}

/// The token that the dashboard of that session goes by.
fn token(session: &Path, is_for_reading: bool) -> anyhow::Result<String> {
    if !is_for_reading && let Some(token) = oxiray_visitor::http_token(|name| std::env::var(name).ok())? {
        return Ok(token);
    }
    let path = session.join(if is_for_reading { HTTP_TOKEN_READ } else { HTTP_TOKEN });
    let text = fs::read_to_string(&path).with_context(|| {
        format!("{} is not there: the cluster has no dashboard, or RAY_AUTH_TOKEN was given to it", path.display())
    })?;
    Ok(text.trim().to_owned())
}

impl crate::arguments::DashboardOptions {
    /// Whether something about it was said.
    pub(crate) fn is_asked(&self) -> bool {
        self.include_dashboard == Some(true)
    }

    /// What was said about it though none was asked for.
    fn idle(&self) -> impl Iterator<Item = &'static str> {
        let said = [
            ("--dashboard-host", self.dashboard_host.is_some()),
            ("--dashboard-port", self.dashboard_port.is_some()),
            ("--dashboard-allow-host", !self.dashboard_allow_hosts.is_empty()),
            ("--dashboard-tls-cert", self.dashboard_tls_cert.is_some()),
            ("--dashboard-plaintext", self.dashboard_plaintext),
        ];
        let is_idle = self.include_dashboard.is_none();
        said.into_iter().filter(move |(_, is_said)| is_idle && *is_said).map(|(name, _)| name)
    }
}

/// What was said of a dashboard that this node does not have, for people.
pub(crate) fn without_effect(options: &StartOptions, config: &HeadConfig) -> Vec<String> {
    let idle = options.of_head.dashboard.idle().filter(|_| config.dashboard.is_none());
    idle.map(|name| format!("{name} (no dashboard was asked for: --include-dashboard=true with --head does)")).collect()
}

/// What the daemon is told of the dashboard; nothing where none is wanted.
pub(crate) fn config(
    options: &StartOptions,
    variable: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Option<DashboardConfig>> {
    let given = &options.of_head.dashboard;
    let said = |name: &str| variable(name).is_some_and(|text| !text.is_empty());
    let mut host = given.dashboard_host.as_deref().map(host).transpose()?;
    let is_elsewhere = host.is_some_and(|host| !host.is_loopback());
    let is_wanted = given.include_dashboard.unwrap_or(given.dashboard_port.is_some() || is_elsewhere);
    if !options.head || !is_wanted {
        return Ok(None);
    }
    // KubeRay speaks plain HTTP, to pods that have these; without the token it could not ask anything.
    let in_pod = said("RAY_CLUSTER_NAME");
    let mut plaintext = given.dashboard_plaintext;
    if is_elsewhere && !plaintext && given.dashboard_tls_cert.is_none() {
        match (in_pod, said("RAY_AUTH_TOKEN") || said("RAY_AUTH_TOKEN_PATH")) {
            (true, true) => plaintext = true,
            (true, false) => {
                host = None;
                say(
                    "note: the dashboard answers within this pod only: give the RayCluster `authOptions: {mode: token}`, and it \
                     answers its operator",
                );
            }
            // The cluster's authority makes its certificate.
            (false, _) if options.port.is_some() => {}
            (false, _) => bail!(
                "--dashboard-host={} is reached by other machines, and the token would be sent there in the clear: give --port, \
                 with which the cluster has an authority of its own that makes a certificate, or --dashboard-tls-cert and \
                 --dashboard-tls-key, or say --dashboard-plaintext where the network is trusted",
                given.dashboard_host.as_deref().unwrap_or_default()
            ),
        }
    }
    let config = DashboardConfig {
        host,
        port: given.dashboard_port,
        agent_port: given.dashboard_agent_listen_port,
        allow_hosts: given.dashboard_allow_hosts.clone(),
        tls_cert: given.dashboard_tls_cert.as_deref().map(std::path::absolute).transpose()?,
        tls_key: given.dashboard_tls_key.as_deref().map(std::path::absolute).transpose()?,
        plaintext,
    };
    for port in [config.port, config.agent_port].into_iter().flatten() {
        is_free(config.host.unwrap_or(Ipv4Addr::LOCALHOST.into()), port)?;
    }
    Ok(Some(config))
}

/// Where the daemon is to export metrics; nothing where it is not to.
pub(crate) fn metrics_config(options: &DashboardOptions) -> anyhow::Result<Option<MetricsConfig>> {
    let Some(port) = options.metrics_export_port else { return Ok(None) };
    let (host, open) = (options.metrics_host, options.metrics_open.unwrap_or(false));
    if let Some(host) = host.filter(|host| !host.is_loopback() && !open) {
        bail!(
            "--metrics-host={host} is reached by other machines, and the token would be sent there in the clear: say --metrics-open \
             where everybody who reaches port {port} may read the metrics"
        );
    }
    let address = SocketAddr::new(host.unwrap_or(Ipv4Addr::LOCALHOST.into()), port);
    // It is opened by a program that the daemon starts later: that somebody has it is told of before.
    TcpListener::bind(address).with_context(|| format!("metrics cannot be exported at {address}"))?;
    Ok(Some(MetricsConfig { host, port, open }))
}

/// The port at which the node's health is told, where no dashboard tells it.
pub(crate) fn health_port(options: &StartOptions, config: &HeadConfig) -> anyhow::Result<Option<u16>> {
    let port = options.of_head.dashboard.dashboard_agent_listen_port.filter(|_| config.dashboard.is_none());
    if let Some(port) = port {
        is_free(Ipv4Addr::LOCALHOST.into(), port)?;
    }
    Ok(port)
}

fn host(text: &str) -> anyhow::Result<IpAddr> {
    if text == "localhost" {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    text.parse().with_context(|| format!("--dashboard-host takes an IP address of this machine, and `{text}` is none"))
}

/// The dashboard is started by the daemon, which does not wait for it: a port that somebody has is told of before.
fn is_free(host: IpAddr, port: u16) -> anyhow::Result<()> {
    let listener = TcpListener::bind(SocketAddr::new(host, port));
    listener.map(drop).with_context(|| format!("{host} port {port} cannot be listened at"))
}
