//! `oxiray operator show`: what would be made for the clusters in a file.

use anyhow::{Context as _, bail};
use oxiray_kubernetes::{FailuresByGroup, RayCluster, Refusals, Settings, Situation, StatusInputs, plan, status};
use serde_json::Value;
use std::io::Write as _;
use std::path::Path;

/// Prints for each cluster in the file the capacity of its groups, or with `json` the objects themselves.
pub(crate) fn run(file: &Path, json: bool, settings: &Settings) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| format!("{} is no YAML", file.display()))?;
    let is_cluster = |document: &&Value| document["kind"] == "RayCluster";
    let mut out = std::io::stdout();
    let mut shown = Vec::new();
    for document in documents.iter().filter(is_cluster) {
        let mut cluster = RayCluster::read(document)?;
        if cluster.metadata.namespace.is_empty() {
            "default".clone_into(&mut cluster.metadata.namespace);
        }
        let (failures, refusals) = (FailuresByGroup::new(), Refusals::new());
        let plan = plan(&Situation { cluster: &cluster, pods: &[], settings, failures: &failures, now: 0 });
        let told = status(&StatusInputs {
            cluster: &cluster,
            pods: &[],
            settings,
            failures: &failures,
            refusals: &refusals,
            now: 0,
        });
        if json {
            let pods = plan.pods.iter().map(|pod| pod.object.clone());
            let objects: Vec<Value> = plan.objects.iter().cloned().chain(pods).collect();
            shown.push(serde_json::json!({"cluster": document, "objects": objects, "status": told}));
            continue;
        }
        writeln!(out, "{}", cluster.metadata.name)?;
        for remark in plan.remarks.iter().filter(|remark| remark.is_warning) {
            writeln!(out, "  {}: {}", remark.reason, remark.message)?;
        }
        for note in &cluster.notes {
            writeln!(out, "  note: {note}")?;
        }
        for group in told["groups"].as_array().into_iter().flatten() {
            let (name, wanted) = (group["name"].as_str().unwrap_or_default(), &group["desiredReplicas"]);
            writeln!(out, "  {name}: {wanted} replicas, {} per host", group["resourcesPerHost"])?;
            for note in group["notes"].as_array().into_iter().flatten() {
                writeln!(out, "    note: {}", note.as_str().unwrap_or_default())?;
            }
        }
        for pod in &plan.pods {
            writeln!(out, "  pod {}", pod.object["metadata"]["name"].as_str().unwrap_or_default())?;
        }
    }
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&shown)?)?;
    } else if !documents.iter().any(|document| document["kind"] == "RayCluster") {
        bail!("{} has no RayCluster in it", file.display());
    }
    Ok(())
}
