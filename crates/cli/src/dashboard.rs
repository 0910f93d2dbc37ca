//! `oxiray dashboard`, and what `oxiray start` is told of the dashboard.

use crate::arguments::{DashboardOptions, StartOptions};
use crate::{http, say, visit};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use oxiray_node::{DashboardConfig, HeadConfig, MetricsConfig};
use oxiray_wire::session::{DASHBOARD, HTTP_TOKEN, HTTP_TOKEN_READ};
use serde::Deserialize;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DashboardOrder {
    #[command(subcommand)]
    order: Option<Order>,
    /// The cluster's address; the current one where it is left out.
    #[arg(long, env = "RAY_ADDRESS")]
    address: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Order {
    /// Prints the address alone.
    Url(UrlOptions),
    /// Prints the token by which programs are let in: they send it as `Authorization: Bearer TOKEN`.
    Token(TokenOptions),
}

#[derive(Debug, Args)]
struct UrlOptions {
    /// The cluster's address; the current one where it is left out.
    #[arg(long, env = "RAY_ADDRESS")]
    address: Option<String>,
}

#[derive(Debug, Args)]
struct TokenOptions {
    /// The one that changes nothing: for boards and colleagues.
    #[arg(long)]
    read: bool,
    /// The cluster's address; the current one where it is left out.
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
    let found = |address: Option<&str>| visit::find(address).map(|found| found.directory);
    let text = match &options.order {
        Some(Order::Url(options)) => running(&found(options.address.as_deref())?)?.url,
        Some(Order::Token(options)) => token(&found(options.address.as_deref())?, options.read)?,
        None => page(&found(options.address.as_deref())?)?,
    };
    say(&text);
    Ok(())
}

/// The address of the page with a key that opens it once.
fn page(session: &Path) -> anyhow::Result<String> {
    let Running { url, .. } = running(session)?;
    let told = http::post(&format!("{url}/ox/v1/keys"), &token(session, false)?)?;
    let key = told["key"].as_str().context("the dashboard gave no key")?;
    Ok(format!("{url}/#key={key}"))
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
            ("--dashboard-agent-listen-port", self.dashboard_agent_listen_port.is_some()),
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
            (false, _) => bail!(
                "--dashboard-host={} is reached by other machines, and the token would be sent there in the clear: give \
                 --dashboard-tls-cert and --dashboard-tls-key, or say --dashboard-plaintext where the network is trusted",
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

fn host(text: &str) -> anyhow::Result<IpAddr> {
    if text == "localhost" {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    text.parse().with_context(|| format!("--dashboard-host takes an IP address of this machine, and `{text}` is none"))
}

/// The dashboard is started by the daemon, which does not wait for it: a port that somebody has is told of before.
fn is_free(host: IpAddr, port: u16) -> anyhow::Result<()> {
    let listener = TcpListener::bind(SocketAddr::new(host, port));
    listener.map(drop).with_context(|| format!("{host} port {port} of the dashboard cannot be listened at"))
}
