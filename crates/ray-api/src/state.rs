//! `/api/v0`: lists of the cluster's state and counts of them, as Ray's client asks for them and reads them.
//!
//! ```text
//! query string ── asked ──▶ ListAsked ── the head ──▶ StateReport ── listed, counted ──▶ RayAnswer
//! ```
//!
//! Keys, their order and their types are Ray's, odd ones among them: some numbers are texts, and some times 0 or 2^64-1
//! where there is none. `tests/fixtures/ray_http` has what Ray answered, and the tests compare.

use crate::RayAnswer;
use crate::jobs::JobDetails;
use crate::ordered::Ordered;
use crate::rows::{jobs, rows};
use oxiray_state::{Cell, Column, EVENT_COLUMNS, NOT_RECORDED, ROWS_MAX, Row, Use, shown_summary};
use oxiray_wire::message::{StateFilter, StateQuery, StateReport};
use oxiray_wire::state::{
    ActorRow, EnvironmentRow, GroupRow, JobRow, NodeRow, ObjectRow, StateKind, Tables, TaskRow, WorkerRow,
};

/// What Ray's client gets that names no limit.
const LIMIT_DEFAULT: u32 = 100;
/// How long the head is waited for where the client does not say, in seconds.
const TIMEOUT_DEFAULT_S: u64 = 30;
/// The longest that it is waited for.
const TIMEOUT_MAX_S: u64 = 600;
/// How tasks may be counted.
const SUMMARIES: [&str; 2] = ["func_name", "task_name"];

/// What a request for events of the cluster asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct EventsAsked {
    /// Which it wants.
    pub filters: Vec<StateFilter>,
    /// How many at most.
    pub limit: u32,
    detail: bool,
}

/// What a request asks of the head, and how the answer is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct ListAsked {
    /// The question. Its rows are whole, whatever is shown of them: Ray filters by columns that it does not show.
    pub query: StateQuery,
    /// Whether every column is shown.
    pub detail: bool,
    /// How long the answer is waited for, in seconds.
    pub timeout_s: u64,
}

/// The kind of lists that has this name in a path.
pub fn kind(name: &str) -> Option<StateKind> {
    let has_columns = |kind: &StateKind| !matches!(kind, StateKind::Timeline | StateKind::Explain | StateKind::Stacks);
    StateKind::ALL.iter().copied().filter(has_columns).find(|kind| kind.name() == name)
}

/// What a list's query string asks for, given as decoded keys and values in their order.
///
/// # Errors
/// The refusal, in Ray's words.
pub fn asked(kind: StateKind, query: &[(String, String)]) -> Result<ListAsked, RayAnswer> {
    let (limit, detail) = (limit(query)?, flag(query, "detail")?.unwrap_or(false));
    let filters = filters(&filter_columns(kind), query)?;
    let query_asked = StateQuery { kind, filters, limit, detail: true, ..StateQuery::default() };
    Ok(ListAsked { query: query_asked, detail, timeout_s: timeout_s(query)? })
}

/// What the query string of a list of events asks for.
///
/// # Errors
/// The refusal, in Ray's words.
pub fn events_asked(query: &[(String, String)]) -> Result<EventsAsked, RayAnswer> {
    let (limit, detail) = (limit(query)?, flag(query, "detail")?.unwrap_or(false));
    Ok(EventsAsked { filters: filters(&EVENT_COLUMNS, query)?, limit, detail })
}

/// How many rows may be told.
fn limit(query: &[(String, String)]) -> Result<u32, RayAnswer> {
    let limit = match value(query, "limit") {
        None => LIMIT_DEFAULT,
        Some(given) => given
            .parse::<u64>()
            .map_err(|_| {
                refused(400, &format!("Given limit {given} is not a whole number. Use one from 0 to {ROWS_MAX}."))
            })?
            .try_into()
            .unwrap_or(u32::MAX),
    };
    if limit > ROWS_MAX {
        let given = value(query, "limit").unwrap_or_default();
        return Err(refused(
            400,
            &format!(
                "Given limit {given} exceeds the supported limit {ROWS_MAX}. Use a lower limit, or filters (`--filter`) that \
                 fewer rows pass."
            ),
        ));
    }
    Ok(limit)
}

