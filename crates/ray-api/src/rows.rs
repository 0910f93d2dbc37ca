//! Rows in Ray's keys and types. The columns of `oxiray_state` have Ray's names and order; what stands here is where their
//! values or their order differ over HTTP.

use crate::ordered::Ordered;
use oxiray_ids::TaskId;
use oxiray_state::{Cell, Row, Use};
use oxiray_wire::state::{
    ActorRow, BundleRow, EnvironmentRow, GroupRow, JobRow, NodeRow, ObjectRow, StateKind, Tables, TaskRow, WorkerRow,
};

/// What Ray writes for a time of a process that it did not note.
const NO_TIME: u64 = u64::MAX;
/// How long Ray gives an environment to be made, in seconds, where its user does not say.
const SETUP_TIMEOUT_S: i64 = 600;

/// Rows of a list of Ray's.
pub(crate) trait RayRow: Row {
    /// The columns in Ray's order, where that is not the order of the list.
    fn order(_detail: bool) -> Option<&'static [&'static str]> {
        None
    }

    /// Ray's value in a column, where that is not the value of the list.
    fn in_ray(&self, _column: &str) -> Option<Ordered> {
        None
    }
}

/// The rows of a kind.
pub(crate) fn rows(kind: StateKind, detail: bool, tables: &Tables) -> Ordered {
    match kind {
        StateKind::Actors => all(kind, detail, &tables.actors),
        StateKind::Tasks | StateKind::Timeline => all(StateKind::Tasks, detail, &tables.tasks),
        StateKind::Nodes => all(kind, detail, &tables.nodes),
        StateKind::Workers => all(kind, detail, &tables.workers),
        StateKind::Jobs => all(kind, detail, &tables.jobs),
        StateKind::PlacementGroups => all(kind, detail, &tables.placement_groups),
        StateKind::Objects => all(kind, detail, &tables.objects),
        StateKind::RuntimeEnvs => all(kind, detail, &tables.runtime_envs),
        // Ray has no such lists.
        StateKind::Explain | StateKind::Stacks => Ordered::List(Vec::new()),
    }
}

fn all<R: RayRow>(kind: StateKind, detail: bool, rows: &[R]) -> Ordered {
    let mut shown: Vec<_> =
        R::columns(kind).iter().filter(|column| detail || matches!(column.used, Use::Main | Use::Shown)).collect();
    if let Some(order) = R::order(detail) {
        shown.retain(|column| order.contains(&column.name));
        shown.sort_by_key(|column| order.iter().position(|name| *name == column.name));
    }
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

/// All of a job's columns.
const JOB: [&str; 15] = [
    "type",
    "job_id",
    "submission_id",
    "driver_info",
    "status",
    "entrypoint",
    "message",
    "error_type",
    "start_time",
    "end_time",
    "metadata",
    "runtime_env",
    "driver_agent_http_address",
    "driver_node_id",
    "driver_exit_code",
];
/// Those without detail.
const JOB_BRIEF: [&str; 8] =
    ["job_id", "submission_id", "entrypoint", "type", "status", "message", "error_type", "driver_info"];

impl RayRow for JobRow {
    fn order(detail: bool) -> Option<&'static [&'static str]> {
        Some(if detail { &JOB } else { &JOB_BRIEF })
    }

    fn in_ray(&self, column: &str) -> Option<Ordered> {
        Some(match column {
            "entrypoint" => self.entrypoint.as_deref().unwrap_or_default().into(),
            "driver_info" => fields(
                cell(self, StateKind::Jobs, column),
                [("id", "".into()), ("node_ip_address", "".into()), ("pid", "".into())],
            ),
            "metadata" if self.metadata.is_empty() && !self.submission.is_empty() => Ordered::Null,
            _ => return None,
        })
    }
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
