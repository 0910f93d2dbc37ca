//! The processes that answer over HTTP, a head's dashboard and a node's exporter of metrics, the one that records history and those
//! that send spans and events: one program, started where it was asked for, and again whenever it ends.
//!
//! It is a visitor of this daemon, which never waits for it. Its end is a line in daemon.log, and no reason for anything else.

use super::SESSION_VARIABLE;
use crate::config::{Config, DashboardConfig, HeadConfig, MetricsConfig, RecordingConfig};
use crate::session::{Session, create};
use oxiray_wire::session::{DASHBOARD_CERTIFICATE, DASHBOARD_KEY};
use oxiray_wire::state::MetricsPlace;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The program, beside this one.
const PROGRAM: &str = "oxiray-dashboard";
/// How long it is waited before it is started again, doubled each time up to the last.
const DELAY: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_secs(60);

/// What it is started for.
#[derive(Debug)]
pub(crate) enum HttpPurpose {
    /// It answers for the head's cluster, and records its history at that place, where one is named.
    Dashboard(DashboardConfig, Option<String>),
    /// It records the history of the head's cluster at that place, and answers nobody.
    History(String),
    /// It exports the metrics of the node.
    Metrics(MetricsConfig),
    /// It tells at that port that the node is healthy.
    Health(u16),
    /// It sends the cluster's calls as spans to that collector.
    Spans(String),
    /// It sends what happens in the cluster as Ray's events to that collector.
    Events(String),
}

impl HttpPurpose {
    /// What a daemon with this configuration starts it for.
    pub(crate) fn all(config: &Config) -> impl Iterator<Item = Self> {
        let HeadConfig { dashboard, recording: RecordingConfig { history, spans, events }, .. } = config.head.clone();
        let of_head = match dashboard {
            Some(dashboard) => Some(Self::Dashboard(dashboard, history)),
            None => history.map(Self::History),
        };
        of_head
            .into_iter()
            .chain(config.metrics.clone().map(Self::Metrics))
            .chain(config.health_port.map(Self::Health))
            .chain(spans.map(Self::Spans))
            .chain(events.map(Self::Events))
    }

    /// What people call it, and its file among the session's logs.
    fn name(&self) -> &'static str {
        match self {
            Self::Dashboard(..) => "dashboard",
            Self::History(_) => "history",
            Self::Metrics(_) => "metrics",
            Self::Health(_) => "health",
            Self::Spans(_) => "spans",
            Self::Events(_) => "events",
        }
    }
}

/// The process, and when it is started next.
#[derive(Debug)]
pub(crate) struct HttpProgram {
    purpose: HttpPurpose,
    running: Option<(u32, Instant)>,
    due: Option<Instant>,
    delay: Duration,
}

impl HttpProgram {
    /// One that is to be started now.
    pub(crate) fn new(purpose: HttpPurpose, now: Instant) -> Self {
        Self { purpose, running: None, due: Some(now), delay: DELAY }
    }