/// What the query string of a summary asks for.
///
/// # Errors
/// The refusal, in Ray's words.
pub fn counts_asked(kind: StateKind, query: &[(String, String)]) -> Result<ListAsked, RayAnswer> {
    let by = value(query, "summary_by").unwrap_or(SUMMARIES[0]);
    if kind == StateKind::Tasks && !SUMMARIES.contains(&by) {
        let text = format!(
            "summary_by is \"{by}\", and must be one of \"func_name\" or \"task_name\": tasks are counted by name here."
        );
        return Err(refused(400, &text));
    }
    let filters = filters(&filter_columns(kind), query)?;
    let query_asked =
        StateQuery { kind, filters, limit: ROWS_MAX, detail: true, summary: true, ..StateQuery::default() };
    Ok(ListAsked { query: query_asked, detail: false, timeout_s: timeout_s(query)? })
}

/// The answer to a list, but for jobs. A browser sees no values of variables.
pub fn listed(asked: &ListAsked, report: &StateReport, is_for_browser: bool) -> RayAnswer {
    let empty = Tables::default();
    let tables = report.tables.as_ref().unwrap_or(&empty);
    let rows = rows(asked.query.kind, asked.detail, is_for_browser, tables);
    told(200, "", answer(asked.query.kind, report, rows, tables.objects.iter().any(|row| row.site == NOT_RECORDED)))
}

/// The answer to a list of events: those that are told, and how many there are.
pub fn listed_events(asked: &EventsAsked, events: &[serde_json::Value], total: u64) -> RayAnswer {
    let columns = if asked.detail { &EVENT_COLUMNS[..] } else { &EVENT_COLUMNS[..5] };
    let cell = |value: &serde_json::Value| match value.as_str() {
        Some(text) => text.into(),
        None => Ordered::Document(value.to_string()),
    };
    let row = |event: &serde_json::Value| Ordered::map(columns.iter().map(|column| (*column, cell(&event[*column]))));
    let report = StateReport { total, ..StateReport::default() };
    told(200, "", answer(StateKind::Jobs, &report, Ordered::List(events.iter().map(row).collect()), false))
}

/// The answer to a list of jobs, of which the report has the rows and `details` what the jobs API tells.
pub fn listed_jobs(asked: &ListAsked, report: &StateReport, details: &[JobDetails]) -> RayAnswer {
    told(200, "", answer(StateKind::Jobs, report, jobs(details, asked.detail), false))
}

/// The answer to a summary.
pub fn counted(asked: &ListAsked, report: &StateReport) -> RayAnswer {
    let Some(summary) = &report.summary else { return refused(500, "the head's answer has no counts") };
    let counts = Ordered::map([("node_id_to_summary", in_rays_order(shown_summary(summary)))]);
    told(200, "", answer(asked.query.kind, report, counts, summary.objects.contains_key(NOT_RECORDED)))
}

/// Why there is no answer.
pub fn refused(code: u16, text: &str) -> RayAnswer {
    told(code, text, Ordered::Null)
}

/// An answer in the form that all of these have.
pub(crate) fn told(code: u16, text: &str, result: Ordered) -> RayAnswer {
    RayAnswer::of(code, text, Ordered::map([("result", result)]))
}

fn answer(kind: StateKind, report: &StateReport, result: Ordered, lacks_sites: bool) -> Ordered {
    let warnings = lacks_sites.then(|| {
        vec![Ordered::from(
            "Callsite is not being recorded. To record callsite information for each ObjectRef created, set env variable \
             RAY_record_ref_creation_sites=1 during `oxiray start` and `init`.",
        )]
    });
    // Ray's own answers on objects and environments have no text here where nothing is missing.
    let is_null = report.missing.is_empty() && matches!(kind, StateKind::Objects | StateKind::RuntimeEnvs);
    Ordered::map([
        ("total", report.total.into()),
        ("num_after_truncation", report.total.into()),
        ("num_filtered", report.total.into()),
        ("result", result),
        ("partial_failure_warning", if is_null { Ordered::Null } else { (&report.missing).into() }),
        ("warnings", warnings.into()),
    ])
}

fn value<'query>(query: &'query [(String, String)], key: &str) -> Option<&'query str> {
    query.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

fn values<'query>(query: &'query [(String, String)], key: &str) -> Vec<&'query str> {
    query.iter().filter(|(name, _)| name == key).map(|(_, value)| value.as_str()).collect()
}

/// As Python writes it, or as a number.
fn flag(query: &[(String, String)], key: &str) -> Result<Option<bool>, RayAnswer> {
    match value(query, key) {
        None => Ok(None),
        Some("True" | "true" | "1") => Ok(Some(true)),
        Some("False" | "false" | "0") => Ok(Some(false)),
        Some(other) => Err(refused(400, &format!("Failed to convert {key}={other} to a bool: write True or False."))),
    }
}

