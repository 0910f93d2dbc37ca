//! What the program is told at its start, by the daemon that starts it.

use clap::Parser;
use std::net::IpAddr;
use std::path::PathBuf;

/// Answers over HTTP for the cluster of one session.
#[derive(Debug, Parser)]
#[command(name = "oxiray-dashboard", version, about)]
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
}
