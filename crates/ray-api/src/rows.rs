//! Rows in Ray's keys and types. The columns of `oxiray_state` have Ray's names and order; what stands here is where their
//! values or their order differ over HTTP.

use crate::jobs::{JobDetails, REDACTED};
use crate::ordered::Ordered;
use oxiray_ids::TaskId;
use oxiray_state::{Cell, Row, Use};
use oxiray_wire::state::{
    ActorRow, BundleRow, EnvironmentRow, GroupRow, NodeRow, ObjectRow, StateKind, Tables, TaskRow, WorkerRow,
};
use std::collections::BTreeMap;

/// What Ray writes for a time of a process that it did not note.
const NO_TIME: u64 = u64::MAX;
/// How long Ray gives an environment to be made, in seconds, where its user does not say.
const SETUP_TIMEOUT_S: i64 = 600;

/// Rows of a list of Ray's.
pub(crate) trait RayRow: Row {
    /// Ray's value in a column, where that is not the value of the list.
    fn in_ray(&self, _column: &str) -> Option<Ordered> {
        None
    }
}

/// The rows of a kind.
pub(crate) fn rows(kind: StateKind, detail: bool, is_for_browser: bool, tables: &Tables) -> Ordered {
    let mut rows = all_rows(kind, detail, tables);
    if is_for_browser {
        redact_rows(&mut rows);
    }
    rows
}

/// A browser sees no values of variables.
fn redact_rows(rows: &mut Ordered) {
    let Ordered::List(rows) = rows else { return };
    for row in rows {
        let Ordered::Map(fields) = row else { continue };
        for (name, value) in fields {
            match (name.as_str(), value) {
                ("runtime_env", environment) => redact(environment),
                ("serialized_runtime_env", written @ Ordered::Text(_)) => redact_written(written),
                ("runtime_env_info", Ordered::Map(info)) => {
                    info.iter_mut().filter(|(name, _)| name == "serialized_runtime_env").for_each(|(_, written)| {
                        redact_written(written);
                    });
                }
                _ => {}
            }
        }
    }
}

fn redact(environment: &mut Ordered) {
    let Ordered::Map(fields) = environment else { return };
    for (_, variables) in fields.iter_mut().filter(|(name, _)| name == "env_vars") {
        if let Ordered::Map(variables) = variables {
            for (_, value) in variables {
                *value = REDACTED.into();
            }
        }
    }
}

/// What cannot be read is hidden whole.
fn redact_written(written: &mut Ordered) {
    let Ordered::Text(text) = written else { return };
    let Ok(serde_json::Value::Object(mut environment)) = serde_json::from_str(text) else {
        *written = REDACTED.into();
        return;
    };
    if let Some(variables) = environment.get_mut("env_vars").and_then(serde_json::Value::as_object_mut) {
        variables.values_mut().for_each(|value| *value = REDACTED.into());
    }
    *written = serde_json::Value::Object(environment).to_string().into();
}

fn all_rows(kind: StateKind, detail: bool, tables: &Tables) -> Ordered {
    match kind {
        StateKind::Actors => all(kind, detail, &tables.actors),
        StateKind::Tasks | StateKind::Timeline => all(StateKind::Tasks, detail, &tables.tasks),
        StateKind::Nodes => all(kind, detail, &tables.nodes),
        StateKind::Workers => all(kind, detail, &tables.workers),
        StateKind::PlacementGroups => all(kind, detail, &tables.placement_groups),
        StateKind::Objects => all(kind, detail, &tables.objects),
        StateKind::RuntimeEnvs => all(kind, detail, &tables.runtime_envs),
        // Ray has no such lists, and jobs are told of elsewhere: what a failure quotes is no part of their rows.
        StateKind::Jobs | StateKind::Explain | StateKind::Stacks => Ordered::List(Vec::new()),
    }
}

fn all<R: RayRow>(kind: StateKind, detail: bool, rows: &[R]) -> Ordered {
    let shown: Vec<_> =
        R::columns(kind).iter().filter(|column| detail || matches!(column.used, Use::Main | Use::Shown)).collect();
    let one = |row: &R| {
        Ordered::map(shown.iter().map(|column| {
            let value = row.in_ray(column.name).unwrap_or_else(|| (column.of)(row).into());
            (column.name, value)
        }))
    };
    rows.iter().map(one).collect()
}

/// What the list has in a column.
fn cell<R: Row>(row: &R, kind: StateKind, name: &str) -> Cell {
    R::columns(kind).iter().find(|column| column.name == name).map_or(Cell::Null, |column| (column.of)(row))
}

/// What the list has in a column, and something else where that is nothing.
fn or<R: Row>(row: &R, kind: StateKind, name: &str, otherwise: Ordered) -> Ordered {
    match cell(row, kind, name) {
        Cell::Null => otherwise,
        known => known.into(),
    }
}

