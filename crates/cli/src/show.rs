//! Rows as tables and as YAML.

use oxiray_wire::plain;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use std::fmt::Write as _;

const EXPECT: &str = "writing to a string does not fail";

/// How narrow a column may become where the terminal is too narrow for all of them.
const CELL_WIDTH_MIN: usize = 8;
const GAP: usize = 2;

/// How many characters a line of the terminal has; `None` where the output goes elsewhere.
pub(crate) fn terminal_width() -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(std::io::stdout())?;
    Some(usize::from(width.0)).filter(|width| *width > 0)
}

/// Rows below the names of their columns, each column as wide as its widest cell. Where a line would be longer than
/// `limit`, the widest columns are cut.
pub(crate) fn table(columns: &[&str], rows: &[Json], limit: Option<usize>) -> String {
    let heads: Vec<String> = columns.iter().map(|column| column.to_uppercase()).collect();
    let cells: Vec<Vec<String>> =
        rows.iter().map(|row| columns.iter().map(|column| cell(&row[*column])).collect()).collect();
    let mut widths: Vec<usize> = (0..columns.len())
        .map(|at| cells.iter().chain([&heads]).map(|row| row[at].chars().count()).max().unwrap_or(0))
        .collect();
    if let Some(limit) = limit {
        narrow(&mut widths, limit);
    }
    let mut text = String::new();
    for row in [&heads].into_iter().chain(&cells) {
        let line: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{:<width$}", cut(cell, *width))).collect();
        writeln!(text, "{}", line.join("  ").trim_end()).expect(EXPECT);
    }
    text
}

/// Rows below the names of their columns, without alignment.
pub(crate) fn lines(columns: &[&str], rows: &[Json]) -> String {
    let heads = columns.iter().map(|column| column.to_uppercase()).collect();
    let cells = rows.iter().map(|row| columns.iter().map(|column| cell(&row[*column])).collect());
    let lines: Vec<Vec<String>> = std::iter::once(heads).chain(cells).collect();
    lines.iter().fold(String::new(), |text, line| text + &line.join(", ") + "\n")
}

/// Takes from the widest columns, one character at a time, what a line is too long.
fn narrow(widths: &mut [usize], limit: usize) {
    let line = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
    for _ in limit..line {
        match widths.iter_mut().max() {
            Some(widest) if *widest > CELL_WIDTH_MIN => *widest -= 1,
            _ => return,
        }
    }
}

/// The text, or as much of it as there is room for, and a sign that there is more.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['\u{2026}']).collect()
}

/// The same state with each text in it as one line that a terminal obeys nothing of.
pub(crate) fn plain_state<T: Serialize + DeserializeOwned>(state: &T) -> anyhow::Result<T> {
    Ok(serde_json::from_value(plain_texts(serde_json::to_value(state)?))?)
}

fn plain_texts(value: Json) -> Json {
    match value {
        Json::String(text) => plain(&text).into(),
        Json::Array(values) => values.into_iter().map(plain_texts).collect(),
        Json::Object(entries) => {
            entries.into_iter().map(|(name, value)| (plain(&name).into_owned(), plain_texts(value))).collect()
        }
        other => other,
    }
}

fn cell(value: &Json) -> String {
    match value {
        Json::Null => String::new(),
        Json::String(text) => plain(text).into_owned(),
        Json::Object(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|(name, value)| format!("{}: {}", plain(name), cell(value))).collect();
            entries.join(", ")
        }
        other => other.to_string(),
    }
}

/// One entry for each row, with its columns in order.
pub(crate) fn yaml(columns: &[&str], rows: &[Json]) -> String {
    let mut text = String::from("---\n");
    for row in rows {
        for (at, column) in columns.iter().enumerate() {
            let lead = if at == 0 { "- " } else { "  " };
            writeln!(text, "{lead}{column}: {}", scalar(&row[*column])).expect(EXPECT);
        }
    }
    if rows.is_empty() {
        text.push_str("[]\n");
    }
    text
}