    /// What people call it.
    pub(crate) fn name(&self) -> &'static str {
        self.purpose.name()
    }

    /// Where it exports metrics, where it does.
    pub(crate) fn metrics_place(&self) -> Option<MetricsPlace> {
        let HttpPurpose::Metrics(config) = &self.purpose else { return None };
        let host = config.host.unwrap_or(Ipv4Addr::LOCALHOST.into());
        let host = if host.is_unspecified() { String::new() } else { host.to_string() };
        Some(MetricsPlace { port: config.port.into(), host })
    }

    /// When it is to be started.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Starts it where it is time to. Returns its process.
    pub(crate) fn start_due(&mut self, session: &Session, now: Instant) -> Option<io::Result<u32>> {
        self.due.take_if(|due| *due <= now)?;
        let started = self.command(session).and_then(|mut command| Ok(command.spawn()?.id()));
        match &started {
            Ok(pid) => self.running = Some((*pid, now)),
            Err(_) => self.postpone(now),
        }
        Some(started)
    }

    /// A child of the daemon ended. Returns after how long it is started again, where it was this one.
    pub(crate) fn ended(&mut self, pid: u32, now: Instant) -> Option<Duration> {
        let (_, begun) = self.running.take_if(|(running, _)| *running == pid)?;
        if now.saturating_duration_since(begun) >= DELAY_MAX {
            self.delay = DELAY;
        }
        let delay = self.delay;
        self.postpone(now);
        Some(delay)
    }

    fn postpone(&mut self, now: Instant) {
        self.due = Some(now + self.delay);
        self.delay = (self.delay * 2).min(DELAY_MAX);
    }

    fn command(&self, session: &Session) -> io::Result<Command> {
        let output = create(&session.logs().join(format!("{}.log", self.name())))?;
        let mut command = Command::new(std::env::current_exe()?.with_file_name(PROGRAM));
        let order = match self.purpose {
            HttpPurpose::Spans(_) => "spans",
            HttpPurpose::Events(_) => "events",
            HttpPurpose::Health(_) => "health",
            HttpPurpose::Dashboard(..) | HttpPurpose::History(_) | HttpPurpose::Metrics(_) => "serve",
        };
        command.arg(order).arg(format!("--daemon={}", std::process::id()));
        if !matches!(self.purpose, HttpPurpose::Health(_)) {
            command.arg("--session").arg(session.directory());
        }
        match &self.purpose {
            HttpPurpose::Health(port) => {
                command.arg(format!("--port={port}"));
            }
            HttpPurpose::Dashboard(config, history) => {
                add_dashboard(&mut command, config, session.directory());
                command.args(history.iter().map(|place| format!("--history={place}")));
            }
            HttpPurpose::History(place) => {
                command.arg("--record-only").arg(format!("--history={place}"));
            }
            HttpPurpose::Metrics(MetricsConfig { host, port, open }) => {
                command.arg("--metrics-only").arg(format!("--port={port}"));
                command.args(host.map(|host| format!("--host={host}")));
                command.args(open.then_some("--metrics-open"));
            }
            HttpPurpose::Spans(collector) | HttpPurpose::Events(collector) => {
                command.arg(collector);
            }
        }
        command.env(SESSION_VARIABLE, session.directory());
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        Ok(command)
    }
}

fn add_dashboard(command: &mut Command, config: &DashboardConfig, session: &Path) {
    let DashboardConfig { host, port, agent_port, allow_hosts, tls_cert, tls_key, plaintext } = config;
    let texts = [("host", host.map(|host| host.to_string())), ("port", port.map(|port| port.to_string()))];
    let further = [("agent-port", agent_port.map(|port| port.to_string()))];
    for (name, value) in texts.into_iter().chain(further) {
        command.args(value.map(|value| format!("--{name}={value}")));
    }
    command.args(allow_hosts.iter().map(|name| format!("--allow-host={name}")));
    let made = |name: &str| config.needs_certificate().then(|| session.join(name));
    let certificate = tls_cert.clone().or_else(|| made(DASHBOARD_CERTIFICATE));
    let key = tls_key.clone().or_else(|| made(DASHBOARD_KEY));
    for (name, path) in [("--tls-cert", certificate), ("--tls-key", key)] {
        if let Some(path) = path {
            command.arg(name).arg(path);
        }
    }
    command.args(plaintext.then_some("--plaintext"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_started_again_ever_later_and_soon_again_where_it_ran_for_long() {
        let mut now = Instant::now();
        let mut dashboard = HttpProgram::new(HttpPurpose::Dashboard(DashboardConfig::default(), None), now);
        assert_eq!(dashboard.deadline(), Some(now));
        let mut delays = Vec::new();
        for lived in [0, 0, 0, 0, 0, 0, 0, 0, 60, 0] {
            dashboard.running = Some((7, now));
            dashboard.due = None;
            now += Duration::from_secs(lived);
            assert_eq!(dashboard.ended(8, now), None);
            let delay = dashboard.ended(7, now).expect("it ended");
            assert_eq!(dashboard.deadline(), Some(now + delay));
            delays.push(delay.as_secs());
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60, 1, 2]);
    }
}
