//! A pod as the API tells of it, reduced to what is decided by.

use crate::machine_labels::MACHINE_LABELS_ANNOTATION;
use crate::pods::{GROUP_LABEL, HASH_LABEL, HOST_LABEL, REPLICA_LABEL};
use serde_json::Value;

/// Where a pod stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It has no machine yet, or its container is not running.
    Pending,
    /// It runs.
    Running,
    /// It has ended, by itself or not: it will not run again.
    Over,
}

/// A pod of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedPod {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// Its group.
    pub group: String,
    /// Which replica of the group it is of; nothing for the head.
    pub replica: Option<u32>,
    /// Which host of the replica it is.
    pub host: u32,
    /// Of which template it was made.
    pub hash: String,
    /// Where it stands.
    pub phase: Phase,
    /// Whether its node serves.
    pub is_ready: bool,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// The machine it is on.
    pub machine: Option<String>,
    /// Whether it was told what its machine is labelled with.
    pub knows_machine: bool,
    /// Its address.
    pub address: Option<String>,
    /// Why it ended, where it failed.
    pub failure: Option<String>,
    /// Why it has no machine.
    pub unplaced: Option<String>,
}

impl ObservedPod {
    /// Reads a pod.
    pub fn of(pod: &Value) -> Self {
        let labels = &pod["metadata"]["labels"];
        let status = &pod["status"];
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let number = |label: &str| labels[label].as_str().and_then(|text| text.parse().ok());
        let condition = |kind: &str| {
            let conditions = status["conditions"].as_array();
            conditions.into_iter().flatten().find(|condition| condition["type"] == kind)
        };
        let unplaced = condition("PodScheduled").filter(|condition| condition["status"] == "False");
        let ended = ended(pod);
        let phase = match status["phase"].as_str() {
            Some("Failed" | "Succeeded") => Phase::Over,
            _ if ended.is_some() => Phase::Over,
            Some("Running") => Phase::Running,
            _ => Phase::Pending,
        };
        let succeeded = status["phase"] == "Succeeded" || ended.is_some_and(|ended| ended["exitCode"] == 0);
        let failure = (phase == Phase::Over && !succeeded).then(|| {
            let why = text(&status["reason"]).or_else(|| text(&ended?["reason"]));
            let message = text(&status["message"]).or_else(|| Some(format!("exit code {}", ended?["exitCode"])));
            [why, message].into_iter().flatten().collect::<Vec<_>>().join(": ")
        });
        Self {
            name: text(&pod["metadata"]["name"]).unwrap_or_default(),
            uid: text(&pod["metadata"]["uid"]).unwrap_or_default(),
            group: text(&labels[GROUP_LABEL]).unwrap_or_default(),
            replica: number(REPLICA_LABEL).filter(|_| labels["ray.io/node-type"] == "worker"),
            host: number(HOST_LABEL).unwrap_or_default(),
            hash: text(&labels[HASH_LABEL]).unwrap_or_default(),
            phase,
            is_ready: condition("Ready").is_some_and(|condition| condition["status"] == "True"),
            is_deleting: !pod["metadata"]["deletionTimestamp"].is_null(),
            machine: text(&pod["spec"]["nodeName"]),
            knows_machine: !pod["metadata"]["annotations"][MACHINE_LABELS_ANNOTATION].is_null(),
            address: text(&status["podIP"]),
            failure,
            unplaced: unplaced
                .map(|condition| text(&condition["message"]).unwrap_or_else(|| "it has no machine".into())),
        }
    }

    /// The machine whose labels it waits for: told once, when it has a machine.
    pub fn waits_for_labels_of(&self) -> Option<&str> {
        let is_meant = !self.knows_machine && !self.is_deleting && self.phase != Phase::Over;
        self.machine.as_deref().filter(|_| is_meant)
    }

    /// Whether it is the head's.
    pub fn is_head(&self) -> bool {
        self.replica.is_none()
    }
}

/// How the first container ended, in a pod that does not start it again.
fn ended(pod: &Value) -> Option<&Value> {
    if pod["spec"]["restartPolicy"] != "Never" {
        return None;
    }
    let name = &pod["spec"]["containers"][0]["name"];
    let containers = pod["status"]["containerStatuses"].as_array()?;
    let ours = containers.iter().find(|container| &container["name"] == name)?;
    Some(&ours["state"]["terminated"]).filter(|ended| !ended.is_null())
}
