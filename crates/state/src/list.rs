//! From all rows of a kind to those that were asked for, and from those to what is shown.

use crate::cell::Cell;
use crate::columns::{Column, Row, Use, columns};
use crate::summary::Counted;
use oxiray_wire::message::{StateFilter, StateQuery, StateReport};
use oxiray_wire::state::{STATE_VERSION, StateKind, Tables};

/// The most rows that one answer holds.
pub const ROWS_MAX: u32 = 10_000;

/// The answer to a question, from all rows of its kind. The error says what is wrong with the question.
///
/// # Errors
/// Where a filter names no column that may be filtered by, the limit is above [`ROWS_MAX`], or there are no counts of the
/// kind.
pub fn list<R: Row + Counted>(asked: &StateQuery, rows: Vec<R>) -> Result<StateReport, String> {
    let columns = R::columns(asked.kind);
    check(asked, columns)?;
    let mut filters = Vec::new();
    for filter in &asked.filters {
        filters.extend(columns.iter().find(|column| column.name == filter.key).map(|column| (column, filter)));
    }
    let mut fitting: Vec<R> =
        rows.into_iter().filter(|row| filters.iter().all(|(column, filter)| fits(&(column.of)(row), filter))).collect();
    let total = fitting.len() as u64;
    let report = StateReport { request: asked.request, total, version: STATE_VERSION, ..StateReport::default() };
    if asked.summary {
        return Ok(StateReport { summary: Some(R::counts(asked.kind, &fitting)?), ..report });
    }
    fitting.truncate(asked.limit as usize);
    let mut tables = Tables::default();
    *R::among(&mut tables) = fitting;
    Ok(StateReport { tables: Some(tables), ..report })
}

fn check<R>(asked: &StateQuery, columns: &[Column<R>]) -> Result<(), String> {
    if asked.limit > ROWS_MAX {
        return Err(format!(
            "limit={} rows were asked for, and an answer has at most {ROWS_MAX}: add filters",
            asked.limit
        ));
    }
    let usable: Vec<&str> =
        columns.iter().filter(|column| column.is_filter(asked.detail)).map(|column| column.name).collect();
    for filter in &asked.filters {
        if usable.contains(&filter.key.as_str()) {
            continue;
        }
        let hint = match columns.iter().find(|column| column.name == filter.key).map(|column| column.used) {
            Some(Use::Detail) => " (it is a column of the detailed list: ask for detail)",
            Some(_) => " (it is a column that cannot be filtered by)",
            None => "",
        };
        return Err(format!(
            "{} cannot be filtered by `{}`{hint}: their keys are {}",
            asked.kind.name(),
            filter.key,
            usable.join(", ")
        ));
    }
    Ok(())
}

fn fits(cell: &Cell, filter: &StateFilter) -> bool {
    let given = &filter.value;
    let is_equal = match cell {
        Cell::Null => given.is_empty() || given.eq_ignore_ascii_case("none"),
        Cell::Text(text) | Cell::Document(text) => text.eq_ignore_ascii_case(given),
        Cell::Flag(flag) => given.eq_ignore_ascii_case(if *flag { "true" } else { "false" }),
        Cell::Whole(number) => given.parse() == Ok(*number as f64),
        Cell::Real(number) => given.parse() == Ok(*number),
        Cell::List(_) | Cell::Map(_) => cell.to_string() == *given,
    };
    is_equal != filter.differs
}

/// Rows as a list shows them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Shown {
    /// The columns, in their order.
    pub columns: Vec<&'static str>,
    /// A value for each column of each row.
    pub rows: Vec<Vec<Cell>>,
}

/// The rows of a kind in its columns.
pub fn shown(kind: StateKind, detail: bool, tables: &Tables) -> Shown {
    let rows = match kind {
        StateKind::Actors => cells(kind, detail, &tables.actors),
        StateKind::Tasks | StateKind::Timeline => cells(kind, detail, &tables.tasks),
        StateKind::Nodes => cells(kind, detail, &tables.nodes),
        StateKind::Workers => cells(kind, detail, &tables.workers),
        StateKind::Jobs => cells(kind, detail, &tables.jobs),
        StateKind::PlacementGroups => cells(kind, detail, &tables.placement_groups),
        StateKind::Objects => cells(kind, detail, &tables.objects),
        StateKind::RuntimeEnvs => cells(kind, detail, &tables.runtime_envs),
        StateKind::Stacks => cells(kind, detail, &tables.stacks),
        StateKind::Explain => Vec::new(),
    };
    Shown { columns: columns(kind, detail), rows }
}

