//! The command that a pod's first container runs.

use crate::capacity::PodCapacity;
use oxiray_resources::ResourceName;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The port of the head where nothing else is said.
const PORT: &str = "6379";
/// Where a pod finds what lets it into the cluster.
pub(crate) const SECRET_PATH: &str = "/var/run/oxiray/join";
/// Where a container with a command of its own finds the script that starts the node.
pub(crate) const START_PATH: &str = "/var/run/oxiray/start";
/// Where the head keeps its sessions, and the journal in them.
pub(crate) const SESSIONS_PATH: &str = "/var/lib/oxiray";
/// For how many seconds a worker waits for a head that is not there yet.
const JOIN_WAIT_S: u32 = 600;
/// For how many seconds workers go on without a head whose pod is replaced, where its journal stays.
const LEASE_S: u32 = 60;

/// The label by which the autoscaler knows a node's group.
const NODE_GROUP_LABEL: &str = "ray.io/node-group";
/// The label by which it knows the node's pod: its identity, which no other pod ever has.
const INSTANCE_LABEL: &str = "oxiray.io/instance";
/// Stands for that identity until the shell knows it.
const UID_MARK: &str = "@uid@";

/// Parameters of Ray's start command that are derived or passed on.
const KNOWN: &[&str] = &[
    "num-cpus",
    "num-gpus",
    "gpu-memory",
    "memory",
    "resources",
    "labels",
    "port",
    "object-store-memory",
    "node-manager-port",
    "include-dashboard",
    "dashboard-port",
    "dashboard-host",
    "dashboard-agent-listen-port",
];
/// Those of the dashboard. An address alone asks for none, since KubeRay's own samples name one always.
const DASHBOARD: &[&str] = &["include-dashboard", "dashboard-host", "dashboard-port", "dashboard-agent-listen-port"];
/// Parameters that mean nothing here, and are left out without a word: KubeRay's own samples set them.
const SILENT: &[&str] = &["block", "no-monitor", "metrics-export-port", "address", "disable-usage-stats"];

/// Whose start it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start<'a> {
    pub(crate) is_head: bool,
    pub(crate) group: &'a str,
    /// Whether its journal outlives its pod.
    pub(crate) keeps: bool,
    pub(crate) parameters: &'a BTreeMap<String, String>,
    pub(crate) capacity: &'a PodCapacity,
    pub(crate) host: u32,
}

impl Start<'_> {
    /// The port that the head listens at.
    pub(crate) fn port(parameters: &BTreeMap<String, String>) -> String {
        parameters.get("port").filter(|port| port.parse::<u16>().is_ok()).map_or(PORT, String::as_str).to_owned()
    }

    /// The line that starts the node.
    pub(crate) fn line(&self) -> String {
        let mut line =
            "oxiray start --block --node-name=\"$RAY_CLOUD_INSTANCE_ID\" --node-ip-address=\"$OXIRAY_POD_IP\""
                .to_owned();
        if self.is_head {
            let port = Self::port(self.parameters);
            let _ = write!(line, " --head --keep-cluster --port={port} --authority-file={SECRET_PATH}/authority");
            if self.keeps {
                let _ = write!(line, " --node-lease={LEASE_S}");
            }
            for (name, value) in self.dashboard() {
                let _ = write!(line, " --{name}={}", quoted(value));
            }
        } else {
            let _ = write!(
                line,
                " --address=\"$FQ_RAY_IP:$RAY_PORT\" --join-wait={JOIN_WAIT_S} --token-file=\"$OXIRAY_TOKEN_FILE\""
            );
        }
        let mut offered = self.capacity.host(self.host);
        for (name, option) in [("CPU", "num-cpus"), ("GPU", "num-gpus"), ("memory", "memory")] {
            if let Some(amount) = offered.remove(name) {
                let _ = write!(line, " --{option}={amount}");
            }
        }
        offered.remove(ResourceName::GPU_MEMORY.as_str());
        if let Some(bytes) = self.capacity.gpu_memory {
            let _ = write!(line, " --gpu-memory={bytes}");
        }
        if let Some(bytes) = self.capacity.store {
            let _ = write!(line, " --object-store-memory={bytes}");
        }
        if !offered.is_empty() {
            let _ = write!(line, " --resources={}", quoted(&json!(offered).to_string()));
        }
        let mut labels = json!(self.capacity.labels);
        labels[NODE_GROUP_LABEL] = json!(self.group);
        labels[INSTANCE_LABEL] = json!(UID_MARK);
        let labels = quoted(&labels.to_string()).replace(UID_MARK, "'\"$OXIRAY_POD_UID\"'");
        let _ = write!(line, " --labels={labels}");
        if let Some(value) = self.parameters.get("node-manager-port") {
            let _ = write!(line, " --node-manager-port={}", quoted(value));
        }
        line
    }

    /// The parameters of the dashboard, where one is asked for.
    fn dashboard(&self) -> impl Iterator<Item = (&str, &str)> {
        let said = |name: &str| self.parameters.get(name).map(String::as_str);
        let is_asked = match said("include-dashboard") {
            Some(value) => value == "true",
            None => said("dashboard-port").is_some(),
        };
        let given = DASHBOARD.iter().filter_map(move |name| Some((*name, said(name)?)));
        given.filter(move |_| is_asked)
    }

    /// What of the parameters has no effect.
    pub(crate) fn unknown(parameters: &BTreeMap<String, String>) -> Vec<String> {
        let used = |name: &&String| KNOWN.contains(&name.as_str()) || SILENT.contains(&name.as_str());
        parameters.keys().filter(|name| !used(name)).cloned().collect()
    }
}

/// The shell's script that starts the node, after what comes first.
pub(crate) fn script(first: &str, line: &str) -> String {
    // A file of a secret may be readable by the pod's group, which the token's reader does not accept of any file.
    format!(
        "export OXIRAY_TOKEN_FILE=\"${{TMPDIR:-/tmp}}/oxiray-join-token\"; \
         [ ! -f {SECRET_PATH}/join-token ] || ( umask 077; cat {SECRET_PATH}/join-token > \"$OXIRAY_TOKEN_FILE\" ); \
         {first}exec {line}"
    )
}

/// The shell's command: what the template's container does first, then the start.
pub(crate) fn command(container: &Value, line: &str) -> Value {
    let words = |key: &str| container[key].as_array().into_iter().flatten().filter_map(Value::as_str);
    let own: Vec<String> = words("command").chain(words("args")).map(quoted).collect();
    // A shell without a script is there for the script that others put behind it.
    let is_bare = own.last().is_none_or(|last| ["--", "-c", "-lc"].contains(&last.as_str()));
    let first = if is_bare { String::new() } else { format!("{} && ", own.join(" ")) };
    json!(["/bin/sh", "-c", script(&first, line)])
}

/// A word of the shell, whatever is in it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@%+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
