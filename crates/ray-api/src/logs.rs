//! `/api/v0/logs`: which files of logs a node has, under the names that Ray's client gives them.

use crate::RayAnswer;
use crate::ordered::Ordered;
use crate::state::told;

/// How a file's name begins and ends, and what it is listed under; the first that fits counts.
const CATEGORIES: [(&str, &str, &str); 7] = [
    ("worker-", ".out", "worker_out"),
    ("worker-", ".err", "worker_err"),
    ("submitted-", "", "driver"),
    ("daemon", "", "raylet"),
    ("autoscaler", "", "autoscaler"),
    ("dashboard", "", "dashboard"),
    ("", "", "internal"),
];
/// What Ray's answers always have, in its order.
const ALWAYS: [&str; 10] = [
    "worker_out",
    "worker_err",
    "core_worker",
    "driver",
    "raylet",
    "gcs_server",
    "autoscaler",
    "agent",
    "dashboard",
    "internal",
];

/// The answer to a list of a node's files, in the order of their names.
pub fn listed<'name>(names: impl IntoIterator<Item = &'name str>) -> RayAnswer {
    let mut files: Vec<(&str, Vec<Ordered>)> = ALWAYS.iter().map(|category| (*category, Vec::new())).collect();
    for name in names {
        let fits = |(begin, end, _): &&(&str, &str, &str)| name.starts_with(begin) && name.ends_with(end);
        let category = CATEGORIES.iter().find(fits).map(|(_, _, category)| *category);
        let found = files.iter_mut().find(|(known, _)| Some(*known) == category);
        found.expect("every category is listed").1.push(name.into());
    }
    told(200, "", Ordered::map(files.into_iter().map(|(category, names)| (category, Ordered::List(names)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_listed_by_what_they_are_of() {
        let names = ["daemon.log", "dashboard.log", "other.log", "submitted-a.log", "worker-1.err", "worker-1.out"];
        let told: serde_json::Value = serde_json::from_str(&listed(names).body).expect("JSON");
        let files = &told["data"]["result"];
        assert_eq!(files.as_object().map(serde_json::Map::len), Some(ALWAYS.len()));
        for (category, name) in [
            ("worker_out", "worker-1.out"),
            ("worker_err", "worker-1.err"),
            ("driver", "submitted-a.log"),
            ("raylet", "daemon.log"),
            ("dashboard", "dashboard.log"),
            ("internal", "other.log"),
        ] {
            assert_eq!(files[category], serde_json::json!([name]));
        }
        assert_eq!(files["agent"], serde_json::json!([]));
    }
}
