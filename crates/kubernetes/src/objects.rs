//! What a cluster needs beside its pods.

use crate::applied::to_text;
use crate::cluster::RayCluster;
use crate::pods::{CLUSTER_LABEL, CREATED_BY, CREATED_BY_LABEL};
use serde_json::{Value, json};

/// The size of a head's volume where nothing is said.
const VOLUME_SIZE: &str = "1Gi";

/// The name of the claim for the head's journal.
pub(crate) fn claim_name(cluster: &RayCluster) -> String {
    let storage = cluster.spec.gcs_fault_tolerance_options.as_ref().map(|options| &options.storage);
    storage
        .and_then(|storage| storage.claim_name.clone())
        .unwrap_or_else(|| format!("{}-head-journal", cluster.metadata.name))
}

/// Services, a budget of disruptions, and the head's volume: in the order in which they are applied.
pub(crate) fn objects(cluster: &RayCluster) -> Vec<Value> {
    let mut found = vec![head_service(cluster)];
    if cluster.spec.worker_group_specs.iter().any(|group| group.hosts() > 1) {
        found.push(service(&cluster.pods_service(), cluster, "worker", &json!([])));
    }
    found.push(disruption_budget(cluster));
    found.extend(volume_claim(cluster));
    found
}

fn labels(cluster: &RayCluster) -> Value {
    json!({CLUSTER_LABEL: cluster.metadata.name, CREATED_BY_LABEL: CREATED_BY})
}

/// A service without an address of its own: its name is that of the pods themselves.
fn service(name: &str, cluster: &RayCluster, kind: &str, ports: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels(cluster)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": {CLUSTER_LABEL: cluster.metadata.name, "ray.io/node-type": kind},
            "ports": ports,
        },
    })
}

fn head_service(cluster: &RayCluster) -> Value {
    let head = &cluster.spec.head_group_spec;
    let port = cluster.head_port();
    let ports = json!([{"name": "gcs-server", "port": port, "protocol": "TCP", "targetPort": port}]);
    let mut made = service(&cluster.head_service(), cluster, "head", &ports);
    if let Some(kind @ ("NodePort" | "LoadBalancer")) = head.service_type.as_deref() {
        made["spec"]["type"] = json!(kind);
        if let Some(fields) = made["spec"].as_object_mut() {
            fields.remove("clusterIP");
        }
    }
    made
}

/// Machines are emptied one pod of the cluster at a time, so that each has the time to hand on what it has.
fn disruption_budget(cluster: &RayCluster) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": cluster.metadata.name, "labels": labels(cluster)},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {CLUSTER_LABEL: cluster.metadata.name}}},
    })
}

fn volume_claim(cluster: &RayCluster) -> Option<Value> {
    let storage = &cluster.spec.gcs_fault_tolerance_options.as_ref()?.storage;
    if storage.claim_name.is_some() {
        return None;
    }
    let modes = if storage.access_modes.is_empty() { json!(["ReadWriteOnce"]) } else { json!(storage.access_modes) };
    let mut size = storage.size.clone().unwrap_or_else(|| json!(VOLUME_SIZE));
    to_text(&mut size);
    let mut claim = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim_name(cluster), "labels": labels(cluster)},
        "spec": {
            "accessModes": modes,
            "resources": {"requests": {"storage": size}},
        },
    });
    if let Some(class) = &storage.storage_class_name {
        claim["spec"]["storageClassName"] = json!(class);
    }
    Some(claim)
}

/// Whether the object goes with its cluster.
pub(crate) fn is_owned(object: &Value, cluster: &RayCluster) -> bool {
    let keeps = cluster
        .spec
        .gcs_fault_tolerance_options
        .as_ref()
        .and_then(|options| options.storage.deletion_policy.as_deref());
    object["kind"] != "PersistentVolumeClaim" || keeps != Some("Retain")
}
