//! How many rows there are, by what they are of.

use crate::cell::Cell;
use crate::columns::{actor_state, state_name, use_name};
use oxiray_wire::state::{
    ActorRow, CallCounts, EnvironmentRow, GroupRow, JobRow, NodeRow, ObjectCounts, ObjectRow, ProcessStacks, StateKind,
    Summary, TaskKind, TaskRow, WorkerRow,
};
use std::collections::{BTreeMap, BTreeSet};

/// What stands for the place of a reference where places are not recorded.
pub const NOT_RECORDED: &str = "disabled";

const MEBIBYTE: f64 = 1_048_576.0;

/// Rows of which there may be counts.
pub trait Counted: Sized {
    /// The counts of these rows.
    ///
    /// # Errors
    /// Where there are none of that kind.
    fn counts(kind: StateKind, rows: &[Self]) -> Result<Summary, String>;
}

macro_rules! uncounted {
    ($($row:ty),*) => {$(
        impl Counted for $row {
            fn counts(kind: StateKind, _: &[Self]) -> Result<Summary, String> {
                Err(no_summary(kind))
            }
        }
    )*};
}

uncounted!(NodeRow, WorkerRow, JobRow, GroupRow, EnvironmentRow, ProcessStacks);

fn no_summary(kind: StateKind) -> String {
    format!("there is no summary of {}: there are those of actors, objects and tasks", kind.name())
}

impl Counted for ActorRow {
    fn counts(kind: StateKind, rows: &[Self]) -> Result<Summary, String> {
        let mut summary = Summary { of: kind, total: rows.len() as u64, ..Summary::default() };
        for row in rows {
            let counts = summary.calls.entry(row.class.clone()).or_default();
            *counts.states.entry(actor_state(row.state).to_owned()).or_default() += 1;
        }
        Ok(summary)
    }
}

impl Counted for TaskRow {
    fn counts(kind: StateKind, rows: &[Self]) -> Result<Summary, String> {
        if kind == StateKind::Timeline {
            return Err(no_summary(kind));
        }
        let mut summary = Summary { of: kind, total: rows.len() as u64, ..Summary::default() };
        for row in rows {
            let first = || CallCounts { kind: row.kind(), ..CallCounts::default() };
            let counts = summary.calls.entry(row.function.clone()).or_insert_with(first);
            *counts.states.entry(state_name(row.task_id, row.stage).to_owned()).or_default() += 1;
            *summary.kinds.entry(row.kind().name().to_owned()).or_default() += 1;
        }
        Ok(summary)
    }
}

impl Counted for ObjectRow {
    fn counts(kind: StateKind, rows: &[Self]) -> Result<Summary, String> {
        let mut summary = Summary { of: kind, total: rows.len() as u64, ..Summary::default() };
        let mut places: BTreeMap<&str, (BTreeSet<u32>, BTreeSet<&str>)> = BTreeMap::new();
        for row in rows {
            let counts = summary.objects.entry(row.site.clone()).or_default();
            counts.references += 1;
            counts.bytes += row.size.unwrap_or(0);
            *counts.stages.entry(state_name(row.object.task(), row.stage).to_owned()).or_default() += 1;
            *counts.attempts.entry((u64::from(row.attempt) + 1).to_string()).or_default() += 1;
            *counts.uses.entry(use_name(row.used).to_owned()).or_default() += 1;
            let (processes, machines) = places.entry(&row.site).or_default();
            processes.insert(row.pid);
            machines.insert(&row.ip);
        }
        for (site, (processes, machines)) in places {
            let counts = summary.objects.entry(site.to_owned()).or_default();
            (counts.processes, counts.machines) = (processes.len() as u64, machines.len() as u64);
        }
        Ok(summary)
    }
}

/// Counts in Ray's fields.
pub fn shown_summary(summary: &Summary) -> Cell {
    let all = match summary.of {
        StateKind::Objects => shown_objects(summary),
        StateKind::Tasks => shown_calls(summary, "func_name", "func_or_class_name"),
        _ => shown_calls(summary, "class", "class_name"),
    };
    Cell::map([("cluster", all)])
}

fn shown_calls(summary: &Summary, by: &'static str, key: &'static str) -> Cell {
    let is_tasks = summary.of == StateKind::Tasks;
    let entry = |(name, counts): (&String, &CallCounts)| {
        let kind = is_tasks.then(|| ("type", counts.kind.name().into()));
        let fields = [(key, name.into()), ("state_counts", (&counts.states).into())];
        (name.clone(), Cell::map(fields.into_iter().chain(kind)))
    };
    let calls = [("summary", summary.calls.iter().map(entry).collect()), ("summary_by", by.into())];
    let of = |kind: TaskKind| summary.kinds.get(kind.name()).copied().unwrap_or(0).into();
    let totals = if is_tasks {
        vec![
            ("total_tasks", of(TaskKind::Normal)),
            ("total_actor_tasks", of(TaskKind::Actor)),
            ("total_actor_scheduled", of(TaskKind::ActorCreation)),
        ]
    } else {
        vec![("total_actors", summary.total.into())]
    };
    Cell::map(calls.into_iter().chain(totals))
}