/// JSON is YAML; text stands bare where nothing else could be meant by it.
fn scalar(value: &Json) -> String {
    match value {
        Json::String(text) if is_plain(text) => text.clone(),
        other => other.to_string(),
    }
}

fn is_plain(text: &str) -> bool {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
    // Only digits, or digits around one letter `e`, would be read as a number.
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(is_word)
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text.to_ascii_lowercase().as_str())
}

/// Counts by name and state, after the totals.
pub(crate) fn summary(report: &Json) -> String {
    let mut text = String::new();
    let Some(all) = report["cluster"].as_object() else { return text };
    for (name, total) in all.iter().filter(|(name, _)| name.starts_with("total_")) {
        writeln!(text, "{name}: {total}").expect(EXPECT);
    }
    let named = |(name, row): (&String, &Json)| {
        let mut row = row.clone();
        row["call_site"] = name.as_str().into();
        row
    };
    let rows: Vec<Json> = all["summary"].as_object().into_iter().flatten().map(named).collect();
    let by = if all["summary_by"] == "callsite" { "call_site" } else { "func_or_class_name" };
    let named = [
        by,
        "class_name",
        "type",
        "state_counts",
        "total_objects",
        "total_size_mb",
        "total_num_workers",
        "ref_type_counts",
    ];
    let is_there = |name: &&str| rows.first().is_some_and(|row| !row[*name].is_null());
    let columns: Vec<&str> = named.into_iter().filter(is_there).collect();
    format!("{text}\n{}", table(&columns, &rows, terminal_width()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_are_drawn() {
        let columns = ["name", "pid", "labels"];
        let rows = [json!({"name": "f", "pid": 12, "labels": {"a": 1}}), json!({"name": "12", "pid": null})];
        assert_eq!(table(&columns, &rows, None), "NAME  PID  LABELS\nf     12   a: 1\n12\n");
        assert_eq!(lines(&columns, &rows), "NAME, PID, LABELS\nf, 12, a: 1\n12, , \n");
        let expected = "---\n- name: f\n  pid: 12\n  labels: {\"a\":1}\n- name: \"12\"\n  pid: null\n  labels: null\n";
        assert_eq!(yaml(&columns, &rows), expected);
        assert_eq!(yaml(&columns, &[]), "---\n[]\n");
    }

    #[test]
    fn a_table_that_is_wider_than_the_terminal_is_cut_where_it_is_widest() {
        let columns = ["task_id", "name"];
        let rows = [json!({"task_id": "0123456789abcdef0123", "name": "train"})];
        let drawn = table(&columns, &rows, Some(20));
        assert_eq!(drawn, "TASK_ID        NAME\n0123456789ab\u{2026}  train\n");
        assert_eq!(
            table(&columns, &rows, Some(3)),
            "TASK_ID   NAME\n0123456\u{2026}  train\n",
            "readable all the same"
        );
    }

    #[test]
    fn what_programs_chose_makes_no_rows_and_is_not_obeyed() {
        let rows = [json!({"name": "f\n1    forged", "labels": {"\u{1b}[2J": "\u{9b}2J"}})];
        let drawn = table(&["name", "labels"], &rows, None);
        let expected = ["NAME            LABELS", r"f\n1    forged  \u001b[2J: \u009b2J", ""];
        assert_eq!(drawn, expected.join("\n"));
        assert_eq!(plain_texts(json!([{"a\n": ["\u{7}", 1]}])), json!([{"a\\n": ["\\u0007", 1]}]));
    }

    #[test]
    fn counts_are_drawn() {
        let report = json!({"cluster": {"total_actors": 2, "summary_by": "class",
            "summary": {"A": {"class_name": "A", "state_counts": {"ALIVE": 1, "DEAD": 1}}}}});
        assert_eq!(summary(&report), "total_actors: 2\n\nCLASS_NAME  STATE_COUNTS\nA           ALIVE: 1, DEAD: 1\n");
    }
}
