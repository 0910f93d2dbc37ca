//! Where the program listens, by which names it is asked, and what others are told of that.

use crate::options::Options;
use anyhow::{Context as _, bail};
use oxiray_wire::session::{DASHBOARD, HISTORY};
use serde_json::json;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;

/// Ray's port.
const PORT: u16 = 8265;
/// How many ports are tried where none was named.
const PORTS_TRIED: u16 = 50;

/// Listens at the port that was named, or at the first free one.
pub(crate) fn listen(host: IpAddr, port: Option<u16>) -> anyhow::Result<TcpListener> {
    let ports = port.map_or(PORT..=PORT + PORTS_TRIED, |port| port..=port);
    let mut taken = None;
    for port in ports {
        match TcpListener::bind(SocketAddr::new(host, port)) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == ErrorKind::AddrInUse => taken = Some((port, error)),
            Err(error) => return Err(error).with_context(|| format!("{host} port {port} cannot be listened at")),
        }
    }
    let (port, error) = taken.context("there is a port to try")?;
    Err(error).with_context(|| format!("{host} port {port} cannot be listened at: name another with --dashboard-port"))
}

/// Refuses an address that other machines reach where nobody has said that it may be plain.
pub(crate) fn check_plaintext(options: &Options) -> anyhow::Result<()> {
    if options.host.is_loopback() || options.tls_cert.is_some() || options.plaintext {
        return Ok(());
    }
    bail!(
        "{} is reached by other machines, and the token would be sent there in the clear: give --dashboard-tls-cert and \
         --dashboard-tls-key, or say --dashboard-plaintext where the network is trusted",
        options.host
    )
}

/// Refuses an address that other machines reach, unless no token is needed: one would be sent there in the clear.
pub(crate) fn check_metrics(options: &Options) -> anyhow::Result<()> {
    if options.host.is_loopback() || options.metrics_open {
        return Ok(());
    }
    bail!(
        "metrics at {} are reached by other machines, and the token would be sent there in the clear: say --metrics-open where \
         everybody who reaches this port may read them",
        options.host
    )
}

/// The names that requests may bear beside addresses and `localhost`: those that were given, and in a pod of a RayCluster those of
/// its service.
pub(crate) fn hosts(given: &[String], variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut hosts = given.to_vec();
    let said = |name: &str| variable(name).filter(|text| !text.is_empty());
    if let (Some(_), Some(namespace)) = (said("RAY_CLUSTER_NAME"), said("RAY_CLUSTER_NAMESPACE")) {
        let service = format!("*-head-svc.{namespace}.svc");
        let resolver = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        hosts.extend(cluster_domains(&resolver).map(|domain| format!("{service}.{domain}")));
        hosts.push(service);
    }
    hosts
}

/// The domains of the cluster that a pod is in, by its resolver's list of domains.
fn cluster_domains(resolver: &str) -> impl Iterator<Item = &str> {
    let lines = resolver.lines().filter_map(|line| line.trim().strip_prefix("search"));
    lines.flat_map(str::split_whitespace).filter_map(|domain| domain.strip_prefix("svc."))
}

/// Tells where it is asked, in a file of the session that is whole or not there.
pub(crate) fn tell(session: &Path, scheme: &str, bound: SocketAddr) -> anyhow::Result<String> {
    let ip = if bound.ip().is_unspecified() { IpAddr::from([127, 0, 0, 1]) } else { bound.ip() };
    let url = format!("{scheme}://{}", SocketAddr::new(ip, bound.port()));
    let text = json!({"url": url, "pid": std::process::id()}).to_string();
    write(&session.join(DASHBOARD), &text).context("the address cannot be published")?;
    Ok(url)
}

/// Tells where this session's history is recorded.
pub(crate) fn tell_history(session: &Path, place: &str) -> anyhow::Result<()> {
    write(&session.join(HISTORY), &json!({"place": place}).to_string())
        .context("the place of history cannot be published")
}

/// Writes a file that is whole or not there.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let beside = path.with_extension("new");
    fs::write(&beside, text).and_then(|()| fs::rename(&beside, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_of_a_cluster_answers_to_its_services_names() {
        let pod = |name: &str| match name {
            "RAY_CLUSTER_NAME" => Some("raycluster".to_owned()),
            "RAY_CLUSTER_NAMESPACE" => Some("team".to_owned()),
            _ => None,
        };
        assert!(hosts(&[], pod).contains(&"*-head-svc.team.svc".to_owned()));
        assert_eq!(hosts(&["own.example".to_owned()], |_| None), ["own.example"]);
        let resolver = "search team.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\n";
        assert_eq!(cluster_domains(resolver).collect::<Vec<_>>(), ["cluster.local"]);
    }
}