fn timeout_s(query: &[(String, String)]) -> Result<u64, RayAnswer> {
    let Some(given) = value(query, "timeout") else { return Ok(TIMEOUT_DEFAULT_S) };
    match given.parse() {
        Ok(seconds) => Ok(u64::min(seconds, TIMEOUT_MAX_S)),
        Err(_) => Err(refused(400, &format!("timeout={given} is not a whole number of seconds."))),
    }
}

/// Keys, predicates and values belong together by their positions.
fn filters(usable: &[&str], query: &[(String, String)]) -> Result<Vec<StateFilter>, RayAnswer> {
    let (keys, predicates, given) =
        (values(query, "filter_keys"), values(query, "filter_predicates"), values(query, "filter_values"));
    if keys.len() != given.len() || keys.len() != predicates.len() {
        let text = format!(
            "A filter is a key, a predicate and a value, and {} filter_keys, {} filter_predicates and {} filter_values are given.",
            keys.len(),
            predicates.len(),
            given.len()
        );
        return Err(refused(400, &text));
    }
    let filter = |((key, predicate), value): ((&str, &str), &str)| {
        let key = key.to_lowercase();
        if !usable.contains(&key.as_str()) {
            let listed: Vec<String> = usable.iter().map(|name| format!("'{name}'")).collect();
            let text = format!(
                "The given filter column {key} is not supported. Enter filters with \u{2013}-filter key=value or \
                 \u{2013}-filter key!=value Supported filter columns: {{{}}}",
                listed.join(", ")
            );
            return Err(refused(400, &text));
        }
        let differs = match predicate {
            "=" => false,
            "!=" => true,
            other => {
                let text = format!("Unsupported filter predicate {other} is given. Available predicates: =, !=.");
                return Err(refused(400, &text));
            }
        };
        Ok(StateFilter { key, differs, value: value.to_owned() })
    };
    keys.into_iter().zip(predicates).zip(given).map(filter).collect()
}

fn filter_columns(kind: StateKind) -> Vec<&'static str> {
    fn of<R: Row>(kind: StateKind) -> Vec<&'static str> {
        let is_filter = |column: &&Column<R>| matches!(column.used, Use::Main | Use::Detail);
        R::columns(kind).iter().filter(is_filter).map(|column| column.name).collect()
    }
    match kind {
        StateKind::Actors => of::<ActorRow>(kind),
        StateKind::Tasks | StateKind::Timeline => of::<TaskRow>(kind),
        StateKind::Nodes => of::<NodeRow>(kind),
        StateKind::Workers => of::<WorkerRow>(kind),
        StateKind::Jobs => of::<JobRow>(kind),
        StateKind::PlacementGroups => of::<GroupRow>(kind),
        StateKind::Objects => of::<ObjectRow>(kind),
        StateKind::RuntimeEnvs => of::<EnvironmentRow>(kind),
        StateKind::Explain | StateKind::Stacks => Vec::new(),
    }
}

/// The keys of summaries as Ray has them; those of programs, such as names of functions, come as they are.
const SUMMARY_KEYS: [&str; 18] = [
    "func_or_class_name",
    "class_name",
    "type",
    "state_counts",
    "summary",
    "total_tasks",
    "total_actor_tasks",
    "total_actor_scheduled",
    "total_actors",
    "total_objects",
    "total_size_mb",
    "total_num_workers",
    "total_num_nodes",
    "task_state_counts",
    "task_attempt_number_counts",
    "ref_type_counts",
    "callsite_enabled",
    "summary_by",
];

/// Counts with their keys in Ray's order. Only the levels that Ray gives keys to are ordered: what is counted by a name that a
/// program chose stays as it is.
fn in_rays_order(counts: Cell) -> Ordered {
    let fields = |cell: Cell| -> Vec<(String, Cell)> {
        let Cell::Map(cells) = cell else { return Vec::new() };
        let mut cells: Vec<_> = cells.into_iter().collect();
        cells.sort_by_key(|(name, _)| SUMMARY_KEYS.iter().position(|key| key == name));
        cells
    };
    let entry = |cell: Cell| Ordered::Map(fields(cell).into_iter().map(|(name, cell)| (name, cell.into())).collect());
    let named = |cell: Cell| match cell {
        Cell::Map(entries) => Ordered::Map(entries.into_iter().map(|(name, cell)| (name, entry(cell))).collect()),
        other => other.into(),
    };
    let cluster = |cell: Cell| {
        let told = fields(cell).into_iter().map(|(key, cell)| {
            let value = if key == "summary" { named(cell) } else { cell.into() };
            (key, value)
        });
        Ordered::Map(told.collect())
    };
    let Cell::Map(clusters) = counts else { return Ordered::empty_map() };
    Ordered::Map(clusters.into_iter().map(|(name, cell)| (name, cluster(cell))).collect())
}
