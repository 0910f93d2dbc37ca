//! `oxiray list`, `oxiray get` and `oxiray summary`.

use crate::arguments::{Format, GetOptions, ListOptions, SummaryOptions};
use crate::visit;
use crate::{identifiers, say, show};
use anyhow::bail;
use oxiray_state::columns;
use oxiray_visitor::json;
use oxiray_wire::message::{StateFilter, StateQuery};
use serde_json::Value as Json;
use std::time::Duration;

/// How long the daemon may take to answer where nothing is said.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn run(options: &ListOptions) -> anyhow::Result<()> {
    if matches!(&*kind(&options.kind), "events" | "cluster_events") {
        return events(options);
    }
    let filters = options.filters.iter().map(|text| filter(text)).collect::<anyhow::Result<Vec<_>>>()?;
    let asked = StateQuery {
        kind: json::kind(&kind(&options.kind))?,
        filters,
        limit: options.limit,
        detail: options.detail,
        ..StateQuery::default()
    };
    let (rows, total) = rows(options.address.as_deref(), &asked, Duration::from_secs(options.timeout))?;
    let columns = columns(asked.kind, asked.detail);
    let text = match options.format {
        Format::Json => serde_json::to_string_pretty(&rows)?,
        Format::Yaml => show::yaml(&columns, &rows),
        Format::Default if options.detail => show::yaml(&columns, &rows),
        Format::Default | Format::Table => format!(
            "{}\n{}",
            show::table(&columns, &rows, if options.no_trunc { None } else { show::terminal_width() }),
            counted(asked.kind.name(), rows.len() as u64, total)
        ),
    };
    say(text.trim_end());
    Ok(())
}

/// What happened, as far as the head remembers it.
fn events(options: &ListOptions) -> anyhow::Result<()> {
    let filters = options.filters.iter().map(|text| filter(text)).collect::<anyhow::Result<Vec<_>>>()?;
    if let Some(unknown) = filters.iter().find(|filter| !json::EVENT_COLUMNS.contains(&filter.key.as_str())) {
        bail!("`--filter {}`: events have the columns {}", unknown.key, json::EVENT_COLUMNS.join(", "));
    }
    let limit = Duration::from_secs(options.timeout);
    let mut visitor = visit::begin_reading(&visit::find(options.address.as_deref())?)?;
    let (origin, entries) = visitor.chronicle_so_far(&json::EVENT_KINDS, None, limit)?;
    let rows = entries.iter().map(|entry| json::event(origin, entry)).collect::<Result<Vec<_>, _>>()?;
    let passes = |row: &Json| {
        filters.iter().all(|filter| {
            let is_same =
                row[&filter.key].as_str().map_or_else(|| row[&filter.key].to_string(), str::to_owned) == filter.value;
            is_same != filter.differs
        })
    };
    let mut rows: Vec<Json> = rows.into_iter().filter(passes).collect();
    let total = rows.len() as u64;
    // The latest are what people look for.
    rows.drain(..rows.len().saturating_sub(options.limit as usize));
    let columns = &json::EVENT_COLUMNS[..if options.detail { 6 } else { 5 }];
    let text = match options.format {
        Format::Json => serde_json::to_string_pretty(&rows)?,
        Format::Yaml => show::yaml(columns, &rows),
        Format::Default if options.detail => show::yaml(columns, &rows),
        Format::Default | Format::Table => format!(
            "{}\n{}",
            show::table(columns, &rows, if options.no_trunc { None } else { show::terminal_width() }),
            counted("events", rows.len() as u64, total)
        ),
    };
    say(text.trim_end());
    Ok(())
}