fn shown_objects(summary: &Summary) -> Cell {
    let entry = |(site, counts): (&String, &ObjectCounts)| {
        let cell = Cell::map([
            ("total_objects", counts.references.into()),
            ("total_size_mb", mebibytes(counts.bytes).into()),
            ("total_num_workers", counts.processes.into()),
            ("total_num_nodes", counts.machines.into()),
            ("task_state_counts", (&counts.stages).into()),
            ("task_attempt_number_counts", (&counts.attempts).into()),
            ("ref_type_counts", (&counts.uses).into()),
        ]);
        (site.clone(), cell)
    };
    let bytes = summary.objects.values().map(|counts| counts.bytes).sum();
    Cell::map([
        ("summary", summary.objects.iter().map(entry).collect()),
        ("total_objects", summary.total.into()),
        ("total_size_mb", mebibytes(bytes).into()),
        ("callsite_enabled", (!summary.objects.contains_key(NOT_RECORDED)).into()),
        ("summary_by", "callsite".into()),
    ])
}

/// To three places.
fn mebibytes(bytes: u64) -> f64 {
    (bytes as f64 / MEBIBYTE * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::{ActorId, JobId, TaskId, Unique};
    use oxiray_wire::message::{ObjectUse, TaskStage};

    /// What stands at the end of a path of names.
    fn at<'cell>(cell: &'cell Cell, path: &[&str]) -> &'cell Cell {
        path.iter().fold(cell, |cell, name| match cell {
            Cell::Map(entries) => &entries[*name],
            other => panic!("{other} has no {name}"),
        })
    }

    #[test]
    fn tasks_are_counted_by_name_and_state() {
        let mut unique = Unique::default();
        let mut row = |name: &str, stage| TaskRow {
            task_id: TaskId::generate(ActorId::nil_of(JobId::from_number(1)), &mut unique),
            function: name.into(),
            stage,
            ..TaskRow::default()
        };
        let rows = [row("f", TaskStage::Runs), row("f", TaskStage::Finished), row("g", TaskStage::Failed)];
        let told = shown_summary(&TaskRow::counts(StateKind::Tasks, &rows).expect("counts"));
        let counts = Cell::map([("RUNNING", 1_u64.into()), ("FINISHED", 1_u64.into())]);
        assert_eq!(at(&told, &["cluster", "summary", "f", "state_counts"]), &counts);
        assert_eq!(at(&told, &["cluster", "summary", "f", "type"]), &"NORMAL_TASK".into());
        assert_eq!(at(&told, &["cluster", "total_tasks"]), &3_u64.into());
        assert_eq!(at(&told, &["cluster", "total_actor_tasks"]), &0_u64.into());
    }

    #[test]
    fn objects_are_counted_by_where_they_were_made() {
        let row = |site: &str, size: Option<u64>, pid: u32, used| ObjectRow {
            site: site.into(),
            size,
            pid,
            ip: "10.0.0.1".into(),
            used,
            ..ObjectRow::default()
        };
        let rows = [
            row("a.py:1", Some(2 << 20), 1, ObjectUse::Referred),
            row("a.py:1", None, 2, ObjectUse::Referred),
            row("a.py:2", Some(1 << 20), 2, ObjectUse::Mapped),
        ];
        let told = shown_summary(&ObjectRow::counts(StateKind::Objects, &rows).expect("counts"));
        let all = |name| at(&told, &["cluster", name]);
        assert_eq!((all("total_objects"), all("total_size_mb")), (&3_u64.into(), &3.0.into()));
        assert_eq!(all("callsite_enabled"), &true.into());
        let first = |name| at(&told, &["cluster", "summary", "a.py:1", name]);
        assert_eq!((first("total_num_workers"), first("total_num_nodes")), (&2_u64.into(), &1_u64.into()));
        assert_eq!(first("ref_type_counts"), &Cell::map([("LOCAL_REFERENCE", 2_u64.into())]));
        let unrecorded = [row(NOT_RECORDED, Some(0), 1, ObjectUse::Referred)];
        let told = shown_summary(&ObjectRow::counts(StateKind::Objects, &unrecorded).expect("counts"));
        assert_eq!(at(&told, &["cluster", "callsite_enabled"]), &false.into());
    }
}
