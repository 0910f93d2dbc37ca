//! From all rows of a kind to those that were asked for: columns, filters, limits, counts. Pure.

mod object_summary;

use oxiray_wire::message::{StateFilter, StateQuery, StateReport};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;

/// The most rows that one answer holds.
pub(crate) const ROWS_MAX: u32 = 10_000;

/// How a column may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Shown, and filtered by.
    Main,
    /// Shown; not filtered by.
    Shown,
    /// Shown in detail, and filtered by.
    Detail,
    /// Shown in detail; not filtered by.
    Deep,
}

type Column = (&'static str, Use);

use Use::{Deep, Detail, Main, Shown};

const ACTORS: &[Column] = &[
    ("actor_id", Main),
    ("class_name", Main),
    ("state", Main),
    ("job_id", Main),
    ("name", Main),
    ("node_id", Main),
    ("pid", Main),
    ("ray_namespace", Main),
    ("serialized_runtime_env", Deep),
    ("required_resources", Deep),
    ("death_cause", Deep),
    ("is_detached", Deep),
    ("placement_group_id", Detail),
    ("repr_name", Detail),
    ("num_restarts", Deep),
    ("num_restarts_due_to_lineage_reconstruction", Deep),
    ("num_restarts_due_to_node_preemption", Deep),
    ("call_site", Deep),
    ("label_selector", Deep),
    ("fallback_strategy", Deep),
];

const TASKS: &[Column] = &[
    ("task_id", Main),
    ("attempt_number", Main),
    ("name", Main),
    ("state", Main),
    ("job_id", Main),
    ("actor_id", Main),
    ("type", Main),
    ("func_or_class_name", Main),
    ("parent_task_id", Main),
    ("node_id", Main),
    ("worker_id", Main),
    ("worker_pid", Main),
    ("error_type", Main),
    ("language", Detail),
    ("required_resources", Deep),
    ("runtime_env_info", Deep),
    ("placement_group_id", Detail),
    ("events", Deep),
    ("profiling_data", Deep),
    ("creation_time_ms", Deep),
    ("start_time_ms", Deep),
    ("end_time_ms", Deep),
    ("task_log_info", Deep),
    ("error_message", Deep),
    ("is_debugger_paused", Detail),
    ("call_site", Deep),
    ("label_selector", Deep),
    ("fallback_strategy", Deep),
];

const TIMELINE: &[Column] = &[
    ("name", Main),
    ("task_id", Main),
    ("worker_id", Main),
    ("worker_pid", Main),
    ("state", Main),
    ("start_us", Shown),
    ("end_us", Shown),
];

const NODES: &[Column] = &[
    ("node_id", Main),
    ("node_ip", Main),
    ("is_head_node", Main),
    ("state", Main),
    ("state_message", Shown),
    ("node_name", Main),
    ("resources_total", Shown),
    ("labels", Shown),
    ("start_time_ms", Deep),
    ("end_time_ms", Deep),
];

const WORKERS: &[Column] = &[
    ("worker_id", Main),
    ("is_alive", Main),
    ("worker_type", Main),
    ("exit_type", Main),
    ("node_id", Main),
    ("ip", Main),
    ("pid", Main),
    ("exit_detail", Deep),
    ("worker_launch_time_ms", Deep),
    ("worker_launched_time_ms", Deep),
    ("start_time_ms", Deep),
    ("end_time_ms", Deep),
    ("debugger_port", Detail),
    ("num_paused_threads", Detail),
];

const JOBS: &[Column] = &[
    ("job_id", Main),
    ("type", Main),
    ("submission_id", Main),
    ("driver_info", Shown),
    ("status", Main),
    ("entrypoint", Shown),
    ("message", Shown),
    ("error_type", Shown),
    ("start_time", Deep),
    ("end_time", Deep),
    ("metadata", Deep),
    ("runtime_env", Deep),
    ("driver_agent_http_address", Deep),
    ("driver_node_id", Deep),
    ("driver_exit_code", Deep),
];

const PLACEMENT_GROUPS: &[Column] = &[
    ("placement_group_id", Main),
    ("name", Main),
    ("creator_job_id", Main),
    ("state", Main),
    ("bundles", Deep),
    ("is_detached", Detail),
    ("stats", Deep),
    ("topology_strategy", Deep),
    ("topology_assignments", Deep),
];

const OBJECTS: &[Column] = &[
    ("object_id", Main),
    ("object_size", Main),
    ("task_status", Main),
    ("attempt_number", Main),
    ("reference_type", Main),
    ("call_site", Main),
    ("type", Main),
    ("pid", Main),
    ("ip", Main),
];

const RUNTIME_ENVS: &[Column] = &[
    ("runtime_env", Main),
    ("success", Main),
    ("creation_time_ms", Shown),
    ("node_id", Main),
    ("ref_cnt", Deep),
    ("error", Detail),
];

fn columns(kind: &str) -> Option<&'static [Column]> {
    Some(match kind {
        "actors" => ACTORS,
        "tasks" => TASKS,
        "timeline" => TIMELINE,
        "nodes" => NODES,
        "workers" => WORKERS,
        "jobs" => JOBS,
        "placement_groups" => PLACEMENT_GROUPS,
        "objects" => OBJECTS,
        "runtime_envs" => RUNTIME_ENVS,
        _ => return None,
    })
}