fn cells<R: Row>(kind: StateKind, detail: bool, rows: &[R]) -> Vec<Vec<Cell>> {
    let shown: Vec<&Column<R>> = R::columns(kind).iter().filter(|column| column.is_shown(detail)).collect();
    rows.iter().map(|row| shown.iter().map(|column| (column.of)(row)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::{ActorId, JobId, TaskId, Unique};
    use oxiray_wire::message::{TaskStage, Variable};
    use oxiray_wire::state::{EnvironmentRow, NodeRow, TaskRow};

    fn rows() -> Vec<TaskRow> {
        let mut unique = Unique::default();
        let mut row = |name: &str, stage: TaskStage, pid: u32| TaskRow {
            task_id: TaskId::generate(ActorId::nil_of(JobId::from_number(1)), &mut unique),
            name: name.into(),
            function: name.into(),
            stage,
            pid: Some(pid),
            ..TaskRow::default()
        };
        vec![row("f", TaskStage::Runs, 1), row("f", TaskStage::Finished, 2), row("g", TaskStage::Failed, 2)]
    }

    fn filters(given: &[(&str, bool, &str)]) -> Vec<StateFilter> {
        let filter = |(key, differs, value): &(&str, bool, &str)| StateFilter {
            key: (*key).into(),
            differs: *differs,
            value: (*value).into(),
        };
        given.iter().map(filter).collect()
    }

    fn ask(given: &[(&str, bool, &str)], limit: u32, detail: bool) -> Result<StateReport, String> {
        let filters = filters(given);
        list(&StateQuery { kind: StateKind::Tasks, filters, limit, detail, ..StateQuery::default() }, rows())
    }

    fn count(given: &[(&str, bool, &str)]) -> u64 {
        ask(given, 10, true).expect("the question is right").total
    }

    #[test]
    fn filters_compare_by_kind_of_value() {
        assert_eq!(count(&[]), 3);
        assert_eq!(count(&[("state", false, "running")]), 1);
        assert_eq!(count(&[("state", true, "RUNNING")]), 2);
        assert_eq!(count(&[("worker_pid", false, "2"), ("name", false, "g")]), 1);
        assert_eq!(count(&[("worker_pid", false, "2.0")]), 2);
        assert_eq!(count(&[("worker_pid", false, "x")]), 0);
        assert_eq!(count(&[("actor_id", false, "")]), 3);
        assert_eq!(count(&[("actor_id", true, "none")]), 0);
        assert_eq!(count(&[("language", false, "python")]), 3);
    }

    #[test]
    fn values_that_hold_others_are_compared_as_they_are_written() {
        let variables = vec![Variable { name: "A".into(), value: Some("\"1\"".into()) }];
        let row = EnvironmentRow { variables, uses: 1, ..EnvironmentRow::default() };
        let written = Cell::map([("env_vars", Cell::map([("A", "\"1\"".into())]))]).to_string();
        let of = |value: &str| {
            let filters = filters(&[("runtime_env", false, value)]);
            let asked = StateQuery { kind: StateKind::RuntimeEnvs, filters, limit: 1, ..StateQuery::default() };
            list(&asked, vec![row.clone()]).expect("the question is right").total
        };
        assert_eq!((of(&written), of("A")), (1, 0));
    }

    #[test]
    fn limits_and_columns() {
        let report = ask(&[], 2, false).expect("the question is right");
        assert_eq!((report.total, report.version), (3, STATE_VERSION));
        let tables = report.tables.expect("rows");
        let brief = shown(StateKind::Tasks, false, &tables);
        assert_eq!((brief.rows.len(), brief.rows[0].len()), (2, brief.columns.len()));
        assert!(!brief.columns.contains(&"language"));
        let detailed = shown(StateKind::Tasks, true, &tables);
        let at = detailed.columns.iter().position(|name| *name == "language").expect("a column");
        assert_eq!(detailed.rows[1][at], "PYTHON".into());
        assert_eq!(shown(StateKind::Timeline, false, &tables).columns[0], "name");
    }

    #[test]
    fn wrong_questions_are_told_why() {
        let error = |given: &[(&str, bool, &str)], limit| ask(given, limit, false).expect_err("it is wrong");
        assert!(error(&[("colour", false, "x")], 1).contains("their keys are task_id"));
        assert!(error(&[("language", false, "x")], 1).contains("ask for detail"));
        assert!(error(&[("error_message", false, "x")], 1).contains("cannot be filtered by"));
        assert!(error(&[], ROWS_MAX + 1).contains("at most 10000"));
        let nodes = StateQuery { kind: StateKind::Nodes, summary: true, ..StateQuery::default() };
        assert!(list::<NodeRow>(&nodes, Vec::new()).expect_err("no counts").contains("no summary of nodes"));
    }
}