pub(crate) fn get(options: &GetOptions) -> anyhow::Result<()> {
    let (kind, address) = (kind(&options.kind), options.address.as_deref());
    let Some(key) = identifiers::key_of(&kind) else {
        bail!("a single one of `{kind}` cannot be shown: use `oxiray list`");
    };
    let limit = Duration::from_secs(options.timeout);
    let mut rows = with(address, &kind, key, &options.id, limit)?;
    if rows.1.is_empty() && kind == "jobs" {
        rows = with(address, &kind, "submission_id", &options.id, limit)?;
    }
    if rows.1.is_empty() {
        rows = with(address, &kind, key, &identifiers::whole(address, &[&kind], &options.id)?, limit)?;
    }
    say(show::yaml(&rows.0, &rows.1).trim_end());
    Ok(())
}

/// The columns, and the rows whose column `key` has this value.
fn with(
    address: Option<&str>,
    kind: &str,
    key: &str,
    value: &str,
    limit: Duration,
) -> anyhow::Result<(Vec<&'static str>, Vec<Json>)> {
    let filters = vec![json::filter(key.into(), false, value.into())];
    let asked = StateQuery { kind: json::kind(kind)?, filters, limit: 100, detail: true, ..StateQuery::default() };
    Ok((columns(asked.kind, asked.detail), rows(address, &asked, limit)?.0))
}

pub(crate) fn summary(options: &SummaryOptions) -> anyhow::Result<()> {
    let asked = StateQuery { kind: json::kind(&kind(&options.kind))?, summary: true, ..StateQuery::default() };
    let (told, _) = ask(options.address.as_deref(), &asked, Duration::from_secs(options.timeout))?;
    say(show::summary(&told).trim_end());
    Ok(())
}

/// The answer as JSON, and how many rows there are before the limit.
pub(crate) fn ask(address: Option<&str>, asked: &StateQuery, limit: Duration) -> anyhow::Result<(Json, u64)> {
    let report = visit::state(&mut visit::begin(&visit::find(address)?)?, asked.clone(), limit)?;
    Ok((json::answer(asked, &report)?, report.total))
}

/// The same where rows are asked for.
pub(crate) fn rows(address: Option<&str>, asked: &StateQuery, limit: Duration) -> anyhow::Result<(Vec<Json>, u64)> {
    match ask(address, asked, limit)? {
        (Json::Array(rows), total) => Ok((rows, total)),
        (other, _) => bail!("rows of {} were asked for, and the answer is {other}", asked.kind),
    }
}

/// `placement-groups` and `actor` are as good as `placement_groups` and `actors`.
fn kind(given: &str) -> String {
    let name = given.replace('-', "_");
    if name.ends_with('s') { name } else { format!("{name}s") }
}

fn filter(text: &str) -> anyhow::Result<StateFilter> {
    let Some((key, value)) = text.split_once('=') else {
        bail!("`--filter {text}`: a filter is key=value or key!=value");
    };
    let (key, differs) = key.strip_suffix('!').map_or((key, false), |key| (key, true));
    Ok(json::filter(key.trim().into(), differs, value.trim().into()))
}

fn counted(kind: &str, shown: u64, total: u64) -> String {
    match total {
        0 => format!("no {kind}"),
        _ if shown < total => format!("{shown} of {total} {kind}: add --filter, or raise --limit, to see the others"),
        1 => format!("1 {}", kind.strip_suffix('s').unwrap_or(kind)),
        _ => format!("{total} {kind}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_and_kinds_are_read() {
        let read = |text| filter(text).map(|filter| (filter.key, filter.differs, filter.value)).ok();
        assert_eq!(read("state=RUNNING"), Some(("state".into(), false, "RUNNING".into())));
        assert_eq!(read("name!=a=b"), Some(("name".into(), true, "a=b".into())));
        assert_eq!(read("state"), None);
        assert_eq!((kind("placement-groups"), kind("actor")), ("placement_groups".into(), "actors".into()));
        assert_eq!([counted("tasks", 1, 1), counted("tasks", 3, 3)], ["1 task", "3 tasks"]);
        assert_eq!(counted("tasks", 2, 5), "2 of 5 tasks: add --filter, or raise --limit, to see the others");
    }
}