/// The answer to a question, from all rows of its kind. The error says what is wrong with the question.
pub(crate) fn answer(asked: &StateQuery, rows: Vec<Json>) -> Result<StateReport, String> {
    let kind = asked.kind.as_str();
    let columns = columns(kind).ok_or_else(|| format!("there is no list of `{kind}`"))?;
    check(asked, columns)?;
    let mut fitting: Vec<Json> =
        rows.into_iter().filter(|row| asked.filters.iter().all(|filter| fits(row, filter))).collect();
    let total = fitting.len() as u64;
    let report = StateReport { request: asked.request, total, ..StateReport::default() };
    if asked.summary && kind == "objects" {
        return Ok(StateReport { rows: object_summary::summary(&fitting).to_string(), ..report });
    }
    if asked.summary {
        return Ok(StateReport { rows: summary(kind, &fitting)?.to_string(), ..report });
    }
    let shown: Vec<&str> = columns
        .iter()
        .filter(|(_, used)| asked.detail || matches!(used, Use::Main | Use::Shown))
        .map(|(name, _)| *name)
        .collect();
    fitting.truncate(asked.limit as usize);
    let cut = |row: &Json| -> Json {
        shown.iter().map(|name| ((*name).to_owned(), row[*name].clone())).collect::<Map<_, _>>().into()
    };
    let rows: Json = fitting.iter().map(cut).collect();
    Ok(StateReport { rows: rows.to_string(), columns: shown.into_iter().map(str::to_owned).collect(), ..report })
}

fn check(asked: &StateQuery, columns: &[Column]) -> Result<(), String> {
    if asked.limit > ROWS_MAX {
        return Err(format!(
            "limit={} rows were asked for, and an answer has at most {ROWS_MAX}: add filters",
            asked.limit
        ));
    }
    let usable: Vec<&str> = columns
        .iter()
        .filter(|(_, used)| matches!(used, Use::Main) || (asked.detail && matches!(used, Use::Detail)))
        .map(|(name, _)| *name)
        .collect();
    for filter in &asked.filters {
        if usable.contains(&filter.key.as_str()) {
            continue;
        }
        let hint = match columns.iter().find(|(name, _)| *name == filter.key) {
            Some((_, Use::Detail)) => " (it is a column of the detailed list: ask for detail)",
            Some(_) => " (it is a column that cannot be filtered by)",
            None => "",
        };
        return Err(format!(
            "{} cannot be filtered by `{}`{hint}: their keys are {}",
            asked.kind,
            filter.key,
            usable.join(", ")
        ));
    }
    Ok(())
}

fn fits(row: &Json, filter: &StateFilter) -> bool {
    let is_equal = match &row[&filter.key] {
        Json::Null => filter.value.is_empty() || filter.value.eq_ignore_ascii_case("none"),
        Json::String(text) => text.eq_ignore_ascii_case(&filter.value),
        Json::Bool(flag) => filter.value.parse() == Ok(*flag) || filter.value.eq_ignore_ascii_case(&flag.to_string()),
        Json::Number(number) => filter.value.parse().ok() == number.as_f64(),
        other => serde_json::from_str::<Json>(&filter.value).is_ok_and(|wanted| wanted == *other),
    };
    is_equal != filter.differs
}

type Counts = BTreeMap<String, u64>;

