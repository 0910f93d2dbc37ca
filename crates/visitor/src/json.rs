//! The state as JSON: the one place where it is made, for the command line, the Python API and whoever else shows it.

use oxiray_state::{Cell, Shown, shown, shown_summary};
use oxiray_wire::message::{ClusterReport, StateFilter, StateQuery, StateReport};
use oxiray_wire::state::{
    ChronicleEntry, ChronicleEvent, ChronicleKind, ClusterState, DemandKind, GrowthView, STATE_VERSION, StateKind,
};
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
        let lists = known.filter(|kind| !matches!(kind, StateKind::Timeline | StateKind::Explain | StateKind::Stacks));
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

/// The kinds of entries that are listed as events of the cluster.
pub const EVENT_KINDS: [ChronicleKind; 5] =
    [ChronicleKind::Node, ChronicleKind::Job, ChronicleKind::Device, ChronicleKind::Autoscaler, ChronicleKind::Head];

/// An entry of the chronicle as an event, with Ray's columns; `origin` is that of its cursor.
///
/// # Errors
/// Where it has a form that JSON has not.
pub fn event(origin: u64, entry: &ChronicleEntry) -> Result<Json, StateError> {
    let source = match entry.event.kind() {
        ChronicleKind::Job => "JOBS",
        ChronicleKind::Autoscaler => "AUTOSCALER",
        ChronicleKind::Device => "RAYLET",
        ChronicleKind::Worker | ChronicleKind::Train => "CORE_WORKER",
        _ => "GCS",
    };
    Ok(serde_json::json!({
        "severity": entry.event.severity().name(),
        "time": date(entry.at_ms),
        "source_type": source,
        "message": said(entry),
        "event_id": format!("{origin:016x}{:016x}", entry.number),
        "custom_fields": value(entry)?,
    }))
}

/// The last `limit` of the entries that pass all filters, as events, and how many pass.
///
/// # Errors
/// As [`event`].
pub fn events(
    (origin, entries): (u64, &[ChronicleEntry]),
    filters: &[StateFilter],
    limit: usize,
) -> Result<(Vec<Json>, u64), StateError> {
    let passes = |row: &Json| {
        filters.iter().all(|filter| {
            let told = &row[&filter.key];
            let is_same = told.as_str().map_or_else(|| told.to_string(), str::to_owned) == filter.value;
            is_same != filter.differs
        })
    };
    let rows = entries.iter().map(|entry| event(origin, entry)).collect::<Result<Vec<_>, _>>()?;
    let mut rows: Vec<Json> = rows.into_iter().filter(passes).collect();
    let total = rows.len();
    // The latest are what people look for.
    rows.drain(..total.saturating_sub(limit));
    Ok((rows, total as u64))
}

/// A moment as Ray writes it, by UTC.
pub fn date(ms: u64) -> String {
    let (days, seconds) = ((ms / 86_400_000) as i64, ms / 1_000 % 86_400);
    // The years are counted from March, so that a leap day is their last (Hinnant, "chrono-compatible low-level date algorithms").
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// An entry of the chronicle as a sentence.
pub fn said(entry: &ChronicleEntry) -> String {
    let node = entry.node.map_or(String::new(), |node| format!(" of node {}", &node.hex()[..8]));
    let device = entry.device.as_ref().map(|part| format!("{} {}{node}", part.resource, part.slot));
    let kind = entry.device.as_ref().map_or(DemandKind::Task, |part| part.holder);
    let pid = if entry.pid > 0 { format!(" (pid {})", entry.pid) } else { String::new() };
    let share = entry.device.as_ref().map_or(0.0, |part| part.share as f64 / 10_000.0);
    let subject = match (device, entry.event.kind()) {
        (Some(device), _) => device,
        (None, ChronicleKind::Worker) => format!("`{}`{pid}{node}", entry.name),
        (None, ChronicleKind::Node | ChronicleKind::Head) if !entry.name.is_empty() => format!("{}{node}", entry.name),
        (None, ChronicleKind::Actor) => format!("{}{pid}", entry.name),
        (None, _) => entry.name.clone(),
    };
    let what = match entry.event {
        ChronicleEvent::DeviceGranted => format!("{share} granted to {kind} `{}`{pid}", entry.name),
        ChronicleEvent::DeviceReturning => format!("{share} is being given back by {kind} `{}`{pid}", entry.name),
        ChronicleEvent::DeviceFree => format!("{share} is free again, which {kind} `{}`{pid} had", entry.name),
        other => other.name().replace('_', " "),
    };
    let parts = [subject, what, entry.text.clone()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
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
    use oxiray_wire::state::{DeviceRow, EnvironmentRow, JobRow, NodeRow, Tables};
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
    fn a_row_has_all_keys_where_an_older_head_told_less_of_it() {
        let (nodes, devices) = (vec![NodeRow::default()], vec![DeviceRow::default()]);
        let state = ClusterState { nodes, devices, ..ClusterState::default() };
        let told = value(&state).expect("it can be shown");
        assert_eq!(told["nodes"][0].get("isolation"), Some(&Json::Null));
        let device = &told["devices"][0];
        assert_eq!((device.get("logical"), device.get("nodes")), (Some(&json!(false)), Some(&json!([]))));
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