/// A whole number as a text, and 0 where there is none.
fn number_text<R: Row>(row: &R, kind: StateKind, name: &str) -> Ordered {
    match cell(row, kind, name) {
        Cell::Whole(number) => Ordered::text(number),
        _ => "0".into(),
    }
}

/// Fields in this order, each with what stands for it where it is not known.
fn fields<const N: usize>(cell: Cell, order: [(&str, Ordered); N]) -> Ordered {
    let Cell::Map(mut known) = cell else { return Ordered::Null };
    Ordered::map(order.map(|(name, otherwise)| {
        let value = known.remove(name).filter(|value| *value != Cell::Null);
        (name, value.map_or(otherwise, Ordered::from))
    }))
}

impl RayRow for ActorRow {
    fn in_ray(&self, column: &str) -> Option<Ordered> {
        const KIND: StateKind = StateKind::Actors;
        Some(match column {
            "death_cause" => death_cause(self),
            "repr_name" => or(self, KIND, column, "".into()),
            "num_restarts" | "num_restarts_due_to_lineage_reconstruction" | "num_restarts_due_to_node_preemption" => {
                number_text(self, KIND, column)
            }
            "label_selector" => or(self, KIND, column, Ordered::empty_map()),
            _ => return None,
        })
    }
}

fn death_cause(row: &ActorRow) -> Ordered {
    let Cell::Map(mut cause) = cell(row, StateKind::Actors, "death_cause") else { return Ordered::Null };
    let context = cause.remove("actor_died_error_context").unwrap_or_default();
    let none = || Ordered::from("");
    let order = [
        ("error_message", none()),
        ("owner_id", none()),
        ("owner_ip_address", none()),
        ("node_ip_address", none()),
        ("pid", 0_u32.into()),
        ("name", none()),
        ("ray_namespace", none()),
        ("class_name", none()),
        ("actor_id", none()),
        ("reason", "UNSPECIFIED".into()),
        ("never_started", false.into()),
    ];
    Ordered::map([("actor_died_error_context", fields(context, order))])
}

impl RayRow for TaskRow {
    fn in_ray(&self, column: &str) -> Option<Ordered> {
        const KIND: StateKind = StateKind::Tasks;
        Some(match column {
            // Ray's client reads no row without one.
            "parent_task_id" => or(self, KIND, column, TaskId::NIL.hex().into()),
            "runtime_env_info" => runtime_env_info(self),
            "events" => events(self),
            "profiling_data" | "label_selector" => or(self, KIND, column, Ordered::empty_map()),
            "creation_time_ms" | "start_time_ms" | "end_time_ms" => match cell(self, KIND, column) {
                Cell::Whole(ms) => (ms as f64).into(),
                other => other.into(),
            },
            "fallback_strategy" => or(self, KIND, column, Ordered::map([("options", Ordered::List(Vec::new()))])),
            _ => return None,
        })
    }
}

/// The environment as it is written, and how it is made: as its user says, or as Ray does without a word.
fn runtime_env_info(row: &TaskRow) -> Ordered {
    let Cell::Map(mut told) = cell(row, StateKind::Tasks, "runtime_env_info") else { return Ordered::Null };
    let Some(Cell::Text(written)) = told.remove("serialized_runtime_env") else { return Ordered::Null };
    let environment: serde_json::Value = serde_json::from_str(&written).unwrap_or_default();
    let config = &environment["config"];
    let timeout = config["setup_timeout_seconds"].as_i64().unwrap_or(SETUP_TIMEOUT_S);
    let eager = config["eager_install"].as_bool().unwrap_or(true);
    Ordered::map([
        ("serialized_runtime_env", written.into()),
        (
            "runtime_env_config",
            Ordered::map([
                ("setup_timeout_seconds", Ordered::Whole(timeout)),
                ("eager_install", eager.into()),
                ("log_files", Ordered::List(Vec::new())),
            ]),
        ),
    ])
}

/// Milliseconds are real numbers here.
fn events(row: &TaskRow) -> Ordered {
    let Cell::List(events) = cell(row, StateKind::Tasks, "events") else { return Ordered::List(Vec::new()) };
    let one = |event: Cell| {
        let Cell::Map(mut event) = event else { return Ordered::Null };
        let created = match event.remove("created_ms") {
            Some(Cell::Whole(ms)) => (ms as f64).into(),
            other => other.map(Ordered::from).into(),
        };
        Ordered::map([("state", event.remove("state").map(Ordered::from).into()), ("created_ms", created)])
    };
    events.into_iter().map(one).collect()
}

impl RayRow for NodeRow {}