/// How many rows there are of each name, by state.
fn summary(kind: &str, rows: &[Json]) -> Result<Json, String> {
    let (by, key) = match kind {
        "actors" => ("class", "class_name"),
        "tasks" => ("func_name", "func_or_class_name"),
        _ => return Err(format!("there is no summary of {kind}: there are those of actors, objects and tasks")),
    };
    let text = |row: &Json, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let mut groups: BTreeMap<String, (Counts, String)> = BTreeMap::new();
    for row in rows {
        let group = groups.entry(text(row, key)).or_insert_with(|| (Counts::new(), text(row, "type")));
        *group.0.entry(text(row, "state")).or_default() += 1;
    }
    let is_tasks = kind == "tasks";
    let entry = |(name, (counts, kind)): (String, (Counts, String))| {
        let mut entry = json!({key: name, "state_counts": counts});
        if is_tasks {
            entry["type"] = kind.into();
        }
        (name, entry)
    };
    let summary: Map<String, Json> = groups.into_iter().map(entry).collect();
    let mut all = json!({"summary": summary, "summary_by": by});
    if is_tasks {
        let of = |kind: &str| rows.iter().filter(|row| row["type"] == kind).count();
        all["total_tasks"] = of("NORMAL_TASK").into();
        all["total_actor_tasks"] = of("ACTOR_TASK").into();
        all["total_actor_scheduled"] = of("ACTOR_CREATION_TASK").into();
    } else {
        all["total_actors"] = rows.len().into();
    }
    Ok(json!({"cluster": all}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Json> {
        let row = |name: &str, state: &str, pid: u32| {
            json!({"task_id": name, "name": name, "func_or_class_name": name, "state": state, "worker_pid": pid,
                   "type": "NORMAL_TASK", "language": "PYTHON", "actor_id": null})
        };
        vec![row("f", "RUNNING", 1), row("f", "FINISHED", 2), row("g", "FAILED", 2)]
    }

    fn ask(filters: &[(&str, bool, &str)], limit: u32, detail: bool) -> Result<StateReport, String> {
        let filter = |(key, differs, value): &(&str, bool, &str)| StateFilter {
            key: (*key).into(),
            differs: *differs,
            value: (*value).into(),
        };
        let filters = filters.iter().map(filter).collect();
        answer(&StateQuery { kind: "tasks".into(), filters, limit, detail, ..StateQuery::default() }, rows())
    }

    fn count(filters: &[(&str, bool, &str)]) -> u64 {
        ask(filters, 10, true).expect("the question is right").total
    }

    #[test]
    fn filters_compare_by_kind_of_value() {
        assert_eq!(count(&[]), 3);
        assert_eq!(count(&[("state", false, "running")]), 1);
        assert_eq!(count(&[("state", true, "RUNNING")]), 2);
        assert_eq!(count(&[("worker_pid", false, "2"), ("name", false, "g")]), 1);
        assert_eq!(count(&[("worker_pid", false, "x")]), 0);
        assert_eq!(count(&[("actor_id", false, "")]), 3);
        assert_eq!(count(&[("actor_id", true, "none")]), 0);
        assert_eq!(count(&[("language", false, "python")]), 3);
    }

    #[test]
    fn limits_and_columns() {
        let report = ask(&[], 2, false).expect("the question is right");
        assert_eq!(report.total, 3);
        assert!(!report.columns.contains(&"language".to_owned()));
        let rows: Vec<Map<String, Json>> = serde_json::from_str(&report.rows).expect("JSON");
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].len(), report.columns.len());
        assert!(ask(&[], 1, true).expect("the question is right").columns.contains(&"language".to_owned()));
    }

    #[test]
    fn wrong_questions_are_told_why() {
        let error = |filters: &[(&str, bool, &str)], limit| ask(filters, limit, false).expect_err("it is wrong");
        assert!(error(&[("colour", false, "x")], 1).contains("their keys are task_id"));
        assert!(error(&[("language", false, "x")], 1).contains("ask for detail"));
        assert!(error(&[("error_message", false, "x")], 1).contains("cannot be filtered by"));
        assert!(error(&[], ROWS_MAX + 1).contains("at most 10000"));
        let unknown = StateQuery { kind: "dreams".into(), ..StateQuery::default() };
        assert!(answer(&unknown, Vec::new()).is_err());
    }

    #[test]
    fn summaries_count_by_name_and_state() {
        let query = StateQuery { kind: "tasks".into(), summary: true, ..StateQuery::default() };
        let counts: Json = serde_json::from_str(&answer(&query, rows()).expect("counts").rows).expect("JSON");
        assert_eq!(counts["cluster"]["summary"]["f"]["state_counts"], json!({"RUNNING": 1, "FINISHED": 1}));
        assert_eq!(counts["cluster"]["total_tasks"], 3);
        let nodes = StateQuery { kind: "nodes".into(), summary: true, ..StateQuery::default() };
        assert!(answer(&nodes, Vec::new()).is_err());
    }
}
