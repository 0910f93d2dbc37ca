//! Rows as YAML and as lines, and counts.

use crate::table::{Table, cell, width};
use oxiray_wire::plain;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use std::fmt::Write as _;

const EXPECT: &str = "writing to a string does not fail";

/// Rows below the names of their columns, without alignment.
pub(crate) fn lines(columns: &[&str], rows: &[Json]) -> String {
    let heads = columns.iter().map(|column| column.to_uppercase()).collect();
    let cells = rows.iter().map(|row| columns.iter().map(|column| cell(&row[*column])).collect());
    let lines: Vec<Vec<String>> = std::iter::once(heads).chain(cells).collect();
    lines.iter().fold(String::new(), |text, line| text + &line.join(", ") + "\n")
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
pub(crate) fn summary(report: &Json, is_wide: bool) -> String {
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
    format!("{text}\n{}", Table::new(&columns, &rows).within(width(is_wide)).draw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_are_drawn() {
        let columns = ["name", "pid", "labels"];
        let rows = [json!({"name": "f", "pid": 12, "labels": {"a": 1}}), json!({"name": "12", "pid": null})];
        assert_eq!(lines(&columns, &rows), "NAME, PID, LABELS\nf, 12, a: 1\n12, , \n");
        let expected = "---\n- name: f\n  pid: 12\n  labels: {\"a\":1}\n- name: \"12\"\n  pid: null\n  labels: null\n";
        assert_eq!(yaml(&columns, &rows), expected);
        assert_eq!(yaml(&columns, &[]), "---\n[]\n");
    }

    #[test]
    fn what_programs_chose_is_one_line() {
        assert_eq!(plain_texts(json!([{"a\n": ["\u{7}", 1]}])), json!([{"a\\n": ["\\u0007", 1]}]));
    }

    #[test]
    fn counts_are_drawn() {
        let report = json!({"cluster": {"total_actors": 2, "summary_by": "class",
            "summary": {"A": {"class_name": "A", "state_counts": {"ALIVE": 1, "DEAD": 1}}}}});
        assert_eq!(
            summary(&report, true),
            "total_actors: 2\n\nCLASS_NAME  STATE_COUNTS\nA           ALIVE: 1, DEAD: 1\n"
        );
    }
}
