//! `oxiray list`, `oxiray get` and `oxiray summary`.

use crate::arguments::{Format, GetOptions, ListOptions, SummaryOptions};
use crate::table::{Table, width};
use crate::visit;
use crate::{identifiers, say, show};
use anyhow::bail;
use oxiray_state::{EVENT_COLUMNS, columns};
use oxiray_visitor::json;
use oxiray_wire::message::{StateFilter, StateQuery};
use serde_json::Value as Json;
use std::time::Duration;

/// What is listed of the head's chronicle.
const EVENTS: &str = "events";

pub(crate) fn run(options: &ListOptions) -> anyhow::Result<()> {
    if matches!(&*kind(&options.kind), "events" | "cluster_events") {
        return events(options);
    }
    let filters = options.filters.iter().map(|text| filter(text)).collect::<anyhow::Result<Vec<_>>>()?;
    let address = options.address.as_deref();
    let asked = StateQuery {
        kind: json::kind(&kind(&options.kind))?,
        filters: filters.into_iter().map(|filter| identifiers::in_filter(address, filter)).collect::<Result<_, _>>()?,
        limit: options.limit,
        detail: options.detail,
        ..StateQuery::default()
    };
    let (rows, total) = visit::rows(address, &asked, Duration::from_secs(options.timeout))?;
    print(options, &Listed { columns: &columns(asked.kind, asked.detail), rows, total, name: asked.kind.name() })
}

/// The rows that were asked for, how many there are altogether, and of what.
struct Listed<'a> {
    columns: &'a [&'a str],
    rows: Vec<Json>,
    total: u64,
    name: &'a str,
}

fn print(options: &ListOptions, listed: &Listed<'_>) -> anyhow::Result<()> {
    let Listed { columns, rows, total, name } = listed;
    let format = if options.printing.json { Format::Json } else { options.format };
    let text = match format {
        Format::Json => serde_json::to_string_pretty(rows)?,
        Format::Yaml => show::yaml(columns, rows),
        Format::Default if options.detail => show::yaml(columns, rows),
        Format::Default | Format::Table => {
            let limit = width(options.printing.wide);
            // Where there is little room, the message of an event is worth more than its identifier.
            let sentences =
                columns.iter().position(|column| limit.is_some() && *column == "message" && *name == EVENTS);
            let table = Table::new(&columns[..sentences.map_or(columns.len(), |at| at + 1)], rows).within(limit);
            let table = if sentences.is_some() { table.with_sentences_last() } else { table };
            format!("{}\n{}", table.draw(), counted(name, rows.len() as u64, *total))
        }
    };
    say(text.trim_end());
    Ok(())
}

/// What happened, as far as the head remembers it.
fn events(options: &ListOptions) -> anyhow::Result<()> {
    let filters = options.filters.iter().map(|text| filter(text)).collect::<anyhow::Result<Vec<_>>>()?;
    if let Some(unknown) = filters.iter().find(|filter| !EVENT_COLUMNS.contains(&filter.key.as_str())) {
        bail!("`--filter {}`: events have the columns {}", unknown.key, EVENT_COLUMNS.join(", "));
    }
    let limit = Duration::from_secs(options.timeout);
    let mut visitor = visit::begin_reading(&visit::find(options.address.as_deref())?)?;
    let (origin, entries) = visitor.chronicle_so_far(&json::EVENT_KINDS, None, limit)?;
    let (rows, total) = json::events((origin, &entries), &filters, options.limit as usize)?;
    let columns = &EVENT_COLUMNS[..if options.detail { 6 } else { 5 }];
    print(options, &Listed { columns, rows, total, name: EVENTS })
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
    let text =
        if options.printing.json { serde_json::to_string_pretty(&rows.1)? } else { show::yaml(&rows.0, &rows.1) };
    say(text.trim_end());
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
    Ok((columns(asked.kind, asked.detail), visit::rows(address, &asked, limit)?.0))
}

pub(crate) fn summary(options: &SummaryOptions) -> anyhow::Result<()> {
    let asked = StateQuery { kind: json::kind(&kind(&options.kind))?, summary: true, ..StateQuery::default() };
    let (told, _) = visit::list(options.address.as_deref(), &asked, Duration::from_secs(options.timeout))?;
    let text = if options.printing.json {
        serde_json::to_string_pretty(&told)?
    } else {
        show::summary(&told, options.printing.wide)
    };
    say(text.trim_end());
    Ok(())
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
    let kind = &kind.replace('_', " ");
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