impl RayRow for WorkerRow {
    fn in_ray(&self, column: &str) -> Option<Ordered> {
        const KIND: StateKind = StateKind::Workers;
        Some(match column {
            "node_id" => or(self, KIND, column, "".into()),
            "pid" | "start_time_ms" => or(self, KIND, column, 0_u32.into()),
            "worker_launch_time_ms" | "worker_launched_time_ms" => or(self, KIND, column, NO_TIME.into()),
            _ => return None,
        })
    }
}

/// A job's columns without detail.
const JOB_BRIEF: [&str; 8] =
    ["job_id", "submission_id", "entrypoint", "type", "status", "message", "error_type", "driver_info"];

/// Jobs, as the jobs API tells of them.
pub(crate) fn jobs(details: &[JobDetails], detail: bool) -> Ordered {
    let one = |job: &JobDetails| {
        let Ordered::Map(mut all) = job_details(job) else { return Ordered::Null };
        if !detail {
            all.retain(|(name, _)| JOB_BRIEF.contains(&name.as_str()));
            all.sort_by_key(|(name, _)| JOB_BRIEF.iter().position(|brief| brief == name));
        }
        Ordered::Map(all)
    };
    details.iter().map(one).collect()
}

fn job_details(job: &JobDetails) -> Ordered {
    let text = |text: &Option<String>| Ordered::from(text.as_deref());
    let driver = job.driver_info.as_ref().map(|driver| {
        Ordered::map([
            ("id", (&driver.id).into()),
            ("node_ip_address", (&driver.node_ip_address).into()),
            ("pid", (&driver.pid).into()),
        ])
    });
    let noted = |noted: &BTreeMap<String, String>| {
        Ordered::map(noted.iter().map(|(name, value)| (name.as_str(), value.into())))
    };
    Ordered::map([
        ("type", job.kind.into()),
        ("job_id", text(&job.job_id)),
        ("submission_id", text(&job.submission_id)),
        ("driver_info", driver.into()),
        ("status", job.status.into()),
        ("entrypoint", (&job.entrypoint).into()),
        ("message", text(&job.message)),
        ("error_type", text(&job.error_type)),
        ("start_time", job.start_time.into()),
        ("end_time", job.end_time.into()),
        ("metadata", job.metadata.as_ref().map(noted).into()),
        ("runtime_env", job.runtime_env.as_ref().map(|environment| Ordered::Document(environment.to_string())).into()),
        ("driver_agent_http_address", text(&job.driver_agent_http_address)),
        ("driver_node_id", text(&job.driver_node_id)),
        ("driver_exit_code", job.driver_exit_code.into()),
    ])
}

impl RayRow for GroupRow {
    fn in_ray(&self, column: &str) -> Option<Ordered> {
        const KIND: StateKind = StateKind::PlacementGroups;
        Some(match column {
            "bundles" => {
                (0_u32..).zip(&self.bundles).map(|(index, bundle)| group_bundle(self, index, bundle)).collect()
            }
            "stats" => group_stats(self),
            "topology_strategy" | "topology_assignments" => or(self, KIND, column, Ordered::empty_map()),
            _ => return None,
        })
    }
}

fn group_bundle(group: &GroupRow, index: u32, bundle: &BundleRow) -> Ordered {
    let amounts = bundle.resources.iter().map(|(name, amount)| (name.as_str(), (*amount).into()));
    Ordered::map([
        (
            "bundle_id",
            Ordered::map([
                ("placement_group_id", Ordered::text(group.placement_group_id)),
                ("bundle_index", index.into()),
            ]),
        ),
        ("unit_resources", Ordered::map(amounts)),
        ("node_id", bundle.node_id.map(Ordered::text).into()),
        ("label_selector", Ordered::empty_map()),
    ])
}

/// Of the times that Ray has, the head notes how long it took from the request until all bundles were set aside.
fn group_stats(group: &GroupRow) -> Ordered {
    let took_us = (group.creation_ms * 1e3).round() as u64;
    Ordered::map([
        ("creation_request_received_ns", "0".into()),
        ("scheduling_started_time_ns", "0".into()),
        ("scheduling_latency_us", Ordered::text(took_us)),
        ("end_to_end_creation_latency_us", Ordered::text(took_us)),
        ("scheduling_attempt", 0_u32.into()),
        ("scheduling_state", group.scheduling.name().into()),
        ("highest_retry_delay_ms", 0.0.into()),
    ])
}

impl RayRow for ObjectRow {}

impl RayRow for EnvironmentRow {
    fn in_ray(&self, column: &str) -> Option<Ordered> {
        const KIND: StateKind = StateKind::RuntimeEnvs;
        Some(match column {
            "ref_cnt" => number_text(self, KIND, column),
            "creation_time_ms" => match cell(self, KIND, column) {
                Cell::Whole(ms) => Ordered::text(ms),
                other => other.into(),
            },
            _ => return None,
        })
    }
}
