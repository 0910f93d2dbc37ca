//! How many references to objects there are, and how large those are, by where they were made. Pure.

use crate::head::NOT_RECORDED;
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

const MEBIBYTE: f64 = 1_048_576.0;

#[derive(Debug, Default)]
struct Group {
    rows: u64,
    bytes: u64,
    processes: BTreeSet<u64>,
    machines: BTreeSet<String>,
    by_status: BTreeMap<String, u64>,
    by_attempt: BTreeMap<String, u64>,
    by_use: BTreeMap<String, u64>,
}

/// Counts by place, from rows of objects. A size that is not known counts as nothing.
pub(super) fn summary(rows: &[Json]) -> Json {
    let text = |row: &Json, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for row in rows {
        let group = groups.entry(text(row, "call_site")).or_default();
        group.rows += 1;
        group.bytes += row["object_size"].as_u64().unwrap_or(0);
        group.processes.insert(row["pid"].as_u64().unwrap_or(0));
        group.machines.insert(text(row, "ip"));
        *group.by_status.entry(text(row, "task_status")).or_default() += 1;
        *group.by_attempt.entry(row["attempt_number"].to_string()).or_default() += 1;
        *group.by_use.entry(text(row, "reference_type")).or_default() += 1;
    }
    let total_bytes: u64 = groups.values().map(|group| group.bytes).sum();
    let records_sites = !groups.contains_key(NOT_RECORDED);
    let entry = |(site, group): (String, Group)| {
        let counts = json!({
            "total_objects": group.rows, "total_size_mb": mebibytes(group.bytes),
            "total_num_workers": group.processes.len(), "total_num_nodes": group.machines.len(),
            "task_state_counts": group.by_status, "task_attempt_number_counts": group.by_attempt,
            "ref_type_counts": group.by_use,
        });
        (site, counts)
    };
    let by_site: Map<String, Json> = groups.into_iter().map(entry).collect();
    json!({"cluster": {
        "summary": by_site, "total_objects": rows.len(), "total_size_mb": mebibytes(total_bytes),
        "callsite_enabled": records_sites, "summary_by": "callsite",
    }})
}

/// To three places.
fn mebibytes(bytes: u64) -> f64 {
    (bytes as f64 / MEBIBYTE * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_counted_by_where_they_were_made() {
        let row = |site: &str, size: i64, pid: u32, used: &str| {
            json!({"call_site": site, "object_size": size, "pid": pid, "ip": "10.0.0.1", "task_status": "FINISHED",
                   "attempt_number": 1, "reference_type": used})
        };
        let told = summary(&[
            row("a.py:1", 2 << 20, 1, "LOCAL_REFERENCE"),
            row("a.py:1", -1, 2, "LOCAL_REFERENCE"),
            row("a.py:2", 1 << 20, 2, "PINNED_IN_MEMORY"),
        ]);
        let all = &told["cluster"];
        assert_eq!((&all["total_objects"], &all["total_size_mb"]), (&json!(3), &json!(3.0)));
        assert_eq!(all["callsite_enabled"], true);
        let first = &all["summary"]["a.py:1"];
        assert_eq!((&first["total_num_workers"], &first["total_num_nodes"]), (&json!(2), &json!(1)));
        assert_eq!(first["ref_type_counts"], json!({"LOCAL_REFERENCE": 2}));
        assert_eq!(summary(&[row(NOT_RECORDED, 0, 1, "x")])["cluster"]["callsite_enabled"], false);
    }
}
