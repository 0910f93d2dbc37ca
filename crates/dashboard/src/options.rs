//! What the program is told at its start, by the daemon that starts it.

use crate::history::{Bounds, Recording};
use clap::{Args, Parser, Subcommand};
use std::net::IpAddr;
use std::path::PathBuf;

/// Answers over HTTP for a cluster, records its history, and shows what was recorded.
#[derive(Debug, Parser)]
#[command(name = "oxiray-dashboard", version, about)]
pub(crate) struct Program {
    #[command(subcommand)]
    pub(crate) order: Order,
}

/// What it is to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Order {
    /// Answers for the cluster of one session, or records it.
    Serve(Box<Options>),
    /// Tells that a node is healthy, and nothing else.
    Health(HealthOptions),
    /// Shows what was recorded.
    History(HistoryOptions),
    /// Writes what was recorded of a job into one file.
    Report(ReportOptions),
    /// Sends calls as spans to a collector of OpenTelemetry.
    Spans(CollectorOptions),
    /// Sends what happens as Ray's events to a collector of those.
    Events(CollectorOptions),
}

/// Where something is sent, and of which cluster.
#[derive(Debug, Args)]
pub(crate) struct CollectorOptions {
    /// The collector: `http://HOST:4318` for spans, `http://HOST:PORT/PATH` for events.
    pub(crate) collector: String,
    /// The directory of the head's session.
    #[arg(long)]
    pub(crate) session: PathBuf,
    /// The process to end with.
    #[arg(long)]
    pub(crate) daemon: Option<u32>,
}

/// Where it is told that a node is healthy.
#[derive(Debug, Args)]
pub(crate) struct HealthOptions {
    /// The port of 127.0.0.1.
    #[arg(long)]
    pub(crate) port: u16,
    /// The process to end with.
    #[arg(long)]
    pub(crate) daemon: Option<u32>,
}

/// Which history is shown.
#[derive(Debug, Args)]
pub(crate) struct HistoryOptions {
    /// Where it lies: a directory, or `s3://bucket/prefix`.
    pub(crate) place: String,
    /// The session; the one that was written last where it is left out.
    #[arg(long)]
    pub(crate) session: Option<String>,
    /// One job, by its identifier or its name.
    #[arg(long)]
    pub(crate) job: Option<String>,
    /// The moment, in milliseconds since 1970; the last one where it is left out.
    #[arg(long)]
    pub(crate) at: Option<u64>,
    /// Prints how the cluster was as JSON, and ends.
    #[arg(long)]
    pub(crate) once_json: bool,
    /// The port of the page at 127.0.0.1; the first free one from 8265 on where it is left out.
    #[arg(long)]
    pub(crate) port: Option<u16>,
}

/// What is written into one file.
#[derive(Debug, Args)]
pub(crate) struct ReportOptions {
    /// The job, by its identifier or its name.
    pub(crate) job: String,
    /// Where history lies: a directory, or `s3://bucket/prefix`.
    #[arg(long)]
    pub(crate) history: String,
    /// The session; the one that was written last where it is left out.
    #[arg(long)]
    pub(crate) session: Option<String>,
    /// The file.
    #[arg(long, short)]
    pub(crate) output: PathBuf,
}

/// How the cluster of a session is answered for.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The directory of the head's session.
    #[arg(long)]
    pub(crate) session: PathBuf,
    /// The address to listen at.
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,
    /// The port to listen at; the first free one from 8265 on where it is left out.
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// A further port of the same address, where only the health of the node is told.
    #[arg(long)]
    pub(crate) agent_port: Option<u16>,
    /// A name of this machine that requests may bear, beside its addresses and `localhost`.
    #[arg(long = "allow-host", value_name = "NAME")]
    pub(crate) allow_hosts: Vec<String>,
    /// The certificate by which it is known, as PEM, with those that lead to its authority.
    #[arg(long, requires = "tls_key", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's key, as PEM.
    #[arg(long, requires = "tls_cert", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Speaks plain HTTP at an address that other machines reach.
    #[arg(long, conflicts_with = "tls_cert")]
    pub(crate) plaintext: bool,
    /// Exports the metrics of the session's node, and does nothing else.
    #[arg(long)]
    pub(crate) metrics_only: bool,
    /// With --metrics-only: whoever reaches the port reads them, without a token.
    #[arg(long, requires = "metrics_only")]
    pub(crate) metrics_open: bool,
    /// The process to end with.
    #[arg(long)]
    pub(crate) daemon: Option<u32>,
    /// Records history: in this directory, or at `s3://bucket/prefix`.
    #[arg(long)]
    pub(crate) history: Option<String>,
    /// With --history: does nothing else, and opens no port.
    #[arg(long, requires = "history")]
    pub(crate) record_only: bool,
    /// The most bytes that are kept of a job.
    #[arg(long, env = "OXIRAY_HISTORY_JOB_BYTES", default_value_t = 256 << 20, value_parser = clap::value_parser!(u64).range(65536..))]
    pub(crate) history_job_bytes: u64,
    /// The most bytes that are kept of all jobs of all sessions.
    #[arg(long, env = "OXIRAY_HISTORY_BYTES", default_value_t = 5 << 30)]
    pub(crate) history_bytes: u64,
    /// For how many days something is kept that nothing was added to.
    #[arg(long, env = "OXIRAY_HISTORY_DAYS", default_value_t = 30)]
    pub(crate) history_days: u64,
}

impl Options {
    /// Where history is recorded, and how much of it; nothing where it is not.
    pub(crate) fn recording(&self) -> Option<Recording> {
        let bounds =
            Bounds { job_bytes: self.history_job_bytes, all_bytes: self.history_bytes, days: self.history_days };
        self.history.clone().map(|place| Recording { place, bounds })
    }
}
