//! The state as JSON: the one place where it is made, for the command line, the Python API and whoever else shows it.

use oxiray_state::{Cell, Shown, shown, shown_summary};
use oxiray_wire::message::{ClusterReport, StateFilter, StateQuery, StateReport};
use oxiray_wire::state::{ClusterState, GrowthView, STATE_VERSION, StateKind};
use prost::Message as _;
use serde::Serialize;
use serde_json::Value as Json;
use thiserror::Error;

/// Why an answer cannot be shown, or a question not be asked.
#[derive(Debug, Error)]
pub enum StateError {
    /// There is no list of that name.
    #[error("there is no list of `{given}` in this version: there are {known}")]
    Kind {
        /// What was given.
        given: String,
        /// What there is.
        known: String,
    },
    /// The head is of another version.
    #[error(
        "the head tells its state in version {told}, and this program reads version {STATE_VERSION}: use the program that was \
         installed with the head"
    )]
    Version {
        /// The head's.
        told: u32,
    },
    /// Not what was asked for.
    #[error("the head's answer has no {0}")]
    Missing(&'static str),
    /// It has no form in JSON.
    #[error("the head's answer cannot be shown: {0}")]
    Unwritable(#[from] serde_json::Error),
}

/// The kind of lists that goes by this name.
///
/// # Errors
/// Where there is none.
pub fn kind(name: &str) -> Result<StateKind, StateError> {
    let known = StateKind::ALL.iter().copied();
    known.clone().find(|kind| kind.name() == name).ok_or_else(|| {
        let lists = known.filter(|kind| !matches!(kind, StateKind::Timeline | StateKind::Explain));
        let mut names: Vec<&str> = lists.map(StateKind::name).collect();
        names.sort_unstable();
        StateError::Kind { given: name.to_owned(), known: names.join(", ") }
    })
}

/// A condition on a column. A value that is a JSON object or array is compared with what the column holds, however it is
/// written.
pub fn filter(key: String, differs: bool, value: String) -> StateFilter {
    let value = match serde_json::from_str(&value) {
        Ok(nested @ (Json::Array(_) | Json::Object(_))) => cell(nested).to_string(),
        _ => value,
    };
    StateFilter { key, differs, value }
}

/// The answer to a question as JSON: rows of a list, counts, an explanation, or what came of an order to empty a node.
///
/// # Errors
/// Where the head is of another version, or the answer is not one to the question.
pub fn answer(asked: &StateQuery, report: &StateReport) -> Result<Json, StateError> {
    check(report.version)?;
    if asked.kind == StateKind::Explain {
        return value(report.explanation.as_ref().ok_or(StateError::Missing("explanation"))?);
    }
    if asked.summary {
        let summary = report.summary.as_ref().ok_or(StateError::Missing("counts"))?;
        return Ok(json(shown_summary(summary)));
    }
    let tables = report.tables.as_ref().ok_or(StateError::Missing("rows"))?;
    let Shown { columns, rows } = shown(asked.kind, asked.detail, tables);
    let row = |cells: Vec<Cell>| -> Json {
        columns.iter().zip(cells).map(|(name, cell)| ((*name).to_owned(), json(cell))).collect()
    };
    Ok(rows.into_iter().map(row).collect())
}

/// What came of an order to empty a node.
///
/// # Errors
/// Where the head is of another version, or the answer is not one to an order.
pub fn drained(report: &StateReport) -> Result<Json, StateError> {
    check(report.version)?;
    value(report.drained.as_ref().ok_or(StateError::Missing("word on a node that is emptied"))?)
}

/// The cluster in whole, out of a report.
///
/// # Errors
/// Where the head is of another version, or the daemon that answered is none.
pub fn cluster(report: ClusterReport) -> Result<ClusterState, StateError> {
    check(report.version)?;
    report.state.ok_or(StateError::Missing("state of the cluster"))
}

/// What is asked of the autoscaler, as the head keeps it: bundles that are to fit into the cluster for good, and demands that
/// nobody waits for, both as JSON.
///
/// # Errors
/// Where one of them is not written so.
pub fn demands(standing: &str, waiting: &str) -> Result<Vec<u8>, serde_json::Error> {
    let (standing, waiting) = (serde_json::from_str(standing)?, serde_json::from_str(waiting)?);
    Ok(GrowthView { machines: Vec::new(), waiting, standing }.encode_to_vec())
}

/// Any of the types of the state as JSON.
///
/// # Errors
/// Where it has a form that JSON has not.
pub fn value<T: Serialize>(state: &T) -> Result<Json, StateError> {
    Ok(serde_json::to_value(state)?)
}

/// Whether types of the head's version are read here.
///
/// # Errors
/// Where they are not.
pub fn check(told: u32) -> Result<(), StateError> {
    if told == STATE_VERSION { Ok(()) } else { Err(StateError::Version { told }) }
}

fn json(cell: Cell) -> Json {
    match cell {
        Cell::Null => Json::Null,
        Cell::Flag(flag) => flag.into(),
        Cell::Whole(number) => number.into(),
        Cell::Real(number) => number.into(),
        Cell::Text(text) => text.into(),
        // What its user wrote and is no JSON after all says nothing.
        Cell::Document(text) => serde_json::from_str(&text).unwrap_or(Json::Null),
        Cell::List(cells) => cells.into_iter().map(json).collect(),
        Cell::Map(cells) => cells.into_iter().map(|(name, cell)| (name, json(cell))).collect(),
    }
}

fn cell(json: Json) -> Cell {
    match json {
        Json::Null => Cell::Null,
        Json::Bool(flag) => flag.into(),
        Json::Number(number) => number.as_i64().map_or_else(|| number.as_f64().into(), Cell::Whole),
        Json::String(text) => text.into(),
        Json::Array(values) => values.into_iter().map(cell).collect(),
        Json::Object(entries) => entries.into_iter().map(|(name, value)| (name, cell(value))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_wire::message::Variable;
    use oxiray_wire::state::{EnvironmentRow, JobRow, Tables};
    use serde_json::json;

    fn report(tables: Tables) -> StateReport {
        StateReport { version: STATE_VERSION, tables: Some(tables), ..StateReport::default() }
    }

    #[test]
    fn rows_have_the_columns_that_were_asked_for() {
        let job = JobRow { submission: "one".into(), runtime_env: r#"{"pip": ["x"]}"#.into(), ..JobRow::default() };
        let told = report(Tables { jobs: vec![job], ..Tables::default() });
        let asked = StateQuery { kind: StateKind::Jobs, ..StateQuery::default() };
        let rows = answer(&asked, &told).expect("rows");
        assert_eq!((&rows[0]["submission_id"], rows[0].get("runtime_env")), (&json!("one"), None));
        let rows = answer(&StateQuery { detail: true, ..asked }, &told).expect("rows");
        assert_eq!(rows[0]["runtime_env"], json!({"pip": ["x"]}));
    }

    #[test]
    fn a_filter_finds_what_holds_others_however_it_is_written() {
        let variables = vec![Variable { name: "A".into(), value: Some("1".into()) }];
        let row = EnvironmentRow { variables, uses: 1, ..EnvironmentRow::default() };
        let filters = vec![filter("runtime_env".into(), false, r#" {"env_vars" : {"A":"1"}} "#.into())];
        let asked = StateQuery { kind: StateKind::RuntimeEnvs, limit: 9, filters, ..StateQuery::default() };
        assert_eq!(oxiray_state::list(&asked, vec![row]).expect("an answer").total, 1);
        assert_eq!(filter("name".into(), true, "a [text]".into()).value, "a [text]");
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let other = StateReport { version: STATE_VERSION + 1, ..StateReport::default() };
        let asked = StateQuery { kind: StateKind::Nodes, ..StateQuery::default() };
        assert!(answer(&asked, &other).expect_err("another version").to_string().contains("reads version"));
        let empty = StateReport { version: STATE_VERSION, ..StateReport::default() };
        assert_eq!(answer(&asked, &empty).expect_err("no rows").to_string(), "the head's answer has no rows");
        let unknown = kind("dreams").expect_err("no list").to_string();
        assert!(
            unknown.ends_with("there are actors, jobs, nodes, objects, placement_groups, runtime_envs, tasks, workers"),
            "{unknown}"
        );
        assert_eq!(kind("explain").expect("a kind"), StateKind::Explain);
    }
}
